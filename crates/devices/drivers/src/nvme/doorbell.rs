//! Doorbells: registers, and their shadows in memory if the controller supports those (Base 1.4, section 7.13).

use pcie::{Bar, Memory};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The doorbell of one end of a queue.
pub(crate) struct Doorbell {
    registers: Bar,
    offset: u64,
    shadow: Option<Shadow>,
}

/// A doorbell in memory, and the value up to which the controller polls that memory.
pub(crate) struct Shadow {
    value: NonNull<AtomicU32>,
    event: NonNull<AtomicU32>,
    _memory: Memory,
}

// SAFETY: the pointers are to memory that `_memory` keeps, and are used as atomics alone.
unsafe impl Send for Shadow {}

impl Shadow {
    /// The shadow of the doorbell `at` bytes after the first one. The memory's first page has the doorbells, its second page the events. Both are
    /// zeroed: a new queue begins at its first entry.
    pub(crate) fn new(memory: &Memory, at: u64, page: u64) -> Option<Shadow> {
        let base = memory.as_ptr()?;
        let fits = at.is_multiple_of(4) && at + 4 <= page && memory.holds(0, 2 * page).is_ok();
        let place = |offset: u64| {
            // SAFETY: within the memory's two pages, as was just checked; aligned, because pages are.
            unsafe { base.add(offset as usize) }.cast::<AtomicU32>()
        };
        let shadow = fits.then(|| Shadow { value: place(at), event: place(page + at), _memory: memory.clone() })?;
        shadow.value().store(0, Ordering::Relaxed);
        shadow.event().store(0, Ordering::Relaxed);
        Some(shadow)
    }

    fn value(&self) -> &AtomicU32 {
        // SAFETY: kept by `_memory`, aligned; the controller writes it as one word.
        unsafe { self.value.as_ref() }
    }

    fn event(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.event.as_ref() }
    }
}

/// Whether the step from `old` to `new` passes the value at which the controller needs the register written.
fn passes(event: u32, new: u32, old: u32) -> bool {
    let steps = |from: u32| (new as u16).wrapping_sub(from as u16);
    steps(event).wrapping_sub(1) < steps(old)
}

/// Shows the last value given to the controller and the event, if there is a shadow.
impl fmt::Debug for Doorbell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Doorbell");
        if let Some(shadow) = &self.shadow {
            shown.field("shadow", &shadow.value().load(Ordering::Relaxed));
            shown.field("event", &shadow.event().load(Ordering::Relaxed));
        }
        shown.finish_non_exhaustive()
    }
}

impl Doorbell {
    pub(crate) fn new(registers: Bar, offset: u64, shadow: Option<Shadow>) -> Doorbell {
        Doorbell { registers, offset, shadow }
    }

    /// Rings the doorbell. The register is written only if the controller is not polling the shadow.
    #[inline]
    pub(crate) fn ring(&self, new: u32, old: u32) {
        if let Some(shadow) = &self.shadow {
            // ORDERING: entries written before are seen by a controller that sees this value.
            shadow.value().store(new, Ordering::Release);
            // ORDERING: the value is visible before the event is read. The controller writes the event and then reads the value again, so at least
            // one of the two sees the other's store.
            fence(Ordering::SeqCst);
            if !passes(shadow.event().load(Ordering::Relaxed), new, old) {
                return;
            }
        }
        // ORDERING: entries are in memory before the doorbell is rung. On x86-64 stores become visible in their order, so this keeps the
        // compiler from moving them.
        fence(Ordering::Release);
        self.registers.store32(self.offset, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcie::{Place, Registers, Run};
    use std::sync::Arc;

    #[derive(Default)]
    struct Stores(std::sync::Mutex<Vec<(u64, u32)>>);

    impl Registers for Stores {
        fn load32(&self, _: u64) -> u32 {
            0
        }

        fn store32(&self, offset: u64, value: u32) {
            self.0.lock().unwrap().push((offset, value));
        }
    }

    #[test]
    fn the_register_is_written_only_where_the_controller_asks() {
        let pages: Arc<Box<[u64; 1024]>> = Arc::new(Box::new([7; 1024]));
        let base = NonNull::from(&**pages).cast::<u8>();
        let runs = vec![Run { offset: 0, bus: 0x8000, length: 8192 }];
        // SAFETY: the box lives as long as the memory does.
        let memory = unsafe { Memory::new(Place::Host, runs, Some(base), pages.clone()) };
        let stores = Arc::new(Stores::default());
        let bar = Bar::elsewhere(stores.clone(), 0x2000, 0);
        let shadow = Shadow::new(&memory, 8, 4096).unwrap();
        let event = NonNull::from(shadow.event());
        let bell = Doorbell::new(bar.clone(), 0x1008, Some(shadow));
        bell.ring(1, 0);
        bell.ring(2, 1);
        // SAFETY: `memory` lives.
        unsafe { event.as_ref() }.store(5, Ordering::Relaxed);
        for new in 3..8 {
            bell.ring(new, new - 1);
        }
        assert_eq!(*stores.0.lock().unwrap(), [(0x1008, 1), (0x1008, 6)]);
        assert_eq!(bell.shadow.as_ref().unwrap().value().load(Ordering::Relaxed), 7);
        Doorbell::new(bar, 0x100c, None).ring(9, 8);
        assert_eq!(stores.0.lock().unwrap().last(), Some(&(0x100c, 9)));
        assert!(Shadow::new(&memory, 4096, 4096).is_none() && Shadow::new(&memory, 2, 4096).is_none());
    }
}
