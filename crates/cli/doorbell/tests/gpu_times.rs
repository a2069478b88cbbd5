//! When kernels ended, as the GPU stored it, with CUDA and the GPU in software.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn doorbell(arguments: &[&str]) -> Output {
    let out = Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(arguments).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Records a sample that launches graphs; returns the file and what the sample printed.
fn recorded(dir: &Path, ways: &[&str], shapes: &str) -> (String, String) {
    sample(dir, ways, &["graphs", "--only", shapes])
}

fn sample(dir: &Path, ways: &[&str], what: &[&str]) -> (String, String) {
    sample_on("strict", dir, ways, what)
}

/// `gpu`: it works at each doorbell (`strict`), or whenever it finds new entries (`poll`).
fn sample_on(gpu: &str, dir: &Path, ways: &[&str], what: &[&str]) -> (String, String) {
    let set = [("DOORBELL_SOFTGPU", gpu), ("DOORBELL_SOFTCUDA_COPIES", "engine")];
    let (file, out) = run(dir, ways, what, if what.contains(&"copies") { &set } else { &set[..1] });
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    (file, String::from_utf8(out.stdout).unwrap())
}

fn run(dir: &Path, ways: &[&str], what: &[&str], set: &[(&str, &str)]) -> (String, Output) {
    let (file, mut record) = record(dir, ways, what, set);
    (file, record.output().unwrap())
}

fn record(dir: &Path, ways: &[&str], what: &[&str], set: &[(&str, &str)]) -> (String, Command) {
    let library = std::env::current_exe().unwrap().with_file_name("libsoftcuda.so");
    let _ = std::os::unix::fs::symlink(library, dir.join("libcuda.so.1"));
    let file = dir.join("a.doorbell").to_str().unwrap().to_owned();
    let command = assert_cmd::cargo::cargo_bin!("doorbell");
    let mut record = Command::new(command);
    record.args(["record", "--quiet", "--force", "--gpu", "soft", "-o", &file]).args(ways).arg("--").arg(command);
    record.arg("sample").args(what).env("LD_LIBRARY_PATH", dir).envs(set.iter().copied());
    (file, record)
}

/// How many kernels have a time, and the reasons why the others have none.
fn times(file: &str) -> (u64, u64, Vec<(String, u64)>) {
    let all = rows(file, "--gpu-times");
    let times = &all["kernel_times"][0];
    let lacking = times["lacking"].as_array().unwrap().iter();
    let lacking = lacking.map(|row| (row["reason"].as_str().unwrap().into(), row["kernels"].as_u64().unwrap()));
    (times["kernels"].as_u64().unwrap(), times["timed"].as_u64().unwrap(), lacking.collect())
}

fn rows(file: &str, view: &str) -> Value {
    serde_json::from_slice(&doorbell(&["show", view, "--json", file]).stdout).unwrap()
}

fn ns(run: &Value, key: &str) -> u64 {
    run["gpu"][key].as_str().unwrap().parse().unwrap()
}

