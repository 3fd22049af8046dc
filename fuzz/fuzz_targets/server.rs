//! No message of a server makes the decoder panic, and what the cheap look lets pass asks for nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::server(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
