//! All threads of a tape as one sequence, in the order of time.
//!
//! Each thread's chunks hold its events in order, so a merge by time stamp needs one chunk of each thread at a time. A
//! ring and its entries are returned as one [`Submission`]; every other event is returned unchanged.
//!
//! Invariant: events of one thread never overtake each other, whatever their time stamps.

use crate::event_time::order_key;
use crate::ranges::Open;
use crate::recording::{ChunkAt, InsightError, Recording, Source};
use pushbuf::snapshot;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tape::event::{Body, EntryBody, Event, RingBody, entry_flags, kind, lack, ring_flags};

/// Reasons for missing words that only the whole tape shows: codes in addition to those of [`tape::event::lack`].
pub mod missing {
    /// A large segment's entry is put into the ring with its doorbell, and its words are copied after that: the program
    /// died in between.
    pub const NEVER_COPIED: u32 = 0x100;
    /// The recording stopped, or the file is damaged, before these words.
    pub const TAPE_ENDS: u32 = 0x101;
}

/// One GPFIFO entry of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The eight bytes in the GPFIFO.
    pub gp: u64,
    /// Counts the entries of the channel, from 0.
    pub seq: u64,
    /// Index in the GPFIFO.
    pub index: u32,
    /// Why words are missing: one of [`tape::event::lack`] or of [`missing`].
    pub lack: u32,
    /// [`tape::event::entry_flags`] of its first event; LATE if any part of its words was read late.
    pub flags: u16,
    /// Its words in [`Submission::words`].
    pub range: Range<usize>,
}

impl Entry {
    /// Its words were read long after the doorbell: another thread may have overwritten them.
    pub fn is_late(&self) -> bool {
        self.flags & entry_flags::LATE != 0
    }
}

/// A ring of a doorbell with its new entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    pub tsc: u64,
    /// `None` if the ring itself is not on the tape (it was lost in a gap) and only entries are.
    pub ring: Option<RingBody>,
    /// [`ring_flags`]
    pub flags: u16,
    /// The agent's channel slot.
    pub slot: u32,
    /// Index of the process image.
    pub process: u32,
    /// Thread that rang.
    pub tid: i32,
    pub entries: Vec<Entry>,
    /// NVTX ranges that it was made in.
    pub ranges: Option<Arc<Open>>,
    words: Vec<u32>,
}

impl Submission {
    /// The words of one entry's pushbuffer segment, as many as were recorded.
    pub fn words(&self, e: &Entry) -> &[u32] {
        self.words.get(e.range.clone()).unwrap_or(&[])
    }

    /// Words recorded with all entries.
    pub fn word_count(&self) -> usize {
        self.words.len()
    }

    pub fn handed_over(&self) -> bool {
        self.flags & ring_flags::HANDED_OVER != 0
    }

    /// False if another thread than the ringing one recorded it, and did not know the ringing one.
    pub fn thread_is_known(&self) -> bool {
        self.ring.is_some_and(|r| r.tid != 0 || !self.handed_over())
    }

    /// Doorbells of its channel were rung in a pause before it.
    pub fn after_pause(&self) -> bool {
        self.flags & ring_flags::AFTER_PAUSE != 0
    }

    /// True if it was seen by a trap, false if by a rewritten site.
    pub fn trapped(&self) -> bool {
        self.flags & ring_flags::TRAPPED != 0
    }

    fn clear(&mut self) {
        self.ring = None;
        self.flags = 0;
        self.ranges = None;
        self.entries.clear();
        self.words.clear();
    }

    fn begin(&mut self, tsc: u64, flags: u16, source: Source, ring: RingBody) {
        self.clear();
        (self.tsc, self.flags, self.slot) = (tsc, flags, ring.slot);
        self.process = source.process;
        self.tid = if ring.tid == 0 { source.tid } else { ring.tid as i32 };
        self.ring = Some(ring);
    }

