//! Points in time as the ledger writes them: RFC 3339, UTC, six digits, always 27 bytes, so that texts
//! sort as times do.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::telemetry::Clock;

/// Microseconds since the Unix epoch, up to the end of the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(u64);

impl Stamp {
    pub(super) const EPOCH: Self = Self(0);
    const MAX: u64 = 253_402_300_799_999_999;

    /// The wall clock's time.
    pub(super) fn now() -> Self {
        Self::from_micros(u64::try_from(Clock.unix().as_micros()).unwrap_or(Self::MAX))
    }

    pub(super) fn from_micros(micros: u64) -> Self {
        Self(micros.min(Self::MAX))
    }

    /// Reads exactly what [`fmt::Display`] writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |range: std::ops::Range<usize>| -> Option<u64> {
            let digits = text.get(range)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
        let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
        let seconds = days_before(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        let stamp = Self(seconds.checked_mul(1_000_000)?.checked_add(number(20..26)?)?);
        // What was not canonical (a month 13, another separator) doesn't come out as it went in.
        (stamp.to_string() == text).then_some(stamp)
    }

    /// As it is written.
    pub(super) fn text(self) -> [u8; 27] {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        for (place, number) in [
            (0..4, year),
            (5..7, month),
            (8..10, day),
            (11..13, hour),
            (14..16, minute),
            (17..19, second),
            (20..26, micros),
        ] {
            let mut rest = number;
            for digit in text.get_mut(place).into_iter().flatten().rev() {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
                rest /= 10;
            }
        }
        text
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Days in 400 years of the Gregorian calendar, its period.
const ERA: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01. Years are counted from March, so that the leap day is the last.
const EPOCH: u64 = 719_468;

fn date(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH;
    let (era, day_of_era) = (days / ERA, days % ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Days from 1970-01-01; nonsense for dates that don't exist or lie before it.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let year = year.saturating_sub(u64::from(month <= 2));
    let from_march = (month + 9) % 12;
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * from_march + 2) / 5 + day.saturating_sub(1);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * ERA + day_of_era).saturating_sub(EPOCH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn writes_known_times() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(Stamp::from_micros(micros).to_string(), text);
        }
    }

    #[test]
    fn reads_only_what_it_writes() {
        for text in [
            "",
            "2024-02-30T00:00:00.000000Z",
            "2024-13-01T00:00:00.000000Z",
            "2024-00-00T00:00:00.000000Z",
            "2024-02-29T24:00:00.000000Z",
            "2024-02-29t00:00:00.000000Z",
            "2024-02-29T00:00:00.00000Z",
            "2024-02-29T00:00:00.000000+00:00",
            "1969-12-31T23:59:59.999999Z",
            "0000-00-00T00:00:00.000000Z",
            "2024-02-2é9T00:00:00.000000Z",
        ] {
            assert_eq!(Stamp::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn comes_back_and_sorts(a in 0..=Stamp::MAX, b in 0..=Stamp::MAX) {
            let (left, right) = (Stamp(a), Stamp(b));
            prop_assert_eq!(Stamp::parse(&left.to_string()), Some(left));
            prop_assert_eq!(left.to_string().cmp(&right.to_string()), a.cmp(&b));
        }
    }
}
