//! From words to method writes: one [`Decoder`] for each channel.
//!
//! A decoder keeps the host's state from one GPFIFO entry to the next: an unfinished method sequence, the class on each subchannel and the extended
//! base address. Every word of a segment is reported exactly once: as data of a write, as a header named by the item, or as skipped. Nothing is
//! allocated.

use crate::class::{self, Class};
use crate::gpfifo::Entry;
use crate::header::{Header, Kind, MaskOp};
#[cfg(feature = "alloc")]
use crate::snapshot::Snapshot;

/// Methods below this byte offset are executed by the host itself, whatever the subchannel.
pub const HOST_METHODS: u16 = 0x100;

/// Bytes of method space: 12 bits of words. A sequence that reaches its end continues at 0.
const METHOD_SPACE: usize = 0x4000;

/// Where writes are sent: a subchannel, and the class on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub subch: u8,
    /// The host class for methods below 0x100, else the class bound to the subchannel; 0 if no binding is known.
    pub class_id: u32,
    /// The table of `class_id`, if there is one.
    pub class: Option<&'static Class>,
}

impl Target {
    /// The method at `address`, where the class is known and has it.
    pub fn method(&self, address: u16) -> Option<class::MethodRef> {
        self.class.and_then(|c| c.method(address))
    }
}

/// One method write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Position in the segment of the word that holds the value (of the header, for an immediate).
    pub word_index: u32,
    pub target: Target,
    /// Byte offset of the method.
    pub address: u16,
    pub value: u32,
    pub kind: Kind,
    /// Executed by the host, not by an engine (`address` below 0x100).
    pub host: bool,
}

/// A run of words for one method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// Position in the segment of the first word.
    pub word_index: u32,
    pub target: Target,
    pub address: u16,
    pub words: &'a [u32],
    pub kind: Kind,
    pub host: bool,
}

impl<'a> Run<'a> {
    /// The run as single writes.
    pub fn writes(self) -> impl Iterator<Item = Write> + 'a {
        let Run { word_index, target, address, words, kind, host } = self;
        (word_index..).zip(words).map(move |(word_index, &value)| Write {
            word_index,
            target,
            address,
            value,
            kind,
            host,
        })
    }
}

/// What a segment is made of, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    Write(Write),
    /// Words of a non-incrementing sequence (also of the tail of an increment-once one), as many as are contiguous: thousands of words of inline
    /// data are one item. A sequence that is cut by the end of a segment is a run in each. Such words never come as `Write`.
    Run(Run<'a>),
    /// The zero word, or a header with a count of 0.
    Nop {
        word_index: u32,
        word: u32,
    },
    /// The masks do not filter what the decoder reports: the stream does not give the number of this sub-device.
    SubdeviceMask {
        word_index: u32,
        op: MaskOp,
        mask: u16,
    },
    /// END_PB_SEGMENT. The rest of the segment is not executed and is reported as `Skipped`.
    EndSegment {
        word_index: u32,
        word: u32,
    },
    /// Words after an END_PB_SEGMENT.
    Skipped {
        word_index: u32,
        words: &'a [u32],
    },
    /// A word that is not a header, where a header is required: the channel faults here. The decoder continues with the next word, which may be
    /// wrong.
    Unknown {
        word_index: u32,
        word: u32,
    },
}

/// A method sequence whose data is not all seen yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    pub kind: Kind,
    pub subch: u8,
    /// Method address of the next word.
    pub address: u16,
    /// Words still to come; not 0.
    pub count: u16,
    /// Only the header has been seen so far.
    pub first: bool,
}

/// The address and length of a segment entry's words, with all address bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub va: u64,
    pub dwords: u32,
    /// The upper bits of `va` were last set before entries that are missing.
    pub guessed: bool,
}

/// The decoder of one channel's stream.
#[derive(Debug, Clone)]
pub struct Decoder {
    host: Target,
    /// The class bound to each subchannel, and its table; class 0 if none is bound.
    bound: [Target; 8],
    pending: Option<Pending>,
    extended_base: u64,
    /// Entries that may have set it are missing.
    base_guessed: bool,
    ended: bool,
}

impl Decoder {
    /// `host_class`: the channel's class, such as 0xC86F. Nothing is bound to the subchannels.
    pub fn new(host_class: u32) -> Decoder {
        let target = |subch, class_id| Target { subch, class_id, class: class::by_id(class_id) };
        let bound = core::array::from_fn(|subch| target(subch as u8, 0));
        Decoder {
            host: target(0, host_class),
            bound,
            pending: None,
            extended_base: 0,
            base_guessed: false,
            ended: false,
        }
    }

