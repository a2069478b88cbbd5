//! Who held what a thread waited for, and why that took so long: from holder to holder.

use crate::activity::{self, Span, What};
use crate::windows::{Hold, Seen, Window};
use decode::Source;
use lock_analysis::holds::of_call;
use lock_analysis::labels::{Labels, function_name};
use schema::slow_calls::{Cause, LinkRow};
use std::collections::BTreeMap;

/// Maximum number of links in a chain.
const LINKS: usize = 6;
/// Ticks before a wait in which the hold that caused it may have ended: the lock is tried first, and the clock is read after
/// that.
const BEFORE: u64 = 3000;

/// The thread that kept another one waiting.
struct Turns {
    how: &'static str,
    thread: Source,
    ticks: u64,
    times: u64,
    /// The longest turn.
    from: u64,
    to: u64,
}

pub struct Chains<'a> {
    pub labels: &'a Labels<'a>,
    pub seen: &'a Seen,
    pub window: &'a Window,
}

impl Chains<'_> {
    /// Why this thread waited for a lock or a condition from `from` to `to`.
    pub fn of(&self, waiter: Source, what: What, lock: u64, from: u64, to: u64) -> Vec<LinkRow> {
        let mut links = Vec::new();
        let mut next = Some((waiter, what, lock, from, to));
        let mut threads = vec![waiter];
        while let Some((waiter, what, lock, from, to)) = next.take().filter(|_| links.len() < LINKS) {
            let found = match what {
                What::Condition => self.waker(waiter, lock, from, to),
                _ => self.holder(waiter, lock, from, to),
            };
            let Some(turns) = found else { break };
            let thread = turns.thread;
            let (link, most, piece) = self.link(lock, &turns);
            links.push(link);
            if let Some(piece) = piece
                && let Some(most @ (What::Lock | What::Condition)) = most
                && !threads.contains(&thread)
            {
                threads.push(thread);
                next = Some((thread, most, piece.of, piece.from, piece.to));
            }
        }
        links
    }

    /// The threads that had Python's lock while this thread waited for it, the longest first, and what they did. A thread
    /// that drops it signals its condition, so a thread had it from the previous signal to its own.
    pub fn of_gil(&self, waiter: Source, lock: u64, from: u64, to: u64, most: usize) -> Vec<LinkRow> {
        let mut drops: Vec<(u64, Source)> = self
            .window
            .signals
            .iter()
            .filter(|s| s.lock == lock && s.thread != waiter && s.at >= from && s.at <= to.saturating_add(BEFORE))
            .map(|s| (s.at.min(to), s.thread))
            .collect();
        drops.sort_unstable_by_key(|(at, thread)| (*at, thread.tid));
        let mut of: BTreeMap<i32, Turns> = BTreeMap::new();
        let mut since = from;
        for (at, thread) in drops {
            let turn = Turns { how: "held", thread, ticks: 0, times: 0, from: since, to: at };
            let t = of.entry(thread.tid).or_insert(turn);
            (t.ticks, t.times) = (t.ticks + (at - since), t.times + 1);
            if at - since > t.to - t.from {
                (t.from, t.to) = (since, at);
            }
            since = at;
        }
        let mut all: Vec<Turns> = of.into_values().collect();
        all.sort_by_key(|t| std::cmp::Reverse(t.ticks));
        all.iter().take(most).map(|t| self.link(lock, t).0).collect()
    }

    /// The row of a thread's turns, the kind of most of their time, and the longest piece of that kind.
    fn link(&self, lock: u64, turns: &Turns) -> (LinkRow, Option<What>, Option<activity::Piece>) {
        let &Turns { how, thread, ticks, times, from, to } = turns;
        let spans = self.window.spans.get(&thread).map_or(&[][..], Vec::as_slice);
        let shares = activity::shares(from, to, spans);
        let kinds = [What::Lock, What::Preempted, What::Driver, What::Condition, What::Fault, What::Asleep];
        let most = kinds.into_iter().max_by_key(|k| (shares.get(*k), std::cmp::Reverse(*k)));
        let most = most.filter(|k| shares.get(*k) > shares.rest);
        let pieces = most.map_or(Vec::new(), |k| activity::made_of(from, to, spans, k));
        let call = self.call(thread, from, to);
        let link = LinkRow {
            pid: self.labels.recording.pid(thread.process),
            tid: thread.tid,
            thread: self.labels.thread(thread),
            how,
            what: self.labels.name(lock as usize),
            ns: self.labels.ns(ticks),
            times,
            holds_others: call.as_deref().filter(|_| how == "held").and_then(|call| of_call(call, None, None)),
            call,
            doing: most.map_or(Cause::Unknown, cause),
            doing_what: most.zip(pieces.first()).and_then(|(k, p)| self.named(thread, k, p.of, p.from)),
            doing_ns: self.labels.ns(most.map_or(shares.rest, |k| shares.get(k))),
        };
        (link, most, pieces.first().copied())
    }

    /// The holds of a lock by others in a time.
    fn holds(&self, waiter: Source, lock: u64, from: u64, to: u64) -> impl Iterator<Item = &Hold> {
        self.window.holds.iter().filter(move |h| {
            h.lock == lock
                && (h.thread != waiter || h.named)
                && h.thread.process == waiter.process
                && h.taken < to
                && h.released.saturating_add(BEFORE) > from
                && (!h.named || (from..=to).contains(&h.released))
        })
    }

    /// The thread that had the lock for most of that time, and its longest turn.
    fn holder(&self, waiter: Source, lock: u64, from: u64, to: u64) -> Option<Turns> {
        let share = |h: &Hold| to.min(h.released).saturating_sub(from.max(h.taken));
        let mut of: BTreeMap<(u32, i32), (u64, u64, &Hold)> = BTreeMap::new();
        let is_certain = |h: &&Hold| !h.late && share(h) > 0;
        let certain = self.holds(waiter, lock, from, to).any(|h| is_certain(&h));
        let late = self.holds(waiter, lock, from, to).filter(|h| h.late).count();
        // A late hold counts only if it is the only candidate.
        let counts = |h: &&Hold| !h.late || !certain && late == 1;
        for h in self.holds(waiter, lock, from, to).filter(counts) {
            let (ticks, times, longest) = of.entry((h.thread.process, h.thread.tid)).or_insert((0, 0, h));
            (*ticks, *times) = (*ticks + share(h), *times + 1);
            if share(h) > share(longest) {
                *longest = h;
            }
        }
        let (ticks, times, h) = of.into_values().max_by_key(|(ticks, ..)| *ticks)?;
        let begin = from.max(h.taken);
        let end = to.min(h.released).max(begin);
        Some(Turns { how: "held", thread: h.thread, ticks, times, from: begin, to: end })
    }

    /// How long of a wait no thread held the lock; `None` if no hold in it is known, or not all are.
    pub fn free(&self, waiter: Source, lock: u64, from: u64, to: u64) -> Option<u64> {
        let span = |h: &Hold| Span { from: h.taken, to: h.released, what: What::Lock, of: lock };
        let held: Vec<Span> = self.holds(waiter, lock, from, to).map(span).collect();
        (!held.is_empty() && !self.window.is_cut()).then(|| activity::shares(from, to, &held).rest)
    }

    /// The last thread that signalled before the wait ended: its work until then kept the waiter waiting.
    fn waker(&self, waiter: Source, lock: u64, from: u64, to: u64) -> Option<Turns> {
        let before = |at: u64| at >= from && at <= to.saturating_add(BEFORE);
        let signals = self.window.signals.iter().filter(|s| s.lock == lock && s.thread != waiter && before(s.at));
        let s = signals.max_by_key(|s| s.at)?;
        let end = to.min(s.at).max(from);
        Some(Turns { how: "signalled", thread: s.thread, ticks: end - from, times: 1, from, to: end })
    }

    /// The call that the thread was in for most of a time.
    fn call(&self, thread: Source, from: u64, to: u64) -> Option<String> {
        let calls = self.window.calls.iter().filter(|c| c.thread == thread && c.began <= to && c.ended >= from);
        let most = calls.max_by_key(|c| c.ended.min(to).saturating_sub(c.began.max(from)))?;
        Some(function_name(most.function))
    }

    /// Another thread's driver call that ran at the same time for the largest part of it.
    pub fn meanwhile(&self, thread: Source, from: u64, to: u64) -> Option<LinkRow> {
        let all = self.window.spans.iter().filter(|(other, _)| **other != thread);
        let calls = all.flat_map(|(other, spans)| spans.iter().map(move |s| (*other, s)));
        let share = |s: &activity::Span| s.to.min(to).saturating_sub(s.from.max(from));
        let (other, s) =
            calls.filter(|(_, s)| s.what == What::Driver).max_by_key(|(other, s)| (share(s), other.tid))?;
        let ticks = share(s);
        // A smaller part is a coincidence.
        (ticks >= (to - from) / 2 && ticks > 0).then(|| LinkRow {
            pid: self.labels.recording.pid(other.process),
            tid: other.tid,
            thread: self.labels.thread(other),
            how: "meanwhile",
            what: self.seen.driver_names.name(s.of).into(),
            ns: self.labels.ns(ticks),
            times: 1,
            call: self.call(other, from, to),
            holds_others: None,
            doing: Cause::DriverCall,
            doing_what: None,
            doing_ns: self.labels.ns(ticks),
        })
    }

    /// What a piece of a thread's time is called.
    pub fn named(&self, thread: Source, what: What, of: u64, when: u64) -> Option<String> {
        match what {
            What::Lock | What::Condition => Some(self.labels.name(of as usize)).filter(|name| !name.is_empty()),
            What::Driver => Some(self.seen.driver_names.name(of).into()),
            What::Preempted => {
                let by = of as u32 as i32;
                let name = self.labels.other(thread.process, by, when);
                match (by, name.is_empty()) {
                    (i32::MIN..0, _) => None,
                    (0, _) => Some("nobody: the CPU was idle".into()),
                    (by, true) => Some(format!("thread {by}")),
                    (by, false) => Some(format!("thread {by} ({name})")),
                }
            }
            What::Fault | What::Asleep => None,
            What::Engine | What::Bounded | What::Beside | What::Queue => None,
        }
    }
}

pub fn cause(what: What) -> Cause {
    match what {
        What::Lock => Cause::Lock,
        What::Preempted => Cause::Preempted,
        What::Driver => Cause::DriverCall,
        What::Condition => Cause::Condition,
        What::Fault => Cause::PageFault,
        What::Asleep => Cause::Asleep,
        What::Engine | What::Bounded => Cause::Engine,
        What::Beside | What::Queue => Cause::Queue,
    }
}
