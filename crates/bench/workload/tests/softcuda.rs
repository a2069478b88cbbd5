//! Launches with the software libcuda: kernel by kernel, as CUDA graphs, and as graphs that doorbell launches.

#[path = "../../../testing/softcuda/tests/program/mod.rs"]
mod program;

use std::time::Duration;
use workload::{Machine, Subject, Waiting, Wanted, What, open};

const TIMEOUT: Duration = Duration::from_secs(30);

fn once(subject: &mut dyn Subject) {
    subject.renew().unwrap();
    subject.fire().unwrap();
    match subject.waiting() {
        Waiting::Called => subject.wait(TIMEOUT).unwrap(),
        Waiting::Polled => while !subject.poll().unwrap() {},
    }
    assert!(subject.poll().unwrap());
    assert!(subject.check().unwrap().is_none());
}

#[test]
fn launches_count_whoever_makes_them() {
    if !program::inside("launches_count_whoever_makes_them") {
        return;
    }
    let machine = Machine::open(workload::Where::Real).unwrap();
    let all = [
        "launch(priority=high)",
        "graph(1)",
        "graph(1,ours)",
        "launch(10)",
        "graph(10)",
        "graph(10,ours)",
        "graph(100,ours)",
    ];
    let mut opened: Vec<_> =
        all.iter().map(|text| open(&machine, &What::Call((*text).into()), &Wanted::of(0)).unwrap()).collect();
    for (text, opened) in all.iter().zip(&mut opened) {
        assert!(opened.verify(3, TIMEOUT).unwrap().is_none(), "{text}");
    }
    // In turns, as experiments take them.
    let mut ready: Vec<_> = opened.iter_mut().map(|opened| opened.prepare(7).unwrap()).collect();
    for _ in 0..8 {
        ready.iter_mut().for_each(|subject| once(&mut **subject));
    }
    assert_eq!(ready[2].waiting(), Waiting::Polled);
    let mut opened = open(&machine, &What::Call("hbm(2,priority=low)".into()), &Wanted::of(10_000)).unwrap();
    let mut streams = opened.prepare(9).unwrap();
    once(&mut *streams);
    assert_eq!((streams.did().times, streams.did().bytes), (2, 2 * 2 * 10_000));
}

#[test]
fn chains_bring_every_byte_back_whoever_makes_them() {
    if !program::inside("chains_bring_every_byte_back_whoever_makes_them") {
        return;
    }
    let machine = Machine::open(workload::Where::Real).unwrap();
    let forms = [
        "chain",
        "chain(polled)",
        "chain(stream)",
        "chain(ours)",
        "chain(ours,beside)",
        "chain(ours,stores)",
        "chain(2,ours,stores)",
        "chain(ours,nodes)",
        "chain(5,priority=high)",
        "chain(5,stream,priority=low)",
        "chain(5,ours)",
        "chain(by-kernels)",
        "chain(2,stream,by-kernels)",
        "chain(2,ours,by-kernels)",
    ];
    for bytes in [8, 4096, 64 << 10] {
        let mut opened: Vec<_> =
            forms.iter().map(|text| open(&machine, &What::Call((*text).into()), &Wanted::of(bytes)).unwrap()).collect();
        for (text, opened) in forms.iter().zip(&mut opened) {
            assert!(opened.verify(3, TIMEOUT).unwrap().is_none(), "{text}, {bytes} bytes");
        }
        let mut ready: Vec<_> = opened.iter_mut().map(|opened| opened.prepare(7).unwrap()).collect();
        for _ in 0..4 {
            ready.iter_mut().for_each(|subject| once(&mut **subject));
        }
        assert_eq!((ready[1].waiting(), ready[3].waiting()), (Waiting::Polled, Waiting::Polled));
    }
    for (text, why) in [
        ("chain(polled,ours)", "are for CUDA"),
        ("chain(beside)", "are for `ours`"),
        ("chain(nodes)", "are for `ours`"),
        ("chain(ours,nodes,stores)", "how its copies are made"),
        ("chain(ours,priority=low)", "no stream priority"),
        ("chain(ours,by-kernels,beside)", "no copy"),
    ] {
        let error = open(&machine, &What::Call(text.into()), &Wanted::of(8)).err().unwrap();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn nodes_leave_what_they_copy_and_set() {
    if !program::inside("nodes_leave_what_they_copy_and_set") {
        return;
    }
    let machine = Machine::open(workload::Where::Real).unwrap();
    for (text, bytes) in [("nodes(1,to-gpu)", 4096), ("nodes(7,from-gpu)", 64), ("nodes(5,memsets)", 4096)] {
        let mut opened = open(&machine, &What::Call(text.into()), &Wanted::of(bytes)).unwrap();
        assert!(opened.verify(3, TIMEOUT).unwrap().is_none(), "{text}");
        let mut ready = opened.prepare(7).unwrap();
        (0..4).for_each(|_| once(&mut *ready));
    }
    let error = open(&machine, &What::Call("nodes(2,memsets)".into()), &Wanted::of(6)).err().unwrap();
    assert!(error.to_string().contains("whole words"), "{error}");
}

#[test]
fn programs_in_c_and_python_copy_and_launch_through_libdoorbell() {
    if !program::inside("programs_in_c_and_python_copy_and_launch_through_libdoorbell") {
        return;
    }
    let machine = Machine::open(workload::Where::Real).unwrap();
    let all = [
        "copy",
        "copy(python=doorbell)",
        "copy(python=cuda)",
        "copy(polled,python=cuda)",
        "graph(2,c)",
        "graph(1,polled)",
        "graph(2,polled,c)",
        "graph(1,polled,ours)",
        "graph(2,python=doorbell)",
        "graph(2,python=cuda)",
        "graph(2,polled,python=doorbell)",
        "graph(2,polled,python=cuda)",
    ];
    let open = |text: &str| open(&machine, &What::Call(text.into()), &Wanted::of(0));
    let mut opened = Vec::new();
    for text in all {
        match open(text) {
            Ok(one) => opened.push((text, one)),
            // A machine without Python's library.
            Err(workload::Error::Unavailable(why)) if text.contains("python") => {
                assert!(why.reason.contains("DOORBELL_PYTHON"), "{text}: {why}");
                test_support::skip_part!("no libpython");
            }
            Err(why) => panic!("{text}: {why}"),
        }
    }
    for (text, opened) in &mut opened {
        assert!(opened.verify(3, TIMEOUT).unwrap().is_none(), "{text}: {}", opened.about());
    }
    // In turns, as experiments take them.
    let mut ready: Vec<_> = opened.iter_mut().map(|(_, opened)| opened.prepare(7).unwrap()).collect();
    for _ in 0..20 {
        ready.iter_mut().for_each(|subject| once(&mut **subject));
    }
    for (text, why) in [
        ("copy(c,python=cuda)", "give one"),
        ("graph(ours,c)", "give one"),
        ("copy(polled)", "always polls"),
        ("graph(c,priority=high)", "no stream priority"),
    ] {
        let error = open(text).err().unwrap();
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
}
