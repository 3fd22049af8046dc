//! Doors: bound, guarded and handed to pingora.
//!
//! pingora's services run on our own runtime: its `Server` would end them by a fixed sleep, whatever is
//! still in flight.

use std::{net::SocketAddr, sync::Arc};

use pingora::{listeners::tls::TlsSettings, services::Service as _};
use tokio::sync::watch;
use uuid::Uuid;

use super::{StartError, sockets::Sockets};
use crate::{
    exchange::Record,
    identity::Source,
    ledger::{Entry, Event},
    listener::{Bound, Connections, Door, Limited, Settings, Shield, tls},
    proxy::Proxy,
    telemetry::Metrics,
};

/// A listener that is bound and not served yet.
pub(super) struct Ready {
    bound: Bound,
    tls: Option<TlsSettings>,
}

impl Ready {
    /// Binds a listener, or takes its socket over, once everything about its TLS is in order.
    pub(super) fn new(
        settings: &Settings,
        record: &Arc<Record>,
        source: Option<&Arc<Source>>,
        sockets: &mut Sockets,
    ) -> Result<Self, StartError> {
        let name = &settings.name;
        let tls = match (&settings.door, source) {
            (Door::PlainLoopback(_) | Door::Workload, _) => None,
            (Door::MutualTls, Some(source)) => {
                let settings = tls::settings(source, on_refusal(Arc::clone(record), name));
                Some(settings.map_err(|error| tls_error(name, &error.to_string()))?)
            }
            (Door::MutualTls, None) => return Err(tls_error(name, "no identity is configured")),
        };
        let address = settings.bind;
        let socket = sockets.bind(&format!("listener/{name}"), address);
        let bound =
            socket.and_then(Bound::over).map_err(|source| StartError::Bind { address, source })?;
        Ok(Self { bound, tls })
    }

    /// The address with the port that the system chose.
    pub(super) fn address(&self) -> SocketAddr {
        self.bound.address()
    }
}

/// Serves a listener until `closed` turns true; its connections.
pub(super) fn serve(
    ready: Ready,
    settings: &Settings,
    proxy: &Arc<Proxy>,
    metrics: &Metrics,
    closed: &watch::Receiver<bool>,
) -> Connections {
    let (name, address) = (&settings.name, ready.address());
    let connections = Connections::new(settings.max_connections);
    let shield = Shield::new(settings.shield, metrics.clone(), name);
    let (proxy, first_request) = (Arc::clone(proxy), settings.head_timeout);
    let counted = connections.clone();
    let app = Limited::new(proxy, counted, shield.clone(), metrics.clone(), name, first_request);
    let (mut service, sockets) = ready.bound.serve(name, app, ready.tls, shield);
    let closed = closed.clone();
    tokio::spawn(async move { service.start_service(Some(sockets), closed, 1).await });
    tracing::info!(listener = name, %address, "listening");
    connections
}

/// Counts each refused certificate, and puts on record what the log tells of them: at most one a second,
/// so that a stranger can't fill the disk.
fn on_refusal(record: Arc<Record>, listener: &str) -> Box<dyn Fn(bool) + Send + Sync> {
    let listener: Arc<str> = listener.into();
    Box::new(move |logged| {
        record.metrics.refuse_connection(&listener, "certificate");
        if logged {
            let peer = Entry::UNAUTHENTICATED.into();
            let mut entry = Entry::new(Event::Denied, Uuid::now_v7(), peer, Arc::clone(&listener));
            entry.stage = Some("handshake");
            entry.status = Some("certificate_refused");
            record.ledger.record(entry);
        }
    })
}

fn tls_error(listener: &str, reason: &str) -> StartError {
    StartError::Tls { listener: listener.to_owned(), reason: reason.to_owned() }
}
