//! Armed transfers on the software GPU.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Armed, Channel, ChannelOptions, CopyMode, CopyRelease, Device, Engine, Error, InlineMode,
    InlineRelease, Pushbuffer, Semaphores,
};
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn what_was_refused_is_never_carried_out_also_where_the_ring_is_full_behind_it() {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let target = space.alloc_video(0x1000).unwrap();
    let gate = Semaphores::new(&space).unwrap().alloc().unwrap();
    let options = ChannelOptions { entries: 16, ..Default::default() };
    let mut channel = Channel::new(&space, Engine::Graphics, options).unwrap();
    // The GPU consumes no later entry, so the ring has no room for the next ones while the first are submitted.
    let mut shut = Pushbuffer::new(&space, 16).unwrap();
    shut.host_acquire(&gate, 1).unwrap();
    let shut = shut.validate(&channel).unwrap();
    channel.submit(&shut).unwrap();
    let (mode, release) = (InlineMode::Headers, InlineRelease::default());
    let mut armed = Armed::inline(&mut channel, &target.region(), 8, mode, release).unwrap();
    let (mut good, mut last, mut refused) = (0, None, 0);
    for n in 1..=6u8 {
        match armed.submit_data(&[n; 8]) {
            Ok(ticket) => (good, last) = (n, Some(ticket)),
            Err(error) => {
                assert!(matches!(error, gpu::Error::RingFull(_)), "{error}");
                refused += 1;
            }
        }
    }
    assert!(good > 0 && refused > 0, "the ring was full in between: {good} {refused}");
    gate.set(1);
    armed.channel().wait(last.unwrap(), TIMEOUT).unwrap();
    let mut found = [0; 8];
    target.read(0, &mut found);
    assert_eq!(found, [good; 8], "the last that was accepted");
    // Submissions continue afterwards.
    let ticket = armed.submit_data(&[99; 8]).unwrap();
    armed.channel().wait(ticket, TIMEOUT).unwrap();
    target.read(0, &mut found);
    assert_eq!(found, [99; 8]);
}

#[test]
fn an_armed_copy_goes_where_it_is_told_and_nowhere_else() {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let (from, to) = (space.alloc_host(0x1000).unwrap(), space.alloc_video(0x1000).unwrap());
    (0..64).for_each(|n| from.write(n * 16, &[n as u8 + 1; 16]));
    let channel = Box::new(Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap());
    // It owns its channel, so both can be moved together.
    let mut armed =
        Armed::copy(channel, &to.region(), &from.region(), 16, CopyMode::Pipelined, CopyRelease::Word).unwrap();
    for n in 0..64u64 {
        // Each place several times, also after a rest; each copy to the other end.
        if n % 10 == 9 {
            armed.rest().unwrap();
        }
        let ticket = armed.submit_at(to.va() + (63 - n) * 16, from.va() + n * 16).unwrap();
        armed.channel().wait(ticket, TIMEOUT).unwrap();
    }
    let mut found = [0; 0x1000];
    to.read(0, &mut found);
    for n in 0..64 {
        assert_eq!(found[(63 - n) * 16..][..16], [n as u8 + 1; 16], "{n}");
    }
    // The same again, to the place of the last one.
    to.write(0, &[0; 16]);
    let again = armed.submit().unwrap();
    armed.channel().wait(again, TIMEOUT).unwrap();
    to.read(0, &mut found[..16]);
    assert_eq!(found[..16], [64; 16]);
    for (to, from) in [(to.va() + 0x1000 - 15, from.va()), (to.va(), from.va() - 1), (from.va(), from.va())] {
        assert!(matches!(armed.submit_at(to, from), Err(Error::OutsideRegion { .. })));
    }
}
