//! Who calls and who listens, and what came of it.

use std::{error::Error as _, time::Duration};

use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::Counts;
use crate::{
    CALL, CHANGE,
    http::{Caller, Reply, TRANSPORTS, Transport, whole},
    subject::Places,
};

const LISTEN: &str = r#"{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
const STREAM: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"stream"}}"#;
const WIPE: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wipe"}}"#;
const SLOW: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow"}}"#;

/// Longest that an answer, or the next event of a stream, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was seen.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) seen: Counts,
    /// Requests to which an answer began.
    pub(super) answered: usize,
    /// What must not happen.
    pub(super) lost: Vec<String>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.lost.extend(other.lost);
        for (what, count) in other.seen {
            *self.seen.entry(what).or_default() += count;
        }
    }

    fn saw(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }
}

/// Everybody at work.
pub(super) struct Load {
    stop: watch::Sender<bool>,
    workers: JoinSet<Tally>,
}

impl Load {
    /// Two who call on each transport, and so many who listen.
    pub(super) fn begin(places: Places, streams: usize) -> Self {
        let stop = watch::Sender::new(false);
        let mut workers = JoinSet::new();
        for transport in TRANSPORTS.into_iter().chain(TRANSPORTS) {
            workers.spawn(call(places, transport, stop.subscribe()));
        }
        for index in 0..streams {
            let transport = TRANSPORTS[if index % 10 < 8 { 0 } else { index % 10 - 7 }];
            workers.spawn(listen(places, transport, index % 2 == 0, stop.subscribe()));
        }
        Self { stop, workers }
    }

    /// Those whom the end of the process meets: slow calls under way, and open streams.
    pub(super) async fn begin_last(places: Places) -> Self {
        let stop = watch::Sender::new(true);
        let mut workers = JoinSet::new();
        let settled = settled(places).await;
        workers.spawn(async { settled });
        for index in 0..30 {
            let transport = TRANSPORTS[index % 3];
            let mut stop = stop.subscribe();
            stop.mark_unchanged();
            workers.spawn(async move {
                let mut tally = Tally::default();
                let mut caller = places.caller(transport).await;
                if index % 2 == 0 {
                    once(&mut caller, SLOW, &mut tally).await;
                } else {
                    follow(&mut caller, index % 4 == 1, &mut tally, &mut stop).await;
                }
                tally
            });
        }
        // They are under way, and none is done.
        sleep(Duration::from_millis(600)).await;
        Self { stop, workers }
    }

    /// Lets everybody finish.
    pub(super) async fn end(mut self) -> Tally {
        self.stop.send_if_modified(|stop| !std::mem::replace(stop, true));
        let mut all = Tally::default();
        while let Some(tally) = self.workers.join_next().await {
            all.add(tally.expect("nobody was turned away"));
        }
        all
    }
}

