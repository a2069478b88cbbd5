//! A launch allocates nothing.

use crate::learn;
use crate::rig::{Rig, TIMEOUT};
use graph_words::Graph;
use launch::Set;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System` unchanged; the counter is a plain thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn launches_allocate_and_free_nothing_also_with_new_parameters() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = learn(&rig, &mut channel, &rig.logging(Graph::chain(10)));
    for with in [false, true] {
        let before = ALLOCATIONS.get();
        for n in 0..20u32 {
            let number = n.to_le_bytes();
            let set = [Set { node: 3, offset: 8, bytes: &number }, Set { node: 7, offset: 8, bytes: &number }];
            let ticket = ours.launch_with(&mut channel, if with { &set } else { &[] }).unwrap();
            channel.wait(ticket, TIMEOUT).unwrap();
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "new parameters: {with}");
    }
}
