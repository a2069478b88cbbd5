//! Has a kernel's QMD store when the kernel ended, in words that its program left unused.
//!
//! Version 4.0 (class 0xcbc0) has three release semaphores. CUDA 13 leaves at least the last one free, in launches and in nodes of graphs. A release of four
//! words carries a time stamp (RELEASE_STRUCTURE_SIZE 0). Seen on an H100: 41,261 of 41,261 kernels stored their end, with the same results.

use crate::header::{self, Header, Kind};

/// Words of a QMD of version 4.0, and the word that holds the version.
const WORDS: usize = super::MAX_WORDS;
/// Words of a QMD before version 4.
const OLD_WORDS: usize = 64;
const VERSION_AT: usize = 18;
const VERSION: u32 = 0x40;
/// QMD_TYPE 25:23: 0 is a queue, 1 has no blocks, 2 to 5 are grids.
const TYPE_SHIFT: u32 = 23;
/// GRID_WIDTH; GRID_HEIGHT and GRID_DEPTH are the lower halves of the next two words.
const GRID_AT: usize = 32;
/// RELEASE_ENABLE(i) and the fields after it take 16 bits from bit 320 + 16 i on; RELEASE_SEMAPHOREi_ADDR_LOWER is word 20 + 4 i. The last release
/// first.
const RELEASES: [Release; 2] = [Release { word: 11, shift: 0, at: 28 }, Release { word: 10, shift: 16, at: 24 }];
impl Release {
    fn is_enabled(&self, at: usize, word: impl Fn(usize) -> u32) -> bool {
        word(at + self.word) >> self.shift & 1 != 0
    }

    fn slot(&self, at: usize, word: impl Fn(usize) -> u32) -> u64 {
        u64::from(word(at + self.at)) | (u64::from(word(at + self.at + 1)) & UPPER) << 32
    }
}

/// RELEASE_SEMAPHOREi_ADDR_UPPER has 25 bits.
const UPPER: u64 = 0x1ff_ffff;

struct Release {
    word: usize,
    shift: u32,
    at: usize,
}

/// Methods of the compute class (0xcbc0).
pub const LINE_LENGTH_IN: u16 = 0x180;
const LINE_COUNT: u16 = 0x184;
const OFFSET_OUT_UPPER: u16 = 0x188;
const OFFSET_OUT: u16 = 0x18c;
pub const LAUNCH_DMA: u16 = 0x1b0;
pub const LOAD_INLINE_DATA: u16 = 0x1b4;
pub const SEND_PCAS_A: u16 = 0x2b4;
/// CALL_MME_MACRO(0) and all after it.
const MACROS: u16 = 0x3800;
const INLINE_QMD_ADDRESS_A: u16 = 0x318;
const INLINE_QMD_ADDRESS_B: u16 = 0x31c;
const LOAD_INLINE_QMD_DATA: u16 = 0x320;

/// Maximum number of QMDs of one segment that are written but not yet handed to the scheduler. CUDA hands over each QMD right after its write.
const WAITING: usize = 4;

/// What a segment contains at a QMD's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Version 4.0, with blocks.
    Kernel(Written),
    /// Version 4.0, without blocks: it only orders or starts others.
    Order(Written),
    /// Another version, or a QMD in methods (LOAD_INLINE_QMD_DATA): never changed.
    OtherVersion(Written),
}

/// A QMD that a segment writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Its GPU address.
    pub address: u64,
    /// The index of its first word in the segment.
    pub at: usize,
}

