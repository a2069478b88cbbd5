//! `doorbell calibrate`: measures where the best route changes, writes the profile that route `auto` follows, and explains it.

use crate::bench::machine;
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, signals, units};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use measure::calibration::search::Doing;
use measure::calibration::{Beside, Calibration, Done, Ended, Left, Sweep};
use output::WholeFile;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use submit::route_choice::{Ask, Key, Metric, Plan, Profile, Refused};
use terminal::number;
use terminal::table::{self, Style, to_stdout};
use workload::spec::Host;

/// Measure which route is the best for which size on this machine, for route `auto`
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell calibrate", "two minutes; route `auto` follows the profile from then on"),
        ("doorbell calibrate --dry-run", "what would be measured, and what is left out"),
        ("doorbell calibrate -o p.toml --budget 40s --for p99.9", ""),
        ("doorbell calibrate --beside 'host->cuda->gpu0' --threads 16", "an idle machine, then one with a crowd"),
        ("doorbell calibrate --explain=4KiB,1MiB", "the reason for each size"),
        ("doorbell calibrate --gpu soft -o p.toml", "whether it works, never how fast"),
    ])
    .text("The profile is a TOML file, tied to the GPU, its driver, this machine and this version of doorbell; it is refused \
           when one of them changes. Without -o it is written to $DOORBELL_PROFILE, else to doorbell/profile.toml in \
           $XDG_CONFIG_HOME or ~/.config (profile.soft.toml for the software GPU), in place of an older one. After Ctrl-C \
           nothing is written.")
    .statuses(&[
        (0, "done"),
        (2, "an error, or a profile that is stale"),
        (77, "nothing can be measured on this machine"),
        (130, "stopped by Ctrl-C"),
    ])
)]
pub struct Args {
    /// Write the profile to this file, for example p.toml
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["explain", "dry_run"])]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    force: bool,
    /// What is to be small, the median, the time that one in a thousand exceeds, or the longest: samples are spent for this metric
    #[arg(long = "for", value_name = "METRIC", default_value_t, value_parser = metrics())]
    metric: Metric,
    /// Spend half of the time beside this load: a route or a call as `doorbell bench --routes` lists them, for example launch
    #[arg(long, value_name = "WHAT")]
    beside: Option<String>,
    /// Threads of the load
    #[arg(long, value_name = "N", requires = "beside", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Bytes of the load's transfers
    #[arg(long, value_name = "SIZE", requires = "beside", default_value = "4KiB", value_parser = units::size)]
    bytes: u64,
    /// Kinds of host memory: allocated pinned, as malloc gives it, or that and pinned afterwards
    #[arg(long = "host-memory", value_name = "KIND", value_delimiter = ',', default_values = MEMORIES.map(|(name, _)| name), value_parser = memories())]
    memory: Vec<Host>,
    /// Lengths of batches, 1 for a transfer by itself; others are measured with pinned memory
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Calibration::BATCHES, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: Vec<u32>,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value = "real")]
    gpu: Gpu,
    /// The whole may take so long, for example 40s [default: 2m; 5s on the software GPU]
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    budget: Option<Duration>,
    /// Measure nothing: say for these sizes which route a profile takes, and why, for example --explain=4KiB,1MiB
    #[arg(long, value_name = "SIZES", num_args = 0..=1, require_equals = true, default_missing_value = "4B..64MiB", conflicts_with_all = ["dry_run", "beside", "budget"])]
    explain: Option<String>,
    /// The profile that --explain reads, also one of another machine (for example p.toml) [default: this machine's own]
    #[arg(long, value_name = "FILE", requires = "explain")]
    profile: Option<PathBuf>,
    /// Say what would be measured, and exit
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON, without a table
    #[arg(long)]
    json: bool,
}

fn metrics() -> impl TypedValueParser<Value = Metric> {
    let named = |name: String| Metric::ALL.into_iter().find(|metric| metric.name() == name);
    PossibleValuesParser::new(Metric::ALL.map(Metric::name)).map(move |name| named(name).unwrap_or_default())
}

