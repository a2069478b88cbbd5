//! `doorbell top`: the activity of a recorded program, each second.

use crate::attach::failure;
use crate::failure::Failure;
use crate::help::Page;
use crate::{signals, units};
use lock_analysis::ops::Class;
use recorder::control::client::{Client, ClientError};
use recorder::control::messages::{Request, Status};
use recorder::counters::{Counts, Worst};
use schema::document::Document;
use schema::top::{Top, TopWorst};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveHold, state};
use terminal::foreign::{Plain, plain};
use terminal::number;

/// Show each second what a program that is being recorded does
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell top", "the program that is recorded, or the list of them"),
        ("doorbell top 1234", "one of several"),
        ("doorbell top 1234 --json --for 1m", "a line of JSON each second, for a minute"),
    ])
    .text("It counts what passes the recorder: doorbells, kernel launches, copies, and, where they are recorded, CUDA calls and waits \
           for locks with the longest of the last second. A call that has not returned for a second, or a lock that is waited for so \
           long, has a line. In a pause nothing passes. How busy the GPU was is not shown: a recording \
           made with --gpu-times has that (`doorbell show --kernels`).")
    .text("It ends with the program, or at Ctrl-C. Only the program's user and root can look.")
)]
pub struct Args {
    /// Process to look at, for example 1234 [default: the only one that is recorded; of several a list]
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// End after this time, for example 1m
    #[arg(long = "duration", visible_alias = "for", value_name = units::TIME, value_parser = units::long_time)]
    pub duration: Option<Duration>,
    /// Print a line of JSON each second
    #[arg(long)]
    pub json: bool,
}

/// The time for all recorders to answer. (Other users' may be slow on purpose.)
const WITHIN: Duration = Duration::from_secs(20);
const EVERY: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
const WIDTH: usize = 79;
/// A wait that has lasted this long is shown.
const LONG: Duration = Duration::from_secs(1);

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = match self.pid {
            Some(pid) => Client::of(pid).map_err(failure)?,
            None => match only_one(self.json, "top")? {
                Some(client) => client,
                None => return Ok(ExitCode::SUCCESS),
            },
        };
        let interrupted = signals::count_interrupts();
        let (begun, mut lines) = (Instant::now(), 0);
        let mut before = match Second::ask(&mut client) {
            Err(ClientError::Gone { .. }) => return Ok(ExitCode::SUCCESS),
            asked => asked.map_err(failure)?,
        };
        let mut next = begun + EVERY;
        loop {
            while Instant::now() < next && interrupted.load(Ordering::Relaxed) == 0 && !client.is_gone() {
                std::thread::sleep(LOOK);
            }
            let is_over = self.duration.is_some_and(|d| next > begun + d);
            if interrupted.load(Ordering::Relaxed) > 0 || is_over {
                return Ok(ExitCode::SUCCESS);
            }
            let now = match Second::ask(&mut client) {
                // The program has ended.
                Err(ClientError::Gone { .. }) => return Ok(ExitCode::SUCCESS),
                asked => asked.map_err(failure)?,
            };
            let top = now.since(&before);
            let written = if self.json { json(&top) } else { text(&top, &now.status, &mut lines) };
            match written {
                // The reader has closed the pipe.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                written => written?,
            }
            before = now;
            // (A busy recorder is given at least half an interval before the next request.)
            next = (next + EVERY).max(Instant::now() + EVERY / 2);
        }
    }
}

/// The only recorded program. `None`: there are several, and their list was printed. `command`: the one that takes a PID.
pub fn only_one(json: bool, command: &str) -> anyhow::Result<Option<Client>> {
    let begun = Instant::now();
    let mut all: Vec<(Client, Status)> = Client::all()
        .into_iter()
        .take_while(|_| begun.elapsed() < WITHIN)
        .filter_map(|mut client| {
            let status = client.status().ok()?;
            Some((client, status))
        })
        .collect();
    match all.len() {
        0 => {
            Err(Failure::new("no program of this user is being recorded", "`doorbell record ./app` records one").into())
        }
        1 => Ok(all.pop().map(|(client, _)| client)),
        n if json => {
            let pids: Vec<String> = all.iter().map(|(_, s)| s.pid.to_string()).collect();
            Err(Failure::new(format!("{n} programs are being recorded: {}", pids.join(", ")), "give the PID of one")
                .into())
        }
        _ => {
            let mut out = io::stdout().lock();
            writeln!(out, "{:>8}  {:<9}  {:>9}  PROGRAM", "PID", "STATE", "FOR")?;
            for (_, s) in &all {
                let line =
                    format!("{:>8}  {:<9}  {:>9}  {}", s.pid, s.state, number::seconds(s.seconds.floor()), s.program);
                writeln!(out, "{}", fitted(&line))?;
            }
            writeln!(out, "\n`doorbell {command} PID` shows one")?;
            Ok(None)
        }
    }
}

