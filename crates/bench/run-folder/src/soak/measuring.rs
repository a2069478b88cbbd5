//! The process that measures: it turns laps into periods, and writes each to the folder while it is measured and when it is over.
//!
//! Memory does not grow with time: an open period has a histogram and a few samples for each cell, and a closed one is a file.

use crate::Error;
use crate::run::add_load;
use crate::soak::Folder;
use crate::soak::account::{Above, CellName, Fault, FaultKind, Held, LoadOfPeriod, Machine, Period, Spread};
use crate::soak::cell::OpenCell;
use crate::soak::clock::{self, Clock, Moment};
use crate::{Loaded, Part, Sample, Status};
use experiment::{Gpu, LoadSpec, MustReach, Stage};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// One more measurement of a stage.
#[derive(Debug)]
pub struct Lap {
    pub part: Part,
    /// By cell.
    pub samples: Vec<Vec<Sample>>,
    /// Why a cell took no more samples, by cell.
    pub ended: Vec<Option<Ending>>,
    /// How many seconds ago the part's clock began.
    pub ago_s: f64,
}

/// How a cell of a lap ended before the lap did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A transfer left a wrong byte; the cell continues in the next lap.
    Wrong,
    /// A transfer did not end within the time limit, or the subject failed: this process does not measure the cell again.
    Lost,
    Failed,
    /// The last sample is above the bound.
    Above,
}

/// What follows a lap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// The same stage again. `noise`: a period begins.
    Lap {
        noise: bool,
    },
    NextStage,
    Over(Over),
}

/// Whether a lap is the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    No,
    /// The soak was asked to end.
    Told,
    /// A new process should continue, with the reason.
    Renew(String),
}

/// Why this process measures no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// All that was asked for is measured.
    Done,
    Stopped,
    /// A sample was above the bound.
    Above(String),
    /// A new process should continue, with the reason.
    Renew(String),
    /// Nothing can be measured on this machine.
    Impossible(String),
}

/// A load that reaches less than this fraction of its rate did not hold.
const HELD: f64 = 0.9;
/// Fraction of what a load without a rate reached in the first period.
const OF_FIRST: f64 = 0.5;
/// An open period is written this often while it is measured.
const WRITE_S: f64 = 60.0;
/// Over a shorter time no power is computed: energy is counted in steps of about 100 ms.
const POWER_S: f64 = 0.5;

pub struct Measuring<'m> {
    folder: &'m Folder,
    clock: &'m Clock,
    held: &'m dyn Fn() -> Held,
    /// Seconds of the periods that are closed.
    done_s: f64,
    open: Open,
    /// What loads without a rate reached in the first period, by stage and name.
    first: HashMap<(u32, String), f64>,
    stage_began_s: Option<f64>,
    worst_ns: Option<u64>,
    any: bool,
    /// The number of successive stages without any measurement.
    in_vain: usize,
}

/// The period that is being measured.
struct Open {
    /// Without what is known at its end: the figures of cells and loads, and dead loads.
    period: Period,
    began: Moment,
    written_s: f64,
    cells: Vec<OpenCell>,
    loads: Vec<OpenLoad>,
    /// Weights of the means of power, temperature and clock so far.
    weights: [f64; 3],
    throttle: u64,
    /// The sample above the bound.
    above: Option<Above>,
}

struct OpenLoad {
    stage: u32,
    spec: LoadSpec,
    /// Of all laps together.
    done: Loaded,
}

