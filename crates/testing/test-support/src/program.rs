//! Programs of tests: found, compiled, run, and stopped when they hang.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than a test's program takes on a busy machine. A hang is a failure, not a wait.
const PATIENCE: Duration = Duration::from_secs(150);

/// Runs a command to its end, without input. Panics, with everything that it started killed, when it takes too long.
pub fn finished(command: &mut Command, what: &str) -> Output {
    finished_within(command, PATIENCE, what).unwrap_or_else(|| panic!("{what}: still running after {PATIENCE:?}"))
}

/// As [`finished`], with a time limit; `None` if it was reached.
pub fn finished_within(command: &mut Command, limit: Duration, what: &str) -> Option<Output> {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = spawned.unwrap_or_else(|e| panic!("{what}: {e}"));
    let id = child.id();
    let (done, out) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match out.recv_timeout(limit) {
        Ok(out) => Some(out.unwrap_or_else(|e| panic!("{what}: {e}"))),
        Err(_) => {
            kill_tree(id as i32);
            None
        }
    }
}

/// The processes whose parent is `pid`.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads.flat_map(|t| of(t).split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Kills a process that the caller started, and everything below it.
pub fn kill_tree(pid: i32) {
    let below = children(pid);
    // SAFETY: a process that the calling test started and has not waited for.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    below.into_iter().for_each(kill_tree);
}

/// Whether `PATH` has a program of this name.
pub fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Links the libcuda in software, which is built beside the tests, into `dir` as `libcuda.so.1`. `Err` with a reason for
/// [`skip!`](crate::skip) where it was not built.
pub fn link_softcuda(dir: &Path) -> Result<PathBuf, String> {
    let library = std::env::current_exe().expect("a test's file").with_file_name("libsoftcuda.so");
    if !library.exists() {
        return Err("no libsoftcuda.so beside the tests".into());
    }
    let name = dir.join("libcuda.so.1");
    std::os::unix::fs::symlink(library, &name).expect("a link");
    Ok(name)
}

/// A folder in `dir` that only its owner may enter, as doorbell needs it for its sockets.
pub fn private_folder(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(name);
    std::fs::create_dir(&folder).expect("a new folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("rights of a new folder");
    folder
}

/// A folder with a C program, the library with CUDA's name that it links, and the folder `run` for sockets.
///
/// # Errors
/// A reason for [`skip!`](crate::skip) where there is no C compiler.
pub fn program_with_cuda(library: &Path, program: &Path) -> Result<tempfile::TempDir, String> {
    let dir = tempfile::tempdir().expect("a new folder");
    let library = Source { file: library, compiler: "cc", flags: &[] }.compile_library(dir.path(), "libcuda.so.1")?;
    let library = library.to_str().expect("a name in UTF-8");
    Source { file: program, compiler: "cc", flags: &[library, "-pthread"] }.compile(dir.path())?;
    private_folder(dir.path(), "run");
    Ok(dir)
}

/// A C program of a test.
pub struct Source<'a> {
    /// The `.c` file.
    pub file: &'a Path,
    /// `cc`, `gcc` or `clang`.
    pub compiler: &'a str,
    pub flags: &'a [&'a str],
}

impl Source<'_> {
    /// Compiles it into `dir`. `Err` with a reason for [`skip!`](crate::skip) where the compiler is missing; panics where
    /// the source is wrong.
    pub fn compile(&self, dir: &Path) -> Result<PathBuf, String> {
        self.compile_to(dir.join(self.file.file_stem().expect("a file")), &[])
    }

    /// Compiles it into a shared library of this name in `dir`, as [`Source::compile`].
    pub fn compile_library(&self, dir: &Path, name: &str) -> Result<PathBuf, String> {
        self.compile_to(dir.join(name), &["-shared", "-fPIC", &format!("-Wl,-soname,{name}")])
    }

    fn compile_to(&self, to: PathBuf, flags: &[&str]) -> Result<PathBuf, String> {
        let mut command = Command::new(self.compiler);
        command.args(["-O1", "-pthread", "-o"]).arg(&to).arg(self.file).args(flags).args(self.flags);
        if self.file.extension().is_some_and(|e| e == "c") {
            // As GCC 14 does it without being asked.
            command.args(
                ["implicit-function-declaration", "implicit-int", "int-conversion", "incompatible-pointer-types"]
                    .map(|w| format!("-Werror={w}")),
            );
        }
        let out = command.output().map_err(|e| format!("no C compiler ({}: {e})", self.compiler))?;
        assert!(out.status.success(), "{}: {}", self.file.display(), String::from_utf8_lossy(&out.stderr));
        Ok(to)
    }
}
