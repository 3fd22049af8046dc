//! What the cards of agents are rewritten with, out of the settings of listener, route and upstream.

use std::{net::SocketAddr, path::Path, sync::Arc};

use url::Url;

use crate::{
    listener::{self, Door},
    proxy::settings::Route,
    response::agent_card::{Demands, KeySet, Publisher, Settings, Signer},
    upstream::settings::{Http, Server},
};

/// Who publishes the card of a route; an error says what is wrong with its keys. `address` is where the listener
/// is bound: without a public URL, that is where callers are led.
pub(super) fn publisher(
    listener: &listener::Settings,
    address: SocketAddr,
    route: &Route,
    server: &Server,
) -> Result<Option<Publisher>, String> {
    let Server::Http(http) = server else { return Ok(None) };
    let Http { agent, .. } = http;
    let (demands, scheme) = match &listener.door {
        Door::MutualTls => (Demands::MutualTls, "https"),
        Door::PlainLoopback(_) | Door::Workload => (Demands::Nothing, "http"),
    };
    let bound = || Url::parse(&format!("{scheme}://{address}{}", route.path));
    let public_url = match listener.url_of(&route.path) {
        Some(url) => url,
        None => bound().map_err(|error| format!("no URL leads to `{address}`: {error}"))?,
    };
    let keys = match &agent.keys {
        None => None,
        Some(path) => {
            let keys = KeySet::from_jwks(&read(path)?);
            Some(Arc::new(keys.map_err(|error| format!("`{}`: {error}", path.display()))?))
        }
    };
    let signer = match &agent.signing {
        None => None,
        Some(signing) => {
            let pem = read(&signing.key)?;
            let signer = Signer::from_pem(&pem, &signing.key_id, signing.keys_url.as_ref());
            let path = signing.key.display();
            Some(Arc::new(signer.map_err(|error| format!("`{path}`: {error}"))?))
        }
    };
    let json_rpc: Vec<Url> = http.urls().chain(&agent.known_as).cloned().collect();
    let rest = json_rpc.iter().cloned().chain(http.rests()).collect();
    let settings = Settings { public_url, json_rpc, rest, demands, keys, signer };
    Ok(Some(Publisher::new(settings)))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("`{}`: {error}", path.display()))
}
