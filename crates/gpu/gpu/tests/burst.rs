//! Bursts on the software GPU: copies of one length, aimed at each submission, many with one doorbell, and none outside of its
//! regions.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Burst, Channel, ChannelOptions, Copies, CopyMode, CopyRelease, Device, Engine, Error, Memory, Place,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const PLAIN: (CopyMode, CopyRelease) = (CopyMode::Plain, CopyRelease::Word);
const SIZE: u64 = 1 << 16;

struct Rig {
    driver: SoftDriver,
    channel: Channel,
    source: Arc<Memory>,
    target: Arc<Memory>,
}

fn rig(pushbuffer: Place) -> Rig {
    let driver = SoftDriver::new(Mode::Strict);
    let space = AddressSpace::new(&Device::open(Arc::new(driver), 0).unwrap()).unwrap();
    let options = ChannelOptions { pushbuffer, ..Default::default() };
    Rig {
        driver,
        channel: Channel::new(&space, Engine::Copy(2), options).unwrap(),
        source: space.alloc_host(SIZE).unwrap(),
        target: space.alloc_video(SIZE).unwrap(),
    }
}

/// SplitMix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

/// Each submission has another number of copies, from and to anywhere: short submissions precede long ones in the same slots.
#[test]
fn any_number_of_copies_arrives_where_each_was_sent_behind_one_doorbell() {
    let mut noise = Noise(5);
    for (pushbuffer, mode) in [
        (Place::Video, CopyMode::Plain),
        (Place::Video, CopyMode::Pipelined),
        (Place::Host, CopyMode::Pipelined),
        (Place::Host, CopyMode::Folded),
    ] {
        let Rig { driver, mut channel, source, target } = rig(pushbuffer);
        let regions = (&target.region(), &source.region());
        for most in [1, 2, 9, 128] {
            let bytes = [1, 64, 100][noise.next() as usize % 3];
            let way = (mode, CopyRelease::Word);
            let mut burst = Burst::new(&mut channel, regions, bytes as u32, way, (most, 3)).unwrap();
            let mut expected = vec![0x5a; SIZE as usize];
            target.write(0, &expected);
            for round in 0..12 {
                let sent: Vec<u8> = (0..SIZE / 8).flat_map(|_| noise.next().to_le_bytes()).collect();
                source.write(0, &sent);
                let count = if round % 4 == 3 { most } else { 1 + noise.next() as usize % most };
                let doorbells = || driver.counters().doorbells.load(Ordering::Relaxed);
                let before = (doorbells(), u64::from(channel.rung_again()));
                for n in 0..count as u64 {
                    // No two to the same place: their order is unknown.
                    let (to, from) = ((n * 37 + round) % 256 * 256 + noise.next() % 100, noise.next() % (SIZE - bytes));
                    burst.add(&channel, target.va() + to, source.va() + from).unwrap();
                    let (to, from, bytes) = (to as usize, from as usize, bytes as usize);
                    expected[to..to + bytes].copy_from_slice(&sent[from..from + bytes]);
                }
                assert_eq!(burst.added(), count);
                let ticket = burst.submit(&mut channel).unwrap();
                assert_eq!(burst.added(), 0);
                channel.wait(ticket, TIMEOUT).unwrap();
                // A wait without progress rings again.
                let again = u64::from(channel.rung_again()) - before.1;
                assert_eq!(doorbells() - before.0 - again, 1);
                let mut found = vec![0; SIZE as usize];
                target.read(0, &mut found);
                assert!(found == expected, "{pushbuffer:?}, {mode:?}: {count} of {most}, round {round}");
            }
        }
        assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
    }
}

