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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoursError {
    /// Not hours and minutes with two digits each.
    #[error("`{0}` is no time from `00:00` to `24:00`")]
    Time(String),
    /// The IANA time zone database has no such name.
    #[error("`{0}` is no time zone")]
    Zone(String),
    /// There has to be a day.
    #[error("names no day")]
    Days,
    /// A day has 1,440 minutes, and what ends when it begins says nothing.
    #[error("has to begin and end within a day, and not at the same minute")]
    Minutes,
}

impl Hours {
    /// From the time `from` of each of the days, such as `08:00`, to, but without, the time `to` of the same day, or
    /// of the next if that isn't later. `to` may be `24:00`, and `zone` is a name of the IANA time zone database.
    ///
    /// # Errors
    /// If these are no hours.
    pub fn read(days: Vec<Weekday>, from: &str, to: &str, zone: &str) -> Result<Self, HoursError> {
        let minute = |text: &str| minute(text).ok_or_else(|| HoursError::Time(text.to_owned()));
        let (from, to) = (minute(from)?, minute(to)?);
        let zone = TimeZone::get(zone).map_err(|_| HoursError::Zone(zone.to_owned()))?;
        Self::new(days, from, to, zone)
    }

    /// Minutes are counted from midnight.
    fn new(days: Vec<Weekday>, from: u16, to: u16, zone: TimeZone) -> Result<Self, HoursError> {
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

/// What a clock shows, in minutes since midnight.
fn minute(text: &str) -> Option<u16> {
    let two = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let (hour, minute) = text.split_once(':').filter(|(hour, minute)| two(hour) && two(minute))?;
    let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
    let time = hour * 60 + minute;
    (minute < 60 && time <= DAY).then_some(time)
}

fn time(minute: u16) -> Time {
    let hour = i8::try_from(minute / 60).unwrap_or_default();
    let minute = i8::try_from(minute % 60).unwrap_or_default();
    Time::new(hour, minute, 0, 0).unwrap_or(Time::MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::get("Europe/Berlin").expect("a zone")
    }

    fn unix(text: &str) -> Duration {
        let at: Timestamp = text.parse().expect("a time");
        Duration::from_secs(at.as_second().try_into().expect("after 1970"))
    }

    fn weekdays() -> Vec<Weekday> {
        Weekday::Monday.cycle_forward().take(5).collect()
    }

    fn every_day() -> Vec<Weekday> {
        Weekday::Monday.cycle_forward().take(7).collect()
    }

    #[test]
    fn hours_open_and_close_by_the_wall_clock() {
        const HOUR: u64 = 3_600;
        let office = Hours::new(weekdays(), 8 * 60, 18 * 60, berlin()).expect("hours");
        let night = Hours::new(vec![Weekday::Sunday], 22 * 60, 6 * 60, berlin()).expect("hours");
        // In 2026 the clock goes on an hour at 01:00Z on 29 March, and back at 01:00Z on 25 October.
        let gap = Hours::new(every_day(), 150, 240, berlin()).expect("hours");
        let into_gap = Hours::new(every_day(), 60, 150, berlin()).expect("hours");
        let fold = Hours::new(every_day(), 135, 150, berlin()).expect("hours");
        let through_fold = Hours::new(every_day(), 60, 150, berlin()).expect("hours");
        let day = Hours::new(vec![Weekday::Monday], 0, DAY, berlin()).expect("hours");
        for (hours, now, wait) in [
            (&office, "2026-03-27T07:00:00Z", None),
            (&office, "2026-03-27T16:59:59Z", None),
            (&office, "2026-03-27T06:59:59Z", Some(1)),
            // From Friday evening to Monday morning, an hour less for the clock that is set.
            (&office, "2026-03-27T17:00:00Z", Some(2 * 24 * HOUR + 13 * HOUR)),
            (&office, "2026-06-01T06:00:00Z", None),
            (&night, "2026-06-07T19:59:59Z", Some(1)),
            (&night, "2026-06-07T20:00:00Z", None),
            (&night, "2026-06-08T03:59:59Z", None),
            (&night, "2026-06-08T04:00:00Z", Some(6 * 24 * HOUR + 16 * HOUR)),
            // 02:30 is skipped: it begins when the clock shows 03:00.
            (&gap, "2026-03-29T00:59:59Z", Some(1)),
            (&gap, "2026-03-29T01:00:00Z", None),
            (&gap, "2026-03-29T01:59:59Z", None),
            (&gap, "2026-03-29T02:00:00Z", Some(22 * HOUR + HOUR / 2)),
            (&into_gap, "2026-03-29T00:59:59Z", None),
            (&into_gap, "2026-03-29T01:00:00Z", Some(22 * HOUR)),
            // 02:15 comes twice.
            (&fold, "2026-10-25T00:15:00Z", None),
            (&fold, "2026-10-25T00:30:00Z", Some(HOUR - HOUR / 4)),
            (&fold, "2026-10-25T01:15:00Z", None),
            (&fold, "2026-10-25T01:30:00Z", Some(23 * HOUR + HOUR * 3 / 4)),
            // Closed at the first 02:30, and open again as the clock goes back to 02:00.
            (&through_fold, "2026-10-25T00:29:59Z", None),
            (&through_fold, "2026-10-25T00:30:00Z", Some(HOUR / 2)),
            (&through_fold, "2026-10-25T01:00:00Z", None),
            (&day, "2026-06-07T21:59:59Z", Some(1)),
            (&day, "2026-06-07T22:00:00Z", None),
            (&day, "2026-06-08T21:59:59Z", None),
        ] {
            let opens_in = hours.opens_in(unix(now)).map(|wait| wait.as_secs());
            assert_eq!(opens_in, wait, "{hours:?} at {now}");
        }
    }

    #[test]
    fn a_part_of_a_second_is_not_lost() {
        let office = Hours::new(weekdays(), 8 * 60, 18 * 60, berlin()).expect("hours");
        let now = unix("2026-03-27T06:59:59Z") + Duration::from_millis(250);
        assert_eq!(office.opens_in(now), Some(Duration::from_millis(750)));
        assert_eq!(office.opens_in(Duration::MAX), Some(Duration::MAX));
    }

    #[test]
    fn times_are_what_a_clock_shows() {
        for (text, minutes) in [
            ("00:00", Some(0)),
            ("08:05", Some(485)),
            ("23:59", Some(1_439)),
            ("24:00", Some(DAY)),
            ("24:01", None),
            ("8:00", None),
            ("08:60", None),
            ("+8:00", None),
            ("08:00:00", None),
            ("0800", None),
            ("", None),
        ] {
            assert_eq!(minute(text), minutes, "{text}");
        }
        let read = |from, to, zone| Hours::read(every_day(), from, to, zone);
        assert!(read("08:00", "18:00", "Europe/Berlin").is_ok());
        assert_eq!(read("8", "9", "UTC"), Err(HoursError::Time("8".to_owned())));
        assert_eq!(read("08:00", "9", "UTC"), Err(HoursError::Time("9".to_owned())));
        assert_eq!(read("08:00", "09:00", "Berlin"), Err(HoursError::Zone("Berlin".to_owned())));
    }

    #[test]
    fn what_says_nothing_is_no_hours() {
        for (days, from, to, error) in [
            (vec![], 0, 60, HoursError::Days),
            (weekdays(), 60, 60, HoursError::Minutes),
            (weekdays(), 60, 0, HoursError::Minutes),
            (weekdays(), DAY, 60, HoursError::Minutes),
            (weekdays(), 0, DAY + 1, HoursError::Minutes),
        ] {
            assert_eq!(Hours::new(days, from, to, TimeZone::UTC), Err(error), "{from} to {to}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Minute by minute, through both days on which clocks are set, also by half an hour: closed until it is
        /// said to open, and open then.
        #[test]
        fn it_opens_when_it_says(
            from in 0..DAY,
            length in 1..DAY,
            day in 0..7_usize,
            zone in prop::sample::select(vec!["Europe/Berlin", "Australia/Lord_Howe", "UTC"]),
            at in prop::sample::select(vec!["2026-03-28T10:00:00Z", "2026-10-24T10:00:00Z", "2026-04-04T02:00:00Z"]),
            minutes in 0..3_000_u64,
        ) {
            let zone = TimeZone::get(zone).expect("a zone");
            let day = Weekday::Monday.cycle_forward().nth(day).expect("a day");
            let to = (from + length) % DAY;
            let Ok(hours) = Hours::new(vec![day], from, to, zone) else { return Ok(()) };
            let now = unix(at) + Duration::from_secs(60 * minutes);
            let Some(wait) = hours.opens_in(now) else { return Ok(()) };
            prop_assert!(wait <= Duration::from_secs(8 * 24 * 3_600), "{wait:?}");
            prop_assert_eq!(wait.as_secs() % 60, 0);
            prop_assert_eq!(hours.opens_in(now + wait), None);
            for minute in 0..wait.as_secs() / 60 {
                let then = Duration::from_secs(60 * minute);
                prop_assert_eq!(hours.opens_in(now + then), Some(wait - then));
            }
        }
    }
}
