//! The operators' API, asked by everybody who may not and then by an operator.

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::{
    ledger::{self, Genesis, Ledger},
    revocation::Register,
    state::{self, Owners},
};

const TOKEN: &str = "a token of operators";

/// Administration with a desk, and a folder for what it needs.
struct Office {
    running: Running,
    desk: DeskPlace,
    folder: TempDir,
}

async fn office(token_file: bool) -> Office {
    let folder = TempDir::new().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("written");
    let desk = DeskPlace::default();
    let running = running_with(token_file.then_some(token), Arc::clone(&desk)).await;
    Office { running, desk, folder }
}

impl Office {
    async fn opened(self) -> Self {
        let settings = ledger::Settings {
            directory: self.folder.path().join("ledger"),
            commit_interval: Duration::from_millis(1),
            read_intent: false,
            on_failure: ledger::OnFailure::DenyAll,
        };
        let ledger = Ledger::open(settings, Genesis::default()).expect("opens");
        let owners = Owners::open(state::Settings::Memory, state::Limits::of, Clock.unix()).await;
        let records = owners.expect("a store").records();
        let register = Register::open(records, ledger, Metrics::new()).await.expect("opens");
        let revocations = Arc::new(register);
        let desk =
            Desk { revocations, knows_tenants: Box::new(|| false), upstreams: Box::new(Vec::new) };
        self.desk.set(desk).expect("the first");
        self
    }

    /// Status and JSON of the answer to a request with these header lines.
    async fn ask(&self, start: &str, headers: &[&str], body: &str) -> (u16, Value) {
        let mut head = format!("{start} HTTP/1.1\r\nConnection: close\r\n");
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        if !body.is_empty() {
            head.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            ));
        }
        let (status, body) = exchange(self.running.operators, &format!("{head}\r\n{body}")).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    async fn operator(&self, start: &str, body: &str) -> (u16, Value) {
        let token = format!("Authorization: Bearer {TOKEN}");
        self.ask(start, &["Host: 127.0.0.1:9440", &token], body).await
    }
}

const USER: &str = r#"{"kind":"user","value":"u-1","reason":"r","by":"b"}"#;
const HOST: &str = "Host: localhost";

#[tokio::test]
async fn only_who_shows_the_token_is_let_in() {
    let office = office(true).await.opened().await;
    let id = "/revocations/01993f0e-7b5a-7c3e-9a1d-0123456789ab";
    let requests = [
        ("GET /revocations".to_owned(), ""),
        ("POST /revocations".to_owned(), USER),
        (format!("DELETE {id}"), ""),
        ("GET /upstreams".to_owned(), ""),
        ("POST /upstreams/files/reset".to_owned(), ""),
    ];
    let long = format!("Authorization: Bearer {TOKEN}{TOKEN}");
    let short = format!("Authorization: Bearer {}", TOKEN.trim_start_matches("a "));
    let right = format!("Authorization: Bearer {TOKEN}");
    for (start, body) in &requests {
        for shown in [
            &[][..],
            &["Authorization: Bearer"],
            &["Authorization: Bearer "],
            &["Authorization: Basic YTpi"],
            &[TOKEN_ALONE],
            &[&long],
            &[&short],
            &[&right, &right],
        ] {
            let headers: Vec<_> = [HOST].into_iter().chain(shown.iter().copied()).collect();
            let (status, told) = office.ask(start, &headers, body).await;
            assert_eq!(status, 401, "{start} {shown:?}");
            assert!(told["error"].as_str().is_some_and(|it| it.contains("admin.tokenFile")));
        }
    }
    let (status, told) = office.operator("GET /revocations", "").await;
    assert_eq!((status, &told["revocations"]), (200, &json!([])));
    // What is asked for without it isn't looked at any further either.
    let (status, _) = office.ask("POST /revocations", &[HOST], "nonsense").await;
    assert_eq!(status, 401);
    // Another token in the file is the one that counts, and none is nobody's.
    std::fs::write(office.folder.path().join("token"), "the next token of operators")
        .expect("written");
    assert_eq!(office.operator("GET /revocations", "").await.0, 401);
    for bad in ["", "short", &"x".repeat(4097)] {
        std::fs::write(office.folder.path().join("token"), bad).expect("written");
        assert_eq!(office.operator("GET /revocations", "").await.0, 503, "{}", bad.len());
    }
    std::fs::remove_file(office.folder.path().join("token")).expect("removed");
    assert_eq!(office.operator("GET /revocations", "").await.0, 503);
}

const TOKEN_ALONE: &str = "Authorization: a token of operators";

#[tokio::test]
async fn without_a_token_it_is_off_and_says_which_key_to_set() {
    let office = office(false).await.opened().await;
    for (start, body) in [("GET /revocations", ""), ("POST /revocations", USER)] {
        let (status, told) = office.operator(start, body).await;
        assert_eq!(status, 403);
        assert!(told["error"].as_str().is_some_and(|it| it.contains("set `admin.tokenFile`")));
    }
    assert_eq!(fetch(office.running.operators, "/metrics").await.0, 200);
}

