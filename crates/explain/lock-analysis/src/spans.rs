//! The third walk: what threads did while others waited for them. Were they on a CPU, which thread had it instead, and
//! which CUDA call were they in?
//!
//! Context switches are in the order of time, over all CPUs. From a switch that takes a thread off a CPU to the next that
//! puts it on one, it was off CPU. A preempted thread's CPU belonged to the threads that followed it there, as far as the
//! tape has them: it lacks switches between two threads of other programs. After lost records, a thread's state is unknown
//! until its next switch.

use crate::fast_map::FastMap;
use decode::Source;
use tape::event::{Body, Event};
use tape::switch::{SwitchBody, switch_flags};

/// A time span of a thread that is examined.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub thread: Source,
    pub from: u64,
    pub to: u64,
    /// The call to be found is the one that the thread was in at this time.
    pub at: u64,
    /// Only the call with this number counts ([`tape::call::CallBody::seq`]).
    pub call: Option<u32>,
    /// From here on the thread needed only a CPU to run.
    pub free_from: u64,
}

/// The result for a span. Times in ticks.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Index of the thread's process image, and the begin of the span.
    pub process: u32,
    pub from: u64,
    pub off: u64,
    /// Part of `off` in which it was preempted.
    pub preempted: u64,
    /// Part of `off` in which it needed only a CPU: preempted, or not yet run.
    pub ready: u64,
    /// The threads that had the CPU while it was preempted, and how long; -1 not known.
    by: Vec<(i32, u64)>,
    pub call: Option<InCall>,
}

/// A call around a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCall {
    pub function: u16,
    pub size: u64,
    pub seq: u32,
}

impl Seen {
    /// The thread that preempted it the longest, and how long.
    pub fn by(&self) -> Option<(i32, u64)> {
        self.by.iter().copied().max_by_key(|(tid, ticks)| (*ticks, -tid))
    }
}

/// Preempting threads that are counted separately for one span.
const BY: usize = 16;

#[derive(Debug)]
pub struct Spans {
    spans: Vec<Span>,
    /// For each thread: its spans by begin, the length of the longest, and its spans by `at`.
    of_thread: FastMap<Source, Order>,
    /// One for each span.
    pub seen: Vec<Seen>,
    /// Threads that are off CPU.
    out: FastMap<Source, Out>,
    /// For each CPU: threads that were preempted there and are still off.
    waiting: FastMap<u32, Vec<Source>>,
    /// When each thread last got a CPU.
    came: FastMap<Source, u64>,
    last: u64,
}

#[derive(Debug, Default)]
struct Order {
    by_begin: Vec<usize>,
    longest: u64,
    by_at: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Out {
    since: u64,
    preempted: bool,
    cpu: u32,
    /// The threads that had its CPU, and from when. In the order of time.
    by: Vec<(i32, u64)>,
}

/// Maximum number of consecutive threads that are kept for one preemption.
const TURNS: usize = 4096;

impl Spans {
    pub fn new(spans: Vec<Span>) -> Spans {
        let mut of_thread: FastMap<Source, Order> = FastMap::default();
        for (i, s) in spans.iter().enumerate() {
            let row = of_thread.entry(s.thread).or_default();
            row.by_begin.push(i);
            row.by_at.push(i);
            row.longest = row.longest.max(s.to.saturating_sub(s.from));
        }
        for row in of_thread.values_mut() {
            row.by_begin.sort_by_key(|&i| spans[i].from);
            row.by_at.sort_by_key(|&i| spans[i].at);
        }
        let seen = spans.iter().map(|s| Seen { process: s.thread.process, from: s.from, ..Seen::default() }).collect();
        Spans {
            spans,
            of_thread,
            seen,
            out: FastMap::default(),
            waiting: FastMap::default(),
            came: FastMap::default(),
            last: 0,
        }
    }

