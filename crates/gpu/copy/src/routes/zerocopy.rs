//! `host->zerocopy->gpu0`: a kernel uses pinned memory of the host as its operand, as programs do that never copy: each thread
//! loads one element of four bytes there and stores it to memory of the GPU (or loads it there and stores it to the host's).
//!
//! What differs from `sm`: that is a copy made for speed, with wide loads, several of them under way in a thread, and a grid of
//! the GPU's size. This is what a kernel gets that reads its input where it lies: one element a thread, as many threads as
//! elements, nothing staged. Where an address is no multiple of four, elements are bytes. Memory of the GPU holds the same bytes
//! afterwards, so that they can be compared.

use super::launched::{self, Kind, POLLED};
use crate::ends::both_ways;
use crate::entry::Entry;
use crate::error::Unavailable;
use crate::machine::Machine;
use crate::spec::{Memory, Spec, Word};

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
