//! Small copies by the engine's macro: the order of the arguments is derived, or the copy is refused.

mod graphs;

use cuda_graph::words::{Graph, Step as Do, words};
use cuda_graph::{CopyCall, CopyMacro, CountIn, Macros, Own, Recipe, Refused, Segment, Work, copy_calls, learn_with};
use graphs::{USER, channel, qmd_at};

/// A copy of 8 bytes from pinned memory, as an H200's CUDA wrote it for the shape `memcpy-h2d-8B` (up to its release).
const RECORDED: [u32; 12] = [
    0x2004_2060,
    0x0000_0008,
    0x0000_0001,
    0x0000_7f39,
    0x9680_0100,
    0x2001_206c,
    0x0000_0041,
    0x2002_2e02,
    0x0000_7f39,
    0x91e0_0000,
    0x2001_2e03,
    0x0000_0002,
];
const SEEN: CopyMacro = CopyMacro { high: 0, low: 1, count: 2, counts: CountIn::Words };

fn calls(words: &[u32]) -> Vec<CopyCall> {
    copy_calls(&[channel()], &[Segment { channel: 0, words }])
}

fn call(source: u64, bytes: u32, count: u32) -> CopyCall {
    CopyCall { address: USER, bytes, arguments: [(source >> 32) as u32, source as u32, count] }
}

/// A kernel, the recorded copy after it without a wait, and another kernel after that, also without a wait.
fn graph() -> Graph {
    let mut graph = Graph::memset(USER);
    let at = graph.launch.iter().position(|step| matches!(step, Do::Memset { .. })).unwrap();
    graph.launch[at] = Do::Raw(RECORDED.to_vec());
    graph
}

fn learn(copies: Option<CopyMacro>) -> Result<Recipe, Refused> {
    let graph = graph();
    let (upload, one, two) = (graph.upload(), graph.again(1), graph.again(2));
    let segment = |words| [Segment { channel: 0, words }];
    let macros = Macros { fills: None, copies };
    learn_with(macros, &[channel()], &segment(&upload), &[&segment(&one), &segment(&two)])
}

#[test]
fn a_recorded_call_is_a_copy_once_it_is_known_how_it_is_read() {
    let arguments = [0x7f39, 0x91e0_0000, 2];
    assert_eq!(calls(&RECORDED), [CopyCall { address: 0x7f39_9680_0100, bytes: 8, arguments }]);
    let unknown = Refused::CopyArguments { address: 0x7f39_9680_0100, bytes: 8, arguments };
    assert_eq!(learn(None).unwrap_err(), unknown);
    let recipe = learn(Some(SEEN)).unwrap();
    let copy = recipe.nodes.iter().find_map(|n| if let Work::Copy(copy) = n.work { Some(copy) } else { None }).unwrap();
    assert_eq!((copy.src, copy.dst, copy.bytes()), (0x7f39_91e0_0000, 0x7f39_9680_0100, 8));
    // The copy engine of the doorbell channel does it, between the kernels.
    let own = Own::of(&recipe, 0x2_0100_0140).unwrap();
    let at = |wanted: &[u32]| own.launch.windows(wanted.len()).position(|w| w == wanted);
    let transfer = at(&words(|w| w.copy(4, copy.src, copy.dst, 8, 0x182).unwrap())).unwrap();
    let start = |i| (qmd_at(i) >> 8) as u32;
    assert!(at(&[start(0)]) < Some(transfer) && at(&[start(2)]) > Some(transfer), "{:x?}", own.launch);
    // A reading that does not fit the bytes.
    let wrong = CopyMacro { counts: CountIn::Bytes, ..SEEN };
    assert_eq!(learn(Some(wrong)).unwrap_err(), Refused::CopyCount { address: 0x7f39_9680_0100, bytes: 8, arguments });
}

#[test]
fn one_reading_and_no_other_must_explain_all() {
    let (one, two) = (0x7f39_91e0_0140, 0x7f39_91e0_0a80);
    let both = [(call(one, 8, 2), one), (call(two, 16, 4), two)];
    assert_eq!(CopyMacro::derive(&both), Some(SEEN));
    for of in CopyMacro::all() {
        let by = |source: u64, bytes: u32| {
            let mut arguments = [0; 3];
            arguments[of.high] = (source >> 32) as u32;
            arguments[of.low] = source as u32;
            arguments[of.count] = match of.counts {
                CountIn::Words => bytes / 4,
                CountIn::WordsLessOne => bytes / 4 - 1,
                CountIn::Bytes => bytes,
            };
            (CopyCall { address: USER, bytes, arguments }, source)
        };
        assert_eq!(CopyMacro::derive(&[by(one, 8), by(two, 16)]), Some(of));
    }
    // Only one length; only one source; a source that differs from the given one; no copies.
    assert_eq!(CopyMacro::derive(&[(call(one, 8, 2), one), (call(two, 8, 2), two)]), None);
    assert_eq!(CopyMacro::derive(&[(call(one, 8, 2), one), (call(one, 16, 4), one)]), None);
    assert_eq!(CopyMacro::derive(&[(call(one, 8, 2), one), (call(two, 16, 4), two + 4)]), None);
    assert_eq!(CopyMacro::derive(&[]), None);
    // If both halves of the address are equal, their order cannot be derived.
    let alike = |low: u64| low << 32 | low;
    let open = [(call(alike(0x40), 8, 2), alike(0x40)), (call(alike(0x80), 16, 4), alike(0x80))];
    assert_eq!(CopyMacro::derive(&open), None);
}
