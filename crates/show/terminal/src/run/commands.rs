//! What each call sent to the GPU, if the process was recorded.

use super::figures::rows;
use crate::cell::stored_places;
use crate::number::{bytes, count, nanoseconds};
use crate::table::{Out, Style};
use run_folder::commands::{CommandsOfRun, Typical, UsedChannel};
use run_folder::run::CellOfRun;
use std::io;

/// The median, followed by the minimum and the maximum if calls differ.
fn typical(t: &Typical, text: &dyn Fn(u64) -> String) -> String {
    if t.min == t.max {
        return text(t.median);
    }
    format!("{} ({} .. {})", text(t.median), text(t.min), text(t.max))
}

/// `COPY2 1, inline 2`
fn moved_by(commands: &CommandsOfRun) -> String {
    let one = |(name, of): (&String, &run_folder::commands::Moved<Typical>)| {
        format!("{name} {}", typical(&of.operations, &count))
    };
    let all: Vec<String> = commands.executors.iter().map(one).collect();
    if all.is_empty() { "-".into() } else { all.join(", ") }
}

/// A row for each cell with commands, and a line for each kind of channel.
pub(super) fn write(out: &mut dyn Out, style: &Style, cells: &[&CellOfRun], functional: bool) -> io::Result<()> {
    let recorded: Vec<_> = cells.iter().filter_map(|c| Some((*c, c.commands.as_ref()?))).collect();
    let lead = "what one call sent, by the recording: the median (least .. most) of all calls but the first; times above are those of a \
                recorded process";
    let heads = [
        ">calls",
        ">doorbells",
        ">entries",
        ">pushbuffer",
        ">inline",
        "moved by",
        ">locks",
        ">waited",
        ">until doorbell",
    ];
    // Times of the software GPU are those of an emulation.
    let time = |t: &Typical| if functional { "-".into() } else { typical(t, &nanoseconds) };
    rows(out, style, lead, &heads, &recorded, |_, commands| {
        vec![
            count(commands.calls),
            typical(&commands.doorbells, &count),
            typical(&commands.entries, &count),
            typical(&commands.pushbuffer_bytes, &bytes),
            typical(&commands.inline_bytes, &bytes),
            moved_by(commands),
            typical(&commands.locks, &count),
            time(&commands.lock_wait_ns),
            time(&commands.until_doorbell_ns),
        ]
    })?;
    let mut channels: Vec<UsedChannel> = Vec::new();
    recorded.iter().flat_map(|(_, c)| &c.channels).for_each(|channel| channel.add_to(&mut channels));
    for c in channels {
        let semaphores = if c.semaphores.is_empty() { "-".into() } else { stored_places(&c.semaphores) };
        let engine = if c.engine.is_empty() { "?" } else { &c.engine };
        writeln!(
            out,
            "channel of {engine}: GPFIFO in {}, USERD in {}, pushbuffer in {}, semaphores in {semaphores}",
            memory(&c.gpfifo),
            memory(&c.userd),
            memory(&c.pushbuffer)
        )?;
    }
    Ok(())
}

fn memory(place: &str) -> &str {
    match place {
        "host" => "host memory",
        "video" => "GPU memory",
        _ => "unknown memory",
    }
}
