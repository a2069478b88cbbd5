//! From the parts and samples of a folder to a [`Run`].

use super::cells::{Gathered, figure, per_round};
use super::{
    CellOfRun, Coordinate, Counted, Crossed, Figures, Lasted, Link, Measured, MeteredOfRun, Missing, PartOfRun,
    PerRound, Places, RatioOfRun, Run, SCHEMA, StageOfRun, Used, best, budget, capped, lasted, metric, reached, repaid,
    scaling, uneven,
};
use crate::commands::CommandsOfRun;
use crate::part::{Compared, EndedBy, Explained, LinkBy, LinkCount, Loaded, Part, Status, Tally};
use crate::{Error, Folder, folder};
use experiment::{Cell, Compare, Experiment, Metric, Observe, Stage, What};
use statistics::{CONFIDENCE, Ratio, Rounds};
use std::collections::HashMap;

/// Data that the folder does not contain.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub commit: Option<String>,
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    pub ended: String,
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
    /// Why a part (stage, repeat) is missing, if known.
    pub failed: HashMap<(u32, u32), String>,
    /// Why any other part is missing.
    pub interrupted: Option<Interrupted>,
}

/// The run was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// Stage and repeat of the part in progress, if there was one.
    pub at: Option<(u32, u32)>,
}

pub(super) fn run(folder: &Folder, context: Context) -> Result<Run, Error> {
    let experiment = folder.experiment();
    let stages = folder.stages();
    let parts = folder.parts()?;
    for part in &parts {
        let known = stages
            .get(part.stage as usize)
            .is_some_and(|s| s.cells.len() == part.cells.len() && part.repeat < s.run.repeats);
        if !known {
            let what = format!("its part {:04}-{:02} does not belong to the experiment", part.stage, part.repeat);
            return Err(Error::damaged(folder.path(), what));
        }
    }
    let missing = missing(stages, &parts, &context);
    // A resumed run began with its first part.
    let began = parts.iter().map(|p| &p.began).filter(|b| !b.is_empty());
    let started = began.chain([&context.started]).min().cloned().unwrap_or_default();
    let mut warnings = context.warnings.clone();
    warnings.extend(parts.iter().flat_map(of_recording));
    let mut cells = Vec::new();
    let compare = experiment.compare.as_ref().map(|c| Comparison::of(experiment, c, stages));
    let held_against = compare.is_some() || best::is_asked(experiment, stages);
    let mut values: HashMap<(u32, u32), Rounds> = HashMap::new();
    // A ratio of misses uses the due samples.
    let due_matters = experiment.compare.as_ref().is_some_and(|compare| compare.metric == Metric::Misses);
    let mut due: HashMap<(u32, u32), Rounds> = HashMap::new();
    let cut_short: Vec<_> = stages.iter().map(|s| lasted::cut_short(s.number, &missing, &context)).collect();
    // If commands are recorded, the division of the time is computed, too.
    let studied = stages.iter().any(|stage| !stage.run.record.is_no());
    for stage in stages {
        let mut of_stage = Vec::new();
        for part in parts.iter().filter(|p| p.stage == stage.number) {
            of_stage.push((part, folder.open_samples(part.stage, part.repeat)?));
        }
        let spoilt = reached::spoilt(stage, &of_stage.iter().map(|(part, _)| *part).collect::<Vec<_>>());
        for number in 0..stage.cells.len() {
            let lost = (0..stage.run.repeats).find_map(|repeat| context.failed.get(&(stage.number, repeat)));
            let without = match lost {
                Some(why) => Status::Failed(why.clone()),
                None => Status::Unavailable(not_measured(stage, &context).into()),
            };
            let how = How {
                without,
                spoilt: spoilt.as_ref(),
                cut_short: cut_short[stage.number as usize],
                studied,
                due_matters,
            };
            let (cell, [rounds, was_due]) = one(stage, number, &of_stage, how, &mut warnings)?;
            let at = (cell.stage, cell.cell);
            values.extend(rounds.filter(|_| held_against).map(|rounds| (at, rounds)));
            due.extend(was_due.map(|was_due| (at, was_due)));
            cells.push(cell);
        }
    }
    warnings.extend(stuck_between(stages, &parts));
    warnings.extend(uneven::warnings(experiment, stages, &cells));
    let compared = if due_matters { &due } else { &values };
    if let Some(compare) = &compare {
        let ratios: Vec<_> = {
            let places: HashMap<Place<'_>, &CellOfRun> = cells.iter().map(|c| (place(c), c)).collect();
            cells.iter().map(|c| compare.ratio(c, &places, compared)).collect()
        };
        cells.iter_mut().zip(ratios).for_each(|(cell, ratio)| cell.ratio = ratio);
    }
    budget::judge(&mut cells);
    let stages: Vec<_> =
        stages.iter().zip(cut_short).map(|(s, cut_short)| stage_of_run(s, &parts, cut_short)).collect();
    let functional = Run::is_functional(experiment);
    let measured = Measured { stages: &stages, cells: &cells, values: &values, functional };
    let asserts = experiment.asserts.iter().map(|a| measured.judge(a)).collect();
    let largest = measured.largests(experiment);
    // In a functional run no route is the fastest.
    let best = if functional { Vec::new() } else { measured.best() };
    Ok(Run {
        schema: SCHEMA.into(),
        doorbell: folder::VERSION.into(),
        commit: context.commit,
        command: context.command,
        started,
        ended: context.ended,
        complete: missing.is_empty(),
        missing,
        functional,
        experiment: experiment.clone(),
        environment: context.environment,
        warnings,
        stages,
        repaid: repaid::all(experiment, &cells),
        largest,
        scaling: if studied { scaling::all(&cells) } else { Vec::new() },
        cells,
        best,
        asserts,
        parts: parts.into_iter().map(part_of_run).collect(),
    })
}

