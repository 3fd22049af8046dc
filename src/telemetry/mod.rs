//! Clock, logs, metric names and secrets: what every other module may use.

pub mod clock;
pub mod logs;
pub mod metrics;
mod secret;
pub mod settings;

pub use clock::Clock;
pub use metrics::Metrics;
pub use secret::Secret;
pub use settings::{Format, Settings};
