//! Names, and durations and sizes, which always carry their unit.
//!
//! `patternErrorMessage` is what editors show where a pattern doesn't match; so do we.

use std::{borrow::Cow, num::NonZeroU32, time::Duration};

use bytesize::ByteSize;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// A duration as written, such as `30s`, `1m30s` or `500ms`.
#[derive(Debug, Deserialize)]
pub(super) struct Span(String);

impl Span {
    /// The duration, unless it is zero or longer than a `Duration` can be.
    pub(super) fn duration(&self) -> Result<Duration, String> {
        match humantime::parse_duration(&self.0) {
            Ok(Duration::ZERO) => Err("has to be longer than zero".into()),
            Ok(duration) => Ok(duration),
            Err(error) => Err(format!("`{}` is no duration: {error}", self.0)),
        }
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "patternErrorMessage": "a whole number and its unit: ms, s, m, h or d",
            "type": "string",
            "pattern": "^([0-9]+(ms|s|m|h|d))+$",
            "examples": ["30s"],
        })
    }
}

/// A size in bytes as written, such as `4MiB` or `500kB`.
#[derive(Debug, Deserialize)]
pub(super) struct Size(String);

impl Size {
    /// The size in bytes, unless it is zero or more than memory can address.
    pub(super) fn bytes(&self) -> Result<usize, String> {
        let size: ByteSize =
            self.0.parse().map_err(|error| format!("`{}` is no size: {error}", self.0))?;
        match usize::try_from(size.as_u64()) {
            Ok(0) => Err("has to be more than zero".into()),
            // `ByteSize` saturates; nobody means that.
            Ok(usize::MAX) | Err(_) => Err(format!("`{}` is too large", self.0)),
            Ok(bytes) => Ok(bytes),
        }
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "patternErrorMessage": "a whole number and its unit: B, kB, MB, GB, KiB, MiB or GiB",
            "type": "string",
            "pattern": "^[0-9]+(B|kB|MB|GB|KiB|MiB|GiB)$",
            "examples": ["4MiB"],
        })
    }
}

/// So many in a period, such as `100/1m`, or in a run, such as `20/run`.
#[derive(Debug, Deserialize)]
pub(super) struct Amount(String);

impl Amount {
    /// How many, and the period; `None` for a run.
    pub(super) fn read(&self) -> Result<(NonZeroU32, Option<Duration>), String> {
        let (tokens, period) = self.0.split_once('/').unwrap_or((&self.0, ""));
        let tokens = tokens
            .parse()
            .map_err(|_| format!("`{tokens}` is no number from 1 to {}", u32::MAX))?;
        let period = match period {
            "run" => None,
            period => Some(Span(period.to_owned()).duration()?),
        };
        Ok((tokens, period))
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "patternErrorMessage": "a number, a slash, and a duration or `run`",
            "type": "string",
            "pattern": "^[0-9]+/(([0-9]+(ms|s|m|h|d))+|run)$",
            "examples": ["100/1m"],
        })
    }
}

/// What a clock shows, such as `08:00`.
#[derive(Debug, Deserialize)]
pub(super) struct TimeOfDay(pub(super) String);

impl JsonSchema for TimeOfDay {
    fn schema_name() -> Cow<'static, str> {
        "TimeOfDay".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "patternErrorMessage": "hours and minutes, from 00:00 to 24:00",
            "type": "string",
            "pattern": "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$",
            "examples": ["08:00"],
        })
    }
}

/// A name that goes into policies, metrics and the ledger.
#[derive(Debug, Deserialize)]
pub(super) struct Name(pub(super) String);

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "patternErrorMessage": "1 to 63 characters of a-z, 0-9 and `-`",
            "type": "string",
            "pattern": "^[a-z0-9-]{1,63}$",
            "examples": ["files"],
        })
    }
}
