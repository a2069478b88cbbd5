//! Tables of a soak: totals, thirds, drift, leaks, faults, gaps, loads, processes.

use crate::document::{Block, Cell, Column, Kind, Mark, Notice, Section, Table, head, number, text};
use crate::numbers::{count, moment, ns_of, ns_or_none, percent, seconds, size, times, times_or_none};
use run_folder::soak::Soak;
use run_folder::soak::account::{CellName, CellOfSoak, Direction};

/// With its size, and with its stage if there are several.
pub fn named(soak: &Soak, cell: &CellName) -> String {
    let name = crate::run::sized(&cell.subject, cell.bytes);
    let several = soak.cells.iter().any(|c| c.cell.stage != soak.cells[0].cell.stage);
    if several { format!("{name}, stage {}", cell.stage) } else { name }
}

fn push(section: &mut Section, table: Table) {
    if !table.rows.is_empty() {
        section.push(Block::Table(table.without_empty().folded_above(24)));
    }
}

pub fn sections(soak: &Soak, has_times: bool) -> Vec<Section> {
    let mut all = vec![totals(soak, has_times), judged(soak, has_times), faults(soak), loads(soak, has_times)];
    let mut rest = Section::new("environment", "Environment and warnings");
    for text in &soak.warnings {
        rest.push(Block::Notice(Notice { kind: Kind::Warning, text: text.clone() }));
    }
    processes(soak, &mut rest);
    all.push(rest);
    all.retain(|s| !s.blocks.is_empty());
    all
}

fn totals(soak: &Soak, has_times: bool) -> Section {
    let mut section = Section::new("totals", "All periods together");
    let mut columns: Vec<Column> =
        vec![head("what"), number("size", "bytes"), text("direction"), number("transfers", ""), number("compared", "")];
    columns.extend([number("wrong", ""), number("lost", ""), number("deadlines missed", "")]);
    if has_times {
        for name in ["mean", "min", "p50", "p99", "p99.9", "max", "jitter"] {
            columns.push(number(name, "ns"));
        }
        columns.extend([number("fluctuation", ""), number("of period means", ""), number("GB/s", "GB/s")]);
        columns.extend([number("speed-up", ""), text("over")]);
    }
    columns.push(text("status"));
    let mut table = Table::new("soak-totals", "Each cell over all periods", columns);
    for total in &soak.cells {
        table.row(one_total(total, has_times));
    }
    push(&mut section, table);
    if has_times {
        thirds(soak, &mut section);
        section.push(Block::Text(
            "Jitter is max minus min. Fluctuation is the standard deviation over the mean; that of period means is half the distance between \
             the largest and the least over the mean. Speed-up is the baseline's mean over the cell's own, paired by periods."
                .into(),
        ));
    }
    section
}

fn bad(n: u64) -> Cell {
    if n > 0 { count(n).marked(Mark::Bad) } else { count(n) }
}

fn one_total(t: &CellOfSoak, has_times: bool) -> Vec<Cell> {
    let direction = match t.direction {
        Some(Direction::Read) => "read",
        Some(Direction::Write) => "write",
        None => "-",
    };
    let mut row =
        vec![t.cell.subject.as_str().into(), size(t.cell.bytes), direction.into(), count(t.count), count(t.checked)];
    row.extend([bad(t.wrong), bad(t.lost), t.misses.map_or_else(Cell::none, bad)]);
    let over = t.over.as_ref();
    if has_times {
        row.push(t.mean_ns.map_or_else(Cell::none, ns_of));
        row.extend([t.min_ns, t.p50_ns, t.p99_ns, t.p999_ns, t.max_ns, t.jitter_ns].map(ns_or_none));
        row.push(t.relative_fluctuation.map_or_else(Cell::none, percent));
        row.push(over.and_then(|over| over.fluctuation_of_means).map_or_else(Cell::none, percent));
        row.push(times_or_none(t.bytes_per_second.map(|v| v / 1e9)));
        let speed_up = over.and_then(|over| over.speed_up.as_ref());
        row.push(times_or_none(speed_up.map(|s| s.times)));
        row.push(speed_up.map_or_else(Cell::none, |s| s.over.as_str().into()));
    }
    row.push(t.unavailable.as_ref().map_or_else(|| "".into(), |why| Cell::text(format!("not available: {why}"))));
    row
}

