//! CUDA's small blocks that are freed without a driver call and given out again, while copies that were prepared before
//! still name them. The stand-in for libcuda has blocks that share a mapping.

mod fake;

use cuda::{Cuda, DeviceBuffer};
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Armed, Bar1Map, Channel, ChannelOptions, CopyMode, CopyRelease, Device, Engine, Entry, Error, Memory,
    Prepared, Semaphores, Watched, Watching,
};
use machine::{Machine, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const BYTES: u64 = 4096;
const OURS: u8 = 0xaa;
const THEIRS: u8 = 0x11;
/// The process has one stand-in.
static ONE: Mutex<()> = Mutex::new(());

struct Rig {
    machine: Machine,
    host: Arc<Memory>,
    _theirs: Arc<AddressSpace>,
    _one: MutexGuard<'static, ()>,
}

/// `told`: frees are reported, as by a libcuda whose functions are replaced.
fn rig(told: bool) -> Rig {
    let one = poison::ignore(ONE.lock());
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    *poison::ignore(fake::SOURCE.lock()) = Some(fake::blocks(&theirs));
    *poison::ignore(fake::FREES.lock()) = told.then(|| Box::new(|base, length| watched.frees(base, length)) as _);
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), Entry::OwnClient).unwrap();
    let host = ours.alloc_host(BYTES).unwrap();
    host.write(0, &[OURS; BYTES as usize]);
    Rig { machine: Machine::beside(context, ours), host, _theirs: theirs, _one: one }
}

impl Rig {
    fn block(&self) -> DeviceBuffer<'_> {
        DeviceBuffer::new(self.machine.context().unwrap(), BYTES as usize).unwrap()
    }

    fn channel(&self) -> Channel {
        Channel::new(self.machine.space().unwrap(), Engine::Copy(1), ChannelOptions::default()).unwrap()
    }

    /// The next owner of the block at `address`, with its own bytes in it.
    fn next_owner(&self, address: u64) -> DeviceBuffer<'_> {
        let next = self.block();
        assert_eq!(next.address(), address, "given out again");
        next.write(&[THEIRS; BYTES as usize]).unwrap();
        next
    }
}

fn found(block: &DeviceBuffer<'_>) -> u8 {
    let mut found = vec![0; BYTES as usize];
    block.read(&mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == found[0]));
    found[0]
}

#[test]
fn a_block_that_is_given_out_again_is_refused_where_frees_are_told() {
    let rig = rig(true);
    let (block, mut channel, mut armed_channel) = (rig.block(), rig.channel(), rig.channel());
    let address = block.address();
    let pinned = pin(&rig.machine, address, BYTES).unwrap();
    let (to, from) = (pinned.region(), rig.host.region());
    let mut prepared = Prepared::copy(&mut channel, to, &from, BYTES as u32, CopyMode::Plain).unwrap();
    let release = CopyRelease::default();
    let mut armed = Armed::copy(&mut armed_channel, to, &from, BYTES as u32, CopyMode::Plain, release).unwrap();
    let map = Bar1Map::of_pin(pinned.pin(), 0, BYTES).unwrap();
    let ticket = prepared.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(found(&block), OURS);
    drop(block);
    let next = rig.next_owner(address);
    assert!(matches!(prepared.submit(&mut channel), Err(Error::Stale)));
    assert!(matches!(prepared.submit_at(&mut channel, address, from.va()), Err(Error::Stale)));
    assert!(matches!(armed.submit(), Err(Error::Stale)));
    assert!(matches!(map.write(0, &[OURS]), Err(Error::Stale)));
    assert!(matches!(
        Prepared::copy(&mut channel, to, &from, BYTES as u32, CopyMode::Plain),
        Err(Error::Stale | Error::Reused)
    ));
    drop(armed);
    assert_eq!(found(&next), THEIRS, "the next owner's bytes");
    // The next owner's own pin is valid, and the end of the old pin does not end it.
    let again = pin(&rig.machine, address, BYTES).unwrap();
    drop(pinned);
    let mut prepared = Prepared::copy(&mut channel, again.region(), &from, BYTES as u32, CopyMode::Plain).unwrap();
    let ticket = prepared.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(found(&next), OURS);
}

#[test]
fn a_neighbours_free_ends_no_pin() {
    let rig = rig(true);
    let (block, neighbour, mut channel) = (rig.block(), rig.block(), rig.channel());
    let pinned = pin(&rig.machine, block.address(), BYTES).unwrap();
    let from = rig.host.region();
    let mut prepared = Prepared::copy(&mut channel, pinned.region(), &from, BYTES as u32, CopyMode::Plain).unwrap();
    drop(neighbour);
    let ticket = prepared.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(found(&block), OURS);
}

#[test]
fn a_free_waits_for_what_is_in_flight() {
    let rig = rig(true);
    let (block, mut channel) = (rig.block(), rig.channel());
    let (address, space) = (block.address(), rig.machine.space().unwrap());
    let pinned = pin(&rig.machine, address, BYTES).unwrap();
    let gate = Semaphores::new(space).unwrap().alloc().unwrap();
    let mut shut = gpu::Pushbuffer::new(space, 16).unwrap();
    shut.host_acquire(&gate, 1).unwrap();
    let shut = shut.validate(&channel).unwrap();
    let from = rig.host.region();
    let mut prepared = Prepared::copy(&mut channel, pinned.region(), &from, BYTES as u32, CopyMode::Plain).unwrap();
    channel.submit(&shut).unwrap();
    let ticket = prepared.submit(&mut channel).unwrap();
    let opens = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        gate.set(1);
    });
    drop(block);
    assert!(channel.done(ticket), "the copy was over before the block was free");
    opens.join().unwrap();
    assert_eq!(found(&rig.next_owner(address)), THEIRS);
}

#[test]
fn where_frees_are_not_told_the_allocations_number_is_asked() {
    let rig = rig(false);
    let (block, mut channel) = (rig.block(), rig.channel());
    let address = block.address();
    let pinned = pin(&rig.machine, address, BYTES).unwrap();
    let from = rig.host.region();
    let copy = |channel: &mut Channel| Prepared::copy(channel, pinned.region(), &from, BYTES as u32, CopyMode::Plain);
    let mut unchecked = copy(&mut channel).unwrap();
    rig.machine.space().unwrap().check_each_submission();
    let mut checked = copy(&mut channel).unwrap();
    let ticket = checked.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    drop(block);
    let next = rig.next_owner(address);
    // By contract, a copy that was prepared before this free and has no check cannot see it.
    let ticket = unchecked.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(found(&next), OURS, "without the check the next owner's bytes are overwritten");
    next.write(&[THEIRS; BYTES as usize]).unwrap();
    assert!(matches!(checked.submit(&mut channel), Err(Error::Reused)));
    assert!(matches!(copy(&mut channel), Err(Error::Stale | Error::Reused)), "asked when it is prepared");
    assert!(matches!(unchecked.submit(&mut channel), Err(Error::Stale)), "once it is known, it holds for all");
    assert_eq!(found(&next), THEIRS);
}
