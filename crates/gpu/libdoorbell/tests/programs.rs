//! The examples, as a stranger would build and run them, on the software GPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Of all examples together, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples")
}

/// Where cargo puts the libraries of this crate and of softgpu: beside this test.
fn libraries() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for name in ["libdoorbell.so", "libdoorbell_softgpu.so", "libsoftcuda.so"] {
        assert!(folder.join(name).is_file(), "no {name} in {}", folder.display());
    }
    folder
}

/// A command that has the software GPU and the library.
fn on_soft_gpu(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", libraries().join("libdoorbell_softgpu.so"));
    command.env("LD_LIBRARY_PATH", libraries()).env("DOORBELL_SOFTGPU", "poll");
    command
}

/// The same with a libcuda, in software too, which lies in `folder` under its name.
fn beside_cuda(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let link = folder.join("libcuda.so.1");
    if !link.exists() {
        std::os::unix::fs::symlink(libraries().join("libsoftcuda.so"), link).unwrap();
    }
    let mut command = on_soft_gpu(program);
    command.env("LD_LIBRARY_PATH", std::env::join_paths([folder, &libraries()]).unwrap());
    command
}

fn text(out: &Output) -> String {
    format!("{}\n{}{}", out.status, String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Compiles an example; `None`, said where skips are counted, without a compiler.
fn compiled(compiler: &str, standard: &str, source: &str, folder: &Path) -> Option<PathBuf> {
    if !test_support::installed(compiler) {
        test_support::skip_part!("no {compiler}");
        return None;
    }
    let source = examples().join(source);
    let to = folder.join(source.file_stem().unwrap());
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new(compiler);
    command.args(standard.split(' ')).args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(include);
    command.arg("-I").arg(examples().join("c"));
    command.arg("-o").arg(&to).arg(source).arg("-L").arg(libraries()).args(["-ldoorbell", "-ldl"]);
    let out = test_support::finished(&mut command, compiler);
    assert!(out.status.success(), "{}", text(&out));
    Some(to)
}

#[test]
fn check_finds_every_byte_right() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("cc", "-std=gnu11", "c/check.c", folder.path()) else { return };
    let profile = folder.path().join("profile.toml");
    write_profile(&profile, None);
    let with = |mut command: Command, profile: &str, way: &str| {
        let out = test_support::finished(command.arg("144").env("DOORBELL_PROFILE", profile), "check");
        let said = text(&out);
        assert!(out.status.success(), "{said}");
        assert!(said.contains("144 copies by 8 threads, every byte right") && said.contains("submit, alone"), "{said}");
        assert!(said.contains(&format!("64 bytes to the GPU: {way}")), "{said}");
    };
    with(on_soft_gpu(&program), "", "a copy engine: no profile");
    with(beside_cuda(&program, folder.path()), profile.to_str().unwrap(), "stores of the CPU: 64 B: host->bar1");
}

/// Runs an example and answers what it said.
fn said(compiler: &str, standard: &str, source: &str, argument: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(compiler, standard, source, folder.path())?;
    // The longest, 10,000 times open and close, takes 90 s alone on the machine.
    let out = test_support::finished_within(on_soft_gpu(&program).arg(argument), Duration::from_secs(900), source);
    let out = out.unwrap_or_else(|| panic!("{source} does not end"));
    assert!(out.status.success(), "{}", text(&out));
    Some(text(&out))
}

/// By the switch that a reader of examples/README.md uses.
#[test]
fn every_example_does_what_it_says_without_a_gpu() {
    for need in ["cc", "c++", "python3"] {
        if !test_support::installed(need) {
            test_support::skip!("no {need}");
        }
    }
    let mut run = Command::new(examples().join("run.sh"));
    let out = test_support::finished_within(run.args(["--soft", "--from"]).arg(libraries()), LIMIT, "run.sh");
    let said = text(&out.unwrap_or_else(|| panic!("the examples do not end")));
    assert!(said.starts_with("exit status: 0"), "{said}");
    let mut parts: Vec<(&str, &str)> = said.split("== ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    for (example, says) in [
        ("c/check.c", &["144 copies by 8 threads, every byte right"][..]),
        ("c/frame_loop.c", &["runs under SCHED_OTHER", " of the 50 frames that were due", "every result right"]),
        ("c/frames.c", &["100 frames"]),
        ("c/launch.c", &["100 launches by doorbell and 25 by CUDA", "every result right"]),
        ("c/message.c", &["100 messages of 56 bytes"]),
        (
            "c/order_cost.c",
            &["10 rounds", "kernel end -> next kernel   nothing between", "bytes there   64 KiB to host, ours"],
        ),
        ("c/ordered.c", &["every word right"]),
        ("c/pages.c", &["256 pages of 4096 bytes out and in, two submissions"]),
        ("c/parameters.c", &["100 updates of 56 bytes"]),
        ("c/peers.c", &["skipped: it needs two GPUs"]),
        ("c/undelayed.c", &[" compared, 0 wrong"]),
        ("cpp/frames.cpp", &["100 frames in C++"]),
        ("python/frame_loop.py", &[" of the 50 frames that were due", "every result right"]),
        ("python/frames.py", &["100 frames"]),
        ("python/kv_cache.py", &["pages"]),
        ("python/launch.py", &["100 launches of a graph of 2 kernels, every result right"]),
        ("python/load_model.py", &["1 tensors, 1200000 bytes, all equal"]),
        ("python/pages.py", &["256 pages"]),
        ("python/parameters.py", &["100 updates"]),
        ("python/server.py", &["100 requests, 100 frames, each answer right"]),
    ] {
        let at = parts.iter().position(|(name, _)| *name == example).unwrap_or_else(|| panic!("{example}: {said}"));
        let (_, part) = parts.remove(at);
        assert!(says.iter().all(|says| part.contains(says)), "{example}: {part}");
    }
    assert!(parts.is_empty(), "add them here: {parts:?}");
}

#[test]
fn copies_and_kernels_are_in_order_and_without_order_the_test_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("cc", "-std=gnu11", "c/ordered.c", folder.path()) else { return };
    let profile = folder.path().join("profile.toml");
    write_profile(&profile, None);
    for (arguments, says) in [
        (&["1200"][..], "every word right"),
        (&["300", "--without-order", "both"], "there are mismatches"),
        (&["300", "--without-order", "copy"], "there are mismatches"),
        (&["300", "--without-order", "stream"], "there are mismatches"),
    ] {
        // With a profile that names stores: what is ordered goes by engines all the same.
        let mut command = beside_cuda(&program, folder.path());
        let out = test_support::finished(command.args(arguments).env("DOORBELL_PROFILE", &profile), "ordered");
        assert!(out.status.success() && text(&out).contains(says), "{arguments:?}: {}", text(&out));
        let all = text(&out).lines().find(|line| line.starts_with("all ")).map(str::to_owned).unwrap();
        assert_eq!(all.split_whitespace().nth(2), Some(arguments[0]), "copies: {all}");
    }
}

