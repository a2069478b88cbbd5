//! CUDA calls on the tape, and under the guard, with libraries that have CUDA's names and check their
//! arguments.
//!
//! Libraries and programs are C, compiled here; without a C compiler the tests print that and pass.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tape::call::{CallBody, Function, flag, function};
use tape::event::{Body, Events};
use tape::file::{Item, Reader};

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls").join(name)
}

/// The folder of the libraries and programs; `None` without a C compiler.
fn built() -> Option<&'static Path> {
    static DIR: OnceLock<Result<tempfile::TempDir, String>> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_str().unwrap();
        let cc = |args: &str, sources: &[&str]| -> Result<(), String> {
            let mut cc = Command::new("cc");
            cc.current_dir(dir.path()).args(["-O2", "-pthread"]).args(sources.iter().map(|s| source(s)));
            cc.args(args.split(' ')).arg(format!("-Wl,-rpath,{at}"));
            let out = cc.output().map_err(|e| format!("no C compiler ({e})"))?;
            assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
            Ok(())
        };
        let library = "-shared -fPIC -Wl,-soname,";
        let all = [
            (format!("{library}libcuda.so.1 -o libcuda.so.1"), &["libcuda.c"][..]),
            (format!("{library}libcudart.so.13 -Wl,-z,now -o libcudart.so.13"), &["libcudart.c"]),
            ("-rdynamic -o plain".into(), &["app.c"]),
            ("-DDRIVER -rdynamic -Wl,-z,lazy libcuda.so.1 -o lazy".into(), &["app.c"]),
            ("-DDRIVER -Wl,-z,now -Wl,-z,relro libcuda.so.1 -o now".into(), &["app.c"]),
            ("-DDRIVER -no-pie -fno-pie libcuda.so.1 -o fixed".into(), &["app.c"]),
            ("-DRUNTIME libcudart.so.13 -o dynamic".into(), &["app.c"]),
            ("-DRUNTIME -DHIDDEN -o static".into(), &["app.c", "libcudart.c"]),
            ("-shared -fPIC -Wl,-z,now libcudart.so.13 -o plugin-now.so".into(), &["plugin.c"]),
            ("-shared -fPIC -Wl,-z,lazy libcudart.so.13 -o plugin-lazy.so".into(), &["plugin.c"]),
            // Segments as older linkers make them (symbols next to code), and the older hash table.
            (format!("{library}libcuda.so.1 -Wl,-z,noseparate-code -Wl,--hash-style=sysv -o old.so"), &["libcuda.c"]),
        ];
        // The libraries first: the others link them.
        let (libraries, others) = all.split_at(2);
        libraries.iter().try_for_each(|(args, sources)| cc(args, sources))?;
        std::thread::scope(|scope| {
            let all: Vec<_> = others.iter().map(|(args, sources)| scope.spawn(|| cc(args, sources))).collect();
            all.into_iter().try_for_each(|one| one.join().unwrap())
        })?;
        Ok(dir)
    });
    match dir {
        Ok(dir) => Some(dir.path()),
        Err(reason) => test_support::skip!("{reason}"),
    }
}

/// One of those programs, with or without doorbell before it.
fn start(dir: &Path, before: &[&str], program: &str, how: &str) -> Output {
    let mut command = match before {
        [] => Command::new(dir.join(program)),
        _ => {
            let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
            c.args(before).arg("--").arg(dir.join(program));
            c
        }
    };
    command.current_dir(dir).arg(how).env("LD_LIBRARY_PATH", dir).stdin(Stdio::null());
    command.output().unwrap()
}

struct Call {
    tid: i32,
    f: &'static Function,
    ended: u64,
    body: CallBody,
    /// It has returned.
    done: bool,
}

