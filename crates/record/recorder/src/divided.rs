//! Divides events: those that later events depend on, and those that may be dropped, which are counted.

use crate::kept::{Kept, Lasting, left_out, time_of};
use tape::event::{Body, Event, LeftOutBody, NO_SLOT};

/// Events that a saved part lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub events: u64,
    pub bytes: u64,
    pub doorbells: u64,
    pub processes: u64,
}

impl Left {
    pub fn add(&mut self, other: Left) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.doorbells += other.doorbells;
        self.processes += other.processes;
    }
}

/// The result of [`look`].
pub struct Divided {
    pub first: u64,
    pub last: u64,
    pub lasting: Vec<u8>,
    pub left: Left,
    /// Events that ended at `until` or later.
    pub rest: Vec<u8>,
}

impl Default for Divided {
    fn default() -> Divided {
        Divided { first: u64::MAX, last: 0, lasting: Vec::new(), left: Left::default(), rest: Vec::new() }
    }
}

/// Leaves out events that ended at `until` or later, unless other events depend on them.
pub fn before(kept: &Kept, tid: i32, mut events: &[u8], until: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(events.len());
    while let Some((e, n)) = Event::parse(events) {
        let (bytes, rest) = events.split_at(n);
        events = rest;
        // Ends of kernels are written later than `until`: those of kernels before it are needed, and others do no harm.
        let is_recorders = matches!(e.body, Body::Ends(..));
        if is_recorders || time_of(&e) < until || Lasting::of(kept.branch(), tid, &e) != Lasting::Moment {
            out.extend_from_slice(bytes);
        }
    }
    out
}

/// The counters of a channel in these events.
struct Reached {
    token: u32,
    tsc: u64,
    body: LeftOutBody,
}

/// Divides the events of one thread that ended before `until`, and calls `each` with them.
pub fn divide(
    kept: &Kept,
    tid: i32,
    mut events: &[u8],
    until: u64,
    out: &mut Divided,
    mut each: impl FnMut(&Event<'_>),
) {
    let branch = kept.branch();
    let mut channels: Vec<Reached> = Vec::new();
    let put = |came: Reached, lasting: &mut Vec<u8>| lasting.extend(left_out(came.tsc, &came.body));
    while let Some((e, n)) = Event::parse(events) {
        let (bytes, rest) = events.split_at(n);
        events = rest;
        let time = time_of(&e);
        (out.first, out.last) = (out.first.min(time), out.last.max(time));
        if time >= until {
            out.rest.extend_from_slice(bytes);
            continue;
        }
        each(&e);
        match Lasting::of(branch, tid, &e) {
            Lasting::Moment => {
                out.left.events += 1;
                out.left.bytes += n as u64;
            }
            Lasting::Channel(slot) | Lasting::ChannelEnd(slot) => {
                // Doorbells before it belong to another channel.
                if let Some(i) = channels.iter().position(|c| c.body.slot == slot) {
                    put(channels.swap_remove(i), &mut out.lasting);
                }
                out.lasting.extend_from_slice(bytes);
            }
            _ => out.lasting.extend_from_slice(bytes),
        }
        match &e.body {
            Body::Ring(r) => {
                out.left.doorbells += 1;
                if r.slot == NO_SLOT {
                    continue;
                }
                let another = |c: &Reached| c.body.slot == r.slot && (c.token != r.token || r.seq < c.body.rings);
                if let Some(i) = channels.iter().position(another) {
                    put(channels.swap_remove(i), &mut out.lasting);
                }
                let c = of_slot(&mut channels, r.slot, r.token);
                (c.tsc, c.body.rings) = (e.head.tsc, r.seq.saturating_add(1));
            }
            Body::Entry(b, _) if b.slot != NO_SLOT => {
                let c = of_slot(&mut channels, b.slot, 0);
                (c.tsc, c.body.entries) = (e.head.tsc, b.seq.saturating_add(1));
            }
            _ => {}
        }
    }
    channels.into_iter().for_each(|c| put(c, &mut out.lasting));
}

fn of_slot(all: &mut Vec<Reached>, slot: u32, token: u32) -> &mut Reached {
    let i = all.iter().position(|c| c.body.slot == slot).unwrap_or_else(|| {
        all.push(Reached { token, tsc: 0, body: LeftOutBody { slot, ..LeftOutBody::default() } });
        all.len() - 1
    });
    &mut all[i]
}
