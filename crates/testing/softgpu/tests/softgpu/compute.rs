//! Launches and report semaphores.

use crate::rig::*;
use std::sync::atomic::Ordering;

/// A QMD with fields set by bit.
struct Qmd(Vec<u32>);

impl Qmd {
    fn new(words: usize, major: u32) -> Qmd {
        let mut qmd = Qmd(vec![0; words]);
        qmd.set(580, major);
        qmd
    }

    fn set(&mut self, bit: usize, value: u32) {
        self.0[bit / 32] |= value << (bit % 32);
    }

    fn place(&self, rig: &Rig) -> u32 {
        rig.src.write(0x1000, &self.0.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
        ((SRC + 0x1000) >> 8) as u32
    }
}

fn launches(rig: &Rig) -> u64 {
    rig.counters().launches.load(Ordering::Relaxed)
}

#[test]
fn send_signaling_pcas2_b_launches() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    let qmd = Qmd::new(96, 4).place(&rig);
    for (n, action) in [2, 3, 9, 0xa].into_iter().enumerate() {
        channel.ok(&[inc(1, 0x2b4, &[qmd]), inc(1, 0x2c0, &[action])].concat());
        assert_eq!(launches(&rig), n as u64 + 1);
    }
    // INVALIDATE and PREFETCH do not.
    channel.ok(&[inc(1, 0x2c0, &[1]), inc(1, 0x2c0, &[8])].concat());
    assert_eq!(launches(&rig), 4);
    // INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING waits for a PCAS that schedules.
    channel.ok(&inc(1, 0x2c0, &[0xb]));
    assert_eq!(launches(&rig), 4);
    channel.ok(&inc(1, 0x2c0, &[2]));
    assert_eq!(launches(&rig), 5);
}

#[test]
fn send_signaling_pcas_b_launches() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    let qmd = Qmd::new(64, 3).place(&rig);
    channel.ok(&[inc(1, 0x2b4, &[qmd]), inc(1, 0x2bc, &[3])].concat());
    channel.ok(&inc(1, 0x2bc, &[1]));
    assert_eq!(launches(&rig), 1);
}

#[test]
fn a_v04_qmd_releases_its_three_semaphores() {
    let rig = Rig::new();
    let mut qmd = Qmd::new(96, 4);
    for i in 0..3 {
        let va = SRC + 0x40 * i as u64;
        qmd.set(320 + 16 * i, 1);
        qmd.set(321 + 16 * i, i as u32);
        qmd.set(332 + 16 * i, u32::from(i == 2));
        qmd.set(640 + 128 * i, lo(va));
        qmd.set(672 + 128 * i, hi(va));
        qmd.set(704 + 128 * i, 100 + i as u32);
        qmd.set(736 + 128 * i, 7);
    }
    let qmd = qmd.place(&rig);
    rig.compute_channel().ok(&[inc(1, 0x2b4, &[qmd]), inc(1, 0x2c0, &[3])].concat());
    assert_eq!((rig.src.u64(0), rig.src.u64(0x40), rig.src.u64(0x80)), (100, 101, 102 | 7 << 32));
    assert!(rig.src.u64(8) > 0, "four words have the time");
    assert_eq!(rig.src.u64(0x48), 0, "one word has not");
}

#[test]
fn a_v03_qmd_releases_its_semaphores() {
    let rig = Rig::new();
    let mut qmd = Qmd::new(64, 3);
    for (i, base) in [768, 896, 1664].into_iter().enumerate() {
        let va = SRC + 0x40 * i as u64;
        qmd.set(base + 55, 1);
        qmd.set(base + 62, 1);
        qmd.set(base, lo(va));
        qmd.set(base + 32, hi(va));
        qmd.set(base + 64, 200 + i as u32);
    }
    let qmd = qmd.place(&rig);
    rig.compute_channel().ok(&[inc(1, 0x2b4, &[qmd]), inc(1, 0x2bc, &[2])].concat());
    assert_eq!((rig.src.u32(0), rig.src.u32(0x40), rig.src.u32(0x80)), (200, 201, 202));
}

