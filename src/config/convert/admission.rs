//! When an upstream is spared calls.

use std::time::Duration;

use super::{Reader, shape};
use crate::{
    config::fault::Place,
    upstream::settings::{Breaker, Bulkhead, Timeouts},
};

impl Reader<'_> {
    /// Within, `None` where it is switched off.
    pub(super) fn breaker(
        &mut self,
        it: &shape::Breaker,
        place: &Place,
    ) -> Option<Option<Breaker>> {
        let open = self.span(it.open.as_ref(), 5, &place.key("open"));
        let max_open = self.span(it.max_open.as_ref(), 60, &place.key("maxOpen"));
        let (open, max_open) = (open?, max_open?);
        if max_open < open {
            let default = it.max_open.is_none();
            let problem = if default {
                "is longer than `maxOpen`, which is 60s by default"
            } else {
                "is longer than `maxOpen`"
            };
            self.faults.push(&place.key("open"), problem);
            return None;
        }
        let breaker = Breaker {
            failures: it.failures.unwrap_or(5),
            failure_percent: it.failure_percent.unwrap_or(50),
            open,
            max_open,
            per_tool: it.per_tool.unwrap_or(false),
        };
        Some(Some(breaker).filter(|_| it.enabled.unwrap_or(true)))
    }

    pub(super) fn bulkhead(&mut self, it: &shape::Bulkhead, place: &Place) -> Option<Bulkhead> {
        let (calls, streams) = (it.calls.unwrap_or(1024), it.streams.unwrap_or(10_000));
        // One caller can't have it all, unless it is the only one that there can be.
        let half = |of: usize| of.div_ceil(2);
        let queue = it.queue.unwrap_or(calls);
        let queue_time = self.span(it.queue_time.as_ref(), 1, &place.key("queueTime"));
        if queue > calls {
            let problem =
                format!("is {queue}, more than the {calls} calls that there may be at once");
            self.faults.push(&place.key("queue"), problem);
            return None;
        }
        Some(Bulkhead {
            calls,
            calls_per_caller: it.calls_per_caller.unwrap_or(half(calls)),
            streams,
            streams_per_caller: it.streams_per_caller.unwrap_or(half(streams)),
            queue,
            queue_time: queue_time?,
        })
    }

    pub(super) fn timeouts(
        &mut self,
        it: &shape::UpstreamTimeouts,
        place: &Place,
    ) -> Option<Timeouts> {
        let first_byte = self.span(it.first_byte.as_ref(), 300, &place.key("firstByte"));
        let idle = self.span(it.idle.as_ref(), 60, &place.key("idle"));
        let call = self.span(it.call.as_ref(), 900, &place.key("call"));
        let stream_idle: Option<Option<Duration>> = match &it.stream_idle {
            None => Some(None),
            given => self.span(given.as_ref(), 0, &place.key("streamIdle")).map(Some),
        };
        Some(Timeouts {
            first_byte: first_byte?,
            idle: idle?,
            call: call?,
            stream_idle: stream_idle?,
        })
    }
}
