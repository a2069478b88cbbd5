//! `cargo +nightly fuzz run everything`, in `crates/wire/pushbuf`.
#![no_main]

#[path = "../everything.rs"]
mod everything;

libfuzzer_sys::fuzz_target!(|data: &[u8]| everything::check(data));