#[test]
fn inline_qmd_data_lands_at_its_address() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    let address = (DST + 0x1000) >> 8;
    channel.ok(&inc(1, 0x318, &[hi(address), lo(address)]));
    channel.ok(&inc(1, 0x320, &[11, 22, 33]));
    assert_eq!((rig.dst.u32(0x1000), rig.dst.u32(0x1004), rig.dst.u32(0x1008)), (11, 22, 33));
    channel.ok(&inc(1, 0x320 + 95 * 4, &[96]));
    assert_eq!(rig.dst.u32(0x1000 + 95 * 4), 96);
    let high = rig.memory(0x1ab_4000_0000, 0x1000, HOST);
    channel.ok(&inc(1, 0x318, &[hi(high.va >> 8), lo(high.va >> 8)]));
    channel.ok(&inc(1, 0x320, &[44]));
    assert_eq!(high.u32(0), 44);
}

#[test]
fn a_qmd_that_is_not_there_or_no_qmd_kills_the_channel() {
    let rig = Rig::new();
    let launch = |qmd: u32| [inc(1, 0x2b4, &[qmd]), inc(1, 0x2c0, &[3])].concat();
    assert_eq!(rig.compute_channel().run(&launch((NOWHERE >> 8) as u32)), Some(31));
    let empty = Qmd::new(64, 0).place(&rig);
    assert_eq!(rig.compute_channel().run(&launch(empty)), Some(13));
    assert_eq!(launches(&rig), 0);
}

fn report(va: u64, payload: u64, execute: u32) -> Vec<u32> {
    inc(1, 0x158, &[lo(payload), hi(payload), lo(va), hi(va), execute])
}

#[test]
fn report_semaphore_releases_one_two_and_four_words() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    rig.src.write(0, &[0xff; 64]);
    channel.ok(&report(SRC, 5, 1 << 3));
    assert_eq!((rig.src.u32(0), rig.src.u32(4)), (5, u32::MAX));
    channel.ok(&report(SRC + 16, 6, 2 << 3));
    assert_eq!((rig.src.u64(16), rig.src.u64(24)), (6, u64::MAX));
    channel.ok(&report(SRC + 32, 7 | 8 << 32, 1 << 12));
    assert_eq!(rig.src.u64(32), 7 | 8 << 32);
    assert_ne!(rig.src.u64(40), u64::MAX);
}

#[test]
fn report_semaphore_reduces() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    for (op, old, payload, new) in [(0, 5, 3, 8), (1, 5, 3, 3), (2, 5, 3, 5), (5, 6, 3, 2), (6, 6, 3, 7), (7, 6, 3, 5)]
    {
        rig.src.set(0, old);
        channel.ok(&report(SRC, payload, 1 << 3 | 1 << 6 | op << 7));
        assert_eq!(rig.src.u32(0), new, "operation {op}");
    }
}

#[test]
fn report_semaphore_acquire_blocks() {
    let rig = Rig::new();
    let (channel, other) = (rig.compute_channel(), rig.copy_channel());
    let get = channel.get();
    channel.push(&report(SRC, 5, 1 | 1 << 3));
    channel.bell();
    settle();
    assert_eq!(channel.get(), get);
    other.alive();
    rig.src.set(0, 5);
    assert_eq!(channel.finish(), None);
}

#[test]
fn report_semaphore_acquire_of_64_bits_compares_all_of_them() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    rig.src.set(0, 5);
    let get = channel.get();
    channel.push(&report(SRC, 5 | 1 << 32, 1 | 1 << 12));
    channel.bell();
    settle();
    assert_eq!(channel.get(), get);
    rig.src.set(4, 1);
    assert_eq!(channel.finish(), None);
}

#[test]
fn old_report_semaphore_releases() {
    let rig = Rig::new();
    let channel = rig.compute_channel();
    rig.src.write(0, &[0xff; 16]);
    channel.ok(&inc(1, 0x1b00, &[hi(SRC), lo(SRC), 77, 1 << 28]));
    assert_eq!((rig.src.u32(0), rig.src.u32(4)), (77, u32::MAX));
    rig.src.set(0, 40);
    channel.ok(&inc(1, 0x1b00, &[hi(SRC), lo(SRC), 2, 1 << 28 | 1 << 3]));
    assert_eq!(rig.src.u32(0), 42);
}

#[test]
fn state_methods_are_accepted() {
    let rig = Rig::new();
    // NO_OPERATION, WAIT_FOR_IDLE, SET_SHADER_SHARED_MEMORY_WINDOW_A
    let channel = rig.compute_channel();
    for address in [0x100, 0x110, 0x2a0] {
        channel.ok(&inc(1, address, &[0]));
    }
}
