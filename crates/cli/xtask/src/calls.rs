//! The rows of the driver's functions that `tape::call` has no row of its own for, from CUDA's headers.
//!
//! A row is a name, the suffixes of its symbols, how many words its arguments are, which of them is a stream, and whether it makes one. Numbers are on tapes: a name keeps the one that it has.

use crate::dist::Workspace;
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// The first number. (Rows that are written by hand have smaller ones.)
const FIRST: u16 = 1024;
/// The agent passes on so many words.
const WORDS: usize = 16;
const FILE: &str = "crates/record/tape/src/call/others.rs";
/// Entries of another kind, and a function by whose address programs find libcuda's file.
const LOOKUPS: [&str; 3] = ["cuGetProcAddress", "cuGetExportTable", "cuDriverGetVersion"];

/// Write the rows of the driver's rarer calls again, from CUDA's headers
///
/// Each folder has cuda.h and cudaTypedefs.h, for example /usr/local/cuda/include. Name them from the oldest version to the newest.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folders of headers
    #[arg(value_name = "FOLDER", required = true)]
    headers: Vec<PathBuf>,
}

/// What a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    words: usize,
    stream: Option<usize>,
}

/// A function's symbols by their form, and since when cuGetProcAddress gives each form.
#[derive(Debug, Default)]
struct Found {
    symbols: BTreeMap<String, Result<Form, &'static str>>,
    versions: BTreeMap<(String, u32), Form>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<()> {
        let workspace = Workspace::with(&["--no-deps"])?;
        let mut found = Found::default();
        let mut cuda = Vec::new();
        for folder in &self.headers {
            let read = |name: &str| {
                let path = folder.join(name);
                fs::read_to_string(&path).with_context(|| format!("{}: pass CUDA's include folder", path.display()))
            };
            let (header, types) = (read("cuda.h")?, read("cudaTypedefs.h")?);
            let version = header.lines().find_map(|line| line.strip_prefix("#define CUDA_VERSION "));
            let version: u32 = version.context("cuda.h has no CUDA_VERSION")?.trim().parse()?;
            cuda.push(format!("{}.{}", version / 1000, version % 1000 / 10));
            found.header(&header);
            found.types(&types);
        }
        let at = workspace.root.join(FILE);
        let before = fs::read_to_string(&at).unwrap_or_default();
        let written = fs::read_to_string(workspace.root.join("crates/record/tape/src/call/table.rs"))?;
        let (text, rows, left_out) = found.rows(&cuda.join(" and "), &numbers(&before), &names(&written))?;
        fs::write(&at, text).with_context(|| at.display().to_string())?;
        println!("{FILE}: {rows} rows; left out: {}", left_out.join(", "));
        Ok(())
    }
}

/// The names that rows of a table have.
fn names(table: &str) -> BTreeSet<&str> {
    let rows = table.lines().filter_map(|line| line.trim_start().strip_prefix("f("));
    rows.filter_map(|row| row.split('"').nth(1)).collect()
}

/// The numbers of an earlier file.
fn numbers(before: &str) -> BTreeMap<&str, u16> {
    let rows = before.lines().filter_map(|line| line.trim_start().strip_prefix("o("));
    rows.filter_map(|row| Some((row.split('"').nth(1)?, row.split(',').next()?.parse().ok()?))).collect()
}

/// A symbol without its version and variant, and those.
fn base(symbol: &str) -> (&str, &str) {
    let plain = symbol.strip_suffix("_ptsz").or_else(|| symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    let name = match plain.rsplit_once("_v") {
        Some((name, version)) if version.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => plain,
    };
    (name, &symbol[name.len()..])
}

fn form(parameters: &str) -> Result<Form, &'static str> {
    let mut of = Form { words: 0, stream: None };
    for parameter in parameters.split(',').map(str::trim).filter(|p| !p.is_empty() && *p != "void") {
        let kind = parameter.split(|c: char| !c.is_alphanumeric() && c != '_').find(|word| *word != "const");
        let is_pointer = parameter.contains(['*', '[']);
        match kind.unwrap_or("") {
            "float" | "double" if !is_pointer => return Err("a floating-point argument"),
            "CUipcMemHandle" | "CUipcMemHandle_v1" | "CUipcEventHandle" | "CUipcEventHandle_v1" if !is_pointer => {
                return Err("64 bytes on the stack");
            }
            "CUstream" if !is_pointer => of.stream = of.stream.or(Some(of.words)),
            _ => {}
        }
        of.words += 1;
    }
    if of.words > WORDS { Err("too many arguments") } else { Ok(of) }
}

