//! Which huge pages this machine has, and how to reserve some.

use crate::error::Error;
use crate::tree::Tree;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// One size of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HugePages {
    /// Bytes of one.
    pub size: u64,
}

pub(super) const SMALL: HugePages = HugePages { size: 2 << 20 };
pub(super) const LARGE: HugePages = HugePages { size: 1 << 30 };

impl HugePages {
    /// The sizes of which some are free, the smaller first.
    pub(super) fn free_ones(tree: &Tree) -> Result<Vec<HugePages>, Error> {
        let free: Vec<HugePages> = [SMALL, LARGE].into_iter().filter(|pages| pages.free(tree) > 0).collect();
        if free.is_empty() { Err(none(SMALL, 1, "no huge page is free")) } else { Ok(free) }
    }

    /// How many pages are free.
    fn free(self, tree: &Tree) -> u64 {
        tree.text(format!("{}/free_hugepages", self.folder())).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn folder(self) -> String {
        format!("sys/kernel/mm/hugepages/hugepages-{}kB", self.size >> 10)
    }

    /// A file of such pages, without allocated pages yet.
    pub(super) fn file(self) -> Result<File, Error> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB | self.size.trailing_zeros() << libc::MFD_HUGE_SHIFT;
        // SAFETY: a name that ends with a zero byte.
        let made = unsafe { libc::memfd_create(c"pcie".as_ptr(), flags) };
        if made < 0 {
            return Err(Error::system("make a file of huge pages", io::Error::last_os_error()));
        }
        // SAFETY: made just now, without another owner.
        Ok(unsafe { File::from_raw_fd(made) })
    }
}

/// The error with a remedy if `count` pages are needed.
pub(super) fn none(pages: HugePages, count: u64, why: &str) -> Error {
    let path = format!("/{}/nr_hugepages", pages.folder());
    let more = format!("{why}; reserve {count} more as root: echo $(( $(cat {path}) + {count} )) > {path}");
    Error::system(more, io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn sizes_of_which_some_are_free_are_taken() {
        let fixture = Fixture::new("huge");
        let small = "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
        let large = "sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";
        fixture.file(small, "0\n");
        fixture.file(large, "0\n");
        let refused = HugePages::free_ones(&fixture.tree).unwrap_err().to_string();
        assert!(refused.contains("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), "{refused}");
        fixture.file(large, "2\n");
        assert_eq!(HugePages::free_ones(&fixture.tree).unwrap(), [LARGE]);
        fixture.file(small, "1\n");
        assert_eq!(HugePages::free_ones(&fixture.tree).unwrap(), [SMALL, LARGE]);
    }
}
