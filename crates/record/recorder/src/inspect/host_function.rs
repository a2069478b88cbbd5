//! Threads in which CUDA's driver has called a function of the program: the host function of a stream (cuLaunchHostFunc), or its
//! callback (cuStreamAddCallback).
//!
//! The driver calls them in threads that it has made. Such a thread is known by its stack: the outermost calls are the driver's, and
//! from the driver a call leads to other code, in which the thread is.
//!
//! Invariant: a thread is named if all frames from where it sleeps to the driver are certain.

use super::gil;
use super::maps::Maps;
use super::memory;
use super::unwind::{Process, Start};
use crate::live::proc;
use std::fs;
use std::time::Instant;

/// Maximum number of threads, and of frames from where a thread sleeps to the driver.
const THREADS: usize = 2000;
const FRAMES: usize = 256;
/// Between a thread's stack pointer and the end of its stack, where its record is, there are at most so many bytes.
const STACK: usize = 1 << 20;
/// The outermost calls are in so many words before that.
const OUTERMOST: usize = 512;

/// Whose code an address is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Driver,
    /// The C library and doorbell's agent, which are between a thread's start and its own code.
    Between,
    Program,
}

fn owner(maps: &Maps, address: u64) -> Owner {
    let Some(m) = maps.at(address) else { return Owner::Program };
    let is = |prefix: &[u8]| m.file().starts_with(prefix);
    if [&b"libcuda.so"[..], b"libcudadebugger.so", b"libnvidia-", b"libsoftcuda.so"].iter().any(|p| is(p)) {
        Owner::Driver
    } else if [&b"libc.so"[..], b"libc-2.", b"libpthread", b"ld-linux", b"ld-2.", b"doorbell-", b"memfd:doorbell-"]
        .iter()
        .any(|p| is(p))
    {
        Owner::Between
    } else {
        Owner::Program
    }
}

/// The threads that are in a host function, and the function.
pub fn of_process(pid: i32, has_same_numbers: bool, until: Instant) -> Vec<(i32, u64)> {
    let process = Process::of(pid);
    if !process.maps.files().any(|f| f.starts_with(b"libcuda.so") || f.starts_with(b"libsoftcuda.so")) {
        return Vec::new();
    }
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let tids = tasks.flatten().filter_map(|t| t.file_name().to_str()?.parse::<i32>().ok());
    let in_time = tids.take(THREADS).take_while(|_| Instant::now() < until);
    let of = |tid| of_thread(&process, tid).filter(|(named, _)| !has_same_numbers || *named == tid);
    in_time.filter_map(of).collect()
}

fn of_thread(process: &Process, task: i32) -> Option<(i32, u64)> {
    let asleep = || proc::asleep(process.pid, task).ok().flatten();
    let sleep = asleep()?;
    let tid = made_by_driver(process, sleep.sp)?;
    let frames = process.frames(&Start::asleep(sleep.pc, sleep.sp), FRAMES);
    let owners = frames.iter().map(|f| (f, owner(&process.maps, f.address)));
    let mut innermost = None;
    for (frame, owner) in owners.take_while(|(f, _)| f.is_certain) {
        match owner {
            // (In the driver's own code; what it called is another library of its own, or the C library.)
            Owner::Driver => {
                let function: u64 = innermost?;
                // (It has not moved meanwhile.)
                return (asleep()? == sleep).then_some((tid, function));
            }
            Owner::Program => innermost = Some(frame.function.unwrap_or(frame.address)),
            Owner::Between => {}
        }
    }
    None
}

/// The number of a thread that the driver has made, from its stack.
fn made_by_driver(process: &Process, sp: u64) -> Option<i32> {
    let mut bytes = Vec::new();
    let mut size = 1 << 14;
    while size <= STACK {
        bytes.resize(size, 0);
        let n = memory::begin(process.pid, sp & !15, &mut bytes);
        let words: Vec<u64> = bytes[..n].as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
        let at = |i: usize| (sp & !15) + i as u64 * 8;
        let is_record = |i: usize| words.get(i) == Some(&at(i)) && words.get(i + 2) == Some(&at(i));
        let found = (0..words.len()).step_by(2).filter(|i| is_record(*i));
        if let Some((i, tid)) = found.filter_map(|i| Some((i, gil::thread_of(process.pid, at(i))?))).next() {
            let outermost = words.get(i.saturating_sub(OUTERMOST)..i)?.iter().rev();
            let calls = outermost.filter(|w| process.call_before(**w).is_some());
            let mut owners = calls.map(|w| owner(&process.maps, *w)).filter(|o| *o != Owner::Between);
            return owners.next().filter(|o| *o == Owner::Driver).map(|_| tid);
        }
        if n < size {
            break;
        }
        size *= 8;
    }
    None
}
