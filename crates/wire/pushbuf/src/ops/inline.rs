//! Inline copies: the registers of the compute and inline-to-memory classes, and the data of recent inline copies.
//!
//! The CUDA driver writes a launch's QMD by an inline copy and then names its address. So the words of recent copies are remembered, in buffers of
//! fixed size: the newest [`RECORDS`] copies, the first [`WORDS_EACH`] words of each, [`WORDS`] words in all.

use crate::snapshot::Snapshot;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{At, Inline, Layout, Origin, Purpose, Semaphore, Span, address};
use crate::semaphore::{Operation, Reduction};

pub(super) const RECORDS: usize = 64;
pub(super) const WORDS_EACH: u32 = 4096;
pub(super) const WORDS: usize = 16384;

pub(super) const LAUNCH_DMA: u16 = 0x1b0;
pub(super) const LOAD_INLINE_DATA: u16 = 0x1b4;
const LINE_LENGTH_IN: u16 = 0x180;
const LINE_COUNT: u16 = 0x184;
const OFFSET_OUT_UPPER: u16 = 0x188;
const OFFSET_OUT: u16 = 0x18c;
const PITCH_OUT: u16 = 0x190;
const SET_I2M_SEMAPHORE_A: u16 = 0x1dc;
const SET_I2M_SEMAPHORE_B: u16 = 0x1e0;
pub(super) const SET_I2M_SEMAPHORE_C: u16 = 0x1e4;

/// An inline copy whose data is coming.
#[derive(Debug, Clone, Copy)]
pub(super) struct Active {
    pub(super) at: At,
    pub(super) class_id: u32,
    pub(super) guessed: bool,
    pub(super) inline: Inline,
}

impl Active {
    /// Words after which it is over: each line starts with a new word. (With one line, which is all that the CUDA driver was seen to write, this
    /// is certain; with several the class reference does not say whether lines are packed.)
    fn most_words(&self) -> u64 {
        u64::from(self.inline.line_length.div_ceil(4)) * u64::from(self.inline.line_count)
    }

    fn words(&self) -> u64 {
        self.inline.data.map_or(0, |d| u64::from(d.words))
    }

    pub(super) fn is_full(&self) -> bool {
        self.words() >= self.most_words()
    }

    /// Notes where the data is, and returns how many of the words belong to the copy.
    pub(super) fn take(&mut self, at: At, words: u32) -> u32 {
        let words = self.most_words().saturating_sub(self.words()).min(u64::from(words)) as u32;
        if words > 0 {
            let last = At { word: at.word.wrapping_add(words - 1), ..at };
            let span = self.inline.data.get_or_insert(Span { first: at, last, words: 0 });
            span.last = last;
            span.words += words;
        }
        words
    }

