//! What waits for one caller to take it.
//!
//! A process writes to everybody who has a call at it, so one who doesn't read must not be waited for. What
//! it has yet to take is bounded, and beyond that it is dropped.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::sync::mpsc;

/// Most bytes that may wait; a single message may be longer if nothing else waits.
const ROOM: usize = 16 << 20;
/// What a message takes beside its bytes.
const OVERHEAD: usize = 128;

/// Part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A message that comes before the answer.
    Event(Bytes),
    /// The answer itself, and the code of the error if it is one.
    Answer(Bytes, Option<i64>),
    /// Nothing more comes, as it should be: the session has ended, or the call was cancelled.
    End,
    /// What came can't be read.
    Unreadable,
}

/// Where parts are put in.
#[derive(Debug)]
pub(super) struct Outbox {
    parts: mpsc::UnboundedSender<Part>,
    waiting: Arc<AtomicUsize>,
}

/// Where a caller takes them out. Without a last part, the process has ended.
#[derive(Debug)]
pub(super) struct Inbox {
    parts: mpsc::UnboundedReceiver<Part>,
    waiting: Arc<AtomicUsize>,
}

/// Nobody takes the part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The caller has gone.
    Gone,
    /// Too much waits for it already.
    Full,
}

pub(super) fn outbox() -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let outbox = Outbox { parts: sender, waiting: Arc::clone(&waiting) };
    (outbox, Inbox { parts: receiver, waiting })
}

impl Outbox {
    pub(super) fn put(&self, part: Part) -> Result<(), Refused> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let size = part.size();
        if waiting > 0 && waiting + size > ROOM {
            return Err(Refused::Full);
        }
        self.waiting.fetch_add(size, Ordering::Relaxed);
        self.parts.send(part).map_err(|_| Refused::Gone)
    }

    pub(super) fn is_taken(&self) -> bool {
        !self.parts.is_closed()
    }
}

impl Inbox {
    /// The next part. Cancel-safe.
    pub(super) async fn take(&mut self) -> Option<Part> {
        let part = self.parts.recv().await?;
        self.waiting.fetch_sub(part.size(), Ordering::Relaxed);
        Some(part)
    }
}

impl Part {
    fn size(&self) -> usize {
        match self {
            Self::Event(bytes) | Self::Answer(bytes, _) => bytes.len() + OVERHEAD,
            Self::End | Self::Unreadable => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(bytes: usize) -> Part {
        Part::Event(vec![b'x'; bytes].into())
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_room_comes_back() {
        let (outbox, mut inbox) = outbox();
        // A single one may be of any size.
        assert_eq!(outbox.put(event(2 * ROOM)), Ok(()));
        assert_eq!(outbox.put(event(1)), Err(Refused::Full));
        assert_eq!(inbox.take().await, Some(event(2 * ROOM)));
        for _ in 0..3 {
            assert_eq!(outbox.put(event(ROOM / 4)), Ok(()));
        }
        assert_eq!(outbox.put(event(ROOM / 4)), Err(Refused::Full));
        // An end always fits.
        assert_eq!(outbox.put(Part::End), Ok(()));
        assert!(outbox.is_taken());
        drop(inbox);
        assert!(!outbox.is_taken());
        assert_eq!(outbox.put(Part::End), Err(Refused::Gone));
    }
}
