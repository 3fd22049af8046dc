//! A2A through a real Lictor, and what stands beside it in front of agents.
//!
//! The SDKs and the agents are other people's software; `make setup` installs them.

#![cfg(test)]

#[path = "../support/http.rs"]
#[expect(dead_code, reason = "parts of it are for the tests of framing and streams")]
mod http;
#[path = "../support/programs.rs"]
mod programs;
mod shim;
