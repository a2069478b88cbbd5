//! What each call sent to the GPU, if the process was recorded.

use super::Of;
use super::cells::axes;
use super::rest::named;
use crate::document::{Block, Cell, Kind, Notice, Section, Table, head, number, text};
use crate::numbers::{bytes, count, ns, size};
use run_folder::commands::{CommandsOfRun, Typical, UsedChannel};
use run_folder::run::CellOfRun;
use terminal::cell::{stored_place, stored_places};

/// Rows of a table that is open from the start.
const OPEN: usize = 40;

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let recorded: Vec<(&CellOfRun, &CommandsOfRun)> =
        run.cells.iter().filter_map(|c| Some((c, c.commands.as_ref()?))).collect();
    let mut section = Section::new(&of_run.id("commands"), "What each call sent to the GPU");
    for part in &run.parts {
        let why = part.recorded.iter().flat_map(|r| r.not_joined.iter().chain(&r.incomplete_because));
        for why in why {
            let text = format!("Recording of stage {}, repeat {}: {why}", part.stage, part.repeat);
            section.push(Block::Notice(Notice { kind: Kind::Warning, text }));
        }
    }
    if recorded.is_empty() {
        return section.some();
    }
    section.push(Block::Text(
        "By the recording of the process, the median of all calls but the first, and the minimum and maximum if calls differ. Times of \
         these cells are those of a recorded process."
            .into(),
    ));
    section.push(Block::Table(sent(of_run, &recorded)));
    section.push(Block::Table(methods(of_run, &recorded).folded()));
    section.push(Block::Table(channels(of_run, &recorded)));
    Some(section)
}

/// The median, followed by the minimum and the maximum if calls differ.
fn typical(t: &Typical, cell: fn(u64) -> Cell) -> Cell {
    let median = cell(t.median);
    if t.min == t.max {
        return median;
    }
    Cell { text: format!("{} ({} to {})", median.text, cell(t.min).text, cell(t.max).text), ..median }
}

fn sent(of_run: &Of<'_>, recorded: &[(&CellOfRun, &CommandsOfRun)]) -> Table {
    let columns = vec![
        head("what"),
        number("size", "bytes"),
        number("calls", ""),
        number("doorbells", ""),
        number("entries", ""),
        number("pushbuffer", "bytes"),
        number("inline data", "bytes"),
        text("moved by"),
        number("locks", ""),
        number("waited for locks", "ns"),
        text("the first call"),
    ];
    let mut table = Table::new(of_run.id("commands"), "Doorbells, GPFIFO entries and bytes of one call", columns);
    for (cell, c) in recorded {
        let one = |(name, of): (&String, &run_folder::commands::Moved<Typical>)| {
            format!("{name} {}", typical(&of.operations, count).text)
        };
        let moved: Vec<String> = c.executors.iter().map(one).collect();
        let first = format!(
            "{}, {}, {}",
            terminal::number::of(c.first.doorbells, "doorbell"),
            entries(c.first.entries),
            bytes(c.first.pushbuffer_bytes).text
        );
        table.row(vec![
            named(of_run, cell),
            size(cell.bytes),
            count(c.calls),
            typical(&c.doorbells, count),
            typical(&c.entries, count),
            typical(&c.pushbuffer_bytes, bytes),
            typical(&c.inline_bytes, bytes),
            if moved.is_empty() { Cell::none() } else { moved.join(", ").into() },
            typical(&c.locks, count),
            if of_run.run.functional { Cell::none() } else { typical(&c.lock_wait_ns, ns) },
            first.into(),
        ]);
    }
    table.without_empty().folded_above(OPEN)
}

fn entries(n: u64) -> String {
    if n == 1 { "1 entry".into() } else { format!("{} entries", terminal::number::count(n)) }
}

fn methods(of_run: &Of<'_>, recorded: &[(&CellOfRun, &CommandsOfRun)]) -> Table {
    let columns = vec![head("what"), number("size", "bytes"), text("class"), number("writes of methods", "")];
    let mut table = Table::new(of_run.id("methods"), "Writes of methods of one call, by class", columns);
    for (cell, c) in recorded {
        for (class, writes) in &c.methods {
            table.row(vec![named(of_run, cell), size(cell.bytes), class.as_str().into(), typical(writes, count)]);
        }
    }
    table
}

/// In which memory the parts of the channels are, once for each kind of channel.
fn channels(of_run: &Of<'_>, recorded: &[(&CellOfRun, &CommandsOfRun)]) -> Table {
    let columns = vec![
        head("channel of"),
        text("GPFIFO"),
        text("USERD"),
        text("pushbuffer"),
        text("semaphores"),
        number("doorbells", ""),
        number("entries", ""),
        number("pushbuffer", "bytes"),
    ];
    let several = if axes(of_run.run).is_empty() { "" } else { ", over all stages" };
    let mut table = Table::new(of_run.id("used-channels"), format!("Channels that the calls used{several}"), columns);
    let mut all: Vec<UsedChannel> = Vec::new();
    recorded.iter().flat_map(|(_, c)| &c.channels).for_each(|channel| channel.add_to(&mut all));
    for c in all {
        table.row(vec![
            if c.engine.is_empty() { "unknown" } else { c.engine.as_str() }.into(),
            stored_place(&c.gpfifo).into(),
            stored_place(&c.userd).into(),
            stored_place(&c.pushbuffer).into(),
            if c.semaphores.is_empty() { Cell::none() } else { stored_places(&c.semaphores).into() },
            count(c.doorbells),
            count(c.entries),
            bytes(c.pushbuffer_bytes),
        ]);
    }
    table
}
