//! The walk over what other threads did while the chosen calls were slow.

use crate::activity::{Span, What};
use crate::between::Gap;
use crate::faults;
use crate::gather::{self, Chosen};
use crate::names::Names;
use crate::off_cpu::OffCpu;
use decode::Source;
use decode::ranges::Open;
use decode::walk::{At, Call, Sink};
use lock_analysis::facts::{Addresses, Held};
use lock_analysis::fast_map::FastMap;
use lock_analysis::labels::Labels;
use lock_analysis::ops::Class;
use pushbuf::ops::Op;
use rm::abi::Branch;
use std::collections::HashMap;
use tape::event::{Body, Event};
use tape::lock::{ended, left, op};

/// Maximum number of holds, signals, calls and times of each kind that are kept for one call's time.
const KEPT: usize = 1 << 13;

/// A lock that a thread had.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub thread: Source,
    pub lock: u64,
    pub taken: u64,
    pub released: u64,
    /// It had been released by `released`, perhaps earlier. It may have delayed a wait, if no other hold did.
    pub late: bool,
    /// The lock named the thread at `released`. `taken`: since when it is known to have it, or since when that was recorded.
    pub named: bool,
}

/// A condition that a thread signalled, or a semaphore that it posted.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    pub thread: Source,
    pub lock: u64,
    pub at: u64,
}

/// A call that a thread was in.
#[derive(Clone, Copy, Debug)]
pub struct InCall {
    pub thread: Source,
    pub function: u16,
    pub began: u64,
    pub ended: u64,
}

/// The time of one chosen call.
#[derive(Debug, Default)]
pub struct Window {
    pub from: u64,
    pub to: u64,
    pub spans: FastMap<Source, Vec<Span>>,
    pub holds: Vec<Hold>,
    pub signals: Vec<Signal>,
    pub calls: Vec<InCall>,
    /// The kernel that the call launched.
    pub kernel: Option<String>,
    kept: usize,
    faults: usize,
}

impl Window {
    /// More events happened than are remembered.
    pub fn is_cut(&self) -> bool {
        self.kept > KEPT * 4
    }

    fn has_room(&mut self) -> bool {
        self.kept += 1;
        !self.is_cut()
    }
}

/// What the walk found.
pub struct Seen {
    /// One for each chosen call, then for each wait for the GPU, then one for each gap between calls.
    pub windows: Vec<Window>,
    pub driver_names: Names,
}

pub struct Windows<'a> {
    labels: &'a Labels<'a>,
    seen: Seen,
    /// The windows in the order of their begins: begin, the latest end so far, which.
    order: Vec<(u64, u64, usize)>,
    /// Chosen calls by thread and number.
    calls: HashMap<(u32, i32, u32), usize>,
    addresses: Addresses,
    off: OffCpu,
    /// When the last pause of each process ended.
    resumed: FastMap<u32, u64>,
}

