//! Semaphores: 16 bytes that an engine releases and the CPU polls.

use crate::error::Error;
use crate::memory::Memory;
use crate::place::Place;
use crate::space::AddressSpace;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Payload @0, nanoseconds @8.
const SIZE: u64 = 16;
const COUNT: u64 = 256;

/// A page of semaphores.
#[derive(Clone, Debug)]
pub struct Semaphores {
    page: Arc<Page>,
}

#[derive(Debug)]
struct Page {
    memory: Arc<Memory>,
    /// One bit a slot.
    used: Mutex<[u64; (COUNT / 64) as usize]>,
    created: AtomicU64,
}

impl Semaphores {
    /// In host memory, where polling is cheapest.
    pub fn new(space: &Arc<AddressSpace>) -> Result<Semaphores, Error> {
        Semaphores::new_in(space, Place::Host)
    }

    /// In GPU memory each poll is a read over PCIe (about 1 us), and a release stays on the card.
    pub fn new_in(space: &Arc<AddressSpace>, place: Place) -> Result<Semaphores, Error> {
        let memory = match place {
            Place::Host => space.alloc_host(COUNT * SIZE)?,
            Place::Video => space.alloc_video(COUNT * SIZE)?,
        };
        Ok(Semaphores { page: Arc::new(Page { memory, used: Mutex::default(), created: AtomicU64::new(0) }) })
    }

    /// A semaphore that holds 0; `None` when all 256 are in use.
    pub fn alloc(&self) -> Option<Semaphore> {
        let mut used = poison::ignore(self.page.used.lock());
        let (word, bit) =
            used.iter().enumerate().find(|(_, w)| **w != u64::MAX).map(|(i, w)| (i, w.trailing_ones() as usize))?;
        used[word] |= 1 << bit;
        let offset = (word as u64 * 64 + bit as u64) * SIZE;
        self.page.created.fetch_add(1, Ordering::Relaxed);
        self.page.memory.word64(offset).store(0, Ordering::Relaxed);
        self.page.memory.word64(offset + 8).store(0, Ordering::Relaxed);
        Some(Semaphore { page: self.page.clone(), offset })
    }
}

/// One semaphore; its slot is free again on drop.
#[derive(Debug)]
pub struct Semaphore {
    page: Arc<Page>,
    offset: u64,
}

impl Semaphore {
    /// GPU address, a multiple of 16.
    pub fn va(&self) -> u64 {
        self.page.memory.va() + self.offset
    }

    pub(crate) fn space(&self) -> &Arc<AddressSpace> {
        self.page.memory.space()
    }

    /// The payload now.
    pub fn value(&self) -> u32 {
        // ORDERING: data released before the payload is visible with it.
        self.page.memory.word(self.offset).load(Ordering::Acquire)
    }

    /// Sets the payload from the CPU: releases a channel that waits for it.
    pub fn set(&self, value: u32) {
        // ORDERING: data written before is visible to the engine that acquires.
        self.page.memory.word(self.offset).store(value, Ordering::Release);
    }

    /// The GPU's time in nanoseconds at the last release with a timestamp.
    pub fn timestamp(&self) -> u64 {
        self.page.memory.word64(self.offset + 8).load(Ordering::Acquire)
    }

    pub fn poll(&self, wanted: u32) -> bool {
        self.value() == wanted
    }

    /// Spins, then yields, until the payload is `wanted`.
    pub fn wait(&self, wanted: u32, timeout: Duration) -> Result<(), Error> {
        for _ in 0..2000 {
            if self.poll(wanted) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let start = Instant::now();
        while !self.poll(wanted) {
            let after = start.elapsed();
            if after > timeout {
                return Err(Error::Timeout { wanted, found: self.value(), after });
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        let slot = self.offset / SIZE;
        let mut used = poison::ignore(self.page.used.lock());
        used[(slot / 64) as usize] &= !(1 << (slot % 64));
    }
}
