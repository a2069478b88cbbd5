//! Tables of a saturated link: all cells, latencies, the link and its assumed values, warnings.

use crate::document::{Block, Cell, Kind, Mark, Notice, Section, Table, head, number, text};
use crate::numbers::{count, ns_of, ns_or_none};
use ::saturate::account::{Saturated, Status, Total};
use terminal::saturate::{name, rate};

pub fn sections(run: &Saturated) -> Vec<Section> {
    let mut all = vec![cells(run)];
    if !run.functional {
        all.push(latencies(run));
        all.push(link(run));
    }
    let mut rest = Section::new("environment", "Environment and warnings");
    for text in &run.warnings {
        rest.push(Block::Notice(Notice { kind: Kind::Warning, text: text.clone() }));
    }
    let notes: Vec<String> = run.cells.iter().flat_map(|total| total.notes.clone()).collect();
    if !notes.is_empty() {
        rest.push(Block::List(notes));
    }
    all.push(rest);
    all.retain(|section| !section.blocks.is_empty());
    all
}

fn status(total: &Total) -> Cell {
    match (&total.status, &total.checked.first) {
        (Status::Failed(why), _) => Cell::text(format!("failed: {why}")).marked(Mark::Bad),
        (Status::Unavailable(why), _) => Cell::text(format!("not available: {why}")),
        (Status::Done, Some(first)) => Cell::text(format!("wrong: {first}")).marked(Mark::Bad),
        (Status::Done, None) if total.refused > 0 => Cell::text("I/Os ended with a status").marked(Mark::Bad),
        (Status::Done, None) => Cell::text("right"),
    }
}

fn cells(run: &Saturated) -> Section {
    let mut columns = vec![head("cell"), number("repeats", ""), number("I/Os", ""), number("blocks compared", "")];
    columns.push(number("wrong", ""));
    if !run.functional {
        columns.extend([
            number("IOPS", "1/s"),
            number("payload, GB/s", "bytes/s"),
            number("on the wire, GB/s", "bytes/s"),
        ]);
        columns.extend([number("p95 of 100 ms", "bytes/s"), number("against, GB/s", "bytes/s"), text("counted by")]);
    }
    columns.push(text("status"));
    let mut table = Table::new("saturate-cells", "Each cell over all repeats", columns);
    for total in &run.cells {
        let mut row = vec![name(total).into(), count(total.repeats.into()), count(total.submitted)];
        row.extend([count(total.checked.blocks), count(total.checked.wrong)]);
        if !run.functional {
            let gb = |v: f64| Cell::number(rate(v), v);
            let wire = total.figures.as_ref().and_then(|figures| figures.wire.as_ref());
            let of_wire =
                |of: fn(&::saturate::account::Wired) -> f64| wire.map_or_else(Cell::none, |wire| gb(of(wire)));
            let figures = total.figures.as_ref();
            row.push(figures.map_or_else(Cell::none, |f| count(f.iops.median.round() as u64)));
            row.push(figures.map_or_else(Cell::none, |f| gb(f.payload.median)));
            row.extend([of_wire(|w| w.along.median), of_wire(|w| w.along_p95), of_wire(|w| w.against.median)]);
            row.push(wire.map_or_else(Cell::none, |wire| wire.by.as_str().into()));
        }
        row.push(status(total));
        table.row(row);
    }
    Section::new("cells", "All cells").with(Block::Table(table.without_empty()))
}

fn latencies(run: &Saturated) -> Section {
    let columns = vec![
        head("cell"),
        number("I/Os", ""),
        number("p50", "ns"),
        number("p99", "ns"),
        number("p99.9", "ns"),
        number("max", "ns"),
        number("cycles an I/O", "cycles"),
        number("CPU time an I/O", "ns"),
    ];
    let mut table = Table::new("saturate-latencies", "Latency of an I/O, and what it costs its thread", columns);
    for total in &run.cells {
        let Some(figures) = &total.figures else { continue };
        let l = &figures.latency;
        table.row(vec![
            name(total).into(),
            count(l.count),
            ns_or_none(l.p50_ns),
            ns_or_none(l.p99_ns),
            ns_or_none(l.p999_ns),
            ns_or_none(l.max_ns),
            figures.cycles_per_io.map_or_else(Cell::none, |cycles| count(cycles.median.round() as u64)),
            ns_of(figures.cpu_ns_per_io.median),
        ]);
    }
    let mut section = Section::new("latency", "Latency and CPU");
    if !table.rows.is_empty() {
        section.push(Block::Table(table.without_empty()));
        section.push(Block::Text(
            "Percentiles are those of the I/Os of all repeats together and need ten samples beyond them. Submitting threads poll: their CPU time is all of their time."
                .into(),
        ));
    }
    section
}

fn link(run: &Saturated) -> Section {
    let mut section = Section::new("assumed", "The link, and its assumed values");
    let Some(of_run) = &run.link else {
        section
            .push(Block::Text("The machine does not report the GPU's link: no reachable rate can be computed.".into()));
        return section;
    };
    let p = &of_run.packets;
    let fact = |name: &str, value: String| (name.to_owned(), value);
    section.push(Block::Facts(vec![
        fact("Link", of_run.link.to_string()),
        fact("Line rate in each direction", format!("{} GB/s", rate(of_run.line_rate))),
        fact("Most data of a packet (MPS)", format!("{} bytes", p.max_payload)),
        fact("Largest read request (MRRS)", format!("{} bytes", p.max_read_request)),
        fact("Read completion boundary (RCB)", format!("{} bytes", p.read_completion_boundary)),
    ]));
    section.push(Block::List(of_run.assumed.clone()));
    section
}
