//! The answer to `stacks`: where the threads of all recorded processes are, with the calls that led there.
//!
//! Only the stack of a thread that sleeps or is stopped is read. A thread that runs is tried again for a few milliseconds, and is not
//! stopped for it: that could change what system calls return to the program.

use super::Sleep;
use super::unwind::Process;
use crate::control::Ask;
use crate::control::messages::Answer;
use std::fs;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveFrame, LiveStack};

/// Time for all threads.
const PATIENCE: Duration = Duration::from_millis(500);
/// Maximum number of threads, and of frames of each.
const THREADS: usize = 1000;
const FRAMES: usize = 16;
/// How often a thread that runs is tried, and the time between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);

/// Answers from another thread.
pub fn answer(live: &Live, ask: Ask) {
    let pids: Vec<i32> = live.processes.iter().filter(|p| p.pid > 0 && !p.other_numbers).map(|p| p.pid).collect();
    let finish = move || {
        let begun = Instant::now();
        let read = move || pids.into_iter().flat_map(|pid| of_process(pid, begun)).take(THREADS).collect();
        let stacks = super::within(PATIENCE * 2, read);
        ask.answer(Answer { stacks: Some(stacks.unwrap_or_default()), ..Answer::ok() });
    };
    let _ = std::thread::Builder::new().name("stacks".into()).spawn(finish);
}

fn of_process(pid: i32, begun: Instant) -> Vec<LiveStack> {
    let process = Process::of(pid);
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let tids = tasks.flatten().filter_map(|t| t.file_name().to_str()?.parse::<i32>().ok());
    let of = |tid| {
        let without = |why: &str| LiveStack { pid, tid, frames: Vec::new(), lacks: Some(why.into()) };
        match of_thread(&process, tid) {
            Ok(frames) => LiveStack { pid, tid, frames, lacks: None },
            Err(why) => without(why),
        }
    };
    tids.take(THREADS).take_while(|_| begun.elapsed() < PATIENCE).map(of).collect()
}

fn of_thread(process: &Process, tid: i32) -> Result<Vec<LiveFrame>, &'static str> {
    for _ in 0..TRIES {
        let Some(sleep) = Sleep::of(process.pid, tid)? else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let frames = process.frames(sleep.pc, sleep.sp, FRAMES);
        // (It has not moved meanwhile.)
        if Sleep::of(process.pid, tid)?.is_some_and(|again| again == sleep) {
            let row = |f: super::unwind::Frame| LiveFrame { address: f.address, is_certain: f.is_certain };
            return Ok(frames.into_iter().map(row).collect());
        }
    }
    Err("it runs")
}
