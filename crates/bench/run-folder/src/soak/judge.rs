//! What changes over hours: leaks of the measuring process, and drift of its measurements. Without side effects.
//!
//! The rules are in `docs/reference/soak-folder.md`. Both need an interval that excludes "no change", 95 % for all lines of a table together, and a
//! size that matters.

use crate::soak::account::{Drift, Held, Leak, Period};
use statistics::{CONFIDENCE, MIN_VALUES, Shift, Trend};

/// A smaller drift does not matter.
const DRIFT: f64 = 0.02;

/// A watched quantity: its name, its value, and the growth over the soak that would matter: this amount, or this fraction of the first value,
/// whichever is larger.
type Watched = (&'static str, fn(&Held) -> Option<u64>, f64, f64);

const WATCHED: [Watched; 6] = [
    ("rss_bytes", |held| held.rss_bytes, 8.0 * MIB, 0.01),
    ("gpu_used_bytes", |held| held.gpu_used_bytes, 4.0 * MIB, 0.0),
    ("descriptors", |held| held.descriptors, 3.0, 0.0),
    ("handles", |held| held.handles, 3.0, 0.0),
    ("threads", |held| held.threads, 2.0, 0.0),
    ("mappings", |held| held.mappings, 32.0, 0.0),
];

const MIB: f64 = 1_048_576.0;

/// Periods that count: short ones say little. For leaks, the first period of each process is left out, because caches and allocators fill.
fn long_enough(periods: &[Period], every_s: f64) -> impl Iterator<Item = &Period> {
    periods.iter().filter(move |period| period.seconds >= every_s / 2.0)
}

/// One line for each watched quantity.
pub(crate) fn leaks(periods: &[Period], every_s: f64) -> Vec<Leak> {
    WATCHED.iter().map(|watched| leak(periods, every_s, watched)).collect()
}

fn leak(periods: &[Period], every_s: f64, (what, of, matters, part): &Watched) -> Leak {
    // By process, because each has its own level. The time is the measured time, in hours.
    let mut groups: Vec<(u32, Vec<(f64, f64)>)> = Vec::new();
    let (mut hours, mut values) = (0.0, Vec::new());
    let mut seen = Vec::new();
    for period in periods {
        hours += period.seconds / 3600.0;
        if !seen.contains(&period.process) {
            seen.push(period.process);
            continue;
        }
        let Some(value) = of(&period.held).filter(|_| period.seconds >= every_s / 2.0) else { continue };
        values.push(value);
        match groups.last_mut() {
            Some((process, group)) if *process == period.process => group.push((hours, value as f64)),
            _ => groups.push((period.process, vec![(hours, value as f64)])),
        }
    }
    let groups: Vec<Vec<(f64, f64)>> = groups.into_iter().map(|(_, group)| group).collect();
    let matters = matters.max(part * values.first().copied().unwrap_or(0) as f64);
    let mut leak = Leak {
        what: (*what).into(),
        slope_per_hour: None,
        interval: None,
        from: values.first().copied(),
        to: values.last().copied(),
        matters,
        leaking: false,
        not_judged: None,
    };
    if values.is_empty() {
        leak.not_judged = Some("it is not known".into());
        return leak;
    }
    // The time over which each process has grown.
    let spans = groups.iter().filter_map(|group| Some(group.last()?.0 - group.first()?.0));
    let span = spans.fold(0.0, f64::max);
    match Trend::of(&groups, family(WATCHED.len())) {
        Some(trend) => {
            (leak.slope_per_hour, leak.interval) = (Some(trend.slope), Some(trend.interval));
            leak.leaking = trend.interval.low > 0.0 && trend.slope * span >= matters;
        }
        None => leak.not_judged = Some(format!("{} periods count, and {MIN_VALUES} are needed", values.len())),
    }
    leak
}

/// The confidence of each of this many intervals, so that all hold together (Bonferroni).
fn family(lines: usize) -> f64 {
    1.0 - (1.0 - CONFIDENCE) / lines.max(1) as f64
}

/// A figure of a cell in a period: its name, and how it is read.
type Metric = (&'static str, fn(&crate::soak::account::CellOfSoak) -> Option<f64>);

const METRICS: [Metric; 3] = [
    ("mean", |cell| cell.mean_ns),
    ("p50", |cell| cell.p50_ns.map(|ns| ns as f64)),
    ("p99", |cell| cell.p99_ns.map(|ns| ns as f64)),
];

/// Each metric of each cell: the last third of the periods compared with the first. `functional`: the times are emulated, and no judgement is made.
pub(crate) fn drift(periods: &[Period], every_s: f64, functional: bool) -> Vec<Drift> {
    let periods: Vec<&Period> = long_enough(periods, every_s).collect();
    let third = periods.len() / 3;
    let Some(first) = periods.first() else { return Vec::new() };
    let lines = first.cells.len() * METRICS.len();
    let mut all = Vec::new();
    for n in 0..first.cells.len() {
        for (metric, of) in METRICS {
            let values = |periods: &[&Period]| -> Vec<f64> {
                periods.iter().filter_map(|period| period.cells.get(n).and_then(of)).collect()
            };
            let (early, late) = (values(&periods[..third]), values(&periods[periods.len() - third..]));
            if early.is_empty() || late.is_empty() {
                continue;
            }
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let shift = Shift::of(&early, &late, family(lines));
            let ratio = shift.map_or(mean(&late) / mean(&early), |shift| shift.ratio);
            let matters = ratio >= 1.0 + DRIFT || ratio <= 1.0 / (1.0 + DRIFT);
            all.push(Drift {
                cell: first.cells[n].cell.clone(),
                metric: metric.into(),
                first_third: mean(&early),
                last_third: mean(&late),
                ratio,
                interval: shift.map(|shift| shift.interval),
                drifted: !functional && matters && shift.is_some_and(|shift| !shift.interval.holds(1.0)),
                not_judged: match () {
                    () if functional => Some("the times are those of an emulation".into()),
                    () if shift.is_none() => {
                        Some(format!("{} periods, and {} are needed", periods.len(), 3 * MIN_VALUES))
                    }
                    () => None,
                },
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::sum_up::tests::period;

    /// 72 periods, the last ones of a second process.
    fn soak(change: impl Fn(usize, &mut Period)) -> Vec<Period> {
        let mut random = fastrand::Rng::with_seed(3);
        let mut rss = 500.0 * MIB;
        let one = |index: usize| {
            let mut one = period(index as u32, 2_000.0 + 20.0 * random.f64());
            one.process = u32::from(index >= 40);
            // A heap that breathes.
            rss += 0.2 * MIB * (random.f64() - 0.5) + (500.0 * MIB - rss) * 0.2;
            let from = if index >= 40 { 30.0 * MIB } else { 0.0 };
            one.held = Held {
                rss_bytes: Some((rss + from) as u64),
                descriptors: Some(60),
                threads: Some(4),
                ..Held::default()
            };
            change(index, &mut one);
            one
        };
        (0..72).map(one).collect()
    }

    fn leaking(periods: &[Period]) -> Vec<String> {
        leaks(periods, 600.0).into_iter().filter(|leak| leak.leaking).map(|leak| leak.what).collect()
    }

    #[test]
    fn constant_figures_neither_leak_nor_drift() {
        let quiet = soak(|_, _| {});
        assert!(leaking(&quiet).is_empty(), "{:?}", leaks(&quiet, 600.0));
        let unknown = leaks(&quiet, 600.0).into_iter().find(|leak| leak.what == "gpu_used_bytes").unwrap();
        assert!(unknown.not_judged.is_some() && unknown.from.is_none());
        assert!(
            drift(&quiet, 600.0, false).iter().all(|d| !d.drifted && d.interval.is_some() && d.not_judged.is_none())
        );
        // Caches that fill in the first hour are not a leak of the other hours.
        let once = soak(|index, one| {
            if index == 0 {
                one.held.rss_bytes = Some(100 << 20);
            }
        });
        assert!(leaking(&once).is_empty(), "{:?}", leaks(&once, 600.0));
        assert!(leaks(&quiet[..5], 600.0)[0].not_judged.is_some(), "a few periods say nothing");
    }

    #[test]
    fn a_leak_is_found_by_its_name() {
        let grows = soak(|index, one| one.held.rss_bytes = one.held.rss_bytes.map(|b| b + index as u64 * (1 << 20)));
        assert_eq!(leaking(&grows), ["rss_bytes"]);
        let slope = leaks(&grows, 600.0)[0].slope_per_hour.unwrap() / MIB;
        assert!((5.5..6.5).contains(&slope), "6 MiB an hour: {slope}");
        let files = soak(|index, one| one.held.descriptors = Some(60 + index as u64 / 6));
        assert_eq!(leaking(&files), ["descriptors"]);
        // Two descriptors in twelve hours: too few to matter.
        let few = soak(|index, one| one.held.descriptors = Some(60 + index as u64 / 30));
        assert!(leaking(&few).is_empty());
    }

    #[test]
    fn drift_is_found_between_the_thirds_and_not_on_an_emulation() {
        let slower = soak(|index, one| {
            let cell = &mut one.cells[0];
            cell.mean_ns = cell.mean_ns.map(|ns| ns * (1.0 + 0.1 * index as f64 / 72.0));
        });
        let found = drift(&slower, 600.0, false);
        let drifted: Vec<&str> = found.iter().filter(|d| d.drifted).map(|d| d.metric.as_str()).collect();
        assert_eq!(drifted, ["mean"], "{found:?}");
        assert!((1.05..1.08).contains(&found[0].ratio), "{found:?}");
        assert!(drift(&slower, 600.0, true).iter().all(|d| !d.drifted && d.not_judged.is_some()));
        // A clear shift, too small to matter.
        let little = soak(|index, one| one.cells[0].mean_ns = Some(if index < 36 { 1000.0 } else { 1010.0 }));
        assert!(drift(&little, 600.0, false).iter().all(|d| !d.drifted));
    }
}
