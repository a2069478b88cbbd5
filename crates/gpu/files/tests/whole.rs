//! Whole files to the software GPU's memory and back.

mod ground;

use files::{Backend, Extent, Extents, Options, Source, Target, Way, bare, read, write};
use ground::{filled, machine, random};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn options(block: usize, depth: usize, threads: usize) -> Options {
    Options { block, depth, threads, verify: true, ..Options::default() }
}

#[test]
fn every_byte_arrives_at_all_sizes_depths_and_threads() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    for (bytes, block, depth, threads) in [
        (1, 4096, 1, 1),
        (4095, 4096, 2, 1),
        (4096, 4096, 16, 2),
        (4097, 512, 3, 1),
        (1_000_003, 65_536, 4, 3),
        ((3 << 20) + 17, 1 << 20, 8, 1),
        (2 << 20, 8192, 128, 2),
    ] {
        let (path, data) = random(&dir, "f", bytes);
        let source = Source::open(&path, false).unwrap();
        let target = Target::new(&machine, bytes as u64).unwrap();
        let places = Arc::new(Extents::whole(source.length()));
        let progress = AtomicU64::new(0);
        let report = read(&machine, &source, (&target, &places), &options(block, depth, threads), &progress).unwrap();
        let mut found = vec![0; bytes];
        target.read(0, &mut found).unwrap();
        assert!(found == data, "{bytes} bytes in blocks of {block}");
        assert_eq!((report.bytes, report.verified), (bytes as u64, Some(bytes as u64)));
        assert_eq!(progress.load(Ordering::Relaxed), bytes as u64);
    }
}

#[test]
fn pieces_go_to_their_places_and_nothing_else_is_touched() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = random(&dir, "f", 100_000);
    let source = Source::open(&path, false).unwrap();
    let target = Target::new(&machine, 200_000).unwrap();
    target.write(0, &vec![0xee; 200_000]).unwrap();
    let pieces = [(777, 4096, 5), (782, 0, 3000), (20_000, 8192, 70_001), (99_999, 150_000, 1)];
    let pieces = pieces.map(|(offset, at, bytes)| Extent { offset, at, bytes });
    let places = Arc::new(Extents::new(pieces).unwrap());
    for (block, depth) in [(512, 128), (4096, 3), (1 << 20, 1)] {
        let report =
            read(&machine, &source, (&target, &places), &options(block, depth, 1), &AtomicU64::new(0)).unwrap();
        assert_eq!(report.verified, Some(73_007));
        let mut expected = vec![0xee; 200_000];
        for piece in pieces {
            let (from, to, bytes) = (piece.offset as usize, piece.at as usize, piece.bytes as usize);
            expected[to..to + bytes].copy_from_slice(&data[from..from + bytes]);
        }
        let mut found = vec![0; 200_000];
        target.read(0, &mut found).unwrap();
        assert!(found == expected, "blocks of {block}");
    }
}

#[test]
fn what_is_written_is_what_was_in_the_gpus_memory() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    for (bytes, block, threads) in [(1, 4096, 1), (70_001, 8192, 2), ((2 << 20) + 512, 1 << 20, 1)] {
        let (target, data) = filled(&machine, bytes);
        let path = dir.path().join(format!("out{bytes}"));
        let (memory, options) = (&target, options(block, 4, threads));
        let report = write(&machine, &path, memory, bytes as u64, &options, false, &AtomicU64::new(0)).unwrap();
        assert_eq!(report.verified, Some(bytes as u64));
        assert!(std::fs::read(&path).unwrap() == data, "{bytes} bytes");
    }
}

#[test]
fn threads_do_the_same_where_io_uring_is_not_wanted() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = random(&dir, "f", 300_001);
    let source = Source::open(&path, false).unwrap();
    let target = Target::new(&machine, 300_001).unwrap();
    let places = Arc::new(Extents::whole(source.length()));
    let options = Options { way: Way::Threads, ..options(16_384, 8, 2) };
    let report = read(&machine, &source, (&target, &places), &options, &AtomicU64::new(0)).unwrap();
    assert_eq!(report.backend, Backend::Threads { refused: None });
    let mut found = vec![0; 300_001];
    target.read(0, &mut found).unwrap();
    assert!(found == data);
    let path = dir.path().join("out");
    write(&machine, &path, &target, 300_001, &options, false, &AtomicU64::new(0)).unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    let report = bare(&source, &options, &AtomicU64::new(0)).unwrap();
    assert_eq!((report.bytes, report.verified), (300_001, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// Any pieces of any file, in blocks of any size, by io_uring or threads: each byte is at its place, and no other
    /// byte changes.
    #[test]
    fn any_pieces_go_to_their_places(
        pieces in proptest::collection::vec((0u64..9000, 1u64..60_000, 0u64..300), 1..12),
        (block, depth, threads) in (1usize..40, 1usize..10, 1usize..3),
        (tail, by_threads, buffered) in (0u64..5000, any::<bool>(), any::<bool>()),
    ) {
        let machine = machine();
        let dir = tempfile::tempdir().unwrap();
        let (mut offset, mut at, mut all) = (0, 0, Vec::new());
        for (gap, bytes, between) in pieces {
            all.push(Extent { offset: offset + gap, at: at + between, bytes });
            offset += gap + bytes;
            at += between + bytes;
        }
        let (path, data) = random(&dir, "f", (offset + tail) as usize);
        let source = Source::open(&path, buffered).unwrap();
        let target = Target::new(&machine, at + 100).unwrap();
        let mut expected = vec![0xee; (at + 100) as usize];
        target.write(0, &expected).unwrap();
        for piece in &all {
            let (from, to, bytes) = (piece.offset as usize, piece.at as usize, piece.bytes as usize);
            expected[to..to + bytes].copy_from_slice(&data[from..from + bytes]);
        }
        let places = Arc::new(Extents::new(all).unwrap());
        let way = if by_threads { Way::Threads } else { Way::Auto };
        let options = Options { way, buffered, ..options(block * 512, depth, threads) };
        read(&machine, &source, (&target, &places), &options, &AtomicU64::new(0)).unwrap();
        let mut found = vec![0; expected.len()];
        target.read(0, &mut found).unwrap();
        prop_assert!(found == expected);
    }
}
