//! Many pieces between two regions.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::pages::{CHUNK, Spot};
use gpu::{AddressSpace, Channel, ChannelOptions, Copies, Device, Engine, Error, Memory, Place};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const BYTES: u64 = 1 << 20;

struct Rig {
    driver: SoftDriver,
    channel: Channel,
    copies: Copies,
    to: Arc<Memory>,
    from: Arc<Memory>,
}

fn rig(pushbuffer: Place) -> Rig {
    let driver = SoftDriver::new(Mode::Strict);
    let device = Device::open(Arc::new(driver), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let options = ChannelOptions { pushbuffer, ..Default::default() };
    let mut channel = Channel::new(&space, Engine::Copy(2), options).unwrap();
    let copies = Copies::new(&mut channel).unwrap();
    let [to, from] = [(); 2].map(|()| space.alloc_host(BYTES).unwrap());
    let bytes: Vec<u8> = (0..BYTES).map(|n| (n * 7 + n / 251) as u8).collect();
    from.write(0, &bytes);
    Rig { driver, channel, copies, to, from }
}

impl Rig {
    fn copy(&mut self, spots: &[Spot]) -> Result<(), Error> {
        let mut rest = spots;
        let mut written = self.copies.begin(&mut self.channel)?;
        written.scattered(&self.to.region(), &self.from.region(), |to| {
            let n = rest.len().min(CHUNK);
            to[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            Ok(n)
        })?;
        let ticket = written.submit()?;
        self.channel.wait(ticket, TIMEOUT)
    }

    /// Copies, and compares all bytes with what the CPU copies.
    fn same(&mut self, spots: &[Spot]) {
        let (mut source, mut expected, mut found) = ([(); 3].map(|()| vec![0; BYTES as usize])).into();
        self.to.write(0, &expected);
        self.from.read(0, &mut source);
        for spot in spots {
            let [to, from, bytes] = [spot.to, spot.from, spot.bytes].map(|n| n as usize);
            expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        }
        self.copy(spots).unwrap();
        self.to.read(0, &mut found);
        assert!(found == expected);
        assert_eq!(self.driver.counters().faults.load(Ordering::Relaxed), 0);
    }
}

/// Pages in an order that no neighbours have.
fn pages(count: u64, bytes: u64, step: u64) -> Vec<Spot> {
    let most = BYTES / bytes;
    (0..count).map(|n| Spot { to: n * step % most * bytes, from: (n * 7 + 3) % most * bytes, bytes }).collect()
}

#[test]
fn pages_arrive_where_they_belong() {
    for pushbuffer in [Place::Host, Place::Video] {
        let mut rig = rig(pushbuffer);
        for (count, bytes) in [(1, 4096), (3, 512), (64, 4096), (65, 4096), (255, 4096), (2047, 512), (1, BYTES)] {
            rig.same(&pages(count, bytes, 1));
        }
        // (An odd step, so no page is written twice.)
        rig.same(&pages(256, 4096, 77));
    }
}

#[test]
fn lengths_may_differ_and_neighbours_are_joined() {
    let mut rig = rig(Place::Host);
    let mixed: Vec<Spot> =
        (0..200).map(|n| Spot { to: n * 5000, from: n * 4999 + 1, bytes: 1 + n * 23 % 4900 }).collect();
    rig.same(&mixed);
    let before = rig.driver.counters().copies.load(Ordering::Relaxed);
    let row: Vec<Spot> = (0..256).map(|n| Spot { to: n * 4096, from: n * 4096, bytes: 4096 }).collect();
    rig.same(&row);
    // A chunk at a time.
    assert_eq!(rig.driver.counters().copies.load(Ordering::Relaxed) - before, 256 / CHUNK as u64);
}

#[test]
fn a_piece_outside_is_an_error_and_nothing_is_copied() {
    let mut rig = rig(Place::Host);
    rig.to.write(0, &[9; 64]);
    let good = Spot { to: 0, from: 0, bytes: 64 };
    for wrong in [
        Spot { to: BYTES - 63, ..good },
        Spot { from: BYTES - 63, ..good },
        Spot { to: u64::MAX, ..good },
        Spot { from: u64::MAX - 10, ..good },
        Spot { bytes: 0, ..good },
        Spot { bytes: BYTES + 1, ..good },
        Spot { bytes: u64::MAX, ..good },
        Spot { bytes: (1 << 30) + 1, ..good },
    ] {
        let result = rig.copy(&[good, wrong]);
        assert!(matches!(result, Err(Error::Outside { .. } | Error::Length(_))), "{wrong:?}: {result:?}");
    }
    // More than there are slots for.
    let most = vec![Spot { to: 0, from: 4096, bytes: 64 }; 12_000];
    assert!(matches!(rig.copy(&most), Err(Error::RingFull(_))));
    let mut found = [0; 64];
    rig.to.read(0, &mut found);
    assert_eq!(found, [9; 64]);
    rig.same(&[good]);
}
