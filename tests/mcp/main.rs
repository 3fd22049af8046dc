//! MCP through a real Lictor: what is judged, what reaches the server, what callers see of each other,
//! and what is on record afterwards.
//!
//! As in `tests/e2e`, every test starts the binary in front of a scripted upstream, counts what reached
//! that, and ends by stopping the binary and checking its ledger.

#![cfg(test)]

mod answers;
mod bridge;
#[path = "../support/ca.rs"]
#[expect(dead_code, reason = "where it puts files is for the tests of sources")]
mod ca;
mod calls;
mod cards;
mod drop_in;
mod grants;
#[path = "../support/http.rs"]
#[expect(dead_code, reason = "parts of it are for the tests of framing and streams")]
mod http;
mod identity;
mod ledger;
mod limits;
mod lists;
mod on_behalf;
mod ownership;
mod policies;
mod process;
#[path = "../support/redis.rs"]
mod redis;
mod reload;
mod resilience;
mod revocation;
mod sessions;
mod shield;
mod site;
mod sse;
mod stdio;
#[path = "../support/stub.rs"]
#[expect(dead_code, reason = "parts of it are for the tests of framing and streams")]
mod stub;
#[path = "../support/lictor.rs"]
#[expect(dead_code, reason = "its own site and callers are for the tests of HTTP")]
mod subject;
#[path = "../support/workload_api.rs"]
mod workload_api;
