//! The interference matrix: every victim beside every load.

use super::Of;
use crate::document::{Block, Cell, Mark, Section, Table, head, number};
use crate::numbers::{ns_or_none, size, slug};
use report::run::three_digits;
use results::run::{Beside, Point, Times};

/// A figure of a victim: alone, and how many times that beside a load.
type Taken = (&'static str, fn(&Point) -> Option<u64>, fn(&Times) -> Option<f64>);

const TAKEN: [Taken; 3] = [
    ("p50", |p| Some(p.p50_ns), |t| Some(t.p50)),
    ("p99.9", |p| p.p999_ns, |t| t.p999),
    ("max", |p| Some(p.max_ns), |t| Some(t.max)),
];

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let mut section = Section::new(&of_run.id("beside"), "What loads do to those beside them");
    for block in of_run.run.beside() {
        let place: Vec<String> = block.point.iter().map(|c| format!("{} = {}", c.name, c.value)).collect();
        let place = place.join(", ");
        if !place.is_empty() {
            section.push(Block::Heading(place.clone()));
        }
        let mut few_tails = false;
        for (n, taken) in TAKEN.iter().enumerate() {
            let table = table(of_run, &block, &place, *taken);
            let is_known = |c: &Cell| matches!(c.mark, Mark::Heat(_));
            let known = table.rows.iter().flat_map(|r| &r.cells).filter(|c| is_known(c)).count();
            // Where most tails are not known, the maxima tell more.
            let few = 2 * known < table.rows.len() * block.aggressors.len();
            let fold = match n {
                0 => false,
                1 => {
                    few_tails = few;
                    few
                }
                _ => !few_tails,
            };
            if known > 0 {
                section.push(Block::Table(if fold { table.folded() } else { table }));
            }
        }
    }
    if !section.blocks.is_empty() {
        section.push(Block::Text(
            "How many times its figure alone a victim has beside each load. The stages ran one behind the other, so these ratios have no \
             intervals; a shade says the same as the number: from 1.1, 2, 5, 20, 100 and 1,000 times on."
                .into(),
        ));
    }
    section.some()
}

fn table(of_run: &Of<'_>, block: &Beside, place: &str, (name, alone, times): Taken) -> Table {
    let mut columns = vec![head("victim"), number("size", "bytes"), number("alone", "ns")];
    columns.extend(block.aggressors.iter().map(|a| number(format!("beside {a}"), "times")));
    let title = format!("{name} beside each load, times {name} alone");
    let file = of_run.id(&format!("beside-{}-{}", slug(name), slug(place)));
    let mut table = Table::new(file, title, columns);
    for victim in &block.victims {
        let mut row = vec![Cell::from(victim.subject.as_str()), size(victim.bytes), ns_or_none(alone(&victim.alone))];
        row.extend(victim.beside.iter().map(|beside| match beside.as_ref().and_then(times) {
            Some(v) => Cell::number(format!("{} x", three_digits(v)), v).marked(Mark::Heat(heat(v))),
            None => Cell::none(),
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
