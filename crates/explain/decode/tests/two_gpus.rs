//! Where an address points depends on the GPU and on the address space of the channel that uses it.

#[path = "synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use decode::walk::{At, Sink, walk};
use pushbuf::ops::Op;
use rm::class;
use schema::operations::CopyRow;
use schema::{Clock, Place, Summary};
use synthetic::{
    BOTH_AT, DEVICE, DEVICE_AT, HOST_AT, PEER_AT, SECOND, SECOND_SPACE, Tape, copy, two_gpus, two_gpus_of,
};

struct Copies(Vec<CopyRow>, Clock);

impl Sink for Copies {
    fn op(&mut self, at: &At<'_>, op: &Op) {
        self.0.extend(decode::rows::copy(at, op, &self.1));
    }
}

fn read(t: &mut Tape) -> (Vec<CopyRow>, Summary) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    t.write(&path);
    let r = Recording::open(&path).unwrap();
    let mut copies = Copies(Vec::new(), decode::rows::clock(&r));
    walk(&r, &mut copies).unwrap();
    (copies.0, decode::summary(&r).unwrap())
}

fn places(c: &CopyRow) -> [(Place, Option<u32>); 2] {
    [(c.src_place.unwrap(), c.src_gpu), (c.dst_place, c.dst_gpu)]
}

#[test]
fn a_copy_between_gpus_says_which_they_are() {
    let mut t = two_gpus();
    t.submit(100, 0, &[&copy(DEVICE_AT, PEER_AT, 4096)]);
    t.submit(100, 0, &[&copy(PEER_AT, DEVICE_AT, 4096)]);
    t.submit(100, 1, &[&copy(HOST_AT, PEER_AT, 4096)]);
    let (copies, summary) = read(&mut t);
    let (first, second, host) = ((Place::Video, Some(0)), (Place::Video, Some(1)), (Place::Host, None));
    let seen: Vec<_> = copies.iter().map(places).collect();
    assert_eq!(seen, [[first, second], [second, first], [host, second]]);
    assert_eq!(summary.gpus, [0, 1]);
    assert_eq!(summary.channel_list.iter().map(|c| c.gpu).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn one_address_is_other_memory_on_another_gpu() {
    let mut t = two_gpus();
    for slot in [0, 1] {
        t.submit(100, slot, &[&copy(HOST_AT, BOTH_AT, 4096)]);
    }
    let (copies, _) = read(&mut t);
    let seen: Vec<_> = copies.iter().map(|c| places(c)[1]).collect();
    // Host memory on the first; the second's own GPU memory on the second, which mapped it last.
    assert_eq!(seen, [(Place::Host, None), (Place::Video, Some(1))]);
}

#[test]
fn what_only_the_other_gpu_has_is_unknown() {
    let mut t = two_gpus();
    t.memory_of(100, SECOND, 0x5b00_0110, class::NV01_MEMORY_LOCAL_USER, 1 << 20);
    t.external(100, synthetic::GPU_1, 0x5b00_0110, BOTH_AT + (1 << 30), 1 << 20);
    for slot in [0, 1] {
        t.submit(100, slot, &[&copy(HOST_AT, BOTH_AT + (1 << 30), 4096)]);
    }
    let (copies, _) = read(&mut t);
    let seen: Vec<_> = copies.iter().map(|c| places(c)[1]).collect();
    assert_eq!(seen, [(Place::Unknown, None), (Place::Video, Some(1))]);
}

#[test]
fn one_address_is_other_memory_in_another_address_space() {
    let (at, third) = (0x6_0000_0000, 0x5b00_0003);
    let mut t = two_gpus();
    // Two spaces of the second GPU, each with separate RM mappings at the same address.
    t.alloc(100, SECOND, third, class::FERMI_VASPACE_A, &[0; 56]);
    t.memory_of(100, SECOND, 0x5b00_0120, class::NV01_MEMORY_LOCAL_USER, 1 << 20);
    t.memory_of(100, DEVICE, 0x5b00_0121, class::NV01_MEMORY_SYSTEM, 1 << 20);
    t.map_in_space(100, SECOND_SPACE, 0x5b00_0120, at, 1 << 20);
    t.map_in_space(100, third, 0x5b00_0121, at, 1 << 20);
    t.channel_on(100, SECOND, third, 2, 0x5c00_1003, 9, 32);
    for slot in [1, 2] {
        t.submit(100, slot, &[&copy(HOST_AT, at, 4096)]);
    }
    let (copies, _) = read(&mut t);
    let seen: Vec<_> = copies.iter().map(|c| places(c)[1]).collect();
    assert_eq!(seen, [(Place::Video, Some(1)), (Place::Host, None)]);
}

#[test]
fn what_the_agent_did_not_store_of_uvm_is_not_guessed() {
    let seen = |without_uvm: bool| {
        let mut t = Tape::new();
        t.without_uvm = without_uvm;
        let mut t = two_gpus_of(t);
        t.submit(100, 0, &[&copy(DEVICE_AT, PEER_AT, 4096)]);
        let (copies, _) = read(&mut t);
        copies.iter().map(places).collect::<Vec<_>>()
    };
    assert_eq!(seen(false), [[(Place::Video, Some(0)), (Place::Video, Some(1))]]);
    assert_eq!(seen(true), [[(Place::Unknown, None); 2]]);
}
