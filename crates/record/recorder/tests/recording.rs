//! The recorder with a program whose agent is played by a test: which events it loses and which it does not.

mod fake;

use fake::{Region, options, program, read, recorder, wait_for, wait_for_file};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The program: follows its arguments, then exits with its own status.
#[test]
#[ignore = "a role of the other tests"]
fn plays_the_program() {
    let told = fake::told();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let region = Region::attach();
    let status = match told[..] {
        ["notes", n, status] => {
            let mut ring = region.claim().unwrap();
            (0..n.parse().unwrap()).for_each(|i: u32| assert!(ring.note(&format!("note {i}"))));
            status.parse().unwrap()
        }
        ["killed", n] => {
            let mut ring = region.claim().unwrap();
            (0..n.parse().unwrap()).for_each(|i: u32| assert!(ring.note(&format!("note {i}"))));
            // Not published, so it does not count.
            assert!(ring.writer.push(tape::event::kind::NOTE, 0, 1, &tape::event::NoteBody::default(), &[], &[]));
            fake::kill_me()
        }
        ["threads", n, at_a_time] => threads(&region, n.parse().unwrap(), at_a_time.parse().unwrap()),
        ["storm", entries, words] => storm(&region, entries.parse().unwrap(), words.parse().unwrap(), false),
        ["storm", entries, words, done] => {
            let status = storm(&region, entries.parse().unwrap(), words.parse().unwrap(), false);
            std::fs::write(done, "").unwrap();
            status
        }
        ["patient storm", entries, words] => storm(&region, entries.parse().unwrap(), words.parse().unwrap(), true),
        ["numbers", entries, words] => {
            let mut ring = region.claim().unwrap();
            (0..entries.parse().unwrap()).for_each(|i| assert!(ring.entry_of(i, words.parse().unwrap(), |_| i as u32)));
            0
        }
        ["stray"] => stray(&region),
        ["wild"] => wild(&region),
        ["until", go, done] => {
            let mut ring = region.claim().unwrap();
            assert!(ring.note("before"));
            wait_for_file(go);
            ring.note("after");
            std::fs::write(done, "").unwrap();
            0
        }
        ["beats", go] => {
            let mut ring = region.claim().unwrap();
            let mut seq = 0;
            // No event was taken for a while: the recorder waits for its disk.
            let mut full = Instant::now();
            while full.elapsed() < Duration::from_millis(300) {
                if ring.entry(seq, 4000) {
                    (seq, full) = (seq + 1, Instant::now());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let beat = || region.joined.page().beat.load(Ordering::Relaxed);
            let (before, begun) = (beat(), Instant::now());
            while beat() < before + 5 && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let beats = beat() - before;
            std::fs::write(go, "").unwrap();
            // The number of entries, or 0 if the heartbeat stopped.
            if beats >= 5 { (seq % 100) as i32 + 1 } else { 0 }
        }
        ["many channels", go] => {
            region.slots().iter().for_each(|s| s.state.store(1, Ordering::Release));
            let mut ring = region.claim().unwrap();
            for i in 0..20 {
                assert!(ring.entry(i, 4000));
                std::thread::sleep(Duration::from_millis(5));
            }
            wait_for_file(go);
            0
        }
        ["ignored", mask, status] => {
            let text = std::fs::read_to_string("/proc/self/status").unwrap();
            let ignored = text.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap().trim();
            let mask: u64 = mask.parse().unwrap();
            // HUP is bit 0, CHLD bit 16.
            assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0x10001, mask);
            status.parse().unwrap()
        }
        ["storm at", go, entries, words] => {
            wait_for_file(go);
            storm(&region, entries.parse().unwrap(), words.parse().unwrap(), true)
        }
        _ => panic!("{told:?}"),
    };
    std::process::exit(status);
}

#[test]
#[ignore = "a role of the other tests"]
fn plays_the_recorder() {
    let told = fake::told();
    let command = match told[1..].iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sh", text] => ["/bin/sh", "-c", text].iter().map(Into::into).collect(),
        ref arguments => program(arguments),
    };
    let mut o = options(command, Path::new(&told[0]));
    o.force = true;
    let o = recorder::record(&o).unwrap();
    std::process::exit(o.status.code().unwrap_or(99));
}

