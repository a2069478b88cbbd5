//! `abi.tsv` against the headers that NVIDIA publishes, which are not part of this tree.
//!
//! `OPEN_GPU_KERNEL_MODULES` names a clone of github.com/NVIDIA/open-gpu-kernel-modules with its tags. For the first and the last tag of each
//! branch (the lines `# tags` of the table), the test compiles a C++ program against the tag's headers and runs it. The program prints the contents
//! of the table. With `OPEN_GPU_KERNEL_MODULES_WRITE=1` the rows are written instead of compared: that is how the table was made. The rows of
//! branches without tags stay as they are.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/abi.tsv");

/// What of a tag is unpacked, and where its headers are looked for.
const PATHS: [&str; 4] = [
    "src/common/sdk/nvidia/inc",
    "src/nvidia/arch/nvalloc/unix/include",
    "kernel-open/nvidia-uvm",
    "kernel-open/common/inc",
];

const HEADERS: [&str; 23] = [
    "nvtypes.h",
    "nvgputypes.h",
    "nvos.h",
    "alloc/alloc_channel.h",
    "class/cl0005.h",
    "class/cl0080.h",
    "class/cl2080.h",
    "class/clb0b5sw.h",
    "ctrl/ctrl0000/ctrl0000client.h",
    "ctrl/ctrl0000/ctrl0000gpu.h",
    "ctrl/ctrl0000/ctrl0000system.h",
    "ctrl/ctrl0080/ctrl0080gpu.h",
    "ctrl/ctrl2080/ctrl2080ce.h",
    "ctrl/ctrl2080/ctrl2080fb.h",
    "ctrl/ctrl2080/ctrl2080gpu.h",
    "ctrl/ctrla06c.h",
    "ctrl/ctrla06f/ctrla06fgpfifo.h",
    "ctrl/ctrlc36f.h",
    "nv_escape.h",
    "nv-ioctl-numbers.h",
    "nv-ioctl.h",
    "nv-unix-nvos-params-wrappers.h",
    "uvm_linux_ioctl.h",
];

/// kind, name, member.
type Key = [String; 3];
/// value and size, as the table writes them.
type Fact = [String; 2];

struct Table {
    head: Vec<String>,
    /// Branch, its first and its last tag; none for a branch without published headers.
    tags: Vec<(String, Vec<String>)>,
    /// In the order of the file.
    keys: Vec<Key>,
    facts: BTreeMap<(Key, String), Fact>,
}

fn read() -> Table {
    let text = std::fs::read_to_string(TABLE).unwrap();
    let mut table = Table { head: vec![], tags: vec![], keys: vec![], facts: BTreeMap::new() };
    for line in text.lines() {
        if line.starts_with('#') {
            table.head.push(line.into());
            if let Some(rest) = line.strip_prefix("# tags ") {
                let mut words = rest.split(' ').map(String::from);
                table.tags.push((words.next().unwrap(), words.collect()));
            }
            continue;
        }
        let c: Vec<&str> = line.split('\t').collect();
        let key = [c[1], c[2], c[3]].map(String::from);
        if !table.keys.contains(&key) {
            table.keys.push(key.clone());
        }
        for branch in c[0].split(' ') {
            table.facts.insert((key.clone(), branch.into()), [c[4], c[5]].map(String::from));
        }
    }
    table
}

impl Table {
    /// Equal facts share one line, in the order of the branches.
    fn write(&self) -> String {
        let mut text = self.head.join("\n") + "\n";
        for key in &self.keys {
            let mut lines: Vec<(Vec<&str>, &Fact)> = vec![];
            for (branch, _) in &self.tags {
                let Some(fact) = self.facts.get(&(key.clone(), branch.clone())) else { continue };
                match lines.iter_mut().find(|(_, f)| *f == fact) {
                    Some((branches, _)) => branches.push(branch),
                    None => lines.push((vec![branch], fact)),
                }
            }
            for (branches, [value, size]) in lines {
                writeln!(text, "{}\t{}\t{value}\t{size}", branches.join(" "), key.join("\t")).unwrap();
            }
        }
        text
    }

    /// A program that prints the fact of each key that the headers have.
    fn program(&self, headers: &str, has: impl Fn(&str) -> bool) -> String {
        let mut text = String::from(PRELUDE);
        text.insert_str(0, headers);
        for [kind, name, member] in &self.keys {
            let has_it = has(if kind == "ioctl" { member } else { name });
            match kind.as_str() {
                _ if !has_it => {}
                "struct" => writeln!(text, "    STRUCT({name})").unwrap(),
                "field" => writeln!(text, "    FIELD({name}, {member})").unwrap(),
                "ioctl" => writeln!(text, "    IOCTL({name}, {member})").unwrap(),
                _ => writeln!(text, "#ifdef {name}\n    NUMBER(\"{kind}\", {name})\n#endif").unwrap(),
            }
        }
        text + "}\n"
    }
}

