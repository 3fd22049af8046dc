//! What is one call, and what isn't.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
use url::Url;

use super::*;
use crate::protocol::{Protocol, method::WEB_METHODS};

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn get(below: &str, query: Option<&str>) -> Result<Call, DecodeError> {
    decode(&HttpMethod::GET, below, query, &HeaderMap::new(), Bytes::new(), |name| name == "many")
}

fn post(pairs: &[(&str, &str)], body: &str) -> Result<Call, DecodeError> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    decode(&HttpMethod::POST, "/a", None, &headers(pairs), body, |_| false)
}

fn facts(call: &Call) -> &Facts {
    call.web.as_deref().expect("facts")
}

fn set(texts: &[&str]) -> std::collections::BTreeSet<Box<str>> {
    texts.iter().map(|text| Box::from(*text)).collect()
}

#[test]
fn every_method_is_a_call_of_the_server() {
    assert!(WEB_METHODS.is_sorted_by_key(|rule| rule.name));
    for rule in WEB_METHODS {
        let method = rule.name.parse().unwrap();
        let call = decode(&method, "/a", None, &HeaderMap::new(), Bytes::new(), |_| false).unwrap();
        assert_eq!((call.method.name(), call.kind.clone()), (rule.name, Kind::Operation));
        assert_eq!(call.targets, [Target::Server]);
        assert_eq!((call.era.protocol(), call.id()), (Protocol::Http, None));
        let safe = matches!(rule.name, "GET" | "HEAD");
        assert_eq!(!rule.class.may_change_state(), safe, "{}", rule.name);
    }
    for name in ["get", "OPTIONS", "TRACE", "CONNECT", "PURGE", "LINK", "MKCOL", "QUERY", "PRI"] {
        let method = HttpMethod::from_bytes(name.as_bytes()).unwrap();
        let refused =
            decode(&method, "/a", None, &HeaderMap::new(), Bytes::new(), |_| false).unwrap_err();
        assert_eq!(refused.fault, Fault::HttpMethod, "{name}");
    }
}

#[test]
fn a_path_is_decoded_once_and_written_anew() {
    for (below, text, depth, sent) in [
        ("", "/", 0, ""),
        ("/", "/", 0, "/"),
        ("/a", "/a", 1, "/a"),
        ("/a/", "/a", 1, "/a/"),
        ("/repos/acme/site", "/repos/acme/site", 3, "/repos/acme/site"),
        ("/%61%2D%7e", "/a-~", 1, "/a-~"),
        ("/a%20b/c%3Ad", "/a b/c:d", 2, "/a%20b/c:d"),
        ("/Products(1)/$value", "/Products(1)/$value", 2, "/Products(1)/$value"),
        ("/a+b", "/a+b", 1, "/a%2Bb"),
        ("/%C3%A9", "/é", 1, "/%C3%A9"),
        ("/a..b/.well-known/...x", "/a..b/.well-known/...x", 3, "/a..b/.well-known/...x"),
        ("/@me/x,y=1&z!'*", "/@me/x,y=1&z!'*", 2, "/@me/x,y=1&z!'*"),
    ] {
        let call = get(below, None).unwrap_or_else(|refused| panic!("{below}: {refused}"));
        let Facts { traits, rest } = facts(&call);
        assert_eq!((&*traits.path, traits.depth, &*rest.path), (text, depth, sent), "{below}");
        assert_eq!(rest.query, None);
    }
}

#[test]
fn a_path_of_two_readings_is_refused() {
    let long = format!("/{}", "a".repeat(LONGEST));
    for below in [
        "a",
        "//",
        "//a",
        "/a//b",
        "/a//",
        "/.",
        "/..",
        "/a/../b",
        "/a/./b",
        "/a/..",
        "/%2e",
        "/%2E%2e/b",
        "/.%2e/b",
        "/%252e%252e/b",
        "/a%2Fb",
        "/a%2fb",
        "/a%5Cb",
        "/a\\b",
        "/..\\b",
        "/a%00",
        "/a%0d%0ab",
        "/a%7F",
        "/a%",
        "/a%4",
        "/a%zz",
        "/a%u002e",
        "/%C0%AE%C0%AE/b",
        "/%C0%AF",
        "/%FF",
        "/a;b",
        "/a;/../b",
        "/a%3Bb",
        "/a%3Fb",
        "/a%23b",
        "/a%25",
        "/a.",
        "/a%20",
        "/%20a",
        "/a./b",
        "/a..",
        "/a%E2%80%A5",
        "/%EF%BC%8E%EF%BC%8E/b",
        "/a%EF%BC%8Fb",
        "/a%E2%81%84b",
        "/a%E2%88%95b",
        "/a%EF%BC%85b",
        "/http://evil.example/",
        "/http:%2F%2Fevil.example",
        &long,
    ] {
        let refused = get(below, None).unwrap_err();
        assert_eq!(refused.fault, Fault::Invalid, "{below}");
        assert!(!refused.detail.contains("evil"));
    }
}

