//! What has the form of a hop is read alike by others, and has no second form.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::delegation(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
