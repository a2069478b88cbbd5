//! One channel's stream, parsed only as far as needed to separate data from everything else.

use super::kept::{Kept, Tables};
use super::{HOPPER_CHANNEL, put, word};
use pushbuf::class::Family;
use pushbuf::decode::{Decoder, Item, Run, Target, Write};
use pushbuf::gpfifo::Raw;
use pushbuf::header::Kind;
use pushbuf::qmd::{MAX_WORDS, Qmd};
use tape::event::{EntryBody, entry_flags, lack};

// Methods of compute classes and of A140, which agree where both have a method.
const LINE_LENGTH_IN: u16 = 0x180;
const LINE_COUNT: u16 = 0x184;
const OFFSET_OUT_UPPER: u16 = 0x188;
const OFFSET_OUT: u16 = 0x18c;
const LAUNCH_DMA: u16 = 0x1b0;
const LOAD_INLINE_DATA: u16 = 0x1b4;
const SEND_PCAS_A: u16 = 0x2b4;
const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;

/// Words of the smallest QMD (V03): the minimum size of what a launch names.
const QMD_WORDS: usize = 64;
/// A launch's QMD is looked for in this many inline copies, newest first.
const LOOK_BACK: usize = 64;
/// Minimum number of words in a segment that ends a doubt: fewer words match a header by chance too easily.
const ENOUGH: usize = 4;

/// Words or bits of an entry that are to be zeroed.
#[derive(Clone, Copy, Debug)]
pub enum Dropped {
    Words {
        first: u32,
        words: u32,
    },
    /// The 13 bits of data in an immediate header (28:16).
    Immediate {
        at: u32,
    },
    /// The low 29 bits of END_PB_SEGMENT, which the host ignores.
    Ignored {
        at: u32,
    },
}

impl Dropped {
    pub fn apply(self, words: &[u32], bytes: &mut [u8]) {
        match self {
            Dropped::Words { first, words } => {
                let from = 4 * first as usize;
                if let Some(b) = bytes.get_mut(from..from.saturating_add(4 * words as usize)) {
                    b.fill(0);
                }
            }
            Dropped::Immediate { at } => put(bytes, at, word(words, at) & !(0x1fff << 16)),
            Dropped::Ignored { at } => put(bytes, at, word(words, at) & 0xe000_0000),
        }
    }
}

/// Findings in one entry.
#[derive(Default)]
pub struct Found {
    pub drops: Vec<Dropped>,
    /// Words of QMDs within those, which stay. (A word may be in several runs.)
    pub qmds: Vec<Words>,
    /// Inline data that is stored in memory exactly as it is in the entry.
    data: Vec<Data>,
}

/// A run of words of an entry.
#[derive(Clone, Copy)]
pub struct Words {
    first: u32,
    words: u32,
}

impl Words {
    fn end(self) -> u32 {
        self.first.saturating_add(self.words)
    }
}

impl Found {
    /// Zeroes the drops in `bytes`, the words of the entry as they are in the event.
    pub fn apply(&self, words: &[u32], bytes: &mut [u8]) {
        self.drops.iter().for_each(|d| d.apply(words, bytes));
        for qmd in &self.qmds {
            let (first, end) = (qmd.first as usize, qmd.end() as usize);
            let to = bytes.get_mut(4 * first..).unwrap_or_default().chunks_exact_mut(4);
            to.zip(words.get(first..end).unwrap_or_default()).for_each(|(b, w)| b.copy_from_slice(&w.to_le_bytes()));
        }
    }

    /// Whether anything is zeroed, or would be if it were not already zero, apart from the words that stay.
    pub fn changes(&mut self) -> bool {
        let dropped: u64 =
            self.drops.iter().map(|d| if let Dropped::Words { words, .. } = d { u64::from(*words) } else { 1 }).sum();
        self.qmds.sort_unstable_by_key(|qmd| qmd.first);
        let (mut kept, mut until) = (0u64, 0);
        for qmd in &self.qmds {
            kept += u64::from(qmd.end().saturating_sub(qmd.first.max(until)));
            until = until.max(qmd.end());
        }
        dropped > kept
    }

    /// Word number `i` stays.
    fn keep(&mut self, i: u32) {
        match self.qmds.last_mut() {
            Some(run) if run.end() == i => run.words += 1,
            _ => self.qmds.push(Words { first: i, words: 1 }),
        }
    }
}

