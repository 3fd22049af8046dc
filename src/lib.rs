//! Lictor: a policy-enforcing reverse proxy in front of AI agents and MCP servers.
//!
//! It reads each message of a caller whole, decodes it strictly, judges it by identity and policy, records it
//! in a tamper-evident ledger, and only then forwards the very bytes that were judged.
//!
//! # Life of a call
//!
//! | step | what happens | where | adds to the [`exchange::Exchange`] |
//! |---|---|---|---|
//! | handshake | the caller's SVID is verified against the bundle of its own trust domain | [`listener`], [`identity`] | – |
//! | read | head, identity once more, route, bounded body, strict decoding | [`proxy`], [`protocol`] | principal, route, call |
//! | judge | facts are fetched, every stage is asked, what was revoked first | [`governance`], [`revocation`], [`policy`], [`state`] | permit |
//! | admit | a place at the upstream, and the word of its breaker | [`upstream`] | – |
//! | reserve | what the call takes of rate limits and budgets | [`limits`] | – |
//! | intent | what may change state is on disk first | [`ledger`] | – |
//! | forward | the judged bytes, our identity, nothing of the caller's credentials | [`upstream`] | status |
//! | answer | part by part, lists filtered by the same policies | [`proxy`], [`response`] | what was delivered |
//! | close | always, by `Drop`: ledger, metrics | [`exchange`] | – |
//!
//! [`proxy`] is the table of contents: it reads in this order. [`denial`] is the one table of what a refused
//! caller is told. [`server`] puts the parts together, [`config`] and [`cli`] are how a user reaches them,
//! [`admin`] and [`telemetry`] how an operator looks in.
//!
//! # Words
//!
//! The field's own: *principal*, *action*, *resource* and *context* as Cedar has them; *SVID*, *trust domain*
//! and *trust bundle* as SPIFFE has them; *legacy* and *modern* as MCP 2026-07-28 calls the revisions before
//! and since it; a *listener* is a door, a *route* a path of it, an *upstream* the server behind; a *stage*
//! can only narrow, the *permit* that the end of the chain makes is what an upstream can be asked with; an
//! *intent* is recorded before, an *outcome* after.

pub mod admin;
pub mod bridge;
pub mod cli;
pub mod config;
pub mod delegation;
pub mod denial;
pub mod exchange;
pub mod governance;
pub mod identity;
pub mod ledger;
pub mod limits;
pub mod listener;
pub mod policy;
pub mod protocol;
pub mod proxy;
pub mod response;
pub mod revocation;
pub mod server;
pub mod state;
pub mod telemetry;
pub mod tls;
pub mod upstream;
mod written;
