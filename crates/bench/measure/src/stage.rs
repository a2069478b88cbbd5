//! One stage in one repeat: its subjects are opened and verified, its loads start, its cells take turns in rounds, in a new random order for each.
//! A missing or failed subject becomes a result, and the others continue.

use crate::clock::Clock;
use crate::kernel_log;
use crate::load::{self, Running};
use crate::moment::{Beside, Moment, Scale, Slowest};
use crate::noise::noise;
use crate::seat::{Seat, Seats};
use crate::turn::{Between, Ended, Live, MOST_DEPTH, Turn, Watch};
use environment::Counters;
use environment::clock::Source;
use environment::link::{By, Passed};
use experiment::{Addresses, Arrival, Cell, Data, Gpu, Record, Stage};
use gpu::Correlation;
use run_folder::commands::{Anchor, Counter};
use run_folder::part::{BY_RATES, LinkBy, LinkCount, Metered, StuckBetween};
use run_folder::soak::measuring::{Ending, Lap};
use run_folder::{Compared, Loaded, Noise, Part, PartCell, Sample, Status, Tally};
use statistics::{Slow, WORST};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use workload::Unavailable;
use workload::{Error, Machine, Opened, Subject, Sweep, Wanted};

/// The context of a stage.
#[derive(Clone, Copy)]
pub struct Lab<'l> {
    pub machine: &'l Machine,
    pub clock: &'l Clock,
    /// Called between turns with the current activity.
    pub tell: &'l dyn Fn(&str),
}

/// The result of one stage in one repeat: its account, and the samples of each cell.
#[derive(Debug)]
pub struct Finished {
    pub part: Part,
    pub samples: Vec<Vec<Sample>>,
}

/// A cell, opened or not.
struct Ready<'m> {
    /// One for each simultaneous transfer.
    opened: Vec<Box<dyn Opened + 'm>>,
    about: String,
    status: Status,
}

/// A call that lasts at least this long, and as long as the whole stage should, is stuck because of the loads: they rest until it returns.
const STUCK: Duration = Duration::from_secs(1);
/// Interval between checks.
const LOOK: Duration = Duration::from_millis(20);
/// Time limit of a stage that is bounded only by samples.
const UNBOUNDED: Duration = Duration::from_secs(600);
/// Untimed transfers of each cell before its first turn.
const WARM_UP: u32 = 64;
const WARM_UP_TIME: Duration = Duration::from_millis(100);
/// The GPU's clock is compared with the counter about once in this time.
const CORRELATE: Duration = Duration::from_secs(1);
/// Memory that is touched before a stage, bytes.
const WARM_MEMORY: std::ops::RangeInclusive<u64> = 256 << 20..=4 << 30;
/// Room for samples if no number is given: one for each so many nanoseconds of the cell's time, within these bounds.
const LEAST_NS: u64 = 250;
const ROOM: std::ops::RangeInclusive<u64> = 10_000..=8_000_000;

/// What to do after a lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Stop,
    Again {
        /// Also measure the machine's own noise.
        noise: bool,
    },
}

/// Called after each lap.
type Laps<'l> = &'l mut dyn FnMut(Lap) -> Next;

/// Runs a stage on the calling thread.
pub fn run(lab: &Lab<'_>, stage: &Stage, repeat: u32) -> Finished {
    opened(lab, stage, repeat, None, None)
}

/// Measures a stage lap after lap on the calling thread: it is opened once, and its loads run all the time. A sample above `bound` ends its lap.
/// Returns the final state of the cells and the loads, without samples.
pub fn run_on(lab: &Lab<'_>, stage: &Stage, bound: Option<Duration>, each: Laps<'_>) -> Finished {
    opened(lab, stage, 0, bound, Some(each))
}

