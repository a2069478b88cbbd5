//! The driver's kernels that start others by a table are replaced by QMDs without blocks.

mod graphs;

use cuda_graph::words::{DECREMENT, Graph, Kernel, Step};
use cuda_graph::{How, Own, Recipe, Refused, Segment, Work, learn};
use graphs::{USER, channel};
use pushbuf::qmd::{DependentAction, PcasAction};
use std::collections::BTreeMap;

const TRACKER: u64 = 0x2_0460_0000;

fn learnt(graph: &Graph) -> Result<Recipe, Refused> {
    let channels =
        graph.launch.iter().filter_map(|step| if let Step::On(channel) = step { Some(channel + 1) } else { None });
    let channels = vec![channel(); channels.max().unwrap_or(1)];
    let launches = [graph.upload_segments(), graph.again_segments(1), graph.again_segments(2)];
    let segments = launches
        .each_ref()
        .map(|launch| launch.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>());
    let [upload, one, two] = &segments;
    learn(&channels, upload, &[one, two])
}

/// For each node, how often the end of another node acts on it, and the actions.
fn acted_on(recipe: &Recipe) -> BTreeMap<usize, (usize, Vec<DependentAction>)> {
    let mut all: BTreeMap<usize, (usize, Vec<DependentAction>)> = BTreeMap::new();
    for edge in &recipe.edges {
        if let How::Dependent { action, .. } = edge.how {
            let (times, actions) = all.entry(edge.to.0).or_default();
            *times += 1;
            actions.push(action);
        }
    }
    all
}

fn kernels(recipe: &Recipe) -> Vec<usize> {
    let is_kernel = |(i, node): (usize, &cuda_graph::Node)| matches!(node.work, Work::Kernel(_)).then_some(i);
    recipe.nodes.iter().enumerate().filter_map(is_kernel).collect()
}

#[test]
fn a_fan_out_is_a_tree_of_qmds_without_blocks() {
    for n in [3, 4, 8, 40, 257] {
        let recipe = learnt(&Graph::fan_out(n, USER)).unwrap();
        assert_eq!(recipe.kernels(), n + 1, "the first kernel and {n} others; the driver's is gone");
        // One QMD replaces the kernel, and one is added for each follower beyond two.
        assert_eq!(recipe.nodes.len(), n + 1 + n - 1);
        let acted = acted_on(&recipe);
        for kernel in kernels(&recipe).into_iter().skip(1) {
            assert_eq!(acted.get(&kernel), Some(&(1, vec![DependentAction::Schedule])), "kernel {kernel} of {n}");
        }
        // No path from the first kernel to another is longer than in a balanced tree.
        let mut depth = BTreeMap::from([(0usize, 0u32)]);
        for _ in 0..12 {
            for edge in &recipe.edges {
                if let Some(from) = depth.get(&edge.from.0).copied() {
                    depth.insert(edge.to.0, from + 1);
                }
            }
        }
        let deepest = kernels(&recipe).iter().filter_map(|kernel| depth.get(kernel)).max().copied();
        assert_eq!(deepest, Some(1 + (n as f64).log2().ceil() as u32), "{n} kernels");
        Own::of(&recipe, TRACKER).unwrap();
    }
}

#[test]
fn a_fan_in_is_counted_by_the_kernel_that_waits() {
    for n in [2, 3, 8, 40] {
        let recipe = learnt(&Graph::fan_in(n, USER)).unwrap();
        assert_eq!(recipe.kernels(), n + 1);
        assert_eq!(recipe.nodes.len(), 2 * n + 1, "each kernel of the driver's is a QMD without blocks now");
        let join =
            recipe.nodes.iter().filter_map(|node| node.work.kernel()).find(|k| k.qmd.dependence_counter() > 0).unwrap();
        assert_eq!(join.qmd.dependence_counter(), n as u32);
        let acted = acted_on(&recipe);
        let all = acted.values().find(|(times, _)| *times == n).unwrap();
        assert!(all.1.iter().all(|action| *action == DependentAction::DecrementDependence));
        Own::of(&recipe, TRACKER).unwrap();
    }
}

