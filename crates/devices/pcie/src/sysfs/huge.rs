//! Huge pages of 2 MiB: a file of them, and how to reserve some.

use crate::error::Error;
use crate::tree::Tree;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Bytes of one.
pub(super) const SIZE: u64 = 2 << 20;
const FOLDER: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

/// A file of huge pages, without allocated pages yet. Refused if none is free.
pub(super) fn file(tree: &Tree) -> Result<File, Error> {
    if matches!(tree.text(format!("{FOLDER}/free_hugepages")).as_deref(), None | Some("0")) {
        return Err(none(1, "no huge page is free"));
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | SIZE.trailing_zeros() << libc::MFD_HUGE_SHIFT;
    // SAFETY: a name that ends with a zero byte.
    let made = unsafe { libc::memfd_create(c"pcie".as_ptr(), flags) };
    if made < 0 {
        return Err(Error::system("make a file of huge pages", io::Error::last_os_error()));
    }
    // SAFETY: made just now, without another owner.
    Ok(unsafe { File::from_raw_fd(made) })
}

/// The error with a remedy if `count` pages are needed.
pub(super) fn none(count: u64, why: &str) -> Error {
    let path = format!("/{FOLDER}/nr_hugepages");
    let more = format!("{why}; reserve {count} more as root: echo $(( $(cat {path}) + {count} )) > {path}");
    Error::system(more, io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn no_free_page_is_refused_with_the_remedy() {
        let fixture = Fixture::new("huge");
        for without in [None, Some("0\n")] {
            without.iter().for_each(|none| fixture.file(&format!("{FOLDER}/free_hugepages"), none));
            let refused = file(&fixture.tree).unwrap_err().to_string();
            assert!(refused.contains("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), "{refused}");
        }
        fixture.file(&format!("{FOLDER}/free_hugepages"), "1\n");
        // A kernel without such pages refuses the file itself.
        assert!(!file(&fixture.tree).is_err_and(|why| why.to_string().contains("no huge page is free")));
    }
}
