//! The command line as users and scripts see it: statuses, files, colors, widths.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn doorbell() -> Command {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.timeout(std::time::Duration::from_secs(120));
    for rank in ["RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "NO_COLOR"] {
        c.env_remove(rank);
    }
    c
}

/// A recording that needs no GPU.
fn record(dir: &Path) -> Command {
    let mut c = doorbell();
    c.current_dir(dir).args(["record", "--locks", "--tap", "off", "--gpu", "soft", "--ring", "1MiB"]);
    c
}

/// Either way of starting a program.
fn wrappers(dir: &Path) -> [Command; 2] {
    let mut run = doorbell();
    run.current_dir(dir).args(["run", "--lock-policy", "pi"]);
    let mut record = record(dir);
    record.arg("--quiet");
    [record, run]
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_programs_status_is_doorbells() {
    let dir = tempfile::tempdir().unwrap();
    for status in [0, 2, 77, 255] {
        for mut w in wrappers(dir.path()) {
            w.args(["sh", "-c", &format!("exit {status}")]).assert().code(status);
        }
    }
    for mut w in wrappers(dir.path()) {
        w.args(["sh", "-c", "kill -TERM $$"]).assert().code(128 + 15);
    }
}

#[test]
fn doorbells_own_failures_are_125_126_and_127() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "\x01hello\n").unwrap();
    for mut w in wrappers(dir.path()) {
        w.arg("no-such-program").assert().code(127).stderr(contains("no such program"));
    }
    for mut w in wrappers(dir.path()) {
        w.arg(&file).assert().code(126).stderr(contains("not executable"));
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    for mut w in wrappers(dir.path()) {
        w.arg(&file).assert().code(126).stderr(contains("neither an ELF program nor a script"));
    }
    for mut w in wrappers(dir.path()) {
        w.args(["--no-such-option", "true"]).assert().code(125);
    }
    for mut w in wrappers(dir.path()) {
        w.args(["-o", "/no/such/directory/x", "true"]).assert().code(125).stderr(contains("hint: "));
    }
    doorbell().args(["run", "--lock-policy", "no-such-policy", "true"]).assert().code(125);
    doorbell().args(["record"]).assert().code(125);
    doorbell().args(["record", "--help"]).assert().code(0);
    if recorder::driver_version().is_none() {
        doorbell().current_dir(&dir).args(["record", "true"]).assert().code(125).stderr(contains("--gpu soft"));
    }
    assert_eq!(entries(dir.path()), ["file"], "what failed leaves nothing");
    doorbell().args(["show", "--no-such-option"]).assert().code(2);
}

#[test]
fn a_program_stands_behind_the_options_with_or_without_dashes() {
    let dir = tempfile::tempdir().unwrap();
    for dashes in [&[][..], &["--"]] {
        for mut w in wrappers(dir.path()) {
            let out = w.args(dashes).args(["sh", "-c", "echo \"$0 $*\"", "--json", "--", "-o"]).assert().success();
            out.stdout("--json -- -o\n");
        }
    }
}

#[test]
fn a_recording_is_never_overwritten_without_force() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["true.doorbell", "true.2.doorbell", "true.3.doorbell"] {
        record(dir.path()).arg("true").assert().success().stderr(contains(name));
    }
    let first = dir.path().join("true.doorbell");
    let before = std::fs::read(&first).unwrap();
    let next = record(dir.path()).args(["-o", "true.doorbell", "true"]).assert().success();
    next.stderr(contains("true.doorbell exists (--force replaces it); writing true.4.doorbell"));
    assert_eq!(std::fs::read(&first).unwrap(), before);
    record(dir.path()).args(["-o", "true.doorbell", "--force", "true"]).assert().success();
    assert_ne!(std::fs::read(&first).unwrap(), before);
    assert_eq!(std::fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
    record(dir.path()).args(["-o", "%h-%q{RUN}-%n.tape", "true"]).env("RUN", "a").assert().success();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(entries(dir.path()).contains(&format!("{}-a-1.tape", host.trim())), "{:?}", entries(dir.path()));
    let unset = record(dir.path()).args(["-o", "%q{NO_SUCH_VARIABLE}", "true"]).assert().code(125);
    unset.stderr(contains("\"NO_SUCH_VARIABLE\" is not set"));
}

