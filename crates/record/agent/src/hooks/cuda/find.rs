//! Finds the libraries that define CUDA's calls. Puts entries into their symbol tables, and into references that are
//! already bound.
//!
//! Everything here runs while no other thread loads, unloads or binds a library: see [`super::lookups`].

use super::slots::{self, EXPORT_TABLE, LOOKUP};
use super::{cupti, names, stamps, streams};
use crate::fix;
use crate::process::own_lock::OwnLock;
use crate::process::session::wanted;
use crate::process::symbol::{Dyn, Sym, Tables};
use crate::process::wiped::word;
use crate::process::{region, sys, thread};
use crate::trace::python;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use tape::call::{FUNCTIONS, Function, flag};
use tape::region::{contents, trouble};

/// A library that defines one of these is one of CUDA's.
const MARKER_SYMBOLS: [&[u8]; 2] = [b"cuDriverGetVersion", b"cudaRuntimeGetVersion"];

const PAGE: usize = 4096;
/// Maximum number of real functions with an entry.
const KNOWN: usize = 4096;

struct State {
    /// Counts of loaded and unloaded libraries at the last look.
    seen: Counts,
    /// Number of libraries then: later ones are added at the end.
    looked: usize,
    /// The libraries that the program starts with were examined: later ones may be closed.
    started: bool,
    /// A symbol table was changed.
    changed: bool,
    /// Real functions and their entries, sorted by function.
    known: [(usize, usize); KNOWN],
    n: usize,
}

static STATE: OwnLock<State, { word::LIBRARIES }> = OwnLock::new(State {
    seen: Counts { loaded: 0, unloaded: 0 },
    looked: 0,
    started: false,
    changed: false,
    known: [(0, 0); KNOWN],
    n: 0,
});

/// Examines the libraries, if others are loaded than last time.
///
/// # Safety
/// No other thread loads or unloads a library during the call.
pub unsafe fn look() {
    let Some(mut s) = STATE.lock() else { return };
    let mut now = Counts::default();
    each(&mut |l| {
        now = l.counts;
        false
    });
    if now == s.seen {
        return;
    }
    let _keep = sys::Errno::keep();
    s.changed = false;
    if now.unloaded != s.seen.unloaded {
        // From the start: another library may now be at an unloaded one's place.
        (s.looked, s.n) = (0, 0);
        names::unloaded();
        stamps::unloaded();
        streams::unloaded();
    }
    s.seen = now;
    let mut i = 0;
    each(&mut |l| {
        if i >= s.looked {
            s.define(l);
        }
        i += 1;
        true
    });
    s.looked = i;
    s.started = true;
    // Libraries that are loaded later are bound to the entries.
    if s.changed {
        each(&mut |l| {
            s.bind(l);
            true
        });
    }
}

/// The thread that holds the lock over a fork, or 0.
static FORKING: AtomicI32 = AtomicI32::new(0);

