//! The first bytes of a message on a connection with HTTP/1.1.
//!
//! pingora reads a head into 4 KiB, which it holds while it waits, and then the body part by part, each of which
//! it copies. Here the first read belongs to us: a connection that idles holds nothing, and most messages come
//! whole, by one system call. pingora gets them as it gets the beginning of a pipelined request, and parses them
//! as ever.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::ready,
};

use bytes::BytesMut;
use pingora::{apps::HttpServerApp, protocols::Stream};
use tokio::io::AsyncReadExt;

/// Memory for what comes first on a connection, in bytes, and the step in which it is measured out later.
const LEAST: usize = 4 * 1024;

/// The most that is read at once.
const MOST: usize = 64 * 1024;

/// An application that waits for the messages of a connection itself.
pub trait Application: HttpServerApp {
    /// What is held from then on until the message has been served.
    type Held: Send;

    /// Waits for the [first bytes](Idle::first_bytes) of the next message; `None` when none comes any more.
    fn arrival(
        &self,
        idle: &mut Idle,
    ) -> impl Future<Output = Option<(BytesMut, Self::Held)>> + Send;
}

/// A connection between two messages.
pub struct Idle {
    pub(super) stream: Stream,
    /// Memory for what comes next. Callers send much the same again and again.
    room: usize,
    warm: bool,
}

impl Idle {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, room: LEAST, warm: false }
    }

    /// Whether the connection has carried a message.
    pub fn is_warm(&self) -> bool {
        self.warm
    }

    /// Reads what has come, or waits for it: one byte at least, 64 KiB at most. `None` at the end of the stream, and
    /// when it fails.
    pub async fn first_bytes(&mut self) -> Option<BytesMut> {
        let (come, outcome) = poll_fn(|context| {
            let mut come = BytesMut::with_capacity(self.room);
            let read = pin!(self.stream.read_buf(&mut come));
            let outcome = ready!(read.poll(context));
            (come, outcome).into()
        })
        .await;
        self.warm = true;
        self.room = match come.len() < self.room {
            // More than the same again needs, since a read that fills its memory may leave something behind.
            true => (come.len() + 1).next_multiple_of(LEAST),
            false => (4 * self.room).min(MOST),
        };
        (outcome.is_ok() && !come.is_empty()).then_some(come)
    }
}