/// The upper half of the address changes within the source, so it is written for each copy.
#[test]
fn a_source_may_lie_on_both_sides_of_four_gib() {
    const GIB_4: u64 = 4 << 30;
    let Rig { driver, mut channel, target, .. } = rig(Place::Video);
    let source = target.space().alloc_host(GIB_4).unwrap();
    let border = source.va().next_multiple_of(GIB_4) - source.va();
    let around = source.region().part(border - 0x1000, 0x2000).unwrap();
    let mut burst = Burst::new(&mut channel, (&target.region(), &around), 64, PLAIN, (8, 2)).unwrap();
    for round in 0..3u64 {
        for n in 0..8 {
            let at = border - 0x1000 + n * 0x400 + round;
            source.write(at, &[(8 * round + n + 1) as u8; 64]);
            burst.add(&channel, target.va() + n * 64, source.va() + at).unwrap();
        }
        let ticket = burst.submit(&mut channel).unwrap();
        channel.wait(ticket, TIMEOUT).unwrap();
        for n in 0..8 {
            let mut found = [0; 64];
            target.read(n * 64, &mut found);
            assert_eq!(found, [(8 * round + n + 1) as u8; 64]);
        }
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// Planted: addresses that are outside by a byte at either end, far away, and about to wrap.
#[test]
fn a_copy_outside_its_regions_is_refused_and_the_others_go() {
    let Rig { driver, mut channel, source, target } = rig(Place::Video);
    let (to, from) = (target.region().part(4096, 4096).unwrap(), source.region().part(4096, 4096).unwrap());
    let mut burst = Burst::new(&mut channel, (&to, &from), 64, PLAIN, (2, 2)).unwrap();
    source.write(0, &[7; SIZE as usize]);
    target.write(0, &[1; SIZE as usize]);
    let doorbells = || driver.counters().doorbells.load(Ordering::Relaxed);
    let before = doorbells();
    assert!(matches!(burst.submit(&mut channel), Err(Error::Length(0))));
    burst.add(&channel, to.va(), from.va()).unwrap();
    for (to, from) in [
        (to.va() - 1, from.va()),
        (to.va() + 4096 - 63, from.va()),
        (to.va(), from.va() - 1),
        (to.va(), from.va() + 4096 - 63),
        (source.va(), from.va()),
        (0, from.va()),
        (to.va(), u64::MAX - 3),
    ] {
        let refused = burst.add(&channel, to, from).unwrap_err();
        assert!(matches!(refused, Error::OutsideRegion { length: 64, .. }), "{to:#x} {from:#x}: {refused}");
    }
    burst.add(&channel, to.va() + 4096 - 64, from.va() + 4096 - 64).unwrap();
    assert!(matches!(burst.add(&channel, to.va(), from.va()), Err(Error::Length(3))));
    assert_eq!(doorbells(), before, "nothing was rung");
    let ticket = burst.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    let mut found = vec![0; SIZE as usize];
    target.read(0, &mut found);
    let is_there = |at: usize| (4096..4160).contains(&at) || (8192 - 64..8192).contains(&at);
    assert!(found.iter().enumerate().all(|(at, byte)| *byte == if is_there(at) { 7 } else { 1 }));
}

#[test]
fn what_cannot_be_made_says_why() {
    let Rig { mut channel, source, target, .. } = rig(Place::Video);
    let (to, from) = (target.region(), source.region());
    for (bytes, sizes) in [(0, (1, 1)), (64, (0, 1)), (64, (Burst::MOST + 1, 1)), (64, (1, 0))] {
        let refused = Burst::new(&mut channel, (&to, &from), bytes, PLAIN, sizes).unwrap_err();
        assert!(matches!(refused, Error::Length(_)), "{refused}");
    }
    let short = source.region().part(0, 63).unwrap();
    for regions in [(&to, &short), (&short, &from)] {
        let refused = Burst::new(&mut channel, regions, 64, PLAIN, (1, 1)).unwrap_err();
        assert!(matches!(refused, Error::OutsideRegion { .. }), "{refused}");
    }
    let mut burst = Burst::new(&mut channel, (&to, &from), 64, PLAIN, (1, 1)).unwrap();
    let mut other = Channel::new(source.space(), Engine::Copy(2), ChannelOptions::default()).unwrap();
    assert!(matches!(burst.add(&other, to.va(), from.va()), Err(Error::OtherChannel)));
    burst.add(&channel, to.va(), from.va()).unwrap();
    assert!(matches!(burst.submit(&mut other), Err(Error::OtherChannel)));
    let mut graphics = Channel::new(source.space(), Engine::Graphics, ChannelOptions::default()).unwrap();
    let refused = Burst::new(&mut graphics, (&to, &from), 64, PLAIN, (1, 1)).unwrap_err();
    assert!(matches!(refused, Error::OtherChannel), "{refused}");
}

/// The channel waits for a word, so the GPU finishes no slot.
#[test]
fn a_slot_that_is_under_way_is_not_written() {
    let Rig { mut channel, source, target, .. } = rig(Place::Video);
    let mut burst = Burst::new(&mut channel, (&target.region(), &source.region()), 8, PLAIN, (2, 2)).unwrap();
    let word = source.space().alloc_host(0x1000).unwrap();
    let mut copies = Copies::new(&mut channel).unwrap();
    let mut written = copies.begin(&mut channel).unwrap();
    written.acquire((&word.region(), 0), 1).unwrap();
    written.submit().unwrap();
    source.write(0, &[1, 2, 3, 4, 5, 6, 7, 8].repeat(8));
    for n in 0..2 {
        for m in 0..2 {
            burst.add(&channel, target.va() + 16 * n + 8 * m, source.va() + n + m).unwrap();
        }
        burst.submit(&mut channel).unwrap();
    }
    assert!(matches!(burst.add(&channel, target.va(), source.va()), Err(Error::RingFull(2))));
    assert!(matches!(burst.submit(&mut channel), Err(Error::Length(0))));
    word.word(0).store(1, Ordering::Release);
    channel.idle(TIMEOUT).unwrap();
    burst.add(&channel, target.va(), source.va()).unwrap();
    let mut found = [0; 32];
    target.read(0, &mut found);
    let expected =
        [[1, 2, 3, 4, 5, 6, 7, 8], [2, 3, 4, 5, 6, 7, 8, 1], [2, 3, 4, 5, 6, 7, 8, 1], [3, 4, 5, 6, 7, 8, 1, 2]];
    assert_eq!(found, expected.concat()[..]);
}

#[test]
fn a_burst_is_stale_when_its_memory_goes_and_not_when_other_memory_does() {
    let Rig { mut channel, source, target, .. } = rig(Place::Video);
    let regions = (&target.region(), &source.region());
    let mut burst = Burst::new(&mut channel, regions, 64, PLAIN, (2, 2)).unwrap();
    let (to, from) = (target.va(), source.va());
    drop(source.space().alloc_host(0x1000).unwrap());
    burst.add(&channel, to, from).unwrap();
    let ticket = burst.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    drop(target);
    burst.add(&channel, to, from).unwrap();
    assert!(matches!(burst.submit(&mut channel), Err(Error::Stale)));
    assert_eq!(burst.added(), 0);
    burst.add(&channel, to, from).unwrap();
    assert!(matches!(burst.submit(&mut channel), Err(Error::Stale)));
}
