//! The driver's own graphs, and what is found in a recording of them (580.159.04, CUDA 13.0, H200, `--no-data`).

mod synthetic;

use cuda_graph::words::Graph as ByHand;
use cuda_graph::{Form, How, Memory, Own, Recipe, Refused, Segment, Target, Wait, Work};
use decode::Recording;
use decode::graphs::{Graph, Sent, graphs};
use decode::kernels::kernels;
use decode::walk::{Filter, Pattern};
use pushbuf::encode::Words;
use pushbuf::qmd::{DependentAction, PcasAction};
use std::path::PathBuf;
use tape::call::{NameBody, ObjectBody, kind};
use tape::event::RingBody;
use tape::python::{self, CodeBody, StackBody};

fn recorded() -> Vec<Graph> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/h200-launches.doorbell");
    graphs(&Recording::open(&path).unwrap()).unwrap()
}

/// `sample graphs`: graphs of 1, 10 and 100 nodes, 50 launches of each.
#[test]
fn graphs_of_the_driver_are_found_and_learnt() {
    let all = recorded();
    assert_eq!(
        all.iter().map(|g| (g.uploaded_by, g.launches)).collect::<Vec<_>>(),
        [(Some(553), 50), (Some(605), 50), (Some(657), 50)]
    );
    let one = all[0].recipe.as_ref().unwrap();
    assert_eq!(
        (one.nodes.len(), one.kernels(), one.edges.len(), one.groups.len(), one.counters.len()),
        (1, 1, 0, 1, 1)
    );
    let ten = all[1].recipe.as_ref().unwrap();
    // One QMD more than kernels: it fetches the first one's constants and decrements it.
    assert_eq!(
        (ten.nodes.len(), ten.kernels(), ten.edges.len(), ten.groups.len(), ten.counters.len()),
        (11, 10, 10, 1, 1)
    );
    assert!(matches!(ten.nodes[0].work, Work::Order(_)));
    let actions: Vec<_> = ten.groups[0].starts.iter().map(|s| s.action.unwrap()).collect();
    assert_eq!(actions, [PcasAction::InvalidatePrefetchCopySchedule, PcasAction::DecrementDependence]);
    let hows: Vec<_> = ten.edges.iter().map(|e| e.how).collect();
    let how = |action| How::Dependent { slot: 0, action, prefetch: true };
    assert_eq!(hows[0], how(DependentAction::DecrementDependence));
    assert!(hows[1..].iter().all(|h| *h == how(DependentAction::Schedule)), "{hows:?}");
    assert_eq!(ten.groups[0].acquires, [(0, Wait::LaunchBefore(0))]);
    // Each bank: 0x300 bytes, of which the header and 16 bytes of parameters are written. Their contents are not
    // on the tape.
    for bank in &ten.banks {
        assert_eq!((bank.bytes, bank.parameters(), &bank.contents), (0x300, (0x210, 16), &None));
    }
    // The acquire counts up by four a launch, the stream's tracker by one; the counter's own value was left out.
    let steps: Vec<_> = ten.payloads.iter().map(|(_, p)| p.step).collect();
    assert_eq!(steps, [Some(4), Some(0), Some(1)]);
    // This entry of 26,450 words is split over several events, of which `--no-data` keeps only the first part.
    assert_eq!(all[2].recipe.as_ref().unwrap_err(), &Refused::QmdNotWritten { qmd: 0x2_04c0_c400 });
}

