//! Splitting a stream loses nothing, wherever it was cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::sse(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
