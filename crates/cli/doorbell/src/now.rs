//! `doorbell why --now`: who waits for whom in a recorded program at this moment.
//!
//! Invariant: with a PID, an answer or an error comes within 2 s, also if the program or a recorder is stopped.

mod stack;

use crate::attach::failure;
use crate::failure::Failure;
use crate::top;
use decode::Awaited;
use lock_analysis::names;
use recorder::control::client::{Client, ClientError};
use recorder::control::messages::{Request, Status};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tape::live::state;
use terminal::table::Style;

/// Time between the two looks.
const APART: Duration = Duration::from_millis(100);
/// The time to find the recorder, until its last answer, and for a reading of a process's mappings.
const FOUND_WITHIN: Duration = Duration::from_millis(600);
const WITHIN: Duration = Duration::from_millis(1600);
const MAPS_WITHIN: Duration = Duration::from_millis(200);
/// Programs in the hint of an error.
const LISTED: usize = 8;

pub fn run(pid: Option<i32>, stacks: bool, json: bool) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let mut client = match pid {
        Some(pid) => client_of(pid).map_err(not_found)?,
        None => match top::only_one(json, "why --now")? {
            Some(client) => client,
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    let begun = if pid.is_some() { begun } else { Instant::now() };
    let mut ask = |request: &Request| {
        client.within(WITHIN.saturating_sub(begun.elapsed()));
        client.ask(request).map_err(failure)
    };
    let status = ask(&Request::Status)?.status.unwrap_or_default();
    let awaited = awaited(&status);
    let first = ask(&Request::Now)?.now.unwrap_or_default();
    std::thread::sleep(APART);
    let second = ask(&Request::Now)?.now.unwrap_or_default();
    if second.processes.iter().all(|p| p.state == state::ENDED) {
        return Err(failure(ClientError::Gone { pid: pid.unwrap_or(status.pid) }));
    }
    let maps = Maps::default();
    let awaited = awaited.recv_timeout(WITHIN.saturating_sub(begun.elapsed())).ok().flatten();
    let has_kernels = awaited.is_some();
    let kernels = slow_calls::kernels(awaited.unwrap_or_default(), &second);
    let mut now = wait_graph::now(&first, &second, kernels, &maps);
    if stacks {
        match ask(&Request::Stacks) {
            Ok(answer) => stack::add(&mut now, &answer.stacks.unwrap_or_default(), &maps),
            Err(e) => now.not_followed.push(format!("stacks: {e}")),
        }
    }
    now.not_followed.extend(not_followed(&status, has_kernels));
    (now.pid, now.program) = (status.pid, status.program);
    terminal::now::print(&now, Style::of_stdout(), json)?;
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

fn not_followed(status: &Status, has_kernels: bool) -> Vec<String> {
    let lacks = |part: &str| !status.parts.iter().any(|p| p == part);
    let mut all = Vec::new();
    if lacks("locks") {
        all.push("locks (record --locks)".into());
    }
    if lacks("calls") {
        all.push("CUDA calls, and what streams wait for (record --calls)".into());
    }
    if !has_kernels {
        let why = match (lacks("gpu-times"), status.saved.is_some()) {
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
}

#[derive(Default)]
struct Mapped {
    names: names::Names,
}

impl Maps {
    fn with<T>(&self, pid: i32, f: impl FnOnce(&Mapped) -> T) -> Option<T> {
        let mut of = self.of.borrow_mut();
        of.entry(pid).or_insert_with(|| read(pid)).as_ref().map(f)
    }
}

impl wait_graph::Names for Maps {
    fn variable(&self, pid: i32, address: u64) -> Option<String> {
        self.with(pid, |m| m.names.of_static(0, address, 0)).flatten()
    }

    fn site(&self, pid: i32, address: u64) -> String {
        self.with(pid, |m| m.names.site(0, address, 0)).unwrap_or_else(|| format!("{address:#x}"))
    }
}

/// The mappings of a process; `None` if they cannot be read. (For a process that hangs in the kernel while it changes them, the kernel
/// does not answer.)
fn read(pid: i32) -> Option<Mapped> {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(std::fs::read(format!("/proc/{pid}/maps"))));
    let text = told.recv_timeout(MAPS_WITHIN).ok()?.ok()?;
    let mut mapped = Mapped::default();
    for line in text.split(|b| *b == b'\n') {
        if let Some((body, path)) = recorder::mapping(line) {
            mapped.names.add(0, 0, &body, path, stack::build_id(line, path));
        }
    }
    mapped.names.finish();
    Some(mapped)
}
