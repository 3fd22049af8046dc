//! Tickets, tools of their own, and a simulation of all of it.

mod simulation;

use super::*;
use crate::{protocol::mcp, upstream::settings::Settings};
use http::{HeaderMap, HeaderValue, Method, Response};

fn call(body: &'static str) -> Call {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    mcp::decode(&Method::POST, &headers, body.into()).expect("decodes")
}

fn tool_call() -> Call {
    call(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#,
    )
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let command = settings::Command {
        program: "true".into(),
        arguments: vec![],
        directory: "/".into(),
        environment: settings::Environment::default(),
        processes: settings::Processes::default(),
        max_processes: 1,
        max_processes_per_caller: 1,
        start_timeout: Duration::from_secs(1),
        unused_timeout: Duration::from_secs(1),
    };
    let mut settings = Settings::new("files", settings::Server::Command(command));
    change(&mut settings);
    settings
}

async fn admit(gate: &Arc<Gate>) -> Result<Ticket, Refused> {
    gate.admit(Class::Read, "spiffe://one.test/agent".into(), &tool_call()).await
}

fn head(status: u16, headers: &[(&'static str, &'static str)]) -> Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).expect("a response").into_parts().0
}

fn phase(gate: &Gate) -> Phase {
    gate.reading().breaker.expect("is on").phase
}

const EVENTS: (&str, &str) = ("content-type", "text/event-stream; charset=utf-8");

#[tokio::test]
async fn what_answers_tell_of_the_server() {
    const DENIED: (&str, &str) = (DENIAL, "draining");
    let failures = |status, headers: &'static [_], lictor| async move {
        let gate = Gate::new(&settings(|_| {}), &Metrics::new());
        admit(&gate).await.expect("let through").failed(&Error::Late);
        let mut ticket = admit(&gate).await.expect("let through");
        ticket.answered(&head(status, headers), lictor);
        drop(ticket);
        gate.reading().breaker.expect("is on").failures_in_a_row
    };
    for (status, headers, lictor, expected) in [
        (200, &[][..], false, 0),
        (202, &[], false, 0),
        (200, &[EVENTS], false, 0),
        (302, &[], false, 1),
        (400, &[], false, 1),
        (401, &[], false, 1),
        (404, &[EVENTS], false, 1),
        (429, &[], false, 1),
        (501, &[], false, 1),
        (505, &[], false, 1),
        (500, &[], false, 2),
        (502, &[], false, 2),
        (503, &[EVENTS], false, 2),
        (504, &[], false, 2),
        (503, &[DENIED], true, 1),
        (503, &[], true, 2),
        // Anybody can say so.
        (503, &[DENIED], false, 2),
    ] {
        assert_eq!(failures(status, headers, lictor).await, expected, "{status} {headers:?}");
    }
}

#[tokio::test]
async fn what_errors_tell_of_the_server() {
    for (error, failures) in [
        (Error::NoIdentity, 0),
        (Error::Full, 0),
        (Error::Unreachable("gone".into()), 1),
        (Error::Silent, 1),
        (Error::Late, 1),
        (Error::Failed("reset".into()), 1),
    ] {
        let gate = Gate::new(&settings(|_| {}), &Metrics::new());
        let mut ticket = admit(&gate).await.expect("let through");
        ticket.failed(&error);
        drop(ticket);
        let reading = gate.reading().breaker.expect("is on");
        assert_eq!(reading.failures_in_a_row, failures, "{error:?}");
    }
}

#[tokio::test]
async fn documents_are_told_by_their_end_and_streams_by_their_beginning() {
    for (headers, failures) in [(&[][..], 1), (&[EVENTS], 0)] {
        let gate = Gate::new(&settings(|_| {}), &Metrics::new());
        let mut ticket = admit(&gate).await.expect("let through");
        ticket.answered(&head(200, headers), false);
        ticket.failed(&Error::Failed("reset".into()));
        drop(ticket);
        assert_eq!(gate.reading().breaker.expect("is on").failures_in_a_row, failures);
    }
}

#[tokio::test]
async fn a_place_is_held_as_long_as_the_ticket_and_streams_have_their_own() {
    let gate = Gate::new(&settings(|_| {}), &Metrics::new());
    let taken = || (gate.reading().calls.0, gate.reading().streams.0);
    let mut ticket = admit(&gate).await.expect("let through");
    assert_eq!(taken(), (1, 0));
    ticket.answered(&head(200, &[EVENTS]), false);
    assert_eq!(taken(), (0, 1));
    drop(ticket);
    assert_eq!(taken(), (0, 0));
    let beside = gate.admit_beside().expect("let through");
    assert_eq!(taken(), (0, 0));
    drop(beside);
}

