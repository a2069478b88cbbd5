//! The recorder with several processes, whose agents are played by a test: the contents of their one tape, however they end.

mod fake;

use fake::{Joined, Region, options, program, read, recorder, wait_for, wait_for_file};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};
use tape::file::{Item, Reader};
use tape::session::unwatched;

/// A program: follows its arguments, then exits with its own status.
#[test]
#[ignore = "a role of the other tests"]
#[allow(clippy::zombie_processes, reason = "some programs leave their children behind")]
fn plays_the_program() {
    let told = fake::told();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let notes = |n: &str, what: &str| {
        let joined = Joined::join();
        let Some(claim) = joined.claim() else {
            // The recording has stopped.
            return assert_eq!(joined.page().stopped.load(Ordering::Relaxed), 1);
        };
        let region = Region::of(joined, claim);
        let mut ring = region.claim().unwrap();
        let n: u32 = n.parse().unwrap();
        (0..n).for_each(|i| {
            while !ring.note(&format!("{what} {i}")) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    };
    let status = match told[..] {
        ["notes", n, what, status] => {
            notes(n, what);
            status.parse().unwrap()
        }
        // Starts this many other programs, each of which writes notes, and waits for them.
        ["family", children, n] => {
            let start = |i: u32| again(&["notes", n, &format!("child {i}"), "0"]).spawn().unwrap();
            let all: Vec<_> = (0..children.parse().unwrap()).map(start).collect();
            notes(n, "parent");
            all.into_iter().for_each(|mut c| assert!(c.wait().unwrap().success()));
            4
        }
        // One process, image after image.
        ["execs", left, n] => {
            let left: u32 = left.parse().unwrap();
            notes(n, &format!("image {left}"));
            if left > 0 {
                panic!("{}", again(&["execs", &(left - 1).to_string(), n]).exec());
            }
            5
        }
        ["forks", n] => {
            notes(n, "parent");
            // SAFETY: the child continues in this thread alone, and ends by _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                notes(n, "child");
                // SAFETY: ends the child.
                unsafe { libc::_exit(7) };
            }
            let mut status = 0;
            // SAFETY: this process's own child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WEXITSTATUS(status)
        }
        // Its child continues after it has ended.
        ["outlived", up, go] => {
            outlived(&["until", up, go]);
            wait_for_file(up);
            0
        }
        ["until", up, go] => {
            let region = Region::attach();
            let mut ring = region.claim().unwrap();
            assert!(ring.note("up"));
            std::fs::write(up, "").unwrap();
            // (Or until the test is over and has removed everything.)
            while Path::new(up).exists() && !Path::new(go).exists() {
                ring.note("on");
                std::thread::sleep(Duration::from_millis(5));
            }
            // (If it is still recorded.)
            if region.control().stopped.load(Ordering::Relaxed) == 0 {
                assert!(ring.note("last"));
            }
            0
        }
        // As above, but the child records no event before its parent has ended.
        ["outlived by a late one", up, go] => {
            outlived(&["late", up, go]);
            wait_for_file(up);
            0
        }
        ["late", up, go] => {
            std::fs::write(up, "").unwrap();
            wait_for_file(go);
            notes("3", "late");
            0
        }
        ["killed", n] => {
            notes(n, "killed");
            fake::kill_me()
        }
        ["children that are killed", n] => {
            for _ in 0..3 {
                assert!(!again(&["killed", n]).status().unwrap().success());
            }
            0
        }
        // Killed between a claim and the steps after it.
        ["claims and dies"] => {
            let joined = Joined::join();
            joined.claim().unwrap();
            fake::kill_me()
        }
        ["abandons"] => {
            let joined = Joined::join();
            let claim = joined.claim().unwrap();
            joined.page().abandon(claim.region, std::process::id() as i32, unwatched::NO_REGION);
            joined.call();
            std::thread::sleep(Duration::from_millis(100));
            0
        }
        ["claims many", n] => {
            for _ in 0..n.parse().unwrap() {
                assert!(!again(&["claims and dies"]).status().unwrap().success());
            }
            notes("1", "after all");
            0
        }
        ["does nothing", children] => {
            for _ in 0..children.parse().unwrap() {
                assert!(again(&["does nothing", "0"]).status().unwrap().success());
            }
            Joined::join();
            0
        }
        ["starts the unwatched"] => {
            let joined = Joined::join();
            let me = std::process::id() as i32;
            for _ in 0..20 {
                joined.page().note_unwatched(unwatched::STATIC, 0, me, 5, b"/bin/busybox");
            }
            joined.page().note_unwatched(unwatched::SET_ID, 77, me, 6, b"/bin/su");
            joined.call();
            0
        }
        ["threads", n, at_a_time, back] => threads(n.parse().unwrap(), at_a_time.parse().unwrap(), back == "back"),
        ["grows", n] => grows(n.parse().unwrap()),
        ["wanders", rounds] => wanders(rounds.parse().unwrap()),
        ["storm of processes", n] => {
            let n: u32 = n.parse().unwrap();
            for first in (0..n).step_by(8) {
                let start = |i: u32| again(&["notes", "20", &format!("process {i}"), "0"]).spawn().unwrap();
                let all: Vec<_> = (first..(first + 8).min(n)).map(start).collect();
                all.into_iter().for_each(|mut c| assert!(c.wait().unwrap().success()));
            }
            0
        }
        ["without memory"] => {
            let region = Region::attach();
            // (The recorder frees the ring of a thread that has ended.)
            let (over, (told, claims)) = (Barrier::new(65), mpsc::channel());
            let mut held = Vec::new();
            std::thread::scope(|s| {
                for _ in 0..64 {
                    let (told, region, over) = (told.clone(), &region, &over);
                    s.spawn(move || {
                        told.send(region.claim()).unwrap();
                        over.wait();
                    });
                    match claims.recv().unwrap() {
                        Some(ring) => held.push(ring),
                        None => {
                            region.control().no_memory.fetch_add(1, Ordering::Relaxed);
                            region.control().ringless.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                over.wait();
            });
            held.len() as i32
        }
        ["sees", limit, nofile] => {
            let text = std::fs::read_to_string("/proc/self/limits").unwrap();
            let of =
                |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap().split_whitespace().nth(3).unwrap();
            assert_eq!((of("Max file size"), of("Max open files")), (limit, nofile));
            notes("1", "it runs");
            0
        }
        _ => panic!("{told:?}"),
    };
    std::process::exit(status);
}

#[test]
#[ignore = "a role of the other tests"]
fn plays_the_recorder() {
    let told = fake::told();
    let mut arguments: Vec<&str> = told[1..].iter().map(String::as_str).collect();
    let wait = arguments[0] == "waits";
    if wait {
        arguments.remove(0);
    }
    let mut o = options(program(&arguments), Path::new(&told[0]));
    o.wait = wait;
    let o = recorder::record(&o).unwrap();
    std::process::exit(o.status.code().unwrap_or(99));
}

/// Starts a program that outlives this process and that it does not wait for.
#[allow(clippy::zombie_processes, reason = "it outlives this process, so nobody here can wait for it")]
fn outlived(what: &[&str]) {
    again(what).spawn().unwrap();
}

/// This program again, with other arguments, in the present environment.
fn again(arguments: &[&str]) -> Command {
    let all = program(arguments);
    let mut c = Command::new(&all[0]);
    c.args(&all[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    c
}

/// Short threads, each with four events. At their end they give the ring back, or not.
fn threads(n: usize, at_a_time: usize, back: bool) -> i32 {
    let region = Region::attach();
    for first in (0..n).step_by(at_a_time) {
        std::thread::scope(|s| {
            for i in first..(first + at_a_time).min(n) {
                let region = &region;
                s.spawn(move || {
                    let mut ring = region.claim_patiently();
                    (0..4).for_each(|k| assert!(ring.note(&format!("{i} {k}"))));
                    if back {
                        region.give_back(ring);
                    }
                });
            }
        });
    }
    (region.table().used().count() / 10) as i32
}

/// Threads that move to a large ring when their small one is half full.
fn grows(n: u32) -> i32 {
    let region = Region::attach();
    let small = region.table().geometry.small as u64;
    std::thread::scope(|s| {
        for t in 0..4 {
            let region = &region;
            s.spawn(move || {
                let mut ring = region.claim().unwrap();
                let text = "x".repeat(500);
                for i in 0..n {
                    if ring.ordinal == 0 && ring.writer.head() > small / 2 {
                        ring = region.grow(ring);
                        assert_eq!(ring.ordinal, 1);
                    }
                    while !ring.note(&format!("{t} {i} {text}")) {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                region.give_back(ring);
            });
        }
    });
    0
}

/// Threads that change rings all the time, so that each ring holds events of many.
fn wanders(rounds: u32) -> i32 {
    let region = Region::attach();
    std::thread::scope(|s| {
        for t in 0..6 {
            let region = &region;
            s.spawn(move || {
                let mut had = None;
                for round in 0..rounds {
                    let mut ring = had.map_or_else(|| region.claim_patiently(), |had| region.claim_again(had));
                    let note = |ring: &mut fake::Claimed, k| {
                        while !ring.note(&format!("{t} {} ", 4 * round + k)) {
                            std::thread::sleep(Duration::from_micros(100));
                        }
                    };
                    note(&mut ring, 0);
                    note(&mut ring, 1);
                    let mut ring = region.grow(ring);
                    note(&mut ring, 2);
                    note(&mut ring, 3);
                    had = Some(region.give_back(ring));
                }
            });
        }
    });
    0
}

/// The numbers of the thread that notes `THREAD NUMBER ...`, in the order of its chunks.
fn numbers(notes: &[String], thread: u32) -> Vec<u32> {
    let of = |n: &String| {
        let mut words = n.split(' ').map(|w| w.parse::<u32>());
        (words.next()?.ok()? == thread).then_some(words.next()?.ok()?)
    };
    notes.iter().filter_map(of).collect()
}

#[test]
fn each_process_of_a_family_is_on_the_tape() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["family", "5", "300"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(4));
    let t = read(&out);
    assert_eq!((t.processes.len(), t.process_ends.len(), o.end.processes), (6, 6, 6));
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
    let first = t.processes.iter().find(|p| p.pid == o.end.pid).unwrap();
    for p in &t.processes {
        let end = t.process_ends.iter().find(|e| e.index == p.index).unwrap();
        // (If a process was reaped before the recorder saw it, its exit status is not known.)
        let status = Some(if p.pid == first.pid { 4 } else { 0 });
        assert!(end.complete && (end.exit_code == status || p.pid != first.pid && end.how == "ended"), "{end:?}");
        assert!(p.exe.contains("following") && p.args.as_ref().is_some_and(|a| a.contains(&"--ignored".into())));
        assert_eq!(p.image, 0);
        // The recording of the parent may have begun after the child's.
        let parent = (p.pid != first.pid && first.index < p.index).then_some(first.index);
        assert_eq!(p.parent, parent, "{p:?}");
        assert!(p.pid == first.pid || p.ppid == first.pid);
        // Each process's notes are under its number.
        let what = |n: &String| n.rsplit_once(' ').unwrap().0.to_owned();
        let mine: Vec<_> = t.notes.iter().zip(&t.writers).filter(|(_, w)| w.0 == p.index).map(|(n, _)| n).collect();
        assert_eq!(mine.len(), 300);
        assert!(mine.iter().all(|n| what(n) == what(mine[0])));
    }
    // A reader of one process sees only that one.
    let mut r = Reader::open(&out).unwrap().only(first.index);
    assert!(r.has_index());
    let mut events = 0;
    while let Some(item) = r.item().unwrap() {
        if let Item::Events { process, bytes, .. } = item {
            assert_eq!(process, first.index);
            events += bytes.len();
        }
    }
    assert!(events > 300 * 24);
    let (images, damage) = Reader::images(&out).unwrap();
    assert!(damage.is_none() && images.iter().all(|i| i.end.is_some()));
}

#[test]
fn each_image_of_a_process_is_on_the_tape() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["execs", "3", "50"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(5));
    let t = read(&out);
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
    assert_eq!(t.processes.iter().map(|p| (p.index, p.image)).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert!(t.processes.iter().all(|p| p.pid == o.end.pid));
    let how: Vec<_> = t.process_ends.iter().map(|e| e.how.as_str()).collect();
    assert_eq!(how, ["exec", "exec", "exec", "exited 5"]);
    for (image, left) in [3, 2, 1, 0].into_iter().enumerate() {
        let wanted: Vec<_> = (0..50).map(|i| format!("image {left} {i}")).collect();
        let mine = t.notes.iter().zip(&t.writers).filter(|(_, w)| w.0 == image as u32).map(|(n, _)| n);
        assert!(mine.eq(&wanted));
    }
}

#[test]
fn a_forked_child_is_an_image_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["forks", "40"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(7));
    let t = read(&out);
    assert_eq!(t.processes.len(), 2);
    let child = &t.processes[1];
    assert_eq!((child.parent, child.ppid), (Some(0), t.processes[0].pid));
    assert_eq!((t.notes.len(), o.end.complete), (80, true), "{:?}", o.end.incomplete_because);
    let end = t.process_ends.iter().find(|e| e.index == 1).unwrap();
    // (Linux 6.15 reports it even for a reaped process.)
    assert!(end.exit_code == Some(7) || end.how == "ended", "{end:?}");
}

#[test]
fn a_process_that_goes_on_is_recorded_to_the_end_of_the_first_and_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let (out, up, go) = (dir.path().join("t"), dir.path().join("up"), dir.path().join("go"));
    let begun = Instant::now();
    let o =
        recorder::record(&options(program(&["outlived", up.to_str().unwrap(), go.to_str().unwrap()]), &out)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "it is not waited for");
    std::fs::write(&go, "").unwrap();
    let t = read(&out);
    let p = &t.processes[0];
    assert_eq!((o.end.complete, o.end.how.as_str()), (false, "exited 0"));
    assert_eq!(o.end.incomplete_because, [format!("process {} was still running", p.pid)]);
    assert_eq!((t.process_ends[0].how.as_str(), t.process_ends[0].complete), ("still running", false));
    assert!(t.notes.len() > 1 && t.notes[0] == "up");
}

#[test]
fn who_asks_for_it_gets_all_processes_to_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    // In parallel, because most of the time is waiting.
    std::thread::scope(|scope| {
        for (role, last) in [("outlived", "last"), ("outlived by a late one", "late 2")] {
            let dir = &dir;
            scope.spawn(move || {
                let [out, up, go] = ["t", "up", "go"].map(|n| dir.path().join(format!("{role} {n}")));
                let mut o = options(program(&[role, up.to_str().unwrap(), go.to_str().unwrap()]), &out);
                o.wait = true;
                let go_on = go.clone();
                let later = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(1500));
                    std::fs::write(go_on, "").unwrap();
                });
                let o = recorder::record(&o).unwrap();
                later.join().unwrap();
                assert!(o.end.complete, "{role}: {:?}", o.end.incomplete_because);
                let t = read(&out);
                assert_eq!(t.notes.last().map(String::as_str), Some(last), "{role}");
                assert!(t.process_ends[0].exit_code == Some(0) || t.process_ends[0].how == "ended");
            });
        }
    });
}

#[test]
fn a_signal_ends_the_wait_for_processes_that_go_on() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let dir = &dir;
            scope.spawn(move || {
                let [out, up, go] = ["t", "up", "go"].map(|n| dir.path().join(format!("{signal} {n}")));
                let mut c = recorder(&out, &["waits", "outlived", up.to_str().unwrap(), go.to_str().unwrap()]);
                // SAFETY: signal may be called between fork and exec.
                unsafe {
                    c.pre_exec(move || {
                        libc::signal(signal, libc::SIG_DFL);
                        Ok(())
                    })
                };
                let mut c = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                wait_for_file(up.to_str().unwrap());
                // Longer than it would wait without the option.
                std::thread::sleep(Duration::from_millis(1500));
                assert!(c.try_wait().unwrap().is_none());
                // SAFETY: this process's own child.
                unsafe { libc::kill(c.id() as i32, signal) };
                assert_eq!(c.wait().unwrap().code(), Some(0));
                let end = read(&out).end.unwrap();
                assert!(!end.complete && end.incomplete_because[0].ends_with("was still running"), "{end:?}");
            });
        }
    });
}

