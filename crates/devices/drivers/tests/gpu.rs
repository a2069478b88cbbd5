//! Path C: the controller's own DMA writes into a GPU's buffer at the bus address that BAR1 has for it, and reads from there. The GPU is in
//! software, its memory a BAR of the emulated machine.

mod support;

use doorbell_softgpu::{Mode, SoftDriver};
use drivers::nvme::{Overwrite, Piece, Word};
use pcie::qemu::Pages;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use support::{Image, known, loaded, open, queue};
use workload::spec::{End, Memory};
use workload::{Buffer, Machine};

const VIDEO: u64 = 256 << 20;

fn video() -> OwnedFd {
    // SAFETY: a name that ends in NUL; the descriptor is new.
    let file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"video".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(VIDEO).unwrap();
    file.into()
}

#[test]
fn a_drive_and_a_gpu_exchange_blocks_without_host_memory() {
    needs_qemu!();
    let image = Image::new(2 << 20, 1);
    let file = video();
    let machine = support::machine(image.drive(), 512, "").pages(Pages::Scattered);
    let machine = machine.peer_memory(file.try_clone().unwrap()).start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let driver = SoftDriver::with_video(Mode::Strict, file.as_fd(), machine.peer().0.bus).unwrap();
    let gpus = Machine::of_driver(Arc::new(driver), false).unwrap();
    let end = End { memory: Memory::Gpu(0), offset: 0 };
    let buffer = Buffer::new(&gpus, end, 1 << 20).unwrap();
    let target = buffer.gpu_target().unwrap();
    let memory = controller.reach(&target.peer()).unwrap();
    assert!(memory.length() >= 1 << 20);

    let mut queue = queue(&controller, 4);
    let host = controller.allocate(4096).unwrap();
    // Blocks of one command to host memory and to the GPU.
    queue.prepare(0, &[Piece::new(&host, 0, 4096), Piece::new(&memory, 8192, 256 << 10)]).unwrap();
    queue.complete(0, &namespace.read(8, (260 << 10) / 512).unwrap()).unwrap();
    assert_eq!(loaded(&host, 0, 4096), known(1, 4096, 4096));
    let mut found = vec![0; 256 << 10];
    buffer.read(8192, &mut found).unwrap();
    assert!(found == known(1, 8192, 256 << 10), "the GPU has what the drive has");

    // Back, after the GPU's side wrote it.
    buffer.write(0, &known(9, 0, 64 << 10)).unwrap();
    let word = Word { destroy: vec!["unknown".into()], ..Word::of("qemu") };
    let leave = Overwrite::ask(&controller, &mut queue, &namespace, &word).unwrap();
    queue.prepare(0, &[Piece::new(&memory, 0, 64 << 10)]).unwrap();
    queue.complete(0, &leave.write(512, 128).unwrap()).unwrap();
    drop((queue, controller));
    let mut expected = known(1, 0, 2 << 20);
    expected[256 << 10..320 << 10].copy_from_slice(&known(9, 0, 64 << 10));
    assert!(image.bytes() == expected);
}
