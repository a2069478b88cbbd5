//! Samples on the software GPU in strict mode, recorded: the tape has exactly what the GPU consumed, and the program
//! did not notice.

use decode::Recording;
use decode::walk::{At, Segment, Sink, walk};
use doorbell_softgpu::Counters;
use doorbell_softgpu::counters::{HASH_SEED, hash};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

/// Samples that run without libcuda, and their counts.
const SAMPLES: [(&str, Option<u64>); 5] =
    [("copies", None), ("launches", Some(20)), ("threads", Some(200)), ("spin", Some(5_000)), ("channels", Some(24))];
/// Longer than any step here takes on a busy machine: a hang is a failure, not a wait.
const PATIENCE: Duration = Duration::from_secs(120);

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

fn sample(name: &str, count: Option<u64>) -> Vec<String> {
    let program = assert_cmd::cargo::cargo_bin!("doorbell").display().to_string();
    let mut words = vec![program, "sample".into(), name.into(), "--gpu".into(), "soft".into()];
    words.extend(count.iter().flat_map(|n| ["--count".into(), n.to_string()]));
    words
}

/// Waits for a limited time.
fn ended(child: Child, what: &str) -> Output {
    let pid = child.id();
    let (done, out) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match out.recv_timeout(PATIENCE) {
        Ok(out) => out.unwrap(),
        Err(_) => {
            children(pid).into_iter().chain([pid as i32]).for_each(|pid| kill(pid, libc::SIGKILL));
            panic!("{what}: still running after {PATIENCE:?}");
        }
    }
}

fn run(command: &mut Command) -> Output {
    let what = format!("{command:?}");
    ended(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), &what)
}

fn children(pid: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: a process that this test started.
    unsafe { libc::kill(pid, signal) };
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeded(out: &Output, what: &str) {
    assert!(out.status.success(), "{what}: {}\n{}{}", out.status, text(&out.stdout), text(&out.stderr));
}

fn checksum(out: &Output) -> String {
    text(&out.stdout).lines().rfind(|l| l.starts_with("checksum ")).expect("a line with the checksum").into()
}

fn summary(tape: &Path) -> Value {
    let out = run(doorbell().args(["show", "--summary", "--json"]).arg(tape));
    succeeded(&out, "show");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn number(v: &Value, pointer: &str) -> u64 {
    v.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} is no number in {v}"))
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

/// The words of each channel on the tape, in the order of their creation: after each entry, the hash of all words so
/// far.
fn streams(tape: &Path) -> Vec<Vec<u64>> {
    #[derive(Default)]
    struct Hashes {
        by_channel: HashMap<(u32, u32), Vec<u64>>,
    }
    impl Sink for Hashes {
        fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
            assert_eq!(s.words.len(), s.dwords as usize, "words of an entry are missing");
            assert!(!s.after_gap, "entries are missing before this one");
            let hashes = self.by_channel.entry((at.channel.slot, at.channel.generation)).or_default();
            let before = hashes.last().copied().unwrap_or(HASH_SEED);
            hashes.push(hash(before, s.words));
        }
    }
    let recording = Recording::open(tape).unwrap();
    let mut hashes = Hashes::default();
    let outcome = walk(&recording, &mut hashes).unwrap();
    let key = |c: &schema::channel::Channel| (c.slot, c.generation);
    outcome.channels.iter().map(|c| hashes.by_channel.remove(&key(c)).unwrap_or_default()).collect()
}

/// Every number of the summary that the software GPU counts too.
fn agrees(v: &Value, counters: &Counters, what: &str) {
    let got = |pointer| number(v, pointer);
    assert_eq!(got("/lost"), 0, "{what}: lost, {}", v["lost_detail"]);
    assert_eq!(get(&counters.faults), 0, "{what}: faults");
    assert_eq!(get(&counters.unknown_tokens), 0, "{what}: unknown tokens");
    assert_eq!(got("/doorbells"), get(&counters.doorbells), "{what}: doorbells");
    assert_eq!(got("/entries"), get(&counters.entries), "{what}: entries");
    assert_eq!(got("/command_bytes"), 4 * get(&counters.dwords), "{what}: bytes of commands");
    assert_eq!(got("/copies/copy_engine"), get(&counters.copies), "{what}: copies");
    assert_eq!(got("/copies/copy_engine_detail/bytes"), get(&counters.copy_bytes), "{what}: bytes copied");
    let inline = got("/copies/inline") + got("/copies/inline_for_launches");
    assert_eq!(inline, get(&counters.inline_copies), "{what}: inline writes");
    assert_eq!(got("/fills"), get(&counters.fills), "{what}: fills");
    assert_eq!(got("/launches"), get(&counters.launches), "{what}: launches");
    assert_eq!(got("/channels"), get(&counters.channels_created), "{what}: channels");
    // The samples' launches release one semaphore each, which is in the QMD and not in the stream.
    let released = get(&counters.releases) - get(&counters.launches);
    assert_eq!(got("/semaphores/released"), released, "{what}: releases");
    assert_eq!(got("/semaphores/acquired"), get(&counters.acquires), "{what}: acquires");
    assert_eq!(got("/tap/trapped") + got("/tap/rewritten"), got("/doorbells"), "{what}: each doorbell was tapped once");
}

/// Every word that the GPU consumed is on the tape, in order.
fn same_words(tape: &Path, counters: &Counters, what: &str) {
    let streams = streams(tape);
    assert_eq!(streams.len(), counters.used().count(), "{what}: channels");
    for (n, (stream, channel)) in streams.iter().zip(counters.used()).enumerate() {
        let consumed = channel.progress();
        assert!(stream.len() as u64 >= consumed.entries, "{what}: channel {n}: {} < {consumed:?}", stream.len());
        let at = match consumed.entries {
            0 => HASH_SEED,
            n => stream[n as usize - 1],
        };
        assert_eq!(
            at,
            consumed.hash,
            "{what}: the words of channel {n}, token {:#x}",
            channel.token.load(Ordering::SeqCst)
        );
    }
}

/// The result that each sample prints without doorbell: run once, for all taps.
fn bare(which: usize) -> &'static str {
    static SAID: [OnceLock<String>; SAMPLES.len()] = [const { OnceLock::new() }; SAMPLES.len()];
    SAID[which].get_or_init(|| {
        let (name, count) = SAMPLES[which];
        let words = sample(name, count);
        let out = run(Command::new(&words[0]).args(&words[1..]));
        succeeded(&out, name);
        checksum(&out)
    })
}

