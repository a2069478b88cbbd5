//! `host->sm->gpu0`: a kernel launched for each transfer copies with loads and stores of 16 bytes. It copies between pinned host
//! memory and GPU memory in either direction, within the GPU's memory, or between it and the memory of another GPU that it
//! reaches.
//!
//! Its grid has a block for each 8 KiB, at most one for each multiprocessor, or as many as `blocks=N` gives. It is the only route
//! here whose bytes the multiprocessors carry as fast as they can. A program's own kernels wait or share them during the copy.

use super::launched::{self, Kind, POLLED};
use crate::ends::{between_gpus, both_ways};
use crate::entry::{Entry, number};
use crate::machine::Machine;
use crate::spec::{Executor, Spec, Word};
use machine::Unavailable;

const BLOCKS: &str = "blocks=";
/// More than any GPU runs at the same time.
const MOST_BLOCKS: u32 = 4096;

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "sm", numbered: false, options: &[POLLED, BLOCKS] },
    about: |_, spec| {
        let end =
            if spec.executor.has(POLLED) { "the kernel writes its end to host memory" } else { "CUDA says its end" };
        format!("a kernel launched for each copy: 16 bytes a load, a block for each 8 KiB or blocks=N; {end}")
    },
    list,
    check,
    open: |machine, spec| {
        let blocks = blocks(&spec.executor)?;
        launched::open(machine, spec, Kind::Sm { blocks })
    },
};

fn list(machine: &Machine) -> Vec<String> {
    let host = ["sm", "sm[polled]"].map(|sm| both_ways(machine, "host", sm)).concat();
    [host, between_gpus(machine, "sm[polled]")].concat()
}

fn blocks(executor: &Executor) -> Result<Option<u32>, Unavailable> {
    number(executor, BLOCKS, 1..=MOST_BLOCKS, &format!("a grid has one number of blocks, 1 to {MOST_BLOCKS}"))
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    blocks(&spec.executor)?;
    launched::check(machine, spec)
}
