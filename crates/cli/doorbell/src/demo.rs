//! `doorbell demo`: records a few small programs and shows the results, on any machine.

use crate::failure::Failure;
use crate::help::Page;
use crate::record::{self, CaptureArg, Gpu, OnFull, TapArg};
use crate::show;
use anyhow::Context;
use clap::ValueEnum;
use decode::Recording;
use decode::walk::{At, Filter, Sink, walk};
use pushbuf::ops::{Op, What};
use recorder::Outcome;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::table::Style;

/// Record a few small programs and show the result: on the real GPU if there is one, else on the software GPU
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell demo", "writes doorbell-demo.doorbell"),
        ("doorbell demo --gpu soft --tap trap -o /tmp/demo.doorbell", ""),
    ])
    .statuses(&[(0, "done"), (2, "an error"), (77, "not possible on this machine (`--gpu real` without a GPU)")])
)]
pub struct Args {
    /// Write the recording to this file; the name takes %h, %p, %n, %q{VAR} [default: doorbell-demo.doorbell, then
    /// doorbell-demo.2.doorbell and so on]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// How doorbells are seen
    #[arg(long, value_enum, value_name = "TAP", default_value_t = TapArg::Auto)]
    tap: TapArg,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Which::Auto)]
    gpu: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The real one if there is one, else the software GPU
    Auto,
    /// This machine's GPU
    Real,
    /// doorbell's GPU in software
    Soft,
}

/// Together they have copies by the copy engine and inline, fills, launches, semaphores.
const SAMPLES: [&str; 2] = ["copies", "launches"];

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (gpu, why) = self.which()?;
        let mut gpu = gpu;
        let claim = record::claim_result(self.out.as_deref(), "doorbell-demo.doorbell".as_ref(), self.force)?;
        let out = claim.path().to_owned();
        let done = self.record_and_show(&out, &mut gpu, &why);
        if done.is_err() {
            claim.give_up();
        }
        match done {
            // A reader that stops reading is no error.
            Err(e) if e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
                Ok(ExitCode::SUCCESS)
            }
            done => done,
        }
    }

    fn record_and_show(&self, out: &Path, gpu: &mut Gpu, why: &str) -> anyhow::Result<ExitCode> {
        say(&[&format!("{why}.")])?;
        let mut outcome = self.record(*gpu, out)?;
        let impossible = |o: &Outcome| o.status.code() == Some(crate::IMPOSSIBLE.into());
        if *gpu == Gpu::Real && self.gpu == Which::Auto && impossible(&outcome) {
            say(&["", "The GPU cannot be used (the reason is above): the software GPU instead."])?;
            *gpu = Gpu::Soft;
            outcome = self.record(*gpu, out)?;
        }
        if impossible(&outcome) {
            let why = "the recorded program found no GPU that it can use (its reason is above)";
            return Err(Failure::impossible(why, "`doorbell demo --gpu soft` needs none").into());
        }
        if !outcome.status.success() {
            anyhow::bail!("the recorded program failed ({}); the recording is {}", outcome.status, out.display());
        }
        self.show(*gpu, out)
    }

    /// The GPU to use, and the reason.
    fn which(&self) -> anyhow::Result<(Gpu, String)> {
        let version = recorder::driver_version();
        let known = version.as_deref().map(|v| rm::abi::Abi::for_own_channels(v, gpu::accepts_unverified()));
        Ok(match (self.gpu, version, known) {
            (Which::Soft, ..) => (Gpu::Soft, "On the software GPU, as asked".into()),
            (_, Some(v), Some(Ok(_))) => (Gpu::Real, format!("On this machine's GPU, driver {v}")),
            (Which::Real, _, Some(Err(e))) => return Err(e).context("--gpu real"),
            (Which::Real, ..) => {
                let why = "no NVIDIA driver on this machine (/proc/driver/nvidia/version is not there)";
                return Err(Failure::impossible(why, "`--gpu soft` needs none").into());
            }
            (Which::Auto, _, Some(Err(e))) => (Gpu::Soft, format!("On the software GPU: {e}")),
            (Which::Auto, ..) => (Gpu::Soft, "On the software GPU: this machine has no NVIDIA driver".into()),
        })
    }

    fn record(&self, gpu: Gpu, file: &Path) -> anyhow::Result<Outcome> {
        let program = std::env::current_exe().context("where this program lies")?;
        let mut command = vec![program.into_os_string(), "sample".into()];
        command.extend(SAMPLES.map(Into::into));
        let name = match gpu {
            Gpu::Real => "real",
            Gpu::Soft => "soft",
        };
        command.extend(["--gpu".into(), name.into()]);
        let samples = SAMPLES.join(" ");
        let tap = self.tap.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        let out = file.display();
        say(&[
            "",
            &format!("$ doorbell record --tap {tap} --gpu {name} -o {out} doorbell sample {samples} --gpu {name}"),
        ])?;
        let args = record::Args {
            out: Some(file.to_owned()),
            force: true,
            tap: self.tap,
            locks: None,
            python: false,
            gpu_times: false,
            no_switches: false,
            calls: false,
            no_calls: false,
            nvtx: false,
            no_nvtx: false,
            capture: CaptureArg::Always,
            dormant: false,
            on_full: OnFull::Gap,
            ring: 8 << 20,
            memory: None,
            wait: false,
            no_data: false,
            no_args: false,
            max_size: None,
            rotate: None,
            flight: Default::default(),
            agent_dir: None,
            gpu,
            quiet: true,
            command,
        };
        args.record(file)
    }

    fn show(&self, gpu: Gpu, file: &Path) -> anyhow::Result<ExitCode> {
        let out = file.display();
        let style = Style::of_stdout();
        let recording = Recording::open(file)?;
        say(&["", &format!("$ doorbell show {out}")])?;
        terminal::summary::print(&recording, style, false)?;
        if let Some((number, slot, generation)) = example(&recording)? {
            say(&["", &format!("$ doorbell show {out} --submissions --channel {slot}.{generation}"), "..."])?;
            let mut text = Vec::new();
            // Stops after the example, on every channel.
            let filter =
                Filter { channel: Some((slot, Some(generation))), limit: Some(number + 1), ..Filter::default() };
            terminal::submissions::write(&recording, filter, style, &mut text)?;
            let text = String::from_utf8_lossy(&text);
            std::io::stdout().write_all(submission(&text, number).as_bytes())?;
            say(&["..."])?;
        }
        if gpu == Gpu::Soft {
            say(&["", "The software GPU shows what is sent, not how fast: the times above mean nothing."])?;
        }
        let me = std::env::args().next().unwrap_or_else(|| "doorbell".into());
        let next = [
            (format!("{me} doctor"), "what can be recorded on this machine"),
            (format!("{me} record ./app"), "your own program, nothing rebuilt"),
            (format!("{me} show {out} --copies"), "every copy; also --launches, --channels, --objects"),
        ];
        let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        say(&["", &format!("The recording is {out}. What to try next:")])?;
        for (command, what) in next {
            say(&[&format!("  {command:width$}   {what}")])?;
        }
        show::damage_of(&recording)
    }
}