fn every_sample_under(tap: &str) {
    let dir = tempfile::tempdir().unwrap();
    for (which, (name, count)) in SAMPLES.into_iter().enumerate() {
        let what = format!("{name} under {tap}");
        let words = sample(name, count);
        let tape = dir.path().join(format!("{name}.doorbell"));
        let counted = dir.path().join(format!("{name}.counters"));
        let recorded = run(doorbell()
            .env("DOORBELL_SOFTGPU_COUNTERS", &counted)
            .args(["record", "--force", "--gpu", "soft", "--tap", tap, "--on-full", "wait", "-o"])
            .arg(&tape)
            .arg("--")
            .args(&words));
        succeeded(&recorded, &what);
        assert_eq!(bare(which), checksum(&recorded), "{what}");
        let counters = Counters::shared(&counted).unwrap();
        let v = summary(&tape);
        agrees(&v, counters, &what);
        assert!(number(&v, "/entries") > 0, "{what}: an empty tape");
        let streams = streams(&tape);
        assert_eq!(streams.iter().map(Vec::len).sum::<usize>() as u64, get(&counters.entries), "{what}");
        same_words(&tape, counters, &what);
        // Short rings share their pages, which must stay where they are; the others become shadows where sites are rewritten.
        let watched = if tap == "trap" || name == "channels" { "direct" } else { "shadow" };
        for c in v["channel_list"].as_array().unwrap() {
            assert_eq!(c["watch"], watched, "{what}: {c}");
        }
        match tap {
            "trap" => assert_eq!(number(&v, "/tap/rewritten"), 0, "{what}"),
            // A site traps until it is rewritten, once for each thread that executes it at that moment.
            _ => assert!(number(&v, "/tap/rewritten") > number(&v, "/tap/trapped"), "{what}: {}", v["tap"]),
        }
    }
}

