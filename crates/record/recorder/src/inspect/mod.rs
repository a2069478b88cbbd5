//! What is read from outside of a running program: its memory, its mappings, the stacks of its threads.
//!
//! Invariant: no thread of the program is stopped or woken for it, and no signal is sent. What changes while it is read is read again, or left out.

mod gil;
mod host_function;
pub mod maps;
pub mod memory;
mod sample;
pub mod stacks;
pub mod unwind;

use crate::live::readers::{Job, run};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tape::live::{LiveGil, LiveProcess, state};

/// Time to look at all processes.
const PATIENCE: Duration = Duration::from_millis(100);

/// What was found in a process.
enum Found {
    Gil(LiveGil),
    HostFunction(i32, u64),
}

/// Adds the GILs for which threads wait with the threads that have them, and the threads that are in a host function.
pub fn add(processes: &mut [LiveProcess]) {
    let until = Instant::now() + PATIENCE;
    let job = |(n, p): (usize, &LiveProcess)| {
        let (pid, has_same_numbers, waits) = (p.pid, !p.other_numbers, gil::Waits::of(p));
        let read = move |to: &Sender<(usize, Found)>| {
            let send = |found| drop(to.send((n, found)));
            waits.gils().into_iter().for_each(|gil| send(Found::Gil(gil)));
            let all = host_function::of_process(pid, has_same_numbers, until);
            all.into_iter().for_each(|(tid, function)| send(Found::HostFunction(tid, function)));
        };
        Job { pid, read: Box::new(read) }
    };
    let is_live = |(_, p): &(usize, &LiveProcess)| p.pid > 0 && p.state != state::ENDED;
    let jobs = processes.iter().enumerate().filter(is_live).map(job).collect();
    run(jobs, until, |(n, found)| {
        let Some(p) = processes.get_mut(n) else { return };
        match found {
            Found::Gil(gil) => {
                p.add_thread(gil.holder);
                p.python.push(gil);
            }
            Found::HostFunction(tid, function) => {
                p.add_thread(tid);
                let thread = p.threads.iter_mut().find(|t| t.tid == tid);
                thread.into_iter().for_each(|t| t.host_function = Some(function));
            }
        }
    });
}
