//! doorbell's channels in an address space that another owner made: a stand-in for CUDA whose driver calls are watched,
//! on the software GPU.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Channel, ChannelOptions, CopyMode, Device, Engine, Entry, Error, Group, InlineMode, Memory, Owner,
    Prepared, Pushbuffer, Region, Semaphore, Semaphores, Watched, Watching,
};
use rm::abi::uvm;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use test_support::noise;

const TIMEOUT: Duration = Duration::from_secs(10);

struct Rig {
    driver: SoftDriver,
    watched: &'static Watched,
    /// The stand-in's address space.
    cuda: Arc<AddressSpace>,
    /// Its graphics channel.
    _graphics: Channel,
    /// Addresses are per process: another test's memory could get the same addresses.
    _one: MutexGuard<'static, ()>,
}

static ONE: Mutex<()> = Mutex::new(());

fn rig() -> Rig {
    let one = poison::ignore(ONE.lock());
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let device = Device::open(Arc::new(Watching(driver, watched)), 0).unwrap();
    let cuda = AddressSpace::new(&device).unwrap();
    let graphics = Channel::new(&cuda, Engine::Graphics, ChannelOptions::default()).unwrap();
    Rig { driver, watched, cuda, _graphics: graphics, _one: one }
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
fn what_a_program_frees_is_forgotten_and_pins_stay_good() {
    let rig = rig();
    let (source, target) = (rig.cuda.alloc_host(4096).unwrap(), rig.cuda.alloc_video(4096).unwrap());
    let space = rig.enter(Entry::OwnClient);
    let pins = [&source, &target].map(|memory| space.pin(memory.va(), 4096).unwrap());
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut copy = Prepared::copy(&mut channel, pins[1].region(), pins[0].region(), 4096, CopyMode::Plain).unwrap();
    for _ in 0..3000 {
        drop(rig.cuda.alloc_video(4096).unwrap());
    }
    let objects = rig.watched.graph().objects().len();
    assert!(objects < 2000, "{objects}");
    source.write(0, &noise(4096, 7));
    let ticket = copy.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    let mut back = vec![0; 4096];
    target.read(0, &mut back);
    assert!(back == noise(4096, 7));
    // Other memory at the same address is not the memory that was pinned.
    let va = target.va();
    drop(target);
    while rig.cuda.alloc_video(4096).unwrap().va() != va {}
    assert!(copy.submit(&mut channel).is_err());
}

#[test]
fn every_kind_of_channel_copies_between_cudas_memories() {
    let rig = rig();
    let (source, target) = (rig.cuda.alloc_host(1 << 16).unwrap(), rig.cuda.alloc_video(1 << 16).unwrap());
    for entry in [Entry::OwnClient, Entry::CudasClient] {
        let space = rig.enter(entry);
        let pins = [space.pin(source.va(), 1 << 16).unwrap(), space.pin(target.va(), 1 << 16).unwrap()];
        let (from, to) = (pins[0].region(), pins[1].region());
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
    let pin = space.pin(memory.va(), 0x1000).unwrap();
    let whole = pin.region();
    assert_eq!((whole.va(), whole.length(), whole.owner()), (memory.va(), 0x1000, Owner::Cuda));
    Prepared::copy(&mut channel, whole, whole, 0x1000, CopyMode::Plain).unwrap();
    let refused = Prepared::copy(&mut channel, whole, whole, 0x1001, CopyMode::Plain);
    assert!(matches!(refused, Err(Error::Invalid(_))), "longer than the pin");
    let theirs = memory.region();
    let refused = Prepared::copy(&mut channel, &theirs, whole, 64, CopyMode::Plain);
    assert!(matches!(refused, Err(Error::OtherSpace { .. })), "CUDA's, but not pinned");
    let whole = whole.clone();
    drop(pin);
    let refused = Prepared::copy(&mut channel, &whole, &whole, 64, CopyMode::Plain);
    assert!(matches!(refused, Err(Error::Stale)), "not pinned any more");
}

#[test]
fn memory_that_cuda_frees_is_stale_for_us_and_is_waited_for() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let mut channel = Channel::new(&space, Engine::Copy(1), ChannelOptions::default()).unwrap();
    for round in 0..50 {
        let (source, target) = (rig.cuda.alloc_host(1 << 20).unwrap(), rig.cuda.alloc_video(1 << 20).unwrap());
        let pins = [space.pin(source.va(), 1 << 20).unwrap(), space.pin(target.va(), 1 << 20).unwrap()];
        let (from, to) = (pins[0].region(), pins[1].region());
        let mut copy = Prepared::copy(&mut channel, to, from, 1 << 20, CopyMode::Plain).unwrap();
        for _ in 0..8 {
            copy.submit(&mut channel).unwrap();
        }
        // Freed while copies are in flight: the free waits for them, or the GPU would fault.
        drop(source);
        assert!(matches!(copy.submit(&mut channel), Err(Error::Stale)), "round {round}");
        // Other memory, mostly at the same address, does not count as the pinned memory.
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
    // CUDA's own channels still work.
    let mut channel = Channel::new(&rig.cuda, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let whole = memory.region();
    let mut copy = Prepared::copy(&mut channel, &whole, &whole, 64, CopyMode::Plain).unwrap();
    let ticket = copy.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(rig.faults(), 0);
}

/// A copy to `to` that waits for a semaphore.
fn stuck(space: &Arc<AddressSpace>, to: &Region) -> (Channel, Prepared, Semaphore, Arc<Memory>) {
    let source = space.alloc_host(0x1000).unwrap();
    source.write(0, &[0xaa; 0x1000]);
    let gate = Semaphores::new(space).unwrap().alloc().unwrap();
    let mut channel = Channel::new(space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut copy = Prepared::copy(&mut channel, to, &source.region(), 0x1000, CopyMode::Plain).unwrap();
    let mut shut = Pushbuffer::new(space, 16).unwrap();
    shut.host_acquire(&gate, 1).unwrap();
    let shut = shut.validate(&channel).unwrap();
    channel.submit(&shut).unwrap();
    copy.submit(&mut channel).unwrap();
    (channel, copy, gate, source)
}

#[test]
fn a_copy_that_does_not_end_is_stopped_before_cuda_frees_its_memory() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    // At the second free, the first channel has already been stopped.
    for _ in 0..2 {
        let memory = rig.cuda.alloc_video(0x1000).unwrap();
        let at = memory.va();
        let pin = space.pin(at, 0x1000).unwrap();
        let (mut channel, mut copy, gate, _source) = stuck(&space, pin.region());
        drop(memory);
        let other = rig.cuda.alloc_video(0x1000).unwrap();
        assert_eq!(other.va(), at, "the address is somebody else's now");
        other.write(0, &[0x11; 0x1000]);
        gate.set(1);
        std::thread::sleep(Duration::from_millis(100));
        let mut found = vec![0; 0x1000];
        other.read(0, &mut found);
        assert!(found == vec![0x11; 0x1000], "the copy went on");
        assert!(matches!(copy.submit(&mut channel), Err(Error::ChannelStopped)));
        assert!(matches!(channel.submit_nop(), Err(Error::ChannelStopped)));
        assert!(space.in_flight().iter().all(|channel| channel.stopped || channel.submitted == channel.reached));
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_pin_that_is_dropped_waits_for_what_is_in_flight() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let memory = rig.cuda.alloc_video(0x1000).unwrap();
    let pin = space.pin(memory.va(), 0x1000).unwrap();
    let (channel, _copy, gate, _source) = stuck(&space, pin.region());
    let opens = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        gate.set(1);
    });
    drop(pin);
    let mut found = vec![0; 0x1000];
    memory.read(0, &mut found);
    assert!(found == vec![0xaa; 0x1000], "the copy was over before the pin was gone");
    opens.join().unwrap();
    drop(channel);
}

/// Maps memory for a peer, and removes the mapping, like CUDA.
fn map_for(rig: &Rig, memory: &Memory, (client, handle): (u32, u32), gpus: &[[u8; 16]]) {
    let uvm_fd = rig.watched.graph().uvm_fd().unwrap();
    let mut map = uvm::MapExternal {
        base: memory.va(),
        length: memory.length(),
        gpu_count: gpus.len() as u64,
        client,
        memory: handle,
        ..Default::default()
    };
    for (to, uuid) in map.gpus.iter_mut().zip(gpus) {
        to.uuid = *uuid;
    }
    // SAFETY: the struct belongs to the request, and no call is made.
    unsafe { rig.watched.ioctl(uvm_fd, uvm::MAP_EXTERNAL_ALLOCATION, (&raw mut map).cast(), || 0) };
}

/// Client and handle of the memory that is mapped there.
fn handle(rig: &Rig, memory: &Memory) -> (u32, u32) {
    rig.watched.graph().gpu_mappings().find(|m| m.base == memory.va()).unwrap().handle.unwrap()
}

fn unmap_for(rig: &Rig, memory: &Memory, uuid: [u8; 16]) {
    let uvm_fd = rig.watched.graph().uvm_fd().unwrap();
    let mut range = uvm::GpuRange { base: memory.va(), length: memory.length(), uuid, ..Default::default() };
    // SAFETY: as above.
    unsafe { rig.watched.ioctl(uvm_fd, uvm::UNMAP_EXTERNAL, (&raw mut range).cast(), || 0) };
}

const PEER: [u8; 16] = [9; 16];

#[test]
fn memory_that_is_mapped_for_another_gpu_only_is_no_memory_of_ours() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let ours = space.device().uuid();
    let memory = rig.cuda.alloc_video(0x1000).unwrap();
    let handle = handle(&rig, &memory);
    unmap_for(&rig, &memory, ours);
    map_for(&rig, &memory, handle, &[PEER]);
    let refused = space.pin(memory.va(), 0x1000).unwrap_err();
    assert!(matches!(&refused, Error::NotPinnable { why, .. } if why.contains("another GPU")), "{refused}");
    // Several GPUs in one call, doorbell's among them.
    map_for(&rig, &memory, handle, &[PEER, [8; 16], ours]);
    let pin = space.pin(memory.va(), 0x1000).unwrap();
    assert!(pin.region().gpus().contains(&ours) && pin.region().gpus().contains(&PEER));
}

#[test]
fn a_peers_unmap_ends_the_pin_of_the_gpu_that_it_is_for_and_no_other() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let ours = space.device().uuid();
    let memory = rig.cuda.alloc_video(0x1000).unwrap();
    map_for(&rig, &memory, handle(&rig, &memory), &[PEER]);
    let pin = space.pin(memory.va(), 0x1000).unwrap();
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut copy = Prepared::copy(&mut channel, pin.region(), pin.region(), 64, CopyMode::Plain).unwrap();
    unmap_for(&rig, &memory, PEER);
    let ticket = copy.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    map_for(&rig, &memory, handle(&rig, &memory), &[PEER]);
    // Whoever owns the memory, doorbell's GPU no longer reaches it.
    unmap_for(&rig, &memory, ours);
    assert!(matches!(copy.submit(&mut channel), Err(Error::Stale)));
    assert!(!pin.region().is_live() && !space.contains(memory.va(), 64));
}

