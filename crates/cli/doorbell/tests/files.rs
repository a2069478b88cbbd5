//! `doorbell files` as a user runs it, on the software GPU.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn files(words: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.timeout(Duration::from_secs(120));
    command.arg("files").args(words);
    command
}

fn json(command: &mut Command) -> Value {
    let output = command.arg("--json").assert().success();
    serde_json::from_slice(&output.get_output().stdout).unwrap()
}

fn random(dir: &TempDir, name: &str, count: usize) -> PathBuf {
    let mut data = vec![0; count];
    fastrand::Rng::with_seed(7).fill(&mut data);
    let path = dir.path().join(name);
    std::fs::write(&path, data).unwrap();
    path
}

/// The names of the files in a folder.
fn left(dir: &Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_file_goes_to_the_gpu_and_back_without_a_rate() {
    let dir = tempfile::tempdir().unwrap();
    let path = random(&dir, "f.bin", 300_001);
    let file = path.to_str().unwrap();
    let shown =
        files(&["read", file, "--gpu", "soft", "--verify", "--block", "64KiB", "--threads", "2"]).assert().success();
    shown.stdout(
        contains("f.bin -> gpu0: 293 KiB (on the software GPU, which has no rate)")
            .and(contains("verified: 300,001 bytes"))
            .and(contains("/s").not()),
    );
    let read = json(&mut files(&["read", file, "--gpu", "soft", "--verify"]));
    assert_eq!((read["functional"].as_bool(), read["verified_bytes"].as_u64()), (Some(true), Some(300_001)));
    assert!(read.get("seconds").is_none() && read.get("bytes_per_second").is_none(), "{read}");
    let out = dir.path().join("out.bin");
    let written = json(&mut files(&[
        "write",
        out.to_str().unwrap(),
        "--gpu",
        "soft",
        "--bytes",
        "200001B",
        "--verify",
        "--via",
        "threads",
    ]));
    assert_eq!((written["via"].as_str(), written["verified_bytes"].as_u64()), (Some("threads"), Some(200_001)));
    assert_eq!(std::fs::metadata(&out).unwrap().len(), 200_001);
    // The drive's own figure is real.
    let bare = json(&mut files(&["bare", file]));
    assert!(bare["functional"] == false && bare["bytes_per_second"].as_f64().unwrap() > 0.0, "{bare}");
}

#[test]
fn errors_name_the_file_and_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let empty = random(&dir, "empty", 0);
    let old = random(&dir, "old", 10);
    let [folder, empty, old] = [dir.path(), &empty, &old].map(|path| path.to_str().unwrap());
    for (words, status, what) in [
        (vec!["read", folder], 2, "a directory"),
        (vec!["read", empty], 2, "the file is empty"),
        (vec!["read", "/no/such"], 2, "No such file"),
        (vec!["read", old, "--require-direct"], 77, "nothing is direct"),
        (vec!["read", old, "--via", "cufile"], 77, "cuFile is not installed"),
        (vec!["write", old], 2, "the file exists"),
        (vec!["load", old], 2, "not a safetensors file"),
        (vec!["load", folder], 2, "no model.safetensors"),
        (vec!["read", old, "--to", "gpu7"], 77, "gpu7"),
    ] {
        let mut words = words;
        words.extend(["--gpu", "soft"]);
        let text = contains(what).and(contains("hint: "));
        // With cuFile installed the message differs.
        if what.contains("cuFile") && Path::new("/usr/local/cuda").exists() {
            continue;
        }
        files(&words).assert().code(status).stderr(text);
    }
    assert_eq!(left(dir.path()).len(), 2, "nothing new");
}

#[test]
fn a_model_is_loaded_and_its_tensors_listed() {
    let dir = tempfile::tempdir().unwrap();
    let header = r#"{"w":{"dtype":"BF16","shape":[3,5],"data_offsets":[0,30]},"b":{"dtype":"F32","shape":[4],"data_offsets":[30,46]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(0..46u8);
    let path = dir.path().join("model.safetensors");
    std::fs::write(&path, &file).unwrap();
    let loaded = json(&mut files(&["load", dir.path().to_str().unwrap(), "--gpu", "soft", "--verify"]));
    let tensors = loaded["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 2);
    for (tensor, name, offset) in [(&tensors[0], "w", 0), (&tensors[1], "b", 30)] {
        assert_eq!(tensor["name"], name);
        assert_eq!(tensor["offset"].as_u64(), Some(8 + header.len() as u64 + offset));
        let address = u64::from_str_radix(&tensor["address"].as_str().unwrap()[2..], 16).unwrap();
        assert_eq!(address % 256, 0);
    }
    assert_eq!((loaded["bytes"].as_u64(), loaded["files"][0]["verified_bytes"].as_u64()), (Some(46), Some(46)));
    files(&["load", path.to_str().unwrap(), "--gpu", "soft"]).assert().success().stdout(contains("3 x 5"));
}

/// A folder on a separate file system of the given size; none if this user may not mount.
fn small_disk(script: &str) -> Option<std::process::Output> {
    let mounts = "mount -t tmpfs -o size=1m none \"$1\" || exit 66";
    let mut command = std::process::Command::new("unshare");
    let dir = tempfile::tempdir().unwrap();
    command.args(["-m", "sh", "-c", &format!("{mounts}; {script}"), "sh"]);
    command.arg(dir.path()).arg(assert_cmd::cargo::cargo_bin!("doorbell"));
    let output = command.output().ok()?;
    (output.status.code() != Some(66) && output.status.code() != Some(1)).then_some(output)
}

#[test]
fn a_full_disk_leaves_no_file() {
    let script = "cd \"$1\"; \"$2\" files write out --bytes 4MiB --gpu soft; echo \"status $?, left: $(ls -A)\"";
    let Some(output) = small_disk(script) else { test_support::skip!("this user may not mount") };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, "status 2, left: \n", "{err}");
    assert!(err.contains("No space left on device") && err.contains("hint: free some space"), "{err}");
}