    /// Call it for all events, in order.
    pub fn event(&mut self, source: Source, e: &Event<'_>) {
        self.last = self.last.max(e.head.tsc);
        match &e.body {
            Body::Switch(s) => self.switch(source.process, e.head.flags, e.head.tsc, s),
            Body::SwitchesLost(_) => {
                self.out.clear();
                self.waiting.clear();
            }
            Body::Call(c) | Body::InCall(c) => {
                let call = InCall { function: e.head.flags, size: c.size, seq: c.seq };
                self.call(source, c.began, e.head.tsc, call);
            }
            _ => {}
        }
    }

    /// Call it after the last event. Threads that are off CPU stay off.
    pub fn finish(&mut self) {
        for (thread, out) in std::mem::take(&mut self.out) {
            self.off(thread, &out, self.last);
        }
    }

    fn switch(&mut self, process: u32, flags: u16, tsc: u64, s: &SwitchBody) {
        let out = flags & switch_flags::OUT != 0;
        let now = if out { s.other } else { s.tid };
        for thread in self.waiting.get(&s.cpu).into_iter().flatten() {
            let Some(o) = self.out.get_mut(thread).filter(|o| o.by.len() < TURNS) else { continue };
            if o.by.last().is_none_or(|last| last.0 != now) {
                o.by.push((now, tsc));
            }
        }
        // (Each process's switches have their own writer.)
        let thread = Source { process, tid: s.tid };
        if !self.of_thread.contains_key(&thread) {
            return;
        }
        if out {
            if self.came.get(&thread).is_none_or(|came| *came <= tsc) {
                let preempted = flags & switch_flags::PREEMPTED != 0;
                let out = Out { since: tsc, preempted, cpu: s.cpu, by: vec![(s.other, tsc)] };
                self.take(thread);
                if preempted {
                    self.waiting.entry(s.cpu).or_default().push(thread);
                }
                self.out.insert(thread, out);
            }
        } else {
            self.came.insert(thread, tsc);
            if let Some(out) = self.take(thread) {
                self.off(thread, &out, tsc);
            }
        }
    }

    /// The thread is no longer off CPU.
    fn take(&mut self, thread: Source) -> Option<Out> {
        let out = self.out.remove(&thread)?;
        if out.preempted
            && let Some(waiting) = self.waiting.get_mut(&out.cpu)
        {
            waiting.retain(|t| *t != thread);
        }
        Some(out)
    }

    fn off(&mut self, thread: Source, out: &Out, to: u64) {
        let Some(order) = self.of_thread.get(&thread) else { return };
        let first = order.by_begin.partition_point(|&i| self.spans[i].from.saturating_add(order.longest) <= out.since);
        for &i in order.by_begin.get(first..).unwrap_or_default() {
            let span = &self.spans[i];
            if span.from >= to {
                break;
            }
            let both = |from: u64, to: u64| span.to.min(to).saturating_sub(from.max(out.since));
            let ticks = both(span.from, to);
            let seen = &mut self.seen[i];
            seen.off = seen.off.saturating_add(ticks);
            if !out.preempted {
                seen.ready = seen.ready.saturating_add(both(span.free_from.max(span.from), to));
                continue;
            }
            seen.ready = seen.ready.saturating_add(ticks);
            seen.preempted = seen.preempted.saturating_add(ticks);
            for (k, &(by, from)) in out.by.iter().enumerate() {
                let until = out.by.get(k + 1).map_or(to, |next| next.1.min(to));
                let ticks = both(span.from.max(from), until);
                match seen.by.iter().position(|b| b.0 == by) {
                    _ if ticks == 0 => {}
                    Some(k) => seen.by[k].1 = seen.by[k].1.saturating_add(ticks),
                    None if seen.by.len() < BY => seen.by.push((by, ticks)),
                    None => {}
                }
            }
        }
    }