#[test]
fn graphs_are_launched_in_order_with_their_own_parameters_and_what_is_wrong_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graph.c");
    let Some(program) = compiled("cc", "-std=gnu11", source.to_str().unwrap(), folder.path()) else { return };
    let out = test_support::finished(&mut beside_cuda(&program, folder.path()), "graph");
    assert!(out.status.success(), "{}", text(&out));
}

#[test]
fn chains_and_tickets_put_copies_and_launches_in_order_in_c() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chain.c");
    let Some(program) = compiled("cc", "-std=gnu11", source.to_str().unwrap(), folder.path()) else { return };
    let out = test_support::finished(&mut beside_cuda(&program, folder.path()), "chain");
    assert!(out.status.success(), "{}", text(&out));
}

/// By every way and number of threads; with a lane each no thread ever meets another.
#[test]
fn each_word_counts_the_launches_of_its_thread_on_one_lane_on_eight_and_by_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("cc", "-std=c11", "../docs/results/launch/lanes.c", folder.path()) else { return };
    let out = test_support::finished(beside_cuda(&program, folder.path()).args(["20", "1", "7", "6"]), "lanes");
    let said = text(&out);
    assert!(out.status.success() && said.contains("all right"), "{said}");
    assert!(said.contains("6 children of fork, 0 of them not refused"), "{said}");
    let at_once = said.lines().find(|line| line.starts_with("4 threads of each way at once: ")).expect(&said);
    assert!(!at_once.contains(" 0 by "), "{at_once}");
    for threads in ["1 thread", "8 threads", "64 threads"] {
        for way in ["one lane", "8 lanes", "CUDA"] {
            let head = format!("{threads}, {way}: ");
            let line = said.lines().find(|line| line.starts_with(&head)).unwrap_or_else(|| panic!("{head}: {said}"));
            let alone = threads == "1 thread" || way == "CUDA" || (threads, way) == ("8 threads", "8 lanes");
            assert!(!alone || line.contains("; 0 BUSY"), "{line}");
            assert!(!line.contains(": 0 launches"), "{line}");
        }
    }
}

