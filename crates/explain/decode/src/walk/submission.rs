//! A submission's way through its channel's decoder, which learns from the object graph what is on the channel.

use super::sink::OfOp;
use super::stream::Decoding;
use super::timing::Timing;
use super::{At, Sink, Walk};
use crate::channels::set_token;
use crate::merge::{Entry, Submission, missing};
use crate::place::{Reach, class_name, place, place_in};
use pushbuf::class::Family;
use pushbuf::decode::Decoder;
use pushbuf::gpfifo;
use schema::Place;
use schema::channel::Watch;
use tape::event::lack;

/// Channels whose decoders are there at a time. Each process may have hundreds, and a tape that was written over any number; one
/// that goes on after so many others begins anew, as after a gap.
const DECODERS: usize = 1024;

impl Walk<'_> {
    pub fn decode(&mut self, i: usize, s: &Submission, sink: &mut dyn Sink) {
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
        self.newest_given = self.newest_given.max(s.tsc);
        let mut expected = self.streams[i].seen.next_entry;
        let mut after_pause = s.after_pause();
        let begins_anew = !s.entries.is_empty() && std::mem::take(&mut self.streams[i].begins_anew);
        let channel = &self.out.channels[i];
        let Some(state) = self.images.get_mut(&channel.process) else { return };
        let handle = s.ring.map(|ring| ring.kernel).filter(|handle| *handle != 0);
        let mut timing = Timing {
            qmds: &mut state.qmds,
            codes: &mut state.codes,
            running: &mut state.running,
            handle: handle.map(|handle| state.kernels.get(&handle)),
            prepares: handle.map_or(0, |_| Timing::prepares(s)),
            stamps: Vec::new(),
            launches: 0,
        };
        let at = At {
            channel,
            submission: s,
            number,
            graph: &state.graph,
            stacks: &self.stacks,
            reach: self.streams[i].reach,
            texts: &self.texts,
            times: self.times.of(self.recording, channel.process),
            of_op: OfOp::default(),
        };
        sink.submission(&at);
        let mut decoding = self.streams[i].decoding.as_deref_mut();
        if let Some(d) = decoding.as_mut().filter(|_| begins_anew) {
            d.begin_anew(&at, &mut timing, sink);
        }
        for e in &s.entries {
            let after_gap = e.seq != expected || std::mem::take(&mut after_pause);
            expected = e.seq.saturating_add(1);
            if let Some(d) = &mut decoding {
                d.entry(&at, &mut timing, e, after_gap, sink);
            }
        }
        sink.submission_end(&at);
        self.after(i, s);
    }

    /// Learns from the graph what the channel's own events do not say, and tells its decoder of new engine objects.
    pub fn resolve(&mut self, i: usize) {
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
