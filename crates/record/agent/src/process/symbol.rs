//! Finds a function in the libraries after this one in link order, by reading their symbol tables.
//!
//! dlsym may allocate, and an allocator takes locks: it would call the very function that is being looked up. This code
//! calls no function and takes no lock, so it works from a process's first instruction. It returns the default version of
//! a symbol, the one that a program built today would get. For conditions glibc also has an older version, which dlsym
//! returned until glibc 2.36.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// `struct link_map`, the part that is public to debuggers.
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const LinkMap,
    prev: *const LinkMap,
}

#[repr(C)]
struct Debug {
    version: i32,
    map: *const LinkMap,
}

#[repr(C)]
pub struct Dyn {
    tag: i64,
    value: usize,
}

/// Elf64_Sym
#[repr(C)]
pub struct Sym {
    name: u32,
    info: u8,
    other: u8,
    shndx: u16,
    /// Address, relative to the library's base.
    pub value: usize,
    size: u64,
}

unsafe extern "C" {
    /// The loader's list of libraries, for debuggers (elf/link.h).
    static _r_debug: Debug;
    /// This library's dynamic section; the linker makes the name.
    static _DYNAMIC: [u8; 0];
}

const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_PLTREL: i64 = 20;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_VERNEED: i64 = 0x6fff_fffe;
const DT_VERNEEDNUM: i64 = 0x6fff_ffff;
/// A version that only old programs request by name.
const HIDDEN: u16 = 0x8000;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;

/// Stores addresses that a library gave; a 0 leaves what another one gave.
pub fn found<'a>(to: impl IntoIterator<Item = &'a AtomicUsize>, at: impl IntoIterator<Item = usize>) {
    let given = to.into_iter().zip(at).filter(|(_, at)| *at != 0);
    given.for_each(|(to, at)| to.store(at, Ordering::Relaxed));
}

/// [`next`], kept in `at`. If there is no such function: one that returns null, because the program could not have called
/// it without the agent.
pub fn resolved(at: &AtomicUsize, name: &CStr) -> usize {
    extern "C" fn none() -> *mut c_void {
        core::ptr::null_mut()
    }
    let f = match next(name) {
        0 => none as *const () as usize,
        f => f,
    };
    at.store(f, Ordering::Relaxed);
    f
}

/// Address of the first function `name` in a library after this one; 0 if there is none.
pub fn next(name: &CStr) -> usize {
    next_of(name, STT_FUNC)
}

/// As [`next`], for a variable or constant.
pub fn next_object(name: &CStr) -> usize {
    next_of(name, STT_OBJECT)
}

fn next_of(name: &CStr, kind: u8) -> usize {
    let mut behind_ours = false;
    let mut found = 0;
    each(&mut |m| {
        if behind_ours && let Some(at) = defined(m, name.to_bytes(), kind) {
            found = at;
            return false;
        }
        behind_ours |= core::ptr::addr_eq(m.dynamic, &raw const _DYNAMIC);
        true
    });
    found
}

/// Address of the function `name` in the first library that also has a function `mark`; 0 if that library lacks it.
pub fn of_library_with(mark: &CStr, name: &CStr) -> usize {
    let mut found = 0;
    each(&mut |m| {
        let is_it = defined(m, mark.to_bytes(), STT_FUNC).is_some();
        found = if is_it { defined(m, name.to_bytes(), STT_FUNC).unwrap_or(0) } else { 0 };
        !is_it
    });
    found
}

/// True if the program or one of the libraries that it started with defines a function of this name. Called by the
/// constructor.
pub fn is_defined(name: &CStr) -> bool {
    let mut found = false;
    each(&mut |m| {
        found = defined(m, name.to_bytes(), STT_FUNC).is_some();
        !found
    });
    found
}

/// Path of the loader that loaded this library. The string stays valid.
pub fn loader() -> Option<&'static CStr> {
    let mut found = None;
    each(&mut |m| {
        // SAFETY: the loader's own strings, of a library that is never unloaded.
        let name: &'static CStr = unsafe { CStr::from_ptr(m.name) };
        let is_it = name.to_bytes().ends_with(b"/ld-linux-x86-64.so.2");
        found = is_it.then_some(name);
        !is_it
    });
    found
}

