//! Finds a function in the libraries behind ours, by reading their symbol tables.
//!
//! dlsym may allocate, and an allocator takes locks: it would come back to the function that is being looked for. Here
//! nothing is called and nothing is taken, so it works from the first instruction of a process on. The default version
//! of a symbol is taken (what a program built today would get): for conditions glibc has an older one, too, which dlsym
//! gave until glibc 2.36.

use core::ffi::{CStr, c_char};

/// `struct link_map`, the part that debuggers know.
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
    /// Address, from where the library lies.
    pub value: usize,
    size: u64,
}

unsafe extern "C" {
    /// The loader's list of libraries, for debuggers (elf/link.h).
    static _r_debug: Debug;
    /// Our own dynamic section; the linker makes the name.
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
/// A version that only old programs ask for by name.
const HIDDEN: u16 = 0x8000;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;

/// Address of the first function `name` in a library that comes after ours; 0 if there is none.
pub fn next(name: &CStr) -> usize {
    next_of(name, STT_FUNC)
}

/// As [`next`], of a variable or constant.
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

/// True if the program or one of the libraries that it started with defines a function of this name. From the constructor.
pub fn is_defined(name: &CStr) -> bool {
    let mut found = false;
    each(&mut |m| {
        found = defined(m, name.to_bytes(), STT_FUNC).is_some();
        !found
    });
    found
}

/// Goes through the program and its libraries, in link order, until `f` says false.
fn each(f: &mut dyn FnMut(&LinkMap) -> bool) {
    // SAFETY: the loader has filled the list before any code of a library runs; maps are only ever appended while the
    // libraries that a program started with, which are at the front, stay.
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

/// Where the tables of a loaded library lie; 0 for those that it does not have.
#[derive(Clone, Copy, Default)]
pub struct Tables {
    strings: usize,
    symbols: usize,
    gnu_hash: usize,
    hash: usize,
    versions: usize,
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
                // The loader has made addresses of these, but for read-only sections (the vDSO's).
                let at = if value < base { value + base } else { value };
                match (*d).tag {
                    DT_STRTAB => t.strings = at,
                    DT_SYMTAB => t.symbols = at,
                    DT_HASH => t.hash = at,
                    DT_GNU_HASH => t.gnu_hash = at,
                    DT_VERSYM => t.versions = at,
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

    /// The symbol of a function that the library defines in the version that programs get today.
    ///
    /// # Safety
    /// The library is still loaded.
    pub unsafe fn function(&self, name: &[u8]) -> Option<*mut Sym> {
        // SAFETY: the caller's.
        unsafe { self.symbol(name, STT_FUNC) }
    }

    /// As [`Tables::function`], of another kind.
    ///
    /// # Safety
    /// The library is still loaded.
    unsafe fn symbol(&self, name: &[u8], kind: u8) -> Option<*mut Sym> {
        // SAFETY: the caller's.
        unsafe { if self.gnu_hash != 0 { self.by_gnu_hash(name, kind) } else { self.by_hash(name, kind) } }
    }

    unsafe fn is(&self, i: u32, name: &[u8], kind: u8) -> Option<*mut Sym> {
        // SAFETY: i comes from the library's own hash table.
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
        // SAFETY: a table of the layout that DT_GNU_HASH says: four words, the filter, buckets, chains.
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
            if word >> (h % 64) & word >> ((h >> shift) % 64) & 1 == 0 {
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
        // SAFETY: a table of the layout that DT_HASH says: two counts, buckets, chains.
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
}