#[test]
fn each_kernel_of_each_launch_of_a_graph_has_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (_, bare) = recorded(dir.path(), &[], "chain-2,chain-10");
    let (file, printed) = recorded(dir.path(), &["--gpu-times"], "chain-2,chain-10");
    assert_eq!(printed, bare, "the results are the same");
    let kernels = rows(&file, "--kernels");
    let (mut runs, mut expected) = (0, 0);
    for kernel in kernels["kernels"].as_array().unwrap() {
        runs += kernel["gpu"]["runs"].as_u64().unwrap_or(0);
        expected += kernel["in_graphs"].as_u64().unwrap();
    }
    assert!(expected >= 24 && runs == expected, "{runs} of {expected}: {kernels}");
    let mut launches: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    let all = rows(&file, "--gpu-times");
    let (timed, whole) = (expected.into(), &all["kernel_times"][0]);
    assert_eq!((&whole["kernels"], &whole["timed"], &whole["state"]), (&timed, &timed, &"on".into()), "{whole}");
    assert_eq!(whole["lacking"], Value::Array(Vec::new()));
    assert_eq!(all["kernel_times"], kernels["kernel_times"]);
    assert_eq!(all["kernel_times"], rows(&file, "--summary")["kernel_times"]);
    for run in all["runs"].as_array().unwrap() {
        assert_eq!(run["in_graph"], true);
        launches.entry(run["submission"].as_u64().unwrap()).or_default().push(run);
    }
    let sizes: Vec<usize> = launches.values().map(Vec::len).collect();
    assert!(sizes.iter().all(|n| [2, 10].contains(n)), "{sizes:?}");
    let streams = kernels["streams"].as_array().unwrap();
    let of_streams: u64 = streams.iter().map(|s| s["runs"].as_u64().unwrap()).sum();
    assert_eq!(of_streams, runs);
    for stream in streams {
        let (busy, span) = (stream["busy_ns"].as_u64().unwrap(), stream["span_ns"].as_u64().unwrap());
        assert!(0 < busy && busy <= span && stream["gaps_ns"].as_u64().unwrap() <= span - busy, "{stream}");
    }
    let mut latest = 0;
    for runs in launches.values() {
        for run in runs {
            let (earliest, start, end) = (ns(run, "earliest_ns"), ns(run, "start_ns"), ns(run, "end_ns"));
            assert!(earliest <= start && start <= end && end > latest, "one after the other: {run}");
            latest = end;
        }
        let how = runs.iter().skip(1).all(|run| run["gpu"]["start"] == "after_the_one_before");
        assert!(how, "a chain: {runs:?}");
    }
    let text = String::from_utf8(doorbell(&["show", &file, "--gpu-times", "--sort", "time", "--top", "3"]).stdout);
    let text = text.unwrap();
    assert_eq!(text.lines().count(), 5);
    let says = format!("the GPU's time is known of all {expected} runs");
    assert_eq!(text.lines().last(), Some(&*says));
    for view in ["--summary", "--kernels"] {
        let text = String::from_utf8(doorbell(&["show", &file, view]).stdout).unwrap();
        assert!(text.contains(&says), "{text}");
    }
}

#[test]
fn each_copy_and_fill_of_the_copy_engine_has_its_begin_and_end() {
    let dir = tempfile::tempdir().unwrap();
    // (Before the first graph the GPU of a doorbell is not known: this CUDA's streams are separate threads.)
    let what = ["graphs", "copies", "--count", "1"];
    let (_, bare) = sample(dir.path(), &[], &what);
    let (file, printed) = sample(dir.path(), &["--gpu-times"], &what);
    assert_eq!(printed, bare, "the results are the same");
    let copies = rows(&file, "--copies");
    // (Not those of graphs: the release of their segments' semaphores was set before.)
    let by_engine = |c: &&Value| c["mode"] != "inline" && c["call"].is_null();
    let copies: Vec<&Value> = copies.as_array().unwrap().iter().filter(by_engine).collect();
    assert!(copies.len() > 50, "{}", copies.len());
    let mut ended: BTreeMap<u64, u64> = BTreeMap::new();
    for c in &copies {
        assert!(c["gpu"]["start"] == "stored" && c["start_seconds"].is_number(), "{c}");
        let (start, end) = (ns(c, "start_ns"), ns(c, "end_ns"));
        let before = ended.insert(c["slot"].as_u64().unwrap(), end).unwrap_or(0);
        assert!(before <= start && start <= end, "one after the other on its channel: {c}");
        assert!(c["semaphore"].is_null(), "the commands on the tape are the program's own: {c}");
    }
    // The summary has the sums of these.
    let timed = copies.iter().filter(|c| c["mode"] == "copy_engine");
    let (mut count, mut time, mut longest) = (0, 0, 0);
    for ns in timed.map(|c| ns(c, "end_ns") - ns(c, "start_ns")) {
        (count, time, longest) = (count + 1, time + ns, longest.max(ns));
    }
    let summary = rows(&file, "--summary");
    let ways = summary["copies"]["copy_engine_detail"]["by_place"].as_array().unwrap();
    let of_ways = |key: &'static str| ways.iter().map(move |way| way[key].as_u64().unwrap());
    assert_eq!((of_ways("timed").sum::<u64>(), of_ways("gpu_ns").sum::<u64>()), (count, time));
    assert_eq!(of_ways("longest_ns").max(), Some(longest));
    let text =
        String::from_utf8(doorbell(&["show", &file, "--copies", "--sort", "time", "--top", "2"]).stdout).unwrap();
    assert!(text.lines().skip(1).all(|line| line.contains("ran ")), "{text}");
    // On the report's timeline each is a bar, on a track of its channel.
    let gpu = &timeline(dir.path(), &file)["gpu"];
    let tracks = gpu["tracks"].as_array().unwrap().iter().filter(|track| track["kind"] == 1).count();
    let bars: Vec<u64> = gpu["bars"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as u64).collect();
    let bars = bars.chunks(11).filter(|bar| bar[2] == 1).count();
    let timed = rows(&file, "--copies").as_array().unwrap().iter().filter(|c| c["gpu"].is_object()).count();
    assert_eq!((tracks, bars), (ended.len(), timed));
    let names = gpu["names"].to_string();
    assert!(names.contains("\"copy 4 KiB host to device\""), "{names}");
}

