//! Names of kernels: by the handle of the call that launches them, and by their code.

mod synthetic;

use decode::Recording;
use decode::walk::{At, Sink, walk};
use pushbuf::ops::Op;
use schema::Clock;
use schema::operations::LaunchRow;
use synthetic::{QMD_AT, Tape, launch};
use tape::call::{NameBody, kind};
use tape::event::RingBody;

/// In one process: kernel `handle` has this name from now on.
fn named(t: &mut Tape, handle: u64, name: &str) {
    t.event(2, kind::NAME, 0, &NameBody { handle, name: name.len() as u32, pad: 0 }, name.as_bytes(), &[]);
}

/// In call `number` of cuLaunchKernel, with that handle; in cudaGraphLaunch if there is none.
fn calls(t: &mut Tape, number: u32, handle: u64) {
    let function = if handle == 0 { 260 } else { 1 };
    t.call = RingBody { function, call: number, stream: 0x51, object: 0xf0, kernel: handle, ..RingBody::default() };
}

struct Launches(Clock, Vec<LaunchRow>);

impl Sink for Launches {
    fn op(&mut self, at: &At<'_>, op: &Op) {
        self.1.extend(decode::rows::launch(at, op, &self.0));
    }
}

fn launches(mut t: Tape) -> Vec<LaunchRow> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tape");
    t.write(&path);
    let r = Recording::open(&path).unwrap();
    let mut found = Launches(decode::rows::clock(&r), Vec::new());
    walk(&r, &mut found).unwrap();
    found.1
}

#[test]
fn a_launch_has_the_name_of_its_handle_and_one_without_handle_that_of_its_code() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(2, 0, 0x5c00_1000, 1, 64);
    // Before its code has a name.
    calls(&mut t, 1, 0);
    t.submit(2, 0, &[&launch(QMD_AT, [1, 1, 1])]);
    named(&mut t, 0xf1, "_Z3addPi");
    calls(&mut t, 2, 0xf1);
    t.submit(2, 0, &[&launch(QMD_AT, [0, 1, 1]), &launch(QMD_AT, [4, 1, 1])]);
    calls(&mut t, 3, 0);
    t.submit(2, 0, &[&launch(QMD_AT, [5, 1, 1])]);
    // Other code at its address, under a handle that was used before.
    named(&mut t, 0xf1, "triton_mul");
    calls(&mut t, 4, 0xf1);
    t.submit(2, 0, &[&launch(QMD_AT, [6, 1, 1])]);
    calls(&mut t, 5, 0);
    t.submit(2, 0, &[&launch(QMD_AT, [7, 1, 1])]);
    // A handle without a known name: the code no longer has its earlier name.
    calls(&mut t, 6, 0xf9);
    t.submit(2, 0, &[&launch(QMD_AT, [8, 1, 1])]);
    t.call = RingBody::default();
    t.submit(2, 0, &[&launch(QMD_AT, [9, 1, 1])]);
    let rows = launches(t);
    let seen: Vec<_> = rows.iter().map(|row| (row.shape.unwrap().grid[0], row.name.as_deref())).collect();
    let mul = Some("triton_mul");
    let expected = [
        (1, None),
        (0, None),
        (4, Some("add(int*)")),
        (5, Some("add(int*)")),
        (6, mul),
        (7, mul),
        (8, None),
        (9, None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(rows[2].symbol.as_deref(), Some("_Z3addPi"));
    let call = rows[3].when.call.as_ref().unwrap();
    assert_eq!((call.name, call.number, call.stream, call.object), ("cudaGraphLaunch", 3, 0x51, 0xf0));
    assert!(rows[7].when.call.is_none());
}
