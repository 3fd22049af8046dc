//! Decisions of the past, from entries as they are written.

use std::{path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::{
    denial::Denial,
    ledger::{Decision, Entry, Event, Genesis, Ledger, Mode, OnFailure},
    limits::{
        Exceeded, Limited,
        limited::{Kind, Level},
    },
};

const POLICIES: &str = r#"
@id("no deletes") forbid (principal, action, resource == Tool::"files/delete file");
@id("long-no") forbid (principal, action, resource == Tool::"files/LONG");
@id("tools") permit (principal, action in Action::"tools/call", resource);
@id("prompts") permit (principal, action == Action::"completion/complete", resource is Prompt);
@id("lists") permit (principal, action == Action::"tools/list", resource);
"#;

/// A call that is permitted, as its intent has it.
fn call(target: &str) -> Entry {
    let id = Uuid::from_u128(1);
    let mut entry = Entry::new(Event::Intent, id, "spiffe://td/a".into(), "inbound".into());
    (entry.server, entry.method) = (Some("files".into()), Some("tools/call".into()));
    (entry.target, entry.era) = (Some(target.into()), Some("modern"));
    (entry.decision, entry.policies) = (Decision::Permit, vec!["tools".into()]);
    entry
}

/// The same when it has ended.
fn ended(target: &str, change: impl FnOnce(&mut Entry)) -> Entry {
    let mut entry = Entry { event: Event::Outcome, status: Some("ok"), ..call(target) };
    change(&mut entry);
    entry
}

fn ledger(directory: &Path) -> Ledger {
    let settings = crate::ledger::Settings {
        directory: directory.to_owned(),
        commit_interval: Duration::from_millis(1),
        read_intent: false,
        on_failure: OnFailure::DenyWrites,
    };
    Ledger::open(settings, Genesis::default()).expect("opens")
}

/// What is said of the one call that a ledger has these entries of.
fn told(policies: &str, entries: impl IntoIterator<Item = Entry>) -> (ExitCode, String) {
    let directory = TempDir::new().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let (policies_at, ledger_at) = (at("policies"), at("ledger"));
    fs::create_dir(&policies_at).expect("a directory");
    fs::write(Path::new(&policies_at).join("a.cedar"), policies).expect("written");
    let writer = ledger(Path::new(&ledger_at));
    entries.into_iter().for_each(|entry| writer.record(entry));
    writer.close();
    // Closes what was left open, as a start after a crash.
    ledger(Path::new(&ledger_at)).close();
    let id = Uuid::from_u128(1).to_string();
    let line = ["explain", "--decision", &id, "--ledger", &ledger_at, "--directory", &policies_at];
    lictor_policy(&line)
}

fn said(entry: Entry) -> (ExitCode, String) {
    told(POLICIES, [entry])
}

fn has(out: &str, texts: &[&str]) {
    for text in texts {
        assert!(out.contains(text), "{text}\n{out}");
    }
}

#[test]
fn a_call_that_a_crash_has_cut_off_is_explained_by_its_intent() {
    let (code, out) = told(POLICIES, [call("look")]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    has(
        &out,
        &["caller    spiffe://td/a", "ended     unknown (permit)", "\npermitted\n", "  tools ("],
    );
}

#[test]
fn shadow_mode_tells_who_would_have_objected() {
    let shadow = |would_deny: &'static str| {
        said(ended("look", |entry| {
            (entry.mode, entry.would_deny) = (Mode::Shadow, Some(would_deny));
            entry.limits = vec!["calls".into()];
        }))
    };
    let (failure, nothing) = (ExitCode::FAILURE, ExitCode::from(2));
    for (would_deny, code, texts) in [
        (
            "rate_limited",
            failure,
            &["The policies permitted it; it was over the limits: calls"][..],
        ),
        ("push_url_refused", failure, &["The policies permitted it; it was ended by push_url"]),
        ("delegation_required", failure, &["permitted it to the caller, the rules of delegation"]),
        ("unknown_task", nothing, &["asked all the same", "policies on record: tools"]),
        ("policy_denied", failure, &["\ndenied\n"]),
    ] {
        let (found, out) = shadow(would_deny);
        assert_eq!(found, code, "{would_deny}: {out}");
        has(&out, &[&format!("it would have been refused as {would_deny}")]);
        has(&out, texts);
        assert_eq!(out.contains("denied\n"), would_deny == "policy_denied", "{out}");
    }
}

#[test]
fn each_kind_of_denial_has_its_stage() {
    let level = Level { quota: 1, period: None, remaining: 0 };
    let limited = |kind| {
        let worst = Exceeded { limit: "calls".into(), kind, retry_after: None };
        Denial::Limited(Arc::new(Limited { worst, others: Vec::new() }))
    };
    for (denial, stage) in [
        (limited(Kind::Rate(level)), "limits"),
        (limited(Kind::Budget(level)), "limits"),
        (limited(Kind::Hours), "limits"),
        (limited(Kind::Unknown), "limits"),
        (Denial::Policy { reason: None }, "policy"),
        (Denial::UnknownMethod, "policy"),
        (Denial::DelegationAmbiguous, "delegation"),
        (Denial::DelegationRequired, "delegation"),
        (Denial::PushUrl("its host isn't listed"), "push_url"),
        (Denial::UnknownSession, "ownership"),
        (Denial::UnknownTask, "ownership"),
        (Denial::UnknownContinuation, "ownership"),
        (Denial::StateUnavailable, "ownership"),
    ] {
        let kind = denial.row(crate::protocol::Era::Modern).kind;
        assert_eq!(super::super::recorded::stage_of(kind), stage, "{kind}");
    }
}

#[test]
fn stages_after_the_policies_say_that_these_were_asked() {
    let by = |stage: &'static str, decision: Decision| {
        said(ended("look", |entry| {
            (entry.event, entry.stage, entry.decision) = (Event::Denied, Some(stage), decision);
            entry.status = Some("refused");
        }))
    };
    for stage in ["push_url", "claim", "answered"] {
        let (code, out) = by(stage, Decision::Deny);
        assert_eq!(code, ExitCode::FAILURE, "{out}");
        has(
            &out,
            &[&format!("The policies permitted it; it was ended by {stage}"), "record: tools"],
        );
    }
    for stage in ["revocation", "ownership", "handshake"] {
        let (code, out) = by(stage, Decision::Deny);
        assert_eq!(code, ExitCode::from(2), "{out}");
        has(&out, &[&format!("The policies were not asked: it was ended by {stage}.")]);
    }
    let (code, out) = said(ended("look", |entry| {
        (entry.event, entry.decision) = (Event::Denied, Decision::None);
        entry.status = Some("parse_error");
    }));
    assert_eq!(code, ExitCode::from(2), "{out}");
    has(&out, &["The policies were not asked: it ended as parse_error."]);
}

