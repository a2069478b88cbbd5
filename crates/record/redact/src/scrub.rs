//! `--no-data`: methods, launches and their QMDs stay on the tape. The data that the program sent through them does
//! not.
//!
//! Zeroed are:
//!
//! - data of inline copies, except the words that a launch in the same segment names as its QMD;
//! - constants of fills;
//! - arguments of macros and of methods without effect;
//! - values of methods that no class table has;
//! - the low bits of words that the host does not look at;
//! - bytes between events.
//!
//! Headers stay (of an immediate header, its method stays). Addresses, sizes, semaphores with their payloads,
//! LOAD_INLINE_QMD_DATA and driver calls stay.
//!
//! Invariant: a word stays only if its meaning is known. A channel's stream gets out of step if an entry is missing, or
//! if threads that share the channel are drained in another order. Then every word is zeroed up to the next segment
//! that is a whole run of known methods. An entry that is split over several events keeps no QMD, because its words are
//! never seen together.

mod kept;
mod stream;

use stream::Stream;
use tape::call::{CallBody, ExportTableBody, NameBody, ObjectBody, OriginBody};
use tape::event::{Body, EntryBody, Event, RingBody, entry_flags, ring_flags};
use tape::nvtx::{RangeBody, TextBody, range_flags};
use tape::python::{CodeBody, PythonBody, StackBody};
use tape::region::SLOTS;
use tape::stamp::{EndsBody, LaunchedBody};

/// Bytes of an event's head, and of an ENTRY event's head and body.
const HEAD: usize = 16;
const ENTRY_WORDS_AT: usize = HEAD + 32;
/// The host class whose methods are assumed on a channel that was not announced; host classes agree on theirs.
const HOPPER_CHANNEL: u32 = 0xc86f;

/// Removes data from events. Holds what it must remember of each channel.
pub struct Scrubber {
    words: Vec<u32>,
    kept: kept::Tables,
    pass: stream::Found,
    /// By channel slot.
    streams: Vec<Option<Box<Stream>>>,
    /// The words of entries stay as they are.
    keeps_data: bool,
}

impl Default for Scrubber {
    fn default() -> Self {
        Scrubber {
            words: Vec::new(),
            kept: kept::Tables::new(),
            pass: stream::Found::default(),
            streams: std::iter::repeat_with(|| None).take(SLOTS).collect(),
            keeps_data: false,
        }
    }
}

/// What an event loses, apart from the bytes between its parts.
enum Lost {
    Nothing,
    /// The program's number in a range, and the flag that marks it as present.
    Payload,
    /// The event has this many bytes of words, and loses those in [`Scrubber::pass`].
    Found(usize),
    /// This many bytes of words: all of them.
    Words(usize),
}

impl Scrubber {
    /// A scrubber that zeroes only bytes that are no part of an event, and events of unknown kinds.
    pub fn of_slack() -> Scrubber {
        Scrubber { keeps_data: true, ..Scrubber::default() }
    }

    /// Takes payloads out of `chunk`, which is whole events of one thread's ring. Each event keeps its length.
    pub fn clean(&mut self, chunk: &mut [u8]) {
        let mut at = 0;
        while let Some(rest) = chunk.get_mut(at..).filter(|rest| !rest.is_empty()) {
            at += self.event(rest);
        }
    }

    /// Cleans the event at the beginning of `b`. Returns its length.
    fn event(&mut self, b: &mut [u8]) -> usize {
        let Some((event, len)) = Event::parse(b) else {
            // An event of impossible contents keeps its head. Bytes that are no event are all zeroed.
            let len = whole_event(b);
            zero(b, HEAD.min(len.unwrap_or(0)), len.unwrap_or(b.len()));
            return len.unwrap_or(b.len());
        };
        let flags = event.head.flags;
        let (used, between, lost) = self.parts(flags, &event.body);
        zero(b, HEAD + between.start, HEAD + between.end);
        zero(b, HEAD + used, len);
        match lost {
            Lost::Nothing => {}
            Lost::Payload => {
                let from = HEAD + core::mem::offset_of!(RangeBody, payload);
                zero(b, from, from + size_of::<u64>());
                set_flags(b, flags & !range_flags::PAYLOAD);
            }
            Lost::Words(bytes) => {
                zero(b, ENTRY_WORDS_AT, ENTRY_WORDS_AT + bytes);
                if bytes > 0 {
                    set_flags(b, flags | entry_flags::SCRUBBED);
                }
            }
            Lost::Found(bytes) => {
                if let Some(to) = b.get_mut(ENTRY_WORDS_AT..ENTRY_WORDS_AT + bytes) {
                    self.pass.apply(&self.words, to);
                }
                if self.pass.changes() {
                    set_flags(b, flags | entry_flags::SCRUBBED);
                }
            }
        }
        len
    }

