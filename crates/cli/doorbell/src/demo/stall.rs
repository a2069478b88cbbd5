//! `doorbell demo`: frames that wait for a lock, why, and the same frames launched by doorbell.

use super::{Args, say};
use crate::preload;
use crate::record::{Gpu, LocksArg};
use anyhow::Context;
use decode::Recording;
use output::WholeFile;
use serde_json::Value;
use slow_calls::Wanted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use terminal::number;
use terminal::table::Style;

/// Bytes that are kept free for the page.
const ROOM: u64 = 1 << 20;

/// What the program measured.
struct Frames {
    thread: i32,
    count: u64,
    late: u64,
    longest: Duration,
}

impl Args {
    pub(super) fn stall(&self, gpu: Gpu, file: &Path) -> anyhow::Result<ExitCode> {
        let folder = tempfile::tempdir().context("a folder for the time of the demo")?;
        if gpu == Gpu::Soft {
            std::fs::write(folder.path().join("libcuda.so.1"), preload::SOFTCUDA).context("a libcuda in software")?;
        }
        let out = file.display();
        say(&["A program launches a frame each millisecond. Another thread of it pins host memory.", ""])?;
        say(&[&format!("$ doorbell record --locks -o {out} doorbell sample stall")])?;
        let before = self.frames(gpu, "cuda", folder.path(), file)?;
        let recording = Recording::open(file)?;
        let style = Style { width: Some(100), ..Style::of_stdout() };
        say(&[&format!("$ doorbell why {out} --thread {} --worst 1", before.thread)])?;
        let wanted = Wanted {
            worst: 1,
            number: None,
            function: None,
            thread: Some(before.thread),
            slow_from_ns: 1_000_000,
            starting: false,
        };
        terminal::slow_calls::print_worst(&recording, &wanted, style)?;
        let page = page(file, &recording)?;
        drop(recording);

        say(&[
            "",
            "The same frames, launched by doorbell (libdoorbell) through a channel that takes no lock of CUDA's:",
        ])?;
        let after = self.frames(gpu, "doorbell", folder.path(), &folder.path().join("after.doorbell"))?;
        let row = |name: &str, of: &dyn Fn(&Frames) -> String| {
            say(&[&format!("{name:16}{:>14}{:>14}", of(&before), of(&after))])
        };
        say(&[&format!("{:16}{:>14}{:>14}", "", "before", "after")])?;
        row("longest frame", &|f| number::nanoseconds(u64::try_from(f.longest.as_nanos()).unwrap_or(u64::MAX)))?;
        row("late frames", &|f| format!("{} of {}", f.late, f.count))?;
        if gpu == Gpu::Soft {
            say(&["(The software GPU shows who waits for whom. Its times are made up: they are no measurement.)"])?;
        }
        let me = super::me();
        say(&["", &format!("The timeline is {}: open it in a browser. Next, your own program:", page.display())])?;
        say(&[&format!("  {me} record --locks ./app && {me} why")])?;
        Ok(ExitCode::SUCCESS)
    }

    /// Records the program; what it measured.
    fn frames(&self, gpu: Gpu, launcher: &str, folder: &Path, file: &Path) -> anyhow::Result<Frames> {
        let program = std::env::current_exe().context("where this program lies")?;
        let facts = folder.join("facts");
        // Its output is read here, and on a machine without a GPU it finds the libcuda of the folder.
        let mut command: Vec<OsString> = vec!["sh".into(), "-c".into()];
        let libraries = if gpu == Gpu::Soft { "LD_LIBRARY_PATH=$2 " } else { "" };
        command.push(format!("{libraries}exec \"$0\" sample stall --json --launcher \"$3\" >\"$1\"").into());
        command.extend([program.into(), facts.clone().into(), folder.into(), launcher.into()]);
        self.record(gpu, Some(LocksArg::All), command, file)?;
        let text = std::fs::read_to_string(&facts).context("the facts of the program")?;
        let said: Value = serde_json::from_str(&text).context("the facts of the program")?;
        let fact = |name: &str| said["facts"][name].as_u64().with_context(|| format!("{name:?} in {text}"));
        Ok(Frames {
            thread: i32::try_from(fact("thread of the frames")?)?,
            count: fact("frames")?,
            late: fact("late frames")?,
            longest: Duration::from_micros(fact("longest frame, us")?),
        })
    }
}

/// Writes the recording's page next to it.
fn page(file: &Path, recording: &Recording) -> anyhow::Result<PathBuf> {
    let mut page = WholeFile::open_next(&file.with_extension("html"), ROOM)?.private();
    let text = html::html(&html::of_recording(recording)?);
    page.write(|out| out.write_all(text.as_bytes()))?;
    Ok(page.path().to_owned())
}
