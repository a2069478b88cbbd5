//! Memory files, and mappings of them.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A memfd with `bytes` in it, at least `len` bytes long, and executable if the kernel allows a choice.
///
/// The limit of file sizes (`ulimit -f`) is meant for files on disks. It is lifted for this call, as far as allowed.
pub fn memfd(name: &CStr, bytes: &[u8], len: usize) -> io::Result<File> {
    const MFD_EXEC: u32 = 0x10;
    // SAFETY: a NUL-terminated name. Kernels before 6.3 have no MFD_EXEC and make every memfd executable.
    let fd = unsafe {
        match libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | MFD_EXEC) {
            -1 => libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC),
            fd => fd,
        }
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor without another owner.
    let mut f = unsafe { File::from_raw_fd(fd) };
    let _limit = FileSizeLimit::lift();
    f.write_all(bytes)?;
    if len > bytes.len() {
        f.set_len(len as u64)?;
    }
    Ok(f)
}

/// Extends a memory file to `len` bytes.
pub fn make_longer(file: &File, len: usize) -> io::Result<()> {
    let _limit = FileSizeLimit::lift();
    file.set_len(len as u64)
}

/// Frees a range of a memory file. It reads as zeros afterwards.
pub fn give_back(file: &File, offset: usize, len: usize) {
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a file of this process.
    unsafe { libc::fallocate(file.as_raw_fd(), how, offset as libc::off_t, len as libc::off_t) };
}

/// The previous limit of file sizes, restored when this is dropped.
struct FileSizeLimit(Option<libc::rlimit>);

impl FileSizeLimit {
    fn lift() -> FileSizeLimit {
        let mut was = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call writes only the struct that it is given.
        unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut was) };
        if was.rlim_cur == libc::RLIM_INFINITY {
            return FileSizeLimit(None);
        }
        let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        let most = libc::rlimit { rlim_cur: was.rlim_max, ..was };
        // SAFETY: the calls read only the structs that they are given. Only a privileged process may lift the hard
        // limit.
        let lifted = unsafe {
            libc::setrlimit(libc::RLIMIT_FSIZE, &none) == 0 || libc::setrlimit(libc::RLIMIT_FSIZE, &most) == 0
        };
        FileSizeLimit(lifted.then_some(was))
    }
}

impl Drop for FileSizeLimit {
    fn drop(&mut self) {
        if let Some(was) = &self.0 {
            // SAFETY: the call reads only the struct that it is given.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, was) };
        }
    }
}

/// `/proc/<pid>/fd/<n>` of one of this process's descriptors.
pub fn path_of(f: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), f.as_raw_fd())
}

/// A mapped piece of a file. Where the file has lost its end, or its file system has no room for a page, the page reads as zeros
/// (see [`replace_lost_page`]).
pub struct Mapping {
    at: *mut u8,
    len: usize,
    listed: Option<&'static Listed>,
}

/// The addresses of a mapping, 0 if the entry is free.
struct Listed {
    at: AtomicUsize,
    end: AtomicUsize,
}

/// The first mappings, for the handler of SIGBUS. (More than these are mapped only for a program with thousands of threads.)
static LISTED: [Listed; 4096] = [const { Listed { at: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; 4096];
static LOST: AtomicBool = AtomicBool::new(false);

impl Listed {
    fn add(at: usize, len: usize) -> Option<&'static Listed> {
        let free = |l: &&Listed| l.at.compare_exchange(0, at, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let entry = LISTED.iter().find(free)?;
        entry.end.store(at + len, Ordering::Release);
        Some(entry)
    }
}

/// A handler of SIGBUS. Other processes may shorten a file that is mapped here, or use up its file system. Then a page of zeros
/// takes the place of the one that is gone. A fault elsewhere ends the recording.
pub extern "C" fn replace_lost_page(signal: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel's pointer, for this signal.
    let page = unsafe { (*info).si_addr() } as usize & !(PAGE - 1);
    let holds = |l: &Listed| {
        let at = l.at.load(Ordering::Acquire);
        at != 0 && (at..l.end.load(Ordering::Acquire)).contains(&page)
    };
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: a page of this process's own mapping; calls that a handler may make.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        if LISTED.iter().any(holds) && libc::mmap(page as *mut _, PAGE, rights, how, -1, 0) != libc::MAP_FAILED {
            LOST.store(true, Ordering::Relaxed);
        } else {
            crate::signals::outlive(signal);
        }
    }
}