/// A fork waits until no thread is looking: dl_iterate_phdr takes a lock of the loader that libc does not free in the
/// child.
pub fn begin() {
    extern "C" fn before() {
        if let Some(guard) = STATE.lock() {
            core::mem::forget(guard);
            FORKING.store(thread::number(), Ordering::Relaxed);
        }
    }
    extern "C" fn in_parent() {
        // (Not if a signal handler forks in the middle of a look: the look continues.)
        if FORKING.load(Ordering::Relaxed) == thread::number() {
            FORKING.store(0, Ordering::Relaxed);
            STATE.unlock_forgotten();
        }
    }
    extern "C" fn in_child() {
        FORKING.store(0, Ordering::Relaxed);
    }
    // SAFETY: three functions that are never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// The entry for a real function that cuGetProcAddress returned for this name; the function itself if it is not one of
/// the table's.
pub fn given(name: &[u8], real: usize, version: c_int, per_thread: bool) -> usize {
    if slots::real(real).is_some() {
        return real;
    }
    let Some((f, named)) = by_name(name, version, slots::is_used).filter(|(f, _)| is_wanted(*f)) else { return real };
    let flags = if per_thread || named { flag::PER_THREAD } else { 0 };
    // (One thread at a time.)
    let Some(_one) = STATE.lock() else { return real };
    slots::of(f, real, flags).unwrap_or_else(|| {
        region::trouble(trouble::CALLS_FULL);
        real
    })
}

/// In a program that is neither recorded nor guarded, only calls that a fix answers or looks at have entries: others take no time.
fn is_wanted(f: usize) -> bool {
    let concerns_fixes = |f: &Function| fix::needs(f.answer) || fix::kernels::looks_at(f);
    FUNCTIONS.get(f).is_none_or(concerns_fixes)
}

/// An entry, under this number, for one of the program's own functions: for measuring the cost of an entry. 0 if there is
/// none.
pub fn for_measuring(number: u16, real: usize) -> usize {
    let Some(f) = FUNCTIONS.iter().position(|f| f.number == number) else { return 0 };
    let Some(_one) = STATE.lock() else { return 0 };
    slots::of(f, real, 0).unwrap_or(0)
}

/// For a name passed to cuGetProcAddress: its index in the table, and whether it means that stream 0 is the thread's. If
/// a function's first version had other arguments, only a request for a later version counts. Of several forms the driver
/// gives the latest that the version and the driver have: one that it does not export (`is_there`) it cannot give.
fn by_name(name: &[u8], version: c_int, is_there: impl Fn(usize) -> bool) -> Option<(usize, bool)> {
    match name {
        b"cuGetProcAddress" | b"cuGetProcAddress_v2" => return Some((LOOKUP, false)),
        b"cuGetExportTable" => return Some((EXPORT_TABLE, false)),
        _ => {}
    }
    let forms = FUNCTIONS.iter().enumerate().filter_map(|(i, f)| {
        let rest = name.strip_prefix(f.name.as_bytes())?;
        let whole = f.suffixes.iter().any(|s| s.as_bytes() == rest);
        // The first version of those with 32-bit addresses ended with CUDA 3.2.
        let plain = rest.is_empty() && version >= c_int::from(f.since).max(3020) && (f.since == 0 || is_there(i));
        (whole || plain).then(|| (i, rest.windows(3).any(|w| w == b"_pt")))
    });
    forms.last()
}

/// Numbers of libraries that were ever loaded and unloaded.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    loaded: u64,
    unloaded: u64,
}

struct Library {
    base: usize,
    tables: Tables,
    headers: *const libc::Elf64_Phdr,
    headers_n: usize,
    counts: Counts,
}

impl Library {
    /// The addresses of its functions with these names; 0 for one that it lacks.
    ///
    /// # Safety
    /// It is loaded.
    unsafe fn functions<const N: usize>(&self, names: [&[u8]; N]) -> [usize; N] {
        // SAFETY: the caller's.
        names.map(|name| unsafe { self.address(self.tables.function(name)) })
    }

    /// # Safety
    /// The symbol is in its table.
    unsafe fn address(&self, symbol: Option<*mut Sym>) -> usize {
        // SAFETY: the caller's.
        symbol.map_or(0, |symbol| self.base.wrapping_add(unsafe { (*symbol).value }))
    }
}

impl State {
    /// Puts entries into the symbol table of a library that defines calls.
    fn define(&mut self, l: &Library) {
        if wanted(contents::PYTHON) {
            self.python(l);
        }
        self.cupti(l);
        // SAFETY: a loaded library.
        unsafe {
            if MARKER_SYMBOLS.iter().all(|s| l.tables.function(s).is_none()) {
                return;
            }
            for (i, f) in FUNCTIONS.iter().enumerate().filter(|(i, _)| is_wanted(*i)) {
                for suffix in f.suffixes {
                    let flags = if suffix.contains("_pt") { flag::PER_THREAD } else { 0 };
                    self.replace(l, i, &[f.name.as_bytes(), suffix.as_bytes()], flags);
                }
            }
            // (The agent's own calls are not the program's.)
            let real = |at: usize| slots::real(at).unwrap_or(at);
            names::found(l.functions(names::SYMBOLS).map(real));
            stamps::found(l.functions(stamps::SYMBOLS).map(real));
            fix::Driver::found(l.functions(fix::Driver::SYMBOLS).map(real));
            fix::Loading::found(l.functions(fix::Loading::SYMBOLS).map(real));
            streams::found(l.functions(streams::SYMBOLS).map(real));
            self.replace(l, EXPORT_TABLE, &[b"cuGetExportTable", b""], 0);
            for suffix in ["", "_v2"] {
                self.replace(l, LOOKUP, &[b"cuGetProcAddress", suffix.as_bytes()], 0);
            }
        }
    }