fn thirds(soak: &Soak, section: &mut Section) {
    let mut columns = vec![head("from"), number("to", "s"), number("periods", "")];
    columns.extend(soak.cells.iter().map(|c| number(named(soak, &c.cell), "ns")));
    columns.push(number("power", "W"));
    let mut table = Table::new("soak-thirds", "Means of the three thirds", columns);
    for t in &soak.thirds {
        let mut row = vec![moment(t.from_s), moment(t.to_s), count(t.periods.into())];
        row.extend(t.mean_ns.iter().map(|v| v.map_or_else(Cell::none, ns_of)));
        row.push(times_or_none(t.power_w));
        table.row(row);
    }
    push(section, table);
}

fn judged(soak: &Soak, has_times: bool) -> Section {
    let mut section = Section::new("judged", "Drift and leaks");
    if has_times {
        let columns = vec![
            head("what"),
            text("figure"),
            number("first third", "ns"),
            number("last third", "ns"),
            number("ratio", ""),
            text("95 %"),
            text("verdict"),
        ];
        let mut table = Table::new("soak-drift", "The last third against the first", columns);
        for d in &soak.drift {
            let three = terminal::run::three_digits;
            table.row(vec![
                named(soak, &d.cell).into(),
                d.metric.as_str().into(),
                ns_of(d.first_third),
                ns_of(d.last_third),
                times(d.ratio),
                d.interval.map_or_else(Cell::none, |i| format!("{} to {}", three(i.low), three(i.high)).into()),
                verdict(d.drifted, "drifted", "steady", d.not_judged.as_deref()),
            ]);
        }
        push(&mut section, table);
    }
    let columns = vec![
        head("held"),
        number("first", ""),
        number("last", ""),
        number("an hour", ""),
        text("95 %"),
        number("would matter", ""),
        text("verdict"),
    ];
    let mut table = Table::new("soak-leaks", "What the measuring process holds", columns);
    for l in &soak.leaks {
        let value = |v: f64| match (l.what.ends_with("bytes"), v < 0.0) {
            (true, true) => Cell::number(format!("-{}", terminal::number::bytes(-v as u64)), v),
            (true, false) => crate::numbers::bytes(v as u64),
            (false, _) => times(v),
        };
        // A leak that the periods do not rule out is not called harmless.
        let known = |v: Option<u64>| v.map_or_else(Cell::none, |v| value(v as f64));
        table.row(vec![
            l.what.as_str().into(),
            known(l.from),
            known(l.to),
            l.slope_per_hour.map_or_else(Cell::none, value),
            l.interval.map_or_else(Cell::none, |i| format!("{} to {}", value(i.low).text, value(i.high).text).into()),
            value(l.matters),
            verdict(
                l.leaking,
                "leaks",
                if l.is_open(soak.done_s) { "not ruled out: more hours would decide" } else { "does not grow" },
                l.not_judged.as_deref(),
            ),
        ]);
    }
    push(&mut section, table);
    section
}

fn verdict(is_bad: bool, yes: &str, no: &str, not_judged: Option<&str>) -> Cell {
    match not_judged {
        Some(why) => format!("not judged: {why}").into(),
        None if is_bad => Cell::text(yes).marked(Mark::Bad),
        None => no.into(),
    }
}