/// The timeline in the report of a recording.
fn timeline(dir: &Path, file: &str) -> Value {
    let page = dir.join("report.html");
    doorbell(&["report", file, "-o", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    let (_, data) = page.split_once("id=\"timeline-data\" type=\"application/json\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn streams_have_their_priority_and_their_green_context() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/streams.c");
    let compiled = test_support::link_softcuda(dir.path()).and_then(|library| {
        let flags = [library.to_str().unwrap(), "-Wl,--allow-shlib-undefined"];
        test_support::Source { file: &source, compiler: "cc", flags: &flags }.compile(dir.path())
    });
    let program = match compiled {
        Ok(program) => program,
        Err(why) => test_support::skip!("{why}"),
    };
    let file = dir.path().join("a.doorbell").to_str().unwrap().to_owned();
    let mut record = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    record.args(["record", "--quiet", "--gpu", "soft", "--gpu-times", "-o", &file, "--"]).arg(&program);
    let out = record.env("LD_LIBRARY_PATH", dir.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let printed = String::from_utf8(out.stdout).unwrap();
    let handles: Vec<String> = printed.lines().map(|line| format!("0x{line}")).collect();
    let kinds = [(0, Value::Null), (-3, Value::Null), (-5, 16.into()), (0, 16.into())];
    let streams = rows(&file, "--kernels")["streams"].as_array().unwrap().clone();
    for (handle, (priority, sms)) in handles.iter().zip(&kinds) {
        let row =
            streams.iter().find(|row| row["stream"] == **handle).unwrap_or_else(|| panic!("{handle}: {streams:?}"));
        let kind = &row["kind"];
        if (*priority, sms) == (0, &Value::Null) {
            assert!(kind.is_null(), "{row}");
        } else {
            assert_eq!(
                (&kind["priority"], &kind["sms"], &kind["green"]),
                (&(*priority).into(), sms, &(!sms.is_null()).into())
            );
        }
    }
    assert_eq!(handles.len(), kinds.len());
    assert_eq!(rows(&file, "--summary")["streams"].as_array().unwrap().len(), 3);
    let table = String::from_utf8(doorbell(&["show", "--kernels", &file]).stdout).unwrap();
    let heads = table.lines().find(|line| line.contains("busy")).unwrap();
    assert!(heads.contains("priority") && heads.contains("green context") && table.contains("16 SMs"), "{table}");
    let title = "(priority -5, green context with 16 SMs)";
    let titles = timeline(dir.path(), &file)["gpu"]["tracks"].to_string();
    assert!(titles.contains(title), "{titles}");
    for format in ["kineto", "perfetto"] {
        let to = dir.path().join(format).to_str().unwrap().to_owned();
        doorbell(&["export", &format!("--{format}"), &file, "-o", &to]);
        let bytes = std::fs::read(&to).unwrap();
        assert!(bytes.windows(title.len()).any(|part| part == title.as_bytes()), "{format}");
    }
    // (Other recordings have no such columns.)
    let (plain, _) = recorded(dir.path(), &["--gpu-times"], "chain-2");
    let table = String::from_utf8(doorbell(&["show", "--kernels", &plain]).stdout).unwrap();
    assert!(table.contains("busy") && !table.contains("priority") && !table.contains("green"), "{table}");
}

#[test]
fn every_export_has_each_run() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = recorded(dir.path(), &["--gpu-times"], "chain-2,chain-10");
    let runs = rows(&file, "--gpu-times")["runs"].as_array().unwrap().len();
    assert!(runs >= 24, "{runs}");
    let lines = String::from_utf8(doorbell(&["export", "--jsonl", &file]).stdout).unwrap();
    assert_eq!(lines.lines().filter(|line| line.starts_with("{\"type\":\"kernel_run\"")).count(), runs);
    let trace: Value = serde_json::from_slice(&doorbell(&["export", "--kineto", &file]).stdout).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let kernels: Vec<&Value> = events.iter().filter(|e| e["cat"] == "kernel").collect();
    assert_eq!(kernels.len(), runs);
    for kernel in &kernels {
        assert!(kernel["ph"] == "X" && kernel["args"]["stream"].as_u64() > Some(0), "{kernel}");
        let is_its = |e: &&Value| e["args"]["correlation"] == kernel["args"]["correlation"] && e["args"]["result"] == 0;
        let call = events.iter().find(is_its).unwrap();
        assert!(call["name"].as_str().unwrap().contains("GraphLaunch"), "{call}");
        assert!(call["ts"].as_f64() < kernel["ts"].as_f64(), "{call} {kernel}");
    }
    // (A chain: no lanes.)
    let rows: BTreeMap<u64, ()> = kernels.iter().map(|k| (k["tid"].as_u64().unwrap(), ())).collect();
    assert_eq!(rows.len(), 1);
    let tables = dir.path().join("tables");
    doorbell(&["export", "--parquet", &file, "-o", tables.to_str().unwrap()]);
    assert!(tables.join("kernel_runs.parquet").exists());
    let trace = doorbell(&["export", "--perfetto", &file]).stdout;
    assert!(trace.windows(22).any(|bytes| bytes.starts_with(b"work of stream 0x")));
}

#[test]
fn views_show_the_words_that_the_program_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let graphs = |ways: &[&str]| {
        let (file, _) = recorded(dir.path(), ways, "chain-2,fork");
        let text = String::from_utf8(doorbell(&["show", &file, "--graphs"]).stdout).unwrap();
        // Addresses, times and processes differ from run to run.
        let (_, graph) = text.split_once(", channel ").unwrap();
        graph.split_whitespace().filter(|word| !word.contains("0x")).collect::<Vec<_>>().join(" ")
    };
    let (without, with) = (graphs(&["--calls"]), graphs(&["--gpu-times"]));
    assert_eq!(without, with);
    assert!(!with.contains("refused"), "{with}");
}

/// The GPU reads an entry as soon as GP_PUT is there, maybe before its doorbell. (When GP_PUT was written first, a
/// third of these kernels had no time.)
#[test]
fn a_gpu_that_does_not_wait_for_the_doorbell_finds_all_kernels_stamped() {
    let dir = tempfile::tempdir().unwrap();
    let what = ["graphs", "--only", "chain-10,chain-100", "--count", "20"];
    let (file, _) = sample_on("poll", dir.path(), &["--gpu-times"], &what);
    let times = &rows(&file, "--summary")["kernel_times"][0];
    assert!(times["timed"].as_u64() > Some(2000) && times["timed"] == times["kernels"], "{times}");
    assert_eq!(times["lacking"], Value::Array(Vec::new()));
}

#[test]
fn without_shadow_rings_nothing_is_stamped_and_the_reason_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let trap = ["--gpu-times", "--tap", "trap"];
    let (_, bare) = recorded(dir.path(), &[], "chain-10");
    let (file, printed) = recorded(dir.path(), &trap, "chain-10");
    assert_eq!(printed, bare);
    let all = rows(&file, "--gpu-times");
    assert_eq!(all["runs"].as_array().unwrap().len(), 0);
    let times = &all["kernel_times"][0];
    let (kernels, lacking) = (times["kernels"].as_u64().unwrap(), &times["lacking"]);
    assert!(kernels > 10 && times["timed"] == 0 && times["stamped"] == 0, "{times}");
    assert_eq!(lacking[0]["reason"], "no_shadow");
    assert_eq!(lacking.as_array().unwrap().iter().map(|l| l["kernels"].as_u64().unwrap()).sum::<u64>(), kernels);
    for view in ["--summary", "--kernels", "--gpu-times"] {
        let text = String::from_utf8(doorbell(&["show", &file, view]).stdout).unwrap();
        assert!(text.contains("--tap trap"), "{text}");
    }
}