#[derive(Clone, Copy)]
struct Data {
    dst: u64,
    first: u32,
    words: u32,
}

/// State that was set in one subchannel's engine.
#[derive(Clone, Copy, Default)]
struct Registers {
    line_length: u32,
    line_count: u32,
    upper: u32,
    lower: u32,
    pcas: u32,
    /// The address for the next word of a one-line inline copy, and the number of words still missing.
    next: u64,
    left: u32,
}

pub struct Stream {
    decoder: Decoder,
    registers: [Registers; 8],
    class: u32,
    /// Counter of the next entry.
    next: u64,
    /// Whether the next word is a header is not known.
    doubt: bool,
    /// The entry that continues in the next event, and how many of its words have been seen.
    split: Option<(u64, u64)>,
    /// The entry's segment has already ended (END_PB_SEGMENT).
    ended: bool,
}

impl Stream {
    pub fn new(class: u32) -> Stream {
        let class = if class == 0 { HOPPER_CHANNEL } else { class };
        Stream {
            decoder: Decoder::new(class),
            registers: [Registers::default(); 8],
            class,
            next: 0,
            doubt: false,
            split: None,
            ended: false,
        }
    }

    /// Takes the next event of an entry. Returns true if `found` lists what is to be zeroed, and false if all its words
    /// are.
    pub fn entry(&mut self, body: &EntryBody, flags: u16, words: &[u32], kept: &Tables, found: &mut Found) -> bool {
        found.drops.clear();
        found.qmds.clear();
        found.data.clear();
        let continued = flags & entry_flags::CONTINUED != 0;
        let more = flags & entry_flags::MORE != 0;
        let before = match (continued, self.split.take()) {
            (true, Some((seq, before))) if seq == body.seq => before,
            (true, _) => {
                self.lose();
                return false;
            }
            (false, unfinished) => {
                if unfinished.is_some() {
                    self.lose();
                }
                if body.seq == 0 && self.next != 0 {
                    // The slot's next channel. Its announcement is in another thread's ring.
                    *self = Stream::new(self.class);
                }
                if body.seq != self.next {
                    self.lose();
                }
                self.next = body.seq.wrapping_add(1);
                self.ended = false;
                0
            }
        };
        if flags & entry_flags::LATE != 0 {
            // These words may belong to another entry.
            self.lose();
        }
        let seen = before.saturating_add(words.len() as u64);
        let wanted = Raw(body.gp).words() as u64;
        if more {
            self.split = Some((body.seq, seen));
        }
        if self.ended || words.is_empty() {
            if seen < wanted && !more && !self.ended {
                self.lose();
            }
            return false;
        }
        // (A large segment is recorded as an event without words and then one with all words.)
        let whole = before == 0 && !more;
        let known = self.pass(words, whole, kept, found);
        if !more && (seen != wanted || body.lack != lack::NONE) && !self.ended {
            self.lose();
        }
        known
    }

    /// Marks the stream as out of step.
    pub fn lose(&mut self) {
        self.decoder.resynchronise();
        self.registers = [Registers::default(); 8];
        self.doubt = true;
    }

    fn pass(&mut self, words: &[u32], whole: bool, kept: &Tables, found: &mut Found) -> bool {
        // A split entry cannot be parsed as a whole.
        if self.doubt && (!whole || words.len() < ENOUGH) {
            return false;
        }
        let bound = self.decoder.clone();
        let mut pass = Pass {
            registers: &mut self.registers,
            kept,
            found,
            words,
            whole,
            last: None,
            out_of_step: None,
            unknown: false,
            ended: false,
        };
        self.decoder.segment(words, |item| pass.item(&item));
        let Pass { out_of_step, unknown, ended, .. } = pass;
        self.ended = ended;
        if self.doubt {
            if unknown || out_of_step.is_some() || self.decoder.pending().is_some() {
                self.decoder = bound;
                self.lose();
                return false;
            }
            self.doubt = false;
        }
        if let Some(at) = out_of_step {
            found.drops.push(Dropped::Words { first: at, words: (words.len() as u32).saturating_sub(at) });
            found.qmds.iter_mut().for_each(|qmd| qmd.words = qmd.words.min(at.saturating_sub(qmd.first)));
            self.decoder = bound;
            self.lose();
        }
        true
    }
}

