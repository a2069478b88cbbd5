//! The way through a tape: driver calls into the object graph, submissions through their channel's decoder, in order.
//!
//! [`walk`] hands everything to a [`Sink`] as it is understood; nothing is kept but the graph, the channels and, for each
//! channel, its decoder and the few submissions that wait for their turn. What a sink sees of one channel is in the order
//! of its rings; channels among each other are in the order of time, but for submissions that waited.

use crate::ahead::read_ahead;
use crate::channels::{Seen, announced, implied, set_token};
use crate::gaps::{GapTotals, Gaps};
use crate::merge::{Entry, Step, Submission, missing};
use crate::order::Reorder;
use crate::place::{Reach, class_name, place, place_in};
use crate::qmds::{Qmds, Started};
use crate::recording::{InsightError, Recording, Source};
pub use crate::state::Call;
use crate::state::State;
use pushbuf::class::Family;
use pushbuf::decode::{Decoder, Item};
use pushbuf::gpfifo;
use pushbuf::ops::{Engine, Op, What};
use rm::call::FileKind;
use rm::graph::ObjectGraph;
use schema::channel::{Accounted, Channel, Watch};
use schema::{Clock, Place};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use tape::event::{Body, ChannelBody, ChannelEndBody, Event, NO_SLOT, PageBody, SiteBody, TokenBody, lack};
use tape::file::EndChannel;
use tape::region::SLOTS;

/// Which submissions a reader wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Slot, and generation if only one use of the slot is wanted.
    pub channel: Option<(u32, Option<u32>)>,
    /// `COPY2`, `graphics`: as the channel's engine, in any case.
    pub engine: Option<String>,
    pub thread: Option<i32>,
    /// Seconds of the recording's clock, from and to.
    pub between: Option<(f64, f64)>,
    /// At most so many of whatever is listed.
    pub limit: Option<u64>,
}

impl Filter {
    /// Whether anything of a channel is wanted.
    pub fn wants(&self, c: &Channel) -> bool {
        let slot =
            |&(slot, generation): &(u32, Option<u32>)| c.slot == slot && generation.is_none_or(|g| c.generation == g);
        self.channel.as_ref().is_none_or(slot) && self.engine.as_ref().is_none_or(|e| c.engine.eq_ignore_ascii_case(e))
    }

    /// Whether a submission is wanted.
    pub fn wants_at(&self, at: &At<'_>, clock: &Clock) -> bool {
        let inside = |&(from, to): &(f64, f64)| {
            clock.seconds(at.submission.tsc).is_some_and(|seconds| (from..=to).contains(&seconds))
        };
        self.wants(at.channel)
            && self.thread.is_none_or(|t| at.submission.tid == t)
            && self.between.as_ref().is_none_or(inside)
    }
}

/// Where in the tape a sink is.
pub struct At<'a> {
    pub channel: &'a Channel,
    pub submission: &'a Submission,
    /// Counts the doorbells of known channels, from 0, in the order in which sinks see them.
    pub number: u64,
    pub graph: &'a ObjectGraph,
    reach: Reach,
    qmds: &'a RefCell<Qmds>,
    /// Of the launch at hand.
    started: Cell<Option<Started>>,
}

impl At<'_> {
    /// Where a GPU virtual address lies at this moment.
    pub fn place(&self, va: u64) -> Place {
        self.located(va).0
    }

    /// As [`At::place`], and on which GPU (device instance) a GPU's memory lies.
    pub fn located(&self, va: u64) -> (Place, Option<u32>) {
        place_in(self.graph, self.reach, va)
    }

    /// What the launch that a sink was just given starts, from the stream or from memory.
    pub fn started(&self) -> Option<Started> {
        self.started.get()
    }
}

