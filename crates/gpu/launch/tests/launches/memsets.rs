//! Graphs with memsets by CUDA's macro: its argument order and count are measured, and never guessed.

use crate::rig::{DATA, LOG, Rig, TIMEOUT};
use cuda_graph::words::{Graph, MacroForm, words};
use doorbell_softgpu::{MacroCount, StandInMacro};
use launch::{BACKGROUND, Error, Graph as Ours, Memsets, WORDS};
use pushbuf::encode::Words;
use std::sync::atomic::Ordering;

/// Address of the stand-in's own fills, in host memory.
const OWN: u64 = 0x9_0000;
/// Bytes that the graph fills; the word after them stays.
const BYTES: u32 = 48;

/// Every order and count.
fn forms() -> impl Iterator<Item = (StandInMacro, MacroForm)> {
    use cuda_graph::words::MacroCount as Theirs;
    let counts = [
        (MacroCount::Words, Theirs::Words),
        (MacroCount::WordsLessOne, Theirs::WordsLessOne),
        (MacroCount::Bytes, Theirs::Bytes),
    ];
    [false, true].into_iter().flat_map(move |value_last| {
        counts.map(|(count, theirs)| {
            let of = StandInMacro { value_last, count, ..StandInMacro::default() };
            (of, MacroForm { value_last, count: theirs })
        })
    })
}

/// The stand-in's memsets: `words` are those of one.
struct ByStandIn<'a, F: FnMut(&mut Words<'_>, u64, u32, u32)> {
    rig: &'a Rig,
    words: F,
    fills: u32,
}

impl<F: FnMut(&mut Words<'_>, u64, u32, u32)> Memsets for ByStandIn<'_, F> {
    fn begin(&mut self) -> Result<u64, String> {
        let word = |i: usize| self.rig.host.word(OWN + 4 * i as u64);
        (0..WORDS).for_each(|i| word(i).store(BACKGROUND, Ordering::Release));
        Ok(self.rig.host.va() + OWN)
    }

    fn fill(&mut self, value: u32, length: u32) -> Result<(), String> {
        self.fills += 1;
        let at = self.rig.host.va() + OWN;
        self.rig.submit(&words(|w| (self.words)(w, at, 4 * length, value)));
        self.rig.settle();
        Ok(())
    }

    fn read(&mut self) -> Result<Vec<u32>, String> {
        Ok((0..WORDS).map(|i| self.rig.host.word(OWN + 4 * i as u64).load(Ordering::Acquire)).collect())
    }
}

fn memsets(rig: &Rig, form: MacroForm) -> ByStandIn<'_, impl FnMut(&mut Words<'_>, u64, u32, u32)> {
    let words = move |w: &mut Words<'_>, at, bytes, value| {
        cuda_graph::words::fill(w, at, bytes, form.arguments(value, bytes)).unwrap();
    };
    ByStandIn { rig, words, fills: 0 }
}

fn graph(rig: &Rig, form: MacroForm, value: u32) -> Graph {
    rig.logging(Graph::macro_memset(rig.host.va() + DATA, BYTES, form.arguments(value, BYTES)))
}

fn learn(rig: &Rig, channel: &mut gpu::Channel, graph: &Graph, memsets: &mut dyn Memsets) -> Result<Ours, Error> {
    // SAFETY: stand-in kernels in memory of the rig, which outlives the test's launches.
    unsafe { Ours::learn_with(rig.watched, channel, &mut rig.launching(graph), memsets) }
}

#[test]
fn a_memset_by_the_macro_is_launched_in_every_form_of_it() {
    for (of, form) in forms() {
        let rig = Rig::new();
        rig.load_macro(of);
        let mut channel = rig.channel();
        // The second one's value is its count.
        let count = form.arguments(0x5eed, BYTES)[usize::from(!form.value_last)];
        for value in [0x7654_3211, count] {
            let graph = graph(&rig, form, value);
            let mut memsets = memsets(&rig, form);
            let mut ours = learn(&rig, &mut channel, &graph, &mut memsets).unwrap();
            assert_eq!(memsets.fills, 3, "two, and one before them");
            assert!(ours.nodes().iter().any(|node| node.kind.name() == "memset"));
            for _ in 0..3 {
                (0..16).for_each(|i| rig.set_data(i, 0x1111_1111));
                rig.clear_log();
                let ticket = ours.launch(&mut channel).unwrap();
                channel.wait(ticket, TIMEOUT).unwrap();
                let filled = u64::from(BYTES / 4);
                assert!((0..16).all(|i| rig.data(i) == if i < filled { value } else { 0x1111_1111 }), "{form:?}");
                assert_eq!(rig.log(), [0, 1, 2]);
            }
        }
        assert_eq!(rig.faults(), 0);
    }
}