    /// True if an ENTRY event can belong to this ring: GP_PUT moved over it. An entry of another ring, which was lost in
    /// a gap, cannot.
    fn takes(&self, flags: u16, body: &EntryBody) -> bool {
        let beyond = flags & entry_flags::CONTINUED == 0 && self.ring.is_some_and(|r| r.put_to == body.index);
        body.slot == self.slot && !beyond
    }

    /// Adds an ENTRY event: a new entry, or more words of the one before.
    fn add(&mut self, flags: u16, body: &EntryBody, bytes: &[u8]) {
        let from = self.words.len();
        self.words.extend(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        let to = self.words.len();
        if flags & entry_flags::CONTINUED != 0 {
            if let Some(last) = self.entries.last_mut().filter(|l| l.seq == body.seq) {
                last.range.end = to;
                // The last piece decides whether the entry is complete.
                last.lack = body.lack;
                let of_piece = entry_flags::MORE | entry_flags::LATE;
                last.flags = (last.flags & !entry_flags::MORE) | (flags & of_piece);
                return;
            }
            // Its beginning is not on the tape, so the rest cannot be decoded.
            self.words.truncate(from);
        }
        let lack = if flags & entry_flags::CONTINUED != 0 { lack::RING_FULL } else { body.lack };
        let range = from..self.words.len();
        self.entries.push(Entry { gp: body.gp, seq: body.seq, index: body.index, lack, flags, range });
    }

    /// An entry whose continuation is not on the tape lacks words. `whole`: `Some` if the thread has no later event, and
    /// then whether the tape is whole. `None` if an event follows, perhaps a gap.
    fn finish(&mut self, whole: Option<bool>) {
        for e in &mut self.entries {
            if e.flags & entry_flags::MORE != 0 && e.lack == lack::NONE {
                e.lack = match whole {
                    Some(true) if e.range.is_empty() => missing::NEVER_COPIED,
                    Some(false) => missing::TAPE_ENDS,
                    _ => lack::RING_FULL,
                };
            }
        }
    }
}

/// The next item on the tape.
#[derive(Debug)]
pub enum Step<'a> {
    Submission(Submission),
    /// Any event except RING and ENTRY, with its thread and its bytes. The bytes are empty for an event that was noted in
    /// the middle of a submission.
    Event(Source, Event<'a>, &'a [u8]),
}

/// Maximum number of submissions whose memory is kept for reuse, and the number above which no large ones are kept.
const SPARE: usize = 1024;
const SPARE_LARGE: usize = 64;

/// A step whose event, if any, is not parsed yet.
pub(crate) enum Raw<'a> {
    Submission(Submission),
    Event(Source, &'a [u8]),
    /// An event that is not in these bytes.
    Made(Source, Event<'static>),
}

/// The progress of a merge.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    threads: Vec<OfThread>,
    current: Option<usize>,
    stray: usize,
}

#[derive(Clone, Debug)]
struct OfThread {
    source: Source,
    begun: usize,
    /// The chunk that was begun last is not finished.
    is_read: bool,
    at: usize,
    key: u64,
}

snapshot!(OfThread { source, begun, is_read, at, key });
snapshot!(Position { threads, current, stray });

impl Position {
    /// How many chunks of each thread are before this position, including the one that it is in.
    pub fn begun(&self) -> impl Iterator<Item = (Source, usize)> {
        self.threads.iter().map(|t| (t.source, t.begun))
    }
}

/// Reads all threads in parallel.
pub(crate) struct Merge<'r> {
    recording: &'r Recording,
    threads: Vec<Thread>,
    /// Key and index of every thread that is not at its end, except for the current one.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    current: Option<usize>,
    spare: Vec<Submission>,
    /// GAP and THREAD events found between a ring and its entries: they are returned after the submission.
    gaps: VecDeque<(Source, Event<'static>)>,
    stray: usize,
}

struct Thread {
    source: Source,
    /// Number of chunks begun.
    begun: usize,
    chunks: VecDeque<ChunkAt>,
    bytes: Vec<u8>,
    at: usize,
    key: u64,
    /// Key and length of the event at `at`, as soon as it is known to be one.
    next: Option<(u64, usize)>,
}

