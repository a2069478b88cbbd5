//! Host methods.

use crate::rig::*;
use std::sync::atomic::Ordering;

/// The channel waits at an acquire: it consumes no entry until `open` releases it.
#[track_caller]
fn blocks_until(rig: &Rig, words: &[u32], open: impl FnOnce()) {
    let (channel, other) = (rig.copy_channel(), rig.copy_channel());
    let get = channel.get();
    channel.push(words);
    channel.bell();
    settle();
    assert_eq!(channel.get(), get, "the acquire did not block");
    // Other channels continue in that time.
    other.alive();
    open();
    assert_eq!(channel.finish(), None);
}

#[test]
fn illegal_kills_the_channel() {
    let rig = Rig::new();
    assert_eq!(rig.copy_channel().run(&inc(0, 0x4, &[0])), Some(32));
}

#[test]
fn unknown_host_method_kills_the_channel() {
    let rig = Rig::new();
    assert_eq!(rig.copy_channel().run(&inc(0, 0xf0, &[0])), Some(32));
}

#[test]
fn nop_wfi_yield_interrupt_flush_and_clear_faulted_are_accepted() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    for address in [0x08, 0x20, 0x24, 0x78, 0x80, 0x84] {
        channel.ok(&inc(0, address, &[0]));
    }
    channel.alive();
}

#[test]
fn mem_op_membar_and_tlb_invalidate_are_accepted_and_unknown_operations_not() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ok(&inc(0, 0x28, &[0, 0, 0, 5 << 27]));
    channel.ok(&inc(0, 0x28, &[0, 0, 1, 9 << 27]));
    assert_eq!(channel.run(&inc(0, 0x28, &[0, 0, 0, 1 << 27])), Some(32));
}

#[test]
fn set_reference_shows_in_userd() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ok(&inc(0, 0x50, &[0x1234]));
    assert_eq!(channel.ring.u32(0x2048), 0x1234);
}

#[test]
fn release_32_bit_writes_four_bytes() {
    let rig = Rig::new();
    rig.src.write(0, &[0xff; 32]);
    rig.copy_channel().ok(&host_sem(SRC, 0x1_0000_0007, 1));
    assert_eq!(rig.src.u64(0), 0xffff_ffff_0000_0007);
}

#[test]
fn release_64_bit_writes_eight_bytes() {
    let rig = Rig::new();
    rig.src.write(0, &[0xff; 32]);
    rig.copy_channel().ok(&host_sem(SRC, 0x1_0000_0007, 1 | 1 << 24));
    assert_eq!((rig.src.u64(0), rig.src.u64(8)), (0x1_0000_0007, u64::MAX));
}

#[test]
fn release_with_timestamp_writes_sixteen_bytes_and_time_advances() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.ok(&host_sem(SRC, 7, 1 | 1 << 20 | 1 << 25));
    channel.ok(&host_sem(SRC + 16, 0x2_0000_0008, 1 | 1 << 24 | 1 << 25));
    assert_eq!((rig.src.u64(0), rig.src.u64(16)), (7, 0x2_0000_0008));
    let (first, second) = (rig.src.u64(8), rig.src.u64(24));
    assert!(first > 0 && first <= second && first % 32 == 0);
    assert_eq!(rig.counters().releases.load(Ordering::Relaxed), 2);
}

#[test]
fn misaligned_semaphores_kill_the_channel() {
    let rig = Rig::new();
    assert_eq!(rig.copy_channel().run(&host_sem(SRC + 8, 1, 1 | 1 << 25)), Some(32));
    assert_eq!(rig.copy_channel().run(&host_sem(SRC + 4, 1, 1 | 1 << 24)), Some(32));
}

#[test]
fn release_to_nowhere_is_an_mmu_fault() {
    let rig = Rig::new();
    let (channel, other) = (rig.copy_channel(), rig.copy_channel());
    assert_eq!(channel.run(&host_sem(NOWHERE, 1, 1)), Some(31));
    other.alive();
}

#[test]
fn acquire_waits_for_the_value() {
    let rig = Rig::new();
    blocks_until(&rig, &host_sem(SRC, 5, 1 << 12), || rig.src.set(0, 5));
    assert_eq!(rig.counters().acquires.load(Ordering::Relaxed), 1);
}

#[test]
fn acquire_64_bit_compares_all_of_it() {
    let rig = Rig::new();
    rig.src.set(0, 5);
    blocks_until(&rig, &host_sem(SRC, 0x1_0000_0005, 1 << 24), || rig.src.set(4, 1));
}

