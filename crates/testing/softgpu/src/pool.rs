//! GPU memory in one file, for devices that other programs emulate. Such a program shows the file as the BAR of a card, so a device there that
//! writes to a bus address of that BAR writes into a buffer of this GPU.
//!
//! A byte's bus address is that of the file's first byte and its offset. It does not change as long as the memory is there, mapped for
//! the CPU or not.

use crate::sys::{self, PAGE};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

/// The GPU's large pages begin at multiples of this, and so do parts of that size.
const LARGE: u64 = 2 << 20;

/// The file and its used parts.
#[derive(Debug)]
pub struct Pool {
    file: OwnedFd,
    at: *mut u8,
    length: u64,
    bus: u64,
    /// Length by offset.
    taken: Mutex<BTreeMap<u64, u64>>,
}

// SAFETY: the mapping lives as long as the pool; parts of it are accessed as described at `Memory`.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// A range of the file that belongs to one memory object.
#[derive(Debug)]
pub struct Part {
    pool: Arc<Pool>,
    offset: u64,
    length: u64,
}

impl Pool {
    /// All of `file`, whose first byte other devices find at `bus`.
    ///
    /// # Errors
    /// The file has no complete page, `bus` is not page-aligned, or the file cannot be mapped.
    pub fn new(file: BorrowedFd<'_>, bus: u64) -> io::Result<Arc<Pool>> {
        let file = file.try_clone_to_owned()?;
        // SAFETY: a plain struct of numbers.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a descriptor owned here and a place for the answer.
        if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let length = stat.st_size as u64 & !(PAGE - 1);
        if length == 0 || !bus.is_multiple_of(PAGE) || bus.checked_add(length).is_none() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { sys::mmap(0, length as usize, prot, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::from_raw_os_error(sys::errno()));
        }
        Ok(Arc::new(Pool { file, at: at.cast(), length, bus, taken: Mutex::default() }))
    }

    /// `FILE@BUS`: a path, and the bus address in hexadecimal digits.
    ///
    /// # Errors
    /// What is wrong with the text or the file.
    pub fn parse(text: &str) -> Result<Arc<Pool>, String> {
        let (path, bus) = text.rsplit_once('@').ok_or("FILE@BUS, as in /dev/shm/video@0x1000000000")?;
        let bus = u64::from_str_radix(bus.trim_start_matches("0x"), 16).map_err(|e| format!("{bus}: {e}"))?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| format!("{path}: {e}"))?;
        Pool::new(file.as_fd(), bus).map_err(|e| format!("{path}: {e}"))
    }

    /// Where other devices find its first byte.
    pub fn bus(&self) -> u64 {
        self.bus
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        poison::ignore(self.taken.lock())
    }

    /// Whole unused pages, zeroed: the first gap that is large enough. `None`: there is none.
    pub(crate) fn take(pool: &Arc<Pool>, length: u64) -> Option<Part> {
        let grain = if length.is_multiple_of(LARGE) { LARGE } else { PAGE };
        let offset = {
            let mut taken = pool.taken();
            let mut offset = 0u64;
            for (&begin, &length_there) in taken.iter() {
                if begin.checked_sub(offset).is_some_and(|gap| gap >= length) {
                    break;
                }
                offset = (begin + length_there).next_multiple_of(grain);
            }
            let end = offset.checked_add(length).filter(|&end| end <= pool.length)?;
            taken.insert(offset, end - offset);
            offset
        };
        // The last owner's contents are erased for all processes that map the file. SAFETY: within the mapping, and just taken, so it has no
        // other owner.
        unsafe { pool.at.add(offset as usize).write_bytes(0, length as usize) };
        Some(Part { pool: pool.clone(), offset, length })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool's own mapping; every part keeps the pool.
        unsafe { sys::munmap(self.at as usize, self.length as usize) };
    }
}

impl Part {
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        // SAFETY: within the pool's mapping.
        unsafe { self.pool.at.add(self.offset as usize) }
    }

    pub(crate) fn file(&self) -> i32 {
        self.pool.file.as_raw_fd()
    }

    /// Where in the file it begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn bus(&self) -> u64 {
        self.pool.bus + self.offset
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Unused pages take no memory; if the file system does not support holes they stay until they are taken again.
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a range of the pool's own file, which no memory object has any more.
        unsafe { libc::fallocate(self.file(), hole, self.offset as i64, self.length as i64) };
        self.pool.taken().remove(&self.offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    fn pool(pages: u64, bus: u64) -> Arc<Pool> {
        // SAFETY: a new descriptor without another owner.
        let file = unsafe { OwnedFd::from_raw_fd(sys::memfd(c"pool", pages * PAGE).unwrap()) };
        Pool::new(file.as_fd(), bus).unwrap()
    }

    #[test]
    fn parts_do_not_overlap_and_are_zeroed_again() {
        let pool = pool(8, 0x10_0000);
        let [a, b, c] = [2, 3, 3].map(|pages| Pool::take(&pool, pages * PAGE).unwrap());
        assert_eq!([a.bus(), b.bus(), c.bus()], [0x10_0000, 0x10_2000, 0x10_5000]);
        assert!(Pool::take(&pool, PAGE).is_none());
        // SAFETY: three pages of the part's.
        unsafe { b.as_ptr().write_bytes(7, 3 * PAGE as usize) };
        drop(b);
        assert!(Pool::take(&pool, 4 * PAGE).is_none());
        let again = Pool::take(&pool, 2 * PAGE).unwrap();
        assert_eq!(again.bus(), 0x10_2000);
        // SAFETY: two pages of the part's.
        let bytes = unsafe { std::slice::from_raw_parts(again.as_ptr(), 2 * PAGE as usize) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn large_parts_begin_on_a_large_page() {
        let pool = pool(1024 + 512, 0);
        let small = Pool::take(&pool, PAGE).unwrap();
        let large = Pool::take(&pool, LARGE).unwrap();
        assert_eq!((small.bus(), large.bus()), (0, LARGE));
        assert_eq!(Pool::take(&pool, 511 * PAGE).unwrap().bus(), PAGE, "the gap in front of it");
    }

    #[test]
    fn a_text_without_a_valid_file_gives_the_reason() {
        for (text, why) in
            [("/dev/shm/x", "FILE@BUS"), ("/nowhere@10", "No such file"), ("/dev/null@z", "invalid digit")]
        {
            let said = Pool::parse(text).map(drop).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!(Pool::parse("/dev/null@0x1000").is_err(), "no page");
    }
}
