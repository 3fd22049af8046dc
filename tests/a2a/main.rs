//! A2A through a real Lictor: real client SDKs in front, a real agent behind, by either binding of either
//! version of the protocol, over plain loopback and over mutual TLS.
//!
//! The law: what a client sees through Lictor equals what it sees without, to the last detail, but for what
//! Lictor has to say otherwise; each such difference has a row here. The SDKs, the agent and the checkers
//! are other people's software; `make setup` installs them.

#![cfg(test)]

#[path = "../support/ca.rs"]
#[expect(dead_code, reason = "shared with tests that need every kind of bad certificate too")]
mod ca;
mod checkers;
mod clients;
#[path = "../support/document.rs"]
mod document;
#[path = "../support/http.rs"]
#[expect(dead_code, reason = "parts of it are for the tests of framing and streams")]
mod http;
#[path = "../support/programs.rs"]
mod programs;
mod refusals;
mod row;
mod same;
mod shim;
mod site;
#[path = "../support/lictor.rs"]
#[expect(dead_code, reason = "its own site and callers are for the tests of HTTP")]
mod subject;
