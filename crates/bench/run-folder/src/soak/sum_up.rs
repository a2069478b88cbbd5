//! From the periods of a folder to a [`Soak`].

use crate::Error;
use crate::soak::account::{
    CellName, CellOfSoak, Drift, Fault, FaultKind, Gap, Leak, OverPeriods, Period, Power, SCHEMA, Soak, SpeedUp, Third,
    Verdict,
};
use crate::soak::cell::{self, Moments, PERCENTILES};
use crate::soak::folder::{Asked, Folder, Measured};
use crate::soak::{clock, judge};
use experiment::{Experiment, Gpu, Stage};
use numbers::duration;
use statistics::{CONFIDENCE, Figure, Ratio, Rounds};

/// The number of slowest samples that `soak.json` keeps of each cell.
const WORST: usize = 20;
/// A shorter gap is not reported: it is the time between closing a period and beginning the next.
const GAP_S: f64 = 2.0;

impl Folder {
    /// The account of all periods, computed again.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn soak(&self) -> Result<Soak, Error> {
        Ok(Soak { above: self.above()?, ..soak(self, self.periods()?, self.processes()?) })
    }
}

pub(crate) fn soak(folder: &Folder, periods: Vec<Period>, processes: Vec<Measured>) -> Soak {
    let (asked, experiment) = (folder.asked(), folder.experiment());
    let functional = experiment.run.gpu == Gpu::Soft;
    let done_s: f64 = periods.iter().map(|period| period.seconds).sum();
    // A lap more or less.
    let complete = done_s >= asked.asked_s - 1e-6;
    let mut warnings = asked.warnings.clone();
    // The software GPU has no counters, and notes so in each period.
    for note in periods.iter().filter(|_| !functional).flat_map(|period| &period.notes) {
        if !warnings.contains(note) {
            warnings.push(note.clone());
        }
    }
    let drift = judge::drift(&periods, asked.every_s, functional);
    let leaks = judge::leaks(&periods, asked.every_s);
    let mut faults: Vec<Fault> = periods.iter().flat_map(|period| period.faults.clone()).collect();
    faults.extend(processes.iter().filter_map(|process| process.fault.clone()));
    faults.sort_by(|a, b| (a.period, &a.at).cmp(&(b.period, &b.at)));
    faults.extend(leaks.iter().filter(|leak| leak.leaking).map(leak_fault));
    faults.extend(drift.iter().filter(|drift| drift.drifted).map(drift_fault));
    let verdict = verdict(asked, done_s, periods.len(), complete, functional, &faults);
    let stopped = processes.last().and_then(|last| last.process.ended_because.clone());
    let ended = periods.last().map_or(asked.started.clone(), |last| last.ended.clone());
    Soak {
        schema: SCHEMA.into(),
        doorbell: asked.doorbell.clone(),
        commit: asked.commit.clone(),
        command: asked.command.clone(),
        experiment: experiment.clone(),
        started: periods.first().map_or(asked.started.clone(), |first| first.started.clone()),
        ended,
        asked_s: asked.asked_s,
        done_s,
        every_s: asked.every_s,
        complete,
        stopped_because: (!complete).then(|| stopped.unwrap_or_else(|| "it was killed, or still runs".into())),
        functional,
        simulated_clock: asked.simulated_lap_s.is_some(),
        environment: asked.environment.clone(),
        warnings,
        gaps: gaps(&periods, &processes),
        cells: totals(folder.stages(), experiment, &periods, functional),
        thirds: thirds(&periods),
        power: power(&periods),
        drift,
        leaks,
        faults,
        above: None,
        verdict,
        processes: processes.into_iter().map(|measured| measured.process).collect(),
        periods: periods.into_iter().map(shortened).collect(),
    }
}

/// Without what only its own file has.
fn shortened(mut period: Period) -> Period {
    for cell in &mut period.cells {
        cell.histogram = Vec::new();
        cell.worst = Vec::new();
    }
    period
}

