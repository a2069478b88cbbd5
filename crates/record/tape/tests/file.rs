//! A tape that was cut or flipped anywhere gives everything before the damage, then an error with the place.

use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tape::file::{Clock, End, Header, Item, Process, ProcessEnd, Reader, TapeError, Unwatched, VERSION, Writer};
use tape::live::{Live, Looks};

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Events(u32, i32, Vec<u8>),
    Clock(u64),
    Note(String),
    Process(u32),
    ProcessEnd(u32),
    Unwatched(String),
    Looks(u64),
}

impl Piece {
    fn write(&self, w: &mut Writer) -> std::io::Result<()> {
        match self {
            Piece::Events(process, tid, b) => w.events(*process, *tid, b),
            Piece::Clock(tsc) => w.clock(&Clock { tsc: *tsc, ..Clock::default() }),
            Piece::Note(t) => w.note(t),
            Piece::Process(index) => w.process(&Process { index: *index, ..Process::default() }),
            Piece::ProcessEnd(index) => w.process_end(&ProcessEnd { index: *index, ..ProcessEnd::default() }),
            Piece::Unwatched(path) => w.unwatched(&Unwatched { path: path.clone(), ..Unwatched::default() }),
            Piece::Looks(tsc) => w.looks(&Looks { second: Live { tsc: *tsc, ..Live::default() }, ..Looks::default() }),
        }
    }

    /// `None`: the end.
    fn of(item: Item) -> Option<Piece> {
        Some(match item {
            Item::Events { process, tid, bytes } => Piece::Events(process, tid, bytes),
            Item::Clock(c) => Piece::Clock(c.tsc),
            Item::Note(t) => Piece::Note(t),
            Item::Process(p) => Piece::Process(p.index),
            Item::ProcessEnd(p) => Piece::ProcessEnd(p.index),
            Item::Unwatched(u) => Piece::Unwatched(u.path),
            Item::Looks(looks) => Piece::Looks(looks.second.tsc),
            Item::End(_) => return None,
            Item::Summary(_) | Item::Checkpoint => panic!("a summary"),
            Item::Unknown(k) => panic!("kind {k}"),
        })
    }

    fn process(&self) -> Option<u32> {
        match self {
            Piece::Events(p, ..) | Piece::Process(p) | Piece::ProcessEnd(p) => Some(*p),
            _ => None,
        }
    }
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        6 => (0u32..4, any::<i32>(), prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(p, t, b)| Piece::Events(p, t, b)),
        // (These are packed.)
        2 => (0u32..4, any::<i32>(), any::<u8>(), 256..400usize).prop_map(|(p, t, b, n)| Piece::Events(p, t, vec![b; n])),
        1 => any::<u64>().prop_map(Piece::Clock),
        1 => any::<u64>().prop_map(Piece::Looks),
        1 => "[a-z ]{0,20}".prop_map(Piece::Note),
        1 => (0u32..4).prop_map(Piece::Process),
        1 => (0u32..4).prop_map(Piece::ProcessEnd),
        1 => "[a-z/]{0,20}".prop_map(Piece::Unwatched),
    ]
}

/// Writes a tape and returns where each chunk ends, the header first. The index does not count as a chunk here.
fn write(path: &Path, pieces: &[Piece], end: bool) -> Vec<u64> {
    let mut w = Writer::create(path, &Header { doorbell: "test".into(), tsc_hz: 3e9, ..Header::default() }).unwrap();
    let mut ends = vec![w.bytes()];
    for p in pieces {
        p.write(&mut w).unwrap();
        ends.push(w.bytes());
    }
    if end {
        let from = w.bytes();
        let last = End { how: "exited 0".into(), ..End::default() };
        w.end(&last).unwrap();
        let len = serde_json::to_vec(&last).unwrap().len().next_multiple_of(8) as u64;
        ends.push(from + 48 + len);
        ends.push(w.bytes());
    }
    assert_eq!(path.metadata().unwrap().len(), w.bytes());
    ends
}

/// Everything up to the end or the first error.
fn all(r: Result<Reader, TapeError>) -> (Vec<Piece>, bool, Option<TapeError>) {
    let mut r = match r {
        Ok(r) => r,
        Err(e) => return (Vec::new(), false, Some(e)),
    };
    let (mut out, mut end) = (Vec::new(), false);
    loop {
        match r.item() {
            Ok(None) => return (out, end, None),
            Ok(Some(item)) => match Piece::of(item) {
                Some(p) => out.push(p),
                None => end = true,
            },
            Err(e) => {
                assert!(matches!(r.item(), Ok(None)), "nothing comes after an error");
                return (out, end, Some(e));
            }
        }
    }
}