/// The name under which this library was loaded. The string stays valid.
pub fn own_name() -> Option<&'static CStr> {
    let mut found = None;
    each(&mut |m| {
        let ours = core::ptr::addr_eq(m.dynamic, &raw const _DYNAMIC);
        if ours {
            // SAFETY: the loader's own string, of a library that is never unloaded.
            found = Some(unsafe { CStr::from_ptr(m.name) });
        }
        !ours
    });
    found
}

/// The newest version of glibc, 2.N, whose symbols this library needs.
pub fn glibc_needed() -> u32 {
    let mut newest = 0;
    each(&mut |m| {
        let ours = core::ptr::addr_eq(m.dynamic, &raw const _DYNAMIC);
        if ours {
            // SAFETY: this library itself.
            unsafe { needed_by(m, &mut |version| newest = newest.max(version)) };
        }
        !ours
    });
    newest
}

/// Calls `f` with the N of each version GLIBC_2.N that a library needs.
///
/// # Safety
/// It is loaded and relocated.
unsafe fn needed_by(m: &LinkMap, f: &mut dyn FnMut(u32)) {
    // SAFETY: the caller's; DT_VERNEED points to DT_VERNEEDNUM Elf64_Verneed, each with its Elf64_Vernaux.
    unsafe {
        let Some(t) = Tables::of(m.addr, m.dynamic) else { return };
        let mut need = t.needs.0 as *const u8;
        for _ in 0..t.needs.1 {
            let half = |at: usize| need.add(at).cast::<u16>().read_unaligned();
            let word = |from: *const u8, at: usize| from.add(at).cast::<u32>().read_unaligned() as usize;
            let mut aux = need.add(word(need, 8));
            for _ in 0..half(2) {
                let name = CStr::from_ptr((t.strings + word(aux, 8)) as *const c_char).to_bytes();
                // (Relative relocations are glibc 2.36's.)
                let minor = match name.strip_prefix(b"GLIBC_2.") {
                    Some(rest) => {
                        rest.iter().take_while(|b| b.is_ascii_digit()).fold(0, |n, b| n * 10 + u32::from(b - b'0'))
                    }
                    None => {
                        if name == b"GLIBC_ABI_DT_RELR" {
                            36
                        } else {
                            0
                        }
                    }
                };
                f(minor);
                aux = aux.add(word(aux, 12));
            }
            need = need.add(word(need, 12));
        }
    }
}

/// Visits the program and its libraries, in link order, until `f` returns false.
fn each(f: &mut dyn FnMut(&LinkMap) -> bool) {
    // SAFETY: the loader has filled the list before any code of a library runs. Maps are only appended, and the libraries
    // that a program started with, which are at the front, stay.
    unsafe {
        let mut m = (&raw const _r_debug.map).read_volatile();
        while !m.is_null() && f(&*m) {
            m = (*m).next;
        }
    }
}

/// Where a loaded library defines a symbol of this name and kind.
fn defined(m: &LinkMap, name: &[u8], kind: u8) -> Option<usize> {
    // SAFETY: a library of the loader's list, which is loaded and relocated.
    unsafe {
        let at = Tables::of(m.addr, m.dynamic)?.symbol(name, kind)?;
        Some(m.addr.wrapping_add((*at).value))
    }
}

/// Addresses of a loaded library's tables; 0 for those that it does not have.
#[derive(Clone, Copy, Default)]
pub struct Tables {
    strings: usize,
    symbols: usize,
    gnu_hash: usize,
    hash: usize,
    versions: usize,
    /// Versions that it needs: address and number of entries.
    needs: (usize, usize),
    /// Relocations (Elf64_Rela), those of calls and the others: address and bytes.
    pub relocations: [(usize, usize); 2],
}

