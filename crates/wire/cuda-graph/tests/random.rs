//! No words cause a panic, and a damaged graph is either refused or read correctly.

mod graphs;

use cuda_graph::words::Graph;
use cuda_graph::{Channel, Form, Own, Recipe, Segment, learn};
use graphs::{USER, channel, learn_graph};
use proptest::prelude::*;

/// All that can be asked of a recipe.
fn use_all(recipe: &Recipe) {
    let _ = recipe.references().count();
    for form in [Form::Upload, Form::Relaunch] {
        let _ = recipe.words(form);
    }
    let _ = recipe.upload_words();
    if let Ok(own) = Own::of(recipe, 0x8000_0140) {
        // Each count is a word of the launch that holds 0, and the QMDs are the recipe's.
        assert!(own.counts.iter().all(|count| own.launch.get(count.word) == Some(&0) && count.more <= own.adds));
        assert!(own.adds > 0 && own.qmds.is_sorted());
    }
    let _ = recipe.relocate(|id, _| 0x3_0000_0000 + 0x1_0000 * id.0 as u64);
}

fn graphs() -> impl Strategy<Value = Graph> {
    prop_oneof![(1usize..6).prop_map(Graph::chain), Just(Graph::diamond()), Just(Graph::memset(USER))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_words_panic(
        upload in prop::collection::vec(any::<u32>(), 0..200), again in prop::collection::vec(any::<u32>(), 0..100),
        class: u16, engines in prop::collection::vec(any::<u32>(), 0..3), at in 0usize..3,
    ) {
        let channels = [Channel { class: class.into(), engines, group: None }, channel()];
        let again = [Segment { channel: at, words: &again }];
        if let Ok(recipe) = learn(&channels, &[Segment { channel: at, words: &upload }], &[&again]) {
            use_all(&recipe);
        }
    }

    #[test]
    fn a_damaged_graph_does_not_panic(
        graph in graphs(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<bool>()), 1..4),
    ) {
        let (mut upload, mut again) = (graph.upload(), graph.again(1));
        for (at, value, in_upload) in damage {
            let words = if in_upload { &mut upload } else { &mut again };
            let at = at.index(words.len());
            words[at] = value;
        }
        if let Ok(recipe) = graphs::learn_words(&upload, &[&again]) {
            use_all(&recipe);
        }
    }

    #[test]
    fn a_graph_moves_anywhere_and_stays_the_same(
        graph in graphs(), places in prop::collection::vec(0u64..1 << 20, 64),
    ) {
        let recipe = learn_graph(&graph).unwrap();
        let mut taken: Vec<u64> = places;
        taken.sort_unstable();
        taken.dedup();
        prop_assume!(taken.len() >= recipe.blocks.len());
        let moved = recipe.relocate(|id, _| 0x1_0000_0000 + taken[id.0] * 0x1000).unwrap();
        prop_assert_eq!(&moved.edges, &recipe.edges);
        prop_assert_eq!(&moved.groups, &recipe.groups);
        let (upload, again) = (moved.upload_words().unwrap(), moved.relaunch_words().unwrap());
        let again: Vec<Segment<'_>> = again.iter().map(|(c, words)| Segment { channel: *c, words }).collect();
        let upload: Vec<Segment<'_>> = upload.iter().map(|(c, words)| Segment { channel: *c, words }).collect();
        let read = learn(&moved.channels, &upload, &[&again]).unwrap();
        prop_assert_eq!(read.nodes, moved.nodes);
        prop_assert_eq!(read.blocks, moved.blocks);
    }
}