/// Prints lines on standard output; a reader that stopped reading ends the demo.
fn say(lines: &[&str]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

/// The largest copy by a copy engine: number of its submission, and its channel.
fn example(r: &Recording) -> anyhow::Result<Option<(u64, u32, u32)>> {
    #[derive(Default)]
    struct Largest {
        bytes: u64,
        found: Option<(u64, u32, u32)>,
    }
    impl Sink for Largest {
        fn op(&mut self, at: &At<'_>, op: &Op) {
            if let What::Copy(copy) = &op.what
                && copy.bytes() > self.bytes
            {
                self.bytes = copy.bytes();
                self.found = Some((at.number, at.channel.slot, at.channel.generation));
            }
        }
    }
    let mut largest = Largest::default();
    walk(r, &mut largest)?;
    Ok(largest.found)
}

/// The lines of one submission: from its head up to the next head. Heads are the lines that are not indented.
fn submission(text: &str, number: u64) -> String {
    let head = format!("#{number} ");
    let mut lines = text.split_inclusive('\n').skip_while(|line| !line.contains(&head) || line.starts_with(' '));
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| line.starts_with(' ')).fold(first.to_owned(), |text, line| text + line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_submission_is_cut_out_with_or_without_bold_heads() {
        let plain = "#1  a\n  x\n#12  b\n  y #2 \n    z\n#2  c\n  w\n";
        assert_eq!(submission(plain, 12), "#12  b\n  y #2 \n    z\n");
        assert_eq!(submission(plain, 2), "#2  c\n  w\n");
        assert_eq!(submission(plain, 7), "");
        let bold = "\x1b[1m#1  a\x1b[0m\n  x\n\x1b[1m#2  c\x1b[0m\n  w\n";
        assert_eq!(submission(bold, 1), "\x1b[1m#1  a\x1b[0m\n  x\n");
    }
}
