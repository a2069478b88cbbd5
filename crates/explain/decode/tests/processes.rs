//! Recordings of several processes.

#[path = "synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use std::path::PathBuf;
use synthetic::{Tape, two_ranks};
use tape::file::{Ancestor, Process, ProcessEnd, Unwatched};

fn written(mut t: Tape) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    t.write(&path);
    (dir, path)
}

#[test]
fn totals_are_those_of_all_processes_and_each_has_its_own() {
    let (_dir, path) = written(two_ranks());
    let s = decode::summary(&Recording::open(&path).unwrap()).unwrap();
    assert_eq!((s.submissions, s.copies.copy_engine, s.lost, s.channels), (15, 15, 0, 2));
    assert!(s.complete, "{:?}", s.incomplete_because);
    assert_eq!(s.children, "followed");
    let of: Vec<_> = s.processes.iter().map(|p| (p.pid, p.submissions, p.copies, p.lost, p.channels)).collect();
    assert_eq!(of, [(4242, 0, 0, 0, 0), (5000, 5, 5, 0, 1), (5001, 10, 10, 0, 1)]);
    let rank = s.processes[2].rank.as_ref().unwrap();
    assert_eq!((rank.rank, rank.world_size, &rank.launcher[..]), (1, Some(2), "torchrun"));
    assert_eq!(s.processes[2].end.as_ref().unwrap().how, "killed by signal 9");
    assert_eq!(
        s.channel_list.iter().map(|c| (c.process, c.pid, c.slot)).collect::<Vec<_>>(),
        [(1, 5000, 0), (2, 5001, 0)]
    );
}

/// A child may attach first; a shell or a launcher between them is not recorded.
#[test]
fn a_parent_that_began_after_its_child_is_found() {
    let mut t = two_ranks();
    let child = |index: u32, pid: i32, ppid: i32, through: &[i32]| Process {
        index,
        pid,
        ppid,
        through: through.iter().map(|&pid| Ancestor { pid, ..Ancestor::default() }).collect(),
        ..Process::default()
    };
    t.processes.extend([
        child(3, 70, 71, &[]),
        child(4, 80, 81, &[81, 71]),
        child(5, 71, 1, &[]),
        child(6, 90, 91, &[]),
    ]);
    for index in 3..7 {
        t.process_ends.push(ProcessEnd { index, how: "exited 0".into(), ..ProcessEnd::default() });
    }
    let (_dir, path) = written(t);
    let s = decode::summary(&Recording::open(&path).unwrap()).unwrap();
    let parents: Vec<_> = s.processes.iter().map(|p| p.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(0), Some(5), Some(5), None, None]);
}

#[test]
fn one_process_is_read_alone() {
    let (_dir, path) = written(two_ranks());
    let open = |pid| Recording::open_process(&path, pid, &mut |_, _| ());
    let s = decode::summary(&open(5001).unwrap()).unwrap();
    assert_eq!((s.submissions, s.lost, s.channels, s.processes.len()), (10, 0, 1, 1));
    assert_eq!((s.program.pid, &s.program.exe[..]), (5001, "/usr/bin/python3"));
    assert_eq!(s.end.unwrap().how, "killed by signal 9");
    assert!(s.complete, "{:?}", s.incomplete_because);
    let s = decode::summary(&open(4242).unwrap()).unwrap();
    assert_eq!((s.submissions, s.nothing.as_deref()), (0, Some("this process rang no doorbell")));
    assert!(open(77).unwrap_err().to_string().contains("no process 77; it has 4242, 5000, 5001"));
    // A file without an index (its recorder was killed) is read from the start.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(decode::summary(&open(5000).unwrap()).unwrap().submissions, 5);
}

#[test]
fn what_one_process_lacks_or_nobody_watched_is_said() {
    let mut t = two_ranks();
    t.process_ends[1].incomplete_because = vec!["3 events did not fit into the rings".into()];
    t.process_ends[1].gap_events = 3;
    t.end.as_mut().unwrap().gap_events = 3;
    t.end.as_mut().unwrap().incomplete_because = vec!["process 5000: 3 events did not fit into the rings".into()];
    t.unwatched = vec![Unwatched {
        pid: 5005,
        parent: Some(0),
        path: "/bin/busybox".into(),
        why: "static".into(),
        tsc: 2000,
        ..Unwatched::default()
    }];
    let (_dir, path) = written(t);
    let s = decode::summary(&Recording::open(&path).unwrap()).unwrap();
    assert_eq!(s.lost, 3);
    assert_eq!(
        s.incomplete_because,
        ["process 5000: 3 events did not fit into the rings", "1 program not watched: /bin/busybox (static)"]
    );
    assert_eq!(s.processes.iter().map(|p| p.complete).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!((s.unwatched[0].pid, &s.unwatched[0].why[..]), (5005, "static"));
    let of = |pid| decode::summary(&Recording::open_process(&path, pid, &mut |_, _| ()).unwrap()).unwrap();
    assert!(of(5001).complete && !of(5000).complete);
    assert_eq!((of(5000).lost, of(5001).lost), (3, 0));
}

#[test]
fn a_program_that_was_not_watched_is_one_reason() {
    let mut t = two_ranks();
    let said = "not watched: /usr/bin/srun (what it starts is not its child, 4 times)";
    t.end.as_mut().unwrap().incomplete_because = vec![said.into()];
    t.unwatched = vec![Unwatched {
        path: "/usr/bin/srun".into(),
        why: "what it starts is not its child".into(),
        ..Unwatched::default()
    }];
    let (_dir, path) = written(t);
    let s = decode::summary(&Recording::open(&path).unwrap()).unwrap();
    assert_eq!(s.incomplete_because, [said]);
}

#[test]
fn an_image_whose_end_is_missing_is_not_complete() {
    let mut t = two_ranks();
    t.process_ends.pop();
    let (_dir, path) = written(t);
    let s = decode::summary(&Recording::open(&path).unwrap()).unwrap();
    assert_eq!(s.processes.iter().map(|p| p.complete).collect::<Vec<_>>(), [true, true, false]);
    assert!(
        s.incomplete_because.contains(&"the end of process 5001 is not on the tape".into()),
        "{:?}",
        s.incomplete_because
    );
}
