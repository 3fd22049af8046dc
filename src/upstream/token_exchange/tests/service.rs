//! Exchanges with a token service on loopback.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use url::form_urlencoded;

use super::*;
use crate::upstream::{
    Verification,
    settings::{ClientSecret, TokenExchange as Settings},
};

/// What a service was asked: by whom, and for what.
type Asked = (String, BTreeMap<String, String>);

/// A token service that answers when it is let.
struct Service {
    url: String,
    asked: Arc<AtomicUsize>,
    forms: Arc<Mutex<Vec<Asked>>>,
    let_go: Arc<Semaphore>,
    _task: JoinSet<()>,
}

impl Service {
    async fn start(status: u16, body: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let (asked, forms) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<_>>>::default());
        let let_go = Arc::new(Semaphore::new(0));
        let (counter, kept, gate) = (Arc::clone(&asked), Arc::clone(&forms), Arc::clone(&let_go));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (counter, kept, gate) =
                    (Arc::clone(&counter), Arc::clone(&kept), Arc::clone(&gate));
                let body = body.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let (counter, kept, gate) =
                        (Arc::clone(&counter), Arc::clone(&kept), Arc::clone(&gate));
                    let body = body.clone();
                    async move {
                        let (head, form) = request.into_parts();
                        let form = form.collect().await?.to_bytes();
                        let form = form_urlencoded::parse(&form).into_owned().collect();
                        let by = head.headers[AUTHORIZATION].to_str().unwrap().to_owned();
                        kept.lock().unwrap().push((by, form));
                        counter.fetch_add(1, Ordering::SeqCst);
                        let _pass = gate.acquire().await.unwrap();
                        let answer = Response::builder()
                            .status(status)
                            .header(CONTENT_TYPE, "application/json;charset=UTF-8");
                        Ok::<_, hyper::Error>(answer.body(Full::new(Bytes::from(body))).unwrap())
                    }
                });
                connections.spawn(async move {
                    // It ends with the test.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { url, asked, forms, let_go, _task: task }
    }

    async fn open(status: u16, body: String) -> Self {
        let service = Self::start(status, body).await;
        service.let_go.add_permits(1);
        service
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn settings(url: &str) -> Settings {
    Settings {
        url: url.parse().unwrap(),
        verification: Verification::Loopback,
        client_id: "lictor".into(),
        client_secret: ClientSecret::Environment("PATH".into()),
        audience: Some("https://crm.example.org".into()),
        resource: Some("https://crm.example.org/mcp?a=b".into()),
        scopes: vec!["tickets.read".into(), "a+b".into()],
        required: true,
    }
}

/// The folder has the secret, and may have another later.
fn exchange(url: &str, folder: &TempDir) -> Arc<TokenExchange> {
    let file = folder.path().join("secret");
    std::fs::write(&file, "hunter2\n").unwrap();
    let settings = Settings { client_secret: ClientSecret::File(file), ..settings(url) };
    TokenExchange::new("crm", &settings, &Metrics::new()).unwrap()
}

fn user(token: &str) -> Option<UserToken> {
    UserToken::new(token)
}

fn sent(user: &OnBehalf) -> Option<String> {
    let mut parts = Request::new(()).into_parts().0;
    parts.headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer the-callers"));
    let Head(parts) = user.head(parts);
    let value = parts.headers.get(AUTHORIZATION)?;
    Some(value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn the_service_is_asked_as_the_specification_says() {
    let service = Service::open(200, json("Bearer", r#","expires_in":60"#)).await;
    let folder = TempDir::new().unwrap();
    let exchange = exchange(&service.url, &folder);
    for _ in 0..2 {
        let behalf = exchange.on_behalf("agent".into(), user("user+token/1==")).await.unwrap();
        assert_eq!(sent(&behalf).unwrap(), "Bearer issued");
    }
    let expected = [
        ("audience", "https://crm.example.org"),
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("resource", "https://crm.example.org/mcp?a=b"),
        ("scope", "tickets.read a+b"),
        ("subject_token", "user+token/1=="),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:access_token"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let secret = "Basic bGljdG9yOmh1bnRlcjI=".to_owned();
    assert_eq!(*service.forms.lock().unwrap(), [(secret, BTreeMap::from(expected))]);
    // Another user's token is another exchange, with the secret as it is now.
    std::fs::write(folder.path().join("secret"), "hunter3").unwrap();
    exchange.on_behalf("agent".into(), user("user2")).await.unwrap();
    let forms = service.forms.lock().unwrap();
    assert_eq!((forms.len(), &*forms[1].0), (2, "Basic bGljdG9yOmh1bnRlcjM="));
    assert_eq!(forms[1].1["subject_token"], "user2");
}

#[tokio::test]
async fn many_who_want_the_same_wait_for_one_exchange() {
    for (status, body, expected) in [
        (200, json("Bearer", r#","expires_in":60"#), Ok("Bearer issued".to_owned())),
        // One that may not be used again is good for those who waited.
        (200, json("Bearer", ""), Ok("Bearer issued".to_owned())),
        (400, r#"{"error":"invalid_grant"}"#.to_owned(), Err(TokenError::Refused)),
        (500, String::new(), Err(TokenError::Unavailable)),
    ] {
        let service = Service::start(status, body).await;
        let folder = TempDir::new().unwrap();
        let exchange = exchange(&service.url, &folder);
        let mut calls = JoinSet::new();
        for _ in 0..64 {
            let exchange = Arc::clone(&exchange);
            calls.spawn(async move { exchange.on_behalf("agent".into(), user("one")).await });
        }
        // The first leaves; the others get theirs all the same.
        tokio::select! { biased;
            _ = exchange.on_behalf("agent".into(), user("one")) => panic!("nobody has answered"),
            () = std::future::ready(()) => {}
        }
        while service.asked() == 0 {
            tokio::task::yield_now().await;
        }
        service.let_go.add_permits(1);
        for outcome in calls.join_all().await {
            let outcome = outcome.map(|behalf| sent(&behalf).unwrap());
            assert_eq!(outcome, expected);
        }
        assert_eq!(service.asked(), 1);
    }
}

#[tokio::test]
async fn a_call_without_a_users_token_is_refused_or_goes_for_nobody() {
    let folder = TempDir::new().unwrap();
    let exchange = exchange("http://127.0.0.1:1/token", &folder);
    assert_eq!(exchange.on_behalf("agent".into(), None).await.err(), Some(TokenError::Missing));
    let mut open = Arc::into_inner(exchange).unwrap();
    open.required = false;
    let nobody = Arc::new(open).on_behalf("agent".into(), None).await.unwrap();
    // Not with what the caller had there, either.
    assert_eq!(sent(&nobody), None);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_told_from_one_that_refuses() {
    let folder = TempDir::new().unwrap();
    let exchange = exchange("http://127.0.0.1:1/token", &folder);
    assert_eq!(
        exchange.on_behalf("agent".into(), user("a")).await.err(),
        Some(TokenError::Unavailable)
    );
    // Read anew, and nothing is no secret.
    std::fs::write(folder.path().join("secret"), "\n").unwrap();
    assert_eq!(
        exchange.on_behalf("agent".into(), user("a")).await.err(),
        Some(TokenError::Unavailable)
    );
}

#[tokio::test]
async fn a_client_without_a_secret_is_not_set_up() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        ClientSecret::File(folder.path().join(name))
    };
    let secrets = [
        (file("empty", ""), false),
        (file("blank", " \n"), false),
        (file("long", &"a".repeat(4097)), false),
        (ClientSecret::File(folder.path().into()), false),
        (ClientSecret::File(folder.path().join("none")), false),
        (ClientSecret::Environment("LICTOR_NO_SUCH".into()), false),
        (file("longest", &"a".repeat(4096)), true),
        (ClientSecret::Environment("PATH".into()), true),
    ];
    for (secret, good) in secrets {
        let settings =
            Settings { client_secret: secret.clone(), ..settings("http://127.0.0.1:1/") };
        let made = TokenExchange::new("crm", &settings, &Metrics::new());
        assert_eq!(made.is_ok(), good, "{secret:?}");
        let told = made.err().is_some_and(|error| !matches!(error, SetupError::ClientSecret(_)));
        assert!(!told, "{secret:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_service_is_given_up() {
    let service = Service::start(200, json("Bearer", "")).await;
    let folder = TempDir::new().unwrap();
    let exchange = exchange(&service.url, &folder);
    let waiting = timeout(2 * PATIENCE, exchange.on_behalf("agent".into(), user("a")));
    assert_eq!(waiting.await.expect("in time").err(), Some(TokenError::Unavailable));
}
