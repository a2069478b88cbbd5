//! One channel's stream: the order of its submissions, and what decodes their words.

use super::timing::Timing;
use super::{At, Segment, Sink};
use crate::channels::Seen;
use crate::merge::{Entry, Submission};
use crate::order::Reorder;
use crate::place::Reach;
use pushbuf::decode::Decoder;
use pushbuf::gpfifo;
use pushbuf::ops::Engine;
use pushbuf::snapshot::Snapshot;
use tape::event::LeftOutBody;

/// One channel's stream. What decodes it is nearly 100 KiB, so it is there from the first submission to the channel's end.
pub struct Stream {
    pub decoding: Option<Box<Decoding>>,
    pub reorder: Reorder,
    pub seen: Seen,
    /// The channel is no more, and what could be learnt of it is.
    pub ended: bool,
    /// Engine objects that the decoder has been told of.
    pub engines: usize,
    pub resolved: bool,
    /// How many calls the graph knew of then.
    pub resolved_at: u64,
    /// Time of the newest submission, and one more than its highest entry counter.
    pub newest: u64,
    pub top_entry: u64,
    pub reach: Reach,
    /// What its engine was told before the next submission was left out.
    pub begins_anew: bool,
}

pub struct Decoding {
    pub decoder: Decoder,
    pub engine: Engine,
    /// The number of the last submission that it decoded.
    pub used: u64,
    /// The words of a segment without stamps.
    words: Vec<u32>,
}

/// The host class whose methods are assumed on a channel whose class is not on the tape.
const HOPPER_CHANNEL: u32 = 0xc86f;

impl Stream {
    pub fn new() -> Stream {
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
            begins_anew: false,
        }
    }

    /// Writes where it is. False: it is in the middle of something.
    pub fn save(&self, to: &mut Vec<u8>) -> bool {
        if !self.reorder.save(to) {
            return false;
        }
        (self.seen, self.ended, self.engines, self.resolved, self.resolved_at).save(to);
        (self.newest, self.top_entry, self.reach, self.begins_anew).save(to);
        self.decoding.is_some().save(to);
        let Some(d) = &self.decoding else { return true };
        d.used.save(to);
        d.decoder.save(to) && d.engine.save(to)
    }

    pub fn load(from: &mut &[u8]) -> Option<Stream> {
        let mut s = Stream { reorder: Reorder::load(from)?, ..Stream::new() };
        (s.seen, s.ended, s.engines, s.resolved, s.resolved_at) = Snapshot::load(from)?;
        (s.newest, s.top_entry, s.reach, s.begins_anew) = Snapshot::load(from)?;
        if bool::load(from)? {
            let used = Snapshot::load(from)?;
            let (decoder, engine) = (Decoder::load(from)?, Engine::load(from)?);
            s.decoding = Some(Box::new(Decoding { decoder, engine, used, words: Vec::new() }));
        }
        Some(s)
    }

    /// What came before is left out of the recording.
    pub fn left_out(&mut self, l: &LeftOutBody) {
        let seen = &mut self.seen;
        seen.left_out = (l.entries, l.rings);
        seen.next_entry = seen.next_entry.max(l.entries);
        self.top_entry = self.top_entry.max(l.entries);
        self.reorder.begin_at(l.rings);
        self.begins_anew = true;
    }

    /// A submission of before, that came to the recording later than others.
    pub fn is_left_out(&self, s: &Submission) -> bool {
        let (entries, rings) = self.seen.left_out;
        match s.ring {
            Some(r) => r.seq < rings,
            None => s.entries.first().is_some_and(|e| e.seq < entries),
        }
    }

    pub fn arrived(&mut self, s: &Submission) {
        self.newest = self.newest.max(s.tsc);
        let top = s.entries.iter().map(|e| e.seq.saturating_add(1)).max();
        self.top_entry = self.top_entry.max(top.unwrap_or(0));
    }

    /// The channel is no more: gives back what decoded it.
    pub fn end(&mut self) {
        self.ended = true;
        self.forget();
    }

    /// A submission that comes all the same begins anew.
    pub fn forget(&mut self) {
        self.decoding = None;
        (self.engines, self.resolved_at) = (0, 0);
    }
}

impl Decoding {
    pub fn new(class: u32) -> Box<Decoding> {
        let decoder = Decoder::new(if class == 0 { HOPPER_CHANNEL } else { class });
        Box::new(Decoding { decoder, engine: Engine::new(), used: 0, words: Vec::new() })
    }
}

impl Decoding {
    /// What was said before is not known: entries are missing, or were left out.
    pub fn begin_anew(&mut self, at: &At<'_>, timing: &mut Timing<'_>, sink: &mut dyn Sink) {
        self.decoder.entries_missing();
        self.forget(at, timing, sink);
    }

    fn forget(&mut self, at: &At<'_>, timing: &mut Timing<'_>, sink: &mut dyn Sink) {
        let mut between = timing.segment(at, None);
        self.engine.forget(&mut |op| between.give(at, op, sink));
    }

    pub fn entry(&mut self, at: &At<'_>, timing: &mut Timing<'_>, e: &Entry, after_gap: bool, sink: &mut dyn Sink) {
        if after_gap {
            self.begin_anew(at, timing, sink);
        }
        let gp = gpfifo::Entry::parse(e.gp);
        let place = self.decoder.entry(&gp);
        let mut words = at.submission.words(e);
        let (va, dwords) = place.map_or((0, 0), |p| (p.va, p.dwords));
        let va_guessed = place.is_some_and(|p| p.guessed);
        if at.times.is_some() {
            self.words.clear();
            self.words.extend_from_slice(words);
            timing.take_stamps(at, &mut self.words);
            words = &self.words;
        }
        sink.segment(at, &Segment { entry: e, gp, va, dwords, words, after_gap, va_guessed });
        if place.is_none() {
            return;
        }
        let mut segment = timing.segment(at, Some(e.seq));
        let (decoder, engine) = (&mut self.decoder, &mut self.engine);
        decoder.segment(words, |item| {
            sink.item(at, &item);
            engine.item(&item, &mut |op| segment.give(at, op, sink));
        });
        engine.end_segment(&mut |op| segment.give(at, op, sink));
        segment.end(at, sink);
        if (words.len() as u64) < u64::from(dwords) {
            // The rest of a sequence, and more, was in words that are not on the tape.
            self.decoder.resynchronise();
            self.forget(at, timing, sink);
        }
    }
}
