//! A graphics channel, and graphs of stand-in kernels in memory of the rig.

use crate::rig::*;
use cuda_graph::words::{Graph, Places};
use doorbell_softgpu::StandIn;
use doorbell_softgpu::standin::{self, Operation};
use rm::class;

/// QMDs, banks and code in GPU memory; counters, trackers and the log in host memory.
const VIDEO_AT: u64 = 0x5_0000_0000;
const HOST_AT: u64 = 0x6_0000_0000;
const BYTES: u64 = 1 << 20;
const BANKS: u64 = 0x4_0000;
const CODE: u64 = 0xf_0000;
const TRACKERS: u64 = 0x800;
const LOG: u64 = 0x1000;
/// Words that kernels and nodes of the copy engine work on.
pub const DATA_AT: u64 = HOST_AT + 0x8_0000;

pub struct Launcher<'a> {
    pub rig: &'a Rig,
    pub channel: Chan<'a>,
    pub video: Mem,
    pub host: Mem,
}

impl<'a> Launcher<'a> {
    pub fn new(rig: &'a Rig) -> Launcher<'a> {
        let (video, host) = (rig.memory(VIDEO_AT, BYTES, VIDEO), rig.memory(HOST_AT, BYTES, HOST));
        let launcher = Launcher { rig, channel: graphics(rig), video, host };
        for operation in [Operation::Nothing, Operation::Add, Operation::Store, Operation::Log, Operation::Copy] {
            launcher.slow(operation, 0);
        }
        launcher
    }

    pub fn places() -> Places {
        Places {
            qmds: VIDEO_AT,
            banks: VIDEO_AT + BANKS,
            shared_banks: None,
            counters: HOST_AT,
            trackers: HOST_AT + TRACKERS,
            code: Launcher::code(Operation::Log),
        }
    }

    pub fn code(operation: Operation) -> u64 {
        VIDEO_AT + CODE + 0x100 * operation as u64
    }

    /// Kernels of this operation take this many turns.
    pub fn slow(&self, operation: Operation, turns: u32) {
        self.video.write((CODE + 0x100 * operation as u64) as usize, &StandIn { operation, turns }.code());
    }

    /// The graph with kernels that log their numbers.
    pub fn logging(&self, mut graph: Graph) -> Graph {
        graph.at = Launcher::places();
        for (i, kernel) in graph.kernels.iter_mut().enumerate().filter(|(_, kernel)| !kernel.is_empty()) {
            kernel.parameters = standin::pointer_and_word(HOST_AT + LOG, i as u32);
        }
        graph
    }

    pub fn log(&self) -> Vec<u32> {
        let n = self.host.u32(LOG as usize) as usize;
        (1..=n).map(|i| self.host.u32(LOG as usize + 4 * i)).collect()
    }

    /// A word of [`DATA_AT`].
    pub fn data(&self, word: usize) -> u32 {
        self.host.u32((DATA_AT - HOST_AT) as usize + 4 * word)
    }

    pub fn set_data(&self, word: usize, value: u32) {
        self.host.set((DATA_AT - HOST_AT) as usize + 4 * word, value);
    }

    pub fn counter(&self, group: usize) -> u32 {
        self.host.u32(8 * group)
    }

    /// Waits until a group of launch `k` is done.
    #[track_caller]
    pub fn done(&self, group: usize, k: u32) {
        until(|| self.counter(group) == 4 * k + 2 || self.channel.error().is_some());
        assert_eq!(self.channel.error(), None, "the channel was killed");
    }

    pub fn kernels(&self) -> u64 {
        self.rig.counters().kernels.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A graphics channel with all its engines.
pub fn graphics(rig: &Rig) -> Chan<'_> {
    let channel = rig.compute_channel();
    channel.ok(&inc(4, 0, &[class::HOPPER_DMA_COPY_A]));
    channel
}

/// The words of a launch without its waits: SEM_ADDR_LO to SEM_EXECUTE are left out.
pub fn without_waits(words: &[u32]) -> Vec<u32> {
    let mut left = words.to_vec();
    while let Some(at) = left.iter().position(|word| *word == 0x2005_0017) {
        left.drain(at..at + 6);
    }
    left
}