fn read(path: &Path) -> (Vec<Piece>, bool, Option<TapeError>) {
    all(Reader::open(path))
}

/// Checks a reader's result for a tape whose first `whole` chunks are good (without the header; `None`: not even that).
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
        // A cut between two chunks leaves no trace but the missing end. After the end, a cut loses no events.
        None => assert!(end || ends.contains(&damage) || (12..16).contains(&damage), "damage at {damage} was not seen"),
    }
}

/// A tape that is damaged in place. To write all of it again for each flip takes ten times as long: a file system may
/// immediately write out new content of a file.
struct InPlace<'a> {
    file: File,
    good: &'a [u8],
}

struct Flipped<'a>(&'a InPlace<'a>, usize);

impl<'a> InPlace<'a> {
    fn open(path: &Path, good: &'a [u8]) -> InPlace<'a> {
        InPlace { file: File::options().write(true).open(path).unwrap(), good }
    }

    /// Until the result is dropped.
    fn flip(&'a self, at: usize, bits: u8) -> Flipped<'a> {
        self.file.write_all_at(&[self.good[at] ^ bits], at as u64).unwrap();
        Flipped(self, at)
    }
}

impl Drop for Flipped<'_> {
    fn drop(&mut self) {
        self.0.file.write_all_at(&[self.0.good[self.1]], self.1 as u64).unwrap();
    }
}

/// The pieces that a reader of one image should return.
fn of_process(pieces: &[Piece], wanted: u32) -> Vec<Piece> {
    pieces.iter().filter(|p| p.process().is_none_or(|p| p == wanted)).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

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
            // A reader of one image finds no index any more, and still returns the same.
            if let (Ok(r), Some(whole)) = (Reader::open(&path), whole) {
                prop_assert!(!r.has_index());
                let (got, got_end, _) = all(Ok(r.only(1)));
                prop_assert_eq!(got, of_process(&pieces[..whole.min(pieces.len())], 1));
                prop_assert_eq!(got_end, whole > pieces.len());
            }
        }
    }

    #[test]
    fn flipped_anywhere(pieces in prop::collection::vec(piece(), 0..6), end in any::<bool>(), bit in 0u32..8) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let ends = write(&path, &pieces, end);
        let good = std::fs::read(&path).unwrap();
        let tape = InPlace::open(&path, &good);
        for at in 0..good.len() {
            let _flipped = tape.flip(at, 1 << bit);
            // Whichever bit is flipped, a reader of one image returns only written pieces.
            if let Ok(r) = Reader::open(&path) {
                let (got, ..) = all(Ok(r.only(1)));
                let wanted = of_process(&pieces, 1);
                prop_assert_eq!(&got[..], &wanted[..got.len()]);
            }
            // Bytes 12 to 16 have no meaning, and padding of up to seven bytes after a payload is not checked.
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

    /// A reader of one image returns, by the index, the same as a reader of all returns for it, in the same order.
    #[test]
    fn of_one_image_comes_what_it_did(pieces in prop::collection::vec(piece(), 0..60)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        write(&path, &pieces, true);
        for wanted in 0..6 {
            let r = Reader::open(&path).unwrap();
            prop_assert!(r.has_index());
            let (got, end, error) = all(Ok(r.only(wanted)));
            prop_assert!(end && error.is_none());
            prop_assert_eq!(got, of_process(&pieces, wanted));
        }
        let (got, ..) = all(Ok(Reader::open(&path).unwrap().without_events()));
        let rest: Vec<_> = pieces.iter().filter(|p| !matches!(p, Piece::Events(..))).cloned().collect();
        prop_assert_eq!(got, rest);
        let (images, damage) = Reader::images(&path).unwrap();
        prop_assert!(damage.is_none());
        prop_assert_eq!(images.len(), pieces.iter().filter(|p| matches!(p, Piece::Process(_))).count());
    }

    /// Chunks that were given up are removed as a whole, and the end fits after the others.
    #[test]
    fn given_up_chunks_leave_a_clean_tape(pieces in prop::collection::vec(piece(), 0..100), bytes in 1u64..2000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let mut w = Writer::create(&path, &Header::default()).unwrap();
        let header = w.bytes();
        for p in &pieces {
            p.write(&mut w).unwrap();
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
        let (of_one, ..) = all(Ok(Reader::open(&path).unwrap().only(2)));
        prop_assert_eq!(of_one, of_process(&got, 2));
    }
}

/// By the index, a reader skips unwanted chunks, and does not even meet damage there.
#[test]
fn what_others_did_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let pieces = [Piece::Events(0, 1, vec![1; 64]), Piece::Events(1, 2, vec![2; 64]), Piece::Events(0, 1, vec![3; 64])];
    let ends = write(&path, &pieces, true);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[ends[1] as usize + 3] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(read(&path).2, Some(TapeError::Damaged { .. })));
    let (got, end, error) = all(Ok(Reader::open(&path).unwrap().only(0)));
    assert_eq!(got, [pieces[0].clone(), pieces[2].clone()]);
    assert!(end && error.is_none());
    let (got, _, error) = all(Ok(Reader::open(&path).unwrap().only(1)));
    assert!(got.is_empty() && matches!(error, Some(TapeError::Damaged { offset, .. }) if offset == ends[1]));
}

