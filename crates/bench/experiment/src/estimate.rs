//! How long an experiment takes and how much it writes, before it runs.

use crate::model::{Arrival, Experiment, Stage};
use numbers::{count, duration};
use settings::Error;
use std::collections::HashSet;
use std::fmt;

/// Time of a process until its first stage: it loads CUDA, opens the GPU and its channels.
pub const START_NS: u64 = 4_000_000_000;
/// Time of a stage without its measurement: its buffers are touched, its routes opened, each of its cells checked.
pub const STAGE_NS: u64 = 500_000_000;
/// Approximate time of one sample, if only a duration is given.
pub const SAMPLE_NS: u64 = 10_000;
/// Approximate bytes of one sample in its file, in which times are stored as differences.
pub const SAMPLE_BYTES: u64 = 10;

/// The extent of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    pub stages: u64,
    /// Number of cells of all stages.
    pub cells: u64,
    /// One for each repeat under each policy, and one for each repeat of a stage that is recorded.
    pub processes: u64,
    /// Approximate time of all stages with a duration, in all repeats, including their noise measurement and the start. A stage is shorter if its
    /// samples are reached first, and longer if a call does not return until the load stops.
    pub time_ns: u64,
    /// Stages with only a number of samples: the machine decides how long they take, and their measuring is not in `time_ns`.
    pub stages_by_samples: u64,
    /// Samples of all cells in all repeats: the maximum if the number is given, else an estimate with 10 us for each sample.
    pub samples: u64,
    /// Whether `samples` is a limit that the file gives for every stage.
    pub samples_are_limited: bool,
    /// Approximate bytes of the samples' files.
    pub sample_bytes: u64,
}

impl Experiment {
    /// Estimates the extent before the run.
    ///
    /// # Errors
    /// As [`Experiment::stages`].
    pub fn estimate(&self) -> Result<Estimate, Error> {
        let stages = self.stages()?;
        let repeats = u64::from(self.run.repeats);
        let processes = repeats.saturating_mul(processes(&stages));
        let mut estimate = Estimate { processes, samples_are_limited: true, ..Estimate::default() };
        let mut each_repeat = 0u64;
        let mut samples = 0u64;
        for stage in &stages {
            estimate.stages += 1;
            estimate.cells += stage.cells.len() as u64;
            let noise = stage.run.noise_ns.saturating_mul(2);
            let metered = stage.run.meter_ns.saturating_mul(stage.cells.len() as u64);
            let measured = stage.run.duration_ns.unwrap_or(0).saturating_add(metered);
            each_repeat = each_repeat.saturating_add(measured).saturating_add(noise).saturating_add(STAGE_NS);
            estimate.stages_by_samples += u64::from(stage.run.duration_ns.is_none());
            estimate.samples_are_limited &= stage.run.samples.is_some();
            samples = samples.saturating_add(samples_of(stage));
        }
        estimate.time_ns = each_repeat.saturating_mul(repeats).saturating_add(START_NS.saturating_mul(processes));
        estimate.samples = samples.saturating_mul(repeats);
        estimate.sample_bytes = estimate.samples.saturating_mul(SAMPLE_BYTES);
        Ok(estimate)
    }
}

/// Processes of one repeat: one under each policy, and one for each recorded stage.
fn processes(stages: &[Stage]) -> u64 {
    let (bare, recorded): (Vec<&Stage>, Vec<&Stage>) = stages.iter().partition(|stage| stage.run.record.is_no());
    let policies: HashSet<&str> = bare.iter().map(|stage| stage.run.policy.as_str()).collect();
    (policies.len() + recorded.len()) as u64
}

/// Samples of all cells of a stage in one repeat.
fn samples_of(stage: &Stage) -> u64 {
    let cells = stage.cells.len() as u64;
    let by_time = stage.run.duration_ns.map(|duration| {
        let share = duration / cells.max(1);
        let of_cell = |arrival| match arrival {
            Arrival::Paced { period_ns } => share / period_ns.max(1),
            Arrival::Closed { .. } => share / SAMPLE_NS,
        };
        stage.cells.iter().fold(0u64, |all, cell| all.saturating_add(of_cell(cell.subject.arrival)))
    });
    let by_number = stage.run.samples.map(|samples| samples.saturating_mul(cells));
    match (by_number, by_time) {
        (Some(number), Some(time)) => number.min(time),
        (number, time) => number.or(time).unwrap_or(0),
    }
}

impl Estimate {
    /// Whether the machine decides how long a part of it takes.
    pub fn is_open(&self) -> bool {
        self.stages_by_samples > 0
    }
}

