//! Where each library is mapped: records the mappings, and again whenever a caller's code is not on the tape.
//!
//! Callers are looked up by the page of their code ([`is_known`]): ten libraries call a program's locks in turns.

use super::build_id;
use crate::process::maps::{self, EXECUTE, Mapping, PRIVATE, READ, WRITE};
use crate::process::own_lock::OwnLock;
use crate::process::region::control;
use crate::process::restrictions::{may, need};
use crate::process::sys::{self, syscall6};
use crate::process::thread::{self, Thread};
use crate::process::wiped::word;
use crate::record::{self, names};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tape::lock::{MappingBody, kind};

const NONE: Mapping = Mapping { start: 0, end: 0, offset: 0, inode: 0, rights: 0 };
/// Maximum number of known mappings; further ones are recorded again each time.
const KNOWN: usize = 4096;
/// Minimum number of ticks between two readings: about half a millisecond.
const PAUSE: u64 = 1_000_000;

struct State {
    known: Known,
    /// [`EDITION`], before the mappings were read.
    edition: u32,
    text: [u8; 32 << 10],
    /// The bytes in which a file's build id is searched.
    beginning: [u8; build_id::ROOM],
}

/// The mappings on the tape, and the next version of them during a reading.
struct Known {
    now: [Mapping; KNOWN],
    n: usize,
    next: [Mapping; KNOWN],
    exe: [u8; 512],
    exe_len: usize,
}

static STATE: OwnLock<State, { word::CODE }> = OwnLock::new(State {
    known: Known { now: [NONE; KNOWN], n: 0, next: [NONE; KNOWN], exe: [0; 512], exe_len: 0 },
    edition: 0,
    text: [0; 32 << 10],
    beginning: [0; build_id::ROOM],
});

static LAST: AtomicU64 = AtomicU64::new(0);

/// Pages of code whose mapping is on the tape. The low bits of a page's number select its slot, which stores the rest
/// above [`EDITION`]. A page that takes another's slot costs that one another look.
static PAGES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
const SLOTS: usize = 4096;

/// A number for the known code. It changes when the program has closed a library, because another may be loaded in its
/// place. (Not 0, the value of empty slots.)
static EDITION: AtomicU32 = AtomicU32::new(1);

#[inline(always)]
fn slot(site: usize) -> &'static AtomicU64 {
    &PAGES[(site >> 12) % SLOTS]
}

#[inline(always)]
fn entry(site: usize, edition: u32) -> u64 {
    (site / 4096 / SLOTS) as u64 * (1 << 32) + u64::from(edition)
}

/// True if the mapping of the code at `site` is on the tape.
#[inline(always)]
pub fn is_known(site: usize) -> bool {
    slot(site).load(Ordering::Relaxed) == entry(site, EDITION.load(Ordering::Relaxed))
}

/// The program has closed a library: no code counts as known until the mappings are read again.
pub fn close() {
    EDITION.fetch_add(1, Ordering::Relaxed);
}

/// Code was called that no reading has found, and there was no time for another reading.
static MISSED: AtomicBool = AtomicBool::new(false);

/// The program is about to close a library: the last chance to record its code.
pub fn about_to_close() {
    if !MISSED.load(Ordering::Relaxed) || !may(need::FILES) {
        return;
    }
    let t = thread::here();
    if !t.writer.get().is_null()
        && let Some(mut s) = STATE.try_lock()
    {
        s.read(t);
    }
}

/// Makes sure that the code at `site` is on the tape. If another thread is reading, or a reading just failed to find it,
/// it stays unknown: the caller tries again with its next call.
#[cold]
pub fn look(t: &Thread, site: usize) {
    let edition = EDITION.load(Ordering::Relaxed);
    let Some(mut s) = STATE.try_lock() else { return };
    let on_tape = s.edition == edition && s.known.has(site);
    if !on_tape && may(need::FILES) {
        let now = sys::rdtsc();
        if now.wrapping_sub(LAST.load(Ordering::Relaxed)) < PAUSE {
            MISSED.store(true, Ordering::Relaxed);
            return;
        }
        LAST.store(now, Ordering::Relaxed);
        s.read(t);
    }
    // Also for code that was just mapped and is in no mapping: otherwise each call would repeat this.
    slot(site).store(entry(site, edition), Ordering::Relaxed);
}

