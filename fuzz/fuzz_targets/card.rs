//! A card that was rewritten leads through Lictor, and only through it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::card(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
