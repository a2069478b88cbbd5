//! The driver against QEMU's controller: identify, read, write, verify; data in the machine's memory and in the peer's BAR.

mod support;

use nvme::{Form, Overwrite, Piece, Word};
use pcie::qemu::Pages;
use support::{Image, PEER, known, loaded, machine, one, open, queue, read};

fn word() -> Word {
    Word { device: Some("qemu".into()), destroy: vec![] }
}

fn blocks_are_read_and_written(kind: &str, block: u64) {
    needs_qemu!();
    let image = Image::new(4 << 20, 1);
    let machine = machine(kind, image.drive(), block, "").pages(Pages::Scattered).start().unwrap();
    let controller = open(&machine);
    assert_eq!((controller.page().serial.as_str(), controller.page().model.as_str()), ("doorbell", "QEMU NVMe Ctrl"));
    assert!(controller.is_functional() && controller.has_shadow_doorbells());
    assert_eq!(controller.active().unwrap(), [1]);
    let namespace = controller.namespace(1).unwrap();
    assert_eq!((namespace.block_bytes(), namespace.bytes()), (block, 4 << 20));

    let mut queue = queue(&controller, 8);
    let host = controller.allocate(256 << 10).unwrap();
    let (peer, at) = machine.peer();
    let peer = controller.reach(&peer).unwrap();
    // One block, two pages, a list; from a page's begin and from within.
    for (block_at, offset, bytes) in
        [(0, 0, block), (3, 4096, 4096), (8, 8192, 8192), (16, 0x800, 8192), (0, 0, 256 << 10), (9, 0xe00, 128 << 10)]
    {
        read(&mut queue, &namespace, block_at, &host, offset, bytes);
        assert_eq!(loaded(&host, offset, bytes), known(1, block_at * block, bytes), "{bytes} B into host memory");
        read(&mut queue, &namespace, block_at, &peer, 0x10_0000 + offset, bytes);
        // SAFETY: the peer's memory, which the machine keeps.
        let bar = unsafe { std::slice::from_raw_parts(at.as_ptr().add(0x10_0000 + offset as usize), bytes as usize) };
        assert_eq!(bar, known(1, block_at * block, bytes), "{bytes} B into the BAR");
    }

    let leave = Overwrite::ask(&controller, &mut queue, &namespace, &word()).unwrap();
    for (from, block_at, seed) in [(&host, 64 << 10, 2), (&peer, 512 << 10, 3)] {
        from.store(0x3000, &known(seed, 0, 64 << 10)).unwrap();
        queue.prepare(0, &[Piece::new(from, 0x3000, 64 << 10)]).unwrap();
        queue.complete(0, &leave.write(block_at / block, (64 << 10) / block).unwrap()).unwrap();
        read(&mut queue, &namespace, block_at / block, &host, 0, 64 << 10);
        assert_eq!(loaded(&host, 0, 64 << 10), known(seed, 0, 64 << 10));
    }
    queue.complete(0, &namespace.flush()).unwrap();
    // A command for blocks that the device does not have is told by name; the driver itself would not send it.
    drop((queue, controller));
    let image = image.bytes();
    let mut expected = known(1, 0, 4 << 20);
    expected[64 << 10..128 << 10].copy_from_slice(&known(2, 0, 64 << 10));
    expected[512 << 10..576 << 10].copy_from_slice(&known(3, 0, 64 << 10));
    assert!(image == expected, "the image holds what was written, and nothing else was");
}

#[test]
fn blocks_of_512_are_read_and_written_on_q35() {
    blocks_are_read_and_written("q35", 512);
}

#[test]
fn blocks_of_4096_are_read_and_written_on_pc() {
    blocks_are_read_and_written("pc", 4096);
}

#[test]
fn host_and_peer_memory_mix_in_one_command() {
    needs_qemu!();
    let image = Image::new(4 << 20, 1);
    let machine = machine("q35", image.drive(), 512, "").pages(Pages::Scattered).start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut queue = queue(&controller, 4);
    let host = controller.allocate(64 << 10).unwrap();
    let peer = controller.reach(&machine.peer().0).unwrap();
    let end = PEER - 0x4000;
    // Up to the BAR's last byte.
    let pages = [Piece::new(&host, 0x800, 0x1800), Piece::new(&peer, end, 0x4000), Piece::new(&host, 0x8000, 0x200)];
    let ragged =
        [Piece::new(&peer, 0x20_0200, 0x600), Piece::new(&host, 0x9a00, 0x400), Piece::new(&peer, 0x30, 0x200)];
    for (pieces, form, is_sgl) in
        [(pages, Form::Prp, false), (pages, Form::Sgl, true), (pages, Form::Any, false), (ragged, Form::Any, true)]
    {
        for piece in pieces {
            piece.memory.store(piece.offset, &vec![0xee; piece.bytes as usize]).unwrap();
        }
        queue.prepare_as(0, &pieces, form).unwrap();
        assert_eq!(queue.has_sgl(0), is_sgl);
        let bytes = pieces.iter().map(|piece| piece.bytes).sum::<u64>();
        assert!(one(&mut queue, 0, &namespace.read(7, bytes / 512).unwrap()).unwrap().is_success());
        let found: Vec<u8> = pieces.iter().flat_map(|piece| loaded(piece.memory, piece.offset, piece.bytes)).collect();
        assert!(found == known(1, 7 * 512, bytes), "{form:?}");
        // The bytes beside the pieces are as they were.
        assert_eq!(loaded(&host, 0x8200, 16), [0; 16]);
    }
    assert!(queue.prepare(0, &[Piece::new(&peer, end, 0x4200)]).is_err(), "beyond the BAR");
    assert!(queue.prepare_as(0, &ragged, Form::Prp).is_err());
}