#[test]
#[ignore = "4 s; run by .ci/run"]
fn every_sample_is_seen_whole_under_trap() {
    every_sample_under("trap");
}

// `auto` is another name for the same.
#[test]
fn every_sample_is_seen_whole_under_patch() {
    every_sample_under("patch");
}

fn killed_in_the_middle_under(tap: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (tape, counted) = (dir.path().join("storm.doorbell"), dir.path().join("storm.counters"));
    let mut recorder = doorbell()
        .env("DOORBELL_SOFTGPU_COUNTERS", &counted)
        .args(["record", "--force", "--gpu", "soft", "--tap", tap, "--on-full", "wait", "-o"])
        .arg(&tape)
        .arg("--")
        .args(sample("storm", None))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(recorder.stderr.take().unwrap()).lines();
    let begun = lines.by_ref().map_while(Result::ok).any(|line| line.contains("storm: submitting"));
    assert!(begun, "the sample never began to submit");
    std::thread::sleep(Duration::from_millis(300));
    let counters = Counters::shared(&counted).unwrap();
    let begun = std::time::Instant::now();
    while get(&counters.entries) <= 1_000 {
        assert!(begun.elapsed() < PATIENCE, "a storm, not {} entries", get(&counters.entries));
        std::thread::sleep(Duration::from_millis(5));
    }
    let programs = children(recorder.id());
    assert_eq!(programs.len(), 1, "the recorder has one child");
    kill(programs[0], libc::SIGKILL);
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    let out = ended(recorder, "the recorder after its program was killed");
    let rest = rest.join().unwrap();
    assert_eq!(out.status.code(), Some(128 + libc::SIGKILL), "{rest}");

    let v = summary(&tape);
    assert_eq!(number(&v, "/lost"), 0, "{}", v["lost_detail"]);
    assert!(number(&v, "/entries") >= get(&counters.entries), "consumed, but not on the tape");
    assert!(number(&v, "/doorbells") >= get(&counters.doorbells), "rung, but not on the tape");
    same_words(&tape, counters, tap);
    assert_eq!(number(&v, "/end/signal"), 9, "{}", v["end"]);
}

#[test]
fn a_killed_program_leaves_everything_that_it_rang_under_trap() {
    killed_in_the_middle_under("trap");
}

#[test]
fn a_killed_program_leaves_everything_that_it_rang_under_patch() {
    killed_in_the_middle_under("patch");
}

/// The recorder is stopped while the program runs: what did not fit into the ring is counted, entry by entry.
#[test]
fn a_ring_that_fills_loses_what_it_says_and_nothing_else() {
    for tap in ["trap", "patch"] {
        // The program may have ended before the recorder is stopped.
        test_support::measured(|| loses_what_it_says(tap));
    }
}

