//! Names from files that are compiled here, whole and damaged.

use proptest::prelude::*;
use schema::symbols::{Content, MappedFile, Place, Places, SymbolRow};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

const SOURCE: &str = r#"
int variable[8] = {1};
static int inlined(int n) {
    return n * variable[n];
}
int function(int n) {
    return inlined(n) + 1;
}
__asm__(".text\n.globl short_one\n.type short_one, @function\nshort_one: nop\nnop\n.size short_one, 2\n.skip 64, 0x90\n"
        ".globl no_size\n.type no_size, @function\nno_size: nop\nnop\n");
"#;

/// Addresses by symbol.
type Addresses = BTreeMap<String, u64>;

/// A library with debug information, and where its symbols are. `None` without a C compiler.
static LIBRARY: LazyLock<Option<(Vec<u8>, Addresses)>> = LazyLock::new(|| library("-g"));

fn library(debug: &str) -> Option<(Vec<u8>, Addresses)> {
    let dir = tempfile::tempdir().unwrap();
    let [source, library] = ["a.c", "liba.so"].map(|name| dir.path().join(name));
    fs::write(&source, SOURCE).unwrap();
    let options = ["-g", debug, "-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o"];
    let out = Command::new("cc").args(options).args([&library, &source]).output().ok()?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let nm = Command::new("nm").arg(&library).output().ok()?;
    let line = |l: &str| {
        let mut words = l.split(' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), address))
    };
    let symbols = String::from_utf8(nm.stdout).unwrap().lines().filter_map(line).collect();
    Some((fs::read(library).unwrap(), symbols))
}

struct Case {
    dir: tempfile::TempDir,
    places: Places,
}

impl Case {
    /// The file of these bytes, mapped by a program that was recorded in the future: without a build id it is the one.
    fn of(bytes: &[u8]) -> Case {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("liba.so"), bytes).unwrap();
        Case { dir, places: Places { recorded_ns: u64::MAX, ..Places::default() } }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("liba.so")
    }

    fn place(&mut self, name: &str, offset: u64, content: Content) {
        let path = self.path().to_str().unwrap().to_owned();
        let file = Arc::new(MappedFile { path, build_id: Vec::new() });
        self.places.by_name.insert(name.into(), Some(Place { file, offset, content }));
    }

    fn found(&self) -> BTreeMap<String, SymbolRow> {
        symbols::look_up(&self.places, self.places.by_name.keys().map(String::as_str)).0
    }
}

#[test]
fn a_name_is_that_of_the_symbol_that_an_address_lies_in() {
    let Some((bytes, symbols)) = &*LIBRARY else { return };
    let mut case = Case::of(bytes);
    for (name, after) in [("function", 3), ("short_one", 1), ("short_one", 3), ("no_size", 1)] {
        case.place(&format!("{name}+{after}"), symbols[name] + after, Content::AfterCall);
    }
    for within in [0, 8, 32] {
        case.place(&format!("variable+{within}"), symbols["variable"] + within, Content::Variable);
    }
    case.place("function as data", symbols["function"], Content::Variable);
    case.place("far", u64::MAX, Content::AfterCall);
    let found = case.found();
    let name = |place: &str| found.get(place).and_then(|row| row.name.as_deref());
    // Inlined into it.
    let function = &found["function+3"];
    assert!(matches!(name("function+3"), Some("function" | "inlined")), "{function:?}");
    assert!(function.file.as_deref().is_some_and(|f| f.ends_with("a.c")) && function.line >= Some(4), "{function:?}");
    assert_eq!(name("short_one+1"), Some("short_one"));
    assert_eq!((name("short_one+3"), name("no_size+1")), (None, None), "beyond a symbol, and of no size");
    assert_eq!((name("variable+0"), name("variable+8")), (Some("variable"), Some("variable+0x8")));
    assert!(name("variable+32").is_none_or(|name| !name.starts_with("variable")), "its end is not in it");
    assert_eq!((name("function as data"), name("far")), (None, None));
}

