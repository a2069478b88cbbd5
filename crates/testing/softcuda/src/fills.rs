//! The macro that fills memory, in this libcuda: the software GPU's stand-in is loaded into the channel, and small memsets call it.
//!
//! The arguments of real macros are unknown, so all of them can be set: `DOORBELL_SOFTCUDA_MACRO` has words of `value-last`, `words-less-one` and
//! `bytes`, separated by commas.

use cuda_graph::words::{COMPUTE, MacroCount, MacroForm};
use pushbuf::encode::{Error, Words};
use std::sync::OnceLock;

/// The software GPU recognises its stand-in by this word.
const MAGIC: u32 = u32::from_le_bytes(*b"fill");
const LOAD_MME_INSTRUCTION_RAM_POINTER: u16 = 0x114;
const LOAD_MME_INSTRUCTION_RAM: u16 = 0x118;
const LOAD_MME_START_ADDRESS_RAM_POINTER: u16 = 0x11c;

fn form() -> MacroForm {
    static FORM: OnceLock<MacroForm> = OnceLock::new();
    *FORM.get_or_init(|| {
        let said = std::env::var("DOORBELL_SOFTCUDA_MACRO").unwrap_or_default();
        let has = |word: &str| said.split(',').any(|said| said == word);
        let count = match () {
            () if has("bytes") => MacroCount::Bytes,
            () if has("words-less-one") => MacroCount::WordsLessOne,
            () => MacroCount::Words,
        };
        MacroForm { value_last: has("value-last"), count }
    })
}

/// Loads it as macro 0.
pub(crate) fn load(w: &mut Words<'_>) -> Result<(), Error> {
    let form = form();
    let form = u32::from(form.value_last) | (form.count as u32) << 1;
    w.inc(COMPUTE, LOAD_MME_INSTRUCTION_RAM_POINTER, &[0])?;
    w.non_inc(COMPUTE, LOAD_MME_INSTRUCTION_RAM, &[MAGIC, form])?;
    w.inc(COMPUTE, LOAD_MME_START_ADDRESS_RAM_POINTER, &[0, 0])
}

/// The macro's arguments for this many bytes.
pub(crate) fn arguments(value: u32, bytes: u32) -> [u32; 2] {
    form().arguments(value, bytes)
}