/// Short threads, each with one event.
fn threads(region: &Region, n: usize, at_a_time: usize) -> i32 {
    for first in (0..n).step_by(at_a_time) {
        std::thread::scope(|s| {
            for i in first..(first + at_a_time).min(n) {
                s.spawn(move || assert!(region.claim_patiently().note(&format!("thread {i}"))));
            }
        });
    }
    0
}

/// Entries as fast as possible. Those that do not fit are counted as the agent counts them, or waited for.
fn storm(region: &Region, entries: u64, words: usize, patient: bool) -> i32 {
    let mut ring = region.claim().unwrap();
    let mut lost = false;
    for i in 0..entries {
        while !ring.entry(i, words) {
            if !patient {
                ring.writer.count_gap(1, 1, 4 * words as u64, 1);
                lost = true;
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    // 3: events were lost.
    if lost { 3 } else { 0 }
}

/// Overwrites its own ring (data, tail, head), then continues.
fn stray(region: &Region) -> i32 {
    let c = region.control();
    let mut ring = region.claim().unwrap();
    let n = c.small_bytes as usize;
    let taken = |head: &tape::region::RingHead| head.tail.load(Ordering::Acquire) == head.head.load(Ordering::Acquire);
    assert!(ring.note("first"));
    wait_for("the first note to be taken", || taken(ring.head));
    // Data: an event of a length that no event has.
    let at = ring.head.head.load(Ordering::Relaxed) as usize % n;
    assert!(ring.writer.push(tape::event::kind::NOTE, 0, 1, &tape::event::NoteBody::default(), &[], &[]));
    // SAFETY: inside the ring.
    unsafe { std::ptr::write_bytes(ring.data.add(at), 0xff, 24) };
    ring.writer.publish();
    wait_for("the garbage to be taken", || taken(ring.head));
    assert!(ring.note("second"));
    wait_for("the second note to be taken", || taken(ring.head));
    for tail in [u64::MAX, 0, 12345] {
        ring.head.tail.store(tail, Ordering::Relaxed);
        wait_for("the tail to be put right", || taken(ring.head));
    }
    assert!(ring.note("third"));
    wait_for("the third note to be taken", || taken(ring.head));
    ring.head.head.store(u64::MAX - 4, Ordering::Release);
    std::thread::sleep(Duration::from_millis(100));
    assert!(ring.note("fourth"), "publishing puts the head right");
    // It leaves the head wrong.
    wait_for("the fourth note to be taken", || taken(ring.head));
    ring.head.head.store(1 << 60, Ordering::Release);
    5
}

/// Keeps writing garbage over everything that it shares.
fn wild(region: &Region) -> i32 {
    let mut ring = region.claim().unwrap();
    let other = std::thread::scope(|s| s.spawn(|| region.claim().unwrap()).join().unwrap());
    let n = region.control().small_bytes as usize;
    let mut x = 0x1234_5678_9abc_def1u64;
    for i in 0..2000u64 {
        assert!(ring.note(&format!("note {i}")));
        for _ in 0..64 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            // SAFETY: inside the ring's data, which only this thread writes.
            unsafe { other.data.add((x % (n as u64 - 8)) as usize).cast::<u64>().write_unaligned(x) };
        }
        other.head.head.store(if i % 3 == 0 { x } else { i * 4096 + x % 64 }, Ordering::Release);
        other.head.gap_events.store(x, Ordering::Relaxed);
        if i % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let c = region.control();
    c.trapped.store(u64::MAX, Ordering::Relaxed);
    c.rings.store(u32::MAX, Ordering::Relaxed);
    c.large_rings.store(u32::MAX, Ordering::Relaxed);
    c.ringless.store(u64::MAX, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(100));
    6
}

#[test]
fn a_program_runs_and_its_events_are_on_the_tape() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["notes", "500", "7"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(7));
    assert_eq!((o.end.how.as_str(), o.end.exit_code, o.end.agent), ("exited 7", Some(7), true));
    let t = read(&out);
    assert_eq!(t.notes, (0..500).map(|i| format!("note {i}")).collect::<Vec<_>>());
    assert!(o.end.complete && o.end.incomplete_because.is_empty());
    assert_eq!(t.end, Some(o.end));
    assert_eq!(out.metadata().unwrap().len(), o.bytes);
}

#[test]
fn what_was_published_before_a_kill_is_on_the_tape() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["killed", "2000"]), &out)).unwrap();
    assert_eq!(o.status.signal(), Some(libc::SIGKILL));
    let t = read(&out);
    assert_eq!(t.notes.len(), 2000);
    assert_eq!(t.end.unwrap().how, "killed by signal 9");
}

