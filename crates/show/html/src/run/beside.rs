//! The interference matrix: every victim with every load.

use super::Of;
use crate::document::{Block, Cell, Mark, Row, Section, Table, head, number};
use crate::numbers::{ns_or_none, size, slug};
use run_folder::run::{Beside, Point, Times, place};
use terminal::run::three_digits;

/// A figure of a subject: its value alone, and the ratio to it with a load.
#[derive(Clone, Copy)]
struct Taken {
    name: &'static str,
    alone: fn(&Point) -> Option<u64>,
    times: fn(&Times) -> Option<f64>,
    /// Whether the ratio is certain; `None` for a maximum, which has no interval.
    is_sure: Option<fn(&Times) -> bool>,
}

const TAKEN: [Taken; 3] = [
    Taken { name: "p50", alone: |p| Some(p.p50_ns), times: |t| Some(t.p50), is_sure: Some(|t| t.p50_bounds.is_some()) },
    Taken { name: "p99.9", alone: |p| p.p999_ns, times: |t| t.p999, is_sure: Some(|t| t.p999_bounds.is_some()) },
    Taken { name: "max", alone: |p| Some(p.max_ns), times: |t| Some(t.max), is_sure: None },
];

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let mut section = Section::new(&of_run.id("beside"), "What each load delays");
    for block in of_run.run.beside() {
        let place = place(&block.point);
        if !place.is_empty() {
            section.push(Block::Heading(place.clone()));
        }
        for taken in &TAKEN {
            let table = table(of_run, &block, &place, *taken);
            let loads = block.aggressors.len();
            let of_loads = |r: &Row| r.cells.iter().rev().take(loads).filter(|c| c.value.is_some()).count();
            let known: usize = table.rows.iter().map(of_loads).sum();
            // If most tails are unknown, the table is folded. Tables of maxima always are.
            let fold = taken.name != "p50" && (taken.is_sure.is_none() || 2 * known < table.rows.len() * loads);
            if known > 0 {
                section.push(Block::Table(if fold { table.folded() } else { table }));
            }
        }
    }
    if !section.blocks.is_empty() {
        section.push(Block::Text(
            "The ratio of each subject's figure while a load runs to its figure alone. The stages ran one after the other. A shade marks a \
             difference that is certain: the intervals of the two figures are apart. It deepens from \
             1.1, 2, 5, 20, 100 and 1,000 times on. ~ stands before a ratio that may be 1. A maximum is one sample: it has no interval \
             and no shade."
                .into(),
        ));
    }
    section.some()
}

fn table(of_run: &Of<'_>, block: &Beside, place: &str, taken: Taken) -> Table {
    let Taken { name, alone, times, is_sure } = taken;
    let mut columns = vec![head("victim"), number("size", "bytes"), number("alone", "ns")];
    columns.extend(block.aggressors.iter().map(|a| number(format!("with {a}"), "times")));
    let title = format!("{name} while each load runs, times {name} alone");
    let file = of_run.id(&format!("beside-{}-{}", slug(name), slug(place)));
    let mut table = Table::new(file, title, columns);
    for victim in &block.victims {
        let mut row = vec![Cell::from(victim.subject.as_str()), size(victim.bytes), ns_or_none(alone(&victim.alone))];
        row.extend(victim.beside.iter().map(|beside| {
            let Some((beside, v)) = beside.as_ref().and_then(|b| Some((b, times(b)?))) else { return Cell::none() };
            let sure = is_sure.map(|is_sure| is_sure(beside));
            let may_be_one = if sure == Some(false) { "~" } else { "" };
            let cell = Cell::number(format!("{may_be_one}{} x", three_digits(v)), v);
            if sure == Some(true) { cell.marked(Mark::Heat(heat(v))) } else { cell }
        }));
        table.row(row);
    }
    if block.victims.iter().all(|v| v.bytes == 0) {
        table.columns.remove(1);
        table.rows.iter_mut().for_each(|r| drop(r.cells.remove(1)));
    }
    table
}

fn heat(times: f64) -> u8 {
    [1.1, 2.0, 5.0, 20.0, 100.0, 1000.0].iter().filter(|from| times >= **from).count() as u8
}