#[test]
#[ignore = "half a second each; run by .ci/run"]
fn a_write_that_is_killed_leaves_no_half_written_target() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out.bin");
    std::fs::write(&target, "old").unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
        .args(["files", "write", "--gpu", "soft", "--bytes", "32MiB", "--block", "512B", "--depth", "1", "--force"])
        .arg(&target)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while left(dir.path()).len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never began to write");
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "old");
    assert!(left(dir.path()).iter().all(|name| name == "out.bin" || output::is_part(name)));
}

#[test]
#[ignore = "half a second each; run by .ci/run"]
fn cufile_is_measured_and_refused_where_it_is_not_direct() {
    if !test_support::installed("cc") {
        test_support::skip!("no C compiler");
    }
    // The software GPU's memory has its CPU address, too. The library reads as in compatibility mode.
    const LIBRARY: &str = r#"
        #include <unistd.h>
        typedef struct { int err, cu; } status;
        typedef struct { int type; union { int fd; void *p; } h; const void *ops; } descr;
        status cuFileDriverOpen(void) { return (status){0, 0}; }
        status cuFileDriverGetProperties(unsigned *p) { p[7] = 2; return (status){0, 0}; }
        status cuFileHandleRegister(void **h, descr *d) { *h = (void *)(long)(d->h.fd + 1); return (status){0, 0}; }
        void cuFileHandleDeregister(void *h) { (void)h; }
        status cuFileBufRegister(const void *p, size_t n, int f) { (void)p; (void)n; (void)f; return (status){0, 0}; }
        status cuFileBufDeregister(const void *p) { (void)p; return (status){0, 0}; }
        long cuFileRead(void *h, char *p, size_t n, off_t at, off_t to) {
          char bounce[65536] __attribute__((aligned(4096))); long m = pread((int)(long)h - 1, bounce, n, at);
          for (long i = 0; i < m; i++) p[to + i] = bounce[i];
          return m; }
        long cuFileWrite(void *h, const char *p, size_t n, off_t at, off_t from) {
          return pwrite((int)(long)h - 1, p + from, n, at); }
    "#;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("cufile.c");
    std::fs::write(&source, LIBRARY).unwrap();
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(dir.path().join("libcufile.so.0")).arg(&source);
    assert!(cc.status().unwrap().success());
    let path = random(&dir, "f.bin", 400_000);
    let words = ["read", path.to_str().unwrap(), "--gpu", "soft", "--via", "cufile", "--block", "64KiB", "--buffered"];
    let with = |more: &[&str]| {
        let mut command = files(&words);
        command.env("LD_LIBRARY_PATH", dir.path()).args(more);
        command
    };
    let read = json(&mut with(&["--verify"]));
    assert_eq!((read["mode"].as_str(), read["verified_bytes"].as_u64()), (Some("compatibility"), Some(400_000)));
    assert!(read["bytes_through_host"].as_u64().unwrap() >= 400_000 && read.get("seconds").is_none(), "{read}");
    with(&["--require-direct"]).assert().code(77).stderr(contains("did not go straight").and(contains("hint: ")));
    with(&[]).assert().success().stdout(contains("compatibility mode (through host memory)"));
}

/// CUDA's memory at both ends, and doorbell's channel between them.
#[test]
fn beside_cuda_the_bytes_go_to_cudas_memory() {
    let program = std::env::current_exe().unwrap();
    let [library, softgpu] = ["libsoftcuda.so", "libdoorbell_softgpu.so"].map(|name| program.with_file_name(name));
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(library, dir.path().join("libcuda.so.1")).unwrap();
    let path = random(&dir, "f.bin", 300_001);
    let mut command = files(&["read", path.to_str().unwrap(), "--verify", "--block", "64KiB"]);
    command.env("LD_LIBRARY_PATH", dir.path()).env("LD_PRELOAD", &softgpu).env("DOORBELL_SOFTGPU", "strict");
    let read = json(&mut command);
    assert_eq!((read["functional"].as_bool(), read["verified_bytes"].as_u64()), (Some(true), Some(300_001)), "{read}");
}