    pub(super) fn finish(mut self) -> Active {
        self.inline.complete = self.words() >= self.inline.bytes().div_ceil(4);
        self
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Registers {
    line_length: u32,
    line_count: u32,
    upper: u32,
    lower: u32,
    pitch: u32,
    semaphore: [u32; 3],
    /// Registers whose value is not known, a bit each in the order of their offsets.
    unknown: u8,
}

crate::snapshot!(Registers { line_length, line_count, upper, lower, pitch, semaphore, unknown });

impl Registers {
    pub(super) fn write(&mut self, offset: u16, value: u32) {
        let [a, b, c] = &mut self.semaphore;
        let (slot, bit) = match offset {
            LINE_LENGTH_IN => (&mut self.line_length, 0),
            LINE_COUNT => (&mut self.line_count, 1),
            OFFSET_OUT_UPPER => (&mut self.upper, 2),
            OFFSET_OUT => (&mut self.lower, 3),
            PITCH_OUT => (&mut self.pitch, 4),
            SET_I2M_SEMAPHORE_A => (a, 5),
            SET_I2M_SEMAPHORE_B => (b, 6),
            SET_I2M_SEMAPHORE_C => (c, 7),
            _ => return,
        };
        *slot = value;
        self.unknown &= !(1 << bit);
    }

    /// Words are missing: no register is known until it is written again.
    pub(super) fn forget(&mut self) {
        *self = Registers { unknown: u8::MAX, ..Registers::default() };
    }

    /// True if this LAUNCH_DMA uses a register that is not known. (The pitch counts with several lines only.)
    pub(super) fn guesses(&self, launch: u32) -> bool {
        let lines = if self.line_count > 1 { 1 << 4 } else { 0 };
        let semaphore = if launch >> 4 & 3 == 2 { 0b1110_0000 } else { 0 };
        self.unknown & (0b1111 | lines | semaphore) != 0
    }

    /// LAUNCH_DMA, +0x1B0.
    pub(super) fn launch(&self, launch: u32) -> Inline {
        let [upper, lower, payload] = self.semaphore;
        let reduction = Operation::Reduction {
            op: Reduction::graphics(launch >> 13 & 7),
            // REDUCTION_FORMAT: UNSIGNED_32, SIGNED_32.
            signed: launch >> 2 & 3 == 1,
        };
        let semaphore = (launch >> 4 & 3 == 2).then_some(Semaphore {
            origin: Origin::Inline,
            operation: if launch >> 1 & 1 != 0 { reduction } else { Operation::Release },
            address: address(upper, lower),
            payload: u64::from(payload),
            wide: false,
            timestamp: launch >> 12 & 1 == 0,
            wfi: true,
        });
        Inline {
            dst: address(self.upper, self.lower),
            line_length: self.line_length,
            line_count: self.line_count,
            dst_pitch: self.pitch,
            dst_layout: if launch & 1 != 0 { Layout::Pitch } else { Layout::BlockLinear },
            data: None,
            complete: false,
            by_macro: false,
            semaphore,
            purpose: Purpose::Data,
            launch,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Record {
    at: At,
    dst: u64,
    /// Index of the first word, counted from the first word ever remembered.
    start: u64,
    words: u32,
}

/// The data of recent inline copies.
#[derive(Debug, Clone)]
pub(super) struct Recent {
    records: Box<[Option<Record>]>,
    next: usize,
    words: Box<[u32]>,
    /// Words ever remembered.
    head: u64,
}

impl Recent {
    pub(super) fn new() -> Recent {
        Recent { records: vec![None; RECORDS].into(), next: 0, words: vec![0; WORDS].into(), head: 0 }
    }

    /// Writes what can still be read.
    pub(super) fn save(&self, to: &mut Vec<u8>) {
        let there = |r: &Record| self.head - r.start <= WORDS as u64;
        let records =
            self.records.iter().map(|r| r.filter(there).map(|r| (r.at.segment, r.at.word, r.dst, r.start, r.words)));
        let records: Vec<_> = records.collect();
        let oldest = records.iter().flatten().map(|r| r.3).min().unwrap_or(self.head);
        let word = |i: u64| self.words.get(i as usize % WORDS).copied().unwrap_or(0);
        (self.next, self.head, records, (oldest..self.head).map(word).collect::<Vec<u32>>()).save(to);
    }

    pub(super) fn load(from: &mut &[u8]) -> Option<Recent> {
        type Written = (u64, u32, u64, u64, u32);
        let mut recent = Recent::new();
        let (next, head, records, words): (usize, u64, Vec<Option<Written>>, Vec<u32>) = Snapshot::load(from)?;
        if next >= RECORDS || records.len() != RECORDS || words.len() > WORDS {
            return None;
        }
        let oldest = head.checked_sub(words.len() as u64)?;
        for (to, from) in recent.records.iter_mut().zip(records) {
            let Some((segment, word, dst, start, words)) = from else { continue };
            if start < oldest || start.checked_add(u64::from(words)).is_none_or(|end| end > head) {
                return None;
            }
            *to = Some(Record { at: At { segment, word }, dst, start, words });
        }
        for (i, word) in (oldest..head).zip(words) {
            recent.words[i as usize % WORDS] = word;
        }
        (recent.next, recent.head) = (next, head);
        Some(recent)
    }

    /// What was remembered may have been overwritten by copies that were not seen.
    pub(super) fn forget(&mut self) {
        self.records.fill(None);
    }

    /// A copy begins. Only a single line in pitch layout has the same layout in memory as in the stream.
    pub(super) fn begin(&mut self, at: At, inline: &Inline) {
        if inline.dst_layout == Layout::Pitch && inline.line_count <= 1 {
            self.next = (self.next + 1) % RECORDS;
            if let Some(slot) = self.records.get_mut(self.next) {
                *slot = Some(Record { at, dst: inline.dst, start: self.head, words: 0 });
            }
        }
    }

    /// Data of the copy that was begun at `at`. Copies on two subchannels that take turns word by word are not remembered.
    pub(super) fn append(&mut self, at: At, words: &[u32]) {
        let Some(Some(record)) = self.records.get_mut(self.next) else { return };
        if record.at != at || record.start + u64::from(record.words) != self.head {
            return;
        }
        let room = (WORDS_EACH - record.words.min(WORDS_EACH)) as usize;
        let words = words.get(..room).unwrap_or(words);
        for &word in words {
            if let Some(slot) = self.words.get_mut(self.head as usize % WORDS) {
                *slot = word;
            }
            self.head += 1;
        }
        record.words += words.len() as u32;
    }

    /// The words of memory from `address` on as far as recent copies wrote them, newest first, and the newest copy among them.
    pub(super) fn read<const N: usize>(&self, address: u64, into: &mut [u32; N]) -> (usize, Option<At>) {
        let mut known = [false; N];
        let (mut left, mut newest) = (N, None);
        let to = address.saturating_add(4 * N as u64);
        let newest_first = (0..RECORDS).map(|i| (self.next + RECORDS - i) % RECORDS);
        for record in newest_first.filter_map(|i| self.records.get(i).copied().flatten()) {
            let end = record.dst.saturating_add(4 * u64::from(record.words));
            let overwritten = self.head - record.start > WORDS as u64;
            let apart = record.dst >= to || end <= address;
            if overwritten || apart || !record.dst.abs_diff(address).is_multiple_of(4) {
                continue;
            }
            // Only the words that this copy wrote are looked at.
            let first = record.dst.max(address);
            let position = record.start + (first - record.dst) / 4;
            let (skip, count) = ((first - address) / 4, (end.min(to) - first).div_ceil(4));
            let from = position as usize % WORDS;
            let (skip, count) = (skip as usize, count as usize);
            // The usual case: one copy holds all that is asked for, in one piece.
            if left == N
                && let (Some(words), Some(to)) = (self.words.get(from..from + count), into.get_mut(skip..skip + count))
                && let Some(known) = known.get_mut(skip..skip + count)
            {
                to.copy_from_slice(words);
                known.fill(true);
                left -= count;
                newest = newest.or(Some(record.at));
                if left == 0 {
                    break;
                }
                continue;
            }
            let wanted = into.iter_mut().zip(&mut known).skip(skip).take(count);
            for (i, (word, known)) in wanted.enumerate().filter(|(_, (_, known))| !**known) {
                *word = self.words.get((from + i) % WORDS).copied().unwrap_or(0);
                *known = true;
                left -= 1;
                newest = newest.or(Some(record.at));
            }
            if left == 0 {
                break;
            }
        }
        (known.iter().take_while(|k| **k).count(), newest)
    }
}
