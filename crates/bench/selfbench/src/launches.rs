//! Launches: one kernel a doorbell, with the words that CUDA itself launches with. Recorded with `--gpu-times`, each is stamped.

use cuda_graph::words::{COMPUTE, Graph, Kernel, Places, Step};
use gpu::{AddressSpace, Channel, ChannelOptions, Engine, Memory};
use pushbuf::encode::Words;
use pushbuf::qmd::PcasAction;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
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
