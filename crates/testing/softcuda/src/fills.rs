//! The macro that fills memory, as this CUDA has it: the software GPU's stand-in is loaded into the channel, and small memsets call it.
//!
//! What real ones have for its arguments is not known, so all of it can be set: `DOORBELL_SOFTCUDA_MACRO` has words of `value-last`, `words-less-one`
//! and `bytes`, with commas between them.

use graph_words::{COMPUTE, MacroCount, MacroForm};
use pushbuf::encode::{Error, Words};
use std::sync::OnceLock;

/// What the software GPU knows its stand-in by.
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

/// Its arguments for so many bytes.
pub(crate) fn arguments(value: u32, bytes: u32) -> [u32; 2] {
    form().arguments(value, bytes)
}
