//! Verdicts of many comparisons of synthetic runs.

use crate::host::{Host, run};
use comparison::{Comparison, Key, Request, Run, Verdict, compare};
use statistics::Figure;

/// How many of the comparisons had each verdict.
pub struct Counted {
    pub equal: u32,
    pub slower: u32,
    pub faster: u32,
    /// They fail `--fail-above 5%`.
    pub fails: u32,
    /// There were too few rounds or samples at the same speed.
    pub too_few: u32,
    /// Mean width of the intervals.
    pub width: f64,
}

/// Compares `tries` pairs of runs; the second of each is `times` as slow.
pub fn counted(host: &Host, times: f64, baseline: bool, figure: Figure, tries: u32, seed: u64) -> Counted {
    let mut c = Counted { equal: 0, slower: 0, faster: 0, fails: 0, too_few: 0, width: 0.0 };
    let key = Key { subject: "ce0".into(), bytes: 4096, point: String::new() };
    for seed in seed..seed + u64::from(tries) {
        let mut random = fastrand::Rng::with_seed(seed);
        let a = Run::Measured(Box::new(run(host, 1.0, baseline, &mut random)));
        let b = Run::Measured(Box::new(run(host, times, baseline, &mut random)));
        let request = Request { figures: vec![figure], fail_above: 0.05 };
        let comparison = Comparison::of(compare(&key, &a, &b, &request), 0.05);
        let row = &comparison.rows[0];
        c.equal += u32::from(row.verdict == Verdict::Equal);
        c.slower += u32::from(row.verdict == Verdict::Slower);
        c.faster += u32::from(row.verdict == Verdict::Faster);
        c.too_few += u32::from(matches!(row.verdict, Verdict::TooFew(_)));
        c.fails += u32::from(row.fails);
        c.width += row.interval().map_or(0.0, |i| i.high / i.low - 1.0);
    }
    c.width /= f64::from(tries - c.too_few).max(1.0);
    c
}
