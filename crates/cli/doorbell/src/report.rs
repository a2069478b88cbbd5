//! `doorbell report`: one HTML file for people.

use crate::failure::Failure;
use crate::help::Page;
use anyhow::Context as _;
use comparison::{FAIL_ABOVE, Limits, Loaded, compare_runs, names};
use html::{Document, Named};
use output::WholeFile;
use run_folder::{data_file, soak};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write as _};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::number;

/// Write one HTML file of runs, a soak or a recording, for people: it needs no network and no other file
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell report app.doorbell", "a recording, to app.html: why calls were slow, a timeline, locks, channels"),
        ("doorbell report crossover", "the folder of a run, to crossover.html"),
        ("doorbell report before after -o both.html", "two runs: ratio, interval and verdict of each cell, both distributions"),
        ("doorbell report crossover --markdown crossover.md", "the same as Markdown"),
        ("doorbell report crossover --svg pictures", "its pictures, each as a file"),
        ("doorbell report crossover --digest crossover.json", "a small data file, from which its figures can be computed again"),
        ("doorbell report --check docs/results/launch.md", "whether a page's tables are what their data files give"),
        ("doorbell report --fill docs/results/launch.md", "compute them again"),
    ])
    .text("Of a run on the software GPU it says what worked, never how fast. Of two runs it says the same as `doorbell compare`; \
           more than two stand side by side.")
    .statuses(&[
        (0, "done"),
        (1, "with --check: a page and its data differ"),
        (2, "an error, or a recording that is damaged: what could be read is in the file"),
    ])
)]
pub struct Args {
    /// Folders of runs (or their run.json), or one soak or recording; for example results/crossover
    #[arg(value_name = "RUN|SOAK|RECORDING", required = true)]
    what: Vec<PathBuf>,
    /// Write the page to this file, for example crossover.html [default: to NAME.html in this folder, if NAME.doorbell or the folder NAME
    /// is given; to no page with --markdown, --svg or --digest]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the same as Markdown to this file, for example crossover.md
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write each picture as SVG to this folder, too, for example pictures
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the data file of one run to this file, for example docs/results/data/crossover.json.gz; packed, if its name ends in .gz
    #[arg(long, value_name = "FILE")]
    digest: Option<PathBuf>,
    /// With --digest: which parts of a sample to keep, for example done,submit; otherwise the one that each subject observes
    #[arg(long, value_name = "PARTS", requires = "digest", value_delimiter = ',')]
    parts: Vec<Part>,
    /// With --digest: copy the samples to a folder next to the file, for example docs/results/data/crossover, instead of storing rounds
    #[arg(long, requires = "digest", conflicts_with = "parts")]
    with_samples: bool,
    /// The files are Markdown pages: compute their tables again from the data files that they name
    #[arg(long, conflicts_with_all = ["out", "markdown", "svg", "digest", "check"])]
    fill: bool,
    /// The files are Markdown pages: compare their tables with the data files that they name
    #[arg(long, conflicts_with_all = ["out", "markdown", "svg", "digest"])]
    check: bool,
    /// Replace files that are there. (A page without --out replaces an earlier page of doorbell's, and no other file.)
    #[arg(long)]
    force: bool,
    /// Do not print what was written
    #[arg(short, long)]
    quiet: bool,
}

/// Of a sample.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    /// From the intended release until the CPU saw the end
    Done,
    /// The call alone
    Submit,
    /// From the engine's start to its end
    Engine,
}

impl Part {
    fn observe(self) -> experiment::Observe {
        match self {
            Part::Done => experiment::Observe::Done,
            Part::Submit => experiment::Observe::Submit,
            Part::Engine => experiment::Observe::Engine,
        }
    }
}

