//! What has been looked at and may go on.

use bytes::{Bytes, BytesMut};

/// Events that are to be written together.
#[derive(Default)]
pub(super) struct Ready {
    first: Bytes,
    more: BytesMut,
}

impl Ready {
    /// A single one shares its memory.
    pub(super) fn add(&mut self, bytes: Bytes) {
        if self.first.is_empty() && self.more.is_empty() {
            self.first = bytes;
            return;
        }
        self.more.extend_from_slice(&std::mem::take(&mut self.first));
        self.more.extend_from_slice(&bytes);
    }

    /// All of it, in one piece; nothing is left.
    pub(super) fn take(&mut self) -> Bytes {
        match self.more.is_empty() {
            true => std::mem::take(&mut self.first),
            false => self.more.split().freeze(),
        }
    }
}