/// Reads until the upstream answers again and its breaker is closed: it may have died just before.
async fn settled(places: Places) -> Tally {
    let mut tally = Tally::default();
    let answers = async {
        while tally.seen.get("calls answered").is_none_or(|answers| *answers < 5) {
            let mut caller = places.caller(TRANSPORTS[0]).await;
            once(&mut caller, LIST, &mut tally).await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, answers).await.expect("the upstream answers again");
    tally
}

/// Calls of every kind, one after another: over HTTP/1.1 with a connection for each.
async fn call(places: Places, transport: Transport, stop: watch::Receiver<bool>) -> Tally {
    let mut tally = Tally::default();
    let mut kept = None;
    for body in [CALL, CHANGE, LIST, STREAM, WIPE].into_iter().cycle() {
        if *stop.borrow() {
            break;
        }
        let mut caller = match kept.take() {
            Some(caller) => caller,
            None => places.caller(transport).await,
        };
        let again = once(&mut caller, body, &mut tally).await;
        if again && transport == Transport::Http2Tls {
            kept = Some(caller);
        }
        sleep(Duration::from_millis(20)).await;
    }
    tally
}

/// Whether a call came to a connection that has just been told to end, and was kept back by the client (RFC 9113
/// §6.8). Had it been served all the same, more would be on record than was answered.
fn is_goodbye(error: &hyper::Error) -> bool {
    error.source().is_some_and(|source| {
        // The crate `h2` isn't one of ours.
        format!("{source:?}").contains("GoAway(b\"\", NO_ERROR, Remote)")
    })
}

/// One call; whether the connection can be used again.
async fn once(caller: &mut Caller, body: &'static str, tally: &mut Tally) -> bool {
    let request = caller.request("POST", whole(body));
    let reply = match timeout(PATIENCE, caller.exchange(request)).await {
        Ok(Ok(reply)) => reply,
        // The connection had closed, or was told to end, before anything was sent.
        Ok(Err(error)) if error.is_canceled() || error.is_closed() || is_goodbye(&error) => {
            tally.saw("calls sent again, as nothing had been sent");
            return false;
        }
        Ok(Err(error)) => {
            tally.lost.push(format!("a call: {error:?}: {body}"));
            return false;
        }
        Err(_) => {
            tally.lost.push(format!("a call without an answer: {body}"));
            return false;
        }
    };
    tally.answered += 1;
    let (text, ended) = text_of(reply, &mut None).await;
    match last_message(&text) {
        _ if ended.is_err() => tally.lost.push(format!("an answer that was cut: {text}")),
        Some(message) if message["id"] != 7 => tally.lost.push(format!("no answer: {text}")),
        Some(message) => match message.pointer("/error/data/kind").and_then(Value::as_str) {
            Some("policy_denied") if body == WIPE => tally.saw("calls denied"),
            Some(kind) if body != WIPE => tally.saw(format!("calls refused: {kind}")),
            None if body != WIPE => tally.saw("calls answered"),
            Some(_) | None => tally.lost.push(format!("a denied call that wasn't: {text}")),
        },
        None => tally.lost.push(format!("an answer that says nothing: {text}")),
    }
    true
}

/// Listens, and again when that ends.
async fn listen(
    places: Places,
    transport: Transport,
    modern: bool,
    mut stop: watch::Receiver<bool>,
) -> Tally {
    let mut tally = Tally::default();
    while !*stop.borrow() {
        let mut caller = places.caller(transport).await;
        follow(&mut caller, modern, &mut tally, &mut stop).await;
        sleep(Duration::from_millis(500)).await;
    }
    tally
}

async fn follow(
    caller: &mut Caller,
    modern: bool,
    tally: &mut Tally,
    stop: &mut watch::Receiver<bool>,
) {
    let mut request = caller.request("GET", whole(""));
    if modern {
        request = caller.request("POST", whole(LISTEN));
        let headers = request.headers_mut();
        headers.insert("mcp-protocol-version", "2026-07-28".parse().expect("a value"));
        headers.insert("mcp-method", "subscriptions/listen".parse().expect("a value"));
    }
    let reply = match timeout(PATIENCE, caller.exchange(request)).await {
        Ok(Ok(reply)) => reply,
        other => return tally.lost.push(format!("a stream that never began: {other:?}")),
    };
    tally.answered += 1;
    if reply.status != 200 {
        return tally.saw(format!("streams refused: {}", reply.status.as_u16()));
    }
    let (text, ended) = text_of(reply, &mut Some(stop)).await;
    let last = last_message(&text);
    match ended {
        Ok(true) => tally.saw("streams closed by their listener"),
        Ok(false) if !modern => tally.saw("streams without a request that ended well"),
        Ok(false) => match last.as_ref().and_then(|last| last.pointer("/error/data/kind")) {
            Some(kind) => tally.saw(format!("streams told: {kind}")),
            None => tally.lost.push(format!("a stream that ended without a word: {text}")),
        },
        Err(error) => tally.lost.push(format!("a stream that was cut: {error}: {text}")),
    }
}

/// The last part of a body, and how it ended: `true` if it was given up as told.
async fn text_of(
    mut reply: Reply,
    stop: &mut Option<&mut watch::Receiver<bool>>,
) -> (String, Result<bool, String>) {
    let mut text = String::new();
    loop {
        let told = async {
            match stop {
                // An error means that everybody has been told.
                Some(stop) => drop(stop.changed().await),
                None => std::future::pending().await,
            }
        };
        let more = tokio::select! {
            more = reply.try_chunk() => more,
            () = told => return (text, Ok(true)),
        };
        match more {
            Ok(Some(more)) => text.push_str(&String::from_utf8_lossy(&more)),
            Ok(None) => return (text, Ok(false)),
            Err(error) => return (text, Err(format!("{error:?}"))),
        }
        // Nobody keeps hours of events.
        if text.len() > 4096 {
            text.drain(..text.floor_char_boundary(text.len() - 2048));
        }
    }
}

/// The last JSON-RPC message of a document or a stream of events.
fn last_message(text: &str) -> Option<Value> {
    let json = |text: &str| serde_json::from_str::<Value>(text).ok();
    let last = || text.lines().rev().find_map(|line| line.strip_prefix("data: ")).and_then(json);
    json(text).or_else(last)
}