    fn call(&mut self, thread: Source, began: u64, ended: u64, call: InCall) {
        let Some(order) = self.of_thread.get(&thread) else { return };
        let first = order.by_at.partition_point(|&i| self.spans[i].at < began);
        for &i in order.by_at.get(first..).unwrap_or_default() {
            if self.spans[i].at > ended {
                break;
            }
            if self.spans[i].call.is_none_or(|number| number == call.seq) {
                self.seen[i].call = Some(call);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::event::Head;
    use tape::switch::{LostBody, kind};

    const WRITER: Source = Source { process: 0, tid: tape::switch::WRITER };

    fn switch(s: &mut Spans, tid: i32, tsc: u64, flags: u16, other: i32) {
        let head = Head { kind: kind::SWITCH, flags, len: 32, tsc };
        s.event(WRITER, &Event { head, body: Body::Switch(SwitchBody { tid, other, ..Default::default() }) });
    }

    fn span(tid: i32, from: u64, to: u64) -> Span {
        Span { thread: Source { process: 0, tid }, from, to, at: from, call: None, free_from: u64::MAX }
    }

    const OUT: u16 = switch_flags::OUT;
    const PREEMPTED: u16 = OUT | switch_flags::PREEMPTED;

    #[test]
    fn time_off_cpu_counts_where_it_lies_in_a_span() {
        let mut s = Spans::new(vec![span(1, 100, 200), Span { free_from: 180, ..span(1, 150, 300) }, span(2, 0, 999)]);
        switch(&mut s, 1, 120, PREEMPTED, 9);
        switch(&mut s, 1, 160, 0, 9);
        switch(&mut s, 1, 170, OUT, 0);
        switch(&mut s, 1, 190, 0, 0);
        s.finish();
        let of = |i: usize| (s.seen[i].off, s.seen[i].preempted, s.seen[i].ready, s.seen[i].by());
        assert_eq!(of(0), (60, 40, 40, Some((9, 40))));
        assert_eq!(of(1), (30, 10, 20, Some((9, 10))));
        assert_eq!(of(2), (0, 0, 0, None));
    }

    #[test]
    fn a_cpu_that_changes_hands_is_told_by_who_had_it_longest() {
        let mut s = Spans::new(vec![span(1, 100, 1000)]);
        switch(&mut s, 1, 120, PREEMPTED, 2);
        switch(&mut s, 2, 120, 0, 1);
        switch(&mut s, 2, 125, OUT, 3);
        switch(&mut s, 3, 125, 0, 2);
        // Another CPU.
        let head = Head { kind: kind::SWITCH, flags: 0, len: 32, tsc: 130 };
        s.event(WRITER, &Event { head, body: Body::Switch(SwitchBody { tid: 9, other: 0, cpu: 4, other_pid: 0 }) });
        switch(&mut s, 3, 225, OUT, 1);
        switch(&mut s, 1, 226, 0, 3);
        assert_eq!((s.seen[0].off, s.seen[0].preempted, s.seen[0].by()), (106, 106, Some((3, 100))));
    }

    #[test]
    fn lost_records_leave_no_time_off_cpu_behind() {
        let mut s = Spans::new(vec![span(1, 100, 200)]);
        switch(&mut s, 1, 110, OUT, 0);
        let head = Head { kind: kind::LOST, flags: 0, len: 24, tsc: 120 };
        s.event(WRITER, &Event { head, body: Body::SwitchesLost(LostBody { records: 3 }) });
        switch(&mut s, 1, 150, 0, 0);
        assert_eq!(s.seen[0].off, 0);
        // Older than the switch that put it on a CPU: out of order.
        switch(&mut s, 1, 140, OUT, 0);
        s.finish();
        assert_eq!(s.seen[0].off, 0);
        switch(&mut s, 1, 180, OUT, 0);
        switch(&mut s, 1, 1000, OUT, 0);
        switch(&mut s, 1, 1001, 0, 0);
        assert_eq!(s.seen[0].off, 0, "what came between is not known");
    }

    #[test]
    fn who_never_comes_back_is_off_until_the_end() {
        let mut s = Spans::new(vec![span(1, 100, 200)]);
        switch(&mut s, 1, 150, OUT, 0);
        switch(&mut s, 3, 180, OUT, 0);
        s.finish();
        assert_eq!(s.seen[0].off, 30);
    }
}
