//! `run --fix`: programs get the results that they get without it, and their other threads wait less.
//!
//! The program is C (`fix/app.c`), with CUDA in software, which holds its lock as long as the real one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_support::{Source, finished, link_softcuda, measured};

macro_rules! needs {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(why) => test_support::skip!("{why}"),
        }
    };
}

/// The program, with CUDA in software in the folder `dir`.
struct App {
    dir: tempfile::TempDir,
    program: PathBuf,
    softgpu: PathBuf,
}

impl App {
    fn new() -> Result<App, String> {
        let dir = tempfile::tempdir().unwrap();
        let library = link_softcuda(dir.path())?.canonicalize().unwrap();
        let softgpu = library.with_file_name("libdoorbell_softgpu.so");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fix/app.c");
        let program = Source { file: &file, compiler: "cc", flags: &["-ldl"] }.compile(dir.path())?;
        Ok(App { dir, program, softgpu })
    }

    /// doorbell, whose program finds CUDA in software, with an empty cache.
    fn doorbell(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        let cache = self.dir.path().join("cache");
        let _ = std::fs::remove_dir_all(&cache);
        std::fs::create_dir(&cache).unwrap();
        command.env("LD_LIBRARY_PATH", self.dir.path()).env("CUDA_CACHE_PATH", cache);
        command.env("XDG_CACHE_HOME", self.dir.path().join("cache"));
        command
    }

    /// Its output and the report.
    fn run(&self, fix: &str, words: &[&str]) -> (Output, String) {
        let report = self.dir.path().join("report");
        let mut command = self.doorbell();
        command
            .args(["run", fix, "--gpu", "soft", "--force", "--out"])
            .arg(&report)
            .arg("--")
            .arg(&self.program)
            .args(words);
        let out = finished(&mut command, &format!("{words:?} with {fix}"));
        assert!(out.status.success(), "{words:?} with {fix}: {} {}", text(&out.stdout), text(&out.stderr));
        (out, std::fs::read_to_string(report).unwrap())
    }

    /// Asserts that the output is the same with and without the fixes. Returns the report.
    fn same(&self, words: &[&str]) -> String {
        self.same_with("--fix=pins,copies", words)
    }

    fn same_with(&self, fix: &str, words: &[&str]) -> String {
        let (bare, _) = self.run("--lock-policy=stock", words);
        let (fixed, report) = self.run(fix, words);
        assert_eq!(text(&fixed.stdout), text(&bare.stdout), "{words:?}");
        report
    }

    /// Records the program with these arguments and makes a plan: its file, and what is in it.
    fn planned(&self, words: &[&str]) -> (PathBuf, String) {
        let (recording, plan) = (self.dir.path().join("a.doorbell"), self.dir.path().join("fix.toml"));
        let mut record = self.doorbell();
        record.args(["record", "--locks", "--gpu", "soft", "--force", "-o"]).arg(&recording);
        record.arg("--").arg(&self.program).args(words);
        let mut make = self.doorbell();
        make.arg("plan").arg(&recording).args(["--force", "-o"]).arg(&plan);
        for (mut command, what) in [(record, "record"), (make, "plan")] {
            let out = finished(&mut command, what);
            assert!(out.status.success(), "{what}: {} {}", text(&out.stdout), text(&out.stderr));
        }
        let written = std::fs::read_to_string(&plan).unwrap();
        (plan, written)
    }