/// doorbell's form: an acquire and the PCAS of CUDA's own launch, whose QMDs passed the checks of the hardware's
/// scheduler. The upload arms QMDs and starts none.
#[test]
fn a_graph_of_the_driver_has_a_form_of_our_own() {
    const TRACKER: u64 = 0x80_0000_0140;
    for (graph, (kernels, armed, words)) in recorded().iter().zip([(1, 0, 9), (10, 10, 12)]) {
        let mut recipe = graph.recipe.as_ref().unwrap().clone();
        assert!(matches!(Own::of(&recipe, TRACKER), Err(Refused::BankLeftOut { .. })));
        // (The recording has no data: as if the banks were zeros, and the counter set as the driver sets it.)
        for placed in &mut recipe.relaunch {
            if let cuda_graph::Step::Write { data, bytes: 4, .. } = &mut placed.step {
                data[0] = 9;
            }
        }
        recipe.banks.iter_mut().for_each(|bank| bank.contents = Some(vec![0; 0x220]));
        let own = Own::of(&recipe, TRACKER).unwrap();
        assert_eq!((own.adds, own.counts.len(), own.launch.len()), (1, 1, words));
        assert_eq!((own.parameters.len(), own.touched.len()), (kernels, 0));
        assert!(own.parameters.iter().all(|p| p.bytes == 16));
        let pcas = |words: &[u32]| words.iter().filter(|w| **w == 0x2001_20ad).count();
        assert_eq!((pcas(&own.upload), pcas(&own.launch)), (armed, if kernels == 1 { 1 } else { 2 }));
        let qmds = recipe.nodes.iter().filter_map(|node| node.work.kernel());
        assert!(
            qmds.clone().all(|kernel| kernel.qmd.check().is_ok()),
            "{:?}",
            qmds.map(|k| k.qmd.check()).collect::<Vec<_>>()
        );
    }
}

fn kinds(recipe: &Recipe) -> Vec<Option<Memory>> {
    let kind = |r: cuda_graph::Reference| match r.target {
        Target::Own(block, _) => recipe.block(block).map(|b| b.memory),
        Target::Foreign(_) => None,
    };
    recipe.references().map(kind).collect()
}

#[test]
fn a_graph_of_the_driver_moves_and_reads_back_the_same() {
    for graph in recorded().iter().take(2) {
        let recipe = graph.recipe.as_ref().unwrap();
        let mut next = 0x3_0000_0000;
        let moved = recipe.relocate(|_, block| {
            next += 0x1000;
            next - block.memory.alignment()
        });
        let moved = moved.unwrap();
        assert_eq!(kinds(&moved), kinds(recipe));
        assert_eq!((&moved.edges, &moved.groups), (&recipe.edges, &recipe.groups));
        assert!(moved.blocks.iter().all(|b| b.address >> 32 == 3));
        let (upload, relaunch) = (moved.words(Form::Upload).unwrap(), moved.words(Form::Relaunch).unwrap());
        // As many words as the driver's own, or fewer.
        let count = |segments: &[(usize, Vec<u32>)]| segments.iter().map(|(_, words)| words.len()).sum::<usize>();
        assert!(count(&relaunch) <= 29 && count(&upload) <= 2760, "{} {}", count(&upload), count(&relaunch));
        let upload: Vec<_> = upload.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect();
        let relaunch: Vec<_> = relaunch.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect();
        let again = cuda_graph::learn(&moved.channels, &upload, &[&relaunch]).unwrap();
        assert_eq!((again.nodes, again.edges, again.blocks), (moved.nodes, moved.edges, moved.blocks));
    }
}

/// The graphs of a tape on which one thread submits each of these lists of segments.
fn of_submissions(submissions: &[&[u32]]) -> Vec<Graph> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graphs.doorbell");
    let mut tape = synthetic::Tape::new();
    tape.context(7);
    tape.channel(7, 0, 0x5c00_0020, 1, 1024);
    submissions.iter().for_each(|words| tape.submit(7, 0, &[*words]));
    tape.write(&path);
    graphs(&Recording::open(&path).unwrap()).unwrap()
}

/// What crate cuda-graph learns from a graph alone.
fn learnt(graph: &ByHand) -> Recipe {
    let channel = cuda_graph::Channel {
        class: cuda_graph::words::CHANNEL_CLASS,
        engines: cuda_graph::words::ENGINES.to_vec(),
        group: None,
    };
    let (upload, again) = (graph.upload(), graph.again(1));
    let segment = |words| [Segment { channel: 0, words }];
    cuda_graph::learn(&[channel], &segment(&upload), &[&segment(&again)]).unwrap()
}