    /// Writes what it was told. False, and nothing is written: a method sequence is not finished.
    #[cfg(feature = "alloc")]
    pub fn save(&self, to: &mut alloc::vec::Vec<u8>) -> bool {
        if self.pending.is_none() {
            let bound = self.bound.map(|target| target.class_id);
            (self.host.class_id, bound, self.extended_base, self.base_guessed, self.ended).save(to);
        }
        self.pending.is_none()
    }

    /// One that goes on from what was written; `None` if the bytes are not that.
    #[cfg(feature = "alloc")]
    pub fn load(from: &mut &[u8]) -> Option<Decoder> {
        let (host, bound, extended_base, base_guessed, ended): (_, [u32; 8], _, _, _) = Snapshot::load(from)?;
        let mut decoder = Decoder { extended_base, base_guessed, ended, ..Decoder::new(host) };
        (0..).zip(bound).for_each(|(subch, class)| decoder.bind(subch, class));
        Some(decoder)
    }

    /// Says which class answers on a subchannel, as a SET_OBJECT in the stream does. On graphics runlists the subchannels are fixed: 0 3D, 1 compute,
    /// 2 inline to memory, 3 2D, 4 copy.
    pub fn bind(&mut self, subch: u8, class: u32) {
        if let Some(slot) = self.bound.get_mut(usize::from(subch)) {
            (slot.class_id, slot.class) = (class, class::by_id(class));
        }
    }

    /// Binds one class to every subchannel: copy engine runlists ignore the subchannel.
    pub fn bind_all(&mut self, class: u32) {
        (0..8).for_each(|subch| self.bind(subch, class));
    }

    /// The class on a subchannel. (`subch` is taken modulo 8.)
    pub fn bound(&self, subch: u8) -> Target {
        self.bound[usize::from(subch & 7)]
    }

    /// The sequence that continues in the next segment.
    pub fn pending(&self) -> Option<Pending> {
        self.pending
    }

    /// Forgets the unfinished sequence after a gap in the recording: the next word is taken as a header.
    pub fn resynchronise(&mut self) {
        self.pending = None;
    }

    /// Entries are missing before the next one: the unfinished sequence is forgotten, and the extended base is a guess until it is set again.
    pub fn entries_missing(&mut self) {
        self.pending = None;
        self.base_guessed = true;
    }

    /// Processes a GPFIFO entry. Returns the place of its words, or `None` for a control entry.
    pub fn entry(&mut self, entry: &Entry) -> Option<Place> {
        match entry {
            Entry::Segment(segment) => {
                let (va, guessed) = (segment.va | self.extended_base, self.base_guessed);
                Some(Place { va, dwords: segment.dwords, guessed })
            }
            Entry::Control(control) => {
                if let Some(base) = control.extended_base() {
                    (self.extended_base, self.base_guessed) = (base, false);
                }
                None
            }
        }
    }

    /// Decodes the words of one GPFIFO entry.
    pub fn segment<'a>(&mut self, words: &'a [u32], mut sink: impl FnMut(Item<'a>)) {
        self.ended = false;
        let mut rest = words;
        let mut at = 0u32;
        let mut pending = self.pending;
        while !self.ended {
            if let Some(sequence) = pending {
                let (now, later) = rest.split_at(rest.len().min(usize::from(sequence.count)));
                pending = self.data(sequence, now, at, &mut sink);
                rest = later;
                at = at.wrapping_add(now.len() as u32);
            }
            let Some((&word, later)) = rest.split_first() else { break };
            rest = later;
            let header_at = at;
            at = at.wrapping_add(1);
            // Fast path for most words of most streams: an incrementing sequence of one engine's methods that ends in this segment. The general
            // code gives the same result.
            if let Header::Methods { kind: Kind::Inc, subch, address, count } = Header::parse(word)
                && let Some((now, later)) = rest.split_at_checked(usize::from(count))
                && address >= HOST_METHODS
                && usize::from(address) + 4 * now.len() <= METHOD_SPACE
                && count > 0
            {
                self.increments(Kind::Inc, subch, address, now, at, &mut sink);
                rest = later;
                at = at.wrapping_add(u32::from(count));
                continue;
            }
            pending = self.header(word, header_at, &mut sink);
        }
        self.pending = pending;
        if !rest.is_empty() {
            sink(Item::Skipped { word_index: at, words: rest });
        }
    }