#[test]
fn launches_by_libdoorbell_have_their_own_reason() {
    let dir = tempfile::tempdir().unwrap();
    let what = ["graphs", "--only", "chain-2", "--launcher", "doorbell", "--count", "20"];
    let (_, bare) = sample(dir.path(), &[], &what);
    let (file, printed) = sample(dir.path(), &["--gpu-times"], &what);
    assert_eq!(printed, bare);
    let (kernels, timed, lacking) = times(&file);
    // (CUDA launches three times; an upload is stamped.)
    assert_eq!(lacking, [("past_cuda".to_owned(), kernels - timed)]);
    assert!(kernels - timed >= 2 * 16, "{kernels}, {timed}");
    let text = String::from_utf8(doorbell(&["show", "--kernels", &file]).stdout).unwrap();
    assert!(text.contains("by libdoorbell") && !text.contains("--tap trap"), "{text}");
}

#[test]
fn a_recording_without_them_has_no_times() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = recorded(dir.path(), &["--calls"], "chain-2");
    let all = rows(&file, "--gpu-times");
    assert_eq!((all["runs"].as_array().unwrap().len(), &all["kernel_times"]), (0, &Value::Null));
    let text = String::from_utf8(doorbell(&["show", &file, "--gpu-times"]).stdout).unwrap();
    assert!(text.contains("record --gpu-times"), "{text}");
    let kernels = rows(&file, "--kernels");
    assert_eq!((&kernels["gpu_times"], &kernels["kernels"][0]["gpu"]), (&Value::Bool(false), &Value::Null));
}

