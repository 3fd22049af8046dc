//! The matrix of `docs/compatibility.md`: every feature of every client, through the governed chain and
//! without it.
//!
//! A cell is good only if what the client saw through the chain equals what it saw directly, to the last
//! detail, and both are what the feature promises. Each test has a section of the document:
//! `LICTOR_WRITE_DOCS=1` writes it; otherwise the section has to say what the run said.

mod clients;
mod features;

use std::fmt::Write as _;

use serde_json::json;

use self::{
    clients::{
        Client, FASTMCP_LEGACY, FASTMCP_MODERN, INSPECTOR_LEGACY, INSPECTOR_MODERN, PYTHON_LEGACY,
        PYTHON_MODERN, TYPESCRIPT_V1, TYPESCRIPT_V2_LEGACY, TYPESCRIPT_V2_MODERN,
    },
    features::{FEATURES, Report, difference},
};
use crate::{
    PYTHON, TYPESCRIPT,
    chain::{Wire, chain, chain_to_command},
    document::compare_with_document,
    process::{everything, everything_command, fixture, fixture_command},
};

#[tokio::test]
async fn clients_of_2025_11_25_see_the_same_through_the_chain() {
    let clients = [TYPESCRIPT_V1, TYPESCRIPT_V2_LEGACY, PYTHON_LEGACY, FASTMCP_LEGACY];
    let (python, typescript) = tokio::join!(
        over_http(Wire::StreamableHttp, PYTHON, &clients),
        over_http(Wire::StreamableHttp, TYPESCRIPT, &clients),
    );
    let heading = "2025-11-25: sessions, event streams, questions from the server";
    judge(heading, vec![python, typescript]);
}

#[tokio::test]
async fn clients_of_2026_07_28_see_the_same_through_the_chain() {
    let clients = [TYPESCRIPT_V2_MODERN, PYTHON_MODERN, FASTMCP_MODERN];
    let (python, typescript) = tokio::join!(
        over_http(Wire::StreamableHttp, PYTHON, &clients),
        over_http(Wire::StreamableHttp, TYPESCRIPT, &clients),
    );
    judge("2026-07-28: no sessions, input by rounds, subscriptions", vec![python, typescript]);
}

/// A process and a connection for each call take their time; one server will do.
#[tokio::test]
async fn the_inspector_sees_the_same_through_the_chain() {
    let clients = [INSPECTOR_LEGACY, INSPECTOR_MODERN];
    let all = over_http(Wire::StreamableHttp, PYTHON, &clients).await;
    judge("The Inspector's command line: 2025-11-25 and 2026-07-28", vec![all]);
}

#[tokio::test]
async fn clients_of_2024_11_05_see_the_same_through_the_chain() {
    let clients = [TYPESCRIPT_V1, TYPESCRIPT_V2_LEGACY, PYTHON_LEGACY];
    let all = over_http(Wire::Sse, PYTHON, &clients).await;
    judge("HTTP+SSE, the transport of 2024-11-05", vec![all]);
}

/// Clients that used to start the server by themselves, and now use the URL of a Lictor that does.
#[tokio::test]
async fn a_server_on_standard_streams_is_the_same_through_the_chain() {
    let command = fixture_command(PYTHON);
    let chain = chain_to_command(&command).await;
    let all = reports(PYTHON, &BOTH_ERAS, &json!(command).to_string(), &chain.url).await;
    judge("Servers on standard input and output", vec![all]);
}

/// Clients that start a program: first the server itself, then a Lictor that leads to the chain.
#[tokio::test]
async fn clients_on_standard_streams_see_the_same_through_the_chain() {
    let server = fixture(PYTHON, Wire::StreamableHttp).await;
    let chain = chain(&server, Wire::StreamableHttp).await;
    let lictor = json!([env!("CARGO_BIN_EXE_lictor"), "stdio", "--url", chain.url]).to_string();
    let command = json!(fixture_command(PYTHON)).to_string();
    let all = reports(PYTHON, &BOTH_ERAS, &command, &lictor).await;
    judge("Clients on standard input and output, by `lictor stdio`", vec![all]);
}

