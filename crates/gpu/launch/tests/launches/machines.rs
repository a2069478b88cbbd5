//! Machines on which launches were not tested are refused with the reason, before anything is submitted.

use crate::rig::Rig;
use crate::try_learn;
use cuda_graph::words::Graph;
use doorbell_softgpu::Planted;
use gpu::Error as Gpu;
use launch::Error;
use rm::fact::{Created, Fact, What};
use std::sync::atomic::Ordering;

/// Why no channel opens, and why a channel that was opened before takes no graph.
fn refused(change: impl FnOnce(&Rig)) -> String {
    let rig = Rig::new();
    let mut before = rig.channel();
    let graph = rig.logging(Graph::chain(2));
    change(&rig);
    let entries = rig.driver.counters().entries.load(Ordering::Relaxed);
    let no_graph = try_learn(&rig, &mut before, &graph).unwrap_err();
    let no_channel = launch::channel(&rig.enter()).unwrap_err();
    for error in [&no_graph, &no_channel] {
        assert!(matches!(error, Error::Machine { .. }), "{error}");
        assert!(error.to_string().contains("cudaGraphLaunch"), "{error}");
    }
    assert_eq!(no_graph.to_string(), no_channel.to_string());
    assert_eq!(rig.driver.counters().entries.load(Ordering::Relaxed), entries, "nothing was submitted");
    no_channel.to_string()
}

/// CUDA makes an object of this class.
fn object(class: u32) -> impl Fn(&Rig) {
    move |rig| {
        let mut graph = rig.watched.graph();
        let (client, device, _) = graph.va_spaces()[0];
        let what = What::Other { engine_type: None };
        let made = Created { client, parent: device, handle: 0x5c00_7777, class, what };
        graph.told(3, rm::graph::FileKind::Ctl, Fact::Created(made));
    }
}

#[test]
fn a_part_of_a_gpu() {
    assert!(refused(object(rm::class::AMPERE_SMC_PARTITION_REF)).contains("MIG"));
}

#[test]
fn a_gpu_under_the_multi_process_service() {
    let text = refused(object(rm::class::MPS_COMPUTE));
    assert!(text.contains("Multi-Process Service") && text.contains("nvidia-cuda-mps-control"), "{text}");
}

#[test]
fn confidential_computing() {
    let text = refused(|rig| rig.driver.machine.plant(Some(Planted::Confidential)));
    assert!(text.contains("confidential computing"), "{text}");
}

#[test]
fn other_chips() {
    let chips = [
        (0xc3c0, "VOLTA_COMPUTE_A"),
        (0xc6c0, "AMPERE_COMPUTE_A"),
        (0xc7c0, "AMPERE_COMPUTE_B"),
        (0xc9c0, "ADA_COMPUTE_A"),
        (0xcdc0, "BLACKWELL_COMPUTE_A"),
        (0xcec0, "BLACKWELL_COMPUTE_B"),
        (0xddc0, "the compute class 0xddc0"),
        (0xdddd, "a GPU without a compute class"),
    ];
    for (class, name) in chips {
        let rig = Rig::new();
        rig.driver.machine.plant(Some(Planted::Compute { class }));
        // (A chip does not change: a client that was opened before has the classes that it had.)
        let error = rig.try_enter().unwrap_err();
        assert!(matches!(error, Gpu::Architecture(_)) && error.to_string().contains(name), "{error}");
    }
}
