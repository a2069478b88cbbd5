//! How many kernels have a time, and why the others have none, in lines.

use crate::cell::capital;
use crate::number::{count, of};
use crate::table::Style;
use schema::kernel_times::{KernelTimes, LackingRow, Reason};
use std::io::{self, Write};

/// Lines of text: one for each process, and for each reason one below it.
pub fn lines(all: &[KernelTimes]) -> Vec<String> {
    if all.is_empty() {
        return vec!["no kernel was launched".into()];
    }
    let several = all.len() > 1;
    let mut lines = Vec::new();
    for k in all {
        let process = if several { format!("process {}: ", k.pid) } else { String::new() };
        lines.push(match (k.kernels, k.timed) {
            (0, _) => format!("{process}no kernel was seen{}", without(k)),
            (all, timed) if all == timed => format!("{process}the GPU's time is known of {}", every(all)),
            (all, 0) => format!("{process}the GPU's time is unknown for all of {}", of(all, "run")),
            (all, timed) => format!("{process}the GPU's time is known of {} of {}", count(timed), of(all, "run")),
        });
        lines.extend(k.lacking.iter().map(|row| lacking(k, row)));
    }
    lines
}

/// The lines below a list.
pub fn write(out: &mut dyn Write, style: &Style, all: &[KernelTimes]) -> io::Result<()> {
    for line in lines(all) {
        for (i, piece) in style.wrapped(&line, CONTINUED.len()).iter().enumerate() {
            writeln!(out, "{}{piece}", if i > 0 { CONTINUED } else { "" })?;
        }
    }
    Ok(())
}

/// Indent of a continued line.
const CONTINUED: &str = "    ";

fn every(runs: u64) -> String {
    if runs == 1 { "the only run".into() } else { format!("all {}", of(runs, "run")) }
}

/// `  204 without: more than 260,000 kernels were in flight: wait for the GPU more often`
fn lacking(k: &KernelTimes, row: &LackingRow) -> String {
    format!("  {} without: {}{}", count(row.kernels), row.text, why(k, row))
}

/// Why no time would have been recorded, for a process without kernels.
fn without(k: &KernelTimes) -> String {
    let reason = k.state.reason().filter(|reason| *reason != Reason::NotBegun);
    reason.map_or(String::new(), |reason| {
        let row = LackingRow::of(reason, 0);
        format!("; {}{}", row.text, why(k, &row))
    })
}

/// Other facts about a reason.
fn why(k: &KernelTimes, row: &LackingRow) -> String {
    let result = k.cuda_result.filter(|result| row.reason == Reason::Refused && *result != 0);
    let result = result.map_or(String::new(), |result| format!(" (CUresult {result})"));
    format!("{result}{}", row.hint.map_or(String::new(), |hint| format!(". {}", capital(hint))))
}
