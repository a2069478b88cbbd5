//! Memsets by the engine's macro: which argument is the value is known, derived, or the memset is refused.

mod graphs;

use cuda_graph::words::{Graph, MacroCount, MacroForm, Step as Do, words};
use cuda_graph::{Argument, CountIn, FillCall, FillMacro, Own, Recipe, Refused, Segment, Work, fill_calls, learn_with};
use graphs::{USER, channel};
use proptest::prelude::*;

const FORMS: [(MacroForm, FillMacro); 6] = {
    use MacroCount::{Bytes, Words, WordsLessOne};
    const fn form(value_last: bool, count: MacroCount) -> (MacroForm, FillMacro) {
        let value = if value_last { Argument::Second } else { Argument::First };
        let counts = match count {
            Words => CountIn::Words,
            WordsLessOne => CountIn::WordsLessOne,
            Bytes => CountIn::Bytes,
        };
        (MacroForm { value_last, count }, FillMacro { value, count: counts })
    }
    [
        form(false, Words),
        form(false, WordsLessOne),
        form(false, Bytes),
        form(true, Words),
        form(true, WordsLessOne),
        form(true, Bytes),
    ]
};

fn learn(fills: Option<FillMacro>, graph: &Graph) -> Result<Recipe, Refused> {
    let (upload, one, two) = (graph.upload(), graph.again(1), graph.again(2));
    let segment = |words| [Segment { channel: 0, words }];
    learn_with(fills, &[channel()], &segment(&upload), &[&segment(&one), &segment(&two)])
}

fn memset(recipe: &Recipe) -> (u64, u32, u32) {
    let found = recipe.nodes.iter().find_map(|n| if let Work::Memset(m) = n.work { Some(m) } else { None }).unwrap();
    (found.address, found.bytes, found.value)
}

/// The call of the macro that these words hold.
fn call(at: u64, bytes: u32, arguments: [u32; 2]) -> FillCall {
    let words = words(|w| cuda_graph::words::fill(w, at, bytes, arguments).unwrap());
    let calls = fill_calls(&[channel()], &[Segment { channel: 0, words: &words }]);
    assert_eq!(calls.len(), 1);
    calls[0]
}

#[test]
fn a_memset_by_the_macro_is_read_in_every_form() {
    for (form, of) in FORMS {
        // The last one's value is its count, whatever that counts.
        let count = form.arguments(0x5eed, 48)[usize::from(!form.value_last)];
        for value in [0x1234_5679, 0, count] {
            let graph = Graph::macro_memset(USER, 48, form.arguments(value, 48));
            let recipe = learn(Some(of), &graph).unwrap();
            assert_eq!(memset(&recipe), (USER, 48, value), "{form:?}");
            assert_eq!(recipe.nodes.iter().filter(|n| n.work.name() == "memset").count(), 1);
            // It is written down again as CUDA wrote it.
            assert_eq!(recipe.relaunch_words().unwrap()[0].1, graph.again(1), "{form:?}");
            let own = Own::of(&recipe, 0x2_0100_0140).unwrap();
            assert!(own.touched.iter().any(|t| (t.address, t.bytes) == (USER, 48)));
            // Twelve words of data, one after another, and no call of the macro.
            assert!(own.launch.windows(12).any(|w| w == [value; 12]));
            assert!(fill_calls(&[channel()], &[Segment { channel: 0, words: &own.launch }]).is_empty());
        }
    }
}

#[test]
fn bytes_that_are_no_whole_words_need_the_words_that_hold_them() {
    for (form, of) in FORMS {
        let graph = Graph::macro_memset(USER + 1, 5, form.arguments(0xa5a5_a5a5, 5));
        match (form.count, learn(Some(of), &graph)) {
            // Rounding is unknown.
            (MacroCount::Bytes, learnt) => assert!(matches!(learnt, Err(Refused::MacroCount { bytes: 5, .. }))),
            (_, learnt) => {
                let recipe = learnt.unwrap();
                assert_eq!(memset(&recipe), (USER + 1, 5, 0xa5a5_a5a5));
                let own = Own::of(&recipe, 0x2_0100_0140).unwrap();
                // (Four bytes and one.)
                assert!(own.launch.windows(2).any(|w| w == [0xa5a5_a5a5, 0xa5]), "{:x?}", own.launch);
            }
        }
    }
}

#[test]
fn a_long_fill_uses_the_copy_engine() {
    let of = FORMS[0].1;
    let graph = |bytes| Graph::macro_memset(USER, bytes, FORMS[0].0.arguments(0x0bad_cafe, bytes));
    let own = Own::of(&learn(Some(of), &graph(0x2_0000)).unwrap(), 0x2_0100_0140).unwrap();
    assert_eq!(own.launch.iter().filter(|word| **word == 0x0bad_cafe).count(), 1);
    let refused = Own::of(&learn(Some(of), &graph(0x2_0001)).unwrap(), 0x2_0100_0140).unwrap_err();
    assert!(matches!(refused, Refused::Form { .. }), "{refused}");
}

