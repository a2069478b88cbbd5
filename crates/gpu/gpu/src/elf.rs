//! The dynamic section of a loaded library: its symbols, their names, and the slots bound to symbols of other libraries.
//!
//! ELF gABI and x86-64 psABI; `struct link_map` is glibc's (link.h).

use std::ffi::{CStr, c_int, c_void};

const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

const R_X86_64_64: u32 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

const PAGE: u64 = 4096;

/// Elf64_Dyn
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// The public part of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: u64,
    name: *const libc::c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
    previous: *const LinkMap,
}

/// A loaded library.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    map: *const LinkMap,
    base: u64,
    strings: u64,
    symbols: u64,
    rela: (u64, u64),
    plt: (u64, u64),
    hash: u64,
    gnu_hash: u64,
}

/// A slot of a library that is bound, or will be, to the symbol of this name.
pub(crate) struct Slot<'a> {
    pub name: &'a CStr,
    /// Its address.
    pub at: u64,
}

impl Library {
    /// The library of a handle from dlopen.
    ///
    /// # Safety
    /// The library is not closed as long as this is used.
    pub unsafe fn of(handle: *mut c_void) -> Result<Library, String> {
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: RTLD_DI_LINKMAP writes one pointer.
        let asked = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        if asked != 0 || map.is_null() {
            return Err("the loader does not say where the library lies".into());
        }
        // SAFETY: the loader's record of a loaded library.
        unsafe { Library::at(map) }.ok_or("the library has no dynamic symbols".into())
    }

    /// # Safety
    /// The loader's record of a loaded library.
    unsafe fn at(map: *const LinkMap) -> Option<Library> {
        // SAFETY: the caller's promise.
        let record = unsafe { &*map };
        let mut library =
            Library { map, base: record.base, strings: 0, symbols: 0, rela: (0, 0), plt: (0, 0), hash: 0, gnu_hash: 0 };
        let mut entry = record.dynamic;
        if entry.is_null() {
            return None;
        }
        // SAFETY: the dynamic section ends with DT_NULL.
        while let Dynamic { tag, value } = unsafe { &*entry }
            && *tag != 0
        {
            match *tag {
                DT_STRTAB => library.strings = *value,
                DT_SYMTAB => library.symbols = *value,
                DT_RELA => library.rela.0 = *value,
                DT_RELASZ => library.rela.1 = *value,
                DT_JMPREL => library.plt.0 = *value,
                DT_PLTRELSZ => library.plt.1 = *value,
                DT_HASH => library.hash = *value,
                DT_GNU_HASH => library.gnu_hash = *value,
                _ => {}
            }
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
        }
        // The kernel's library (the vdso) is not relocated: its addresses are offsets, which are below its base.
        let relocated = library.strings > library.base && library.symbols > library.base;
        (library.strings != 0 && library.symbols != 0 && (relocated || library.base == 0)).then_some(library)
    }

    /// All libraries loaded in its namespace, including this one.
    ///
    /// # Safety
    /// No library is unloaded during the call.
    pub unsafe fn all(&self) -> Vec<Library> {
        let mut at = self.map;
        // SAFETY: the loader's list.
        unsafe {
            while !(*at).previous.is_null() {
                at = (*at).previous;
            }
            let mut all = Vec::new();
            while !at.is_null() {
                all.extend(Library::at(at));
                at = (*at).next;
            }
            all
        }
    }

    pub fn is(&self, other: &Library) -> bool {
        std::ptr::eq(self.map, other.map)
    }

    /// The address where it was loaded.
    pub fn base(&self) -> u64 {
        self.base
    }

    fn symbol(&self, index: u32) -> *const libc::Elf64_Sym {
        (self.symbols as *const libc::Elf64_Sym).wrapping_add(index as usize)
    }

    /// # Safety
    /// A symbol of this library, which is loaded.
    unsafe fn name(&self, symbol: *const libc::Elf64_Sym) -> &CStr {
        // SAFETY: names end with zero.
        unsafe { CStr::from_ptr((self.strings + u64::from((*symbol).st_name)) as *const libc::c_char) }
    }