#[test]
fn graphs_made_by_hand_take_the_steps_of_the_drivers() {
    let recorded = recorded();
    for (i, n) in [(0, 1), (1, 10)] {
        let (theirs, ours) = (recorded[i].recipe.as_ref().unwrap(), learnt(&ByHand::chain(n)));
        for form in [Form::Upload, Form::Relaunch] {
            let steps = |r: &Recipe| r.steps(form).iter().map(|p| p.step.name()).collect::<Vec<_>>();
            assert_eq!(steps(&ours), steps(theirs), "{n} kernels");
        }
        let qmds = |r: &Recipe, field: &str| -> Vec<_> {
            r.nodes.iter().filter_map(|node| node.work.kernel()?.qmd.field(field)).collect()
        };
        for field in ["DEPENDENCE_COUNTER", "REQUIRE_SCHEDULING_PCAS", "SELF_COPY_ON_COMPLETION", "RELEASE_ENABLE"] {
            assert_eq!(qmds(&ours, field), qmds(theirs, field), "{field} of {n} kernels");
        }
    }
}

#[test]
fn two_graphs_that_take_turns_are_two() {
    let one = ByHand::chain(3);
    let (upload, again) = (one.upload(), [one.again(1), one.again(2)]);
    let learnt = learnt(&one);
    let other = learnt.relocate(|_, b| b.address + if b.memory == Memory::Tracker { 0 } else { 0x10_0000 }).unwrap();
    let (other_upload, other_again) = (other.upload_words().unwrap(), other.relaunch_words().unwrap());
    let (other_upload, other_again) = (other_upload[0].1.as_slice(), other_again[0].1.as_slice());
    let all = of_submissions(&[
        &upload,
        other_upload,
        &again[0],
        other_again,
        &again[1],
        other_again,
        &again[1],
        other_again,
    ]);
    assert_eq!(all.iter().map(|g| (g.uploaded_by, g.launches)).collect::<Vec<_>>(), [(Some(0), 4), (Some(1), 4)]);
    assert_eq!(all[0].recipe.as_ref().unwrap().nodes, learnt.nodes);
    assert_eq!(all[1].recipe.as_ref().unwrap().nodes, other.nodes);
    assert!(all.iter().all(|g| g.recipe.as_ref().unwrap().has_data()));
}

/// Three kernels in a graph that was launched four times, and one of them launched by itself before.
#[test]
fn kernels_are_counted_by_themselves_and_in_graphs() {
    let one = ByHand::chain(3);
    let (upload, again) = (one.upload(), [one.again(1), one.again(2)]);
    let nodes = learnt(&one).nodes;
    let kernel = |node: &cuda_graph::Node| if let Work::Kernel(k) = &node.work { Some(k.qmd) } else { None };
    let qmd = nodes.iter().find_map(kernel).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernels.doorbell");
    let mut tape = synthetic::Tape::new();
    tape.context(7);
    tape.channel(7, 0, 0x5c00_0020, 1, 1024);
    tape.event(7, kind::NAME, 0, &NameBody { handle: 0xf1, name: 8, pad: 0 }, b"_Z3addPi", &[]);
    // From two lines of Python, twice from the second.
    tape.header.python = true;
    for (number, name) in [(1, b"load"), (2, b"step")] {
        let code = CodeBody { number, file: 8, name: 4, file_unit: 1, name_unit: 1, minor: 11, ..CodeBody::default() };
        tape.event(7, python::kind::CODE, 0, &code, b"train.py", name);
        let frame = u64::from(number).to_le_bytes();
        tape.event(7, python::kind::STACK, 0, &StackBody { number, frames: 1 }, &frame, &[]);
    }
    let by_itself = synthetic::launch_of(synthetic::QMD_AT, &qmd);
    for (call, python) in [(1, 1), (2, 2), (3, 2)] {
        tape.call = RingBody { function: 1, call, stream: 0x51, kernel: 0xf1, python, ..RingBody::default() };
        tape.submit(7, 0, &[&by_itself]);
    }
    for (call, words) in (4..).zip([&upload, &again[0], &again[1], &again[1]]) {
        tape.call = RingBody { function: 260, call, ..RingBody::default() };
        tape.submit(7, 0, &[words]);
    }
    tape.write(&path);
    let r = Recording::open(&path).unwrap();
    let all = kernels(&r, &Filter::default()).unwrap();
    let ran: u64 = all.kernels.iter().map(|k| k.launches + k.in_graphs.unwrap()).sum();
    assert_eq!((ran, all.without_qmd, all.unknown_graph_launches), (3 + 3 * 4, 0, 0), "{all:?}");
    let add = all.kernels.iter().find(|k| k.name.is_some()).unwrap();
    assert_eq!((add.name.as_deref(), add.launches, add.streams), (Some("add(int*)"), 3, 1));
    assert_eq!((add.calls[0].name, add.calls[0].launches), ("cuLaunchKernel", 3));
    let line = add.python.as_ref().unwrap();
    assert_eq!((&*line.at.file, &*line.at.function, line.times, line.others), ("train.py", "step", 2, 1));
    assert_eq!(add.in_graphs.unwrap() % 4, 0);
    // Filtered rows do not cover the whole recording.
    let chosen = kernels(&r, &Filter { call: Some("cuLaunchKernel".into()), ..Filter::default() }).unwrap();
    assert_eq!((chosen.kernels.len(), chosen.kernels[0].in_graphs, chosen.kernels[0].share), (1, None, 1.0));
    let named = |text: &str| Filter { kernel: Some(Pattern::new(text).unwrap()), ..Filter::default() };
    assert_eq!(kernels(&r, &named("^add")).unwrap().kernels, [named_row(&all, 1.0)]);
    assert!(kernels(&r, &named("^mul")).unwrap().kernels.is_empty());
    assert!(Pattern::new("(").unwrap_err().contains("no regular expression"));
}

