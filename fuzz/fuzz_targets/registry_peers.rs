#![no_main]

#[path = "../../tests/it/fuzz/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|text: &str| targets::registry_peers(text));