/// Two copies of the library, as two packages bring them along that know nothing of each other.
#[test]
fn sessions_of_two_libraries_work_as_if_each_were_alone() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions.c");
    let Some(program) = compiled("cc", "-std=gnu11", source.to_str().unwrap(), folder.path()) else { return };
    let copies = ["one.so", "two.so"].map(|name| folder.path().join(name));
    for copy in &copies {
        std::fs::copy(libraries().join("libdoorbell.so"), copy).unwrap();
    }
    let out = test_support::finished(beside_cuda(&program, folder.path()).arg("2").args(&copies), "sessions");
    let said = text(&out);
    assert!(out.status.success() && said.contains("all right"), "{said}");
    assert_eq!(said.matches("session ").count(), 4, "{said}");
    assert!(!said.contains(": 0 copies") && !said.contains(" 0 launches"), "{said}");
}

#[test]
fn memory_that_cuda_frees_is_an_error_in_c_too() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/freed.c");
    let Some(program) = compiled("cc", "-std=gnu11", source.to_str().unwrap(), folder.path()) else { return };
    let out = test_support::finished(&mut beside_cuda(&program, folder.path()), "freed");
    assert!(out.status.success(), "{}", text(&out));
}

/// Each call is one that may take a second, on a machine with as many CPUs as threads. Here they may wait for a CPU.
#[test]
fn random_calls_with_faults_end_as_stated() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/random.c");
    let Some(program) = compiled("cc", "-std=gnu11", source.to_str().unwrap(), folder.path()) else { return };
    let mut command = beside_cuda(&program, folder.path());
    let out = test_support::finished(command.args(["3", "1"]).env("RANDOM_LIMIT_MS", "20000"), "random");
    let said = text(&out);
    assert!(out.status.success() && said.contains("all right"), "{said}");
}

/// A profile of this machine's, by which up to 256 bytes go by stores and loads of the CPU; `kernel`: taken under another.
fn write_profile(path: &Path, kernel: Option<&str>) {
    use submit::route_choice::{Facts, Key, Metric, Plan, Profile, Range};
    let range = |from, to, route: &str| Range { from, to, route: route.into(), by: Metric::P50 };
    let ranges = vec![range(1, Some(256), "host->bar1[flush]->gpu0"), range(257, None, "host->ce2->gpu0")];
    let back = vec![range(1, Some(256), "gpu0->bar1->host"), range(257, None, "gpu0->ce2->host")];
    let plan = |direction, ranges| {
        let (memory, load) = ("pinned".into(), Key::IDLE.into());
        let places = submit::route_choice::Places::Same;
        let key = Key { direction, memory, places, batch: 1, metric: Metric::P50, load };
        Plan { key, ranges, points: Vec::new(), undecided: Vec::new() }
    };
    let plans = vec![
        plan(submit::route_choice::Direction::ToGpu, ranges),
        plan(submit::route_choice::Direction::FromGpu, back),
    ];
    let mut facts: Facts = submit::route_choice::Facts::of_this_machine(true, None);
    facts.kernel = kernel.map_or(facts.kernel, str::to_owned);
    let taken = "2001-01-01T00:00:00Z".into();
    Profile { functional: true, taken, facts, plans }.save(path).unwrap();
}