    /// Writes to the methods of one engine from `address` on.
    #[inline]
    fn increments<'a>(
        &self,
        kind: Kind,
        subch: u8,
        address: u16,
        words: &[u32],
        start: u32,
        sink: &mut impl FnMut(Item<'a>),
    ) {
        let (target, host) = self.target(subch, address);
        for ((&value, word_index), address) in words.iter().zip(start..).zip((address..).step_by(4)) {
            sink(Item::Write(Write { word_index, target, address, value, kind, host }));
        }
    }

    #[inline]
    fn header<'a>(&mut self, word: u32, word_index: u32, sink: &mut impl FnMut(Item<'a>)) -> Option<Pending> {
        match Header::parse(word) {
            Header::Methods { count: 0, .. } | Header::Nop => sink(Item::Nop { word_index, word }),
            Header::Methods { kind, subch, address, count } => {
                return Some(Pending { kind, subch, address, count, first: true });
            }
            Header::Immediate { subch, address, value } => {
                let value = u32::from(value);
                self.set_object(subch, address, value);
                let (target, host) = self.target(subch, address);
                sink(Item::Write(Write { word_index, target, address, value, kind: Kind::Immediate, host }));
            }
            Header::SubdeviceMask { op, mask } => sink(Item::SubdeviceMask { word_index, op, mask }),
            Header::EndSegment { .. } => {
                self.ended = true;
                sink(Item::EndSegment { word_index, word });
            }
            Header::Unknown(_) => sink(Item::Unknown { word_index, word }),
        }
        None
    }

    /// `words`: data of `pending`, at most its count. Returns the unfinished rest.
    #[inline]
    fn data<'a>(
        &mut self,
        pending: Pending,
        words: &'a [u32],
        start: u32,
        sink: &mut impl FnMut(Item<'a>),
    ) -> Option<Pending> {
        let Pending { kind, subch, mut address, count, first } = pending;
        if words.is_empty() {
            return Some(pending);
        }
        let left = count.saturating_sub(words.len() as u16);
        let mut word_index = start;
        let spread = match kind {
            Kind::Inc | Kind::OldInc => words.len(),
            Kind::OneInc => usize::from(first),
            Kind::NonInc | Kind::OldNonInc | Kind::Immediate => 0,
        };
        let (single, run) = words.split_at(spread);
        if address >= HOST_METHODS && usize::from(address) + 4 * spread <= METHOD_SPACE {
            // Nearly always: one engine's methods, one target.
            self.increments(kind, subch, address, single, word_index, sink);
            word_index = word_index.wrapping_add(spread as u32);
            address = (usize::from(address) + 4 * spread) as u16 & (METHOD_SPACE as u16 - 4);
        } else {
            for &value in single {
                self.set_object(subch, address, value);
                let (target, host) = self.target(subch, address);
                sink(Item::Write(Write { word_index, target, address, value, kind, host }));
                word_index = word_index.wrapping_add(1);
                address = address.wrapping_add(4) & (METHOD_SPACE as u16 - 4);
            }
        }
        if let Some(&last) = run.last() {
            self.set_object(subch, address, last);
            let (target, host) = self.target(subch, address);
            sink(Item::Run(Run { word_index, target, address, words: run, kind, host }));
        }
        (left > 0).then_some(Pending { kind, subch, address, count: left, first: false })
    }

    /// SET_OBJECT (offset 0, NVCLASS 15:0) binds a class.
    #[inline]
    fn set_object(&mut self, subch: u8, address: u16, value: u32) {
        if address == 0 {
            self.bind(subch, value & 0xffff);
        }
    }

    #[inline]
    fn target(&self, subch: u8, address: u16) -> (Target, bool) {
        if address < HOST_METHODS {
            (Target { subch, ..self.host }, true)
        } else {
            (self.bound[usize::from(subch & 7)], false)
        }
    }
}

