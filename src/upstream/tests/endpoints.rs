//! Several endpoints of one upstream.

use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    super::{
        endpoints::{Answer, Endpoints},
        settings::{Asked, Health},
    },
    *,
};
use crate::telemetry::{Clock, Metrics};

/// The endpoints that settings name.
pub(super) fn of(settings: &Http) -> Endpoints {
    Endpoints::new("files", settings, None, &Metrics::new()).expect("set up")
}

/// How a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// With its name, and with `GET` as servers do that have no stream.
    Well,
    /// With this status.
    Status(StatusCode),
    /// It closes the connection once it has read the request.
    Breaks,
    /// Not at all.
    Hangs,
}

/// A server that can die and return.
struct Replica {
    name: &'static str,
    address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    tasks: JoinSet<()>,
}

impl Replica {
    async fn new(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let manner = Arc::new(Mutex::new(Manner::Well));
        let mut replica =
            Self { name, address, manner, seen: Arc::default(), tasks: JoinSet::new() };
        replica.serve(listener);
        replica
    }

    fn serve(&mut self, listener: TcpListener) {
        let (name, manner, seen) = (self.name, Arc::clone(&self.manner), Arc::clone(&self.seen));
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (manner, seen) = (Arc::clone(&manner), Arc::clone(&seen));
                let service = service_fn(move |request| {
                    let manner = *manner.lock().expect("manner");
                    answer(name, manner, Arc::clone(&seen), request)
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                connections.spawn(async move { drop(connection.await) });
            }
        });
    }

    async fn die(&mut self) {
        self.tasks.shutdown().await;
    }

    async fn come_back(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("bound again");
        self.serve(listener);
    }

    fn behave(&self, manner: Manner) {
        *self.manner.lock().expect("manner") = manner;
    }

    fn url(&self) -> Url {
        Url::parse(&format!("http://{}/mcp?a=b", self.address)).expect("URL")
    }

    fn seen(&self) -> Vec<(String, HeaderMap)> {
        self.seen.lock().expect("log").clone()
    }
}

async fn answer(
    name: &'static str,
    manner: Manner,
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    drop(body.collect().await);
    let target = format!("{} {}", head.method, head.uri);
    seen.lock().expect("log").push((target, head.headers));
    let mut answer = Response::new(Full::new(Bytes::from_static(name.as_bytes())));
    answer.headers_mut().insert("mcp-session-id", HeaderValue::from_static("1"));
    match manner {
        Manner::Well if head.method == Method::GET => {
            *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        }
        Manner::Well => {}
        Manner::Status(status) => *answer.status_mut() = status,
        Manner::Breaks => return Err(std::io::ErrorKind::ConnectionReset.into()),
        Manner::Hangs => std::future::pending().await,
    }
    Ok(answer)
}

/// Endpoints over some servers, and their metrics.
struct World {
    endpoints: Endpoints,
    metrics: Metrics,
}

impl World {
    fn new(replicas: &[&Replica], health: Option<Health>) -> Self {
        let mut settings = settings("http://127.0.0.1:1", Verification::Loopback);
        let mut urls = replicas.iter().map(|replica| replica.url());
        settings.url = urls.next().expect("a replica");
        settings.others = urls.collect();
        settings.health = health;
        let metrics = Metrics::new();
        let endpoints = Endpoints::new("files", &settings, None, &metrics).expect("set up");
        Self { endpoints, metrics }
    }

    async fn send(&self, session: Option<&str>) -> Result<Answer, Error> {
        let mut head = head(Method::POST);
        if let Some(session) = session {
            let session = HeaderValue::from_str(session).expect("a value");
            head.headers.insert("mcp-session-id", session);
        }
        let sent = self.endpoints.send(None, head, Bytes::from_static(b"{}"), None);
        timeout(DEADLINE, sent).await.expect("in time")
    }

    /// Who answers a call.
    async fn call(&self, session: Option<&str>) -> Result<String, Error> {
        read(self.send(session).await?).await
    }

