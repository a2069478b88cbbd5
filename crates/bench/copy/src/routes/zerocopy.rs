//! `host->zerocopy->gpu0`: a kernel uses pinned host memory as its operand, as programs do that never copy. Each thread loads one
//! element of four bytes there and stores it to GPU memory (or loads from GPU memory and stores to host memory).
//!
//! The difference from `sm`: that is a copy made for speed, with wide loads, several pending loads in a thread, and a grid of the
//! GPU's size. This shows the speed of a kernel that reads its input in place: one element for each thread, as many threads as
//! elements, no staging. Where an address is not a multiple of four, elements are bytes. GPU memory has the same bytes
//! afterwards, so that they can be compared.

use super::launched::{self, Kind, POLLED};
use crate::ends::both_ways;
use crate::entry::Entry;
use crate::machine::Machine;
use crate::spec::{Memory, Spec, Word};
use machine::Unavailable;

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "zerocopy", numbered: false, options: &[POLLED] },
    about: |_, _| {
        "a kernel whose operand is pinned host memory: each thread loads one element and stores it; unlike sm, no copy made for speed"
            .into()
    },
    list: |machine| ["zerocopy", "zerocopy[polled]"].map(|way| both_ways(machine, "host", way)).concat(),
    check,
    open: |machine, spec| launched::open(machine, spec, Kind::Zerocopy),
};

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    launched::check(machine, spec)?;
    let is_host = |memory| matches!(memory, Memory::Host(_));
    if is_host(spec.source.memory) || is_host(spec.destination.memory) {
        Ok(())
    } else {
        Err(Unavailable::new("zerocopy is an access to host memory: between memories of the GPU there is sm"))
    }
}
