//! What was tried on a machine, one line each.

use crate::ReportError;
use crate::table::{Style, text_to_stdout};
use doctor::{Check, Verdict};
use environment::{Severity, Warning};
use std::io::{self, Write};

/// Writes the lines, and whether recording is possible.
pub fn write(out: &mut dyn Write, style: &Style, checks: &[Check], possible: bool) -> io::Result<()> {
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
pub fn write_warnings(out: &mut dyn Write, style: &Style, warnings: &[Warning]) -> io::Result<()> {
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

pub fn print(checks: &[Check], possible: bool, warnings: &[Warning]) -> Result<(), ReportError> {
    let style = Style::of_stdout();
    text_to_stdout(style, |out| {
        write(out, &style, checks, possible)?;
        Ok(write_warnings(out, &style, warnings)?)
    })
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
