//! What an upstream is configured with.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use url::Url;

use super::push_url::PushTargets;
use crate::identity::SpiffeId;

/// One upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Unique name of `[a-z0-9-]`, 1 to 63 characters; the server's name in policies.
    pub name: String,
    /// Where it is, or what is run for it.
    pub server: Server,
    /// How users' tokens are exchanged for tokens that it accepts. The configuration has it for servers over
    /// HTTP only.
    pub token_exchange: Option<TokenExchange>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// When it is spared calls; never without it.
    pub breaker: Option<Breaker>,
    /// How many calls it has at once.
    pub bulkhead: Bulkhead,
}

/// How long a server may take for its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the call to the head of its answer.
    pub first_byte: Duration,
    /// Longest silence inside a JSON answer.
    pub idle: Duration,
    /// From the call to the end of an answer that is no event stream.
    pub call: Duration,
    /// Longest silence inside an event stream; streams may be silent for ever without it.
    pub stream_idle: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self { first_byte: minutes(5), idle: minutes(1), call: minutes(15), stream_idle: None }
    }
}

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// It opens after so many failures in a row.
    pub failures: u32,
    /// It opens when this share of at least 20 calls within half a minute has failed.
    pub failure_percent: u32,
    /// How long it is open for the first time.
    pub open: Duration,
    /// How long it is open at most.
    pub max_open: Duration,
    /// Whether failures of a tool count against that tool, and not against its server.
    pub per_tool: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 5,
            failure_percent: 50,
            open: Duration::from_secs(5),
            max_open: Duration::from_secs(60),
            per_tool: false,
        }
    }
}

/// How many calls a server has at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bulkhead {
    /// Calls that have no answer yet, or one in a document that hasn't ended.
    pub calls: usize,
    /// Those of one caller.
    pub calls_per_caller: usize,
    /// Event streams.
    pub streams: usize,
    /// Those of one caller.
    pub streams_per_caller: usize,
    /// Calls that may wait for a place; at most as many as there are places.
    pub queue: usize,
    /// How long they may.
    pub queue_time: Duration,
}

impl Default for Bulkhead {
    fn default() -> Self {
        Self {
            calls: 1024,
            calls_per_caller: 512,
            streams: 10_000,
            streams_per_caller: 5_000,
            queue: 1024,
            queue_time: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// As it is configured with nothing else.
    #[cfg(test)]
    pub(crate) fn new(name: &str, server: Server) -> Self {
        Self {
            name: name.into(),
            server,
            token_exchange: None,
            timeouts: Timeouts::default(),
            breaker: Some(Breaker::default()),
            bulkhead: Bulkhead::default(),
        }
    }

    /// How messages and answers travel. What is run for us answers like a server of Streamable HTTP.
    pub fn transport(&self) -> Transport {
        match &self.server {
            Server::Http(http) => http.transport,
            Server::Command(_) => Transport::StreamableHttp,
        }
    }

    /// The files that [`Upstream::new`](super::Upstream::new) reads. Others are read when they are needed.
    pub fn files(&self) -> Vec<&Path> {
        let mut files: Vec<_> = match &self.server {
            Server::Http(http) => http.verification.roots().into_iter().collect(),
            Server::Command(command) => {
                command.environment.files.values().map(PathBuf::as_path).collect()
            }
        };
        files.extend(self.token_exchange.as_ref().and_then(|it| it.verification.roots()));
        files
    }

    /// Where it may be told to send push notifications.
    pub fn push_targets(&self) -> &PushTargets {
        const NOWHERE: &PushTargets = &PushTargets::NOWHERE;
        match &self.server {
            Server::Http(http) => &http.agent.push,
            Server::Command(_) => NOWHERE,
        }
    }

    /// The SPIFFE ID that it has to prove, if it proves one.
    pub fn identity(&self) -> Option<&SpiffeId> {
        match &self.server {
            Server::Http(Http { verification: Verification::Spiffe(id), .. }) => Some(id),
            Server::Http(_) | Server::Command(_) => None,
        }
    }
}

/// The two kinds of server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// It serves HTTP.
    Http(Http),
    /// It speaks on standard input and output, and is started by us.
    Command(Command),
}

impl Server {
    /// Whether something is run for it.
    pub fn is_command(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Command(_) => true,
        }
    }
}

/// How an upstream proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Plain HTTP; the configuration allows it for loopback addresses only.
    Loopback,
    /// Mutual TLS; the upstream's SVID must carry exactly this ID.
    Spiffe(SpiffeId),
    /// TLS with the host name checked against public roots (`None`) or the roots in a PEM file.
    WebPki {
        /// PEM file with the accepted roots.
        roots: Option<PathBuf>,
    },
}

impl Verification {
    fn roots(&self) -> Option<&Path> {
        match self {
            Self::WebPki { roots } => roots.as_deref(),
            Self::Loopback | Self::Spiffe(_) => None,
        }
    }
}

/// How messages and answers travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP, of MCP 2025-03-26 and later: each message is answered where it was posted.
    #[default]
    StreamableHttp,
    /// HTTP+SSE, of MCP 2024-11-05: one stream a client, on which all answers come, and a place to post
    /// that the stream announces.
    Sse,
}