fn opened(lab: &Lab<'_>, stage: &Stage, repeat: u32, bound: Option<Duration>, laps: Option<Laps<'_>>) -> Finished {
    let begun = Instant::now();
    let mut reports = kernel_log::reports();
    let mut part = empty(stage, repeat);
    let mut random = fastrand::Rng::with_seed(stage.run.seed ^ (u64::from(stage.number) << 32) ^ u64::from(repeat));
    let (seats, load_cpus) = match seated(stage) {
        Ok(seated) => seated,
        Err(why) => return nothing(part, stage, &why),
    };
    (lab.tell)("opening");
    if stage.run.gpu == Gpu::Real
        && let Err(e) = environment::warm_memory(memory_of(stage))
    {
        part.notes.push(format!("memory was not touched beforehand: {e}"));
    }
    let mut ready: Vec<Ready<'_>> = stage.cells.iter().map(|cell| open(lab, stage, cell, random.u64(..))).collect();
    let measured = ready.iter().filter(|r| r.status == Status::Measured).count();
    let room = room(stage, measured as u64);
    let mut live: Vec<(usize, Live<'_>)> = Vec::with_capacity(measured);
    let mut accounts: Vec<(String, Status)> = ready.iter().map(|r| (r.about.clone(), r.status.clone())).collect();
    for (n, r) in ready.iter_mut().enumerate().filter(|(_, r)| r.status == Status::Measured) {
        match prepare(r, stage, &stage.cells[n], room, random.u64(..)) {
            Ok(one) => {
                live.push((n, Live { bound: bound.map(|b| lab.clock.ticks(b.as_nanos() as u64)), ..one }));
            }
            Err(error) => accounts[n].1 = status_of(&error),
        }
    }
    for (_, one) in &mut live {
        let warm = one.warm_up(lab.clock, WARM_UP, WARM_UP_TIME);
        let rested = one.rest();
        one.ended = warm.and(rested).err();
    }
    let plan = load::Plan {
        loads: &stage.loads,
        cpus: load_cpus,
        seed: random.u64(..),
        timeout: Duration::from_nanos(stage.run.timeout_ns),
        clock: lab.clock,
        gpu: stage.run.gpu,
    };
    let threads: u32 = stage.loads.iter().map(|load| load.count).sum();
    let tell = |ready: usize| (lab.tell)(&format!("{ready} of {threads} threads of load"));
    let mut session = Session {
        lab,
        stage,
        seats: &seats,
        began: Began::now(lab.clock),
        looked_alone: false,
        correlations: Vec::new(),
    };
    let noise = Duration::from_nanos(stage.run.noise_ns);
    let ((), loads) = load::beside(lab.machine, &plan, &tell, |running| {
        let mut loads = session.measure(&mut live, &mut random, &mut part, running, noise);
        if let Some(each) = laps {
            loop {
                let done = std::mem::replace(&mut part, empty(stage, repeat));
                let ended = session.endings(&live);
                let mut finished = session.finished(done, &mut live, &accounts, &mut reports);
                finished.part.seconds = lab.clock.ns(lab.clock.now() - session.began.tick) as f64 / 1e9;
                finished.part.loads = running.with_ends(loads);
                let ago_s = lab.clock.ns(lab.clock.now() - session.began.tick) as f64 / 1e9;
                let noise = match each(Lap { part: finished.part, samples: finished.samples, ended, ago_s }) {
                    Next::Stop => return ((), running.since(&running.mark())),
                    Next::Again { noise: true } => noise,
                    Next::Again { noise: false } => Duration::ZERO,
                };
                session.correlations.clear();
                live.iter_mut().for_each(|(_, one)| one.again());
                loads = session.measure(&mut live, &mut random, &mut part, running, noise);
            }
        }
        ((), loads)
    });
    (lab.tell)("closing");
    for (_, one) in live.iter_mut().filter(|(_, one)| stage.verify.every == 0 && !one.moments.is_empty()) {
        if matches!(one.ended, None | Some(Ended::Full)) {
            one.ended = one.check().err().or(one.ended.take());
        }
    }
    let mut finished = session.finished(part, &mut live, &accounts, &mut reports);
    finished.part.loads = loads;
    finished.part.seconds = begun.elapsed().as_secs_f64();
    finished
}

/// Whether this machine has the CPUs that a stage names. Otherwise [`run`] measures nothing.
///
/// # Errors
/// Which CPUs this process may not use.
pub fn check(stage: &Stage) -> Result<(), String> {
    seated(stage).map(drop)
}

/// The CPUs of the measuring thread, and of each load.
fn seated(stage: &Stage) -> Result<(Seats, Vec<Vec<usize>>), String> {
    let seats = Seats::of(stage, environment::placement::affinity().map_err(|e| e.to_string())?)?;
    let loads = stage.loads.iter().map(|load| seats.resolve(&load.cpus)).collect::<Result<_, _>>()?;
    Ok((seats, loads))
}

fn empty(stage: &Stage, repeat: u32) -> Part {
    Part {
        stage: stage.number,
        repeat,
        began: environment::utc_now().unwrap_or_default(),
        seconds: 0.0,
        cpu: None,
        class: String::new(),
        throttled: 0,
        cells: Vec::new(),
        loads: Vec::new(),
        noise: Vec::new(),
        clock_error_ns: None,
        counted: Vec::new(),
        notes: Vec::new(),
        counter: None,
        recorded: None,
    }
}

/// A part that cannot be measured.
fn nothing(mut part: Part, stage: &Stage, why: &str) -> Finished {
    let cell = |_: &Cell| no_samples(String::new(), Status::Failed(why.to_owned()));
    part.cells = stage.cells.iter().map(cell).collect();
    Finished { part, samples: stage.cells.iter().map(|_| Vec::new()).collect() }
}

fn no_samples(about: String, status: Status) -> PartCell {
    PartCell {
        about,
        status,
        samples: 0,
        compared: Compared::default(),
        worst: Vec::new(),
        counted: None,
        metered: None,
        stuck_between: None,
        turns: Vec::new(),
        commands: None,
    }
}

fn open<'m>(lab: &Lab<'m>, stage: &Stage, cell: &Cell, seed: u64) -> Ready<'m> {
    let wanted = Wanted {
        bytes: cell.bytes,
        fresh_data: cell.subject.data == Data::Fresh,
        random_addresses: cell.subject.addresses == Addresses::Random,
        sweep: match cell.subject.addresses {
            Addresses::Sweep { step, .. } => Some(Sweep { step, places: cell.subject.addresses.places() }),
            Addresses::Fixed | Addresses::Random => None,
        },
        back_to_back: cell.subject.back_to_back,
    };
    let depth = match cell.subject.arrival {
        Arrival::Closed { depth } => depth.max(1) as usize,
        Arrival::Paced { .. } => 1,
    };
    let mut ready = Ready { opened: Vec::new(), about: String::new(), status: Status::Measured };
    if depth > MOST_DEPTH {
        ready.status = Status::Failed(format!("closed({depth}): at most {MOST_DEPTH} may be in flight at a time"));
        return ready;
    }
    let timeout = Duration::from_nanos(stage.run.timeout_ns);
    for n in 0..depth {
        let opened = workload::open(lab.machine, &cell.subject.what, &wanted).and_then(|mut opened| {
            let wrong = opened.verify(seed.wrapping_add(n as u64), timeout)?;
            Ok((opened, wrong))
        });
        match opened {
            Ok((opened, None)) => {
                ready.about = opened.about();
                ready.opened.push(opened);
            }
            Ok((_, Some(wrong))) => ready.status = Status::Failed(wrong.to_string()),
            Err(error) => ready.status = status_of(&error),
        }
        if ready.status != Status::Measured {
            break;
        }
    }
    ready
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::Unavailable(Unavailable { reason }) => Status::Unavailable(reason.clone()),
        error => Status::Failed(with_causes(error)),
    }
}

