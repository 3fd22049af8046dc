//! A segment that somebody else wrote: verification and listing end with a verdict, never with a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::ledger(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