fn faults(soak: &Soak) -> Section {
    let mut section = Section::new("faults", "Faults and gaps");
    let columns = vec![head("kind"), text("when"), text("period"), text("where"), text("what")];
    let mut table = Table::new("soak-faults", "What must not happen", columns);
    for f in &soak.faults {
        let kind = serde_json::to_value(f.kind).ok().and_then(|v| v.as_str().map(|s| s.replace('_', " ")));
        table.row(vec![
            Cell::text(kind.unwrap_or_default()).marked(Mark::Bad),
            f.at.as_deref().unwrap_or("-").into(),
            f.period.map_or_else(Cell::none, |p| p.to_string().into()),
            f.cell.as_ref().map_or_else(Cell::none, |c| named(soak, c).into()),
            f.what.as_str().into(),
        ]);
    }
    let none = table.rows.is_empty();
    push(&mut section, table);
    if none {
        section.push(Block::Text("There was no fault.".into()));
    }
    if let Some(above) = &soak.above {
        let mut said = above.delay.as_ref().map_or_else(Vec::new, terminal::soak::delay_lines);
        said.extend(above.not_joined.iter().map(|why| format!("its recording cannot be used: {why}")));
        if above.recording.is_none() {
            said.push("nothing was recorded: it is unknown who held a lock".into());
        }
        let mut table = Table::new("soak-above", "What delayed the sample above the bound", vec![text("what")]);
        said.into_iter().for_each(|line| table.row(vec![line.into()]));
        push(&mut section, table);
    }
    let columns = vec![head("from"), text("to"), number("for", "s"), text("why")];
    let mut table = Table::new("soak-gaps", "When nothing was measured", columns);
    for g in &soak.gaps {
        table.row(vec![g.from.as_str().into(), g.to.as_str().into(), seconds(g.seconds), g.why.as_str().into()]);
    }
    push(&mut section, table);
    section
}

fn loads(soak: &Soak, has_times: bool) -> Section {
    let mut section = Section::new("loads", "Loads");
    let mut columns = vec![head("load"), number("stage", ""), number("periods", ""), number("transfers", "")];
    columns.extend([number("least a second", ""), number("wanted", "")]);
    columns.extend([number("periods below", ""), text("trouble")]);
    let mut table = Table::new("soak-loads", "What the loads did", columns);
    let mut names: Vec<(u32, &str)> = Vec::new();
    for load in soak.periods.iter().flat_map(|p| &p.loads) {
        if !names.contains(&(load.stage, load.name.as_str())) {
            names.push((load.stage, &load.name));
        }
    }
    for (stage, name) in names {
        let all: Vec<_> =
            soak.periods.iter().flat_map(|p| &p.loads).filter(|l| l.stage == stage && l.name == name).collect();
        let mut trouble: Vec<&str> = Vec::new();
        for why in all.iter().flat_map(|l| l.failed.iter().chain(&l.unavailable)) {
            if !trouble.contains(&why.as_str()) {
                trouble.push(why);
            }
        }
        let least = all.iter().map(|l| l.reached).fold(f64::INFINITY, f64::min);
        let wanted = all.iter().filter_map(|l| l.wanted).reduce(f64::max);
        let rate = |v: Option<f64>| {
            v.filter(|v| has_times && v.is_finite()).map_or_else(Cell::none, |v| count(v.round() as u64))
        };
        table.row(vec![
            name.into(),
            count(stage.into()),
            count(all.len() as u64),
            count(all.iter().map(|l| l.transfers).sum()),
            rate(Some(least)),
            rate(wanted),
            bad(all.iter().filter(|l| !l.held).count() as u64),
            trouble.join("; ").into(),
        ]);
    }
    push(&mut section, table);
    section
}

fn processes(soak: &Soak, section: &mut Section) {
    let columns = vec![head("process"), number("from period", ""), text("began"), text("ended because")];
    let mut table = Table::new("soak-processes", "Processes that measured", columns);
    for p in &soak.processes {
        table.row(vec![
            p.pid.to_string().into(),
            count(p.from_period.into()),
            p.started.as_str().into(),
            p.ended_because.as_deref().unwrap_or("it was killed with what led it").into(),
        ]);
    }
    push(section, table);
    section.push(Block::Facts(vec![
        ("Command".into(), soak.command.join(" ")),
        ("Began, ended".into(), format!("{}, {}", soak.started, soak.ended)),
    ]));
    let columns = vec![head("fact"), text("value")];
    let mut table = Table::new("environment", "What it was taken on", columns);
    let facts = soak.environment.get("facts").and_then(|f| f.as_object());
    for (name, value) in facts.into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.row(vec![name.as_str().into(), value.into()]);
    }
    if !table.rows.is_empty() {
        section.push(Block::Table(table.folded()));
    }
}
