//! Takes the samples with the engine of experiments, and makes a profile.

use crate::calibration::candidates::{self, Left};
use crate::calibration::search::{Answer, Doing, Request, Search, Settings, Sweep};
use crate::clock::Clock;
use crate::stage::{self, Lab};
use experiment::{Addresses, Cell, Class, Cpus, Gpu, LoadSpec, Run, Stage, SubjectSpec, What};
use run_folder::{Sample, Status};
use std::time::{Duration, Instant};
use submit::route_choice::{Direction, Key, Metric, Places, Profile};
use workload::Machine;
use workload::spec::Host;

/// The options of a calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    pub soft: bool,
    pub objective: Metric,
    pub budget: Duration,
    /// A load, in addition to the idle machine.
    pub beside: Option<Beside>,
    pub memories: Vec<Host>,
    /// Whether transfers of pinned memory with changing addresses get separate plans.
    pub changing_places: bool,
    /// Lengths of batches (1: a single transfer). Others are measured with pinned memory.
    pub batches: Vec<u32>,
    /// The coarse ladder of sizes, ascending.
    pub sizes: Vec<u64>,
}

/// The load during the second half of the measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// A route or a call, by its text.
    pub what: String,
    pub threads: u32,
    /// Bytes of each of its transfers.
    pub bytes: u64,
}

impl Beside {
    /// Its name in the profile.
    pub fn name(&self) -> String {
        format!("{} x {} of {}", self.threads, self.what, settings::sizes::text(self.bytes))
    }
}

/// The progress of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'p> {
    pub load: &'p str,
    pub doing: Doing,
    /// Smallest size of the stage that begins.
    pub smallest: u64,
    pub largest: u64,
    pub samples: u64,
    /// Upper limit of the remaining time.
    pub left: Duration,
}

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    Done(Box<Done>),
    /// It was stopped: there is no profile.
    Stopped,
    /// No route can be measured.
    Nothing(Vec<Left>),
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub profile: Profile,
    pub samples: u64,
    /// Routes that were left out or dropped, each once.
    pub left: Vec<Left>,
    pub notes: Vec<String>,
}

impl Calibration {
    pub const BATCHES: [u32; 2] = [1, 256];
    pub const BUDGET: Duration = Duration::from_secs(120);
    /// The software GPU has no speed: a short calibration shows what works.
    pub const SOFT_BUDGET: Duration = Duration::from_secs(5);

    /// 4 bytes to 64 MiB in powers of four; on the software GPU, whose copies are the CPU's, to 64 KiB.
    pub fn sizes(soft: bool) -> Vec<u64> {
        let last = if soft { 8 } else { 13 };
        (1..=last).map(|n| 1 << (2 * n)).collect()
    }

    /// The sweeps to measure, and the routes that are left out of them.
    pub fn sweeps(&self, machine: &Machine) -> (Vec<Sweep>, Vec<Left>) {
        let (mut sweeps, mut all_left) = (Vec::new(), Vec::new());
        let all = self.memories.iter().flat_map(|memory| self.batches.iter().map(move |batch| (*memory, *batch)));
        for (memory, batch) in all.filter(|(memory, batch)| *batch == 1 || *memory == Host::Pinned) {
            for direction in [Direction::ToGpu, Direction::FromGpu] {
                let (candidates, left) = candidates::candidates(machine, direction, memory, batch);
                all_left.extend(left);
                if candidates.is_empty() {
                    continue;
                }
                let name = memory.to_string();
                let sweep = Sweep { direction, memory: name, places: Places::Same, batch, candidates };
                // With changing places, the time depends on how fast the CPU reaches the bytes, independent of the kind of pinning.
                if self.changing_places && batch == 1 && memory == Host::Pinned {
                    let candidates = sweep.candidates.iter().filter(|route| may_change_place(route)).cloned().collect();
                    sweeps.push(Sweep { places: Places::Others, candidates, ..sweep.clone() });
                }
                sweeps.push(sweep);
            }
        }
        (sweeps, all_left)
    }
}

