//! `doorbell show`: prints the contents of a recording.

pub mod views;

use crate::failure::{self, Failure};
use crate::progress::Progress;
use decode::Recording;
use decode::present::Present;
use decode::walk::{Filter, Pattern};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terminal::foreign::plain;

/// Show what a recording holds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell show                                             the newest recording of this folder
  doorbell show app.doorbell                                the summary
  doorbell show app.doorbell --submissions --limit 20       the first 20 submissions, decoded
  doorbell show app.doorbell --submissions --channel 3      those of one channel
  doorbell show app.doorbell --copies --sort bytes --top 5  the five largest copies
  doorbell show app.doorbell --launches --between 0.5,2     what was launched in that time
  doorbell show app.doorbell --kernels --kernel gemm        how often each kernel ran whose name has gemm in it
  doorbell show app.doorbell --copies --call cudaMemcpyAsync
  doorbell show app.doorbell --graphs                       CUDA graphs: nodes, order, what each launch waits for
  doorbell show app.doorbell --graphs --dot --limit 1 | dot -Tsvg > graph.svg
  doorbell show job.doorbell --process 4243                 what one process did
  doorbell show app.doorbell --copies --json | jq '.[].bytes'
  doorbell show app.doorbell --locks                        who held a lock while another waited, and why so long
  doorbell show app.doorbell --calls --top 3                CUDA's calls, which locks they take and share
  doorbell show app.doorbell --driver-calls                 what the driver was asked for, as `strace -c` counts it
  doorbell show app.doorbell --nvtx                         ranges of NVTX: how long, and what was done in them
  doorbell show app.doorbell --nvtx --each --range request --limit 20
  doorbell show job.rank3.doorbell --rank                   what a rank did from one collective to the next
  doorbell show app.doorbell --launches --range '^forward$' what was launched in such ranges
  doorbell show app.doorbell --calls --json | jq '.totals.launch.mean_ns'
  doorbell show app.doorbell --summary --json | jq .lost

