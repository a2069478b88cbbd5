//! Every event of a tape must be in the summary, each counted once.

mod synthetic;

use decode::Recording;
use decode::ahead::read_ahead;
use decode::merge::{Step, Submission};
use schema::channel::Accounted;
use schema::{Place, Summary};
use synthetic::*;
use tape::event::{Body, EntryBody, Event, RingBody, entry_flags, kind, lack, ring_flags};
use tape::file::EndChannel;

fn summary(t: &mut Tape) -> Summary {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    t.write(&path);
    decode::summary(&Recording::open(&path).unwrap()).unwrap()
}

/// All submissions of a tape, in reading order.
fn submissions(r: &Recording) -> Vec<Submission> {
    read_ahead(r, |steps| {
        let mut all = Vec::new();
        while let Some(step) = steps.next_step().unwrap() {
            if let Step::Submission(s) = step {
                all.push(s);
            }
        }
        all
    })
}

#[test]
fn a_64_mib_copy_is_one_copy_and_a_launch_with_its_qmd_is_one_launch() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1000, 1, 1024);
    t.channel(1, 1, 0x5c00_1001, 11, 1024);
    t.submit(1, 1, &[&copy_64_mib()]);
    t.submit(1, 0, &[&launch(QMD_AT, [64, 2, 1])]);
    let s = summary(&mut t);
    assert_eq!((s.copies.copy_engine, s.copies.copy_engine_detail.bytes), (1, 64 << 20));
    let d = s.copies.copy_engine_detail.by_place[0];
    assert_eq!((d.from, d.to, d.count), (Some(Place::Host), Place::Video, 1));
    assert_eq!((s.launches, s.copies.inline, s.copies.inline_for_launches), (1, 0, 1));
    assert_eq!(s.copies.inline_for_launches_bytes, 0x210);
    let shape = s.launch_shapes[0].shape;
    assert_eq!(
        (shape.grid, shape.block, shape.registers, shape.program),
        ([64, 2, 1], [128, 1, 1], 24, 0x7f_1234_0000)
    );
    assert_eq!((s.semaphores.released, s.semaphores.timestamps, s.semaphores.acquired), (1, 1, 0));
    assert_eq!((s.submissions, s.doorbells, s.entries, s.lost, s.channels), (2, 2, 2, 0, 2));
    assert_eq!(s.command_bytes, s.command_bytes_recorded);
    assert!(s.problems.unknown_methods.is_empty());
}

#[test]
fn a_qmd_written_in_an_earlier_submission_is_not_a_copy_after_all() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1000, 1, 1024);
    let words = launch(QMD_AT, [3, 1, 1]);
    let split = words.len() - 3;
    t.submit(1, 0, &[&words[..split]]);
    t.submit(1, 0, &[&words[split..]]);
    t.submit(1, 0, &[&inline(DEVICE_AT + 0x1_0000, &[1; 100])]);
    let s = summary(&mut t);
    assert_eq!((s.launches, s.launch_shapes[0].shape.grid), (1, [3, 1, 1]));
    assert_eq!((s.copies.inline, s.copies.inline_detail.bytes, s.copies.inline_for_launches), (1, 100, 1));
}

#[test]
fn a_graph_launched_again_is_known_by_its_root_and_an_empty_qmd_is_no_launch() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1000, 1, 1024);
    let (root, kernel) = (launch(QMD_AT, [0, 0, 0]), launch(QMD_AT + 0x1000, [8, 1, 1]));
    t.submit(1, 0, &[&root, &kernel]);
    // So many other writes that the engine no longer remembers the root's.
    for i in 0..2000 {
        t.submit(1, 0, &[&inline(DEVICE_AT + 4096 * i, &[0; 64])]);
    }
    let again = &root[root.len() - 3..];
    t.submit(1, 0, &[again]);
    t.submit(1, 0, &[again]);
    t.submit(1, 0, &[&kernel[kernel.len() - 3..]]);
    t.submit(1, 0, &[&launch(QMD_AT, [5, 1, 1])]);
    let mut never = launch(QMD_AT + 0x5000, [1, 1, 1]);
    never.drain(..never.len() - 3);
    t.submit(1, 0, &[&never]);
    let s = summary(&mut t);
    let d = s.launch_detail;
    assert_eq!((d.by_pcas, d.empty, d.again, d.without_qmd), (7, 3, 3, 1));
    assert_eq!(s.launches, 4);
    let shapes: Vec<_> = s.launch_shapes.iter().map(|l| (l.shape.grid[0], l.count)).collect();
    assert_eq!(shapes, [(8, 2), (5, 1)]);
}