    /// Puts entries into the symbol table of a library that defines CUPTI's calls.
    fn cupti(&mut self, l: &Library) {
        for (i, name) in cupti::NAMES.iter().enumerate() {
            // SAFETY: a loaded library, and its symbol table.
            let value = unsafe {
                let Some(symbol) = l.tables.function(name) else { continue };
                &*(&raw mut (*symbol).value).cast::<AtomicUsize>()
            };
            let (now, entry) = (l.base.wrapping_add(value.load(Ordering::Relaxed)), cupti::entry(i));
            if now != entry {
                cupti::found(i, now);
                if !l.store(value, entry.wrapping_sub(l.base)) {
                    continue;
                }
                self.changed = true;
            }
            self.remember(cupti::real(i), entry);
        }
    }

    /// Stores where a Python interpreter has the data that its frames are read with.
    fn python(&self, l: &Library) {
        // SAFETY: a loaded library.
        let functions = unsafe { l.functions(python::FUNCTIONS) };
        if functions[0] != 0 {
            // SAFETY: as above.
            let objects = python::OBJECTS.map(|name| unsafe { l.address(l.tables.object(name)) });
            python::found(functions, objects, self.started);
        }
    }

    unsafe fn replace(&mut self, l: &Library, f: usize, name: &[&[u8]; 2], flags: u16) {
        let mut whole = [0u8; 64];
        let mut n = 0;
        for part in name {
            let Some(to) = whole.get_mut(n..n + part.len()) else { return };
            to.copy_from_slice(part);
            n += part.len();
        }
        // SAFETY: a loaded library.
        let Some(symbol) = (unsafe { whole.get(..n).and_then(|name| l.tables.function(name)) }) else { return };
        // SAFETY: in the library's symbol table.
        let value = unsafe { &*(&raw mut (*symbol).value).cast::<AtomicUsize>() };
        let now = l.base.wrapping_add(value.load(Ordering::Relaxed));
        let (real, at) = match slots::real(now) {
            Some(real) => (real, now),
            None => match slots::of(f, now, flags) {
                Some(at) if l.store(value, at.wrapping_sub(l.base)) => {
                    self.changed = true;
                    (now, at)
                }
                Some(_) => return,
                None => return region::trouble(trouble::CALLS_FULL),
            },
        };
        self.remember(real, at);
    }

    /// A real function has an entry.
    fn remember(&mut self, real: usize, at: usize) {
        let known = self.known.get(..self.n).unwrap_or(&[]);
        let i = known.partition_point(|k| k.0 < real);
        if known.get(i).is_none_or(|k| k.0 != real) && self.n < KNOWN {
            self.known.copy_within(i..self.n, i + 1);
            self.known[i] = (real, at);
            self.n += 1;
        }
    }

    /// Puts entries where a library's references were bound to the real functions. (References that are not bound yet
    /// will be bound to the entries.)
    fn bind(&mut self, l: &Library) {
        const RELA: usize = 24;
        // R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
        const KINDS: [u32; 3] = [1, 6, 7];
        let known = self.known.get(..self.n).unwrap_or(&[]);
        let (Some(low), Some(high)) = (known.first(), known.last()) else { return };
        // SAFETY: a loaded library.
        if unsafe { MARKER_SYMBOLS.iter().any(|s| l.tables.function(s).is_some()) } {
            // These libraries' calls to themselves are inside a call.
            return;
        }
        for (at, bytes) in l.tables.relocations {
            if at == 0 {
                continue;
            }
            for i in 0..bytes / RELA {
                // SAFETY: one of the relocations of the library's dynamic section. Its target is in the library, and is a
                // whole word for these kinds.
                let slot = unsafe {
                    let r = (at + i * RELA) as *const usize;
                    if !KINDS.contains(&(*r.add(1) as u32)) {
                        continue;
                    }
                    let slot = l.base.wrapping_add(*r);
                    if !slot.is_multiple_of(8) {
                        continue;
                    }
                    &*(slot as *const AtomicUsize)
                };
                let value = slot.load(Ordering::Relaxed);
                if value < low.0 || value > high.0 {
                    continue;
                }
                if let Ok(k) = known.binary_search_by_key(&value, |k| k.0)
                    && let Some(&(_, entry)) = known.get(k)
                {
                    l.store(slot, entry);
                }
            }
        }
    }
}

impl Library {
    /// Stores a word of the library, which may be in read-only memory (its headers; data that is read-only after
    /// binding). False if the kernel refuses.
    fn store(&self, word: &AtomicUsize, value: usize) -> bool {
        let at = word.as_ptr() as usize;
        let Some(rights) = self.rights(at) else { return false };
        if rights & libc::PROT_WRITE != 0 {
            word.store(value, Ordering::Release);
            return true;
        }
        let page = at & !(PAGE - 1);
        // SAFETY: a page of a loaded library, with its own rights and one more. No other thread changes them: see the
        // module's head. (An aligned word is in one page.)
        unsafe {
            if !sys::mprotect(page, PAGE, rights | libc::PROT_WRITE) {
                region::trouble(trouble::NO_CALLS);
                return false;
            }
            // ORDERING: Release: the entry is complete before any code is bound to it.
            word.store(value, Ordering::Release);
            sys::mprotect(page, PAGE, rights);
        }
        true
    }

