//! What the scanner takes, serde_json takes, and both read the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::json(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
