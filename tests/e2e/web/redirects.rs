//! Where answers lead.

use super::*;

/// An API whose answer is in the query of the request: the status, and where it leads.
async fn leading() -> Stub {
    Stub::answering(|seen| {
        let query = line(seen).split_once('?').map_or("", |(_, query)| query);
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).collect();
        let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let host = seen.head.header("host").unwrap_or_default();
        let mut headers = String::new();
        for name in ["Location", "Link"] {
            if let Some(value) = value(name) {
                headers.push_str(&format!("{name}: {}\r\n", value.replace("HOST", host)));
            }
        }
        reply(value("status").map_or("200 OK", |it| it), &headers, "")
    })
    .await
}

async fn led(caller: &mut Caller, status: &str, name: &str, value: &str) -> Answer {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("status", status).append_pair(name, value);
    asked(caller, "GET", &format!("/api/a/b?{}", query.finish()), &[], "").await
}

#[tokio::test]
async fn a_redirect_leads_to_our_own_routes_or_nowhere() {
    let (api, other) = (leading().await, leading().await);
    let site = Setup::to(&base(&api, "/v3"))
        .also("files", &base(&other, "/store"))
        .listener("publicUrl: 'https://agents.example.org/out'")
        .start()
        .await;
    let mut caller = site.lictor.caller(Transport::Http1).await;
    let elsewhere = format!("http://{}/store/x?y=z", other.address);
    let outside = format!("http://{}/other", other.address);
    let rows = [
        ("http://HOST/v3/c?d=e#f", Some("/out/api/c?d=e#f")),
        ("/v3/c", Some("/out/api/c")),
        ("/v3", Some("/out/api")),
        ("/v3/", Some("/out/api/")),
        ("c", Some("/out/api/a/c")),
        ("../c", Some("/out/api/c")),
        ("?page=2", Some("/out/api/a/b?page=2")),
        ("//HOST/v3/c", Some("/out/api/c")),
        (&*elsewhere, Some("/out/files/x?y=z")),
        (&*outside, None),
        ("/admin", None),
        ("/v30/c", None),
        ("/v3/../admin", None),
        ("../../../admin", None),
        ("/v3/%2e%2e/admin", None),
        ("/v3/a%2fb", None),
        ("https://HOST/v3/c", None),
        ("http://user@HOST/v3/c", None),
        ("http://HOST@evil.example/v3/c", None),
        ("//evil.example/v3/c", None),
        ("\\\\evil.example/v3/c", None),
        ("/\\evil.example", None),
        ("javascript:alert(1)", None),
    ];
    for (location, expected) in rows {
        for status in ["302 Found", "308 Permanent Redirect"] {
            let answer = led(&mut caller, status, "Location", location).await;
            match expected {
                Some(_) => assert!(status.starts_with(&answer.status.to_string()), "{location}"),
                None => drop(problem(&answer, 502, "redirect_refused")),
            }
            assert_eq!(answer.header("location"), expected, "{location}");
        }
        let answer = led(&mut caller, "201 Created", "Location", location).await;
        assert_eq!((answer.status, answer.header("location")), (201, expected), "{location}");
    }
    for (link, expected) in [
        (
            "<http://HOST/v3/a?page=2>; rel=\"next\", <https://docs.example/x>; rel=\"help\"",
            Some("</out/api/a?page=2>; rel=\"next\""),
        ),
        ("<https://docs.example/x>; rel=\"help\"", None),
        ("http://HOST/v3/a", None),
    ] {
        let answer = led(&mut caller, "200 OK", "Link", link).await;
        assert_eq!((answer.status, answer.header("link")), (200, expected), "{link}");
    }
    let closings = site.lictor.stop(rows.len() * 3 + 3).await;
    let refused = closings.iter().filter(|entry| entry["status"] == "redirect_refused").count();
    assert_eq!(refused, rows.iter().filter(|(_, led)| led.is_none()).count() * 2);
}