#[test]
fn names_are_asked_about_as_they_were() {
    let denied = |target: &str, id: &str| {
        ended(target, |entry| {
            (entry.event, entry.stage) = (Event::Denied, Some("policy"));
            (entry.decision, entry.policies) = (Decision::Deny, vec![id.into()]);
            entry.status = Some("policy_denied");
        })
    };
    let (code, out) = said(denied("delete file", "no deletes"));
    assert_eq!(code, ExitCode::FAILURE, "{out}");
    has(
        &out,
        &[
            "tools/call delete\\u{20}file",
            "Tool::\"files/delete file\"",
            "determined by:\n  no deletes (a.cedar:2)",
            "overruled:\n  tools (",
        ],
    );
    assert!(!out.contains("doesn't exist any more") && !out.contains("too long"), "{out}");

    let long = "l".repeat(200);
    let (_, out) = told(&POLICIES.replace("LONG", &long), [denied(&long, "long-no")]);
    has(&out, &["note: the target was too long to be kept whole"]);
    let (_, out) = said(denied("look", &long));
    has(&out, &["note: more policies decided than are kept with their whole ids"]);
    assert!(!out.contains("doesn't exist any more"), "{out}");

    let path = format!("/{}", "a/".repeat(100));
    let (_, out) = said(Entry {
        protocol: "http",
        era: Some("http"),
        method: Some("GET".into()),
        ..denied(&path, "tools")
    });
    has(&out, &["note: the target was too long to be kept whole"]);
}

#[test]
fn what_is_completed_is_a_prompt_or_a_resource() {
    let complete = |name: &str| {
        said(ended(name, |entry| {
            entry.method = Some("completion/complete".into());
            entry.policies = vec!["prompts".into()];
        }))
    };
    for (name, resource) in
        [("code", "Prompt::\"files/code\""), ("file:///a", "Resource::\"files/file:///a\"")]
    {
        let (_, out) = complete(name);
        has(&out, &[resource, "whether it names a prompt or a resource isn't recorded"]);
    }
}