/// Finds the QMDs that a segment of `length` words writes and then hands to the compute scheduler (SEND_PCAS_A with their address). Bytes of the
/// program that merely look like a QMD are not reported, because no method schedules them. `word` reads one of the segment's words.
pub fn find(length: usize, mut word: impl FnMut(usize) -> u32, mut found: impl FnMut(Found)) {
    // Their addresses, and where they begin in the segment (0: none); a new one overwrites the oldest.
    let (mut addresses, mut places, mut next) = ([0u64; WAITING], [0usize; WAITING], 0usize);
    let mut lengths = [0usize; WAITING];
    let (mut upper, mut lower, mut bytes, mut lines) = (0u32, 0u32, 0u32, 0u32);
    let (mut qmd_upper, mut qmd_lower) = (0u32, 0u32);
    let mut i = 0;
    while i < length {
        let header = Header::parse(word(i));
        i += 1;
        let (kind, address, count) = match header {
            Header::Methods { kind, address, count, .. } => (kind, address, usize::from(count)),
            Header::EndSegment { .. } => return,
            Header::Immediate { address, value, .. } => {
                match address {
                    LINE_LENGTH_IN => bytes = value.into(),
                    LINE_COUNT => lines = value.into(),
                    _ => {}
                }
                continue;
            }
            _ => continue,
        };
        if count > length - i {
            return;
        }
        if address == LOAD_INLINE_DATA {
            if kind != Kind::Inc && [OLD_WORDS, WORDS].contains(&count) && bytes as usize == 4 * count && lines == 1 {
                let n = next % WAITING;
                addresses[n] = u64::from(upper) << 32 | u64::from(lower);
                (places[n], lengths[n]) = (i, count);
                next += 1;
            }
        } else if matches!(kind, Kind::Inc) && (INLINE_QMD_ADDRESS_A..=LOAD_INLINE_QMD_DATA).contains(&address) {
            for k in 0..count.min(3) {
                match address + 4 * k as u16 {
                    INLINE_QMD_ADDRESS_A => qmd_upper = word(i + k),
                    INLINE_QMD_ADDRESS_B => qmd_lower = word(i + k),
                    LOAD_INLINE_QMD_DATA if count - k >= OLD_WORDS => {
                        let address = (u64::from(qmd_upper & 0x1ff) << 32 | u64::from(qmd_lower)) << 8;
                        found(Found::OtherVersion(Written { address, at: i + k }));
                    }
                    _ => {}
                }
            }
        } else if matches!(kind, Kind::Inc) && address <= SEND_PCAS_A {
            for k in 0..count {
                let method = usize::from(address) + 4 * k;
                match u16::try_from(method).unwrap_or(0) {
                    LINE_LENGTH_IN => bytes = word(i + k),
                    LINE_COUNT => lines = word(i + k),
                    OFFSET_OUT_UPPER => upper = word(i + k),
                    OFFSET_OUT => lower = word(i + k),
                    SEND_PCAS_A => {
                        let scheduled = u64::from(word(i + k)) << 8;
                        for n in 0..WAITING {
                            if places[n] == 0 || addresses[n] != scheduled {
                                continue;
                            }
                            let written = Written { address: scheduled, at: core::mem::take(&mut places[n]) };
                            if lengths[n] != WORDS || word(written.at + VERSION_AT) & 0xff != VERSION {
                                found(Found::OtherVersion(written));
                            } else if has_blocks(written.at, &mut word) {
                                found(Found::Kernel(written));
                            } else {
                                found(Found::Order(written));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        i += count;
    }
}

/// True if a segment writes memory by the words of the stream, or by a macro of the engine.
pub fn writes_inline(length: usize, word: impl Fn(usize) -> u32) -> bool {
    header::writes(length, word, LAUNCH_DMA, |_| true)
}

/// A QMD without blocks only orders others, and stores no end (seen on an H100).
fn has_blocks(at: usize, mut word: impl FnMut(usize) -> u32) -> bool {
    let is_grid = (2..=5).contains(&(word(at) >> TYPE_SHIFT & 7));
    is_grid && word(at + GRID_AT) != 0 && word(at + GRID_AT + 1) & 0xffff != 0 && word(at + GRID_AT + 2) & 0xffff != 0
}

/// True for the words of a QMD of version 4.0 that runs no kernel.
pub fn is_order(words: usize, word: impl Fn(usize) -> u32) -> bool {
    words == WORDS && word(VERSION_AT) & 0xff == VERSION && word(0) >> TYPE_SHIFT & 7 < 2
}

/// Whether the QMD that begins at word `at` has a release that its program leaves unused.
pub fn has_room(at: usize, word: impl Fn(usize) -> u32) -> bool {
    RELEASES.iter().any(|r| !r.is_enabled(at, &word))
}

/// Has the QMD that begins at word `at` store its end at `slot`, a multiple of 16, with a payload. False, with nothing changed, if its program uses
/// the words itself, or for an address that does not fit. The word that enables the release is set last.
pub fn store_at(
    at: usize,
    slot: u64,
    payload: u32,
    word: impl Fn(usize) -> u32,
    mut set: impl FnMut(usize, u32),
) -> bool {
    let free = RELEASES.iter().find(|r| !r.is_enabled(at, &word));
    let Some(r) = free.filter(|_| slot.is_multiple_of(16) && slot >> 32 <= UPPER) else { return false };
    set(at + r.at, slot as u32);
    set(at + r.at + 1, (slot >> 32) as u32);
    set(at + r.at + 2, payload);
    set(at + r.at + 3, 0);
    // RELEASE_ENABLE alone: four words, no membar, no reduction, no trap.
    set(at + r.word, word(at + r.word) & !(0xffff << r.shift) | 1 << r.shift);
    true
}

/// The address where a QMD stores its end, and the payload, if `is_slot` accepts the address. The QMD is then restored to what its program wrote.
pub fn take(
    at: usize,
    is_slot: impl Fn(u64) -> bool,
    word: impl Fn(usize) -> u32,
    mut set: impl FnMut(usize, u32),
) -> Option<(u64, u32)> {
    let r = RELEASES.iter().find(|r| r.is_enabled(at, &word) && is_slot(r.slot(at, &word)))?;
    let found = (r.slot(at, &word), word(at + r.at + 2));
    (0..4).for_each(|i| set(at + r.at + i, 0));
    set(at + r.word, word(at + r.word) & !(0xffff << r.shift));
    Some(found)
}

/// A QMD of a graph.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    pub address: u64,
    /// It runs a kernel.
    pub is_kernel: bool,
    /// The word of the address at which it stores the kernel's end; the payload is the third from there. 0: it stores none.
    pub slot_at: u32,
    /// The QMDs that it acts on when it is done; 0 for none.
    pub starts: [u64; 2],
    /// For the caller, who groups nodes, and knows in which call each was written.
    pub group: u32,
    pub call: u64,
}

impl Node {
    pub const NONE: Node = Node { address: 0, is_kernel: false, slot_at: 0, starts: [0; 2], group: 0, call: 0 };
}

/// RELEASE_REDUCTION_ENABLE(0), which CUDA 13 sets in the QMDs of graphs, and only there (seen on an H200).
const REDUCTION: (usize, u32) = (10, 1 << 4);
/// DEPENDENT_QMD_ENABLE(i), and DEPENDENT_QMDi_POINTER, an address divided by 256.
const DEPENDENTS: [(u32, usize); 2] = [(1 << 16, 14), (1 << 21, 15)];
const DEPENDENTS_AT: usize = 11;

/// True for the QMD of a graph's kernel, which may be launched again.
pub fn is_of_a_graph(at: usize, mut word: impl FnMut(usize) -> u32) -> bool {
    word(at + REDUCTION.0) & REDUCTION.1 != 0
}

/// The QMDs that a segment uploads, if they are a graph's; call it after [`store_at`]. `is_slot` accepts the addresses that `store_at` was given.
pub fn nodes(length: usize, word: impl Fn(usize) -> u32, is_slot: impl Fn(u64) -> bool, mut node: impl FnMut(Node)) {
    find(length, &word, |found| {
        let (w, is_kernel) = match found {
            Found::Kernel(w) => (w, true),
            Found::Order(w) => (w, false),
            Found::OtherVersion(_) => return,
        };
        let starts = starts(w.at, &word);
        let stored = |r: &&Release| is_kernel && r.is_enabled(w.at, &word) && is_slot(r.slot(w.at, &word));
        let slot_at = RELEASES.iter().find(stored).map_or(0, |r| r.at as u32);
        node(Node { address: w.address, is_kernel, slot_at, starts, ..Node::NONE });
    });
}

/// PROGRAM_ADDRESS_LOWER and PROGRAM_ADDRESS_UPPER, and WAIT_ON_LATCH_VALID of version 4.0.
const PROGRAM: [(usize, u32); 2] = [(38, u32::MAX), (39, UPPER as u32)];
const LATCH: (usize, u32) = (0, 1 << 29);

/// What the QMD of a kernel runs, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// The address of its code.
    pub code: u64,
    /// The QMDs that it acts on when it is done; 0 for none.
    pub starts: [u64; 2],
    /// It may begin while the kernel before it in its stream still runs.
    pub is_early: bool,
}

/// Reads the QMD of version 4.0 that begins at word `at`.
pub fn program(at: usize, word: impl Fn(usize) -> u32) -> Program {
    let [lower, upper] = PROGRAM.map(|(i, mask)| u64::from(word(at + i) & mask));
    Program { code: upper << 32 | lower, starts: starts(at, &word), is_early: word(at + LATCH.0) & LATCH.1 != 0 }
}

fn starts(at: usize, word: impl Fn(usize) -> u32) -> [u64; 2] {
    let enabled = word(at + DEPENDENTS_AT);
    DEPENDENTS.map(|(bit, i)| if enabled & bit != 0 { u64::from(word(at + i)) << 8 } else { 0 })
}

/// A QMD that a segment hands to the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    pub qmd: u64,
    /// The index of the header, and its subchannel.
    pub at: usize,
    pub subchannel: u8,
}

/// The QMDs that a segment hands to the scheduler, whether it has written them or not.
pub fn handed(length: usize, word: impl Fn(usize) -> u32, mut found: impl FnMut(Handed)) {
    let mut i = 0;
    while i < length {
        match Header::parse(word(i)) {
            Header::Methods { kind: Kind::Inc, subch, address: SEND_PCAS_A, count } if count > 0 && i + 1 < length => {
                found(Handed { qmd: u64::from(word(i + 1)) << 8, at: i, subchannel: subch });
                i += 1 + usize::from(count);
            }
            Header::Methods { count, .. } => i += 1 + usize::from(count),
            Header::EndSegment { .. } => return,
            _ => i += 1,
        }
    }
}

/// True if a write of inline data, put in at word `at` of a segment, changes nothing for the program's writes that follow: the first of them sets all that
/// the write has set, each has one line, and no macro of the engine is called, which may rely on more.
pub fn may_write_at(at: usize, length: usize, word: impl Fn(usize) -> u32) -> bool {
    const SET: [u16; 4] = [LINE_LENGTH_IN, LINE_COUNT, OFFSET_OUT_UPPER, OFFSET_OUT];
    let (mut is_set, mut may, mut i) = ([false; SET.len()], true, at);
    let mut method = |address: usize, value: u32| {
        SET.iter().zip(&mut is_set).for_each(|(of, set)| *set |= address == usize::from(*of));
        may &= address < MACROS.into()
            && (address != LINE_COUNT.into() || value == 1)
            && (address != LAUNCH_DMA.into() || is_set == [true; SET.len()]);
    };
    while i < length {
        let header = Header::parse(word(i));
        i += 1;
        match header {
            Header::Methods { kind, address, count, .. } => {
                for k in 0..usize::from(count).min(length - i) {
                    let step = if matches!(kind, Kind::Inc) { 4 * k } else { 0 };
                    method(usize::from(address) + step, word(i + k));
                }
                i += usize::from(count);
            }
            Header::Immediate { address, value, .. } => method(address.into(), value.into()),
            Header::EndSegment { .. } => break,
            _ => {}
        }
    }
    may
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Words;
    use crate::qmd::{Layout, Qmd};
    use proptest::prelude::*;
    use std::cell::{Cell, RefCell};

    const COMPUTE: u8 = 1;
    const AT: u64 = 0x2_04c0_0400;

    fn qmd(grid: u64) -> Qmd {
        let mut q = Qmd::new(Layout::of(4, 0).unwrap());
        for (field, value) in [("QMD_TYPE", 2), ("GRID_WIDTH", grid), ("GRID_HEIGHT", 1), ("GRID_DEPTH", 1)] {
            q.set(field, value).unwrap();
        }
        q
    }

    /// A segment that writes words to an address and hands another address to the scheduler.
    fn segment(words: &[u32], to: u64, scheduled: u64) -> Vec<u32> {
        let mut room = [0; 256];
        let mut out = Words::new(&mut room);
        let bytes = 4 * words.len() as u32;
        out.inc(COMPUTE, LINE_LENGTH_IN, &[bytes, 1, (to >> 32) as u32, to as u32]).unwrap();
        out.inc(COMPUTE, LAUNCH_DMA, &[0x41]).unwrap();
        let header = Header::Methods {
            kind: Kind::NonInc,
            subch: COMPUTE,
            address: LOAD_INLINE_DATA,
            count: words.len() as u16,
        };
        let mut all = out.as_slice().to_vec();
        all.push(header.encode());
        all.extend_from_slice(words);
        let start = Header::Methods { kind: Kind::Inc, subch: COMPUTE, address: SEND_PCAS_A, count: 1 };
        all.extend([start.encode(), (scheduled >> 8) as u32]);
        all
    }

    fn found(words: &[u32]) -> Vec<Found> {
        let mut all = Vec::new();
        find(words.len(), |i| words[i], |f| all.push(f));
        all
    }

    fn stored(words: &mut [u32], at: usize, slot: u64, payload: u32) -> bool {
        let cells = Cell::from_mut(words).as_slice_of_cells();
        store_at(at, slot, payload, |i| cells[i].get(), |i, v| cells[i].set(v))
    }

    #[test]
    fn a_qmd_that_is_scheduled_stores_its_end_and_is_given_back_as_it_was() {
        let mut words = segment(qmd(8).words(), AT, AT);
        let before = words.clone();
        let [Found::Kernel(w)] = found(&words)[..] else { panic!("{:?}", found(&words)) };
        assert_eq!(w.address, AT);
        assert!(stored(&mut words, w.at, 0xa0_0000_1230, 77));
        let q = Qmd::parse(&words[w.at..w.at + WORDS]).unwrap();
        let all: Vec<_> = q.releases().collect();
        let [(2, release)] = all[..] else { panic!("{all:?}") };
        assert_eq!((release.address, release.payload, release.timestamp), (0xa0_0000_1230, 77, true));
        assert_eq!(q.release_reduction(2), None);
        let cells = Cell::from_mut(&mut words[..]).as_slice_of_cells();
        let taken = take(w.at, |slot| slot >> 20 == 0xa_0000, |i| cells[i].get(), |i, v| cells[i].set(v));
        assert_eq!(taken, Some((0xa0_0000_1230, 77)));
        assert_eq!(words, before);
    }

    #[test]
    fn the_program_of_a_qmd_is_read_as_its_fields_say() {
        let mut q = qmd(8);
        let fields =
            [("PROGRAM_ADDRESS_LOWER", 0xfedc_ba80), ("PROGRAM_ADDRESS_UPPER", 0x1ab_cdef), ("WAIT_ON_LATCH_VALID", 1)];
        fields.into_iter().for_each(|(field, value)| q.set(field, value).unwrap());
        q.set_element("DEPENDENT_QMD_ENABLE", 1, 1).unwrap();
        q.set_dependent(1, 0x2_0000_0400).unwrap();
        let read = program(3, |i| q.words()[i - 3]);
        assert_eq!(read, Program { code: q.program_address(), starts: [0, 0x2_0000_0400], is_early: true });
        assert!(!program(0, |i| qmd(8).words()[i]).is_early);
    }

    #[test]
    fn what_is_no_kernel_of_a_known_version_is_left_alone() {
        // Bytes of the program's that look like a QMD, but nobody schedules them.
        assert_eq!(found(&segment(qmd(8).words(), AT, AT + 0x200)), []);
        assert!(matches!(found(&segment(qmd(0).words(), AT, AT))[..], [Found::Order(_)]));
        let mut other = qmd(8).words().to_vec();
        other[VERSION_AT] = 0x30;
        assert!(matches!(found(&segment(&other, AT, AT))[..], [Found::OtherVersion(_)]));
        // Half of it.
        assert_eq!(found(&segment(&qmd(8).words()[..48], AT, AT)), []);
    }

    #[test]
    fn releases_that_the_program_uses_stay() {
        let mut q = qmd(8);
        q.set_element("RELEASE_ENABLE", 2, 1).unwrap();
        let mut words = q.words().to_vec();
        assert!(stored(&mut words, 0, 0x1000, 1));
        assert_eq!(words[28..32], [0; 4], "the last one is the program's");
        assert_eq!(words[24], 0x1000);
        let before = words.clone();
        assert!(!stored(&mut words, 0, 0x1000, 1) && words == before, "none is free");
        assert!(!stored(&mut qmd(8).words().to_vec(), 0, 0x1008, 1), "a slot begins at a multiple of 16");
        assert!(!stored(&mut qmd(8).words().to_vec(), 0, 1 << 57, 1), "an address has 57 bits");
    }

    #[test]
    fn the_qmds_of_a_graph_name_their_dependents() {
        let mut q = qmd(8);
        q.set_element("RELEASE_REDUCTION_ENABLE", 0, 1).unwrap();
        q.set_element("DEPENDENT_QMD_ENABLE", 0, 1).unwrap();
        q.set("DEPENDENT_QMD0_POINTER", (AT + 0x200) >> 8).unwrap();
        let words = segment(q.words(), AT, AT);
        let all = RefCell::new(Vec::new());
        nodes(words.len(), |i| words[i], |_| true, |node| all.borrow_mut().push(node));
        let all = all.into_inner();
        assert_eq!((all.len(), all[0].address, all[0].is_kernel, all[0].starts), (1, AT, true, [AT + 0x200, 0]));
        let [Found::Kernel(w)] = found(&words)[..] else { panic!() };
        assert!(is_of_a_graph(w.at, |i| words[i]) && all[0].slot_at == 0);
        // Stamped by its last release; and by another one, because its program uses the last.
        let slot_at = |words: &[u32]| {
            let mut at = None;
            nodes(words.len(), |i| words[i], |slot| slot == 0x1230, |node| at = Some(node.slot_at));
            at.unwrap()
        };
        let mut ours = words.clone();
        assert!(stored(&mut ours, w.at, 0x1230, 77) && slot_at(&ours) == 28);
        let mut theirs = q;
        theirs.set_element("RELEASE_ENABLE", 2, 1).unwrap();
        let mut theirs = segment(theirs.words(), AT, AT);
        assert!(stored(&mut theirs, w.at, 0x1230, 77) && slot_at(&theirs) == 24);
        let mut all = Vec::new();
        handed(words.len(), |i| words[i], |h| all.push(h));
        assert_eq!(all, [Handed { qmd: AT, at: words.len() - 2, subchannel: COMPUTE }]);
    }

    #[test]
    fn a_write_is_put_in_where_the_next_one_sets_all_that_it_sets() {
        let whole = segment(qmd(8).words(), AT, AT);
        let handed = whole.len() - 2;
        let may = |words: &[u32], at| may_write_at(at, words.len(), |i| words[i]);
        // Before its own write, after it, and before another one.
        assert!(may(&whole, 0) && may(&whole, handed));
        assert!(may(&[&whole[..], &whole].concat(), handed));
        // The next write relies on what this one has set; it has several lines; a macro.
        assert!(!may(&[&whole[..], &whole[5..]].concat(), handed));
        let mut lines = whole.clone();
        lines[2] = 2;
        assert!(!may(&[&whole[..], &lines].concat(), handed));
        let call = Header::Methods { kind: Kind::OneInc, subch: COMPUTE, address: 0x3880, count: 1 };
        assert!(!may(&[&whole[..], &[call.encode(), 0]].concat(), handed));
    }

    proptest! {
        /// For any segment: no access beyond its words.
        #[test]
        fn no_words_lead_out_of_the_segment(mut words in prop::collection::vec(any::<u32>(), 0..400), cut in 0..400usize) {
            let whole = segment(qmd(8).words(), AT, AT);
            words.extend_from_slice(&whole[..cut.min(whole.len())]);
            let _ = found(&words);
            nodes(words.len(), |i| words[i], |_| true, |_| ());
            handed(words.len(), |i| words[i], |_| ());
            may_write_at(0, words.len(), |i| words[i]);
        }
    }
}