#[test]
fn a_thousand_short_threads_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut o = options(program(&["threads", "1200", "8"]), &out);
    o.ring_bytes = 256 << 10;
    let o = recorder::record(&o).unwrap();
    assert_eq!(o.status.code(), Some(0));
    let t = read(&out);
    let mut notes: Vec<u32> = t.notes.iter().map(|n| n["thread ".len()..].parse().unwrap()).collect();
    notes.sort_unstable();
    assert_eq!(notes, (0..1200).collect::<Vec<_>>());
}

#[test]
fn a_ring_that_fills_is_a_counted_gap_and_nothing_is_torn() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut o = options(program(&["storm", "20000", "4000"]), &out);
    o.ring_bytes = 256 << 10;
    let o = recorder::record(&o).unwrap();
    assert_eq!(o.status.code(), Some(3), "320 MB through 256 KiB: some did not fit");
    let t = read(&out);
    assert!(t.error.is_none() && t.stray == 0);
    assert!(
        t.entries
            .iter()
            .all(|(seq, words, _)| words.len() == 4000
                && words.iter().enumerate().all(|(i, w)| *w == fake::word(*seq, i)))
    );
    assert!(t.entries.windows(2).all(|w| w[0].0 < w[1].0));
    assert_eq!(t.entries.len() as u64 + o.end.gap_entries, 20000);
    let because = format!("{} events did not fit into the rings", o.end.gap_events);
    assert_eq!((o.end.complete, &o.end.incomplete_because[..]), (false, &[because][..]));
    assert_eq!(o.end.gap_bytes, o.end.gap_entries * 16000);
    // The one thread reports its losses, or the recorder does for it.
    assert_eq!(t.gaps.last().map(|g| (g.events, g.entries)), Some((o.end.gap_events, o.end.gap_entries)));
}

#[test]
fn a_writer_that_waits_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut o = options(program(&["patient storm", "5000", "4000"]), &out);
    (o.ring_bytes, o.wait_on_full) = (256 << 10, true);
    let o = recorder::record(&o).unwrap();
    assert_eq!((o.status.code(), o.end.gap_entries), (Some(0), 0));
    let t = read(&out);
    assert!(t.entries.iter().map(|e| e.0).eq(0..5000));
}