fn gaps(periods: &[Period], processes: &[Measured]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut gap = |from: &str, to: &str, seconds: f64, why: String| {
        if seconds >= GAP_S {
            gaps.push(Gap { from: from.into(), to: to.into(), seconds, why });
        }
    };
    for (n, period) in periods.iter().enumerate() {
        let (Some(began), Some(ended)) = (clock::read(&period.started), clock::read(&period.ended)) else { continue };
        if let Some(before) = n.checked_sub(1).and_then(|n| periods.get(n)) {
            let seconds = began - clock::read(&before.ended).unwrap_or(began);
            let changed = before.process != period.process;
            let process = processes.get(before.process as usize).filter(|_| changed);
            let why = process.map(|p| p.process.ended_because.clone().unwrap_or_else(|| "it was killed".into()));
            gap(&before.ended, &period.started, seconds, why.unwrap_or_else(|| "between two periods".into()));
        }
        let slept = ended - began - period.seconds;
        gap(&period.started, &period.ended, slept - 1.0, "the machine slept, or its clock was set".into());
    }
    gaps
}

fn totals(stages: &[Stage], experiment: &Experiment, periods: &[Period], functional: bool) -> Vec<CellOfSoak> {
    let cells = stages.iter().flat_map(|stage| stage.cells.iter().map(|cell| (stage.number, cell)));
    let total = |(n, cell)| total(cell, &periods.iter().filter_map(|p| p.cells.get(n)).collect::<Vec<_>>(), functional);
    let mut all: Vec<CellOfSoak> = cells.enumerate().filter_map(total).collect();
    // The mean of each period; periods are the independent values.
    let means = |n: usize| -> Rounds {
        let mean = |period: &Period| period.cells.get(n).and_then(|cell| cell.mean_ns).map(|ns| ns.round() as u64);
        let all: Vec<Vec<u64>> = periods.iter().map(|period| mean(period).into_iter().collect()).collect();
        Rounds::new(&all).rounds_are_processes()
    };
    for n in (0..all.len()).filter(|_| !functional) {
        let name = &all[n].cell;
        let over = experiment.baseline_of(&name.subject).filter(|over| *over != name.subject);
        let is_baseline = |c: &CellOfSoak| {
            (c.cell.stage, c.cell.bytes, Some(c.cell.subject.as_str())) == (name.stage, name.bytes, over)
        };
        let Some((at, over)) = all.iter().position(is_baseline).zip(over) else { continue };
        let ratio = Ratio::of(&means(at), &means(n), Figure::Mean, CONFIDENCE);
        let speed_up = ratio.map(|r| SpeedUp { over: over.to_owned(), times: r.ratio, interval: r.interval });
        if let Some(of_periods) = &mut all[n].over {
            of_periods.speed_up = speed_up;
        }
    }
    all
}

fn total((stage, cell): (u32, &experiment::Cell), of: &[&CellOfSoak], functional: bool) -> Option<CellOfSoak> {
    of.first()?;
    let sampled = || of.iter().filter(|cell| cell.count > 0);
    let all = sampled().fold(Moments::default(), |all, cell| all.and(&Moments::of(cell)));
    let means = || sampled().filter_map(|cell| cell.mean_ns);
    let (least, largest) = (means().reduce(f64::min), means().reduce(f64::max));
    let histogram = cell::coarse(sampled().flat_map(|cell| cell.histogram.iter().copied()));
    let mut worst: Vec<_> = sampled().flat_map(|cell| cell.worst.clone()).collect();
    worst.sort_by_key(|slow| (std::cmp::Reverse(slow.value_ns), slow.at.clone()));
    worst.truncate(WORST);
    let mut total = CellOfSoak { histogram, worst, ..CellOfSoak::new(stage, cell) };
    for one in of {
        (total.checked, total.wrong) = (total.checked + one.checked, total.wrong + one.wrong);
        total.lost += one.lost;
        total.misses = total.misses.map(|misses| misses + one.misses.unwrap_or(0));
        total.unavailable = total.unavailable.take().or_else(|| one.unavailable.clone());
    }
    let percentiles = PERCENTILES.map(|p| cell::percentile(&total.histogram, p, all.largest.unwrap_or(u64::MAX)));
    let mean = (all.count > 0).then_some(all.mean);
    total.over = Some(OverPeriods {
        periods: sampled().count() as u32,
        least_mean_ns: least,
        largest_mean_ns: largest,
        fluctuation_of_means: cell::over_mean(largest.zip(least).map(|(most, least)| (most - least) / 2.0), mean),
        speed_up: None,
    });
    Some(total.with(cell, &all, percentiles, functional))
}

