//! A tape that was cut or changed anywhere gives the events before the damage, and never a panic.

mod synthetic;

use decode::Recording;
use schema::Summary;
use std::path::Path;
use synthetic::*;
use tape::file::{Item, Reader, TapeError};

fn small() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    t.cut(1);
    for i in 0..6 {
        t.submit(2, 0, &[&copy(HOST_AT, DEVICE_AT, 1 << i)]);
        t.cut(2);
    }
    t.write(&path);
    std::fs::read(&path).unwrap()
}

fn read(path: &Path, bytes: &[u8]) -> Option<(Recording, Summary)> {
    std::fs::write(path, bytes).unwrap();
    let r = Recording::open(path).ok()?;
    let s = decode::summary(&r).unwrap();
    Some((r, s))
}

#[test]
#[ignore = "some 15 s; run by .ci/run"]
fn a_tape_cut_at_every_byte_gives_what_lies_before() {
    let whole = small();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut");
    let mut last = 0;
    let mut readable = 0;
    let mut ended = Vec::new();
    for n in 0..whole.len() {
        let Some((r, s)) = read(&path, &whole[..n]) else { continue };
        readable += 1;
        assert!(s.copies.copy_engine >= last, "a longer file never says less");
        last = s.copies.copy_engine;
        match r.damage() {
            Some(TapeError::Damaged { offset, .. }) => {
                assert!(*offset <= n as u64);
                assert!(s.damage.unwrap().contains(&format!("offset {offset}")));
            }
            Some(e) => panic!("{e}"),
            // Cut between two chunks: there is no damage, but the end is missing. Or cut after the end: the rest only
            // makes reading faster.
            None if s.end.is_some() => ended.push(n),
            None => {}
        }
    }
    assert!(readable > whole.len() / 2);
    assert_eq!(last, 6);
    assert!(!ended.is_empty() && ended.iter().copied().eq(ended[0]..whole.len()), "{ended:?}");
    let (r, s) = read(&path, &whole).unwrap();
    assert!(r.damage().is_none() && s.end.is_some());
}

/// xorshift64*: the same flips every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

#[test]
fn a_flipped_bit_is_found_and_never_a_panic() {
    let whole = small();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flip");
    let mut random = Random(42);
    for _ in 0..300 {
        let mut b = whole.clone();
        let at = random.below(b.len());
        b[at] ^= 1 << random.below(8);
        if let Some((r, s)) = read(&path, &b) {
            // A flip in the padding between chunks has no effect.
            assert!(r.damage().is_some() || s.copies.copy_engine == 6, "flip at {at} went unseen");
            assert!(s.copies.copy_engine <= 6);
        }
    }
}

/// A file that lost bytes in the middle of one chunk of events: that chunk is missing, and is reported as missing.
#[test]
fn behind_events_that_are_damaged_the_rest_is_read() {
    let mut b = small();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hole");
    std::fs::write(&path, &b).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let mut places = Vec::new();
    while let Some(item) = reader.item().unwrap() {
        if matches!(item, Item::Events { tid: 2, .. }) {
            places.push(reader.place());
        }
    }
    let place = places[2];
    b[place.offset as usize + place.len / 2] ^= 0x40;
    let (r, s) = read(&path, &b).unwrap();
    assert!(
        matches!(r.damage(), Some(TapeError::Events { offset, .. }) if *offset == place.offset),
        "{:?}",
        r.damage()
    );
    assert_eq!((s.copies.copy_engine, s.complete), (places.len() as u64 - 1, false));
    assert!(s.lost > 0 && s.damage.unwrap().contains(&format!("offset {}; what it held is missing", place.offset)));
}

#[test]
fn events_that_lie_never_panic() {
    // The checksums hold, the events do not: what a broken agent, or an attacker, would write.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lies");
    let mut random = Random(7);
    for _ in 0..400 {
        let mut t = Tape::new();
        t.context(1);
        t.channel(1, 0, 0x5c00_1000, 1, 32);
        t.submit(2, 0, &[&launch(QMD_AT, [1, 1, 1])]);
        t.submit(2, 0, &[&inline(DEVICE_AT, &[1; 64]), &copy_64_mib()]);
        t.end_channel(1, 0);
        t.channel(1, 0, 0x5c00_1000, 9, 32);
        t.submit(2, 0, &[&copy_64_mib()]);
        t.flip(random.below(60) + 1, |n| random.below(n));
        t.write(&path);
        let r = Recording::open(&path).unwrap();
        assert!(r.damage().is_none());
        decode::summary(&r).unwrap();
    }
}
