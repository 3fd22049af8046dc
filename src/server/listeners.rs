//! Doors: bound, guarded and handed to pingora.
//!
//! pingora's services run on our own runtime: its `Server` would end them by a fixed sleep, whatever is
//! still in flight.

use std::sync::Arc;

use pingora::services::Service as _;
use tokio::sync::watch;
use uuid::Uuid;

use super::{StartError, cards};
use crate::{
    config,
    exchange::Record,
    identity::Source,
    ledger::{Entry, Event},
    listener::{Bound, Connections, Door, Limited, tls},
    protocol::Protocol,
    proxy::{Proxy, Routes, Served, Shared},
    upstream::Upstream,
};

/// Binds a listener and serves it until `closed` turns true.
pub(super) async fn start(
    listener: config::Listener,
    shared: &Arc<Shared>,
    source: Option<&Arc<Source>>,
    upstreams: &[(String, Arc<Upstream>)],
    closed: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    let metrics = &shared.record.metrics;
    let settings = listener.settings;
    let name = settings.name.clone();
    let tls = match (&settings.door, source) {
        (Door::PlainLoopback(_) | Door::Workload, _) => None,
        (Door::MutualTls, Some(source)) => {
            let on_refusal = on_refusal(Arc::clone(&shared.record), &name);
            let settings = tls::settings(source, on_refusal);
            Some(settings.map_err(|error| tls_error(&name, &error.to_string()))?)
        }
        (Door::MutualTls, None) => return Err(tls_error(&name, "no identity is configured")),
    };
    let address = settings.bind;
    let bound = Bound::new(address).map_err(|source| StartError::Bind { address, source })?;
    let address = bound.address();
    let mut routes = Vec::with_capacity(listener.routes.len());
    for route in listener.routes {
        let Some((_, upstream)) = upstreams.iter().find(|(name, _)| *name == route.upstream) else {
            continue;
        };
        let card = match route.protocol {
            Protocol::Mcp => None,
            Protocol::A2a => {
                let server = &upstream.settings().server;
                cards::publisher(&settings, address, &route, server).map_err(|reason| {
                    StartError::Card { upstream: route.upstream.clone(), reason }
                })?
            }
        };
        routes.push(Served {
            server: route.upstream.as_str().into(),
            calls: metrics.calls(&route.upstream),
            upstream: Arc::clone(upstream),
            card,
            route,
        });
    }
    let connections = Connections::new(settings.max_connections);
    let first_request = settings.head_timeout;
    let proxy =
        Arc::new(Proxy::new(Arc::clone(shared), settings, source.cloned(), Routes::new(routes)));
    let app = Limited::new(proxy, connections, metrics.clone(), &name, first_request);
    let (mut service, sockets) = bound.serve(&name, app, tls);
    let closed = closed.clone();
    tokio::spawn(async move { service.start_service(Some(sockets), closed, 1).await });
    tracing::info!(listener = name, %address, "listening");
    Ok(())
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