/// A GPU may read GP_PUT at any moment, not only at the doorbell, so a submission must be complete before GP_PUT is
/// written.
#[test]
fn a_gpu_that_does_not_wait_for_the_doorbell_stores_every_end() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..8 {
        let what = ["graphs", "--only", "one,chain-2", "--count", "400"];
        let (file, out) = run(dir.path(), &["--gpu-times"], &what, &[("DOORBELL_SOFTGPU", "poll")]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(times(&file), (1200, 1200, Vec::new()));
    }
}

#[test]
fn a_stamp_that_is_lost_is_counted_and_the_next_kernels_start_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    // The second kernel of the chain: its only release is the stamp.
    let lost = [("DOORBELL_SOFTGPU_FAULT", "lost-qmd-release:2")];
    let (file, out) = run(dir.path(), &["--gpu-times"], &["graphs", "--only", "chain-10", "--count", "1"], &lost);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (kernels, timed, lacking) = times(&file);
    assert_eq!((timed, lacking), (kernels - 1, vec![("not_ended".into(), 1)]));
    let all = rows(&file, "--gpu-times");
    let runs = all["runs"].as_array().unwrap();
    for run in runs {
        assert!(ns(run, "earliest_ns") <= ns(run, "start_ns") && ns(run, "start_ns") <= ns(run, "end_ns"), "{run}");
    }
    // It is no longer known what a kernel waited for.
    let of_the_first: Vec<_> = runs.iter().filter(|run| run["submission"] == runs[0]["submission"]).collect();
    assert!(of_the_first.iter().skip(1).all(|run| run["gpu"]["start"] == "bounded"), "{of_the_first:?}");
}