#[test]
fn what_a_killed_child_published_is_on_the_tape() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["children that are killed", "700"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(0));
    let t = read(&out);
    assert_eq!((t.notes.len(), t.processes.len()), (2100, 3));
    assert!(t.process_ends.iter().all(|e| e.signal == Some(9) || e.how == "ended"), "{:?}", t.process_ends);
    // No recorded process is above them, and the one between is named.
    assert!(t.processes.iter().all(|p| p.parent.is_none() && p.through.len() == 1 && p.through[0].pid == o.end.pid));
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
}

#[test]
fn regions_of_processes_that_died_too_early_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["claims many", "30"]), &out)).unwrap();
    assert_eq!((o.status.code(), o.end.processes), (Some(0), 1));
    assert_eq!(read(&out).notes, ["after all 0"]);
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
}

#[test]
fn a_process_that_cannot_use_its_region_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["abandons"]), &out)).unwrap();
    let t = read(&out);
    assert_eq!((t.processes.len(), t.unwatched.len(), o.end.complete), (0, 1, false));
    assert!(t.unwatched[0].path.contains("following"), "{:?}", t.unwatched);
    assert_eq!((t.unwatched[0].why.as_str(), t.unwatched[0].pid), ("its memory could not be attached", o.end.pid));
}

#[test]
fn processes_that_do_nothing_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["does nothing", "5"]), &out)).unwrap();
    let t = read(&out);
    assert_eq!((t.processes.len(), o.end.processes, o.end.agent, o.end.complete), (0, 0, true, true));
    assert!(o.bytes < 8 << 10, "{}", o.bytes);
}

