//! Blocks of tokens, counted on the clock of Redis, so that only one clock counts.
//!
//! One key for each count, which one script reads and writes: nothing comes in between, and a cluster runs it.
//! Times are whole microseconds since the Unix epoch, which a Lua number holds exactly. Every rounding makes
//! tokens come back later, never sooner.
//!
//! A replica that takes over may have a clock that is behind. A time that no call can have brought about counts as
//! one at which nothing is left, or as now, and is written down so, whether tokens are granted or not: calls wait
//! for one period then, not until that clock catches up.
//!
//! A command may be sent twice, and an answer may be lost; then tokens were taken that nobody has. That makes
//! a limit stricter for one block, and is why a block that was asked for is not asked for again within one call.

use std::time::Duration;

use super::{Redis, script};
use crate::state::{Allowance, Block, Unavailable};

/// How long tokens that don't come back are remembered after the last was taken. No run lasts that long.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Answers with the tokens granted, or none and the time until there are as many as are needed. The value is the
/// theoretical arrival time.
const RATE: &str = "\
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local tokens, period, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local need, want = tonumber(ARGV[4]), tonumber(ARGV[5])
local depth = math.ceil(burst * period / tokens)
local tat = tonumber(redis.call('GET', KEYS[1]) or now) or now + depth
tat = math.min(math.max(tat, now), now + depth)
local granted = math.min(math.floor((now + depth - tat) * tokens / period), want)
if granted < need then granted = 0 end
local wait = math.max(tat + math.ceil(need * period / tokens) - now - depth, 0)
tat = tat + math.ceil(granted * period / tokens)
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000))
return {granted, wait}";

/// Answers with the tokens granted, or none, and the time until all of them come back. The value is when the
/// first was taken and how many were since.
const WINDOW: &str = "\
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local tokens, period, rolling = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local need, want = tonumber(ARGV[4]), tonumber(ARGV[5])
local start, taken = now, 0
local value = redis.call('GET', KEYS[1])
if value then
local first, count = string.match(value, '^(%d+) (%d+)$')
start, taken = math.min(tonumber(first) or now, now), tonumber(count) or tokens
if start + period <= now then start, taken = now, 0 end end
local granted = math.min(tokens - taken, want)
if granted < need then granted = 0 elseif rolling then start = now end
local left = start + period - now
redis.call('SET', KEYS[1], string.format('%.0f %.0f', start, taken + granted), \
'PX', math.ceil(left / 1000))
return {granted, left}";

impl Redis {
    /// Takes a block of at least `need` tokens, `want` if there are so many.
    pub(in crate::state) async fn tokens(
        &self,
        digest: &[u8; 32],
        allowance: &Allowance,
        need: u32,
        want: u32,
    ) -> Result<Block, Unavailable> {
        if need > allowance.most() {
            return Ok(Block::Refused { retry_after: None });
        }
        let mut ask = match *allowance {
            Allowance::Rate { tokens, period, burst } => {
                let mut ask = script(RATE, digest);
                ask.arg(tokens.get()).arg(micros(period)).arg(burst.get());
                ask
            }
            Allowance::Window { tokens, period } => {
                let mut ask = script(WINDOW, digest);
                ask.arg(tokens.get()).arg(micros(period)).arg(0);
                ask
            }
            Allowance::Once { tokens } => {
                let mut ask = script(WINDOW, digest);
                ask.arg(tokens.get()).arg(micros(REMEMBERED)).arg(1);
                ask
            }
        };
        ask.arg(need).arg(want.max(need));
        let (granted, time): (u32, u64) = self.ask(&ask).await?;
        let time = Duration::from_micros(time);
        // What a store says is believed as far as it can be true.
        let granted = granted.min(want.max(need));
        Ok(match allowance {
            Allowance::Rate { .. } if granted > 0 => {
                Block::Granted { tokens: granted, ends_in: None }
            }
            Allowance::Window { .. } if granted > 0 => {
                Block::Granted { tokens: granted, ends_in: Some(time) }
            }
            Allowance::Once { .. } if granted > 0 => {
                Block::Granted { tokens: granted, ends_in: None }
            }
            Allowance::Rate { .. } | Allowance::Window { .. } => {
                Block::Refused { retry_after: Some(time) }
            }
            Allowance::Once { .. } => Block::Refused { retry_after: None },
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}