/// The GPU takes so many turns for the first kernel that it does not end while the test looks.
#[test]
fn a_kernel_that_does_not_end_is_named_while_the_program_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let sockets = test_support::private_folder(dir.path(), "run");
    let set = [("DOORBELL_SOFTGPU_FAULT", "slow-kernel:1000000000000"), ("XDG_RUNTIME_DIR", sockets.to_str().unwrap())];
    let (_, mut record) = record(dir.path(), &["--gpu-times"], &["graphs", "--only", "chain-2", "--count", "1"], &set);
    let mut recorder = record.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let program = || test_support::children(recorder.id() as i32).first().copied();
    let look = || -> Value {
        let mut why = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        why.env("XDG_RUNTIME_DIR", &sockets).args(["why", "--json", "--now", &program().unwrap_or(1).to_string()]);
        serde_json::from_slice(&why.output().unwrap().stdout).unwrap_or_default()
    };
    let begun = Instant::now();
    let mut now = look();
    while now["kernels"].as_array().is_none_or(Vec::is_empty) && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(200));
        now = look();
    }
    // (The program does not end by itself. Its recorder ends with it.)
    if let Some(pid) = program() {
        // SAFETY: a child of a child of this test.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let _ = recorder.wait();
    let kernel = &now["kernels"][0];
    assert!(kernel["ns"].as_u64().is_some_and(|ns| ns >= 500_000_000), "{now}");
    let name = kernel["name"].as_str().unwrap();
    let said: Vec<_> = now["answer"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    // The program waits for its stream.
    let of_graph = format!(" has not ended kernel {name} of graph 0x");
    assert!(said.iter().any(|line| line.starts_with("chain: thread ") && line.contains(&of_graph)), "{said:?}");
}

#[test]
fn of_a_channel_that_dies_the_other_kernels_keep_their_times() {
    let dir = tempfile::tempdir().unwrap();
    let dies = [("DOORBELL_SOFTGPU_FAULT", "dead-channel:6")];
    let (file, out) = run(dir.path(), &["--gpu-times"], &["graphs", "--only", "chain-10", "--count", "20"], &dies);
    assert!(!out.status.success(), "the program has an error");
    let (kernels, timed, lacking) = times(&file);
    assert!(timed >= 20 && timed < kernels, "{timed} of {kernels}");
    assert_eq!(lacking, [("not_ended".into(), kernels - timed)]);
    let all = rows(&file, "--gpu-times");
    assert_eq!(all["runs"].as_array().unwrap().len() as u64, timed);
}

#[test]
fn releases_that_the_program_uses_are_left_alone_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (_, bare) = recorded(dir.path(), &[], "chain-2");
    let used = [("DOORBELL_SOFTCUDA_RELEASES", "1")];
    let (file, out) = run(dir.path(), &["--gpu-times"], &["graphs", "--only", "chain-2"], &used);
    assert_eq!(String::from_utf8_lossy(&out.stdout), bare);
    let (kernels, timed, lacking) = times(&file);
    // (Launched again, a graph has the QMDs that it was uploaded with. Views do not know its kernels: no CUDA graph has
    // such ones.)
    assert_eq!((timed, &*lacking), (0, &[("words_in_use".into(), 2), ("not_understood".into(), kernels - 2)][..]));
    assert_eq!(rows(&file, "--gpu-times")["kernel_times"][0]["stamped"], 0, "nothing is waited for");
}

#[test]
fn a_part_of_a_gpu_and_confidential_computing_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_, bare) = recorded(dir.path(), &[], "chain-2");
    for (fault, words) in [("divided", "divided (MIG)"), ("confidential", "confidential computing is on")] {
        let set = [("DOORBELL_SOFTGPU_FAULT", fault)];
        let (file, out) = run(dir.path(), &["--gpu-times"], &["graphs", "--only", "chain-2"], &set);
        assert_eq!(String::from_utf8_lossy(&out.stdout), bare);
        let (kernels, timed, lacking) = times(&file);
        assert_eq!((timed, lacking), (0, vec![(fault.into(), kernels)]));
        assert_eq!(rows(&file, "--gpu-times")["kernel_times"][0]["state"], *fault);
        for view in ["--summary", "--kernels"] {
            let text = String::from_utf8(doorbell(&["show", &file, view]).stdout).unwrap();
            assert!(text.contains(words), "{text}");
        }
    }
}

/// A CUPTI whose calls succeed, and a library that CUDA injects, which turns records of kernels on and off as the
/// variable requests.
const CUPTI: &str =
    "int cuptiActivityEnable(unsigned kind) { return 0; }\nint cuptiActivityDisable(unsigned kind) { return 0; }\n";
const PROFILER: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void call(const char *name) {
    int (*f)(unsigned) = (int (*)(unsigned))dlsym(dlopen("libcupti.so.12", RTLD_NOW), name);
    if (!f || f(10)) abort();
}
static void *later(void *how) {
    usleep(150000);
    call(how);
    return 0;
}
int InitializeInjection(void) {
    const char *how = getenv("CUPTI_HOW");
    pthread_t t;
    if (!strcmp(how, "always") || !strcmp(how, "until")) call("cuptiActivityEnable");
    if (!strcmp(how, "until")) pthread_create(&t, 0, later, "cuptiActivityDisable");
    if (!strcmp(how, "later")) pthread_create(&t, 0, later, "cuptiActivityEnable");
    return dlopen("libcupti.so.12", RTLD_NOW) != 0;
}
"#;

