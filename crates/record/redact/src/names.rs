//! Substitutes for names and paths: `library-2.so.1`, `program-3`, `thread-4`, `/dir-5`.
//!
//! Invariant: the same name gets the same substitute wherever it occurs, and different names get different ones.

use std::collections::HashMap;
use tape::nvtx;

/// Names that the kernel gives to mappings: they are the same in every program.
const KERNEL: [&[u8]; 6] = [b"[heap]", b"[stack]", b"[vdso]", b"[vvar]", b"[vvar_vclock]", b"[vsyscall]"];
/// Paths that reveal no detail of the program.
const PUBLIC: [&str; 2] = ["/dev/nvidia", "/proc/sys/"];
/// Files and functions that Python names itself.
const PYTHON: [&str; 6] = ["<string>", "<stdin>", "<module>", "<lambda>", "<listcomp>", "<genexpr>"];
/// A shorter name in a text could as well be a word.
const SHORTEST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A library's name up to `.so`.
    Library,
    Program,
    Thread,
    Kernel,
    Function,
    /// A range of NVTX, a mark or a domain.
    Range,
    Folder,
}

/// The substitutes given so far.
#[derive(Debug, Default)]
pub struct Names {
    names: bool,
    paths: bool,
    given: HashMap<(Kind, Vec<u8>), usize>,
    /// How many names of each kind have a substitute.
    counts: HashMap<Kind, usize>,
    /// A library's whole name: its number among the names with the same beginning.
    versions: HashMap<Vec<u8>, usize>,
    versions_of: HashMap<usize, usize>,
    /// Replaced names and their substitutes, for texts.
    replaced: HashMap<String, String>,
}

impl Names {
    pub fn new(names: bool, paths: bool) -> Names {
        Names { names, paths, ..Names::default() }
    }

    /// A build id identifies one file, whatever the file is called.
    pub fn keeps_build_ids(&self) -> bool {
        !self.names
    }

    /// A path, or the name of a mapping that has none.
    pub fn path(&mut self, path: &[u8]) -> Vec<u8> {
        let public = PUBLIC.iter().any(|p| path.starts_with(p.as_bytes()));
        if path.is_empty() || public || KERNEL.contains(&path) {
            return path.into();
        }
        let (folder, file) = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => path.split_at(at + 1),
            None => (&[][..], path),
        };
        let mut out = self.folder(folder);
        out.extend(self.file(file));
        self.remember(path, &out);
        out
    }

    /// As [`Names::path`].
    pub fn path_text(&mut self, path: &str) -> String {
        String::from_utf8_lossy(&self.path(path.as_bytes())).into_owned()
    }

    /// A thread's name, or a process's name as in /proc/PID/comm.
    pub fn thread(&mut self, name: &[u8]) -> Vec<u8> {
        if !self.names || name.is_empty() {
            return name.into();
        }
        let out = format!("thread-{}", self.number(Kind::Thread, name)).into_bytes();
        self.remember(name, &out);
        out
    }

    /// The symbol of a kernel.
    pub fn kernel(&mut self, symbol: &[u8]) -> Vec<u8> {
        if !self.names || symbol.is_empty() {
            return symbol.into();
        }
        let out = format!("kernel_{}", self.number(Kind::Kernel, symbol)).into_bytes();
        self.remember(symbol, &out);
        out
    }

    /// The file of a piece of Python code.
    pub fn python_file(&mut self, file: &str) -> String {
        if PYTHON.contains(&file) || file.starts_with("<frozen ") { file.into() } else { self.path_text(file) }
    }

    /// The function of a piece of Python code.
    pub fn python_function(&mut self, name: &str) -> String {
        if !self.names || name.is_empty() || PYTHON.contains(&name) {
            return name.into();
        }
        let out = format!("function_{}", self.number(Kind::Function, name.as_bytes()));
        self.remember(name.as_bytes(), out.as_bytes());
        out
    }

    /// The text of the NVTX range with this number.
    pub fn range(&mut self, id: u64, text: &[u8]) -> Vec<u8> {
        if !self.names || text.is_empty() {
            return text.into();
        }
        let out = self.range_name(id);
        self.remember(text, &out);
        out
    }

    /// The number of the range's substitute. A text's number is computed from the text.
    pub fn range_number(&mut self, id: u64) -> u64 {
        if !self.names || id == 0 { id } else { nvtx::text(&self.range_name(id)) }
    }

    fn range_name(&mut self, id: u64) -> Vec<u8> {
        format!("range-{}", self.number(Kind::Range, &id.to_le_bytes())).into_bytes()
    }

    /// A text for people, in which names and paths may occur.
    pub fn text(&mut self, text: &str) -> String {
        if !self.names && !self.paths {
            return text.into();
        }
        let mut known: Vec<(String, String)> = self.replaced.iter().map(|(a, b)| (a.clone(), b.clone())).collect();
        known.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut text = text.to_owned();
        for (name, substitute) in known.iter().filter(|(name, _)| name.len() >= SHORTEST) {
            text = replace_words(&text, name, substitute);
        }
        // Paths that occurred only here.
        let pieces: Vec<String> = text.split_inclusive(char::is_whitespace).map(|piece| self.piece(piece)).collect();
        pieces.concat()
    }

    fn piece(&mut self, piece: &str) -> String {
        let Some(at) = piece.find('/') else { return piece.into() };
        let (before, path) = piece.split_at(at);
        let path_len = path.trim_end_matches(|c: char| c.is_whitespace() || ",:;)'\"".contains(c)).len();
        let (path, after) = path.split_at(path_len);
        let is_ours = |folder: &str| folder.is_empty() || folder.starts_with("dir-");
        if path == "/"
            || path.trim_start_matches('/').split('/').all(is_ours)
            || self.replaced.values().any(|s| s == path)
        {
            return piece.into();
        }
        let before = if before.chars().any(char::is_alphanumeric) { self.path_text(before) } else { before.into() };
        format!("{before}{}{after}", self.path_text(path))
    }

    fn folder(&mut self, folder: &[u8]) -> Vec<u8> {
        if !self.paths || folder.is_empty() || folder == b"/" {
            return folder.into();
        }
        let root = if folder.starts_with(b"/") { "/" } else { "" };
        format!("{root}dir-{}/", self.number(Kind::Folder, folder)).into_bytes()
    }

    fn file(&mut self, file: &[u8]) -> Vec<u8> {
        if !self.names || file.is_empty() {
            return file.into();
        }
        let stem = file.windows(3).position(|w| w == b".so").filter(|at| *at > 0).and_then(|at| file.get(..at));
        let out = match stem {
            None => format!("program-{}", self.number(Kind::Program, file)),
            Some(stem) => {
                let n = self.number(Kind::Library, stem);
                let next = self.versions_of.entry(n).or_default();
                let version = *self.versions.entry(file.into()).or_insert_with(|| {
                    *next += 1;
                    *next
                });
                format!("library-{n}.so.{version}")
            }
        };
        self.remember(file, out.as_bytes());
        out.into_bytes()
    }

    fn number(&mut self, kind: Kind, name: &[u8]) -> usize {
        let count = self.counts.entry(kind).or_default();
        *self.given.entry((kind, name.into())).or_insert_with(|| {
            *count += 1;
            *count
        })
    }

    fn remember(&mut self, name: &[u8], substitute: &[u8]) {
        if let (Ok(name), Ok(substitute)) = (str::from_utf8(name), str::from_utf8(substitute))
            && name != substitute
            && !self.replaced.contains_key(name)
        {
            self.replaced.insert(name.into(), substitute.into());
        }
    }
}

