//! Documents that are held until they are whole.
//!
//! Nothing of one has gone on, so whatever ends the wait is told the caller as a refusal.

use bytes::Bytes;
use pingora::protocols::http::ServerSession;
use tokio::sync::watch;

use super::{
    Halt, Proxy, Read,
    answer::{self, Coming},
    drain::Phase,
    patience::{Next, Shape},
    ready::Ready,
    recall::Recall,
};
use crate::{
    delegation::Behalf, denial::Denial, exchange::End, identity::Principal, protocol::Call,
    telemetry::Clock,
};

/// How far a document was read before any of it goes on.
pub(super) enum Collected {
    /// This is all of it.
    Whole(Bytes),
    /// It can't be held, for this reason; [`Coming::begun`] is what was read.
    Begun(Denial),
}

impl Proxy {
    /// Reads a document, if it is not longer than `limit` bytes and there is memory for it. What has
    /// changed meanwhile is looked at once more when it is whole.
    pub(super) async fn collect(
        &self,
        session: &mut ServerSession,
        parties: (&Call, &Principal, &Behalf),
        read: &Read,
        coming: &mut Coming,
        limit: usize,
    ) -> Result<Collected, Halt> {
        let phase = self.shared.drain.watch();
        let mut recall = self.recall(parties, &read.served);
        let collected = collect(session, coming, phase, &mut recall, limit).await?;
        if let Collected::Whole(_) = collected {
            self.still_believed(read.peer.as_deref())?;
            recall.check()?;
        }
        Ok(collected)
    }
}

/// Whoever announced a length has said all when that is reached.
async fn collect(
    session: &mut ServerSession,
    coming: &mut Coming,
    mut phase: watch::Receiver<Phase>,
    recall: &mut Recall<'_>,
    limit: usize,
) -> Result<Collected, Halt> {
    let Coming { head, patience, body, begun, reservation } = coming;
    let announced = answer::announced(head.status, &head.headers);
    let mut watching = true;
    let mut ready = Ready::default();
    let mut held = 0;
    let heard = Clock.instant();
    loop {
        let next = tokio::select! { biased;
            _ = phase.wait_for(|phase| *phase == Phase::Ending) => return Err(Denial::Draining.into()),
            denial = recall.recalled() => return Err(denial.into()),
            next = patience.next(session, body, Shape::Document, heard, &mut watching) => next,
        };
        match next {
            Next::Part(part) => {
                held += part.len();
                ready.add(part);
            }
            Next::Finished => return Ok(Collected::Whole(ready.take())),
            Next::Gone => return Err(Halt::Caller(End::CallerGone)),
            Next::Broken(denial) => return Err(denial.into()),
            Next::Silence => {}
        }
        let room = match held > limit {
            true => Err(Denial::UpstreamUnreadable),
            false => reservation.resize(held),
        };
        if let Err(denial) = room {
            *begun = ready.take();
            return Ok(Collected::Begun(denial));
        }
        if announced == Some(held) {
            return Ok(Collected::Whole(ready.take()));
        }
    }
}