impl Tables {
    /// # Safety
    /// A library that is loaded and relocated at `base`, and its dynamic section.
    pub unsafe fn of(base: usize, dynamic: *const Dyn) -> Option<Tables> {
        let mut t = Tables::default();
        let mut calls_have_addends = true;
        let mut d = dynamic;
        // SAFETY: the dynamic section ends with a tag of 0.
        unsafe {
            while (*d).tag != 0 {
                let value = (*d).value;
                // The loader has made addresses of these, except in read-only sections (the vDSO's).
                let at = if value < base { value + base } else { value };
                match (*d).tag {
                    DT_STRTAB => t.strings = at,
                    DT_SYMTAB => t.symbols = at,
                    DT_HASH => t.hash = at,
                    DT_GNU_HASH => t.gnu_hash = at,
                    DT_VERSYM => t.versions = at,
                    DT_VERNEED => t.needs.0 = at,
                    DT_VERNEEDNUM => t.needs.1 = value,
                    DT_JMPREL => t.relocations[0].0 = at,
                    DT_PLTRELSZ => t.relocations[0].1 = value,
                    DT_RELA => t.relocations[1].0 = at,
                    DT_RELASZ => t.relocations[1].1 = value,
                    DT_PLTREL => calls_have_addends = value as i64 == DT_RELA,
                    _ => {}
                }
                d = d.add(1);
            }
        }
        if !calls_have_addends {
            t.relocations[0] = (0, 0);
        }
        (t.strings != 0 && t.symbols != 0).then_some(t)
    }

    /// The symbol of a function that the library defines, in the version that programs get today.
    ///
    /// # Safety
    /// The library is still loaded.
    pub unsafe fn function(&self, name: &[u8]) -> Option<*mut Sym> {
        // SAFETY: the caller's.
        unsafe { self.symbol(name, STT_FUNC) }
    }

    /// As [`Tables::function`], for a variable or constant.
    ///
    /// # Safety
    /// The library is still loaded.
    pub unsafe fn object(&self, name: &[u8]) -> Option<*mut Sym> {
        // SAFETY: the caller's.
        unsafe { self.symbol(name, STT_OBJECT) }
    }

    /// As [`Tables::function`], for another kind.
    ///
    /// # Safety
    /// The library is still loaded.
    unsafe fn symbol(&self, name: &[u8], kind: u8) -> Option<*mut Sym> {
        // SAFETY: the caller's.
        unsafe { if self.gnu_hash != 0 { self.by_gnu_hash(name, kind) } else { self.by_hash(name, kind) } }
    }

    unsafe fn is(&self, i: u32, name: &[u8], kind: u8) -> Option<*mut Sym> {
        // SAFETY: i is from the library's own hash table.
        unsafe {
            let at = (self.symbols as *mut Sym).add(i as usize);
            let s = &*at;
            let hidden = self.versions != 0 && *(self.versions as *const u16).add(i as usize) & HIDDEN != 0;
            let is = s.shndx != 0 && s.info & 15 == kind && !hidden;
            let is = is && CStr::from_ptr((self.strings + s.name as usize) as *const c_char).to_bytes() == name;
            is.then_some(at)
        }
    }

    unsafe fn by_gnu_hash(&self, name: &[u8], kind: u8) -> Option<*mut Sym> {
        // SAFETY: a table of the layout of DT_GNU_HASH: four words, the filter, buckets, chains.
        unsafe {
            let words = self.gnu_hash as *const u32;
            let (buckets_n, first, filter_n, shift) = (*words, *words.add(1), *words.add(2), *words.add(3));
            let filter = words.add(4) as *const u64;
            let buckets = filter.add(filter_n as usize) as *const u32;
            let chains = buckets.add(buckets_n as usize);
            let h = name.iter().fold(5381u32, |h, &b| h.wrapping_mul(33).wrapping_add(u32::from(b)));
            if buckets_n == 0 || filter_n == 0 {
                return None;
            }
            let word = *filter.add((h / 64 % filter_n) as usize);
            if word >> (h % 64) & word >> (h.wrapping_shr(shift) % 64) & 1 == 0 {
                return None;
            }
            let mut i = *buckets.add((h % buckets_n) as usize);
            if i < first {
                return None;
            }
            loop {
                let c = *chains.add((i - first) as usize);
                if c | 1 == h | 1
                    && let Some(found) = self.is(i, name, kind)
                {
                    return Some(found);
                }
                if c & 1 != 0 {
                    return None;
                }
                i += 1;
            }
        }
    }

