//! Which library lies where: /proc/self/maps onto the tape, again whenever a caller comes from code that is not on it.
//!
//! The loader's own list stands behind a lock that a thread may hold while it waits for one of the program's, so it is
//! left alone.

use super::names;
use crate::lock::Cold;
use crate::record;
use crate::sys::{self, syscall6};
use crate::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};
use tape::lock::{MappingBody, kind};

const READ: u32 = 1;
const WRITE: u32 = 2;
const EXECUTE: u32 = 4;
/// Not shared: a library is mapped so. (Not for the tape.)
const PRIVATE: u32 = 8;

/// A mapping that is on the tape.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Range {
    start: usize,
    end: usize,
    offset: u64,
    inode: u64,
    rights: u32,
}

const NONE: Range = Range { start: 0, end: 0, offset: 0, inode: 0, rights: 0 };
/// Mappings known at most; those behind them are told again each time.
const KNOWN: usize = 4096;
/// Ticks between two readings, at least: about half a millisecond.
const PAUSE: u64 = 1_000_000;

struct State {
    known: [Range; KNOWN],
    n: usize,
    next: [Range; KNOWN],
    text: [u8; 32 << 10],
    exe: [u8; 512],
    exe_len: usize,
}

static STATE: Cold<State> = Cold::new(State {
    known: [NONE; KNOWN],
    n: 0,
    next: [NONE; KNOWN],
    text: [0; 32 << 10],
    exe: [0; 512],
    exe_len: 0,
});

static LAST: AtomicU64 = AtomicU64::new(0);

/// Makes sure that the code at `site` is on the tape, and remembers it for this thread.
#[cold]
pub fn look(t: &Thread, site: usize) {
    if let Some(code) = code_at(t, site) {
        t.code[1].set(t.code[0].get());
        t.code[0].set(code);
    }
}

/// Makes sure that the code at `site` is on the tape: where it begins, and its length. `None` if that is another thread's
/// work just now, or was done a moment ago in vain: the caller comes again with its next call.
#[cold]
pub fn code_at(t: &Thread, site: usize) -> Option<(usize, usize)> {
    let mut s = STATE.try_lock()?;
    let s = &mut *s;
    let mut found = s.code(site);
    if found.is_none() {
        let now = sys::tsc();
        if now.wrapping_sub(LAST.load(Ordering::Relaxed)) < PAUSE {
            return None;
        }
        LAST.store(now, Ordering::Relaxed);
        s.read(t);
        found = s.code(site);
    }
    // Code that was mapped a moment ago and is on no map: its page, so that this is not done again at each call.
    Some(found.map_or((site & !4095, 4096), |r| (r.start, r.end - r.start)))
}

impl State {
    fn code(&self, site: usize) -> Option<Range> {
        let known = self.known.get(..self.n)?;
        let i = known.partition_point(|r| r.start <= site).checked_sub(1)?;
        known.get(i).copied().filter(|r| site < r.end && r.rights & EXECUTE != 0)
    }