#[test]
fn a_query_is_decoded_once_and_written_anew() {
    for (query, names, texts, sent) in [
        ("", &[][..], &[][..], None),
        ("&", &[], &[], None),
        ("a=1", &["a"], &["a=1"], Some("a=1")),
        ("a=1&b=2&&", &["a", "b"], &["a=1", "b=2"], Some("a=1&b=2")),
        ("acl", &["acl"], &["acl"], Some("acl")),
        ("a=", &["a"], &["a="], Some("a=")),
        ("q=a+b%20c%2Bd", &["q"], &["q=a b c+d"], Some("q=a%20b%20c%2Bd")),
        ("a=b=c", &["a"], &["a=b=c"], Some("a=b%3Dc")),
        ("a=1;b=2", &["a"], &["a=1;b=2"], Some("a=1%3Bb%3D2")),
        ("%61=%C3%A9", &["a"], &["a=é"], Some("a=%C3%A9")),
        ("u=http://x/?y#z", &["u"], &["u=http://x/?y#z"], Some("u=http%3A%2F%2Fx%2F%3Fy%23z")),
        ("i[]=1&i[]=2", &["i[]"], &["i[]=1", "i[]=2"], Some("i%5B%5D=1&i%5B%5D=2")),
        ("many=1&many=2", &["many"], &["many=1", "many=2"], Some("many=1&many=2")),
        ("a=1&A=2", &["a", "A"], &["a=1", "A=2"], Some("a=1&A=2")),
    ] {
        let call = get("/a", Some(query)).unwrap_or_else(|refused| panic!("{query}: {refused}"));
        let Facts { traits, rest } = facts(&call);
        assert_eq!((&traits.parameters, &traits.query), (&set(names), &set(texts)), "{query}");
        assert_eq!(rest.query.as_deref(), sent, "{query}");
    }
    let many = "a[]&".repeat(257);
    for query in [
        "a=1&a=2",
        "a=1&%61=2",
        "many=1&a=1&a=2",
        "a&a",
        "=1",
        "a=%",
        "a=%zz",
        "a=%00",
        "a=%0a",
        "a=%FF",
        "_method=DELETE",
        "_METHOD=put",
        "%5fmethod=put",
        &many,
    ] {
        assert_eq!(get("/a", Some(query)).unwrap_err().fault, Fault::Invalid, "{query}");
    }
}

#[test]
fn a_body_is_json_or_opaque() {
    let typed = |name| vec![("content-type", name)];
    for (pairs, body, content_type, opaque, arguments) in [
        (vec![], "", None, false, None),
        (vec![], "x", None, true, None),
        (typed("application/json"), "", Some("application/json"), false, None),
        (
            typed("application/json"),
            " {\"a\":1}",
            Some("application/json"),
            false,
            Some("{\"a\":1}"),
        ),
        (
            typed("Application/JSON; charset=UTF-8"),
            "[1]",
            Some("application/json"),
            false,
            Some("[1]"),
        ),
        (
            typed("application/merge-patch+json"),
            "{}",
            Some("application/merge-patch+json"),
            false,
            Some("{}"),
        ),
        (typed("text/plain"), "{\"a\":1,\"a\":2}", Some("text/plain"), true, None),
        (typed("application/x-ndjson"), "{}\n{}", Some("application/x-ndjson"), true, None),
        (
            vec![("content-type", "application/octet-stream"), ("content-encoding", "gzip")],
            "x",
            Some("application/octet-stream"),
            true,
            None,
        ),
        (
            typed("multipart/form-data; boundary=\"a,b\""),
            "x",
            Some("multipart/form-data"),
            true,
            None,
        ),
    ] {
        let call = post(&pairs, body).unwrap_or_else(|refused| panic!("{pairs:?}: {refused}"));
        let traits = &facts(&call).traits;
        assert_eq!((traits.content_type.as_deref(), traits.opaque), (content_type, opaque));
        assert_eq!(call.arguments(), arguments.map(str::as_bytes), "{pairs:?} {body}");
        assert_eq!(call.body, body.as_bytes());
    }
    for (pairs, body, fault) in [
        (typed("application/json"), "{", Fault::Parse),
        (typed("application/json"), "{\"a\":1,\"a\":2}", Fault::Invalid),
        (typed("application/json"), "{\"a\":1,\"\\u0061\":2}", Fault::Invalid),
        (typed("application/json"), "{} {}", Fault::Parse),
        (typed("application/json"), "a=1", Fault::Parse),
        (typed("application/vnd.x+json"), "\u{feff}{}", Fault::Parse),
        (typed("application/json; charset=utf-16"), "{}", Fault::MediaType),
        (typed("application/json, text/plain"), "{}", Fault::MediaType),
        (typed("text/plain; a=b, application/json"), "{}", Fault::MediaType),
        (typed("json"), "{}", Fault::MediaType),
        (typed("application/"), "{}", Fault::MediaType),
        (typed("application/js on"), "{}", Fault::MediaType),
        (typed(""), "{}", Fault::MediaType),
        (
            vec![("content-type", "application/json"), ("content-encoding", "gzip")],
            "{}",
            Fault::MediaType,
        ),
        (
            vec![("content-type", "application/json"), ("content-type", "text/plain")],
            "{}",
            Fault::Invalid,
        ),
        (vec![("authorization", "Bearer a"), ("authorization", "Bearer b")], "", Fault::Invalid),
    ] {
        let refused = post(&pairs, body).unwrap_err();
        assert_eq!(refused.fault, fault, "{pairs:?} {body}: {refused}");
    }
    for method in [HttpMethod::GET, HttpMethod::HEAD, HttpMethod::DELETE] {
        let body = Bytes::from_static(b"{}");
        let refused = decode(&method, "/a", None, &HeaderMap::new(), body, |_| false).unwrap_err();
        assert_eq!(refused.fault, Fault::Invalid, "{method}");
    }
}

