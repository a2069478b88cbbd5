//! Batches on the software GPU: many pieces with one doorbell, and no piece outside of its regions.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Batch, Channel, ChannelOptions, CopyRelease, Device, Engine, Error, Memory, Piece};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use test_support::noise;

const TIMEOUT: Duration = Duration::from_secs(10);

struct Rig {
    driver: SoftDriver,
    channel: Channel,
    source: Arc<Memory>,
    targets: [Arc<Memory>; 2],
}

fn rig() -> Rig {
    let driver = SoftDriver::new(Mode::Strict);
    let space = AddressSpace::new(&Device::open(Arc::new(driver), 0).unwrap()).unwrap();
    Rig {
        driver,
        channel: Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap(),
        source: space.alloc_host(1 << 20).unwrap(),
        targets: [space.alloc_video(1 << 19).unwrap(), space.alloc_host(1 << 19).unwrap()],
    }
}

#[test]
fn pieces_of_any_length_from_any_place_arrive_behind_one_doorbell() {
    let Rig { driver, mut channel, source, targets } = rig();
    let regions = [source.region(), targets[0].region(), targets[1].region()];
    for (count, seed) in [(1usize, 1), (2, 2), (256, 3), (1000, 4), (Batch::MOST, 5)] {
        // 128 bytes of a target for each, some of them used; sources at any address.
        let slot = 1 << 7;
        let numbers = noise(4 * count, seed);
        let pieces: Vec<Piece> = (0..count)
            .map(|n| {
                // Not in the order of the addresses.
                let place = (n * 1237 + 11) % count.next_power_of_two();
                let number = u64::from(u32::from_le_bytes(numbers[4 * n..4 * n + 4].try_into().unwrap()));
                let bytes = if n % 3 == 0 { 64 } else { 1 + number % slot };
                let to = targets[n % 2].va() + (place as u64 * slot) % (1 << 19);
                Piece { to, from: source.va() + number % ((1 << 20) - slot), bytes: bytes as u32 }
            })
            .collect();
        let mut batch = Batch::new(&mut channel, &regions, &pieces, CopyRelease::Timed).unwrap();
        assert_eq!((batch.pieces(), batch.is_timed()), (count, true));
        assert_eq!(batch.bytes(), pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>());
        for round in 0..3 {
            let sent = noise(1 << 20, seed + round);
            source.write(0, &sent);
            let mut expected = [vec![0x5a; 1 << 19], vec![0x5a; 1 << 19]];
            for target in &targets {
                target.write(0, &expected[0]);
            }
            let counted = || {
                let counters = driver.counters();
                (counters.doorbells.load(Ordering::Relaxed), counters.copies.load(Ordering::Relaxed))
            };
            let (before, rung_again) = (counted(), u64::from(channel.rung_again()));
            let ticket = batch.submit(&mut channel).unwrap();
            channel.wait(ticket, TIMEOUT).unwrap();
            let after = counted();
            // A wait without progress rings again.
            let again = u64::from(channel.rung_again());
            assert_eq!((after.0 - before.0 - (again - rung_again), after.1 - before.1), (1, count as u64));
            for (n, piece) in pieces.iter().enumerate() {
                let (from, to) = ((piece.from - source.va()) as usize, (piece.to - targets[n % 2].va()) as usize);
                let bytes = piece.bytes as usize;
                expected[n % 2][to..to + bytes].copy_from_slice(&sent[from..from + bytes]);
            }
            for (target, expected) in targets.iter().zip(&expected) {
                let mut found = vec![0; 1 << 19];
                target.read(0, &mut found);
                assert!(found == *expected, "{count} pieces, round {round}");
            }
        }
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// Planted: a piece that names memory outside all regions, at either end and by a byte, and one across two regions.
#[test]
fn a_piece_outside_its_regions_is_refused_before_the_doorbell() {
    let Rig { driver, mut channel, source, targets } = rig();
    let right = Piece { to: targets[0].va(), from: source.va(), bytes: 64 };
    let regions = [source.region().part(0, 4096).unwrap(), targets[0].region().part(0, 4096).unwrap()];
    let doorbells = || driver.counters().doorbells.load(Ordering::Relaxed);
    let before = doorbells();
    for wrong in [
        Piece { to: targets[0].va() + 4096 - 63, ..right },
        Piece { from: source.va() + 4096 - 63, ..right },
        Piece { to: targets[1].va(), ..right },
        Piece { from: u64::MAX - 3, ..right },
        Piece { to: 0, ..right },
        Piece { from: source.va() - 1, ..right },
    ] {
        let refused = Batch::new(&mut channel, &regions, &[right, wrong, right], CopyRelease::Word).unwrap_err();
        assert!(matches!(refused, Error::OutsideRegion { length: 64, .. }), "{wrong:?}: {refused}");
    }
    for (pieces, length) in [(vec![], 0), (vec![right; Batch::MOST + 1], Batch::MOST as u64 + 1)] {
        let refused = Batch::new(&mut channel, &regions, &pieces, CopyRelease::Word).unwrap_err();
        assert!(matches!(refused, Error::Length(found) if found == length), "{refused}");
    }
    let none = Piece { bytes: 0, ..right };
    assert!(matches!(Batch::new(&mut channel, &regions, &[none], CopyRelease::Word), Err(Error::Length(0))));
    assert_eq!(doorbells(), before, "nothing was rung");
    let mut graphics = Channel::new(source.space(), Engine::Graphics, ChannelOptions::default()).unwrap();
    let refused = Batch::new(&mut graphics, &regions, &[right], CopyRelease::Word).unwrap_err();
    assert!(matches!(refused, Error::OtherChannel), "{refused}");
}

#[test]
fn a_batch_is_stale_when_any_of_its_memories_goes() {
    let Rig { mut channel, source, targets: [first, second], .. } = rig();
    let regions = [source.region(), first.region(), second.region()];
    let pieces = [first.va(), second.va()].map(|to| Piece { to, from: source.va(), bytes: 64 });
    let mut batch = Batch::new(&mut channel, &regions, &pieces, CopyRelease::Word).unwrap();
    let ticket = batch.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    drop((regions, second));
    assert!(matches!(batch.submit(&mut channel), Err(Error::Stale)));
}