A recording that was cut or damaged is shown up to the damage; the exit status is then 2.")]
pub struct Args {
    /// The recording; without one, the newest of this folder
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    view: View,
    /// JSON, numbers as numbers.
    #[arg(long)]
    json: bool,
    /// With --graphs: text for Graphviz, a digraph for each graph
    #[arg(long, requires = "graphs", conflicts_with = "json")]
    dot: bool,
    /// Only this process, for example 4242 (the summary lists them)
    #[arg(long, value_name = "PID")]
    process: Option<i32>,
    /// At most this many submissions, copies, launches, graphs, objects, or rows and waits of locks and calls, for example 20
    #[arg(long, visible_alias = "top", value_name = "N")]
    limit: Option<u64>,
    /// Only this channel (its number in the first column of --channels, for example 3 or 3.1)
    #[arg(long, value_name = "CHANNEL", value_parser = channel)]
    channel: Option<(u32, Option<u32>)>,
    /// Only channels of this engine, for example COPY2
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Only what this thread submitted, for example 4243
    #[arg(long, value_name = "TID")]
    thread: Option<i32>,
    /// Only what was submitted between two times, since the recording began, for example 0.5,2 (seconds) or 500ms,2s
    #[arg(long, value_name = "FROM_TO", value_parser = between, allow_hyphen_values = true)]
    between: Option<(f64, f64)>,
    /// Only what was submitted in calls of this function, for example cudaMemcpyAsync
    #[arg(long, value_name = "NAME")]
    call: Option<String>,
    /// Only what was submitted in calls with this stream, for example 0x55d0c0ffee00; 0 is the default stream
    #[arg(long, value_name = "HANDLE", value_parser = handle)]
    stream: Option<u64>,
    /// Only launches of kernels whose name this regular expression matches somewhere, for example 'gemm|attention'; with --rank, the
    /// kernels that all ranks run together, 'nccl' if not given
    #[arg(long, value_name = "REGEX", value_parser = Pattern::new)]
    kernel: Option<Pattern>,
    /// Only what was submitted in ranges of NVTX whose name (`text`, or `domain:text`) this regular expression matches somewhere,
    /// for example '^forward$'; with --nvtx, those ranges
    #[arg(long, value_name = "REGEX", value_parser = Pattern::new)]
    range: Option<Pattern>,
    /// With --range: what any thread submitted while such a range was open (autograd runs the backward pass in a thread of its own)
    #[arg(long, requires = "range")]
    all_threads: bool,
    /// With --nvtx: each range, the longest first, and where its time was spent (with record --gpu-times)
    #[arg(long, requires = "nvtx")]
    each: bool,
    /// The largest first, for example bytes; without it, in the order of time
    #[arg(long, value_name = "KEY")]
    sort: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct View {
    /// Totals of everything (the default).
    #[arg(long)]
    summary: bool,
    /// Every submission with its decoded commands.
    #[arg(long)]
    submissions: bool,
    /// Every copy and inline write.
    #[arg(long)]
    copies: bool,
    /// Every kernel launch.
    #[arg(long)]
    launches: bool,
    /// CUDA graphs: what each is made of, as far as it is understood.
    #[arg(long)]
    graphs: bool,
    /// Which kernels ran, and how often, by themselves and in graphs (with names where `record --calls` was asked for).
    #[arg(long)]
    kernels: bool,
    /// Each time that a kernel ran: when it started, and how long it took (recorded with `record --gpu-times`).
    #[arg(long)]
    gpu_times: bool,
    /// The channels.
    #[arg(long)]
    channels: bool,
    /// The driver's objects as they stood at the end.
    #[arg(long)]
    objects: bool,
    /// Locks: waits and their holders, orders, priority inversions (recorded with `record --locks`).
    #[arg(long)]
    locks: bool,
    /// Driver calls, counted: what was asked for, how often, how long it took, and within which call of CUDA's.
    #[arg(long)]
    driver_calls: bool,
    /// CUDA's calls: latency, what they waited for, the locks of each in their order (recorded with `record --locks`).
    #[arg(long)]
    calls: bool,
    /// CUDA's calls by the line of Python that makes them (recorded with `record --python`).
    #[arg(long)]
    python: bool,
    /// Ranges of NVTX: how often, how long, and what was done in them (recorded with `record --calls` or `record --nvtx`).
    #[arg(long)]
    nvtx: bool,
    /// What this rank did between collectives, ranges or calls that all ranks of its job have: what doorbell.fleet compares.
    #[arg(long)]
    rank: bool,
}

fn channel(text: &str) -> Result<(u32, Option<u32>), String> {
    let number = |t: &str| t.parse().map_err(|_| format!("{t:?} is no number"));
    match text.split_once('.') {
        Some((slot, generation)) => Ok((number(slot)?, Some(number(generation)?))),
        None => Ok((number(text)?, None)),
    }
}

fn handle(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    number.map_err(|_| format!("{text:?} is no handle, such as 0x55d0c0ffee00"))
}

fn between(text: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("{text:?} is no pair of times, such as 0.5,2 (seconds) or 500ms,2s");
    let (from, to) = text.split_once(',').ok_or_else(wrong)?;
    let with_unit = |t: &str| {
        let (sign, t) = t.trim().strip_prefix('-').map_or((1.0, t), |rest| (-1.0, rest));
        experiment::time_ns(t).ok().map(|ns| sign * ns as f64 / 1e9)
    };
    let number = |t: &str| {
        let plain = t.trim().parse::<f64>().ok().filter(|t| t.is_finite());
        plain.or_else(|| with_unit(t)).ok_or_else(wrong)
    };
    match (number(from)?, number(to)?) {
        (from, to) if from > to => Err(format!("{from} is later than {to}")),
        pair => Ok(pair),
    }
}

/// The filters that apply to a view.
struct Applies {
    view: &'static str,
    asked: fn(&View) -> bool,
    /// `--channel` and `--engine`.
    channel: bool,
    /// `--thread`, `--between`, `--call` and `--stream`.
    submission: bool,
    /// `--kernel`
    kernel: bool,
    /// `--range`
    range: bool,
    limit: bool,
    sorts: &'static [&'static str],
}