/// Replaces `name` where it is a word, or several.
fn replace_words(text: &str, name: &str, substitute: &str) -> String {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        out.push_str(before);
        let part = is_word(out.chars().next_back()) || is_word(after.chars().next());
        out.push_str(if part { name } else { substitute });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(b: Vec<u8>) -> String {
        String::from_utf8(b).unwrap()
    }

    #[test]
    fn the_same_name_gets_the_same_substitute_in_paths_and_texts() {
        let mut n = Names::new(true, true);
        assert_eq!(text(n.path(b"/usr/lib/libsecret.so.1.2")), "/dir-1/library-1.so.1");
        assert_eq!(text(n.path(b"/usr/lib/libsecret.so.2")), "/dir-1/library-1.so.2");
        assert_eq!(text(n.path(b"/opt/libsecret.so.1.2")), "/dir-2/library-1.so.1");
        assert_eq!(text(n.path(b"/opt/app (deleted)")), "/dir-2/program-1");
        assert_eq!(text(n.path(b"./app")), "dir-3/program-2");
        assert_eq!(text(n.path(b"app")), "program-2");
        assert_eq!((text(n.thread(b"loader")), text(n.thread(b""))), ("thread-1".into(), "".into()));
        for kept in ["/dev/nvidia0", "[heap]", ""] {
            assert_eq!(text(n.path(kept.as_bytes())), kept);
        }
        assert_eq!(n.text("/opt/app (deleted): loader, loaders"), "/dir-2/program-1: thread-1, loaders");
        assert_eq!(n.text("in (/home/me/x y)"), "in (/dir-4/program-3 y)");
        assert_eq!(n.text("/dir-4/program-3 stays"), "/dir-4/program-3 stays");
        assert_eq!(n.text("see /proc/sys/kernel/perf_event_paranoid"), "see /proc/sys/kernel/perf_event_paranoid");
    }

    #[test]
    fn a_range_and_its_number_get_a_substitute_together() {
        let id = nvtx::text(b"secret");
        let mut n = Names::new(true, true);
        let substitute = n.range(id, b"secret");
        assert_eq!((&substitute[..], n.range_number(id)), (&b"range-1"[..], nvtx::text(b"range-1")));
        assert_eq!((n.range_number(0), n.range(7, b"other")), (0, b"range-2".to_vec()));
        let mut none = Names::new(false, true);
        assert_eq!((none.range_number(id), none.range(id, b"secret")), (id, b"secret".to_vec()));
    }

    #[test]
    fn names_and_paths_are_two_things() {
        let mut names = Names::new(true, false);
        assert_eq!(text(names.path(b"/usr/lib/libm.so.6")), "/usr/lib/library-1.so.1");
        let mut paths = Names::new(false, true);
        assert_eq!(text(paths.path(b"/usr/lib/libm.so.6")), "/dir-1/libm.so.6");
        assert_eq!(text(paths.thread(b"loader")), "loader");
        let mut none = Names::new(false, false);
        assert_eq!(text(none.path(b"/usr/lib/libm.so.6")), "/usr/lib/libm.so.6");
        assert_eq!(none.text("/a b"), "/a b");
    }
}
