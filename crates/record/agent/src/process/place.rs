//! Whether this process sees the recorder's /proc, so that paths and process numbers mean the same to both.
//!
//! A program may enter other namespaces or another root directory at any time. There, `/proc/RECORDER/fd/N` does not
//! exist, or is another process's file.

use super::restrictions::{may, need};
use super::sys;
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use tape::starts::Starts;

/// Device number of the file system at /proc. `None` if there is none.
fn device() -> Option<u64> {
    sys::status(c"/proc").map(|s| s.st_dev)
}

/// True if the recorder's /proc is mounted here. In doubt true: few programs leave the one that they started with.
pub fn has_recorders_proc(starts: &Starts) -> bool {
    let theirs = starts.proc.load(Ordering::Relaxed);
    theirs == 0 || !may(need::NUMBERS) || device() == Some(theirs)
}

/// True if this path, which the recorder gave, leads to the same file from here.
pub fn holds(path: &[u8], starts: &Starts) -> bool {
    !path.starts_with(b"/proc/") || has_recorders_proc(starts)
}

/// This process's number as the recorder sees it: the one in the recorder's /proc. Where that is not mounted, the number
/// that the process has here, as a negative number.
pub fn number(starts: &Starts) -> i32 {
    let outside = || digits(link(c"/proc/self", &mut [0; 24])?).and_then(|n| i32::try_from(n).ok());
    has_recorders_proc(starts).then(outside).flatten().unwrap_or_else(|| -sys::getpid())
}

/// The inode of this process's pid namespace; 0 if unavailable.
pub fn namespace() -> u64 {
    let mut to = [0; 48];
    let inside = link(c"/proc/self/ns/pid", &mut to).and_then(|l| l.strip_prefix(b"pid:[")?.strip_suffix(b"]"));
    inside.and_then(digits).unwrap_or(0)
}

fn link<'a>(path: &CStr, to: &'a mut [u8]) -> Option<&'a [u8]> {
    let n = sys::readlink(path, to);
    to.get(..n).filter(|l| !l.is_empty())
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0u64, |n, d| {
        let d = d.checked_sub(b'0').filter(|d| *d < 10)?;
        n.checked_mul(10)?.checked_add(u64::from(d))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_that_of_the_recorders_proc_or_none_of_it() {
        // SAFETY: numbers.
        let s: Starts = unsafe { core::mem::zeroed() };
        let me = std::process::id() as i32;
        let (right, wrong) = (device().expect("it is mounted"), 1 << 40);
        for (proc, number_is, reachable) in [(0, me, true), (right, me, true), (wrong, -me, false)] {
            s.proc.store(proc, Ordering::Relaxed);
            assert_eq!(number(&s), number_is);
            assert_eq!(holds(b"/proc/1/fd/3", &s), reachable);
            assert!(holds(b"/run/doorbell/region", &s));
        }
        let link = std::fs::read_link("/proc/self/ns/pid").unwrap();
        assert_eq!(format!("pid:[{}]", namespace()), link.to_str().unwrap());
        assert_eq!(
            (digits(b"4026531836"), digits(b"4x"), digits(b"99999999999999999999")),
            (Some(4_026_531_836), None, None)
        );
    }
}