impl Applies {
    /// A view with `--limit` as its only filter.
    const fn limit_alone(view: &'static str, asked: fn(&View) -> bool) -> Applies {
        Applies { view, asked, channel: false, submission: false, kernel: false, range: false, limit: true, sorts: &[] }
    }
}

/// One for each option of [`View`]. A new view has a field there, a row here and an arm in [`views::show`]. The last one is the default.
///
/// Most views have one name in all places: the rows in `schema/src`, the code that fills them in `decode/src` or `lock-analysis/src`, and the
/// printer in `terminal/src`. The others:
///
/// | view | rows | filled by | printer |
/// |---|---|---|---|
/// | `--submissions` | `submissions` | `decode::lists` | `submissions` |
/// | `--copies`, `--launches` | `operations` | `decode::lists` | `copies`, `launches` |
/// | `--gpu-times` | `kernel_runs`, `kernel_times` | `decode::lists`, `decode::kernel_times` | `gpu_times`, `kernel_times` |
/// | `--channels` | `channel` | `decode::walk` | `channels` |
/// | `--objects` | `objects` | `decode::rows` | `objects` |
/// | `--locks` | `locks` | `lock_analysis::locks` | `locks` |
/// | `--calls` | `cuda_calls` | `lock_analysis`, `calls.rs` | `calls` |
/// | `--nvtx`, `--each` | `ranges` | `lock_analysis::ranges`, `lock_analysis::each_range` | `ranges` |
/// | `--rank` | `rank` | `slow_calls::ranks` | `rank` |
/// | `--driver-calls` | `driver_calls` | `decode::driver_call_counts` | `driver_calls` |
const VIEWS: [Applies; 15] = [
    Applies {
        channel: true,
        submission: true,
        range: true,
        ..Applies::limit_alone("--submissions", |v| v.submissions)
    },
    Applies {
        channel: true,
        submission: true,
        range: true,
        sorts: terminal::copies::SORTS,
        ..Applies::limit_alone("--copies", |v| v.copies)
    },
    Applies {
        channel: true,
        submission: true,
        kernel: true,
        range: true,
        sorts: terminal::launches::SORTS,
        ..Applies::limit_alone("--launches", |v| v.launches)
    },
    Applies {
        channel: true,
        submission: true,
        kernel: true,
        range: true,
        ..Applies::limit_alone("--kernels", |v| v.kernels)
    },
    Applies {
        channel: true,
        submission: true,
        kernel: true,
        range: true,
        sorts: terminal::gpu_times::SORTS,
        ..Applies::limit_alone("--gpu-times", |v| v.gpu_times)
    },
    Applies { channel: true, sorts: terminal::channels::SORTS, ..Applies::limit_alone("--channels", |v| v.channels) },
    Applies::limit_alone("--objects", |v| v.objects),
    Applies::limit_alone("--locks", |v| v.locks),
    Applies::limit_alone("--calls", |v| v.calls),
    Applies { range: true, ..Applies::limit_alone("--nvtx", |v| v.nvtx) },
    Applies::limit_alone("--driver-calls", |v| v.driver_calls),
    Applies::limit_alone("--python", |v| v.python),
    Applies { kernel: true, ..Applies::limit_alone("--rank", |v| v.rank) },
    Applies { sorts: terminal::graphs::SORTS, ..Applies::limit_alone("--graphs", |v| v.graphs) },
    Applies { limit: false, ..Applies::limit_alone("--summary", |_| true) },
];

impl View {
    fn applies(&self) -> &'static Applies {
        VIEWS.iter().find(|view| (view.asked)(self)).unwrap_or(&VIEWS[VIEWS.len() - 1])
    }
}

