//! What the logs are configured with.

use tracing::level_filters::LevelFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How lines are written.
    pub logs: Format,
    /// The least severe level that is written; the environment's `RUST_LOG` wins over it.
    pub level: LevelFilter,
}
