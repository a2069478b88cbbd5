//! A recording in parts: together they have what the whole has, each can be read alone, and neither memory nor the disk fills.

use super::*;
use crate::parts::{Parts, Rotation};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tape::file::Writer;

struct Rig {
    parts: Parts,
    due: Arc<AtomicBool>,
}

fn rig(header: &Header, first: &Path, size: u64, keep: u32) -> Rig {
    let due = Arc::new(AtomicBool::new(false));
    let writer = Writer::create(first, &Parts::header(header)).unwrap();
    Rig { parts: Parts::new(header.clone(), Rotation { size, keep }, writer, due.clone()), due }
}

fn ended(mut rig: Rig) -> (Vec<PathBuf>, u32) {
    rig.parts.finish().unwrap();
    rig.parts.writer().end(&request(0).end).unwrap();
    assert_eq!(rig.parts.failure, None);
    rig.parts.files()
}

#[test]
fn parts_together_have_what_the_whole_has() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.doorbell");
    busy(1500).write(&whole);
    let header = Reader::open(&whole).unwrap().header().clone();
    // (The number of pieces before the cut.)
    for later in [0, 7] {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = rig(&header, &dir.path().join("a.doorbell"), 200 << 10, 100);
        let (pieces, beside) = pieces(&whole, 2 << 10);
        beside.into_iter().for_each(|b| rig.parts.beside(b).unwrap());
        let (mut asked, mut newest) = (None, 0);
        for (i, Piece { process, tid, events, last, until }) in pieces.into_iter().enumerate() {
            rig.parts.events(process, tid, &events, None).unwrap();
            if rig.due.swap(false, Ordering::AcqRel) {
                asked = Some((i + later, newest.max(last)));
            }
            newest = newest.max(last);
            // A cut is later than all events in the old part, and all events before it have arrived.
            if asked.is_some_and(|(at, before)| i >= at && until > before) && until < u64::MAX {
                asked = None;
                rig.parts.cut(request(until)).unwrap();
            }
        }
        let (files, count) = ended(rig);
        assert!(files.len() > 4 && count as usize == files.len(), "{files:?}");
        let from = |path: &PathBuf| Reader::open(path).unwrap().header().saved.clone().unwrap().from_tsc;
        let rows: Vec<usize> = (0..files.len())
            .map(|i| compare_until(&whole, &files[i], files.get(i + 1).map_or(u64::MAX, from)))
            .collect();
        println!("{later}: {rows:?}");
        assert!(rows[..rows.len() - 1].iter().all(|n| *n > 100), "{rows:?}");
        for file in &files {
            let s = decode::summary(&Recording::open(file).unwrap()).unwrap();
            assert!(s.complete && s.damage.is_none(), "{}: {:?}", file.display(), s.incomplete_because);
            assert_eq!((s.lost, s.problems.bad_headers, s.saved.unwrap().forgotten), (0, 0, 0));
        }
    }
}

/// The same day as for the flight recorder.
#[test]
fn a_day_in_parts_fills_neither_memory_nor_the_disk() {
    let header = Header { tsc_hz: HZ as f64, driver: "580.159.04".into(), ..Header::default() };
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("day.doorbell");
    let (size, keep) = (1 << 20, 3);
    let mut rig = rig(&header, &first, size, keep);
    let (mut packer, mut most, mut after_an_hour, mut largest) = (Packer::default(), 0, 0, 0);
    let mut t = Tape::new();
    rig.parts.beside(Beside::Process(Process { index: 0, pid: 1, ..Process::default() })).unwrap();
    for turn in 0..TURNS {
        turn_of_a_day(&mut t, turn).into_iter().for_each(|b| rig.parts.beside(b).unwrap());
        for ((process, tid), bytes) in t.take_open() {
            let packed = packer.pack(&bytes).map(<[u8]>::to_vec);
            rig.parts.events(process, tid, &bytes, packed.as_deref()).unwrap();
        }
        if rig.due.swap(false, Ordering::AcqRel) {
            rig.parts.cut(request(now())).unwrap();
        }
        most = most.max(rig.parts.memory());
        if turn == 3600 / TURN {
            after_an_hour = most;
        }
        if turn % 100 == 0 {
            let sizes = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
            largest = largest.max(sizes.sum::<u64>());
        }
    }
    let (files, count) = ended(rig);
    println!(
        "{count} parts; {most} bytes of memory at most, {after_an_hour} in the first hour; {largest} bytes of files"
    );
    assert!(files.len() == keep as usize && count > 5 && !first.exists(), "{files:?} of {count}");
    assert!(largest <= u64::from(keep) * size, "{largest}");
    // (Texts that occur only once are forgotten, the oldest first.)
    assert!(most < 1 << 20, "{most}");
    for file in files {
        let s = decode::summary(&Recording::open(&file).unwrap()).unwrap();
        assert_eq!((s.lost, s.problems.bad_headers, s.damage), (0, 0, None), "{}", file.display());
        let about = s.saved.unwrap();
        assert!(about.doorbells > 10_000 && about.processes > 10, "{about:?}");
    }
}

#[test]
fn a_part_that_cannot_be_begun_leaves_the_one_before_going_on() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.doorbell");
    busy(300).write(&whole);
    let header = Reader::open(&whole).unwrap().header().clone();
    let folder = dir.path().join("parts");
    std::fs::create_dir(&folder).unwrap();
    let first = folder.join("a.doorbell");
    let mut rig = rig(&header, &first, 20 << 10, 5);
    // The writer has its file, and no other file can be created.
    let moved = dir.path().join("moved");
    std::fs::rename(&folder, &moved).unwrap();
    let (pieces, beside) = pieces(&whole, 2 << 10);
    beside.into_iter().for_each(|b| rig.parts.beside(b).unwrap());
    for Piece { process, tid, events, until, .. } in pieces {
        rig.parts.events(process, tid, &events, None).unwrap();
        if rig.due.swap(false, Ordering::AcqRel) {
            rig.parts.cut(request(until)).unwrap();
        }
    }
    rig.parts.finish().unwrap();
    rig.parts.writer().end(&request(0).end).unwrap();
    assert!(rig.parts.failure.as_ref().is_some_and(|why| why.contains("a.part2.doorbell")), "{:?}", rig.parts.failure);
    assert!(compare(&whole, &moved.join("a.doorbell")) > 1000);
}
