//! The kernel's log: what the GPU's driver reports there (Xid), if this process may read it.

use std::io;

/// Lines of the log that are reports of the GPU's driver, or why they cannot be read.
pub type Reports = Result<Vec<String>, String>;

/// What the driver begins each report with: `NVRM: Xid (PCI:0000:19:00): 31, ...`.
const MARK: &str = "NVRM: Xid";

/// syslog(2): SYSLOG_ACTION_READ_ALL and SYSLOG_ACTION_SIZE_BUFFER.
const READ_ALL: i32 = 3;
const SIZE_BUFFER: i32 = 10;
/// Bytes to read if the size is unknown.
const USUAL: i32 = 1 << 20;

/// The reports in the log now.
pub fn reports() -> Reports {
    // SAFETY: only reads a size and takes no memory.
    let size = unsafe { libc::klogctl(SIZE_BUFFER, std::ptr::null_mut(), 0) };
    let size = if size > 0 { size } else { USUAL };
    let mut log = vec![0u8; size as usize];
    // SAFETY: writes at most the length given.
    let length = unsafe { libc::klogctl(READ_ALL, log.as_mut_ptr().cast(), size) };
    if length < 0 {
        return Err(format!("the kernel's log cannot be read: {}", io::Error::last_os_error()));
    }
    log.truncate(length as usize);
    Ok(marked(&String::from_utf8_lossy(&log)))
}

fn marked(log: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(MARK)).map(str::to_string).collect()
}

/// Lines in `after` that were not in `before`. Lines contain their time, so each is unique.
///
/// # Errors
/// If one of the two could not be read.
pub fn new(before: &Reports, after: &Reports) -> Reports {
    let (before, after) = (before.as_ref().map_err(String::clone)?, after.as_ref().map_err(String::clone)?);
    Ok(after.iter().filter(|line| !before.contains(line)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_reports_count() {
        let old = "<6>[  10.1] usb: hello\n<3>[  11.0] NVRM: Xid (PCI:0000:19:00): 31, pid=7\n";
        let log = format!("{old}<3>[  99.0] NVRM: Xid (PCI:0000:19:00): 13, pid=8\n<6>[ 100.0] NVRM: loading\n");
        let (before, after) = (Ok(marked(old)), Ok(marked(&log)));
        assert_eq!(new(&before, &after).unwrap(), ["<3>[  99.0] NVRM: Xid (PCI:0000:19:00): 13, pid=8"]);
        assert_eq!(new(&after, &after).unwrap(), [""; 0]);
        assert!(new(&Err("no".into()), &after).is_err() && new(&after, &Err("no".into())).is_err());
    }

    #[test]
    fn the_log_is_read_or_the_reason_said() {
        match reports() {
            Ok(lines) => assert!(lines.iter().all(|l| l.contains(MARK))),
            Err(reason) => assert!(reason.contains("kernel's log"), "{reason}"),
        }
    }
}