impl<'m> Measuring<'m> {
    /// Continues after the existing periods.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn new(
        folder: &'m Folder,
        clock: &'m Clock,
        process: u32,
        held: &'m dyn Fn() -> Held,
    ) -> Result<Measuring<'m>, Error> {
        let periods = folder.periods()?;
        let first = periods.first().map(|period| period.loads.iter());
        let first = first.into_iter().flatten().map(|l| ((l.stage, l.name.clone()), l.reached)).collect();
        Ok(Measuring {
            folder,
            clock,
            held,
            done_s: periods.iter().map(|period| period.seconds).sum(),
            open: Open::new(folder, process, periods.len() as u32, clock.now()),
            first,
            stage_began_s: None,
            worst_ns: None,
            any: false,
            in_vain: 0,
        })
    }

    pub fn progress(&self) -> Progress {
        let open_s = self.clock.now().elapsed_s - self.open.began.elapsed_s;
        Progress {
            period: self.open.period.index,
            done_s: self.done_s + open_s,
            worst_ns: self.worst_ns,
            any: self.any,
        }
    }

    /// A lap of a stage is over.
    ///
    /// # Errors
    /// A period cannot be written.
    pub fn lap(&mut self, stage: &Stage, lap: Lap, stop: Stop) -> Result<Then, Error> {
        let (asked, stages) = (self.folder.asked(), self.folder.stages());
        if !self.any {
            // The time that opening took does not belong to the period.
            self.open.began = self.clock.back(lap.ago_s);
            self.open.written_s = self.open.began.elapsed_s;
        }
        let began = *self.stage_began_s.get_or_insert(self.clock.back(lap.ago_s).elapsed_s);
        if lap.samples.iter().all(Vec::is_empty) {
            return self.nothing(&lap);
        }
        (self.any, self.in_vain) = (true, 0);
        self.clock.lapped();
        let now = self.clock.now();
        self.open.add(stage, &lap, now);
        self.worst_ns = self.worst_ns.max(lap.samples.iter().flatten().map(Sample::done).max());
        if let Some(over) = self.open.over(stage, &lap, asked.stop_above_ns) {
            if let Some(above) = self.open.above.take() {
                self.folder.write_above(&above)?;
            }
            self.close(now)?;
            return Ok(Then::Over(over));
        }
        let seconds = now.elapsed_s - self.open.began.elapsed_s;
        let stage_is_over = stages.len() > 1 && now.elapsed_s - began >= asked.every_s / stages.len() as f64;
        let is_last = stages.last().is_some_and(|last| last.number == stage.number);
        let closes = if stages.len() == 1 { seconds >= asked.every_s } else { stage_is_over && is_last };
        let is_done = self.done_s + seconds >= asked.asked_s;
        let over = match stop {
            Stop::Told => Some(Over::Stopped),
            _ if is_done => Some(Over::Done),
            Stop::Renew(why) => Some(Over::Renew(why)),
            Stop::No => None,
        };
        if let Some(over) = over {
            self.close(now)?;
            return Ok(Then::Over(over));
        }
        if closes {
            self.close(now)?;
        } else if now.elapsed_s - self.open.written_s >= WRITE_S.min(asked.every_s / 4.0) || self.open.is_urgent(&lap) {
            self.folder.write_period(&self.account(now))?;
            self.open.written_s = now.elapsed_s;
        }
        if stage_is_over {
            self.stage_began_s = None;
            return Ok(Then::NextStage);
        }
        Ok(Then::Lap { noise: closes })
    }

    /// A lap without a sample: its cause would affect the next lap, too.
    fn nothing(&mut self, lap: &Lap) -> Result<Then, Error> {
        self.in_vain += 1;
        self.stage_began_s = None;
        if self.in_vain < self.folder.stages().len() {
            return Ok(Then::NextStage);
        }
        let statuses = || lap.part.cells.iter().map(|cell| &cell.status);
        let failed = statuses().find_map(|status| match status {
            Status::Failed(why) | Status::Invalid(why) => Some(why.clone()),
            _ => None,
        });
        let no_sample = statuses().any(|status| *status == Status::Measured).then(|| "a lap took no sample".into());
        let why_not =
            || statuses().find_map(|s| if let Status::Unavailable(why) = s { Some(why.clone()) } else { None });
        let over = match failed.or(no_sample) {
            Some(why) => Over::Renew(why),
            None => Over::Impossible(why_not().unwrap_or_default()),
        };
        if self.any {
            self.close(self.clock.now())?;
        }
        Ok(Then::Over(over))
    }

    fn account(&self, now: Moment) -> Period {
        self.open.account(self.folder.experiment().run.gpu, now, &self.first, (self.held)())
    }

    /// Writes the open period, and opens the next.
    fn close(&mut self, now: Moment) -> Result<(), Error> {
        let period = self.account(now);
        self.folder.write_period(&period)?;
        for load in &period.loads {
            self.first.entry((load.stage, load.name.clone())).or_insert(load.reached);
        }
        self.done_s += period.seconds;
        self.open = Open::new(self.folder, period.process, period.index + 1, now);
        if self.stage_began_s.is_some() && self.folder.stages().len() == 1 {
            self.stage_began_s = None;
        }
        Ok(())
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The one that is open.
    pub period: u32,
    /// Measured so far, in all processes.
    pub done_s: f64,
    /// The slowest sample of this process.
    pub worst_ns: Option<u64>,
    /// This process has measured something.
    pub any: bool,
}

impl Open {
    fn new(folder: &Folder, process: u32, index: u32, began: Moment) -> Open {
        let cells = |stage: &Stage| stage.cells.iter().map(|cell| OpenCell::new(stage, cell)).collect::<Vec<_>>();
        let load = |stage: &Stage, spec: &LoadSpec| OpenLoad {
            stage: stage.number,
            spec: spec.clone(),
            done: Loaded::default(),
        };
        let stages = folder.stages();
        Open {
            period: Period { index, process, ..Period::default() },
            began,
            written_s: began.elapsed_s,
            cells: stages.iter().flat_map(cells).collect(),
            loads: stages.iter().flat_map(|s| s.loads.iter().map(move |spec| load(s, spec))).collect(),
            weights: [0.0; 3],
            throttle: 0,
            above: None,
        }
    }

