//! A QEMU that boots the kernel with guest-init as its first program, and its output.

use crate::cpio::Archive;
use crate::kernel::Kernel;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One boot.
pub struct Guest<'a> {
    pub part: &'a str,
    /// QEMU's arguments for the machine, in front of all devices.
    pub machine: &'a [&'a str],
    pub devices: &'a [&'a str],
    pub kernel_line: &'a str,
    pub limit: Duration,
}

/// The guest's messages.
pub struct Said {
    pub lines: Vec<String>,
    pub console: String,
    /// What QEMU wrote to standard error. It names each address that its IOMMU blocks.
    pub errors: String,
    /// The writes to configuration space.
    config: String,
    pub took: Duration,
    pub ended: bool,
}

/// The contents of a drive, in memory: a busy disk of the host would delay its commands for as long as a driver waits for a dead one.
struct Drive(fs::File);

impl Drive {
    fn new(bytes: u64) -> Drive {
        // SAFETY: a name that ends with a zero byte; the descriptor is new and has no other owner. QEMU inherits it.
        let file = unsafe { fs::File::from_raw_fd(libc::memfd_create(c"drive".as_ptr(), 0)) };
        file.set_len(bytes).unwrap();
        Drive(file)
    }

    fn holding(bytes: &[u8]) -> Drive {
        let drive = Drive::new(bytes.len() as u64);
        (&drive.0).write_all(bytes).unwrap();
        drive
    }

