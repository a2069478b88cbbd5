//! The state of one process image while its events are read: its driver objects, which channel has which slot, and the
//! QMDs in its memory. Images share no state.

use crate::gpu_times::Running;
use crate::kernel::{Codes, Kernel, MOST};
use crate::pauses::Pauses;
use crate::qmds::Qmds;
use crate::ranges::Ranges;
use pushbuf::snapshot::Snapshot;
use rm::call::FileKind;
use rm::graph::{IoctlRecord, MmapRecord, ObjectGraph};
use std::collections::HashMap;
use std::rc::Rc;
use tape::event::{IoctlBody, MmapBody};

/// A driver call that is not an ioctl, or one that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call<'a> {
    Ioctl { body: &'a IoctlBody, arg: &'a [u8], nested: &'a [u8] },
    Mmap(&'a MmapBody),
    Munmap { addr: u64, len: u64 },
    Mremap { old: u64, old_len: u64, new: u64, new_len: u64 },
    Open { fd: i32, file: FileKind, path: &'a [u8] },
    Close { fd: i32, file: FileKind },
    Dup { fd: i32, new: i32, file: FileKind },
}

/// Whether a recording names its driver version. One without a version was written by hand, or comes from the software
/// GPU.
fn has_version(driver: &str) -> bool {
    !matches!(driver, "" | "soft")
}

#[derive(Default)]
pub(crate) struct State {
    pub graph: ObjectGraph,
    pub qmds: Qmds,
    /// Driver calls that were passed to the graph.
    pub calls: u64,
    /// Doorbells on the tape.
    pub doorbells: u64,
    /// The slots' current channels.
    pub live: HashMap<u32, usize>,
    /// Kernels by their handles.
    pub kernels: HashMap<u64, Rc<Kernel>>,
    /// The same by the address of their code.
    pub codes: Codes,
    pub pauses: Pauses,
    pub ranges: Ranges,
    pub running: Running,
    /// Number of channels that each slot has had.
    generations: HashMap<u32, u32>,
}

impl State {
    /// The state for a recording on a driver of this version.
    pub fn of(driver: &str) -> State {
        let mut state = State::default();
        if has_version(driver) {
            state.graph.set_driver(driver);
        }
        state
    }

    /// Writes the state except for the driver's objects, which are rebuilt from its calls.
    pub fn save(&self, to: &mut Vec<u8>) {
        let kernels = self.kernels.iter().map(|(handle, kernel)| (*handle, kernel.symbol.clone()));
        kernels.collect::<Vec<_>>().save(to);
        self.qmds.save(to);
        self.codes.save(to);
        self.running.save(to);
        self.ranges.save(to);
        self.pauses.save(to);
        (self.calls, self.doorbells).save(to);
        self.live.save(to);
        self.generations.save(to);
    }

    /// Restores what `save` wrote. The driver's calls up to there must have been passed on already.
    pub fn load(&mut self, from: &mut &[u8]) -> Option<()> {
        let kernels: Vec<(u64, String)> = Snapshot::load(from)?;
        self.kernels = kernels.into_iter().map(|(h, symbol)| (h, Rc::new(Kernel::new(symbol.as_bytes())))).collect();
        self.qmds = Snapshot::load(from)?;
        self.codes = Snapshot::load(from)?;
        self.running = Snapshot::load(from)?;
        self.ranges = Snapshot::load(from)?;
        self.pauses = Snapshot::load(from)?;
        let (calls, doorbells): (u64, u64) = Snapshot::load(from)?;
        self.doorbells = doorbells;
        self.live = Snapshot::load(from)?;
        self.generations = Snapshot::load(from)?;
        (self.calls == calls).then_some(())
    }

    /// The number of the channel that begins in a slot.
    pub fn generation(&mut self, slot: u32) -> u32 {
        let next = self.generations.entry(slot).or_default();
        let generation = *next;
        *next = next.saturating_add(1);
        generation
    }

    /// Notes that a slot has had at least so many channels.
    pub fn had_channels(&mut self, slot: u32, many: u32) {
        let next = self.generations.entry(slot).or_default();
        *next = (*next).max(many);
    }

    pub fn name(&mut self, handle: u64, symbol: &[u8]) {
        if self.kernels.len() < MOST || self.kernels.contains_key(&handle) {
            self.kernels.insert(handle, Rc::new(Kernel::new(symbol)));
        }
    }

    /// A kernel's code may be at one of these words.
    pub fn object(&mut self, handle: u64, words: &[u8]) {
        if let Some(kernel) = self.kernels.get(&handle) {
            let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            self.codes.may_be_at(words, kernel);
        }
    }

    /// Passes a call to the graph.
    pub fn learn(&mut self, call: &Call<'_>) {
        self.calls += 1;
        let g = &mut self.graph;
        match *call {
            Call::Ioctl { body, arg, nested } => g.ioctl(IoctlRecord {
                fd: body.fd,
                file: FileKind::from_raw(body.file),
                request: body.request,
                ret: body.ret,
                arg,
                nested,
            }),
            Call::Mmap(m) => g.mmap(MmapRecord {
                addr: m.addr,
                len: m.len,
                offset: m.offset,
                fd: m.fd,
                prot: m.prot,
                flags: m.flags,
            }),
            Call::Munmap { addr, len } => g.munmap(addr, len),
            Call::Mremap { old, old_len, new, new_len } => g.mremap(old, old_len, new, new_len),
            Call::Open { fd, file, .. } => g.open(fd, file),
            Call::Close { fd, .. } => g.close(fd),
            Call::Dup { fd, new, .. } => g.dup(fd, new),
        }
    }
}