/// A recorder's answer at one time.
struct Second {
    status: Status,
    counts: Counts,
    /// What the threads do. (An older recorder has none.)
    live: Option<Live>,
    at: Instant,
}

impl Second {
    fn ask(client: &mut Client) -> Result<Second, ClientError> {
        let counts = client.ask(&Request::Counters)?.counters.unwrap_or_default();
        let at = Instant::now();
        let live = client.ask(&Request::Now).ok().and_then(|answer| answer.now);
        Ok(Second { status: client.status()?, counts, live, at })
    }

    fn since(&self, before: &Second) -> Top {
        let (s, c, b) = (&self.status, &self.counts, &before.counts);
        // On the recorder's clock.
        let seconds = (c.seconds - b.seconds).max(1e-3);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let used = |s: &Status| s.recorder_use.user_seconds + s.recorder_use.system_seconds;
        let took = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let has = |part: &str| s.parts.iter().any(|p| p == part);
        Top {
            pid: s.pid,
            program: s.program.clone(),
            state: match s.state.as_str() {
                "dormant" => "dormant",
                "paused" => "paused",
                "stopped" => "stopped",
                _ => "recording",
            },
            seconds: s.seconds,
            submissions_per_second: rate(c.submissions, b.submissions),
            kernels_per_second: rate(c.kernels, b.kernels),
            copies_per_second: rate(c.copies, b.copies),
            bytes_per_second: rate(c.copy_bytes, b.copy_bytes),
            calls_per_second: has("calls").then(|| rate(c.calls, b.calls)),
            worst_call: c.worst_call.as_ref().filter(|_| c.calls > b.calls).map(worst),
            lock_waits_per_second: has("locks").then(|| rate(c.lock_waits, b.lock_waits)),
            worst_lock_wait: c.worst_lock_wait.as_ref().filter(|_| c.lock_waits > b.lock_waits).map(worst),
            longest_wait: self.live.as_ref().and_then(longest_wait),
            lost_events: s.lost_events,
            recorder_cpu_percent: (used(s) - used(&before.status)).max(0.0) / took * 100.0,
            recorder_peak_memory_bytes: s.recorder_use.peak_memory_bytes,
            processes: s.processes.len(),
        }
    }
}

/// The call or the wait for a lock that has lasted the longest, from [`LONG`] on.
fn longest_wait(live: &Live) -> Option<TopWorst> {
    let ms = |since: u64| live.tsc.saturating_sub(since) as f64 / live.hz.max(1.0) * 1e3;
    let threads = live.processes.iter().flat_map(|p| p.threads.iter().map(|t| (p.pid, t)));
    let waits = threads.filter(|(_, t)| t.state != state::ENDED).filter_map(|(pid, t)| {
        let lock = |w: LiveHold| {
            let class = Class::of(w.op()).filter(|c| matches!(c, Class::Mutex | Class::Rwlock))?;
            Some((format!("{} {:#x}", class.name(), w.address), w.since))
        };
        let (name, since) = t.call.as_ref().map(|c| (c.function.clone(), c.began)).or_else(|| lock(t.waits?))?;
        let thread = Some(plain(&t.name)).filter(|name| !name.is_empty());
        Some(TopWorst { name, pid, tid: t.tid, thread, ms: ms(since) })
    });
    waits.filter(|w| w.ms >= LONG.as_secs_f64() * 1e3).max_by(|a, b| a.ms.total_cmp(&b.ms))
}

fn worst(w: &Worst) -> TopWorst {
    let name = std::fs::read_to_string(format!("/proc/{}/task/{}/comm", w.pid, w.tid)).ok();
    let thread = name.map(|name| plain(name.trim_end()));
    TopWorst { name: w.name.clone(), pid: w.pid, tid: w.tid, thread, ms: w.ms }
}

fn json(top: &Top) -> io::Result<()> {
    let line = serde_json::to_string(&Document::of(top))?;
    let mut out = Plain::json(io::stdout().lock());
    writeln!(out, "{line}")?;
    out.flush()
}