    fn add(&mut self, stage: &Stage, lap: &Lap, now: Moment) {
        let began_utc_s = now.utc_s - lap.ago_s;
        self.period.laps += 1;
        let of_stage = self.cells.iter().position(|cell| cell.of.cell.stage == stage.number).unwrap_or(0);
        let mut faults = Vec::new();
        for (n, part) in lap.part.cells.iter().enumerate() {
            let (cell, samples) = (&mut self.cells[of_stage + n], lap.samples.get(n).map_or(&[][..], Vec::as_slice));
            cell.add(self.period.index, began_utc_s, stage.run.counters_every, part, samples);
            let Status::Failed(why) = &part.status else { continue };
            let kind = match lap.ended.get(n).copied().flatten() {
                Some(Ending::Wrong) => {
                    cell.of.wrong += 1;
                    FaultKind::Corrupted
                }
                Some(Ending::Lost) => {
                    cell.of.lost += 1;
                    FaultKind::Lost
                }
                _ => FaultKind::Failed,
            };
            faults.push((kind, cell.of.cell.clone(), why.clone()));
        }
        for (kind, cell, what) in faults {
            if !self.period.faults.iter().any(|f| f.kind == kind && f.cell.as_ref() == Some(&cell)) {
                self.fault(kind, Some(clock::precise(now.utc_s)), cell, what);
            }
        }
        for loaded in &lap.part.loads {
            let mut loads = self.loads.iter_mut();
            if let Some(load) = loads.find(|l| l.stage == stage.number && l.spec.name == loaded.name) {
                load.add(loaded);
            }
        }
        self.add_machine(&lap.part.counted, lap.part.seconds);
        let floor = lap.part.noise.iter().map(|noise| noise.max_ns).max();
        self.period.noise_ns = self.period.noise_ns.max(floor);
        for note in &lap.part.notes {
            if !self.period.notes.contains(note) && self.period.notes.len() < NOTES {
                self.period.notes.push(note.clone());
            }
        }
    }

    fn add_machine(&mut self, counted: &[(String, f64)], seconds: f64) {
        let of = |name: &str| counted.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let machine = &mut self.period.machine;
        let power = of("power_w").or_else(|| of("power_at_end_w")).filter(|_| seconds >= POWER_S);
        let looks = [(&mut machine.power_w, power, seconds), (&mut machine.temperature_c, of("temperature_c"), 1.0)];
        let looks = looks.into_iter().chain([(&mut machine.sm_clock_mhz, of("sm_mhz"), 1.0)]);
        for ((spread, value, weight), before) in looks.zip(&mut self.weights) {
            let Some(value) = value else { continue };
            let of = spread.get_or_insert(Spread { mean: value, min: value, max: value });
            let mean = (of.mean * *before + value * weight) / (*before + weight);
            *of = Spread { mean, min: of.min.min(value), max: of.max.max(value) };
            *before += weight;
        }
        for (sum, more) in [
            (&mut machine.energy_j, of("energy_mj").map(|mj| mj / 1e3)),
            (&mut machine.steal_ms, of("steal_ms")),
            (&mut machine.pcie_replays, of("pcie_replays")),
            (&mut machine.ecc_corrected, of("ecc_corrected")),
            (&mut machine.ecc_uncorrected, of("ecc_uncorrected")),
        ] {
            *sum = more.map(|more| sum.unwrap_or(0.0) + more).or(*sum);
        }
        self.throttle |= of("throttle_reasons").map_or(0, |bits| bits as u64);
    }

    fn fault(&mut self, kind: FaultKind, at: Option<String>, cell: CellName, what: String) {
        self.period.faults.push(Fault { kind, at, period: Some(self.period.index), cell: Some(cell), what });
    }

    /// Whether the process ends after this lap.
    fn over(&mut self, stage: &Stage, lap: &Lap, bound_ns: Option<u64>) -> Option<Over> {
        let of_stage = self.cells.iter().position(|cell| cell.of.cell.stage == stage.number).unwrap_or(0);
        let which = |ending: Ending| lap.ended.iter().position(|e| *e == Some(ending)).map(|n| (n, of_stage + n));
        if let (Some((n, at)), Some(bound_ns)) = (which(Ending::Above), bound_ns) {
            let name = self.cells[at].of.cell.clone();
            // The last measured sample.
            let sample = lap.samples.get(n).and_then(|samples| samples.last()).copied().unwrap_or_default();
            let slow = self.cells[at].slowest().into_iter().next().filter(|slow| slow.total_ns == sample.done());
            let why = crate::soak::delay::of_sample(&sample, slow.as_ref());
            let what =
                format!("{} above {}: {why}", numbers::nanoseconds(sample.done()), numbers::nanoseconds(bound_ns));
            let at = slow.map(|slow| slow.at);
            let steal = lap.part.counted.iter().find(|(name, _)| name == "steal_ms");
            self.above = Some(Above {
                period: self.period.index,
                cell: name.clone(),
                sample,
                steal_ms: steal.map(|(_, ms)| *ms),
                counter: lap.part.counter.clone(),
                recording: None,
                delay: None,
                not_joined: None,
            });
            self.fault(FaultKind::Above, at, name, what.clone());
            return Some(Over::Above(what));
        }
        let (n, at) = which(Ending::Lost).or_else(|| which(Ending::Failed))?;
        let why = match &lap.part.cells[n].status {
            Status::Failed(why) | Status::Unavailable(why) | Status::Invalid(why) => why.clone(),
            Status::Measured => String::new(),
        };
        Some(Over::Renew(format!("{}: {why}", self.cells[at].of.cell.subject)))
    }

