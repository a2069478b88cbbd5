//! The kernel's log, for the trigger `xid`: what NVIDIA's driver reports there about a GPU.
//!
//! Invariant: a look takes what is there, and never waits for more.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// How the driver begins each report: `NVRM: Xid (PCI:0000:19:00): 31, pid=..`. (Longer than a process's name, which the kernel begins other lines with.)
const XID: &str = "NVRM: Xid (PCI:";
/// Maximum number of bytes of a process's name: TASK_COMM_LEN - 1.
const NAME: usize = 15;
const EACH: Duration = Duration::from_millis(20);
/// Maximum number of records for one look. (Later looks have the rest.)
const RECORDS: usize = 1000;
/// The kernel's CONSOLE_EXT_LOG_MAX: no record is longer.
const LONGEST: usize = 8192;

/// The log from when it was opened.
pub struct KernelLog {
    file: File,
    mark: &'static str,
    looked: Instant,
}

impl KernelLog {
    /// # Errors
    /// Why this process may not read `/dev/kmsg`.
    pub fn open() -> io::Result<KernelLog> {
        KernelLog::of(XID)
    }

    fn of(mark: &'static str) -> io::Result<KernelLog> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
        // In some containers the name leads to another file.
        if file.metadata()?.rdev() != libc::makedev(1, 11) {
            return Err(io::Error::other("it is not the kernel's log"));
        }
        file.seek(SeekFrom::End(0))?;
        Ok(KernelLog { file, mark, looked: Instant::now() })
    }

    /// Reports since the last look, at most one look each 20 ms.
    pub fn reports(&mut self) -> Vec<String> {
        if self.looked.elapsed() < EACH {
            return Vec::new();
        }
        self.looked = Instant::now();
        self.rest()
    }

    /// Reports since the last look.
    pub fn rest(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut record = [0; LONGEST];
        for _ in 0..RECORDS {
            match self.file.read(&mut record) {
                Ok(0) => break,
                Ok(n) => found.extend(report(&String::from_utf8_lossy(record.get(..n).unwrap_or(&[])), self.mark)),
                // Older records were overwritten: the next read has the oldest that is left.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        found
    }
}

/// The text of a record (`3,1234,5678,-;text`) with this mark, without the name of a process.
fn report(record: &str, mark: &str) -> Option<String> {
    let text = record.split_once(';')?.1.lines().next()?;
    if !text.starts_with(mark) {
        return None;
    }
    let Some((before, name)) = text.split_once(", name=") else { return Some(text.into()) };
    // The name may have commas.
    let ends = name.match_indices(", ").map(|(at, _)| at).take_while(|at| *at <= NAME);
    let end = name.find(", Ch ").or(ends.last()).unwrap_or(name.len());
    Some(format!("{before}{}", name.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_report_is_the_drivers_line_without_names() {
        let record = "3,901,12345,-;NVRM: Xid (PCI:0000:19:00): 31, pid=7, name=app, Ch 00000008, intr 10000000\n SUBSYSTEM=pci\n";
        let text = "NVRM: Xid (PCI:0000:19:00): 31, pid=7, Ch 00000008, intr 10000000";
        assert_eq!(report(record, XID).as_deref(), Some(text));
        for name in ["a, b", "job, Ch", "<unknown>", ""] {
            let record =
                format!("3,1,2,-;NVRM: Xid (PCI:0000:19:00): 79, pid=7, name={name}, GPU has fallen off the bus.");
            let text = "NVRM: Xid (PCI:0000:19:00): 79, pid=7, GPU has fallen off the bus.";
            assert_eq!(report(&record, XID).as_deref(), Some(text), "{name}");
        }
        let named = "6,1,2,-;NVRM: Xid[12]: segfault at 8, NVRM: Xid (PCI:";
        for other in ["", ";", "6,1,2,-;NVRM: loading NVIDIA UNIX Open Kernel Module", "NVRM: Xid (PCI:", named] {
            assert_eq!(report(other, XID), None, "{other}");
        }
    }

    #[test]
    fn what_is_written_after_the_start_is_found_once() {
        const MARK: &str = "doorbell's test of the kernel's log";
        let Ok(mut log) = KernelLog::of(MARK) else { test_support::skip!("/dev/kmsg may not be read") };
        let Ok(mut to) = OpenOptions::new().write(true).open("/dev/kmsg") else {
            test_support::skip!("/dev/kmsg may not be written");
        };
        let line = format!("{MARK} {}", std::process::id());
        // (A line without its end waits in the kernel for the rest.)
        if writeln!(to, "{line}").is_err() {
            test_support::skip!("/dev/kmsg may not be written");
        }
        std::thread::sleep(EACH);
        assert!(log.reports().contains(&line));
        std::thread::sleep(EACH);
        assert!(!log.reports().contains(&line));
    }
}