#[tokio::test]
async fn pages_of_browsers_are_refused() {
    let office = office(true).await.opened().await;
    let token = format!("Authorization: Bearer {TOKEN}");
    for (headers, expected) in [
        (&["Host: localhost:9440"][..], 200),
        (&["Host: 127.0.0.1"], 200),
        (&["Host: 10.1.2.3:9440"], 200),
        (&["Host: [::1]:9440"], 200),
        (&["Host: evil.example"], 403),
        (&["Host: localhost.evil.example"], 403),
        (&["Host: 127.0.0.1.evil.example"], 403),
        (&["Host: a@127.0.0.1"], 403),
        (&["Host: "], 403),
        (&["Host: 127.0.0.1", "Host: 127.0.0.1"], 403),
        (&["Host: 127.0.0.1", "Origin: http://127.0.0.1"], 403),
        (&["Host: 127.0.0.1", "Origin: null"], 403),
    ] {
        let headers: Vec<_> = headers.iter().copied().chain([&*token]).collect();
        let (status, _) = office.ask("GET /revocations", &headers, "").await;
        // What hyper can't read at all is refused by it.
        assert!(status == expected || (expected == 403 && status == 400), "{headers:?}: {status}");
    }
    let headers = ["Host: 127.0.0.1", &token];
    assert_eq!(office.ask("GET http://evil.example/revocations", &headers, "").await.0, 403);
}

#[tokio::test]
async fn an_operator_revokes_lists_and_lifts() {
    let office = office(true).await;
    assert_eq!(office.operator("GET /revocations", "").await.0, 503, "not open yet");
    let office = office.opened().await;
    let (status, made) = office.operator("POST /revocations", USER).await;
    assert_eq!((status, &made["kept"]), (201, &json!("memory")));
    let asked = r#"{"kind":"tool","value":"files/x","reason":"r","by":"b","for":"1h"}"#;
    let (_, hour) = office.operator("POST /revocations", asked).await;
    let time = |value: &Value| {
        let text = value.as_str().expect("a time").to_owned();
        humantime::parse_rfc3339(&text).expect("RFC 3339")
    };
    let lasts = time(&hour["until"]).duration_since(time(&hour["at"])).expect("later");
    assert_eq!(lasts, Duration::from_secs(3600));
    let (_, listed) = office.operator("GET /revocations", "").await;
    let kinds: Vec<_> =
        listed["revocations"].as_array().expect("a list").iter().map(|it| &it["kind"]).collect();
    assert_eq!((kinds, &listed["known"]), (vec![&json!("user"), &json!("tool")], &json!(true)));
    let id = made["id"].as_str().expect("an id");
    assert_eq!(office.operator(&format!("DELETE /revocations/{id}"), "").await.0, 200);
    assert_eq!(office.operator(&format!("DELETE /revocations/{id}"), "").await.0, 404);
    let (_, listed) = office.operator("GET /revocations", "").await;
    assert_eq!(listed["revocations"].as_array().expect("a list").len(), 1);
}

#[tokio::test]
async fn what_makes_no_sense_is_said_so() {
    let office = office(true).await.opened().await;
    let user =
        |more: &str| format!(r#"{{"kind":"user","value":"u-1","reason":"r","by":"b"{more}}}"#);
    let tenant = r#"{"kind":"tenant","value":"acme","reason":"r","by":"b"}"#;
    let long = user(&format!(r#","for":"{}""#, "1".repeat(17 << 10)));
    for body in [
        "7",
        "{",
        r#"{"kind":"user","value":"u-1","reason":"r"}"#,
        r#"{"kind":"user","value":"u-1","reason":"","by":"b"}"#,
        r#"{"kind":"planet","value":"u-1","reason":"r","by":"b"}"#,
        tenant,
        &user(r#","until":"never""#),
        &user(r#","for":"soon""#),
        &user(r#","for":"0s""#),
        &long,
    ] {
        let (status, told) = office.operator("POST /revocations", body).await;
        assert_eq!(status, 400, "{body}: {told}");
        assert!(told["error"].is_string(), "{told}");
    }
    let token = format!("Authorization: Bearer {TOKEN}");
    let plain = ["Host: 127.0.0.1", &token, "Content-Type: text/plain", "Content-Length: 2"];
    let (status, _) = office.ask("POST /revocations", &plain, "").await;
    assert_eq!(status, 400, "a form of a page can't send JSON");
    assert_eq!(office.operator("DELETE /revocations/7", "").await.0, 400);
    let (_, listed) = office.operator("GET /revocations", "").await;
    assert_eq!(listed["revocations"], json!([]));
}
