//! `doorbell demo`: frames that wait for a lock, why, and the same frames launched by doorbell.

use super::{Args, say};
use crate::preload;
use crate::record::{Gpu, LocksArg};
use crate::why::explained;
use anyhow::Context;
use decode::Recording;
use output::WholeFile;
use schema::names::Named;
use serde_json::Value;
use slow_calls::Wanted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use terminal::number;
use terminal::table::{Style, text_to_stdout};

/// Bytes that are kept free for the page.
const ROOM: u64 = 1 << 20;
/// (`sample` looks for this end of a name.)
const SOFTGPU: &str = "doorbell-softgpu.so";

/// What the program measured.
struct Frames {
    count: u64,
    late: u64,
    longest: Duration,
}

impl Args {
    pub(super) fn stall(&self, gpu: Gpu, file: &Path) -> anyhow::Result<ExitCode> {
        let folder = tempfile::tempdir().context("a folder for the time of the demo")?;
        if gpu == Gpu::Soft {
            for (name, library) in [("libcuda.so.1", &preload::SOFTCUDA), (SOFTGPU, &preload::SOFTGPU)] {
                std::fs::write(folder.path().join(name), &**library).context("a libcuda in software")?;
            }
        }
        let out = file.display();
        say(&["A program launches a frame each millisecond. Another thread of it pins host memory.", ""])?;
        say(&[&format!("$ doorbell record --locks -o {out} doorbell sample stall")])?;
        let thread = self.recorded(gpu, folder.path(), file)?;
        let recording = Recording::open(file)?;
        let style = Style { width: Some(100), ..Style::of_stdout() };
        say(&[&format!("$ doorbell why {out} --thread {thread} --worst 1")])?;
        let wanted = Wanted {
            worst: 1,
            number: None,
            function: None,
            thread: Some(thread),
            slow_from_ns: 1_000_000,
            starting: false,
        };
        let (why, places) = explained(&recording, &wanted)?;
        let named = Named { places: &places, symbols: &why.symbols };
        text_to_stdout(style, |out| terminal::slow_calls::write_answer(out, &why, named, style))?;
        let page = page(file, &recording)?;
        drop(recording);

        say(&[
            "",
            "The same program under `doorbell run --fix`, which pins without that lock. And its frames launched",
        ])?;
        say(&["by libdoorbell, through a channel that takes no lock of CUDA's:"])?;
        // (All without a recorder.)
        let ran = |launcher, fixed| frames(gpu, launcher, fixed, folder.path());
        let (before, fixed, own) = (ran("cuda", false)?, ran("cuda", true)?, ran("doorbell", false)?);
        let row = |name: &str, of: &dyn Fn(&Frames) -> String| {
            say(&[&format!("{name:16}{:>14}{:>14}{:>14}", of(&before), of(&fixed), of(&own))])
        };
        say(&[&format!("{:16}{:>14}{:>14}{:>14}", "", "before", "run --fix", "libdoorbell")])?;
        row("longest frame", &|f| number::nanoseconds(u64::try_from(f.longest.as_nanos()).unwrap_or(u64::MAX)))?;
        row("late frames", &|f| format!("{} of {}", f.late, f.count))?;
        if gpu == Gpu::Soft {
            say(&["(The software GPU shows who waits for whom. Its times are made up: they are no measurement.)"])?;
        }
        let me = super::me();
        say(&["", &format!("The timeline is {}: open it in a browser. Next, your own program:", page.display())])?;
        say(&[&format!("  {me} record --locks ./app"), &format!("  {me} why"), &format!("  {me} run --fix ./app")])?;
        Ok(ExitCode::SUCCESS)
    }

    /// Records the program; the thread that launches.
    fn recorded(&self, gpu: Gpu, folder: &Path, file: &Path) -> anyhow::Result<i32> {
        let program = std::env::current_exe().context("where this program lies")?;
        let facts = folder.join("facts");
        // Its output is read here, and on a machine without a GPU it finds the libcuda of the folder.
        let libraries = if gpu == Gpu::Soft { "LD_LIBRARY_PATH=$2 " } else { "" };
        let script = format!("{libraries}exec \"$0\" sample stall --json >\"$1\"");
        let words: [OsString; 6] =
            ["sh".into(), "-c".into(), script.into(), program.into(), facts.clone().into(), folder.into()];
        self.record(gpu, Some(LocksArg::All), words.into(), file)?;
        let text = std::fs::read_to_string(&facts).context("what the program printed")?;
        Ok(i32::try_from(fact(&text, "thread of the frames")?)?)
    }
}

/// Runs the program, and returns what it measured.
fn frames(gpu: Gpu, launcher: &str, fixed: bool, folder: &Path) -> anyhow::Result<Frames> {
    let me = std::env::current_exe().context("where this program lies")?;
    let mut command = Command::new(&me);
    if fixed {
        command.args(["run", "--fix", "--"]).arg(me);
    }
    command.args(["sample", "stall", "--json", "--launcher", launcher]);
    if gpu == Gpu::Soft {
        command.env("LD_LIBRARY_PATH", folder).env("LD_PRELOAD", folder.join(SOFTGPU));
    }
    let out = command.output().context("running the program once more")?;
    if !out.status.success() {
        anyhow::bail!("the program failed ({}): {}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(Frames {
        count: fact(&text, "frames")?,
        late: fact(&text, "late frames")?,
        longest: Duration::from_micros(fact(&text, "longest frame, us")?),
    })
}

fn fact(text: &str, name: &str) -> anyhow::Result<u64> {
    let said: Value = serde_json::from_str(text).with_context(|| format!("the program printed {text:?}"))?;
    said["facts"][name].as_u64().with_context(|| format!("no {name:?} in {text}"))
}

/// Writes the recording's page next to it.
fn page(file: &Path, recording: &Recording) -> anyhow::Result<PathBuf> {
    let mut page = WholeFile::open_next(&file.with_extension("html"), ROOM)?.private();
    let text = html::html(&html::of_recording(recording)?);
    page.write(|out| out.write_all(text.as_bytes()))?;
    Ok(page.path().to_owned())
}