    /// Whether something happened that must not be lost with this process.
    fn is_urgent(&self, lap: &Lap) -> bool {
        lap.ended.iter().any(Option::is_some) && !self.period.faults.is_empty()
    }

    fn account(&self, gpu: Gpu, now: Moment, first: &HashMap<(u32, String), f64>, held: Held) -> Period {
        let loads: Vec<LoadOfPeriod> = self.loads.iter().map(|load| load.account(gpu, first)).collect();
        let dead = loads.iter().filter(|load| !load.held && load.unavailable.is_none()).map(|load| {
            let what = dead(load, gpu);
            Fault { kind: FaultKind::DeadLoad, at: None, period: Some(self.period.index), cell: None, what }
        });
        let throttle = environment::throttle_names(self.throttle).into_iter().map(str::to_owned).collect();
        Period {
            started: clock::text(self.began.utc_s),
            ended: clock::text(now.utc_s),
            seconds: now.elapsed_s - self.began.elapsed_s,
            cells: self.cells.iter().map(|cell| cell.account(gpu == Gpu::Soft)).collect(),
            machine: Machine { throttle, ..self.period.machine.clone() },
            held,
            faults: self.period.faults.iter().cloned().chain(dead).collect(),
            loads,
            ..self.period.clone()
        }
    }
}

/// Notes of a period, at most.
const NOTES: usize = 20;

fn dead(load: &LoadOfPeriod, gpu: Gpu) -> String {
    let rate = match load.wanted {
        _ if load.transfers == 0 => "it did nothing".to_owned(),
        // An emulation has no rates.
        Some(wanted) if gpu != Gpu::Soft => format!("{:.1} of {wanted:.1} a second", load.reached),
        _ => "it did not hold its rate".to_owned(),
    };
    let why: String = load.failed.iter().map(|why| format!("; {why}")).collect();
    format!("load {}: {rate}{why}", load.name)
}

impl OpenLoad {
    fn add(&mut self, loaded: &Loaded) {
        let alone = loaded.alone.or(self.done.alone);
        add_load(&mut self.done, loaded);
        // A thread that has ended is named in each lap.
        let (failed, unavailable) = (loaded.failed.clone(), loaded.unavailable.clone());
        self.done = Loaded { alone, failed, unavailable, ..std::mem::take(&mut self.done) };
    }

    fn account(&self, gpu: Gpu, first: &HashMap<(u32, String), f64>) -> LoadOfPeriod {
        let Loaded { transfers, bytes, ref failed, .. } = self.done;
        let seconds = self.done.seconds - self.done.rested;
        let reached = if seconds > 0.0 { transfers as f64 / seconds } else { 0.0 };
        let spec = &self.spec;
        let own = spec.rate.map(|rate| rate * f64::from(spec.count));
        let wanted = match spec.must_reach {
            Some(MustReach::Times(times)) => Some(times),
            Some(MustReach::Bytes(must)) if transfers > 0 && bytes > 0 => Some(must * transfers as f64 / bytes as f64),
            Some(MustReach::Bytes(_)) => None,
            Some(MustReach::Percent(percent)) => own.or(self.done.alone).map(|rate| rate * percent / 100.0),
            None => own
                .map(|rate| rate * HELD)
                .or_else(|| first.get(&(self.stage, spec.name.clone())).map(|reached| reached * OF_FIRST)),
        };
        // An emulation has no expected speed: there a load is dead only if it completes no operation.
        let enough = transfers > 0 && (gpu == Gpu::Soft || wanted.is_none_or(|wanted| reached >= wanted));
        LoadOfPeriod {
            stage: self.stage,
            name: spec.name.clone(),
            threads: spec.count,
            transfers,
            reached,
            wanted,
            held: enough && failed.is_empty(),
            failed: failed.iter().map(|(why, threads)| format!("{threads} threads ended: {why}")).collect(),
            unavailable: self.done.unavailable.clone(),
        }
    }
}
