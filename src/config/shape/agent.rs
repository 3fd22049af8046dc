//! What an entry of `upstreams` says of an A2A agent, as its author writes it.

use schemars::JsonSchema;
use serde::Deserialize;

/// How the agent's card is read and shown.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct AgentCard {
    /// Other addresses by which the card calls the agent's own endpoint; they are replaced by Lictor's like
    /// `url` and `rest`.
    #[schemars(example = ["https://agent.example.org/a2a"])]
    #[serde(default)]
    pub urls: Vec<String>,
    /// JWK Set with the agent's public keys: a card that none of them has signed is refused.
    pub keys: Option<String>,
    /// Signs cards that had to be changed; without it, such cards have no signatures.
    pub sign: Option<Sign>,
}

/// A key of Lictor's own.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Sign {
    /// PEM file with the private key, in PKCS#8: P-256, P-384, Ed25519 or RSA.
    #[schemars(required)]
    pub key: Option<String>,
    /// The key's name (`kid`) in the JWK Set that has its public half.
    #[schemars(required, example = &"lictor-1")]
    pub key_id: Option<String>,
    /// Where that JWK Set is published (`jku`).
    #[schemars(example = "https://keys.example.org/jwks.json")]
    pub keys_url: Option<String>,
}

/// Where the agent may be told to send push notifications.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct PushNotifications {
    /// Names, or `*.` and a domain below which every name is allowed.
    #[schemars(required, length(min = 1), example = ["hooks.example.org", "*.push.example.org"])]
    pub hosts: Option<Vec<String>>,
    /// Ports beside 443.
    #[schemars(inner(range(min = 1, max = 65_535)), example = [8443])]
    #[serde(default)]
    pub ports: Vec<u16>,
}
