//! Clock, logs and metric names: what every other module may use.

pub mod clock;
pub mod logs;
pub mod metrics;
pub mod settings;

pub use clock::Clock;
pub use metrics::Metrics;
pub use settings::{Format, Settings};
