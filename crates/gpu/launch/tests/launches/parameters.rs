//! Parameters of kernels that change from launch to launch.

use crate::learn;
use crate::rig::{DATA, Rig, TIMEOUT};
use cuda_graph::words::Graph;
use doorbell_softgpu::Planted;
use doorbell_softgpu::standin::Operation;
use gpu::Channel;
use launch::{Error, Graph as Ours, Set};

fn finish(rig: &Rig, channel: &Channel) -> Vec<u32> {
    channel.idle(TIMEOUT).unwrap();
    let log = rig.log();
    rig.clear_log();
    log
}

fn chain(rig: &Rig, channel: &mut Channel, n: usize) -> Ours {
    let ours = learn(rig, channel, &rig.logging(Graph::chain(n)));
    rig.clear_log();
    ours
}

#[test]
fn they_are_new_from_the_next_launch_on_and_stay() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = chain(&rig, &mut channel, 3);
    rig.turns(Operation::Log, 3);
    // All of these are pending together: each launch has the parameters that were set before it.
    for n in 0..6u32 {
        if n.is_multiple_of(2) {
            ours.set_parameter(2, 8, &(100 + n).to_le_bytes()).unwrap();
        }
        ours.launch(&mut channel).unwrap();
    }
    assert_eq!(finish(&rig, &channel), [1, 100, 3, 1, 100, 3, 1, 102, 3, 1, 102, 3, 1, 104, 3, 1, 104, 3]);
    assert_eq!(ours.parameters(2).map(|bytes| &bytes[8..12]), Some(&104u32.to_le_bytes()[..]));
    // Several kernels and parts of words together.
    let set = [
        Set { node: 1, offset: 9, bytes: &[1] },
        Set { node: 3, offset: 8, bytes: &[7, 0, 0, 0] },
        Set { node: 1, offset: 8, bytes: &[2] },
    ];
    ours.launch_with(&mut channel, &set).unwrap();
    ours.launch_with(&mut channel, &[]).unwrap();
    assert_eq!(finish(&rig, &channel), [0x102, 104, 7, 0x102, 104, 7]);
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_pointer_sends_a_kernel_elsewhere() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = chain(&rig, &mut channel, 1);
    rig.set_data(0, 0);
    ours.set_parameter(0, 0, &(rig.host.va() + DATA).to_le_bytes()).unwrap();
    let ticket = ours.launch(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!((rig.data(0), rig.log().len()), (1, 0));
}

#[test]
fn a_pointer_into_a_region_is_watched() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = chain(&rig, &mut channel, 2);
    let memory = rig.cuda.alloc_host(0x1000).unwrap();
    let pin = channel.space().pin(memory.va(), 0x1000).unwrap();
    let (region, at) = (pin.region().clone(), memory.va());
    for outside in [at - 1, at + 0x1000] {
        let refused = ours.set_pointer(1, 0, (&region, outside)).unwrap_err();
        assert!(matches!(refused, Error::Gpu(gpu::Error::OutsideRegion { .. })), "{refused}");
    }
    ours.set_pointer(1, 0, (&region, at + 0x100)).unwrap();
    let ticket = ours.launch(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    let word = |at| memory.word(at).load(std::sync::atomic::Ordering::Acquire);
    assert_eq!((word(0x100), word(0x104), rig.log()), (1, 1, vec![2]));
    // Freed: launches are refused until it points elsewhere.
    drop(memory);
    assert!(matches!(ours.launch(&mut channel), Err(gpu::Error::Stale)));
    assert!(matches!(ours.set_pointer(1, 0, (&region, at)), Err(Error::Gpu(gpu::Error::Stale))));
    assert_eq!(ours.parameters(1).map(|bytes| &bytes[..8]), Some(&(at + 0x100).to_le_bytes()[..]), "as it was");
    assert!(matches!(ours.set_pointer(1, 0, (&region, at + 0x100)), Err(Error::Gpu(gpu::Error::Stale))));
    assert!(matches!(ours.launch(&mut channel), Err(gpu::Error::Stale)), "it still points there");
    ours.set_parameter(1, 0, &(rig.host.va() + DATA).to_le_bytes()).unwrap();
    rig.clear_log();
    ours.launch(&mut channel).unwrap();
    assert_eq!(finish(&rig, &channel), [2]);
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_number_that_equals_a_pointer_is_none() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = chain(&rig, &mut channel, 2);
    let memory = rig.cuda.alloc_host(0x1000).unwrap();
    let pin = channel.space().pin(memory.va(), 0x1000).unwrap();
    let number = memory.va().to_le_bytes();
    ours.set_pointer(1, 0, (pin.region(), memory.va())).unwrap();
    ours.set_parameter(1, 0, &number).unwrap();
    drop(pin);
    // (The memory itself is still there.)
    ours.launch(&mut channel).unwrap();
    finish(&rig, &channel);
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_gpu_that_keeps_old_banks_is_found() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = chain(&rig, &mut channel, 2);
    ours.launch(&mut channel).unwrap();
    assert_eq!(finish(&rig, &channel), [1, 2]);
    rig.driver.machine.plant(Some(Planted::StaleBank));
    ours.set_parameter(2, 8, &50u32.to_le_bytes()).unwrap();
    ours.launch(&mut channel).unwrap();
    assert_eq!(finish(&rig, &channel), [1, 2], "without the invalidation the kernel has what it had");
    rig.driver.machine.plant(None);
    ours.set_parameter(1, 8, &51u32.to_le_bytes()).unwrap();
    ours.launch(&mut channel).unwrap();
    assert_eq!(finish(&rig, &channel), [51, 50]);
}

#[test]
fn what_lies_outside_is_refused_and_changes_nothing() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = chain(&rig, &mut channel, 2);
    for (node, offset, bytes) in [(1, 9, 4), (1, 12, 1), (2, u32::MAX, 4), (2, 0, 13)] {
        let error = ours.set_parameter(node, offset, &vec![9; bytes]).unwrap_err();
        assert!(matches!(error, Error::OutsideParameters { size: 12, .. }), "{error}");
        assert!(error.to_string().contains("12 bytes"), "{error}");
    }
    for node in [0, 3, usize::MAX] {
        let error = ours.set_parameter(node, 0, &[1]).unwrap_err();
        assert!(error.to_string().contains("the nodes that have some are 1, 2"), "{error}");
    }
    ours.launch(&mut channel).unwrap();
    assert_eq!(finish(&rig, &channel), [1, 2]);
}

#[test]
fn new_parameters_with_each_of_many_launches() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = chain(&rig, &mut channel, 2);
    let mut wanted = Vec::new();
    for n in 0..500u32 {
        let number = n.to_le_bytes();
        let set = [Set { node: 2, offset: 8, bytes: &number }];
        loop {
            match ours.launch_with(&mut channel, &set) {
                Ok(_) => break,
                Err(Error::Gpu(gpu::Error::RingFull(_))) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        wanted.extend([1, n]);
    }
    assert_eq!(finish(&rig, &channel), wanted);
    assert_eq!(rig.faults(), 0);
}