/// `lines`: number of lines of the previous text, which this one overwrites on a terminal.
fn text(top: &Top, status: &Status, lines: &mut usize) -> io::Result<()> {
    let text = block(top, status);
    let mut out = io::stdout().lock();
    let redraws = out.is_terminal() && std::env::var_os("TERM").is_some_and(|t| t != "dumb");
    if redraws && *lines > 0 {
        // Moves up, and erases everything below.
        write!(out, "\x1b[{lines}A\x1b[J")?;
    } else if *lines > 0 {
        writeln!(out)?;
    }
    *lines = text.len();
    for line in text {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

fn block(top: &Top, status: &Status) -> Vec<String> {
    let rate = |n: f64| format!("{}/s", number::count(n.round() as u64));
    let per = |n: f64| format!("{}/s", number::bytes(n.round() as u64));
    let worst = |w: &Option<TopWorst>| match w {
        None => String::new(),
        Some(w) => {
            let thread = w.thread.as_ref().map_or_else(|| w.tid.to_string(), |name| format!("{} {name}", w.tid));
            format!("worst {} {:.3} ms, thread {thread}", w.name, w.ms)
        }
    };
    let absent = |option: &str| format!("not recorded ({option})");
    let mut rows = vec![
        ("submissions", rate(top.submissions_per_second), String::new()),
        ("kernels", rate(top.kernels_per_second), String::new()),
        ("copies", rate(top.copies_per_second), per(top.bytes_per_second)),
    ];
    rows.push(match top.calls_per_second {
        Some(n) => ("CUDA calls", rate(n), worst(&top.worst_call)),
        None => ("CUDA calls", "-".into(), absent("record --calls")),
    });
    rows.push(match top.lock_waits_per_second {
        Some(n) => ("lock waits", rate(n), worst(&top.worst_lock_wait)),
        None => ("lock waits", "-".into(), absent("record --locks")),
    });
    rows.push(("lost events", number::count(top.lost_events), "since the recording began".into()));
    let memory = format!("CPU, {} of memory at most", number::bytes(top.recorder_peak_memory_bytes));
    rows.push(("doorbell", format!("{:.1} %", top.recorder_cpu_percent), memory));
    let processes = if top.processes > 1 { format!(", {} processes", top.processes) } else { String::new() };
    let since = number::seconds(top.seconds.floor());
    let why = status.stopped.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let mut lines = vec![format!("{} ({}{processes}): {} for {since}{why}", top.program, top.pid, top.state)];
    if let Some(pid) = status.attached {
        lines.push(format!("process {pid} is attached"));
    }
    lines.extend(
        rows.iter().map(|(name, value, rest)| format!("  {name:<12}{value:>14}   {rest}").trim_end().to_owned()),
    );
    lines.extend(top.longest_wait.as_ref().map(|w| {
        let thread = w.thread.as_ref().map_or_else(|| w.tid.to_string(), |name| format!("{} ({name})", w.tid));
        format!("longest wait now: thread {thread} {} in {}", number::seconds(w.ms / 1e3), w.name)
    }));
    lines.iter().map(|line| fitted(line)).collect()
}

/// Cut to 80 columns, without characters that a terminal would act on.
fn fitted(line: &str) -> String {
    let line = plain(line);
    match line.chars().count() > WIDTH {
        true => line.chars().take(WIDTH - 3).chain("...".chars()).collect(),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_fits_80_columns_and_has_nothing_that_a_terminal_acts_on() {
        let name = "a\x1b[2J".repeat(40);
        let worst = || Some(TopWorst { name: name.clone(), pid: 1, tid: 2, thread: Some(name.clone()), ms: 1e9 });
        let top = Top {
            program: name.clone(),
            state: "recording",
            submissions_per_second: 1e12,
            calls_per_second: Some(1.0),
            worst_call: worst(),
            lock_waits_per_second: Some(1.0),
            worst_lock_wait: worst(),
            longest_wait: worst(),
            processes: 9,
            ..Top::default()
        };
        let status = Status { stopped: Some(name.clone()), attached: Some(7), ..Status::default() };
        let lines = block(&top, &status);
        assert!(lines.iter().all(|l| l.chars().count() < 80 && !l.chars().any(char::is_control)), "{lines:#?}");
        assert_eq!(lines.len(), 10);
    }

    #[test]
    fn rates_are_by_the_recorders_clock_and_sums_that_began_anew_are_no_rate() {
        let second = |seconds, submissions, used| Second {
            status: Status {
                parts: vec!["calls".into()],
                recorder_use: tape::file::RecorderUse { user_seconds: used, ..Default::default() },
                ..Status::default()
            },
            counts: Counts { seconds, submissions, ..Counts::default() },
            live: None,
            at: Instant::now(),
        };
        let top = second(12.0, 300, 1.0).since(&second(10.0, 100, 1.0));
        assert_eq!(
            (top.submissions_per_second, top.calls_per_second, top.lock_waits_per_second),
            (100.0, Some(0.0), None)
        );
        assert_eq!((top.worst_call.is_none(), top.recorder_cpu_percent), (true, 0.0));
        assert_eq!(second(12.0, 3, 1.0).since(&second(10.0, 100, 1.0)).submissions_per_second, 0.0);
    }
}