    fn metric(&self, name: &str, replica: &Replica) -> u64 {
        let text = self.metrics.render(Clock.unix()).expect("text");
        let start = format!("{name}{{endpoint=\"{}\"", replica.address);
        let line = text.lines().find(|line| line.starts_with(&start)).expect("a series");
        line.rsplit_once(' ').expect("a number").1.parse().expect("a number")
    }

    /// Waits until probes have found out that a replica is gone.
    async fn missed(&self, replica: &Replica) {
        let failed = || {
            let text = self.metrics.render(Clock.unix()).expect("text");
            let of = format!("probes_total{{endpoint=\"{}\",outcome=\"failed\"", replica.address);
            let line = text.lines().find(|line| line.contains(&of)).expect("a series");
            line.rsplit_once(' ').expect("a number").1.parse::<u64>().expect("a number")
        };
        let enough = failed() + 2;
        let missed = async {
            while failed() < enough {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, missed).await.expect("in time");
        self.turns(replica, 0).await;
    }

    /// Waits until a replica is in or out.
    async fn turns(&self, replica: &Replica, up: u64) {
        let turned = async {
            while self.metric("lictor_upstream_endpoint_up", replica) != up {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, turned).await.expect("in time");
    }
}

async fn read(mut answer: Answer) -> Result<String, Error> {
    let mut text = Vec::new();
    while let Some(part) = answer.body_mut().frame().await {
        text.extend_from_slice(&part?);
    }
    Ok(String::from_utf8(text).expect("text"))
}

fn session(answer: &Answer) -> String {
    let id = answer.headers().get("mcp-session-id").expect("a session");
    id.to_str().expect("text").to_owned()
}

#[tokio::test]
async fn calls_are_spread() {
    let (a, b) = (Replica::new("a").await, Replica::new("b").await);
    let world = World::new(&[&a, &b], None);
    for _ in 0..10 {
        world.call(None).await.expect("answered");
    }
    assert_eq!((a.seen().len(), b.seen().len()), (5, 5));
    // A call that isn't over counts.
    let open = world.send(None).await.expect("answered");
    for _ in 0..3 {
        assert_eq!(world.call(None).await.expect("answered"), "b");
    }
    drop(open);
}

#[tokio::test]
async fn no_call_is_lost_that_could_go_elsewhere() {
    let (mut a, b) = (Replica::new("a").await, Replica::new("b").await);
    let world = World::new(&[&a, &b], None);
    a.die().await;
    for _ in 0..20 {
        assert_eq!(world.call(None).await.expect("answered"), "b");
    }
    // It was left out after three calls, and calls aren't even offered to it any more.
    assert_eq!(world.metric("lictor_upstream_endpoint_passed_over_total", &a), 3);
    assert_eq!(world.metric("lictor_upstream_endpoint_ejections_total", &a), 1);
    assert_eq!(world.metric("lictor_upstream_endpoint_up", &a), 0);
    assert_eq!(world.metric("lictor_upstream_endpoint_up", &b), 1);
}

#[tokio::test]
async fn with_all_of_them_gone_the_call_fails_and_the_next_one_is_answered() {
    let (mut a, mut b) = (Replica::new("a").await, Replica::new("b").await);
    let world = World::new(&[&a, &b], None);
    a.die().await;
    b.die().await;
    for _ in 0..9 {
        let failed = world.call(None).await;
        assert!(matches!(failed, Err(Error::Unreachable(_))), "{failed:?}");
    }
    a.come_back().await;
    b.come_back().await;
    for _ in 0..9 {
        world.call(None).await.expect("answered");
    }
}

#[tokio::test]
async fn what_may_have_arrived_is_not_sent_again() {
    for manner in [Manner::Breaks, Manner::Status(StatusCode::SERVICE_UNAVAILABLE)] {
        let (a, b) = (Replica::new("a").await, Replica::new("b").await);
        let world = World::new(&[&a, &b], None);
        a.behave(manner);
        let first = world.send(None).await;
        match (manner, &first) {
            (Manner::Breaks, Err(Error::Failed(_))) => {}
            (Manner::Status(status), Ok(answer)) if answer.status() == status => {}
            _ => panic!("{manner:?}: {first:?}"),
        }
        assert_eq!((a.seen().len(), b.seen().len()), (1, 0));
        drop(first);
        for _ in 0..10 {
            drop(world.call(None).await);
        }
        // Three in a row are enough.
        assert_eq!(a.seen().len(), 3, "{manner:?}");
        assert_eq!(world.metric("lictor_upstream_endpoint_up", &a), 0);
    }
}

#[tokio::test]
async fn statuses_for_the_caller_are_no_failures() {
    for status in [400, 401, 404, 405, 429, 500, 501] {
        let a = Replica::new("a").await;
        let b = Replica::new("b").await;
        let world = World::new(&[&a, &b], None);
        a.behave(Manner::Status(StatusCode::from_u16(status).expect("a status")));
        for _ in 0..20 {
            world.call(None).await.expect("answered");
        }
        assert_eq!((a.seen().len(), b.seen().len()), (10, 10), "{status}");
    }
}

#[tokio::test]
async fn a_session_stays_where_it_was_opened() {
    let (mut a, b) = (Replica::new("a").await, Replica::new("b").await);
    let world = World::new(&[&a, &b], None);
    let (first, second) = (world.send(None).await.expect("a"), world.send(None).await.expect("b"));
    let (first, second) = (session(&first), session(&second));
    // Both servers call it `1`.
    assert_ne!(first, second);
    // Another process, which has the endpoints in another order.
    let other = World::new(&[&b, &a], None);
    for _ in 0..5 {
        for world in [&world, &other] {
            assert_eq!(world.call(Some(&first)).await.expect("answered"), "a");
            assert_eq!(world.call(Some(&second)).await.expect("answered"), "b");
        }
    }
    for (_, headers) in a.seen().iter().skip(1) {
        assert_eq!(headers.get("mcp-session-id").expect("a session"), "1");
    }
    // It is nowhere else, whatever becomes of its server.
    a.die().await;
    let seen = b.seen().len();
    for _ in 0..5 {
        let failed = world.call(Some(&first)).await;
        assert!(matches!(failed, Err(Error::Unreachable(_))), "{failed:?}");
    }
    assert_eq!(b.seen().len(), seen);
    a.come_back().await;
    assert_eq!(world.call(Some(&first)).await.expect("answered"), "a");
}

#[tokio::test]
async fn a_session_of_before_is_at_the_first_and_one_of_elsewhere_is_gone() {
    let (a, b) = (Replica::new("a").await, Replica::new("b").await);
    let world = World::new(&[&a, &b], None);
    for _ in 0..4 {
        assert_eq!(world.call(Some("f00d")).await.expect("answered"), "a");
    }
    let gone = world.call(Some("f00d.0123456789abcdef")).await;
    assert!(matches!(gone, Err(Error::SessionGone)), "{gone:?}");
    assert_eq!((a.seen().len(), b.seen().len()), (4, 0));
}

#[tokio::test]
async fn one_endpoint_leaves_sessions_alone() {
    let a = Replica::new("a").await;
    let health = Health { interval: DEADLINE, timeout: DEADLINE, asked: Asked::Discover };
    for health in [None, Some(health)] {
        let world = World::new(&[&a], health);
        let answer = world.send(Some("f00d.0123456789abcdef")).await.expect("answered");
        assert_eq!(session(&answer), "1");
        let (_, headers) = a.seen().pop().expect("a request");
        assert_eq!(headers.get("mcp-session-id").expect("it"), "f00d.0123456789abcdef");
    }
}

#[tokio::test]
async fn places_of_the_upstream_are_at_each_endpoint() {
    let (a, b) = (Replica::new("a").await, Replica::new("b").await);
    let world = World::new(&[&a, &b], None);
    let place = world.endpoints.beneath("/tasks/1", Some("c=d")).expect("a place");
    for _ in 0..2 {
        let sent = world.endpoints.send(Some(&place), head(Method::POST), Bytes::new(), None);
        read(sent.await.expect("answered")).await.expect("read");
    }
    for replica in [&a, &b] {
        let [(target, headers)] = &replica.seen()[..] else { panic!("one request each") };
        assert_eq!(target, "POST /mcp/tasks/1?c=d");
        assert_eq!(headers.get("host").expect("a host"), &replica.address.to_string());
    }
}

fn health(asked: Asked) -> Option<Health> {
    let interval = Duration::from_millis(20);
    Some(Health { interval, timeout: Duration::from_millis(500), asked })
}

#[tokio::test]
async fn probes_find_out_who_is_there() {
    let (mut a, b) = (Replica::new("a").await, Replica::new("b").await);
    let world = World::new(&[&a, &b], health(Asked::Discover));
    // Whoever refuses is alive.
    b.behave(Manner::Status(StatusCode::BAD_REQUEST));
    a.die().await;
    world.turns(&a, 0).await;
    for _ in 0..9 {
        world.call(None).await.expect("answered");
    }
    assert_eq!(world.metric("lictor_upstream_endpoint_passed_over_total", &a), 0);
    a.come_back().await;
    world.turns(&a, 1).await;
    for manner in [Manner::Breaks, Manner::Hangs, Manner::Status(StatusCode::BAD_GATEWAY)] {
        a.behave(manner);
        world.turns(&a, 0).await;
        a.behave(Manner::Well);
        world.turns(&a, 1).await;
    }
    assert_eq!(world.metric("lictor_upstream_endpoint_up", &b), 1);
    assert_eq!(world.metric("lictor_upstream_endpoint_ejections_total", &a), 0);
}

#[tokio::test]
async fn a_probe_opens_no_session_and_asks_no_stream() {
    let (mcp, agent) = (Replica::new("mcp").await, Replica::new("agent").await);
    let worlds =
        [World::new(&[&mcp], health(Asked::Discover)), World::new(&[&agent], health(Asked::Card))];
    let asked = async {
        while mcp.seen().is_empty() || agent.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, asked).await.expect("in time");
    drop(worlds);
    for (target, headers) in mcp.seen() {
        assert_eq!(target, "POST /mcp?a=b");
        assert_eq!(headers.get("mcp-method").expect("it"), "server/discover");
        assert!(headers.contains_key("mcp-session-id"));
    }
    for (target, _) in agent.seen() {
        assert!(target.starts_with("GET /mcp/.well-known/agent-card.json"), "{target}");
    }
}

#[tokio::test]
async fn probes_end_with_the_upstream() {
    let a = Replica::new("a").await;
    let world = World::new(&[&a], health(Asked::Discover));
    let asked = async {
        while a.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, asked).await.expect("in time");
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    drop(world);
    let ended = async {
        while tasks.num_alive_tasks() >= before {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, ended).await.expect("in time");
}

/// Two of three servers die and return in turn while calls go on: none of the calls is lost.
#[tokio::test]
async fn servers_die_and_return_under_calls() {
    let (mut a, mut b) = (Replica::new("a").await, Replica::new("b").await);
    let c = Replica::new("c").await;
    let world = Arc::new(World::new(&[&a, &b, &c], health(Asked::Discover)));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    for _ in 0..4 {
        let (world, answered) = (Arc::clone(&world), Arc::clone(&answered));
        let stopped = stopped.clone();
        callers.spawn(async move {
            while !*stopped.borrow() {
                match world.call(None).await {
                    Ok(_) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    // It was under way when its server died.
                    Err(Error::Failed(_)) => {}
                    Err(error) => panic!("{}", chain(&error)),
                }
            }
        });
    }
    for _ in 0..2 {
        a.die().await;
        world.missed(&a).await;
        a.come_back().await;
        world.turns(&a, 1).await;
        b.die().await;
        world.missed(&b).await;
        b.come_back().await;
        world.turns(&b, 1).await;
    }
    stop.send(true).expect("callers");
    callers.join_all().await;
    assert!(answered.load(Ordering::Relaxed) > 100);
}
