//! `host->sm->gpu0`: a kernel that is launched for each transfer copies with 16 bytes a load and store, between pinned memory of the
//! host and memory of the GPU, either way, within the GPU's, or between it and that of another GPU that it reaches.
//!
//! Its grid has a block for each 8 KiB, up to one for each multiprocessor, or as many as `blocks=N` says. It is the one way here
//! whose bytes the multiprocessors carry as fast as they can; a program's own kernels wait or share them meanwhile.

use super::launched::{self, Kind, POLLED};
use crate::ends::between_gpus;
use crate::entry::Entry;
use crate::error::Unavailable;
use crate::machine::Machine;
use crate::spec::{Spec, Word};

const BLOCKS: &str = "blocks=";
/// More than any GPU runs at once.
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
        let blocks = spec.executor.numbers(BLOCKS).and_then(|numbers| numbers.first().copied());
        launched::open(machine, spec, Kind::Sm { blocks })
    },
};

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    let mut names = Vec::new();
    for sm in ["sm", "sm[polled]"] {
        names.push(format!("host->{sm}->gpu{gpu}"));
        names.push(format!("gpu{gpu}->{sm}->host"));
    }
    names.extend(between_gpus(machine, "sm[polled]"));
    names
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    match spec.executor.numbers(BLOCKS) {
        None => {}
        Some([blocks]) if (1..=MOST_BLOCKS).contains(blocks) => {}
        Some(_) => return Err(Unavailable::new(format!("a grid has one number of blocks, 1 to {MOST_BLOCKS}"))),
    }
    launched::check(machine, spec)
}