const PRELUDE: &str = r#"
#include <cstdio>
#include <type_traits>
#define STRUCT(T) std::printf("struct\t" #T "\t-\t0\t%zu\n", sizeof(T));
#define FIELD(T, M) [](auto *p) { \
    using X = std::remove_pointer_t<decltype(p)>; \
    if constexpr (requires(X x) { x.M; }) { \
        static X x; \
        std::printf("field\t" #T "\t" #M "\t%zu\t%zu\n", (size_t)((char *)&x.M - (char *)&x), sizeof(x.M)); \
    } }((T *)nullptr);
#define IOCTL(N, T) std::printf("ioctl\t" #N "\t" #T "\t0x%lx\t%zu\n", \
    (3ul << 30) | (sizeof(T) << 16) | ('F' << 8) | (unsigned long)(N), sizeof(T));
#define NUMBER(K, N) std::printf(K "\t" #N "\t-\t0x%lx\t0\n", (unsigned long)(N));
int main() {
"#;

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// What the headers of one tag say.
fn of_tag(table: &Table, clone: &Path, tag: &str) -> BTreeMap<Key, Fact> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("headers-{tag}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut archive = Command::new("git")
        .arg("-C")
        .arg(clone)
        .args(["archive", tag])
        .args(PATHS)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    run(Command::new("tar").arg("x").arg("-C").arg(&dir).stdin(archive.stdout.take().unwrap()));
    assert!(archive.wait().unwrap().success(), "git archive {tag}");

    let include = |header: &str| PATHS.iter().map(|p| dir.join(p).join(header)).find(|p| p.is_file());
    let found: Vec<_> = HEADERS.iter().filter_map(|h| include(h)).collect();
    let headers: String = found.iter().map(|p| format!("#include \"{}\"\n", p.display())).collect();
    // Headers include others: a name counts as there if any header of the tag has it.
    let mut words = std::collections::BTreeSet::new();
    let mut folders: Vec<_> = PATHS.iter().map(|p| dir.join(p)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|e| e == "h") {
                let text = String::from_utf8_lossy(&std::fs::read(&entry).unwrap()).into_owned();
                words.extend(text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).map(String::from));
            }
        }
    }
    let source = dir.join("facts.cc");
    std::fs::write(&source, table.program(&headers, |name| words.contains(name))).unwrap();
    let binary = dir.join("facts");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++20", "-w", "-fpermissive"]);
    for path in PATHS {
        compiler.arg("-I").arg(dir.join(path));
    }
    run(compiler.arg("-o").arg(&binary).arg(&source));
    let printed = run(&mut Command::new(&binary));
    let _ = std::fs::remove_dir_all(&dir);
    printed
        .lines()
        .map(|line| {
            let c: Vec<&str> = line.split('\t').collect();
            ([c[0], c[1], c[2]].map(String::from), [c[3], c[4]].map(String::from))
        })
        .collect()
}

#[test]
fn the_table_is_what_published_headers_say() {
    let Some(clone) = std::env::var_os("OPEN_GPU_KERNEL_MODULES") else {
        test_support::skip!("OPEN_GPU_KERNEL_MODULES names no clone of NVIDIA/open-gpu-kernel-modules");
    };
    let write = std::env::var_os("OPEN_GPU_KERNEL_MODULES_WRITE").is_some();
    let mut table = read();
    for (branch, tags) in table.tags.clone() {
        let facts: Vec<_> = tags.iter().map(|tag| of_tag(&table, clone.as_ref(), tag)).collect();
        for pair in facts.windows(2) {
            assert_eq!(pair[0], pair[1], "{branch}: its first and its last tag differ");
        }
        let Some(facts) = facts.into_iter().next() else { continue };
        for key in table.keys.clone() {
            let at = (key.clone(), branch.clone());
            if write {
                match facts.get(&key) {
                    Some(fact) => table.facts.insert(at, fact.clone()),
                    None => table.facts.remove(&at),
                };
            } else {
                assert_eq!(table.facts.get(&at), facts.get(&key), "{branch} {key:?}");
            }
        }
    }
    let text = table.write();
    if write {
        std::fs::write(TABLE, text).unwrap();
    } else {
        assert_eq!(text, std::fs::read_to_string(TABLE).unwrap(), "the order of the table's rows");
    }
}
