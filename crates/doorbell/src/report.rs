//! `doorbell report`: one HTML file for people.

use crate::compare::load;
use crate::failure::Failure;
use crate::help::Page;
use output::WholeFile;
use page::{Document, Named};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write one HTML file of runs, a soak or a recording, for people: it needs no network and no other file
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell report crossover -o crossover.html", "the folder of a run"),
        ("doorbell report before after -o both.html", "several runs side by side"),
        ("doorbell report app.doorbell -o app.html", "a recording"),
        ("doorbell report paper -o paper.html", "what `bench saturate` wrote"),
        ("doorbell report crossover --markdown crossover.md", "the same as Markdown"),
        ("doorbell report crossover --svg pictures", "its pictures, each as a file"),
    ])
    .text("Of a run on the software GPU it says what worked, never how fast. `doorbell compare` says whether one run is slower than \
           another.")
    .statuses(&[(0, "done"), (2, "an error, or a recording that is damaged: what could be read is in the file")])
)]
pub struct Args {
    /// Folders of runs (or their run.json), or one soak, saturated link or recording; for example results/crossover
    #[arg(value_name = "RUN|SOAK|RECORDING", required = true)]
    what: Vec<PathBuf>,
    /// Write to this file, for example crossover.html
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["markdown", "svg"])]
    out: Option<PathBuf>,
    /// Write the same as Markdown to this file, for example crossover.md
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write each picture as SVG to this folder, too, for example pictures
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
}

/// That a page has room for.
const ROOM: u64 = 1 << 20;
const HINT: &str = "give folders that `doorbell bench -o` wrote, or a file that `doorbell record` wrote";

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // A name that is taken is known before anything is read.
        let html = self.out.as_deref().map(|path| self.open("--out", path)).transpose()?;
        let markdown = self.markdown.as_deref().map(|path| self.open("--markdown", path)).transpose()?;
        let (document, damage) = self.document()?;
        if let Some(folder) = &self.svg {
            self.pictures(&document, folder)?;
        }
        if let Some(file) = html {
            write(file, &page::html(&document))?;
        }
        if let Some(file) = markdown {
            write(file, &page::markdown(&document))?;
        }
        damage.map_or(Ok(ExitCode::SUCCESS), |recording| crate::show::damage_of(&recording))
    }

    fn open(&self, option: &str, path: &Path) -> anyhow::Result<WholeFile> {
        crate::result::is_file(option, path, "/dev/stdout is a file")?;
        Ok(WholeFile::open(path, ROOM, self.force)?)
    }

    /// With the recording, whose damage is said at the end.
    fn document(&self) -> anyhow::Result<(Document, Option<insight::Recording>)> {
        if let [one] = self.what.as_slice()
            && is_recording(one)?
        {
            let recording = crate::show::open(one, None)?;
            return Ok((page::of_recording(&recording)?, Some(recording)));
        }
        if let [one] = self.what.as_slice()
            && let Some(path) = soak_in(one)
        {
            return Ok((page::of_soak(&read_soak(&path)?), None));
        }
        if let [one] = self.what.as_slice()
            && saturated_in(one)
        {
            return Ok((page::of_saturated(&saturate::folder::read_account(one)?), None));
        }
        let mut runs = Vec::new();
        for (path, name) in self.what.iter().zip(load::names(&self.what)) {
            if is_recording(path)? {
                let what = format!("{}: a recording has a page of its own", path.display());
                return Err(Failure::new(what, "several runs can be side by side; give one recording alone").into());
            }
            let (run, folder) = load::Loaded::open(path).map_err(|e| unfinished(e, path))?.summed_up_again()?;
            runs.push(Named { name, run, folder });
        }
        Ok((page::of_runs(&runs)?, None))
    }

    fn pictures(&self, document: &Document, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::new(format!("{}: {e}", folder.display()), "--svg DIR writes to another folder"))?;
        let taken = document.figures().map(|f| folder.join(format!("{}.svg", f.name))).find(|path| path.exists());
        if let Some(path) = taken.filter(|_| !self.force) {
            return Err(output::Error::Exists(path).into());
        }
        page::pictures(document, folder)?;
        Ok(())
    }
}

fn write(mut file: WholeFile, text: &str) -> anyhow::Result<()> {
    let written = file.write(|out| out.write_all(text.as_bytes()));
    written.map_err(|e| anyhow::Error::new(e).context(format!("{} was not written", file.path().display())))
}

/// The account of a soak: in its folder, or the file itself.
fn soak_in(path: &Path) -> Option<PathBuf> {
    let file = if path.is_dir() { path.join("soak.json") } else { path.to_owned() };
    (file.is_file() && file.file_name().is_some_and(|name| name == "soak.json")).then_some(file)
}

/// What `bench saturate` wrote: in its folder, or the file itself.
fn saturated_in(path: &Path) -> bool {
    let name = saturate::folder::SATURATED;
    if path.is_dir() { path.join(name).is_file() } else { path.file_name().is_some_and(|file| file == name) }
}

fn read_soak(path: &Path) -> anyhow::Result<soak::Soak> {
    let shown = path.display();
    let text = std::fs::read(path).map_err(|e| Failure::new(format!("{shown}: {e}"), HINT))?;
    let value: serde_json::Value = serde_json::from_slice(&text)
        .map_err(|e| Failure::new(format!("{shown}: no soak.json: {e}"), "`doorbell soak -o FOLDER` writes it"))?;
    let found = value.get("schema").and_then(|s| s.as_str()).unwrap_or_default();
    if found != soak::account::SCHEMA {
        let what = format!("{shown}: its schema is {found:?}, and this doorbell reads {:?}", soak::account::SCHEMA);
        let by = value.get("doorbell").and_then(|v| v.as_str()).unwrap_or("that wrote it");
        return Err(Failure::new(what, format!("read it with the doorbell {by}")).into());
    }
    serde_json::from_value(value).map_err(|e| Failure::new(format!("{shown}: {e}"), HINT).into())
}

/// A run.json that was cut can be summed up anew.
fn unfinished(e: anyhow::Error, path: &Path) -> anyhow::Error {
    match e.downcast_ref::<results::Error>() {
        Some(results::Error::Damaged { path: file, .. }) if file.ends_with("run.json") => {
            let hint = format!("`doorbell bench -o {} --resume` sums it up again from its parts", path.display());
            Failure::new(e.to_string(), hint).into()
        }
        _ => e,
    }
}

/// A file that is no JSON: whether it is a recording its reader says.
fn is_recording(path: &Path) -> anyhow::Result<bool> {
    if path.is_dir() {
        return Ok(false);
    }
    let mut first = [0; 1];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut first));
    match read {
        Ok(_) => Ok(first[0] != b'{'),
        Err(e) => Err(Failure::new(format!("{}: {e}", path.display()), HINT).into()),
    }
}
