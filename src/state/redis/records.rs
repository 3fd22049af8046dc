//! Records in Redis: one hash, so that no part of them can be lost or evicted without the rest.
//!
//! Beside the records the hash has a field of its own for the [`Mark`], which each change moves on in the same
//! step. A hash that is made anew begins another history.

use std::{sync::atomic::Ordering, time::Duration};

use ::redis::{Cmd, FromRedisValue};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Failure, Redis};
use crate::state::{Kept, Mark, Record, Unavailable};

/// The hash.
const KEY: &str = "lictor:{records}";

/// Longest time for one request. No call waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Moves the mark on.
macro_rules! moved {
    () => {
        "\
local at = redis.call('HGET', KEYS[1], '.')
local history, number = string.match(at or '', '^([^/]+)/(%d+)/')
number = string.format('%d', (tonumber(number) or 0) + 1)
redis.call('HSET', KEYS[1], '.', (history or ARGV[1]) .. '/' .. number .. '/' .. ARGV[1])
"
    };
}

const PUT: &str = concat!(moved!(), "return redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])");

const REMOVE: &str = concat!(
    "if redis.call('HDEL', KEYS[1], ARGV[2]) == 0 then return 0 end\n",
    moved!(),
    "return 1"
);

/// The mark alone if it is the one that is known, else everything.
const READ: &str = "\
local at = redis.call('HGET', KEYS[1], '.') or ''
if at == ARGV[1] then return {at} end
local all = redis.call('HGETALL', KEYS[1])
table.insert(all, 1, at)
return all";

/// No mark: what is shown by whoever has read nothing yet.
const NOTHING: &str = "-";

impl Redis {
    pub(in crate::state) async fn put_record(
        &self,
        id: Uuid,
        text: &str,
    ) -> Result<(), Unavailable> {
        let mut put = script(PUT);
        put.arg(Uuid::now_v7().to_string()).arg(id.to_string()).arg(text);
        self.request::<u32>(&put).await.map(drop)
    }

    pub(in crate::state) async fn remove_record(&self, id: Uuid) -> Result<(), Unavailable> {
        let mut remove = script(REMOVE);
        remove.arg(Uuid::now_v7().to_string()).arg(id.to_string());
        self.request::<u32>(&remove).await.map(drop)
    }

    pub(in crate::state) async fn records(
        &self,
        known: Option<&Mark>,
    ) -> Result<Option<Kept>, Unavailable> {
        let mut read = script(READ);
        read.arg(known.map_or(NOTHING, |mark| &mark.0));
        let told: Vec<String> = self.request(&read).await?;
        let mut told = told.into_iter();
        let mark = Mark(told.next().ok_or(Unavailable)?.into());
        if known == Some(&mark) {
            return Ok(None);
        }
        let mut records: Vec<Record> = Vec::new();
        while let (Some(field), Some(text)) = (told.next(), told.next()) {
            match Uuid::try_parse(&field) {
                Ok(id) => records.push((id, text.into())),
                Err(_) if field == "." => {}
                // Somebody else's; what else is there can't be believed either.
                Err(_) => return Err(Unavailable),
            }
        }
        Ok(Some(Kept { mark, records }))
    }

    /// Not under the breaker of calls: whoever asks here may wait, and does so all the time.
    async fn request<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Unavailable> {
        let link = self.link.borrow().clone();
        let Some(mut link) = link else { return Err(Unavailable) };
        let failure = match timeout(PATIENCE, self.attempt(&mut link, command)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::Answer(error),
            Err(_) => Failure::TimeOut(PATIENCE),
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%failure, "Redis doesn't answer as it should");
        Err(Unavailable)
    }
}

fn script(text: &str) -> Cmd {
    let mut command = ::redis::cmd("EVAL");
    command.arg(text).arg(1).arg(KEY);
    command
}