/// Warnings about a part's recording.
fn of_recording(part: &Part) -> Vec<String> {
    let place = format!("the recording of stage {}, repeat {}", part.stage, part.repeat);
    let Some(recorded) = &part.recorded else { return Vec::new() };
    let not_joined = recorded.not_joined.iter().map(|why| format!("{place}: not joined with its samples: {why}"));
    let incomplete = recorded.incomplete_because.iter().map(|why| format!("{place}: counts may be too low: {why}"));
    not_joined.chain(incomplete).collect()
}

const STOPPED_IN_IT: &str = "the run was stopped while it was measured";
const STOPPED_BEFORE_IT: &str = "the run was stopped before it";
const NOT_MEASURED: &str = "not measured";

/// Restores the context of a summarized run from its missing parts.
pub(super) fn context_of(missing: &[Missing]) -> Context {
    let mut context = Context::default();
    for m in missing {
        let at = (m.stage, m.repeat);
        match m.why.as_str() {
            STOPPED_IN_IT => context.interrupted = Some(Interrupted { at: Some(at) }),
            STOPPED_BEFORE_IT => drop(context.interrupted.get_or_insert_default()),
            NOT_MEASURED => {}
            why => drop(context.failed.insert(at, why.to_owned())),
        }
    }
    context
}

fn missing(stages: &[Stage], parts: &[Part], context: &Context) -> Vec<Missing> {
    let all = stages.iter().flat_map(|s| (0..s.run.repeats).map(|r| (s.number, r)));
    let there = |at: &(u32, u32)| parts.iter().any(|p| (p.stage, p.repeat) == *at);
    let otherwise = |at: (u32, u32)| match &context.interrupted {
        Some(stopped) if stopped.at == Some(at) => STOPPED_IN_IT.into(),
        Some(_) => STOPPED_BEFORE_IT.into(),
        None => NOT_MEASURED.into(),
    };
    let why = |at: (u32, u32)| context.failed.get(&at).cloned().unwrap_or_else(|| otherwise(at));
    all.filter(|at| !there(at)).map(|at| Missing { stage: at.0, repeat: at.1, why: why(at) }).collect()
}

