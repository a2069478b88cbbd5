//! Parts that only some experiments have: deadlines, costs that are paid once, sweeps over a memory, meters, the kernel's counters.

use super::Of;
use super::cells::{axes, place};
use crate::document::{Block, Cell, Mark, Section, Table, head, number, text};
use crate::numbers::{bytes, count, ns, ns_of, ns_or_none, percent, size, times, times_or_none};
use run_folder::run::{After, CellOfRun};
use terminal::number::of;

fn measured<'a>(of_run: &'a Of<'_>) -> impl Iterator<Item = &'a CellOfRun> {
    of_run.run.cells.iter().filter(|c| super::why_not(&c.status).is_none())
}

/// Where a cell is: its subject, with the values of the matrix.
pub(super) fn named(of_run: &Of<'_>, cell: &CellOfRun) -> Cell {
    format!("{}{}", cell.subject, place(of_run.run, cell.stage)).into()
}

fn one(of_run: &Of<'_>, (id, title): (&str, &str), table: Table, about: &str) -> Option<Section> {
    let mut section = Section::new(&of_run.id(id), title);
    if !table.rows.is_empty() {
        section.push(Block::Table(table.folded_above(16)));
        if !about.is_empty() {
            section.push(Block::Text(about.into()));
        }
    }
    section.some()
}

pub fn deadlines(of_run: &Of<'_>) -> Option<Section> {
    let columns = vec![
        head("what"),
        number("size", "bytes"),
        number("deadline", "ns"),
        number("missed", ""),
        number("of", ""),
        number("part", ""),
        number("most in a row", ""),
        number("first", ""),
    ];
    let mut table = Table::new(of_run.id("deadlines"), "Deadlines", columns);
    for cell in measured(of_run) {
        let Some(m) = cell.misses else { continue };
        let missed = count(m.missed);
        table.row(vec![
            named(of_run, cell),
            size(cell.bytes),
            ns(m.deadline_ns),
            if m.missed > 0 { missed.marked(Mark::Bad) } else { missed },
            count(m.of),
            percent(m.missed as f64 / m.of.max(1) as f64),
            count(m.longest_run),
            m.first.map_or_else(Cell::none, count),
        ]);
    }
    one(
        of_run,
        ("deadlines", "Deadlines"),
        table.without_empty(),
        "First: the number of the first sample that missed it, from 0.",
    )
}

pub fn repaid(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let mut section = Section::new(&of_run.id("repaid"), "What is paid once, and when it has paid");
    for (number_of, repay) in run.experiment.repays.iter().enumerate() {
        let sum = |names: &[String]| names.join(" + ");
        let (once, each, against) = (sum(&repay.once), sum(&repay.each), sum(&repay.against));
        let title = format!("{once} once, then {each} for each transfer; otherwise {against}");
        let columns = vec![
            head("size"),
            text("where"),
            number("once", "ns"),
            number("then each", "ns"),
            number("otherwise", "ns"),
            text("repaid"),
        ];
        let mut table = Table::new(of_run.id(&format!("repaid-{number_of}")), title, columns);
        for r in run.repaid.iter().filter(|r| r.repay as usize == number_of) {
            let after = match r.after {
                After::Transfers(n) => format!("after {}", of(n, "transfer")),
                After::Never => "never".into(),
                After::Unknown => "not known: something of it was not measured".into(),
            };
            let place = place(run, r.stage);
            table.row(vec![
                if r.bytes > 0 { terminal::number::bytes(r.bytes).into() } else { Cell::none() },
                place.trim_start_matches(", ").into(),
                ns_or_none(r.once_ns),
                ns_or_none(r.each_ns),
                ns_or_none(r.against_ns),
                after.into(),
            ]);
        }
        if !table.rows.is_empty() {
            section.push(Block::Table(table.without_empty()));
        }
    }
    section.some()
}

pub fn places(of_run: &Of<'_>) -> Option<Section> {
    let columns = vec![
        head("what"),
        number("size", "bytes"),
        number("places", ""),
        number("apart", "bytes"),
        number("mean", "ns"),
        number("sd", "ns"),
        number("least", "ns"),
        number("at", "bytes"),
        number("most", "ns"),
        number("at", "bytes"),
        number("most of least", ""),
    ];
    let mut table = Table::new(of_run.id("places"), "By place in the memory; of the places' means", columns);
    for cell in measured(of_run) {
        let Some(p) = &cell.places else { continue };
        table.row(vec![
            named(of_run, cell),
            size(cell.bytes),
            count(p.measured),
            bytes(p.step),
            ns_of(p.mean_ns),
            ns_of(p.sd_ns),
            ns_of(p.least_ns),
            bytes(p.least_at),
            ns_of(p.most_ns),
            bytes(p.most_at),
            times(p.most_ns / p.least_ns),
        ]);
    }
    one(of_run, ("places", "Where in a memory the bytes are"), table, "")
}