#[test]
fn while_cupti_is_active_nothing_is_stamped_and_the_recording_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, options) in [("libcupti.so.12", CUPTI, &[][..]), ("profiler.so", PROFILER, &["-ldl", "-pthread"])]
    {
        let source = dir.path().join(name).with_extension("c");
        std::fs::write(&source, text).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(dir.path().join(name)).arg(&source).args(options);
        match cc.output() {
            Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
            Err(e) => test_support::skip!("no C compiler ({e})"),
        }
    }
    let (_, bare) = recorded(dir.path(), &[], "chain-2");
    let profiler = dir.path().join("profiler.so").to_str().unwrap().to_owned();
    let with = |how: &str, what: &[&str]| {
        let set = [("CUDA_INJECTION64_PATH", &*profiler), ("CUPTI_HOW", how)];
        let (file, out) = run(dir.path(), &["--gpu-times"], what, &set);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        (file, String::from_utf8(out.stdout).unwrap())
    };
    let chain = ["graphs", "--only", "chain-2"];
    let (file, printed) = with("always", &chain);
    assert_eq!(printed, bare);
    let (kernels, timed, lacking) = times(&file);
    assert_eq!((timed, lacking), (0, vec![("cupti".into(), kernels)]));
    assert_eq!(rows(&file, "--gpu-times")["kernel_times"][0]["state"], "cupti");
    for view in ["--summary", "--kernels", "--gpu-times"] {
        let text = String::from_utf8(doorbell(&["show", &file, view]).stdout).unwrap();
        assert!(text.contains("CUPTI was active"), "{text}");
    }
    // Only for a part of the time.
    let long = ["graphs", "--only", "chain-2", "--count", "100", "--duration", "1s"];
    for how in ["until", "later"] {
        let (file, _) = with(how, &long);
        let (kernels, timed, lacking) = times(&file);
        assert!(timed > 0 && timed < kernels, "{how}: {timed} of {kernels}");
        assert_eq!(lacking[0].0, "cupti", "{how}: {lacking:?}");
    }
    // Loaded, but not active.
    let (file, _) = with("never", &chain);
    let (kernels, timed, lacking) = times(&file);
    assert_eq!((timed, lacking), (kernels, Vec::new()));
}

/// `selfbench tap` measures launches that are stamped.
#[test]
fn selfbench_launches_are_stamped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.doorbell").to_str().unwrap().to_owned();
    let command = assert_cmd::cargo::cargo_bin!("doorbell").to_str().unwrap();
    let ways = ["record", "--quiet", "--gpu", "soft", "--gpu-times", "-o", &file, "--"];
    let printed = doorbell(&[&ways[..], &[command, "selfbench", "ring", "--count", "500"]].concat()).stdout;
    let loops: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(loops["loops"]["launch"]["n"], 500);
    let times = &rows(&file, "--gpu-times")["kernel_times"][0];
    // (The loop does not wait for the last ones. It has 1,000 more launches before the measured ones.)
    assert!(times["stamped"] == 1500 && times["timed"].as_u64() > Some(300), "{times}");
    assert_eq!(times["state"], "on");
}

/// More kernels than there are slots, and more words of graph launches than their memory holds.
#[test]
#[ignore = "22 s; run by .ci/run"]
fn slots_and_copies_of_segments_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let ways = ["--gpu-times", "--on-full", "wait"];
    let (file, _) = sample(dir.path(), &ways, &["graphs", "--only", "chain-2000", "--count", "150"]);
    let all = rows(&file, "--gpu-times");
    assert_eq!(all["kernel_times"][0]["lacking"], Value::Array(Vec::new()));
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 300_000);
    let mut latest = 0;
    for run in runs {
        assert!(ns(run, "start_ns") >= latest && ns(run, "end_ns") > latest, "one after the other: {run}");
        latest = ns(run, "end_ns");
    }
}