#[test]
fn links_and_standard_output_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("precious");
    std::fs::write(&target, "precious").unwrap();
    symlink(&target, dir.path().join("link")).unwrap();
    record(dir.path()).args(["-o", "link", "true"]).assert().code(125).stderr(contains("a symbolic link"));
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    for mut w in wrappers(dir.path()) {
        w.args(["-o", "-", "true"]).assert().code(125).stdout("").stderr(contains("hint: "));
    }
    doorbell().current_dir(&dir).args(["bench", "noise", "-o", "-"]).assert().code(2).stderr(contains("--json"));
    assert_eq!(entries(dir.path()), ["link", "precious"]);
}

#[test]
fn ranks_write_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let ranks =
        [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")];
    for (launcher, (rank, size)) in ranks.into_iter().enumerate() {
        let name = format!("{launcher}.doorbell");
        for n in ["0", "1"] {
            record(dir.path()).args(["-o", &name, "true"]).env(rank, n).env(size, "2").assert().success();
        }
    }
    let expected: Vec<String> = (0..3).flat_map(|l| (0..2).map(move |r| format!("{l}.rank{r}.doorbell"))).collect();
    assert_eq!(entries(dir.path()), expected);
}

#[test]
fn a_file_size_limit_is_told_by_run_too_and_the_program_keeps_its_own_signals() {
    let dir = tempfile::tempdir().unwrap();
    let bash = |line: &str| {
        let mut c = Command::new("bash");
        c.current_dir(&dir).args(["-c", line]).arg(assert_cmd::cargo::cargo_bin!("doorbell"));
        c
    };
    // The agent does not fit into a file of 1 KiB.
    let out = bash("ulimit -f 1; \"$0\" run --lock-policy pi true").assert().success();
    out.stderr(contains("error: ").and(contains("ulimit -f unlimited")).and(contains("runs without doorbell")));
    // SIGXFSZ ends the program as it would without doorbell.
    let program = "trap - XFSZ; kill -XFSZ $$; echo survived";
    bash(&format!("\"$0\" run --lock-policy pi bash -c '{program}'")).assert().code(128 + 25).stdout("");
}

#[test]
fn policies_are_read_in_upper_and_lower_case() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.toml");
    std::fs::write(&plan, "mutexes = \"PI\"\ncalls = \"Guard\"\n").unwrap();
    for policy in ["PI", "Pi,Phase-Fair", "GUARD", plan.to_str().unwrap()] {
        doorbell().args(["run", "--lock-policy", policy, "true"]).assert().success();
    }
}

#[test]
fn colors_go_where_they_are_wanted() {
    let error = |args: &[&str], set: &[(&str, &str)]| {
        let out = doorbell().args(args).envs(set.iter().copied()).output().unwrap();
        String::from_utf8(out.stderr).unwrap() + &String::from_utf8(out.stdout).unwrap()
    };
    for command in [&["show", "/no/such/file"][..], &["show", "--no-such-option"], &["--help"], &["doctor", "--no-try"]]
    {
        let with =
            |when: &str, set: &[(&str, &str)]| error(&[&["--color", when], command].concat(), set).contains('\x1b');
        assert!(with("always", &[]), "{command:?}");
        assert!(with("always", &[("NO_COLOR", "1")]), "{command:?}: the flag counts more");
        assert!(!with("never", &[]), "{command:?}");
        // With output into a pipe.
        assert!(!with("auto", &[("CLICOLOR_FORCE", "1"), ("TERM", "xterm")]), "{command:?}");
    }
}