/// Why a stage without a dead process was not measured.
fn not_measured(stage: &Stage, context: &Context) -> &'static str {
    match context.interrupted.as_ref().map(|stopped| stopped.at) {
        Some(Some((at, _))) if at == stage.number => "the run was stopped while its stage was measured",
        Some(_) => "the run was stopped before its stage",
        None => "its stage was not measured",
    }
}

fn point(stage: &Stage) -> Vec<Coordinate> {
    stage.point.iter().map(|(name, value)| Coordinate { name: name.clone(), value: value.clone() }).collect()
}

/// One warning for all cells whose untimed work was stuck because of loads, for any number of cells.
fn stuck_between(stages: &[Stage], parts: &[Part]) -> Option<String> {
    const NAMED: usize = 3;
    let stuck: Vec<_> = parts
        .iter()
        .flat_map(|p| p.cells.iter().zip(&stages[p.stage as usize].cells).map(move |(c, cell)| (p.stage, c, cell)))
        .filter_map(|(stage, c, cell)| Some((stage, &cell.subject.name, c.stuck_between?)))
        .collect();
    let times: u64 = stuck.iter().map(|(.., s)| s.times).sum();
    let longest = stuck.iter().map(|(.., s)| s.longest_ns).max()?;
    let mut of: Vec<String> = stuck.iter().map(|(stage, name, _)| format!("{name} in stage {stage}")).collect();
    of.dedup();
    let more = of.len().saturating_sub(NAMED);
    of.truncate(NAMED);
    if more > 0 {
        of.push(format!("{more} more"));
    }
    Some(format!(
        "what no sample times (comparing, or giving back what a call made) went on only when the loads rested, {times} \
         times, the longest {} ms: {}",
        longest.div_ceil(1_000_000),
        of.join(", ")
    ))
}

/// Knowledge about a cell apart from its parts.
struct How<'r> {
    /// Its status if no part exists.
    without: Status,
    /// Why its stage has no figures.
    spoilt: Option<&'r Status>,
    /// Why its stage lacks a repeat.
    cut_short: Option<EndedBy>,
    /// Whether to compute how its time is divided.
    studied: bool,
    /// Whether the due samples are needed.
    due_matters: bool,
}

/// A cell without its ratio; its observed samples, and the due ones.
fn one(
    stage: &Stage,
    number: usize,
    parts: &[(&Part, crate::Samples)],
    how: How<'_>,
    warnings: &mut Vec<String>,
) -> Result<(CellOfRun, [Option<Rounds>; 2]), Error> {
    let cell = &stage.cells[number];
    let subject = &cell.subject;
    let mut gathered = Gathered::of(stage, number, parts, how.studied)?;
    let (samples, capped, rounds) = (gathered.samples, gathered.capped, gathered.rounds());
    let (misses, arrivals) = (gathered.misses(subject.deadline_ns), gathered.arrivals());
    let mut due = how.due_matters.then(|| gathered.due());
    let budget = gathered.budget();
    let (mut figures, mut rate, mut kept) = (Figures::default(), None, None);
    for what in [Observe::Done, Observe::Submit, Observe::Engine] {
        let values = gathered.take(what);
        let found = figure(&values);
        // Copies back to back are timed by the GPU's clock if there is one.
        if found.is_some() && (what == Observe::Done || what == Observe::Engine && subject.back_to_back > 1) {
            rate = gathered.rate(cell, &values);
        }
        match what {
            Observe::Done => figures.done = found,
            Observe::Submit => figures.submit = found,
            Observe::Engine => figures.engine = found,
        }
        if what == subject.observe {
            kept = Some(values);
        }
    }
    let explained: HashMap<(u32, u64), &Explained> =
        parts.iter().flat_map(|(p, _)| p.cells[number].worst.iter().map(|e| ((p.repeat, e.index), e))).collect();
    let of_parts = || parts.iter().map(|(p, _)| (p.repeat, &p.cells[number]));
    let checked = of_parts()
        .map(|(_, c)| c.compared)
        .reduce(|a, b| Compared { whole: a.whole + b.whole, guards: a.guards && b.guards });
    let status = status(of_parts().map(|(repeat, c)| (repeat, &c.status)), how.without, |what| {
        warnings.push(format!("{} at {} bytes in stage {}: {what}", subject.name, cell.bytes, stage.number));
    });
    let spoilt = how.spoilt.filter(|_| status == Status::Measured);
    let [worst, worst_counted] = gathered.worst(|repeat, index| explained.get(&(repeat, index)).copied());
    let mut cell = CellOfRun {
        stage: stage.number,
        cell: number as u32,
        point: point(stage),
        subject: subject.name.clone(),
        what: subject.what.clone(),
        about: of_parts().map(|(_, c)| c.about.clone()).find(|a| !a.is_empty()).unwrap_or_default(),
        bytes: cell.bytes,
        back_to_back: subject.back_to_back,
        arrival: subject.arrival,
        policy: stage.run.policy.clone(),
        status,
        samples,
        capped,
        rounds,
        lasted: Lasted::of(stage, of_parts(), how.cut_short),
        checked: checked.unwrap_or_default(),
        observe: subject.observe,
        per_round: kept
            .as_ref()
            .map(|r| per_round(r, stage.run.rounds, &lasted::rested_by_round(of_parts())))
            .unwrap_or_default(),
        figures,
        misses,
        arrivals,
        rate,
        ratio: None,
        places: kept.as_ref().and_then(|rounds| Places::of(cell, rounds, stage.run.rounds)),
        worst,
        tally: of_parts().filter_map(|(_, c)| c.counted).reduce(added),
        metered: metered(stage, number, parts),
        worst_counted,
        budget,
        commands: CommandsOfRun::of(of_parts().filter_map(|(_, c)| c.commands.as_ref())),
    };
    if let Some(why) = spoilt {
        withdraw(&mut cell, why.clone());
        (kept, due) = (None, None);
    }
    Ok((cell, [kept, due].map(|rounds| rounds.filter(|r| !r.is_empty()))))
}

