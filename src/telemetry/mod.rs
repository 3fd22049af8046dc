//! Clock, logs, errors as operators see them, metric names and secrets: what every other module may use.

mod causes;
pub mod clock;
pub mod logs;
pub mod metrics;
mod secret;
pub mod settings;

pub use causes::Causes;
pub use clock::Clock;
pub use metrics::Metrics;
pub use secret::Secret;
pub use settings::{Format, Settings};
