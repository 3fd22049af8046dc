//! A budget for each run, at the end of a row of three.

use serde_json::json;

use super::{POLICIES, Row};
use crate::CALL;

/// However a run's calls arrive at the server, it has its budget once; another run has its own.
#[tokio::test]
async fn a_run_has_its_budget_once() {
    let limits = "rateLimits: [{ name: per-run, budget: 2/run, per: [] }]\n";
    let mut row = Row::start_limited("", POLICIES, limits).await;
    let answers = row.relay_all(&[CALL; 4], true).await;
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.json()["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [None, None, Some(4291), Some(4291)]);
    let data = &answers[3].json()["error"]["data"];
    assert_eq!(data["limits"], json!(["per-run"]));
    // Nothing brings it back, so nobody is told to come again.
    assert_eq!((&data["retryable"], &data["retryAfterMs"]), (&json!(false), &json!(null)));
    assert_eq!(answers[3].header("retry-after"), None);
    // The next message begins another run.
    let answer = row.relay(CALL, true).await;
    assert_eq!(answer.json()["error"], json!(null), "{}", answer.text());
    assert_eq!(row.server.requests(), 3);
    row.a.stop(2).await;
    row.b.stop(7).await;
    let entries = row.c.stop(5).await;
    let refused: Vec<_> = entries.iter().filter(|entry| entry["stage"] == "limits").collect();
    assert_eq!(refused.len(), 2);
    assert_eq!(refused[0]["run"], entries[0]["run"], "the ledger tells the run");
}