#[test]
fn a_program_that_writes_over_its_ring_is_recorded_further() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let o = recorder::record(&options(program(&["stray"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(5));
    let t = read(&out);
    assert_eq!(t.notes, ["first", "second", "third", "fourth"]);
    assert!(t.remarks.iter().any(|r| r.contains("are no events, skipped")), "{:?}", t.remarks);
    assert!(t.remarks.iter().any(|r| r.contains("its head was overwritten")), "{:?}", t.remarks);
}

#[test]
fn garbage_everywhere_spoils_only_its_own_ring() {
    let dir = tempfile::tempdir().unwrap();
    for no_data in [false, true] {
        let out = dir.path().join(format!("{no_data}"));
        let mut o = options(program(&["wild"]), &out);
        (o.no_data, o.ring_bytes) = (no_data, 256 << 10);
        let o = recorder::record(&o).unwrap();
        assert_eq!(o.status.code(), Some(6));
        let t = read(&out);
        assert!(t.error.is_none(), "{:?}", t.error);
        let ours: Vec<_> = t.notes.iter().filter(|n| n.starts_with("note ")).collect();
        assert_eq!(ours.len(), 2000);
        assert!(t.remarks.len() <= 64);
    }
}

#[test]
fn without_data_words_of_no_known_method_are_zero() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut o = options(program(&["numbers", "10", "100"]), &out);
    o.no_data = true;
    recorder::record(&o).unwrap();
    let t = read(&out);
    assert_eq!(t.entries.len(), 10);
    assert!(t.entries.iter().all(|(_, words, _)| words.iter().all(|w| *w == 0)));
    // 1, 2, 3 are no headers, so they are dropped and the entry is marked. (Entry 0 is all NOPs.)
    assert!(t.entries[1..].iter().all(|e| e.2 != 0));
}

#[test]
fn at_its_limit_the_recording_stops_and_not_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut o = options(program(&["patient storm", "2000", "4000"]), &out);
    o.limit = Some(3 << 20);
    let o = recorder::record(&o).unwrap();
    assert_eq!(o.status.code(), Some(0));
    assert_eq!(o.end.how, "recording stopped early: the size limit was reached");
    let t = read(&out);
    assert!(t.entries.iter().map(|e| e.0).eq(0..t.entries.len() as u64));
    assert_eq!(t.entries.len() as u64 + o.end.gap_entries, 2000, "what came later is counted");
    // Events that a stopped recording did not see must not be counted as zero.
    let because = ["recording stopped early: the size limit was reached", "the recording stopped before it ended"];
    assert_eq!((o.end.complete, &o.end.incomplete_because[..]), (false, &because.map(String::from)[..]));
    assert!(t.process_ends.len() == 1 && !t.process_ends[0].complete);
    assert!((2 << 20..(3 << 20) + 8192).contains(&o.bytes), "{}", o.bytes);
}

/// A tape on a pipe without a reader acts as a disk that stalls.
#[test]
fn a_disk_that_stalls_does_not_stop_the_heartbeat() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, go) = (dir.path().join("t"), dir.path().join("go"));
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let (from, wait, copy) = (fifo.clone(), go.clone(), dir.path().join("copy"));
    let reader = std::thread::spawn(move || {
        let mut f = std::fs::File::open(from).unwrap();
        wait_for_file(wait.to_str().unwrap());
        std::io::copy(&mut f, &mut std::fs::File::create(copy).unwrap()).unwrap();
    });
    let mut o = options(program(&["beats", go.to_str().unwrap()]), &fifo);
    o.ring_bytes = 256 << 10;
    let o = recorder::record(&o).unwrap();
    reader.join().unwrap();
    let t = read(&dir.path().join("copy"));
    assert_eq!(o.status.code(), Some((t.entries.len() % 100) as i32 + 1));
    assert_eq!(t.end, Some(o.end));
}