#[test]
fn a_memset_stands_between_the_kernels_around_it() {
    let rig = Rig::new();
    rig.load_macro(StandInMacro::default());
    let mut channel = rig.channel();
    // It fills the log of the kernels: the entries of the first two are gone, the third starts again.
    let arguments = MacroForm::default().arguments(0, 16);
    let graph = rig.logging(Graph::macro_memset(rig.host.va() + LOG, 16, arguments));
    let mut ours = learn(&rig, &mut channel, &graph, &mut memsets(&rig, MacroForm::default())).unwrap();
    for _ in 0..20 {
        ours.launch(&mut channel).unwrap();
    }
    channel.idle(TIMEOUT).unwrap();
    assert_eq!(rig.log(), [2]);
}

/// Why a graph with a memset is refused if the stand-in makes memsets in this way; no word is submitted for it.
fn refused(of: StandInMacro, own: impl FnMut(&mut Words<'_>, u64, u32, u32)) -> String {
    let rig = Rig::new();
    rig.load_macro(of);
    let mut channel = rig.channel();
    let graph = graph(&rig, MacroForm::default(), 0x7654_3211);
    let before = channel.entries_written();
    let error = learn(&rig, &mut channel, &graph, &mut ByStandIn { rig: &rig, words: own, fills: 0 }).unwrap_err();
    assert!(matches!(error, Error::Macro { .. }), "{error}");
    assert_eq!(channel.entries_written(), before);
    let text = error.to_string();
    assert!(text.contains("unknown macro arguments") && text.contains("cudaGraphLaunch"), "{text}");
    text
}

#[test]
fn a_macro_that_does_something_else_is_refused() {
    let plain = MacroForm::default();
    let by_macro = |w: &mut Words<'_>, at, bytes, value| {
        cuda_graph::words::fill(w, at, bytes, plain.arguments(value, bytes)).unwrap();
    };
    let complements = StandInMacro { complements: true, ..StandInMacro::default() };
    assert!(refused(complements, by_macro).contains("left something else in memory"));
    // Arguments that are not the value: the macro gets the complement and writes the requested value.
    let bent = |w: &mut Words<'_>, at, bytes, value: u32| {
        cuda_graph::words::fill(w, at, bytes, plain.arguments(!value, bytes)).unwrap();
    };
    assert!(refused(complements, bent).contains("do not tell"));
    // Another way to fill: the copy engine, or words in the stream.
    let engine = |w: &mut Words<'_>, at, bytes: u32, value| {
        w.fill(cuda_graph::words::COPY, at, value, bytes / 4, 0x182).unwrap()
    };
    assert!(refused(StandInMacro::default(), engine).contains("without it"));
}

#[test]
fn without_a_libcuda_a_memset_by_the_macro_is_refused_by_name() {
    let rig = Rig::new();
    rig.load_macro(StandInMacro::default());
    let mut channel = rig.channel();
    let graph = graph(&rig, MacroForm::default(), 7);
    struct None;
    impl Memsets for None {
        fn begin(&mut self) -> Result<u64, String> {
            Err("no libcuda".into())
        }
        fn fill(&mut self, _: u32, _: u32) -> Result<(), String> {
            unreachable!("nothing began")
        }
        fn read(&mut self) -> Result<Vec<u32>, String> {
            unreachable!("nothing began")
        }
    }
    let error = learn(&rig, &mut channel, &graph, &mut None).unwrap_err();
    assert!(
        error.to_string().contains("unknown macro arguments") && error.to_string().contains("no libcuda"),
        "{error}"
    );
}
