//! Several endpoints of one upstream, through a real Lictor.

use super::*;
use crate::site::{metrics, sample};

/// Without questions of Lictor's own, so that requests can be counted.
const SILENT: &str = "healthCheck: { enabled: false }";

/// An address where nobody is.
async fn nobody() -> String {
    let stub = Stub::json().await;
    let url = stub.url();
    drop(stub);
    url
}

/// Sessions are at home where they were opened, in the next process too, and for their owner only; both servers
/// call theirs `1`.
#[tokio::test]
async fn sessions_stay_where_they_were_opened() {
    let names = || (0..9).map(|_| "1".to_owned()).collect();
    let stubs = [upstream(names()).await, upstream(names()).await];
    let urls = [stubs[0].url(), stubs[1].url()];
    let site = Site::to_several(&urls).upstream(SILENT).with("state: { directory: state }");
    let mut lictor = site.start().await;
    let of_a = open(&mut a(&lictor).await).await;
    let of_b = open(&mut b(&lictor).await).await;
    assert_ne!(of_a, of_b);
    let echo = call("echo", "{}");
    for process in 0..2 {
        let (mut a, mut b) = (a(&lictor).await, b(&lictor).await);
        for (verb, body, expected) in
            [("POST", &*echo, 200), ("POST", ANSWER, 202), ("GET", "", 405), ("POST", &echo, 200)]
        {
            let before = [stubs[0].requests(), stubs[1].requests()];
            assert_eq!(status(&mut a, verb, &of_a, body).await, expected, "{process} {verb}");
            assert_eq!(stubs[0].requests(), before[0] + 1);
            assert_eq!(status(&mut b, verb, &of_b, body).await, expected, "{process} {verb}");
            assert_eq!(stubs[1].requests(), before[1] + 1);
            // The other's session, and one's own with the other's end, are nobody's.
            let (own, _) = of_a.split_once('.').expect("a tag");
            let (_, tag) = of_b.split_once('.').expect("a tag");
            for stranger in [&of_b, &format!("{own}.{tag}"), "1"] {
                assert_eq!(status(&mut a, verb, stranger, body).await, 404, "{stranger}");
            }
        }
        if process == 0 {
            lictor.signal("TERM").await;
            lictor.ended().await;
            lictor = lictor.restart().await;
        }
    }
    for seen in stubs.iter().flat_map(Stub::seen).filter(|seen| method(seen) != "initialize") {
        assert_eq!(seen.head.header("mcp-session-id"), Some("1"));
    }
    assert_eq!(status(&mut a(&lictor).await, "DELETE", &of_a, "").await, 204);
    assert_eq!(status(&mut a(&lictor).await, "POST", &of_a, &echo).await, 404);
    lictor.stop_with(|closings| closings > 0).await;
}

/// Every call is answered and on record once, though one endpoint of two isn't there.
#[tokio::test]
async fn a_call_that_never_left_goes_to_another_endpoint() {
    let stub = upstream(vec!["s".into()]).await;
    let urls = [nobody().await, stub.url()];
    let lictor = Site::to_several(&urls).upstream(SILENT).start().await;
    let mut caller = a(&lictor).await;
    let session = open(&mut caller).await;
    for number in 0..20 {
        let answer = send(&mut caller, "POST", &[], call("echo", "{}")).await.whole().await;
        assert_eq!(answer.status, 200, "{number}");
        assert_eq!(status(&mut caller, "POST", &session, &call("echo", "{}")).await, 200);
    }
    assert_eq!(stub.requests(), 1 + 40);
    let told = metrics(&lictor).await;
    let up = |url: &str| {
        let authority = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp"));
        let label = format!("endpoint=\"{}\"", authority.expect("a URL"));
        sample(&told, "lictor_upstream_endpoint_up", &[&label])
    };
    assert_eq!((up(&urls[0]), up(&urls[1])), (0.0, 1.0));
    let ok = |entry: &&Value| entry["status"] == "ok";
    assert_eq!(lictor.stop(41).await.iter().filter(ok).count(), 41);
}

/// A session is nowhere else: while its endpoint is away its calls fail, and the other endpoint hears nothing of
/// them.
#[tokio::test]
async fn a_session_waits_for_its_endpoint() {
    let stub = upstream(vec!["s".into()]).await;
    let other = upstream(vec!["t".into()]).await;
    let site = Site::to_several(&[stub.url(), other.url()]).upstream(SILENT);
    let lictor = site.start().await;
    let mut caller = a(&lictor).await;
    let session = open(&mut caller).await;
    assert_eq!(status(&mut caller, "POST", &session, &call("echo", "{}")).await, 200);
    drop(stub);
    let headers = [("mcp-session-id", &*session)];
    for _ in 0..3 {
        let answer = send(&mut caller, "POST", &headers, call("echo", "{}")).await.whole().await;
        assert!(["upstream_unreachable", "upstream_failed"].contains(&&*answer.kind()));
    }
    assert_eq!(other.requests(), 0);
    // Others go on meanwhile.
    let opened = open(&mut b(&lictor).await).await;
    assert_eq!(opened.split_once('.').expect("a tag").0, "t");
    lictor.stop(2 + 3 + 1).await;
}

/// A session whose endpoint isn't configured any more is unknown, and nobody hears of it.
#[tokio::test]
async fn a_session_of_an_endpoint_that_is_gone_is_unknown() {
    let stubs = [upstream(vec!["s".into()]).await, upstream(vec!["t".into()]).await];
    let urls = [stubs[0].url(), stubs[1].url()];
    let site = Site::to_several(&urls).upstream(SILENT).with("state: { directory: state }");
    let mut lictor = site.start().await;
    let session = open(&mut a(&lictor).await).await;
    lictor.signal("TERM").await;
    lictor.ended().await;
    let file = lictor.directory().join("lictor.yaml");
    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, text.replace(&urls[0], &nobody().await)).expect("written");
    let lictor = lictor.restart().await;
    let before = stubs[1].requests();
    for _ in 0..3 {
        let mut caller = a(&lictor).await;
        assert_eq!(status(&mut caller, "POST", &session, &call("echo", "{}")).await, 404);
    }
    assert_eq!(stubs[1].requests(), before);
    lictor.stop_with(|closings| closings > 3).await;
}
