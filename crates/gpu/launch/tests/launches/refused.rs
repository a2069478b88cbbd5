//! Graphs that cannot be learnt are refused with advice, before anything is submitted.

use crate::rig::Rig;
use crate::{learn, try_learn};
use cuda_graph::words::{Graph, Step, words};
use gpu::{Channel, ChannelOptions, Engine, Entry, Group};
use launch::Error;

#[test]
fn a_graph_that_was_launched_before() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(3));
    rig.launch(&graph, 0);
    let mut number = 0;
    let mut launch = || {
        number += 1;
        rig.launch(&graph, number);
        Ok::<(), String>(())
    };
    // SAFETY: stand-in kernels in memory of the rig.
    let error = unsafe { launch::Graph::learn(rig.watched, &mut channel, &mut launch) }.unwrap_err();
    assert!(matches!(error, Error::LaunchedBefore { .. }), "{error}");
    assert!(error.to_string().contains("before its first launch"), "{error}");
}

#[test]
fn a_graph_of_which_something_is_not_understood() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut graph = rig.logging(Graph::chain(2));
    graph.launch.push(Step::Raw(words(|w| w.inc(1, 0x790, &[7]).unwrap())));
    let before = channel.entries_written();
    let error = try_learn(&rig, &mut channel, &graph).unwrap_err();
    assert!(
        error.to_string().contains("SET_SHADER_LOCAL_MEMORY_A") && error.to_string().contains("cudaGraphLaunch"),
        "{error}"
    );
    assert_eq!(channel.entries_written(), before);
}

#[test]
fn a_kernel_that_the_gpu_would_not_take() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut graph = rig.logging(Graph::chain(2));
    graph.kernels[2].fields.push(("SHADER_LOCAL_MEMORY_HIGH_SIZE", 0x8));
    // Read but not run: the stand-in's GPU would refuse it, too.
    // SAFETY: stand-in kernels in memory of the rig.
    match unsafe { launch::Graph::of(&rig.recipe(&graph), &mut channel) } {
        Err(Error::Unfit { node: 2, unfit }) => assert_eq!((unfit.error, unfit.value), (2, 8)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_launch_beside_which_another_thread_submits_is_learnt_later_or_refused() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(3));
    // The disturbance is in the second launch, or in every second one.
    for (disturbed, learnt) in [(2..3, true), (2..100, false)] {
        let mut number = 0;
        let mut launch = || {
            number += 1;
            if disturbed.contains(&number) && number % 2 == 0 {
                rig.submit(&words(|w| w.inc(1, 0x1698, &[0x1000]).unwrap()));
            }
            rig.launch(&graph, number - 1);
            Ok::<(), String>(())
        };
        // SAFETY: stand-in kernels in memory of the rig.
        match unsafe { launch::Graph::learn(rig.watched, &mut channel, &mut launch) } {
            Ok(mut ours) if learnt => {
                rig.clear_log();
                let ticket = ours.launch(&mut channel).unwrap();
                channel.wait(ticket, crate::rig::TIMEOUT).unwrap();
                assert_eq!((rig.log(), number), (vec![1, 2, 3], 5));
            }
            Err(error @ Error::Disturbed(_)) if !learnt => {
                assert!(error.to_string().contains("another thread"), "{error}");
                assert_eq!(number, 7);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_launch_that_fails_and_one_that_submits_nothing() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    // SAFETY: no graph is launched.
    let failed = unsafe { launch::Graph::learn(rig.watched, &mut channel, &mut || Err("no such stream")) }.unwrap_err();
    assert!(failed.to_string().contains("no such stream"), "{failed}");
    // SAFETY: as above.
    let nothing = unsafe { launch::Graph::learn(rig.watched, &mut channel, &mut || Ok::<(), String>(())) }.unwrap_err();
    assert!(matches!(nothing, Error::NothingSubmitted), "{nothing}");
}

#[test]
fn channels_that_launches_cannot_use() {
    let rig = Rig::new();
    let graph = rig.logging(Graph::chain(1));
    let space = rig.enter();
    for (engine, group) in [(Engine::Graphics, Group::Own), (Engine::Copy(2), Group::Own)] {
        let mut channel = Channel::new(&space, engine, ChannelOptions { group, ..Default::default() }).unwrap();
        let error = try_learn(&rig, &mut channel, &graph).unwrap_err();
        assert!(
            matches!(error, Error::Channel(_)) && error.to_string().contains("graphics channel in CUDA's group"),
            "{error}"
        );
    }
    // CUDA's group can only be joined under CUDA's client.
    let uuid = rig.watched.gpus()[0];
    let own = rig.watched.address_space(std::sync::Arc::new(rig.driver), uuid, Entry::OwnClient).unwrap();
    assert!(matches!(launch::channel(&own), Err(Error::Gpu(gpu::Error::Group(_)))));
}

#[test]
fn a_cuda_that_was_there_first() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    rig.watched.begin_late();
    let error = try_learn(&rig, &mut channel, &rig.logging(Graph::chain(1))).unwrap_err();
    assert!(error.to_string().contains("open doorbell before the first call of CUDA"), "{error}");
}

#[test]
fn so_many_submissions_that_a_ring_goes_round() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(1));
    let (mut number, mut first) = (0, true);
    let mut launch = || {
        for _ in 0..if std::mem::take(&mut first) { 1 } else { 70 } {
            rig.launch(&graph, number);
            number += 1;
        }
        Ok::<(), String>(())
    };
    // SAFETY: stand-in kernels in memory of the rig.
    let error = unsafe { launch::Graph::learn(rig.watched, &mut channel, &mut launch) }.unwrap_err();
    assert!(error.to_string().contains("has gone round"), "{error}");
    // A refusal leaves everything unchanged.
    learn(&rig, &mut channel, &rig.logging(Graph::chain(2)));
}
