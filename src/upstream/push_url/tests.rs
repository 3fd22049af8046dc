//! Addresses that callers choose.

use std::{cell::Cell, future::pending};

use proptest::prelude::*;

use super::*;

fn targets() -> PushTargets {
    let hosts = [
        "hooks.example.org",
        "*.push.example.org",
        "[2606:4700::1]",
        "8.8.8.8",
        "127.0.0.1",
        "169.254.169.254",
        "[::1]",
        "localhost",
    ];
    PushTargets::new(&hosts.map(str::to_owned), [8443]).expect("targets")
}

/// What becomes of a URL if its name has these addresses.
async fn admit(url: &str, addresses: &[&str]) -> Result<(), PushRefused> {
    let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    targets().admit(url, |_, _| async { Ok(addresses) }).await
}

#[tokio::test]
async fn listed_hosts_with_public_addresses_are_admitted() {
    for url in [
        "https://hooks.example.org/a2a?token=1",
        "https://hooks.example.org",
        "https://hooks.example.org:443/",
        "https://hooks.example.org:8443/a/../b",
        "HTTPS://HOOKS.example.org/",
        "https://a.push.example.org/x@y",
        "https://a.b.push.example.org/?u=http://127.0.0.1/",
        "https://8.8.8.8/",
        "https://[2606:4700::1]/",
    ] {
        assert_eq!(admit(url, &["1.1.1.1", "2606:4700::1"]).await, Ok(()), "{url}");
    }
}

#[tokio::test]
async fn everything_else_is_refused() {
    use PushRefused::{Address, Form, Host, Port, Scheme, UserInformation};
    for (url, reason) in [
        ("", Form),
        ("hooks.example.org", Form),
        ("//hooks.example.org/", Form),
        ("https://", Form),
        ("http://hooks.example.org/", Scheme),
        ("http://169.254.169.254/x", Scheme),
        ("http://[::1]:80/", Scheme),
        ("http://2130706433/", Scheme),
        ("ftp://hooks.example.org/", Scheme),
        ("file:///etc/passwd", Scheme),
        ("gopher://hooks.example.org/", Scheme),
        ("https://ok.example.org@10.0.0.1/", UserInformation),
        ("https://hooks.example.org@evil.example/", UserInformation),
        ("https://hooks.example.org:443@evil.example/", UserInformation),
        ("https://user:word@hooks.example.org/", UserInformation),
        ("https://@hooks.example.org/", Form),
        ("https://hooks.example.org\\@evil.example/", Form),
        ("https:\\\\hooks.example.org/", Form),
        ("https:/hooks.example.org/", Form),
        ("https:hooks.example.org/", Form),
        ("https:///hooks.example.org/", Form),
        (" https://hooks.example.org/", Form),
        ("https://hooks.example.org/\n", Form),
        ("https://hooks.exam\tple.org/", Form),
        ("https://hooks.example.org/a b", Form),
        ("https://hooks.example.org/#@evil.example", Form),
        ("https://hooks%2eexample.org/", Form),
        ("https://hooks.example.org:0443/", Form),
        ("https://hooks.example.org:/", Form),
        ("https://hooks\u{3002}example.org/", Form),
        ("https://\u{ff48}ooks.example.org/", Form),
        ("https://hooks.example.org:8080/", Port),
        ("https://hooks.example.org:80/", Port),
        ("https://hooks.example.org:0/", Port),
        ("https://hooks.example.org./", Host),
        ("https://evil.example/", Host),
        ("https://hooks.example.org.evil.example/", Host),
        ("https://xhooks.example.org/", Host),
        ("https://a.hooks.example.org/", Host),
        ("https://push.example.org/", Host),
        ("https://.push.example.org/", Host),
        ("https://xpush.example.org/", Host),
        ("https://8.8.4.4/", Host),
        ("https://[2606:4700::2]/", Host),
        // Addresses are refused although the list has them.
        ("https://127.0.0.1/", Address),
        ("https://[::1]/", Address),
        ("https://169.254.169.254/latest/meta-data", Address),
        ("https://2130706433/", Address),
        ("https://0x7f000001/", Address),
        ("https://0177.0.0.1/", Address),
        ("https://127.1/", Address),
        ("https://0/", Address),
        ("https://[::ffff:127.0.0.1]/", Address),
        ("https://[::ffff:a9fe:a9fe]/", Address),
        ("https://[::127.0.0.1]/", Address),
        ("https://[64:ff9b::7f00:1]/", Address),
        ("https://[2002:7f00:1::]/", Address),
        ("https://134744072/", Form),
        ("https://0x8.8.8.8/", Form),
    ] {
        assert_eq!(admit(url, &["1.1.1.1"]).await, Err(reason), "{url}");
    }
    let long = format!("https://hooks.example.org/{}", "x".repeat(LONGEST));
    assert_eq!(admit(&long, &["1.1.1.1"]).await, Err(Form));
}

