//! Totals, sizes, channels, and how it was recorded.

use crate::document::{Block, Cell, Column, Mark, Section, Table, head, number, text};
use crate::numbers::{bytes, count, percent};
use schema::Summary;
use schema::channel::{Accounted, Channel};
use schema::operations::Shape;
use schema::summary::{Problems, Transfers};
use terminal::number;

pub fn sections(s: &Summary) -> Vec<Section> {
    let used_gpu = s.doorbells > 0 || s.driver_calls > 0 || s.channels > 0;
    let mut section = Section::new("summary", "Summary");
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.into(), value));
    if used_gpu {
        fact(
            "Submissions",
            format!(
                "{} ({}, {} GPFIFO entries, {} of commands)",
                number::count(s.submissions),
                number::of(s.doorbells, "doorbell"),
                number::count(s.entries),
                number::bytes(s.command_bytes)
            ),
        );
        let moved = |n: u64, t: &Transfers| format!("{} ({})", number::count(n), number::bytes(t.bytes));
        fact("Copies by a copy engine", moved(s.copies.copy_engine, &s.copies.copy_engine_detail));
        fact("Inline writes", moved(s.copies.inline, &s.copies.inline_detail));
        fact("Fills", format!("{} ({})", number::count(s.fills), number::bytes(s.fill_bytes)));
        fact("Launches", number::count(s.launches));
        fact(
            "Semaphores",
            format!(
                "{} released, {} acquired",
                number::count(s.semaphores.released),
                number::count(s.semaphores.acquired)
            ),
        );
        fact("Driver calls", number::count(s.driver_calls));
        fact("Channels", number::count(s.channels));
    }
    fact("Lost", number::count(s.lost));
    let end =
        s.end.as_ref().map_or_else(|| "not in the recording, which did not end as it should".into(), |e| e.how.clone());
    fact("End", end);
    section.push(Block::Facts(facts));
    section.blocks.extend(places(s).map(Block::Table));
    section
        .blocks
        .extend(sizes("Sizes of copies by copy engines", "copy-sizes", &s.copies.copy_engine_detail).map(Block::Table));
    section.blocks.extend(sizes("Sizes of inline writes", "inline-sizes", &s.copies.inline_detail).map(Block::Table));
    section.blocks.extend(shapes(s).map(Block::Table));
    section.blocks.extend(processes(s).map(Block::Table));
    vec![section]
}

fn some(table: Table) -> Option<Table> {
    (!table.rows.is_empty()).then(|| table.without_empty().folded_above(20))
}

fn places(s: &Summary) -> Option<Table> {
    let columns = vec![head("from"), text("to"), text("by"), number("count", ""), number("bytes", "bytes")];
    let mut table = Table::new("directions", "From where to where", columns);
    let several = s.gpus.len() > 1;
    for (by, detail) in [("copy engine", &s.copies.copy_engine_detail), ("inline", &s.copies.inline_detail)] {
        for d in &detail.by_place {
            let name = |place: schema::Place, gpu: Option<u32>| match gpu.filter(|_| several) {
                Some(gpu) => format!("{} {gpu}", place.name()),
                None => place.name().to_owned(),
            };
            let from = d.from.map_or_else(|| "the command stream".into(), |place| name(place, d.from_gpu));
            table.row(vec![from.into(), name(d.to, d.to_gpu).into(), by.into(), count(d.count), bytes(d.bytes)]);
        }
    }
    some(table)
}

fn sizes(title: &str, name: &str, t: &Transfers) -> Option<Table> {
    let columns =
        vec![head("from"), number("below", "bytes"), number("count", ""), number("bytes", "bytes"), number("part", "")];
    let all: u64 = t.sizes.iter().map(|b| b.count).sum();
    let mut table = Table::new(name, title, columns);
    for b in &t.sizes {
        let below = b.to.checked_add(1).map_or_else(Cell::none, bytes);
        let part = percent(b.count as f64 / all.max(1) as f64);
        table.row(vec![number::bytes(b.from).into(), below, count(b.count), bytes(b.bytes), part]);
    }
    some(table)
}

fn extent(e: [u32; 3]) -> String {
    format!("{} x {} x {}", e[0], e[1], e[2])
}

fn shape(shape: &Shape) -> [Cell; 6] {
    [
        extent(shape.grid).into(),
        extent(shape.block).into(),
        shape.cluster.map_or_else(Cell::none, |c| extent(c).into()),
        count(shape.registers.into()),
        bytes(shape.shared_memory.into()),
        format!("{:#x}", shape.code()).into(),
    ]
}

fn shape_columns() -> Vec<Column> {
    vec![
        text("grid"),
        text("block"),
        text("cluster"),
        number("registers", ""),
        number("shared memory", "bytes"),
        text("program"),
    ]
}

fn shapes(s: &Summary) -> Option<Table> {
    let mut columns = vec![head("launches")];
    columns.extend(shape_columns());
    let mut table = Table::new("launches", "The commonest launches", columns);
    for l in &s.launch_shapes {
        let mut row = vec![Cell::number(number::count(l.count), l.count as f64)];
        row.extend(shape(&l.shape));
        table.row(row);
    }
    some(table)
}

