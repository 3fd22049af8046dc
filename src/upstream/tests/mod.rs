//! Upstreams over real sockets: TLS and plain servers of both versions of HTTP.

mod addresses;
mod card;
mod endpoints;
mod identity;
mod requests;
mod retries;
mod server;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, request::Parts};
use tempfile::TempDir;
use tokio::{runtime::Handle, time::timeout};
use url::Url;

use super::{Error, Transport, Verification, client::Upstream, settings::Http};
use crate::{
    identity::{
        self as own, Source, SpiffeId,
        ca::{self, Ca, Credential, Written},
    },
    telemetry::Causes,
};

/// Longest that anything here may take.
const DEADLINE: Duration = Duration::from_secs(10);

fn settings(url: &str, verification: Verification) -> Http {
    Http {
        url: Url::parse(url).expect("URL"),
        others: Vec::new(),
        health: None,
        transport: Transport::default(),
        verification,
        host: None,
        connect_timeout: Duration::from_secs(2),
        pool_idle_timeout: DEADLINE,
        agent: Box::default(),
    }
}

fn spiffe(id: &str) -> Verification {
    Verification::Spiffe(SpiffeId::parse(id).expect("ID"))
}

/// An identity of our own, from files in a directory that lives as long as the second part.
fn source(credential: &Credential, trusted: &[&Ca]) -> (Arc<Source>, TempDir) {
    let directory = TempDir::new().expect("directory");
    let Written { certificate, key, bundles } = credential.write(directory.path(), trusted);
    let files = own::Settings::Files(own::Files { certificate, key, bundles });
    (Source::start(files, &Handle::current()).expect("started"), directory)
}

async fn rotated(source: &Source, generation: u64) {
    let mut changes = source.changed();
    let reached = changes.wait_for(|status| status.generation >= generation);
    timeout(DEADLINE, reached).await.expect("in time").expect("source lives");
}

fn head(method: Method) -> Parts {
    let request = http::Request::builder().method(method).uri("/caller").body(());
    request.expect("request").into_parts().0
}

/// Sends a call and reads the whole answer.
async fn call(upstream: &Upstream, method: Method, body: &'static str) -> Result<String, Error> {
    let exchange = async {
        let mut answer =
            upstream.send(None, head(method), Bytes::from_static(body.as_bytes())).await?;
        let mut text = answer.status().as_str().to_owned();
        text.push(' ');
        while let Some(piece) = answer.body_mut().frame().await {
            text.push_str(&String::from_utf8_lossy(&piece?));
        }
        Ok(text)
    };
    timeout(DEADLINE, exchange).await.expect("in time")
}

async fn post(upstream: &Upstream) -> Result<String, Error> {
    call(upstream, Method::POST, r#"{"jsonrpc":"2.0"}"#).await
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    Causes(error).to_string()
}
