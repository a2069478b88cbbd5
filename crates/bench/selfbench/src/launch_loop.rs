//! The loop `launch`: one kernel a doorbell, with the words that CUDA itself launches with. Recorded with `--gpu-times`, each is stamped. [`run`] starts
//! several threads that launch. Each launch is a call that the agent takes for a CUDA call.

use anyhow::Context;
use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Memory};
use graph_words::{COMPUTE, Graph, Kernel, Places, Step};
use pushbuf::encode::Words;
use pushbuf::qmd::PcasAction;
use rm::driver::Libc;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Arc, Barrier};
use std::time::Instant;
use tape::region::{SEGMENTS_BYTES, STAMPS_BYTES};

/// Kernels that are launched in turn: more than a GPFIFO has entries, so the GPU has read a segment before it is overwritten. `SEGMENT` is the size of
/// each segment in bytes.
const KERNELS: usize = 2048;
const SEGMENT: u64 = 0x1000;
/// The agent's functions.
const AREA: &CStr = c"doorbell_area_of_stamps";
const STAMP_AT: &CStr = c"doorbell_stamp_at";

pub struct Launches {
    channel: Channel,
    segments: Arc<Memory>,
    /// The words of each kernel's launch.
    words: Vec<Vec<u8>>,
    next: usize,
    #[allow(dead_code, reason = "kept alive: the GPU executes from it")]
    kept: [Arc<Memory>; 3],
}

impl Launches {
    pub fn open(space: &Arc<AddressSpace>) -> anyhow::Result<Launches> {
        let mut channel = Channel::new(space, Engine::Graphics, ChannelOptions::default())?;
        let segments = space.alloc_host(KERNELS as u64 * SEGMENT)?;
        let video = space.alloc_video(KERNELS as u64 * (Places::QMD_BYTES + Places::BANK_BYTES))?;
        let host = space.alloc_host(SEGMENT)?;
        // (Zeros: this GPU does not execute the code.)
        let code = space.alloc_video(SEGMENT)?;
        let graph = |i: u64| Graph {
            kernels: vec![Kernel { grid: [1; 3], block: [1; 3], ..Kernel::default() }],
            launch: vec![Step::Start(0, PcasAction::InvalidatePrefetchCopySchedule)],
            at: Places {
                qmds: video.va() + Places::QMD_BYTES * i,
                banks: video.va() + Places::QMD_BYTES * KERNELS as u64 + Places::BANK_BYTES * i,
                shared_banks: None,
                counters: host.va(),
                trackers: host.va() + SEGMENT / 2,
                code: code.va(),
            },
            table: None,
        };
        let words = (0..KERNELS as u64).map(|i| bytes(&graph(i).upload())).collect();
        let mut first = [0; 8];
        let mut objects = Words::new(&mut first);
        objects.set_object(COMPUTE, rm::class::HOPPER_COMPUTE_A)?;
        segments.write(0, &bytes(objects.as_slice()));
        channel.submit_unchecked(segments.va(), objects.as_slice().len() as u32)?;
        let mut launches = Launches { channel, segments, words, next: 1, kept: [video, host, code] };
        launches.stamped(space)?;
        Ok(launches)
    }

    /// If times are recorded: maps the memory for them to the GPU, as CUDA does.
    fn stamped(&mut self, space: &Arc<AddressSpace>) -> anyhow::Result<()> {
        // SAFETY: the names are NUL-terminated, and the agent's functions of these names have these types.
        let (area, stamp_at) = unsafe {
            let [area, stamp_at] = [AREA, STAMP_AT].map(|name| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()));
            if area.is_null() || stamp_at.is_null() {
                return Ok(());
            }
            let area: extern "C" fn() -> usize = std::mem::transmute(area);
            (area(), std::mem::transmute::<*mut libc::c_void, extern "C" fn(usize)>(stamp_at))
        };
        let Some(at) = NonNull::new(area as *mut u8) else { return Ok(()) };
        // SAFETY: the agent has mapped this many bytes there permanently.
        let memory = unsafe { space.adopt_host(at, (STAMPS_BYTES + SEGMENTS_BYTES) as u64, Arc::new(()))? };
        // (The GPU uses it until the process ends.)
        std::mem::forget(memory);
        stamp_at(area);
        Ok(())
    }

    /// Writes the next launch's words, as a program does each time.
    pub fn write(&mut self) {
        self.segments.write(self.next as u64 * SEGMENT, &self.words[self.next]);
    }

    /// Submits the launch. (If the ring is full, the same launch is tried again: the GPU has not read the earlier segments.)
    pub fn submit(&mut self) -> Result<(), gpu::Error> {
        let words = self.words[self.next].len() as u32 / 4;
        self.channel.submit_unchecked(self.segments.va() + self.next as u64 * SEGMENT, words)?;
        self.next = (self.next + 1) % KERNELS;
        Ok(())
    }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The arguments of cuLaunchKernel; the first points to the launches.
