//! Accesses through a BAR1 map make no allocation and no system call. (A wait for a lock is a system call.)

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Bar1Map, Device};
use std::sync::Arc;
use test_support::counting::{Counting, cost, watch_system_calls};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn writes_and_reads_allocate_nothing_and_make_no_system_call() {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let memory = space.alloc_video(1 << 20).unwrap();
    let map = Bar1Map::of(&memory, 0x30, 0x80000).unwrap();
    let data: Vec<u8> = (0..0x40000u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    let mut back = vec![0; data.len()];
    let work = |back: &mut [u8]| {
        let mut good = true;
        for (length, offset) in [(1, 0), (4, 0x14), (63, 5), (64, 0x10), (4096, 3), (0x40000, 0x30001)] {
            good &= map.write(offset, &data[..length]).is_ok();
            good &= map.read(offset, &mut back[..length]).is_ok() && back[..length] == data[..length];
        }
        good &= map.store32(0x10, 7).is_ok() && map.load32(0x10).is_ok_and(|value| value == 7);
        good &= map.store64(0x10, 8).is_ok() && map.load64(0x10).is_ok_and(|value| value == 8);
        // Nor do errors.
        good && map.write(0x80000, &data[..1]).is_err() && map.store32(1, 0).is_err()
    };
    assert!(work(&mut back), "what is written comes back");
    let watched = watch_system_calls();
    let mut good = true;
    let spent = cost(watched, || good = (0..20).all(|_| work(&mut back)));
    assert_eq!((spent, good), ((0, 0), true));
    assert!(cost(false, || drop(vec![0u8; 64])).0 > 0, "the counter counts");
    if !watched {
        test_support::skip!("system calls not looked at: this kernel has no syscall user dispatch");
    }
    let seen = cost(true, || {
        // SAFETY: no arguments.
        let _ = unsafe { libc::getppid() };
    });
    assert_eq!(seen.1, 1, "the gate works");
}
