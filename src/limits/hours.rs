//! Hours of a week, as the clock on a wall shows them.
//!
//! What counts is what a clock at that place shows, so the days on which it is set need no rule of their own:
//! an hour that is skipped isn't open, the end of it is the first instant at which the clock shows a later time,
//! and an hour that comes twice is open twice.

use std::time::Duration;

use jiff::{
    SignedDuration, Span, Timestamp,
    civil::{Time, Weekday},
    tz::TimeZone,
};

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Days on which to look for the next opening: a week, and one for hours that run past midnight.
const AHEAD: i64 = 9;

/// Hours at which calls are let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours {
    days: Vec<Weekday>,
    from: u16,
    to: u16,
    zone: TimeZone,
}

/// Why there can't be such hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoursError {
    /// There has to be a day.
    #[error("names no day")]
    Days,
    /// A day has 1,440 minutes, and what ends when it begins says nothing.
    #[error("has to begin and end within a day, and not at the same minute")]
    Minutes,
}

impl Hours {
    /// From the minute `from` of each of the days to, but without, the minute `to` of the same day, or of the next
    /// if that isn't later. Minutes are counted from midnight; `to` may be 1,440.
    ///
    /// # Errors
    /// If these are no hours.
    pub fn new(days: Vec<Weekday>, from: u16, to: u16, zone: TimeZone) -> Result<Self, HoursError> {
        if days.is_empty() {
            return Err(HoursError::Days);
        }
        if from >= DAY || to > DAY || to == 0 || from == to {
            return Err(HoursError::Minutes);
        }
        Ok(Self { days, from, to, zone })
    }

    /// How long until they begin; `None` while they last. `now` is the time since the Unix epoch.
    pub(super) fn opens_in(&self, now: Duration) -> Option<Duration> {
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        // A time that no calendar has is at none of the hours.
        let Ok(at) = Timestamp::from_second(seconds) else { return Some(Duration::MAX) };
        if self.is_open(at) {
            return None;
        }
        let opening = self.changes(at).filter(|it| *it > at && self.is_open(*it)).min();
        let opening = opening.and_then(|it| u64::try_from(it.as_second()).ok());
        Some(opening.map_or(Duration::MAX, |it| Duration::from_secs(it).saturating_sub(now)))
    }

    /// When they can begin in the days ahead: at their first minute, or when the clock is set.
    fn changes(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let today = self.zone.to_datetime(now).date();
        let first = time(self.from);
        let begins = (0..AHEAD).filter_map(move |day| {
            let date = today.checked_add(Span::new().days(day)).ok()?;
            let begin = self.zone.to_ambiguous_timestamp(date.to_datetime(first));
            Some([begin.earlier().ok(), begin.later().ok()].into_iter().flatten())
        });
        let last = now.saturating_add(SignedDuration::from_hours(24 * AHEAD)).unwrap_or(now);
        let set = self.zone.following(now).map(|transition| transition.timestamp());
        begins.flatten().chain(set.take_while(move |it| *it <= last))
    }

    fn is_open(&self, at: Timestamp) -> bool {
        let shown = self.zone.to_datetime(at);
        let minute = u16::try_from(shown.hour()).unwrap_or_default() * 60
            + u16::try_from(shown.minute()).unwrap_or_default();
        let (today, yesterday) = (shown.weekday(), shown.weekday().previous());
        let begun_on = |day| self.days.contains(&day);
        if self.from < self.to {
            begun_on(today) && (self.from..self.to).contains(&minute)
        } else {
            begun_on(today) && minute >= self.from || begun_on(yesterday) && minute < self.to
        }
    }
}

fn time(minute: u16) -> Time {
    let hour = i8::try_from(minute / 60).unwrap_or_default();
    let minute = i8::try_from(minute % 60).unwrap_or_default();
    Time::new(hour, minute, 0, 0).unwrap_or(Time::MIN)
}
