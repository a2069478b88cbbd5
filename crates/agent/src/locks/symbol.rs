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
struct Dyn {
    tag: i64,
    value: usize,
}

/// Elf64_Sym
#[repr(C)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    shndx: u16,
    value: usize,
    size: u64,
}

unsafe extern "C" {
    /// The loader's list of libraries, for debuggers (elf/link.h).
    static _r_debug: Debug;
    /// Our own dynamic section; the linker makes the name.
    static _DYNAMIC: [u8; 0];
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
/// A version that only old programs ask for by name.
const HIDDEN: u16 = 0x8000;
const STT_FUNC: u8 = 2;

/// Address of the first definition of `name` in a library that comes after ours; 0 if there is none.
pub fn next(name: &CStr) -> usize {
    // SAFETY: the loader has filled the list before any code of a library runs; maps are only ever appended while the
    // libraries that a program started with, which are at the front, stay.
    unsafe {
        let mut m = (&raw const _r_debug.map).read_volatile();
        while !m.is_null() && !core::ptr::addr_eq((*m).dynamic, &raw const _DYNAMIC) {
            m = (*m).next;
        }
        while !m.is_null() {
            m = (*m).next;
            if m.is_null() {
                break;
            }
            if let Some(at) = defined(&*m, name.to_bytes()) {
                return at;
            }
        }
    }
    0
}

/// # Safety
/// `m` is a library that is loaded and relocated.
unsafe fn defined(m: &LinkMap, name: &[u8]) -> Option<usize> {
    let (mut strings, mut symbols, mut hash, mut versions) = (0usize, 0usize, 0usize, 0usize);
    let mut d = m.dynamic;
    // SAFETY: the dynamic section ends with a tag of 0.
    unsafe {
        while (*d).tag != 0 {
            // The loader has made addresses of these, but for read-only sections (the vDSO's).
            let at = if (*d).value < m.addr { (*d).value + m.addr } else { (*d).value };
            match (*d).tag {
                DT_STRTAB => strings = at,
                DT_SYMTAB => symbols = at,
                DT_GNU_HASH => hash = at,
                DT_VERSYM => versions = at,
                _ => {}
            }
            d = d.add(1);
        }
    }
    if strings == 0 || symbols == 0 || hash == 0 {
        return None;
    }
    // SAFETY: a table of the layout that DT_GNU_HASH says: four words, the filter, buckets, chains.
    unsafe {
        let words = hash as *const u32;
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
            if c | 1 == h | 1 {
                let s = &*(symbols as *const Sym).add(i as usize);
                let hidden = versions != 0 && *(versions as *const u16).add(i as usize) & HIDDEN != 0;
                let is = s.shndx != 0 && s.info & 15 == STT_FUNC && !hidden;
                if is && CStr::from_ptr((strings + s.name as usize) as *const c_char).to_bytes() == name {
                    return Some(m.addr + s.value);
                }
            }
            if c & 1 != 0 {
                return None;
            }
            i += 1;
        }
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
