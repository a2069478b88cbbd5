//! Random graphs: launched from doorbell's channel they do the same as when CUDA launches them.

use crate::learn;
use crate::rig::{Rig, TIMEOUT};
use cuda_graph::words::{DECREMENT, Graph, Kernel, SCHEDULE, Step};
use doorbell_softgpu::standin::Operation;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use pushbuf::qmd::PcasAction;
use std::cell::RefCell;

/// The shape of a random graph: the number of kernels in each group, and the earlier kernels of the group that start each kernel.
type Shape = Vec<Vec<(usize, usize)>>;

fn shapes() -> impl Strategy<Value = Shape> {
    prop::collection::vec(prop::collection::vec((0usize..6, 0usize..6), 1..7), 1..4)
}

/// Groups one after another. In each, a kernel follows up to two earlier ones, if these can still start another.
fn graph(shape: &Shape) -> (Graph, Vec<(usize, usize)>) {
    const START: PcasAction = PcasAction::InvalidatePrefetchCopySchedule;
    let (mut kernels, mut launch, mut edges) = (Vec::<Kernel>::new(), Vec::new(), Vec::new());
    for (group, members) in shape.iter().enumerate() {
        let first = kernels.len();
        launch.push(if group == 0 { Step::Wait(shape.len() - 1, -2) } else { Step::Wait(group - 1, 2) });
        launch.push(Step::Set(group));
        for (i, (one, other)) in members.iter().enumerate() {
            let number = first + i;
            let mut before: Vec<usize> =
                [one, other].iter().filter(|n| i > 0 && ***n < 5).map(|n| first + **n % i.max(1)).collect();
            before.sort_unstable();
            before.dedup();
            before.retain(|from| kernels.get(*from).is_some_and(|kernel: &Kernel| kernel.then.len() < 2));
            let action = if before.len() > 1 { DECREMENT } else { SCHEDULE };
            for from in &before {
                kernels[*from].then.push((number, action));
                edges.push((*from, number));
            }
            let waits_for = if before.len() > 1 { before.len() as u64 } else { 0 };
            if before.is_empty() {
                launch.push(Step::Start(number, START));
            }
            kernels.push(Kernel { waits_for, ..Kernel::default() });
        }
        // A kernel that starts no other reports that the group is done.
        kernels[first..]
            .iter_mut()
            .filter(|kernel| kernel.then.is_empty())
            .for_each(|kernel| kernel.releases = Some(group));
        for before in 0..first {
            edges.extend((first..kernels.len()).map(|to| (before, to)));
        }
    }
    (Graph { kernels, launch, ..Graph::default() }, edges)
}

/// Each launch ran every kernel once, each after its predecessors.
#[track_caller]
fn check(log: &[u32], kernels: usize, launches: usize, edges: &[(usize, usize)]) {
    assert_eq!(log.len(), kernels * launches, "{log:?}");
    for launch in log.chunks(kernels) {
        let mut at = vec![None; kernels];
        launch.iter().enumerate().for_each(|(i, number)| at[*number as usize] = Some(i));
        assert!(at.iter().all(Option::is_some), "{log:?}");
        assert!(edges.iter().all(|(from, to)| at[*from] < at[*to]), "{launch:?} {edges:?}");
    }
}

#[test]
fn graphs_run_as_cuda_runs_them() {
    let rig = Rig::new();
    let channel = RefCell::new(rig.channel());
    let mut runner = TestRunner::new(Config::with_cases(16));
    let ran = runner.run(&(shapes(), 0u32..6, 1usize..6), |(shape, turns, launches)| {
        let mut channel = channel.borrow_mut();
        let (graph, edges) = graph(&shape);
        let graph = rig.logging(graph);
        rig.turns(Operation::Log, turns);
        rig.clear_log();
        let mut ours = learn(&rig, &mut channel, &graph);
        check(&rig.log(), graph.kernels.len(), 3, &edges);
        rig.clear_log();
        for _ in 0..launches {
            ours.launch(&mut channel).unwrap();
        }
        channel.idle(TIMEOUT).unwrap();
        check(&rig.log(), graph.kernels.len(), launches, &edges);
        prop_assert_eq!(rig.faults(), 0);
        Ok(())
    });
    ran.unwrap();
}
