//! The map of the crates: each folder of `crates` with its crates, and a line down to each folder that it uses.
//!
//! All of it is read from cargo and from the heads of the folders' READMEs; only the order of the folders is written here.

use crate::dist::Workspace;
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// From top to bottom: a folder uses only those after it.
const FOLDERS: [&str; 10] = ["cli", "testing", "show", "bench", "devices", "gpu", "explain", "record", "host", "wire"];

const WIDTH: usize = 900;
const LEFT: usize = 30;
/// Of a folder's box.
const BOX: usize = 620;
const GAP: usize = 16;
/// Between two lines that go down.
const STEP: usize = 22;
/// Letters of a box's line, in a font in which all are equally wide.
const LETTERS: usize = 74;
const TOP: usize = 56;

#[derive(Default)]
struct Folder {
    crates: BTreeSet<String>,
    /// Other folders, by normal and build dependencies.
    uses: BTreeSet<String>,
}

impl Workspace {
    /// The picture, the same bytes for the same tree.
    pub fn map(&self) -> anyhow::Result<String> {
        let folders = self.folders()?;
        let mut abouts = Vec::new();
        for name in FOLDERS {
            abouts.push(about(&self.root, name)?);
        }
        Ok(draw(&folders, &abouts))
    }

    fn folders(&self) -> anyhow::Result<BTreeMap<String, Folder>> {
        let packages = || self.metadata["packages"].as_array().into_iter().flatten();
        let mut places = BTreeMap::new();
        for package in packages() {
            let name = package["name"].as_str().unwrap_or_default();
            places.insert(name, self.place(package)?);
        }
        let mut folders: BTreeMap<String, Folder> = BTreeMap::new();
        for package in packages() {
            let name = package["name"].as_str().unwrap_or_default();
            let own = places[name];
            let folder = folders.entry(own.to_owned()).or_default();
            folder.crates.insert(name.to_owned());
            for used in package["dependencies"].as_array().into_iter().flatten() {
                let place = used["name"].as_str().and_then(|name| places.get(name));
                let Some(place) = place.filter(|_| used["path"].is_string() && used["kind"] != "dev") else { continue };
                if floor(place) < floor(own) {
                    bail!("{name} in crates/{own} uses {}, whose folder crates/{place} is above it", used["name"]);
                }
                if *place != own {
                    folder.uses.insert((*place).to_owned());
                }
            }
        }
        Ok(folders)
    }

    /// The name of the package's folder in `crates`.
    fn place(&self, package: &Value) -> anyhow::Result<&'static str> {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let place = manifest.strip_prefix(self.root.join("crates")).ok();
        let name = place.and_then(|place| place.iter().next()).unwrap_or_default();
        FOLDERS.into_iter().find(|folder| name == *folder).with_context(|| {
            format!(
                "{}: its folder is not on the map. Add it to FOLDERS in crates/cli/xtask/src/pictures/map.rs",
                manifest.display()
            )
        })
    }
}

fn floor(folder: &str) -> Option<usize> {
    FOLDERS.iter().position(|name| *name == folder)
}

/// What the folder is for: the first line of its README, `# wire: words and structs`.
fn about(root: &Path, folder: &str) -> anyhow::Result<String> {
    let path = root.join("crates").join(folder).join("README.md");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let head = text.lines().next().and_then(|line| line.strip_prefix(&format!("# {folder}: ")));
    let head = head.with_context(|| format!("{}: begin it with `# {folder}: what it is for`", path.display()))?;
    Ok(head.to_owned())
}

/// The names in lines of at most LETTERS.
fn lines(names: &BTreeSet<String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for name in names {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + name.len() <= LETTERS => {
                line.push_str(", ");
                line.push_str(name);
            }
            _ => lines.push(name.clone()),
        }
    }
    lines
}

struct Row {
    top: usize,
    high: usize,
    crates: Vec<String>,
}

impl Row {
    /// Lines leave a folder above the place at which others end, so that the two are not taken for one.
    fn leaves(&self) -> usize {
        self.top + 16
    }

    fn ends(&self) -> usize {
        self.top + self.high - 16
    }
}

fn rows(folders: &BTreeMap<String, Folder>) -> Vec<Row> {
    let mut top = TOP;
    let mut rows = Vec::new();
    for name in FOLDERS {
        let crates = folders.get(name).map(|folder| lines(&folder.crates)).unwrap_or_default();
        let high = 38 + 18 * crates.len();
        rows.push(Row { top, high, crates });
        top += high + GAP;
    }
    rows
}

/// Where the line of a folder goes down. Those that begin further up are further to the right: no line that leaves a folder crosses another.
fn column(row: usize) -> usize {
    LEFT + BOX + 24 + (FOLDERS.len() - 2 - row) * STEP
}

