//! The pictures of `docs/pictures` that are not drawn by hand: screenshots of report pages, and the map of the crates.
//!
//! A file is replaced only after all pictures that were asked for are ready.

mod demo;
mod map;
mod page;
mod png;

use crate::dist::Workspace;
use anyhow::{Context, bail};
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};

/// A larger picture slows down the page that shows it, and each clone.
const MAXIMUM: usize = 250_000;

/// Draw the pictures of docs/pictures again: screenshots of `doorbell report`, and the map of the crates
///
/// The data of the screenshots are in the tree. Screenshots need the command doorbell and Chromium, the demo needs the command, the map needs neither.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which pictures [default: all]
    #[arg(value_enum, value_name = "PICTURE")]
    what: Vec<Picture>,
    /// The command doorbell [default: $DOORBELL, else the newest in the target folder]
    #[arg(long, value_name = "FILE")]
    doorbell: Option<PathBuf>,
    /// Chromium or Chrome [default: chromium, chromium-browser or google-chrome of $PATH]
    #[arg(long, value_name = "FILE")]
    browser: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Picture {
    /// The page of a run on an H200
    Report,
    /// The page of two runs
    ReportTwo,
    /// The same page on a phone
    ReportPhone,
    /// The timeline of a recording with locks and kernel times
    Timeline,
    /// The timeline of a recording with kernel times
    TimelineKernels,
    /// What `doorbell demo` prints
    Demo,
    /// The folders and crates, and which folder uses which
    Map,
}

impl Picture {
    fn file(self) -> &'static str {
        match self {
            Picture::Report => "report.png",
            Picture::ReportTwo => "report-two.png",
            Picture::ReportPhone => "report-phone.png",
            Picture::Timeline => "timeline.png",
            Picture::TimelineKernels => "timeline-kernels.png",
            Picture::Demo => "demo.svg",
            Picture::Map => "map.svg",
        }
    }

    fn shot(self) -> Option<page::Shot> {
        match self {
            Picture::Report => Some(page::REPORT),
            Picture::ReportTwo => Some(page::REPORT_TWO),
            Picture::ReportPhone => Some(page::REPORT_PHONE),
            Picture::Timeline => Some(page::TIMELINE),
            Picture::TimelineKernels => Some(page::TIMELINE_KERNELS),
            Picture::Demo | Picture::Map => None,
        }
    }
}

impl Args {
    pub fn run(self) -> anyhow::Result<()> {
        let workspace = Workspace::with(&["--no-deps", "--offline"])?;
        let what = if self.what.is_empty() { Picture::value_variants().to_vec() } else { self.what };
        let tools = if what.iter().any(|picture| picture.shot().is_some()) {
            Some(page::Tools::find(self.doorbell.clone(), self.browser, &workspace.target)?)
        } else {
            None
        };
        let mut ready = Vec::new();
        for picture in what {
            let bytes = match (picture, picture.shot(), &tools) {
                (_, Some(shot), Some(tools)) => tools.shoot(&shot, &workspace.root),
                (Picture::Demo, ..) => page::doorbell(self.doorbell.clone(), &workspace.target)
                    .and_then(|doorbell| demo::draw(&doorbell))
                    .map(String::into_bytes),
                _ => workspace.map().map(String::into_bytes),
            };
            let bytes = bytes.with_context(|| format!("{}: nothing was written", picture.file()))?;
            if bytes.len() > MAXIMUM {
                bail!(
                    "{}: {} bytes, more than {MAXIMUM}: nothing was written. Make its window smaller \
                     (crates/cli/xtask/src/pictures/page.rs)",
                    picture.file(),
                    bytes.len()
                );
            }
            ready.push((picture.file(), bytes));
        }
        let folder = workspace.root.join("docs/pictures");
        for (name, bytes) in &ready {
            replace(&folder, name, bytes)?;
            println!("{:>10}  docs/pictures/{name}", bytes.len());
        }
        Ok(())
    }
}

fn replace(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let part = folder.join(format!(".{name}.part"));
    let path = folder.join(name);
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, &path));
    written
        .inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })
        .with_context(|| format!("{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares all of it: folders, crates and which folder uses which.
    #[test]
    fn the_map_shows_the_crates_of_the_tree() {
        let workspace = Workspace::with(&["--no-deps", "--offline"]).unwrap();
        let path = workspace.root.join("docs/pictures/map.svg");
        let there = fs::read_to_string(&path).unwrap();
        assert!(there == workspace.map().unwrap(), "{} is old: run `cargo xtask pictures map`", path.display());
    }

    #[test]
    fn no_picture_is_large_and_each_is_on_a_page() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let mut pages = fs::read_to_string(root.join("README.md")).unwrap();
        for folder in ["docs/guides", "docs/how-it-works"] {
            for entry in fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|e| e == "md") {
                    pages += &fs::read_to_string(&path).unwrap();
                }
            }
        }
        for picture in Picture::value_variants() {
            let name = picture.file();
            let bytes = fs::metadata(root.join("docs/pictures").join(name)).unwrap().len();
            assert!(bytes <= MAXIMUM as u64, "{name}: {bytes} bytes");
            assert!(pages.contains(&format!("pictures/{name})")), "no page shows {name}");
        }
    }
}