/// Removes every figure of a cell that was not measured under its intended loads. The number of samples stays; they are in their files.
fn withdraw(cell: &mut CellOfRun, why: Status) {
    cell.status = why;
    cell.figures = Figures::default();
    cell.per_round = PerRound::default();
    (cell.misses, cell.arrivals, cell.rate, cell.places) = (None, None, None, None);
    (cell.tally, cell.metered) = (None, None);
    cell.worst.clear();
    cell.worst_counted.clear();
    cell.budget = None;
}

fn added(a: Tally, b: Tally) -> Tally {
    Tally {
        calls: a.calls + b.calls,
        wall_ns: a.wall_ns + b.wall_ns,
        on_cpu_ns: a.on_cpu_ns + b.on_cpu_ns,
        run_queue_ns: a.run_queue_ns + b.run_queue_ns,
        asleep_ns: a.asleep_ns + b.asleep_ns,
        slept: a.slept + b.slept,
        preempted: a.preempted + b.preempted,
        unknown: a.unknown + b.unknown,
    }
}

/// One failure makes the cell failed. A cell that some processes could open and others not is measured, with a warning. The same if the process
/// died in some repeats, but not in others: the part is missing. `without` is its status if no part exists.
fn status<'a>(of_parts: impl Iterator<Item = (u32, &'a Status)>, without: Status, warn: impl FnOnce(String)) -> Status {
    let (mut measured, mut unavailable, mut failed) = (false, None, None);
    for (repeat, status) in of_parts {
        match status {
            Status::Measured => measured = true,
            Status::Unavailable(why) => unavailable = unavailable.or(Some((repeat, why))),
            // A process never reports this for its own cells.
            Status::Failed(why) | Status::Invalid(why) => failed = failed.or(Some(why)),
        }
    }
    match (failed, unavailable) {
        (Some(why), _) => Status::Failed(why.clone()),
        (None, None) if measured => Status::Measured,
        (None, None) => without,
        (None, Some((repeat, why))) => {
            if measured {
                warn(format!("not available in repeat {repeat}, but in others: {why}"));
                return Status::Measured;
            }
            Status::Unavailable(why.clone())
        }
    }
}

