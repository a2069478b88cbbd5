//! An unseen event never counts as "no loss".

#[path = "synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use schema::Summary;
use schema::channel::Accounted;
use synthetic::{DEVICE_AT, HOST_AT, Tape, copy, one_of_everything};
use tape::event::{ChannelBody, PageBody, kind, lack, watch};
use tape::lock::{LAYOUT, LocksBody};

fn summary(t: &mut Tape) -> Summary {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    t.write(&path);
    decode::summary(&Recording::open(&path).unwrap()).unwrap()
}

/// A tape without losses.
fn whole() -> Tape {
    let words = copy(HOST_AT, DEVICE_AT, 8);
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    (0..10).for_each(|_| t.submit(2, 0, &[&words]));
    t
}

#[test]
fn each_way_to_miss_something_has_its_reason() {
    let s = summary(&mut whole());
    assert!(s.complete && s.incomplete_because.is_empty() && s.lost == 0, "{:?}", s.incomplete_because);
    type Change = fn(&mut Tape);
    let cases: [(&str, Change); 13] = [
        ("has no end", |t| t.end = None),
        ("recording stopped early: limit", |t| t.end.as_mut().unwrap().how = "recording stopped early: limit".into()),
        ("5 events did not fit", |t| t.gap(2, 5, 0, 100)),
        ("7 events did not fit", |t| t.end.as_mut().unwrap().gap_events = 7),
        ("1 channel whose ring has no CPU mapping", |t| {
            let (slot, watch) = (3, watch::BLIND);
            let body = ChannelBody { slot, handle: 0x5c00_1004, entries: 8, watch, ..Default::default() };
            t.event(1, kind::CHANNEL, 0, &body, &[], &[]);
            t.bare_channel(3, 0x5c00_1004, 77, 8);
            t.ring_only(2, 3, 0);
        }),
        ("1 doorbell page not tapped", |t| {
            t.event(1, kind::PAGE, 0, &PageBody { addr: 0x9000, ..Default::default() }, &[], &[]);
        }),
        ("1 doorbell with a token of no known channel", |t| t.end.as_mut().unwrap().strangers = 1),
        ("1 segment at an address without a CPU mapping", |t| t.submit_raw(2, 0, 1 << 42 | 0x1000, lack::UNMAPPED)),
        ("1 segment longer than is recorded", |t| t.submit_raw(2, 0, 1 << 42 | 0x1000, lack::TOO_LONG)),
        ("that page was opened and is not tapped any more", |t| {
            let text = "an instruction could not be decoded: that page was opened and is not tapped any more";
            t.end.as_mut().unwrap().trouble.push(text.into());
        }),
        ("the agent never reported in", |t| t.end.as_mut().unwrap().agent = false),
        ("its locks have layout", |t| {
            t.event(1, tape::lock::kind::LOCKS, 0, &LocksBody { layout: LAYOUT + 1, pid: 7 }, &[], &[]);
        }),
        ("2 doorbells not on the tape", |t| {
            t.recording(0, false);
            (0..2).for_each(|_| t.submit(2, 0, &[]));
        }),
    ];
    for (reason, change) in cases {
        let mut t = whole();
        change(&mut t);
        let s = summary(&mut t);
        assert!(
            !s.complete && s.incomplete_because.iter().any(|r| r.contains(reason)),
            "{reason}: {:?}",
            s.incomplete_because
        );
    }
    let mut t = whole();
    let slow = "the kernel refused to have code rewritten: doorbells go on trapping";
    t.end.as_mut().unwrap().trouble.push(slow.into());
    assert!(summary(&mut t).complete, "slower, but all is seen");
}

#[test]
fn lost_events_of_locks_are_lost() {
    let mut t = Tape::new();
    t.event(1, tape::lock::kind::LOCKS, 0, &LocksBody { layout: LAYOUT, pid: 7 }, &[], &[]);
    t.end.as_mut().unwrap().gap_events = 11_904;
    let s = summary(&mut t);
    assert_eq!((s.lost, s.complete), (11_904, false));
}

#[test]
fn a_slot_whose_next_channel_was_not_announced_is_not_the_old_channel() {
    let words = copy(HOST_AT, DEVICE_AT, 8);
    // The new channel has the token of the old one, or another; the end of the old one is on the tape, or is not.
    for (token, ended) in [(None, true), (None, false), (Some(0x9_0007), true), (Some(0x9_0007), false)] {
        let mut t = whole();
        if ended {
            t.end_channel(1, 0);
        }
        t.bare_channel(0, 0x5c00_1002, token.unwrap_or(9 << 16), 32);
        // Its first three submissions were lost in the gap, too.
        t.recording(0, false);
        (0..3).for_each(|_| t.submit(2, 0, &[&words]));
        t.recording(0, true);
        (0..4).for_each(|_| t.submit(2, 0, &[&words]));
        let s = summary(&mut t);
        let seen: Vec<_> = s.channel_list.iter().map(|c| (c.entries, c.lost, c.surplus)).collect();
        assert_eq!(seen, [(10, 0, 0), (4, 3, 0)], "{token:?}, ended: {ended}");
        let first = if ended { Accounted::Freed } else { Accounted::Seen };
        assert_eq!((s.channel_list[0].accounted_by, s.complete), (first, false));
        assert_eq!(s.channel_list[1].generation, 1);
    }
}

#[test]
fn what_stands_in_no_account_makes_up_for_nothing() {
    let mut t = whole();
    // By its end the channel had 8 entries; 10 are on the tape.
    t.end.as_mut().unwrap().channels =
        vec![tape::file::EndChannel { slot: 0, handle: 0x5c00_1001, entries: 8, rings: 8, ..Default::default() }];
    let s = summary(&mut t);
    assert_eq!((s.channel_list[0].surplus, s.complete), (2, false));
}

#[test]
fn a_copy_behind_a_hole_is_marked_as_guessed() {
    let whole_copy = copy(HOST_AT, DEVICE_AT, 64);
    let mut t = whole();
    t.submit(2, 0, &[&whole_copy]);
    t.recording(0, false);
    t.submit(2, 0, &[&copy(HOST_AT, DEVICE_AT + 0x1000, 32)]);
    t.recording(0, true);
    // The rest of a copy: its source and length were set in the hole.
    let mut buffer = [0; 16];
    let mut w = pushbuf::encode::Words::new(&mut buffer);
    w.inc(4, 0x408, &[(DEVICE_AT >> 32) as u32, DEVICE_AT as u32]).unwrap();
    w.inc(4, 0x300, &[0x182]).unwrap();
    t.submit(2, 0, &[w.as_slice()]);
    t.submit(2, 0, &[&whole_copy]);
    let s = summary(&mut t);
    assert_eq!((s.copies.copy_engine, s.problems.guessed, s.lost), (13, 1, 1));
}

#[test]
fn one_of_everything_says_what_it_lacks() {
    let s = summary(&mut one_of_everything());
    assert_eq!(s.incomplete_because, ["1 segment at an address without a CPU mapping: its words were not seen"]);
}
