//! What the rest of the proxy hands in about a call: plain data, never a payload.
//!
//! Callers fill an [`Entry`] as they learn things; the ledger adds the version, chain, sequence number,
//! time and kind, bounds every text and hashes the result. What isn't known is absent, never null.
//!
//! Refuses by construction: there is no field for arguments, bodies, tokens or session ids, and digests
//! are raw bytes, so that nothing else can be put in their place.

use std::sync::Arc;

use uuid::Uuid;

/// Which record of a call this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Written before the upstream hears of the call.
    Intent,
    /// Written once, when a permitted call ended, however it ended.
    Outcome,
    /// Written once, when a call was refused.
    Denied,
}

impl Event {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Outcome => "outcome",
            Self::Denied => "denied",
        }
    }
}

/// Whether denials were enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A denial ends the call.
    Enforce,
    /// A denial is only recorded, in [`Entry::would_deny`].
    Shadow,
}

impl Mode {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

/// What policy said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Permitted.
    Permit,
    /// Refused.
    Deny,
    /// Policy was never asked.
    None,
}

impl Decision {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
            Self::None => "none",
        }
    }
}

/// One record of one call.
///
/// Texts that a caller can influence (`peer`, `method`, `target`) and names from files are stored with
/// every character outside `A-Z a-z 0-9` and the URI punctuation of RFC 3986 escaped as `\u{..}`, so
/// that look-alikes can be told apart, and cut with the marker `\cut`: `peer` at 2,048 bytes, the others
/// at 128. Integers are stored up to 2^53 - 1, larger ones as that.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which record of the call this is.
    pub event: Event,
    /// The call's own id (UUIDv7), which is also the decision id that callers are shown.
    pub call_id: Uuid,
    /// The call in whose answer the server asked this; none for a call.
    pub cause: Option<Uuid>,
    /// SPIFFE ID of the caller, or [`Entry::UNAUTHENTICATED`].
    pub peer: Arc<str>,
    /// `mcp`, `a2a` or `http`; `mcp` where nothing tells.
    pub protocol: &'static str,
    /// Towards the workload beside (`inbound`) or away from it (`outbound`). What a server asks of its caller
    /// goes the other way than the call.
    pub direction: &'static str,
    /// Name of the listener that the call came in on.
    pub listener: Arc<str>,
    /// Name of the upstream that the route leads to.
    pub server: Option<Arc<str>>,
    /// Host of the web API that the route leads to, with its port where that isn't the usual one.
    pub host: Option<Arc<str>>,
    /// The method as it stands on the wire.
    pub method: Option<Arc<str>>,
    /// Tool, prompt, resource URI or task that the method governs; of a web API the path below the route, without
    /// the query.
    pub target: Option<Arc<str>>,
    /// Generation of the protocol: `legacy` or `modern`, `0.3` or `1.0`, `http`.
    pub era: Option<&'static str>,
    /// How far the call can reach.
    pub class: Option<&'static str>,
    /// Whether denials were enforced.
    pub mode: Mode,
    /// What policy said.
    pub decision: Decision,
    /// The stage that ended the call.
    pub stage: Option<&'static str>,
    /// How the call ended, a stable label: `ok`, `policy_denied`, `upstream_failed`, `client_gone` …
    pub status: Option<&'static str>,
    /// Ids of the policies that decided; at most 32 are stored.
    pub policies: Vec<Arc<str>>,
    /// Version of the policies in force.
    pub policy_version: Option<Arc<str>>,
    /// In shadow mode, the label of the denial that was not enforced.
    pub would_deny: Option<&'static str>,
    /// Names of the limits that it was over; at most 32 are stored.
    pub limits: Vec<Arc<str>>,
    /// How limits that replicas share were held without their store: `local` or `unlimited`.
    pub limits_mode: Option<&'static str>,
    /// HTTP status sent to the caller.
    pub http_status: Option<u16>,
    /// From the first byte of the request to the last of the answer, in microseconds.
    pub latency_us: Option<u64>,
    /// The part of it that the proxy itself used, in microseconds.
    pub own_us: Option<u64>,
    /// SHA-256 of the request body as received.
    pub req_sha256: Option<[u8; 32]>,
    /// SHA-256 of the response body as delivered.
    pub resp_sha256: Option<[u8; 32]>,
    /// Bytes of response body delivered.
    pub resp_bytes: Option<u64>,
    /// Whether the response was delivered to its end.
    pub complete: Option<bool>,
    /// By whose authority, where it is made on somebody's behalf.
    pub behalf: Option<Box<Behalf>>,
    /// Label of the denial with which the proxy at the other end refused it.
    pub peer_denied: Option<Arc<str>>,
    /// The revocation that ended it.
    pub revocation: Option<Uuid>,
}

/// Something was revoked, or a revocation lifted. Whoever hands it in bounds the texts.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// The revocation's id.
    pub id: Uuid,
    /// Whether it was lifted.
    pub lifted: bool,
    /// `spiffe`, `user`, `session`, `delegation`, `tool` or `tenant`.
    pub what: &'static str,
    /// Which one; of a session, its digest.
    pub value: Box<str>,
    /// Why.
    pub reason: Box<str>,
    /// Who did it, as they said.
    pub by: Box<str>,
    /// Until when it holds, Unix seconds.
    pub until: Option<u64>,
}

/// On whose behalf a call is made.
#[derive(Clone, Debug, Default)]
pub struct Behalf {
    /// How the cause of an outbound call was found.
    pub link: Option<&'static str>,
    /// Hops in its chain; none where the caller acts as itself.
    pub hops: Option<u64>,
    /// Who began the chain.
    pub root: Option<Arc<str>>,
    /// For which user, opaque.
    pub user: Option<Box<str>>,
    /// For which tenant.
    pub tenant: Option<Box<str>>,
    /// The run that the chain belongs to.
    pub run: Option<Uuid>,
    /// The call in the ledger of the caller's own proxy.
    pub peer_call: Option<Uuid>,
    /// The hop that objected, counted from 0, and whose it is.
    pub objection: Option<(u64, Arc<str>)>,
}

impl Entry {
    /// The peer of a call whose caller proved nothing.
    pub const UNAUTHENTICATED: &str = "unauthenticated";

    /// An inbound MCP call of which nothing more is known yet.
    pub fn new(event: Event, call_id: Uuid, peer: Arc<str>, listener: Arc<str>) -> Self {
        Self {
            event,
            call_id,
            cause: None,
            peer,
            protocol: "mcp",
            direction: "inbound",
            listener,
            server: None,
            host: None,
            method: None,
            target: None,
            era: None,
            class: None,
            mode: Mode::Enforce,
            decision: Decision::None,
            stage: None,
            status: None,
            policies: Vec::new(),
            policy_version: None,
            would_deny: None,
            limits: Vec::new(),
            limits_mode: None,
            http_status: None,
            latency_us: None,
            own_us: None,
            req_sha256: None,
            resp_sha256: None,
            resp_bytes: None,
            complete: None,
            behalf: None,
            peer_denied: None,
            revocation: None,
        }
    }
}