fn stage_of_run(stage: &Stage, parts: &[Part], cut_short: Option<EndedBy>) -> StageOfRun {
    let of_stage = || parts.iter().filter(|p| p.stage == stage.number);
    let mut loads: Vec<Loaded> = Vec::new();
    for load in of_stage().flat_map(|p| &p.loads) {
        let spec = stage.loads.iter().find(|spec| spec.name == load.name);
        let held = spec.filter(|_| load.unavailable.is_none());
        let missed = held.and_then(|spec| reached::missed(spec, load, stage.run.gpu)).map(|(what, _)| what);
        let load = Loaded { missed, ..load.clone() };
        match loads.iter_mut().find(|l| l.name == load.name) {
            Some(sum) => add_load(sum, &load),
            None => loads.push(load),
        }
    }
    let windows: Vec<Window<'_>> = of_stage().map(|part| Window::of_stage(stage, part)).collect();
    StageOfRun {
        number: stage.number,
        point: point(stage),
        policy: stage.run.policy.clone(),
        // (The sum of no numbers would be -0.0.)
        seconds: of_stage().fold(0.0, |all, p| all + p.seconds),
        lasted: lasted::of_stage(stage, parts, cut_short),
        noise_floor_ns: of_stage().flat_map(|p| &p.noise).filter(|n| n.readings > 0).map(|n| n.max_ns).max(),
        away: of_stage().filter_map(away).reduce(f64::max),
        loads,
        used: used(&windows),
    }
}

/// The part of the time in which the measuring CPU was taken away.
fn away(part: &Part) -> Option<f64> {
    let noise = part.noise.iter().filter(|n| n.readings > 0).map(|n| n.lost_ppm / 1e6);
    let counted = |name: &str| part.counted.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    let steal = counted("steal_ms").zip(counted("wall_ms").filter(|ms| *ms > 0.0)).map(|(steal, wall)| steal / wall);
    noise.chain(steal).reduce(f64::max)
}

/// The time between two readings of the counters.
struct Window<'p> {
    counted: &'p [(String, f64)],
    /// The moved subjects, and their bytes.
    moved: Vec<(&'p What, f64)>,
}

impl<'p> Window<'p> {
    fn new(
        stage: &'p Stage,
        cells: impl Iterator<Item = (&'p Cell, u64)>,
        loads: &[Loaded],
        counted: &'p [(String, f64)],
    ) -> Window<'p> {
        let bytes =
            |cell: &Cell, transfers: u64| cell.bytes as f64 * f64::from(cell.subject.back_to_back) * transfers as f64;
        let loads = stage.loads.iter().zip(loads).map(|(load, done)| (&load.what, done.bytes as f64));
        let moved = cells.map(|(cell, transfers)| (&cell.subject.what, bytes(cell, transfers))).chain(loads).collect();
        Window { counted, moved }
    }

    fn of_stage(stage: &'p Stage, part: &'p Part) -> Window<'p> {
        let cells = stage.cells.iter().zip(part.cells.iter().map(|done| done.samples));
        Window::new(stage, cells, &part.loads, &part.counted)
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.counted.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
    }
}