    /// Calls `each` with every slot that is filled with the address of a symbol.
    ///
    /// # Safety
    /// The library is loaded.
    pub unsafe fn slots(&self, mut each: impl FnMut(Slot<'_>)) {
        for (at, size) in [self.rela, self.plt] {
            if at == 0 {
                continue;
            }
            // SAFETY: the table that the dynamic section describes; glibc has relocated its address.
            let table = unsafe { std::slice::from_raw_parts(at as *const libc::Elf64_Rela, size as usize / 24) };
            for relocation in table {
                let kind = relocation.r_info as u32;
                if matches!(kind, R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                    let symbol = self.symbol((relocation.r_info >> 32) as u32);
                    // SAFETY: the symbol of a relocation of this library.
                    let name = unsafe { self.name(symbol) };
                    each(Slot { name, at: self.base.wrapping_add(relocation.r_offset) });
                }
            }
        }
    }

    /// The symbol that this library defines by this name.
    ///
    /// # Safety
    /// The library is loaded.
    pub unsafe fn defined(&self, name: &CStr) -> Option<*const libc::Elf64_Sym> {
        // SAFETY: the tables of a loaded library.
        let found = unsafe { if self.gnu_hash != 0 { self.by_gnu_hash(name) } else { self.by_hash(name) } };
        // SAFETY: as above. SHN_UNDEF is 0.
        found.filter(|symbol| unsafe { (**symbol).st_shndx != 0 && (**symbol).st_value != 0 })
    }

    /// # Safety
    /// As [`Library::defined`].
    unsafe fn by_gnu_hash(&self, name: &CStr) -> Option<*const libc::Elf64_Sym> {
        let wanted =
            name.to_bytes().iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
        let table = self.gnu_hash as *const u32;
        // SAFETY: buckets, first symbol, Bloom words of 64 bits, shift; then the filter, the buckets, the chains.
        unsafe {
            let (buckets, first, words) = (*table, *table.add(1), *table.add(2));
            if buckets == 0 {
                return None;
            }
            let heads = table.add(4 + 2 * words as usize);
            let chains = heads.add(buckets as usize);
            let mut index = *heads.add((wanted % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let hash = *chains.add((index - first) as usize);
                let symbol = self.symbol(index);
                if hash | 1 == wanted | 1 && self.name(symbol) == name {
                    return Some(symbol);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// # Safety
    /// As [`Library::defined`].
    unsafe fn by_hash(&self, name: &CStr) -> Option<*const libc::Elf64_Sym> {
        if self.hash == 0 {
            return None;
        }
        // SAFETY: buckets, chains, then both; there are as many chains as symbols.
        unsafe {
            let symbols = *(self.hash as *const u32).add(1);
            (1..symbols).map(|index| self.symbol(index)).find(|symbol| self.name(*symbol) == name)
        }
    }
}

/// Makes the page of a word writable, which may be read-only after relocation. Returns the page's former rights.
///
/// # Safety
/// An aligned word of a loaded library.
pub(crate) unsafe fn writable(at: u64) -> Result<c_int, String> {
    let page = (at & !(PAGE - 1)) as *mut c_void;
    let rights = rights(at);
    // SAFETY: a mapped page of the library, with its rights and one more; its other words do not change.
    if rights & libc::PROT_WRITE == 0 && unsafe { libc::mprotect(page, PAGE as usize, rights | libc::PROT_WRITE) } != 0
    {
        return Err(format!("its import slots stay read-only: {}", std::io::Error::last_os_error()));
    }
    Ok(rights)
}

/// Restores the former rights of a page.
///
/// # Safety
/// As [`writable`], which returned `rights`.
pub(crate) unsafe fn restore(at: u64, rights: c_int) {
    let page = (at & !(PAGE - 1)) as *mut c_void;
    // SAFETY: as above.
    unsafe { libc::mprotect(page, PAGE as usize, rights) };
}

/// The rights of the mapping that contains an address: in a small library, symbols and code may share a page.
fn rights(at: u64) -> c_int {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let of = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let letters = rest.as_bytes();
        let right = |n: usize, letter: u8, right: c_int| if letters.get(n) == Some(&letter) { right } else { 0 };
        let all = right(0, b'r', libc::PROT_READ) | right(1, b'w', libc::PROT_WRITE) | right(2, b'x', libc::PROT_EXEC);
        (start..end).contains(&at).then_some(all)
    };
    maps.lines().find_map(of).unwrap_or(libc::PROT_READ)
}
