//! Many routes of one direction against size: each line has its name at its end. Routes that are the best somewhere are strong, with distinct
//! colours, dashes and markers; the others are thin and grey.

use crate::axis::Axis;
use crate::chart::{Chart, Frame, Head, Look, OTHERS, cut};
use crate::svg::{Anchor, Pen, path};
use experiment::{Metric, Observe};
use numbers::tick::{bytes, nanoseconds};
use run_folder::run::{BestOfRun, CellOfRun, Ends, Figure};

/// From one name to the next.
const LINE: f64 = 13.0;
const HEIGHT: f64 = 520.0;
const THIN: Pen = OTHERS;
/// From the end of a line to its name.
const LEADER: Pen = Pen { colour: "#bbbbbb", width: 0.8, dash: "1 2" };
/// More strong lines cannot be distinguished at a glance.
const MOST_STRONG: usize = 7;

/// The value that is drawn against size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The cell's time.
    Time,
    /// Only the time of the call.
    Call,
    /// The time divided by that of CUDA's best form.
    Cuda,
}

impl Against {
    pub const ALL: [Against; 3] = [Against::Time, Against::Call, Against::Cuda];

    /// The end of the file's name.
    pub fn ending(self) -> &'static str {
        match self {
            Against::Time => "",
            Against::Call => "-call",
            Against::Cuda => "-times-cuda",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Against::Time => "latency against size",
            Against::Call => "the call against size",
            Against::Cuda => "times CUDA's best form",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Against::Time => "p50 of each route against size; strong: the best somewhere, and CUDA's best form",
            Against::Call => "p50 of the call alone, until it returned, of each route against size",
            Against::Cuda => {
                "p50 of each route over the p50 of CUDA's best form at the same size; above 10 at the upper edge"
            }
        }
    }

    fn of_axis(self) -> &'static str {
        match self {
            Against::Time => "p50",
            Against::Call => "p50 of the call",
            Against::Cuda => "p50, times CUDA's best",
        }
    }

    fn of(self, cell: &CellOfRun, best: &[BestOfRun]) -> Option<f64> {
        let p50 = |figure: &Figure| figure.summary.p50.max(1) as f64;
        match self {
            Against::Time => cell.observed().map(p50),
            Against::Call => cell.figures.submit.as_ref().map(p50),
            Against::Cuda => {
                let ends = Ends::of(&cell.what)?;
                let same = |b: &&BestOfRun| {
                    b.metric == Metric::P50
                        && (b.source.as_str(), b.destination.as_str()) == (ends.source, ends.destination)
                };
                let mut at = best.iter().filter(same).flat_map(|b| &b.sizes);
                let cuda = at.find(|at| at.stage == cell.stage && at.bytes == cell.bytes)?.cuda.as_ref()?;
                let whole = cell.observe == Observe::Done && cuda.value_ns > 0.0;
                cell.observed().filter(|_| whole).map(|f| p50(f) / cuda.value_ns)
            }
        }
    }

    fn axis(self, low: f64, high: f64) -> Axis {
        match self {
            Against::Time | Against::Call => Axis::times(low, high),
            Against::Cuda => Axis::factors(low, high.clamp(1.0, MOST_TIMES)),
        }
    }

    fn text(self, value: f64) -> String {
        if self == Against::Cuda { format!("{value:.3} times") } else { nanoseconds(value) }
    }
}

/// Slower routes are at the upper edge: the interesting ones are near 1.
const MOST_TIMES: f64 = 10.0;

struct Line<'a> {
    name: String,
    /// Sizes and times.
    points: Vec<(u64, f64)>,
    strong: Option<usize>,
    subject: &'a str,
}