/// For all windows together.
fn used(windows: &[Window<'_>]) -> Used {
    // If one window lacks the value, the sum would be incomplete.
    let sum = |name: &str| windows.iter().map(|w| w.value(name)).sum::<Option<f64>>().filter(|_| !windows.is_empty());
    Used {
        link: link(windows),
        energy_j: sum("energy_mj").map(|mj| mj / 1e3),
        temperature_c: windows.iter().filter_map(|w| w.value("temperature_c")).reduce(f64::max),
        cpu_seconds: sum("cpu_user_ms").zip(sum("cpu_system_ms")).map(|(user, system)| (user + system) / 1e3),
    }
}

/// NVML's energy is updated in steps of about 100 ms: windows of 250 ms gave 110, 118 or 158 W for the same work (H200).
const LEAST_ENERGY_SECONDS: f64 = 1.0;

/// The `n`-th cell of its stage.
fn metered(stage: &Stage, n: usize, parts: &[(&Part, crate::Samples)]) -> Option<MeteredOfRun> {
    let cell = &stage.cells[n];
    let of_cell = || parts.iter().filter_map(|(p, _)| p.cells[n].metered.as_ref());
    let windows: Vec<Window<'_>> =
        of_cell().map(|m| Window::new(stage, std::iter::once((cell, m.transfers)), &m.loads, &m.counted)).collect();
    let mut used = used(&windows);
    if of_cell().any(|m| m.seconds < LEAST_ENERGY_SECONDS) {
        used.energy_j = None;
    }
    (!windows.is_empty()).then(|| MeteredOfRun {
        seconds: of_cell().map(|m| m.seconds).sum(),
        transfers: of_cell().map(|m| m.transfers).sum(),
        used,
        link_count: of_cell().filter_map(|m| m.link_count.clone()).reduce(link_count),
    })
}

/// Merges those of two repeats.
fn link_count(a: LinkCount, b: LinkCount) -> LinkCount {
    let by = a.by.zip(b.by).map(|(a, b)| if a == b { a } else { LinkBy::Rates });
    let why = match (a.why, b.why) {
        (Some(a), Some(b)) if !a.contains(&b) => Some(format!("{a}; {b}")),
        (a, b) => a.or(b),
    };
    LinkCount { by, looks: a.looks.saturating_add(b.looks), why }
}

/// The direction of the bytes of a route, or of I/Os: to the GPU or from it. `None` if it is neither.
pub(super) fn is_to_gpu(what: &What) -> Option<bool> {
    let text = match what {
        What::Route(text) => text,
        What::Call(text) => return text.starts_with("ios").then(|| !text.contains("to-host")),
    };
    // The link that these cross, if any, depends on what serves as the device.
    if text.contains("device") {
        return None;
    }
    Some(text.trim_start().starts_with("host"))
}

fn link(windows: &[Window<'_>]) -> Option<Link> {
    let mut link = Link { to_gpu: Crossed::default(), from_gpu: Crossed::default() };
    for window in windows {
        link.to_gpu.counted_bytes += window.value("pcie_to_gpu_bytes")?;
        link.from_gpu.counted_bytes += window.value("pcie_from_gpu_bytes")?;
        for &(what, bytes) in &window.moved {
            match is_to_gpu(what) {
                Some(true) => link.to_gpu.payload_bytes += bytes,
                Some(false) => link.from_gpu.payload_bytes += bytes,
                None => {}
            }
        }
    }
    (!windows.is_empty()).then_some(link)
}

/// Adds the work of a load to that of its other repeats.
pub(crate) fn add_load(sum: &mut Loaded, load: &Loaded) {
    let seconds = sum.seconds + load.seconds;
    let mean = |a: f64, b: f64| if seconds > 0.0 { (a * sum.seconds + b * load.seconds) / seconds } else { 0.0 };
    (sum.on_cpu, sum.waiting) = (mean(sum.on_cpu, load.on_cpu), mean(sum.waiting, load.waiting));
    sum.alone = sum.alone.zip(load.alone).map(|(a, b)| mean(a, b));
    sum.seconds = seconds;
    sum.rested += load.rested;
    sum.bytes += load.bytes;
    sum.transfers += load.transfers;
    sum.checked += load.checked;
    sum.longest_ns = sum.longest_ns.max(load.longest_ns);
    sum.unavailable = sum.unavailable.take().or_else(|| load.unavailable.clone());
    sum.missed = sum.missed.take().or_else(|| load.missed.clone());
    for (why, n) in &load.failed {
        match sum.failed.iter_mut().find(|(w, _)| w == why) {
            Some((_, of)) => *of += n,
            None => sum.failed.push((why.clone(), *n)),
        }
    }
}

fn part_of_run(p: Part) -> PartOfRun {
    PartOfRun {
        stage: p.stage,
        repeat: p.repeat,
        began: p.began,
        seconds: p.seconds,
        cpu: p.cpu,
        class: p.class,
        throttled: p.throttled,
        noise: p.noise,
        clock_error_ns: p.clock_error_ns,
        counted: p.counted.into_iter().map(|(name, value)| Counted { name, value }).collect(),
        notes: p.notes,
        recorded: p.recorded,
    }
}

/// Stage, subject and size: no other cell of the run has them.
type Place<'a> = (u32, &'a str, u64);

fn place(c: &CellOfRun) -> Place<'_> {
    (c.stage, &c.subject, c.bytes)
}