#[test]
fn unknown_arguments_and_other_counts_are_refused_by_name() {
    let graph = Graph::macro_memset(USER, 48, [0x1234, 12]);
    let refused = learn(None, &graph).unwrap_err();
    assert_eq!(refused, Refused::MacroArguments { address: USER, bytes: 48, arguments: [0x1234, 12] });
    assert!(refused.to_string().contains("unknown macro arguments"), "{refused}");
    for of in FillMacro::ALL {
        let graph = Graph::macro_memset(USER, 48, [0x1234, 0x4321]);
        assert!(matches!(learn(Some(of), &graph), Err(Refused::MacroCount { bytes: 48, .. })), "{of:?}");
    }
    // Another macro, another number of arguments, a call that no inline write waits for.
    let raw = |raw: Vec<u32>| {
        let mut graph = Graph::chain(1);
        graph.launch.insert(0, Do::Raw(raw));
        learn(Some(FORMS[0].1), &graph).unwrap_err()
    };
    let begins = || {
        words(|w| {
            w.inc(1, 0x180, &[48, 1, (USER >> 32) as u32, USER as u32]).unwrap();
            w.inc(1, 0x1b0, &[0x41]).unwrap();
        })
    };
    let with = |more: Vec<u32>| [begins(), more].concat();
    let other = raw(with(words(|w| w.one_inc(1, 0x3808, &[7, 12]).unwrap())));
    assert_eq!(other, Refused::MmeMacro { index: 1, arguments: vec![7, 12] });
    let longer = raw(with(words(|w| w.one_inc(1, 0x3800, &[7]).unwrap())));
    assert_eq!(longer, Refused::MmeMacro { index: 0, arguments: vec![7] });
    let twice = raw(with(words(|w| {
        w.one_inc(1, 0x3800, &[7, 12]).unwrap();
        w.one_inc(1, 0x3800, &[7, 12]).unwrap();
    })));
    assert_eq!(twice, Refused::MmeMacro { index: 0, arguments: vec![7, 12] });
    // Its address is not set by the launch itself.
    let headless = words(|w| {
        w.inc(1, 0x180, &[48, 1]).unwrap();
        w.inc(1, 0x1b0, &[0x41]).unwrap();
        w.one_inc(1, 0x3800, &[7, 12]).unwrap();
    });
    let (upload, again) = (Graph::chain(1).upload(), [Segment { channel: 0, words: &headless }]);
    let register = learn_with(Some(FORMS[0].1), &[channel()], &[Segment { channel: 0, words: &upload }], &[&again]);
    let register = register.unwrap_err();
    assert!(matches!(register, Refused::Unset { .. }), "{register}");
}

#[test]
fn only_known_fills_reveal_the_form() {
    for (form, of) in FORMS {
        let known = |value, bytes| (call(USER, bytes, form.arguments(value, bytes)), value);
        let two = [known(0xa5c3_0f1b, 28), known(0x1d2c_4b67, 52)];
        assert_eq!(FillMacro::derive(&two), Some(of));
        // One length is not enough, and neither are arguments that do not contain CUDA's value.
        assert_eq!(FillMacro::derive(&two[..1]), None);
        assert_eq!(FillMacro::derive(&[two[0], two[0]]), None);
        let other = (two[1].0, two[1].1 ^ 1);
        assert_eq!(FillMacro::derive(&[two[0], other]), None);
        let bent = FillCall { arguments: two[1].0.arguments.map(|a| a.wrapping_add(1)), ..two[1].0 };
        assert_eq!(FillMacro::derive(&[two[0], (bent, two[1].1)]), None);
        // The same from lengths alone, if the values do not happen to count.
        assert_eq!(FillMacro::of_calls(&two.map(|(call, _)| call)), Some(of));
        assert_eq!(FillMacro::of_calls(&[two[0].0]), None);
    }
    // Both arguments may be the count.
    let both = [call(USER, 28, [7, 7]), call(USER, 52, [13, 13])];
    assert_eq!(FillMacro::of_calls(&both), None);
    // What a recording without data has.
    assert_eq!(FillMacro::of_calls(&[call(USER, 4, [0, 0]), call(USER, 8, [0, 0])]), None);
}

proptest! {
    #[test]
    fn whatever_is_derived_reads_every_call_back(
        which in 0..6usize,
        fills in prop::collection::vec((any::<u32>(), 1..1024u32), 2..6),
    ) {
        let (form, of) = FORMS[which];
        let known: Vec<_> =
            fills.iter().map(|(value, words)| (call(USER, 4 * words, form.arguments(*value, 4 * words)), *value)).collect();
        match FillMacro::derive(&known) {
            Some(found) => prop_assert_eq!(found, of),
            None => {
                // Values that are counts themselves, or one length only.
                let plain = known.iter().filter(|(call, value)| *value > call.bytes);
                let lengths: std::collections::HashSet<_> = plain.map(|(call, _)| call.bytes).collect();
                prop_assert!(lengths.len() < 2);
            }
        }
    }
}
