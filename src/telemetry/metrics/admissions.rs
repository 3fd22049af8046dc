//! What is told of the places at upstreams, and of their breakers.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::{Held, counters, gauges, tellers::Tellers};

/// The states that [`Admissions::set_breaker`] knows.
const STATES: [&str; 3] = ["closed", "open", "half_open"];

/// The kinds of places.
const KINDS: [&str; 2] = ["call", "stream"];

/// The families of all upstreams.
#[derive(Clone, Debug)]
pub(super) struct Families {
    breaker: IntGaugeVec,
    openings: IntCounterVec,
    places: IntGaugeVec,
    refused: IntCounterVec,
    tellers: Tellers,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            breaker: gauges(
                registry,
                "lictor_upstream_breaker_state",
                "1 for the state that the breaker of an upstream is in, 0 for the others.",
                &["upstream", "state"],
            ),
            openings: counters(
                registry,
                "lictor_upstream_breaker_openings_total",
                "How often the breaker of an upstream has opened.",
                &["upstream"],
            ),
            places: gauges(
                registry,
                "lictor_upstream_places_taken",
                "Places at an upstream that calls and event streams hold now.",
                &["upstream", "kind"],
            ),
            refused: counters(
                registry,
                "lictor_upstream_refused_total",
                "Calls that were not sent to an upstream, since it has no place or its breaker is open.",
                &["upstream", "reason"],
            ),
            tellers: Tellers::default(),
        }
    }

    pub(super) fn of(&self, upstream: &str) -> Admissions {
        let [call, stream] = KINDS;
        let places = |kind| self.places.with_label_values(&[upstream, kind]);
        self.tellers.join(upstream, || Admissions {
            calls: places(call),
            streams: places(stream),
            families: self.clone(),
            upstream: upstream.into(),
        })
    }

    /// Takes out how things stand. What was counted stays.
    fn remove(&self, upstream: &str) {
        // What isn't there needn't be removed.
        for state in STATES {
            let _ = self.breaker.remove_label_values(&[upstream, state]);
        }
        for kind in KINDS {
            let _ = self.places.remove_label_values(&[upstream, kind]);
        }
    }
}

/// Those of one upstream. Its gauges go with the last of the same name.
#[derive(Debug)]
pub struct Admissions {
    families: Families,
    upstream: Box<str>,
    calls: IntGauge,
    streams: IntGauge,
}

impl Admissions {
    /// Tells the state that the breaker is in: `closed`, `open` or `half_open`.
    pub fn set_breaker(&self, state: &'static str) {
        for known in STATES {
            let here = i64::from(known == state);
            self.families.breaker.with_label_values(&[&self.upstream, known]).set(here);
        }
        if state == "open" {
            self.families.openings.with_label_values(&[&*self.upstream]).inc();
        }
    }

    /// Counts a call's place as taken for as long as the guard lives.
    pub fn hold_call(&self) -> Held {
        Held::new(&self.calls, 1)
    }

    /// Counts a stream's place as taken for as long as the guard lives.
    pub fn hold_stream(&self) -> Held {
        Held::new(&self.streams, 1)
    }

    /// Counts a call that was not sent.
    pub fn refuse(&self, reason: &'static str) {
        self.families.refused.with_label_values(&[&self.upstream, reason]).inc();
    }
}

impl Drop for Admissions {
    fn drop(&mut self) {
        let Self { families, upstream, .. } = self;
        families.tellers.leave(upstream, || families.remove(upstream));
    }
}