#[test]
fn debug_information_may_be_compressed() {
    let Some((bytes, symbols)) = library("-gz=zlib") else { return };
    let mut case = Case::of(&bytes);
    case.place("a", symbols["function"] + 3, Content::AfterCall);
    assert!(bytes.windows(12).any(|w| w == b".debug_line\0") || bytes.windows(13).any(|w| w == b".zdebug_line\0"));
    assert!(case.found()["a"].line >= Some(4), "{:?}", case.found());
}

#[test]
fn paths_that_are_no_files_are_not_waited_for() {
    let Some((bytes, symbols)) = &*LIBRARY else { return };
    let mut case = Case::of(bytes);
    case.place("a", symbols["function"] + 1, Content::AfterCall);
    let path = case.path();
    fs::remove_file(&path).unwrap();
    assert_eq!(case.found(), BTreeMap::new(), "none there");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(case.found(), BTreeMap::new(), "a pipe");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(case.found(), BTreeMap::new(), "a folder");
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "").unwrap();
    assert_eq!(case.found(), BTreeMap::new(), "empty");
}

/// Where the bytes of sections are that are read here.
fn interesting(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(bytes).unwrap();
    let is_read = |name: &str| name.starts_with(".debug") || name.ends_with("tab") || name.contains("note");
    let sections = file.sections().filter(|s| s.name().is_ok_and(is_read));
    let ranges = sections.filter_map(|s| s.file_range()).map(|(at, len)| at as usize..(at + len) as usize);
    // The head, the program headers, and the section headers at the end.
    ranges.chain([0..1024.min(bytes.len()), bytes.len().saturating_sub(64 * 40)..bytes.len()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Nothing panics, and nothing takes long, whatever is in the file.
    #[test]
    fn a_damaged_file_has_names_or_none(
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in proptest::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let Some((bytes, symbols)) = &*LIBRARY else { return Ok(()) };
        let (mut bytes, ranges) = (bytes.clone(), interesting(bytes));
        for (range, at, with) in noise {
            let range = range.get(&ranges);
            if let Some(byte) = bytes.get_mut(range.start + at.index(range.len().max(1))) {
                *byte = with;
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let mut case = Case::of(&bytes);
        for (name, address) in symbols {
            case.place(&format!("call {name}"), address + 2, Content::AfterCall);
            case.place(&format!("data {name}"), *address, Content::Variable);
        }
        let began = std::time::Instant::now();
        case.found();
        prop_assert!(began.elapsed().as_secs() < 5);
    }
}

#[test]
fn a_file_of_another_time_is_refused() {
    let Some((bytes, symbols)) = &*LIBRARY else { return };
    let mut case = Case::of(bytes);
    case.place("a", symbols["function"] + 3, Content::AfterCall);
    let refused = |case: &Case| case.found().get("a").map(|row| row.refused);
    assert_eq!(refused(&case), Some(None));
    case.places.recorded_ns = 1;
    assert_eq!(refused(&case), Some(Some("changed since")));
    let with_id = |case: &mut Case, id: &[u8], recorded_ns| {
        let path = case.path().to_str().unwrap().to_owned();
        let file = Arc::new(MappedFile { path, build_id: id.into() });
        let place = Place { file, offset: symbols["function"] + 3, content: Content::AfterCall };
        case.places = Places { by_name: [("a".to_owned(), Some(place))].into(), recorded_ns };
    };
    with_id(&mut case, b"another one", 1);
    assert_eq!(refused(&case), Some(Some("rebuilt since")));
    with_id(&mut case, b"another one", u64::MAX);
    assert_eq!(refused(&case), Some(Some("another build is here")));
    let id = id_of(&case.path());
    with_id(&mut case, &id, 1);
    assert_eq!(refused(&case), Some(None), "the same build, installed later");
}

fn id_of(path: &Path) -> Vec<u8> {
    use object::Object;
    let bytes = fs::read(path).unwrap();
    object::File::parse(&*bytes).unwrap().build_id().unwrap().unwrap().to_vec()
}
