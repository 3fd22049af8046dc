//! The signals that end the process: the first gives calls in flight their time, the second
//! takes it away.

use std::{io, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

/// SIGTERM and SIGINT.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of them.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for `work`, for `limit` at most, and no longer than until the next signal. Whether it ended.
    pub(super) async fn gives_time(
        &mut self,
        limit: Duration,
        work: impl Future<Output = ()>,
    ) -> bool {
        tokio::select! { biased;
            ended = timeout(limit, work) => ended.is_ok(),
            () = self.told() => {
                tracing::warn!("told to stop once more");
                false
            }
        }
    }
}
