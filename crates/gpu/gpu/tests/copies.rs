//! Copies that are written when they are submitted.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Channel, ChannelOptions, Copies, Device, Engine, Error, Place, Written};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(10);

fn space() -> (SoftDriver, Arc<AddressSpace>) {
    let driver = SoftDriver::new(Mode::Strict);
    let device = Device::open(Arc::new(driver), 0).unwrap();
    (driver, AddressSpace::new(&device).unwrap())
}

#[test]
fn they_are_for_their_own_channel_of_a_copy_engine() {
    let (_, space) = space();
    let mut graphics = Channel::new(&space, Engine::Graphics, ChannelOptions::default()).unwrap();
    assert!(matches!(Copies::new(&mut graphics), Err(Error::OtherChannel)));
    let mut one = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let mut other = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let mut copies = Copies::new(&mut one).unwrap();
    assert!(matches!(copies.begin(&mut other), Err(Error::OtherChannel)));
}

#[test]
fn words_in_host_memory_and_in_video_memory_move_the_same() {
    let (driver, space) = space();
    let memory = space.alloc_host(0x4000).unwrap();
    let whole = memory.region();
    for pushbuffer in [Place::Host, Place::Video] {
        let options = ChannelOptions { pushbuffer, ..Default::default() };
        let mut channel = Channel::new(&space, Engine::Copy(2), options).unwrap();
        let mut copies = Copies::new(&mut channel).unwrap();
        for round in 0..300u64 {
            memory.write(0, &round.to_le_bytes());
            let mut written = copies.begin(&mut channel).unwrap();
            written.copy((&whole, 0x1000), (&whole, 0), 8).unwrap();
            let ticket = written.submit().unwrap();
            channel.wait(ticket, TIMEOUT).unwrap();
            let mut found = [0; 8];
            memory.read(0x1000, &mut found);
            assert_eq!(u64::from_le_bytes(found), round, "{pushbuffer:?}");
        }
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_begun_and_not_submitted_never_was() {
    let (driver, space) = space();
    let memory = space.alloc_host(0x1000).unwrap();
    let whole = memory.region();
    let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let mut copies = Copies::new(&mut channel).unwrap();
    let before = driver.counters().copies.load(Ordering::Relaxed);
    {
        let mut written = copies.begin(&mut channel).unwrap();
        written.copy((&whole, 0), (&whole, 64), 8).unwrap();
        assert!(matches!(written.copy((&whole, 0xfff), (&whole, 64), 8), Err(Error::Outside { .. })));
        assert!(matches!(written.copy((&whole, 0), (&whole, 64), 0), Err(Error::Length(0))));
        assert!(matches!(written.acquire((&whole, 2), 1), Err(Error::Misaligned { .. })));
    }
    // This drop does not wait.
    let start = Instant::now();
    drop(memory);
    assert!(start.elapsed() < Duration::from_millis(900));
    let mut written = copies.begin(&mut channel).unwrap();
    assert!(matches!(written.copy((&whole, 0), (&whole, 64), 8), Err(Error::Stale)));
    drop(written);
    assert_eq!(driver.counters().copies.load(Ordering::Relaxed), before);
}

#[test]
fn as_many_pieces_as_are_promised_fit_and_what_does_not_fit_is_an_error() {
    let (driver, space) = space();
    let memory = space.alloc_host(0x1000).unwrap();
    let whole = memory.region();
    let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let mut copies = Copies::new(&mut channel).unwrap();
    let mut written = copies.begin(&mut channel).unwrap();
    let mut pieces = 0;
    let error = loop {
        match written.copy((&whole, 0x800), (&whole, 0), 4) {
            Ok(()) => pieces += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::RingFull(_)) && pieces >= Written::PIECES, "{pieces}");
    drop(written);
    let mut written = copies.begin(&mut channel).unwrap();
    (0..Written::PIECES).for_each(|_| written.copy((&whole, 0x800), (&whole, 0), 4).unwrap());
    let ticket = written.submit().unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}