#[test]
fn programs_that_are_not_watched_are_named_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    for no_args in [false, true] {
        let out = dir.path().join(format!("{no_args}"));
        let mut o = options(program(&["starts the unwatched"]), &out);
        o.no_args = no_args;
        let o = recorder::record(&o).unwrap();
        let t = read(&out);
        let busybox: u64 = t.unwatched.iter().filter(|u| u.why == "statically linked").map(|u| u.count).sum();
        let su: Vec<_> = t.unwatched.iter().filter(|u| u.why == "set-user-ID or set-group-ID").collect();
        assert_eq!((busybox, su.len(), su[0].pid, su[0].count), (20, 1, 77, 1));
        assert!(t.unwatched.iter().all(|u| u.path.is_empty() == no_args));
        let named = "not watched: /bin/busybox (statically linked, 20 times), /bin/su (set-user-ID or set-group-ID)";
        assert_eq!(o.end.incomplete_because.len(), 1);
        assert!(no_args || o.end.incomplete_because[0] == named, "{:?}", o.end.incomplete_because);
        assert!(!o.end.complete);
    }
}

/// As many as quickly follow one another. None loses a note.
#[test]
fn many_processes_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["storm of processes", "60"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(0));
    let t = read(&out);
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
    assert_eq!((t.processes.len(), t.process_ends.len(), t.notes.len()), (60, 60, 1200));
}

