//! Fills by the macro of the engine, in the stream or in a graph.

use crate::words::COMPUTE;
use pushbuf::encode::{Error, Words, inline_dma, offset};

/// What the macro's arguments are. (CUDA's own order and count are not known.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacroForm {
    pub value_last: bool,
    pub count: MacroCount,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MacroCount {
    #[default]
    Words = 0,
    WordsLessOne = 1,
    Bytes = 2,
}

impl MacroForm {
    /// The two arguments for so many bytes of a word.
    pub fn arguments(self, value: u32, bytes: u32) -> [u32; 2] {
        let count = match self.count {
            MacroCount::Words => bytes.div_ceil(4),
            MacroCount::WordsLessOne => bytes.div_ceil(4) - 1,
            MacroCount::Bytes => bytes,
        };
        if self.value_last { [count, value] } else { [value, count] }
    }
}

/// Most bytes that CUDA was seen to fill in this way.
pub const MOST_BY_MACRO: u32 = 4096;

/// An inline write whose data the macro brings.
pub fn fill(w: &mut Words<'_>, at: u64, bytes: u32, arguments: [u32; 2]) -> Result<(), Error> {
    w.inc(COMPUTE, offset::INLINE_LINE_LENGTH_IN, &[bytes, 1, (at >> 32) as u32, at as u32])?;
    w.inc(COMPUTE, offset::INLINE_LAUNCH_DMA, &[inline_dma::PITCH | inline_dma::NO_SYSMEMBAR])?;
    w.one_inc(COMPUTE, offset::CALL_MME_MACRO, &arguments)
}