/// A server at a URL, or several that serve the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Endpoint with path and query, exactly as requests go out.
    pub url: Url,
    /// Further endpoints of the same scheme, path and query; at most 31.
    pub others: Vec<Url>,
    /// How it is found out whether they are there; `None` asks nobody.
    pub health: Option<Health>,
    /// How messages and answers travel; with [`Transport::Sse`], `url` is that of the stream.
    pub transport: Transport,
    /// How it is verified.
    pub verification: Verification,
    /// `Host` sent to it, where it differs from the URL's authority.
    pub host: Option<String>,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept; has to be below the server's own time.
    pub pool_idle_timeout: Duration,
    /// What is known of it if it is an A2A agent; `url` is its endpoint of JSON-RPC then.
    pub agent: Box<Agent>,
}

impl Http {
    /// All its endpoints.
    pub fn urls(&self) -> impl Iterator<Item = &Url> {
        [&self.url].into_iter().chain(&self.others)
    }

    /// The bases of the HTTP+JSON binding of all its endpoints, where that isn't their URL.
    pub fn rests(&self) -> impl Iterator<Item = Url> {
        let at = |rest: &Url, url: &Url| {
            let (mut url, path) = (url.clone(), rest.path());
            url.set_path(path);
            url.set_query(None);
            url
        };
        let rest = self.agent.rest.as_ref();
        rest.into_iter().flat_map(move |rest| self.urls().map(move |url| at(rest, url)))
    }

    /// The settings of one of its endpoints by itself.
    pub(super) fn at(&self, url: &Url) -> Self {
        Self { url: url.clone(), others: Vec::new(), ..self.clone() }
    }
}

/// How endpoints are asked whether they are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Time between two probes of one endpoint, give or take a tenth.
    pub interval: Duration,
    /// Longest wait for an answer, connecting included.
    pub timeout: Duration,
    /// What they are asked.
    pub asked: Asked,
}

/// What an endpoint is asked by a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What it is (MCP `server/discover`).
    Discover,
    /// Its agent card (A2A).
    Card,
    /// Whether it answers at its base (plain HTTP).
    Base,
}

/// An A2A agent. The URLs that requests go to are of the origin of the upstream's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Where its card is, if not at a well-known place.
    pub card: Option<Url>,
    /// Base of the HTTP+JSON binding, if not the endpoint of JSON-RPC.
    pub rest: Option<Url>,
    /// Other addresses by which its card calls it.
    pub known_as: Vec<Url>,
    /// JWK Set with the keys that its card is signed with; without it, nobody looks.
    pub keys: Option<PathBuf>,
    /// What the card is signed with when it had to be changed.
    pub signing: Option<Signing>,
    /// Where it may be told to push to.
    pub push: PushTargets,
}

/// A key of Lictor's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signing {
    /// PEM file with the private key (PKCS#8).
    pub key: PathBuf,
    /// What the key is called in signatures (`kid`).
    pub key_id: String,
    /// Where the public half is published (`jku`).
    pub keys_url: Option<Url>,
}

/// A token service, and what is asked of it (RFC 8693).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenExchange {
    /// The token endpoint.
    pub url: Url,
    /// How the service is verified.
    pub verification: Verification,
    /// What Lictor is known by there.
    pub client_id: String,
    /// What it proves that with.
    pub client_secret: ClientSecret,
    /// The logical name of the upstream at the service; this or a resource is always there.
    pub audience: Option<String>,
    /// The address of the upstream as the service knows it.
    pub resource: Option<String>,
    /// Scopes to ask for; none leaves it to the service.
    pub scopes: Vec<String>,
    /// Whether a call without a user's token is refused. Otherwise it goes without one.
    pub required: bool,
}

/// Where a client secret is found; never the secret itself. It is read again for each exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSecret {
    /// In a file, less the white space at its end.
    File(PathBuf),
    /// In a variable of the environment.
    Environment(String),
}

/// A server that is a process of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program; looked for in the `PATH` that the process gets unless it has a slash.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs.
    pub directory: PathBuf,
    /// What it finds in its environment.
    pub environment: Environment,
    /// Who shares a process.
    pub processes: Processes,
    /// Most processes at once.
    pub max_processes: usize,
    /// Most processes of one caller at once.
    pub max_processes_per_caller: usize,
    /// Time from the start of a process to the first message that it sends.
    pub start_timeout: Duration,
    /// How long a process is kept that nobody has a call or a stream at.
    pub unused_timeout: Duration,
}

/// The environment of a process. Nothing else of ours is inherited but a few names that programs can't do
/// without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names that are inherited from ours, where it has them.
    pub allow: BTreeSet<String>,
    /// Names with their values.
    pub set: BTreeMap<String, String>,
    /// Names with the files that hold their values, which are secret.
    pub files: BTreeMap<String, PathBuf>,
}

/// Who shares a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// Each legacy session has its own, and so has each caller of the stateless revisions.
    #[default]
    PerSession,
    /// All callers share one, which has to be of a stateless revision.
    Shared,
}
