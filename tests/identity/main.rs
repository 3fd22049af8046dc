//! Identity over real sockets: a real pingora listener, real rustls clients and upstreams, identity from
//! files and from a fake Workload API.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what the tests share fails a test by panicking, as the tests do"
)]

#[path = "../support/ca.rs"]
mod ca;
mod certificates;
mod resumption;
mod rotation;
mod site;

#[path = "../support/workload_api.rs"]
mod workload_api;