#[test]
fn rows_go_before_a_kernel_that_others_go_before_too() {
    // The last of eight also waits for two of the others, and counts them itself.
    let mut graph = Graph::fan_out(8, USER);
    graph.kernels[9].waits_for = 3;
    graph.kernels[2].then = vec![(9, DECREMENT)];
    graph.kernels[3].then = vec![(9, DECREMENT)];
    graph.table.as_mut().unwrap().words[16 * 8 + 7] = 7;
    let recipe = learnt(&graph).unwrap();
    let last = |recipe: &Recipe| {
        let of = recipe.nodes.iter().enumerate().find_map(|(i, node)| {
            node.work.kernel().filter(|kernel| kernel.address == graph.at.qmd(9)).map(|kernel| (i, kernel.qmd))
        });
        let (node, qmd) = of.unwrap();
        (qmd.dependence_counter(), acted_on(recipe).remove(&node).unwrap().1)
    };
    assert_eq!(last(&recipe), (3, vec![DependentAction::DecrementDependence; 3]));
    // The same with two rows as predecessors and one more kernel.
    let mut graph = Graph::fan_in(2, USER);
    graph.kernels[4].waits_for = 2;
    graph.kernels.push(Kernel { then: vec![(4, DECREMENT)], ..Kernel::default() });
    graph.launch.push(Step::Start(5, PcasAction::InvalidatePrefetchCopySchedule));
    graph.table.as_mut().unwrap().words[16 * 2 + 7] = 7;
    let recipe = learnt(&graph).unwrap();
    let counts: Vec<u32> = recipe
        .nodes
        .iter()
        .filter_map(|node| Some(node.work.kernel()?.qmd.dependence_counter()))
        .filter(|n| *n > 0)
        .collect();
    assert_eq!(counts, [3]);
}

#[test]
fn the_replacement_qmd_keeps_the_releases_and_runs_no_blocks() {
    let graph = Graph::fan_in(3, USER);
    let recipe = learnt(&graph).unwrap();
    let orders =
        recipe.nodes.iter().filter_map(|node| if let Work::Order(kernel) = &node.work { Some(kernel) } else { None });
    let (mut released, mut all) = (Vec::new(), 0);
    for order in orders {
        assert_eq!(order.bank, None);
        assert_eq!((order.qmd.program_address(), order.qmd.grid(), order.qmd.block()), (0, [0; 3], [1; 3]));
        assert_eq!(order.qmd.field("REQUIRE_SCHEDULING_PCAS"), Some(1));
        released.extend(order.qmd.releases().map(|(_, release)| release.address));
        all += 1;
    }
    assert_eq!(all, 3);
    released.sort_unstable();
    assert_eq!(released, [0, 1, 2].map(|group| graph.at.counter(group)));
}

/// A fan-out to eight with one word of its table changed.
fn with_word(word: usize, value: u32) -> Result<Recipe, Refused> {
    let mut graph = Graph::fan_out(8, USER);
    graph.table.as_mut().unwrap().words[word] = value;
    learnt(&graph)
}

#[test]
fn a_table_of_another_form_is_refused() {
    let row = |number: usize, word: usize| 16 * number + word;
    let wrong = [
        (row(0, 0), 1), // a kind that is not known
        (row(0, 1), 7), // fewer than the parameters say
        (row(0, 2), 1), // past the array's end
        (row(3, 3), 2), // a count that began already
        (row(3, 4), 2), // more before it than there are
        (row(3, 5), 0),
        (row(3, 7), 3), // started in another way
        (row(3, 1), 1), // one that others follow, without a kernel of the driver's
        (row(9, 0), 9), // in the array: a row that there is not
        (row(9, 0), 2), // one row twice, another never
    ];
    for (word, value) in wrong {
        let refused = with_word(word, value).unwrap_err();
        assert!(matches!(refused, Refused::ByDriver { bytes: 608, .. }), "word {word} as {value}: {refused}");
    }
    // It is decremented, but its counter is 0.
    assert!(matches!(with_word(row(3, 7), 7).unwrap_err(), Refused::Dependence { counter: 0, given: 1, .. }));
    // What is left over may be anything.
    for word in 8..16 {
        with_word(row(3, word), 0xdead_beef).unwrap();
    }
    // A QMD address that no step writes.
    assert!(matches!(with_word(row(3, 6), 7).unwrap_err(), Refused::QmdNotWritten { qmd: 0x700 }));
}

#[test]
fn a_kernel_of_the_drivers_that_is_not_as_seen_is_refused() {
    let parameters = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut graph = Graph::fan_out(8, USER);
        change(&mut graph.kernels[1].parameters);
        learnt(&graph).unwrap_err()
    };
    let refused = [
        parameters(&|bytes| bytes[0] = 1),
        parameters(&|bytes| bytes[4] = 7),
        parameters(&|bytes| bytes.truncate(24)),
        parameters(&|bytes| bytes.extend([0; 8])),
        parameters(&|bytes| bytes[16] += 4),
        parameters(&|bytes| bytes.swap(8, 16)),
    ];
    for refused in refused {
        assert!(matches!(refused, Refused::ByDriver { .. } | Refused::UnknownWrite { .. }), "{refused}");
    }
    // It also starts one QMD itself.
    let mut graph = Graph::fan_out(8, USER);
    graph.kernels[1].then = vec![(2, cuda_graph::words::SCHEDULE)];
    assert!(matches!(learnt(&graph).unwrap_err(), Refused::ByDriver { .. }));
    // The QMD with several predecessors already counts others.
    let mut graph = Graph::fan_in(2, USER);
    graph.kernels[4].waits_for = 1;
    assert!(matches!(learnt(&graph).unwrap_err(), Refused::ByDriver { .. }));
}