#[test]
fn acquire_strict_geq_compares_unsigned() {
    let rig = Rig::new();
    blocks_until(&rig, &host_sem(SRC, 0xffff_fff0, 2), || rig.src.set(0, 0xffff_fff1));
    // A circular comparison would hold here at once.
    rig.src.set(0, 3);
    blocks_until(&rig, &host_sem(SRC, 0xffff_fff0, 2), || rig.src.set(0, u32::MAX));
}

#[test]
fn acquire_circ_geq_compares_modulo() {
    let rig = Rig::new();
    rig.src.set(0, 3);
    rig.copy_channel().ok(&host_sem(SRC, 0xffff_fff0, 3));
    blocks_until(&rig, &host_sem(SRC, 4, 3), || rig.src.set(0, 4));
}

#[test]
fn acquire_and_waits_for_a_common_bit() {
    let rig = Rig::new();
    rig.src.set(0, 0b0100);
    blocks_until(&rig, &host_sem(SRC, 0b0011, 4), || rig.src.set(0, 0b0010));
}

#[test]
fn acquire_nor_waits_for_a_bit_clear_in_both() {
    let rig = Rig::new();
    rig.src.set(0, u32::MAX);
    blocks_until(&rig, &host_sem(SRC, 0xffff_fff0, 5), || rig.src.set(0, 0xffff_fff0));
}

#[test]
fn one_channel_releases_another() {
    let rig = Rig::new();
    let (waiting, releasing) = (rig.copy_channel(), rig.copy_channel());
    waiting.push(&[host_sem(SRC, 1, 0), host_sem(SRC + 64, 2, 1)].concat());
    waiting.bell();
    settle();
    assert_eq!(rig.src.u32(64), 0);
    releasing.ok(&host_sem(SRC, 1, 1));
    assert_eq!(waiting.finish(), None);
    assert_eq!(rig.src.u32(64), 2);
}

#[test]
fn reduction_of_every_kind() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let unsigned = 1 << 31;
    for (op, flags, old, payload, new) in [
        (0, unsigned, 5, 3, 3),
        (0, 0, 5, 0xffff_ffff, 0xffff_ffff),
        (1, unsigned, 5, 9, 9),
        (1, 0, 5, 0xffff_ffff, 5),
        (2, unsigned, 0b1100, 0b1010, 0b0110),
        (3, unsigned, 0b1100, 0b1010, 0b1000),
        (4, unsigned, 0b1100, 0b1010, 0b1110),
        (5, unsigned, 5, 3, 8),
        (6, unsigned, 5, 5, 0),
        (6, unsigned, 4, 5, 5),
        (7, unsigned, 0, 5, 5),
        (7, unsigned, 3, 5, 2),
    ] {
        rig.src.set(0, old);
        channel.ok(&host_sem(SRC, payload, 6 | op << 27 | flags));
        assert_eq!(rig.src.u32(0), new, "operation {op}");
    }
}

#[test]
fn old_semaphore_release_in_both_sizes() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    rig.src.write(0, &[0xff; 32]);
    channel.ok(&inc(0, 0x10, &[hi(SRC), lo(SRC), 9, 2 | 1 << 24 | 1 << 20]));
    assert_eq!((rig.src.u32(0), rig.src.u32(4)), (9, u32::MAX));
    channel.ok(&inc(0, 0x10, &[hi(SRC), lo(SRC), 10, 2]));
    assert_eq!(rig.src.u64(0), 10);
    assert!(rig.src.u64(8) > 0 && rig.src.u64(8) != u64::MAX);
}

#[test]
fn old_semaphore_acquires_equal_geq_and_and() {
    let rig = Rig::new();
    let old = |payload, operation| inc(0, 0x10, &[hi(SRC), lo(SRC), payload, operation]);
    blocks_until(&rig, &old(5, 1), || rig.src.set(0, 5));
    blocks_until(&rig, &old(6, 4), || rig.src.set(0, 7));
    blocks_until(&rig, &old(8, 8), || rig.src.set(0, 9));
}

#[test]
fn old_semaphore_reduction_adds() {
    let rig = Rig::new();
    rig.src.set(0, 40);
    rig.copy_channel().ok(&inc(0, 0x10, &[hi(SRC), lo(SRC), 2, 0x10 | 5 << 27 | 1 << 31]));
    assert_eq!(rig.src.u32(0), 42);
}

#[test]
fn unknown_semaphore_operations_kill_the_channel() {
    let rig = Rig::new();
    assert_eq!(rig.copy_channel().run(&host_sem(SRC, 0, 7)), Some(32));
    assert_eq!(rig.copy_channel().run(&inc(0, 0x1c, &[0])), Some(32));
}