    /// In libraries that were linked with `--hash-style=sysv` only.
    unsafe fn by_hash(&self, name: &[u8], kind: u8) -> Option<*mut Sym> {
        if self.hash == 0 {
            return None;
        }
        let h = name.iter().fold(0u32, |h, &b| {
            let h = (h << 4).wrapping_add(u32::from(b));
            let high = h & 0xf000_0000;
            (h ^ high >> 24) & !high
        });
        // SAFETY: a table of the layout of DT_HASH: two counts, buckets, chains.
        unsafe {
            let words = self.hash as *const u32;
            let (buckets_n, chains_n) = (*words, *words.add(1));
            if buckets_n == 0 {
                return None;
            }
            let chains = words.add(2 + buckets_n as usize);
            let mut i = *words.add(2 + (h % buckets_n) as usize);
            while i != 0 && i < chains_n {
                if let Some(found) = self.is(i, name, kind) {
                    return Some(found);
                }
                i = *chains.add(i as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_libc_has_is_found_in_the_version_that_programs_get_today() {
        for name in [c"pthread_mutex_lock", c"pthread_cond_wait", c"sem_post", c"pthread_setschedparam"] {
            let at = next(name);
            // SAFETY: NUL-terminated names.
            let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert_ne!(at, 0, "{name:?}");
            assert_eq!(at, expected, "{name:?}");
        }
        // SAFETY: NUL-terminated names.
        let new = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"pthread_cond_wait".as_ptr(), c"GLIBC_2.3.2".as_ptr()) };
        assert_eq!(next(c"pthread_cond_wait"), new as usize);
        assert_eq!(next(c"no_library_has_this"), 0);
    }

    /// A library's symbol.
    #[derive(Clone, Debug)]
    struct Made {
        name: String,
        kind: u8,
        defined: bool,
        hidden: bool,
    }

    /// The tables of a library with these symbols, as a linker makes them.
    struct Library {
        strings: Vec<u8>,
        symbols: Vec<Sym>,
        versions: Vec<u16>,
        /// As u64, so that the filter is aligned; all else are u32.
        gnu_hash: Vec<u64>,
        hash: Vec<u32>,
    }

    fn gnu(name: &str) -> u32 {
        name.bytes().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(b)))
    }

    /// The gABI's function, as it is written there.
    fn sysv(name: &str) -> u32 {
        let mut h = 0u32;
        for b in name.bytes() {
            h = (h << 4).wrapping_add(b.into());
            let g = h & 0xf000_0000;
            if g != 0 {
                h ^= g >> 24;
            }
            h &= !g;
        }
        h
    }

    impl Library {
        fn new(made: &[Made], buckets: u32, filter: u32, shift: u32, with_versions: bool) -> Library {
            // Undefined symbols are first and are in no GNU hash table.
            let mut order: Vec<&Made> = made.iter().collect();
            order.sort_by_key(|m| (m.defined, if m.defined { gnu(&m.name) % buckets } else { 0 }));
            let first = 1 + order.iter().filter(|m| !m.defined).count() as u32;
            let none = || Sym { name: 0, info: 0, other: 0, shndx: 0, value: 0, size: 0 };
            let mut l = Library {
                strings: vec![0],
                symbols: vec![none()],
                versions: vec![0],
                gnu_hash: Vec::new(),
                hash: Vec::new(),
            };
            for (i, m) in order.iter().enumerate() {
                let name = l.strings.len() as u32;
                l.strings.extend(m.name.bytes().chain([0]));
                let (info, shndx) = (0x10 | m.kind, u16::from(m.defined));
                l.symbols.push(Sym { name, info, shndx, value: 0x1000 + i, ..none() });
                l.versions.push(if m.hidden { HIDDEN | 2 } else { 3 });
            }
            let defined = || order.iter().zip(1u32..).filter(|(m, _)| m.defined);
            let mut words = vec![buckets, first, filter, shift];
            let mut bits = vec![0u64; filter as usize];
            for (m, _) in defined() {
                let h = gnu(&m.name);
                bits[(h / 64 % filter) as usize] |= 1 << (h % 64) | 1 << (h.wrapping_shr(shift) % 64);
            }
            words.extend(bits.iter().flat_map(|b| [*b as u32, (*b >> 32) as u32]));
            let bucket_of = |m: &Made| gnu(&m.name) % buckets;
            let begins = |b: u32| defined().find(|(m, _)| bucket_of(m) == b).map_or(0, |(_, i)| i);
            words.extend((0..buckets).map(begins));
            let all: Vec<_> = defined().collect();
            words.extend(all.iter().enumerate().map(|(k, (m, _))| {
                let last = all.get(k + 1).is_none_or(|(next, _)| bucket_of(next) != bucket_of(m));
                gnu(&m.name) & !1 | u32::from(last)
            }));
            words.resize(words.len().next_multiple_of(2), 0);
            l.gnu_hash = words.chunks(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect();
            let count = l.symbols.len() as u32;
            let (mut heads, mut chains) = (vec![0; buckets as usize], vec![0; count as usize]);
            for (m, i) in order.iter().zip(1u32..) {
                let b = (sysv(&m.name) % buckets) as usize;
                chains[i as usize] = std::mem::replace(&mut heads[b], i);
            }
            l.hash = [vec![buckets, count], heads, chains].concat();
            if !with_versions {
                l.versions.clear();
            }
            l
        }

        /// The result for a name and kind, from one of the two tables.
        fn find(&self, name: &str, kind: u8, by_gnu: bool) -> Option<usize> {
            let address = |p: *const u8| p as usize;
            let mut dynamic = vec![
                Dyn { tag: DT_STRTAB, value: address(self.strings.as_ptr()) },
                Dyn { tag: DT_SYMTAB, value: address(self.symbols.as_ptr().cast()) },
                Dyn { tag: DT_HASH, value: address(self.hash.as_ptr().cast()) },
            ];
            if by_gnu {
                dynamic.push(Dyn { tag: DT_GNU_HASH, value: address(self.gnu_hash.as_ptr().cast()) });
            }
            if !self.versions.is_empty() {
                dynamic.push(Dyn { tag: DT_VERSYM, value: address(self.versions.as_ptr().cast()) });
            }
            dynamic.push(Dyn { tag: 0, value: 0 });
            // SAFETY: tables of the layout of their tags, which stay while this runs.
            unsafe { Tables::of(0, dynamic.as_ptr())?.symbol(name.as_bytes(), kind).map(|s| (*s).value) }
        }
    }

