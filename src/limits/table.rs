//! [`Table`]: the cells of one limit, in bounded memory.
//!
//! Keys come from callers, so their number is bounded. A cell that says no more than a new one (all tokens are
//! back) is dropped when room is needed; any other is kept, since to forget it would give its tokens back: a caller
//! that names enough tools could empty the table and begin anew. Whoever finds no room shares one spare cell with
//! all others that don't, which is strict, and not a way round.

use std::collections::HashMap;

use super::{cell::Cell, key::Key};

/// Most keys of one limit.
const MOST: usize = 100_000;
/// Size up to which nothing is dropped.
const FEW: usize = 1_024;
/// Nanoseconds between two searches of a full table for cells to drop.
const PAUSE: u64 = 1_000_000_000;

/// Where a key's cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Own(Key),
    /// There is no room for one of its own.
    Spare,
}

/// The cells of one limit. The time is in nanoseconds since the limiter began.
#[derive(Debug)]
pub(super) struct Table {
    cells: HashMap<Key, Cell>,
    spare: Cell,
    /// Size at which to look for cells to drop.
    sweep_at: usize,
    /// When to look for some in a full table.
    sweep_after: u64,
    most: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self::of(MOST)
    }
}

impl Table {
    fn of(most: usize) -> Self {
        let (cells, spare) = (HashMap::new(), Cell::default());
        Self { cells, spare, sweep_at: FEW.min(most), sweep_after: 0, most }
    }

    /// Where the cell of a key is, or would be.
    pub(super) fn place(&mut self, key: Key, now: u64) -> Place {
        if self.cells.contains_key(&key) {
            return Place::Own(key);
        }
        if self.cells.len() >= self.sweep_at && now >= self.sweep_after {
            self.cells.retain(|_, cell| !cell.is_idle(now));
            self.sweep_at = self.cells.len().saturating_mul(2).clamp(FEW.min(self.most), self.most);
            if self.cells.len() >= self.most {
                self.sweep_after = now.saturating_add(PAUSE);
            }
        }
        if self.cells.len() < self.most { Place::Own(key) } else { Place::Spare }
    }

    pub(super) fn cell(&self, place: Place) -> Cell {
        match place {
            Place::Own(key) => self.cells.get(&key).copied().unwrap_or_default(),
            Place::Spare => self.spare,
        }
    }

    pub(super) fn set(&mut self, place: Place, cell: Cell) {
        match place {
            Place::Own(key) => drop(self.cells.insert(key, cell)),
            Place::Spare => self.spare = cell,
        }
    }

    /// Keys with a cell of their own.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::{cell::Laws, meter::Law, settings::Quota};

    const SECOND: u64 = 1_000_000_000;

    fn key(number: usize) -> Key {
        Key::of([number.to_string().as_str()].into_iter())
    }

    /// One token, back after a second.
    fn laws() -> Laws {
        let one = 1.try_into().expect("more than zero");
        let quota = Quota::Rate { tokens: one, period: Duration::from_secs(1), burst: one };
        Laws { whole: Law::from(&quota), shared: None }
    }

    /// Takes a token, if there is one.
    fn take(table: &mut Table, number: usize, now: u64) -> bool {
        let place = table.place(key(number), now);
        match table.cell(place).take(&laws(), now, 1) {
            Ok(took) => {
                table.set(place, took.cell);
                true
            }
            Err(_) => false,
        }
    }

    #[test]
    fn a_full_table_gives_no_tokens_back() {
        let mut table = Table::of(10);
        for number in 0..10 {
            assert!(take(&mut table, number, SECOND), "{number}");
        }
        // All others share one token, however many they are.
        let served = (10..10_000).filter(|number| take(&mut table, *number, SECOND + 1)).count();
        assert_eq!((served, table.len()), (1, 10));
        for number in 0..10 {
            assert!(!take(&mut table, number, SECOND + 2), "{number} has none yet");
        }
        // When tokens are back there is room again, and as many keys as before.
        let later = 3 * SECOND;
        let served = (0..100).filter(|number| take(&mut table, *number, later)).count();
        assert_eq!((served, table.len()), (11, 10));
    }

    #[test]
    fn what_is_full_again_is_forgotten_in_time() {
        let mut table = Table::default();
        for number in 0..100_000 {
            let now = u64::try_from(number).expect("small") * SECOND / 100;
            assert!(take(&mut table, number, now), "{number}");
            // A hundred of them have something to remember at any time.
            assert!(table.len() <= 2 * FEW, "{} after {number}", table.len());
        }
    }
}