    /// The bytes of a body that are parts of the event, the gap between those parts, which holds old bytes of the ring, and what
    /// the event loses. Each kind is named: one that is added with data of the program must not pass.
    fn parts(&mut self, flags: u16, body: &Body<'_>) -> (usize, std::ops::Range<usize>, Lost) {
        let padded = |used: usize, behind: usize| {
            let from = used.next_multiple_of(8);
            (from + behind, used..from, Lost::Nothing)
        };
        let mut lost = Lost::Nothing;
        let used = match body {
            Body::Entry(entry, words) => {
                if !self.keeps_data {
                    lost = self.entry(flags, entry, words);
                }
                32 + words.len()
            }
            Body::Push(_) | Body::Start(_) | Body::Mark(_) => {
                if !self.keeps_data {
                    lost = Lost::Payload;
                }
                size_of::<RangeBody>()
            }
            Body::Ring(r) => {
                // The commands that the channel got during a pause are unknown.
                if flags & ring_flags::AFTER_PAUSE != 0 {
                    self.lose(r.slot);
                }
                size_of::<RingBody>()
            }
            Body::LeftOut(l) => {
                self.lose(l.slot);
                24
            }
            Body::Channel(c) => {
                if let Some(slot) = self.streams.get_mut(c.slot as usize) {
                    *slot = Some(Box::new(Stream::new(c.class)));
                }
                32
            }
            Body::Ioctl(_, arg, nested) => return padded(40 + arg.len(), nested.len()),
            Body::Open(_, path) => 16 + path.len(),
            Body::Site(_, path) => 48 + path.len(),
            Body::Note(text) => 8 + text.len(),
            Body::Mapping(_, path, []) => 32 + path.len(),
            Body::Mapping(_, path, id) => return padded(32 + path.len(), id.len()),
            Body::Switches(_, text) | Body::FaultsWatched(_, text) => 16 + text.len(),
            Body::Faults(_, faults) => 8 + faults.len(),
            Body::Sched(_) => 64,
            Body::Text(_, text) => size_of::<TextBody>() + text.len(),
            Body::Call(_) | Body::InCall(_) => size_of::<CallBody>(),
            Body::Hold(_) => 48,
            Body::Name(_, name) => size_of::<NameBody>() + name.len(),
            Body::Object(_, words) => size_of::<ObjectBody>() + words.len(),
            Body::Python(_, version) => size_of::<PythonBody>() + version.len(),
            Body::PythonStack(_, frames) => size_of::<StackBody>() + frames.len(),
            Body::PythonCode(_, file, name, lines) => {
                return padded(size_of::<CodeBody>() + file.len() + name.len(), lines.len());
            }
            Body::Ends(_, ends) => size_of::<EndsBody>() + ends.len(),
            Body::Launched(_, runs) => size_of::<LaunchedBody>() + runs.len(),
            Body::Mmap(_) | Body::Op(_) | Body::Held(_) | Body::Task(_) => 40,
            Body::Mremap(_) | Body::Page(_) | Body::Deadline(_) => 32,
            Body::ChannelEnd(_) | Body::Gap(_) | Body::Thread(_) | Body::Pair(_) => 24,
            Body::Origin(_) => size_of::<OriginBody>(),
            Body::Stamps(_) | Body::GpuClock(_) | Body::Copied(_) => 24,
            Body::ExportTable(_) => size_of::<ExportTableBody>(),
            Body::Pop(_) | Body::End(_) | Body::Munmap(_) | Body::Close(_) | Body::Dup(_) | Body::Switch(_) => 16,
            Body::Token(_)
            | Body::Pause(_)
            | Body::Locks(_)
            | Body::Calls(_)
            | Body::Nvtx(_)
            | Body::SwitchesLost(_)
            | Body::FaultsLost(_)
            | Body::Stolen(_) => 8,
            Body::Unknown => 0,
        };
        (used, 0..0, lost)
    }

    fn lose(&mut self, slot: u32) {
        if let Some(Some(stream)) = self.streams.get_mut(slot as usize) {
            stream.lose();
        }
    }

    fn entry(&mut self, flags: u16, body: &EntryBody, bytes: &[u8]) -> Lost {
        self.words.clear();
        self.words.extend(pushbuf::decode::words_of(bytes));
        // A slot outside the agent's table: the event is not the agent's.
        let known = self.streams.get_mut(body.slot as usize).is_some_and(|s| {
            let stream = s.get_or_insert_with(|| Box::new(Stream::new(HOPPER_CHANNEL)));
            stream.entry(body, flags, &self.words, &self.kept, &mut self.pass)
        });
        if known { Lost::Found(bytes.len()) } else { Lost::Words(bytes.len()) }
    }
}

fn set_flags(event: &mut [u8], flags: u16) {
    if let Some(to) = event.get_mut(2..4) {
        to.copy_from_slice(&flags.to_ne_bytes());
    }
}

/// The length of the event according to its head, if there is room for it.
pub(crate) fn whole_event(b: &[u8]) -> Option<usize> {
    let len = u32::from_ne_bytes(b.get(4..8)?.try_into().ok()?) as usize;
    (len >= HEAD && len.is_multiple_of(8) && len <= b.len()).then_some(len)
}

fn zero(b: &mut [u8], from: usize, to: usize) {
    if let Some(b) = b.get_mut(from..to) {
        b.fill(0);
    }
}

fn word(words: &[u32], i: u32) -> u32 {
    words.get(i as usize).copied().unwrap_or(0)
}

/// Writes word `i` of an entry.
fn put(bytes: &mut [u8], i: u32, value: u32) {
    let at = 4 * i as usize;
    if let Some(to) = bytes.get_mut(at..at + 4) {
        to.copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
