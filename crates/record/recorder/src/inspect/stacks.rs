//! The answer to `stacks`: where the threads of all recorded processes are, with the calls that led there.
//!
//! The stack of a thread that sleeps or is stopped is read from the program's memory. Of a thread that runs the kernel takes a sample. No
//! thread is stopped by a debugger's means: that could change what system calls return to the program.

use super::sample::Sample;
use super::unwind::{Frame, Process, Start};
use crate::control::Ask;
use crate::control::messages::Answer;
use crate::live::proc::asleep;
use crate::live::readers::{Job, run};
use std::fs;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveFrame, LiveStack};

/// Time for all threads.
const PATIENCE: Duration = Duration::from_millis(500);
/// Maximum number of threads, and of frames of each.
const THREADS: usize = 1000;
const FRAMES: usize = 16;
/// How often a thread is tried that runs and sleeps in turns.
const TRIES: u32 = 3;

/// Answers from another thread.
pub fn answer(live: &Live, ask: Ask) {
    let pids: Vec<i32> = live.processes.iter().filter(|p| p.pid > 0 && !p.other_numbers).map(|p| p.pid).collect();
    let finish = move || {
        let begun = Instant::now();
        let job = |pid| Job {
            pid,
            read: Box::new(move |to: &Sender<LiveStack>| {
                of_process(pid, begun).into_iter().for_each(|stack| drop(to.send(stack)));
            }),
        };
        let mut stacks = Vec::new();
        run(pids.into_iter().map(job).collect(), begun + PATIENCE, |stack| stacks.push(stack));
        stacks.sort_by_key(|s| (s.pid, s.tid));
        stacks.truncate(THREADS);
        ask.answer(Answer { stacks: Some(stacks), ..Answer::ok() });
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
            Err(why) => without(&why),
        }
    };
    tids.take(THREADS).take_while(|_| begun.elapsed() < PATIENCE).map(of).collect()
}

fn of_thread(process: &Process, tid: i32) -> Result<Vec<LiveFrame>, String> {
    let rows = |frames: Vec<Frame>| {
        let row = |f: Frame| LiveFrame { address: f.address, is_certain: f.is_certain };
        frames.into_iter().map(row).collect()
    };
    for _ in 0..TRIES {
        let Some(sleep) = asleep(process.pid, tid)? else {
            match Sample::of(tid) {
                Ok(Some(s)) => {
                    let sp = s.registers[7];
                    let start = Start { registers: s.registers.map(Some), at: sp, copy: &s.stack };
                    return Ok(rows(process.frames(&start, FRAMES)));
                }
                Ok(None) => continue,
                Err(e) => return Err(format!("it runs, and the kernel gives no sample: {e}")),
            }
        };
        let frames = process.frames(&Start::asleep(sleep.pc, sleep.sp), FRAMES);
        // (It has not moved meanwhile.)
        if asleep(process.pid, tid)?.is_some_and(|again| again == sleep) {
            return Ok(rows(frames));
        }
    }
    Err("it runs and sleeps in turns".into())
}