/// Runs a program plain and recorded: output and status must be the same. Returns the calls.
fn recorded(program: &str, how: &str, options: &[&str]) -> Option<Vec<Call>> {
    let dir = built()?;
    let tape = dir.join(format!("{program}-{how}{}.doorbell", options.concat()));
    let before = [&["record", "--force", "--quiet", "--out", tape.to_str().unwrap()][..], options].concat();
    // In parallel: some of them sleep.
    let (plain, out) = std::thread::scope(|scope| {
        let plain = scope.spawn(|| start(dir, &[], program, how));
        let out = start(dir, &before, program, how);
        (plain.join().unwrap(), out)
    });
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert_eq!(text(&out.stdout), text(&plain.stdout), "{program} {how}: {}", text(&out.stderr));
    assert_eq!(text(&out.stderr), text(&plain.stderr), "{program} {how}");
    if how != "killed" {
        assert_eq!(out.status.code(), plain.status.code(), "{program} {how}");
        assert_eq!(plain.status.code(), Some(0), "{program} {how}");
    }
    Some(calls(&tape))
}

fn calls(tape: &Path) -> Vec<Call> {
    let mut reader = Reader::open(tape).unwrap();
    let mut out = Vec::new();
    let mut begun = false;
    while let Some(item) = reader.item().unwrap() {
        let Item::Events { tid, bytes, .. } = item else { continue };
        for e in Events::new(&bytes) {
            let (body, done) = match e.body {
                Body::Calls(c) => {
                    assert_eq!(c.layout, tape::call::LAYOUT);
                    begun = true;
                    continue;
                }
                Body::Call(b) => (b, true),
                Body::InCall(b) => (b, false),
                _ => continue,
            };
            assert!(begun, "the first event comes first");
            assert!(body.began <= e.head.tsc && body.site != 0);
            let f = function(e.head.flags).unwrap_or_else(|| panic!("function {}", e.head.flags));
            out.push(Call { tid, f, ended: e.head.tsc, body, done });
        }
    }
    out
}

