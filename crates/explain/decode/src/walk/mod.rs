//! The way through a tape: driver calls into the object graph, submissions through their channel's decoder, in order.
//!
//! [`walk`] hands everything to a [`Sink`] as it is understood; nothing is kept but the graph, the channels and, for each
//! channel, its decoder and the few submissions that wait for their turn. What a sink sees of one channel is in the order
//! of its rings; channels among each other are in the order of time, but for submissions that waited.

mod checkpoint;
mod sink;
mod stream;
mod submission;
mod timing;
mod wanted;

use crate::ahead::read_ahead_from;
use crate::channels::{announced, implied, set_token};
pub use crate::filter::{Filter, Pattern};
use crate::gaps::{GapTotals, Gaps};
use crate::gpu_times::GpuTimes;
use crate::legs::{Start, legs};
use crate::merge::{Merge, Step, Submission};
use crate::pauses::Pauses;
use crate::python;
use crate::python_frames::Stacks;
use crate::ranges::{Oddities, Texts};
use crate::recording::{InsightError, Recording, Source};
pub use crate::state::Call;
use crate::state::State;
use crate::streams;
pub(crate) use checkpoint::Places;
use checkpoint::{Nowhere, call_of};
use schema::channel::{Accounted, Channel};
pub use sink::{At, GraphKernel, Outcome, Segment, Sink};
use std::collections::BTreeMap;
use stream::Stream;
use tape::call::number;
use tape::event::{Body, ChannelBody, ChannelEndBody, Event, LeftOutBody, NO_SLOT, TokenBody};
use tape::file::EndChannel;
use tape::region::SLOTS;

struct Walk<'r> {
    recording: &'r Recording,
    stacks: Stacks,
    times: GpuTimes,
    out: Outcome,
    streams: Vec<Stream>,
    images: BTreeMap<u32, State>,
    /// Ticks to wait for a ring that is missing in its channel's order.
    patience: u64,
    ready: Vec<Submission>,
    gaps: GapTotals,
    texts: Texts,
    /// Submissions given to the sink.
    given: u64,
    /// The latest time stamp of these.
    newest_given: u64,
    /// Channels that have a decoder, some of which have ended since.
    decoders: Vec<usize>,
}

/// A graph with a conditional node needs this call.
const CONDITIONAL: u16 = number("cuGraphConditionalHandleCreate");
/// Decides whether later launches of a graph run a kernel.
const SWITCHES: u16 = number("cuGraphNodeSetEnabled");
/// Makes a graph. CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: one that kernels may launch.
const INSTANTIATES: u16 = number("cuGraphInstantiateWithFlags");
const DEVICE_LAUNCH: u64 = 4;
const MAKE_STREAMS: [u16; 6] = [
    number("cuStreamCreate"),
    number("cuStreamCreateWithPriority"),
    number("cuGreenCtxStreamCreate"),
    number("cudaStreamCreate"),
    number("cudaStreamCreateWithFlags"),
    number("cudaStreamCreateWithPriority"),
];

/// Goes through the whole tape, or from where the sink wants it on.
pub fn walk(recording: &Recording, sink: &mut dyn Sink) -> Result<Outcome, InsightError> {
    walk_to(recording, sink, &mut Nowhere)
}

/// The same, and notes places from which it can be done again.
pub(crate) fn walk_to(
    recording: &Recording,
    sink: &mut dyn Sink,
    places: &mut dyn Places,
) -> Result<Outcome, InsightError> {
    let mut legs = legs(recording, sink.from(), sink.filter());
    let mut w = Walk::new(recording, python::stacks(recording)?);
    let mut from = Merge::new(recording);
    if let Some((walk, merge)) = w.at(legs.start()) {
        (w, from) = (walk, merge);
    }
    let notes = places.apart().is_some();
    // (Those that wait for their turn are given when the walk ends, or before.)
    let until = sink.until().map(|until| until.saturating_add(w.patience));
    loop {
        let next: Result<_, InsightError> = read_ahead_from(from, places.apart(), |steps| {
            while !sink.done() {
                match steps.next_step()? {
                    None => break,
                    Some(Step::Event(source, e, bytes)) => {
                        if notes && call_of(&e.body).is_some() {
                            places.call(source, bytes);
                        }
                        w.event(source, &e, sink);
                    }
                    Some(Step::Submission(s)) if until.is_some_and(|until| s.tsc > until) => break,
                    Some(Step::Submission(s)) => w.take(s, sink),
                }
                w.ready.drain(..).for_each(|s| steps.recycle(s));
                if places.is_due(w.given)
                    && let Some(position) = steps.position()
                {
                    places.place(w.given, w.newest_given, position, &mut |to| w.save(to));
                }
                if legs.ends(w.given)
                    && let Some(next) = w.at(legs.start())
                {
                    return Ok(Some(next));
                }
            }
            w.finish(steps.stray_bytes(), sink);
            Ok(None)
        });
        match next? {
            None => return Ok(w.out),
            Some((walk, merge)) => (w, from) = (walk, merge),
        }
    }
}

