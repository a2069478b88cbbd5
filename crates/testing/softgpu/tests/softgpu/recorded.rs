//! The words that CUDA wrote for graphs, recorded on an H200 (580.159.04, CUDA 13.0), have the same effect here as there.
//!
//! The recording has no data: constant banks and the numbers to which counters are set are zeros. So a counter is 0 before a launch's kernels and 1
//! after them, and the values that a launch waits for are set by hand.

use crate::launch_rig::graphics;
use crate::rig::*;
use cuda_graph::{Form, Memory, Recipe, Step};
use doorbell_softgpu::StandIn;
use doorbell_softgpu::standin::Operation;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

fn recorded() -> Vec<Recipe> {
    let fixture =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-launches.doorbell");
    let graphs = decode::graphs::graphs(&decode::Recording::open(&fixture).unwrap()).unwrap();
    graphs.into_iter().filter_map(|graph| graph.recipe.ok()).collect()
}

/// Memory of the rig around all blocks of one kind.
fn around(rig: &Rig, recipe: &Recipe, video: bool, of: impl Fn(Memory) -> bool) -> Mem {
    let blocks: Vec<_> = recipe.blocks.iter().filter(|b| of(b.memory)).collect();
    let first = blocks.iter().map(|b| b.address).min().unwrap() & !0xfff;
    let end = blocks.iter().map(|b| b.address + b.bytes).max().unwrap().next_multiple_of(0x1000);
    rig.memory(first, end - first, video)
}

#[test]
fn cudas_own_graphs_upload_and_launch() {
    let all = recorded();
    assert_eq!(all.iter().map(Recipe::kernels).collect::<Vec<_>>(), [1, 10]);
    for recipe in all {
        let rig = Rig::new();
        let _qmds = around(&rig, &recipe, VIDEO, |m| matches!(m, Memory::Qmd(_)));
        let _banks = around(&rig, &recipe, VIDEO, |m| matches!(m, Memory::Bank(_)));
        let counters = around(&rig, &recipe, HOST, |m| matches!(m, Memory::Counter(_)));
        let _trackers = around(&rig, &recipe, HOST, |m| matches!(m, Memory::Tracker));
        let program =
            recipe.nodes.iter().find_map(|n| n.work.kernel().map(|k| k.qmd.program_address()).filter(|p| *p > 0));
        let program = program.unwrap();
        let code = rig.memory(program & !0xfff, 0x1000, VIDEO);
        code.write((program & 0xfff) as usize, &StandIn { operation: Operation::Nothing, turns: 3 }.code());
        let counter = (recipe.counters[0].address - counters.va) as usize;
        let channel = graphics(&rig);
        let (upload, again) = (words(&recipe, Form::Upload), words(&recipe, Form::Relaunch));
        let waits: Vec<u64> = recipe
            .relaunch
            .iter()
            .filter_map(|p| match p.step {
                Step::Acquire { payload, .. } => Some(payload),
                _ => None,
            })
            .collect();
        assert_eq!(waits.len(), 1);
        for k in 1..=20 {
            let launch = if k == 1 { &upload } else { &again };
            counters.set(counter, waits[0] as u32);
            channel.ok(launch);
            until(|| counters.u32(counter) == 1 || channel.error().is_some());
            assert_eq!(channel.error(), None, "launch {k}");
            assert_eq!(rig.counters().kernels.load(Ordering::Relaxed), k * recipe.kernels() as u64);
        }
        // Launched again while it runs: only the wait keeps them apart.
        let twice = [again.clone(), crate::launch_rig::without_waits(&again)].concat();
        counters.set(counter, waits[0] as u32);
        assert_eq!(channel.run(&twice), Some(13));
    }
}

fn words(recipe: &Recipe, form: Form) -> Vec<u32> {
    recipe.words(form).unwrap().into_iter().flat_map(|(_, words)| words).collect()
}