/// An error and its causes, each once.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(c) = cause {
        let c_text = c.to_string();
        if !text.contains(&c_text) {
            text = format!("{text}: {c_text}");
        }
        cause = c.source();
    }
    text
}

/// Maximum number of samples of each cell.
fn room(stage: &Stage, cells: u64) -> usize {
    let by_time = stage.run.duration_ns.map(|ns| (ns / cells.max(1) / LEAST_NS).clamp(*ROOM.start(), *ROOM.end()));
    let asked = match (stage.run.samples, by_time) {
        (Some(samples), Some(by_time)) => samples.min(by_time),
        (Some(samples), None) => samples,
        (None, by_time) => by_time.unwrap_or(*ROOM.start()),
    };
    // Once as moments and once as samples; the same amount is left to other uses.
    let each = (size_of::<Moment>() + size_of::<Sample>()) as u64;
    let fits = free_memory().map_or(u64::MAX, |free| free / 2 / each / cells.max(1));
    asked.min(fits).max(1) as usize
}

/// Memory that the stage's transfers and calls will need, bytes: a virtual machine may get it only when it is first touched.
fn memory_of(stage: &Stage) -> usize {
    let cells = stage.cells.iter().map(|cell| cell.bytes.saturating_mul(2));
    let loads = stage.loads.iter().map(|load| load.bytes.saturating_mul(2 * u64::from(load.count)));
    let all = cells.chain(loads).fold(0, u64::saturating_add);
    usize::try_from(all.clamp(*WARM_MEMORY.start(), *WARM_MEMORY.end())).unwrap_or(usize::MAX)
}