/// The kinds of routes whose transfers can be moved to other addresses, and whose time depends on it.
fn may_change_place(route: &str) -> bool {
    let kind = route.split("->").nth(1).unwrap_or_default();
    ["ce", "bar1", "split", "cuda"].iter().any(|name| kind.starts_with(name)) && !kind.contains("graph")
}

/// The rest of the budget is for the intervals of all figures, at the end.
const SEARCH: f64 = 0.95;
/// Rounds of a stage.
const ROUNDS: u32 = 12;
/// Opening a route: a channel, buffers, and some transfers. The search corrects it by the time that stages take.
const OPEN_NS: u64 = 15_000_000;
const OPEN_SOFT_NS: u64 = 1_000_000;

/// Calibrates on the calling thread.
pub fn run(
    machine: &Machine,
    asked: &Calibration,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Ended {
    let begun = Instant::now();
    let (sweeps, mut left) = asked.sweeps(machine);
    if sweeps.is_empty() {
        return Ended::Nothing(left);
    }
    let facts = submit::route_choice::Facts::of_this_machine(asked.soft, None);
    let clock = Clock::new();
    let lab = Lab { machine, clock: &clock, tell: &|_| {} };
    let loads: Vec<Option<&Beside>> = std::iter::once(None).chain(asked.beside.as_ref().map(Some)).collect();
    let (mut plans, mut samples, mut notes, mut number) = (Vec::new(), 0, Vec::new(), 0);
    for (n, load) in loads.iter().enumerate() {
        // Time that the earlier half did not use is added to the next one.
        let whole = asked.budget.mul_f64(SEARCH).saturating_sub(begun.elapsed());
        let budget = whole / (loads.len() - n) as u32;
        let rest = whole - budget;
        let settings = Settings {
            sizes: asked.sizes.clone(),
            objective: asked.objective,
            budget_ns: budget.as_nanos() as u64,
            rounds: ROUNDS,
            open_ns: if asked.soft { OPEN_SOFT_NS } else { OPEN_NS },
            // The software GPU has no speed that could be certain.
            cell_ns: if asked.soft { 0 } else { Settings::cell_ns(asked.objective) },
        };
        let name = load.map_or_else(|| Key::IDLE.to_owned(), Beside::name);
        let mut search = Search::new(settings, sweeps.clone());
        while let Some(request) = search.next() {
            if stop() {
                return Ended::Stopped;
            }
            let sizes = || request.asks.iter().map(|ask| ask.bytes);
            tell(&Progress {
                load: &name,
                doing: request.doing,
                smallest: sizes().min().unwrap_or(0),
                largest: sizes().max().unwrap_or(0),
                samples: samples + search.samples(),
                left: Duration::from_nanos(search.left_ns()) + rest,
            });
            let began = Instant::now();
            let stage = stage_of(asked, &sweeps, &request, *load, number);
            number += 1;
            let finished = stage::run(&lab, &stage, 0);
            let answers = finished.part.cells.iter().zip(finished.samples).map(|(cell, samples)| match &cell.status {
                Status::Measured => Answer::Samples(rounds(&samples, request.rounds)),
                Status::Unavailable(why) | Status::Failed(why) | Status::Invalid(why) => Answer::Refused(why.clone()),
            });
            let answers: Vec<Answer> = answers.collect();
            let failed = finished.part.loads.iter().flat_map(|load| &load.failed);
            for note in finished.part.notes.into_iter().chain(failed.map(|(why, _)| why.clone())) {
                if !is_of_counters(&note) && !notes.contains(&note) {
                    notes.push(note);
                }
            }
            let measured = began.elapsed();
            search.told(&request, answers, measured.as_nanos() as u64);
            // Computing intervals of tails takes time, too.
            search.spend((began.elapsed() - measured).as_nanos() as u64);
        }
        samples += search.samples();
        plans.extend(search.plans(&name));
        left.extend(search.dropped().map(|(route, why)| Left { route: route.into(), why: why.into() }));
    }
    if stop() {
        return Ended::Stopped;
    }
    if plans.is_empty() {
        return Ended::Nothing(left);
    }
    left.sort_by(|a, b| a.route.cmp(&b.route));
    left.dedup_by(|a, b| a.route == b.route);
    let taken = environment::utc_now().unwrap_or_else(|_| "not known".into());
    let profile = Profile { functional: asked.soft, taken, facts, plans };
    Ended::Done(Box::new(Done { profile, samples, left, notes }))
}

/// Samples by round; samples that were cut short are not counted.
fn rounds(samples: &[Sample], rounds: u32) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new(); rounds as usize];
    for sample in samples.iter().filter(|sample| !sample.capped) {
        if let Some(round) = all.get_mut(sample.round as usize) {
            round.push(sample.done());
        }
    }
    all
}