#[tokio::test]
async fn what_calls_wait_for_waits_for_no_place() {
    let none = |settings: &mut Settings| {
        settings.bulkhead.calls = 1;
        settings.bulkhead.streams = 1;
        settings.bulkhead.queue = 0;
    };
    let gate = Gate::new(&settings(none), &Metrics::new());
    let _held = admit(&gate).await.expect("let through");
    let refused = admit(&gate).await.expect_err("full");
    assert_eq!(refused.reason, Reason::Full);
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    ] {
        let answer = gate.admit(Class::Control, "b".into(), &call(body)).await;
        let _ = answer.expect("let through");
    }
}

#[tokio::test]
async fn an_open_breaker_lets_nothing_through_until_it_is_reset() {
    let gate = Gate::new(&settings(|_| {}), &Metrics::new());
    for _ in 0..5 {
        admit(&gate).await.expect("let through").failed(&Error::Late);
    }
    assert_eq!(phase(&gate), Phase::Open);
    let refused = admit(&gate).await.expect_err("open");
    assert_eq!(refused.reason, Reason::BreakerOpen);
    assert!(refused.retry_after > Duration::from_secs(3));
    assert!(gate.admit_beside().is_err());
    assert_eq!(gate.reading().calls.0, 0);
    drop(gate.overrule());
    gate.reset();
    assert_eq!(phase(&gate), Phase::Closed);
    let _ = admit(&gate).await.expect("let through");
}

#[tokio::test]
async fn without_a_breaker_nothing_is_counted() {
    let gate = Gate::new(&settings(|settings| settings.breaker = None), &Metrics::new());
    for _ in 0..100 {
        admit(&gate).await.expect("let through").failed(&Error::Late);
    }
    assert_eq!(gate.reading().breaker, None);
}

/// What tools do, with breakers of their own.
struct Tools {
    breakers: Breakers,
    now: Instant,
}

impl Tools {
    fn new() -> Self {
        let now = Clock.instant();
        let settings = settings::Breaker { per_tool: true, ..Default::default() };
        Self { breakers: Breakers::new(settings, now), now }
    }

    fn call(&mut self, tool: &str, verdict: Verdict) -> bool {
        let passed = self.breakers.admit(Class::Read, Some(tool), self.now);
        let through = passed.is_ok();
        if let Ok(passed) = passed {
            self.breakers.settle(passed, Some(verdict), self.now);
        }
        through
    }
}

#[test]
fn a_tool_that_fails_takes_no_other_with_it() {
    let mut tools = Tools::new();
    for _ in 0..5 {
        assert!(tools.call("slow", Verdict::Failed));
    }
    assert!(!tools.call("slow", Verdict::Succeeded));
    for _ in 0..100 {
        assert!(tools.call("quick", Verdict::Succeeded));
    }
    let reading = tools.breakers.reading(tools.now);
    assert_eq!(reading.tools, [("slow".into(), Phase::Open)]);
    assert_eq!(reading.phase, Phase::Closed);
    tools.now += Duration::from_secs(5);
    for _ in 0..3 {
        assert!(tools.call("slow", Verdict::Succeeded));
    }
    assert!(tools.breakers.reading(tools.now).tools.is_empty());
}

#[test]
fn a_closed_door_is_the_servers_whatever_is_called() {
    let mut tools = Tools::new();
    for tool in ["a", "b", "c", "d", "e"] {
        assert!(tools.call(tool, Verdict::Unreachable));
    }
    assert!(!tools.call("f", Verdict::Succeeded));
}

#[test]
fn tools_with_breakers_are_bounded_and_those_beyond_count_for_the_server() {
    let mut tools = Tools::new();
    for number in 0..MAX_TOOLS {
        assert!(tools.call(&format!("tool-{number}"), Verdict::Failed));
    }
    for number in 0..5 {
        assert!(tools.call(&format!("more-{number}"), Verdict::Failed));
    }
    assert!(!tools.call("more", Verdict::Succeeded), "the server's is open");
    assert_eq!(tools.breakers.tools.len(), MAX_TOOLS);
    let long = "x".repeat(LONGEST_NAME + 1);
    let mut tools = Tools::new();
    for _ in 0..5 {
        assert!(tools.call(&long, Verdict::Failed));
    }
    assert!(!tools.call("more", Verdict::Succeeded) && tools.breakers.tools.is_empty());
    // Those that work again make room.
    let mut tools = Tools::new();
    for number in 0..3 * MAX_TOOLS {
        let tool = format!("tool-{number}");
        assert!(tools.call(&tool, Verdict::Failed) && tools.call(&tool, Verdict::Succeeded));
    }
    assert!(tools.breakers.tools.len() <= MAX_TOOLS);
}