#[test]
fn a_session_follows_the_profile_that_is_named_and_refuses_a_stale_one() {
    let folder = tempfile::tempdir().unwrap();
    let [good, stale] = ["good.toml", "stale.toml"].map(|name| folder.path().join(name));
    write_profile(&good, None);
    write_profile(&stale, Some("2.4.0"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profile.c");
    let ends = |mut command: Command, profile: &Path| {
        let out = test_support::finished(command.env("DOORBELL_PROFILE", profile), "profile");
        (out.status.code(), text(&out))
    };
    if let Some(program) = compiled("cc", "-std=c11", source.to_str().unwrap(), folder.path()) {
        let (code, said) = ends(on_soft_gpu(&program), &good);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("256: way 2, stores of the CPU: 256 B: host->bar1[flush]->gpu0"), "{said}");
        assert!(said.contains("257: way 0, a copy engine: 257 B: host->ce2->gpu0"), "{said}");
        let (code, said) = ends(on_soft_gpu(&program), &stale);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("kernel was \"2.4.0\" and is") && said.contains("doorbell calibrate"), "{said}");
    }
    let Some(mut command) = python() else { return };
    let script = "
import doorbell, os
stale = os.environ['STALE']
for options in ({}, {'profile': os.environ['DOORBELL_PROFILE']}, {'profile': True}):
    with doorbell.session(kind='soft', **options):
        host, gpu = doorbell.allocate(4096), doorbell.allocate(4096, 'gpu')
        for nbytes, way, route in (256, 'stores', 'bar1[flush]'), (257, 'engine', 'ce2'):
            found, why = doorbell.explain(gpu, host, nbytes, prepared=True)
            assert found == way and route in why, why
            host.view[:] = os.urandom(4096)
            assert doorbell.prepare(gpu, host, nbytes).submit().done() or way == 'engine'
            doorbell.copy_(gpu, host, nbytes)
            assert gpu.view[:nbytes] == host.view[:nbytes]
            assert doorbell.explain(host, gpu, nbytes)[0] == way.replace('stores', 'loads')
            doorbell.copy_(host, gpu, nbytes, dst_offset=1000)
            assert gpu.view[:nbytes] == host.view[1000:1000 + nbytes]
with doorbell.session(kind='soft', profile=False):
    assert 'no profile' in doorbell.explain(doorbell.allocate(64, 'gpu'), doorbell.allocate(64))[1]
try:
    doorbell.open(kind='soft', profile=stale)
except doorbell.Unavailable as error:
    assert '2.4.0' in str(error), error
    print('refused')
";
    command.args(["-c", script]).env("STALE", &stale);
    let (code, said) = ends(command, &good);
    assert!(code == Some(0) && said.contains("refused"), "{said}");
}

#[test]
fn what_is_wrong_is_an_error_and_no_crash() {
    let abi = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi.c");
    said("cc", "-std=gnu11", abi.to_str().unwrap(), "20");
}

/// While threads open, close and use sessions. (A thread of the parent has each lock of the library at some fork.)
#[test]
fn each_call_of_a_forked_child_returns() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forked.c");
    let Some(program) = compiled("cc", "-std=gnu11", source.to_str().unwrap(), folder.path()) else { return };
    let header = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/doorbell.h")).unwrap();
    let names: Vec<&str> =
        header.lines().filter_map(|line| Some(line.strip_prefix("int32_t ")?.split_once('(')?.0)).collect();
    assert!(names.len() > 50 && names.contains(&"doorbell_loop_next"), "{names:?}");
    for with_session in ["1", "0"] {
        let mut command = beside_cuda(&program, folder.path());
        let out = test_support::finished(command.args(["60", with_session]).args(&names), "forked");
        assert!(out.status.success(), "session {with_session}: {}", text(&out));
    }
}

