//! Which of several measured routes is the best: the fastest, unless a preferred one is as fast.
//!
//! Two routes that differ by less than the machine's own variation would change places with each calibration. So a route that
//! is preferred for another reason is kept if it is within [`WITHIN`] of the fastest, or if the samples do not separate the
//! two. CUDA's forms set another bound: the chosen route is never more than [`WITHIN_OF_CUDA`] slower than the best of them,
//! as far as the samples show.
//!
//! The targets are 5 % and 2 %. The bounds are narrower, because ratios vary by some per cent from day to day.

use crate::route_choice::model::executor;

/// How much slower than the fastest a preferred route may be: 3 %.
pub const WITHIN: f64 = 1.03;
/// And how much slower than CUDA's best form: 1 %.
pub const WITHIN_OF_CUDA: f64 = 1.01;

/// Executors, the most preferred first, each with the reason.
pub const PREFERENCE: [(&str, &str); 10] = [
    ("ce", "a copy engine leaves the CPU and the SMs free"),
    ("peer", "one GPU's copy engine leaves the CPU and the SMs free"),
    ("split", "copy engines leave the CPU and the SMs free"),
    ("batch", "a copy engine leaves the CPU and the SMs free"),
    ("inline", "the engine of graphics is used, and the CPU copies once"),
    ("zerocopy", "a kernel is launched"),
    ("sm", "a kernel is launched"),
    ("cuda", "CUDA's locks are taken"),
    ("cudart", "CUDA's locks are taken"),
    ("bar1", "the CPU's own stores and loads keep it busy"),
];

/// Position of a route in the order of preference; routes that are not in the list are last.
pub fn preference(route: &str) -> usize {
    let word = executor(route).split('[').next().unwrap_or_default();
    // `ce2` is a numbered `ce`; the 1 of `bar1` is part of its name.
    let place = |word: &str| PREFERENCE.iter().position(|(name, _)| *name == word);
    place(word).or_else(|| place(word.trim_end_matches(|c: char| c.is_ascii_digit()))).unwrap_or(PREFERENCE.len())
}

/// Whether it is a form of CUDA's own copy.
pub fn is_cuda(route: &str) -> bool {
    let word = executor(route);
    word.starts_with("cuda")
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Index of the best contender.
    pub best: usize,
    pub fastest: usize,
    /// More samples could change the decision.
    pub open: bool,
}

/// The best of routes that are given in the order of preference. `compare` returns the ratio of one to another, with its
/// interval, paired by rounds if that is possible. On a host that changes its speed, the medians of two routes may come from
/// different speeds. So figures of all rounds together do not decide. `None` for an empty list.
pub fn best(routes: &[&str], compare: impl Fn(usize, usize) -> (f64, Option<(f64, f64)>)) -> Option<Verdict> {
    let faster = |a: usize, b: usize| if compare(b, a).0 < 1.0 { b } else { a };
    let fastest = (0..routes.len()).reduce(faster)?;
    let cuda = (0..routes.len()).filter(|n| is_cuda(routes[*n])).reduce(faster);
    let mut open = false;
    for n in 0..routes.len() {
        let bounds = [Some((fastest, WITHIN)), cuda.map(|cuda| (cuda, WITHIN_OF_CUDA))];
        let mut fits = true;
        for (other, bound) in bounds.into_iter().flatten().filter(|(other, _)| *other != n) {
            let (ratio, interval) = compare(n, other);
            // Not separated counts as equal, but more samples could separate them.
            let as_fast = interval.is_some_and(|(low, high)| low <= 1.0 && 1.0 <= high);
            open |= interval.is_none_or(|(low, high)| low <= bound && bound < high);
            fits &= ratio <= bound || as_fast;
        }
        if fits {
            return Some(Verdict { best: n, fastest, open });
        }
    }
    Some(Verdict { best: fastest, fastest, open })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CE: &str = "host->ce2->gpu0";
    const CUDA: &str = "host->cuda[polled]->gpu0";
    const BAR1: &str = "host->bar1[flush]->gpu0";

    /// Figures, and how far each ratio may be off.
    fn decide(routes: &[(&str, f64)], off: Option<f64>) -> (String, bool) {
        let (names, figures): (Vec<&str>, Vec<f64>) = routes.iter().copied().unzip();
        let compare = |a: usize, b: usize| {
            let ratio = figures[a] / figures[b];
            (ratio, off.map(|off| (ratio * (1.0 - off), ratio * (1.0 + off))))
        };
        let verdict = best(&names, compare).unwrap();
        (names[verdict.best].to_owned(), verdict.open)
    }

    #[test]
    fn the_order_of_preference_is_that_of_the_list() {
        assert!(preference(CE) < preference("host->inline[split]->gpu0"));
        assert!(preference("host->inline->gpu0") < preference(CUDA) && preference(CUDA) < preference(BAR1));
        assert!(preference("gpu0->cudart->host") < preference(BAR1) && preference(BAR1) < preference("a->new->b"));
        assert!(is_cuda(CUDA) && is_cuda("gpu0->cudart->host") && !is_cuda(CE));
        assert_eq!((executor(CE), executor("x"), executor("a->b")), ("ce2", "x", "b"));
    }

    #[test]
    fn the_fastest_wins_where_it_is_faster_by_more_than_the_bound() {
        assert_eq!(decide(&[(CE, 4570.0), (BAR1, 1340.0)], Some(0.01)), (BAR1.into(), false));
        assert_eq!(decide(&[(CE, 7020.0), (BAR1, 7260.0)], Some(0.01)), (CE.into(), false));
    }

    #[test]
    fn a_copy_engine_is_kept_within_three_per_cent_of_the_cpus_stores() {
        assert_eq!(decide(&[(CE, 102.0), (BAR1, 100.0)], Some(0.005)), (CE.into(), false));
        assert_eq!(decide(&[(CE, 104.0), (BAR1, 100.0)], Some(0.005)), (BAR1.into(), false));
        // Three is not chosen for being close to two, which is close to one.
        assert_eq!(
            decide(&[(CE, 105.0), ("host->inline->gpu0", 102.0), (BAR1, 100.0)], Some(0.005)).0,
            "host->inline->gpu0"
        );
    }

    #[test]
    fn nothing_is_kept_that_is_more_than_one_per_cent_slower_than_cuda() {
        assert_eq!(decide(&[(CE, 102.0), (CUDA, 100.0)], Some(0.005)), (CUDA.into(), false));
        assert_eq!(decide(&[(CE, 100.5), (CUDA, 100.0)], Some(0.002)), (CE.into(), false));
        // Both bounds must hold: within 3 % of the fastest, and within 1 % of CUDA's.
        assert_eq!(decide(&[(CE, 102.5), (CUDA, 101.3), (BAR1, 100.0)], Some(0.001)).0, CUDA);
    }

    #[test]
    fn what_the_samples_do_not_tell_apart_stays_open_and_the_preferred_is_kept() {
        assert_eq!(decide(&[(CE, 120.0), (BAR1, 100.0)], Some(0.3)), (CE.into(), true));
        // The samples separate the two, but do not show on which side of the bound they are.
        assert_eq!(decide(&[(CE, 104.0), (BAR1, 100.0)], Some(0.02)), (BAR1.into(), true));
        // Without an interval every decision is open.
        assert_eq!(decide(&[(CE, 106.0), (BAR1, 100.0)], None), (BAR1.into(), true));
        assert_eq!(decide(&[(CE, 100.0)], None), (CE.into(), false));
        assert_eq!(best(&[], |_, _| (1.0, None)), None);
    }
}
