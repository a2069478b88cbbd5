//! Launches and graphs of each chip on a tape, with words typed by hand from the class references.

mod synthetic;
#[path = "../../../wire/pushbuf/tests/chips/words.rs"]
mod words;

use decode::Recording;
use decode::graphs::graphs;
use decode::kernels::kernels;
use decode::rows;
use decode::walk::{At, Filter, Sink, walk};
use pushbuf::ops::Op;
use schema::Clock;
use schema::operations::{LaunchRow, Shape};
use synthetic::QMD_AT;
use words::{CHIPS, Chip, KERNEL, Kernel, Layout};

const SECOND: Kernel = Kernel { grid: [7, 1, 1], program: KERNEL.program + 0x1000, ..KERNEL };
const FIRST_AT: u64 = QMD_AT;
const SECOND_AT: u64 = QMD_AT + 0x400;

fn shape(k: &Kernel) -> Shape {
    Shape {
        grid: k.grid,
        block: k.block,
        cluster: None,
        registers: k.registers,
        shared_memory: k.shared,
        program: k.program,
        kernel: None,
    }
}

/// The recording of a chip's channel with these submissions.
fn recorded(chip: &Chip, submissions: &[Vec<u32>], read: impl FnOnce(&Recording)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chips.doorbell");
    let mut tape = synthetic::Tape::new();
    tape.classes = chip.classes;
    tape.context(7);
    tape.channel(7, 0, 0x5c00_0020, 1, 1024);
    submissions.iter().for_each(|words| tape.submit(7, 0, &[words]));
    tape.write(&path);
    read(&Recording::open(&path).unwrap());
}

fn each(test: impl Fn(&Chip, Layout, &str)) {
    for chip in &CHIPS {
        for (major, minor, layout) in chip.qmds {
            test(chip, *layout, &format!("{major}.{minor}"));
        }
    }
}

struct Launches(Vec<LaunchRow>, Clock);

impl Sink for Launches {
    fn op(&mut self, at: &At<'_>, op: &Op) {
        self.0.extend(rows::launch(at, op, &self.1));
    }
}

#[test]
fn kernels_launched_one_by_one_have_their_shapes() {
    each(|chip, layout, version| {
        let (first, second) = (layout(&KERNEL), layout(&SECOND));
        let submissions = [
            [words::write(FIRST_AT, &first), words::pcas2(FIRST_AT)].concat(),
            [words::write(FIRST_AT, &second), words::pcas(FIRST_AT)].concat(),
            words::in_methods(SECOND_AT, &first),
        ];
        recorded(chip, &submissions, |r| {
            let mut all = Launches(Vec::new(), rows::clock(r));
            walk(r, &mut all).unwrap();
            let name = format!("{} {version}", chip.name);
            let said: Vec<_> = all.0.iter().map(|l| (l.how, l.qmd, l.shape, l.again)).collect();
            let want = [
                ("pcas", FIRST_AT, Some(shape(&KERNEL)), false),
                ("pcas", FIRST_AT, Some(shape(&SECOND)), false),
                ("inline_qmd", SECOND_AT, Some(shape(&KERNEL)), false),
            ];
            assert_eq!(said, want, "{name}");
            let all = kernels(r, &Filter::default()).unwrap();
            let counts: Vec<_> = all.kernels.iter().map(|k| (k.shape, k.launches, k.in_graphs)).collect();
            assert_eq!(counts, [(shape(&KERNEL), 2, Some(0)), (shape(&SECOND), 1, Some(0))], "{name}");
            assert!(graphs(r).unwrap().is_empty(), "{name}");
        });
    });
}

/// The first kernel starts the second. Both are written once; later launches send the address of the first.
#[test]
fn a_graph_of_two_kernels_is_counted_with_its_shapes() {
    each(|chip, layout, version| {
        let first = Kernel { next: Some(SECOND_AT), ..KERNEL };
        let both = [words::write(SECOND_AT, &layout(&SECOND)), words::write(FIRST_AT, &layout(&first))].concat();
        let upload = [both.clone(), words::pcas2(FIRST_AT)].concat();
        let again = words::pcas2(FIRST_AT);
        let name = format!("{} {version}", chip.name);
        // A separate upload (cuGraphUpload) starts nothing. It is known by the size of the QMDs that CUDA writes, which are no old ones on Hopper.
        let alone = (chip.name != "GH100" || version == "4.0").then_some((both, 3));
        for (upload, launches) in [Some((upload, 4)), alone].into_iter().flatten() {
            recorded(chip, &[upload, again.clone(), again.clone(), again.clone()], |r| {
                let found = graphs(r).unwrap();
                let [graph] = &found[..] else { panic!("{name}: {found:?}") };
                assert_eq!((graph.uploaded_by, graph.launches), (Some(0), launches), "{name}");
                let refused = graph.recipe.as_ref().unwrap_err().to_string();
                let says = format!("has version {version}; only version 4.0 is understood");
                assert_eq!(refused.ends_with(&says), version != "4.0", "{name}: {refused}");
                let ran: Vec<_> = graph.kernels().unwrap().map(|k| (k.shape, k.always)).collect();
                assert_eq!(ran, [(shape(&SECOND), true), (shape(&KERNEL), true)], "{name}");
                let all = kernels(r, &Filter::default()).unwrap();
                let mut counts: Vec<_> =
                    all.kernels.iter().map(|k| (k.shape.grid[0], k.launches, k.in_graphs)).collect();
                counts.sort();
                let [few, many] = [&SECOND, &KERNEL].map(|k| (k.grid[0], 0, Some(launches)));
                assert_eq!((counts, all.unknown_graph_launches), (vec![few, many], 0), "{name}");
            });
        }
    });
}