/// MemAvailable of /proc/meminfo, bytes.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

fn prepare<'r>(
    ready: &'r mut Ready<'_>,
    stage: &Stage,
    cell: &Cell,
    room: usize,
    seed: u64,
) -> Result<Live<'r>, Error> {
    let prepare = |(n, opened): (usize, &'r mut Box<dyn Opened + '_>)| opened.prepare(seed.wrapping_add(n as u64));
    // Touched, so that no page fault happens during a sample.
    let mut moments = vec![Moment { round: 1, ..Moment::default() }; room];
    moments.clear();
    let mut subjects: Vec<Box<dyn Subject + 'r>> =
        ready.opened.iter_mut().enumerate().map(prepare).collect::<Result<_, _>>()?;
    if cell.subject.rests {
        // Other subjects are prepared next, and some CUDA calls for that wait for every running kernel.
        subjects.iter_mut().try_for_each(|subject| subject.rest())?;
    }
    Ok(Live {
        subjects,
        arrival: cell.subject.arrival,
        observe: cell.subject.observe,
        timeout: Duration::from_nanos(stage.run.timeout_ns),
        check_every: stage.verify.every,
        bound: None,
        warms_up: stage.loads.is_empty() || cell.subject.rests,
        rests: cell.subject.rests,
        spent: Duration::ZERO,
        comparing: Duration::ZERO,
        moments,
        turns: Vec::with_capacity(stage.run.rounds as usize + 1),
        slowest: Slowest::new(WORST),
        slowest_counted: Slowest::new(WORST),
        tally: Tally::default(),
        compared: Compared::default(),
        between: Between::default(),
        metered: None,
        ended: None,
    })
}

/// A stage while it is measured.
struct Session<'s> {
    lab: &'s Lab<'s>,
    stage: &'s Stage,
    seats: &'s Seats,
    began: Began,
    looked_alone: bool,
    correlations: Vec<Correlation>,
}

/// When a part began: a tick of the lab's clock, the time stamp counter at that moment, and how far apart they can be.
#[derive(Clone, Copy)]
struct Began {
    tick: u64,
    counter: u64,
    error_ns: f64,
}

impl Began {
    fn now(clock: &Clock) -> Began {
        let (tick, counter, error_ns) = clock.beside_counter();
        Began { tick, counter, error_ns }
    }

    /// The data for finding samples in the recording of this process, after this thread has taken all of them.
    fn counter(&self, clock: &Clock) -> Counter {
        let end = Began::now(clock);
        // Times of samples are whole nanoseconds.
        let anchor = |at: &Began| Anchor {
            ns: clock.ns(at.tick.saturating_sub(self.tick)),
            tsc: at.counter,
            error_ns: at.error_ns + 0.5,
        };
        // SAFETY: takes nothing.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        Counter { pid: std::process::id() as i32, tid, began: anchor(self), ended: anchor(&end) }
    }
}