/// Output on a terminal of 60 columns, from `script`.
fn on_a_terminal(command: &str, no_color: Option<&str>) -> Option<String> {
    let doorbell = assert_cmd::cargo::cargo_bin!("doorbell");
    let mut c = std::process::Command::new("script");
    c.args(["-qec", &format!("{} {command}", doorbell.display()), "/dev/null"])
        .env("TERM", "xterm")
        .env("COLUMNS", "60");
    c.env_remove("NO_COLOR").stdin(std::process::Stdio::null());
    c.envs(no_color.map(|v| ("NO_COLOR", v)));
    c.output().ok().map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn no_color_is_unset_when_it_is_empty() {
    if on_a_terminal("--version", None).is_none() {
        test_support::skip!("there is no `script` to make a terminal");
    }
    for command in ["show /no/such/file", "show --no-such-option", "--help", "doctor --no-try"] {
        let has = |no_color| on_a_terminal(command, no_color).unwrap().contains("\x1b[");
        assert!(has(None) && has(Some("")), "{command}");
        assert!(!has(Some("1")) && !has(Some("0")), "{command}");
    }
}

#[test]
fn narrow_terminals_leave_out_columns_and_break_no_word() {
    if on_a_terminal("--version", None).is_none() {
        test_support::skip!("there is no `script` to make a terminal");
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures");
    let words = |text: &str| -> Vec<String> {
        text.split_whitespace().map(|word| word.trim_matches([',', '(', ')', '`', ':']).to_owned()).collect()
    };
    for (view, recording, stays) in [
        ("show --summary", "h100-module-load", "launches"),
        ("show --submissions --limit 4", "h200-copies", "LAUNCH_DMA"),
        ("show --copies --limit 6", "h200-copies", "bytes"),
        ("show --launches --limit 6", "h200-launches", "kernel"),
        ("show --graphs", "h200-programmatic", "then"),
        ("show --kernels", "h200-programmatic", "pdl"),
        ("show --gpu-times --limit 6", "h100-module-load", "attention0"),
        ("show --channels", "h200-copies", "engine"),
        ("show --objects --limit 6", "h100-module-load", "GPU"),
        ("show --locks", "h100-module-load", "contended"),
        ("show --driver-calls", "h100-module-load", "what"),
        ("show --calls", "h100-module-load", "cuModuleLoadData"),
        ("show --rank", "h100-module-load", "attention0"),
        ("why", "h100-module-load", "where"),
    ] {
        let command = format!("{view} {}", fixtures.join(format!("{recording}.doorbell")).display());
        let wide = doorbell().args(command.split(' ')).assert().success();
        let wide = words(&String::from_utf8_lossy(&wide.get_output().stdout));
        let narrow = on_a_terminal(&command, Some("1")).unwrap();
        let mut note = words("left out cut a wider terminal or | cat shows all");
        note.extend(wide);
        for line in narrow.lines() {
            let is_one_word = line.split_whitespace().count() < 2;
            assert!(line.chars().count() <= 60 || is_one_word, "{view}: {line:?}\n{narrow}");
        }
        let is_whole = |word: &&String| note.contains(word) || word.ends_with("...");
        let broken: Vec<String> = words(&narrow).into_iter().filter(|word| !is_whole(&word)).collect();
        assert!(broken.is_empty(), "{view}: {broken:?}\n{narrow}");
        assert!(narrow.contains(stays), "{view}: no {stays}\n{narrow}");
    }
}

#[test]
fn help_fits_narrow_and_wide_terminals() {
    let man = tempfile::tempdir().unwrap();
    doorbell().args(["man", "-o"]).arg(man.path()).assert().success();
    let commands: Vec<String> =
        entries(man.path()).iter().map(|f| f.trim_end_matches(".1").replace('-', " ")).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for columns in [60, 80, 200] {
        for command in &commands {
            let words = command.split(' ').skip(1).chain(["--help"]);
            let out = doorbell().args(words).env("COLUMNS", columns.to_string()).assert().success();
            let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
            let longest = text.lines().max_by_key(|l| l.chars().count()).unwrap();
            let most = columns.min(100);
            assert!(longest.chars().count() <= most, "{command}: {} columns on {columns}: {longest}", longest.len());
        }
    }
}

#[test]
fn a_manual_page_goes_to_standard_output_and_completions_know_the_flags() {
    doorbell().args(["man", "record"]).assert().success().stdout(contains(".TH").and(contains("max\\-size")));
    doorbell().args(["man", "selfbench", "tap"]).assert().success().stdout(contains("rounds"));
    doorbell().args(["man", "no-such"]).assert().code(2).stderr(contains("hint: "));
    for shell in ["bash", "zsh", "fish"] {
        doorbell().args(["completions", shell]).assert().success().stdout(contains("max-size"));
    }
}
