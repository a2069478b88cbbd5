//! Names of addresses: the module, and the offset in it.
//!
//! Modules move from run to run; offsets in them do not.

use schema::symbols::{Content, MappedFile, Place};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tape::lock::MappingBody;

const EXECUTE: u32 = 4;

#[derive(Clone, Debug)]
struct Mapping {
    tsc: u64,
    start: u64,
    end: u64,
    /// Where the module of this mapping begins.
    base: u64,
    /// Index of the file; `None` for memory without one.
    module: Option<usize>,
    rights: u32,
}

/// The mappings of all process images of a tape.
#[derive(Debug, Default)]
pub struct Names {
    of: HashMap<u32, Mappings>,
    /// The places of the names that were given: [`schema::symbols::Places::by_name`].
    given: RefCell<HashMap<String, Option<Place>>>,
}

/// Names of places that are kept: more than in a recording of any real program.
const PLACES: usize = 1 << 17;

impl Names {
    /// Mappings of an image are in the order of their addresses: a whole reading of the maps, or its new entries.
    pub fn add(&mut self, process: u32, tsc: u64, m: &MappingBody, path: &[u8], build_id: &[u8]) {
        self.of.entry(process).or_default().add(tsc, m, path, build_id);
    }

    /// Call it once, after all mappings.
    pub fn finish(&mut self) {
        self.of.values_mut().for_each(Mappings::finish);
    }

    /// `libcuda+0x3f21c0`, by the mapping at that time; an address outside all modules as a number.
    pub fn site(&self, process: u32, addr: u64, when: u64) -> String {
        let mapping = self.of.get(&process).and_then(|all| Some((all, all.at(addr, when)?)));
        match mapping {
            Some((all, m)) if m.module.is_some() => self.place(all, m, addr, Content::AfterCall).unwrap_or_default(),
            Some((_, m)) if m.rights & EXECUTE != 0 => format!("generated+{:#x}", addr.wrapping_sub(m.base)),
            _ => format!("{addr:#x}"),
        }
    }

    /// The module and offset of a static lock; `None` for those on a heap or stack.
    pub fn of_static(&self, process: u32, addr: u64, when: u64) -> Option<String> {
        let all = self.of.get(&process)?;
        self.place(all, all.at(addr, when)?, addr, Content::Variable)
    }

    fn place(&self, all: &Mappings, m: &Mapping, addr: u64, content: Content) -> Option<String> {
        let module = all.modules.get(m.module?)?;
        let offset = addr.wrapping_sub(m.base);
        let name = format!("{}+{offset:#x}", module.name);
        let mut given = self.given.borrow_mut();
        let is_full = given.len() >= PLACES;
        match given.get_mut(&name) {
            Some(known) => {
                let is_same =
                    |p: &Place| p.content == content && (Arc::ptr_eq(&p.file, &module.file) || p.file == module.file);
                if known.as_ref().is_some_and(|p| !is_same(p)) {
                    *known = None;
                }
            }
            None if is_full => {}
            None => {
                given.insert(name.clone(), Some(Place { file: module.file.clone(), offset, content }));
            }
        }
        Some(name)
    }

    /// The places of all names that were given so far.
    pub fn given(&self) -> HashMap<String, Option<Place>> {
        self.given.borrow().clone()
    }
}

#[derive(Debug)]
struct Module {
    /// The file's name up to `.so`.
    name: String,
    file: Arc<MappedFile>,
}

/// The mappings of one image.
#[derive(Debug, Default)]
struct Mappings {
    modules: Vec<Module>,
    /// By path: the file with this path that was mapped last.
    by_path: HashMap<String, usize>,
    by_file: HashMap<Arc<MappedFile>, usize>,
    mappings: Vec<Mapping>,
    /// For each module: the begins of its mappings, with the module's base.
    bases: HashMap<usize, BTreeMap<u64, u64>>,
    /// The last file mapping: its end, module and base. A mapping without a file that follows it is its zeroed data.
    last: (u64, Option<(usize, u64)>),
    /// A binary tree in an array: 1 is the root, below `k` are `2 k` and `2 k + 1`. The highest end of the mappings below.
    highest: Vec<u64>,
}

/// Mappings of one address that are examined, those that begin closest to it. A program may map that often there.
const OVER_ONE_ANOTHER: usize = 1024;

