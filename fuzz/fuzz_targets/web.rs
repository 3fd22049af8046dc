//! No request makes the decoder of plain HTTP panic, and what is sent in place of its target is the same call.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::web(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