#[tokio::test]
async fn every_address_of_a_name_has_to_be_public() {
    let url = "https://hooks.example.org/";
    for address in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::8.8.8.8",
        "::ffff:10.0.0.1",
        "::ffff:0:8.8.8.8",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:10::1",
        "2001:1ff:ffff::1",
        "2001:db8::1",
        "2002:a00:1::1",
        "2002:808:808::1",
        "3fff::1",
        "5f00::1",
        "4000::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
    ] {
        assert_eq!(admit(url, &[address]).await, Err(PushRefused::Address), "{address}");
        let mixed = admit(url, &["1.1.1.1", address, "2606:4700::1"]).await;
        assert_eq!(mixed, Err(PushRefused::Address), "{address}");
    }
    for address in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.1.1.1",
        "128.0.0.1",
        "169.253.1.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "192.167.1.1",
        "198.17.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700::1",
        "2a00::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ] {
        assert_eq!(admit(url, &[address]).await, Ok(()), "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_resolved_is_refused() {
    let url = "https://hooks.example.org/";
    assert_eq!(admit(url, &[]).await, Err(PushRefused::Unresolved));
    assert_eq!(admit(url, &["1.1.1.1"; MOST_ADDRESSES + 1]).await, Err(PushRefused::Address));
    let fails = |_, _| async { Err(io::Error::other("no such name")) };
    assert_eq!(targets().admit(url, fails).await, Err(PushRefused::Unresolved));
    let hangs = |_, _| pending();
    assert_eq!(targets().admit(url, hangs).await, Err(PushRefused::Unresolved));
}

#[tokio::test]
async fn only_listed_names_are_looked_up() {
    let asked = Cell::new(0);
    let look_up = |host: String, port| {
        asked.set(asked.get() + 1);
        assert_eq!((&*host, port), ("hooks.example.org", 8443));
        async { Ok(vec![]) }
    };
    for url in ["https://evil.example/", "https://8.8.4.4/", "https://hooks.example.org:1/"] {
        assert!(targets().admit(url, look_up).await.is_err(), "{url}");
    }
    assert_eq!(asked.get(), 0);
    let answered = targets().admit("https://hooks.example.org:8443/", look_up).await;
    assert_eq!(answered, Err(PushRefused::Unresolved));
    assert_eq!(asked.get(), 1);
}

#[tokio::test]
async fn nothing_is_admitted_without_a_list() {
    let nowhere = PushTargets::default();
    let refused = nowhere.admit("https://hooks.example.org/", |_, _| async { Ok(vec![]) }).await;
    assert_eq!(refused, Err(PushRefused::NotAllowed));
}

#[tokio::test]
async fn the_system_resolves_names() {
    let addresses = look_up("localhost".to_owned(), 443).await.expect("addresses");
    assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback));
}

#[test]
fn patterns() {
    for text in ["hooks.example.org", "HOOKS.example.org", "*.example.org", "8.8.8.8", "[::1]"] {
        assert!(Pattern::parse(text).is_ok(), "{text}");
    }
    for text in [
        "",
        "*",
        "*.",
        "*.org",
        "**.example.org",
        "a.*.org",
        "*example.org",
        "*.*.org",
        "a b",
        "*.8.8.8.8",
        "*.[::1]",
        "https://a.org",
        "a.org:443",
        "a.org/",
        "*.example.org.",
        "u@a.org",
    ] {
        assert_eq!(Pattern::parse(text), Err(BadPattern), "{text}");
        let list = vec!["a.org".to_owned(), text.to_owned()];
        assert_eq!(PushTargets::new(&list, []), Err((1, BadPattern)));
    }
}

/// Pieces that authorities are made of, and what readers disagree about.
const PIECES: &[&str] = &[
    "hooks.example.org",
    "hooks%2eexample.org",
    "evil.example",
    "8.8.8.8",
    "0x8080808",
    "@",
    ":",
    ":443",
    ":0443",
    ":8443",
    "%40",
    "/",
    "//",
    "\\",
    "?",
    "#",
    ".",
    "[",
    "]",
    "\t",
    " ",
];

proptest! {
    /// Whatever a URL is made of, what is admitted goes to a listed host for a plain reader, too.
    #[test]
    fn readers_agree_on_the_host_of_what_is_admitted(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 1..5),
    ) {
        let text = format!("https://{}", pieces.concat());
        if let Ok((host, port)) = targets().listed(&text) {
            // Up to the first slash or question mark, behind the last `@`.
            let rest = text.strip_prefix("https://").expect("prefix");
            let authority = rest.split(['/', '?', '#']).next().expect("first");
            let plain = authority.rsplit('@').next().expect("last");
            let (name, number) = plain.split_once(':').unwrap_or((plain, "443"));
            prop_assert_eq!(name, host.to_string(), "{}", text);
            prop_assert_eq!(number, port.to_string(), "{}", text);
        }
    }
}