fn processes(s: &Summary) -> Option<Table> {
    if s.processes.len() < 2 && s.unwatched.is_empty() {
        return None;
    }
    let columns = vec![
        head("process"),
        text("program"),
        number("doorbells", ""),
        number("copies", ""),
        number("launches", ""),
        number("lost", ""),
        text("end"),
    ];
    let mut table = Table::new("processes", "Processes", columns);
    for p in &s.processes {
        let end = p.end.as_ref().map_or_else(Cell::none, |e| e.how.as_str().into());
        table.row(vec![
            p.pid.to_string().into(),
            p.exe.as_str().into(),
            count(p.doorbells),
            count(p.copies),
            count(p.launches),
            lost(p.lost),
            end,
        ]);
    }
    for u in &s.unwatched {
        let mut row = vec![u.pid.to_string().into(), u.path.as_str().into()];
        row.extend([(); 4].map(|()| Cell::none()));
        row.push(Cell::text(format!("not recorded: {}", u.why)).marked(Mark::Bad));
        table.row(row);
    }
    some(table)
}

fn lost(n: u64) -> Cell {
    if n > 0 { count(n).marked(Mark::Bad) } else { count(n) }
}

pub fn channels(s: &Summary) -> Option<Section> {
    let columns = vec![
        head("channel"),
        text("engine"),
        text("class"),
        text("GPFIFO"),
        text("USERD"),
        text("pushbuffer"),
        text("watched"),
        number("doorbells", ""),
        number("entries", ""),
        number("commands", "bytes"),
        number("lost", ""),
    ];
    let mut table = Table::new("channels", "Channels, and the memory of their parts", columns);
    for c in &s.channel_list {
        table.row(channel(c));
    }
    Some(Section::new("channels", "Channels").with(Block::Table(some(table)?)))
}

fn channel(c: &Channel) -> Vec<Cell> {
    let engine = if c.engine.is_empty() { "unknown" } else { &c.engine };
    let least = if c.accounted_by == Accounted::Seen { "at least " } else { "" };
    let mut missing = lost(c.lost);
    missing.text.insert_str(0, least);
    vec![
        c.label().into(),
        engine.into(),
        c.class_name.as_str().into(),
        c.gpfifo_place.name().into(),
        c.userd_place.name().into(),
        c.pushbuffer_place.name().into(),
        c.watch.name().into(),
        count(c.rings),
        count(c.entries),
        bytes(c.command_bytes),
        missing,
    ]
}

/// How doorbells were intercepted, what was not decoded, and notes.
pub fn surroundings(s: &Summary) -> Option<Section> {
    let mut section = Section::new("recorded", "How it was recorded");
    let asked = if s.tap.asked.is_empty() { "not said" } else { &s.tap.asked };
    section.push(Block::Facts(vec![
        ("Tap asked for".into(), asked.into()),
        ("Doorbells by a trap".into(), number::count(s.tap.trapped)),
        ("By rewritten sites".into(), number::count(s.tap.rewritten)),
        ("Rewritten sites".into(), number::count(s.tap.sites_patched)),
    ]));
    let columns = vec![head("address"), text("module"), text("tapped by")];
    let mut table = Table::new("sites", "Instructions that ring doorbells", columns);
    for site in &s.sites {
        let module = match site.module.as_str() {
            "" => "no file".to_owned(),
            module => format!("{module} + {:#x}", site.offset),
        };
        let by = match (site.patched, site.why.as_deref()) {
            (true, _) => "a rewritten site".to_owned(),
            (false, why) => format!("a trap: {}", why.unwrap_or("no reason given")),
        };
        table.row(vec![format!("{:#x}", site.address).into(), module.into(), by.into()]);
    }
    section.blocks.extend(some(table).map(Block::Table));
    let problems = problems(&s.problems);
    if !problems.is_empty() {
        section.push(Block::Heading("Not understood".into()));
        section.push(Block::List(problems));
    }
    for (title, lines) in [("Notes", &s.notes), ("Trouble", &s.trouble)] {
        if !lines.is_empty() {
            section.push(Block::Heading(title.into()));
            section.push(Block::List(lines.clone()));
        }
    }
    section.some()
}

fn problems(p: &Problems) -> Vec<String> {
    let lines = [
        (p.unmapped_segments, "segment", " without a CPU mapping"),
        (p.cut_segments, "segment", " longer than is recorded"),
        (p.torn_segments, "segment", " of which words did not fit into the rings"),
        (p.late_segments, "segment", " read late: its words may be of a later submission"),
        (p.uncopied_segments, "segment", " not copied yet when the program died"),
        (p.holes, "place", " where entries are missing"),
        (p.bad_headers, "word", " where a method header must stand"),
        (p.skipped_words, "word", " behind an END_PB_SEGMENT"),
        (p.unknown_events, "event", " of a kind that this version does not know"),
        (p.stray_bytes, "byte", " in whole chunks outside any event"),
        (p.late_rings, "ring", " out of the channel's order"),
        (p.unknown_methods.iter().map(|m| m.count).sum(), "method", " without a name"),
    ];
    let said = lines.iter().filter(|(n, ..)| *n > 0);
    said.map(|(n, noun, rest)| format!("{}{rest}", number::of(*n, noun))).collect()
}
