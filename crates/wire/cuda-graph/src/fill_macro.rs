//! Fills by a macro of the engine: CUDA fills up to 4 KiB in a stream by an inline write whose data is brought by its macro 0.
//!
//! The macro has two arguments, a value and a count, and its code is the driver's. No document gives the order of the arguments, or the unit of the
//! count. doorbell derives them from fills whose value and length are known ([`FillMacro::derive`]), or from the lengths that the words give next
//! to the arguments ([`FillMacro::of_calls`]). Unless exactly one reading explains all of them, no reading is derived.

use crate::step::Memset;

/// The driver's macro, of those that it loads.
pub(crate) const INDEX: u32 = 0;

/// How the arguments of the macro are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FillMacro {
    pub value: Argument,
    pub count: CountIn,
}

/// One of the macro's two arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Argument {
    First,
    Second,
}

/// What the other argument counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CountIn {
    Words,
    /// The count is one less than the number of words.
    WordsLessOne,
    Bytes,
}

/// A call of the macro as found in the words: an inline write of so many bytes, with two arguments in place of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FillCall {
    pub address: u64,
    pub bytes: u32,
    /// The LAUNCH_DMA word.
    pub launch: u32,
    pub arguments: [u32; 2],
}

impl FillMacro {
    /// All readings that are considered.
    pub const ALL: [FillMacro; 6] = {
        use Argument::{First, Second};
        use CountIn::{Bytes, Words, WordsLessOne};
        [
            FillMacro { value: First, count: Words },
            FillMacro { value: First, count: WordsLessOne },
            FillMacro { value: First, count: Bytes },
            FillMacro { value: Second, count: Words },
            FillMacro { value: Second, count: WordsLessOne },
            FillMacro { value: Second, count: Bytes },
        ]
    };

    /// Derives the reading from fills by CUDA, each with the word that CUDA was given to fill with. `None` unless exactly one reading explains at
    /// least two lengths.
    pub fn derive(fills: &[(FillCall, u32)]) -> Option<FillMacro> {
        only(fills.iter().map(|(call, _)| call), |of| fills.iter().all(|(call, value)| of.value(call) == Some(*value)))
    }

    /// From calls whose values are not known, by their lengths alone. Strict in the same way.
    pub fn of_calls(calls: &[FillCall]) -> Option<FillMacro> {
        only(calls.iter(), |of| calls.iter().all(|call| of.value(call).is_some()))
    }

    /// The word that a call fills with, if its count is what its bytes ask for. (Of bytes that are no whole words the last word's first bytes are
    /// written, as of any inline write; how a macro that counts bytes rounds them is not known.)
    pub fn value(self, call: &FillCall) -> Option<u32> {
        let [first, second] = call.arguments;
        let (value, count) = match self.value {
            Argument::First => (first, second),
            Argument::Second => (second, first),
        };
        let words = call.bytes.div_ceil(4);
        let right = match self.count {
            CountIn::Words => count == words,
            CountIn::WordsLessOne => count.checked_add(1) == Some(words),
            CountIn::Bytes => count == call.bytes && call.bytes.is_multiple_of(4),
        };
        (right && words > 0).then_some(value)
    }

    pub(crate) fn memset(self, call: &FillCall) -> Option<Memset> {
        let FillCall { address, bytes, launch, arguments } = *call;
        Some(Memset { address, bytes, value: self.value(call)?, launch, arguments })
    }
}

/// The one way of reading that explains all, if there are two lengths at least.
fn only<'a>(mut calls: impl Iterator<Item = &'a FillCall>, explains: impl Fn(&FillMacro) -> bool) -> Option<FillMacro> {
    let first = calls.next()?;
    if calls.all(|call| call.bytes == first.bytes) {
        return None;
    }
    let mut all = FillMacro::ALL.into_iter().filter(explains);
    let only = all.next()?;
    all.next().is_none().then_some(only)
}
