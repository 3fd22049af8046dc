//! The doors: where callers connect, and how they prove who they are.

mod arrival;
mod bind;
mod limit;
mod peer;
mod refusals;
pub mod settings;
pub mod shield;
pub mod tls;

pub use arrival::{Application, Idle};
pub use bind::Bound;
pub use limit::{Connections, Limited};
pub use peer::{begun, peer};
pub use refusals::OnRefusal;
pub use settings::{Direction, Door, Settings};
pub use shield::Shield;