impl Mappings {
    fn add(&mut self, tsc: u64, m: &MappingBody, path: &[u8], build_id: &[u8]) {
        let (module, base) = if path.first() == Some(&b'/') {
            let path = String::from_utf8_lossy(path);
            // (The build id is known only for the mapping of a file's begin.)
            let module = match self.by_path.get(path.as_ref()) {
                Some(&latest) if m.offset != 0 => latest,
                _ => self.module(&path, build_id),
            };
            let base = match self.last.1 {
                Some((last, base)) if last == module && m.offset != 0 && base <= m.start => base,
                _ if m.offset == 0 => m.start,
                // The tape had its begin before.
                _ => self.base_of(module, m.start).unwrap_or(m.start.wrapping_sub(m.offset)),
            };
            self.last = (m.end, Some((module, base)));
            (Some(module), base)
        } else {
            match self.last {
                (end, Some((module, base))) if end == m.start && m.rights & EXECUTE == 0 => (Some(module), base),
                _ => (None, m.start),
            }
        };
        if let Some(module) = module {
            self.bases.entry(module).or_default().insert(m.start, base);
        }
        self.mappings.push(Mapping { tsc, start: m.start, end: m.end, base, module, rights: m.rights });
    }

    fn module(&mut self, path: &str, build_id: &[u8]) -> usize {
        let mapped = Arc::new(MappedFile { path: path.into(), build_id: build_id.into() });
        if let Some(&i) = self.by_file.get(&mapped) {
            self.by_path.insert(path.into(), i);
            return i;
        }
        let file = path.strip_suffix(" (deleted)").unwrap_or(path);
        let file = file.rsplit('/').next().unwrap_or(file);
        let file = file.strip_prefix("memfd:").unwrap_or(file);
        let name = match file.find(".so") {
            Some(n) if n > 0 => &file[..n],
            _ => file,
        };
        let i = self.modules.len();
        self.modules.push(Module { name: name.into(), file: mapped.clone() });
        self.by_path.insert(path.into(), i);
        self.by_file.insert(mapped, i);
        i
    }

    fn base_of(&self, module: usize, below: u64) -> Option<u64> {
        self.bases.get(&module)?.range(..=below).next_back().map(|(_, base)| *base)
    }

    fn finish(&mut self) {
        // With equal begins, the later mapping is last.
        self.mappings.sort_by_key(|m| (m.start, m.tsc));
        // (One more: there is a leaf to the right of every mapping.)
        let leaves = (self.mappings.len() + 1).next_power_of_two();
        self.highest = vec![0; 2 * leaves];
        for (to, m) in self.highest[leaves..].iter_mut().zip(&self.mappings) {
            *to = m.end;
        }
        for k in (1..leaves).rev() {
            self.highest[k] = self.highest[2 * k].max(self.highest[2 * k + 1]);
        }
        self.bases = HashMap::new();
    }

    /// The mappings of an address, the one that begins last first.
    fn around(&self, addr: u64) -> impl Iterator<Item = &Mapping> {
        let leaves = self.highest.len() / 2;
        // The node that was examined last, from the right: it and all to its right are done. The search descends where a mapping
        // ends above the address.
        let mut k = leaves + self.mappings.partition_point(|m| m.start <= addr);
        std::iter::from_fn(move || {
            loop {
                // The node left of this one: up from left-hand sides, and over.
                k >>= k.trailing_zeros();
                if k <= 1 {
                    return None;
                }
                k -= 1;
                if self.highest.get(k).is_none_or(|end| *end <= addr) {
                    continue;
                }
                while k < leaves {
                    k = if self.highest[2 * k + 1] > addr { 2 * k + 1 } else { 2 * k };
                }
                return self.mappings.get(k - leaves);
            }
        })
    }

    /// The mapping of an address at a time: the last one read before, or else the first after (a reading follows the event that
    /// caused it).
    fn at(&self, addr: u64, when: u64) -> Option<&Mapping> {
        let there = self.around(addr).take(OVER_ONE_ANOTHER);
        there.max_by_key(|m| if m.tsc <= when { (true, m.tsc) } else { (false, u64::MAX - m.tsc) })
    }
}

