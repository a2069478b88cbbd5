//! Who waits for whom: each chain from the top to the bottom, and for a cycle a line back to its first thread.
//!
//! A cycle is red, and its line back is thick, so it can be seen without colour, too.

use crate::plot::chart::{Chart, Drawing, Frame, Head, cut, drawn};
use crate::plot::svg::{Anchor, Pen, path};

pub struct Waits {
    pub title: String,
    pub about: String,
    pub chains: Vec<Chain>,
}

pub struct Chain {
    pub is_cycle: bool,
    /// A thread, and why it waits for the next one. The last thread of a chain waits for none, that of a cycle for the first.
    pub links: Vec<(String, String)>,
}

/// Height of a box, of the room after it, and of the room after a chain.
const BOX: f64 = 24.0;
const ROOM: f64 = 30.0;
const APART: f64 = 16.0;
/// Where the boxes begin, and the line back of a cycle is.
const LEFT: f64 = 48.0;
const BACK: f64 = 22.0;

/// The first is for a page, the second a file.
pub fn draw(waits: &Waits) -> [Drawing; 2] {
    drawn(|frame| one(waits, frame))
}

/// Rooms after boxes: the last thread of a chain has none.
fn height(chain: &Chain) -> f64 {
    let n = chain.links.len() as f64;
    n * BOX + (n - if chain.is_cycle { 0.0 } else { 1.0 }).max(0.0) * ROOM + APART
}

fn one(waits: &Waits, frame: Frame) -> Drawing {
    let head = Head::new(&waits.title, &waits.about, ["", ""], frame);
    let mut chart = Chart::new(&head, waits.chains.iter().map(height).sum());
    let mut top = frame.top();
    for chain in &waits.chains {
        draw_chain(&mut chart, chain, top, frame);
        top += height(chain);
    }
    Drawing { svg: chart.svg.finish(), legend: Vec::new() }
}

fn draw_chain(chart: &mut Chart, chain: &Chain, top: f64, frame: Frame) {
    let letters = if frame == Frame::PHONE { 42 } else { 100 };
    let pen = match chain.is_cycle {
        true => Pen { colour: "#B00020", width: 2.5, dash: "" },
        false => Pen { colour: "#444", width: 1.8, dash: "" },
    };
    let (svg, down) = (&mut chart.svg, LEFT + 18.0);
    let each = BOX + ROOM;
    for (n, (thread, why)) in chain.links.iter().enumerate() {
        let (y, is_last) = (top + n as f64 * each, n + 1 == chain.links.len());
        svg.frame((LEFT, y), (frame.width() - LEFT - 16.0, BOX));
        svg.text((LEFT + 8.0, y + 16.0), 12.0, Anchor::Start, &cut(thread, letters));
        if is_last && !chain.is_cycle {
            break;
        }
        svg.text((down + 10.0, y + BOX + 19.0), 12.0, Anchor::Start, &cut(why, letters - 3));
        if is_last {
            let (below, first) = (y + BOX + ROOM / 2.0, top + BOX / 2.0);
            let back = [(down, y + BOX), (down, below), (BACK, below), (BACK, first), (LEFT, first)];
            svg.path(&path(back), pen);
            svg.path(&path([(LEFT - 7.0, first - 5.0), (LEFT, first), (LEFT - 7.0, first + 5.0)]), pen);
        } else {
            let end = y + each;
            svg.line((down, y + BOX), (down, end), pen);
            svg.path(&path([(down - 5.0, end - 7.0), (down, end), (down + 5.0, end - 7.0)]), pen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_differs_from_a_chain_by_more_than_its_colour() {
        let links = || vec![("thread 1 <a>".into(), "waits".into()), ("thread 2".into(), "waits, too".into())];
        let of = |is_cycle| {
            let chains = vec![Chain { is_cycle, links: links() }];
            draw(&Waits { title: "t".into(), about: "a".into(), chains })
        };
        let ([chain, _], [cycle, file]) = (of(false), of(true));
        assert!(cycle.svg.contains("class=\"l bad strong\"") && !chain.svg.contains("bad"), "{}", cycle.svg);
        assert!(cycle.svg.contains("waits, too") && !chain.svg.contains("waits, too"));
        assert!(file.svg.contains("#B00020") && file.svg.contains("thread 1 &lt;a&gt;"));
        let none = draw(&Waits { title: String::new(), about: String::new(), chains: Vec::new() });
        assert!(none[0].svg.contains("</svg>"));
    }
}
