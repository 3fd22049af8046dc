//! [`Bulkhead`]: how many calls a server has at once, in all and of one caller.
//!
//! A server that hangs fills its own places and no others, and one caller fills its share and no more.
//! Whoever finds no place waits for a short time in a short queue, or is told at once.
//!
//! Streams have places of their own. An event stream may be open for hours and costs next to nothing while
//! it is silent, so it doesn't hold a call's place: one that only listens begins in a stream's, and a call
//! that is answered by a stream moves there when its answer begins. Where no stream's place is left, it
//! stays where it is: an answer that has come is never refused for want of a place.
//!
//! INVARIANT: a place is free again when its [`Place`] is dropped, and nothing else frees one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError},
    time::timeout,
};

use super::settings;

/// The two kinds of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For calls until their answer has begun, or has ended if it is a document.
    Call,
    /// For event streams.
    Stream,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The caller has all that one caller may have.
    Caller,
    /// All are taken, and so is the queue.
    Places,
    /// None got free in time.
    Waited,
}

/// The places of one server.
#[derive(Debug)]
pub(super) struct Bulkhead {
    calls: Arc<Lane>,
    streams: Arc<Lane>,
}

/// The places of one kind.
#[derive(Debug)]
struct Lane {
    most: usize,
    places: Arc<Semaphore>,
    per_caller: usize,
    /// Caller → places that it has or waits for; none with zero.
    callers: Mutex<HashMap<Arc<str>, usize>>,
    queue: Semaphore,
    patience: Duration,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    // Free before the caller may have another.
    _taken: OwnedSemaphorePermit,
    share: Share,
}

/// One of the places that a caller may have.
#[derive(Debug)]
struct Share {
    lane: Arc<Lane>,
    caller: Arc<str>,
}

impl Bulkhead {
    pub(super) fn new(settings: &settings::Bulkhead) -> Self {
        let lane = |most, per_caller, queue| {
            Arc::new(Lane {
                most,
                places: Arc::new(Semaphore::new(most)),
                per_caller,
                callers: Mutex::default(),
                queue: Semaphore::new(queue),
                patience: settings.queue_time,
            })
        };
        Self {
            calls: lane(settings.calls, settings.calls_per_caller, settings.queue),
            // Whoever is told no may listen later.
            streams: lane(settings.streams, settings.streams_per_caller, 0),
        }
    }

    /// A place for a caller; waits for one only where there is a queue. Dropping the future leaves it.
    pub(super) async fn enter(&self, kind: Kind, caller: Arc<str>) -> Result<Place, Full> {
        let share = self.lane(kind).share(caller)?;
        let lane = &share.lane;
        let taken = match Arc::clone(&lane.places).try_acquire_owned() {
            Ok(taken) => taken,
            Err(TryAcquireError::Closed) => return Err(Full::Places),
            Err(TryAcquireError::NoPermits) => {
                let _queued = lane.queue.try_acquire().map_err(|_| Full::Places)?;
                let waiting = timeout(lane.patience, Arc::clone(&lane.places).acquire_owned());
                waiting.await.map_err(|_| Full::Waited)?.map_err(|_| Full::Places)?
            }
        };
        Ok(Place { _taken: taken, share })
    }

    /// A stream's place in exchange for a call's, if there is one.
    pub(super) fn become_stream(&self, place: &mut Place) -> bool {
        let Ok(share) = self.streams.share(Arc::clone(&place.share.caller)) else { return false };
        let Ok(taken) = Arc::clone(&self.streams.places).try_acquire_owned() else { return false };
        *place = Place { _taken: taken, share };
        true
    }

    /// Places that are taken, and how many there are.
    pub(super) fn taken(&self, kind: Kind) -> (usize, usize) {
        let lane = self.lane(kind);
        (lane.most.saturating_sub(lane.places.available_permits()), lane.most)
    }

    fn lane(&self, kind: Kind) -> &Arc<Lane> {
        match kind {
            Kind::Call => &self.calls,
            Kind::Stream => &self.streams,
        }
    }
}

