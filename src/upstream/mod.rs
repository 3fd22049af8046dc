//! The way out: the servers behind Lictor, and the pooled connections to them.

mod client;
mod connector;
mod endpoint;
mod pool;
mod resolver;
pub mod settings;
#[cfg(test)]
mod tests;
mod tls;

pub use tls::spiffe as client_config;

pub use client::{Answer, Body, Error, SetupError, Upstream};
pub use endpoint::Endpoint;
pub use settings::{Settings, Transport, Verification};