/// A tape as version 1 wrote it.
fn version_1(path: &Path, events: &[(i32, Vec<u8>)], end: Option<&End>) -> Vec<u8> {
    let mut b = b"DOORBELL\x01\0\0\0\0\0\0\0".to_vec();
    let mut chunk = |kind: u32, tid: i32, payload: &[u8]| {
        let seq = (b.len() > 16) as u64 * u64::MAX;
        let mut head = b"CHNK".to_vec();
        for word in [kind, payload.len() as u32, tid as u32] {
            head.extend(word.to_le_bytes());
        }
        head.extend(seq.to_le_bytes());
        head.extend(7u64.to_le_bytes());
        head.extend(crc32fast::hash(payload).to_le_bytes());
        b.extend(head);
        b.extend([0; 4]);
        b.extend(payload);
        b.resize(b.len().next_multiple_of(8), 0);
    };
    chunk(1, 0, br#"{"exe":"/bin/app","args":["app","x"],"tsc_hz":1e9}"#);
    events.iter().for_each(|(tid, e)| chunk(2, *tid, e));
    chunk(4, 0, br#""a note""#);
    if let Some(end) = end {
        chunk(5, 0, &serde_json::to_vec(end).unwrap());
    }
    // Chunks are numbered, and each head has its own checksum.
    let (mut at, mut seq) = (16, 0u64);
    while at < b.len() {
        b[at + 16..at + 24].copy_from_slice(&seq.to_le_bytes());
        let own = crc32fast::hash(&b[at..at + 36]);
        b[at + 36..at + 40].copy_from_slice(&own.to_le_bytes());
        let len = u32::from_le_bytes(b[at + 8..at + 12].try_into().unwrap()) as usize;
        at += 40 + len.next_multiple_of(8);
        seq += 1;
    }
    std::fs::write(path, &b).unwrap();
    b
}

#[test]
fn a_tape_of_version_1_reads_as_one_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let end = End { how: "exited 3".into(), pid: 77, exit_code: Some(3), tapped: 5, agent: true, ..End::default() };
    let events = [(5, vec![1; 20]), (6, vec![2; 24])];
    version_1(&path, &events, Some(&end));
    let r = Reader::open(&path).unwrap();
    assert_eq!((r.version(), r.header().exe.as_str()), (1, "/bin/app"));
    let wanted = [
        Piece::Process(0),
        Piece::Events(0, 5, vec![1; 20]),
        Piece::Events(0, 6, vec![2; 24]),
        Piece::Note("a note".into()),
        Piece::ProcessEnd(0),
    ];
    let (got, ended, error) = all(Ok(r));
    assert_eq!(got, wanted);
    assert!(ended && error.is_none());
    let (got, ended, _) = all(Ok(Reader::open(&path).unwrap().only(0)));
    assert_eq!((&got[..], ended), (&wanted[..], true));
    let (images, damage) = Reader::images(&path).unwrap();
    assert!(damage.is_none());
    let image = &images[0];
    assert_eq!((images.len(), image.begin.pid, image.begin.args.as_ref().map(Vec::len)), (1, 77, Some(2)));
    let e = image.end.as_ref().unwrap();
    assert_eq!((e.how.as_str(), e.exit_code, e.tapped, e.complete), ("exited 3", Some(3), 5, true));
}

#[test]
fn a_tape_of_version_1_that_lost_something_is_not_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let complete = |end: End| {
        version_1(&path, &[], Some(&end));
        let mut r = Reader::open(&path).unwrap();
        loop {
            if let Item::End(e) = r.item().unwrap().unwrap() {
                return (e.complete, e.incomplete_because.len());
            }
        }
    };
    assert_eq!(complete(End { how: "exited 0".into(), ..End::default() }), (true, 0));
    assert_eq!(complete(End { gap_events: 3, ..End::default() }), (false, 1));
    let how = "recording stopped early: the disk is full".to_owned();
    assert_eq!(complete(End { gap_events: 3, how, ..End::default() }), (false, 2));
}