impl Lane {
    fn share(self: &Arc<Self>, caller: Arc<str>) -> Result<Share, Full> {
        let mut callers = self.callers();
        match callers.get_mut(&caller) {
            Some(held) if *held >= self.per_caller => return Err(Full::Caller),
            Some(held) => *held += 1,
            None => {
                callers.insert(Arc::clone(&caller), 1);
            }
        }
        drop(callers);
        Ok(Share { lane: Arc::clone(self), caller })
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        // Nothing panics half-way while it is held.
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut callers = self.lane.callers();
        if let Some(held) = callers.get_mut(&self.caller) {
            *held -= 1;
            if *held == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulkhead(queue: usize) -> Bulkhead {
        Bulkhead::new(&settings::Bulkhead {
            calls: 3,
            calls_per_caller: 2,
            streams: 2,
            streams_per_caller: 1,
            queue,
            queue_time: Duration::from_secs(1),
        })
    }

    async fn enter(of: &Bulkhead, caller: &str) -> Result<Place, Full> {
        of.enter(Kind::Call, caller.into()).await
    }

    #[tokio::test]
    async fn nobody_has_more_than_a_share_nor_all_more_than_there_is() {
        let of = bulkhead(0);
        let first = enter(&of, "a").await.expect("a place");
        let _second = enter(&of, "a").await.expect("a place");
        assert_eq!(enter(&of, "a").await.expect_err("has two"), Full::Caller);
        let _third = enter(&of, "b").await.expect("a place");
        assert_eq!(enter(&of, "b").await.expect_err("none left"), Full::Places);
        assert_eq!(of.taken(Kind::Call), (3, 3));
        drop(first);
        assert_eq!(of.taken(Kind::Call), (2, 3));
        let _fourth = enter(&of, "b").await.expect("a place");
        assert_eq!(enter(&of, "b").await.expect_err("has two"), Full::Caller);
    }

    #[tokio::test]
    async fn who_is_told_no_leaves_nothing_behind() {
        let of = bulkhead(0);
        let held = [enter(&of, "a").await, enter(&of, "a").await, enter(&of, "b").await];
        for _ in 0..10 {
            assert!(enter(&of, "b").await.is_err());
        }
        drop(held);
        assert_eq!(of.taken(Kind::Call), (0, 3));
        assert!(of.calls.callers().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_short_in_count_and_time() {
        let of = bulkhead(1);
        let mut held = vec![];
        for caller in ["a", "a", "b"] {
            held.push(enter(&of, caller).await.expect("a place"));
        }
        let waits = enter(&of, "c");
        let another = async {
            tokio::task::yield_now().await;
            enter(&of, "d").await
        };
        let (waited, refused) = tokio::join!(waits, another);
        assert_eq!(
            (waited.expect_err("late"), refused.expect_err("long")),
            (Full::Waited, Full::Places)
        );
        let waits = enter(&of, "c");
        let frees = async {
            tokio::task::yield_now().await;
            held.pop();
        };
        let (got, ()) = tokio::join!(waits, frees);
        got.expect("a place");
        assert_eq!(of.calls.queue.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_takes_nothing_along() {
        let of = bulkhead(1);
        let held = [enter(&of, "a").await, enter(&of, "a").await, enter(&of, "b").await];
        let gives_up = timeout(Duration::from_millis(10), enter(&of, "c")).await;
        assert!(gives_up.is_err());
        drop(held);
        assert_eq!((of.taken(Kind::Call), of.calls.queue.available_permits()), ((0, 3), 1));
        assert!(of.calls.callers().is_empty());
    }

    #[tokio::test]
    async fn a_stream_leaves_its_calls_place_to_others_if_there_is_room() {
        let of = bulkhead(0);
        let mut first = enter(&of, "a").await.expect("a place");
        let mut second = enter(&of, "a").await.expect("a place");
        assert!(of.become_stream(&mut first));
        assert!(!of.become_stream(&mut second), "one a caller");
        assert_eq!((of.taken(Kind::Call), of.taken(Kind::Stream)), ((1, 3), (1, 2)));
        let mut third = enter(&of, "b").await.expect("a place");
        let mut fourth = enter(&of, "c").await.expect("a place");
        assert!(of.become_stream(&mut third));
        assert!(!of.become_stream(&mut fourth), "two in all");
        assert_eq!((of.taken(Kind::Call), of.taken(Kind::Stream)), ((2, 3), (2, 2)));
        drop((first, second, third, fourth));
        assert_eq!((of.taken(Kind::Call), of.taken(Kind::Stream)), ((0, 3), (0, 2)));
        assert!(of.calls.callers().is_empty() && of.streams.callers().is_empty());
    }
}
