//! [`Secret`]: a value that no log line can hold.

/// A token, password or key. It has neither `Display` nor `Debug`, so a line that would print it, or
/// something that holds it, doesn't compile.
///
/// ```compile_fail,E0277
/// let token = lictor::telemetry::Secret::new("hunter2");
/// println!("{token:?}");
/// ```
///
/// ```compile_fail,E0277
/// let token = lictor::telemetry::Secret::new("hunter2");
/// println!("{token}");
/// ```
#[derive(Clone)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Keeps a value out of sight.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for whoever it is meant for.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}
