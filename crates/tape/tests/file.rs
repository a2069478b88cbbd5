//! A tape that was cut or flipped anywhere gives everything before the damage, then an error that says where.

use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tape::file::{Clock, End, Header, Item, Reader, TapeError, Writer};

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Events(i32, Vec<u8>),
    Clock(u64),
    Note(String),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        4 => (any::<i32>(), prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(t, b)| Piece::Events(t, b)),
        1 => any::<u64>().prop_map(Piece::Clock),
        1 => "[a-z ]{0,20}".prop_map(Piece::Note),
    ]
}

/// Writes a tape and says where each chunk ends, the header's first.
fn write(path: &Path, pieces: &[Piece], end: bool) -> Vec<u64> {
    let mut w = Writer::create(path, &Header { doorbell: "test".into(), tsc_hz: 3e9, ..Header::default() }).unwrap();
    let mut ends = vec![w.bytes()];
    for p in pieces {
        match p {
            Piece::Events(tid, b) => w.events(*tid, 9, b).unwrap(),
            Piece::Clock(tsc) => w.clock(&Clock { tsc: *tsc, ..Clock::default() }).unwrap(),
            Piece::Note(t) => w.note(t).unwrap(),
        }
        ends.push(w.bytes());
    }
    if end {
        w.end(&End { how: "exited 0".into(), ..End::default() }).unwrap();
        ends.push(w.bytes());
    }
    assert_eq!(path.metadata().unwrap().len(), w.bytes());
    ends
}

/// Everything up to the end or the first error.
fn read(path: &Path) -> (Vec<Piece>, bool, Option<TapeError>) {
    let mut r = match Reader::open(path) {
        Ok(r) => r,
        Err(e) => return (Vec::new(), false, Some(e)),
    };
    let (mut out, mut end) = (Vec::new(), false);
    loop {
        match r.item() {
            Ok(None) => return (out, end, None),
            Ok(Some(Item::Events { tid, bytes })) => out.push(Piece::Events(tid, bytes)),
            Ok(Some(Item::Clock(c))) => out.push(Piece::Clock(c.tsc)),
            Ok(Some(Item::Note(t))) => out.push(Piece::Note(t)),
            Ok(Some(Item::End(_))) => end = true,
            Ok(Some(Item::Unknown(k))) => panic!("kind {k}"),
            Err(e) => {
                assert!(matches!(r.item(), Ok(None)), "nothing comes after an error");
                return (out, end, Some(e));
            }
        }
    }
}

/// Checks what is read of a tape whose first `whole` chunks (the header not counted; `None`: not even that) are good.
fn check(path: &Path, pieces: &[Piece], ends: &[u64], whole: Option<usize>, damage: u64) {
    let (got, end, error) = read(path);
    let n = whole.unwrap_or(0);
    assert_eq!(got, pieces[..n.min(pieces.len())], "damage at {damage}");
    assert_eq!(end, n > pieces.len());
    match error {
        Some(TapeError::Damaged { offset, .. }) => {
            assert_eq!(offset, whole.map_or(16, |n| ends[n]), "the chunk with the damage begins there");
            assert!(offset <= damage.max(16));
        }
        Some(TapeError::NotATape { .. }) => assert!(damage < 8),
        Some(TapeError::Version { .. }) => assert!((8..12).contains(&damage)),
        Some(e) => panic!("{e}"),
        // Cut between two chunks, the reader cannot know; the end is missing then.
        None => assert!(ends.contains(&damage) || (12..16).contains(&damage), "damage at {damage} was not seen"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn cut_anywhere(pieces in prop::collection::vec(piece(), 0..6), end in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let ends = write(&path, &pieces, end);
        let bytes = std::fs::read(&path).unwrap();
        prop_assert_eq!(read(&path).0, pieces.clone());
        for cut in (0..bytes.len()).rev() {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(cut as u64).unwrap();
            let whole = ends.iter().filter(|&&e| e <= cut as u64).count().checked_sub(1);
            check(&path, &pieces, &ends, whole, cut as u64);
        }
    }

    #[test]
    fn flipped_anywhere(pieces in prop::collection::vec(piece(), 0..6), end in any::<bool>(), bit in 0u32..8) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let ends = write(&path, &pieces, end);
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            std::fs::write(&path, &bytes).unwrap();
            // Bytes 12 to 16 say nothing, and padding of up to seven bytes behind a payload is not checked.
            let (got, _, error) = read(&path);
            if error.is_none() {
                prop_assert_eq!(&got, &pieces);
                let padding = ends.iter().any(|&e| (e - 7..e).contains(&(at as u64)));
                prop_assert!((12..16).contains(&at) || padding, "a flip at {} was not seen", at);
                continue;
            }
            let whole = ends.iter().filter(|&&e| e <= at as u64).count().checked_sub(1);
            check(&path, &pieces, &ends, whole, at as u64);
        }
    }

    #[test]
    fn garbage_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), headed in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let mut all = if headed { write(&path, &[], false); std::fs::read(&path).unwrap() } else { Vec::new() };
        all.extend(bytes);
        std::fs::write(&path, all).unwrap();
        let (got, ..) = read(&path);
        prop_assert!(got.is_empty());
    }

    /// What was given up is gone as a whole, and the end fits behind what is left.
    #[test]
    fn given_up_chunks_leave_a_clean_tape(pieces in prop::collection::vec(piece(), 0..100), bytes in 1u64..2000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let mut w = Writer::create(&path, &Header::default()).unwrap();
        let header = w.bytes();
        for p in &pieces {
            match p {
                Piece::Events(tid, b) => w.events(*tid, 9, b).unwrap(),
                Piece::Clock(tsc) => w.clock(&Clock { tsc: *tsc, ..Clock::default() }).unwrap(),
                Piece::Note(t) => w.note(t).unwrap(),
            }
        }
        let full = w.bytes();
        let enough = w.give_up(bytes).unwrap();
        prop_assert!(w.bytes() >= header);
        prop_assert_eq!(enough, full - w.bytes() >= bytes);
        prop_assert_eq!(path.metadata().unwrap().len(), w.bytes());
        w.end(&End::default()).unwrap();
        let (got, end, error) = read(&path);
        prop_assert!(end && error.is_none());
        prop_assert_eq!(&got[..], &pieces[..got.len()]);
        prop_assert!(!enough || got.len() < pieces.len());
    }
}

#[test]
fn a_tape_is_the_users_alone_also_where_a_file_was() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |p: &Path| p.metadata().unwrap().permissions().mode() & 0o777;
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    write(&new, &[], true);
    assert_eq!(mode(&new), 0o600);
    std::fs::write(&old, vec![7; 100_000]).unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ends = write(&old, &[Piece::Note("x".into())], true);
    assert_eq!(mode(&old), 0o600);
    assert_eq!(old.metadata().unwrap().len(), ends[2], "nothing of it is left");
}

#[test]
fn a_failed_write_leaves_whole_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    w.note("one").unwrap();
    let bytes = w.bytes();
    assert!(w.events(1, 2, &vec![0; tape::file::MAX_CHUNK + 8]).is_err());
    assert_eq!((w.bytes(), path.metadata().unwrap().len()), (bytes, bytes));
    w.note("two").unwrap();
    let (got, _, error) = read(&path);
    assert!(error.is_none());
    assert_eq!(got, [Piece::Note("one".into()), Piece::Note("two".into())]);
}
