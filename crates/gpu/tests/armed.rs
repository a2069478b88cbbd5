//! Armed transfers on the software GPU.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Armed, Channel, ChannelOptions, Device, Engine, InlineMode, InlineRelease, Pushbuffer, Semaphores,
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
    // Nothing behind this is consumed, so the ring has no room for the next ones while the first are submitted.
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
    // And it goes on.
    let ticket = armed.submit_data(&[99; 8]).unwrap();
    armed.channel().wait(ticket, TIMEOUT).unwrap();
    target.read(0, &mut found);
    assert_eq!(found, [99; 8]);
}
