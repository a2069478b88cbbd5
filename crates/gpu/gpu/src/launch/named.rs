//! The memory that the words of a launch may name.

use super::Counter;
use crate::error::Error;
use crate::memory::Memory;
use crate::region::Region;
use crate::space::AddressSpace;
use crate::validate::Ranges;
use std::sync::Arc;

/// The memory that the words may name.
#[derive(Debug)]
pub struct Named {
    pub space: Arc<AddressSpace>,
    pub tracker: u64,
    pub memory: Vec<Arc<Memory>>,
    /// Memory of address spaces with the same addresses, kept as long as the launch.
    pub held: Vec<Arc<Memory>>,
    /// The counter that parts of a chain wait for.
    pub counter: Option<Counter>,
    pub touched: Vec<Region>,
    pub needed: Vec<Region>,
    /// The regions that parameters point to, each with the address of the parameter.
    pub pointers: Vec<(u64, Region)>,
}

impl Ranges for Named {
    fn contains(&self, va: u64, length: u64) -> bool {
        let tracker = va == self.tracker && length <= 16;
        let counter = length <= 4 && self.is_counter(va);
        tracker
            || counter
            || self.memory.iter().chain(&self.held).any(|memory| lies_in(memory, va, length))
            || self.touched.iter().any(|region| region.holds(va, length))
    }

    /// The tracker, the chain's counter, and words in the launch's own memory.
    fn may_hold(&self, va: u64) -> bool {
        va == self.tracker || self.is_counter(va) || self.memory.iter().any(|memory| lies_in(memory, va, 4))
    }
}

fn lies_in(memory: &Memory, va: u64, length: u64) -> bool {
    let offset = va.checked_sub(memory.va());
    offset.and_then(|offset| offset.checked_add(length)).is_some_and(|end| end <= memory.length())
}

impl Named {
    fn is_counter(&self, va: u64) -> bool {
        self.counter.as_ref().is_some_and(|counter| counter.va() == va)
    }

    pub fn all(&self) -> impl Iterator<Item = &Region> {
        self.touched.iter().chain(&self.needed).chain(self.pointers.iter().map(|(_, region)| region))
    }

    pub fn check(&self) -> Result<(), Error> {
        let gpu = self.space.device().uuid();
        if let Some(other) = self.memory.iter().find(|memory| !Arc::ptr_eq(memory.space(), &self.space)) {
            return Err(Error::OtherSpace { va: other.va() });
        }
        let elsewhere = self.held.iter().find(|memory| !memory.space().shares_addresses(&self.space));
        if let Some(other) =
            elsewhere.or(self.counter.as_ref().map(Counter::memory).filter(|m| !Arc::ptr_eq(m.space(), &self.space)))
        {
            return Err(Error::OtherSpace { va: other.va() });
        }
        self.all().try_for_each(|region| region.check(&self.space, gpu))
    }
}
