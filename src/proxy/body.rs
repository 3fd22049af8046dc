//! Reading a request's body whole, within bounds.
//!
//! INVARIANT: the bytes of all bodies that are being read or judged, and of all answers that are held for
//! that, never exceed the limit; a [`Reservation`] gives its share back when it is dropped. Only bytes that have arrived count, so that
//! nobody can shut others out by announcing much and sending little.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::{Bytes, BytesMut};
use http::header;
use pingora::{ErrorType, protocols::http::ServerSession};

use super::{Halt, head};
use crate::{denial::Denial, exchange::End};

/// Parts without a byte that are passed over in a body of HTTP/2: its end may come as one.
const EMPTY_PARTS: usize = 16;

/// Memory that is taken at the beginning of a body at most, beyond what has come of it.
const USUAL: usize = 64 * 1024;

/// The memory that bodies and held answers may take, over all calls.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit: AtomicUsize::new(limit) })
    }

    /// Bytes reserved now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// From now on it is `limit` bytes. What is taken beyond them stays taken.
    pub fn resize(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// A share of nothing yet.
    pub(super) fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation { budget: Arc::clone(self), bytes: 0 }
    }

    fn take(&self, bytes: usize) -> Result<(), Denial> {
        let limit = self.limit.load(Ordering::Relaxed);
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(Denial::Overloaded),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A share of the [`Budget`].
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Reservation {
    /// Takes what is missing of so many bytes, or gives back what is beyond them.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Denial> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.take(more)?,
            None => self.budget.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Reads the whole body of at most `limit` bytes, whatever its framing. The caller bounds the time.
///
/// Refuses a longer body before it is read where its length is announced, and answers
/// `Expect: 100-continue` only after that check (RFC 9110 §10.1.1).
pub(super) async fn read(
    session: &mut ServerSession,
    limit: usize,
    budget: &Arc<Budget>,
) -> Result<(Bytes, Reservation), Halt> {
    let mut reservation = budget.reserve();
    let announced = announced_length(session);
    if announced.is_some_and(|length| length > limit) {
        return Err(Denial::TooLarge { limit }.into());
    }
    // pingora's own is for each read, and ends a body that may take longer.
    session.set_read_timeout(None);
    if head::expects_continue(session.req_header()) && !session.is_body_empty() {
        // pingora takes any answer before the end of the body for the last one on the connection.
        let keep_alive = session.get_keepalive();
        session.write_continue_response().await.map_err(|_| End::CallerGone)?;
        session.set_keepalive(keep_alive);
    }
    // The common case, one part for the whole body, needs no second copy.
    let mut only = Bytes::new();
    let mut whole = BytesMut::new();
    let mut empty = 0;
    loop {
        let part = session.read_request_body().await;
        let Some(part) = part.map_err(|error| broken(error.etype()))? else {
            return Ok((if whole.is_empty() { only } else { whole.freeze() }, reservation));
        };
        if part.is_empty() {
            // Over HTTP/1 they come with the borders of chunks, and cost their sender bytes.
            empty += usize::from(session.is_http2());
            if empty > EMPTY_PARTS {
                return Err(Denial::Framing("too many empty frames").into());
            }
            continue;
        }
        let length = only.len() + whole.len() + part.len();
        if length > limit {
            return Err(Denial::TooLarge { limit }.into());
        }
        if announced.is_some_and(|announced| length > announced) {
            return Err(Denial::Framing("the body is longer than announced").into());
        }
        reservation.resize(length)?;
        if whole.is_empty() && announced == Some(length) {
            only = part;
            continue;
        }
        if whole.is_empty() {
            // Once for what is usual; what is longer grows as it comes.
            whole.reserve(announced.unwrap_or_default().clamp(length, USUAL.max(length)));
        }
        whole.extend_from_slice(&part);
    }
}

/// What it means that no more of a body can be read. With HTTP/2 the library has reset the stream itself where the
/// framing is wrong, so nobody can be told there either.
fn broken(error: &ErrorType) -> Halt {
    match error {
        ErrorType::ConnectionClosed | ErrorType::ReadError => End::CallerGone.into(),
        _ => Denial::Framing("the body is badly framed").into(),
    }
}

fn announced_length(session: &ServerSession) -> Option<usize> {
    let value = session.get_header(header::CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncWriteExt, duplex},
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn a_body_ends_by_our_time_or_by_its_caller() {
        let (near, mut far) = duplex(1024);
        let half = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab";
        far.write_all(half).await.unwrap();
        let mut session = ServerSession::new_http1(Box::new(near));
        assert!(session.read_request().await.unwrap());
        let budget = Budget::new(10);
        let waiting = timeout(Duration::from_millis(10), read(&mut session, 10, &budget)).await;
        assert!(waiting.is_err());
        // Sixty seconds, unless it is said otherwise.
        assert_eq!(session.get_read_timeout(), None);
        drop(far);
        let read = read(&mut session, 10, &budget).await;
        assert!(matches!(read, Err(Halt::Caller(End::CallerGone))));
    }

    #[test]
    fn the_budget_is_given_back() {
        let budget = Budget::new(10);
        let mut first = budget.reserve();
        first.resize(8).unwrap();
        let mut second = budget.reserve();
        assert!(second.resize(3).is_err());
        assert_eq!(budget.used(), 8);
        drop(first);
        second.resize(10).unwrap();
        assert!(second.resize(11).is_err());
        assert_eq!(budget.used(), 10);
        second.resize(4).unwrap();
        assert_eq!(budget.used(), 4);
        budget.resize(3);
        assert!(second.resize(5).is_err());
        second.resize(2).unwrap();
        assert!(second.resize(4).is_err());
        second.resize(3).unwrap();
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