type Launch = extern "C" fn(*mut Launches, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) -> i32;

/// (If the ring is full, the GPU lags, and this waits for it.)
#[allow(clippy::too_many_arguments)]
extern "C" fn launch(
    on: *mut Launches,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u64,
    _: u64,
    _: u64,
) -> i32 {
    // SAFETY: `Caller::launch` passes its own launches, to which it has exclusive access.
    let on = unsafe { &mut *on };
    on.write();
    loop {
        match on.submit() {
            Ok(()) => return 0,
            Err(gpu::Error::RingFull(_)) => std::thread::yield_now(),
            Err(_) => return 1,
        }
    }
}

/// Launches by a function that the agent takes for a CUDA call, if it records calls.
struct Caller {
    launches: Launches,
    by: Launch,
}

impl Caller {
    fn launch(&mut self, n: u32) -> anyhow::Result<()> {
        let failed = (self.by)(&mut self.launches, n, 1, 1, 1, 1, 1, 0, 0x51, 0, 0) != 0;
        anyhow::ensure!(!failed, "a launch failed");
        Ok(())
    }
}

/// cuLaunchKernel on tapes.
const CU_LAUNCH_KERNEL: u32 = 1;

fn entry() -> Launch {
    // SAFETY: the name is NUL-terminated. The agent's function of that name has this type, and returns an entry for a function of the type that it is
    // given.
    unsafe {
        let find = libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_entry_of_call".as_ptr());
        if find.is_null() {
            return launch;
        }
        let find: extern "C" fn(u32, usize) -> usize = std::mem::transmute(find);
        match find(CU_LAUNCH_KERNEL, launch as *const () as usize) {
            0 => launch,
            at => std::mem::transmute::<usize, Launch>(at),
        }
    }
}

/// Launches of each thread before the measured time. After these, the sites are rewritten and each thread has its rings.
const WARM_UP: u32 = 1000;

/// Launches for a process that single-steps them: enough for some seconds, if the loop is not killed before.
const STEPS: u32 = 2_000_000;

/// `threads` threads launch `count` times each. Prints one line of JSON. With `steps` one thread launches until the process is killed, and passes
/// [`round`] before each.
pub fn run(threads: u32, count: u32, steps: bool) -> anyhow::Result<()> {
    let device = Device::open(Arc::new(Libc), 0).context("the software GPU")?;
    let space = AddressSpace::new(&device)?;
    let mut callers = Vec::new();
    for _ in 0..threads {
        callers.push(Caller { launches: Launches::open(&space)?, by: launch });
    }
    for caller in &mut callers {
        // In this thread, which had the area for times mapped.
        caller.by = entry();
        caller.launch(0)?;
    }
    if steps {
        let mut caller = callers.pop().context("no thread")?;
        (0..WARM_UP).try_for_each(|n| caller.launch(n))?;
        // SAFETY: no arguments.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) as i32 };
        println!("{}", json!({ "pid": std::process::id(), "thread": thread, "round": round as *const () as usize }));
        for n in 0..STEPS {
            round();
            caller.launch(n)?;
        }
        return Ok(());
    }
    let barrier = Barrier::new(threads as usize + 1);
    let (seconds, recorder) = std::thread::scope(|scope| {
        let work = |mut caller: Caller| -> anyhow::Result<()> {
            let warm = (0..WARM_UP).try_for_each(|n| caller.launch(n));
            barrier.wait();
            let done = warm.and_then(|()| (0..count).try_for_each(|n| caller.launch(n)));
            barrier.wait();
            done
        };
        let workers: Vec<_> = callers.into_iter().map(|caller| scope.spawn(move || work(caller))).collect();
        barrier.wait();
        let (begun, before) = (Instant::now(), parents_threads());
        barrier.wait();
        let (seconds, after) = (begun.elapsed().as_secs_f64(), parents_threads());
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        let used =
            after.into_iter().map(|(name, ns)| (name.clone(), ns - before.get(&name).copied().unwrap_or(0).min(ns)));
        anyhow::Ok((seconds, used.collect::<BTreeMap<_, _>>()))
    })?;
    let launches = u64::from(threads) * u64::from(count);
    // Includes the warm-up.
    let all = launches + u64::from(threads) * u64::from(WARM_UP + 1);
    println!("{}", json!({ "launches": launches, "all": all, "seconds": seconds, "parent_ns": recorder }));
    Ok(())
}

/// Where instructions are counted from and to.
#[inline(never)]
extern "C" fn round() {
    // SAFETY: no instructions. It only keeps the compiler from removing the call.
    unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
}

/// CPU time of the parent's threads by their names, ns. The parent of a recorded program is its recorder.
fn parents_threads() -> BTreeMap<String, u64> {
    let mut of = BTreeMap::new();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", std::os::unix::process::parent_id()));
    for task in tasks.into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        *of.entry(read("comm").trim().to_owned()).or_insert(0) += ns;
    }
    of
}