impl Thread {
    /// Looks at the current event. False if the chunk has no more.
    fn look(&mut self) -> bool {
        if self.next.is_none()
            && let Some((e, n)) = Event::parse(self.bytes.get(self.at..).unwrap_or(&[]))
        {
            self.next = Some((self.key.max(order_key(&e)), n));
        }
        self.next.is_some()
    }

    /// Makes sure that there is a current event. False at the end of the thread.
    fn ready(&mut self, r: &Recording, stray: &mut usize) -> Result<bool, InsightError> {
        while !self.look() {
            *stray += self.bytes.len().saturating_sub(self.at);
            self.at = 0;
            let Some(c) = self.chunks.pop_front() else {
                self.bytes = Vec::new();
                return Ok(false);
            };
            self.begun += 1;
            r.load(&c, &mut self.bytes)?;
        }
        Ok(true)
    }

    /// Moves past the current event.
    fn took(&mut self) {
        if let Some((key, n)) = self.next.take() {
            self.key = key;
            self.at += n;
        }
    }

    /// Takes the current event.
    fn take(&mut self) -> &[u8] {
        let from = self.at;
        self.took();
        self.bytes.get(from..self.at).unwrap_or(&[])
    }

    /// True if the current event is a ring or an entry, which become part of a submission.
    fn is_of_submission(&self) -> bool {
        let kind = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk).map_or(0, |k| u16::from_le_bytes(*k));
        self.next.is_some() && matches!(kind, kind::RING | kind::ENTRY)
    }

    /// The time of this thread's next event, without loading its next chunk.
    fn peek(&mut self) -> Option<u64> {
        if self.look() { self.next.map(|n| n.0) } else { self.chunks.front().map(|c| self.key.max(c.place.tsc)) }
    }
}

