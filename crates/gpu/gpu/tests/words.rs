//! A channel that waits for a word, and writes one after its earlier work.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Channel, ChannelOptions, CopyMode, Device, Engine, Error, Prepared};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn what_comes_behind_a_word_waits_for_it_and_a_word_behind_it_is_written_last() {
    let driver = SoftDriver::new(Mode::Strict);
    let device = Device::open(Arc::new(driver), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let memory = space.alloc_host(0x1000).unwrap();
    let whole = memory.region();
    let [from, to] = [0x200, 0x300].map(|at| whole.part(at, 64).unwrap());
    let options = ChannelOptions { entries: 32, ..Default::default() };
    let mut channel = Channel::new(&space, Engine::Copy(2), options).unwrap();
    let mut copy = Prepared::copy(&mut channel, &to, &from, 64, CopyMode::Plain).unwrap();
    memory.word(8).store(0u32.wrapping_sub(21), Ordering::Release);
    // More often than the ring has entries, and past the wrap of 32 bits.
    for round in 0..40u32 {
        let number = round.wrapping_sub(20);
        memory.write(0x200, &[round as u8; 64]);
        channel.wait_for_word((&whole, 8), number).unwrap();
        let copied = copy.submit(&mut channel).unwrap();
        let written = channel.write_word((&whole, 16), round + 1).unwrap();
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(5));
            assert!(!channel.done(copied) && !channel.done(written));
            assert_eq!(memory.word(16).load(Ordering::Acquire), round);
        }
        memory.word(8).store(number, Ordering::Release);
        channel.wait(written, TIMEOUT).unwrap();
        assert!(channel.done(copied));
        let mut back = [0; 64];
        memory.read(0x300, &mut back);
        assert_eq!((back, memory.word(16).load(Ordering::Acquire)), ([round as u8; 64], round + 1));
    }
    assert!(matches!(channel.wait_for_word((&whole, 0xffe), 0), Err(Error::Outside { .. })));
    assert!(matches!(channel.write_word((&whole, 2), 0), Err(Error::Misaligned { .. })));
    let other = AddressSpace::new(&Device::open(Arc::new(driver), 0).unwrap()).unwrap().alloc_host(0x1000).unwrap();
    assert!(matches!(channel.write_word((&other.region(), 0), 0), Err(Error::OtherSpace { .. })));
    // The unused number is given to the next submission.
    let last = channel.write_word((&whole, 16), 7).unwrap();
    channel.wait(last, TIMEOUT).unwrap();
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}