impl<'a> Windows<'a> {
    pub fn new<'c>(
        labels: &'a Labels<'a>,
        chosen: impl Iterator<Item = &'c Chosen> + Clone,
        gaps: &[Gap],
    ) -> Windows<'a> {
        let calls = chosen.clone().map(|c| (c.body.began, c.ended));
        let all = calls.chain(gaps.iter().map(|g| (g.from, g.to)));
        let windows: Vec<Window> = all.map(|(from, to)| Window { from, to, ..Window::default() }).collect();
        let mut order: Vec<(u64, u64, usize)> = windows.iter().enumerate().map(|(i, w)| (w.from, w.to, i)).collect();
        order.sort_unstable();
        let mut latest = 0;
        for (_, to, _) in &mut order {
            latest = latest.max(*to);
            *to = latest;
        }
        let of = |(i, c): (usize, &Chosen)| ((c.source.process, c.source.tid, c.body.seq), i);
        Windows {
            labels,
            seen: Seen { windows, driver_names: Names::default() },
            order,
            calls: chosen.enumerate().map(of).collect(),
            addresses: Addresses::default(),
            off: OffCpu::default(),
            resumed: FastMap::default(),
        }
    }

    pub fn finish(self) -> Seen {
        self.seen
    }

    /// The windows that overlap with a time.
    fn each(&mut self, from: u64, to: u64, mut f: impl FnMut(&mut Window)) {
        let first = self.order.partition_point(|(_, latest, _)| *latest < from);
        for &(begin, _, i) in self.order.get(first..).unwrap_or_default() {
            if begin > to {
                break;
            }
            if let Some(w) = self.seen.windows.get_mut(i).filter(|w| w.to >= from)
                && w.has_room()
            {
                f(w);
            }
        }
    }

    fn span(&mut self, thread: Source, span: Span) {
        self.each(span.from, span.to, |w| w.spans.entry(thread).or_default().push(span));
    }

    /// (Faults may be numerous, so they have a separate limit.)
    fn fault(&mut self, thread: Source, span: Span) {
        let first = self.order.partition_point(|(_, latest, _)| *latest < span.from);
        for &(begin, _, i) in self.order.get(first..).unwrap_or_default() {
            if begin > span.to {
                break;
            }
            if let Some(w) = self.seen.windows.get_mut(i).filter(|w| w.to >= span.from && w.faults < KEPT) {
                w.faults += 1;
                w.spans.entry(thread).or_default().push(span);
            }
        }
    }

    fn lock(&mut self, thread: Source, e: &Event<'_>) {
        if let Some(h) = Held::of(e)
            && let Some(class) = Class::of_hold(h.op)
            && h.taken != 0
            && h.ended != ended::CANCELLED_WAIT
            && !h.is_left_open()
            && let Some((lock, _)) = self.addresses.lock(thread.process, h.addr, class, h.op, 0)
        {
            let released = self.labels.facts.locks.get(lock).map_or(h.released, |l| l.released(&h));
            let late = h.ended == ended::OPEN_LATE;
            let hold = Hold { thread, lock: lock as u64, taken: h.taken, released, late, named: false };
            self.each(h.taken, released, |w| w.holds.push(hold));
        }
        let done = (e.head.flags >> 8) as u8;
        if let Body::Held(h) = &e.body
            && h.waiting == left::NAMED
            && let Some(class) = Class::of(done)
            && let Some((lock, _)) = self.addresses.lock(thread.process, h.addr, class, done, 0)
        {
            // (What the thread did before that is not on the tape.)
            let resumed = self.resumed.get(&thread.process).copied().unwrap_or(0);
            let (lock, taken, seen) = (lock as u64, h.since.max(resumed), e.head.tsc);
            let hold = Hold { thread, lock, taken, released: seen, late: false, named: true };
            self.each(seen, seen, |w| w.holds.push(hold));
            return;
        }
        let wakes = matches!(done, op::COND_SIGNAL | op::COND_BROADCAST | op::SEM_POST);
        if let Body::Op(o) = &e.body
            && wakes
            && let Some(class) = Class::of(done)
        {
            let Some((lock, _)) = self.addresses.lock(thread.process, o.addr, class, done, o.result) else { return };
            let signal = Signal { thread, lock: lock as u64, at: e.head.tsc };
            self.each(signal.at, signal.at, |w| w.signals.push(signal));
        } else if let Some(span) = gather::waited(&mut self.addresses, thread, e) {
            self.span(thread, span);
        }
    }
}

impl Sink for Windows<'_> {
    fn call(&mut self, thread: Source, tsc: u64, call: &Call<'_>, branch: &Branch) {
        let Call::Ioctl { body, .. } = call else { return };
        let mut is_inside = false;
        self.each(tsc, body.tsc_end, |_| is_inside = true);
        if is_inside {
            let name = gather::driver_call_name(self.labels, thread, tsc, call, branch);
            let of = self.seen.driver_names.number(name);
            self.span(thread, Span { from: tsc, to: body.tsc_end, what: What::Driver, of });
        }
    }

    fn wants_events(&self) -> bool {
        true
    }

    fn event(&mut self, thread: Source, e: &Event<'_>, _: Option<&Open>) {
        let tsc = e.head.tsc;
        match &e.body {
            Body::Call(c) | Body::InCall(c) => {
                let call = InCall { thread, function: e.head.flags, began: c.began, ended: tsc };
                self.each(c.began, tsc, |w| w.calls.push(call));
            }
            Body::Switch(s) => {
                let thread = Source { process: thread.process, tid: s.tid };
                if let Some(span) = self.off.event(thread, e.head.flags, tsc, s.other) {
                    self.span(thread, span);
                }
            }
            Body::Faults(f, faults) => {
                let thread = Source { process: thread.process, tid: f.tid };
                faults::spans(e, faults).for_each(|span| self.fault(thread, span));
            }
            Body::SwitchesLost(_) => self.off = OffCpu::default(),
            Body::Pause(p) if p.paused == 0 => drop(self.resumed.insert(thread.process, tsc)),
            _ => self.lock(thread, e),
        }
    }

    fn op(&mut self, at: &At<'_>, _op: &Op) {
        let Some(ring) = at.submission.ring else { return };
        let key = (at.channel.process, at.submission.tid, ring.call);
        if let Some(w) = self.calls.get(&key).and_then(|i| self.seen.windows.get_mut(*i))
            && w.kernel.is_none()
        {
            w.kernel = at.kernel().map(|kernel| kernel.name.clone());
        }
    }
}
