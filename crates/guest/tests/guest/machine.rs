//! A QEMU that boots the kernel with our program as its first, and what it said.

use crate::cpio::Archive;
use crate::kernel::Kernel;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One boot.
pub struct Guest<'a> {
    pub part: &'a str,
    /// QEMU's arguments beside those of every guest.
    pub devices: &'a [&'a str],
    pub kernel_line: &'a str,
    pub limit: Duration,
}

/// What the guest said.
pub struct Said {
    pub lines: Vec<String>,
    pub console: String,
    pub took: Duration,
    pub ended: bool,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Ended with the test, whatever becomes of it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guest<'_> {
    /// Boots it and waits until it powers itself off, or until the limit.
    pub fn run(&self, kernel: &Kernel) -> Said {
        let folder = Folder(std::env::temp_dir().join(format!("guest-{}-{}", std::process::id(), self.part)));
        fs::create_dir_all(&folder.0).unwrap();
        let at = |name: &str| folder.0.join(name);
        fs::write(at("initrd"), initrd(kernel)).unwrap();
        for (name, bytes) in [("d0", 32 << 20), ("d1", 32 << 20)] {
            fs::File::create(at(name)).unwrap().set_len(bytes).unwrap();
        }
        let (console, lines) = (at("console"), at("lines"));

        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.current_dir(&folder.0)
            .args(["-accel", "tcg", "-m", "768M", "-display", "none", "-nodefaults", "-no-reboot"])
            .args(["-serial", "file:console", "-serial", "file:lines"])
            .args(["-object", "memory-backend-file,id=peer,size=4M,mem-path=peer,share=on"])
            .args(["-drive", "file=d0,if=none,id=d0,format=raw", "-drive", "file=d1,if=none,id=d1,format=raw"])
            .args(self.devices)
            .arg("-kernel")
            .arg(&kernel.image)
            .args(["-initrd", "initrd", "-append"])
            .arg(format!("console=ttyS0 quiet panic=-1 hugepages=48 part={} {}", self.part, self.kernel_line))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let started = Instant::now();
        let mut running = Running(qemu.spawn().expect("qemu-system-x86_64"));
        let ended = loop {
            if running.0.try_wait().unwrap().is_some() {
                break true;
            }
            if started.elapsed() > self.limit {
                break false;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let took = started.elapsed();
        drop(running);
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "");
        Said { lines: text(&lines).lines().map(str::to_owned).collect(), console: text(&console), took, ended }
    }
}

/// Our program as /init, a shell for the restorer, the libraries of both, the modules.
fn initrd(kernel: &Kernel) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.folder("dev");
    archive.device("dev/console", (5, 1));
    let init = PathBuf::from(env!("CARGO_BIN_EXE_guest-init"));
    archive.file("init", &fs::read(&init).unwrap());
    let path = std::env::var_os("PATH").unwrap();
    let shell = std::env::split_paths(&path).map(|dir| dir.join("busybox")).find(|path| path.is_file()).expect("busybox");
    archive.file("bin/sh", &fs::read(&shell).unwrap());
    let mut libraries: Vec<String> = [&init, &shell].into_iter().flat_map(|program| libraries(program)).collect();
    libraries.sort();
    libraries.dedup();
    for library in libraries {
        archive.file(library.trim_start_matches('/'), &fs::read(&library).unwrap());
    }
    for (index, (name, bytes)) in kernel.modules().into_iter().enumerate() {
        archive.file(&format!("modules/{index:02}-{name}.ko"), &bytes);
    }
    archive.finish()
}

/// The libraries of a program and its loader, at their paths; none of a static one.
fn libraries(program: &Path) -> Vec<String> {
    let out = Command::new("ldd").arg(program).output().expect("ldd");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(str::to_owned).collect()
}
