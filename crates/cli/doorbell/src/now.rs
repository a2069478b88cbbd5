//! `doorbell why --now`: who waits for whom in a recorded program at this moment, or in all that this user's recorders record.
//!
//! Invariant: with a PID or `--all`, an answer or an error comes within 2 s, also if the program or a recorder is stopped.

mod recorders;
mod stack;

use crate::attach::failure;
use crate::failure::Failure;
use crate::top;
use decode::Awaited;
use lock_analysis::names;
use recorder::control::client::{Client, ClientError, Place};
use recorder::control::messages::Status;
use recorders::Asked;
use schema::Document;
use schema::now_ranks::NowRecorder;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tape::live::state;
use terminal::json::or_text;
use terminal::table::Style;

/// Time between the two looks.
const APART: Duration = Duration::from_millis(100);
/// The time to find the recorder, until its last answer, and for a reading of a process's mappings.
const FOUND_WITHIN: Duration = Duration::from_millis(600);
const WITHIN: Duration = Duration::from_millis(1600);
/// The first looks of all recorders are made by then.
const FIRST_OF_ALL: Duration = Duration::from_millis(850);
const MAPS_WITHIN: Duration = Duration::from_millis(200);
/// Names of places that are not read by then are numbers.
const MAPS_UNTIL: Duration = Duration::from_millis(1750);
/// Programs in the hint of an error.
const LISTED: usize = 8;

/// Looks at this program, or at all (`is_all`) that recorders of this user record, or at the only one.
pub fn run(pid: Option<i32>, is_all: bool, stacks: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut begun = Instant::now();
    let asked = match pid {
        Some(pid) => vec![Asked::Open(client_of(pid).map_err(not_found)?)],
        None if is_all => Place::all().into_iter().map(Asked::Place).collect(),
        None => {
            let Some(client) = top::only_one(json, "why --now")? else { return Ok(ExitCode::SUCCESS) };
            begun = Instant::now();
            vec![Asked::Open(client)]
        }
    };
    let until = begun + WITHIN;
    let mut kernels = Vec::new();
    let first_until = begun + if is_all { FIRST_OF_ALL } else { WITHIN };
    let mut answers = recorders::looks(asked, first_until, until, |status| kernels.push(awaited(status)));
    // (A socket that a killed recorder left, or one whose program has just ended.)
    answers.retain(|(_, answer)| !is_all || !matches!(answer, Err(ClientError::Gone { .. })));
    let (mut rows, mut failed, mut all) = (Vec::new(), None, Vec::new());
    for (pid, answer) in answers {
        let mut row = NowRecorder { pid, ..NowRecorder::default() };
        match answer {
            Ok(answer) => {
                row.program.clone_from(&answer.status.program);
                all.push(answer);
            }
            Err(e) => {
                row.failure = Some(e.to_string());
                failed = failed.or(Some(e));
            }
        }
        rows.push(row);
    }
    if all.is_empty() {
        let none =
            || Failure::new("no program of this user is being recorded", "`doorbell record ./app` records one").into();
        return Err(failed.map_or_else(none, failure));
    }
    let (mut clients, mut statuses, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    for a in all {
        clients.push(a.client);
        statuses.push(a.status);
        looks.push((a.first, a.second));
    }
    let (first, second) = slow_calls::wait_graph::joined(looks);
    let only = statuses.first().map_or(0, |s| s.pid);
    if second.processes.iter().all(|p| p.state == state::ENDED) {
        let pid = pid.unwrap_or(only);
        return Err(failure(ClientError::Gone { pid }));
    }
    let maps = Maps { until: Some(begun + MAPS_UNTIL), ..Maps::default() };
    let read = |told: Receiver<Option<Vec<Awaited>>>| {
        told.recv_timeout(until.saturating_duration_since(Instant::now())).ok().flatten()
    };
    let awaited: Vec<Option<Vec<Awaited>>> = kernels.into_iter().map(read).collect();
    let has_kernels = awaited.iter().all(Option::is_some);
    let kernels = slow_calls::kernels(awaited.into_iter().flatten().flatten().collect(), &second);
    let mut now = slow_calls::wait_graph::now(&first, &second, kernels, &maps);
    let programs: Vec<i32> = statuses.iter().map(|s| s.pid).collect();
    slow_calls::wait_graph::ranks::add(&mut now, &first, &second, &programs);
    if stacks {
        let mut found = Vec::new();
        for answer in recorders::stacks(clients, until) {
            match answer {
                Ok(some) => found.extend(some),
                Err(e) => now.not_followed.push(format!("stacks: {e}")),
            }
        }
        stack::add(&mut now, &found, &maps);
    }
    now.not_followed.extend(not_followed(&statuses, has_kernels));
    if is_all {
        now.answer.extend(rows.iter().filter_map(|r| r.failure.clone()));
        now.recorders = rows;
    } else if let Some(status) = statuses.pop() {
        (now.pid, now.program) = (status.pid, status.program);
    }
    let style = Style::of_stdout();
    or_text(json, &Document::of(&now), style, |out| terminal::now::write(out, &now, style))?;
    Ok(ExitCode::SUCCESS)
}

/// The recorder of a process. (Other recorders may have to be asked for it, and one of them may be stopped.)
fn client_of(pid: i32) -> Result<Client, ClientError> {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(Client::of(pid)));
    told.recv_timeout(FOUND_WITHIN).unwrap_or(Err(ClientError::Silent { pid }))
}

