//! Recordings of random events: no panic, and all results agree.

#[path = "synthetic/mod.rs"]
mod synthetic;

use decode::ranges::{Range, Texts};
use decode::walk::{At, Filter, Pattern, Sink, walk};
use decode::{LaunchWrites, Recording, rows};
use proptest::prelude::*;
use pushbuf::ops::Op;
use synthetic::{DEVICE_AT, HOST_AT, Tape, copy};
use tape::event::{Head, bytes_of, kind};
use tape::file::Process;

/// An event whose body has random words: mostly small ones, which are valid channels, indices and lengths.
#[derive(Clone, Debug)]
struct Any {
    process: u32,
    tid: i32,
    kind: u16,
    flags: u16,
    tsc: u64,
    words: Vec<u32>,
    /// The length in the head is wrong by this many bytes.
    lie: i32,
}

fn any_event() -> impl Strategy<Value = Any> {
    let word = prop_oneof![8 => 0u32..6, 2 => 0u32..4096, 1 => any::<u32>()];
    let kinds = prop_oneof![4 => kind::RING..=kind::THREAD, 1 => 32u16..70, 1 => any::<u16>()];
    (
        (0u32..3, 1i32..4, kinds, prop_oneof![0u16..32, any::<u16>()]),
        (0u64..5000, prop::collection::vec(word, 0..40), prop_oneof![20 => Just(0), 1 => -16i32..16]),
    )
        .prop_map(|((process, tid, kind, flags), (tsc, words, lie))| Any {
            process,
            tid,
            kind,
            flags,
            tsc,
            words,
            lie,
        })
}

fn add(t: &mut Tape, e: &Any) {
    let len = 16 + (4 * e.words.len()).next_multiple_of(8);
    let claimed = (len as i64 + i64::from(e.lie)).max(0) as u32;
    let head = Head { kind: e.kind, flags: e.flags, len: claimed, tsc: e.tsc };
    let mut bytes = bytes_of(&head).to_vec();
    bytes.extend(e.words.iter().flat_map(|w| w.to_le_bytes()));
    bytes.resize(len, 0);
    t.process = e.process;
    t.raw(e.tid, &bytes);
}

/// Takes all rows.
#[derive(Default)]
struct All {
    copies: u64,
    own: LaunchWrites,
}

impl Sink for All {
    fn range(&mut self, range: &Range, texts: &Texts) {
        assert!(texts.label(range.key).len() < 2000 && range.level < 1000);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        let clock = schema::Clock::new(0, 1e9);
        if rows::copy(at, op, &clock).is_some() && !self.own.holds(at, op) {
            self.copies += 1;
        }
        let _ = rows::launch(at, op, &clock);
        let range = Pattern::new("x").ok();
        let _ = Filter { between: Some((0.0, 1.0)), range, ..Filter::default() }.wants_at(at, &clock);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Random events are inserted between the events of a real stream; some have its channel.
    #[test]
    fn no_events_make_it_panic_or_contradict_itself(
        events in prop::collection::vec(any_event(), 0..120),
        real in 0usize..20,
        ended in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let mut t = Tape::new();
        t.processes = (0..2).map(|index| Process { index, pid: 10 + index as i32, ..Process::default() }).collect();
        t.context(1);
        t.channel(1, 0, 0x5c00_1001, 9, 32);
        let words = copy(HOST_AT, DEVICE_AT, 64);
        for (i, e) in events.iter().enumerate() {
            if i < real {
                t.process = 0;
                t.submit(1, 0, &[&words]);
            }
            add(&mut t, e);
        }
        t.process = 0;
        if !ended {
            t.end = None;
        }
        t.write(&path);
        let r = Recording::open(&path).unwrap();
        let s = decode::summary(&r).unwrap();
        let graphs = decode::graphs::graphs(&r).unwrap();
        graphs.iter().for_each(|g| drop(decode::graphs::row(g)));
        prop_assert_eq!(s.complete, s.incomplete_because.is_empty());
        prop_assert!(!s.complete || (s.lost == 0 && ended), "{:?}", s.lost_detail);
        let of_processes: u64 = s.processes.iter().map(|p| p.entries).fold(0, u64::saturating_add);
        prop_assert_eq!(s.entries, of_processes);
        prop_assert_eq!(s.doorbells, s.tap.trapped + s.tap.rewritten);
        for c in &s.channel_list {
            prop_assert!(c.lost == 0 || c.accounted > 0, "{c:?}");
        }
        // The list of copies has as many as the summary counts.
        let mut all = All { own: LaunchWrites::of(&r).unwrap(), ..All::default() };
        walk(&r, &mut all).unwrap();
        prop_assert_eq!(all.copies, s.copies.copy_engine + s.copies.inline + s.fills);
        // The processes, read one after the other, add up to all of them together.
        let mut alone = 0;
        for pid in [10, 11] {
            if let Ok(one) = Recording::open_process(&path, pid, &mut |_, _| ()) {
                alone += decode::summary(&one).unwrap().doorbells;
            }
        }
        prop_assert!(alone <= s.doorbells);
    }

    /// A file with any bytes overwritten gives everything before the damage, or an error.
    #[test]
    fn no_damage_makes_it_panic(at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..64)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        synthetic::two_ranks().write(&path);
        let mut whole = std::fs::read(&path).unwrap();
        let from = at.index(whole.len());
        let to = (from + bytes.len()).min(whole.len());
        let same = whole[from..to] == bytes[..to - from];
        whole[from..to].copy_from_slice(&bytes[..to - from]);
        std::fs::write(&path, &whole).unwrap();
        if let Ok(r) = Recording::open(&path) {
            let s = decode::summary(&r).unwrap();
            // (The index is only an aid, and bytes 12 to 15 and padding have no meaning.)
            prop_assert!(s.submissions <= 15);
            prop_assert!(same || s.damage.is_some() || s.submissions == 15, "{:?}", s.damage);
        }
        for pid in [5000, 5001] {
            if let Ok(r) = Recording::open_process(&path, pid, &mut |_, _| ()) {
                prop_assert!(decode::summary(&r).unwrap().submissions <= 10);
            }
        }
    }
}
