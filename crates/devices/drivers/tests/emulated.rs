//! The driver on QEMU's controller: identify, read, write and verify, with data in the machine's memory and in the peer's BAR.

mod support;

use drivers::nvme::{Error, Mix, Overwrite, Piece, Target, Word, verify};
use pcie::qemu::Pages;
use support::{Image, PEER, known, loaded, machine, one, open, queue, read};

fn word() -> Word {
    Word { destroy: vec!["unknown".into()], ..Word::of("qemu") }
}

fn blocks_are_read_and_written(block: u64) {
    needs_qemu!();
    let image = Image::new(4 << 20, 1);
    let machine = machine(image.drive(), block, "").pages(Pages::Scattered).start().unwrap();
    let controller = open(&machine);
    assert_eq!((controller.page().serial.as_str(), controller.page().model.as_str()), ("doorbell", "QEMU NVMe Ctrl"));
    assert!(controller.is_functional());
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
    // A command for blocks outside of the device returns a named error; the driver itself would not send it.
    drop((queue, controller));
    let image = image.bytes();
    let mut expected = known(1, 0, 4 << 20);
    expected[64 << 10..128 << 10].copy_from_slice(&known(2, 0, 64 << 10));
    expected[512 << 10..576 << 10].copy_from_slice(&known(3, 0, 64 << 10));
    assert!(image == expected, "the image holds what was written, and nothing else was");
}

#[test]
fn blocks_of_512_are_read_and_written() {
    blocks_are_read_and_written(512);
}

#[test]
fn blocks_of_4096_are_read_and_written() {
    blocks_are_read_and_written(4096);
}

#[test]
fn host_and_peer_memory_mix_in_one_command() {
    needs_qemu!();
    let image = Image::new(4 << 20, 1);
    let machine = machine(image.drive(), 512, "").pages(Pages::Scattered).start().unwrap();
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
    for piece in pages {
        piece.memory.store(piece.offset, &vec![0xee; piece.bytes as usize]).unwrap();
    }
    queue.prepare(0, &pages).unwrap();
    let bytes = pages.iter().map(|piece| piece.bytes).sum::<u64>();
    assert!(one(&mut queue, 0, &namespace.read(7, bytes / 512).unwrap()).unwrap().is_success());
    let found: Vec<u8> = pages.iter().flat_map(|piece| loaded(piece.memory, piece.offset, piece.bytes)).collect();
    assert!(found == known(1, 7 * 512, bytes));
    // The bytes around the pieces are unchanged.
    assert_eq!(loaded(&host, 0x8200, 16), [0; 16]);
    assert!(queue.prepare(0, &[Piece::new(&peer, end, 0x4200)]).is_err(), "beyond the BAR");
    assert!(queue.prepare(0, &ragged).is_err());
}

#[test]
fn a_mix_is_verified_and_wrong_bytes_are_counted() {
    needs_qemu!();
    let image = Image::new(4 << 20, 1);
    let machine = machine(image.drive(), 4096, "").start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let peer = controller.reach(&machine.peer().0).unwrap();
    let mix = Mix { queues: 2, slots: 8, largest: 64 << 10, span: 4 << 20, bytes: 4 << 20, seed: 3 };
    let reads = verify(&controller, &namespace, None, &peer, &mix, &|| false).unwrap();
    assert!(reads.reads > 50 && reads.bytes_read >= 4 << 20, "{reads:?}");
    assert_eq!((reads.writes, reads.wrong, reads.first_wrong), (0, 0, None));
    assert!(image.bytes() == known(1, 0, 4 << 20), "nothing is written without leave");

    let leave = Overwrite::ask(&controller, &mut queue(&controller, 8), &namespace, &word()).unwrap();
    // When asked to stop, it ends without commands in flight and reports it: before the first command, and in the middle.
    for after in [0, 40] {
        let asked = std::sync::atomic::AtomicU32::new(0);
        let stop = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= after;
        let some = verify(&controller, &namespace, Some(&leave), &peer, &mix, &stop).unwrap();
        assert!(some.stopped && some.wrong == 0, "{some:?}");
        assert!(some.bytes_read + some.bytes_written < mix.bytes && (some.reads > 0) == (after > 0), "{some:?}");
    }
    let both = verify(&controller, &namespace, Some(&leave), &peer, &mix, &|| false).unwrap();
    assert!(both.reads > 20 && both.writes > 20 && both.wrong == 0, "{both:?}");

    /// A target that returns wrong bytes at one place.
    struct Bent(pcie::Memory);
    impl Target for Bent {
        fn memory(&self) -> &pcie::Memory {
            &self.0
        }
        fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
            self.0.load(offset, into)?;
            into[77] ^= 1;
            Ok(())
        }
        fn store(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
            Ok(self.0.store(offset, from)?)
        }
    }
    let bent = verify(&controller, &namespace, None, &Bent(peer), &mix, &|| false).unwrap();
    assert_eq!(bent.wrong, bent.reads);
    assert_eq!(bent.first_wrong.unwrap() % 4096, 77);
    let none = verify(&controller, &namespace, None, &Bent(controller.allocate(4096).unwrap()), &mix, &|| false);
    assert!(none.is_err(), "a target that is too small");
}

