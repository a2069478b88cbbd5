//! CUDA memory that transfers and pushbuffers may name: pinned once, valid as long as CUDA leaves it in place.
//!
//! [`Region`] lists the events that end a pin besides its drop, and those that cannot be seen.

use crate::error::Error;
use crate::lease::{Lease, Of};
use crate::pins::{OF_ANOTHER, Row, Witness, gpus, is_mapped_by_name, pieces};
use crate::region::{Owner, Region};
use crate::space::{AddressSpace, Grant};
use crate::watched::Watched;
use std::sync::Arc;

/// No address space has this number.
const NOBODY: u64 = u64::MAX;

/// A range of CUDA memory that may be named until this is dropped. The drop waits for submissions in flight.
#[derive(Debug)]
pub struct Pin {
    whole: Region,
    watched: &'static Watched,
    id: u64,
    place: rm::graph::Place,
    /// No submission names the memory (any more): it is only watched.
    watches: bool,
    /// It is another GPU's memory.
    elsewhere: bool,
}

impl AddressSpace {
    /// Lets transfers and pushbuffers name `length` bytes of CUDA memory at `va`, until the pin is dropped, or CUDA unmaps
    /// or frees them. Get the exact size from CUDA first (`cuMemGetAddressRange`): its mappings are coarser than its
    /// allocations.
    ///
    /// # Errors
    /// If part of the range is not mapped for this GPU, or it is managed memory.
    pub fn pin(self: &Arc<Self>, va: u64, length: u64) -> Result<Pin, Error> {
        self.pin_for(self.id(), va, length, None)
    }

    /// As [`AddressSpace::pin`]; later `witness` reports whether the allocation is still the one that was pinned.
    ///
    /// # Errors
    /// As [`AddressSpace::pin`].
    pub fn pin_with(self: &Arc<Self>, va: u64, length: u64, witness: Witness) -> Result<Pin, Error> {
        self.pin_for(self.id(), va, length, Some(witness))
    }

    /// As [`AddressSpace::pin_with`], for memory of another GPU. It has to be mapped for this GPU (peer access), and the call
    /// that did so must have been seen.
    ///
    /// # Errors
    /// As [`AddressSpace::pin`].
    pub fn pin_of_another(self: &Arc<Self>, va: u64, length: u64, witness: Witness) -> Result<Pin, Error> {
        let mut pin = self.pin_with(va, length, witness)?;
        pin.elsewhere = true;
        let seen =
            self.watched.is_some_and(|watched| is_mapped_by_name(&watched.graph(), va, length, self.device().uuid()));
        if seen { Ok(pin) } else { Err(Error::NotPinnable { va, length, why: OF_ANOTHER }) }
    }

    /// `whose`: the address space whose pushbuffers may name it.
    fn pin_for(self: &Arc<Self>, whose: u64, va: u64, length: u64, witness: Option<Witness>) -> Result<Pin, Error> {
        let refuse = |why| Error::NotPinnable { va, length, why };
        if self.device().forked() {
            return Err(Error::Forked);
        }
        let Some(watched) = self.watched else {
            return Err(refuse("this address space is not CUDA's: use its own memory"));
        };
        if va == 0 || length == 0 || va.checked_add(length).is_none() {
            return Err(refuse("no memory: the address is null or the length is"));
        }
        let gpu = self.device().uuid();
        let graph = watched.graph();
        let pieces = pieces(&graph, va, length, gpu).map_err(refuse)?;
        let place = graph.place_on(gpu, va).map_or(rm::graph::Place::Unknown, |found| found.place);
        let mut gpus = gpus(&graph, va, length);
        // Another GPU may have mapped it last, under its own handle.
        if !gpus.contains(&gpu) {
            gpus.push(gpu);
        }
        drop(graph);
        let lease = Lease::new(Of::Pin);
        let id = watched.pins.add(Row { id: 0, space: whose, va, length, gpu, pieces, witness, lease: lease.clone() });
        let whole = Region::new(self, Grant::Pin(id), Owner::Cuda, gpus.into(), &lease, (va, length));
        Ok(Pin { whole, watched, id, place, watches: false, elsewhere: false })
    }

    /// Watches the CUDA mappings that contain these addresses: one pin for each mapping. Its region is no longer live once
    /// CUDA has removed the mapping. Addresses without a known mapping are not watched. These pins do not wait when they are
    /// dropped.
    pub fn watch_mappings(self: &Arc<Self>, addresses: impl IntoIterator<Item = u64>) -> Vec<Pin> {
        let Some(watched) = self.watched else { return Vec::new() };
        let mut sorted: Vec<u64> = addresses.into_iter().collect();
        sorted.sort_unstable();
        let (mut found, mut covered) = (Vec::new(), 0);
        for address in sorted {
            if address < covered {
                continue;
            }
            let rest = watched.graph().place_on(self.device().uuid(), address).map(|at| at.rest);
            covered = address.saturating_add(rest.unwrap_or(0));
            found.extend(self.pin_for(NOBODY, address, 1, None).map(|mut pin| {
                pin.watches = true;
                pin
            }));
        }
        found
    }
}

impl Pin {
    /// No submission names it any more: the drop will not wait.
    pub(crate) fn let_go(&mut self) {
        self.watches = true;
    }

    /// The whole range.
    pub fn region(&self) -> &Region {
        &self.whole
    }

    pub fn va(&self) -> u64 {
        self.whole.va()
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.whole.length()
    }

    /// It is another GPU's memory: it has no place in this GPU's BAR1.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// The kind of memory at its first byte.
    pub fn place(&self) -> rm::graph::Place {
        self.place
    }

    pub fn space(&self) -> &Arc<AddressSpace> {
        self.whole.space()
    }
}

impl Pin {
    /// Ends the pin, even if others still hold it: from now on no submission may name the memory. Waits up to a second for
    /// submissions in flight, then stops the channels that take longer: the memory may be freed as soon as this returns,
    /// without further notice.
    pub fn end(&self) {
        self.watched.pins.remove(self.id);
        if self.watches {
            return;
        }
        let space = self.whole.space();
        // (Even if it was over before: the thread that ended it may still be waiting.)
        space.unmapped();
        if !space.device().forked() {
            space.wait_or_stop(self.whole.lease());
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.end();
    }
}
