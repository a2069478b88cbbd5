//! Channels of our own in an address space that somebody else made: a stand-in for CUDA whose driver calls are watched, on
//! the software GPU.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Channel, ChannelOptions, CopyMode, Device, Engine, Entry, Error, Group, InlineMode, Prepared,
    Watched, Watching, Window,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

struct Rig {
    driver: SoftDriver,
    watched: &'static Watched,
    /// The stand-in's.
    cuda: Arc<AddressSpace>,
    /// Its graphics channel.
    _graphics: Channel,
}

fn rig() -> Rig {
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let device = Device::open(Arc::new(Watching(driver, watched)), 0).unwrap();
    let cuda = AddressSpace::new(&device).unwrap();
    let graphics = Channel::new(&cuda, Engine::Graphics, ChannelOptions::default()).unwrap();
    Rig { driver, watched, cuda, _graphics: graphics }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| step()).collect()
}

impl Rig {
    fn enter(&self, entry: Entry) -> Arc<AddressSpace> {
        let uuid = *self.watched.gpus().first().expect("the stand-in has registered its GPU");
        self.watched.address_space(Arc::new(self.driver), uuid, entry).unwrap()
    }

    fn faults(&self) -> u64 {
        self.driver.counters().faults.load(Ordering::Relaxed)
    }
}

#[test]
fn every_kind_of_channel_copies_between_cudas_memories() {
    let rig = rig();
    let (source, target) = (rig.cuda.alloc_host(1 << 16).unwrap(), rig.cuda.alloc_video(1 << 16).unwrap());
    for entry in [Entry::OwnClient, Entry::CudasClient] {
        let space = rig.enter(entry);
        let pins = [space.pin(source.va(), 1 << 16).unwrap(), space.pin(target.va(), 1 << 16).unwrap()];
        let (from, to) = (Window { base: source.va(), length: 1 << 16 }, Window { base: target.va(), length: 1 << 16 });
        for n in 0..10 {
            let mut channel = Channel::new(&space, Engine::Copy(n), ChannelOptions::default()).unwrap();
            let mut copy = Prepared::copy(&mut channel, to, from, 1 << 16, CopyMode::Plain).unwrap();
            let data = noise(1 << 16, n.into());
            source.write(0, &data);
            let ticket = copy.submit(&mut channel).unwrap();
            channel.wait(ticket, TIMEOUT).unwrap();
            let mut back = vec![0; 1 << 16];
            target.read(0, &mut back);
            assert!(back == data, "{entry:?} copy engine {n}");
        }
        for group in [Group::Own, Group::Cudas] {
            let options = ChannelOptions { group, ..Default::default() };
            let made = Channel::new(&space, Engine::Graphics, options);
            if (entry, group) == (Entry::OwnClient, Group::Cudas) {
                assert!(matches!(made, Err(Error::Group(_))), "CUDA's group needs CUDA's client");
                continue;
            }
            let mut channel = made.unwrap();
            let mut inline = Prepared::inline(&mut channel, to, 5000, InlineMode::Headers).unwrap();
            let data = noise(5000, 77);
            let ticket = inline.submit_data(&mut channel, &data).unwrap();
            channel.wait(ticket, TIMEOUT).unwrap();
            let mut back = vec![0; 5000];
            target.read(0, &mut back);
            assert!(back == data, "{entry:?} {group:?}");
        }
        drop(pins);
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn what_is_not_pinned_is_refused() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let memory = rig.cuda.alloc_video(0x4000).unwrap();
    for (va, length) in [
        (0, 8),
        (memory.va(), 0),
        (memory.va(), 0x4001),
        (memory.va() + 0x4000, 1),
        (u64::MAX - 3, 8),
        (0x1234_5678, 8),
    ] {
        let error = space.pin(va, length).unwrap_err();
        assert!(matches!(error, Error::NotPinnable { .. }), "{va:#x} {length:#x}: {error}");
    }
    assert!(matches!(rig.cuda.pin(memory.va(), 8), Err(Error::NotPinnable { .. })), "a space of our own has no pins");
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let whole = Window { base: memory.va(), length: 0x4000 };
    let refused = Prepared::copy(&mut channel, whole, whole, 64, CopyMode::Plain);
    assert!(matches!(refused, Err(Error::Invalid(_))), "CUDA's, but not pinned");
    let pin = space.pin(memory.va(), 0x1000).unwrap();
    Prepared::copy(&mut channel, whole, whole, 0x1000, CopyMode::Plain).unwrap();
    let refused = Prepared::copy(&mut channel, whole, whole, 0x1001, CopyMode::Plain);
    assert!(matches!(refused, Err(Error::Invalid(_))), "longer than the pin");
    drop(pin);
    let refused = Prepared::copy(&mut channel, whole, whole, 64, CopyMode::Plain);
    assert!(matches!(refused, Err(Error::Invalid(_))), "not pinned any more");
}

#[test]
fn memory_that_cuda_frees_is_stale_for_us_and_is_waited_for() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let mut channel = Channel::new(&space, Engine::Copy(1), ChannelOptions::default()).unwrap();
    for round in 0..50 {
        let (source, target) = (rig.cuda.alloc_host(1 << 20).unwrap(), rig.cuda.alloc_video(1 << 20).unwrap());
        let _pins = [space.pin(source.va(), 1 << 20).unwrap(), space.pin(target.va(), 1 << 20).unwrap()];
        let (from, to) = (Window { base: source.va(), length: 1 << 20 }, Window { base: target.va(), length: 1 << 20 });
        let mut copy = Prepared::copy(&mut channel, to, from, 1 << 20, CopyMode::Plain).unwrap();
        for _ in 0..8 {
            copy.submit(&mut channel).unwrap();
        }
        // Freed while copies are under way: they are waited for, or the GPU would fault.
        drop(source);
        assert!(matches!(copy.submit(&mut channel), Err(Error::Stale)), "round {round}");
        // Something else, mostly at the same address, is not what was pinned.
        let _other = rig.cuda.alloc_host(1 << 20).unwrap();
        assert!(matches!(copy.submit(&mut channel), Err(Error::Stale)), "round {round}");
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn without_a_context_of_cudas_there_is_no_address_space() {
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    assert!(watched.gpus().is_empty());
    let error = watched.address_space(Arc::new(driver), [7; 16], Entry::OwnClient).unwrap_err();
    assert!(error.to_string().contains("create a CUDA context"), "{error}");
}

#[test]
fn ours_goes_and_cudas_stays() {
    let rig = rig();
    let memory = rig.cuda.alloc_video(1 << 16).unwrap();
    for entry in [Entry::OwnClient, Entry::CudasClient] {
        for _ in 0..20 {
            let space = rig.enter(entry);
            let pin = space.pin(memory.va(), 64).unwrap();
            let channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
            drop((channel, space, pin));
        }
    }
    // CUDA's own goes on.
    let mut channel = Channel::new(&rig.cuda, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let whole = Window { base: memory.va(), length: 1 << 16 };
    let mut copy = Prepared::copy(&mut channel, whole, whole, 64, CopyMode::Plain).unwrap();
    let ticket = copy.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(rig.faults(), 0);
}
