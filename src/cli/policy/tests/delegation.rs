//! Calls that come by a chain of delegation.

use crate::delegation::{Mode, Origin, Settings as Delegation, Who};

use super::*;

const POLICIES: &str = r#"@id("all") permit (principal, action, resource);
    @id("not-c") forbid (principal == Agent::"spiffe://td/c", action in Action::"write", resource);
    @id("acme") @reason("For acme only.") forbid (principal, action == Action::"tools/list", resource)
    when { context has delegation && context.delegation has tenant && context.delegation.tenant != "acme" };
    @id("shallow") forbid (principal, action, resource == Tool::"s/deep")
    when { context has delegation && context.delegation.depth > 2 };"#;

const GRANTS: &str = "agents:
- { id: spiffe://td/g, dynamicDiscovery: true }
grants:
- { agent: spiffe://td/g, server: s, tool: t, permissions: [execute], delegation: { maxDepth: 1 } }
";

/// A directory of these policies, and one that can be asked.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::TempDir::new().expect("a directory");
    fs::write(directory.path().join("a.cedar"), POLICIES).expect("written");
    fs::write(directory.path().join("a.grants.yaml"), GRANTS).expect("written");
    fs::create_dir(directory.path().join("tests")).expect("created");
    directory
}

fn rules() -> Rules {
    let origins = [("spiffe://td/a", Mode::Full), ("spiffe://td/r", Mode::ReadOnly)];
    let origin = |(who, mode)| Origin { who: Who::parse(who).expect("who"), mode };
    let settings =
        Delegation { origins: origins.map(origin).into(), max_depth: 3, ..Delegation::default() };
    let callee = |name: &str, id| (name.to_owned(), SpiffeId::parse(id).expect("an ID"));
    let callees = [callee("back", "spiffe://td/a"), callee("on", "spiffe://td/x")];
    Rules::Set { settings, callees: callees.into() }
}

fn ask(rules: Rules, at: &Path, arguments: &[&str]) -> (ExitCode, String) {
    let line = Line::try_parse_from([&["policy"], arguments].concat()).expect("parses");
    let settings = Settings { directory: at.to_owned(), ..Settings::default() };
    let known = Known { settings, ledger: None, rules };
    let mut out = vec![];
    let code = run_on(&line.options, &known, &mut out, &mut vec![]).expect("written");
    (code, String::from_utf8(out).expect("text"))
}

#[test]
fn the_hop_that_says_no_is_named() {
    let directory = directory();
    let base = ["explain", "--server", "s", "--tool", "t"];
    let explain = |rest: &[&str]| ask(Rules::Unknown, directory.path(), &[&base, rest].concat());
    let (permitted, denied, mistake) = (ExitCode::SUCCESS, ExitCode::FAILURE, ExitCode::from(2));
    let [a, b, c, g] = ["a", "b", "c", "g"].map(|name| format!("--via=spiffe://td/{name}"));
    let (a, b, c, g) = (a.as_str(), b.as_str(), c.as_str(), g.as_str());
    let readonly = "--via=spiffe://td/a=readonly";
    for (arguments, code, parts) in [
        (
            &[a, b][..],
            permitted,
            &["the chain:\n  hop 0  spiffe://td/a  full\n  hop 1  spiffe://td/b  full\n"][..],
        ),
        (
            &[a, b, "--principal", "spiffe://td/b"],
            permitted,
            &["with the caller for principal:\npermitted"],
        ),
        (
            &[readonly, "--via=spiffe://td/b=readonly"],
            denied,
            &[
                "denied: hop 0, `spiffe://td/a`: its mode\n  its mode is `readonly`, the call of class execute\n",
                "with hop 0 for principal:\npermitted\n",
            ],
        ),
        (&[readonly, b], denied, &["denied: the chain doesn't hold: hop 1: its mode is wider"]),
        (
            &[a, b, "--capability", "1=s|tools/call|x*"],
            denied,
            &[
                "denied: hop 1, `spiffe://td/b`: its capabilities\n  it restricts calls to `s|tools/call|x*`\n",
            ],
        ),
        (
            &[a, b, "--capability", "0=s|tools/call|t", "--capability", "0=s|tools/call|x"],
            permitted,
            &[],
        ),
        (
            &[a, g],
            denied,
            &[
                "denied: hop 1, `spiffe://td/g`: the grants to it\n",
                "through 1 hops",
                "comes through 2\n",
            ],
        ),
        (&[g], permitted, &[]),
        // An agent's own call, for whoever called it.
        (&[a, "--principal", "spiffe://td/b", "--outbound"], permitted, &["hop 0  spiffe://td/a"]),
        (
            &[g, "--principal", "spiffe://td/b", "--outbound", "--user", "u-1", "--tenant", "acme"],
            permitted,
            &["  user  u-1\n  tenant  acme\n"],
        ),
        // What can't be asked.
        (
            &[a, "--principal", "spiffe://td/b"],
            mistake,
            &["principal: `spiffe://td/b` didn't make the last hop", "(hint: "],
        ),
        (&[a, "--outbound"], mistake, &["principal: is missing (hint: "]),
        (&["--via", "td/a"], mistake, &["hops[0].id: `td/a`: "]),
        (
            &["--via", "spiffe://td/a=most"],
            mistake,
            &["hops[0].mode: `most` is no mode (hint: one of `readonly`, "],
        ),
        (&[a, "--capability", "1=s|tools/call|t"], mistake, &["is of no hop (hint: "]),
        (&[a, "--capability", "s|tools/call|t"], mistake, &["is of no hop (hint: "]),
        (
            &[a, "--capability", "0=s"],
            mistake,
            &["hops[0].capabilities: a capability is `server|method|name`"],
        ),
        (&[a, "--tenant", ""], mistake, &["tenant: is 1 to 256 bytes"]),
    ] {
        let (found, out) = explain(arguments);
        assert_eq!(found, code, "{arguments:?}: {out}");
        for part in parts {
            assert!(out.contains(part), "{arguments:?}: {part}: {out}");
        }
        let chained = code != mistake;
        assert_eq!(out.contains("note: signatures, times, replays"), chained, "{out}");
        assert_eq!(out.contains("name it with -f"), chained, "{out}");
    }
    let list = ["explain", "--server", "s", "--method", "tools/list", a, c, "--tenant", "other"];
    let (code, out) = ask(Rules::Unknown, directory.path(), &list);
    assert_eq!(code, denied);
    // The caller is asked first.
    for part in [
        "determined by:\n  acme (a.cedar:",
        "with the caller for principal:\ndenied",
        "denied: the policies for the caller\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn the_rules_of_the_configuration_are_kept() {
    let directory = directory();
    let explain = |rules: Rules, rest: &[&str]| {
        let base = ["explain", "--server", "s", "--tool", "t"];
        ask(rules, directory.path(), &[&base, rest].concat())
    };
    let [a, b, r] = ["a", "b", "r"].map(|name| format!("--via=spiffe://td/{name}"));
    let (a, b, r) = (a.as_str(), b.as_str(), r.as_str());
    let others = ["--via=spiffe://td/x", "--via=spiffe://td/y"];
    for (arguments, refused) in [
        (&[a, b][..], None),
        (&[b], Some("hop 0: its issuer may not begin a chain")),
        (&[r, b], Some("hop 0: its mode is wider than")),
        (&[a, b, others[0], others[1]], Some("hop 3 is one too many")),
        (&[a, b, a], Some("hop 1 goes back to `spiffe://td/a`")),
        (&[a, b, "--principal", "spiffe://td/a", "--outbound"], Some("hop 1 goes back to")),
        (&[a, "--via=spiffe://two/b"], Some("hop 0: it goes to another trust domain")),
        // Without a chain.
        (&["--principal", "spiffe://td/a"], None),
        (
            &["--principal", "spiffe://td/b"],
            Some("`spiffe://td/b` may not call like that by itself"),
        ),
        (
            &["--principal", "spiffe://td/r"],
            Some("`spiffe://td/r` may not call like that by itself"),
        ),
    ] {
        let (code, out) = explain(rules(), arguments);
        assert_eq!(code == ExitCode::SUCCESS, refused.is_none(), "{arguments:?}: {out}");
        let told = out.lines().next().is_some_and(|line| line.starts_with("denied: "));
        assert_eq!(told, refused.is_some(), "{arguments:?}: {out}");
        assert!(refused.is_none_or(|refused| out.contains(refused)), "{arguments:?}: {out}");
        assert!(!out.contains("name it with -f"), "{out}");
    }
    let introduced =
        ["explain", "--server", "s", "--method", "initialize", "--principal", "spiffe://td/b"];
    assert_eq!(ask(rules(), directory.path(), &introduced).0, ExitCode::SUCCESS);
    // The agent's own hop, to whoever is behind the upstream.
    let outbound = |server: &str, hops: &[&str]| {
        let call = ["explain", "--server", server, "--tool", "t", "--principal", "spiffe://td/b"];
        ask(rules(), directory.path(), &[&call[..], &["--outbound"], hops].concat())
    };
    for (server, hops, refused) in [
        ("on", &[a][..], None),
        ("s", &[a, others[0], others[1]], None),
        ("back", &[a], Some("denied: the chain doesn't hold: hop 1 goes back to `spiffe://td/a`")),
        ("on", &[a, others[1], "--via=spiffe://td/z"], Some("hop 3 is one too many")),
    ] {
        let (code, out) = outbound(server, hops);
        assert_eq!(code == ExitCode::SUCCESS, refused.is_none(), "{server} {hops:?}: {out}");
        assert!(refused.is_none_or(|refused| out.contains(refused)), "{server} {hops:?}: {out}");
    }
    // A configuration that says nothing of delegation takes no chain, and asks for none.
    let (code, out) = explain(Rules::Without, &[a]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.starts_with("denied: the configuration has no `delegation`"), "{out}");
    assert_eq!(explain(Rules::Without, &["--principal", "spiffe://td/b"]).0, ExitCode::SUCCESS);
}

#[test]
fn cases_can_come_by_a_chain() {
    let directory = directory();
    let case = |rest: &str| {
        let case = format!(r#"{{"cases":[{{"server":"s",{rest}}}]}}"#);
        fs::write(directory.path().join("tests/a.json"), case).expect("written");
        ask(rules(), directory.path(), &["test"])
    };
    let by = |hops: &str, more: &str, rest: &str| {
        let hops = hops.replace("td/", "spiffe://td/");
        format!(r#""delegation":{{"hops":[{hops}]{more}}},{rest}"#)
    };
    let (passed, failed, mistake) = (ExitCode::SUCCESS, ExitCode::FAILURE, ExitCode::from(2));
    let [a, b, x] = [r#"{"id":"td/a"}"#, r#"{"id":"td/b"}"#, r#"{"id":"td/x"}"#];
    let ab = format!("{a},{b}");
    let abx = format!("{a},{b},{x}");
    let tool = r#""tool":"t","expect":"#;
    for (rest, expected, told) in [
        (by(&ab, "", &format!(r#"{tool}"allow","policy":"all""#)), passed, ""),
        (by(&ab, "", &format!(r#"{tool}"deny""#)), failed, "allow by all"),
        (by(&ab, "", &format!(r#"{tool}"deny","hop":0"#)), failed, "deny at hop 0"),
        (by(&abx, "", r#""tool":"deep","expect":"deny","policy":"shallow""#), passed, ""),
        (
            by(
                &format!(r#"{a},{{"id":"td/b","mode":"readwrite"}}"#),
                "",
                &format!(r#"{tool}"deny","hop":1"#),
            ),
            passed,
            "hop 1, `spiffe://td/b`: its mode",
        ),
        (
            by(
                &format!(r#"{a},{{"id":"td/b","capabilities":["s|tools/call|t"]}}"#),
                "",
                &format!(r#"{tool}"allow""#),
            ),
            passed,
            "",
        ),
        (
            by(&format!("{b},{x}"), "", &format!(r#"{tool}"deny","hop":0"#)),
            passed,
            "may not begin a chain",
        ),
        (
            by(a, r#","outbound":true"#, &format!(r#""principal":"spiffe://td/b",{tool}"allow""#)),
            passed,
            "",
        ),
        (
            by(
                &ab,
                r#","tenant":"other","user":"u""#,
                r#""method":"tools/list","expect":"deny","policy":"acme""#,
            ),
            passed,
            "",
        ),
        (by(&ab, r#","tenant":"acme""#, r#""method":"tools/list","expect":"allow""#), passed, ""),
        (
            by(&ab, "", r#""method":"tools/list","offered":["t","deep"],"shown":["t","deep"]"#),
            passed,
            "",
        ),
        (by(&abx, "", r#""method":"tools/list","offered":["t","deep"],"shown":["t"]"#), passed, ""),
        // Without a chain: the caller has to be one who may begin.
        (format!(r#""principal":"spiffe://td/a",{tool}"allow""#), passed, ""),
        (format!(r#""principal":"spiffe://td/b",{tool}"deny""#), passed, "by itself"),
        // Mistakes, each with its place.
        (format!(r#"{tool}"deny""#), mistake, "case 1: principal: is missing"),
        (
            by("", "", &format!(r#"{tool}"deny""#)),
            mistake,
            "case 1: delegation.hops: names nobody (hint: ",
        ),
        (
            by(a, r#","usr":"u""#, &format!(r#"{tool}"deny""#)),
            mistake,
            "case 1: delegation: unknown field `usr`, expected one of `hops`, ",
        ),
        (
            by(&format!(r#"{a},{{"id":"td/b","cap":[]}}"#), "", &format!(r#"{tool}"deny""#)),
            mistake,
            "case 1: delegation.hops[1]: unknown field `cap`, expected one of `id`, `mode`, ",
        ),
        (
            by(r#"{"id":"td/a","mode":"read-only"}"#, "", &format!(r#"{tool}"deny""#)),
            mistake,
            "case 1: delegation.hops[0].mode: `read-only` is no mode (hint: ",
        ),
        (
            by(r#"{"id":"td/a","capabilities":[]}"#, "", &format!(r#"{tool}"deny""#)),
            mistake,
            "case 1: delegation.hops[0].capabilities: 0 capabilities; there can be 1 to 32 (hint: ",
        ),
        (
            by(r#"{"mode":"full"}"#, "", &format!(r#"{tool}"deny""#)),
            mistake,
            "delegation.hops[0]: missing field `id`",
        ),
        (
            by(&ab, "", &format!(r#""principal":"spiffe://td/a",{tool}"deny""#)),
            mistake,
            "principal: `spiffe://td/a` didn't make",
        ),
        (
            format!(r#""principal":"spiffe://td/a","delgation":{{}},{tool}"deny""#),
            mistake,
            "unknown field `delgation` (hint: one of `name`, ",
        ),
    ] {
        let (code, out) = case(&rest);
        assert_eq!(code, expected, "{rest}: {out}");
        assert!(out.contains(told), "{rest}: {told}: {out}");
    }
}

/// What is supposed comes to the same end as what is proven.
#[test]
fn supposed_chains_are_judged_as_proven_ones() {
    use std::sync::Arc;

    use crate::{
        delegation::{Behalf, Verifier, tests::World},
        governance::{self, DelegationStage, Facts, Owned, PolicyStage, Request},
        revocation::Revocations,
    };
    let world = World::new();
    let directory = directory();
    let [a, b, c] = [0, 1, 2].map(|at| world.members[at].id.as_str());
    let more = format!(
        "forbid(principal == Agent::\"{b}\", action, resource == Tool::\"s/u\");\
         forbid(principal == Agent::\"{a}\", action, resource == Tool::\"s/v\");"
    );
    fs::write(directory.path().join("b.cedar"), more).expect("written");
    let settings = Settings { directory: directory.path().to_owned(), ..Settings::default() };
    let policies = Arc::new(Policies::load(&settings).expect("loads"));
    let stages = governance::Chain::new(vec![
        Box::new(PolicyStage),
        Box::new(DelegationStage::new(Some(world.settings()))),
    ]);
    let facts = Facts {
        policies: Arc::clone(&policies),
        owned: Owned::default(),
        push_refused: None,
        revocations: Arc::new(Revocations::of(true, [])),
    };
    let rules = Rules::Set { settings: world.settings(), callees: Default::default() };
    let mut ends = std::collections::BTreeSet::new();
    for modes in [["full"; 3], ["full", "readwrite", "readonly"], ["readonly", "full", "full"]] {
        for limit in [None, Some("s|tools/call|t"), Some("s|tools/call|*")] {
            for tool in ["t", "u", "v", "w"] {
                let mut claims = world.claims(3);
                let mut hops: Vec<_> = [a, b, c]
                    .iter()
                    .zip(modes)
                    .map(|(id, mode)| serde_json::json!({"id": id, "mode": mode}))
                    .collect();
                for (claims, mode) in claims.iter_mut().zip(modes) {
                    claims["mode"] = mode.into();
                }
                if let Some(limit) = limit {
                    claims[1]["cap"] = serde_json::json!([limit]);
                    hops[1]["capabilities"] = serde_json::json!([limit]);
                }
                let body = text_of("tools/call", &format!(r#"{{"name":"{tool}"}}"#));
                let mut headers = HeaderMap::new();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let decoded =
                    crate::protocol::mcp::decode(&HttpMethod::POST, &headers, body.into());
                let call = decoded.expect("a call");
                let proven = world.show(&Verifier::new(), &world.sign(&claims), 3);
                let (principal, proven) = match proven {
                    Err(error) => (None, error.to_string()),
                    Ok(chain) => {
                        let principal =
                            Principal { id: world.members[2].id.clone(), proof: Proof::Svid };
                        let behalf = Behalf::of(chain);
                        let request = Request {
                            principal: &principal,
                            call: &call,
                            asked: None,
                            server: "s",
                            callee: None,
                            listener: "inbound",
                            behalf: &behalf,
                            shadow: false,
                        };
                        let judged = stages.evaluate(&request, &facts);
                        let denial = judged.err().map(|refusal| match refusal.denial {
                            crate::denial::Denial::DelegationDenied(objection) => {
                                objection.to_string()
                            }
                            other => format!("{other:?}"),
                        });
                        (Some(principal), denial.unwrap_or_default())
                    }
                };
                let chain = Supposed::read(serde_json::json!({"hops": hops})).expect("a chain");
                let case = Case {
                    name: None,
                    principal: principal.map(|principal| principal.id.to_string()),
                    server: "s".to_owned(),
                    listener: inbound(),
                    method: tools_call(),
                    http: None,
                    era: EraName::Modern,
                    delegation: None,
                };
                let target = Target::Tool(tool.into());
                let judged = case.ask(target, Given::default(), Some(&chain), |question| {
                    judged::judge(&policies, &rules, Some(&chain), question)
                });
                let supposed = match judged.expect("a question").refused {
                    None => String::new(),
                    Some(judged::Refused::Chain(error)) => error.to_string(),
                    Some(refused) => refused.told().expect("a word"),
                };
                assert_eq!(supposed, proven, "{modes:?} {limit:?} {tool}");
                ends.insert(supposed);
            }
        }
    }
    // All kinds of ends were met.
    let kinds = ["its mode", "its capabilities", "the policies for it", "hop 1: its mode is wider"];
    for kind in kinds {
        assert!(ends.iter().any(|end| end.contains(kind)), "{kind}: {ends:?}");
    }
    assert!(ends.contains(""), "{ends:?}");
}
