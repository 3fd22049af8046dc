//! The one thread that writes. All of the chain's state is here, so nothing can fork it.
//!
//! INVARIANT: an entry is acknowledged after its batch was written and synced, never before, and the tip
//! moves only then.

use std::{fs::File, io, sync::Arc, time::Duration};

use super::{
    line::{Body, Tip},
    queue::{Batch, Queue},
    segment::Store,
    stamp::Stamp,
};
use crate::telemetry::Clock;

/// Buffers of more than this are given back after an unusually large batch.
const KEEP: usize = 4 << 20;

/// The writing end of a chain.
#[derive(Debug)]
pub(super) struct Writer<S> {
    chain: Arc<str>,
    tip: Tip,
    store: S,
    /// Something failed, and the store has to resume before it can be used.
    broken: bool,
    buffer: Vec<u8>,
    /// Keeps other writers out for as long as this one lives.
    _lock: File,
}

impl<S: Store> Writer<S> {
    pub(super) fn new(chain: Arc<str>, tip: Tip, store: S, lock: File) -> Self {
        Self { chain, tip, store, broken: false, buffer: Vec::new(), _lock: lock }
    }

    /// Where the chain stands, as far as it is durable.
    pub(super) fn tip(&self) -> Tip {
        self.tip
    }

    /// Serves the queue until it is closed.
    pub(super) fn run(mut self, queue: &Queue) {
        let _stop = StopOnDrop(queue);
        while let Some(batch) = queue.take() {
            let outcome = self.commit(&batch).map_err(|error| error.to_string());
            if !queue.finish(batch, outcome, self.tip) {
                break;
            }
        }
    }

    fn commit(&mut self, batch: &Batch) -> io::Result<Duration> {
        let started = Clock.instant();
        let gap = batch.loss.map(|loss| Body::Gap { count: loss.count, first: loss.first });
        let entries = batch.entries.iter().map(|entry| (entry.at, &entry.body));
        self.append(entries.chain(gap.as_ref().map(|gap| (Stamp::now(), gap))))?;
        Ok(Clock.instant() - started)
    }

    /// Writes entries and makes them durable, all or none.
    pub(super) fn append<'b>(
        &mut self,
        entries: impl Iterator<Item = (Stamp, &'b Body)>,
    ) -> io::Result<()> {
        if self.broken {
            self.store.resume(self.tip.next)?;
            self.broken = false;
        }
        self.buffer.clear();
        let mut tip = self.tip;
        for (at, body) in entries {
            tip.extend(&self.chain, at, body, &mut self.buffer)?;
        }
        if !self.buffer.is_empty() {
            self.broken = true;
            self.store.append(&self.buffer)?;
            self.store.sync()?;
            self.broken = false;
        }
        self.tip = tip;
        self.buffer.shrink_to(KEEP);
        Ok(())
    }
}

/// Also when the thread panics, callers must learn that nobody writes any more.
struct StopOnDrop<'a>(&'a Queue);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
