//! What all pictures share: the frame, its axes, the legend, and how one series is told from another without colour.

use crate::axis::Axis;
use crate::svg::{Anchor, Pen, Svg};

pub const WIDTH: f64 = 1000.0;
const LEFT: f64 = 84.0;
/// For the legend.
const RIGHT: f64 = 236.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 58.0;

/// Of Okabe and Ito: told apart by those who do not see red and green. The yellow is left out: it is too light for a line.
const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9"];
const DASHES: [&str; 5] = ["", "8 4", "2 3", "10 3 2 3", "5 2 1 2 1 2"];

/// The look of a series, by its number: colour, dashes and marker all change.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub number: usize,
}

impl Look {
    pub fn colour(self) -> &'static str {
        COLOURS[self.number % COLOURS.len()]
    }

    pub fn pen(self) -> Pen {
        Pen { colour: self.colour(), width: 2.0, dash: DASHES[self.number % DASHES.len()] }
    }

    pub fn thin(self) -> Pen {
        Pen { width: 1.0, ..self.pen() }
    }
}

const GRID: Pen = Pen { colour: "#dddddd", width: 1.0, dash: "" };
const FINE: Pen = Pen { colour: "#f0f0f0", width: 1.0, dash: "" };

/// What stands above and round a picture.
pub struct Head<'a> {
    pub title: String,
    /// What it shows, for those who do not see it.
    pub about: String,
    /// The machine, and the version and time.
    pub below: [&'a str; 2],
    pub functional: bool,
}

pub struct Chart {
    pub svg: Svg,
    height: f64,
    x: Option<Axis>,
}

/// One frame of a chart.
pub struct Panel {
    pub x: Axis,
    pub y: Axis,
    top: f64,
    height: f64,
}

impl Chart {
    /// For panels of `height` in all.
    pub fn new(head: &Head<'_>, height: f64) -> Chart {
        let whole = TOP + height + BOTTOM;
        let mut svg = Svg::new(WIDTH, whole, &head.title, &head.about);
        svg.bold((16.0, 26.0), 17.0, &cut(&head.title, 100));
        svg.text((16.0, 45.0), 12.0, Anchor::Start, &cut(head.below[0], 150));
        svg.text((16.0, 61.0), 12.0, Anchor::Start, &cut(head.below[1], 150));
        if head.functional {
            svg.group("functional", None);
            svg.bold((WIDTH - RIGHT + 12.0, 61.0), 13.0, "functional: no times");
            svg.close();
        }
        Chart { svg, height: whole, x: None }
    }

    /// A frame with its lines, from `top` on within the room for panels. Labels of x stand below the last.
    pub fn panel(&mut self, (x, y): (Axis, Axis), (top, height): (f64, f64), label: &str) -> Panel {
        let panel = Panel { x, y, top: TOP + top, height };
        self.svg.group("grid", None);
        let (width, bottom) = (panel.width(), panel.top + height);
        for fine in [true, false] {
            let pen = if fine { FINE } else { GRID };
            for t in panel.x.ticks.iter().filter(|t| t.label.is_empty() == fine) {
                let x = panel.at_x(t.at);
                self.svg.line((x, panel.top), (x, bottom), pen);
            }
            for t in panel.y.ticks.iter().filter(|t| t.label.is_empty() == fine) {
                let y = panel.at_y(t.at);
                self.svg.line((LEFT, y), (LEFT + width, y), pen);
            }
        }
        self.svg.close();
        self.svg.group("axis y", None);
        let mut before = f64::INFINITY;
        for t in panel.y.ticks.iter().filter(|t| !t.label.is_empty()) {
            let y = panel.at_y(t.at);
            if before - y >= 13.0 {
                self.svg.text((LEFT - 7.0, y + 4.0), 12.0, Anchor::End, &t.label);
                before = y;
            }
        }
        self.svg.upright((18.0, panel.top + height / 2.0), 13.0, label);
        self.svg.close();
        self.svg.frame((LEFT, panel.top), (width, height));
        self.x = Some(panel.x.clone());
        panel
    }

    /// A line for each series, beside the panel. `note` stands below the name.
    pub fn legend(&mut self, panel: &Panel, series: &[(Look, &str, String)]) {
        self.svg.group("legend", None);
        for (i, (look, name, note)) in series.iter().enumerate() {
            let y = panel.top + 12.0 + 34.0 * i as f64;
            let x = WIDTH - RIGHT + 12.0;
            self.svg.group("entry", Some(name));
            self.svg.line((x, y), (x + 34.0, y), look.pen());
            self.svg.marker(look.number, (x + 17.0, y), 4.0, look.colour());
            self.svg.text((x + 42.0, y + 4.0), 12.0, Anchor::Start, &cut(name, 26));
            self.svg.text((x + 42.0, y + 18.0), 10.0, Anchor::Start, &cut(note, 38));
            self.svg.close();
        }
        self.svg.close();
    }

    /// With the labels of x.
    pub fn finish(mut self, label: &str) -> String {
        let bottom = self.height - BOTTOM;
        let width = WIDTH - LEFT - RIGHT;
        self.svg.group("axis x", None);
        let mut before = f64::NEG_INFINITY;
        for t in self.x.iter().flat_map(|x| x.ticks.iter().map(|t| (LEFT + x.part(t.at) * width, &t.label))) {
            let half = 3.4 * t.1.len() as f64;
            if !t.1.is_empty() && t.0 - half > before + 6.0 {
                self.svg.text((t.0, bottom + 17.0), 12.0, Anchor::Middle, t.1);
                before = t.0 + half;
            }
        }
        self.svg.text((LEFT + width / 2.0, bottom + 40.0), 13.0, Anchor::Middle, label);
        self.svg.close();
        self.svg.finish()
    }
}

impl Panel {
    pub fn width(&self) -> f64 {
        WIDTH - LEFT - RIGHT
    }

    pub fn left(&self) -> f64 {
        LEFT
    }

    pub fn top(&self) -> f64 {
        self.top
    }

    pub fn height(&self) -> f64 {
        self.height
    }

    pub fn at_x(&self, v: f64) -> f64 {
        LEFT + self.x.part(v).clamp(0.0, 1.0) * self.width()
    }

    pub fn at_y(&self, v: f64) -> f64 {
        self.top + (1.0 - self.y.part(v).clamp(0.0, 1.0)) * self.height
    }

    pub fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.at_x(x), self.at_y(y))
    }
}

/// So many characters at most.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}
