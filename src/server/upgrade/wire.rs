//! Messages between the two processes of an upgrade: JSON, one a line, with sockets beside them.
//!
//! Refuses: messages longer than [`MOST`], more sockets than the system sends at once, and sockets that got
//! lost on the way.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{io::Interest, net::UnixStream, time::timeout};

use super::UpgradeError;

/// Longest message, in bytes.
const MOST: usize = 64 * 1024;

/// Most sockets with one message (`SCM_MAX_FD`, unix(7)).
const SOCKETS: usize = 253;

/// Room for that many, as the system wants them.
const ROOM: usize = rustix::cmsg_space!(ScmRights(SOCKETS));

/// One end.
pub(super) struct Link {
    stream: UnixStream,
    /// Read, and not yet taken.
    bytes: Vec<u8>,
    sockets: Vec<OwnedFd>,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, bytes: Vec::new(), sockets: Vec::new() }
    }

    /// Sends a message, with sockets.
    pub(super) async fn send(
        &mut self,
        message: &impl Serialize,
        sockets: &[BorrowedFd<'_>],
    ) -> Result<(), UpgradeError> {
        let mut bytes = serde_json::to_vec(message).map_err(io::Error::from)?;
        bytes.push(b'\n');
        let mut rest = bytes.as_slice();
        let mut sockets = sockets;
        while !rest.is_empty() {
            let sent = self
                .stream
                .async_io(Interest::WRITABLE, || send(&self.stream, rest, sockets))
                .await?;
            rest = rest.get(sent..).unwrap_or_default();
            // They go with the first byte.
            sockets = &[];
        }
        Ok(())
    }

    /// Waits for the next message, for `limit` at most.
    pub(super) async fn receive_within<T: DeserializeOwned>(
        &mut self,
        limit: Duration,
    ) -> Result<T, UpgradeError> {
        let received = timeout(limit, self.receive()).await;
        received.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Waits for the next message.
    pub(super) async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, UpgradeError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line).map_err(io::Error::from)?);
            }
            if self.bytes.len() >= MOST {
                return Err(io::Error::other("a message is too long").into());
            }
            let (stream, bytes, sockets) = (&self.stream, &mut self.bytes, &mut self.sockets);
            let read =
                stream.async_io(Interest::READABLE, || receive(stream, bytes, sockets)).await?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// What came with the messages so far.
    pub(super) fn take_sockets(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.sockets)
    }
}

impl From<io::Error> for UpgradeError {
    fn from(error: io::Error) -> Self {
        Self::Link(error)
    }
}

fn send(stream: &UnixStream, bytes: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    if !sockets.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::other("more sockets than can be handed over"));
    }
    Ok(sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
}

fn receive(
    stream: &UnixStream,
    bytes: &mut Vec<u8>,
    sockets: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut beside = RecvAncillaryBuffer::new(&mut room);
    let mut read = [0; 4096];
    let received = recvmsg(
        stream.as_fd(),
        &mut [IoSliceMut::new(&mut read)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            sockets.extend(came);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("sockets got lost on the way"));
    }
    bytes.extend_from_slice(read.get(..received.bytes).unwrap_or_default());
    Ok(received.bytes)
}