/// A GPFIFO entry as decoded.
pub struct Segment<'a> {
    pub entry: &'a Entry,
    pub gp: gpfifo::Entry,
    /// GPU virtual address of its words with all bits; 0 for a control entry.
    pub va: u64,
    /// Words that the entry says it has.
    pub dwords: u32,
    pub words: &'a [u32],
    /// Entries are missing between the one before and this.
    pub after_gap: bool,
    /// The upper bits of `va` were last set before entries that are missing.
    pub va_guessed: bool,
}

/// What a reader of a tape takes. Every method does nothing unless it is written.
pub trait Sink {
    /// True to go no further.
    fn done(&self) -> bool {
        false
    }
    fn call(&mut self, _source: Source, _tsc: u64, _call: &Call<'_>) {}
    fn page(&mut self, _process: u32, _page: &PageBody) {}
    fn site(&mut self, _process: u32, _site: &SiteBody, _path: &[u8]) {}
    fn note(&mut self, _text: &[u8]) {}
    fn channel(&mut self, _tsc: u64, _channel: &Channel) {}
    /// The channel was freed, or its slot is another's now: nothing more comes of it but what was held up.
    fn channel_end(&mut self, _channel: &Channel) {}
    /// A doorbell; what it brought follows.
    fn submission(&mut self, _at: &At<'_>) {}
    fn segment(&mut self, _at: &At<'_>, _segment: &Segment<'_>) {}
    fn item(&mut self, _at: &At<'_>, _item: &Item<'_>) {}
    /// What the commands do. Comes after the items of its segment or among them.
    fn op(&mut self, _at: &At<'_>, _op: &Op) {}
    fn submission_end(&mut self, _at: &At<'_>) {}
}

/// What is known at the end of a walk.
pub struct Outcome {
    /// All channels in the order in which they began, their accounts settled.
    pub channels: Vec<Channel>,
    /// The driver's objects of each process image, as they stood at its end.
    pub graphs: BTreeMap<u32, ObjectGraph>,
    /// Doorbells and driver calls of each image.
    pub doorbells_of: BTreeMap<u32, (u64, u64)>,
    /// What did not fit into rings: at least so much, by the GAP events on the tape.
    pub gaps: Gaps,
    /// Layouts of the events of locks and of calls, if there are any.
    pub lock_layout: Option<u32>,
    pub call_layout: Option<u32>,
    /// Rings whose token belongs to no channel that the agent knew.
    pub strangers: u64,
    /// Doorbells on the tape.
    pub doorbells: u64,
    /// Events of a kind that this version does not know.
    pub unknown_events: u64,
    /// Bytes in checked chunks that are no events.
    pub stray_bytes: u64,
    /// Rings that came after their turn had been given up.
    pub late: u64,
    /// First and last time stamp of a doorbell.
    pub first_ring: Option<u64>,
    pub last_ring: Option<u64>,
}

/// One channel's stream. What decodes it is nearly 100 KiB, so it is there from the first submission to the channel's end.
struct Stream {
    decoding: Option<Box<Decoding>>,
    reorder: Reorder,
    seen: Seen,
    /// The channel is no more, and what could be learnt of it is.
    ended: bool,
    /// Engine objects that the decoder has been told of.
    engines: usize,
    resolved: bool,
    /// How many calls the graph knew of then.
    resolved_at: u64,
    /// Time of the newest submission, and one more than its highest entry counter.
    newest: u64,
    top_entry: u64,
    reach: Reach,
}

struct Decoding {
    decoder: Decoder,
    engine: Engine,
    /// The number of the last submission that it decoded.
    used: u64,
}

/// Channels whose decoders are there at a time. Each process may have hundreds, and a tape that was written over any number; one
/// that goes on after so many others begins anew, as after a gap.
const DECODERS: usize = 1024;

impl Stream {
    fn new() -> Stream {
        Stream {
            decoding: None,
            reorder: Reorder::default(),
            seen: Seen::default(),
            ended: false,
            engines: 0,
            resolved: false,
            resolved_at: 0,
            newest: 0,
            top_entry: 0,
            reach: Reach::default(),
        }
    }

    fn arrived(&mut self, s: &Submission) {
        self.newest = self.newest.max(s.tsc);
        let top = s.entries.iter().map(|e| e.seq.saturating_add(1)).max();
        self.top_entry = self.top_entry.max(top.unwrap_or(0));
    }

    /// The channel is no more: gives back what decoded it.
    fn end(&mut self) {
        self.ended = true;
        self.forget();
    }

    /// A submission that comes all the same begins anew.
    fn forget(&mut self) {
        self.decoding = None;
        (self.engines, self.resolved_at) = (0, 0);
    }
}

impl Decoding {
    fn new(class: u32) -> Box<Decoding> {
        let decoder = Decoder::new(if class == 0 { HOPPER_CHANNEL } else { class });
        Box::new(Decoding { decoder, engine: Engine::new(), used: 0 })
    }
}

/// The host class whose methods are assumed on a channel whose class is not on the tape.
const HOPPER_CHANNEL: u32 = 0xc86f;

struct Walk<'r> {
    recording: &'r Recording,
    out: Outcome,
    streams: Vec<Stream>,
    images: BTreeMap<u32, State>,
    /// Ticks to wait for a ring that is missing in its channel's order.
    patience: u64,
    ready: Vec<Submission>,
    gaps: GapTotals,
    /// Submissions given to the sink.
    given: u64,
    /// Channels that have a decoder, some of which have ended since.
    decoders: Vec<usize>,
}

/// Goes through the whole tape.
pub fn walk(recording: &Recording, sink: &mut impl Sink) -> Result<Outcome, InsightError> {
    let hz = recording.header().tsc_hz;
    let mut w = Walk {
        recording,
        out: Outcome {
            channels: Vec::new(),
            graphs: BTreeMap::new(),
            doorbells_of: BTreeMap::new(),
            gaps: Gaps::default(),
            lock_layout: None,
            call_layout: None,
            strangers: 0,
            doorbells: 0,
            unknown_events: 0,
            stray_bytes: 0,
            late: 0,
            first_ring: None,
            last_ring: None,
        },
        streams: Vec::new(),
        images: BTreeMap::new(),
        patience: if hz.is_finite() && hz > 1.0 { hz as u64 } else { 3_000_000_000 },
        ready: Vec::new(),
        gaps: GapTotals::default(),
        given: 0,
        decoders: Vec::new(),
    };
    read_ahead(recording, |steps| {
        while !sink.done() {
            match steps.next_step()? {
                None => break,
                Some(Step::Event(source, e)) => w.event(source, &e, sink),
                Some(Step::Submission(s)) => w.take(s, sink),
            }
            w.ready.drain(..).for_each(|s| steps.recycle(s));
        }
        w.finish(steps.stray_bytes(), sink);
        Ok(w.out)
    })
}

impl Walk<'_> {
    /// What is known of an image.
    fn state(&mut self, process: u32) -> &mut State {
        let driver = &self.recording.header().driver;
        self.images.entry(process).or_insert_with(|| State::of(driver))
    }

    fn event(&mut self, source: Source, e: &Event<'_>, sink: &mut impl Sink) {
        let tsc = e.head.tsc;
        let process = source.process;
        let call = match &e.body {
            Body::Ioctl(body, arg, nested) => Call::Ioctl { body, arg, nested },
            Body::Mmap(m) => Call::Mmap(m),
            Body::Munmap(m) => Call::Munmap { addr: m.addr, len: m.len },
            Body::Mremap(m) => Call::Mremap { old: m.old, old_len: m.old_len, new: m.new, new_len: m.new_len },
            Body::Open(f, path) => Call::Open { fd: f.fd, file: FileKind::from_raw(f.file), path },
            Body::Close(f) => Call::Close { fd: f.fd, file: FileKind::from_raw(f.file) },
            Body::Dup(f) => Call::Dup { fd: f.fd, new: f.other, file: FileKind::from_raw(f.file) },
            Body::Channel(ChannelBody { slot, .. })
            | Body::Token(TokenBody { slot, .. })
            | Body::ChannelEnd(ChannelEndBody { slot, .. })
                if *slot as usize >= SLOTS =>
            {
                self.out.unknown_events += 1;
                return;
            }
            Body::Channel(b) => {
                self.end_of(process, b.slot, sink);
                let generation = self.state(process).generation(b.slot);
                self.begin(process, announced(generation, b));
                return;
            }
            Body::Token(t) => {
                let i = self.channel_of(process, t.slot);
                let i = if self.out.channels[i].token.is_some_and(|known| known != t.token) {
                    // Another channel has the slot: its CHANNEL event fell into a gap.
                    self.end_of(process, t.slot, sink);
                    self.channel_of(process, t.slot)
                } else {
                    i
                };
                set_token(&mut self.out.channels[i], t.token);
                return;
            }
            Body::ChannelEnd(b) => {
                let i = self.channel_of(process, b.slot);
                self.flush(i, sink);
                self.resolve(i);
                let c = &mut self.out.channels[i];
                c.freed = true;
                (c.accounted, c.accounted_by) = (b.entries, Accounted::Freed);
                self.streams[i].seen.rings = Some(b.rings);
                self.streams[i].end();
                sink.channel_end(c);
                // What comes for the slot now is of another channel, announced or not.
                self.state(process).live.remove(&b.slot);
                return;
            }
            Body::Page(p) => return sink.page(process, p),
            Body::Site(s, path) => return sink.site(process, s, path),
            Body::Note(text) => return sink.note(text),
            Body::Gap(g) => {
                self.gaps.add(source, g);
                return;
            }
            Body::Thread(_) => {
                self.gaps.begins(source);
                return;
            }
            Body::Ring(_) | Body::Entry(..) => return,
            Body::Calls(c) => {
                self.out.call_layout = Some(c.layout);
                return;
            }
            Body::Locks(l) => {
                self.out.lock_layout = Some(l.layout);
                return;
            }
            // Of locks and calls: crate lock-analysis.
            Body::Call(_)
            | Body::InCall(_)
            | Body::Pair(_)
            | Body::Hold(_)
            | Body::Op(_)
            | Body::Held(_)
            | Body::Sched(_)
            | Body::Mapping(..)
            | Body::Switches(..)
            | Body::Switch(_)
            | Body::SwitchesLost(_)
            | Body::Task(_)
            | Body::Deadline(_) => return,
            Body::Unknown => {
                self.out.unknown_events += 1;
                return;
            }
        };
        self.state(process).learn(&call);
        sink.call(source, tsc, &call);
    }

    fn begin(&mut self, process: u32, channel: Channel) -> usize {
        let i = self.out.channels.len();
        self.state(process).live.insert(channel.slot, i);
        self.streams.push(Stream::new());
        self.out.channels.push(Channel { number: i, process, pid: self.recording.pid(process), ..channel });
        i
    }

    /// The channel in a slot; one that was never announced begins here.
    fn channel_of(&mut self, process: u32, slot: u32) -> usize {
        let state = self.state(process);
        match state.live.get(&slot) {
            Some(&i) => i,
            None => {
                let generation = state.generation(slot);
                self.begin(process, implied(slot, generation))
            }
        }
    }

    /// The slot is another's now, though the end of its channel is not on the tape.
    fn end_of(&mut self, process: u32, slot: u32, sink: &mut impl Sink) {
        if let Some(i) = self.state(process).live.remove(&slot) {
            self.flush(i, sink);
            if !self.streams[i].ended {
                self.resolve(i);
            }
            self.streams[i].end();
            sink.channel_end(&self.out.channels[i]);
        }
    }

    /// Takes a submission as the merge gives it.
    fn take(&mut self, s: Submission, sink: &mut impl Sink) {
        if s.slot as usize >= SLOTS && s.slot != NO_SLOT {
            // No agent has written that.
            self.out.unknown_events += 1;
            self.ready.push(s);
            return;
        }
        if s.ring.is_some() {
            self.out.doorbells += 1;
            self.state(s.process).doorbells += 1;
            self.out.first_ring.get_or_insert(s.tsc);
            self.out.last_ring = Some(self.out.last_ring.map_or(s.tsc, |l| l.max(s.tsc)));
        }
        if s.slot == NO_SLOT {
            self.out.strangers += 1;
            self.ready.push(s);
            return;
        }
        let mut i = self.channel_of(s.process, s.slot);
        if self.is_of_another(i, &s) {
            self.end_of(s.process, s.slot, sink);
            i = self.channel_of(s.process, s.slot);
        }
        self.streams[i].arrived(&s);
        let from = self.ready.len();
        self.streams[i].reorder.push(s, self.patience, &mut self.ready);
        self.decode_ready(i, from, sink);
    }

    /// True if a submission is not of the channel that has its slot: both ends of a channel's life fell into a gap. Its token
    /// is another one, or its counters begin anew although it came later.
    fn is_of_another(&self, i: usize, s: &Submission) -> bool {
        let (c, stream) = (&self.out.channels[i], &self.streams[i]);
        if let (Some(r), Some(known)) = (s.ring, c.token)
            && r.token != known
        {
            return true;
        }
        let ring_again = s.ring.is_none_or(|r| r.seq < stream.reorder.next());
        let entry_again = s.entries.first().is_none_or(|e| e.seq < stream.top_entry);
        let any = s.ring.is_some() || !s.entries.is_empty();
        any && ring_again && entry_again && s.tsc > stream.newest
    }

    fn flush(&mut self, i: usize, sink: &mut impl Sink) {
        let from = self.ready.len();
        self.streams[i].reorder.flush(&mut self.ready);
        self.decode_ready(i, from, sink);
    }

    fn decode_ready(&mut self, i: usize, from: usize, sink: &mut impl Sink) {
        let ready = std::mem::take(&mut self.ready);
        for s in &ready[from..] {
            self.decode(i, s, sink);
        }
        self.ready = ready;
    }

    /// Learns from the graph what the channel's own events do not say, and tells its decoder of new engine objects.
    fn resolve(&mut self, i: usize) {
        let (c, s) = (&mut self.out.channels[i], &mut self.streams[i]);
        let state = self.images.entry(c.process).or_default();
        let graph = &state.graph;
        let found = match (c.announced, c.token) {
            (true, _) => graph.channel(c.client, c.handle),
            (false, Some(token)) => graph.channel_by_token(token),
            (false, None) => None,
        };
        if let Some(g) = found {
            if c.class == 0 {
                c.class = g.class;
                (c.client, c.handle, c.gpfifo, c.ring_entries) = (g.client, g.handle, g.gpfifo, g.entries);
                if let Some(d) = &mut s.decoding {
                    d.decoder = Decoder::new(g.class);
                }
            }
            c.gpu = g.gpu;
            s.reach = Reach { space: g.va_space.map(|space| (g.client, space)), gpu: g.gpu };
            c.engine = g.engine_name().unwrap_or_default().into();
            if let (None, Some(t)) = (c.token, g.token) {
                set_token(c, t);
            }
            if let Some(at) = g.gpfifo_at {
                c.gpfifo_place = place(at.place);
            }
            if let Some(u) = g.userd {
                c.userd_place = place(u.place);
            }
            if let Some(d) = &mut s.decoding {
                for &(_, class) in g.engines.iter().skip(s.engines) {
                    bind(&mut d.decoder, class, c.engine.starts_with("COPY"));
                }
                s.engines = g.engines.len();
            }
        }
        if c.gpfifo_place == Place::Unknown && c.gpfifo != 0 {
            c.gpfifo_place = place_in(graph, s.reach, c.gpfifo).0;
        }
        c.class_name = class_name(c.class);
        (s.resolved, s.resolved_at) = (true, state.calls);
    }

    /// Has a decoder for the channel, in the place of those that were not used for the longest time if there are too many.
    fn have_decoder(&mut self, i: usize) {
        let (class, given) = (self.out.channels[i].class, self.given);
        if let Some(d) = &mut self.streams[i].decoding {
            d.used = given;
            return;
        }
        let streams = &mut self.streams;
        if self.decoders.len() >= DECODERS {
            let used = |i: &usize| streams[*i].decoding.as_ref().map(|d| d.used);
            self.decoders.retain(|i| used(i).is_some());
            self.decoders.sort_by_key(used);
            let many = self.decoders.len().saturating_sub(DECODERS / 2);
            self.decoders.drain(..many).for_each(|i| streams[i].forget());
        }
        self.decoders.push(i);
        let mut new = Decoding::new(class);
        new.used = given;
        streams[i].decoding = Some(new);
    }

    fn decode(&mut self, i: usize, s: &Submission, sink: &mut impl Sink) {
        if let Some(r) = s.ring
            && self.out.channels[i].token.is_none()
        {
            set_token(&mut self.out.channels[i], r.token);
        }
        self.have_decoder(i);
        if !self.streams[i].resolved || self.unbound(i) {
            let first = !self.streams[i].resolved;
            self.resolve(i);
            if first {
                sink.channel(s.tsc, &self.out.channels[i]);
            }
        }
        self.count(i, s);
        let number = self.given;
        self.given += 1;
        let mut expected = self.streams[i].seen.next_entry;
        let channel = &self.out.channels[i];
        let Some(state) = self.images.get(&channel.process) else { return };
        let at = At {
            channel,
            submission: s,
            number,
            graph: &state.graph,
            reach: self.streams[i].reach,
            qmds: &state.qmds,
            started: Cell::new(None),
        };
        sink.submission(&at);
        let mut decoding = self.streams[i].decoding.as_deref_mut();
        for e in &s.entries {
            let after_gap = e.seq != expected;
            expected = e.seq.saturating_add(1);
            if let Some(d) = &mut decoding {
                d.entry(&at, s, e, after_gap, sink);
            }
        }
        sink.submission_end(&at);
        self.after(i, s);
    }

    /// True if the graph knows of more engine objects on the channel than its decoder. Asked again only after a call.
    fn unbound(&mut self, i: usize) -> bool {
        let (c, s) = (&self.out.channels[i], &mut self.streams[i]);
        let state = self.images.entry(c.process).or_default();
        if s.resolved_at == state.calls {
            return false;
        }
        s.resolved_at = state.calls;
        state.graph.channel(c.client, c.handle).is_some_and(|g| g.engines.len() > s.engines)
    }

    fn count(&mut self, i: usize, s: &Submission) {
        let c = &mut self.out.channels[i];
        let graph = &self.images.entry(c.process).or_default().graph;
        let reach = self.streams[i].reach;
        if s.ring.is_some() {
            c.rings += 1;
        }
        if !s.entries.is_empty() && c.watch == Watch::Blind {
            // Its memory was mapped after the channel was made.
            c.watch = Watch::Unknown;
        }
        let blind = c.watch == Watch::Blind;
        if !s.entries.is_empty() || (blind && s.ring.is_some()) {
            c.submissions += 1;
        }
        c.entries += s.entries.len() as u64;
        let cut = |e: &&Entry| matches!(e.lack, lack::RING_FULL | missing::TAPE_ENDS);
        self.streams[i].seen.cut += s.entries.iter().filter(cut).count() as u64;
        for e in &s.entries {
            if let gpfifo::Entry::Segment(g) = gpfifo::Entry::parse(e.gp) {
                c.command_bytes += u64::from(g.dwords) * 4;
                if c.pushbuffer_place == Place::Unknown {
                    c.pushbuffer_place = place_in(graph, reach, g.va).0;
                }
            }
        }
    }

    fn after(&mut self, i: usize, s: &Submission) {
        let seen = &mut self.streams[i].seen;
        for e in &s.entries {
            seen.next_entry = seen.next_entry.max(e.seq.saturating_add(1));
        }
    }

    fn finish(&mut self, stray_bytes: usize, sink: &mut impl Sink) {
        for i in 0..self.streams.len() {
            if !sink.done() {
                self.flush(i, sink);
            }
            // (By now the handle of one that ended may be another's.)
            if !self.streams[i].ended {
                self.resolve(i);
            }
        }
        self.out.gaps = self.gaps.at_least();
        self.out.stray_bytes = stray_bytes as u64;
        for (i, c) in self.out.channels.iter_mut().enumerate() {
            c.rings_missing = self.streams[i].reorder.missing;
            self.out.late += self.streams[i].reorder.late;
            let last_of_slot = self.images.get(&c.process).is_some_and(|s| s.live.get(&c.slot) == Some(&i));
            let mut ends = ends_of(self.recording, c.process).iter();
            let end = ends.find(|e| last_of_slot && e.slot == c.slot && (c.handle == 0 || e.handle == c.handle));
            self.streams[i].seen.settle(c, end);
        }
        for (process, state) in std::mem::take(&mut self.images) {
            self.out.doorbells_of.insert(process, (state.doorbells, state.calls));
            self.out.graphs.insert(process, state.graph);
        }
    }
}

/// The channels of an image as they stood at its end. (A recording of one image may say them at its own end only.)
fn ends_of(r: &Recording, process: u32) -> &[EndChannel] {
    let own = r.image_of(process).and_then(|i| i.end.as_ref()).map(|e| &e.channels[..]);
    let only = || r.end().filter(|_| r.images().len() <= 1 && !r.is_selected()).map(|e| &e.channels[..]);
    own.or_else(only).unwrap_or_default()
}

fn give(sink: &mut impl Sink, at: &At<'_>, op: &Op) {
    let What::Launch(l) = &op.what else { return sink.op(at, op) };
    at.started.set(Some(at.qmds.borrow_mut().start(at.channel.number, l)));
    sink.op(at, op);
    at.started.set(None);
}

/// Binds an engine class where its methods are sent: all subchannels of a copy channel (its runlist ignores them), else
/// the fixed subchannels of a graphics runlist.
fn bind(decoder: &mut Decoder, class: u32, copy_channel: bool) {
    match Family::of(class) {
        Some(Family::Copy) if copy_channel => decoder.bind_all(class),
        Some(Family::Copy) => decoder.bind(4, class),
        Some(Family::Compute) => decoder.bind(1, class),
        Some(Family::InlineToMemory) => decoder.bind(2, class),
        _ => {}
    }
}

impl Decoding {
    fn entry(&mut self, at: &At<'_>, s: &Submission, e: &Entry, after_gap: bool, sink: &mut impl Sink) {
        if after_gap {
            self.decoder.entries_missing();
            self.engine.forget(&mut |op| give(sink, at, op));
        }
        let gp = gpfifo::Entry::parse(e.gp);
        let place = self.decoder.entry(&gp);
        let words = s.words(e);
        let (va, dwords) = place.map_or((0, 0), |p| (p.va, p.dwords));
        let va_guessed = place.is_some_and(|p| p.guessed);
        sink.segment(at, &Segment { entry: e, gp, va, dwords, words, after_gap, va_guessed });
        if place.is_none() {
            return;
        }
        let (decoder, engine) = (&mut self.decoder, &mut self.engine);
        decoder.segment(words, |item| {
            sink.item(at, &item);
            engine.item(&item, &mut |op| give(sink, at, op));
        });
        engine.end_segment(&mut |op| give(sink, at, op));
        if (words.len() as u64) < u64::from(dwords) {
            // The rest of a sequence, and more, was in words that are not on the tape.
            self.decoder.resynchronise();
            self.engine.forget(&mut |op| give(sink, at, op));
        }
    }
}
