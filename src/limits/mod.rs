//! Rate limits, budgets and hours: how many calls, by whom, of what.
//!
//! A limit is a [`settings::Limit`]: which calls it is about, what tells them apart, and how many tokens there
//! are. A permitted call takes its tokens before the upstream hears of it: [`Limiter::count`] finds what it takes
//! of which limit, [`Counted::take`] takes from all of them or from none, so that a call that one limit refuses
//! costs nothing at another. A caller is told all limits that it is over, and the longest wait.
//!
//! Sans-io: the time is handed in, and a limit that replicas share says what it lacks ([`Shortage`]) to
//! whoever can ask the store and tells what came of it ([`Shortage::feed`]).
//!
//! | file | what |
//! |---|---|
//! | `subject` | what a call is counted by; which calls a limit is about |
//! | `limiter`, `counter` | all limits; one |
//! | `table`, `cell`, `meter`, `gcra` | the keys of a limit; one key; its count; the law of rates |
//! | `lease`, `demand` | what goes between a shared limit and the store; how much of it |
//! | `hours` | hours of a week |
//!
//! INVARIANT: what a call is counted by was verified, judged or configured; no header, and nothing that a caller
//! says of itself, gives it a count of its own. Memory is bounded, and running out of it gives no tokens back.

mod cell;
mod counter;
mod demand;
mod gcra;
pub mod hours;
mod key;
pub mod lease;
pub mod limited;
pub mod limiter;
mod meter;
pub mod settings;
pub mod subject;
mod table;

pub use hours::Hours;
pub use key::Key;
pub use lease::{Lease, Outcome, Shortage};
pub use limited::{Exceeded, Limited};
pub use limiter::{Counted, Limiter, Now, Taken, Untaken};
pub use settings::Limit;
pub use subject::{Callers, Subject, ToolName, Touched, When};

#[cfg(test)]
mod tests;
