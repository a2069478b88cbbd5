//! QEMU's NVMe controller over an image that holds known bytes.
#![allow(dead_code)] // each test file uses a part

use drivers::nvme::{Controller, Depth, Done, Error, Io, Namespace, Piece, Queue};
use pcie::Memory;
use pcie::qemu::{Builder, Machine, PROGRAM};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub fn qemu() -> bool {
    test_support::installed(PROGRAM)
}

#[macro_export]
macro_rules! needs_qemu {
    () => {
        if !support::qemu() {
            test_support::skip!("{} is not installed", pcie::qemu::PROGRAM);
        }
    };
}

/// A file that is deleted with its test.
pub struct Image {
    pub path: PathBuf,
}

impl Image {
    pub fn new(bytes: u64, seed: u64) -> Image {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("doorbell-nvme-{}-{number}.img", std::process::id()));
        std::fs::write(&path, known(seed, 0, bytes)).unwrap();
        Image { path }
    }

    /// A file of zeroes without allocated blocks.
    pub fn empty(bytes: u64) -> Image {
        let image = Image::new(0, 0);
        std::fs::File::options().write(true).open(&image.path).unwrap().set_len(bytes).unwrap();
        image
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    pub fn drive(&self) -> String {
        drive(&self.path)
    }
}

pub fn drive(path: &Path) -> String {
    format!("file={},if=none,id=d0,format=raw,cache=unsafe", path.display())
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Bytes that differ at every place, from `offset` on (which is a multiple of 8).
pub fn known(seed: u64, offset: u64, bytes: u64) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes as usize + 8);
    for word in offset / 8..(offset + bytes).div_ceil(8) {
        let mixed = (word ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        all.extend_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
    }
    all.truncate(bytes as usize);
    all
}

/// A small generator for tests that need many random numbers (xorshift).
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

pub const PEER: u64 = 4 << 20;

/// A machine with one NVMe controller (`nvme0`) and a peer.
pub fn machine(drive: String, block: u64, more: &str) -> Builder {
    let device =
        format!("nvme,id=nvme0,drive=d0,serial=doorbell,logical_block_size={block},physical_block_size={block}{more}");
    Machine::builder().peer_memory(PEER).drive(drive).device(device)
}

pub fn open(machine: &Machine) -> Controller {
    Controller::open(machine.function("nvme0").unwrap()).unwrap()
}

/// Waits for one command of a queue that has no other in flight.
pub fn one(queue: &mut Queue, slot: u16, io: &Io) -> Result<Done, Error> {
    queue.submit(slot, io)?;
    wait(queue)
}

/// The next command that ends.
pub fn wait(queue: &mut Queue) -> Result<Done, Error> {
    let mut done = [Done::NONE];
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if queue.reap(&mut done)? == 1 {
            return Ok(done[0]);
        }
        assert!(Instant::now() < until, "no completion");
        std::thread::yield_now();
    }
}

pub fn read(queue: &mut Queue, namespace: &Namespace, block: u64, memory: &Memory, offset: u64, bytes: u64) {
    queue.prepare(0, &[Piece::new(memory, offset, bytes)]).unwrap();
    let io = namespace.read(block, bytes / namespace.block_bytes()).unwrap();
    let done = one(queue, 0, &io).unwrap();
    assert!(done.is_success(), "{done:?}");
}

pub fn loaded(memory: &Memory, offset: u64, bytes: u64) -> Vec<u8> {
    let mut into = vec![0; bytes as usize];
    memory.load(offset, &mut into).unwrap();
    into
}

pub fn queue(controller: &Controller, slots: u16) -> Queue {
    controller.queue(&Depth { slots, ..Depth::default() }).unwrap()
}

/// The slot whose command ended, and how, of a queue where several are in flight.
pub fn reap_all(queue: &mut Queue) -> Vec<Done> {
    let mut all = Vec::new();
    while queue.in_flight() > 0 {
        all.push(wait(queue).unwrap());
    }
    all
}
