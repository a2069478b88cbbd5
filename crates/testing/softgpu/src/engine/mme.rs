//! The macro engine of the compute class: instructions that a channel loads, and calls of them.
//!
//! It interprets no instructions. A macro whose first instruction words are a stand-in's ([`StandInMacro`]) is executed as that stand-in. All
//! others have no effect, so an inline write that waits for data of such a macro never ends.

use crate::standin::StandInMacro;

/// Words of instructions, and macros.
const INSTRUCTIONS: usize = 4096;
const MACROS: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Mme {
    instructions: Vec<u32>,
    at: usize,
    starts: Vec<u32>,
    start_at: usize,
    /// The called macro and the arguments received so far.
    called: Option<(usize, Vec<u32>)>,
}

impl Mme {
    pub fn point(&mut self, to: u32) {
        self.at = to as usize;
    }

    pub fn load(&mut self, word: u32) {
        put(&mut self.instructions, &mut self.at, word, INSTRUCTIONS);
    }

    pub fn point_starts(&mut self, to: u32) {
        self.start_at = to as usize;
    }

    pub fn load_start(&mut self, word: u32) {
        put(&mut self.starts, &mut self.start_at, word, MACROS);
    }

    /// CALL_MME_MACRO and CALL_MME_DATA of macro `index`: the value and the count of words of a fill whose arguments are complete now.
    pub fn argument(&mut self, index: usize, begins: bool, argument: u32) -> Option<(u32, u32)> {
        if begins {
            self.called = Some((index, Vec::new()));
        }
        let (called, arguments) = self.called.as_mut().filter(|(called, _)| *called == index)?;
        arguments.push(argument);
        let both = *<&[u32; 2]>::try_from(&arguments[..]).ok()?;
        let start = *self.starts.get(*called)? as usize;
        self.called = None;
        let [magic, form] = *self.instructions.get(start..)?.first_chunk::<2>()?;
        Some(StandInMacro::of_words([magic, form])?.fill(both))
    }
}

fn put(to: &mut Vec<u32>, at: &mut usize, word: u32, most: usize) {
    if *at < most {
        if to.len() <= *at {
            to.resize(*at + 1, 0);
        }
        to[*at] = word;
        *at += 1;
    }
}