impl State {
    fn read(&mut self, t: &Thread) {
        self.edition = EDITION.load(Ordering::Relaxed);
        MISSED.store(false, Ordering::Relaxed);
        let State { known, text, beginning, .. } = self;
        if known.exe_len == 0 && !names() {
            let (to, n) = (known.exe.as_mut_ptr() as usize, known.exe.len());
            // SAFETY: a NUL-terminated path and a buffer with its length.
            let got = unsafe { syscall6(libc::SYS_readlink, c"/proc/self/exe".as_ptr() as usize, to, n, 0, 0, 0) };
            known.exe_len = got.max(0) as usize;
        }
        let mut walk = Walk { old: 0, new: 0, data_end: 0, read: false };
        maps::each(text, |mapping, path| {
            walk.read = true;
            known.line(t, *mapping, path, beginning, &mut walk);
            false
        });
        // (Not the whole tables, which are large: a forked child would get a copy of each page of them.)
        if let (true, Some(now), Some(next)) = (walk.read, known.now.get_mut(..walk.new), known.next.get(..walk.new)) {
            now.copy_from_slice(next);
            known.n = walk.new;
        }
    }
}

impl Known {
    /// True if code at `site` is on the tape.
    fn has(&self, site: usize) -> bool {
        let known = self.now.get(..self.n).unwrap_or(&[]);
        let before = &known[..known.partition_point(|r| r.start <= site)];
        before.last().is_some_and(|r| site < r.end && r.rights & EXECUTE != 0)
    }

    fn line(&mut self, t: &Thread, mut r: Mapping, path: &[u8], beginning: &mut [u8], walk: &mut Walk) {
        // The agent's own rings do not belong to the program.
        if maps::is_region(path) {
            return;
        }
        let file = path.first() == Some(&b'/');
        // A mapping without a file directly after a library's data is its zeroed data.
        let zeroed = path.is_empty() && r.start == walk.data_end && r.rights & WRITE != 0;
        if file && r.rights & (WRITE | PRIVATE) == WRITE | PRIVATE {
            walk.data_end = r.end;
        }
        // (Not recorded.)
        r.rights &= !PRIVATE;
        if !file && !zeroed && r.rights & EXECUTE == 0 {
            return;
        }
        while self.now.get(walk.old).is_some_and(|k| walk.old < self.n && k.start < r.start) {
            walk.old += 1;
        }
        let is_new = walk.old >= self.n || self.now.get(walk.old) != Some(&r);
        if let Some(next) = self.next.get_mut(walk.new) {
            *next = r;
            walk.new += 1;
        }
        if is_new {
            let is_program = self.exe_len > 0 && self.exe.get(..self.exe_len) == Some(path);
            match is_program {
                true => record_mapping(t, &r, b"/program", &[]),
                false => record_mapping(t, &r, path, if file { build_id_of(&r, beginning) } else { &[] }),
            }
        }
    }
}

/// In a forked child: none of its code is on its tape.
pub fn renew() {
    EDITION.fetch_add(1, Ordering::Relaxed);
    if let Some(mut s) = STATE.try_lock() {
        s.known.n = 0;
        // (Loaded first: a child gets a copy of each page that it writes to.)
        if s.known.exe_len != 0 {
            s.known.exe_len = 0;
        }
    }
    LAST.store(0, Ordering::Relaxed);
    MISSED.store(false, Ordering::Relaxed);
}

/// The state of a reading.
struct Walk {
    /// Index in the known mappings.
    old: usize,
    new: usize,
    /// Where the last writable mapping of a library ended.
    data_end: usize,
    /// The mappings could be read.
    read: bool,
}

/// The build id of the file whose begin is mapped here: read from memory, so it is right even if the file has changed.
fn build_id_of<'a>(r: &Mapping, room: &'a mut [u8]) -> &'a [u8] {
    if r.offset != 0 || r.rights & READ == 0 || !may(need::PEEK) {
        return &[];
    }
    let pid = control().map_or(0, |c| c.pid.load(Ordering::Relaxed));
    build_id::find(room, |at, to| {
        let from = r.start.checked_add(usize::try_from(at).ok()?)?;
        let to = to.get_mut(..r.end.checked_sub(from)?.min(to.len()))?;
        Some(sys::peek(pid, from, to))
    })
}

fn record_mapping(t: &Thread, r: &Mapping, path: &[u8], build_id: &[u8]) {
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
    // SAFETY: `enter` has made sure that this thread has a writer, and the thread is busy.
    let w = unsafe { &mut *t.writer.get() };
    record::push(w, kind::MAPPING, build_id.len() as u16, sys::rdtsc(), &body, path, build_id);
    w.publish();
    t.busy.set(false);
}