const BOTH_ERAS: [Client; 5] =
    [TYPESCRIPT_V1, TYPESCRIPT_V2_LEGACY, PYTHON_LEGACY, TYPESCRIPT_V2_MODERN, PYTHON_MODERN];

/// The server that people know, on the SDK that most servers are on.
#[tokio::test]
async fn the_everything_server_is_the_same_through_the_chain() {
    for wire in [Wire::StreamableHttp, Wire::Sse] {
        let server = everything(wire).await;
        let chain = chain(&server, wire).await;
        compare_everything(&wire.target(&server.url), &wire.target(&chain.url)).await;
    }
    let command = everything_command();
    let chain = chain_to_command(&command).await;
    compare_everything(&json!(command).to_string(), &chain.url).await;
}

async fn compare_everything(direct: &str, governed: &str) {
    // Only the older line has tasks of that revision.
    for (client, count) in [(TYPESCRIPT_V1, 22), (TYPESCRIPT_V2_LEGACY, 21)] {
        let seen = client.report_everything(direct).await;
        let governed = client.report_everything(governed).await;
        let failed = seen.values().filter(|seen| seen.get("error").is_some()).count();
        assert_eq!((seen.len(), failed), (count, 1), "all works but reading what isn't there");
        for (name, seen) in &seen {
            let difference = difference(Some(seen), governed.get(name));
            assert!(difference.is_none(), "{direct} {}: {difference:?}", client.driver);
        }
    }
}

/// What a client saw in front of one server.
struct Pair<'a> {
    server: &'static str,
    client: &'a Client,
    direct: Report,
    governed: Report,
}

async fn over_http<'a>(wire: Wire, server: &'static str, clients: &'a [Client]) -> Vec<Pair<'a>> {
    // Each side has a server of its own, since what one client sets off reaches all that listen.
    let (plain, behind) = tokio::join!(fixture(server, wire), fixture(server, wire));
    let chain = chain(&behind, wire).await;
    reports(server, clients, &wire.target(&plain.url), &wire.target(&chain.url)).await
}

/// What each client sees of the server at two places.
async fn reports<'a>(
    server: &'static str,
    clients: &'a [Client],
    direct: &str,
    governed: &str,
) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for client in clients {
        let (direct, governed) = tokio::join!(client.report(direct), client.report(governed));
        pairs.push(Pair { server, client, direct, governed });
    }
    pairs
}

/// Compares the two sides, and what all of it comes to with a section of the document. The servers have
/// had the same clients in the same order.
fn judge(heading: &str, servers: Vec<Vec<Pair<'_>>>) {
    let mut faults = Vec::new();
    for Pair { server, client, direct, governed } in servers.iter().flatten() {
        for feature in FEATURES {
            let sides = [direct, governed].map(|report| report.get(feature.name));
            if let Some(fault) = feature.fault(sides) {
                let Client { driver, mode, .. } = client;
                faults.push(format!("{server} {driver} {mode} {}: {fault}", feature.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let columns = servers.into_iter().next().expect("a server");
    compare_with_document(heading, &table(&columns));
}

fn table(columns: &[Pair<'_>]) -> String {
    let heads: Vec<_> = columns.iter().map(|pair| pair.client.title()).collect();
    let rule = "|---".repeat(heads.len() + 1);
    let mut table = format!("| feature | {} |\n{rule}|\n", heads.join(" | "));
    for feature in FEATURES {
        let offers = |pair: &Pair<'_>| pair.direct.contains_key(feature.name);
        if columns.iter().any(offers) {
            let cells: Vec<_> =
                columns.iter().map(|pair| if offers(pair) { "yes" } else { "–" }).collect();
            writeln!(table, "| {} | {} |", feature.title, cells.join(" | ")).expect("room");
        }
    }
    table
}
