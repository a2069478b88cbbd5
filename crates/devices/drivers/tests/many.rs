//! Many commands in flight: four queues of 128 from four threads, and a random mix against a reference.

mod support;

use drivers::nvme::{Depth, Done, Namespace, Overwrite, Piece, Queue, Word};
use pcie::Memory;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Draw, Image, known, loaded, machine, open};

const SLOTS: u16 = 128;

fn deep(most_bytes: u64) -> Depth {
    Depth { slots: SLOTS, most_bytes, deadline: Duration::from_secs(60) }
}

/// Keeps a queue full: `next` starts the slot's next command and returns whether there was one, `ended` handles one that ended.
fn keep_full(queue: &mut Queue, mut next: impl FnMut(&mut Queue, u16) -> bool, mut ended: impl FnMut(u16)) {
    for slot in 0..queue.slots() {
        next(queue, slot);
    }
    let mut done = [Done::NONE; 64];
    let mut quiet = Instant::now();
    while queue.in_flight() > 0 {
        let count = queue.reap(&mut done).unwrap();
        for one in &done[..count] {
            assert!(one.is_success(), "{one:?}");
            ended(one.slot);
            next(queue, one.slot);
        }
        if count > 0 {
            quiet = Instant::now();
        } else {
            assert!(quiet.elapsed() < Duration::from_secs(20), "{} commands do not end", queue.in_flight());
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Each slot reads `turns` of the blocks that belong to it, in sequence, and compares.
fn read_many(mut queue: Queue, namespace: &Namespace, memory: &Memory, base: u64, turns: u64, seed: u64) -> u64 {
    let mut turn = [0u64; SLOTS as usize];
    let place = |slot: u16| base + u64::from(slot) * 4096;
    for slot in 0..SLOTS {
        queue.prepare(slot, &[Piece::new(memory, place(slot), 4096)]).unwrap();
    }
    let blocks = namespace.bytes() / 4096;
    let block = |slot: u16, turn: u64| (base / 4096 + u64::from(slot) + turn * 37) % blocks;
    let turns_left = std::cell::RefCell::new(&mut turn);
    let mut right = 0;
    keep_full(
        &mut queue,
        |queue, slot| {
            let turn = turns_left.borrow()[usize::from(slot)];
            let per = 4096 / namespace.block_bytes();
            turn < turns && {
                queue.submit(slot, &namespace.read(block(slot, turn) * per, per).unwrap()).unwrap();
                true
            }
        },
        |slot| {
            let turn = &mut turns_left.borrow_mut()[usize::from(slot)];
            assert!(loaded(memory, place(slot), 4096) == known(seed, block(slot, *turn) * 4096, 4096), "slot {slot}");
            *turn += 1;
            right += 1;
        },
    );
    right
}

#[test]
fn four_queues_of_128_are_driven_from_four_threads() {
    needs_qemu!();
    let image = Image::new(4 << 20, 5);
    let machine = machine(image.drive(), 512, "").peer_memory(4u64 << 20).start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let host = controller.allocate(u64::from(SLOTS) * 4096 * 4).unwrap();
    let peer = controller.reach(&machine.peer().0).unwrap();
    let queues: Vec<_> = (0..4).map(|_| controller.queue(&deep(64 << 10)).unwrap()).collect();
    let right: u64 = std::thread::scope(|scope| {
        let threads = queues.into_iter().zip(0u64..).map(|(queue, at)| {
            let memory = if at % 2 == 0 { &host } else { &peer };
            let namespace = &namespace;
            scope.spawn(move || read_many(queue, namespace, memory, at * u64::from(SLOTS) * 4096, 3, 5))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(right, 4 * 128 * 3);
}

/// Reads and writes of 4 KiB to 256 KiB at random on four queues, 1 GiB in all, half of it for each format. Each slot has its own part of the
/// device, so that it reads its own last writes.
#[test]
#[ignore = "1 GiB through an emulated controller takes some seconds; run by .ci/run"]
fn a_gibibyte_of_random_mix_equals_its_reference() {
    needs_qemu!();
    const QUEUES: u64 = 4;
    const DEEP: u64 = 16;
    const PART: u64 = 1 << 20;
    const WHOLE: u64 = QUEUES * DEEP * PART;
    const MIX: u64 = 1 << 30;
    for block in [512u64, 4096] {
        let image = Image::new(WHOLE, 6);
        let machine = machine(image.drive(), block, "").ram(128 << 20).peer_memory(32u64 << 20).start().unwrap();
        let controller = open(&machine);
        let namespace = controller.namespace(1).unwrap();
        let host = controller.allocate(QUEUES * DEEP / 2 * (256 << 10)).unwrap();
        let peer = controller.reach(&machine.peer().0).unwrap();
        let depth = Depth { slots: DEEP as u16, most_bytes: 256 << 10, deadline: Duration::from_secs(60) };
        let mut queues: Vec<_> = (0..QUEUES).map(|_| controller.queue(&depth).unwrap()).collect();
        let word = Word { destroy: vec!["unknown".into()], ..Word::of("qemu") };
        let leave = Overwrite::ask(&controller, &mut queues[0], &namespace, &word).unwrap();
        let parts: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = queues
                .into_iter()
                .zip(0..QUEUES)
                .map(|(queue, at)| {
                    let memory = if at % 2 == 0 { &host } else { &peer };
                    let (leave, namespace) = (&leave, &namespace);
                    scope.spawn(move || mix(queue, namespace, leave, memory, at, MIX / QUEUES / 2))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let reference = parts.concat();
        drop((controller, machine));
        assert!(image.bytes() == reference, "the image is what the reference says");
        checked_by_others(&image, &reference);
    }

    fn mix(
        mut queue: Queue,
        namespace: &Namespace,
        leave: &Overwrite,
        memory: &Memory,
        at: u64,
        bytes: u64,
    ) -> Vec<u8> {
        let base = at * DEEP * PART;
        let mut reference = known(6, base, DEEP * PART);
        let mut draw = Draw(0x1234_5678 + at);
        let mut moved = 0;
        let mut running = vec![(0u64, 0u64, false); DEEP as usize];
        let place = |slot: u16| (at / 2 * DEEP + u64::from(slot)) * (256 << 10);
        let mut done = [Done::NONE; 16];
        let mut start = |queue: &mut Queue, slot: u16, reference: &mut [u8], moved: &mut u64| {
            let length = 4096 << draw.below(7);
            let from = u64::from(slot) * PART + draw.below((PART - length) / 4096 + 1) * 4096;
            let is_write = draw.below(2) == 0;
            let per = namespace.block_bytes();
            queue.prepare(slot, &[Piece::new(memory, place(slot), length)]).unwrap();
            let io = if is_write {
                let new = known(draw.below(1 << 20) + 7, from, length);
                memory.store(place(slot), &new).unwrap();
                reference[from as usize..(from + length) as usize].copy_from_slice(&new);
                leave.write((base + from) / per, length / per)
            } else {
                namespace.read((base + from) / per, length / per)
            };
            queue.submit(slot, &io.unwrap()).unwrap();
            *moved += length;
            (from, length, is_write)
        };
        for slot in 0..DEEP as u16 {
            running[usize::from(slot)] = start(&mut queue, slot, &mut reference, &mut moved);
        }
        while queue.in_flight() > 0 {
            let count = queue.reap(&mut done).unwrap();
            for one in &done[..count] {
                assert!(one.is_success(), "{one:?}");
                let (from, length, is_write) = running[usize::from(one.slot)];
                let expected = &reference[from as usize..(from + length) as usize];
                assert!(is_write || loaded(memory, place(one.slot), length) == expected, "read at {from:#x}");
                if moved < bytes {
                    running[usize::from(one.slot)] = start(&mut queue, one.slot, &mut reference, &mut moved);
                }
            }
            if count == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        queue.complete(0, &namespace.flush()).unwrap();
        reference
    }
}

/// QEMU's own tools look at the image: qemu-img compares it with the reference, qemu-io reads a part of it.
fn checked_by_others(image: &Image, reference: &[u8]) {
    if !test_support::installed("qemu-img") || !test_support::installed("qemu-io") {
        test_support::skip_part!("qemu-img and qemu-io are not installed (Debian: qemu-utils)");
        return;
    }
    let other = Image::new(0, 0);
    std::fs::write(&other.path, reference).unwrap();
    let mut compare = Command::new("qemu-img");
    compare.args(["compare", "-s", "-f", "raw", "-F", "raw"]).arg(&image.path).arg(&other.path);
    let out = test_support::finished(&mut compare, "qemu-img compare");
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let mut read = Command::new("qemu-io");
    read.args(["-r", "-f", "raw", "-c", "read -v 1048576 16"]).arg(&image.path);
    let out = test_support::finished(&mut read, "qemu-io");
    let text = String::from_utf8_lossy(&out.stdout);
    let bytes: Vec<String> = reference[1 << 20..(1 << 20) + 16].iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(text.contains(&bytes.join(" ")), "{text}");
}