    /// The longest launch, in milliseconds.
    fn longest(&self, fix: &str, words: &[&str]) -> f64 {
        let (out, _) = self.run(fix, words);
        let said = text(&out.stderr);
        said.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number of calls that were answered by a fix.
fn answered(report: &str, fix: &str) -> u64 {
    let line = report.lines().find(|line| line.starts_with(&format!("doorbell: {fix}: ")) && line.contains("answered"));
    line.and_then(|line| line.split(' ').nth(2)?.replace(',', "").parse().ok()).unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn pinned_allocations_have_the_results_of_cudas() {
    let app = needs!(App::new());
    let report = app.same(&["pins"]);
    // Sizes of 2, 4 and 33 MiB and 16 MiB and 5 bytes, with flags of 0 and 3.
    assert_eq!(answered(&report, "pins"), 6, "{report}");
    for why in ["rounding", "write-combined"] {
        assert!(report.contains(why), "{why}: {report}");
    }
}

#[test]
fn memory_ends_with_its_context() {
    let app = needs!(App::new());
    let report = app.same(&["contexts"]);
    assert_eq!(answered(&report, "pins"), 6, "{report}");
}

#[test]
fn memory_of_the_gpu_has_the_results_of_cudas() {
    let app = needs!(App::new());
    let report = app.same_with("--fix=memory", &["memory"]);
    // Two of each of three sizes, one each for two frees, two captures and a reset.
    assert_eq!(answered(&report, "memory"), 2 * 3 + 2 + 2 + 1, "{report}");
    assert!(report.contains("memory: 2 passed on: while a stream is being captured"), "{report}");
    assert!(!report.contains("turned itself off"), "{report}");
    let (bare, _) = app.run("--lock-policy=stock", &["memory"]);
    let bare = text(&bare.stdout);
    assert!(bare.matches("waited 1").count() == 2 && bare.contains("1 used, 1 left after a reset"), "{bare}");
    // Only who asks for it has it.
    let (_, report) = app.run("--fix", &["memory"]);
    assert!(!report.contains("memory:"), "{report}");
}

/// CUDA refuses to share the memory. The program gets the error once, and later memory is CUDA's.
#[test]
fn memory_that_is_shared_turns_its_fix_off() {
    let app = needs!(App::new());
    for (how, bare, fixed) in [("IPC", "0", "1"), ("synchronous", "0", "801"), ("asked", "0 1", "0 0")] {
        let (out, _) = app.run("--lock-policy=stock", &["shares", how]);
        assert_eq!(text(&out.stdout), format!("shared {bare}\nthen 0\n"));
        let (out, report) = app.run("--fix=memory", &["shares", how]);
        assert_eq!(text(&out.stdout), format!("shared {fixed}\nthen 0\n"));
        let said = ["memory: 1 call answered", "memory: 1 passed on: IPC", "1 passed on: the fix turned itself off"];
        assert!(said.iter().all(|said| report.contains(said)), "{report}");
        assert!(report.contains("memory turned itself off: the program shares such memory"), "{report}");
    }
}

/// A plan has the fix where threads waited for such memory, unless the program shares memory.
#[test]
fn a_plan_has_memory_unless_the_program_shares_it() {
    let app = needs!(App::new());
    measured(|| {
        let (with, without) = (app.planned(&["hot-memory"]).1, app.planned(&["hot-memory", "shared"]).1);
        let is_right = with.contains("fixes = \"memory\"") && !without.contains("fixes =");
        let refused = without.lines().any(|line| {
            line.starts_with("# memory: would save up to ") && line.ends_with("but not with cuIpcGetMemHandle")
        });
        if is_right && refused { Ok(()) } else { Err(format!("{with}\n{without}")) }
    });
}

#[test]
fn a_launch_is_cudas_own_function_and_costs_nothing() {
    let app = needs!(App::new());
    let (out, _) = app.run("--fix=pins,copies", &["entries"]);
    assert_eq!(text(&out.stdout).matches("own: 1").count(), 5, "{}", text(&out.stdout));
}

/// The longest wait that `plan` finds is what the fix saves of the longest launch, within a factor of two.
#[test]
fn a_plan_predicts_what_a_fix_saves() {
    let app = needs!(App::new());
    for (hot, name) in [("hot-pins", "pins"), ("hot-code", "code")] {
        measured(|| {
            let (plan, written) = app.planned(&[hot]);
            assert!(written.contains(&format!("fixes = \"{name}\"")), "{written}");
            let begin = format!("# {name}: saves up to ");
            let line = written.lines().find(|line| line.starts_with(&begin)).expect("a line of the fix");
            let words: Vec<&str> = line.split_whitespace().collect();
            let predicted: f64 = words[words.iter().position(|w| *w == "calls,").expect("calls") + 1].parse().unwrap();
            let fix = format!("--fix={}", plan.display());
            let saved = app.longest("--lock-policy=stock", &[hot]) - app.longest(&fix, &[hot]);
            let said = format!("{name}: {predicted} ms predicted, {saved} ms saved");
            if predicted < 2.0 * saved && saved < 2.0 * predicted { Ok(()) } else { Err(said) }
        });
    }
}

#[test]
fn pageable_copies_have_the_results_of_cudas() {
    let app = needs!(App::new());
    let report = app.same(&["copies"]);
    assert_eq!(answered(&report, "copies"), 3 * 4 * 2, "{report}");
    assert!(report.contains("captured"), "{report}");
}

#[test]
fn what_threads_get_does_not_depend_on_the_others() {
    let app = needs!(App::new());
    for threads in ["1", "3", "16"] {
        let report = app.same_with("--fix=pins,copies,memory", &["threads", threads]);
        assert!(["pins", "copies", "memory"].iter().all(|fix| answered(&report, fix) > 0), "{report}");
        assert!(!report.contains("turned itself off"), "{report}");
    }
}

/// 10,000 times memory, a copy to the GPU and a copy back, at random.
#[test]
#[ignore = "a minute; run by .ci/run --long"]
fn ten_thousand_random_sequences_have_the_results_of_cudas() {
    let app = needs!(App::new());
    for (threads, steps) in [("1", "2000"), ("8", "500"), ("32", "125")] {
        let report = app.same_with("--fix=pins,copies,memory", &["threads", threads, steps]);
        assert!(["pins", "copies", "memory"].iter().all(|fix| answered(&report, fix) > 100), "{report}");
        assert!(!report.contains("turned itself off"), "{report}");
    }
}

#[test]
fn a_launch_waits_for_no_set_up_call() {
    let app = needs!(App::new());
    measured(|| {
        for what in ["hot-pins", "hot-copies", "hot-memory"] {
            let (bare, fixed) =
                (app.longest("--lock-policy=stock", &[what]), app.longest("--fix=pins,copies,memory", &[what]));
            if fixed > bare / 3.0 {
                return Err(format!("{what}: {bare} ms without the fixes, {fixed} ms with them"));
            }
        }
        Ok(())
    });
}

/// Another process compiles: the program gets CUDA's results, and its launches wait for no compilation.
#[test]
fn code_is_compiled_by_another_process() {
    let app = needs!(App::new());
    let (bare, _) = app.run("--lock-policy=stock", &["code"]);
    let (fixed, report) = app.run("--fix=code", &["code"]);
    assert_eq!(text(&fixed.stdout), text(&bare.stdout));
    assert!(text(&bare.stdout).contains("text 3: 218 0, with options 218 0"), "{}", text(&bare.stdout));
    // Three texts that are right, twice by each call, but not with options that are pointers; then as a file and as a fat binary; and two
    // of three fat binaries, of which the third has code for this chip.
    assert_eq!(answered(&report, "code"), 3 * 2 * 2 + 3 * 2 + 2, "{report}");
    assert!(report.contains("code that CUDA does not compile") && report.contains("with arguments that"), "{report}");
    measured(|| {
        let (bare, fixed) =
            (app.longest("--lock-policy=stock", &["hot-code"]), app.longest("--fix=code", &["hot-code"]));
        if fixed > bare / 3.0 {
            return Err(format!("{bare} ms without the fix, {fixed} ms with it"));
        }
        Ok(())
    });
    // Without a cache the program compiles by itself.
    let report = app.dir.path().join("report");
    let mut command = app.doorbell();
    command.env("CUDA_CACHE_DISABLE", "1").args(["run", "--fix=code", "--gpu", "soft", "--force", "--out"]);
    let out = finished(command.arg(&report).arg("--").arg(&app.program).arg("code"), "without a cache");
    assert_eq!(text(&out.stdout), text(&bare.stdout));
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("CUDA's cache did not take the code"), "{report}");
}

/// Kernels that a recording shows to be loaded late are loaded with their library: no launch waits for it.
#[test]
fn late_kernels_are_loaded_with_their_library() {
    let app = needs!(App::new());
    let (plan, written) = app.planned(&["late"]);
    for name in ["add1", "count", "mark", "store"] {
        assert!(written.contains(&format!("name = \"{name}\"\n")), "{name}: {written}");
    }
    assert_eq!(written.matches("library = \"app\"\n").count(), 4, "{written}");
    let fix = format!("--fix={}", plan.display());
    for how in ["", "before", "again", "capture"] {
        let (bare, _) = app.run("--lock-policy=stock", &["late", how]);
        let (fixed, report) = app.run(&fix, &["late", how]);
        assert_eq!(text(&fixed.stdout), text(&bare.stdout), "{how}");
        assert!(report.contains("kernels: 4 of 4 loaded early"), "{how}: {report}");
        measured(|| {
            let (bare, fixed) = (app.longest("--lock-policy=stock", &["late", how]), app.longest(&fix, &["late", how]));
            if bare < 3.0 || fixed > 1.0 {
                return Err(format!("{how}: {bare} ms without the fix, {fixed} ms with it"));
            }
            Ok(())
        });
    }
    let (_, report) = app.run(&fix, &["late", "changed"]);
    assert!(report.contains("kernels: 0 of 4 loaded early"), "{report}");
    let changed =
        report.lines().find(|line| line.contains("the binary has changed")).unwrap_or_else(|| panic!("{report}"));
    for word in ["4 of app", "add1", "count", "mark", "store"] {
        assert!(changed.contains(word), "{word}: {changed}");
    }
}

#[test]
fn one_fix_alone_and_the_switch_in_the_environment() {
    let app = needs!(App::new());
    let (_, report) = app.run("--fix=pins", &["threads", "2"]);
    assert!(answered(&report, "pins") > 0 && !report.contains("copies"), "{report}");
    let mut command = app.doorbell();
    command
        .args(["run", "--fix=pins,copies,memory", "--report", "--gpu", "soft", "--"])
        .arg(&app.program)
        .args(["threads", "2"]);
    let out = command.env("DOORBELL_FIX", "off").output().unwrap();
    for fix in ["pins", "memory"] {
        assert_eq!(answered(&text(&out.stderr), fix), 0, "{}", text(&out.stderr));
    }
    let wrong =
        Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(["run", "--fix=pin", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(125), "{}", text(&wrong.stderr));
    assert!(text(&wrong.stderr).contains("there is no fix `pin`") && text(&wrong.stderr).contains("pins, copies"));
}

#[test]
fn a_forked_child_and_a_killed_program_are_as_without() {
    let app = needs!(App::new());
    let report = app.same(&["forks"]);
    assert_eq!(answered(&report, "pins"), 1, "{report}");
    let killed = |fix| {
        let mut command = app.doorbell();
        command.args(["run", fix, "--report", "--gpu", "soft", "--"]).arg(&app.program).args(["forks", "9"]);
        let out = finished(&mut command, fix);
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (bare, fixed) = (killed("--lock-policy=stock"), killed("--fix"));
    assert_eq!((bare.0, &bare.1), (Some(128 + 9), &fixed.1), "{bare:?}");
    assert_eq!(fixed.0, bare.0);
    assert!(fixed.2.contains("pins: 1 call answered"), "{}", fixed.2);
}

/// The calls are recorded as the program makes them, and answered.
#[test]
fn a_recorded_program_has_fixes_too() {
    let app = needs!(App::new());
    let recording = app.dir.path().join("a.doorbell");
    let record = |words: &[&str], what: &str| {
        let mut command = app.doorbell();
        command.arg("record").args(words).args(["--gpu", "soft", "--force", "-o"]).arg(&recording);
        command.arg("--").arg(&app.program).arg(what);
        finished(&mut command, &format!("{words:?}"))
    };
    let (bare, _) = app.run("--lock-policy=stock", &["copies"]);
    for with in [&[][..], &["--calls"], &["--locks"]] {
        let out = record(&[with, &["--fix=pins,copies"]].concat(), "copies");
        assert!(out.status.success() && out.stdout == bare.stdout, "{with:?}: {}", text(&out.stderr));
        assert_eq!(answered(&text(&out.stderr), "copies"), 3 * 4 * 2, "{with:?}: {}", text(&out.stderr));
        let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        let out = finished(show.args(["show", "--calls"]).arg(&recording), "show");
        assert_eq!(text(&out.stdout).contains("cuMemcpyHtoD"), !with.is_empty(), "{with:?}: {}", text(&out.stdout));
    }
    let out = record(&["--calls", "--fix=code"], "code");
    assert_eq!(text(&out.stdout), text(&app.run("--lock-policy=stock", &["code"]).0.stdout));
    assert!(answered(&text(&out.stderr), "code") > 0, "{}", text(&out.stderr));
    let out = record(&["--fix=locks"], "copies");
    assert_eq!(out.status.code(), Some(125));
    assert!(text(&out.stderr).contains("keep their own protocol"), "{}", text(&out.stderr));
}

#[test]
fn a_program_that_doorbell_does_not_start_can_have_a_fix() {
    let app = needs!(App::new());
    let (library, built) = (app.dir.path().join("fix.so"), assert_cmd::cargo::cargo_bin!("doorbell"));
    let write =
        |words: &[&str]| finished(Command::new(built).args(["run", "--library"]).arg(&library).args(words), "run");
    assert!(write(&[]).status.success());
    assert!(text(&write(&[]).stderr).contains("--force"));
    assert!(write(&["--force"]).status.success());
    let run = |fix: &str, what: &str| {
        let preload = format!("{}:{}", library.display(), app.softgpu.display());
        let mut command = Command::new(&app.program);
        command.arg(what).env("LD_LIBRARY_PATH", app.dir.path()).env("LD_PRELOAD", preload).env("DOORBELL_FIX", fix);
        finished(&mut command, what)
    };
    for what in ["pins", "copies", "forks"] {
        let (bare, fixed) = (run("off", what), run("pins,copies", what));
        assert!(bare.status.success() && fixed.status.success(), "{what}: {}", text(&fixed.stderr));
        assert_eq!(text(&fixed.stdout), text(&bare.stdout), "{what}");
    }
    let wrong = run("pin", "forks");
    assert!(
        wrong.status.success() && text(&wrong.stderr).contains("the fixes are pins, copies, pages, code and memory"),
        "{wrong:?}"
    );
    measured(|| {
        let longest =
            |fix| text(&run(fix, "hot-pins").stderr).split_whitespace().find_map(|word| word.parse::<f64>().ok());
        match (longest("off"), longest("pins")) {
            (Some(bare), Some(fixed)) if fixed < bare / 3.0 => Ok(()),
            both => Err(format!("{both:?}")),
        }
    });
}

#[test]
fn batches_of_pages_have_the_results_of_cudas() {
    let app = needs!(App::new());
    let library = app.softgpu.with_file_name("libdoorbell.so");
    if !library.exists() {
        test_support::skip!("no libdoorbell.so beside the tests");
    }
    let run = |fix: &str, library: &Path| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        command.args(["run", fix, "--gpu", "soft", "--report", "--"]).arg(&app.program).arg("batches");
        command.env("LD_LIBRARY_PATH", app.dir.path()).env("DOORBELL_LIB", library);
        finished(&mut command, fix)
    };
    let (bare, fixed) = (run("--lock-policy=stock", &library), run("--fix=pages,pins", &library));
    assert!(bare.status.success() && fixed.status.success(), "{}", text(&fixed.stderr));
    assert_eq!(text(&fixed.stdout), text(&bare.stdout));
    assert_eq!(text(&bare.stdout).matches("wrong 0").count(), 13, "{}", text(&bare.stdout));
    assert!(text(&bare.stdout).contains("planes: rows 600, other bytes 0"), "{}", text(&bare.stdout));
    // Some of those for which there is no room behind the waiting stream are passed on.
    let answers = answered(&text(&fixed.stderr), "pages");
    assert!((40..100).contains(&answers), "{answers}: {}", text(&fixed.stderr));
    let without = run("--fix=pages", Path::new("/no/such/file.so"));
    assert_eq!(without.status.code(), Some(125));
    assert!(text(&without.stderr).contains("DOORBELL_LIB"), "{}", text(&without.stderr));
}
