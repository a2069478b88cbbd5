//! Programmatic dependent launch: a graph's overlapping kernels are learnt as kernels that do not overlap.

mod graphs;

use cuda_graph::words::{DECREMENT, Graph, Kernel, SCHEDULE, Step};
use cuda_graph::{Own, Recipe, Refused};
use graphs::learn_graph;
use pushbuf::qmd::{PcasAction, Qmd};

const LATCH: u64 = 0x178;

/// What the driver adds to the QMD of a kernel whose dependents may begin early (shape `programmatic` on an H200).
fn first(latch: u64) -> Vec<(&'static str, u64)> {
    vec![("ARRIVE_AT_LATCH_VALID", 1), ("ARRIVE_AT_LATCH_ID", latch), ("ENABLE_PROGRAM_PRE_EXIT", 1)]
}

/// And to that of one that begins early.
fn second(latch: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("WAIT_ON_LATCH_VALID", 1),
        ("WAIT_ON_LATCH_ID", latch),
        ("LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE", 1),
        ("LATCH_ACQUIRE_INVALIDATE_TEXTURE_DATA_CACHE", 1),
    ]
}

/// A chain of three of which each begins before the one ahead has ended.
fn chain() -> Graph {
    let mut graph = Graph::chain(3);
    graph.kernels[1].fields = first(LATCH);
    graph.kernels[2].fields = [second(LATCH), first(LATCH + 1)].concat();
    graph.kernels[3].fields = second(LATCH + 1);
    graph
}

fn qmds(recipe: &Recipe) -> Vec<Qmd> {
    recipe.nodes.iter().filter_map(|node| Some(node.work.kernel()?.qmd)).collect()
}

#[test]
fn a_programmatic_chain_is_a_plain_one() {
    let (early, plain) = (learn_graph(&chain()).unwrap(), learn_graph(&Graph::chain(3)).unwrap());
    assert_eq!((qmds(&early), &early.edges), (qmds(&plain), &plain.edges));
    // doorbell's form is encoded without them, word for word the same, at the old addresses and at new ones.
    let own = |recipe: &Recipe| Own::of(recipe, 0x2_0100_0140).unwrap();
    assert_eq!(own(&early), own(&plain));
    let moved = |recipe: &Recipe| recipe.relocate(|_, block| block.address + 0x100_0000).unwrap();
    assert_eq!(own(&moved(&early)), own(&moved(&plain)));
    assert_eq!(qmds(&moved(&early)), qmds(&moved(&plain)));
}

/// As PyTorch's GPT-2 has it: a QMD without blocks between the two, which takes one of the two decrements that the second waits for.
fn with_order() -> Graph {
    let kernels = vec![
        Kernel { then: vec![(1, SCHEDULE)], fields: first(LATCH), ..Kernel::default() },
        Kernel::order(&[(2, DECREMENT)]),
        Kernel { waits_for: 2, releases: Some(0), fields: second(LATCH), ..Kernel::default() },
    ];
    let launch = vec![
        Step::Start(0, PcasAction::InvalidatePrefetchCopySchedule),
        Step::Set(0),
        Step::Start(2, PcasAction::DecrementDependence),
    ];
    Graph { kernels, launch, ..Graph::default() }
}

#[test]
fn the_order_may_go_through_a_qmd_without_blocks() {
    let recipe = learn_graph(&with_order()).unwrap();
    let latches =
        qmds(&recipe).iter().filter(|q| q.fields().any(|v| v.value != 0 && v.field.name.contains("LATCH"))).count();
    assert_eq!((recipe.kernels(), latches), (2, 0));
}

#[test]
fn overlap_that_the_qmds_do_not_order_is_refused() {
    // The stream starts the kernel that waits for the latch, independent of the other kernel.
    let mut apart = with_order();
    apart.kernels[1].then.clear();
    apart.kernels[1].releases = Some(0);
    apart.kernels[2].waits_for = 1;
    let refused = learn_graph(&apart).unwrap_err();
    assert_eq!(refused, Refused::Latch { qmd: graphs::qmd_at(2), latch: LATCH });
    // Only a wait, and only an arrival.
    let alone = |field: &dyn Fn(u64) -> Vec<(&'static str, u64)>| {
        let mut graph = Graph::chain(2);
        graph.kernels[1].fields = field(LATCH);
        learn_graph(&graph).unwrap_err()
    };
    assert_eq!(alone(&second), Refused::Latch { qmd: graphs::qmd_at(1), latch: LATCH });
    assert_eq!(alone(&first), Refused::LatchUnheard { qmd: graphs::qmd_at(1), latch: LATCH });
    // An early start without a latch, an invalidation without a wait.
    for field in ["ENABLE_PROGRAM_PRE_EXIT", "LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE", "WAIT_ON_LATCH_ID"] {
        let refused = alone(&|_| vec![(field, 1)]);
        assert_eq!(refused, Refused::QmdField { qmd: graphs::qmd_at(1), field, value: 1 });
    }
}