/// Three parts with equally many periods; empty with fewer than three periods.
fn thirds(periods: &[Period]) -> Vec<Third> {
    let n = periods.len();
    if n < 3 {
        return Vec::new();
    }
    let mut from_s = 0.0;
    let third = |k: usize| {
        let some = &periods[k * n / 3..(k + 1) * n / 3];
        let seconds: f64 = some.iter().map(|period| period.seconds).sum();
        let cells = some.iter().map(|period| period.cells.len()).max().unwrap_or(0);
        let mean = |cell: usize| {
            let of = some.iter().filter_map(|period| period.cells.get(cell)).map(Moments::of);
            let all = of.fold(Moments::default(), |all, cell| all.and(&cell));
            (all.count > 0).then_some(all.mean)
        };
        let begin = from_s;
        from_s += seconds;
        Third {
            from_s: begin,
            to_s: from_s,
            periods: some.len() as u32,
            mean_ns: (0..cells).map(mean).collect(),
            power_w: power(some).map(|power| power.mean_w),
        }
    };
    (0..3).map(third).collect()
}

fn power(periods: &[Period]) -> Option<Power> {
    let known = || periods.iter().filter_map(|period| Some((period.machine.power_w?, period.seconds)));
    let seconds: f64 = known().map(|(_, seconds)| seconds).sum();
    let mean_w = known().map(|(power, seconds)| power.mean * seconds).sum::<f64>() / seconds;
    let min_w = known().map(|(power, _)| power.min).reduce(f64::min)?;
    let max_w = known().map(|(power, _)| power.max).reduce(f64::max)?;
    let energy = periods.iter().map(|period| period.machine.energy_j).sum::<Option<f64>>();
    Some(Power { mean_w, min_w, max_w, fluctuation: (max_w - min_w) / 2.0 / mean_w, energy_j: energy })
}

/// A fault that is seen only over all periods.
fn fault(kind: FaultKind, cell: Option<CellName>, what: String) -> Fault {
    Fault { kind, at: None, period: None, cell, what }
}

fn leak_fault(leak: &Leak) -> Fault {
    let slope = leak.slope_per_hour.unwrap_or(0.0);
    let amount =
        if leak.what.ends_with("_bytes") { format!("{:.2} MiB", slope / 1_048_576.0) } else { format!("{slope:.2}") };
    fault(FaultKind::Leak, None, format!("{} grows by {amount} an hour", leak.what))
}

fn drift_fault(drift: &Drift) -> Fault {
    let interval = drift.interval.map_or(String::new(), |i| format!(" ({:.3} to {:.3})", i.low, i.high));
    let what = format!("{}: {:.3} times{interval} from the first third to the last", drift.metric, drift.ratio);
    fault(FaultKind::Drift, Some(drift.cell.clone()), what)
}