impl Args {
    /// A filter that the view cannot apply is an error; it must not be ignored.
    fn check(&self) -> Result<(), Failure> {
        let at = self.view.applies();
        type Filter = (&'static str, bool, fn(&Applies) -> bool);
        let filters: [Filter; 11] = [
            ("--channel", self.channel.is_some(), |a| a.channel),
            ("--engine", self.engine.is_some(), |a| a.channel),
            ("--thread", self.thread.is_some(), |a| a.submission),
            ("--between", self.between.is_some(), |a| a.submission),
            ("--call", self.call.is_some(), |a| a.submission),
            ("--stream", self.stream.is_some(), |a| a.submission),
            ("--kernel", self.kernel.is_some(), |a| a.kernel),
            ("--range", self.range.is_some(), |a| a.range),
            ("--all-threads", self.all_threads, |a| a.submission),
            (failure::typed("--limit", "--top"), self.limit.is_some(), |a| a.limit),
            ("--sort", self.sort.is_some(), |a| !a.sorts.is_empty()),
        ];
        for (name, asked, applies) in filters {
            if asked && !applies(at) {
                let others: Vec<&str> = VIEWS.iter().filter(|v| applies(v)).map(|v| v.view).collect();
                let what = format!("{} cannot apply {name}", at.view);
                return Err(Failure::new(what, format!("{name} works with {}", others.join(", "))));
            }
        }
        match &self.sort {
            Some(key) if !at.sorts.contains(&key.as_str()) => {
                let what = format!("{} cannot be sorted by {key:?}", at.view);
                Err(Failure::new(what, format!("sort by {}", at.sorts.join(", "))))
            }
            _ => Ok(()),
        }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.check()?;
        let file = given_or_newest(self.file.as_deref())?;
        let recording = open(&file, self.process)?;
        let filter = Filter {
            channel: self.channel,
            engine: self.engine.clone(),
            thread: self.thread,
            between: self.between,
            call: self.call.clone(),
            stream: self.stream,
            kernel: self.kernel.clone(),
            range: self.range.clone().filter(|_| !self.all_threads),
            during: self
                .range
                .as_ref()
                .filter(|_| self.all_threads)
                .map(|of| decode::during(&recording, of))
                .transpose()?,
            limit: self.limit,
        };
        if !self.view.nvtx
            && filter != (Filter { limit: self.limit, kernel: self.kernel.clone(), ..Filter::default() })
            && let Some(present) = decode::present::unmatched(&recording, &filter)?
        {
            damage_of(&recording)?;
            return Err(nothing_matches(&file, &filter, &present).into());
        }
        views::show(&self, &recording, filter)?;
        damage_of(&recording)
    }
}

/// An error that names the parts of a filter that the recording lacks, and what the recording has.
fn nothing_matches(file: &Path, filter: &Filter, present: &Present) -> Failure {
    let mut asked = Vec::new();
    let mut has = Vec::new();
    let listed = |all: Vec<String>| match all.len() {
        0 => "none".to_owned(),
        n if n > LISTED => format!("{} and {} more", all[..LISTED].join(", "), n - LISTED),
        _ => all.join(", "),
    };
    if let Some((slot, generation)) = filter.channel {
        asked.push(format!("--channel {slot}{}", generation.map_or(String::new(), |g| format!(".{g}"))));
        let named = |(label, engine): &(String, String)| format!("{label} ({engine})").replace(" ()", "");
        has.push(format!("channels: {}", listed(present.channels.iter().map(named).collect())));
    }
    if let Some(engine) = &filter.engine {
        asked.push(format!("--engine {engine}"));
        let engines: BTreeSet<&str> =
            present.channels.iter().map(|(_, e)| e.as_str()).filter(|e| !e.is_empty()).collect();
        has.push(format!("engines: {}", listed(engines.into_iter().map(str::to_owned).collect())));
    }
    if let Some(thread) = filter.thread {
        asked.push(format!("--thread {thread}"));
        has.push(format!("threads that submitted: {}", listed(present.threads.iter().map(i32::to_string).collect())));
    }
    if filter.call.is_some() || filter.stream.is_some() {
        asked.extend(filter.call.iter().map(|name| format!("--call {name}")));
        asked.extend(filter.stream.map(|stream| format!("--stream {stream:#x}")));
        has.push(if present.calls.is_empty() {
            "no submission whose call is known: `record --calls` records them".into()
        } else {
            let streams = present.streams.iter().map(|stream| format!("{stream:#x}")).collect();
            let calls = present.calls.iter().map(|name| (*name).to_owned()).collect();
            format!("submissions in {}; streams: {}", listed(calls), listed(streams))
        });
    }
    if filter.during.is_some() {
        asked.push("--range with --all-threads".into());
        has.push(format!("submissions in ranges: {}", listed(present.ranges.iter().cloned().collect())));
    }
    if let Some(range) = &filter.range {
        asked.push(format!("--range {range}"));
        has.push(if present.ranges.is_empty() {
            "no submission in a range of NVTX: `record --nvtx` or `record --calls` records them".into()
        } else {
            format!("submissions in ranges: {}", listed(present.ranges.iter().cloned().collect()))
        });
    }
    if let Some((from, to)) = filter.between {
        asked.push(format!("--between {from},{to}"));
        let span = present.span.map_or("none".into(), |(first, last)| format!("from {first:.3} to {last:.3} s"));
        has.push(format!("submissions: {span}"));
    }
    let what = format!("{}: nothing matches {}", file.display(), asked.join(" "));
    Failure::new(what, format!("the recording has {}", has.join("; ")))
}

/// What is missing if it was not asked for.
pub const PYTHON: &str = "Python frames";

/// Maximum number of channels or threads listed in a hint.
const LISTED: usize = 20;

/// The given file, or the newest recording in this folder, which is then named on standard error.
pub fn given_or_newest(file: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(file) = file {
        return Ok(file.into());
    }
    let written = |path: &Path| path.metadata().ok().filter(|m| m.is_file()).and_then(|m| m.modified().ok());
    let all = std::fs::read_dir(".")?.filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())));
    let recordings = all.filter(|path| path.extension().is_some_and(|e| e == "doorbell"));
    let newest = recordings.filter_map(|path| Some((written(&path)?, path))).max();
    let Some((when, path)) = newest else {
        let hint = "give one, or record one: `doorbell record PROGRAM`";
        return Err(Failure::new("no recording (*.doorbell) in this folder", hint).into());
    };
    let ago = when.elapsed().map_or("now".into(), |ago| format!("{} s ago", ago.as_secs()));
    say!("doorbell: {} is the newest recording here, written {ago}", plain(&path.display().to_string()));
    Ok(path)
}