impl Session<'_> {
    fn measure(
        &mut self,
        live: &mut [(usize, Live<'_>)],
        random: &mut fastrand::Rng,
        part: &mut Part,
        running: &Running<'_>,
        noise: Duration,
    ) -> Vec<Loaded> {
        let run = &self.stage.run;
        let clock = self.lab.clock;
        let cpus = self.seats.resolve(&run.cpus).unwrap_or_default();
        if self.seats.is_alone() {
            // libcuda may have started threads. A load with its own CPUs stays there: it may share the CPU on purpose.
            match environment::placement::cpus::clear(&self.seats.others(), &running.placed()) {
                Ok((_, 0)) => {}
                Ok((_, stayed)) => {
                    part.notes.push(format!("{stayed} other threads of this process stayed on the measuring CPU"));
                }
                Err(e) => part.notes.push(format!("other threads of this process may be on the measuring CPU: {e}")),
            }
        }
        let mut seat = Some(Seat::take(run.class, &cpus));
        if let Some(seat) = &seat {
            (part.cpu, part.class) = (seat.cpu(), seat.class());
            part.notes.extend(seat.notes.iter().cloned());
        }
        if !std::mem::replace(&mut self.looked_alone, true) {
            running.look_alone();
        }
        part.noise.extend(self.noise(noise));
        let counters = Counters::begin(gpu_of(run.gpu), part.cpu);
        let mark = running.mark();
        self.began = Began::now(clock);
        self.rounds(live, random, part, running, &mut seat, &cpus);
        let loads = running.since(&mark);
        let counted = counters.end();
        part.notes.extend(counted.missing.iter().map(|(names, why)| format!("{names}: {why}")));
        if let Some(Passed { by: Some(By::Rates), why: Some(why), .. }) = &counted.link {
            part.notes.push(format!("pcie_to_gpu_bytes, pcie_from_gpu_bytes: {BY_RATES}: {why}"));
        }
        part.counted = counted.values;
        if run.meter_ns > 0 {
            self.meter(live, part.cpu, running);
        }
        part.noise.extend(self.noise(noise));
        part.throttled += seat.as_ref().map_or(0, Seat::throttled);
        loads
    }

    /// The endings of cells so far.
    fn endings(&self, live: &[(usize, Live<'_>)]) -> Vec<Option<Ending>> {
        let mut endings = vec![None; self.stage.cells.len()];
        for (n, one) in live {
            endings[*n] = match &one.ended {
                None | Some(Ended::Full) => None,
                Some(Ended::Wrong(_)) => Some(Ending::Wrong),
                Some(Ended::Above) => Some(Ending::Above),
                Some(Ended::Error(Error::Late { .. })) => Some(Ending::Lost),
                Some(Ended::Error(_)) => Some(Ending::Failed),
            };
        }
        endings
    }

    /// The measurements since the last call.
    fn finished(
        &self,
        mut part: Part,
        live: &mut [(usize, Live<'_>)],
        accounts: &[(String, Status)],
        reports: &mut kernel_log::Reports,
    ) -> Finished {
        let stage = self.stage;
        part.counter = (stage.run.record == Record::Commands).then(|| self.began.counter(self.lab.clock));
        let scale = Scale { clock: self.lab.clock, began: self.began.tick, correlations: &self.correlations };
        let mut samples: Vec<Vec<Sample>> = stage.cells.iter().map(|_| Vec::new()).collect();
        let mut cells: Vec<PartCell> =
            accounts.iter().map(|(about, status)| no_samples(about.clone(), status.clone())).collect();
        for (n, one) in live {
            let name = &stage.cells[*n].subject.name;
            samples[*n] = account(&scale, one, &mut cells[*n], name, &mut part.notes);
        }
        let now = kernel_log::reports();
        if let Ok(new) = kernel_log::new(reports, &now)
            && let Some(first) = new.first()
        {
            // The cause is unknown, so no figure of this part is reliable.
            let why = format!("the GPU's driver reported an error meanwhile: {first}");
            cells.iter_mut().for_each(|cell| cell.status = Status::Failed(why.clone()));
            part.notes.extend(new);
        }
        *reports = now;
        part.cells = cells;
        part.clock_error_ns = self.correlations.iter().map(|c| c.error_ns).max();
        Finished { part, samples }
    }

    fn noise(&self, duration: Duration) -> Option<Noise> {
        if duration.is_zero() {
            return None;
        }
        (self.lab.tell)("the machine's own noise");
        Some(noise(self.lab.clock, duration))
    }

    fn correlate(&mut self) {
        if self.lab.clock.source() == Source::Tsc
            && let Ok(space) = self.lab.machine.space()
        {
            self.correlations.push(space.device().clock().correlate());
        }
    }

    fn rounds(
        &mut self,
        live: &mut [(usize, Live<'_>)],
        random: &mut fastrand::Rng,
        part: &mut Part,
        running: &Running<'_>,
        seat: &mut Option<Seat>,
        cpus: &[usize],
    ) {
        let (stage, clock) = (self.stage, self.lab.clock);
        let run = &stage.run;
        let rounds = run.rounds.max(1);
        // Each cell has its share of the time, and each of its turns a share of that. A cell with slower calls has fewer of them.
        let own = run.duration_ns.map(|ns| Duration::from_nanos(ns / live.len().max(1) as u64));
        let time = own.map_or(UNBOUNDED, |own| own / rounds);
        self.watched(running, |session, watch| {
            let mut order: Vec<usize> = (0..live.len()).collect();
            let mut correlated = None::<Instant>;
            for round in 0..rounds {
                if live.iter().all(|(_, one)| one.ended.is_some()) {
                    break;
                }
                if correlated.is_none_or(|at| at.elapsed() >= CORRELATE) {
                    session.correlate();
                    correlated = Some(Instant::now());
                    (session.lab.tell)(&format!("round {} of {rounds}", round + 1));
                }
                random.shuffle(&mut order);
                for &n in &order {
                    let (cell, one) = &mut live[n];
                    if one.ended.is_some() || own.is_some_and(|own| one.spent >= own) {
                        continue;
                    }
                    let share = |round: u64| run.samples.map(|s| s * round / u64::from(rounds));
                    let samples = share(u64::from(round) + 1).zip(share(u64::from(round)));
                    let turn = Turn {
                        round,
                        counted: run.counters_every > 0 && (round + 1).is_multiple_of(run.counters_every),
                        samples: samples.map_or(u64::MAX, |(to, from)| to - from),
                        time,
                        watch,
                    };
                    let subject = &stage.cells[*cell].subject;
                    let elsewhere = subject.class.is_some() || subject.cpus.is_some();
                    if elsewhere {
                        let own = subject.cpus.as_ref().map(|c| session.seats.resolve(c).unwrap_or_default());
                        part.throttled += seat.take().map_or(0, |seat| seat.throttled());
                        *seat = Some(Seat::take(subject.class.unwrap_or(run.class), own.as_deref().unwrap_or(cpus)));
                    }
                    let rested = running.rested();
                    one.ended = one.turn(clock, &turn).err();
                    if let Some(turn) = one.turns.last_mut().filter(|turn| turn.round == round) {
                        turn.rested_ns = running.rested().saturating_sub(rested).as_nanos() as u64;
                    }
                    let is_above = matches!(one.ended, Some(Ended::Above));
                    if elsewhere {
                        part.throttled += seat.take().map_or(0, |seat| seat.throttled());
                        *seat = Some(Seat::take(run.class, cpus));
                    }
                    if is_above {
                        return session.correlate();
                    }
                }
            }
            session.correlate();
        });
    }

    /// Each cell continues alone while the counters of the GPU and the machine are read; its transfers are no samples.
    fn meter(&mut self, live: &mut [(usize, Live<'_>)], cpu: Option<usize>, running: &Running<'_>) {
        let stage = self.stage;
        let run = &stage.run;
        let (clock, time) = (self.lab.clock, Duration::from_nanos(run.meter_ns));
        let others = self.seats.others();
        (self.lab.tell)("metering each cell");
        self.watched(running, |_, watch| {
            for (_, one) in live.iter_mut().filter(|(_, one)| matches!(one.ended, None | Some(Ended::Full))) {
                let turn = Turn { round: run.rounds, counted: false, samples: u64::MAX, time, watch };
                let mark = running.mark();
                // There is no timing here, so a thread may read the link's counters in the meantime.
                let counters = Counters::follow(gpu_of(run.gpu), cpu, &others);
                let transfers = one.unsampled(clock, &turn);
                let counted = counters.end();
                let loads = running.since(&mark);
                match transfers {
                    Ok(transfers) => {
                        let seconds = counted.get("wall_ms").unwrap_or(0.0) / 1e3;
                        let link_count = counted.link.map(link_count);
                        one.metered = Some(Metered { seconds, transfers, loads, counted: counted.values, link_count });
                    }
                    Err(ended) => one.ended = Some(ended),
                }
            }
        });
    }

    /// Runs `work` while a second thread watches it: if one call takes as long as the whole stage should, the loads rest until it returns.
    fn watched(&mut self, running: &Running<'_>, work: impl FnOnce(&mut Self, &Watch)) {
        let clock = self.lab.clock;
        let (watch, over) = (Watch::default(), AtomicBool::new(false));
        let run = &self.stage.run;
        let stuck =
            run.patience_ns.or(run.duration_ns).map_or(STUCK, Duration::from_nanos).max(STUCK).as_nanos() as u64;
        let has_loads = !self.stage.loads.is_empty();
        std::thread::scope(|scope| {
            let _over = load::Set(&over);
            let look = || {
                while !over.load(Ordering::Relaxed) {
                    std::thread::park_timeout(LOOK);
                    let call = watch.call.load(Ordering::Relaxed);
                    let rest = call != 0 && clock.ns(clock.now().saturating_sub(call)) > stuck;
                    // The flag of a rest is set before the rest begins, and cleared after it ends.
                    if rest {
                        watch.resting.store(true, Ordering::Relaxed);
                    }
                    running.rest(rest);
                    watch.resting.store(rest, Ordering::Relaxed);
                }
            };
            let watching = has_loads.then(|| scope.spawn(look));
            work(self, &watch);
            over.store(true, Ordering::Relaxed);
            watching.iter().for_each(|thread| thread.thread().unpark());
        });
    }
}

fn link_count(passed: Passed) -> LinkCount {
    let by = passed.by.map(|by| match by {
        By::Counters => LinkBy::Counters,
        By::Rates => LinkBy::Rates,
    });
    LinkCount { by, looks: passed.looks, why: passed.why }
}

/// The GPU of an experiment, for readings of the machine.
pub fn gpu_of(gpu: Gpu) -> environment::Gpu<'static> {
    match gpu {
        Gpu::Soft => environment::Gpu::Soft,
        Gpu::None => environment::Gpu::None,
        Gpu::Real => environment::Gpu::Real { pci: None },
    }
}

/// The account of a cell, and its samples; afterwards the cell has room for new ones.
fn account(
    scale: &Scale<'_>,
    one: &mut Live<'_>,
    cell: &mut PartCell,
    name: &str,
    notes: &mut Vec<String>,
) -> Vec<Sample> {
    cell.metered = one.metered.take();
    cell.turns = one.turns.clone();
    one.turns.clear();
    match &one.ended {
        None => {}
        Some(Ended::Error(error)) => cell.status = status_of(error),
        Some(Ended::Wrong(wrong)) => {
            cell.status = Status::Failed(format!("sample {}: {wrong}", one.moments.len().saturating_sub(1)));
        }
        Some(Ended::Above) => {}
        Some(Ended::Full) => notes.push(format!("{name}: the room for {} samples was used up", one.moments.len())),
    }
    let between = std::mem::take(&mut one.between);
    cell.stuck_between =
        (between.stuck > 0).then(|| StuckBetween { times: between.stuck, longest_ns: scale.clock.ns(between.longest) });
    let slowest =
        [&mut one.slowest, &mut one.slowest_counted].map(|s| std::mem::replace(s, Slowest::new(WORST)).into_sorted());
    let explained = |slow: Slow<(usize, Beside)>| scale.explained(slow.note.0, &one.moments[slow.note.0], &slow.note.1);
    cell.worst = slowest.into_iter().flatten().map(explained).collect();
    (cell.samples, cell.compared) = (one.moments.len() as u64, std::mem::take(&mut one.compared));
    let tally = std::mem::take(&mut one.tally);
    cell.counted = (tally.calls > 0).then_some(tally);
    let samples = one.moments.iter().map(|moment| scale.sample(moment)).collect();
    one.moments.clear();
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell as Count;
    use std::rc::Rc;
    use workload::{Waiting, Wrong};

    /// Counts the calls of `rest`.
    struct Spins {
        rests: Rc<Count<u32>>,
    }

    impl Opened for Spins {
        fn about(&self) -> String {
            String::new()
        }

        fn verify(&mut self, _: u64, _: Duration) -> Result<Option<Wrong>, Error> {
            Ok(None)
        }

        fn prepare(&mut self, _: u64) -> Result<Box<dyn Subject + '_>, Error> {
            Ok(Box::new(Spins { rests: self.rests.clone() }))
        }
    }

    impl Subject for Spins {
        fn waiting(&self) -> Waiting {
            Waiting::Polled
        }

        fn fire(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn poll(&mut self) -> Result<bool, Error> {
            Ok(true)
        }

        fn wait(&mut self, _: Duration) -> Result<(), Error> {
            Ok(())
        }

        fn rest(&mut self) -> Result<(), Error> {
            self.rests.set(self.rests.get() + 1);
            Ok(())
        }
    }

    #[test]
    fn spinning_kernels_release_the_gpu_before_others_are_prepared() {
        for rests in [true, false] {
            let text = format!("[run]\nsamples = 1\n[[subject]]\ncall = \"launch\"\nrests = {rests}\n");
            let stages = experiment::read(&text, "x.toml", &[]).unwrap().stages().unwrap();
            let counted = Rc::<Count<u32>>::default();
            let opened: Vec<Box<dyn Opened>> = vec![Box::new(Spins { rests: counted.clone() })];
            let mut ready = Ready { opened, about: String::new(), status: Status::Measured };
            prepare(&mut ready, &stages[0], &stages[0].cells[0], 1, 0).unwrap();
            assert_eq!(counted.get(), u32::from(rests));
        }
    }
}
