//! Each planted fault has its effect, and a repaired GPU works again.

use crate::rig::*;
use doorbell_softgpu::Planted;

const SEMAPHORE: u64 = SRC + 0x8000;
const RELEASE_TIMED: u32 = 0x0210_0001;

#[test]
fn a_short_copy_lacks_its_last_byte_and_a_long_one_has_one_more() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    // 64 KiB and a byte: the missing byte is a separate chunk.
    for len in [1usize, 8, 4096, 65536, 65537] {
        let data = noise(len, len as u64);
        rig.src.write(0, &data);
        rig.dst.write(0, &vec![0xee; len + 2]);
        rig.driver.machine.plant(Some(Planted::ShortCopy));
        channel.ok(&copy(SRC, DST, len as u32, 0x182));
        assert_eq!(rig.dst.read(0, len - 1), data[..len - 1]);
        assert_eq!(rig.dst.read(len - 1, 2), [0xee; 2]);
        rig.driver.machine.plant(Some(Planted::LongCopy));
        channel.ok(&copy(SRC, DST, len as u32, 0x182));
        assert_eq!(rig.dst.read(0, len), data);
        assert_eq!(rig.dst.read(len, 2), [0x11, 0xee]);
        rig.driver.machine.plant(None);
        rig.dst.write(0, &vec![0xee; len + 2]);
        channel.ok(&copy(SRC, DST, len as u32, 0x182));
        assert_eq!(rig.dst.read(0, len), data);
        assert_eq!(rig.dst.read(len, 2), [0xee; 2]);
    }
    rig.driver.machine.plant(Some(Planted::LongCopy));
    // Nothing is mapped past the end of the memory: no byte more, and no fault.
    channel.ok(&copy(SRC, DST + DATA - 8, 8, 0x182));
}

#[test]
fn a_slow_copy_copies_every_byte_and_takes_longer() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let data = noise(DATA as usize / 2, 7);
    let took = |times| {
        rig.driver.machine.plant(times);
        rig.src.write(0, &data);
        rig.dst.write(0, &vec![0xee; data.len()]);
        let began = std::time::Instant::now();
        channel.ok(&copy(SRC, DST, data.len() as u32, 0x182));
        let took = began.elapsed();
        assert_eq!(rig.dst.read(0, data.len()), data);
        took
    };
    let usual = (0..5).map(|_| took(None)).max().unwrap();
    let slow = (0..5).map(|_| took(Some(Planted::SlowCopy { times: 1000 }))).min().unwrap();
    assert!(slow > usual, "{slow:?} {usual:?}");
    assert_eq!(Planted::parse("slow-copy:3"), Ok(Planted::SlowCopy { times: 3 }));
}

#[test]
fn a_lost_release_leaves_the_word_and_the_channel_continues() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    rig.src.set(0x8000, 5);
    rig.driver.machine.plant(Some(Planted::LostRelease { from: 1 }));
    channel.ok(&host_sem(SEMAPHORE, 6, RELEASE_TIMED));
    assert_eq!(rig.src.u32(0x8000), 5);
    rig.driver.machine.plant(None);
    channel.ok(&host_sem(SEMAPHORE, 6, RELEASE_TIMED));
    assert_eq!(rig.src.u32(0x8000), 6);
}

#[test]
fn a_channel_dies_at_its_entry_with_the_notifier_of_a_real_one() {
    let rig = Rig::new();
    rig.driver.machine.plant(Some(Planted::DeadChannel { entry: 3, xid: 69 }));
    let channel = rig.copy_channel();
    channel.ok(&host_sem(SEMAPHORE, 1, 1));
    assert_eq!(channel.run(&host_sem(SEMAPHORE, 2, 1)), Some(69));
    assert_eq!(rig.src.u32(0x8000), 1, "the entry that kills is not executed");
    assert_eq!(channel.notifier.u32(12) >> 16, 0xffff);
    rig.driver.machine.plant(None);
    rig.copy_channel().alive();
}

#[test]
fn every_second_timestamp_goes_backwards() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    rig.driver.machine.plant(Some(Planted::ClockBack));
    let times: Vec<u64> = (0..4)
        .map(|n| {
            channel.ok(&host_sem(SEMAPHORE, n, RELEASE_TIMED));
            rig.src.u64(0x8008)
        })
        .collect();
    assert!(times[1] < times[0] && times[1] < times[2] && times[3] < times[2], "{times:?}");
}