/// Opens a recording, or one process's part of it. Shows the progress on a terminal if that takes long.
pub fn open(path: &Path, process: Option<i32>) -> anyhow::Result<Recording> {
    let mut bar = None;
    let began = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let mut told = 0;
    let mut progress = |read: u64, of: u64| {
        if !terminal || began.elapsed() < PATIENCE || of == 0 {
            return;
        }
        let percent = read.saturating_mul(100) / of;
        if bar.is_none() || percent > told {
            told = percent;
            bar.get_or_insert_with(Progress::new).show(&format!("reading {}: {percent} %", path.display()));
        }
    };
    Ok(match process {
        Some(pid) => Recording::open_process(path, pid, &mut progress)?,
        None => Recording::open_watched(path, &mut progress)?,
    })
}

/// A faster command shows no progress.
const PATIENCE: Duration = Duration::from_millis(500);

/// Status 0, or the damage as an error after everything before it was shown.
pub fn damage_of(r: &Recording) -> anyhow::Result<ExitCode> {
    match r.damage() {
        None => Ok(ExitCode::SUCCESS),
        Some(d) => {
            let hint = failure::tape_hint(d).unwrap_or_else(|| "what is shown ends there".into());
            Err(Failure::new(d.to_string(), hint).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view without a row would be narrowed down as the summary is.
    #[test]
    fn each_view_has_a_row() {
        let options = <View as clap::Args>::augment_args(clap::Command::new("show"));
        let mut views: Vec<String> =
            options.get_arguments().filter_map(|a| Some(format!("--{}", a.get_long()?))).collect();
        let mut rows: Vec<&str> = VIEWS.iter().map(|row| row.view).collect();
        views.sort_unstable();
        rows.sort_unstable();
        assert_eq!(views, rows);
    }
}