/// One way through the words of an entry.
struct Pass<'a> {
    registers: &'a mut [Registers; 8],
    kept: &'a Tables,
    found: &'a mut Found,
    words: &'a [u32],
    /// All words of the entry are present.
    whole: bool,
    /// The most recent lookup of kept methods, and its target.
    last: Option<(u32, u8, bool, Kept<'a>)>,
    /// The first word that is no header where one must be.
    out_of_step: Option<u32>,
    /// A method that no table has.
    unknown: bool,
    ended: bool,
}

impl<'a> Pass<'a> {
    fn item(&mut self, item: &Item<'_>) {
        if self.out_of_step.is_some() {
            return;
        }
        match item {
            Item::Write(w) => self.write(w),
            Item::Run(r) => self.run(r),
            // A header for no words still has 16 bits without meaning.
            Item::Nop { word: 0, .. } | Item::SubdeviceMask { .. } => {}
            Item::Nop { word_index, .. } => self.drop(*word_index, 1),
            Item::EndSegment { word_index, word } => {
                self.ended = true;
                if word & 0x1fff_ffff != 0 {
                    self.found.drops.push(Dropped::Ignored { at: *word_index });
                }
            }
            Item::Skipped { word_index, words } => self.drop(*word_index, words.len() as u32),
            Item::Unknown { word_index, .. } => {
                self.out_of_step = Some(*word_index);
            }
        }
    }

    fn drop(&mut self, first: u32, words: u32) {
        if words > 0 {
            self.found.drops.push(Dropped::Words { first, words });
        }
    }