impl Found {
    /// Prototypes. Those that are for CUDA's own use come last, and name the symbols; the others mean the newest.
    fn header(&mut self, text: &str) {
        let own = text.rfind("\n#if defined(__CUDA_API_VERSION_INTERNAL)\n").unwrap_or(text.len());
        let define = |line: &str| -> Option<(String, String)> {
            let mut words = line.strip_prefix("#define cu")?.split_whitespace();
            Some((format!("cu{}", words.next()?), words.next()?.to_owned()))
        };
        let newest: BTreeMap<String, String> = text[..own].lines().filter_map(define).collect();
        for (at, _) in text.match_indices("CUresult CUDAAPI ") {
            let rest = &text[at + "CUresult CUDAAPI ".len()..];
            let Some((name, rest)) = rest.split_once('(') else { continue };
            let Some((parameters, _)) = rest.split_once(')') else { continue };
            let (name, form) = (name.trim(), form(parameters));
            let symbol = if at < own { newest.get(name).map_or(name, String::as_str) } else { name };
            let inner = symbol.split_once('(').map(|(kind, of)| (kind, of.trim_end_matches(')')));
            match inner {
                Some(("__CUDA_API_PTSZ", of)) => self.add(&[of.into(), format!("{of}_ptsz")], form),
                Some(("__CUDA_API_PTDS", of)) => self.add(&[of.into(), format!("{of}_ptds")], form),
                _ => self.add(&[symbol.into()], form),
            }
        }
    }

    fn add(&mut self, symbols: &[String], form: Result<Form, &'static str>) {
        for symbol in symbols {
            self.symbols.insert(symbol.clone(), form);
        }
    }

    /// `typedef CUresult (CUDAAPI *PFN_cuName_v12080)(..);`
    fn types(&mut self, text: &str) {
        for (at, _) in text.match_indices("(CUDAAPI *PFN_") {
            let rest = &text[at + "(CUDAAPI *PFN_".len()..];
            let Some((name, rest)) = rest.split_once(")(") else { continue };
            let Some((parameters, _)) = rest.split_once(')') else { continue };
            if let Some((name, version)) = name.rsplit_once("_v")
                && let (Ok(version), Ok(form)) = (version.parse(), form(parameters))
            {
                self.versions.insert((name.to_owned(), version), form);
            }
        }
    }

    /// The file, its number of rows, and the functions that have none.
    fn rows(
        &self,
        cuda: &str,
        numbers: &BTreeMap<&str, u16>,
        written: &BTreeSet<&str>,
    ) -> anyhow::Result<(String, usize, Vec<String>)> {
        let mut functions: BTreeMap<&str, BTreeMap<&str, Result<Form, &str>>> = BTreeMap::new();
        for (symbol, form) in &self.symbols {
            let (name, suffix) = base(symbol);
            if !written.contains(name) && !LOOKUPS.contains(&name) {
                functions.entry(name).or_default().insert(suffix, *form);
            }
        }
        let mut next = numbers.values().max().map_or(FIRST, |most| most + 1);
        let (mut rows, mut left_out) = (BTreeMap::new(), Vec::new());
        for (name, symbols) in &functions {
            let mut forms: BTreeMap<u32, (Form, Vec<&str>)> = BTreeMap::new();
            for (suffix, form) in symbols {
                match form {
                    Err(why) => left_out.push(format!("{name}{suffix} ({why})")),
                    Ok(form) => {
                        let known = forms.values_mut().find(|(of, _)| of == form);
                        match known {
                            Some((_, suffixes)) => suffixes.push(suffix),
                            None => {
                                let since =
                                    if forms.is_empty() && suffix.is_empty() { 0 } else { self.since(name, *form)? };
                                forms.insert(since, (*form, vec![*suffix]));
                            }
                        }
                    }
                }
            }
            if forms.is_empty() {
                continue;
            }
            let number = numbers.get(name).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            // (Nobody asks for the oldest form by a version.)
            let oldest = forms.keys().next().copied();
            for (since, (form, mut suffixes)) in forms {
                suffixes.sort_unstable();
                let since = if Some(since) == oldest { 0 } else { since };
                rows.insert((number, since), (*name, suffixes, form));
            }
        }
        let mut text = format!(
            "//! Made by `cargo xtask calls` from the headers of CUDA {cuda}. Driver functions without a row in `table.rs`.\n\n\
             use super::Effect::MakesStream;\nuse super::Function;\nuse super::table::o;\n\n#[rustfmt::skip]\npub(super) const OTHERS: &[Function] = &[\n"
        );
        for ((number, since), (name, suffixes, form)) in &rows {
            let suffixes: Vec<String> = suffixes.iter().map(|suffix| format!("\"{suffix}\"")).collect();
            write!(text, "    o({number}, \"{name}\", &[{}], {})", suffixes.join(", "), form.words)?;
            if let Some(stream) = form.stream {
                write!(text, ".stream({stream})")?;
            }
            if name.contains("StreamCreate") {
                text += ".does(MakesStream)";
            }
            if *since > 0 {
                write!(text, ".since({since})")?;
            }
            text += ",\n";
        }
        text += "];\n";
        left_out.sort();
        Ok((text, rows.len(), left_out))
    }