    /// Where QEMU finds it.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// A drive on which one block from 8 MiB on cannot be read, and one from 9 MiB on cannot be written (`checks::faults`).
const FAILING: &str = "if=none,id=d3,driver=raw,file.driver=blkdebug,file.image.driver=file,\
    file.inject-error.0.event=none,file.inject-error.0.iotype=read,file.inject-error.0.sector=16384,file.inject-error.0.errno=5,\
    file.inject-error.1.event=none,file.inject-error.1.iotype=write,file.inject-error.1.sector=18432,file.inject-error.1.errno=5";

impl Said {
    /// Whether these values were written in this order, under the mask, to a place in the configuration space of such a device, between the begin
    /// and the end of the mark in some device (`checks::through::reset_by`).
    pub fn configured(&self, mark: u8, device: &str, at: u16, mask: u32, values: &[u32]) -> bool {
        let writes: Vec<_> = self.config.lines().filter_map(write).collect();
        let marked = |(_, place, value): &(&str, u32, u32)| *place == 0x0c && *value == u32::from(mark);
        let Some(begin) = writes.iter().position(marked) else { return false };
        let end = writes[begin..]
            .iter()
            .position(|(name, place, value)| *name == writes[begin].0 && *place == 0x0c && *value == 0);
        let Some(end) = end else { return false };
        let here =
            writes[begin..begin + end].iter().filter(|(name, place, _)| *name == device && *place == u32::from(at));
        let here: Vec<u32> = here.map(|(_, _, value)| value & mask).collect();
        here.windows(values.len()).any(|window| window == values)
    }
}

/// A line of a QEMU trace: the device, the place in its configuration space, the value.
fn write(line: &str) -> Option<(&str, u32, u32)> {
    // pci_cfg_write NAME BUS:SLOT.FUNCTION @0xAT <- 0xVALUE
    let words: Vec<&str> = line.split_whitespace().collect();
    let from = words.iter().position(|word| *word == "pci_cfg_write")?;
    let [_, name, _, place, "<-", value] = words.get(from..from + 6)? else { return None };
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches('@').strip_prefix("0x")?, 16).ok();
    Some((name, number(place)?, number(value)?))
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
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = Folder(std::env::temp_dir().join(format!(
            "guest-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        )));
        fs::create_dir_all(&folder.0).unwrap();
        let at = |name: &str| folder.0.join(name);
        fs::write(at("initrd"), initrd(kernel)).unwrap();
        let drives = [Drive::new(64 << 20), Drive::new(64 << 20), Drive::holding(&partitioned(32 << 20))];
        let failing = Drive::new(64 << 20);
        let (console, errors, config) = (at("console"), at("errors"), at("config"));

        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.current_dir(&folder.0)
            .args(self.machine)
            // For a machine that can have one CPU alone, QEMU 7.2 leaves out each fence of the guest. A fence between a shadow doorbell and its event
            // is needed for one CPU too: the drive is emulated by another thread.
            .args(["-accel", "tcg", "-smp", "1,maxcpus=2", "-display", "none", "-nodefaults", "-no-reboot"])
            .args(["-serial", "file:console"])
            .args(["-chardev", "socket,id=lines,path=lines,server=on,wait=on", "-serial", "chardev:lines"])
            .args(["-monitor", "unix:monitor,server=on,wait=off"])
            .args(["-object", "memory-backend-file,id=peer,size=4M,mem-path=peer,share=on"])
            .args(drives.iter().enumerate().flat_map(|(at, drive)| {
                ["-drive".to_owned(), format!("file={},if=none,id=d{at},format=raw", drive.path())]
            }))
            .args(["-drive", &format!("{FAILING},file.image.filename={}", failing.path())])
            // Each write to configuration space, by the name of its device.
            .args(["-trace", "enable=pci_cfg_write", "-D", "config"])
            .args(self.devices)
            .arg("-kernel")
            .arg(&kernel.image)
            .args(["-initrd", "initrd", "-append"])
            // On a busy host too few timer interrupts arrive in the time in which the kernel counts them.
            .arg(format!(
                "console=ttyS0 quiet panic=-1 no_timer_check hugepages=48 part={} {}",
                self.part, self.kernel_line
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(at("errors")).unwrap());
        // SAFETY: one system call between fork and exec. QEMU also ends if the test is killed.
        unsafe {
            qemu.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let started = Instant::now();
        let mut running = Running(qemu.spawn().expect("qemu-system-x86_64"));
        let mut said = Lines::default();
        let ended = loop {
            // QEMU waits for this connection before it starts the machine.
            let port = said.port.take().or_else(|| UnixStream::connect(at("lines")).ok());
            said.port = port;
            said.hear(&at("monitor"));
            if running.0.try_wait().unwrap().is_some() {
                said.hear(&at("monitor"));
                break true;
            }
            if started.elapsed() > self.limit {
                break false;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let took = started.elapsed();
        drop(running);
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "");
        Said { lines: said.lines, console: text(&console), errors: text(&errors), config: text(&config), took, ended }
    }
}

/// The guest's second serial line.
#[derive(Default)]
struct Lines {
    port: Option<UnixStream>,
    begun: Vec<u8>,
    lines: Vec<String>,
}

impl Lines {
    /// Reads new messages, and executes the lines that are requests to QEMU: `qemu COMMAND`. The guest waits for the answer.
    fn hear(&mut self, monitor: &Path) {
        let Some(port) = &mut self.port else { return };
        port.set_nonblocking(true).unwrap();
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = port.read(&mut bytes) {
            self.begun.extend(&bytes[..count]);
        }
        port.set_nonblocking(false).unwrap();
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if let Some(command) = line.strip_prefix("qemu ") {
                let answer = execute(monitor, command);
                writeln!(port, "{}", if answer.is_empty() { "done" } else { &answer }).unwrap();
            }
            self.lines.push(line);
        }
    }
}

/// Runs a command of the QEMU monitor, and returns its answer, which is empty on success.
fn execute(monitor: &Path, command: &str) -> String {
    let mut monitor = UnixStream::connect(monitor).unwrap();
    writeln!(monitor, "{command}").unwrap();
    // QEMU drops unread input when the other end closes; its prompt after the command shows that it has read it.
    monitor.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut heard = Vec::new();
    loop {
        let mut bytes = [0; 256];
        match monitor.read(&mut bytes) {
            Ok(count) if count > 0 => heard.extend_from_slice(&bytes[..count]),
            other => panic!("QEMU's monitor: {other:?}, {}", String::from_utf8_lossy(&heard)),
        }
        let text = String::from_utf8_lossy(&heard);
        if let [_, answer, _] = text.splitn(3, "(qemu)").collect::<Vec<_>>()[..] {
            // The command's own line is echoed first.
            return answer.lines().skip(1).map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned();
        }
    }
}

/// The guest's program as /init, a shell for the restorer and the programs that it calls, the libraries of both, the modules.
fn initrd(kernel: &Kernel) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.folder("dev");
    archive.folder("modules");
    archive.device("dev/console", (5, 1));
    let init = PathBuf::from(env!("CARGO_BIN_EXE_guest-init"));
    archive.file("init", &fs::read(&init).unwrap());
    let path = std::env::var_os("PATH").unwrap();
    let shell =
        std::env::split_paths(&path).map(|dir| dir.join("busybox")).find(|path| path.is_file()).expect("busybox");
    for name in ["sh", "dd", "sleep"] {
        archive.file(&format!("bin/{name}"), &fs::read(&shell).unwrap());
    }
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

/// The libraries of a program and its loader, by path; empty for a static program.
fn libraries(program: &Path) -> Vec<String> {
    let out = Command::new("ldd").arg(program).output().expect("ldd");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(str::to_owned).collect()
}

/// A drive with one partition from 1 MiB on, which is swap space (util-linux: mkswap; the kernel's `union swap_header`).
fn partitioned(bytes: usize) -> Vec<u8> {
    const BLOCK: usize = 512;
    const BEGIN: usize = 1 << 20;
    let mut drive = vec![0; bytes];
    // The first entry of the partition table: kind 0x82, first block, number of blocks.
    drive[446 + 4] = 0x82;
    drive[446 + 8..446 + 12].copy_from_slice(&((BEGIN / BLOCK) as u32).to_le_bytes());
    drive[446 + 12..446 + 16].copy_from_slice(&(((bytes - BEGIN) / BLOCK) as u32).to_le_bytes());
    drive[510..512].copy_from_slice(&[0x55, 0xaa]);
    let swap = &mut drive[BEGIN..];
    // Version 1 and the number of the last page.
    swap[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    let last = ((bytes - BEGIN) / 4096 - 1) as u32;
    swap[1028..1032].copy_from_slice(&last.to_le_bytes());
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    drive
}