fn loses_what_it_says(tap: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let (tape, counted) = (dir.path().join("gap.doorbell"), dir.path().join("gap.counters"));
    let mut recorder = doorbell()
        .env("DOORBELL_SOFTGPU_COUNTERS", &counted)
        .args(["record", "--force", "--gpu", "soft", "--tap", tap, "--ring", "1MiB", "-o"])
        .arg(&tape)
        .arg("--")
        .args(sample("storm", Some(20_000)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(recorder.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("storm: submitting")));
    kill(recorder.id() as i32, libc::SIGSTOP);
    let program = children(recorder.id());
    let begun = std::time::Instant::now();
    // Has ended, but has not been waited for.
    let goes_on = |pid: &i32| !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ");
    while program.iter().any(goes_on) {
        assert!(begun.elapsed() < PATIENCE, "the program waits for a recorder that stands still");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(recorder.id() as i32, libc::SIGCONT);
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    let out = ended(recorder, "the recorder that stood still");
    let said = rest.join().unwrap();
    assert!(out.status.success(), "{said}");
    let v = summary(&tape);
    let counters = Counters::shared(&counted).unwrap();
    let (entries, lost) = (number(&v, "/entries"), number(&v, "/lost"));
    if lost <= 1_000 || entries <= 1_000 {
        return Err(format!("{tap}: {entries} entries, {lost} lost"));
    }
    assert_eq!(entries + lost, get(&counters.entries), "{tap}: {}", v["lost_detail"]);
    assert!(said.contains("did not fit into the ring buffers: the recorder looked at them"), "{tap}: {said}");
    assert!(said.contains("--on-full wait"), "{tap}: {said}");
    assert!(v["recorder"]["late_seconds"].as_f64() > Some(0.01), "{}", v["recorder"]);
    Ok(())
}

fn record(dir: &Path, options: &[&str], program: &[&str]) -> (Output, PathBuf) {
    let tape = dir.join("t.doorbell");
    let mut command = doorbell();
    command.args(["record", "--force", "--gpu", "soft", "-o"]).arg(&tape).args(options).arg("--").args(program);
    (run(&mut command), tape)
}

#[test]
fn the_programs_exit_status_and_death_come_through() {
    let dir = tempfile::tempdir().unwrap();
    for (script, status) in
        [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
    {
        let (out, tape) = record(dir.path(), &[], &["sh", "-c", script]);
        assert_eq!(out.status.code(), Some(status), "{script}: {}", text(&out.stderr));
        let end = &summary(&tape)["end"];
        let signal = (status > 128).then(|| status - 128);
        assert_eq!(end["signal"].as_i64(), signal.map(i64::from), "{script}: {end}");
        assert_eq!(
            end["exit_code"].as_i64(),
            if signal.is_some() { None } else { Some(status.into()) },
            "{script}: {end}"
        );
    }
    // The program's output is its own, and `--quiet` adds no output.
    let (out, _) = record(dir.path(), &["--quiet"], &["sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((text(&out.stdout), text(&out.stderr)), ("out\n".into(), "err\n".into()));
}

#[test]
fn sigterm_to_the_recorder_is_meant_for_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("t.doorbell");
    let mut recorder = doorbell()
        .args(["record", "--force", "--gpu", "soft", "-q", "-o"])
        .arg(&tape)
        .args(["--", "sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    kill(recorder.id() as i32, libc::SIGTERM);
    assert_eq!(ended(recorder, "the recorder after SIGTERM").status.code(), Some(5));
    assert_eq!(number(&summary(&tape), "/lost"), 0);
}

#[test]
fn the_program_and_its_children_see_their_own_environment() {
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("t.doorbell");
    let sorted = |out: &Output| {
        let all = text(&out.stdout);
        // dash's own variable differs from start to start.
        let mut lines: Vec<_> = all.lines().filter(|l| !l.starts_with("_=")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for program in [&["env"][..], &["sh", "-c", "env"]] {
        for preload in [None, Some("/nonexistent/other.so")] {
            let set = |c: &mut Command| {
                c.env_remove("LD_PRELOAD").env("MARK", "1 2");
                if let Some(p) = preload {
                    c.env("LD_PRELOAD", p);
                }
            };
            let mut bare = Command::new(program[0]);
            bare.args(&program[1..]);
            set(&mut bare);
            let bare = sorted(&run(&mut bare));
            let mut recorded = doorbell();
            recorded.args(["record", "--force", "--gpu", "soft", "-q", "-o"]).arg(&tape).arg("--").args(program);
            set(&mut recorded);
            let recorded = sorted(&run(&mut recorded));
            assert_eq!(bare, recorded, "{program:?} with LD_PRELOAD {preload:?}");
            assert!(recorded.iter().any(|l| l == "MARK=1 2"));
            assert!(!recorded.iter().any(|l| l.starts_with("DOORBELL_")), "{recorded:?}");
        }
    }
}

#[test]
fn a_program_that_cannot_be_recorded_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let elf = |name: &str, class: u8, machine: u16| {
        let mut bytes = vec![0u8; 64];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        bytes[16] = 2; // ET_EXEC
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        executable(dir.path(), name, &bytes)
    };
    let text_file = dir.path().join("text");
    std::fs::write(&text_file, "hello").unwrap();
    let cases = [
        ("no-such-program-anywhere".into(), "no such program", 127),
        (dir.path().join("missing").display().to_string(), "no such program", 127),
        (text_file.display().to_string(), "not executable", 126),
        (executable(dir.path(), "empty", b""), "neither", 126),
        (elf("narrow", 1, 3), "32-bit", 126),
        (elf("foreign", 2, 183), "another processor", 126),
    ];
    for (program, why, status) in cases {
        let (out, tape) = record(dir.path(), &[], &[&program]);
        assert_eq!(out.status.code(), Some(status), "{program}: {}", text(&out.stderr));
        let err = text(&out.stderr);
        assert!(err.starts_with("error: ") && err.contains(why), "{program}: {err}");
        assert!(!tape.exists(), "{program}: nothing was recorded, so there is no tape");
    }
}

fn executable(dir: &Path, name: &str, bytes: &[u8]) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn an_output_that_cannot_be_written_stops_before_the_program_starts() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    for out in ["no/such/dir/t.doorbell", "."] {
        let out = dir.path().join(out);
        let done = run(doorbell()
            .args(["record", "--force", "--gpu", "soft", "-o"])
            .arg(&out)
            .args(["--", "touch"])
            .arg(&mark));
        assert_eq!(done.status.code(), Some(125), "{}", text(&done.stderr));
        assert!(text(&done.stderr).contains(&*out.to_string_lossy()), "{}", text(&done.stderr));
        assert!(!mark.exists(), "the program ran");
    }
}

#[test]
fn without_a_gpu_the_status_is_125_with_a_hint() {
    if recorder::driver_version().is_some() {
        test_support::skip!("there is a driver");
    }
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let out = run(doorbell().current_dir(&dir).args(["record", "--", "touch"]).arg(&mark));
    assert_eq!(out.status.code(), Some(125));
    let err = text(&out.stderr);
    assert!(err.contains("no NVIDIA driver") && err.contains("\nhint: ") && err.contains("--gpu soft"), "{err}");
    assert!(!mark.exists());
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_program() {
    let program = sample("threads", Some(300)).join(" ");
    let doorbell_path = assert_cmd::cargo::cargo_bin!("doorbell").display().to_string();
    let kept = tempfile::tempdir().unwrap();
    let script = format!(
        "mkdir -p disk && mount -t tmpfs -o size=256k none disk || exit 99
        {doorbell_path} record --gpu soft -o disk/t.doorbell -- {program}
        status=$?
        cp disk/t.doorbell t.doorbell
        exit $status"
    );
    // A small disk, in a private mount namespace.
    let spawned = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script])
        .current_dir(&kept)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(child) = spawned else {
        test_support::skip!("no unshare here");
    };
    let out = ended(child, "a recording on a full disk");
    if out.status.code() == Some(99) || text(&out.stderr).contains("unshare:") {
        test_support::skip!("no mount namespace: {}", text(&out.stderr));
    }
    succeeded(&out, "the program on a full disk");
    let words = sample("threads", Some(300));
    assert_eq!(checksum(&out), checksum(&run(Command::new(&words[0]).args(&words[1..]))));
    assert!(text(&out.stderr).contains("recording stopped early"), "{}", text(&out.stderr));
    let shown = run(doorbell().args(["show", "--summary", "--json"]).arg(kept.path().join("t.doorbell")));
    let v: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(number(&v, "/entries") > 100, "what came before is there");
    let said = format!("{} {} {}", v["end"], v["notes"], v["damage"]);
    assert!(said.contains("disk is full"), "the tape says why it ends: {said}");
}

#[test]
fn the_size_limit_ends_the_tape_and_not_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let words = sample("threads", Some(600));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (out, tape) = record(dir.path(), &["--max-size", "64KiB"], &words);
    succeeded(&out, "a recording with a limit");
    assert!(text(&out.stderr).contains("the size limit was reached"), "{}", text(&out.stderr));
    let bytes = std::fs::metadata(&tape).unwrap().len();
    assert!((56 << 10..192 << 10).contains(&bytes), "{bytes} B");
    let how = summary(&tape)["end"]["how"].clone();
    assert!(how.as_str().is_some_and(|h| h.contains("size limit")), "{how}");
}

/// The program's recording is split over several files. Each is read alone, and every submission is in one of them.
#[test]
fn a_recording_in_parts_has_all_that_was_submitted_and_the_oldest_parts_go() {
    let dir = tempfile::tempdir().unwrap();
    let words = sample("threads", Some(12_000));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (out, tape) = record(dir.path(), &[], &words);
    succeeded(&out, "a recording in one file");
    let all = number(&summary(&tape), "/doorbells");
    let parts = |keep: &str| -> Vec<(u64, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let (out, _) = record(dir.path(), &["--max-size", "1MiB", "--rotate", keep], &words);
        succeeded(&out, "a recording in parts");
        let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| {
            let summary = summary(&path);
            assert_eq!(summary["lost"], 0, "{}", path.display());
            (number(&summary, "/doorbells"), std::fs::metadata(&path).unwrap().len())
        };
        files.map(of).collect()
    };
    let whole = parts("50");
    assert!((3..50).contains(&whole.len()), "{whole:?}");
    assert_eq!(whole.iter().map(|(doorbells, _)| doorbells).sum::<u64>(), all, "{whole:?}");
    let newest = parts("2");
    assert_eq!(newest.len(), 2, "{newest:?}");
    // (How far a part is beyond 1 MiB depends on how busy the machine is: what comes until the cut is in it, too.)
    let small = |parts: &[(u64, u64)]| parts.iter().filter(|(_, bytes)| *bytes < 700 << 10).count();
    assert!(small(&whole) <= 1 && small(&newest) <= 1, "{whole:?} {newest:?}");
}

#[test]
fn a_real_tape_cut_anywhere_is_shown_up_to_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let words = sample("launches", Some(10));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (out, tape) = record(dir.path(), &[], &words);
    succeeded(&out, "launches");
    let whole = std::fs::read(&tape).unwrap();
    let all = number(&summary(&tape), "/entries");
    let cut = dir.path().join("cut.doorbell");
    let submissions = |tape: &Path| run(doorbell().args(["show", "--submissions"]).arg(tape));
    let (mut most, mut behind, mut unused) = (0, 0, 0);
    let as_recorded = submissions(&tape).stdout;
    // One of them between two chunks.
    let between = whole.windows(4).enumerate().filter(|(_, b)| b == b"CHNK").nth(1).unwrap().0;
    let mut cuts: Vec<_> = (1..24).map(|part| whole.len() * part / 24).chain([between]).collect();
    cuts.sort();
    for at in cuts {
        std::fs::write(&cut, &whole[..at]).unwrap();
        let out = run(doorbell().args(["show", "--summary", "--json"]).arg(&cut));
        let err = text(&out.stderr);
        let undamaged = serde_json::from_slice::<Value>(&out.stdout).ok().filter(|v| v["damage"].is_null());
        // The data after the end only makes reading faster.
        if let Some(v) = undamaged.as_ref().filter(|v| v["complete"] == true) {
            assert_eq!((out.status.code(), number(v, "/entries")), (Some(0), all), "cut at {at}: {err}");
            behind += 1;
            continue;
        }
        // Between two chunks nothing is damaged, but the end is missing.
        let expected = if undamaged.is_some() { 0 } else { 2 };
        assert_eq!(out.status.code(), Some(expected), "cut at {at}: {err}");
        assert!(expected == 0 || err.starts_with("error: ") && !err.contains("panicked"), "cut at {at}: {err}");
        if let Ok(v) = serde_json::from_slice::<Value>(&out.stdout) {
            let entries = number(&v, "/entries");
            assert!(entries >= most && entries <= all, "cut at {at}: {entries} of {all}");
            most = entries;
        }
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        std::fs::write(&cut, &flipped).unwrap();
        let out = submissions(&cut);
        assert!(!text(&out.stderr).contains("panicked"), "flipped at {at}");
        // Chunks begin at multiples of eight; what fills the gaps says nothing.
        if out.status.success() && out.stdout == as_recorded {
            unused += 1;
            continue;
        }
        assert_eq!(out.status.code(), Some(2), "flipped at {at}: {}", text(&out.stderr));
    }
    assert!(behind < 12 && unused < 6, "{behind} and {unused} of 24");
}

#[test]
fn nothing_of_the_programs_arguments_with_no_args() {
    let dir = tempfile::tempdir().unwrap();
    let (out, tape) = record(dir.path(), &["--no-args"], &["sh", "-c", "exit 0 # a secret of the command line"]);
    succeeded(&out, "sh");
    let bytes = std::fs::read(&tape).unwrap();
    assert!(!bytes.windows(8).any(|w| w == b"a secret"));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&tape).unwrap().permissions().mode() & 0o777, 0o600);
}