#[test]
fn channels_know_their_engine_place_and_token() {
    let s = summary(&mut one_of_everything());
    let c = &s.channel_list[1];
    assert_eq!((c.engine.as_str(), c.class_name.as_str()), ("COPY2", "HOPPER_CHANNEL_GPFIFO_A"));
    assert_eq!((c.gpfifo_place, c.userd_place, c.pushbuffer_place), (Place::Video, Place::Video, Place::Host));
    assert_eq!((c.token, c.runlist, c.chid), (Some(0xb_0001), Some(0xb), Some(1)));
    assert_eq!((c.freed, c.accounted_by, c.lost), (true, Accounted::Freed, 0));
    let open = &s.channel_list[0];
    assert_eq!((open.freed, open.accounted_by, open.engine.as_str()), (false, Accounted::End, "GRAPHICS"));
    assert_eq!((s.problems.unmapped_segments, s.problems.unmapped_bytes), (1, 32));
    assert_eq!((s.problems.unknown_methods[0].class, s.problems.unknown_methods[0].offset), (0xc8b5, 0xabc));
    assert_eq!((s.fills, s.fill_bytes), (1, 4096));
    assert_eq!((s.sites.len(), s.tap.sites_patched, s.pages.len()), (1, 1, 1));
    assert_eq!(s.notes, ["child process 4300 is not recorded"]);
    assert_eq!((s.end.unwrap().exit_code, s.seconds, s.program.pid), (Some(0), Some(1.5), 4242));
}

#[test]
fn two_threads_of_one_channel_are_put_in_the_order_of_their_rings() {
    // A copy cut in the middle of a sequence: it decodes only if the pieces come in order.
    let words = copy_64_mib();
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 11, 64);
    t.cut(1);
    let base = t.tsc + 1000;
    for i in 0..500u64 {
        let at = base + i * 100;
        // The time stamps of the two threads are swapped; the ring counter is not.
        t.submit_at(2, at + 60, 0, &[&words[..3]], 0, 4096);
        t.submit_at(3, at + 20, 0, &[&words[3..]], ring_flags::HANDED_OVER, 4096);
        if i % 7 == 0 {
            t.cut(3);
        }
        if i % 11 == 0 {
            t.cut(2);
        }
    }
    t.tsc = base + 100_000;
    let s = summary(&mut t);
    assert_eq!((s.copies.copy_engine, s.copies.copy_engine_detail.bytes), (500, 500 * (64 << 20)));
    assert_eq!((s.submissions, s.entries, s.lost, s.tap.handed_over), (1000, 1000, 0, 500));
    assert_eq!((s.problems.bad_headers, s.problems.holes, s.problems.late_rings), (0, 0, 0));
}

#[test]
fn a_slot_that_is_used_again_is_another_channel() {
    let mut t = Tape::new();
    t.context(1);
    for i in 0..5 {
        t.channel(1, 0, 0x5c00_1000 + i, 9 + i, 16);
        for _ in 0..20 {
            t.submit(2, 0, &[&copy(HOST_AT, DEVICE_AT, 8)]);
        }
        if i < 4 {
            t.end_channel(1, 0);
        }
    }
    let s = summary(&mut t);
    assert_eq!((s.channels, s.entries, s.lost, s.copies.copy_engine), (5, 100, 0, 100));
    for (i, c) in s.channel_list.iter().enumerate() {
        assert_eq!((c.generation, c.handle, c.entries, c.accounted), (i as u32, 0x5c00_1000 + i as u32, 20, 20));
        assert_eq!(c.engine, format!("COPY{i}"));
        assert_eq!(c.freed, i < 4);
    }
}