    fn made() -> impl Strategy<Value = Made> {
        // So few letters that names and buckets collide.
        ("[ab]{0,4}", prop::sample::select(vec![STT_OBJECT, STT_FUNC]), any::<bool>(), any::<bool>())
            .prop_map(|(name, kind, defined, hidden)| Made { name, kind, defined, hidden })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_table_finds_what_it_holds_and_nothing_else(
            all in prop::collection::vec(made(), 0..24), buckets in 1u32..6, filter in 0u32..3, shift in 0u32..40,
            versions: bool, name in "[abc]{0,4}",
        ) {
            let library = Library::new(&all, buckets, 1 << filter, shift, versions);
            for name in all.iter().map(|m| &m.name).chain([&name]) {
                for kind in [STT_OBJECT, STT_FUNC] {
                    let is = |m: &&Made| m.name == *name && m.kind == kind && m.defined && !(versions && m.hidden);
                    let wanted = all.iter().any(|m| is(&m));
                    for by_gnu in [true, false] {
                        let found = library.find(name, kind, by_gnu);
                        prop_assert_eq!(found.is_some(), wanted, "{:?} {} {}", name, kind, by_gnu);
                        let Some(value) = found else { continue };
                        let s = &library.symbols[1 + value - 0x1000];
                        let at = s.name as usize;
                        prop_assert_eq!(&library.strings[at..at + name.len() + 1], [name.as_bytes(), &[0]].concat());
                        prop_assert_eq!(s.info & 15, kind);
                    }
                }
            }
        }
    }

    #[test]
    fn every_function_of_the_c_library_is_found_where_dlsym_finds_it() {
        // SAFETY: a library that is loaded, and its names.
        unsafe {
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            let mut map: *const LinkMap = core::ptr::null();
            assert_eq!(libc::dlinfo(libc, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()), 0);
            let tables = Tables::of((*map).addr, (*map).dynamic).unwrap();
            // (Its symbols end where its strings begin.)
            let count = (tables.strings - tables.symbols) / size_of::<Sym>();
            let mut checked = 0;
            for i in 1..count {
                let s = &*(tables.symbols as *const Sym).add(i);
                let version = *(tables.versions as *const u16).add(i);
                if s.info & 15 != STT_FUNC || s.shndx == 0 || version & HIDDEN != 0 {
                    continue;
                }
                let name = CStr::from_ptr((tables.strings + s.name as usize) as *const c_char);
                let found = tables.function(name.to_bytes()).map_or(0, |s| (*map).addr + (*s).value);
                assert_eq!(found, libc::dlsym(libc, name.as_ptr()) as usize, "{name:?}");
                checked += 1;
            }
            assert!(checked > 1000, "{checked} functions");
        }
    }
}