/// By hand: a graph's launches, in calls of cudaGraphLaunch, after a kernel's name and what the driver's object for it holds.
fn launched(of: &[&[u32]], words: [u64; 2]) -> (schema::kernels::Kernels, Vec<Graph>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("launched.doorbell");
    let mut tape = synthetic::Tape::new();
    tape.context(7);
    tape.channel(7, 0, 0x5c00_0020, 1, 1024);
    tape.event(7, kind::NAME, 0, &NameBody { handle: 0xf1, name: 8, pad: 0 }, b"_Z3addPi", &[]);
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    tape.event(7, kind::OBJECT, 0, &ObjectBody { handle: 0xf1, words: 2, pad: 0 }, &words, &[]);
    for (call, words) in (1..).zip(of) {
        tape.call = RingBody { function: 260, call, ..RingBody::default() };
        tape.submit(7, 0, &[words]);
    }
    tape.write(&path);
    let r = Recording::open(&path).unwrap();
    (kernels(&r, &Filter::default()).unwrap(), graphs(&r).unwrap())
}

/// The code of one of its kernels.
fn code_of(graph: &ByHand) -> u64 {
    let of =
        |node: &cuda_graph::Node| if let Work::Kernel(k) = &node.work { Some(k.qmd.program_address()) } else { None };
    learnt(graph).nodes.iter().find_map(of).unwrap()
}

#[test]
fn kernels_of_a_graph_that_is_refused_are_counted_and_have_the_names_of_their_objects() {
    let one = ByHand::chain(3);
    let more = cuda_graph::words::words(|w| cuda_graph::words::fill(w, 0x7f00_3000_0000, 64, [1, 15]).unwrap());
    let (all, graphs) =
        launched(&[&one.upload(), &one.again(1), &[one.again(2), more].concat()], [0x7f00_0000_1080, code_of(&one)]);
    assert!(graphs[0].recipe.is_err() && graphs[0].launches == 3, "{graphs:?}");
    let count = |of: fn(&schema::kernels::KernelRow) -> u64| all.kernels.iter().map(of).sum::<u64>();
    assert_eq!(
        (count(|k| k.in_graphs.unwrap()), count(|k| k.launches), all.unknown_graph_launches),
        (9, 0, 0),
        "{all:?}"
    );
    assert!(all.kernels.iter().any(|k| k.name.as_deref() == Some("add(int*)") && k.in_graphs.unwrap() % 3 == 0));
}