/// What paths are made of, and what servers and middle boxes have been confused by.
const PIECES: &[&str] = &[
    "/",
    "/",
    "/",
    "a",
    "b",
    "..",
    ".",
    "%2e",
    "%2E",
    "%252e",
    "%2f",
    "%2F",
    "%5c",
    "\\",
    "//",
    ";",
    "%3b",
    "%00",
    "%c0%ae",
    "%e2%80%a4",
    "%EF%BC%8F",
    "%20",
    "?",
    "#",
    "%",
    "%25",
    "@",
    ":",
    "é",
    "%C3%A9",
    "+",
];

/// All that a reader could make of a path: as it is, or decoded once or twice more, with a backslash for a
/// slash, without what follows a semicolon, and with dot segments resolved as browsers do.
fn readings(path: &str) -> Vec<String> {
    let decode = |text: &str| {
        let bytes: Vec<u8> = percent_decoded(text);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let mut all = vec![path.to_owned()];
    for _ in 0..3 {
        let last = all.last().cloned().unwrap_or_default();
        all.push(decode(&last));
    }
    let cut = |path: &String| {
        let names = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
        names.collect::<Vec<_>>().join("/")
    };
    all.extend(all.clone().iter().map(cut));
    all.extend(all.clone().iter().map(|path| path.replace('\\', "/")));
    all
}

/// Written apart from the code that is tested; leaves alone what isn't encoded well.
fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = vec![];
    let mut at = 0;
    while at < bytes.len() {
        let digits =
            text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], digits) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn whatever_is_sent_stays_below_the_base(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..8),
    ) {
        let below = format!("/{}", pieces.concat());
        let Ok(call) = get(&below, None) else { return Ok(()) };
        let Facts { traits, rest } = facts(&call);
        let whole = format!("/base{}", rest.path);
        for reading in readings(&whole) {
            let url = Url::parse("http://api.example").unwrap();
            // As a browser would ask, and as a server would look for a file.
            let mut asked = url.clone();
            asked.set_path(&reading);
            let kept = |path: &str| path == "/base" || path.starts_with("/base/");
            prop_assert!(kept(asked.path()), "{} {}", below, reading);
            let mut folders: Vec<&str> = vec![];
            for segment in reading.split('/') {
                match segment {
                    "" | "." => {}
                    ".." => drop(folders.pop()),
                    name => folders.push(name),
                }
            }
            prop_assert_eq!(folders.first(), Some(&"base"), "{} {}", below, reading);
            prop_assert_eq!(folders.len(), traits.depth + 1, "{} {}", below, reading);
        }
        // Policies have seen what is sent.
        let sent = String::from_utf8(percent_decoded(&rest.path)).unwrap();
        let bare = sent.strip_suffix('/').unwrap_or(&sent);
        prop_assert_eq!(if bare.is_empty() { "/" } else { bare }, &*traits.path);
    }

    #[test]
    fn what_is_sent_is_the_same_call(
        below in "(/[a-z%20.~:+é]{1,4}){0,3}/?",
        query in "([a-c+%2]{1,3}(=[a-z+%26&]{0,3})?&?){0,4}",
    ) {
        let Ok(call) = get(&below, Some(&query)) else { return Ok(()) };
        let Facts { traits, rest } = facts(&call);
        let again = get(&rest.path, rest.query.as_deref()).expect("the same call");
        prop_assert_eq!(facts(&again), facts(&call));
        // A reader of forms finds the same parameters.
        let form = url::form_urlencoded::parse(rest.query.as_deref().unwrap_or_default().as_bytes());
        let form: Vec<_> = form.collect();
        let named = |text: &str| form.iter().any(|(name, _)| name == text);
        prop_assert!(traits.parameters.iter().all(|name| named(name)));
        let is_seen = form.iter().all(|(name, value)| {
            let pair = format!("{name}={value}");
            traits.query.contains(pair.as_str())
                || (value.is_empty() && traits.query.contains(&**name))
        });
        prop_assert!(is_seen);
    }
}