#[test]
fn short_threads_that_give_their_rings_back_use_few() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["threads", "3000", "8", "back"]), &out)).unwrap();
    // Tens of rings: those of eight threads at a time, and some that were full.
    assert!(o.status.code().is_some_and(|tens| tens <= 4), "{:?}", o.status);
    all_of(&out, 3000);
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
}

#[test]
fn short_threads_that_give_nothing_back_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["threads", "1500", "8", "keep"]), &out)).unwrap();
    all_of(&out, 1500);
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
}

/// Four notes of each thread, in order, under one number.
fn all_of(out: &Path, threads: usize) {
    let t = read(out);
    assert_eq!(t.notes.len(), 4 * threads);
    let mut of = vec![(Vec::new(), Vec::new()); threads];
    for (note, writer) in t.notes.iter().zip(t.writers) {
        let (i, k) = note.split_once(' ').unwrap();
        let (numbers, writers) = &mut of[i.parse::<usize>().unwrap()];
        numbers.push(k.parse::<u32>().unwrap());
        writers.push(writer);
    }
    for (i, (numbers, writers)) in of.iter().enumerate() {
        assert_eq!(numbers[..], [0, 1, 2, 3], "thread {i}");
        assert!(writers.iter().all(|w| *w == writers[0]), "thread {i}: {writers:?}");
    }
}