    fn read(&mut self, t: &Thread) {
        let open = |path: &core::ffi::CStr| {
            // SAFETY: a NUL-terminated path.
            unsafe { syscall6(libc::SYS_open, path.as_ptr() as usize, libc::O_CLOEXEC as usize, 0, 0, 0, 0) }
        };
        let fd = open(c"/proc/self/maps");
        if fd < 0 {
            return;
        }
        if self.exe_len == 0 && !names() {
            let (to, n) = (self.exe.as_mut_ptr() as usize, self.exe.len());
            // SAFETY: a NUL-terminated path and a buffer with its length.
            let got = unsafe { syscall6(libc::SYS_readlink, c"/proc/self/exe".as_ptr() as usize, to, n, 0, 0, 0) };
            self.exe_len = got.max(0) as usize;
        }
        let mut walk = Walk { old: 0, new: 0, data_end: 0 };
        let mut have = 0;
        while let Some(room) = self.text.get_mut(have..) {
            // SAFETY: a buffer with its length.
            let got = unsafe { syscall6(libc::SYS_read, fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0) };
            if got <= 0 {
                break;
            }
            have += got as usize;
            let mut from = 0;
            while let Some(n) = self.text.get(from..have).and_then(|b| b.iter().position(|&b| b == b'\n')) {
                self.line(t, from, from + n, &mut walk);
                from += n + 1;
            }
            self.text.copy_within(from..have, 0);
            have -= from;
        }
        // SAFETY: our own descriptor.
        unsafe { syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0) };
        self.n = walk.new;
        self.known.swap_with_slice(&mut self.next);
    }

    /// One line of the maps, in `text`.
    fn line(&mut self, t: &Thread, from: usize, to: usize, walk: &mut Walk) {
        let Some((mut r, path)) = self.text.get(from..to).and_then(parse) else { return };
        // Our own rings are no part of the program.
        if path.starts_with(b"/memfd:doorbell-rings") {
            return;
        }
        let file = path.first() == Some(&b'/');
        // What follows a library's data without a file is its zeroed data.
        let zeroed = path.is_empty() && r.start == walk.data_end && r.rights & WRITE != 0;
        if file && r.rights & (WRITE | PRIVATE) == WRITE | PRIVATE {
            walk.data_end = r.end;
        }
        r.rights &= !PRIVATE;
        if !file && !zeroed && r.rights & EXECUTE == 0 {
            return;
        }
        while self.known.get(walk.old).is_some_and(|k| walk.old < self.n && k.start < r.start) {
            walk.old += 1;
        }
        let is_new = walk.old >= self.n || self.known.get(walk.old) != Some(&r);
        if let Some(next) = self.next.get_mut(walk.new) {
            *next = r;
            walk.new += 1;
        }
        if is_new {
            let is_program = self.exe_len > 0 && self.exe.get(..self.exe_len) == Some(path);
            tell(t, &r, if is_program { b"/program" } else { path });
        }
    }
}

/// Where a reading stands.
struct Walk {
    /// Row of the known mappings.
    old: usize,
    new: usize,
    /// Where the last writable mapping of a library ended.
    data_end: usize,
}

fn tell(t: &Thread, r: &Range, path: &[u8]) {
    if t.busy.replace(true) {
        return;
    }
    let body = MappingBody {
        start: r.start as u64,
        end: r.end as u64,
        offset: r.offset,
        rights: r.rights,
        path: path.len() as u32,
    };
    // SAFETY: `enter` has made sure that there is a writer; it is this thread's, and it is busy.
    let w = unsafe { &mut *t.writer.get() };
    record::push(w, kind::MAPPING, 0, sys::tsc(), &body, path, &[]);
    w.publish();
    t.busy.set(false);
}

/// `start-end rights offset device inode   path`
fn parse(line: &[u8]) -> Option<(Range, &[u8])> {
    let (start, rest) = number(line, 16)?;
    let (end, rest) = number(rest.strip_prefix(b"-")?, 16)?;
    let rights = rest.get(1..5)?;
    let bit = |i: usize, c: u8, bit: u32| if rights.get(i) == Some(&c) { bit } else { 0 };
    let rights = bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXECUTE) | bit(3, b'p', PRIVATE);
    let (offset, rest) = number(rest.get(6..)?, 16)?;
    let device = rest.get(1..)?;
    let rest = device.get(device.iter().position(|&b| b == b' ')? + 1..)?;
    let (inode, rest) = number(rest, 10)?;
    let blanks = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
    let path = rest.get(blanks..)?;
    let path = path.get(..path.len().min(1024))?;
    Some((Range { start: start as usize, end: end as usize, offset, inode, rights }, path))
}

fn number(text: &[u8], base: u32) -> Option<(u64, &[u8])> {
    let n = text.iter().position(|&b| !(b as char).is_digit(base)).unwrap_or(text.len());
    let (digits, rest) = text.split_at(n);
    let mut v = 0u64;
    for &d in digits {
        v = v.checked_mul(u64::from(base))?.checked_add(u64::from((d as char).to_digit(base)?))?;
    }
    (n > 0).then_some((v, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_maps_are_understood() {
        let (r, path) = parse(b"7f12a000-7f12b000 r-xp 0001f000 fd:01 1049  /usr/lib/lib c.so.6").unwrap();
        assert_eq!((r.start, r.end, r.offset, r.inode), (0x7f12_a000, 0x7f12_b000, 0x1f000, 1049));
        assert_eq!((r.rights, path), (READ | EXECUTE | PRIVATE, &b"/usr/lib/lib c.so.6"[..]));
        let (r, path) = parse(b"7ffd1000-7ffd2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((r.rights, path.len()), (READ | WRITE | PRIVATE, 0));
        for bad in [&b""[..], b"zz", b"1-2", b"1-2 r-xp", b"1-2 r-xp 0 fd"] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
    }
}
