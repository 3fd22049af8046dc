//! One connection with one call on it.

use std::{
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::Method;
use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    net::TcpStream,
};

use super::{
    Broken,
    head::{self, Head},
};

/// Read at once to begin with, and after a read that wasn't full.
const LITTLE: usize = 8 * 1024;
/// Read at once after a full read.
const MUCH: usize = 64 * 1024;

/// A connection that sends one call and reads its answer. Both go on at once, since a server may answer
/// before it has read all.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    head: Bytes,
    body: Bytes,
    is_unused: bool,
    /// Sending failed. What the server had said before can still be read.
    is_deaf: bool,
    /// What has come and was not taken yet. Without capacity while nothing has.
    pub(super) come: BytesMut,
    /// Bytes of it that were looked through for the end of a head.
    searched: usize,
    /// Bytes of interim answers. They are bounded together, so that a server can't go on with them for ever.
    skipped: usize,
    /// Bytes to read at once.
    stride: usize,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, head: Bytes, body: Bytes) -> Self {
        Self {
            stream,
            head,
            body,
            is_unused: true,
            is_deaf: false,
            come: BytesMut::new(),
            searched: 0,
            skipped: 0,
            stride: LITTLE,
        }
    }

    /// The call, for another connection, if not one byte of it was written.
    pub(super) fn into_unsent(self) -> Option<(Bytes, Bytes)> {
        self.is_unused.then_some((self.head, self.body))
    }

    /// The stream, for another call, if nothing is left to send and nothing came that was not asked for.
    pub(super) fn into_clean(self) -> Option<TcpStream> {
        (self.is_sent() && !self.is_deaf && self.come.is_empty()).then_some(self.stream)
    }

    /// Sends the call and waits for the head of its answer; interim answers (RFC 9110 §15.2) are skipped.
    pub(super) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        method: &Method,
    ) -> Poll<Result<Head, Broken>> {
        loop {
            if self.may_hold_head()
                && let Some((head, length)) = head::parse(&mut self.come, method)?
            {
                self.searched = 0;
                if !head.parts.status.is_informational() {
                    return Poll::Ready(Ok(head));
                }
                self.skipped += length;
                if self.skipped > head::LONGEST {
                    return Poll::Ready(Err(Broken::LongHead));
                }
                continue;
            }
            if self.come.len() > head::LONGEST {
                return Poll::Ready(Err(Broken::LongHead));
            }
            if ready!(self.poll_come(context))? == 0 {
                return Poll::Ready(Err(Broken::Cut));
            }
        }
    }

    /// A head is parsed when its beginning has come, to see whether it is one, and when its end has; not for
    /// each byte that somebody sends.
    fn may_hold_head(&mut self) -> bool {
        let searched = std::mem::replace(&mut self.searched, self.come.len());
        let new = self.come.get(searched.saturating_sub(3)..).unwrap_or_default();
        let ends_with = |end: &[u8]| memmem::find(new, end).is_some();
        searched == 0 || ends_with(b"\n\r\n") || ends_with(b"\n\n")
    }

    /// Goes on sending, and waits for more of the answer; the bytes that came, 0 at the end.
    pub(super) fn poll_come(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.is_sent()
            && !self.is_deaf
            && let Poll::Ready(Err(error)) = self.poll_send(context)
        {
            if self.is_unused {
                return Poll::Ready(Err(error));
            }
            self.is_deaf = true;
        }
        // No memory before there is something to put into it.
        ready!(self.stream.poll_read_ready(context))?;
        self.come.reserve(self.stride);
        let room = self.come.capacity() - self.come.len();
        let polled = pin!(self.stream.read_buf(&mut self.come)).poll(context)?;
        match polled {
            Poll::Ready(read) => self.stride = if read == room { MUCH } else { LITTLE },
            Poll::Pending if self.come.is_empty() => self.come = BytesMut::new(),
            Poll::Pending => {}
        }
        polled.map(Ok)
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_sent() {
            let slices = [IoSlice::new(&self.head), IoSlice::new(&self.body)];
            let stream = Pin::new(&mut self.stream);
            let sent = ready!(stream.poll_write_vectored(context, &slices))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_unused = false;
            let of_head = sent.min(self.head.len());
            self.head.advance(of_head);
            self.body.advance(sent - of_head);
        }
        // What was sent needn't be held any longer.
        (self.head, self.body) = (Bytes::new(), Bytes::new());
        Poll::Ready(Ok(()))
    }

    fn is_sent(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }
}
