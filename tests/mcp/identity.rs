//! Who is believed, on a running Lictor: at the handshake, on every message, and while an answer goes on.

mod pools;
mod rotation;
mod upstreams;
mod workload_api;

pub(crate) use upstreams::server;

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use tokio::time::sleep;

use crate::{
    ca::{Ca, Credential},
    http::{Caller, Reply, Wire, within},
    site::{AGENT_A, AGENT_B, Site, TD_ONE, TLS_A, TLS_B, call, metrics, sample, send, tls_of},
    stub::{Call, Stub},
    subject::{Lictor, caller_tls},
};

/// Between two looks of a test at something that changes by itself.
const PAUSE: Duration = Duration::from_millis(50);

/// A message that `agent-a` and `agent-b` may send, on the wire.
fn text() -> String {
    let body = call("echo", "{}");
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// What comes back to a caller who shows this, if it is let in at all.
async fn knock(lictor: &Lictor, config: &rustls::ClientConfig) -> String {
    let mut wire = Wire::connect_tls(lictor.mutual, config).await;
    // TLS 1.3 lets a client send before the server has looked at the certificate.
    wire.try_send(text()).await;
    let answer = wire.rest_for(Duration::from_secs(2)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn bad_certificates_are_refused_in_the_handshake() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let other = Ca::new("td-two.example.org");
    let bad = TD_ONE.bad(&other);
    for (name, _, credential) in &bad {
        assert_eq!(knock(&lictor, &tls_of(credential)).await, "", "{name}");
    }
    assert_eq!(knock(&lictor, &caller_tls().with_no_client_auth()).await, "", "no certificate");
    assert_eq!(stub.connections(), 0);
    let refused = ["listener=\"mutual\"", "reason=\"certificate\""];
    let counted = sample(&metrics(&lictor).await, "lictor_connections_refused_total", &refused);
    assert!((counted - bad.len() as f64).abs() < 0.5, "{counted} of {}", bad.len());
    assert!(knock(&lictor, &TLS_A).await.starts_with("HTTP/1.1 200 "));
    // Strangers can't fill the disk: one entry and one line a second at most.
    let lines = lictor.logs();
    let told = lines.iter().filter(|line| line.contains("refused a caller's certificate")).count();
    let closings = lictor.stop_with(|closings| closings == told + 1).await;
    let (strangers, calls): (Vec<_>, Vec<_>) =
        closings.into_iter().partition(|entry| entry["status"] == "certificate_refused");
    assert!((1..bad.len()).contains(&strangers.len()), "{}", strangers.len());
    for entry in &strangers {
        let of = ["kind", "peer", "stage", "listener"].map(|key| entry[key].as_str());
        let expected = ["denied", "unauthenticated", "handshake", "mutual"];
        assert_eq!(of, expected.map(Some), "{entry}");
    }
    let second = |entry: &Value| entry["ts"].as_str()?.split('.').next().map(str::to_owned);
    let seconds: BTreeSet<_> = strangers.iter().map(second).collect();
    // Entries are stamped by another thread, so two may fall into one second.
    assert!(strangers.len() <= seconds.len() + 1, "{seconds:?}");
    assert_eq!(calls[0]["status"], "ok");
}

#[tokio::test]
async fn a_claim_in_a_header_changes_nobody() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let mut caller = Caller::tls(lictor.mutual, &TLS_B, false).await;
    let id = "spiffe://td-one.example.org/agent-a";
    let xfcc = format!("By=spiffe://td-one.example.org/lictor;URI={id}");
    let claims = [
        ("x-forwarded-client-cert", xfcc.as_str()),
        ("x_forwarded_client_cert", &xfcc),
        ("x-spiffe-id", id),
        ("x_spiffe_id", id),
        ("x-caller", id),
        ("x-forwarded-for", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1"),
        ("from", id),
        ("authorization", "Bearer a"),
    ];
    // `lookup` is for `agent-a` only.
    for (tool, status) in [("lookup", 4030), ("echo", 0)] {
        let answer = send(&mut caller, "POST", &claims, call(tool, "{}")).await.whole().await;
        assert_eq!(answer.json()["error"]["code"].as_i64().unwrap_or_default(), status);
    }
    let seen = stub.only();
    for (name, value) in claims {
        assert!(!seen.head.headers.contains_key(name), "{name}");
        assert!(!seen.head.headers.values().any(|sent| sent.as_bytes() == value.as_bytes()));
    }
    for entry in lictor.stop(2).await {
        assert_eq!(entry["peer"], AGENT_B);
    }
}

/// A call on an event stream of its own connection.
async fn streaming(lictor: &Lictor, stub: &mut Stub, shown: &Credential) -> (Caller, Reply, Call) {
    let mut caller = Caller::tls(lictor.mutual, &tls_of(shown), false).await;
    let body = call("echo", "{}");
    let (reply, call) = tokio::join!(send(&mut caller, "POST", &[], body), async {
        let mut call = stub.call().await;
        call.begin_events().await;
        call.chunk(": open\n\n").await;
        call
    });
    (caller, reply, call)
}

/// Everything up to the end of a stream, and the error that it ends with.
async fn ended(mut reply: Reply) -> Value {
    let reading = async {
        let mut text = Vec::new();
        while let Some(part) = reply.chunk().await {
            text.extend_from_slice(&part);
        }
        String::from_utf8(text).expect("UTF-8")
    };
    let text = within("the end of a stream", reading).await;
    let last = text.trim_end().lines().last().expect("an event").strip_prefix("data: ");
    serde_json::from_str(last.unwrap_or_else(|| panic!("no error: {text}"))).expect("JSON")
}

#[tokio::test]
async fn a_warm_connection_ends_with_its_certificate() {
    let stub = Stub::json().await;
    let lictor = Site::to(&stub.url()).start().await;
    let shown = TD_ONE.svid_for("/agent-a", 2);
    let config = tls_of(&shown);
    let (mut calls, mut refused) = (0, 0);
    let one = Caller::tls(lictor.mutual, &config, false).await;
    let two = Caller::tls(lictor.mutual, &config, true).await;
    for (http2, mut caller) in [(false, one), (true, two)] {
        let warm = async {
            loop {
                calls += 1;
                let reply = send(&mut caller, "POST", &[], call("echo", "{}")).await;
                let answer = reply.whole().await;
                if answer.status != 200 {
                    return answer;
                }
                sleep(PAUSE).await;
            }
        };
        let answer = within("the expiry", warm).await;
        assert_eq!((answer.status, answer.kind().as_str()), (401, "identity_expired"));
        assert_eq!(answer.header("www-authenticate"), Some("MutualTLS"));
        refused += 1;
        if http2 {
            // A stream can't end its connection, but no other fares better.
            let again = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
            assert_eq!(again.status, 401);
            (calls, refused) = (calls + 1, refused + 1);
        } else {
            caller.closed().await;
        }
    }
    // The end may fall between a call and its answer.
    let sent = calls - refused;
    assert!((sent..=sent + 1).contains(&stub.requests()), "{} of {calls}", stub.requests());
    assert!(calls > refused, "it was warm");
    assert_eq!(knock(&lictor, &tls_of(&shown)).await, "");
    let closings = lictor.stop(calls + 1).await;
    let of = |status: &str| closings.iter().filter(|entry| entry["status"] == status).count();
    assert_eq!((of("identity_expired"), of("certificate_refused")), (refused, 1));
}

#[tokio::test]
async fn a_stream_ends_soon_after_its_callers_certificate() {
    let mut stub = Stub::scripted().await;
    let lictor = Site::to(&stub.url()).start().await;
    let shown = TD_ONE.svid_for("/agent-a", 2);
    let (_caller, reply, mut upstream) = streaming(&lictor, &mut stub, &shown).await;
    // In band, at the next look, and the upstream's side with it.
    let error = ended(reply).await;
    assert_eq!((&error["id"], &error["error"]["code"]), (&7.into(), &4011.into()));
    upstream.abandoned().await;
    let closing = lictor.stop(1).await.remove(0);
    let of = ["status", "peer", "kind", "decision"].map(|key| closing[key].as_str());
    assert_eq!(of, ["identity_expired", AGENT_A, "outcome", "permit"].map(Some));
}