#[test]
fn only_the_users_own_word_lets_write() {
    needs_qemu!();
    let image = Image::empty(4 << 20);
    let machine = machine(image.drive(), 512, "").start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut queue = queue(&controller, 8);
    let mut ask = |device: Option<&str>, destroy: &[&str]| {
        let destroy = destroy.iter().map(|name| name.to_string()).collect();
        let word = Word { given: "qemu".into(), device: device.map(str::to_string), destroy };
        Overwrite::ask(&controller, &mut queue, &namespace, &word).map(|_| ()).map_err(|error| error.to_string())
    };
    // Its address in the emulated machine is another device's address on this machine.
    let own = controller.identity().address.to_string();
    assert!(ask(Some(&own), &[]).unwrap_err().contains("add --i-mean-to-overwrite qemu if they may"));
    let no_word = ask(None, &[]).unwrap_err();
    assert!(no_word.contains("add --i-mean-to-overwrite qemu if they may"), "{no_word}");
    assert!(ask(Some("0000:00:01.0"), &[]).unwrap_err().contains("your word is for 0000:00:01.0"));
    assert_eq!(ask(Some("qemu"), &[]), Ok(()));
    let put = |at: u64, bytes: &[u8]| {
        use std::os::unix::fs::FileExt;
        std::fs::File::options().write(true).open(&image.path).unwrap().write_all_at(bytes, at).unwrap();
    };
    // Bytes of an unknown format are refused, too.
    put(100, b"mine");
    let unknown = ask(Some("qemu"), &[]).unwrap_err();
    assert!(unknown.contains("no known format (unknown at byte 0x64); add --destroy unknown"), "{unknown}");
    assert_eq!(ask(Some("qemu"), &["unknown"]), Ok(()));
    // The user may give up a file system by naming it.
    put(1024 + 56, &[0x53, 0xef]);
    let ext = ask(Some("qemu"), &[]).unwrap_err();
    assert!(ext.contains("it holds ext at byte 0x438; add --destroy ext"), "{ext}");
    assert!(ask(Some("qemu"), &["xfs"]).is_err());
    assert_eq!(ask(Some("qemu"), &["ext"]), Ok(()));
    // A partition table is always refused.
    put((4 << 20) - 512, b"EFI PART");
    let gpt = ask(Some("qemu"), &["ext", "gpt"]).unwrap_err();
    assert!(gpt.contains("gpt at byte 0x3ffe00") && gpt.contains("never overwritten"), "{gpt}");
}

#[test]
fn a_zoned_namespace_is_no_plain_one() {
    needs_qemu!();
    let image = Image::empty(16 << 20);
    let zones = "nvme-ns,bus=nvme0,drive=d0,zoned=true,zoned.zone_size=1M";
    let builder = pcie::qemu::Machine::builder().drive(image.drive());
    let machine = builder.device("nvme,id=nvme0,serial=doorbell").device(zones).start().unwrap();
    let controller = open(&machine);
    let refused = controller.namespace(1).unwrap_err().to_string();
    assert!(refused.contains("its command set is zoned"), "{refused}");
}

#[test]
fn a_signal_of_the_terminal_does_not_reach_the_emulator() {
    needs_qemu!();
    let image = Image::empty(1 << 20);
    let machine = machine(image.drive(), 512, "").start().unwrap();
    // SAFETY: only reads numbers.
    let (own, its) = unsafe { (libc::getpgid(0), libc::getpgid(machine.process() as i32)) };
    assert!(its > 0 && its != own, "both are in the process group {own}");
}