    /// The rights of the page that contains `at`.
    fn rights(&self, at: usize) -> Option<c_int> {
        // SAFETY: the loader's array, with its length.
        let headers = unsafe { core::slice::from_raw_parts(self.headers, self.headers_n) };
        let start = |h: &libc::Elf64_Phdr| self.base.wrapping_add(h.p_vaddr as usize);
        let inside = |h: &&libc::Elf64_Phdr| at.wrapping_sub(start(h)) < h.p_memsz as usize;
        let h = headers.iter().filter(|h| h.p_type == libc::PT_LOAD).find(inside)?;
        let right = |bit: u32, prot: c_int| if h.p_flags & bit != 0 { prot } else { 0 };
        let mut rights = right(libc::PF_R, libc::PROT_READ)
            | right(libc::PF_W, libc::PROT_WRITE)
            | right(libc::PF_X, libc::PROT_EXEC);
        // As the loader does it: whole pages.
        let bound = headers.iter().filter(|h| h.p_type == libc::PT_GNU_RELRO).any(|h| {
            let page = |a: usize| a & !(PAGE - 1);
            (page(start(h))..page(start(h) + h.p_memsz as usize)).contains(&at)
        });
        if bound {
            rights &= !libc::PROT_WRITE;
        }
        Some(rights)
    }
}

/// Visits every loaded library until `f` returns false.
fn each(f: &mut dyn FnMut(&Library) -> bool) {
    unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _: usize, f: *mut c_void) -> c_int {
        // SAFETY: the loader's description of a library, and the closure below.
        unsafe {
            let info = &*info;
            let f = &mut *f.cast::<&mut dyn FnMut(&Library) -> bool>();
            let headers = core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            let base = info.dlpi_addr as usize;
            let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC);
            let dynamic = dynamic.map(|h| base.wrapping_add(h.p_vaddr as usize) as *const Dyn);
            let tables = dynamic.and_then(|d| Tables::of(base, d)).unwrap_or_default();
            let (headers, headers_n) = (info.dlpi_phdr, headers.len());
            let counts = Counts { loaded: info.dlpi_adds, unloaded: info.dlpi_subs };
            c_int::from(!f(&Library { base, tables, headers, headers_n, counts }))
        }
    }
    let mut f = f;
    // SAFETY: the callback has the right type, and gets the closure that it expects.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut f).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cu_get_proc_address_gives_the_form_of_the_version_that_the_driver_has() {
        let words = |name: &str, version, new: bool| {
            by_name(name.as_bytes(), version, |_| new).map(|(i, thread)| (FUNCTIONS[i].words, thread))
        };
        // What libcudart.so.12 and libcudart.so.13 request.
        assert_eq!(words("cuMemcpyBatchAsync", 12080, true), Some((9, false)));
        assert_eq!(words("cuMemcpyBatchAsync", 13000, true), Some((8, false)));
        assert_eq!(words("cuMemcpy3DBatchAsync", 12080, true), Some((5, false)));
        assert_eq!(words("cuMemcpy3DBatchAsync", 13000, true), Some((4, false)));
        // A driver of CUDA 12 has only the first form.
        assert_eq!(words("cuMemcpyBatchAsync", 13000, false), Some((9, false)));
        assert_eq!(words("cuMemcpyBatchAsync", 13020, true), Some((8, false)));
        // By the symbols' own names.
        assert_eq!(words("cuMemcpyBatchAsync_v2", 12080, true), Some((8, false)));
        assert_eq!(words("cuMemcpyBatchAsync_v2_ptsz", 13000, true), Some((8, true)));
        assert_eq!(words("cuMemcpyBatchAsync_ptsz", 13000, true), Some((9, true)));
        // Functions of one form, the first of which had other arguments.
        assert_eq!(words("cuMemcpyHtoDAsync", 3020, false), Some((4, false)));
        assert_eq!(words("cuMemcpyHtoDAsync", 3000, false), None);
        assert_eq!(words("cuLaunchKernel", 0, false), Some((11, false)));
        assert_eq!(words("cuNoSuchThing", 13000, true), None);
    }
}
