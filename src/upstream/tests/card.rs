//! Where an agent's card is found, how long it is used, and what is taken for none.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use http::{Request, Response, header::HeaderMap};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle};

use super::{
    super::{
        Settings, Ticket,
        admission::Gate,
        card::{CardError, Cards},
        endpoints::Endpoints,
        settings::Server,
    },
    *,
};
use crate::telemetry::Metrics;

const NEW: &str = "/.well-known/agent-card.json";
const OLD: &str = "/.well-known/agent.json";
const CARD: &str = r#"{"name":"a","skills":[]}"#;

type Answers = HashMap<String, Response<Full<Bytes>>>;

/// An agent that answers each path as it was told, and 404 elsewhere.
struct Site {
    address: std::net::SocketAddr,
    answers: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    /// Told of requests for `/hang/…`, which aren't answered.
    hanging: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Site {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let answers = Arc::<Mutex<Answers>>::default();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let hanging = Arc::new(Notify::new());
        let (told, log, hangs) = (Arc::clone(&answers), Arc::clone(&asked), Arc::clone(&hanging));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (told, log) = (Arc::clone(&told), Arc::clone(&log));
                let hangs = Arc::clone(&hangs);
                let service = service_fn(move |request: Request<Incoming>| {
                    let target = request.uri().path_and_query().expect("target").to_string();
                    let answer = told.lock().expect("answers").get(&target).cloned();
                    log.lock().expect("log").push((target, request.headers().clone()));
                    let hang = request.uri().path().starts_with("/hang").then(|| hangs.clone());
                    async move {
                        if let Some(hang) = hang {
                            hang.notify_one();
                            std::future::pending::<()>().await;
                        }
                        let missing = || answer_of(404, &[], "none here");
                        Ok::<_, hyper::Error>(answer.unwrap_or_else(missing))
                    }
                });
                let connection = TokioIo::new(stream);
                tokio::spawn(async move {
                    drop(
                        auto::Builder::new(TokioExecutor::new())
                            .serve_connection(connection, service)
                            .await,
                    );
                });
            }
        });
        Self { address, answers, asked, hanging, task }
    }

    fn set(&self, path: &str, status: u16, headers: &[(&'static str, &str)], body: &str) {
        let answer = answer_of(status, headers, body);
        self.answers.lock().expect("answers").insert(path.to_owned(), answer);
    }

    /// The paths that were asked for since the last time.
    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().expect("log");
        std::mem::take(&mut *asked).into_iter().map(|(path, _)| path).collect()
    }

    fn upstream(&self, path: &str, card: Option<&str>) -> (Endpoints, Cards) {
        let url = |path: &str| format!("http://{}{path}", self.address);
        let card = card.map(|card| Url::parse(&url(card)).expect("URL"));
        let settings = settings(&url(path), Verification::Loopback);
        let client = super::endpoints::of(&settings);
        let cards = Cards::new(&client, &settings.url, card.as_ref());
        (client, cards)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer_of(status: u16, headers: &[(&'static str, &str)], body: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    answer.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).expect("answer")
}

fn ticket() -> Ticket {
    let server = Server::Http(settings("http://127.0.0.1:1/", Verification::Loopback));
    let settings = Settings::new("agent", server);
    Gate::new(&settings, &Metrics::new()).overrule()
}

async fn card(of: &(Endpoints, Cards)) -> Result<Bytes, CardError> {
    let card = timeout(DEADLINE, of.1.card(&of.0, ticket())).await.expect("in time")?;
    Ok(card.bytes)
}

#[tokio::test]
async fn a_card_is_found_at_each_of_its_places() {
    let below = |name: &str| format!("/in/agent{name}");
    for (path, configured, at, asked) in [
        ("/in/agent", None, below(NEW), vec![below(NEW)]),
        ("/in/agent/", None, below(OLD), vec![below(NEW), below(OLD)]),
        ("/in/agent?key=1", None, NEW.to_owned(), vec![below(NEW), below(OLD), NEW.to_owned()]),
        ("/", None, OLD.to_owned(), vec![NEW.to_owned(), OLD.to_owned()]),
        ("/in/agent", Some("/card?of=a"), "/card?of=a".to_owned(), vec!["/card?of=a".to_owned()]),
    ] {
        let site = Site::new().await;
        site.set(&at, 200, &[], CARD);
        let upstream = site.upstream(path, configured);
        assert_eq!(card(&upstream).await.expect("a card"), CARD, "{path}");
        assert_eq!(site.asked(), asked, "{path}");
    }
}

#[tokio::test]
async fn a_card_is_kept_as_long_as_it_may_be() {
    let site = Site::new().await;
    site.set(NEW, 200, &[("cache-control", "max-age=100")], CARD);
    let upstream = site.upstream("/", None);
    card(&upstream).await.expect("a card");
    site.set(NEW, 500, &[], "");
    let kept = upstream.1.card(&upstream.0, ticket()).await.expect("kept");
    assert!(kept.fresh_for > Duration::from_secs(90) && kept.fresh_for <= Duration::from_secs(100));
    assert_eq!(site.asked().len(), 1);
}

#[tokio::test]
async fn a_card_that_may_not_be_kept_is_asked_for_again_with_its_tag() {
    let site = Site::new().await;
    site.set(NEW, 200, &[("cache-control", "no-cache"), ("etag", "\"1\"")], CARD);
    let upstream = site.upstream("/", None);
    card(&upstream).await.expect("a card");
    site.set(NEW, 304, &[("cache-control", "no-cache")], "");
    assert_eq!(card(&upstream).await.expect("the same"), CARD);
    site.set(NEW, 200, &[("cache-control", "no-cache")], "{}");
    assert_eq!(card(&upstream).await.expect("the next"), "{}");
    let tags: Vec<_> = site
        .asked
        .lock()
        .expect("log")
        .iter()
        .map(|(_, headers)| headers.get("if-none-match").cloned())
        .collect();
    assert_eq!(
        tags,
        [None, Some("\"1\"".parse().expect("a tag")), Some("\"1\"".parse().expect("a tag"))]
    );
    // Without a tag, nothing was asked that "not modified" answers.
    site.set(NEW, 304, &[], "");
    assert!(matches!(card(&upstream).await, Err(CardError::Status(_))));
}

#[tokio::test]
async fn an_old_card_is_no_card() {
    let site = Site::new().await;
    site.set(NEW, 200, &[("cache-control", "no-cache"), ("etag", "\"1\"")], CARD);
    let upstream = site.upstream("/", None);
    card(&upstream).await.expect("a card");
    site.set(NEW, 503, &[], "");
    assert!(matches!(card(&upstream).await, Err(CardError::Status(_))));
    site.asked();
    // Others are told of the failure for a while, in place of asking themselves.
    site.set(NEW, 200, &[], CARD);
    assert!(matches!(card(&upstream).await, Err(CardError::Status(_))));
    assert_eq!(site.asked(), [""; 0]);
    let again = async {
        while card(&upstream).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, again).await.expect("after a while");
}

#[tokio::test]
async fn what_is_no_card_is_none() {
    let long = "x".repeat((1 << 20) + 1);
    for (status, headers, body, wanted) in [
        (404, &[][..], "", "the upstream has no agent card"),
        (410, &[], "", "the upstream has no agent card"),
        (401, &[], "", "the upstream answers 401 Unauthorized when it is asked for its agent card"),
        (
            500,
            &[],
            CARD,
            "the upstream answers 500 Internal Server Error when it is asked for its agent card",
        ),
        (204, &[], "", "the upstream answers 204 No Content when it is asked for its agent card"),
        (
            302,
            &[("location", NEW)],
            CARD,
            "the agent card is behind a redirect, which is not followed; configure its URL",
        ),
        (
            308,
            &[("location", "http://127.0.0.1:1/")],
            "",
            "the agent card is behind a redirect, which is not followed; configure its URL",
        ),
        (
            200,
            &[("content-encoding", "gzip")],
            CARD,
            "the agent card is encoded in a way that wasn't asked for",
        ),
        (200, &[], &long, "the agent card is longer than 1048576 bytes"),
    ] {
        let site = Site::new().await;
        site.set(NEW, status, headers, body);
        let upstream = site.upstream("/", None);
        let error = card(&upstream).await.expect_err("no card");
        assert_eq!(error.to_string(), wanted, "{status}");
    }
}

#[tokio::test]
async fn a_guarded_place_does_not_hide_the_next() {
    let site = Site::new().await;
    site.set(&format!("/in/agent{NEW}"), 401, &[], "");
    site.set(NEW, 200, &[], CARD);
    assert_eq!(card(&site.upstream("/in/agent", None)).await.expect("a card"), CARD);
}

#[tokio::test]
async fn an_agent_that_hangs_or_is_away_has_no_card() {
    let site = Site::new().await;
    let upstream = site.upstream("/", Some("/hang"));
    let hangs = async {
        site.hanging.notified().await;
        tokio::time::pause();
    };
    let (answer, ()) = tokio::join!(upstream.1.card(&upstream.0, ticket()), hangs);
    assert!(matches!(answer, Err(CardError::Late)));
    tokio::time::resume();
    let upstream = site.upstream("/", None);
    drop(site);
    assert!(matches!(card(&upstream).await, Err(CardError::Unreachable(_))));
}

#[tokio::test]
async fn many_callers_have_it_fetched_once() {
    let site = Site::new().await;
    site.set(NEW, 200, &[], CARD);
    let upstream = site.upstream("/", None);
    let (one, two, three) = tokio::join!(card(&upstream), card(&upstream), card(&upstream));
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    assert_eq!(site.asked(), [NEW]);
}
