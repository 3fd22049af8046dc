//! Cards of agents whose servers fail, are several, or have other keys than before.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::{
    http::{Answer, whole},
    reload::{APPLIED, edit, reloads},
    site::{Site, agent_a},
    stub::{self, Seen, Stub},
    subject::Lictor,
};

mod keys;

const EVERYTHING: &str = r#"@id("all") permit (principal, action, resource);"#;
const AGENT: &str = " }, { path: /agent, protocol: a2a, upstream: files";
const PLACE: &str = "/agent/.well-known/agent-card.json";

/// A card that leads to these addresses.
fn card(urls: &[String]) -> Value {
    let interfaces: Vec<_> = urls
        .iter()
        .map(|url| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }))
        .collect();
    json!({
        "name": "planner", "description": "plans", "version": "1", "skills": [],
        "supportedInterfaces": interfaces, "capabilities": {},
        "defaultInputModes": [], "defaultOutputModes": [],
    })
}

fn asks_for_card(seen: &Seen) -> bool {
    seen.head.start.starts_with("GET ") && seen.head.start.contains("/.well-known/")
}

fn own_url(seen: &Seen) -> String {
    format!("http://{}/mcp", seen.head.headers["host"].to_str().expect("a host"))
}

fn unavailable() -> Vec<u8> {
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec()
}

fn kept(card: &Value, control: &str) -> Vec<u8> {
    let body = card.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    format!("{head}\r\nCache-Control: {control}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

async fn fetch(lictor: &Lictor) -> Answer {
    let mut caller = agent_a(lictor).await;
    let request = caller.request_to("GET", PLACE, whole(""));
    caller.send(request).await.whole().await
}

async fn post(lictor: &Lictor) -> Answer {
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hello" }] });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message } });
    let mut caller = agent_a(lictor).await;
    let mut request = caller.request_to("POST", "/agent", whole(call.to_string()));
    request.headers_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    caller.send(request).await.whole().await
}

/// Calls until the breaker is open; how often.
async fn trip(lictor: &Lictor) -> usize {
    for calls in 1..20 {
        if post(lictor).await.text().contains("breaker_open") {
            return calls;
        }
    }
    panic!("it doesn't open");
}

#[tokio::test]
async fn a_card_in_memory_is_shown_while_the_breaker_is_open() {
    for (control, shown) in [("max-age=300", true), ("no-store", false)] {
        let agent = Stub::answering(move |seen| match asks_for_card(seen) {
            true => kept(&card(&[own_url(seen)]), control),
            false => unavailable(),
        })
        .await;
        let breaker = "breaker: { failures: 5, open: 1m, maxOpen: 1m }";
        let site = Site::to(&agent.url()).route(AGENT).policies(EVERYTHING).upstream(breaker);
        let lictor = site.start().await;
        let first = fetch(&lictor).await;
        assert_eq!(first.status, 200, "{}", first.text());
        let calls = trip(&lictor).await;
        let asked = agent.requests();
        let again = fetch(&lictor).await;
        if shown {
            assert_eq!((again.status, &again.body), (200, &first.body), "{}", again.text());
            assert_eq!(again.header("etag"), first.header("etag"));
        } else {
            assert!(again.text().contains("breaker_open"), "{}", again.text());
        }
        assert_eq!(agent.requests(), asked, "the agent hears nothing");
        lictor.stop(calls + 2).await;
    }
}

#[tokio::test]
async fn a_card_in_memory_takes_no_place() {
    let mut agent = Stub::scripted().await;
    let bulkhead = "bulkhead: { calls: 1, callsPerCaller: 1, queue: 0 }";
    let site = Site::to(&agent.url()).route(AGENT).policies(EVERYTHING).upstream(bulkhead);
    let lictor = site.start().await;
    let (first, ()) = tokio::join!(fetch(&lictor), async {
        let mut asked = agent.call().await;
        let card = card(&[own_url(&asked.seen)]);
        asked.send(kept(&card, "max-age=300")).await;
        asked.keep();
    });
    assert_eq!(first.status, 200, "{}", first.text());
    let (answer, again) = tokio::join!(post(&lictor), async {
        let held = agent.call().await;
        let again = fetch(&lictor).await;
        held.answer(r#"{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[]}}"#).await;
        again
    });
    assert_eq!((answer.status, again.status), (200, 200), "{}", again.text());
    assert_eq!(again.body, first.body);
    lictor.stop(3).await;
}

/// Whichever of them is asked, every address that is one of theirs becomes ours.
#[tokio::test]
async fn the_card_of_several_endpoints_leads_to_one_place() {
    let urls: Arc<Mutex<Vec<String>>> = Arc::default();
    let down = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
    let asked = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let mut agents = Vec::new();
    for at in 0..2 {
        let (urls, down, asked) =
            (Arc::clone(&urls), Arc::clone(&down[at]), Arc::clone(&asked[at]));
        let agent = Stub::answering(move |seen| {
            if down.load(Ordering::SeqCst) {
                return unavailable();
            }
            asked.fetch_add(1, Ordering::SeqCst);
            match asks_for_card(seen) {
                // It names them all, and one that is none of them.
                true => {
                    let mut all = urls.lock().expect("URLs").clone();
                    all.push("http://192.0.2.1/mcp".to_owned());
                    kept(&card(&all), "no-store")
                }
                false => stub::json(r#"{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[]}}}"#),
            }
        })
        .await;
        agents.push(agent);
    }
    let addresses: Vec<_> = agents.iter().map(Stub::url).collect();
    urls.lock().expect("URLs").clone_from(&addresses);
    let site = Site::to_several(&addresses).route(AGENT).policies(EVERYTHING);
    let lictor = site
        .upstream("healthCheck: { enabled: false }")
        .listener("publicUrl: 'https://side.example.org', hosts: []")
        .start()
        .await;
    let mut count = 0;
    let mut shown = async |expected: u16| {
        count += 1;
        let answer = fetch(&lictor).await;
        assert_eq!(answer.status, expected, "{}", answer.text());
        if expected == 200 {
            let interfaces = answer.json()["supportedInterfaces"].clone();
            let urls: Vec<_> = interfaces.as_array().expect("a list").iter().collect();
            assert_eq!(urls.len(), 1, "{interfaces}");
            assert_eq!(urls[0]["url"], "https://side.example.org/agent");
        }
    };
    for _ in 0..4 {
        shown(200).await;
    }
    assert!(asked.iter().all(|asked| asked.load(Ordering::SeqCst) == 2), "{asked:?}");
    // One that says that nobody serves there costs no caller its card.
    down[0].store(true, Ordering::SeqCst);
    for _ in 0..8 {
        shown(200).await;
    }
    // One that can't be reached is passed over at once.
    let gone = agents.remove(0);
    drop(gone);
    for _ in 0..4 {
        shown(200).await;
    }
    // Where nobody serves, there is no card.
    down[1].store(true, Ordering::SeqCst);
    shown(502).await;
    lictor.stop(count).await;
}