/// A place in Python itself: `libpython3.11+0x5a2f0`, and `python3.11+...` where Python is one file.
pub fn is_of_python(name: &str) -> bool {
    tape::live::is_of_python(name.split('+').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_is_known_by_its_file() {
        for name in ["libpython3.11+0x5a2f0", "python3.9+0x10", "libpython3.13d+0x1"] {
            assert!(is_of_python(name), "{name}");
        }
        for name in ["libpython+0x1", "libcuda+0x1", "python_app+0x1", "libtorch_python+0x7", "0x7f00"] {
            assert!(!is_of_python(name), "{name}");
        }
    }

    fn map(start: u64, end: u64, offset: u64, rights: u32) -> MappingBody {
        MappingBody { start, end, offset, rights, path: 0 }
    }

    #[test]
    fn an_address_is_its_module_and_offset_wherever_the_module_lies() {
        for base in [0x7000_0000, 0x1_2345_6000] {
            let mut n = Names::default();
            let path = b"/usr/lib/libcuda.so.580.159";
            n.add(0, 1, &map(base, base + 0x1000, 0, 1), path, b"");
            n.add(0, 1, &map(base + 0x1000, base + 0x9000, 0x1000, 5), path, b"");
            n.add(0, 1, &map(base + 0x9000, base + 0xa000, 0x8000, 3), path, b"");
            n.add(0, 1, &map(base + 0xa000, base + 0xc000, 0, 3), b"", b"");
            n.add(0, 1, &map(base + 0xd000, base + 0xe000, 0, 7), b"", b"");
            // A later reading has only one mapping.
            n.add(0, 9, &map(base + 0xf000, base + 0x10000, 0xf000, 5), path, b"");
            n.finish();
            assert_eq!(n.site(0, base + 0x1234, 20), "libcuda+0x1234");
            assert_eq!(n.of_static(0, base + 0x9010, 20).as_deref(), Some("libcuda+0x9010"));
            assert_eq!(n.of_static(0, base + 0xb000, 20).as_deref(), Some("libcuda+0xb000"), "zeroed data");
            assert_eq!(n.site(0, base + 0xd00d, 20), "generated+0xd");
            assert_eq!(n.site(0, base + 0xf001, 20), "libcuda+0xf001");
            assert_eq!(n.site(0, 5, 20), "0x5");
            assert_eq!(n.of_static(0, 5, 20), None);
        }
    }

    #[test]
    fn what_was_mapped_last_counts() {
        let mut n = Names::default();
        n.add(0, 1, &map(0x1000, 0x3000, 0, 5), b"/lib/liba.so", b"");
        n.add(0, 7, &map(0x1000, 0x2000, 0, 5), b"/lib/libb.so.1", b"");
        n.finish();
        assert_eq!(n.site(0, 0x1800, 20), "libb+0x800");
        assert_eq!(n.site(0, 0x2800, 20), "liba+0x1800");
        // By the time of the event: before the second was there, and before any was read.
        assert_eq!((n.site(0, 0x1800, 6), n.site(0, 0x1800, 0)), ("liba+0x800".into(), "liba+0x800".into()));
    }

    #[test]
    fn many_small_mappings_hide_no_large_one() {
        let mut n = Names::default();
        n.add(0, 1, &map(0x1000, 0x100000, 0, 5), b"/lib/liba.so", b"");
        (0..40).for_each(|i| n.add(0, 2, &map(0x2000 + i * 0x1000, 0x2800 + i * 0x1000, 0, 5), b"/lib/libb.so", b""));
        n.finish();
        assert_eq!(n.site(0, 0x50000, 9), "liba+0x4f000");
    }

    #[test]
    fn a_name_stands_for_the_file_that_was_mapped_there_at_that_time() {
        let mut n = Names::default();
        n.add(0, 1, &map(0x1000, 0x2000, 0, 5), b"/lib/liba.so", b"one");
        n.add(0, 1, &map(0x2000, 0x3000, 0x1000, 3), b"/lib/liba.so", b"");
        n.add(0, 7, &map(0x1000, 0x3000, 0, 5), b"/lib/libb.so", b"two");
        // The first one was rebuilt.
        n.add(0, 9, &map(0x8000, 0x9000, 0, 5), b"/lib/liba.so", b"three");
        n.add(0, 9, &map(0x9000, 0xa000, 0x1000, 3), b"/lib/liba.so", b"");
        n.finish();
        n.site(0, 0x1010, 3);
        n.of_static(0, 0x2020, 3);
        n.site(0, 0x1010, 8);
        n.of_static(0, 0x9040, 10);
        let given = n.given();
        let of =
            |name: &str| given.get(name).cloned().flatten().map(|p| (p.file.build_id.clone(), p.offset, p.content));
        assert_eq!(of("liba+0x10"), Some((b"one".into(), 0x10, Content::AfterCall)));
        assert_eq!(of("liba+0x1020"), Some((b"one".into(), 0x1020, Content::Variable)));
        assert_eq!(of("libb+0x10"), Some((b"two".into(), 0x10, Content::AfterCall)));
        assert_eq!(of("liba+0x1040"), Some((b"three".into(), 0x1040, Content::Variable)));
        // The same name for another build: it names neither.
        n.site(0, 0x8010, 10);
        assert_eq!(n.given().get("liba+0x10"), Some(&None));
    }

    /// Every mapping of an address, compared with a search of all of them.
    #[test]
    fn what_lies_around_an_address_is_found() {
        let mut x = 7u64;
        let mut below = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % n
        };
        for n in 0..40 {
            let mut names = Mappings::default();
            for tsc in 0..n {
                let start = below(60);
                names.add(tsc, &map(start, start + below(20), 0, 5), b"/lib/liba.so", b"");
            }
            names.finish();
            for addr in 0..90 {
                let all = names.mappings.iter().rev().filter(|m| m.start <= addr && addr < m.end);
                assert!(names.around(addr).map(|m| (m.start, m.tsc)).eq(all.map(|m| (m.start, m.tsc))), "{n}, {addr}");
            }
        }
    }
}
