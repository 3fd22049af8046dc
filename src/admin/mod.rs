//! Health, readiness, metrics and the operators' API on listeners of their own.
//!
//! Two listeners: one that a kubelet or load balancer reaches, with `/healthz` and `/readyz` only,
//! and one for operators, loopback by default, that has `/metrics` and the API too. They run beside the data
//! path and never wait for it: `/healthz` says that the process lives, whatever its dependencies
//! do, and goes on saying so while it drains.
//!
//! INVARIANT: what is decided can be changed through the API only, by whoever shows the operators' token; what
//! is revoked so is in the ledger. Who only reaches the address, as the workload does, can read health and
//! metrics; strangers who reach the health listener can neither hold more than `MOST_CONNECTIONS` connections
//! open nor learn more than the reasons of [`Readiness`].

mod api;
mod connections;
mod guard;
pub mod readiness;
pub mod settings;
mod upstreams;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};

use crate::telemetry::{Clock, Metrics, metrics::MEDIA_TYPE};
use connections::Bounded;
use guard::Guard;

pub use api::{Desk, DeskPlace};
pub use readiness::{Part, Readiness};
pub use settings::Settings;

/// Most connections to one of these listeners at once; further ones wait in the system's queue.
const MOST_CONNECTIONS: usize = 128;
/// How long an answer that is being sent may hold up the end of the process.
const FAREWELL: Duration = Duration::from_secs(1);

/// An address that could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("`{address}` can't be bound")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// The bound listeners, not yet served.
#[derive(Debug)]
pub struct Admin {
    admin: Bound,
    token_file: Option<PathBuf>,
    health: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Admin {
    /// Binds the listeners, by a function that is given what each is called and where it belongs, and logs
    /// where they are.
    pub fn bind(
        settings: Settings,
        mut bind: impl FnMut(&'static str, SocketAddr) -> io::Result<std::net::TcpListener>,
    ) -> Result<Self, BindError> {
        let mut bound = |name, address| Bound::new(address, bind(name, address));
        let admin = bound("admin", settings.admin)?;
        tracing::info!(address = %admin.address, "administration listens");
        let health = match settings.health {
            Some(address) => Some(bound("health", address)?),
            None => None,
        };
        if let Some(health) = &health {
            tracing::info!(address = %health.address, "health listens");
        }
        Ok(Self { admin, token_file: settings.token_file, health })
    }

    /// The address of the administration listener, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.admin.address
    }

    /// The address of the health listener, with its real port.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health.as_ref().map(|health| health.address)
    }

    /// Serves until `shutdown` resolves, and a second longer at most, and takes connections while `accepting`:
    /// others, which another process may take from the same sockets, wait. The API works once `desk` is there.
    pub async fn serve(
        self,
        readiness: Arc<Readiness>,
        metrics: Metrics,
        desk: DeskPlace,
        accepting: watch::Receiver<bool>,
        shutdown: impl Future<Output = ()>,
    ) {
        let (stop, stopped) = watch::channel(());
        let until = Until { accepting, stopped };
        let guard = Guard::new(self.token_file.as_deref());
        let operators = health_routes(Arc::clone(&readiness))
            .merge(metrics_route(metrics))
            .merge(api::routes(desk, guard));
        let served = async {
            match self.health {
                Some(health) => {
                    let strangers = health_routes(readiness);
                    tokio::join!(
                        health.serve(strangers, until.clone()),
                        self.admin.serve(operators, until),
                    );
                }
                None => self.admin.serve(operators, until).await,
            }
        };
        tokio::pin!(served);
        tokio::select! {
            () = &mut served => return,
            () = shutdown => drop(stop),
        }
        if tokio::time::timeout(FAREWELL, served).await.is_err() {
            tracing::debug!("administration ended with answers unfinished");
        }
    }
}

/// What a listener of this process depends on.
#[derive(Clone, Debug)]
struct Until {
    /// Whether it accepts connections now.
    accepting: watch::Receiver<bool>,
    /// The end of this tells that it ends.
    stopped: watch::Receiver<()>,
}

impl Bound {
    fn new(
        address: SocketAddr,
        bound: io::Result<std::net::TcpListener>,
    ) -> Result<Self, BindError> {
        let fail = |source| BindError { address, source };
        let listener = bound.map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let listener = TcpListener::from_std(listener).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address })
    }

    async fn serve(self, routes: Router, until: Until) {
        let Until { accepting, mut stopped } = until;
        let listener = Bounded::new(self.listener, MOST_CONNECTIONS, accepting);
        // The sender says nothing; that it has gone is the signal.
        let stop = async move { while stopped.changed().await.is_ok() {} };
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(stop).await {
            tracing::error!(address = %self.address, %error, "administration can't be served");
        }
    }
}

fn health_routes(readiness: Arc<Readiness>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(readiness)
}

fn metrics_route(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

async fn ready(State(readiness): State<Arc<Readiness>>) -> Response {
    let reasons = readiness.reasons();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let ready = reasons.is_empty();
    let degraded = readiness.degraded();
    let told = match degraded.is_empty() {
        true => json!({ "ready": ready, "reasons": reasons }),
        false => json!({ "ready": ready, "reasons": reasons, "degraded": degraded }),
    };
    (status, Json(told)).into_response()
}

async fn scrape(State(metrics): State<Metrics>) -> Response {
    match metrics.render(Clock.unix()) {
        Ok(text) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics can't be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests;