#[test]
fn kernels_of_a_graph_that_is_launched_once_are_in_a_graph() {
    let one = ByHand::chain(3);
    let (all, graphs) = launched(&[&one.upload()], [code_of(&one), 0]);
    let ran =
        all.kernels.iter().map(|k| (k.in_graphs.unwrap(), k.launches)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert_eq!((ran, graphs.len()), ((3, 0), 0), "{all:?}");
    assert!(all.kernels.iter().any(|k| k.name.as_deref() == Some("add(int*)")));
}

/// What CUDA starts in the call of a launch before the kernel itself: in the same submission, in each launch; and in an earlier one, in the first launch.
#[test]
fn what_prepares_a_kernel_is_not_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prepared.doorbell");
    let mut tape = synthetic::Tape::new();
    tape.context(7);
    tape.channel(7, 0, 0x5c00_0020, 1, 1024);
    for (handle, name) in [(0xf1, b"_Z6parentv"), (0xf2, b"_Z6griddyv")] {
        tape.event(7, kind::NAME, 0, &NameBody { handle, name: name.len() as u32, pad: 0 }, name, &[]);
    }
    let kernel = |n: u64| {
        let mut qmd = synthetic::qmd([n, 1, 1]);
        qmd.set("PROGRAM_ADDRESS_LOWER", 0x1000_0000 + 0x1000 * n).unwrap();
        let bytes: Vec<u8> = qmd.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        let at = synthetic::QMD_AT + 0x1000 * n;
        let mut start = vec![0; 100];
        let mut w = Words::new(&mut start);
        w.launch(1, at).unwrap();
        [&synthetic::inline(at, &bytes), w.as_slice()].concat()
    };
    for call in 1..4 {
        tape.call = RingBody { function: 1, call, stream: 0x51, kernel: 0xf1, ..RingBody::default() };
        tape.submit(7, 0, &[&[kernel(1), kernel(2)].concat()]);
    }
    for call in 4..7 {
        tape.call = RingBody { function: 1, call, stream: 0x51, kernel: 0xf2, ..RingBody::default() };
        if call == 4 {
            tape.submit(7, 0, &[&kernel(3)]);
        }
        tape.submit(7, 0, &[&kernel(4)]);
    }
    // The kernel of CUDA's again, in a graph: it has not got the other's name.
    tape.call = RingBody { function: 260, call: 7, ..RingBody::default() };
    tape.submit(7, 0, &[&kernel(3)]);
    tape.write(&path);
    let r = Recording::open(&path).unwrap();
    let all = kernels(&r, &Filter::default()).unwrap();
    let mut rows: Vec<_> =
        all.kernels.iter().map(|k| (k.shape.grid[0], k.name.as_deref(), k.launches, k.in_graphs, k.shapes)).collect();
    rows.sort_unstable();
    let expected = [
        (1, None, 3, Some(0), 1),
        (2, Some("parent()"), 3, Some(0), 1),
        (3, None, 1, Some(1), 1),
        (4, Some("griddy()"), 3, Some(0), 1),
    ];
    assert_eq!(rows, expected);
    let chosen = Filter { kernel: Some(Pattern::new("griddy").unwrap()), ..Filter::default() };
    assert_eq!(kernels(&r, &chosen).unwrap().kernels.iter().map(|k| k.launches).collect::<Vec<_>>(), [3]);
}