#[test]
fn entries_in_pieces_are_joined_across_events_and_chunks() {
    let data: Vec<u8> = (0..30_000u32).map(|i| i as u8).collect();
    let words = inline(DEVICE_AT, &data);
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1000, 1, 1024);
    t.cut(1);
    // Each event of the submission in a separate chunk.
    let mut all = Tape::new();
    all.bare_channel(0, 0x5c00_1000, 0x1_0000, 1024);
    all.submit_at(2, t.tsc + 1000, 0, &[&words, &copy(HOST_AT, DEVICE_AT, 9)], 0, 1000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pieces");
    all.write(&path);
    let r = Recording::open(&path).unwrap();
    assert_eq!(submissions(&r)[0].words(&submissions(&r)[0].entries[0]), words);
    t.bare_channel(0, 0x5c00_1000, 0x1_0000, 1024);
    t.submit_at(2, t.tsc + 1000, 0, &[&words, &copy(HOST_AT, DEVICE_AT, 9)], 0, 1000);
    let s = summary(&mut t);
    assert_eq!((s.copies.inline, s.copies.inline_detail.bytes, s.copies.copy_engine), (1, 30_000, 1));
    assert_eq!((s.entries, s.lost), (2, 0));
}

#[test]
fn a_submission_goes_on_in_the_next_chunk_of_its_thread() {
    let words = inline(DEVICE_AT, &[3; 8000]);
    let mut t = Tape::new();
    t.bare_channel(0, 1, 0x1_0000, 1024);
    t.submit_at(2, 2000, 0, &[&words], 0, 500);
    // Splits the thread's events into a chunk each.
    let mut bytes = Vec::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("whole");
    t.write(&path);
    let mut reader = tape::file::Reader::open(&path).unwrap();
    while let Some(item) = reader.item().unwrap() {
        if let tape::file::Item::Events { bytes: b, .. } = item {
            bytes = b;
        }
    }
    let mut apart = Tape::new();
    let (mut at, mut events) = (0, 0);
    while let Some((e, n)) = Event::parse(&bytes[at..]) {
        assert!(matches!(e.body, Body::Ring(_) | Body::Entry(..)));
        apart.raw(2, &bytes[at..at + n]);
        apart.cut(2);
        (at, events) = (at + n, events + 1);
    }
    assert!(events > 4);
    let path = dir.path().join("apart");
    apart.write(&path);
    let r = Recording::open(&path).unwrap();
    let all = submissions(&r);
    assert_eq!((all.len(), all[0].entries.len(), all[0].words(&all[0].entries[0])), (1, 1, &words[..]));
}

#[test]
fn what_the_final_put_accounts_for_and_the_tape_lacks_is_lost_once() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    t.channel(1, 1, 0x5c00_1002, 10, 32);
    let words = copy(HOST_AT, DEVICE_AT, 8);
    for i in 0..100 {
        // Ten rings of each are lost in a gap, which counts as one.
        let on = !(40..50).contains(&i);
        for slot in [0, 1] {
            t.recording(slot, on);
            t.submit(2 + slot as i32, slot, &[&words]);
        }
        if i == 49 {
            t.gap(2, 20, 10, 4000);
        }
    }
    t.end_channel(1, 1);
    t.end.as_mut().unwrap().gap_entries = 10;
    t.end.as_mut().unwrap().gap_events = 20;
    let s = summary(&mut t);
    // The second channel's ten were never counted in a gap. The first's were, and are not counted twice.
    assert_eq!((s.lost, s.lost_detail.by_channels, s.lost_detail.by_gaps), (20, 20, 10));
    assert_eq!((s.entries, s.problems.holes, s.lost_detail.rings_missing), (180, 2, 20));
    assert_eq!(s.channel_list.iter().map(|c| c.lost).collect::<Vec<_>>(), [10, 10]);
    assert_eq!(s.copies.copy_engine, 180);
}

#[test]
fn entries_find_their_ring_around_a_gap() {
    let words = copy(HOST_AT, DEVICE_AT, 8);
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    t.submit(2, 0, &[&words]);
    // The next ring is lost, its entry is not. Of the ring after it all fits, and the gap is noted after that ring.
    t.recording(0, false);
    t.submit(2, 0, &[&words]);
    t.recording(0, true);
    t.entry(2, 0, 1, 1, &words);
    t.gap(2, 1, 0, 48);
    t.ring_only(2, 0, 2);
    t.gap(2, 1, 0, 48);
    t.entry(2, 0, 2, 2, &words);
    t.entry(2, 0, 3, 3, &words);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    t.write(&path);
    let r = Recording::open(&path).unwrap();
    let counters = |s: &Submission| (s.ring.map(|r| r.seq), s.entries.iter().map(|e| e.seq).collect::<Vec<_>>());
    let got: Vec<_> = submissions(&r).iter().map(counters).collect();
    assert_eq!(got, [(Some(0), vec![0]), (None, vec![1]), (Some(2), vec![2, 3])]);
    let s = decode::summary(&r).unwrap();
    // (No entry is lost, only the one event.)
    assert_eq!((s.copies.copy_engine, s.entries, s.lost, s.doorbells), (4, 4, 1, 2));
    assert_eq!((s.lost_detail.gap_events, s.lost_detail.rings_missing, s.problems.holes), (1, 1, 0));
}

