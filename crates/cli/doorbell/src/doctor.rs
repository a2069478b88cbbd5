//! `doorbell doctor`: tries what works on this machine.

use crate::help::Page;
use doctor::{Check, Verdict};
use environment::{Environment, Gpu, Severity, Warning};
use std::io::{self, Write};
use std::process::ExitCode;
use terminal::table::{Style, text_to_stdout};

/// Try what works on this machine and, for each thing that does not, say why
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell doctor", "one line for each thing that was tried"),
        ("doorbell doctor --json", "for programs; `possible` says whether recording is, `peers` which devices may write to which GPU"),
        ("doorbell doctor --no-try", "without a channel of doorbell's own on the GPU"),
    ])
    .statuses(&[(0, "a CUDA program can be recorded here"), (77, "it cannot")])
)]
pub struct Args {
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
    /// Skip the live channel test
    #[arg(long)]
    no_try: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let checks = doctor::examine(!self.no_try);
        let possible = doctor::possible(&checks);
        let environment = Environment::gather(Gpu::Real { pci: None }, None, Vec::new());
        let warnings = environment.warnings();
        if self.json {
            let peers = doctor::pairs();
            let all =
                serde_json::json!({ "possible": possible, "checks": checks, "warnings": warnings, "peers": peers });
            terminal::json::print(&all)?;
        } else {
            let style = Style::of_stdout();
            text_to_stdout(style, |out| {
                write(out, &style, &checks, possible)?;
                write_warnings(out, &style, &warnings)
            })?;
        }
        Ok(ExitCode::from(if possible { 0 } else { crate::IMPOSSIBLE }))
    }
}

/// Writes the lines, and whether recording is possible.
fn write(out: &mut dyn Write, style: &Style, checks: &[Check], possible: bool) -> io::Result<()> {
    let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    for c in checks {
        let mark = match c.verdict {
            Verdict::Yes => style.good("yes"),
            Verdict::No => style.bad("no "),
            Verdict::Info => "-  ".into(),
        };
        let text = c.reason.as_ref().map_or_else(|| c.detail.clone(), |reason| format!("{}: {reason}", c.detail));
        // The mark has three columns.
        for (n, line) in style.wrapped(&text, width + 7).iter().enumerate() {
            match n {
                0 => writeln!(out, "{mark}  {:width$}  {line}", c.name)?,
                _ => writeln!(out, "{:1$}{line}", "", width + 7)?,
            }
        }
    }
    writeln!(out)?;
    if possible {
        writeln!(out, "{}", style.bold("A CUDA program can be recorded here: doorbell record -- PROGRAM"))
    } else {
        let missing: Vec<&str> =
            checks.iter().filter(|c| c.required && c.verdict != Verdict::Yes).map(|c| c.name.as_str()).collect();
        writeln!(out, "{}", style.bold("A CUDA program cannot be recorded here."))?;
        writeln!(out, "missing: {}", missing.join(", "))?;
        writeln!(out, "hint: `doorbell demo` records a sample against the software GPU")
    }
}

/// What may disturb measurements, the worst first; nothing without warnings.
fn write_warnings(out: &mut dyn Write, style: &Style, warnings: &[Warning]) -> io::Result<()> {
    if !warnings.is_empty() {
        writeln!(out, "\n{}", style.bold("What may disturb measurements here:"))?;
    }
    for w in warnings {
        match w.severity {
            Severity::Serious => writeln!(out, "{}  {w}", style.bad("serious"))?,
            Severity::Warning => writeln!(out, "warning  {w}")?,
            Severity::Notice => writeln!(out, "notice   {w}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_no_has_its_reason() {
        let checks = [
            Check::yes("driver", "NVIDIA 580.1").required(),
            Check::no("/dev/nvidia0", "does not open", "permission denied").required(),
            Check::info("watch", "not used", ""),
        ];
        let mut out = Vec::new();
        write(&mut out, &Style::default(), &checks, false).unwrap();
        let text = String::from_utf8(out).unwrap();
        insta::assert_snapshot!(text, @r"
        yes  driver        NVIDIA 580.1
        no   /dev/nvidia0  does not open: permission denied
        -    watch         not used

        A CUDA program cannot be recorded here.
        missing: /dev/nvidia0
        hint: `doorbell demo` records a sample against the software GPU
        ");
    }

    #[test]
    fn warnings_stand_below_with_what_to_change() {
        let warning = |severity, text: &str, change: &str| Warning {
            fact: "a.fact".into(),
            severity,
            medians: true,
            text: text.into(),
            change: change.into(),
        };
        let all = [
            warning(Severity::Serious, "the link has 8 of 16 lanes", "another slot"),
            warning(Severity::Notice, "load", ""),
        ];
        let mut out = Vec::new();
        write_warnings(&mut out, &Style::default(), &all).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"

        What may disturb measurements here:
        serious  the link has 8 of 16 lanes; another slot
        notice   load
        ");
        let mut out = Vec::new();
        write_warnings(&mut out, &Style::default(), &[]).unwrap();
        assert!(out.is_empty());
    }
}