/// Approximate size of a page.
const ROOM: u64 = 1 << 20;
const HINT: &str = "give folders that `doorbell bench -o` wrote, or a file that `doorbell record` wrote";

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.fill || self.check {
            return self.tables();
        }
        self.what.iter().try_for_each(|path| refuse_saturated(path))?;
        if let Some(path) = &self.digest {
            self.write_digest(path)?;
            if self.out.is_none() && self.markdown.is_none() && self.svg.is_none() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        // An existing file is an error before any input is read.
        let html = match &self.out {
            Some(path) => Some(self.open("--out", path)?),
            None if self.markdown.is_some() || self.svg.is_some() => None,
            None => Some(self.open_default()?),
        };
        let markdown = self.markdown.as_deref().map(|path| self.open("--markdown", path)).transpose()?;
        let (document, damage) = self.document()?;
        if let Some(folder) = &self.svg {
            self.pictures(&document, folder)?;
            self.tell(folder);
        }
        if let Some(file) = html {
            self.write(file, html::html(&document).as_bytes())?;
        }
        if let Some(file) = markdown {
            self.write(file, html::markdown(&document).as_bytes())?;
        }
        damage.map_or(Ok(ExitCode::SUCCESS), |recording| crate::show::damage_of(&recording))
    }

    /// Fills pages, or compares them with their data.
    fn tables(&self) -> anyhow::Result<ExitCode> {
        let mut differ = false;
        let mut out = std::io::stdout().lock();
        for path in &self.what {
            let page = html::markdown_tables::Page::open(path)
                .map_err(|e| Failure::new(format!("{}: {e}", path.display()), "give Markdown pages"))?;
            let shown = path.display();
            if self.check {
                match page.check() {
                    Ok(checked) => writeln!(out, "{shown}: {} from data", number::of(checked.tables as u64, "table"))?,
                    Err(e) => {
                        differ = true;
                        say!("{e}");
                    }
                }
                continue;
            }
            let (text, checked, refused) = page.filled()?;
            for refused in refused {
                say!("warning: {}: {}; --check refuses it", refused.data.display(), refused.why);
            }
            let changed = text != page.text();
            if changed {
                output::replace(path, |file| file.write_all(text.as_bytes()))?;
            }
            let said = if changed { "filled" } else { "unchanged" };
            writeln!(out, "{shown}: {} from data, {said}", number::of(checked.tables as u64, "table"))?;
        }
        Ok(if differ { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn write_digest(&self, path: &Path) -> anyhow::Result<()> {
        let [one] = self.what.as_slice() else {
            return Err(
                Failure::new("a data file is of one run", "give one folder that `doorbell bench -o` wrote").into()
            );
        };
        let file = self.open("--digest", path)?;
        let folder = run_folder::Folder::open(one).map_err(|e| {
            Failure::new(e.to_string(), "give the folder that `doorbell bench -o` wrote: it has the samples")
        })?;
        let run = folder.run().map_err(|e| unfinished(e.into(), one))?;
        let parts: Vec<_> = self.parts.iter().map(|part| part.observe()).collect();
        let mut digest = data_file::of_folder(&folder, &run, &parts)?;
        if self.with_samples {
            if folder.stages().iter().any(|stage| stage.run.counters_every > 0) {
                let hint = "store rounds: --digest without --with-samples";
                return Err(
                    Failure::new("some of its rounds read counters, and are no samples of a figure", hint).into()
                );
            }
            let to = data_file::samples_folder(path);
            digest.copy_samples(&folder, &to).with_context(|| format!("copying samples to {}", to.display()))?;
        }
        let text = digest.to_text()?;
        self.write(file, &data_file::to_bytes(path, &text)?)
    }

    fn open(&self, option: &str, path: &Path) -> anyhow::Result<WholeFile> {
        crate::result::is_file(option, path, "/dev/stdout is a file")?;
        // (It holds what the recordings hold, which only their owner may read.)
        Ok(WholeFile::open(path, ROOM, self.force)?.private())
    }

    /// The page's file without --out. In this folder, as that of `record`: the recording's own may be read-only, or somebody else's.
    fn open_default(&self) -> anyhow::Result<WholeFile> {
        let names: Option<Vec<OsString>> = self.what.iter().map(|path| called(path)).collect();
        let Some(names) = names else {
            return Err(Failure::new("the page has no name", "give one: --out FILE").into());
        };
        // A percent sign begins a field of a pattern.
        let mut name =
            names.join(OsStr::new("-")).into_vec().split(|b| *b == b'%').collect::<Vec<_>>().join(&b"%%"[..]);
        name.extend_from_slice(b".html");
        let name = PathBuf::from(OsString::from_vec(name));
        let path = output::Pattern::new(&name)?.path(0);
        let there = path.symlink_metadata().is_ok();
        if there && !self.force && !is_own_page(&path) {
            let what = format!("{}: the file exists, and is no page that doorbell wrote", path.display());
            return Err(Failure::new(what, "--out FILE writes to another file, --force replaces this one").into());
        }
        Ok(WholeFile::open(&name, ROOM, there)?.private())
    }

    fn write(&self, mut file: WholeFile, bytes: &[u8]) -> anyhow::Result<()> {
        let written = file.write(|out| out.write_all(bytes));
        written.map_err(|e| anyhow::Error::new(e).context(format!("{} was not written", file.path().display())))?;
        self.tell(file.path());
        Ok(())
    }

    fn tell(&self, path: &Path) {
        if !self.quiet {
            crate::result::tell_written(path);
        }
    }

    /// Returns the recording, too, whose damage is reported at the end.
    fn document(&self) -> anyhow::Result<(Document, Option<decode::Recording>)> {
        if let [one] = self.what.as_slice()
            && is_recording(one)?
        {
            let recording = crate::show::open(one, None)?;
            return Ok((html::of_recording(&recording)?, Some(recording)));
        }
        if let [one] = self.what.as_slice()
            && let Some(path) = soak_in(one)
        {
            return Ok((html::of_soak(&soak::folder::read_soak(&path)?), None));
        }
        let mut loaded = Vec::new();
        for (path, name) in self.what.iter().zip(names(&self.what)) {
            if is_recording(path)? {
                let what = format!("{}: a recording has a page of its own", path.display());
                return Err(Failure::new(what, "several runs can be side by side; give one recording alone").into());
            }
            loaded.push((name, Loaded::open(path).map_err(|e| unfinished(e, path))?));
        }
        let compared = match loaded.as_mut_slice() {
            [(_, a), (_, b)] => Some(compare_runs(a, b, &[], Limits::new(FAIL_ABOVE, None))?),
            _ => None,
        };
        let runs = loaded.into_iter().map(|(name, loaded)| {
            let (run, folder) = loaded.summed_up_again()?;
            Ok(Named { name, run, folder })
        });
        let runs = runs.collect::<anyhow::Result<Vec<Named>>>()?;
        let document = match (runs.as_slice(), compared) {
            ([a, b], Some((heading, comparison))) => html::of_two(a, b, &heading, &comparison)?,
            (runs, _) => html::of_runs(runs)?,
        };
        Ok((document, None))
    }

    fn pictures(&self, document: &Document, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::new(format!("{}: {e}", folder.display()), "--svg DIR writes to another folder"))?;
        let taken = document.figures().map(|f| folder.join(format!("{}.svg", f.name))).find(|path| path.exists());
        if let Some(path) = taken.filter(|_| !self.force) {
            return Err(output::Error::Exists(path).into());
        }
        html::pictures(document, folder)?;
        Ok(())
    }
}

/// A name for what is reported: of `dir/app.doorbell` it is `app`, of a folder or its `run.json` that of the folder.
fn called(path: &Path) -> Option<OsString> {
    let accounts = ["run.json", "soak.json"];
    let is_account = path.is_file() && path.file_name().is_some_and(|name| accounts.iter().any(|a| name == *a));
    let of = if is_account { path.parent()? } else { path };
    if of.extension().is_some_and(|e| e == "doorbell") {
        return of.file_stem().map(OsStr::to_owned);
    }
    match of.file_name() {
        Some(name) => Some(name.to_owned()),
        // This folder, or one above it.
        None => Path::new(".").join(of).canonicalize().ok()?.file_name().map(OsStr::to_owned),
    }
}

/// A regular file with the mark of doorbell's pages.
fn is_own_page(path: &Path) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|m| m.is_file());
    let mut head = Vec::new();
    let mut read = || std::fs::File::open(path)?.take(html::HEAD as u64).read_to_end(&mut head);
    is_file && read().is_ok() && html::is_page(&head)
}

