//! No request makes the decoder panic, and what it takes is forwarded as it came.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::mcp(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
