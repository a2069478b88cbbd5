//! The largest value of an axis at which a bound holds, and what the loads did there.

use super::{amount, bound_text};
use crate::number::bytes;
use crate::table::{Out, Style};
use run_folder::Run;
use run_folder::run::{AtValue, LargestOfRun};
use std::io;

/// A line for each place of the other axes.
pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    for (number, asked) in run.experiment.largests.iter().enumerate() {
        let found: Vec<&LargestOfRun> = run.largest.iter().filter(|l| l.largest as usize == number).collect();
        if found.is_empty() {
            continue;
        }
        writeln!(out)?;
        let (bound, metric, subject) = (bound_text(&asked.bound, asked.metric), asked.metric, &asked.subject);
        let title = format!("the largest {} up to which {metric} of {subject} is {bound}", asked.axis);
        writeln!(out, "{}", style.bold(&title))?;
        for l in found {
            let value = |at: &AtValue| match (&at.metric, &at.why) {
                (Some(value), _) => format!("{}: {}", at.value, amount(asked.metric, *value)),
                (None, why) => format!("{}: not known, {}", at.value, why.as_deref().unwrap_or("-")),
            };
            let holds = match &l.holds {
                Some(at) => format!("{}{}", style.bold(&value(at)), loads(run, at.stage)),
                None => style.bad("none"),
            };
            let beyond = match &l.beyond {
                Some(at) => format!("; then {}{}", value(at), loads(run, at.stage)),
                None => "; it holds at every value".into(),
            };
            writeln!(out, "  {}{holds}{beyond}", place(l))?;
        }
    }
    Ok(())
}

/// What the loads of a stage moved.
fn loads(run: &Run, stage: u32) -> String {
    let stage = run.stages.iter().find(|s| s.number == stage);
    let moved = stage.into_iter().flat_map(|s| &s.loads).filter(|l| l.bytes > 0 && l.seconds > 0.0);
    let all: Vec<String> = moved
        .map(|l| format!("{} {} GB/s", l.name, super::figures::three_digits(l.bytes as f64 / l.seconds / 1e9)))
        .collect();
    if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
}

fn place(l: &LargestOfRun) -> String {
    let size = (l.bytes > 0).then(|| bytes(l.bytes));
    let all: Vec<String> = l.point.iter().map(ToString::to_string).chain(size).collect();
    if all.is_empty() { String::new() } else { format!("{}: ", all.join(", ")) }
}