/// `None` if no two lines have three sizes. `strong` are subjects, the most important first.
pub fn picture(
    head: &Head<'_>,
    cells: &[&CellOfRun],
    best: &[BestOfRun],
    strong: &[&str],
    what: Against,
) -> Option<String> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for cell in cells {
        let Some(time) = what.of(cell, best) else { continue };
        let point = (cell.bytes, time);
        match lines.iter_mut().find(|line| line.subject == cell.subject) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: cell.label(),
                points: vec![point],
                strong: strong.iter().take(MOST_STRONG).position(|s| *s == cell.subject),
                subject: &cell.subject,
            }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_unstable_by_key(|p| p.0));
    lines.retain(|line| line.points.len() > 1);
    if lines.iter().filter(|line| line.points.len() > 2).count() < 2 {
        return None;
    }
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let (least, most) = (all().map(|p| p.0).min()?, all().map(|p| p.0).max()?);
    let (low, high) = all().fold((f64::INFINITY, 0.0f64), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let height = HEIGHT.max(LINE * lines.len() as f64 + 8.0);
    let mut chart = Chart::new(head, height);
    let panel = chart.panel((Axis::sizes(least, most), what.axis(low, high)), (0.0, height), what.of_axis());
    // Strong lines are drawn over the others.
    lines.sort_by_key(|line| std::cmp::Reverse(line.strong.unwrap_or(usize::MAX)));
    for line in &lines {
        chart.svg.group(if line.strong.is_some() { "strong" } else { "thin" }, Some(&line.name));
        let look = line.strong.map(|number| Look { number });
        let at = |(size, time): &(u64, f64)| panel.at((*size as f64, *time));
        let pen = look.map_or(THIN, |look| Pen { width: 2.4, ..look.pen() });
        chart.svg.path(&path(line.points.iter().map(at)), pen);
        for p in &line.points {
            chart.svg.group("point", Some(&format!("{}, {}: {}", line.name, bytes(p.0), what.text(p.1))));
            match look {
                Some(look) => chart.svg.marker(look.number, at(p), 4.0, look.colour()),
                None => chart.svg.line(at(p), at(p), THIN),
            }
            chart.svg.close();
        }
        chart.svg.close();
    }
    let right = panel.left() + panel.width();
    let mut ends: Vec<(f64, f64, &Line<'_>)> = Vec::new();
    for line in &lines {
        let Some((size, time)) = line.points.last() else { continue };
        let (x, y) = panel.at((*size as f64, *time));
        ends.push((x, y, line));
    }
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let wanted: Vec<f64> = ends.iter().map(|end| end.1).collect();
    let places = spread(&wanted, panel.top() + 6.0, panel.top() + height - 6.0);
    chart.svg.group("names", None);
    for ((x, y, line), place) in ends.iter().zip(places) {
        chart.svg.group("name", Some(&line.name));
        chart.svg.path(&path([(*x, *y), (right + 2.0, *y), (right + 14.0, place)]), LEADER);
        let at = right + 16.0;
        let room = ((Frame::FILE.width() - at - 26.0) / 6.0) as usize;
        match line.strong {
            Some(number) => {
                let look = Look { number };
                chart.svg.marker(number, (at + 5.0, place), 4.0, look.colour());
                chart.svg.bold((at + 14.0, place + 4.0), 11.0, &cut(&line.name, room));
            }
            None => chart.svg.text((at, place + 4.0), 10.0, Anchor::Start, &cut(&line.name, room)),
        }
        chart.svg.close();
    }
    chart.svg.close();
    Some(chart.finish("size").svg)
}

/// Places at least [`LINE`] apart, in the same order, as near as possible to the wanted ones (sorted), from `top` to `bottom` as far as there is
/// room.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    // Names that are close together form a block, which is centred at their wanted places. A block is stored as the sum of the first places that
    // its names want, and the number of names.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (n, y) in wanted.iter().enumerate() {
        blocks.push((y - n as f64 * LINE, 1));
        while let [.., (before, many), (last, few)] = blocks[..]
            && last / few as f64 <= before / many as f64
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push((before + last, many + few));
        }
    }
    let firsts = blocks.iter().flat_map(|(sum, many)| std::iter::repeat_n(sum / *many as f64, *many));
    let last = bottom - (wanted.len().saturating_sub(1)) as f64 * LINE;
    firsts.enumerate().map(|(n, first)| first.min(last).max(top) + n as f64 * LINE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_apart_and_within() {
        for wanted in [vec![10.0, 10.0, 11.0, 90.0], vec![97.0, 98.0, 99.0], vec![50.0], vec![]] {
            let places = spread(&wanted, 5.0, 100.0);
            assert!(places.windows(2).all(|w| w[1] - w[0] >= LINE - 1e-9), "{places:?}");
            assert!(places.iter().all(|y| (5.0..=100.0).contains(y)), "{places:?}");
        }
        assert_eq!(spread(&[10.0, 60.0], 5.0, 100.0), [10.0, 60.0], "what has room stays");
        assert_eq!(spread(&[50.0, 50.0, 50.0], 5.0, 100.0), [50.0 - LINE, 50.0, 50.0 + LINE], "round where they end");
    }
}