fn draw(folders: &BTreeMap<String, Folder>, abouts: &[String]) -> String {
    let rows = rows(folders);
    let end = rows.last().map_or(TOP, |row| row.top + row.high);
    let height = end + 56;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = draw_into(&mut svg, folders, abouts, &rows, height);
    svg
}

fn draw_into(
    svg: &mut String,
    folders: &BTreeMap<String, Folder>,
    abouts: &[String],
    rows: &[Row],
    height: usize,
) -> std::fmt::Result {
    let edge = LEFT + BOX;
    let number: usize = folders.values().map(|folder| folder.crates.len()).sum();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"14\">"
    )?;
    writeln!(svg, "<!-- Drawn by `cargo xtask pictures map`. -->")?;
    writeln!(svg, "<title>The {} folders of crates, and which uses which</title>", FOLDERS.len())?;
    write!(svg, "<desc>")?;
    for name in FOLDERS {
        let uses = folders.get(name).map(|folder| ordered(&folder.uses)).unwrap_or_default();
        let uses = if uses.is_empty() { "no other".to_owned() } else { uses.join(", ") };
        write!(svg, "{name} uses {uses}. ")?;
    }
    writeln!(svg, "All lines go down.</desc>")?;
    writeln!(
        svg,
        "<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8Z\" fill=\"#0b5cad\"/></marker></defs>"
    )?;
    writeln!(svg, "<rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"#fff\" stroke=\"#d0d5db\"/>")?;
    writeln!(
        svg,
        "<g font-weight=\"bold\" fill=\"#5b6470\"><text x=\"{LEFT}\" y=\"34\">{number} crates in {} folders</text>\
         <text x=\"{}\" y=\"34\">uses</text></g>",
        FOLDERS.len(),
        edge + 24
    )?;
    for ((name, about), row) in FOLDERS.iter().zip(abouts).zip(rows) {
        writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"{BOX}\" height=\"{}\" rx=\"4\" fill=\"#f4f5f7\" stroke=\"#98a2ae\"/>",
            row.top, row.high
        )?;
        let x = LEFT + 14;
        writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" fill=\"#1d2127\"><tspan font-weight=\"bold\">{name}</tspan>\
             <tspan dx=\"12\" fill=\"#5b6470\">{}</tspan></text>",
            row.top + 22,
            escaped(about)
        )?;
        writeln!(svg, "<g font-family=\"monospace\" font-size=\"13\" fill=\"#1d2127\">")?;
        for (n, line) in row.crates.iter().enumerate() {
            writeln!(svg, "<text x=\"{x}\" y=\"{}\">{line}</text>", row.top + 44 + 18 * n)?;
        }
        writeln!(svg, "</g>")?;
    }
    writeln!(svg, "<g stroke=\"#0b5cad\" fill=\"none\" stroke-width=\"1.4\">")?;
    for (n, (name, row)) in FOLDERS.iter().zip(rows).enumerate() {
        let users = || FOLDERS.iter().enumerate().filter(|(_, user)| uses(folders, user, name));
        if let Some((first, _)) = users().next() {
            writeln!(svg, "<path d=\"M{} {}H{}\" marker-end=\"url(#a)\"/>", column(first), row.ends(), edge + 2)?;
        }
        let lowest = FOLDERS.iter().enumerate().filter(|(_, used)| uses(folders, name, used)).map(|(n, _)| n).max();
        if let Some(lowest) = lowest {
            writeln!(svg, "<path d=\"M{edge} {}H{}V{}\"/>", row.leaves(), column(n), rows[lowest].ends())?;
        }
    }
    writeln!(svg, "</g>\n<g fill=\"#0b5cad\">")?;
    for (from, user) in FOLDERS.iter().enumerate() {
        for (to, used) in FOLDERS.iter().enumerate().filter(|(_, used)| uses(folders, user, used)) {
            writeln!(
                svg,
                "<circle cx=\"{}\" cy=\"{}\" r=\"4\"><title>{user} uses {used}</title></circle>",
                column(from),
                rows[to].ends()
            )?;
        }
    }
    writeln!(
        svg,
        "</g>\n<text x=\"{LEFT}\" y=\"{}\" fill=\"#5b6470\" font-size=\"12\">From each folder one line goes down. \
         A dot on it: it uses a crate of the folder to the left of the dot. Dependencies of tests are left out.</text>",
        height - 24
    )?;
    writeln!(svg, "</svg>")
}

fn uses(folders: &BTreeMap<String, Folder>, user: &str, used: &str) -> bool {
    folders.get(user).is_some_and(|folder| folder.uses.contains(used))
}

/// From top to bottom.
fn ordered(names: &BTreeSet<String>) -> Vec<&'static str> {
    FOLDERS.into_iter().filter(|name| names.contains(*name)).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
