//! A test that is a program with this libcuda: it runs once more in a separate process, with the software GPU preloaded and the library under the
//! name by which programs find libcuda.

use std::process::Command;
use std::time::Duration;

const INSIDE: &str = "BESIDE_SOFTCUDA";

/// True in that process. In the test's own: runs it, and false.
#[allow(dead_code, reason = "each test binary uses one of the two")]
pub fn inside(test: &str) -> bool {
    inside_with(test, "strict")
}

/// The same, with a mode of the software GPU.
#[allow(dead_code, reason = "as above")]
pub fn inside_with(test: &str, mode: &str) -> bool {
    inside_where(test, &[("DOORBELL_SOFTGPU", mode)])
}

/// As [`inside`], for a test that takes longer than others. Its output is printed.
#[allow(dead_code, reason = "as above")]
pub fn inside_for(test: &str, limit: Duration) -> bool {
    match run(test, &[], limit) {
        None => true,
        Some(said) => {
            println!("{said}");
            false
        }
    }
}

/// The same, in the strict mode, where these are set in the environment.
pub fn inside_where(test: &str, environment: &[(&str, &str)]) -> bool {
    run(test, environment, Duration::from_secs(60)).is_none()
}

/// `None` in the separate process; in the test's, the output of that process.
fn run(test: &str, environment: &[(&str, &str)], limit: Duration) -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let [library, softgpu] = ["libsoftcuda.so", "libdoorbell_softgpu.so"].map(|name| program.with_file_name(name));
    assert!(library.is_file() && softgpu.is_file(), "no {} or no {}", library.display(), softgpu.display());
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so.1")).unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(INSIDE, "1");
    command.env("LD_PRELOAD", softgpu).env("DOORBELL_SOFTGPU", "strict").env("DOORBELL_SOFTGPU_LOG", "1");
    command.envs(environment.iter().copied());
    command.env("LD_LIBRARY_PATH", folder.path());
    let out = test_support::finished_within(&mut command, limit, test).unwrap_or_else(|| panic!("{test} does not end"));
    let said = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
    Some(said)
}