#[test]
fn a_thread_that_moves_to_a_larger_ring_keeps_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["grows", "6000"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(0));
    let t = read(&out);
    for thread in 0..4 {
        assert!(numbers(&t.notes, thread).into_iter().eq(0..6000), "thread {thread}");
    }
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
}

#[test]
fn threads_that_share_rings_one_after_another_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["wanders", "300"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(0));
    let t = read(&out);
    for thread in 0..6 {
        let all = numbers(&t.notes, thread);
        let wrong = all.iter().zip(0..).position(|(a, b)| *a != b);
        assert_eq!((all.len(), wrong), (1200, None), "thread {thread}");
    }
    assert!(o.end.complete, "{:?}", o.end.incomplete_because);
}

/// Memory for rings is bounded by the requested size, over all processes.
#[test]
fn without_memory_there_is_no_ring_and_the_tape_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut o = options(program(&["without memory"]), &out);
    o.memory = Some(4 << 20);
    let o = recorder::record(&o).unwrap();
    // 4 MiB are 15 rings of 256 KiB and a page. Each ready region has one of them ahead.
    let rings = o.status.code().unwrap();
    assert!((5..=15).contains(&rings), "{rings}");
    let lost = format!("{} events came from threads without a ring (the memory for rings was used up)", 64 - rings);
    assert_eq!(o.end.incomplete_because, [lost]);
    assert_eq!((o.end.complete, o.end.gap_events), (false, 64 - rings as u64));
}

