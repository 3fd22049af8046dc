//! Series of what a reload can take away: they go with the last who tells them.
//!
//! What replaces something may have its name, and both tell the same series while calls of the old one go on. So
//! it is counted who does.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How many tell the series of each name.
#[derive(Clone, Debug, Default)]
pub(super) struct Tellers(Arc<Mutex<HashMap<String, usize>>>);

impl Tellers {
    /// One more. `take_up` gets its handles while nobody takes the series out.
    pub(super) fn join<T>(&self, name: &str, take_up: impl FnOnce() -> T) -> T {
        let mut tellers = self.lock();
        *tellers.entry(name.to_owned()).or_default() += 1;
        take_up()
    }

    /// One less. If it was the last, `take_out` removes the series.
    pub(super) fn leave(&self, name: &str, take_out: impl FnOnce()) {
        let mut tellers = self.lock();
        let Entry::Occupied(mut count) = tellers.entry(name.to_owned()) else { return };
        *count.get_mut() = count.get().saturating_sub(1);
        if *count.get() == 0 {
            count.remove();
            take_out();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
