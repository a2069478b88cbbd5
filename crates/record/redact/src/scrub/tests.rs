//! Streams as the CUDA driver writes them, and streams that no driver should write.

use super::*;
use proptest::prelude::*;
use pushbuf::decode::Decoder;
use pushbuf::encode::{Words, inline_dma, launch_dma};
use pushbuf::header::Kind;
use pushbuf::ops::{Engine, Op, What};
use pushbuf::qmd::{Layout, Qmd};
use tape::event::{ChannelBody, Events, IoctlBody, NoteBody, Plain, bytes_of, kind};

const SECRET: u32 = 0x5ec2_e700;

fn words(write: impl FnOnce(&mut Words<'_>)) -> Vec<u32> {
    let mut buffer = vec![0; 60_000];
    let mut w = Words::new(&mut buffer);
    write(&mut w);
    w.as_slice().to_vec()
}

fn event<B: Plain>(kind: u16, flags: u16, body: &B, payload: &[u8]) -> Vec<u8> {
    let len = (HEAD + size_of::<B>() + payload.len()).next_multiple_of(8);
    let mut b = Vec::new();
    b.extend_from_slice(&kind.to_ne_bytes());
    b.extend_from_slice(&flags.to_ne_bytes());
    b.extend_from_slice(&(len as u32).to_ne_bytes());
    b.extend_from_slice(&7u64.to_ne_bytes());
    b.extend_from_slice(bytes_of(body));
    b.extend_from_slice(payload);
    // Old bytes of the ring.
    b.resize(len, 0xaa);
    b
}

fn part(slot: u32, seq: u64, flags: u16, words: &[u32], of: usize) -> Vec<u8> {
    let gp = (of as u64) << 42 | 0x1000;
    let body = EntryBody { gp, seq, slot, index: 0, words: words.len() as u32, lack: 0 };
    event(kind::ENTRY, flags, &body, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>())
}

fn entry(seq: u64, words: &[u32]) -> Vec<u8> {
    part(3, seq, 0, words, words.len())
}

fn channel() -> Vec<u8> {
    event(kind::CHANNEL, 0, &ChannelBody { slot: 3, class: 0xc86f, entries: 1024, ..ChannelBody::default() }, &[])
}

/// Words and flags of the entries of a chunk.
fn entries(chunk: &[u8]) -> Vec<(Vec<u32>, u16)> {
    Events::new(chunk)
        .filter_map(|e| match e.body {
            Body::Entry(_, b) => Some((pushbuf::decode::words_of(b).collect(), e.head.flags)),
            _ => None,
        })
        .collect()
}

fn cleaned(s: &mut Scrubber, chunk: &[u8]) -> Vec<u8> {
    let mut out = chunk.to_vec();
    s.clean(&mut out);
    out
}

fn clean(chunks: &[Vec<u8>]) -> Vec<(Vec<u32>, u16)> {
    let mut s = Scrubber::default();
    chunks.iter().flat_map(|c| entries(&cleaned(&mut s, c))).collect()
}

/// The first entry's words after an announcement, and whether the entry was marked.
fn clean_one(w: &[u32]) -> (Vec<u32>, bool) {
    let (words, flags) = clean(&[channel(), entry(0, w)]).remove(0);
    (words, flags & entry_flags::SCRUBBED != 0)
}

fn ops(streams: &[&[u32]]) -> Vec<Op> {
    let (mut decoder, mut engine, mut out) = (Decoder::new(0xc86f), Engine::new(), Vec::new());
    decoder.bind(1, 0xcbc0);
    decoder.bind(4, 0xc8b5);
    for s in streams {
        engine.segment(&mut decoder, s, |op| out.push(*op));
    }
    out
}

fn qmd(grid: u64) -> Qmd {
    let mut qmd = Qmd::new(Layout::of(4, 0).unwrap());
    for (name, value) in [("GRID_WIDTH", grid), ("CTA_THREAD_DIMENSION0", 128), ("REGISTER_COUNT", 24)] {
        qmd.set(name, value).unwrap();
    }
    qmd
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// 384 bytes of QMD and 144 of constants in one inline copy, then the launch, as driver 580 writes them.
fn launch(qmd: &Qmd, at: u64) -> Vec<u32> {
    let mut data = bytes(qmd.words());
    data.extend(bytes(&[SECRET; 36]));
    words(|w| {
        w.set_object(1, 0xcbc0).unwrap();
        w.inline(1, at, &data, inline_dma::PITCH).unwrap();
        w.launch(1, at).unwrap();
    })
}

#[test]
fn a_launch_keeps_its_qmd_and_loses_its_constants() {
    let qmd = qmd(17);
    let before = launch(&qmd, 0x2_0010_0000);
    let (after, marked) = clean_one(&before);
    assert!(marked);
    assert!(!after.contains(&SECRET));
    let (a, b) = (ops(&[&before]), ops(&[&after]));
    let launched = |ops: &[Op]| ops.iter().find_map(|o| if let What::Launch(l) = o.what { Some(l) } else { None });
    assert_eq!(launched(&a), launched(&b));
    assert_eq!(launched(&b).unwrap().qmd.unwrap().grid()[0], 17);
    let changed: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
    assert_eq!(changed.len(), 36, "the constants and nothing else");
}

#[test]
fn a_qmd_of_256_bytes_keeps_no_more_than_these() {
    let small = Qmd::new(Layout::of(3, 0).unwrap());
    let mut data = bytes(small.words());
    data.extend(bytes(&[SECRET; 40]));
    let at = 0x2_0010_0000;
    let before = words(|w| {
        w.set_object(1, 0xc6c0).unwrap();
        w.inline(1, at, &data, inline_dma::PITCH).unwrap();
        w.launch(1, at).unwrap();
    });
    let (after, _) = clean_one(&before);
    assert!(!after.contains(&SECRET));
    assert!(after.contains(&(3 << 4)), "its version stays");
}

#[test]
fn the_users_inline_copy_is_dropped_also_beside_a_launch() {
    let qmd = qmd(2);
    let mut before = words(|w| {
        w.inline(1, 0x7fff_0000_0000, &bytes(&[SECRET; 1000]), inline_dma::PITCH).unwrap();
        w.inline(2, 0x7fff_0000_0000, &bytes(&[SECRET; 10]), inline_dma::PITCH).unwrap();
    });
    before.extend(launch(&qmd, 0x2_0010_0000));
    before.extend(words(|w| {
        // A copy to the QMD's place, after the QMD was launched.
        w.inline(1, 0x2_0010_0000, &bytes(&[SECRET; 64]), inline_dma::PITCH).unwrap();
    }));
    let (after, marked) = clean_one(&before);
    assert!(marked && !after.contains(&SECRET));
    let kinds = |ops: Vec<Op>| ops.iter().map(|o| std::mem::discriminant(&o.what)).collect::<Vec<_>>();
    assert_eq!(kinds(ops(&[&before])), kinds(ops(&[&after])), "the operations are the same");
}

#[test]
fn a_copy_is_left_as_it_is_and_a_fill_loses_its_constants() {
    let before = words(|w| {
        w.copy(4, 0x2_0440_0000, 0x7fff_2000_0000, 64 << 20, launch_dma::NON_PIPELINED | launch_dma::PITCH).unwrap();
        w.copy_release(4, 0x2_0000_1000, 77, true).unwrap();
        w.host_release(4, 0x2_0000_2000, 78, false).unwrap();
    });
    let (after, marked) = clean_one(&before);
    assert_eq!(after, before);
    assert!(!marked);
    let fill = words(|w| {
        w.fill(4, 0x2_0440_0000, SECRET, 100, launch_dma::PITCH | launch_dma::NON_PIPELINED).unwrap();
        w.imm(4, 0x700, 0x1abc).unwrap();
        w.imm(4, 0x704, 0x1def).unwrap();
    });
    let (after, marked) = clean_one(&fill);
    assert!(marked && !after.contains(&SECRET));
    assert_eq!(after[after.len() - 2..], words(|w| [0x700, 0x704].into_iter().for_each(|m| w.imm(4, m, 0).unwrap())));
    let What::Fill(f) = ops(&[&after])[0].what else { panic!("still a fill") };
    assert_eq!((f.elements, f.pattern[..4].to_vec()), (100, vec![0; 4]));
}

#[test]
fn values_of_unknown_methods_and_classes_are_dropped_their_names_are_not() {
    let before = words(|w| {
        w.inc(1, 0x3ff0, &[SECRET]).unwrap();
        w.inc(0, 0x400, &[SECRET, SECRET]).unwrap();
        w.non_inc(6, 0x1b4, &[SECRET; 3]).unwrap();
        w.inc(1, 0x3808, &[SECRET]).unwrap();
        w.imm(1, 0x100, 0x1234).unwrap();
        w.inc(4, 0x8, &[SECRET]).unwrap();
        w.raw(&[0xe000_0000 | SECRET & 0x1fff_ffff, SECRET]).unwrap();
    });
    let (after, marked) = clean_one(&before);
    let expected = words(|w| {
        w.inc(1, 0x3ff0, &[0]).unwrap();
        w.inc(0, 0x400, &[0, 0]).unwrap();
        w.non_inc(6, 0x1b4, &[0; 3]).unwrap();
        w.inc(1, 0x3808, &[0]).unwrap();
        w.imm(1, 0x100, 0).unwrap();
        w.inc(4, 0x8, &[0]).unwrap();
        w.raw(&[0xe000_0000, 0]).unwrap();
    });
    assert!(marked);
    assert_eq!(after, expected);
}

#[test]
fn a_qmd_in_methods_stays() {
    let qmd = qmd(5);
    let before = words(|w| {
        w.set_object(1, 0xcbc0).unwrap();
        w.inc(1, 0x318, &[1 << 30 | 2, 0x10_0000]).unwrap();
        w.inc(1, 0x320, qmd.words()).unwrap();
    });
    assert_eq!(clean_one(&before), (before.clone(), false));
    // An entry is not marked either if it lost no data and its QMD was sent by an inline copy.
    let before = words(|w| {
        w.set_object(1, 0xcbc0).unwrap();
        for _ in 0..2 {
            w.inline(1, 0x2_0010_0000, &bytes(qmd.words()), inline_dma::PITCH).unwrap();
            w.launch(1, 0x2_0010_0000).unwrap();
            w.launch(1, 0x2_0010_0000).unwrap();
        }
    });
    assert_eq!(clean_one(&before), (before.clone(), false));
}

#[test]
fn a_sequence_that_goes_on_in_the_next_entry_is_data_there_too() {
    let whole = words(|w| {
        w.inline(1, 0x7fff_0000_0000, &bytes(&[SECRET; 50]), inline_dma::PITCH).unwrap();
        w.copy(4, 1 << 20, 2 << 20, 4096, 0x182).unwrap();
    });
    for cut in 0..=whole.len() {
        let (a, b) = whole.split_at(cut);
        let out = clean(&[channel(), entry(0, a), entry(1, b)]);
        let after: Vec<u32> = out.into_iter().flat_map(|(w, _)| w).collect();
        let want: Vec<u32> = whole.iter().map(|&w| if w == SECRET { 0 } else { w }).collect();
        assert_eq!(after, want, "cut at {cut}");
    }
}

#[test]
fn a_split_entry_keeps_its_methods_and_no_data() {
    let qmd = qmd(9);
    let mut whole = words(|w| {
        w.inline(1, 0x7fff_0000_0000, &bytes(&[SECRET; 7000]), inline_dma::PITCH).unwrap();
    });
    whole.extend(launch(&qmd, 0x2_0010_0000));
    whole.extend(words(|w| w.copy(4, 1 << 20, 2 << 20, 4096, 0x182).unwrap()));
    for cut in [1, 6, 7, 100, 7000, whole.len() - 50, whole.len() - 1] {
        let n = whole.len();
        let (a, b) = whole.split_at(cut);
        let split = [
            channel(),
            part(3, 0, entry_flags::MORE, a, n),
            part(3, 0, entry_flags::CONTINUED, b, n),
            entry(1, &whole),
        ];
        let out = clean(&split);
        let after: Vec<u32> = out[..2].iter().flat_map(|(w, _)| w.clone()).collect();
        assert!(!after.contains(&SECRET), "cut at {cut}");
        let copies = |w: &[u32]| ops(&[w]).iter().filter(|o| matches!(o.what, What::Copy(_))).count();
        assert_eq!(copies(&after), 1, "what follows is read as before");
        assert!(!after.windows(4).any(|w| qmd.words().windows(4).any(|q| q == w && q.iter().all(|&x| x != 0))));
        // In step afterwards: the next entry keeps its launch.
        assert!(ops(&[&out[2].0]).iter().any(|o| matches!(o.what, What::Launch(l) if l.qmd == Some(qmd))));
        assert!(out[2].1 & entry_flags::SCRUBBED != 0);
        assert!((out[0].1 | out[1].1) & entry_flags::SCRUBBED != 0);
    }
}

/// The agent puts the entry in the ring before the doorbell, and the words of a large segment after it.
#[test]
fn words_that_come_behind_their_entry_are_a_whole_segment() {
    let qmd = qmd(9);
    let mut whole = words(|w| w.inline(1, 0x7fff_0000_0000, &bytes(&[SECRET; 700]), inline_dma::PITCH).unwrap());
    whole.extend(launch(&qmd, 0x2_0010_0000));
    let n = whole.len();
    let first = part(3, 0, entry_flags::MORE, &[], n);
    for late in [0, entry_flags::LATE] {
        let out = clean(&[channel(), first.clone(), part(3, 0, entry_flags::CONTINUED | late, &whole, n)]);
        assert!(ops(&[&out[1].0]).iter().any(|o| matches!(o.what, What::Launch(l) if l.qmd == Some(qmd))));
        assert!(!out[1].0.contains(&SECRET));
    }
    // Words that belong to another entry by now.
    let out =
        clean(&[channel(), first, part(3, 0, entry_flags::CONTINUED | entry_flags::LATE, &whole[300..], n - 300)]);
    assert!(out[1].0.iter().all(|&w| w == 0));
}

#[test]
fn half_of_a_split_entry_makes_what_follows_doubtful() {
    let data = words(|w| w.inline(1, 0x7fff_0000_0000, &bytes(&[SECRET; 600]), inline_dma::PITCH).unwrap());
    let (n, good) = (data.len(), words(|w| w.copy(4, 1 << 20, 2 << 20, 4096, 0x182).unwrap()));
    // The second half alone; the first alone; halves of two entries.
    for lost in [
        vec![part(3, 0, entry_flags::CONTINUED, &data[300..], n)],
        vec![part(3, 0, entry_flags::MORE, &data[..300], n), entry(1, &data[300..])],
        vec![part(3, 0, entry_flags::MORE, &data[..300], n), part(3, 1, entry_flags::CONTINUED, &data[300..], n)],
        // A segment that lacks words.
        vec![part(3, 0, 0, &data[..300], n), entry(1, &data[300..])],
    ] {
        let last = 1 + u64::from(lost.len() > 1);
        let chunks: Vec<_> = [channel()].into_iter().chain(lost).chain([entry(last, &good)]).collect();
        let out = clean(&chunks);
        assert!(out.iter().all(|(w, _)| !w.contains(&SECRET)));
        assert_eq!(out.last().unwrap().0, good, "a whole run of known methods is in step again");
    }
}

#[test]
fn entries_that_are_missing_or_out_of_order_leak_nothing() {
    // Segments that contain only data of a sequence that began earlier.
    let long = words(|w| w.inline(1, 0x7fff_0000_0000, &bytes(&[SECRET; 400]), inline_dma::PITCH).unwrap());
    let (head, rest) = long.split_at(50);
    let (mid, tail) = rest.split_at(200);
    let out = clean(&[channel(), entry(1, mid), entry(2, tail), entry(0, head)]);
    assert!(out.iter().all(|(w, _)| !w.contains(&SECRET)));
    let out = clean(&[channel(), entry(0, head), entry(2, tail)]);
    assert!(out.iter().all(|(w, _)| !w.contains(&SECRET)));
    // A slot that is used again: its counter restarts, wherever the announcement is.
    let good = words(|w| w.copy(4, 1 << 20, 2 << 20, 4096, 0x182).unwrap());
    assert_eq!(clean(&[channel(), entry(0, head), entry(0, &good)])[1].0, good);
}

#[test]
fn behind_a_pause_a_stream_is_out_of_step() {
    let few = words(|w| w.set_object(4, 0xc8b5).unwrap());
    let ring = |flags| event(kind::RING, flags, &RingBody { slot: 3, ..RingBody::default() }, &[]);
    let known = |flags| clean(&[channel(), entry(0, &few), ring(flags), entry(1, &few)])[1].0 == few;
    assert!(known(0) && !known(ring_flags::AFTER_PAUSE));
}

#[test]
fn a_word_that_is_no_header_ends_what_is_known() {
    let mut before = words(|w| w.copy(4, 1 << 20, 2 << 20, 4096, 0x182).unwrap());
    let n = before.len();
    before.extend([0xc000_0000 | SECRET, 0x2001_8100, SECRET]);
    let (after, _) = clean_one(&before);
    assert_eq!(after[..n], before[..n]);
    assert_eq!(after[n..], [0, 0, 0]);
}

#[test]
fn what_lay_in_the_ring_before_is_not_taken_along() {
    let body = IoctlBody { arg: 3, nested: 5, ..IoctlBody::default() };
    let mut payload = vec![1, 2, 3, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa];
    payload.extend([4, 5, 6, 7, 8]);
    let chunk: Vec<u8> = [
        event(kind::IOCTL, 0, &body, &payload),
        event(kind::NOTE, 0, &NoteBody { text: 2, pad: 0 }, b"ab"),
        entry(0, &[0]),
        event(77, 0, &NoteBody { text: SECRET, pad: SECRET }, &bytes(&[SECRET; 4])),
        // The head claims more words than the event has room for.
        event(kind::ENTRY, 0, &EntryBody { words: 99, ..EntryBody::default() }, &bytes(&[SECRET; 4])),
    ]
    .concat();
    let mut s = Scrubber::default();
    let out = cleaned(&mut s, &chunk);
    assert_eq!(out.len(), chunk.len());
    assert!(!out.contains(&0xaa) && !out.windows(4).any(|w| w == SECRET.to_le_bytes()));
    let mut events = Events::new(&out);
    assert!(matches!(events.next().unwrap().body, Body::Ioctl(_, [1, 2, 3], [4, 5, 6, 7, 8])));
    assert!(matches!(events.next().unwrap().body, Body::Note(b"ab")));
}

#[test]
fn a_copy_keeps_where_it_reads_from() {
    let body = CallBody { object: 0x7f00_0000_0000, source: 0x7f11_0000_0000, size: 4096, ..CallBody::default() };
    let copy = event(tape::call::kind::CALL, 9, &body, &[]);
    assert_eq!(cleaned(&mut Scrubber::default(), &copy), copy);
    // Without the source, as in most functions and in older recordings.
    let mut short = copy[..copy.len() - 8].to_vec();
    short[4] -= 8;
    assert_eq!(cleaned(&mut Scrubber::default(), &short), short);
}

/// Headers of every form, and data that looks like data.
fn some_words() -> impl Strategy<Value = Vec<u32>> {
    let kind = prop_oneof![Just(Kind::Inc), Just(Kind::NonInc), Just(Kind::OneInc), Just(Kind::OldInc)];
    let address =
        prop_oneof![Just(0x1b0u16), Just(0x1b4), Just(0x180), Just(0x2b4), Just(0x2c0), Just(0), 0u16..0x1000];
    let sequence = (kind, 0u8..8, address, prop::collection::vec(any::<u32>(), 0..20)).prop_map(|(k, s, a, v)| {
        let mut b = [0; 32];
        let mut w = Words::new(&mut b);
        let _ = w.methods(k, s, a & !3, &v);
        w.as_slice().to_vec()
    });
    let piece = prop_oneof![4 => sequence, 1 => prop::collection::vec(any::<u32>(), 0..5)];
    prop::collection::vec(piece, 0..12).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn garbage_never_panics(chunk in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut s = Scrubber::default();
        prop_assert_eq!(cleaned(&mut s, &chunk).len(), chunk.len());
    }

    /// For any stream, cut and mixed in any way, lengths and heads stay, and words are kept or lose bits.
    #[test]
    fn any_stream_in_any_order(
        parts in prop::collection::vec((some_words(), 0u64..4, 0u16..4, 0u32..3, 0usize..4), 0..8)
    ) {
        let chunk: Vec<u8> =
            parts.iter().flat_map(|(w, seq, flags, slot, extra)| part(*slot, *seq, *flags, w, w.len() + extra)).collect();
        let mut s = Scrubber::default();
        let out = cleaned(&mut s, &chunk);
        prop_assert_eq!(out.len(), chunk.len());
        let (a, b) = (entries(&chunk), entries(&out));
        prop_assert_eq!(a.len(), b.len());
        for ((a, flags), (b, after)) in a.iter().zip(&b) {
            prop_assert!(a.iter().zip(b).all(|(a, b)| b & !a == 0));
            prop_assert_eq!(after & !entry_flags::SCRUBBED, *flags);
            prop_assert!(a == b || after & entry_flags::SCRUBBED != 0);
        }
    }

    /// Data of inline copies never stays, however the stream is cut into entries and in whatever order they arrive.
    #[test]
    fn inline_data_never_stays(
        n in 1usize..300, cuts in prop::collection::vec(0usize..400, 0..5), order in any::<u64>(), drop in 0usize..8
    ) {
        let whole = words(|w| {
            w.inline(1, 0x7fff_0000_0000, &bytes(&vec![SECRET; n]), inline_dma::PITCH).unwrap();
            w.copy(4, 1 << 20, 2 << 20, 4096, 0x182).unwrap();
            w.inline(2, 0x7fff_0000_0000, &bytes(&vec![SECRET; n]), inline_dma::PITCH).unwrap();
        });
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(whole.len())).chain([0, whole.len()]).collect();
        cuts.sort_unstable();
        let mut parts: Vec<_> =
            cuts.windows(2).enumerate().map(|(i, c)| entry(i as u64, &whole[c[0]..c[1]])).collect();
        if drop < parts.len() {
            parts.remove(drop);
        }
        let len = parts.len();
        if len > 1 {
            parts.swap(order as usize % len, (order >> 32) as usize % len);
        }
        for (w, _) in clean(&parts) {
            prop_assert!(!w.contains(&SECRET));
        }
    }
}
