//! The example that measures copies beside set-up calls, on the software GPU, beside a stand-in for libcuda whose set-up calls
//! hold a lock that copies take. What it prints is emulation: only the arithmetic and the mechanism are looked at.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const KINDS: [&str; 6] = ["module", "device", "pinned", "register", "stream", "graph"];
/// How long the stand-in's set-up calls hold its lock.
const HOLD_NS: u64 = 1_500_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn text(out: &Output) -> String {
    format!("{}\n{}{}", out.status, String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn cc(arguments: &[&str], to: &Path) {
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(root().join("include"));
    command.args(arguments).arg("-o").arg(to).arg("-L").arg(libraries()).args(["-ldoorbell", "-ldl"]);
    let out = test_support::finished(&mut command, "cc");
    assert!(out.status.success(), "{}", text(&out));
}

/// A folder with the program and, in a folder of its own, the stand-in; `None`, said where skips are counted, without a compiler.
fn built() -> Option<tempfile::TempDir> {
    if !test_support::installed("cc") {
        test_support::skip_part!("no cc");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    cc(&[root().join("../../../examples/c/undelayed.c").to_str().unwrap()], &folder.path().join("undelayed"));
    std::fs::create_dir(folder.path().join("cuda")).unwrap();
    std::fs::create_dir(folder.path().join("softcuda")).unwrap();
    std::os::unix::fs::symlink(libraries().join("libsoftcuda.so"), folder.path().join("softcuda/libcuda.so.1"))
        .unwrap();
    let stand_in = root().join("tests/libcuda.c");
    cc(&["-shared", "-fPIC", stand_in.to_str().unwrap()], &folder.path().join("cuda/libcuda.so.1"));
    Some(folder)
}

fn software(mut command: Command) -> Command {
    command.arg("--software");
    command
}

/// `program` with the software GPU and the libcuda in a folder.
fn plain(program: &Path, cuda: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    let libraries = libraries();
    command.env("LD_PRELOAD", libraries.join("libdoorbell_softgpu.so")).env("DOORBELL_SOFTGPU", "poll");
    let folders = std::env::join_paths(cuda.into_iter().chain([libraries.as_path()])).unwrap();
    command.env("LD_LIBRARY_PATH", folders);
    command
}

/// What the raw file holds of each neighbour, number of threads and series.
fn raw(path: &Path) -> BTreeMap<(String, u64, String), Vec<u64>> {
    let mut all: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let mut words = line.split_whitespace();
        let [_round, kind, threads, series] = [(); 4].map(|()| words.next().unwrap().to_owned());
        let samples = all.entry((kind, threads.parse().unwrap(), series)).or_default();
        for word in words {
            let (ns, times) = word.split_once('*').unwrap_or((word, "1"));
            samples.extend(std::iter::repeat_n(ns.parse::<u64>().unwrap(), times.parse().unwrap()));
        }
    }
    all.values_mut().for_each(|samples| samples.sort_unstable());
    all
}

/// That each figure of the report is the nearest rank of the raw samples, and stands there only with ten samples beyond it.
fn figures_are_right(report: &Value, raw: &BTreeMap<(String, u64, String), Vec<u64>>) {
    let mut looked_at = 0;
    for row in report["rows"].as_array().unwrap() {
        let (kind, threads) = (row["beside"].as_str().unwrap(), row["threads"].as_u64().unwrap());
        for (series, said) in row.as_object().unwrap().iter().filter(|(_, value)| value.is_object()) {
            let none = Vec::new();
            let samples = raw.get(&(kind.to_owned(), threads, series.clone())).unwrap_or(&none);
            assert_eq!(said["samples"].as_u64(), Some(samples.len() as u64), "{kind} {threads} {series}");
            assert_eq!(said["max"].as_u64(), samples.last().copied(), "{kind} {threads} {series}");
            for (name, in_ten_thousand) in [("p50", 5_000), ("p90", 9_000), ("p99", 9_900), ("p99.9", 9_990)] {
                // Nearest rank: the least that so many do not exceed.
                let count = samples.len();
                let rank = (count * in_ten_thousand).div_ceil(10_000);
                let enough = count > 0 && (name == "p50" || count * (10_000 - in_ten_thousand) >= 100_000);
                let right = enough.then(|| samples[rank - 1]);
                assert_eq!(
                    said.get(name).map(|v| v.as_u64().unwrap()),
                    right,
                    "{kind} {threads} {series} {name}: {count}"
                );
                looked_at += usize::from(enough);
            }
        }
    }
    assert!(looked_at > 30, "{looked_at}");
}

/// Runs it beside the stand-in and looks at all that it says.
fn beside_the_stand_in(mut command: Command, folder: &Path) {
    let (json, raw_file) = (folder.join("report.json"), folder.join("report.raw"));
    command.args(["--turn", "0.01", "--patience", "0.01", "--rounds", "1", "--threads", "1,2"]);
    command.arg("--json").arg(&json).arg("--raw").arg(&raw_file);
    let out = test_support::finished(&mut command, "undelayed");
    assert!(out.status.success(), "{}", text(&out));
    let said = text(&out);
    assert!(said.contains(" compared, 0 wrong") && said.contains("verdict: "), "{said}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    figures_are_right(&report, &raw(&raw_file));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1 + 2 * KINDS.len(), "{said}");
    assert_eq!((&rows[0]["beside"], rows[0]["turns"].as_u64()), (&"nothing".into(), Some(3)));
    let number = |row: &Value, series: &str, name: &str| row[series][name].as_u64().unwrap_or(0);
    let mut delayed = 0;
    for (n, row) in rows[1..].iter().enumerate() {
        assert_eq!(row["beside"], KINDS[n % KINDS.len()], "{said}");
        assert_eq!(row["threads"].as_u64(), Some([1, 2][n / KINDS.len()]));
        assert!(row["calls"].as_u64() > Some(0) && row["longest"].as_u64() >= Some(HOLD_NS), "{row}\n{said}");
        assert!(number(row, "doorbell", "samples") > 0 && number(row, "prepare", "samples") > 0, "{row}\n{said}");
        assert_eq!(number(row, "submit", "samples"), number(row, "doorbell", "samples"));
        // Half of a hold at least: the lock is free only between two calls.
        delayed += u32::from(number(row, "cuda", "max") >= HOLD_NS / 2);
    }
    assert!(delayed >= 8, "copies of the stand-in's hardly waited: {delayed} of 12\n{said}");
    assert!(said.lines().any(|line| line.starts_with("2 graph")), "{said}");
}

fn wrong_bytes_are_exit_status_1(mut command: Command) {
    command.env("STUB_SPOIL", "1");
    let out = test_support::finished(
        command.args(["--turn", "0.01", "--patience", "0.01", "--rounds", "1", "--threads", "1", "--kinds", "stream"]),
        "undelayed",
    );
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(text(&out).contains("WRONG"), "{}", text(&out));
}

fn without_cuda_it_says_what_it_leaves_out(mut command: Command) {
    let out = test_support::finished(command.args(["--turn", "0.01", "--rounds", "1"]), "undelayed");
    let said = text(&out);
    assert!(out.status.success() && said.contains("skipped: no libcuda.so.1"), "{said}");
    assert!(said.contains("nothing") && said.contains(" compared, 0 wrong"), "{said}");
}

/// Beside a libcuda in software its memory is what is copied and pinned, as beside a real one. A turn may pass while another process has the CPU, so
/// longer ones are tried where one had no sample.
fn beside_softcuda(command: impl Fn() -> Command, folder: &Path) {
    const SERIES: [&str; 7] = ["cuda", "doorbell", "pin_device", "pin_host", "unpin", "prepare", "release"];
    let json = folder.join("softcuda.json");
    let turn = |seconds: &str| {
        let mut command = command();
        command.args(["--turn", seconds, "--patience", "0.05", "--rounds", "1", "--threads", "1", "--kinds", "device"]);
        let out = test_support::finished(command.arg("--json").arg(&json), "undelayed");
        let said = text(&out);
        assert!(out.status.success() && said.contains(" compared, 0 wrong"), "{said}");
        let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let without = rows.iter().flat_map(|row| SERIES.map(|series| (series, row)));
        let without: Vec<String> = without
            .filter(|(series, row)| row[series]["samples"].as_u64().is_none_or(|n| n == 0))
            .map(|(series, row)| format!("{series} in {row}"))
            .collect();
        if without.is_empty() { Ok(()) } else { Err(format!("{}\n{said}", without.join("\n"))) }
    };
    turn("0.01").or_else(|_| turn("0.1")).or_else(|_| turn("1")).unwrap_or_else(|without| panic!("{without}"));
}

#[test]
fn in_c() {
    let Some(folder) = built() else { return };
    let [program, cuda, softcuda] = ["undelayed", "cuda", "softcuda"].map(|name| folder.path().join(name));
    let c = |cuda| plain(&program, cuda);
    beside_softcuda(|| c(Some(softcuda.as_path())), folder.path());
    let c = |cuda| software(c(cuda));
    beside_the_stand_in(c(Some(cuda.as_path())), folder.path());
    wrong_bytes_are_exit_status_1(c(Some(cuda.as_path())));
    without_cuda_it_says_what_it_leaves_out(c(None));
}
