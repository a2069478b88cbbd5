//! The region as the recorder holds it: a memfd, mapped whole, with settings written before the program starts.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use tape::region::{self, CallRow, Control, LockTable, PAGE, RINGS, RingHead, SLOTS, Slot};
use tape::ring::Reader;

/// A memfd with `bytes` in it, executable if the kernel lets us say so.
pub fn memfd(name: &CStr, bytes: &[u8]) -> io::Result<File> {
    const MFD_EXEC: u32 = 0x10;
    // SAFETY: a NUL-terminated name. Kernels before 6.3 know no MFD_EXEC and make every memfd executable.
    let fd = unsafe {
        match libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | MFD_EXEC) {
            -1 => libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC),
            fd => fd,
        }
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor of our own.
    let mut f = unsafe { File::from_raw_fd(fd) };
    f.write_all(bytes)?;
    Ok(f)
}

pub struct Shared {
    file: File,
    base: *mut u8,
    bytes: usize,
    ring_bytes: usize,
}

// SAFETY: the region is atomics and bytes handed over by them.
unsafe impl Send for Shared {}

impl Shared {
    pub fn new(ring_bytes: usize, tap: u32, on_full: u32, locks: u32) -> io::Result<Shared> {
        let file = memfd(c"doorbell-rings", &[])?;
        let bytes = region::region_bytes(ring_bytes);
        file.set_len(bytes as u64)?;
        // SAFETY: a fresh mapping of our own file.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = base.cast::<u8>();
        // SAFETY: zeroed memory of at least a page, ours alone so far.
        unsafe {
            let c = base.cast::<Control>();
            (&raw mut (*c).magic).write(region::MAGIC);
            (&raw mut (*c).version).write(region::VERSION);
            (&raw mut (*c).tap).write(tap);
            (&raw mut (*c).on_full).write(on_full);
            (&raw mut (*c).locks).write(locks);
            (&raw mut (*c).ring_bytes).write(ring_bytes as u32);
        }
        let s = Shared { file, base, bytes, ring_bytes };
        s.make_resident(0, region::RINGS_AT.min(region::SHADOW_AT + (1 << 20)))?;
        Ok(s)
    }

    /// Path by which another process of the same user opens the region while we live.
    pub fn path(&self) -> String {
        path_of(&self.file)
    }

    pub fn control(&self) -> &Control {
        // SAFETY: mapped and initialised by `new`.
        unsafe { &*self.base.cast::<Control>() }
    }

    pub fn slots(&self) -> &[Slot] {
        // SAFETY: inside the region; atomics only.
        unsafe { std::slice::from_raw_parts(self.base.add(region::SLOTS_AT).cast(), SLOTS) }
    }

    /// What the thread of ring `i` holds; `None` past the last ring.
    pub fn locks(&self, i: usize) -> Option<&LockTable> {
        let at = region::ring_at(i, self.ring_bytes) + region::LOCKS_AT;
        // SAFETY: inside the ring's first page; atomics only.
        (i < RINGS).then(|| unsafe { &*self.base.add(at).cast() })
    }

    /// The call of CUDA's that the thread of ring `i` is in; `None` past the last ring.
    pub fn call(&self, i: usize) -> Option<&CallRow> {
        let at = region::ring_at(i, self.ring_bytes) + region::CALL_AT;
        // SAFETY: inside the ring's first page; atomics only.
        (i < RINGS).then(|| unsafe { &*self.base.add(at).cast() })
    }

    /// The word at a byte offset of the region (a shadow USERD's GP_PUT); `None` outside.
    pub fn word(&self, at: u64) -> Option<u32> {
        let at = usize::try_from(at).ok()?;
        let inside = at.is_multiple_of(4) && at.checked_add(4)? <= self.bytes;
        // SAFETY: aligned and inside the region; the program may write it, so the read is volatile.
        inside.then(|| unsafe { self.base.add(at).cast::<u32>().read_volatile() })
    }

    /// A reader of ring `i`; its data is mapped twice in a row.
    pub fn ring(&self, i: usize) -> io::Result<Ring> {
        if i >= RINGS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let at = region::ring_at(i, self.ring_bytes);
        let n = self.ring_bytes;
        // SAFETY: an address range of our own, both halves of which become the ring's data.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let area = libc::mmap(std::ptr::null_mut(), 2 * n, libc::PROT_NONE, flags, -1, 0);
            if area == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            for half in 0..2 {
                let to = area.cast::<u8>().add(half * n).cast();
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                let off = (at + PAGE) as libc::off_t;
                if libc::mmap(to, n, libc::PROT_READ, flags, self.file.as_raw_fd(), off) == libc::MAP_FAILED {
                    let e = io::Error::last_os_error();
                    libc::munmap(area, 2 * n);
                    return Err(e);
                }
            }
            let head = self.base.add(at).cast::<RingHead>();
            Ok(Ring { reader: Reader::new(head, area.cast(), n as u64), area, len: 2 * n, head_noted: false })
        }
    }

    /// Memory for a ring, so that the program's first touch finds it there.
    pub fn make_ring_ready(&self, i: usize) -> io::Result<()> {
        self.make_resident(region::ring_at(i, self.ring_bytes), PAGE + self.ring_bytes)
    }

    fn make_resident(&self, at: usize, len: usize) -> io::Result<()> {
        // SAFETY: our own file.
        let r = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, at as libc::off_t, len as libc::off_t) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping; rings hold mappings of their own but point to heads in here, and do not outlive us
        // (both live in one session).
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// A ring as this side sees it.
pub struct Ring {
    pub reader: Reader,
    area: *mut libc::c_void,
    len: usize,
    /// It was said on the tape that the ring's head is none.
    pub head_noted: bool,
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which only `reader` reads.
        unsafe { libc::munmap(self.area, self.len) };
    }
}

/// `/proc/<pid>/fd/<n>` of one of our descriptors.
pub fn path_of(f: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), f.as_raw_fd())
}
