//! What whoever watches this libcuda sees of it, and channels of others beside its own.

mod program;

use cuda::Cuda;
use gpu::{Channel, ChannelOptions, Engine, Entry, Error, Group, InlineMode, Libcuda, Prepared};
use std::time::Duration;

#[test]
fn another_channel_opens_in_its_group_and_works() {
    if !program::inside("another_channel_opens_in_its_group_and_works") {
        return;
    }
    let libcuda = Libcuda::open().unwrap();
    let cuda = Cuda::load().unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    context.make_current().unwrap();
    let memory = cuda::DeviceBuffer::new(&context, 4096).unwrap();
    let uuid = cuda.device(0).unwrap().uuid().unwrap();
    let space = libcuda.address_space(uuid, Entry::CudasClient).unwrap();
    let options = ChannelOptions { group: Group::Cudas, ..Default::default() };
    let mut channel = Channel::new(&space, Engine::Graphics, options).unwrap();
    let pin = space.pin(memory.address(), 4096).unwrap();
    let mut inline = Prepared::inline(&mut channel, pin.region(), 56, InlineMode::Headers).unwrap();
    let ticket = inline.submit_data(&mut channel, &[7; 56]).unwrap();
    channel.wait(ticket, Duration::from_secs(10)).unwrap();
    let mut back = [0; 4096];
    memory.read(&mut back).unwrap();
    assert_eq!((&back[..56], back[56]), (&[7; 56][..], 0));
    let space = libcuda.address_space(uuid, Entry::OwnClient).unwrap();
    assert!(matches!(Channel::new(&space, Engine::Graphics, options), Err(Error::Group(_))));
}
