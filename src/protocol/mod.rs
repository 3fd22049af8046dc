//! From bytes to a [`Call`]: what a caller asks for, decoded strictly.
//!
//! The decoder is the one place where a message gets its meaning. It refuses whatever two readers
//! could understand differently (duplicate keys, key variants, odd numbers, invalid Unicode,
//! batches, encodings), so that what is judged is what runs. A [`Call`] owns the very bytes that
//! were read and that will be forwarded; nothing here re-serialises a message.
//!
//! Imports nothing else of the crate, does no I/O and knows no clock.

pub mod a2a;
mod address;
pub mod call;
pub mod fault;
pub mod json;
pub mod json_rpc;
pub mod mcp;
mod media;
pub mod method;
pub(crate) mod spelling;
pub mod sse;
mod target;
pub mod web;

pub use call::{Call, Continuation, Era, Kind, ProgressToken, Protocol, SessionId, Target};
pub use fault::{DecodeError, Fault};
pub use json_rpc::Id;
pub use method::{Class, Method};
pub use target::Rest;
