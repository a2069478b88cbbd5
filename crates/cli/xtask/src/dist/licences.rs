//! One file with the licences of all linked code.

use super::binaries::Tools;
use super::dependencies::{Part, Workspace};
use super::{output, read};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const NAME: &str = "THIRD-PARTY-LICENSES.txt";

pub fn text(workspace: &Workspace, parts: &[Part], tools: &Tools) -> anyhow::Result<Vec<u8>> {
    // Each text once, with the crates that have it.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = String::from("The packages that are part of doorbell's binaries, and their licences.\n\n");
    for part in parts {
        writeln!(out, "{} {}: {}", part.name, part.version, part.licence)?;
        let found = licence_files(&part.folder)?;
        // A few crates come without a text. Apache-2.0, which those have, is in the checkout.
        let found = if found.is_empty() { vec![workspace.root.join("LICENSE-APACHE")] } else { found };
        for path in found {
            let text = String::from_utf8_lossy(&read(&path)?).replace("\r\n", "\n");
            texts.entry(text.trim().to_owned()).or_default().push(part.id());
        }
    }
    let rust = String::from_utf8(output(Command::new("rustc").args(["--print", "sysroot"]))?)?;
    let rust = Path::new(rust.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    writeln!(out, "The Rust standard library: MIT OR Apache-2.0, with parts under other licences, below")?;
    let mut more = vec![("the Rust standard library", plain(&String::from_utf8_lossy(&read(&rust)?)))];
    if let Some(zig) = tools.zig() {
        writeln!(
            out,
            "zig's compiler-rt: MIT. LLVM's libunwind: Apache-2.0 WITH LLVM-exception. The start files of glibc: LGPL-2.1 with an exception"
        )?;
        for (whose, file) in [
            ("compiler-rt", "LICENSE"),
            ("libunwind", "lib/libunwind/LICENSE.TXT"),
            ("the start files of glibc", "lib/libc/glibc/LICENSES"),
        ] {
            more.push((whose, String::from_utf8_lossy(&read(&zig.join(file))?).trim().to_owned()));
        }
    }
    for (text, whose) in &texts {
        section(&mut out, &whose.join(", "), text)?;
    }
    for (whose, text) in &more {
        section(&mut out, whose, text)?;
    }
    Ok(out.into_bytes())
}

fn section(out: &mut String, whose: &str, text: &str) -> anyhow::Result<()> {
    Ok(write!(out, "\n{}\n{whose}\n\n{text}\n", "=".repeat(80))?)
}

fn licence_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("{}", folder.display()))?;
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let starts = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];
        path.is_file() && starts.iter().any(|start| name.starts_with(start))
    };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_one).collect();
    files.sort();
    Ok(files)
}

/// The text of an HTML page without scripts: no tags, no blank lines.
fn plain(html: &str) -> String {
    let body = html.split_once("<body>").map_or(html, |(_, body)| body);
    let mut text = String::new();
    for piece in body.split('<') {
        text.push_str(piece.split_once('>').map_or(piece, |(_, after)| after));
    }
    for (name, letter) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&#34;", "\""),
        ("&amp;", "&"),
    ] {
        text = text.replace(name, letter);
    }
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|a, b| a.is_empty() && b.is_empty());
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn pages_lose_their_tags_only() {
        let page = "<html><body>\n\n\n<h1>A &amp; B</h1>\n<pre>1 &lt; 2\n  x</pre>\n</body>";
        assert_eq!(super::plain(page), "A & B\n1 < 2\n  x");
    }
}