#[test]
fn gaps_count_where_no_final_put_is_known() {
    let mut t = Tape::new();
    t.bare_channel(0, 1, 7, 32);
    t.submit(2, 0, &[&[0]]);
    t.gap(2, 5, 5, 100);
    // Totals only rise: the second is not added to the first.
    t.gap(2, 8, 7, 200);
    t.end = None;
    let s = summary(&mut t);
    assert_eq!((s.lost, s.lost_detail.gap_events, s.lost_detail.channels_unaccounted), (7, 8, 1));
    assert!(s.end.is_none());
}

#[test]
fn a_killed_program_loses_nothing_that_was_rung() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    for _ in 0..40 {
        t.submit(2, 0, &[&[0]]);
    }
    let end = t.end.as_mut().unwrap();
    (end.exit_code, end.signal, end.how) = (None, Some(9), "killed by SIGKILL".into());
    // 40 entries, ring of 32: GP_PUT is 8. Two more were written but not rung.
    end.channels = vec![EndChannel {
        slot: 0,
        handle: 0x5c00_1001,
        put: 8,
        entries: 40,
        rings: 40,
        final_put: Some(10),
        ..Default::default()
    }];
    let s = summary(&mut t);
    assert_eq!((s.lost, s.lost_detail.unrung, s.entries), (0, 2, 40));
    assert_eq!(s.end.unwrap().signal, Some(9));
}

#[test]
fn an_entry_whose_words_fell_into_a_gap_is_lost_and_the_stream_is_taken_up_after_it() {
    let words = copy_64_mib();
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    t.submit(1, 0, &[&words]);
    // Half of an entry: a sequence is left open.
    t.submit_at(1, t.tsc + 50, 0, &[&words[..3]], 0, 4096);
    let gp = pushbuf::gpfifo::Entry::segment(PUSH_AT, 12).unwrap().encode();
    t.tsc += 100;
    t.submit_raw(1, 0, gp, lack::RING_FULL);
    t.submit(1, 0, &[&words]);
    let s = summary(&mut t);
    assert_eq!((s.copies.copy_engine, s.lost, s.problems.bad_headers), (2, 1, 0));
}

#[test]
fn doorbells_of_strangers_and_without_entries_are_no_submissions() {
    let mut t = Tape::new();
    t.bare_channel(0, 1, 7, 32);
    t.submit(2, 0, &[&[0]]);
    t.submit(2, 0, &[]);
    let stranger = RingBody { token: 99, slot: tape::event::NO_SLOT, ..Default::default() };
    t.event(2, kind::RING, ring_flags::TRAPPED, &stranger, &[], &[]);
    let s = summary(&mut t);
    assert_eq!((s.doorbells, s.submissions, s.lost_detail.strangers, s.channels), (3, 1, 1, 1));
}

#[test]
fn a_copy_is_placed_by_the_mappings_of_its_time() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    t.submit(2, 0, &[&copy(HOST_AT, DEVICE_AT, 8)]);
    // The same address becomes host memory; another thread's chunk holds the calls.
    t.memory(1, 0x5c00_0900, rm::class::NV01_MEMORY_SYSTEM, DEVICE_AT, 256 << 20);
    t.submit(2, 0, &[&copy(HOST_AT, DEVICE_AT, 8)]);
    let s = summary(&mut t);
    let to: Vec<Place> = s.copies.copy_engine_detail.by_place.iter().map(|d| d.to).collect();
    assert_eq!(to, [Place::Video, Place::Host]);
}

