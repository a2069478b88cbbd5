//! `doorbell demo --commands`: what a driver sends to a GPU for copies and kernels.

use super::{Args, say};
use crate::record::Gpu;
use crate::show;
use anyhow::Context;
use clap::ValueEnum;
use decode::Recording;
use decode::walk::{At, Filter, Sink, walk};
use pushbuf::ops::{Op, What};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use terminal::table::{Style, text_to_stdout};

/// Together they have copies by the copy engine and inline, fills, launches, semaphores.
const SAMPLES: [&str; 2] = ["copies", "launches"];

impl Args {
    pub(super) fn commands(&self, gpu: Gpu, file: &Path) -> anyhow::Result<ExitCode> {
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
        self.record(gpu, None, command, file)?;
        self.show_commands(gpu, file)
    }

    fn show_commands(&self, gpu: Gpu, file: &Path) -> anyhow::Result<ExitCode> {
        let out = file.display();
        let style = Style::of_stdout();
        let recording = Recording::open(file)?;
        say(&["", &format!("$ doorbell show {out}")])?;
        let summary = decode::summary(&recording)?;
        text_to_stdout(style, |out| terminal::summary::write(out, &style, &summary))?;
        if let Some((number, slot, generation)) = example(&recording)? {
            say(&["", &format!("$ doorbell show {out} --submissions --channel {slot}.{generation}"), "..."])?;
            let mut text = Vec::new();
            // Stops after the example, on every channel.
            let filter =
                Filter { channel: Some((slot, Some(generation))), limit: Some(number + 1), ..Filter::default() };
            show::views::submissions_as_text(&recording, &filter, &style, &mut text)?;
            let text = String::from_utf8_lossy(&text);
            std::io::stdout().write_all(submission(&text, number).as_bytes())?;
            say(&["..."])?;
        }
        if gpu == Gpu::Soft {
            say(&["", "The software GPU shows what is sent, not how fast: the times above mean nothing."])?;
        }
        let me = super::me();
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