/// Kinds of host memory that a program has.
const MEMORIES: [(&str, Host); 3] =
    [("pinned", Host::Pinned), ("pageable", Host::Pageable), ("registered", Host::Registered)];

fn memories() -> impl TypedValueParser<Value = Host> {
    let named = |name: String| MEMORIES.into_iter().find(|(known, _)| *known == name);
    PossibleValuesParser::new(MEMORIES.map(|(name, _)| name))
        .map(move |n| named(n).map_or(Host::Pinned, |(_, host)| host))
}

/// Exit status after Ctrl-C.
const STOPPED: u8 = 130;
/// Approximate size of a profile.
const ROOM: u64 = 1 << 20;
const NO_PLACE: &str = "-o FILE writes it there; $HOME or $XDG_CONFIG_HOME says where settings lie";

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(sizes) = &self.explain {
            return self.explain(sizes);
        }
        if let Some(what) = &self.beside {
            check_load(what)?;
        }
        let asked = self.calibration();
        if self.dry_run {
            let (machine, lacks) = machine::or_none(machine::open(self.gpu));
            return plan(&asked, &machine, lacks, self.json);
        }
        // The software GPU starts this command again, so no file may be claimed before that.
        let machine = machine::open(self.gpu)?;
        let heard = signals::count_interrupts();
        let stop = || heard.load(Ordering::Relaxed) > 0;
        let mut file = self.file()?;
        let progress = Progress::new();
        let ended = measure::calibration::run(&machine, &asked, &stop, &mut |p| progress.show(&line(p)));
        progress.clear();
        match ended {
            Ended::Stopped => {
                say!("doorbell: stopped, nothing was written");
                Ok(ExitCode::from(STOPPED))
            }
            Ended::Nothing(left) => {
                let why = left.first().map_or_else(String::new, |l| format!(": {}: {}", l.route, l.why));
                let what = format!("no route can be measured{why}");
                Err(Failure::impossible(what, "`doorbell bench --routes` says what each route lacks").into())
            }
            Ended::Done(done) => {
                let Done { profile, samples, left, notes } = *done;
                let text = profile.to_toml();
                let written: std::io::Result<()> = file.write(|out| out.write_all(text.as_bytes()));
                written.map_err(|cause| output::Error::Write { path: file.path().into(), cause })?;
                if !asked.soft {
                    notes.iter().for_each(|note| say!("note: {note}"));
                }
                self.show(&profile, samples, &left, file.path())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn calibration(&self) -> Calibration {
        let soft = self.gpu == Gpu::Soft;
        let default = if soft { Calibration::SOFT_BUDGET } else { Calibration::BUDGET };
        let of = |what: &String| Beside { what: what.clone(), threads: self.threads, bytes: self.bytes };
        Calibration {
            soft,
            objective: self.metric,
            budget: self.budget.unwrap_or(default),
            beside: self.beside.as_ref().map(of),
            memories: self.memory.clone(),
            // The software GPU's speed does not depend on it.
            changing_places: !soft,
            batches: self.batch.clone(),
            sizes: Calibration::sizes(soft),
        }
    }

    /// Opens the profile's file, so that it is known to be writable before the measurement.
    fn file(&self) -> anyhow::Result<WholeFile> {
        if let Some(path) = &self.out {
            result::is_file("--out", path, "without --out the profile goes where route `auto` looks for it")?;
            return Ok(WholeFile::open(path, ROOM, self.force)?);
        }
        let path = own_path(self.gpu).ok_or_else(|| Failure::new("no place for the profile is known", NO_PLACE))?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let failed = |e| Failure::new(format!("{}: {e}", folder.display()), NO_PLACE);
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        // The old profile is this command's own, and the new one replaces it.
        Ok(WholeFile::open(&path, ROOM, true)?)
    }

    fn show(&self, profile: &Profile, samples: u64, left: &[Left], path: &Path) -> anyhow::Result<()> {
        if self.json {
            let text = serde_json::to_string_pretty(profile)?;
            return Ok(to_stdout(|out| writeln!(out, "{text}"))?);
        }
        let style = Style::of_stdout();
        to_stdout(|out| {
            let mut t = style.table(&["direction", "memory", "places", "batch", "load", "sizes", "route", "by"]);
            for plan in profile.plans.iter().filter(|plan| plan.key.metric == self.metric) {
                for range in &plan.ranges {
                    let to = range.to.map_or_else(|| "on".into(), |to| format!("to {}", number::bytes(to)));
                    let sizes = format!("{} {to}", number::bytes(range.from));
                    let Key { direction, memory, places, batch, load, .. } = &plan.key;
                    let (batch, by) = (batch.to_string(), range.by.name());
                    t.add_row([direction.name(), memory, places.name(), &batch, load, &sizes, &range.route, by]);
                }
            }
            table::write(out, &t, 0)?;
            if profile.functional {
                writeln!(
                    out,
                    "The software GPU has no speed: this profile shows that calibration works, and no more."
                )?;
            }
            for plan in profile.plans.iter().filter(|plan| !plan.undecided.is_empty()) {
                writeln!(out, "{}", undecided(plan))?;
            }
            let routes = number::of(left.len() as u64, "route");
            writeln!(
                out,
                "{} samples; {routes} left out (`doorbell calibrate --dry-run` says why)",
                number::count(samples)
            )?;
            writeln!(out, "written to {}; `doorbell calibrate --explain` gives the reasons", path.display())?;
            Ok(())
        })
    }

    fn explain(&self, sizes: &str) -> anyhow::Result<ExitCode> {
        let hint = "sizes are written `4KiB,1MiB`, ranges `4B..64MiB`";
        let sizes = settings::sizes::parse(sizes).map_err(|e| Failure::new(format!("--explain: {e}"), hint))?;
        let profile = self.profile_to_explain()?;
        let plans: Vec<&Plan> = profile.plans.iter().filter(|plan| plan.key.metric == self.metric).collect();
        let reasons = |plan: &Plan| -> Vec<(u64, submit::route_choice::Choice)> {
            let Key { direction, memory, places, batch, metric, load } = &plan.key;
            let (direction, places, batch, metric) = (*direction, *places, *batch, *metric);
            let ask = |bytes| Ask { direction, memory, places, bytes, batch, metric, load };
            sizes.iter().filter_map(|bytes| Some((*bytes, profile.choose(&ask(*bytes)).ok()?))).collect()
        };
        if self.json {
            let one = |key: &Key, (bytes, choice): (u64, submit::route_choice::Choice)| serde_json::json!({ "for": key, "bytes": bytes, "route": choice.route, "why": choice.why });
            let all: Vec<_> =
                plans.iter().flat_map(|plan| reasons(plan).into_iter().map(|reason| one(&plan.key, reason))).collect();
            let text = serde_json::to_string_pretty(&all)?;
            to_stdout(|out| writeln!(out, "{text}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let style = Style::of_stdout();
        to_stdout(|out| {
            plans.iter().try_for_each(|plan| {
                writeln!(out, "{}", style.bold(&plan.key.to_string()))?;
                reasons(plan).into_iter().try_for_each(|(_, choice)| writeln!(out, "  {}", choice.why))
            })
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// This machine's own profile is refused if it is stale. A profile that is named may belong to any machine.
    fn profile_to_explain(&self) -> anyhow::Result<Profile> {
        let facts = submit::route_choice::Facts::of_this_machine(self.gpu == Gpu::Soft, None);
        let load = |path: &Path| Profile::load_for(path, &facts);
        let Some(path) = &self.profile else {
            let path = own_path(self.gpu).ok_or_else(|| Failure::new("no place for the profile is known", NO_PLACE))?;
            return load(&path).map_err(|e| Failure::new(e.to_string(), Refused::HINT).into());
        };
        match load(path) {
            Ok(profile) => Ok(profile),
            Err(Refused::Load(e)) => Err(Failure::new(e.to_string(), Refused::HINT).into()),
            Err(refused) => {
                say!("warning: route `auto` would not follow it here: {refused}");
                Ok(Profile::load(path)?)
            }
        }
    }
}

/// Where route `auto` looks for the profile.
pub fn own_path(gpu: Gpu) -> Option<PathBuf> {
    submit::route_choice::default_path(gpu == Gpu::Soft, |name| std::env::var_os(name))
}

fn check_load(what: &str) -> Result<(), Failure> {
    const HINT: &str = "`doorbell bench --routes` lists routes and calls";
    let wrong = |e: &dyn std::fmt::Display| Failure::new(format!("--beside: {e}"), HINT);
    if what.contains("->") {
        return workload::routes::parse(what).map(drop).map_err(|e| wrong(&e));
    }
    workload::check(&workload::What::Call(what.into())).map_err(|e| wrong(&e))
}

fn line(p: &measure::calibration::Progress<'_>) -> String {
    let doing = match p.doing {
        Doing::Kinds => "all routes",
        Doing::Ladder => "sizes",
        Doing::Borders => "borders",
        Doing::Close => "close ones",
        Doing::Between => "between",
    };
    let (from, to) = (number::bytes(p.smallest), number::bytes(p.largest));
    let (samples, left) = (number::count(p.samples), p.left.as_secs());
    format!("{}: {doing}, {from} to {to}; {samples} samples; at most {left} s left", p.load)
}

/// Which sizes of a metric had too few samples.
fn undecided(plan: &Plan) -> String {
    let sizes: Vec<String> = plan.undecided.iter().map(|u| number::bytes(u.bytes)).collect();
    let needs = plan.undecided.first().map_or(0, |u| u.needs);
    let needs = number::count(needs);
    format!("{}: too few samples (fewer than {needs}) at {}: decided by p50 there", plan.key, sizes.join(", "))
}

/// `lacks`: why the machine has no GPU; the plan is printed all the same.
fn plan(
    asked: &Calibration,
    machine: &workload::Machine,
    lacks: Option<String>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let (sweeps, left) = asked.sweeps(machine);
    if json {
        let sweep = |s: &Sweep| serde_json::json!({ "direction": s.direction.name(), "memory": s.memory, "places": s.places.name(), "batch": s.batch, "routes": s.candidates });
        let all = serde_json::json!({
            "seconds": asked.budget.as_secs_f64(),
            "sizes": asked.sizes,
            "sweeps": sweeps.iter().map(sweep).collect::<Vec<_>>(),
            "left_out": left.iter().map(|l| serde_json::json!({ "route": l.route, "why": l.why })).collect::<Vec<_>>(),
        });
        to_stdout(|out| writeln!(out, "{all:#}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = Style::of_stdout();
    to_stdout(|out| {
        let sizes = asked.sizes.iter().map(|bytes| number::bytes(*bytes)).collect::<Vec<_>>().join(", ");
        let budget = number::seconds(asked.budget.as_secs_f64());
        writeln!(
            out,
            "At most {budget}, for {}. First these sizes, then between those whose best routes differ:",
            asked.objective
        )?;
        let lines = Style { width: style.width.or(Some(100)), ..style };
        lines.wrapped(&sizes, 0).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
        let mut t = style.table(&["direction", "memory", "places", "batch", "routes"]);
        for sweep in &sweeps {
            let (batch, routes) = (sweep.batch.to_string(), sweep.candidates.join("\n"));
            t.add_row([sweep.direction.name(), &sweep.memory, sweep.places.name(), &batch, &routes]);
        }
        match (lacks, sweeps.is_empty()) {
            (Some(why), true) => writeln!(out, "Not here: {why}")?,
            (None, true) => writeln!(out, "No route can be measured on this machine.")?,
            (_, false) => table::write(out, &t, 0)?,
        }
        let mut t = style.table(&["left out", "why"]);
        for Left { route, why } in &left {
            t.add_row([route, why]);
        }
        writeln!(out)?;
        table::write(out, &t, 0)
    })?;
    Ok(ExitCode::SUCCESS)
}