/// What the library reads and writes of a program's memory, under AddressSanitizer and under valgrind.
#[test]
#[ignore = "minutes; run by .ci/run --long"]
fn long_c_programs_are_clean_under_the_address_sanitizer_and_valgrind() {
    let (folder, limit) = (tempfile::tempdir().unwrap(), Duration::from_secs(600));
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let runtime = Command::new("cc").arg("-print-file-name=libasan.so").output();
    let runtime = runtime.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default();
    if Path::new(&runtime).is_absolute() {
        for name in ["chain.c", "freed.c"] {
            let Some(program) =
                compiled("cc", "-std=gnu11 -fsanitize=address", source(name).to_str().unwrap(), folder.path())
            else {
                return;
            };
            let mut command = beside_cuda(&program, folder.path());
            let soft = libraries().join("libdoorbell_softgpu.so");
            command.env("LD_PRELOAD", format!("{runtime}:{}", soft.display()));
            // (Memory of the software GPU lives until the process ends.)
            command.env("ASAN_OPTIONS", "protect_shadow_gap=0:detect_leaks=0");
            let out = test_support::finished_within(&mut command, limit, name).expect("it ends");
            assert!(out.status.success(), "{name}: {}", text(&out));
        }
    } else {
        test_support::skip_part!("no libasan");
    }
    if !test_support::installed("valgrind") {
        test_support::skip_part!("no valgrind");
        return;
    }
    let Some(program) = compiled("cc", "-std=gnu11", source("abi.c").to_str().unwrap(), folder.path()) else { return };
    let mut command = on_soft_gpu("valgrind");
    command.args(["-q", "--error-exitcode=9"]).arg(&program).arg("1");
    let out = test_support::finished_within(&mut command, limit, "valgrind").expect("it ends");
    assert!(out.status.success(), "{}", text(&out));
}

/// Each function that Python declares, with each kind of wrong argument, one at a time.
#[test]
fn wrong_arguments_of_each_function_are_errors() {
    let Some(mut command) = python() else { return };
    let tests = examples().join("../python/tests/test_arguments.py");
    let out = test_support::finished(command.arg(tests).arg("-v"), "python3");
    let said = text(&out);
    assert!(out.status.success() && said.contains("OK") && !said.contains("skipped"), "{said}");
}

#[test]
#[ignore = "10,000 times open and close take a minute; run by .ci/run"]
fn a_program_may_open_and_close_ten_thousand_times() {
    let abi = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi.c");
    said("cc", "-std=gnu11", abi.to_str().unwrap(), "10000");
}

/// python3 with the package; `None`, said where skips are counted, without it.
fn python() -> Option<Command> {
    if !test_support::installed("python3") {
        test_support::skip_part!("no python3");
        return None;
    }
    let mut command = on_soft_gpu("python3");
    command.env("PYTHONPATH", examples().join("../python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("DOORBELL_LIB", libraries().join("libdoorbell.so"));
    Some(command)
}

#[test]
fn the_python_package_passes_its_tests() {
    for (file, test) in [("test_doorbell.py", "test_every_way_of_copying"), ("test_kv_cache.py", "")] {
        let Some(mut command) = python() else { return };
        let out =
            test_support::finished(command.arg(examples().join("../python/tests").join(file)).arg("-v"), "python3");
        assert!(out.status.success(), "{}", text(&out));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains(test) && said.contains("\nRan "), "{said}");
        for line in said.lines().filter(|line| line.contains(" ... skipped ")) {
            test_support::skip_part!("{line}");
        }
    }
}

/// A test of the Python package that needs a libcuda; what it said.
fn python_beside_cuda(test: &str) -> Option<String> {
    let mut command = python()?;
    let folder = tempfile::tempdir().unwrap();
    let paths = beside_cuda("true", folder.path());
    for (name, value) in paths.get_envs().filter(|(name, _)| *name == "LD_LIBRARY_PATH") {
        command.env(name, value.unwrap());
    }
    let out = test_support::finished(command.arg(examples().join("../python/tests").join(test)).arg("-v"), "python3");
    let said = text(&out);
    assert!(out.status.success() && !said.contains("skipped"), "{said}");
    Some(said)
}

#[test]
fn beside_cuda_python_has_an_error_for_each_thing_that_is_gone() {
    let Some(said) = python_beside_cuda("test_beside_cuda.py") else { return };
    assert!(said.contains("test_what_cuda_frees") && said.contains("launched_by_torchs"), "{said}");
}

#[test]
fn what_was_removed_is_an_error_that_names_the_page() {
    let Some(mut command) = python() else { return };
    command.args(["-c", "from doorbell.torch import CUDAGraph"]);
    let said = text(&test_support::finished(&mut command, "python3"));
    assert!(
        said.contains("ImportError: doorbell.torch was removed") && said.contains("docs/results/torch-graph.md"),
        "{said}"
    );
}