#[test]
fn a_free_neither_waits_for_nor_stops_a_channel_that_cannot_name_the_memory() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let (held, freed) = (rig.cuda.alloc_video(0x1000).unwrap(), rig.cuda.alloc_video(0x1000).unwrap());
    let (kept, going) = (space.pin(held.va(), 0x1000).unwrap(), space.pin(freed.va(), 0x1000).unwrap());
    let (channel, _copy, gate, _source) = stuck(&space, kept.region());
    let start = Instant::now();
    // Never pinned, pinned without users, unpinned.
    drop(rig.cuda.alloc_video(0x1000).unwrap());
    drop(freed);
    drop(going);
    assert!(start.elapsed() < Duration::from_millis(900), "waited for a channel that has nothing to do with it");
    assert!(channel.error().is_none() && space.in_flight().iter().all(|channel| !channel.stopped));
    assert!(kept.region().is_live());
    gate.set(1);
    drop(kept);
    let mut found = vec![0; 0x1000];
    held.read(0, &mut found);
    assert!(found == vec![0xaa; 0x1000], "it went on");
}

#[test]
fn a_pushbuffer_that_names_a_pin_is_waited_for_as_a_transfer_is() {
    let rig = rig();
    let space = rig.enter(Entry::OwnClient);
    let memory = rig.cuda.alloc_video(0x1000).unwrap();
    let pin = space.pin(memory.va(), 0x1000).unwrap();
    let source = space.alloc_host(0x1000).unwrap();
    source.write(0, &[0xaa; 0x1000]);
    let gate = Semaphores::new(&space).unwrap().alloc().unwrap();
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut words = Pushbuffer::new(&space, 64).unwrap();
    words.host_acquire(&gate, 1).unwrap().copy(memory.va(), source.va(), 0x1000).unwrap();
    let words = words.validate(&channel).unwrap();
    let ticket = channel.submit(&words).unwrap();
    let opens = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        gate.set(1);
    });
    drop(pin);
    assert!(channel.done(ticket), "it was over before the pin was gone");
    assert!(matches!(channel.submit(&words), Err(Error::Stale)));
    opens.join().unwrap();
}