impl<'r> Walk<'r> {
    /// The walk that begins at a place. `None`: what is stored there is not that; this one can go on.
    fn at(&mut self, start: Option<Start<'r>>) -> Option<(Walk<'r>, Merge<'r>)> {
        let start = start?;
        let mut walk = Walk::new(self.recording, std::mem::take(&mut self.stacks));
        let loaded = walk.load(&start.calls, &start.state);
        if loaded.is_none() {
            self.stacks = walk.stacks;
            return None;
        }
        Some((walk, start.merge))
    }

    fn new(recording: &'r Recording, stacks: Stacks) -> Walk<'r> {
        let hz = recording.header().tsc_hz;
        Walk {
            recording,
            stacks,
            times: GpuTimes::of_recording(recording),
            out: Outcome {
                channels: Vec::new(),
                streams: BTreeMap::new(),
                graphs: BTreeMap::new(),
                codes: BTreeMap::new(),
                doorbells_of: BTreeMap::new(),
                pauses: Pauses::default(),
                gaps: Gaps::default(),
                lock_layout: None,
                call_layout: None,
                nvtx: None,
                range_oddities: Oddities::default(),
                texts: Texts::default(),
                strangers: 0,
                doorbells: 0,
                unknown_events: 0,
                stray_bytes: 0,
                late: 0,
                first_ring: None,
                last_ring: None,
                times: GpuTimes::default(),
            },
            streams: Vec::new(),
            images: BTreeMap::new(),
            patience: if hz.is_finite() && hz > 1.0 { hz as u64 } else { 3_000_000_000 },
            ready: Vec::new(),
            gaps: GapTotals::default(),
            texts: Texts::default(),
            given: 0,
            newest_given: 0,
            decoders: Vec::new(),
        }
    }

    /// What is known of an image.
    fn state(&mut self, process: u32) -> &mut State {
        let driver = &self.recording.header().driver;
        self.images.entry(process).or_insert_with(|| State::of(driver))
    }

    fn event(&mut self, source: Source, e: &Event<'_>, sink: &mut dyn Sink) {
        let tsc = e.head.tsc;
        let process = source.process;
        if let Body::Call(c) = &e.body {
            match e.head.flags {
                CONDITIONAL => self.state(process).codes.conditional = true,
                // (Without times there is nothing better than what the graph was made of.)
                SWITCHES => self.state(process).codes.switched = self.recording.header().gpu_times,
                INSTANTIATES if c.object & DEVICE_LAUNCH != 0 && c.result == 0 => {
                    self.state(process).codes.device_graphs += 1;
                }
                f if MAKE_STREAMS.contains(&f) && c.result == 0 && c.stream != 0 => {
                    streams::made(&mut self.out.streams, process, c)
                }
                _ => {}
            }
        }
        let call = match &e.body {
            Body::Ioctl(..)
            | Body::Mmap(_)
            | Body::Munmap(_)
            | Body::Mremap(_)
            | Body::Open(..)
            | Body::Close(_)
            | Body::Dup(_) => call_of(&e.body),
            Body::Channel(ChannelBody { slot, .. })
            | Body::Token(TokenBody { slot, .. })
            | Body::ChannelEnd(ChannelEndBody { slot, .. })
            | Body::LeftOut(LeftOutBody { slot, .. })
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
            Body::LeftOut(l) => return self.left_out(process, l),
            Body::Page(p) => return sink.page(process, p),
            Body::Site(s, path) => return sink.site(process, s, path),
            Body::Note(text) => return sink.note(text),
            Body::Gap(g) => {
                self.gaps.add(source, g);
                return;
            }
            Body::Thread(_) => {
                self.gaps.begins(source);
                return self.range(source, e, sink);
            }
            Body::Pause(p) => {
                self.state(process).pauses.event(p.paused != 0, tsc);
                return self.range(source, e, sink);
            }
            Body::Nvtx(n) => {
                let states = self.out.nvtx.map_or(0, |(_, states)| states);
                self.out.nvtx = Some((n.layout, states | 1u32.checked_shl(n.state).unwrap_or(0)));
                return;
            }
            Body::Text(t, text) => return self.texts.event(e.head.flags, t, text),
            Body::Push(_) | Body::Pop(_) | Body::Start(_) | Body::End(_) | Body::Mark(_) => {
                return self.range(source, e, sink);
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
            Body::Name(n, name) => return self.state(process).name(n.handle, name),
            Body::Object(o, words) => return self.state(process).object(o.handle, words),
            // The walk itself has no use for them.
            Body::Call(_)
            | Body::InCall(_)
            | Body::Origin(_)
            | Body::ExportTable(_)
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
            | Body::Deadline(_)
            | Body::FaultsWatched(..)
            | Body::Faults(..)
            | Body::FaultsLost(_)
            | Body::Stolen(_) => {
                if sink.wants_events() {
                    let around = self.state(process).ranges.around(source.tid);
                    sink.event(source, e, around.as_deref());
                }
                return;
            }
            // Of Python: `crate::python_frames`.
            Body::Python(..) | Body::PythonCode(..) | Body::PythonStack(..) => return,
            Body::Stamps(s) => return self.times.state(process, s),
            // Are read where they are asked for: crate::gpu_times.
            Body::GpuClock(_) | Body::Ends(..) => return,
            Body::Launched(l, runs) => return self.state(process).running.launched(l, runs),
            Body::Copied(c) => return self.state(process).running.copied(c),
            Body::Unknown => {
                self.out.unknown_events += 1;
                return;
            }
        };
        let Some(call) = call else { return };
        let state = self.state(process);
        state.learn(&call);
        let branch = state.graph.branch();
        sink.call(source, tsc, &call, branch);
    }

    fn range(&mut self, source: Source, e: &Event<'_>, sink: &mut dyn Sink) {
        let driver = &self.recording.header().driver;
        let (texts, state) = (&self.texts, self.images.entry(source.process).or_insert_with(|| State::of(driver)));
        state.ranges.event(source, e, &mut |range| sink.range(range, texts));
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

    /// The recording has nothing of the slot's channel before this, and nothing of the channels before it.
    fn left_out(&mut self, process: u32, l: &LeftOutBody) {
        let state = self.state(process);
        state.had_channels(l.slot, l.generation);
        if !state.live.contains_key(&l.slot) && (l.rings, l.entries) == (0, 0) {
            return;
        }
        let i = self.channel_of(process, l.slot);
        let channel = &mut self.out.channels[i];
        channel.generation = channel.generation.max(l.generation);
        self.state(process).had_channels(l.slot, l.generation.saturating_add(1));
        if l.rings > 0 || l.entries > 0 {
            self.streams[i].left_out(l);
        }
    }

    /// The slot is another's now, though the end of its channel is not on the tape.
    fn end_of(&mut self, process: u32, slot: u32, sink: &mut dyn Sink) {
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
    fn take(&mut self, mut s: Submission, sink: &mut dyn Sink) {
        if s.slot as usize >= SLOTS && s.slot != NO_SLOT {
            // No agent has written that.
            self.out.unknown_events += 1;
            self.ready.push(s);
            return;
        }
        let live = self.state(s.process).live.get(&s.slot).copied();
        if live.is_some_and(|i| self.streams[i].is_left_out(&s) && !self.is_of_another_token(i, &s)) {
            self.ready.push(s);
            return;
        }
        if s.ring.is_some() {
            self.out.doorbells += 1;
            self.state(s.process).doorbells += 1;
            self.out.first_ring.get_or_insert(s.tsc);
            self.out.last_ring = Some(self.out.last_ring.map_or(s.tsc, |l| l.max(s.tsc)));
        }
        if s.thread_is_known() {
            s.ranges = self.state(s.process).ranges.around(s.tid);
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
        let stream = &self.streams[i];
        if self.is_of_another_token(i, s) {
            return true;
        }
        let ring_again = s.ring.is_none_or(|r| r.seq < stream.reorder.next());
        let entry_again = s.entries.first().is_none_or(|e| e.seq < stream.top_entry);
        let any = s.ring.is_some() || !s.entries.is_empty();
        any && ring_again && entry_again && s.tsc > stream.newest
    }

    fn is_of_another_token(&self, i: usize, s: &Submission) -> bool {
        matches!((s.ring, self.out.channels[i].token), (Some(r), Some(known)) if r.token != known)
    }

    fn flush(&mut self, i: usize, sink: &mut dyn Sink) {
        let from = self.ready.len();
        self.streams[i].reorder.flush(&mut self.ready);
        self.decode_ready(i, from, sink);
    }

    fn decode_ready(&mut self, i: usize, from: usize, sink: &mut dyn Sink) {
        let ready = std::mem::take(&mut self.ready);
        for s in &ready[from..] {
            self.decode(i, s, sink);
        }
        self.ready = ready;
    }

    fn finish(&mut self, stray_bytes: usize, sink: &mut dyn Sink) {
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
        let recorded_until = self.recording.clocks().last().map_or(0, |c| c.tsc);
        self.out.texts = std::mem::take(&mut self.texts);
        self.out.times = std::mem::take(&mut self.times);
        for (process, mut state) in std::mem::take(&mut self.images) {
            if !sink.done() {
                let texts = &self.out.texts;
                state.ranges.give_up(&mut |range| sink.range(range, texts));
            }
            self.out.range_oddities.strays += state.ranges.oddities.strays;
            self.out.range_oddities.left_out += state.ranges.oddities.left_out;
            self.out.pauses.add(&state.pauses, recorded_until);
            self.out.doorbells_of.insert(process, (state.doorbells, state.calls));
            self.out.codes.insert(process, state.codes);
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