/// The pairs of a comparison.
struct Comparison<'a> {
    compare: &'a Compare,
    experiment: &'a Experiment,
    /// For each stage, the stage that differs only in its policy and has the baseline's.
    partner: Vec<Option<u32>>,
}

impl<'a> Comparison<'a> {
    fn of(experiment: &'a Experiment, compare: &'a Compare, stages: &[Stage]) -> Comparison<'a> {
        let is_baseline = |s: &Stage| {
            s.run.policy == compare.baseline
                || s.point.iter().any(|(name, value)| name == "policy" && *value == compare.baseline)
        };
        let partner = |s: &Stage| {
            let others = |s: &Stage| s.point.iter().filter(|(name, _)| name != "policy").cloned().collect::<Vec<_>>();
            stages.iter().find(|b| is_baseline(b) && others(b) == others(s)).map(|b| b.number)
        };
        Comparison { compare, experiment, partner: stages.iter().map(partner).collect() }
    }

    /// The cell that this one is compared with, and its difference: a subject's name, or a policy.
    fn baseline<'c>(
        &self,
        cell: &CellOfRun,
        cells: &HashMap<Place<'_>, &'c CellOfRun>,
    ) -> Option<(&'c CellOfRun, &'a str)> {
        let name = self.experiment.baseline_of(&cell.subject)?;
        let (stage, subject) = if self.experiment.subjects.iter().any(|s| s.name == name) {
            (cell.stage, name)
        } else {
            (self.partner.get(cell.stage as usize).copied().flatten()?, cell.subject.as_str())
        };
        let found = cells.get(&(stage, subject, cell.bytes)).copied()?;
        (place(found) != place(cell)).then_some((found, name))
    }

    fn ratio(
        &self,
        cell: &CellOfRun,
        cells: &HashMap<Place<'_>, &CellOfRun>,
        values: &HashMap<(u32, u32), Rounds>,
    ) -> Option<RatioOfRun> {
        let (baseline, name) = self.baseline(cell, cells)?;
        let of = |c: &CellOfRun| values.get(&(c.stage, c.cell));
        let (these, those) = (of(cell)?, of(baseline)?);
        let ratio = |these, those, figure| Ratio::of(these, those, figure, CONFIDENCE);
        let ratio = match self.compare.metric {
            Metric::Rate => {
                // Both move equally many bytes: the ratio of rates is the inverse ratio of mean times.
                let many = f64::from(cell.back_to_back.max(1)) / f64::from(baseline.back_to_back.max(1));
                let mut ratio = ratio(those, these, statistics::Figure::Mean)?;
                ratio.ratio *= many;
                if let Some(i) = &mut ratio.interval {
                    i.low *= many;
                    i.high *= many;
                }
                ratio
            }
            Metric::Misses => {
                let deadline = |c: &CellOfRun| c.misses.as_ref().map(|m| m.deadline_ns);
                let ns = deadline(cell).filter(|ns| deadline(baseline) == Some(*ns))?;
                ratio(these, those, statistics::Figure::Misses(ns))?
            }
            metric => ratio(these, those, metric::figure(metric)?)?,
        };
        let (metric, bounded) = (self.compare.metric, capped::of_ratio(cell, baseline, self.compare.metric));
        Some(RatioOfRun { baseline: name.to_owned(), metric, bounded, ratio })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_device_are_no_payload_of_the_gpus_link() {
        for (text, way) in [
            ("host->ce2->gpu0", Some(true)),
            ("gpu0->cuda->host", Some(false)),
            ("device->dma->gpu0", None),
            ("host->dma->device", None),
            ("gpu0[offset=3]->staged->device[offset=64]", None),
        ] {
            assert_eq!(is_to_gpu(&What::Route(text.into())), way, "{text}");
        }
        assert_eq!(is_to_gpu(&What::Call("pin(host)".into())), None);
    }
}