    #[inline]
    fn kept(&mut self, target: &Target, host: bool) -> Kept<'a> {
        match self.last {
            Some((class, subch, h, kept)) if (class, subch, h) == (target.class_id, target.subch, host) => kept,
            _ => {
                let kept = self.kept.of(target, host);
                self.last = Some((target.class_id, target.subch, host, kept));
                kept
            }
        }
    }

    #[inline]
    fn write(&mut self, w: &Write) {
        if !self.kept(&w.target, w.host).keeps(w.address) {
            self.payload(w);
        } else if !w.host && (LINE_LENGTH_IN..=SEND_SIGNALING_PCAS2_B).contains(&w.address) {
            self.remember(w);
        }
    }

    #[inline(never)]
    fn payload(&mut self, w: &Write) {
        if w.kind == Kind::Immediate {
            self.found.drops.push(Dropped::Immediate { at: w.word_index });
        } else {
            self.drop(w.word_index, 1);
        }
        if is_inline_data(&w.target, w.address, w.host) {
            // (An immediate's data is its 13 bits, not this word. No part of a QMD is sent that way.)
            let words = u32::from(w.kind != Kind::Immediate);
            self.inline(w.target.subch, w.word_index, words.max(1), words > 0);
        } else {
            self.unknown |= !known(&w.target, w.address, w.host);
        }
    }

    fn run(&mut self, r: &Run<'_>) {
        if self.kept(&r.target, r.host).keeps(r.address) {
            if !r.host && (LINE_LENGTH_IN..=SEND_SIGNALING_PCAS2_B).contains(&r.address) {
                r.writes().for_each(|w| self.remember(&w));
            }
            return;
        }
        let words = r.words.len() as u32;
        self.drop(r.word_index, words);
        if is_inline_data(&r.target, r.address, r.host) {
            self.inline(r.target.subch, r.word_index, words, true);
        } else {
            self.unknown |= !known(&r.target, r.address, r.host);
        }
    }

    /// Data of the inline copy in progress.
    fn inline(&mut self, subch: u8, first: u32, words: u32, whole_words: bool) {
        let r = &mut self.registers[usize::from(subch & 7)];
        let words = words.min(r.left);
        if words > 0 && whole_words {
            self.found.data.push(Data { dst: r.next, first, words });
        }
        r.next = r.next.wrapping_add(4 * u64::from(words));
        r.left -= words;
    }

    /// Updates the registers of inline copies and launches.
    #[inline(never)]
    fn remember(&mut self, w: &Write) {
        let Target { subch, class_id, .. } = w.target;
        if !matches!(Family::answering(subch, class_id), Some(Family::Compute | Family::InlineToMemory)) {
            return;
        }
        let r = &mut self.registers[usize::from(subch & 7)];
        match w.address {
            LINE_LENGTH_IN => r.line_length = w.value,
            LINE_COUNT => r.line_count = w.value,
            OFFSET_OUT_UPPER => r.upper = w.value,
            OFFSET_OUT => r.lower = w.value,
            LAUNCH_DMA => {
                // DST_MEMORY_LAYOUT=PITCH and one line: words have the same layout in memory as in the stream.
                let flat = w.value & 1 != 0 && r.line_count <= 1;
                r.next = u64::from(r.upper & 0x01ff_ffff) << 32 | u64::from(r.lower);
                r.left = if flat { r.line_length.div_ceil(4) } else { 0 };
            }
            SEND_PCAS_A => r.pcas = w.value,
            SEND_SIGNALING_PCAS_B if w.value >> 1 & 1 != 0 => self.launch(subch, class_id),
            // The actions that schedule.
            SEND_SIGNALING_PCAS2_B if matches!(w.value & 15, 2 | 3 | 9 | 10) => self.launch(subch, class_id),
            _ => {}
        }
    }

    /// A launch of the QMD that SEND_PCAS_A named. The QMD's words stay if they were written in this segment.
    fn launch(&mut self, subch: u8, class_id: u32) {
        if !self.whole {
            return;
        }
        let qmd = u64::from(self.registers[usize::from(subch & 7)].pcas) << 8;
        let end = qmd.saturating_add(4 * MAX_WORDS as u64);
        let until = |d: &Data| d.dst.saturating_add(4 * u64::from(d.words));
        let mut writes = self.found.data.iter().rev().take(LOOK_BACK).filter(|d| {
            let (from, to) = (d.dst.max(qmd), until(d).min(end));
            from < to && d.dst.is_multiple_of(4)
        });
        let Some(newest) = writes.next().copied() else { return };
        // Nearly always there is one inline copy, of the QMD alone. The general way gives the same result.
        let from = newest.first as usize;
        if newest.dst == qmd
            && writes.next().is_none()
            && let Some(words) = self.words.get(from..from + (newest.words as usize).min(MAX_WORDS))
        {
            let len = match words.len() {
                MAX_WORDS => length(class_id, words),
                n => {
                    let mut padded = [0u32; MAX_WORDS];
                    padded.get_mut(..n).unwrap_or_default().copy_from_slice(words);
                    length(class_id, &padded)
                }
            };
            let words = words.len().min(len) as u32;
            return self.found.qmds.push(Words { first: newest.first, words });
        }
        let (mut words, mut places) = ([0u32; MAX_WORDS], [None; MAX_WORDS]);
        for d in self.found.data.iter().rev().take(LOOK_BACK) {
            let (from, to) = (d.dst.max(qmd), until(d).min(end));
            if from >= to || d.dst % 4 != 0 {
                continue;
            }
            for address in (from..to).step_by(4) {
                let i = ((address - qmd) / 4) as usize;
                let place = d.first.saturating_add(((address - d.dst) / 4) as u32);
                if let (Some(slot @ None), Some(to)) = (places.get_mut(i), words.get_mut(i)) {
                    *slot = Some(place);
                    *to = word(self.words, place);
                }
            }
        }
        places.iter().take(length(class_id, &words)).flatten().for_each(|&place| self.found.keep(place));
    }
}

/// The number of words of a QMD, by its version.
fn length(class_id: u32, words: &[u32]) -> usize {
    Qmd::parse_for(class_id, words).map_or(QMD_WORDS, |q| q.words().len().max(QMD_WORDS))
}

fn is_inline_data(target: &Target, address: u16, host: bool) -> bool {
    !host
        && address == LOAD_INLINE_DATA
        && matches!(Family::answering(target.subch, target.class_id), Some(Family::Compute | Family::InlineToMemory))
}

/// Whether a class table has the method (then it was dropped for its payload).
fn known(target: &Target, address: u16, host: bool) -> bool {
    if target.class.is_some() {
        return target.method(address).is_some();
    }
    let wanted = if host { Some(Family::Host) } else { Family::answering(target.subch, target.class_id) };
    wanted.is_some() && pushbuf::class::ALL.iter().any(|c| c.family() == wanted && c.method(address).is_some())
}