/// True after a page of a mapping was lost.
pub fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

const PAGE: usize = tape::region::PAGE;

// SAFETY: the contents are read and written through atomics, or handed over by them.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes from `offset`, a multiple of the page size, to read and write.
    pub fn new(file: &File, offset: usize, len: usize) -> io::Result<Mapping> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping.
        let mapped =
            unsafe { Mapping::map(std::ptr::null_mut(), len, rights, libc::MAP_SHARED, file.as_raw_fd(), offset) };
        mapped.map(|mut m| {
            m.listed = Listed::add(m.at as usize, len);
            m
        })
    }

    /// A page of a ring's head, then its `bytes` of events, then the same events again. So an event that wraps is
    /// contiguous.
    pub fn of_ring(file: &File, offset: usize, page: usize, bytes: usize) -> io::Result<Mapping> {
        let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (rights, over) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        let fd = file.as_raw_fd();
        // SAFETY: a new address range, replaced by pieces of the file, which are unmapped with it.
        unsafe {
            let mut whole = Mapping::map(std::ptr::null_mut(), page + 2 * bytes, libc::PROT_NONE, none, -1, 0)?;
            let first = Mapping::map(whole.at, page + bytes, rights, over, fd, offset)?;
            std::mem::forget(first);
            let second = Mapping::map(whole.at.add(page + bytes), bytes, libc::PROT_READ, over, fd, offset + page)?;
            std::mem::forget(second);
            whole.listed = Listed::add(whole.at as usize, whole.len);
            Ok(whole)
        }
    }

    /// # Safety
    /// As mmap: with MAP_FIXED, existing mappings there are replaced.
    unsafe fn map(at: *mut u8, len: usize, rights: i32, flags: i32, fd: i32, offset: usize) -> io::Result<Mapping> {
        // SAFETY: the caller's.
        let p = unsafe { libc::mmap(at.cast(), len, rights, flags, fd, offset as libc::off_t) };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { at: p.cast(), len, listed: None })
    }

    /// Brings `len` bytes from `from` (multiples of the page size) into memory and into this process's page table, without
    /// changing their contents. False if the kernel does not.
    pub fn make_present(&self, from: usize, len: usize) -> bool {
        if from.checked_add(len).is_none_or(|end| end > self.len) {
            return false;
        }
        // SAFETY: inside this mapping; its contents stay.
        unsafe { libc::madvise(self.at.add(from).cast(), len, libc::MADV_POPULATE_WRITE) == 0 }
    }

    /// Its first byte. A mapping holds the contents of the file: zeros at first.
    pub fn at(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(listed) = self.listed {
            listed.end.store(0, Ordering::Release);
            listed.at.store(0, Ordering::Release);
        }
        // SAFETY: this mapping is unmapped only here, and no pointer into it outlives it.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// True if the kernel refuses memory beyond a limit (`vm.overcommit_memory` is 2): then a page of a memory file may be refused at its
/// first touch, too.
pub fn is_strict() -> bool {
    std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|s| s.trim() == "2")
}

/// Brings `len` bytes of a memory file at `offset` into memory, so that their first touch finds them there.
pub fn make_resident(file: &File, offset: usize, len: usize) -> io::Result<()> {
    // SAFETY: a file of this process.
    let r = unsafe { libc::fallocate(file.as_raw_fd(), 0, offset as libc::off_t, len as libc::off_t) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
/// From now on a freed block of 256 KiB or more returns to the kernel immediately. Otherwise, once one such block was freed, glibc keeps blocks of this size
/// for later use, in pieces that pieces of other sizes do not fit into: 27 MB of heap were seen with 5 MB in use.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only numbers.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
        // Each thread's own heap takes 64 MiB of address space.
        if crate::limits::address_space().is_some() {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}
