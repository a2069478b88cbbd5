//! Recordings whose channels begin in the middle: the entries before are not lost, and the channel's state before is
//! not known.

mod synthetic;

use decode::Recording;
use schema::{Place, Summary};
use synthetic::*;
use tape::event::{LEFT_OUT_WRITER, LeftOutBody, kind};
use tape::file::Saved;

fn summary(t: &mut Tape) -> Summary {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    t.write(&path);
    decode::summary(&Recording::open(&path).unwrap()).unwrap()
}

fn left_out(t: &mut Tape, body: LeftOutBody) {
    t.event_at(LEFT_OUT_WRITER, t.tsc + 50, kind::LEFT_OUT, 0, &body, &[], &[]);
    t.tsc += 50;
}

/// A program that copied a hundred times, of which the last few are on the tape.
fn newest(of: u64, mark: bool) -> Tape {
    let mut t = Tape::new();
    t.header.saved =
        Some(Saved { reason: "SIGUSR1".into(), number: 1, events: 200, doorbells: 100, ..Saved::default() });
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    t.recording(0, false);
    for i in 0..100 {
        if i == 100 - of {
            if mark {
                left_out(&mut t, LeftOutBody { slot: 0, generation: 3, rings: i, entries: i });
            }
            t.recording(0, true);
        }
        t.submit(2, 0, &[&copy(HOST_AT, DEVICE_AT, 8)]);
    }
    t
}

#[test]
fn what_was_left_out_on_purpose_is_not_lost() {
    let s = summary(&mut newest(5, true));
    assert_eq!((s.lost, s.lost_detail.rings_missing, s.problems.holes, s.problems.late_rings), (0, 0, 0, 0));
    assert_eq!((s.copies.copy_engine, s.doorbells, s.channel_list[0].generation), (5, 5, 3));
    assert!(s.complete, "{:?}", s.incomplete_because);
    assert_eq!(s.copies.copy_engine_detail.by_place[0].from, Some(Place::Host));
    assert_eq!(s.saved.unwrap().doorbells, 100);
    // Without the mark they would count as lost.
    assert_eq!(summary(&mut newest(5, false)).lost, 95);
}

#[test]
fn a_doorbell_of_before_that_comes_late_is_left_out_too() {
    let mut t = newest(0, true);
    left_out(&mut t, LeftOutBody { slot: 0, generation: 0, rings: 102, entries: 102 });
    // (Rings 100 and 101 of another thread; 102 is the first that counts.)
    t.recording(0, true);
    (0..3).for_each(|_| t.submit(3, 0, &[&copy(HOST_AT, DEVICE_AT, 8)]));
    let s = summary(&mut t);
    assert_eq!(
        (s.doorbells, s.copies.copy_engine, s.lost, s.lost_detail.rings_missing),
        (1, 1, 0, 0),
        "{:?}",
        s.lost_detail
    );
}

#[test]
fn what_a_channel_was_told_before_is_a_guess() {
    let words = |source: bool| {
        let mut all = copy(HOST_AT, DEVICE_AT, 8);
        if !source {
            // Without the addresses, which the launch before has set.
            all.drain(..5);
        }
        all
    };
    let guessed = |mark: bool| {
        let mut t = Tape::new();
        t.context(1);
        t.channel(1, 0, 0x5c00_1001, 9, 32);
        t.submit(2, 0, &[&words(true)]);
        if mark {
            left_out(&mut t, LeftOutBody { slot: 0, generation: 0, rings: 1, entries: 1 });
        }
        t.submit(2, 0, &[&words(false)]);
        let s = summary(&mut t);
        (s.problems.guessed, s.problems.holes)
    };
    assert_eq!((guessed(false), guessed(true)), ((0, 0), (1, 0)));
}