/// An upload by a call of its own is no launch. Kernels may launch the graph, if it was made for that.
#[test]
fn what_the_gpu_launches_is_said() {
    let graph = ByHand::chain(3);
    let upload_call = tape::call::number("cuGraphUpload").into();
    let launches = |flags: u64, launched: bool| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device.doorbell");
        let mut tape = synthetic::Tape::new();
        tape.context(7);
        tape.channel(7, 0, 0x5c00_0020, 1, 1024);
        tape.event(7, kind::NAME, 0, &NameBody { handle: 0xf1, name: 8, pad: 0 }, b"_Z3addPi", &[]);
        let words: Vec<u8> = code_of(&graph).to_le_bytes().into();
        tape.event(7, kind::OBJECT, 0, &ObjectBody { handle: 0xf1, words: 1, pad: 0 }, &words, &[]);
        let made = tape::call::CallBody { object: flags, ..Default::default() };
        tape.event(7, kind::CALL, tape::call::number("cuGraphInstantiateWithFlags"), &made, &[], &[]);
        tape.call = RingBody { function: upload_call, call: 1, ..RingBody::default() };
        tape.submit(7, 0, &[&graph.upload()]);
        for call in (2..6).filter(|_| launched) {
            tape.call = RingBody { function: 260, call, ..RingBody::default() };
            tape.submit(7, 0, &[&graph.again(i64::from(call) - 1)]);
        }
        tape.write(&path);
        let r = Recording::open(&path).unwrap();
        let all = kernels(&r, &Filter::default()).unwrap();
        let runs =
            all.kernels.iter().filter(|k| k.name.is_some()).map(|k| k.launches + k.in_graphs.unwrap()).sum::<u64>();
        (all.device_graphs, runs, graphs(&r).unwrap().first().map_or(0, |g| g.launches))
    };
    let (none, of_one_launch) = ((0, 0, 0), launches(0, true));
    assert_eq!((of_one_launch.0, of_one_launch.2), (0, 4));
    assert!(of_one_launch.1 > 0 && of_one_launch.1 % 4 == 0, "{of_one_launch:?}");
    assert_eq!(launches(0, false), none);
    assert_eq!(launches(4, false), (1, 0, 0));
}

/// The named row, with its share.
fn named_row(all: &schema::kernels::Kernels, share: f64) -> schema::kernels::KernelRow {
    let row = all.kernels.iter().find(|k| k.name.is_some()).unwrap();
    schema::kernels::KernelRow { share, ..row.clone() }
}

#[test]
fn a_launch_of_several_submissions_is_one() {
    let graph = ByHand::memset(0x7f00_2000_0000);
    // Cut where the second group waits for the first: SEM_ADDR_LO to SEM_EXECUTE.
    let cut = |words: &[u32]| {
        let at = words.iter().rposition(|w| *w == 0x2005_0017).unwrap();
        (words[..at].to_vec(), words[at..].to_vec())
    };
    let parts: Vec<_> =
        [graph.upload(), graph.again(1), graph.again(2), graph.again(3)].iter().map(|w| cut(w)).collect();
    let all: Vec<&[u32]> = parts.iter().flat_map(|(one, two)| [one.as_slice(), two.as_slice()]).collect();
    let all = of_submissions(&all);
    assert_eq!(all.iter().map(|g| (g.uploaded_by, g.launches)).collect::<Vec<_>>(), [(Some(0), 4)]);
    let recipe = all[0].recipe.as_ref().unwrap();
    assert_eq!((recipe.groups.len(), recipe.nodes.len()), (2, 4));
    let sent = |launch: Vec<u32>| Some(Sent { submissions: 2, words: launch.len() });
    assert_eq!((all[0].upload, Some(all[0].launch)), (sent(graph.upload()), sent(graph.again(1))));
    assert_eq!(recipe.nodes, learnt(&graph).nodes);
}

/// A graph with a memset by the macro, after stream memsets of these lengths.
fn with_memsets(lengths: &[u32], arguments: impl Fn(u32) -> [u32; 2]) -> Vec<Graph> {
    let graph = ByHand::macro_memset(0x7f00_2000_0000, 64, arguments(64));
    let streams: Vec<Vec<u32>> = lengths
        .iter()
        .map(|bytes| {
            cuda_graph::words::words(|w| {
                cuda_graph::words::fill(w, 0x7f00_3000_0000, *bytes, arguments(*bytes)).unwrap()
            })
        })
        .collect();
    let launches = [graph.upload(), graph.again(1), graph.again(2)];
    of_submissions(&streams.iter().chain(&launches).map(Vec::as_slice).collect::<Vec<_>>())
}