fn verdict(asked: &Asked, done_s: f64, periods: usize, complete: bool, functional: bool, faults: &[Fault]) -> Verdict {
    let (done, all) = (duration(done_s), duration(asked.asked_s));
    let headline = if complete { format!("all of {all}") } else { format!("{done} of {all}") };
    let over = format!("{done} of measuring in {periods} periods");
    let left = asked.asked_s - done_s;
    let rest = if complete { String::new() } else { format!("; it says nothing about the other {}", duration(left)) };
    let text = match faults.len() {
        _ if periods == 0 => "nothing was measured".into(),
        0 => format!("no fault in {over}{rest}"),
        1 => format!("1 fault in {over}{rest}"),
        n => format!("{n} faults in {over}{rest}"),
    };
    let emulated = if functional { ". On the software GPU: it shows what works, not how fast" } else { "" };
    let simulated =
        if asked.simulated_lap_s.is_some() { ". The clock was simulated: no hour of it was measured" } else { "" };
    Verdict { held: faults.is_empty() && periods > 0, headline, text: format!("{text}{emulated}{simulated}") }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::soak::account::{CellName, Held, Machine, Process, Spread};
    use statistics::Bucket;

    /// A period of ten minutes, of one cell.
    pub fn period(index: u32, mean_ns: f64) -> Period {
        let ns = mean_ns as u64;
        let began = 1_700_000_000.0 + 600.0 * f64::from(index);
        Period {
            index,
            started: clock::text(began),
            ended: clock::text(began + 600.0),
            seconds: 600.0,
            process: 0,
            laps: 60,
            cells: vec![CellOfSoak {
                cell: CellName { stage: 0, subject: "one".into(), bytes: 8 },
                direction: None,
                unavailable: None,
                failed: None,
                count: 1000,
                checked: 1000,
                wrong: 0,
                lost: 0,
                misses: None,
                mean_ns: Some(mean_ns),
                min_ns: Some(ns - 100),
                max_ns: Some(ns + 900),
                p50_ns: Some(ns),
                p99_ns: Some(ns + 300),
                p999_ns: None,
                stddev_ns: Some(50.0),
                jitter_ns: Some(1000),
                relative_fluctuation: Some(50.0 / mean_ns),
                bytes_per_second: None,
                histogram: vec![Bucket { low: ns, high: ns, count: 1000 }],
                worst: Vec::new(),
                over: None,
            }],
            loads: Vec::new(),
            machine: Machine {
                power_w: Some(Spread { mean: 100.0 + f64::from(index % 2), min: 99.0, max: 103.0 }),
                ..Machine::default()
            },
            held: Held::default(),
            noise_ns: None,
            notes: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn totals_are_those_of_all_samples() {
        let text = "[run]\nsamples = 1\n[[subject]]\nname = \"one\"\ncall = \"lock\"\n";
        let experiment = experiment::read_stored(text, "x.toml").unwrap();
        let stages = experiment.stages().unwrap();
        let periods = [period(0, 1_000.0), period(1, 3_000.0)];
        let all = totals(&stages, &experiment, &periods, false);
        let one = &all[0];
        assert_eq!((one.count, one.mean_ns, one.min_ns, one.max_ns), (2000, Some(2_000.0), Some(900), Some(3_900)));
        let over = one.over.as_ref().unwrap();
        assert_eq!((one.jitter_ns, over.periods, over.fluctuation_of_means), (Some(3_000), 2, Some(0.5)));
        // 1,000 away from the mean, besides the 50 within each period.
        assert!((one.stddev_ns.unwrap() - 1_001.5).abs() < 1.0, "{one:?}");
        assert_eq!(one.p50_ns, Some(1_007), "the end of the bucket of 1,000");
        assert!(thirds(&periods).is_empty());
        let three = thirds(&[period(0, 1_000.0), period(1, 2_000.0), period(2, 3_000.0)]);
        assert_eq!((three[1].from_s, three[1].to_s, three[2].mean_ns[0]), (600.0, 1_200.0, Some(3_000.0)));
        let power = power(&periods).unwrap();
        assert_eq!((power.mean_w, power.min_w, power.max_w, power.energy_j), (100.5, 99.0, 103.0, None));
    }

    #[test]
    fn minutes_are_never_told_as_hours() {
        let asked = Asked { asked_s: 43_200.0, every_s: 600.0, ..Asked::default() };
        let nine = verdict(&asked, 540.0, 9, false, false, &[]);
        assert_eq!(nine.headline, "9 min of 12 h");
        assert!(nine.held && nine.text.contains("no fault in 9 min") && nine.text.contains("11 h 51 min"), "{nine:?}");
        let all = verdict(&asked, 43_200.0, 72, true, true, &[]);
        assert!(all.headline == "all of 12 h" && all.text.contains("software GPU"), "{all:?}");
        assert!(!verdict(&asked, 0.0, 0, false, false, &[]).held);
    }

    #[test]
    fn a_gap_has_its_reason() {
        let mut periods = [period(0, 1_000.0), period(1, 1_000.0), period(2, 1_000.0)];
        periods[2].process = 1;
        periods[2].started = clock::text(1_700_000_000.0 + 1_300.0);
        periods[2].ended = clock::text(1_700_000_000.0 + 1_950.0);
        let measured = |why: Option<&str>| Measured {
            process: Process { pid: 7, from_period: 0, started: String::new(), ended_because: why.map(str::to_owned) },
            ended: None,
            fault: None,
        };
        let found = gaps(&periods, &[measured(Some("a stall")), measured(None)]);
        let texts: Vec<(&str, f64)> = found.iter().map(|gap| (gap.why.as_str(), gap.seconds)).collect();
        assert_eq!(texts, [("a stall", 100.0), ("the machine slept, or its clock was set", 49.0)]);
    }
}
