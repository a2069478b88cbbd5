//! The activities of a thread during a time, as far as the tape has them.

/// In order of priority: if two overlap, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Waited for a mutex or a rwlock. `of`: the lock.
    Lock,
    /// Could have run, but another thread had its CPU. `of`: that thread.
    Preempted,
    /// Was in an ioctl. `of`: its name's number.
    Driver,
    /// Waited for a condition or a semaphore. `of`: which one.
    Condition,
    /// Was in a page fault. `of`: 1 if it waited for a disk.
    Fault,
    /// Was off CPU voluntarily.
    Asleep,
    /// Waited for the GPU, which ran a kernel or a copy for it. `of`: its name.
    Engine,
    /// The same for a kernel with known bounds only: it may have run for a shorter time.
    Bounded,
    /// Waited for a kernel or a copy that had not started, while the GPU ran another one of the process. `of`: that
    /// one's name.
    Beside,
    /// Waited for a kernel or a copy that had not started.
    Queue,
}

/// Kinds of [`What`].
pub const KINDS: usize = 10;

/// From when to when, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub what: What,
    pub of: u64,
}

/// How a time is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Ticks by [`What`].
    pub of: [u64; KINDS],
    /// On a CPU, with no known activity.
    pub rest: u64,
}

impl Shares {
    pub fn get(&self, what: What) -> u64 {
        self.of.get(what as usize).copied().unwrap_or(0)
    }
}

/// Divides a time into pieces. `f` is called with each piece, in order, and with the activity in it.
pub fn divide<'s>(from: u64, to: u64, spans: &'s [Span], mut f: impl FnMut(u64, u64, Option<&'s Span>)) {
    let mut ends: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * spans.len());
    for (i, s) in spans.iter().enumerate() {
        let (from, to) = (s.from.max(from), s.to.min(to));
        if from < to {
            ends.extend([(from, true, i), (to, false, i)]);
        }
    }
    ends.sort_unstable();
    let (mut at, mut active) = (from, Vec::<usize>::new());
    for (tsc, begins, i) in ends {
        if tsc > at {
            f(at, tsc, active.iter().filter_map(|i| spans.get(*i)).min_by_key(|s| s.what));
            at = tsc;
        }
        if begins {
            active.push(i);
        } else {
            active.retain(|j| *j != i);
        }
    }
    if to > at {
        f(at, to, None);
    }
}

/// The shares of a time. They add up to it.
pub fn shares(from: u64, to: u64, spans: &[Span]) -> Shares {
    let mut all = Shares::default();
    divide(from, to, spans, |from, to, span| {
        let ticks = to - from;
        match span {
            None => all.rest += ticks,
            Some(s) => all.of[s.what as usize] += ticks,
        }
    });
    all
}

/// The pieces of one kind's share, the longest first: `of`, ticks, and from when to when.
pub fn made_of(from: u64, to: u64, spans: &[Span], what: What) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    divide(from, to, spans, |from, to, span| {
        let Some(s) = span.filter(|s| s.what == what) else { return };
        match all.iter_mut().find(|p| p.of == s.of) {
            Some(p) => {
                p.times += u64::from(p.last != (s.from, s.to));
                (p.ticks, p.to, p.last) = (p.ticks + (to - from), to, (s.from, s.to));
            }
            None => all.push(Piece { of: s.of, ticks: to - from, times: 1, from, to, last: (s.from, s.to) }),
        }
    });
    all.sort_by_key(|p| std::cmp::Reverse(p.ticks));
    all
}

/// Part of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub of: u64,
    pub ticks: u64,
    /// Spans that it is made of.
    pub times: u64,
    pub from: u64,
    pub to: u64,
    /// The last span.
    last: (u64, u64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(from: u64, to: u64, what: What, of: u64) -> Span {
        Span { from, to, what, of }
    }

    #[test]
    fn the_first_kind_counts_where_two_lie_over_each_other() {
        let spans = [
            span(10, 50, What::Asleep, 0),
            span(20, 40, What::Lock, 1),
            span(30, 60, What::Driver, 2),
            span(90, 200, What::Preempted, 3),
        ];
        let s = shares(0, 100, &spans);
        assert_eq!(s.of, [20, 10, 20, 0, 0, 10, 0, 0, 0, 0]);
        assert_eq!(s.rest, 40);
        let pieces = made_of(0, 100, &spans, What::Driver);
        let expected = Piece { of: 2, ticks: 20, times: 1, from: 40, to: 60, last: (30, 60) };
        assert_eq!(pieces, [expected]);
        let faults: Vec<_> = (0..5).map(|i| span(i * 20, i * 20 + 5, What::Fault, i / 4)).collect();
        let pieces = made_of(2, 100, &faults, What::Fault);
        assert_eq!(pieces.iter().map(|p| (p.of, p.ticks, p.times)).collect::<Vec<_>>(), [(0, 18, 4), (1, 5, 1)]);
    }

    proptest! {
        #[test]
        fn shares_add_up(
            all in proptest::collection::vec((0..100u64, 0..100u64, 0..KINDS), 0..20), from in 0..100u64, long in 0..100u64,
        ) {
            use What::*;
            const ALL: [What; KINDS] =
                [Lock, Preempted, Driver, Condition, Fault, Asleep, Engine, Bounded, Beside, Queue];
            let spans: Vec<Span> = all.iter().map(|&(from, to, k)| span(from, to, ALL[k], 0)).collect();
            let s = shares(from, from + long, &spans);
            prop_assert_eq!(s.of.iter().sum::<u64>() + s.rest, long);
        }
    }
}
