//! No answer of an agent makes the reader panic, and a list that was cut can be read.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::a2a_answer(data));

#[expect(dead_code, reason = "each target checks one law")]
#[path = "checks.rs"]
mod checks;
