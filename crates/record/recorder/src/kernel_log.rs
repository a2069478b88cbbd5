//! The kernel's log, for the trigger `xid`: what NVIDIA's driver reports there about a GPU.
//!
//! Invariant: a look takes what is there, and never waits for more.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// How the driver begins each report: `NVRM: Xid (PCI:0000:19:00): 31, pid=..`.
const XID: &str = "NVRM: Xid";
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
        file.seek(SeekFrom::End(0))?;
        Ok(KernelLog { file, mark, looked: Instant::now() })
    }

    /// Reports since the last look, at most one look each 20 ms.
    pub fn reports(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        if self.looked.elapsed() < EACH {
            return found;
        }
        self.looked = Instant::now();
        let mut record = [0; LONGEST];
        for _ in 0..RECORDS {
            match self.file.read(&mut record) {
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
    let text = text.get(text.find(mark)?..)?;
    Some(text.split(", ").filter(|part| !part.starts_with("name=")).collect::<Vec<_>>().join(", "))
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
        for other in ["", ";", "6,1,2,-;NVRM: loading NVIDIA UNIX Open Kernel Module", "NVRM: Xid"] {
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