/// A ring whose large segment is copied after it, as the agent does; the copy is for the caller to write.
fn large(t: &mut Tape, tid: i32, words: u32) -> EntryBody {
    t.ring_only(tid, 0, 1);
    let gp = pushbuf::gpfifo::Entry::segment(PUSH_AT, words).unwrap().encode();
    let body = EntryBody { gp, seq: 1, slot: 0, index: 1, words: 0, lack: lack::NONE };
    t.event(tid, kind::ENTRY, entry_flags::MORE, &body, &[], &[]);
    body
}

fn with_one_copy() -> Tape {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 32);
    t.submit(2, 0, &[&copy_64_mib()]);
    t
}

#[test]
fn words_that_were_not_copied_when_the_program_died_lose_no_entry() {
    let counts = |mut t: Tape| {
        let s = summary(&mut t);
        assert_eq!((s.submissions, s.entries, s.copies.copy_engine), (2, 2, 1));
        (s.lost, s.problems.uncopied_segments)
    };
    let died = || {
        let mut t = with_one_copy();
        large(&mut t, 2, 600);
        t
    };
    assert_eq!(counts(died()), (0, 1));
    // Another thread lived on for a while.
    let mut t = died();
    t.note(1, "still here");
    assert_eq!(counts(t), (0, 1));
    // The same thread lived on, so that its words were lost in a gap, or a gap follows them.
    let mut t = died();
    t.note(2, "still here");
    assert_eq!(counts(t), (1, 0));
    let mut t = died();
    t.gap(2, 1, 0, 2400);
    assert_eq!(counts(t), (1, 0));
    // The recording stopped: the fate of the words is not known.
    let mut t = died();
    t.end.as_mut().unwrap().how = "recording stopped early: the disk is full".into();
    assert_eq!(counts(t), (1, 0));
    let mut t = died();
    t.end = None;
    assert_eq!(counts(t), (1, 0));
}

#[test]
fn words_that_were_read_late_are_counted_and_decoded() {
    for (first, second) in [(0, entry_flags::LATE), (entry_flags::LATE, 0)] {
        let mut t = with_one_copy();
        let words = copy_64_mib();
        let body = large(&mut t, 2, words.len() as u32);
        for (words, flags) in [(&words[..8], first | entry_flags::MORE), (&words[8..], second)] {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let body = EntryBody { words: words.len() as u32, ..body };
            t.event(2, kind::ENTRY, flags | entry_flags::CONTINUED, &body, &bytes, &[]);
        }
        let s = summary(&mut t);
        assert_eq!((s.lost, s.entries, s.copies.copy_engine), (0, 2, 2));
        assert_eq!((s.problems.late_segments, s.problems.uncopied_segments), (1, 0));
    }
}

/// A thread moves to a larger ring when the recorder is too slow, perhaps in the middle of an entry.
#[test]
fn an_entry_that_goes_on_in_another_ring_is_whole() {
    let mut t = with_one_copy();
    let words = copy_64_mib();
    let body = large(&mut t, 2, words.len() as u32);
    let pieces = [(&words[..8], entry_flags::MORE), (&words[8..], 0)];
    for (k, (words, flags)) in pieces.into_iter().enumerate() {
        if k == 1 {
            let thread = tape::event::ThreadBody { tid: 2, ordinal: 1, from_ring: 0, pid: 1, from_head: 4096 };
            t.event(2, kind::THREAD, 0, &thread, &[], &[]);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let body = EntryBody { words: words.len() as u32, ..body };
        t.event(2, kind::ENTRY, flags | entry_flags::CONTINUED, &body, &bytes, &[]);
    }
    let s = summary(&mut t);
    assert_eq!((s.lost, s.entries, s.copies.copy_engine, s.problems.torn_segments), (0, 2, 2, 0));
    assert!(s.complete, "{:?}", s.incomplete_because);
}

/// An entry with missing words after a gap makes the recording incomplete, even if the number of entries is right.
#[test]
fn words_that_did_not_fit_make_a_recording_incomplete() {
    let mut t = with_one_copy();
    let body = large(&mut t, 2, 16);
    t.note(2, "still here");
    t.event(2, kind::ENTRY, entry_flags::CONTINUED, &EntryBody { words: 4, ..body }, &[0; 16], &[]);
    let s = summary(&mut t);
    assert!(!s.complete && s.problems.torn_segments > 0, "{:?} {:?}", s.problems, s.incomplete_because);
}
