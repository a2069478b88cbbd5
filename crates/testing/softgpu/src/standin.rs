//! Stand-in kernels and macros: code that this GPU can run.
//!
//! No instructions are interpreted. If a QMD's program address holds the bytes of a [`StandIn`], its operation runs with the parameters in constant
//! bank 0 from [`PARAMETERS`] on, laid out as a C compiler lays out a kernel's arguments. Other code has no effect.

/// The first bytes of the code.
pub const MAGIC: &[u8; 16] = b"soft kernel code";
/// Where parameters begin in constant bank 0.
pub const PARAMETERS: u64 = 0x210;
/// The place in constant bank 0 with the address of its first parameter, for kernels that take the address of one; 0 there: it is not given.
pub const FIRST_PARAMETER: u64 = 0x198;

/// What a stand-in does. Pointers are GPU addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Nothing = 0,
    /// `(u32 *to)`: adds the threads of the grid.
    Add = 1,
    /// `(u32 *to, u32 value)`: stores.
    Store = 2,
    /// `(u32 *log, u32 value)`: `log[1 + log[0]] = value`, then `log[0] += 1`: the order in which kernels ran.
    Log = 3,
    /// `(void *to, void *from, u32 bytes)`: copies.
    Copy = 4,
    /// `(u32 *buffer, u32 check, u32 expected, u32 write, u32 next, u64 *wrong)`: compares `check` words with the pattern of seed `expected`, counts those
    /// that differ in `wrong`, and writes `write` words of the pattern of seed `next`. As in `examples/c/ordered.c`.
    Step = 5,
    /// `(u32 *to, u32 *word)`: adds 1, and stores the sum in `word` too.
    CountAndTell = 6,
}

impl Operation {
    const ALL: [Operation; 7] = [
        Operation::Nothing,
        Operation::Add,
        Operation::Store,
        Operation::Log,
        Operation::Copy,
        Operation::Step,
        Operation::CountAndTell,
    ];

    /// Bytes of its parameters.
    pub fn parameter_bytes(self) -> usize {
        match self {
            Operation::Nothing => 0,
            Operation::Add => 8,
            Operation::Store | Operation::Log => 12,
            Operation::Copy => 20,
            Operation::Step => 32,
            Operation::CountAndTell => 16,
        }
    }
}

/// One kernel's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandIn {
    pub operation: Operation,
    /// The minimum number of turns of the GPU's thread for which it stays active; each takes about a microsecond without other work.
    pub turns: u32,
}

impl StandIn {
    pub const BYTES: usize = 24;

    pub fn new(operation: Operation) -> StandIn {
        StandIn { operation, turns: 0 }
    }

    /// The bytes that must be at the program address.
    pub fn code(self) -> [u8; StandIn::BYTES] {
        let mut code = [0; StandIn::BYTES];
        code[..16].copy_from_slice(MAGIC);
        code[16..20].copy_from_slice(&(self.operation as u32).to_le_bytes());
        code[20..].copy_from_slice(&self.turns.to_le_bytes());
        code
    }

    /// `None`: other code. `Err`: a stand-in with this unknown operation number.
    pub fn parse(code: &[u8]) -> Option<Result<StandIn, u32>> {
        let rest = code.strip_prefix(MAGIC)?;
        let word = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let (number, turns) = (word(0)?, word(4)?);
        let operation = Operation::ALL.into_iter().find(|operation| *operation as u32 == number);
        Some(operation.map(|operation| StandIn { operation, turns }).ok_or(number))
    }
}

/// Instructions of the macro engine that this GPU can run: a fill, which repeats a word as the data of the preceding inline write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandInMacro {
    /// The value is the second argument, not the first.
    pub value_last: bool,
    pub count: MacroCount,
    /// It does something else: it writes the complement of each word.
    pub complements: bool,
}

/// What the other argument counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MacroCount {
    #[default]
    Words = 0,
    WordsLessOne = 1,
    Bytes = 2,
}

impl StandInMacro {
    pub const MAGIC: u32 = u32::from_le_bytes(*b"fill");

    /// The words that LOAD_MME_INSTRUCTION_RAM loads where the macro begins.
    pub fn words(self) -> [u32; 2] {
        let form = u32::from(self.value_last) | (self.count as u32) << 1 | u32::from(self.complements) << 3;
        [StandInMacro::MAGIC, form]
    }

    /// `None`: other instructions.
    pub fn of_words([magic, form]: [u32; 2]) -> Option<StandInMacro> {
        let count = match form >> 1 & 3 {
            0 => MacroCount::Words,
            1 => MacroCount::WordsLessOne,
            2 => MacroCount::Bytes,
            _ => return None,
        };
        let of = StandInMacro { value_last: form & 1 != 0, count, complements: form >> 3 & 1 != 0 };
        (magic == StandInMacro::MAGIC && form >> 4 == 0).then_some(of)
    }

    /// The word and its number of repetitions, from both arguments.
    pub(crate) fn fill(self, [first, second]: [u32; 2]) -> (u32, u32) {
        let (value, count) = if self.value_last { (second, first) } else { (first, second) };
        let words = match self.count {
            MacroCount::Words => count,
            MacroCount::WordsLessOne => count.saturating_add(1),
            MacroCount::Bytes => count.div_ceil(4),
        };
        (if self.complements { !value } else { value }, words)
    }
}

/// Parameters of [`Operation::Store`] and [`Operation::Log`]; the first 8 bytes are those of [`Operation::Add`].
pub fn pointer_and_word(to: u64, value: u32) -> Vec<u8> {
    [&to.to_le_bytes()[..], &value.to_le_bytes()].concat()
}

/// Parameters of [`Operation::Copy`].
pub fn copy(to: u64, from: u64, bytes: u32) -> Vec<u8> {
    [&to.to_le_bytes()[..], &from.to_le_bytes(), &bytes.to_le_bytes()].concat()
}

/// Word `index` of the pattern of a seed ([`Operation::Step`]).
pub fn pattern(seed: u32, index: u32) -> u32 {
    seed.wrapping_mul(0x9e37_79b1) ^ index.wrapping_mul(0x85eb_ca6b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_back_and_other_code_is_none() {
        for operation in Operation::ALL {
            let code = StandIn { operation, turns: 7 };
            assert_eq!(StandIn::parse(&code.code()), Some(Ok(code)));
        }
        let mut unknown = StandIn::new(Operation::Add).code();
        unknown[16] = 99;
        assert_eq!(StandIn::parse(&unknown), Some(Err(99)));
        assert_eq!(StandIn::parse(&[0; StandIn::BYTES]), None);
        assert_eq!(StandIn::parse(&unknown[..20]), None);
    }
}