/// A recorder killed at any moment leaves what was written. No reader takes that for a whole recording.
#[test]
fn a_killed_recorder_leaves_a_tape_without_an_end() {
    let dir = tempfile::tempdir().unwrap();
    for after in [30, 80, 200] {
        let out = dir.path().join(after.to_string());
        // A program that does not end before its recorder, however fast the machine.
        let mut c = recorder(&out, &["storm of processes", "1000000"]);
        let mut c = c.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the tape", || out.metadata().is_ok_and(|m| m.len() > 200));
        std::thread::sleep(Duration::from_millis(after));
        c.kill().unwrap();
        c.wait().unwrap();
        // SAFETY: the rest of the group that this process started: the program.
        unsafe { libc::kill(-(c.id() as i32), libc::SIGKILL) };
        let t = read(&out);
        assert!(t.end.is_none());
        // The last chunk may have been cut.
        assert!(t.error.is_none() || t.error.as_ref().is_some_and(|e| e.to_string().contains("the file ends in")));
        let r = Reader::open(&out).unwrap();
        assert!(!r.has_index());
    }
}

/// At a size limit, or on a full disk, at any moment: the tape ends with whole chunks and is marked as not complete.
#[test]
fn a_recording_of_a_family_that_is_cut_off_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for limit in [2_000, 3_000, 5_000, 8_000] {
        let out = dir.path().join(limit.to_string());
        let mut o = options(program(&["family", "6", "400"]), &out);
        o.limit = Some(limit);
        let o = recorder::record(&o).unwrap();
        assert_eq!(o.status.code(), Some(4));
        let t = read(&out);
        assert!(t.error.is_none() && !o.end.complete, "{limit}");
        assert_eq!(o.end.incomplete_because[0], "recording stopped early: the size limit was reached");
        assert_eq!(t.end.as_ref(), Some(&o.end));
        assert!(t.notes.len() < 7 * 400);
        // The tape has the beginning of each process's notes.
        for p in &t.processes {
            let mine = t.notes.iter().zip(&t.writers).filter(|(_, w)| w.0 == p.index).map(|(n, _)| n);
            let numbers = mine.map(|n| n.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap());
            assert!(numbers.zip(0..).all(|(a, b)| a == b), "{limit}");
        }
    }
}

/// The program has its own limits, whatever the recorder does with its limits.
#[test]
fn the_program_has_the_limits_that_it_would_have() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut c = recorder(&out, &["sees", "900000000", "500"]);
    let limits = [(libc::RLIMIT_FSIZE, 900_000_000), (libc::RLIMIT_NOFILE, 500)];
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        c.pre_exec(move || {
            for (what, soft) in limits {
                let mut l = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::getrlimit(what, &mut l);
                l.rlim_cur = soft;
                assert_eq!(libc::setrlimit(what, &l), 0);
            }
            Ok(())
        })
    };
    assert!(c.status().unwrap().success());
    assert_eq!(read(&out).notes, ["it runs 0"]);
}