/// The same disk: the program continues and ends while no byte is written, and events without room are counted.
#[test]
fn a_disk_that_stalls_does_not_hold_the_program_up() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, done) = (dir.path().join("t"), dir.path().join("done"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (from, wait, copy) = (fifo.clone(), done.clone(), dir.path().join("copy"));
    let reader = std::thread::spawn(move || {
        let mut f = std::fs::File::open(from).unwrap();
        // (No byte is read before the program has finished.)
        wait_for_file(wait.to_str().unwrap());
        std::io::copy(&mut f, &mut std::fs::File::create(copy).unwrap()).unwrap();
    });
    // 320 MB; some 60 MB find room on the way to the disk.
    let mut o = options(program(&["storm", "20000", "4000", done.to_str().unwrap()]), &fifo);
    o.ring_bytes = 256 << 10;
    let o = recorder::record(&o).unwrap();
    reader.join().unwrap();
    let t = read(&dir.path().join("copy"));
    assert!(t.error.is_none() && t.stray == 0 && o.end.gap_entries > 5000, "{}", o.end.gap_entries);
    assert_eq!(t.entries.len() as u64 + o.end.gap_entries, 20000);
    let because = format!("{} events did not fit into the rings", o.end.gap_events);
    assert_eq!((o.status.code(), &o.end.incomplete_because[..]), (Some(3), &[because][..]));
    assert_eq!(t.end, Some(o.end));
}

/// A file system of one MiB, unmounted at the end; `None`, with the reason printed, if this process may not mount.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: &Path) -> Option<Small> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(at).stderr(Stdio::null());
        let mounted = mount.status().is_ok_and(|s| s.success());
        if !mounted {
            test_support::skip_part!("a tmpfs of one MiB could not be mounted (needs root)");
        }
        mounted.then(|| Small(at.into()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_the_recording_ends_and_the_program_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(dir.path()) else { return };
    let out = small.0.join("t");
    let o = recorder::record(&options(program(&["patient storm", "3000", "4000"]), &out)).unwrap();
    assert_eq!(o.status.code(), Some(0));
    assert_eq!((o.end.how.as_str(), o.end.complete), ("recording stopped early: the disk is full", false));
    let t = read(&out);
    assert!(t.error.is_none());
    assert!(!t.entries.is_empty() && t.entries.iter().map(|e| e.0).eq(0..t.entries.len() as u64));
    assert_eq!(t.end, Some(o.end));
}

/// No byte is free when the end is to be written: the last chunks make room for it.
#[test]
fn a_disk_without_room_for_the_end_still_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(dir.path()) else { return };
    let (out, go) = (small.0.join("t"), dir.path().with_extension("go"));
    // A line for each of 512 channels: more than the rest of a page.
    let mut c = recorder(&out, &["many channels", go.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap();
    // (The file exists before its header.)
    let begun = || std::fs::metadata(&out).is_ok_and(|file| file.len() > 1000);
    wait_for("the entries on the tape", || begun() && read(&out).entries.len() == 20);
    let _ = std::fs::write(small.0.join("rest"), vec![1; 2 << 20]);
    std::fs::write(&go, "").unwrap();
    let status = c.wait().unwrap();
    let _ = std::fs::remove_file(&go);
    assert!(status.success(), "the tape was closed: {status:?}");
    let t = read(&out);
    assert!(t.error.is_none());
    let end = t.end.unwrap();
    assert_eq!((end.how.as_str(), end.channels.len()), ("recording stopped early: the disk is full", 512));
    assert!((5..20).contains(&t.entries.len()), "the last ones made room: {}", t.entries.len());
    assert!(t.entries.iter().map(|e| e.0).eq(0..t.entries.len() as u64));
}

#[test]
fn a_file_size_limit_stops_the_recording_only() {
    let dir = tempfile::tempdir().unwrap();
    let (out, go) = (dir.path().join("t"), dir.path().join("go"));
    let mut c =
        recorder(&out, &["storm at", go.to_str().unwrap(), "1000", "4000"]).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the tape to begin", || out.metadata().is_ok_and(|m| m.len() > 16));
    let limit = libc::rlimit { rlim_cur: 2 << 20, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: this process's own child, and limits of this function.
    unsafe { libc::prlimit(c.id() as i32, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
    std::fs::write(&go, "").unwrap();
    assert_eq!(c.wait().unwrap().code(), Some(0));
    let t = read(&out);
    assert!(t.error.is_none() && !t.entries.is_empty());
    assert_eq!(t.end.unwrap().how, "recording stopped early: the file size limit was reached");
}

#[test]
fn a_program_goes_on_without_its_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let (out, go, done) = (dir.path().join("t"), dir.path().join("go"), dir.path().join("done"));
    let mut c =
        recorder(&out, &["until", go.to_str().unwrap(), done.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the first note on the tape", || out.exists() && read(&out).notes == ["before"]);
    c.kill().unwrap();
    c.wait().unwrap();
    std::fs::write(&go, "").unwrap();
    wait_for_file(done.to_str().unwrap());
    let t = read(&out);
    assert_eq!((t.notes.len(), t.end.is_none(), t.error.is_none()), (1, true, true));
}

/// A shell program under a recorder in a separate process.
fn shell(out: &Path, text: &str, prepare: impl FnOnce(&mut Command)) -> std::process::Child {
    let mut c = recorder(out, &["sh", text]);
    c.stderr(Stdio::null());
    prepare(&mut c);
    c.spawn().unwrap()
}

#[test]
fn sigterm_is_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (out, up) = (dir.path().join("t"), dir.path().join("up"));
    for (signal, name) in [(libc::SIGTERM, "TERM"), (libc::SIGUSR1, "USR1"), (libc::SIGHUP, "HUP")] {
        let _ = std::fs::remove_file(&up);
        let text = format!("trap 'exit 3' {name}; : > {}; while :; do sleep 0.05; done", up.display());
        // Under nohup the signal would be ignored, and a shell cannot trap a signal that it found ignored.
        let heard = move |c: &mut Command| {
            // SAFETY: signal may be called between fork and exec.
            unsafe {
                c.pre_exec(move || {
                    libc::signal(signal, libc::SIG_DFL);
                    Ok(())
                })
            };
        };
        let mut c = shell(&out, &text, heard);
        wait_for_file(up.to_str().unwrap());
        // SAFETY: this process's own child.
        unsafe { libc::kill(c.id() as i32, signal) };
        assert_eq!(c.wait().unwrap().code(), Some(3), "{name}");
        assert_eq!(read(&out).end.unwrap().exit_code, Some(3));
    }
}

/// A terminal for a new session, and the user's side of it.
fn terminal(c: &mut Command) -> std::fs::File {
    let (mut user, mut program) = (0, 0);
    use std::ptr::null_mut;
    // SAFETY: two descriptors to write to, and no name, attributes or size.
    assert_eq!(unsafe { libc::openpty(&mut user, &mut program, null_mut(), null_mut(), null_mut()) }, 0);
    // SAFETY: setsid and ioctl may be called between fork and exec. The descriptors are this function's.
    unsafe {
        libc::fcntl(user, libc::F_SETFD, libc::FD_CLOEXEC);
        c.pre_exec(move || {
            libc::setsid();
            libc::ioctl(program, libc::TIOCSCTTY, 0);
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
        std::os::fd::FromRawFd::from_raw_fd(user)
    }
}

#[test]
fn sigint_is_the_programs_once_whoever_sends_it() {
    let dir = tempfile::tempdir().unwrap();
    for by_terminal in [true, false] {
        let (out, up, seen) = (dir.path().join("t"), dir.path().join("up"), dir.path().join("seen"));
        let [up_, seen_] = [&up, &seen].map(|p| p.display());
        let text = format!(
            "n=0; trap 'n=$((n+1)); : > {seen_}' INT; : > {up_}; while [ ! -e {seen_} ]; do sleep 0.05; done; \
             sleep 0.2; exit $n"
        );
        let mut user = None;
        let mut c = shell(&out, &text, |c| user = Some(terminal(c)));
        wait_for_file(up.to_str().unwrap());
        match (&mut user, by_terminal) {
            // Control-C.
            (Some(u), true) => std::io::Write::write_all(u, &[3]).unwrap(),
            // SAFETY: this process's own child.
            _ => assert_eq!(unsafe { libc::kill(c.id() as i32, libc::SIGINT) }, 0),
        }
        assert_eq!(c.wait().unwrap().code(), Some(1), "by the terminal: {by_terminal}");
        assert_eq!(read(&out).end.unwrap().exit_code, Some(1));
        for f in [up, seen] {
            std::fs::remove_file(f).unwrap();
        }
    }
}

#[test]
fn ignored_signals_stay_ignored_and_the_status_is_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let mut c = recorder(&out, &["ignored", "65537", "9"]);
    // SAFETY: signal may be called between fork and exec.
    unsafe {
        c.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        })
    };
    let status = c.stderr(Stdio::null()).status().unwrap();
    assert_eq!((status.code(), read(&out).end.unwrap().exit_code), (Some(9), Some(9)));
    let mut c = recorder(&out, &["ignored", "0", "9"]);
    // SAFETY: as above.
    unsafe {
        c.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        })
    };
    let status = c.stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(9), "nothing is ignored that was not");
}

/// An idle recorder costs almost no CPU time while its program sleeps.
#[test]
#[ignore = "3 s; run by .ci/run"]
fn an_idle_recorder_leaves_the_cpu_alone() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t");
    let begun = Instant::now();
    let mut c = shell(&out, "sleep 3", |_| {});
    let mut ticks = 0;
    while c.try_wait().unwrap().is_none() {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", c.id())).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        ticks = after.split_whitespace().skip(11).take(2).filter_map(|v| v.parse::<u64>().ok()).sum::<u64>().max(ticks);
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: the call only reads a setting.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let share = ticks as f64 / hz / begun.elapsed().as_secs_f64();
    println!("{:.1} % of a CPU", share * 100.0);
    assert!(share < 0.1, "{share}");
}