/// One line: `25 stages, 200 cells, 1 process; about 2 min 31 s; at most 200,000 samples, 2 MB`.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |n: u64, one: &str, many: &str| format!("{} {}", count(n), if n == 1 { one } else { many });
        write!(
            f,
            "{}, {}, {}; about {}",
            counted(self.stages, "stage", "stages"),
            counted(self.cells, "cell", "cells"),
            counted(self.processes, "process", "processes"),
            duration(self.time_ns.div_ceil(1_000_000_000) as f64)
        )?;
        if self.is_open() {
            let (stages, end) = if self.stages_by_samples == 1 { ("stage", "ends") } else { ("stages", "end") };
            let (number, of) = (count(self.stages_by_samples), count(self.stages));
            write!(
                f,
                ", and what the machine takes for the samples of the {number} {stages} of {of} that {end} by samples alone"
            )?;
        }
        let (most, samples) =
            if self.samples_are_limited { ("at most", self.samples) } else { ("about", rounded(self.samples)) };
        let size = match self.sample_bytes {
            bytes if bytes >= 1_000_000_000 => format!("{:.1} GB", bytes as f64 / 1e9),
            bytes => format!("{} MB", bytes.div_ceil(1_000_000)),
        };
        write!(f, "; {most} {}, {size}", counted(samples, "sample", "samples"))
    }
}

/// Rounded to two digits.
fn rounded(n: u64) -> u64 {
    let unit = 10u64.pow(n.checked_ilog10().unwrap_or(0).saturating_sub(1));
    (n / unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_in_one_line() {
        let e = Estimate {
            stages: 25,
            cells: 1200,
            processes: 1,
            time_ns: 151_000_000_000,
            samples: 1_200_000,
            samples_are_limited: true,
            sample_bytes: 12_000_000,
            stages_by_samples: 0,
        };
        let line = "25 stages, 1,200 cells, 1 process; about 2 min 31 s; at most 1,200,000 samples, 12 MB";
        assert_eq!(e.to_string(), line);
        let e = Estimate { stages: 1, stages_by_samples: 1, samples_are_limited: false, time_ns: 4_500_000_000, ..e };
        let line = "1 stage, 1,200 cells, 1 process; about 5 s, and what the machine takes for the samples of the 1 stage of 1 \
                    that ends by samples alone; about 1,200,000 samples, 12 MB";
        assert_eq!(e.to_string(), line);
        assert_eq!([rounded(0), rounded(7), rounded(99), rounded(4_799_988)], [0, 7, 99, 4_700_000]);
    }

    fn of(text: &str) -> Estimate {
        crate::read(text, "x.toml", &[]).unwrap_or_else(|e| panic!("{e}")).estimate().unwrap()
    }

    #[test]
    fn durations_add_up() {
        let e = of(r#"
            [run]
            duration = "10s"
            repeats = 3
            noise = "1s"
            [[subject]]
            call = "launch"
            [[subject]]
            call = "graph(20)"
            arrival = "paced(1ms)"
            [matrix]
            policy = ["stock", "pi"]
            "#);
        assert_eq!((e.stages, e.cells, e.processes, e.stages_by_samples), (2, 4, 6, 0));
        let a_stage = 10_000_000_000 + 2 * 1_000_000_000 + STAGE_NS;
        assert_eq!(e.time_ns, 3 * 2 * a_stage + 6 * START_NS);
        // 5 s for each of two cells: 500,000 of 10 us each, and 5,000 of 1 ms each.
        assert_eq!((e.samples, e.samples_are_limited), (3 * 2 * 505_000, false));
        assert_eq!(e.sample_bytes, e.samples * SAMPLE_BYTES);
    }

    #[test]
    fn samples_alone_leave_the_time_open() {
        let e = of("[run]\nsamples = 1000\nnoise = \"0s\"\n[[subject]]\ncall = \"launch\"\n");
        assert_eq!((e.samples, e.samples_are_limited, e.is_open()), (1000, true, true));
        assert_eq!(e.time_ns, 5 * (STAGE_NS + START_NS));
    }

    #[test]
    fn samples_are_limited_by_the_first_bound_reached() {
        let e = of("[run]\nsamples = 1000\nduration = \"1s\"\n[[subject]]\ncall = \"launch\"\n");
        assert_eq!((e.samples, e.is_open()), (1000, false));
        let e = of("[run]\nsamples = 1000000000\nduration = \"1s\"\n[[subject]]\ncall = \"launch\"\n");
        assert_eq!(e.samples, 100_000);
    }
}