/// What every stage is like: a cell and a load, to be filled in. Every cell is verified when it is opened, and its last transfer at the end.
const STAGE: &str = r#"
[run]
samples = 1
repeats = 1
noise = "0s"
meter = "0s"
timeout = "10s"
[verify]
every = 0
[[subject]]
call = "cell"
rests = true
[[load]]
call = "load"
"#;

/// # Panics
/// The text above is no experiment: a test calibrates.
fn stage_of(asked: &Calibration, sweeps: &[Sweep], request: &Request, load: Option<&Beside>, number: u32) -> Stage {
    #[expect(clippy::expect_used, reason = "the text is a constant, and tests read it")]
    let stages = experiment::read_stored(STAGE, "calibration").and_then(|e| e.stages()).expect("a constant");
    let (run, subject, of_load) = (&stages[0].run, &stages[0].cells[0].subject, &stages[0].loads[0]);
    let run = Run {
        rounds: request.rounds,
        samples: Some(request.samples),
        duration_ns: Some(request.duration_ns),
        counters_every: 0,
        class: if asked.soft { Class::Other } else { Class::RealTime },
        cpus: if asked.soft { Cpus::Any } else { Cpus::Last },
        gpu: if asked.soft { Gpu::Soft } else { Gpu::Real },
        ..run.clone()
    };
    let cell = |ask: &crate::calibration::search::Ask| {
        let Sweep { candidates, places, .. } = &sweeps[ask.sweep];
        let route = &candidates[ask.route];
        let addresses = match places {
            Places::Same => Addresses::Fixed,
            Places::Others => Addresses::Random,
        };
        let (name, what) = (format!("{route} {} {places}", ask.bytes), What::Route(route.clone()));
        Cell { subject: SubjectSpec { name, what, addresses, ..subject.clone() }, bytes: ask.bytes }
    };
    let loads = load.map(|beside| LoadSpec {
        name: beside.name(),
        what: match &beside.what {
            route if route.contains("->") => What::Route(route.clone()),
            call => What::Call(call.clone()),
        },
        bytes: beside.bytes,
        count: beside.threads,
        cpus: if asked.soft { Cpus::Any } else { Cpus::Others },
        check_every: 0,
        ..of_load.clone()
    });
    Stage {
        number,
        run,
        cells: request.asks.iter().map(cell).collect(),
        loads: loads.into_iter().collect(),
        ..stages[0].clone()
    }
}

/// Whether a note only reports that counters were not read (`pcie_to_gpu_bytes, energy_mj: why`): calibration does not request them, and stages are
/// too short for some.
fn is_of_counters(note: &str) -> bool {
    let names = note.split_once(": ").map_or("", |(names, _)| names);
    !names.is_empty() && names.split(", ").all(|name| name.contains('_') && !name.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_counters_are_told_from_others() {
        assert!(is_of_counters(
            "pcie_to_gpu_bytes, pcie_from_gpu_bytes: 65 ms are too short for the bytes of the link"
        ));
        assert!(!is_of_counters("SCHED_FIFO 80 was refused: Operation not permitted"));
        assert!(
            !is_of_counters("other threads of this process may be on the measuring CPU: no") && !is_of_counters("")
        );
    }
}