impl<'r> Merge<'r> {
    /// A merge of all threads' events in the order of their time.
    pub fn new(recording: &'r Recording) -> Merge<'r> {
        let mut by_source: BTreeMap<Source, VecDeque<ChunkAt>> = BTreeMap::new();
        for c in &recording.chunks {
            by_source.entry(c.source).or_default().push_back(*c);
        }
        let mut threads: Vec<Thread> = by_source
            .into_iter()
            .map(|(source, chunks)| Thread { source, begun: 0, chunks, bytes: Vec::new(), at: 0, key: 0, next: None })
            .collect();
        let heap = threads.iter_mut().enumerate().filter_map(|(i, t)| Some(Reverse((t.peek()?, i)))).collect();
        Merge { recording, threads, heap, current: None, spare: Vec::new(), gaps: VecDeque::new(), stray: 0 }
    }

    /// The current position; `None` in the middle of a submission.
    pub fn position(&self) -> Option<Position> {
        let of = |t: &Thread| OfThread {
            source: t.source,
            begun: t.begun,
            is_read: !t.bytes.is_empty(),
            at: if t.bytes.is_empty() { 0 } else { t.at },
            key: t.key,
        };
        let threads = self.threads.iter().map(of).collect();
        self.gaps.is_empty().then_some(Position { threads, current: self.current, stray: self.stray })
    }

    /// A merge that continues from a position; `None` if the position belongs to another recording.
    pub fn at(recording: &'r Recording, position: &Position) -> Option<Merge<'r>> {
        let mut merge = Merge::new(recording);
        if merge.threads.len() != position.threads.len() {
            return None;
        }
        for (t, of) in merge.threads.iter_mut().zip(&position.threads) {
            if t.source != of.source || of.begun > t.chunks.len() {
                return None;
            }
            let last = t.chunks.drain(..of.begun).next_back();
            if of.is_read {
                recording.load(&last?, &mut t.bytes).ok()?;
            }
            if of.at > t.bytes.len() {
                return None;
            }
            (t.begun, t.at, t.key) = (of.begun, of.at, of.key);
        }
        let others = merge.threads.iter_mut().enumerate().filter(|(i, _)| position.current != Some(*i));
        merge.heap = others.filter_map(|(i, t)| Some(Reverse((t.peek()?, i)))).collect();
        (merge.current, merge.stray) = (position.current.filter(|i| *i < merge.threads.len()), position.stray);
        Some(merge)
    }

    /// Bytes inside checked chunks that are no events.
    pub fn stray_bytes(&self) -> usize {
        self.stray
    }

    /// Takes a submission back so that its memory is used again.
    pub fn recycle(&mut self, s: Submission) {
        // A few large ones would otherwise be kept until the end.
        let most = if s.words.capacity() < 1 << 12 { SPARE } else { SPARE_LARGE };
        if self.spare.len() < most && s.words.capacity() < 1 << 20 {
            self.spare.push(s);
        }
    }

    /// The next step in time; `None` at the end of the tape.
    pub(crate) fn next_raw(&mut self) -> Result<Option<Raw<'_>>, InsightError> {
        if let Some((source, gap)) = self.gaps.pop_front() {
            return Ok(Some(Raw::Made(source, gap)));
        }
        let i = loop {
            let Some(i) = self.pick() else { return Ok(None) };
            let known = self.threads[i].next.is_some();
            match self.threads[i].ready(self.recording, &mut self.stray)? {
                true if known => break i,
                // For an unread chunk, the time of its first event was an estimate, which is never too late.
                true => {}
                false => self.current = None,
            }
        };
        if self.threads[i].is_of_submission() {
            return Ok(Some(Raw::Submission(self.group(i)?)));
        }
        let t = &mut self.threads[i];
        Ok(Some(Raw::Event(t.source, t.take())))
    }

    /// The thread whose next event is the earliest.
    fn pick(&mut self) -> Option<usize> {
        if let Some(i) = self.current {
            match (self.threads[i].peek(), self.heap.peek()) {
                (Some(k), Some(Reverse((other, _)))) if k > *other => self.heap.push(Reverse((k, i))),
                (Some(_), _) => return Some(i),
                (None, _) => self.threads[i].bytes = Vec::new(),
            }
        }
        self.current = self.heap.pop().map(|Reverse((_, i))| i);
        self.current
    }

    /// Collects a ring and the entries after it.
    fn group(&mut self, i: usize) -> Result<Submission, InsightError> {
        let mut s = self.spare.pop().unwrap_or_default();
        s.clear();
        let mut begun = false;
        let mut nothing_after = false;
        let t = &mut self.threads[i];
        while t.ready(self.recording, &mut self.stray)? {
            // The event that ends the submission, perhaps a gap, comes after its entries.
            nothing_after = false;
            let Some((e, _)) = Event::parse(t.bytes.get(t.at..).unwrap_or(&[])) else { break };
            match e.body {
                Body::Ring(r) if !begun => s.begin(e.head.tsc, e.head.flags, t.source, r),
                // A gap is noted after the first event that fits again. That event may be a ring whose entries follow.
                Body::Gap(g) => self.gaps.push_back((t.source, Event { head: e.head, body: Body::Gap(g) })),
                // The thread continued in a larger ring, perhaps in the middle of an entry.
                Body::Thread(b) if begun => {
                    self.gaps.push_back((t.source, Event { head: e.head, body: Body::Thread(b) }));
                }
                Body::Entry(b, words) => {
                    if !begun {
                        (s.tsc, s.slot) = (e.head.tsc, b.slot);
                        (s.process, s.tid) = (t.source.process, t.source.tid);
                    } else if !s.takes(e.head.flags, &b) {
                        break;
                    }
                    s.add(e.head.flags, &b, words);
                    nothing_after = true;
                }
                _ => break,
            }
            begun = true;
            t.took();
        }
        s.finish(nothing_after.then(|| self.recording.is_whole()));
        Ok(s)
    }
}
