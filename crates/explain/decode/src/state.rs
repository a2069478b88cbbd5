//! What is known of one process image while its events are read: its driver objects, which channel has which slot, and the
//! QMDs in its memory. Images share none of it.

use crate::gpu_times::Running;
use crate::kernel::{Codes, Kernel, MOST};
use crate::pauses::Pauses;
use crate::qmds::Qmds;
use crate::ranges::Ranges;
use rm::call::FileKind;
use rm::graph::{IoctlRecord, MmapRecord, ObjectGraph};
use std::cell::RefCell;
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

/// Whether a recording says its driver. One that does not was written by hand, or is of the software GPU.
fn has_version(driver: &str) -> bool {
    !matches!(driver, "" | "soft")
}

#[derive(Default)]
pub(crate) struct State {
    pub graph: ObjectGraph,
    pub qmds: RefCell<Qmds>,
    /// Driver calls that the graph was told of.
    pub calls: u64,
    /// Doorbells on the tape.
    pub doorbells: u64,
    /// Slot to the channel that has it now.
    pub live: HashMap<u32, usize>,
    /// Kernels by their handles.
    pub kernels: HashMap<u64, Rc<Kernel>>,
    /// The same by the address of their code.
    pub codes: RefCell<Codes>,
    pub pauses: Pauses,
    pub ranges: Ranges,
    pub running: RefCell<Running>,
    /// How many channels a slot has had.
    generations: HashMap<u32, u32>,
}

impl State {
    /// Of a recording on a driver of this version.
    pub fn of(driver: &str) -> State {
        let mut state = State::default();
        if has_version(driver) {
            state.graph.set_driver(driver);
        }
        state
    }

    /// The number of the channel that begins in a slot.
    pub fn generation(&mut self, slot: u32) -> u32 {
        let next = self.generations.entry(slot).or_default();
        let generation = *next;
        *next = next.saturating_add(1);
        generation
    }

    /// A slot has had so many channels, at least.
    pub fn had_channels(&mut self, slot: u32, many: u32) {
        let next = self.generations.entry(slot).or_default();
        *next = (*next).max(many);
    }

    pub fn name(&mut self, handle: u64, symbol: &[u8]) {
        if self.kernels.len() < MOST || self.kernels.contains_key(&handle) {
            self.kernels.insert(handle, Rc::new(Kernel::new(symbol)));
        }
    }

    /// Tells the graph of a call.
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