#[test]
fn a_memset_by_a_macro_has_its_value_where_the_tape_tells_the_arguments() {
    for value_first in [true, false] {
        let arguments = |bytes| if value_first { [0xabcd, bytes / 4 - 1] } else { [bytes / 4 - 1, 0xabcd] };
        let graphs = with_memsets(&[28], arguments);
        let row = decode::graphs::row(&graphs[0]);
        let memset = row.recipe.unwrap().nodes.into_iter().find(|node| node.kind == "memset").unwrap();
        assert_eq!((memset.bytes, memset.value), (Some(64), Some(0xabcd)));
    }
    // The graph's own call alone is not enough, nor is a recording without data.
    let alone = with_memsets(&[], |bytes| [0xabcd, bytes / 4]);
    assert!(matches!(alone[0].recipe, Err(Refused::MacroArguments { bytes: 64, .. })), "{:?}", alone[0].recipe);
    let left_out = with_memsets(&[4, 28], |_| [0, 0]);
    assert!(matches!(left_out[0].recipe, Err(Refused::MacroArguments { .. })));
}

#[test]
fn a_graph_whose_upload_came_before_the_recording_says_so() {
    let graph = ByHand::chain(3);
    let (one, two) = (graph.again(1), graph.again(2));
    let all = of_submissions(&[&one, &two]);
    assert_eq!(all.iter().map(|g| (g.uploaded_by, g.launches)).collect::<Vec<_>>(), [(None, 2)]);
    assert!(matches!(all[0].recipe, Err(Refused::QmdNotWritten { .. })));
}

/// The graphs found in launches on two channels, with each piece in a separate submission.
fn on_two_channels(graph: &ByHand) -> Vec<Graph> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graphs.doorbell");
    let mut tape = synthetic::Tape::new();
    tape.context(7);
    // (Both channels are in one group, whose number comes from the last digits of the first one's handle.)
    tape.channel(7, 0, 0x5c00_0020, 1, 1024);
    tape.channel(7, 1, 0x5c00_1020, 1, 1024);
    let launches = [graph.upload_segments()].into_iter().chain((1..4).map(|k| graph.again_segments(k)));
    for (channel, words) in launches.flatten() {
        tape.submit(7, channel as u32, &[&words]);
    }
    tape.write(&path);
    graphs(&Recording::open(&path).unwrap()).unwrap()
}

#[test]
fn a_launch_on_two_channels_is_one() {
    let all = on_two_channels(&ByHand::fork());
    assert_eq!(all.iter().map(|g| (g.uploaded_by, g.launches)).collect::<Vec<_>>(), [(Some(0), 4)], "{all:?}");
    let recipe = all[0].recipe.as_ref().unwrap();
    assert_eq!(recipe.kernels(), 4);
    assert_eq!(recipe.groups.iter().map(|g| g.channel).collect::<Vec<_>>(), [0, 1, 0, 0]);
    assert_eq!(all[0].launch.submissions, 3);
}

/// Pieces of a launch that wait for no counter of the launch: they start the rest of the graph.
#[test]
fn pieces_that_do_not_wait_for_each_other_are_one_launch() {
    let mut graph = ByHand::fork();
    let mut first = true;
    graph.launch.retain(|step| !matches!(step, cuda_graph::words::Step::Wait(..)) || std::mem::take(&mut first));
    let all = on_two_channels(&graph);
    assert_eq!(all.iter().map(|g| (g.uploaded_by, g.launches)).collect::<Vec<_>>(), [(Some(0), 4)], "{all:?}");
    assert_eq!((all[0].upload.unwrap().submissions, all[0].launch.submissions), (3, 3));
    assert_eq!(all[0].recipe.as_ref().unwrap().kernels(), 4);
}

/// As `cuGraphUpload` may do it: the submission that writes the graph starts no QMD.
#[test]
fn an_upload_that_starts_nothing_is_found() {
    let mut graph = ByHand::chain(1);
    let (again, launch) = ((0..4).map(|k| graph.again(k)).collect::<Vec<_>>(), std::mem::take(&mut graph.launch));
    let mut upload = graph.upload();
    // Without the PCAS that arms it: SEND_PCAS_A with its word, and the action.
    let armed = upload.iter().position(|word| *word == 0x2001_20ad).unwrap();
    upload.drain(armed..armed + 3);
    assert!(!launch.is_empty() && upload.len() > 200 && !upload.contains(&0x2001_20ad));
    let all = of_submissions(&[&upload, &again[0], &again[1], &again[2], &again[3]]);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((all[0].uploaded_by, all[0].launches), (Some(0), 4));
    assert_eq!(all[0].recipe.as_ref().unwrap().kernels(), 1);
}