pub fn metered(of_run: &Of<'_>) -> Option<Section> {
    let columns = vec![
        head("what"),
        number("size", "bytes"),
        number("transfers", ""),
        number("to the GPU, each", "bytes"),
        number("from the GPU, each", "bytes"),
        number("J a 1000", "J"),
        number("W", "W"),
        number("CPUs", ""),
        number("CPU, each", "ns"),
    ];
    let caption = "Metered after the rounds, each cell alone; bytes on the link by the GPU's counters, loads included";
    let mut table = Table::new(of_run.id("metered"), caption, columns);
    for cell in measured(of_run) {
        let Some(m) = cell.metered.as_ref().filter(|m| m.transfers > 0) else { continue };
        let each = |total: f64| total / m.transfers as f64;
        let wire = |v: Option<f64>| v.map_or_else(Cell::none, |v| bytes(each(v).round() as u64));
        table.row(vec![
            named(of_run, cell),
            size(cell.bytes),
            count(m.transfers),
            wire(m.used.link.map(|l| l.to_gpu.counted_bytes)),
            wire(m.used.link.map(|l| l.from_gpu.counted_bytes)),
            times_or_none(m.used.energy_j.map(|j| each(j) * 1e3)),
            times_or_none(m.used.energy_j.map(|j| j / m.seconds)),
            times_or_none(m.used.cpu_seconds.map(|s| s / m.seconds)),
            m.used.cpu_seconds.map_or_else(Cell::none, |s| ns_of(each(s) * 1e9)),
        ]);
    }
    let about = terminal::run::who_counted(measured(of_run)).join(". ");
    one(of_run, ("metered", "Link, energy and CPU"), table.without_empty(), &about)
}

pub fn counters(of_run: &Of<'_>) -> Option<Section> {
    let columns = vec![
        head("what"),
        number("size", "bytes"),
        number("calls", ""),
        number("time", "ns"),
        number("on a CPU", "ns"),
        number("run queue", "ns"),
        number("asleep", "ns"),
        number("slept", ""),
        number("preempted", ""),
    ];
    let caption = "Counted by the kernel around each call, in separate rounds; averages per call";
    let mut table = Table::new(of_run.id("counters"), caption, columns);
    for cell in measured(of_run) {
        let Some(t) = cell.tally.filter(|t| t.calls > 0) else { continue };
        let part = |n: u64| percent(n as f64 / t.calls as f64);
        table.row(vec![
            named(of_run, cell),
            size(cell.bytes),
            count(t.calls),
            ns(t.wall_ns / t.calls),
            ns(t.on_cpu_ns / t.calls),
            ns(t.run_queue_ns / t.calls),
            ns(t.asleep_ns / t.calls),
            part(t.slept),
            part(t.preempted),
        ]);
    }
    let several = if axes(of_run.run).is_empty() { "" } else { "After each name is its place in the matrix." };
    one(of_run, ("counters", "Where the calling thread was"), table.without_empty(), several)
}

/// The largest value of an axis at which a bound holds.
pub fn largest(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let mut section = Section::new(&of_run.id("largest"), "The largest value at which a bound holds");
    for (number_of, asked) in run.experiment.largests.iter().enumerate() {
        let title = format!(
            "The largest {} up to which {} of {} is {}",
            asked.axis,
            asked.metric,
            asked.subject,
            terminal::run::bound_text(&asked.bound, asked.metric)
        );
        let columns = vec![head("where"), number("size", "bytes"), text("holds up to"), text("then")];
        let mut table = Table::new(of_run.id(&format!("largest-{number_of}")), title, columns);
        for l in run.largest.iter().filter(|l| l.largest as usize == number_of) {
            let value = |at: &run_folder::run::AtValue| match (at.metric, &at.why) {
                (Some(v), _) => format!("{}: {}", at.value, terminal::run::amount(asked.metric, v)),
                (None, why) => format!("{}: not known, {}", at.value, why.as_deref().unwrap_or("-")),
            };
            table.row(vec![
                if l.point.is_empty() { "everywhere".into() } else { run_folder::run::place(&l.point).into() },
                size(l.bytes),
                l.holds.as_ref().map_or_else(|| Cell::text("none").marked(Mark::Bad), |at| value(at).into()),
                l.beyond.as_ref().map_or_else(|| "it holds at every value".into(), |at| value(at).into()),
            ]);
        }
        if !table.rows.is_empty() {
            section.push(Block::Table(table));
        }
    }
    section.some()
}
