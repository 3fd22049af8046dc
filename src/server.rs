//! The composition root: from a configuration to a running process, and to its end.
//!
//! Starts what others depend on first (health, identity, ledger, policies), the listeners last, so that
//! nobody is let in before a call could be judged and recorded. Stops in the opposite order: the exchange
//! loops hear of it first, and the process ends when nothing is in flight and the ledger is on disk. It ends
//! in the same way when another process has taken its sockets over (`upgrade`).

mod cards;
mod descriptors;
mod genesis;
mod health;
mod listeners;
mod plan;
mod processes;
mod reload;
mod site;
mod sockets;
mod stop;
mod upgrade;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{oneshot, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

pub use self::upgrade::UpgradeError;
use self::{
    sockets::Sockets,
    stop::Stop,
    upgrade::{Predecessor, Successor},
};
use crate::{
    admin::{Admin, BindError, Desk, DeskPlace, Part, Readiness},
    config::{Config, File},
    exchange::Record,
    identity::{self, Source},
    ledger::{self, Ledger, Previous},
    limits::Limiter,
    policy::{self, Policies},
    proxy::{
        Budget, Delegation, Settled, Shared, Streams,
        drain::{Drain, Phase},
    },
    response::Listed,
    revocation::{self, Register},
    state::{self, Owners},
    telemetry::{Clock, Metrics},
    upstream,
};
use site::Site;

/// How long streams get to say goodbye once the time for calls in flight is over, and callers to take what was written.
const GOODBYE: Duration = Duration::from_secs(3);

/// How long a process that has handed over waits for handshakes, before it looks whether something is in flight.
const HANDSHAKES: Duration = Duration::from_secs(1);

/// How long it may take to drop what could not end in time.
const CUT: Duration = Duration::from_secs(1);

/// Why the process can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The policies have faults.
    #[error("the policies can't be loaded")]
    Policies(#[source] policy::LoadError),
    /// The identity's settings have a fault.
    #[error("the identity can't be set up")]
    Identity(#[source] identity::StartError),
    /// The ledger can't be opened.
    #[error("the ledger can't be opened")]
    Ledger(#[source] ledger::OpenError),
    /// State can't be kept where it should be.
    #[error("the state can't be opened")]
    State(#[source] state::OpenError),
    /// What was revoked can't be read.
    #[error("the revocations can't be opened")]
    Revocations(#[source] revocation::OpenError),
    /// An upstream is a command, and nobody who starts us has said that commands may be run.
    #[error(
        "upstream `{upstream}` is a command, which is started only with `--allow-stdio`, or with \
         LICTOR_ALLOW_STDIO=1 in the environment"
    )]
    Command {
        /// Its name.
        upstream: String,
    },
    /// An upstream can't be set up.
    #[error("upstream `{name}` can't be set up")]
    Upstream {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        source: upstream::SetupError,
    },
    /// The keys for the card of an agent can't be used.
    #[error("the agent card of upstream `{upstream}` can't be set up: {reason}")]
    Card {
        /// Its name.
        upstream: String,
        /// What is wrong.
        reason: String,
    },
    /// The administration or health address can't be bound.
    #[error("administration can't be set up")]
    Admin(#[source] BindError),
    /// An address can't be bound.
    #[error("`{address}` can't be bound")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// TLS can't be set up.
    #[error("TLS of listener `{listener}` can't be set up: {reason}")]
    Tls {
        /// The listener's name.
        listener: String,
        /// What is wrong.
        reason: String,
    },
    /// The process before this one doesn't hand over.
    #[error("there is no upgrade")]
    Upgrade(#[source] UpgradeError),
    /// The runtime or the signal handlers can't be set up.
    #[error("the runtime can't be set up")]
    Runtime(#[source] std::io::Error),
}

/// Whether the configuration may name commands that are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// They are run.
    Allowed,
    /// A configuration that names one isn't started.
    Refused,
}

impl Commands {
    /// Whether a configuration names no more than may be run.
    fn admit(self, config: &Config) -> Result<(), StartError> {
        let command = config.upstreams.iter().find(|upstream| upstream.server.is_command());
        match (command, self) {
            (Some(upstream), Self::Refused) => {
                Err(StartError::Command { upstream: upstream.name.clone() })
            }
            (None, _) | (Some(_), Self::Allowed) => Ok(()),
        }
    }
}

/// Where the process gets its sockets from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It binds them.
    Fresh,
    /// A process that runs hands them over when it is told to, and ends when it has finished what it began.
    Upgrade {
        /// Even if it is forgotten by that whose sessions are whose.
        forget_state: bool,
    },
}

/// Runs until the process is told to stop, or has handed over to another one. `file` is what `config` was read
/// from; without one, nothing but policies and identity can change meanwhile.
pub fn run(
    config: Config,
    file: Option<&File>,
    commands: Commands,
    start: Start,
) -> Result<(), StartError> {
    commands.admit(&config)?;
    descriptors::allow_many();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("lictor")
        .build()
        .map_err(StartError::Runtime)?;
    let served = runtime.block_on(serve(config, file, commands, start));
    // What is left are idle connections, and calls that could not end in time. Their exchanges are closed
    // as their tasks are dropped, so the ledger has to outlive the runtime.
    runtime.shutdown_timeout(CUT);
    if let Some(ledger) = served? {
        ledger.close();
    }
    Ok(())
}

/// Serves until told to stop, or followed by another process. What it gives back has to be closed when nothing can be
/// recorded any more.
async fn serve(
    config: Config,
    file: Option<&File>,
    commands: Commands,
    start: Start,
) -> Result<Option<Ledger>, StartError> {
    let mut stop = Stop::new().map_err(StartError::Runtime)?;
    // From here on they don't end the process any more, however long the start may take.
    let hangup = signal(SignalKind::hangup()).map_err(StartError::Runtime)?;
    let quit = signal(SignalKind::quit()).map_err(StartError::Runtime)?;
    let policies = tokio::task::block_in_place(|| Policies::load(&config.policy))
        .map_err(StartError::Policies)?;
    reload::warn_of(&policies);
    let metrics = Metrics::new();
    warn_of_weakened(&config.weakened(), &metrics);
    let readiness = Arc::new(Readiness::default());
    readiness.set(Part::Policy, true);
    let (successor, mut sockets) = match start {
        Start::Fresh => (None, Sockets::default()),
        Start::Upgrade { forget_state } => {
            let directory = &config.ledger.directory;
            let asked = tokio::select! {
                asked = Successor::ask(directory, &config.state, forget_state) => asked,
                () = stop.told() => return Ok(None),
            };
            let (successor, sockets) = asked.map_err(StartError::Upgrade)?;
            (Some(successor), sockets)
        }
    };
    let (ended, end) = oneshot::channel::<()>();
    let admin = Admin::bind(config.admin.clone(), |name, address| sockets.bind(name, address))
        .map_err(StartError::Admin)?;
    let desk = DeskPlace::default();
    let ending = async move {
        // An error means that the process ends on another way.
        let _ = end.await;
    };
    // Whoever asks for health hears of the process that serves, so of the old one until this one does.
    let accepting = watch::Sender::new(successor.is_none());
    let admin = tokio::spawn(admin.serve(
        Arc::clone(&readiness),
        metrics.clone(),
        Arc::clone(&desk),
        accepting.subscribe(),
        ending,
    ));
    let runtime = tokio::runtime::Handle::current();
    let source = match config.identity.clone() {
        Some(settings) => Some(Source::start(settings, &runtime).map_err(StartError::Identity)?),
        None => None,
    };
    if let Some(source) = &source {
        tokio::select! {
            () = health::first_identity(source) => {}
            () = stop.told() => return Ok(None),
        }
    }
    let previous = successor.as_ref().map(|successor| &successor.previous);
    let ledger = open_ledger(config.ledger.clone(), source.as_deref(), previous)?;
    ledger.record_config(Arc::clone(policies.version()), file.map(File::sha256));
    let owners = Owners::open(config.state.clone(), state::Limits::of, Clock.unix())
        .await
        .map_err(StartError::State)?;
    let revocations = Register::open(owners.records(), ledger.clone(), metrics.clone())
        .await
        .map_err(StartError::Revocations)?;
    if successor.is_some() && !revocations.current().is_known() {
        // The old process knows them.
        return Err(StartError::Upgrade(UpgradeError::Unknowing));
    }
    let shared = Arc::new(Shared {
        record: Arc::new(Record {
            ledger: ledger.clone(),
            metrics: metrics.clone(),
            unrouted: metrics.unrouted(),
            clock: Clock,
        }),
        granted: ArcSwap::from_pointee(Limiter::new(policies.limits().to_vec(), Clock.instant())),
        policies: ArcSwap::from_pointee(policies),
        delegation: Delegation::default(),
        limiter: ArcSwap::from_pointee(Limiter::new(config.rate_limits.clone(), Clock.instant())),
        revocations: Arc::new(revocations),
        owners,
        streams: Streams::default(),
        answered: Settled::default(),
        cancelled: Settled::default(),
        listed: Listed::default(),
        budget: Budget::new(config.limits.bodies_in_flight),
        drain: Drain::new(),
    });
    let (closing, closed) = watch::channel(false);
    let (directory, state) = (config.ledger.directory.clone(), config.state.clone());
    let config = (config, file.map(File::sha256));
    let site = tokio::task::block_in_place(|| {
        Site::open(config, commands, &shared, source.as_ref(), &mut sockets, &closed)
    })?;
    sockets.complete();
    // Nobody else takes the place.
    let _ = desk.set(at_the_desk(&shared, &site));
    readiness.set(Part::Listeners, true);
    let path = file.map(|file| file.path().to_owned());
    let following =
        tokio::spawn(reload::follow(Arc::clone(&site), path, hangup, Arc::clone(&readiness)));
    let mut keepers = JoinSet::new();
    let revocations = Arc::clone(&shared.revocations);
    keepers.spawn(async move { revocations.follow().await });
    health::look(&shared, source.as_deref(), &readiness);
    keepers.spawn(health::follow(Arc::clone(&shared), source, Arc::clone(&readiness)));
    keepers.spawn(processes::follow(Arc::clone(&site), metrics.clone()));
    keepers.spawn(upgrade::settle(ledger.clone()));
    let mut predecessor = Predecessor::new(quit, &directory, ledger.clone(), state, sockets);
    accepting.send_replace(true);
    if let Some(successor) = successor {
        successor.ready().await;
    }
    let handed_over = tokio::select! {
        () = stop.told() => false,
        () = predecessor.handed_over() => true,
    };
    // Its sockets are closed here, or they would queue callers for nobody.
    drop(predecessor);
    following.abort();
    if handed_over {
        tracing::info!("handed over; finishing what is in flight");
        // The other process answers for health now. Whoever has asked here already hears that calls are served.
        accepting.send_replace(false);
    } else {
        tracing::info!("told to stop; finishing what is in flight");
        readiness.drain();
    }
    shared.drain.advance(Phase::Draining);
    // Nobody listens to this any more once every listener has ended, and then there is nothing to tell.
    let _ = closing.send(true);
    let patience = site.in_force().config.drain;
    let finished = async {
        if handed_over {
            // Nobody waits for this process, and handshakes that it has begun are nowhere counted.
            sleep(HANDSHAKES).await;
        }
        shared.drain.finished().await;
    };
    if !stop.gives_time(patience, finished).await {
        shared.drain.advance(Phase::Ending);
    }
    // What is still in flight is told so, and hears nothing of its process any more.
    let goodbye = async {
        let mut ended = false;
        let sent = async {
            shared.drain.finished().await;
            ended = true;
            site.sent().await;
        };
        let all = timeout(GOODBYE, sent).await.is_ok();
        match (all, ended) {
            (true, _) => {}
            (false, false) => tracing::warn!("some calls did not end in time and are cut"),
            (false, true) => tracing::info!("some connections did not end in time and are cut"),
        }
    };
    tokio::join!(goodbye, processes::end(site.upstreams()));
    keepers.abort_all();
    ledger.flush().await;
    // Health and metrics outlive everything else.
    drop(ended);
    let _ = admin.await;
    Ok(Some(ledger))
}

/// Tells which settings weaken what is enforced, and in how many places.
fn warn_of_weakened(weakened: &[(&'static str, usize)], metrics: &Metrics) {
    for (setting, places) in weakened {
        tracing::warn!(setting, places, "a setting weakens what is enforced");
        metrics.set_unsafe_setting(setting, *places);
    }
}

/// What operators work on.
fn at_the_desk(shared: &Arc<Shared>, site: &Arc<Site>) -> Desk {
    let (policies, upstreams, site) = (Arc::clone(shared), Arc::clone(site), Arc::clone(site));
    Desk {
        revocations: Arc::clone(&shared.revocations),
        // A path tells the tenant of a workload, or a chain of delegation for whom a call is.
        knows_tenants: Box::new(move || {
            let in_chains = site.in_force().config.delegation.is_some();
            in_chains || policies.policies.load().knows_tenants()
        }),
        upstreams: Box::new(move || upstreams.upstreams()),
    }
}

fn open_ledger(
    settings: ledger::Settings,
    source: Option<&Source>,
    previous: Option<&Previous>,
) -> Result<Ledger, StartError> {
    let genesis = genesis::of(source, Clock.unix().as_secs());
    let opened = tokio::task::block_in_place(|| match previous {
        None => Ledger::open(settings, genesis),
        Some(previous) => Ledger::succeed(settings, genesis, previous),
    });
    opened.map_err(StartError::Ledger)
}