/// The account of a soak: a file in its folder, or the path itself.
fn soak_in(path: &Path) -> Option<PathBuf> {
    let file = if path.is_dir() { path.join("soak.json") } else { path.to_owned() };
    (file.is_file() && file.file_name().is_some_and(|name| name == "soak.json")).then_some(file)
}

/// What `bench saturate` wrote, before it was an experiment.
fn refuse_saturated(path: &Path) -> Result<(), Failure> {
    let name = "saturate.json";
    if path.join(name).is_file() || path.file_name().is_some_and(|file| file == name) {
        let what = format!(
            "{}: `bench saturate` wrote it, which doorbell {} does not read",
            path.display(),
            run_folder::folder::VERSION
        );
        return Err(Failure::new(
            what,
            "read it with the doorbell that wrote it; now `doorbell bench bandwidth --variant link` measures it",
        ));
    }
    Ok(())
}

/// A truncated run.json can be computed again.
fn unfinished(e: comparison::Error, path: &Path) -> anyhow::Error {
    match &e {
        comparison::Error::Run(run_folder::Error::Damaged { path: file, .. }) if file.ends_with("run.json") => {
            let hint = format!("`doorbell bench -o {} --resume` sums it up again from its parts", path.display());
            Failure::new(e.to_string(), hint).into()
        }
        _ => e.into(),
    }
}

/// Whether a file that is no JSON is a recording, which the recording's reader decides.
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