/// Name, variant, result, size, stream, object, calls inside.
type Row = (&'static str, u16, i32, u64, u64, u64, u16);

fn rows(calls: &[Call]) -> Vec<Row> {
    let row = |c: &Call| {
        let b = &c.body;
        // (The thread's own default stream.)
        let stream = if b.stream == tape::call::of_thread(c.tid) { 2 } else { b.stream };
        (c.f.name, b.flags, b.result, b.size, stream, b.object, b.inner)
    };
    calls.iter().map(row).collect()
}

const PT: u16 = flag::PER_THREAD;

#[test]
fn a_program_that_links_the_driver_is_seen_with_all_its_arguments() {
    for program in ["lazy", "now", "fixed"] {
        let Some(calls) = recorded(program, "linked", &["--calls"]) else { return };
        let expected = [
            ("cuLaunchKernel", 0, 6, 6 * 7 * 8, 0x51, 0xf1, 0),
            ("cuLaunchKernel", PT, 9, 9, 2, 0xf2, 0),
            ("cuLaunchKernel", 0, 3, 3, 0x53, 0xf3, 0),
            ("cuEventQuery", 0, 600, 0, 0, 0xe1, 0),
            ("cuMemcpyHtoD", 0, 201, 5, 0, 0xd000, 0),
            ("cuMemcpy2D", 0, 0, 2000, 0, 0, 0),
            ("cuLaunchKernelEx", 0, 5, 60, 0x55, 0xf4, 0),
            ("cuLaunchKernelEx", 0, 1, 0, 0, 0xf4, 0),
            ("cuStreamCreate", 0, 1, 0, 0, 0, 0),
            ("cuStreamDestroy", 0, 0, 0, 0x57, 0, 0),
            ("cuLibraryLoadData", 0, 12, 0, 0, 0, 0),
        ];
        assert_eq!(rows(&calls), expected, "{program}");
        assert!(calls.windows(2).all(|w| w[0].ended <= w[1].body.began && w[0].tid == w[1].tid), "{program}");
    }
}

/// The names on the tape of the last program, in their order.
fn names(tape: &Path) -> Vec<(u64, String)> {
    let mut reader = Reader::open(tape).unwrap();
    let mut out = Vec::new();
    while let Some(item) = reader.item().unwrap() {
        let Item::Events { bytes, .. } = item else { continue };
        out.extend(Events::new(&bytes).filter_map(|event| match event.body {
            Body::Name(n, name) => Some((n.handle, String::from_utf8_lossy(name).into_owned())),
            _ => None,
        }));
    }
    out
}

#[test]
fn each_kernel_is_named_once_by_whichever_call_knows_it() {
    let Some(dir) = built() else { return };
    let named = |program: &str, how: &str| {
        let tape = tempfile::NamedTempFile::new().unwrap();
        let path = tape.path().to_str().unwrap();
        let plain = start(dir, &[], program, how);
        let out = start(dir, &["record", "--force", "--quiet", "--calls", "--out", path], program, how);
        assert_eq!((out.status.code(), &out.stdout), (plain.status.code(), &plain.stdout), "{program} {how}");
        names(tape.path())
    };
    let all = |handles: &[(u64, &str)]| handles.iter().map(|(h, n)| (*h, (*n).to_owned())).collect::<Vec<_>>();
    let (add, mul) = ("_Z3addPiRKf", "triton_mul");
    assert_eq!(named("now", "linked"), all(&[(0xf1, add), (0xf2, add), (0xf3, add), (0xf4, mul)]));
    // A handle without a known name; and a library that is unloaded and loaded again, with the same
    // handles.
    assert_eq!(named("plain", "found"), all(&[(0xf1, add)]));
    assert_eq!(named("plain", "found-local"), all(&[(0xf1, add), (0xf1, add)]));
    // The runtime is the outermost call, the driver's launch within it names the kernel.
    assert_eq!(named("dynamic", "runtime"), all(&[(0xf1, add), (0xf6, mul)]));
}

#[test]
fn what_dlsym_and_cu_get_proc_address_give_is_seen() {
    let expected = [
        ("cuLaunchKernel", 0, 6, 6 * 7 * 8, 0x51, 0xf1, 0),
        ("cuMemcpyHtoDAsync", PT, 0, 4096, 0x52, 0xd000, 0),
        ("cuLaunchKernel", PT, 2, 8, 2, 0xf5, 0),
    ];
    let Some(calls) = recorded("plain", "found", &["--calls"]) else { return };
    assert_eq!(rows(&calls), expected);
    // Loaded, unloaded, and loaded again.
    let Some(calls) = recorded("plain", "found-local", &["--calls"]) else { return };
    assert_eq!(rows(&calls), [expected, expected].concat());
}

#[test]
fn an_older_library_is_seen_too() {
    let Some(dir) = built() else { return };
    let old = tempfile::tempdir().unwrap();
    std::fs::copy(dir.join("old.so"), old.path().join("libcuda.so.1")).unwrap();
    let tape = old.path().join("t.doorbell");
    let run = |command: &mut Command| {
        let out = command.arg("found").env("LD_LIBRARY_PATH", old.path()).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let plain = run(&mut Command::new(dir.join("plain")));
    let mut doorbell = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    doorbell.args(["record", "--force", "--quiet", "--calls", "--out"]).arg(&tape).arg("--").arg(dir.join("plain"));
    assert_eq!(run(&mut doorbell), plain);
    assert_eq!(calls(&tape).len(), 3);
}

#[test]
fn the_runtimes_calls_are_seen_once_where_it_is_a_library_and_the_drivers_where_it_is_not() {
    let h2d = 2 << flag::DIRECTION_SHIFT;
    let Some(calls) = recorded("dynamic", "runtime", &["--calls"]) else { return };
    let expected = [
        ("cudaLaunchKernel", 0, 6, 6 * 7 * 8, 0x51, 0xf1, 1),
        ("cudaMemcpyAsync", h2d, 0, 1 << 20, 0x52, 0xd000, 1),
        ("cudaStreamSynchronize", 0, 0, 0, 0x51, 0, 1),
        // In the library cudaLaunchKernel is called by its own address.
        ("__cudaLaunchKernel", 0, 5, 5, 0x56, 0xf6, 1),
    ];
    assert_eq!(rows(&calls), expected);
    let Some(calls) = recorded("static", "runtime", &["--calls"]) else { return };
    let expected = [
        ("cuLaunchKernel", 0, 6, 6 * 7 * 8, 0x51, 0xf1, 0),
        ("cuMemcpyHtoDAsync", 0, 0, 1 << 20, 0x52, 0xd000, 0),
        ("cuStreamSynchronize", 0, 0, 0, 0x51, 0, 0),
        ("cuLaunchKernel", 0, 5, 5, 0x56, 0xf6, 0),
    ];
    assert_eq!(rows(&calls), expected);
}

/// Stream, result, copies, bytes, destination and source of the first copy: as a line of the program's output.
fn batch(c: &Call) -> String {
    let b = &c.body;
    format!("{:x} {} {} {} {:x} {:x}", b.stream, b.result, b.copies, b.size, b.object, b.source)
}

/// `show --calls` of the program's recording: as JSON, and as text.
fn shown(program: &str, how: &str) -> (serde_json::Value, String) {
    let tape = built().unwrap().join(format!("{program}-{how}--calls.doorbell"));
    let show = |options: &[&str]| {
        let mut doorbell = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        let out = doorbell.args(["show", "--calls"]).args(options).arg(&tape).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    (serde_json::from_str(&show(&["--json"])).unwrap(), show(&[]))
}

#[test]
fn batches_of_both_generations_have_the_programs_own_counts() {
    for (program, how) in [("now", "batches"), ("lazy", "batches"), ("plain", "batches-found")] {
        let Some(calls) = recorded(program, how, &["--calls"]) else { return };
        let plain = start(built().unwrap(), &[], program, how);
        let counts = String::from_utf8_lossy(&plain.stdout).into_owned();
        assert_eq!(String::from_utf8_lossy(&plain.stderr), "failed 12 13 tables 0 500 0\n");
        assert_eq!((calls.len(), counts.lines().count()), (8, 8), "{program}: {counts}");
        let mut bytes = 0;
        for (i, (call, count)) in calls.iter().zip(counts.lines()).enumerate() {
            assert_eq!(call.f.name, if i < 5 { "cuMemcpyBatchAsync" } else { "cuMemcpy3DBatchAsync" });
            // Only so many are added up; elements of CUDA arrays count as bytes.
            let known = match i {
                3 => count.replace(" 12502500 ", " 8390656 "),
                7 => count.replace(" 2420 ", " 2105 "),
                _ => count.to_owned(),
            };
            assert_eq!(known != count, [3, 7].contains(&i), "{count}");
            assert_eq!(batch(call), known, "{program}");
            assert_eq!(call.body.flags, if known == count { 0 } else { flag::AT_LEAST }, "{count}");
            bytes += call.body.size;
        }
        let (json, text) = shown(program, how);
        let total = &json["totals"]["async copy"];
        assert_eq!((&total["copies"], &total["bytes"]), (&(64 * 2 + 1 + 5000 + 6).into(), &bytes.into()), "{total}");
        assert_eq!((&total["bytes_at_least"], &json["export_tables"]), (&true.into(), &2.into()));
        assert!(text.contains("cuMemcpyBatchAsync to 16 MiB, at least 8.00 MiB in 5,000 copies  "), "{text}");
        assert!(text.contains("2 tables of functions without names, from cuGetExportTable"), "{text}");
    }
}

#[test]
fn a_batch_by_the_runtime_is_the_drivers_call_in_both_of_its_forms() {
    for program in ["dynamic", "static"] {
        let Some(calls) = recorded(program, "runtime-batch", &["--calls"]) else { return };
        let rows: Vec<_> = calls.iter().map(|c| (c.f.name, batch(c), c.body.flags)).collect();
        assert_eq!(rows, [("cuMemcpyBatchAsync", "59 2 2 4173 d000 abc".into(), 0)], "{program}");
        assert_eq!(shown(program, "runtime-batch").0["export_tables"], 1, "{program}");
    }
}

#[test]
fn libraries_that_come_later_are_seen_and_may_go() {
    let Some(calls) = recorded("plain", "plugins", &["--calls"]) else { return };
    let sizes: Vec<_> = calls.iter().map(|c| (c.f.name, c.body.size)).collect();
    let expected: Vec<_> = [1, 7, 7, 7, 2, 3, 4]
        .into_iter()
        .flat_map(|n| [("cudaLaunchKernel", n), ("cudaDeviceSynchronize", 0)])
        .collect();
    assert_eq!(sizes, expected);
    // Four threads that load, look up, call and unload at the same time.
    let Some(calls) = recorded("plain", "churn", &["--calls"]) else { return };
    let launches = calls.iter().filter(|c| c.f.name == "cudaLaunchKernel").count();
    assert_eq!((launches, calls.len()), (400, 800));
    assert!(calls.iter().all(|c| c.done && c.body.result == c.body.size as i32 % 1000));
}

#[test]
fn a_library_that_is_loaded_at_ever_other_places_is_seen_each_time() {
    let Some(calls) = recorded("plain", "reloads", &["--calls"]) else { return };
    let sizes: Vec<_> = calls.iter().map(|c| (c.f.name, c.body.size)).collect();
    assert_eq!(sizes, (1..=12).map(|n| ("cuLaunchKernel", n)).collect::<Vec<_>>());
}

#[test]
fn locks_bring_calls_along_and_fall_within_them() {
    let Some(found) = recorded("dynamic", "runtime", &["--locks"]) else { return };
    assert_eq!(found.len(), 4);
    let tape = built().unwrap().join("dynamic-runtime--locks.doorbell");
    let mut reader = Reader::open(&tape).unwrap();
    let mut inside = 0;
    while let Some(item) = reader.item().unwrap() {
        let Item::Events { bytes, .. } = item else { continue };
        for e in Events::new(&bytes) {
            if let Body::Pair(p) = e.body {
                let taken = e.head.tsc - u64::from(p.hold);
                inside += usize::from(found.iter().any(|c| c.body.began <= taken && e.head.tsc <= c.ended));
            }
        }
    }
    // The stub takes its mutex 12 times in each launch by cuGetProcAddress and 4 times in a copy.
    assert_eq!(inside, 28);
    let Some(calls) = recorded("dynamic", "runtime", &["--locks", "--no-calls"]) else { return };
    assert!(calls.is_empty());
}

#[test]
fn threads_that_end_and_their_last_destructors_are_seen() {
    let Some(calls) = recorded("dynamic", "threads", &["--calls"]) else { return };
    let count = |name| calls.iter().filter(|c| c.f.name == name).count();
    assert_eq!((count("cudaMemcpyAsync"), count("cudaLaunchKernel")), (3 * 20 * 100, 3 * 20 * 4));
    assert!(calls.iter().all(|c| c.body.inner == 1));
    // Each thread's copies are there, in order.
    for thread in 0..20u64 {
        let sizes: Vec<u64> = calls
            .iter()
            .filter(|c| c.f.name == "cudaMemcpyAsync" && c.body.object == 1000 + thread)
            .map(|c| c.body.size)
            .collect();
        assert_eq!(sizes.len(), 300);
        assert_eq!(sizes.iter().sum::<u64>(), 3 * (0..100).sum::<u64>());
    }
}

#[test]
fn forked_children_are_recorded_as_processes_of_their_own() {
    let Some(calls) = recorded("dynamic", "forked", &["--calls"]) else { return };
    let mut all: Vec<(&str, u64, i32)> = calls.iter().map(|c| (c.f.name, c.body.size, c.tid)).collect();
    all.sort_unstable();
    let (sync, launch) = ("cudaDeviceSynchronize", "cudaLaunchKernel");
    let parent = all[0].2;
    let [a, b, c] = [all[2].2, all[3].2, all[4].2];
    let child = |tid| (launch, 6 * 7 * 8, tid);
    assert_eq!(all, [(sync, 0, parent), (launch, 4, parent), child(a), child(b), child(c)]);
    assert!(![a, b, c].contains(&parent) && a != b && b != c);
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn a_child_forked_during_a_lookup_looks_up() {
    let Some(calls) = recorded("plain", "looks-and-forks", &["--calls"]) else { return };
    let out = start(built().unwrap(), &[], "plain", "looks-and-forks");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "0 children failed\n");
    assert!(calls.iter().all(|c| c.f.name == "cuLaunchKernel"));
}

#[test]
fn a_function_with_more_variants_than_entries_is_named_as_incomplete() {
    let Some(calls) = recorded("plain", "variants", &["--calls"]) else { return };
    let queries: Vec<i32> = calls.iter().filter(|c| c.f.name == "cuEventQuery").map(|c| c.body.result).collect();
    let tape = built().unwrap().join("plain-variants--calls.doorbell");
    let mut reader = Reader::open(&tape).unwrap();
    let mut trouble = Vec::new();
    while let Some(item) = reader.item().unwrap() {
        if let Item::End(end) = item {
            trouble = end.trouble;
        }
    }
    // One entry is that of the exported function.
    assert_eq!(queries, (600..607).collect::<Vec<i32>>());
    assert!(trouble.iter().any(|t| t.contains("more variants")), "{trouble:?}");
}

#[test]
fn the_call_in_which_a_program_was_killed_is_seen() {
    let Some(calls) = recorded("dynamic", "killed", &["--calls"]) else { return };
    let [c] = &calls[..] else { panic!("{} calls", calls.len()) };
    assert_eq!((c.f.name, c.done, c.body.stream), ("cudaStreamSynchronize", false, 0xdead));
}

#[test]
fn a_thread_that_is_cancelled_in_a_call_is_unwound_through_it() {
    let Some(calls) = recorded("dynamic", "cancelled", &["--calls"]) else { return };
    let rows: Vec<_> = calls.iter().map(|c| (c.f.name, c.done)).collect();
    assert!(rows.contains(&("cudaStreamSynchronize", false)) && rows.contains(&("cudaLaunchKernel", true)), "{rows:?}");
    assert_eq!(rows.len(), 2, "{rows:?}");
}

#[test]
fn a_program_without_cuda_finds_nothing_of_it_and_looks_up_as_ever() {
    let Some(calls) = recorded("plain", "without", &["--calls"]) else { return };
    assert!(calls.is_empty());
    let Some(calls) = recorded("plain", "without", &["--locks", "--no-calls"]) else { return };
    assert!(calls.is_empty());
    let Some(dir) = built() else { return };
    let plain = start(dir, &[], "plain", "without");
    let guarded = start(dir, &["run", "--lock-policy", "guard"], "plain", "without");
    assert_eq!((guarded.stdout, guarded.status.code()), (plain.stdout, Some(0)));
}

fn guarded(how: &str, policy: &str) -> Option<(Output, String)> {
    let dir = built()?;
    let report = dir.join(format!("report-{how}-{}", policy.len()));
    let before = ["run", "--lock-policy", policy, "--force", "--out", report.to_str().unwrap()];
    let out = start(dir, &before, "lazy", how);
    assert_eq!(out.status.code(), Some(0), "{how} under {policy}: {}", String::from_utf8_lossy(&out.stderr));
    Some((out, std::fs::read_to_string(report).unwrap()))
}

#[test]
fn the_cost_of_a_call_is_measured() {
    let mut doorbell = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = doorbell.args(["selfbench", "calls", "--json", "--rounds", "1", "--count", "5000"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for key in ["bare_call_ns", "tapped_call_ns", "guarded_call_ns", "two_clock_reads_ns", "clocked_call_ns"] {
        assert!(v[key].as_f64().is_some_and(|ns| ns > 0.0), "{key}: {v}");
    }
    assert!(v["added_call_ns"].is_number() && v["lost_events"].is_number(), "{v}");
    // The loop needs the agent.
    let mut doorbell = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = doorbell.args(["selfbench", "call-loop"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn the_guard_lets_one_copy_in_at_a_time() {
    for policy in ["guard", "pi,guard"] {
        let Some((out, report)) = guarded("guarded", policy) else { return };
        assert_eq!(String::from_utf8_lossy(&out.stdout), "most at a time: 1, child 0\n");
        // 80 copies, a launch with a copy inside, which does not count, and the child's launch.
        assert!(report.contains("doorbell: 82 CUDA calls through the guard"), "{report}");
        assert!(!report.contains("went on without"), "{report}");
        // Eight threads with copies of 2 ms: some have waited.
        assert!(!report.contains(", 0 waited") && report.contains("us at most"), "{report}");
    }
    let Some((out, report)) = guarded("guarded", "stock") else { return };
    assert_eq!(String::from_utf8_lossy(&out.stdout), "most at a time: more, child 0\n");
    assert!(!report.contains("guard"), "{report}");
}

#[test]
fn a_plan_asks_for_the_guard() {
    let Some(dir) = built() else { return };
    let plan = dir.join("plan.toml");
    std::fs::write(&plan, "mutexes = \"ticket\"\ncalls = \"guard\"\n").unwrap();
    let Some((_, report)) = guarded("guarded", plan.to_str().unwrap()) else { return };
    assert!(report.contains("82 CUDA calls through the guard") && report.contains("under ticket"), "{report}");
}

#[test]
fn a_call_that_waits_for_another_threads_call_does_not_wait_for_ever() {
    let Some((out, report)) = guarded("dependent", "guard") else { return };
    assert_eq!(String::from_utf8_lossy(&out.stdout), "both returned\n");
    assert!(report.contains("1 went on without it after a second"), "{report}");
}

#[test]
fn a_call_that_never_returns_keeps_the_guard_from_nobody() {
    // In parallel: each waits for the guard or the program's end.
    let (left, ended) = std::thread::scope(|scope| {
        let left = scope.spawn(|| guarded("left", "guard"));
        let ended = guarded("ended", "guard");
        (left.join().unwrap(), ended)
    });
    // Left by the end of its thread, and by a jump.
    let Some((out, report)) = left else { return };
    assert_eq!(String::from_utf8_lossy(&out.stdout), "5 6 6 6 0\n");
    assert!(report.contains("doorbell: 6 CUDA calls through the guard"), "{report}");
    assert!(!report.contains("went on without"), "{report}");
    // A thread that is still inside when the program ends.
    let Some((out, report)) = ended else { return };
    assert_eq!(String::from_utf8_lossy(&out.stdout), "inside\nat the end 0\n");
    assert!(report.contains("2 CUDA calls through the guard, 1 waited for it"), "{report}");
    assert!(report.contains("1 went on without it after a second"), "{report}");
}

#[test]
fn a_call_that_was_left_by_a_jump_does_not_hide_those_behind_it() {
    let Some(calls) = recorded("now", "left", &["--calls"]) else { return };
    let rows: Vec<_> = calls.iter().map(|c| (c.f.name, c.done, c.body.result)).collect();
    let launch = ("cuLaunchKernel", true, 6);
    let (ended, copy) = (("cuLaunchKernel", false, 0), ("cuMemcpyHtoD", true, 0));
    // Two have no result: its thread ended in one, and jumped out of the other.
    let mut expected = vec![ended, ended, launch, launch, launch, copy];
    let mut found = rows.clone();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{rows:?}");
}

#[test]
fn the_guard_changes_no_result() {
    let Some(dir) = built() else { return };
    for (program, how) in [("lazy", "linked"), ("now", "linked"), ("plain", "found"), ("static", "runtime")] {
        let plain = start(dir, &[], program, how);
        let out = start(dir, &["run", "--lock-policy", "guard"], program, how);
        let text = |o: &Output| (String::from_utf8_lossy(&o.stdout).into_owned(), o.status.code());
        assert_eq!(text(&out), text(&plain), "{program} {how}");
    }
}