/// The error, with the programs that are recorded.
fn not_found(e: ClientError) -> anyhow::Error {
    if !matches!(e, ClientError::NotRecorded(_) | ClientError::NoProcess(_)) {
        return failure(e);
    }
    let begun = Instant::now();
    let status = |mut client: Client| {
        client.within(MAPS_WITHIN);
        client.status().ok()
    };
    let all: Vec<String> = Client::all()
        .into_iter()
        .take_while(|_| begun.elapsed() < Duration::from_secs(1))
        .filter_map(status)
        .take(LISTED)
        .map(|s| format!("{} ({})", s.pid, s.program))
        .collect();
    let hint = match all.is_empty() {
        true => "no program of this user is being recorded; `doorbell record --locks ./app` records one".into(),
        false => format!("these are being recorded: {}", all.join(", ")),
    };
    Failure::new(e.to_string(), hint).into()
}

/// Reads which kernels have not ended from the recording so far, in another thread, because a long recording takes long.
fn awaited(status: &Status) -> Receiver<Option<Vec<Awaited>>> {
    let (tell, told) = channel();
    // (The file of a flight recorder is of an earlier moment.)
    if status.parts.iter().any(|part| part == "gpu-times") && status.saved.is_none() {
        let file = status.file.clone();
        std::thread::spawn(move || {
            let read = || decode::awaited(&decode::Recording::open(Path::new(&file)).ok()?).ok()?;
            tell.send(read())
        });
    }
    told
}

fn not_followed(statuses: &[Status], has_kernels: bool) -> Vec<String> {
    let lacks = |part: &str| statuses.iter().any(|s| !s.parts.iter().any(|p| p == part));
    let mut all = Vec::new();
    if lacks("locks") {
        all.push("locks (record --locks)".into());
    }
    if lacks("calls") {
        all.push("CUDA calls, and what streams wait for (record --calls)".into());
    }
    if !has_kernels {
        let why = match (lacks("gpu-times"), statuses.iter().any(|s| s.saved.is_some())) {
            (true, _) => "record --gpu-times",
            (_, true) => "they are in memory alone, with record --last",
            _ => "no file, or one too long to be read in a second",
        };
        all.push(format!("kernels that have not ended ({why})"));
    }
    all
}

/// Names of places, by the mappings of the processes. They are read when the first name is needed.
#[derive(Default)]
struct Maps {
    of: RefCell<HashMap<i32, Option<Mapped>>>,
    until: Option<Instant>,
}

#[derive(Default)]
struct Mapped {
    names: names::Names,
}

impl Maps {
    fn with<T>(&self, pid: i32, f: impl FnOnce(&Mapped) -> T) -> Option<T> {
        let mut of = self.of.borrow_mut();
        of.entry(pid).or_insert_with(|| read(pid, self.until)).as_ref().map(f)
    }
}

impl slow_calls::wait_graph::Names for Maps {
    fn variable(&self, pid: i32, address: u64) -> Option<String> {
        self.with(pid, |m| m.names.of_static(0, address, 0)).flatten()
    }

    fn site(&self, pid: i32, address: u64) -> String {
        self.with(pid, |m| m.names.site(0, address, 0)).unwrap_or_else(|| format!("{address:#x}"))
    }
}

/// The mappings of a process; `None` if they cannot be read. (For a process that hangs in the kernel while it changes them, the kernel
/// does not answer.)
fn read(pid: i32, until: Option<Instant>) -> Option<Mapped> {
    let left = until.map_or(MAPS_WITHIN, |until| until.saturating_duration_since(Instant::now()));
    if left.is_zero() {
        return None;
    }
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(std::fs::read(format!("/proc/{pid}/maps"))));
    let text = told.recv_timeout(MAPS_WITHIN.min(left)).ok()?.ok()?;
    let mut mapped = Mapped::default();
    for line in recorder::maps::lines(&text) {
        mapped.names.add(0, 0, &line.body, line.path, stack::build_id(&line));
    }
    mapped.names.finish();
    Some(mapped)
}