#[test]
fn a_tape_of_version_1_that_is_cut_or_flipped_gives_what_was_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let good = version_1(&path, &[(5, vec![1; 24]), (6, vec![2; 24])], Some(&End::default()));
    let whole = read(&path).0;
    let tape = InPlace::open(&path, &good);
    for at in 8..good.len() {
        let _flipped = tape.flip(at, 1);
        let (got, end, error) = read(&path);
        assert_eq!(got[..], whole[..got.len()], "flipped at {at}");
        assert!(error.is_some() || (end && got == whole), "flipped at {at}");
    }
    for cut in (0..good.len()).rev() {
        tape.file.set_len(cut as u64).unwrap();
        let (got, end, _) = read(&path);
        assert!(!end && got[..] == whole[..got.len()], "cut at {cut}");
    }
}

/// The golden tapes of the driver itself, written by version 1.
#[test]
fn golden_tapes_read_as_one_image_each() {
    for name in ["h200-copies.doorbell", "h200-launches.doorbell"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures").join(name);
        let (images, damage) = Reader::images(&path).unwrap();
        assert!(damage.is_none());
        assert_eq!((images.len(), images[0].begin.index), (1, 0), "{name}");
        assert!(images[0].end.as_ref().is_some_and(|e| e.complete && e.tapped > 500), "{name}");
        let (pieces, end, error) = all(Ok(Reader::open(&path).unwrap().only(0)));
        assert!(end && error.is_none() && pieces.len() > 5, "{name}");
    }
}

#[test]
fn a_version_to_come_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    write(&path, &[], true);
    let mut bytes = std::fs::read(&path).unwrap();
    for version in [0, VERSION + 1, u32::MAX] {
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(Reader::open(&path), Err(TapeError::Version { found, .. }) if found == version));
    }
}

#[test]
fn a_tape_is_the_users_alone_and_takes_nobodys_place_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |p: &Path| p.metadata().unwrap().permissions().mode() & 0o777;
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    write(&new, &[], true);
    assert_eq!(mode(&new), 0o600);
    std::fs::write(&old, vec![7; 100_000]).unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(Writer::create(&old, &Header::default()), Err(TapeError::Exists(p)) if p == old));
    assert_eq!((old.metadata().unwrap().len(), mode(&old)), (100_000, 0o644));
    let w = Writer::replace(&old, &Header::default()).unwrap();
    assert_eq!((mode(&old), old.metadata().unwrap().len()), (0o600, w.bytes()), "nothing of it is left");
}

/// An empty file that reserves the name is written to, so that no other process can take the name in between.
#[test]
fn an_empty_file_is_written_to_when_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let inode = |p: &Path| std::os::unix::fs::MetadataExt::ino(&p.metadata().unwrap());
    std::fs::write(&path, "").unwrap();
    assert!(matches!(Writer::create(&path, &Header::default()), Err(TapeError::Exists(_))));
    let before = inode(&path);
    Writer::replace(&path, &Header::default()).unwrap();
    assert_eq!(inode(&path), before);
    // Not one that also has another name.
    let (other, link) = (dir.path().join("other"), dir.path().join("link"));
    std::fs::write(&other, "").unwrap();
    std::fs::hard_link(&other, &link).unwrap();
    Writer::replace(&link, &Header::default()).unwrap();
    assert_eq!(other.metadata().unwrap().len(), 0);
}

#[test]
fn links_to_files_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link, nowhere) = (dir.path().join("target"), dir.path().join("link"), dir.path().join("nowhere"));
    std::fs::write(&target, "mine").unwrap();
    symlink(&target, &link).unwrap();
    symlink(dir.path().join("not there"), &nowhere).unwrap();
    for l in [&link, &nowhere] {
        assert!(matches!(Writer::create(l, &Header::default()), Err(TapeError::Link(p)) if p == *l));
        assert!(l.symlink_metadata().unwrap().is_symlink());
        // `replace` replaces the link, not its target.
        Writer::replace(l, &Header::default()).unwrap();
        assert!(l.symlink_metadata().unwrap().is_file());
    }
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
    assert!(!dir.path().join("not there").exists());
    // Both write to a device, and replace no file.
    let device = dir.path().join("device");
    symlink("/dev/null", &device).unwrap();
    for make in [Writer::create, Writer::replace] {
        assert!(make(&device, &Header::default()).is_ok());
        assert!(device.symlink_metadata().unwrap().is_symlink());
    }
}

#[test]
fn a_failed_write_leaves_whole_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    w.note("one").unwrap();
    let bytes = w.bytes();
    assert!(w.events(0, 1, &vec![0; tape::file::MAX_CHUNK + 8]).is_err());
    assert_eq!((w.bytes(), path.metadata().unwrap().len()), (bytes, bytes));
    w.note("two").unwrap();
    let (got, _, error) = read(&path);
    assert!(error.is_none());
    assert_eq!(got, [Piece::Note("one".into()), Piece::Note("two".into())]);
}