    /// The first version of CUDA that has this form of a function.
    fn since(&self, name: &str, form: Form) -> anyhow::Result<u32> {
        let versions = self.versions.range((name.to_owned(), 0)..=(name.to_owned(), u32::MAX));
        match versions.filter(|(_, of)| **of == form).map(|((_, version), _)| *version).next() {
            Some(version) => Ok(version),
            None => bail!("cudaTypedefs.h has no {name} with {} words", form.words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "
#define CUDA_VERSION 13000
#define cuTwo cuTwo_v2
#define cuThree __CUDA_API_PTSZ(cuThree)
CUresult CUDAAPI cuOne(int *a, CUstream hStream);
__CUDA_DEPRECATED CUresult CUDAAPI cuTwo(const unsigned int a,
    CUdevice *b, size_t c);
CUresult CUDAAPI cuThree(void *a, CUmemLocation b, unsigned long long c, CUstream d);
CUresult CUDAAPI cuStreamCreate(CUstream *a);
CUresult CUDAAPI cuFloat(float a);
CUresult CUDAAPI cuKnown(void);
#if defined(__CUDA_API_VERSION_INTERNAL)
CUresult CUDAAPI cuTwo(int a, CUdevice *b);
#endif
";
    const TYPES: &str = "typedef CUresult (CUDAAPI *PFN_cuTwo_v2000)(int a, CUdevice_v1 *b);
typedef CUresult (CUDAAPI *PFN_cuTwo_v12000)(int a, CUdevice_v1 *b, size_t c);
typedef CUresult (CUDAAPI *PFN_cuOne_v4000)(int *a, CUstream hStream);";

    #[test]
    fn rows_are_those_of_the_headers_and_keep_their_numbers() {
        let mut found = Found::default();
        found.header(HEADER);
        found.types(TYPES);
        let written = "    f(1, \"cuKnown\", PLAIN, Create, 0),";
        let (text, rows, left_out) = found.rows("13.0", &BTreeMap::from([("cuTwo", 1030)]), &names(written)).unwrap();
        assert_eq!((rows, left_out), (5, vec!["cuFloat (a floating-point argument)".to_owned()]));
        for row in [
            "o(1031, \"cuOne\", &[\"\"], 2).stream(1),",
            "o(1032, \"cuStreamCreate\", &[\"\"], 1).does(MakesStream),",
            "o(1033, \"cuThree\", &[\"\", \"_ptsz\"], 4).stream(3),",
            "o(1030, \"cuTwo\", &[\"\"], 2),",
            "o(1030, \"cuTwo\", &[\"_v2\"], 3).since(12000),",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
        let expected = [("cuOne", 1031), ("cuStreamCreate", 1032), ("cuThree", 1033), ("cuTwo", 1030)];
        assert_eq!(numbers(&text), BTreeMap::from(expected));
    }
}