/// The little-endian words of bytes of any alignment; one to three bytes at the end are left out.
pub fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items as owned text, for comparison.
    fn items(decoder: &mut Decoder, words: &[u32]) -> Vec<String> {
        let mut out = Vec::new();
        decoder.segment(words, |item| {
            out.push(match item {
                Item::Write(w) => {
                    format!(
                        "{} {}:{:x}/{:#x}={:#x}",
                        w.word_index, w.target.subch, w.target.class_id, w.address, w.value
                    )
                }
                Item::Run(r) => format!("{} {}:{:#x}<{:x?}", r.word_index, r.target.subch, r.address, r.words),
                Item::Nop { word_index, .. } => format!("{word_index} nop"),
                Item::SubdeviceMask { word_index, op, mask } => format!("{word_index} mask {op:?} {mask:#x}"),
                Item::EndSegment { word_index, .. } => format!("{word_index} end"),
                Item::Skipped { word_index, words } => format!("{word_index} skipped {}", words.len()),
                Item::Unknown { word_index, word } => format!("{word_index} unknown {word:#x}"),
            });
        });
        out
    }

    #[test]
    fn every_form_of_sequence() {
        let mut d = Decoder::new(0xc86f);
        d.bind(4, 0xc8b5);
        assert_eq!(
            items(&mut d, &[0x2002_8100, 1, 2, 0x8001_80c0, 0x6002_206d, 7, 8, 0xa003_206d, 1, 2, 3]),
            [
                "1 4:c8b5/0x400=0x1",
                "2 4:c8b5/0x404=0x2",
                "3 4:c8b5/0x300=0x1",
                "5 1:0x1b4<[7, 8]",
                "8 1:0/0x1b4=0x1",
                "9 1:0x1b8<[2, 3]"
            ]
        );
        assert_eq!(items(&mut d, &[0x000c_8304, 5, 6, 7, 0x4008_2104, 8, 9])[0], "1 4:c8b5/0x304=0x5");
        assert!(d.pending().is_none());
    }

    #[test]
    fn a_sequence_continues_in_the_next_entry() {
        let words = [0x2004_8100, 1, 2, 3, 4, 0xa004_206d, 5, 6, 7, 8, 0x6003_206d, 1, 2, 3];
        let mut whole = Vec::new();
        Decoder::new(0xc86f).segment(&words, |i| match i {
            Item::Write(w) => whole.push((w.address, w.value, w.kind)),
            Item::Run(r) => whole.extend(r.writes().map(|w| (w.address, w.value, w.kind))),
            other => panic!("{other:?}"),
        });
        for cut in 0..=words.len() {
            for second in cut..=words.len() {
                let mut parts = Vec::new();
                let mut d = Decoder::new(0xc86f);
                for piece in [&words[..cut], &words[cut..second], &words[second..]] {
                    d.segment(piece, |i| match i {
                        Item::Write(w) => parts.push((w.address, w.value, w.kind)),
                        Item::Run(r) => parts.extend(r.writes().map(|w| (w.address, w.value, w.kind))),
                        other => panic!("{other:?}"),
                    });
                }
                assert_eq!(parts, whole, "cut at {cut} and {second}");
            }
        }
    }

    #[test]
    fn set_object_binds_the_subchannel() {
        let mut d = Decoder::new(0xc86f);
        let out = items(&mut d, &[0x2001_2000, 0xcbc0, 0x2001_2044, 0]);
        assert_eq!(out, ["1 1:c86f/0x0=0xcbc0", "3 1:cbc0/0x110=0x0"]);
        assert_eq!(d.bound(1).class, class::by_id(0xcbc0));
        assert_eq!(d.bound(2).class_id, 0);
    }

    #[test]
    fn words_after_the_end_of_a_segment_are_named_as_skipped() {
        let mut d = Decoder::new(0xc86f);
        assert_eq!(items(&mut d, &[0, 0xe000_0000, 1, 2, 3]), ["0 nop", "1 end", "2 skipped 3"]);
        assert_eq!(items(&mut d, &[0x0001_0010, 0xc000_0000]), ["0 mask Set 0x1", "1 unknown 0xc0000000"]);
    }

    #[test]
    fn the_extended_base_stays_until_it_is_set_again() {
        let mut d = Decoder::new(0xc86f);
        let segment = Entry::segment(0x1000, 4).unwrap();
        assert_eq!(d.entry(&segment).unwrap().va, 0x1000);
        assert!(d.entry(&Entry::extended_base(0x7f12_3456_7890)).is_none());
        assert_eq!(d.entry(&segment).unwrap().va, 0x7f00_0000_1000);
        assert!(d.entry(&Entry::extended_base(0)).is_none());
        assert_eq!(d.entry(&segment), Some(Place { va: 0x1000, dwords: 4, guessed: false }));
    }
}
