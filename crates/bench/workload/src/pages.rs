//! Host memory that CUDA did not allocate: pageable, on huge pages, or of a NUMA node.

use crate::error::Error;
use crate::spec::Host;
use machine::Unavailable;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

const HUGE: u64 = 2 << 20;
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const NODES: &str = "/sys/devices/system/node";
/// `MPOL_BIND`: pages come only from these nodes.
const MPOL_BIND: libc::c_int = 2;
/// Maximum nodes in a mask.
const MAX_NODES: usize = 1024;

/// Zeroed memory on whole pages, freed when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    pointer: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pages {}
// SAFETY: as above; shared use is by raw pointers, for which the user is responsible.
unsafe impl Sync for Pages {}

/// Why there is no memory of that kind, as far as that is known without an attempt.
pub(crate) fn check(kind: Host) -> Result<(), Unavailable> {
    match kind {
        Host::Huge if free_huge_pages() == Some(0) => Err(no_huge_pages()),
        Host::Node(n) if !Path::new(&format!("{NODES}/node{n}")).exists() => {
            Err(Unavailable::new(format!("this machine has no NUMA node {n} ({NODES})")))
        }
        _ => Ok(()),
    }
}

fn free_huge_pages() -> Option<u64> {
    std::fs::read_to_string(format!("{HUGE_PAGES}/free_hugepages")).ok()?.trim().parse().ok()
}

fn no_huge_pages() -> Unavailable {
    Unavailable::new(
        "too few huge pages of 2 MiB are free: reserve some (sysctl vm.nr_hugepages=N, or \
         /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)",
    )
}

impl Pages {
    /// The kinds that CUDA does not allocate: on huge pages, of a node, or anywhere.
    pub(crate) fn of_kind(kind: Host, bytes: u64) -> Result<Pages, Error> {
        match kind {
            Host::Huge => Pages::huge(bytes),
            Host::Node(n) => Pages::of_node(n, bytes),
            Host::Pinned | Host::Pageable | Host::Registered | Host::WriteCombined => {
                map(bytes, 0).map_err(|_| Error::Memory { bytes })
            }
        }
    }

    /// On pages of 2 MiB, which must be reserved.
    fn huge(bytes: u64) -> Result<Pages, Error> {
        let bytes = bytes.next_multiple_of(HUGE);
        match map(bytes, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB) {
            Ok(pages) => Ok(pages),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Err(no_huge_pages().into()),
            Err(error) => Err(Unavailable::new(format!("no huge pages: {error}")).into()),
        }
    }

    /// All pages come from NUMA node `n`.
    fn of_node(n: u32, bytes: u64) -> Result<Pages, Error> {
        check(Host::Node(n))?;
        let bits = u64::BITS as usize;
        let mut mask = [0u64; MAX_NODES / u64::BITS as usize];
        let no_node = || Unavailable::new(format!("NUMA node {n}: nodes are counted up to {}", MAX_NODES - 1));
        *mask.get_mut(n as usize / bits).ok_or_else(no_node)? |= 1 << (n as usize % bits);
        let pages = map(bytes, 0).map_err(|_| Error::Memory { bytes })?;
        // SAFETY: this function's own mapping, no page of which has been touched. The mask has `MAX_NODES` bits; one more is
        // passed, because the kernel leaves out the last.
        let bound = unsafe {
            libc::syscall(libc::SYS_mbind, pages.as_ptr(), bytes, MPOL_BIND, mask.as_ptr(), MAX_NODES + 1, 0)
        };
        if bound != 0 {
            let error = io::Error::last_os_error();
            return Err(Unavailable::new(format!("memory of NUMA node {n} alone (mbind): {error}")).into());
        }
        // SAFETY: that many bytes are mapped. Touching them now allocates them from the node now.
        unsafe { pages.as_ptr().write_bytes(0, bytes as usize) };
        Ok(pages)
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

fn map(bytes: u64, flags: libc::c_int) -> io::Result<Pages> {
    let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, prot, flags, -1, 0) };
    match NonNull::new(at.cast()) {
        Some(pointer) if at != libc::MAP_FAILED => Ok(Pages { pointer, length }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `map`, which is no longer in use.
        unsafe { libc::munmap(self.pointer.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 0x1000;

    fn reason(error: Error) -> String {
        match error {
            Error::Unavailable(unavailable) => unavailable.reason,
            other => panic!("{other}"),
        }
    }

    /// The memory is zeroed, and all of it can be written.
    fn works(pages: &Pages, bytes: usize) {
        // SAFETY: the memory has that many bytes.
        let all = unsafe { std::slice::from_raw_parts_mut(pages.as_ptr(), bytes) };
        assert!(all.iter().all(|byte| *byte == 0));
        all.fill(7);
    }

    #[test]
    fn memory_of_a_node_is_there_or_says_why() {
        match Pages::of_kind(Host::Node(0), 3 * PAGE as u64 + 5) {
            Ok(pages) => works(&pages, 3 * PAGE + 5),
            Err(error) => assert!(reason(error).contains("NUMA node 0")),
        }
        let none = reason(Pages::of_kind(Host::Node(999), 1).unwrap_err());
        assert!(none.contains("no NUMA node 999"), "{none}");
    }

    #[test]
    fn huge_pages_are_there_or_the_sysctl_is_named() {
        match Pages::of_kind(Host::Huge, 5) {
            Ok(pages) => {
                assert_eq!(pages.as_ptr() as u64 % HUGE, 0);
                works(&pages, HUGE as usize);
            }
            Err(error) => {
                let why = reason(error);
                assert!(why.contains("vm.nr_hugepages") || why.starts_with("no huge pages: "), "{why}");
            }
        }
    }
}
