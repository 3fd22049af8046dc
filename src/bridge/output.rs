//! Standard output: whole lines, one after the other.

use std::io;

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    task::JoinHandle,
};

/// Lines that wait to be written; beyond them, reading from the server stops.
const WAITING: usize = 64;

/// Where lines go. The writer ends when the last of these is gone.
#[derive(Clone, Debug)]
pub(super) struct Output(mpsc::Sender<Bytes>);

impl Output {
    /// Starts the task that writes.
    pub(super) fn start(
        mut to: impl AsyncWrite + Send + Unpin + 'static,
    ) -> (Self, JoinHandle<io::Result<()>>) {
        let (line, mut lines) = mpsc::channel::<Bytes>(WAITING);
        let writing = tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                to.write_all(&line).await?;
                to.write_all(b"\n").await?;
                to.flush().await?;
            }
            to.shutdown().await
        });
        (Self(line), writing)
    }

    /// Writes a message in one line. Between the tokens of JSON a line break is a blank, and inside a string
    /// there is none.
    pub(super) async fn line(&self, message: &[u8]) {
        let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let line = if message.iter().any(breaks) {
            message.iter().map(|byte| if breaks(byte) { b' ' } else { *byte }).collect()
        } else {
            Bytes::copy_from_slice(message)
        };
        // Nobody hears it if nobody reads; the bridge ends by that.
        let _ = self.0.send(line).await;
    }

    /// Done when nobody reads any more.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}
