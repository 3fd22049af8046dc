//! Errors with all that is behind them.

use std::{error::Error, fmt};

/// Shows an error and its causes in one line. It is for operators: a refused caller is told a kind, never this.
#[derive(Clone, Copy, Debug)]
pub struct Causes<'a>(pub &'a dyn Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}
