//! What all pictures share: the frame, its axes, the legend, and how series are distinguished without colour.

use crate::plot::axis::Axis;
use crate::plot::colours::{COLOURS, DASHES};
use crate::plot::svg::{Anchor, BROAD, Ink, NARROW, Pen, Svg, path};

/// The room around the panels, and how lines get their colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    width: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    ink: Ink,
}

impl Frame {
    /// A separate file: head above, legend on the right.
    pub const FILE: Frame = Frame { width: 1000.0, left: 84.0, right: 236.0, top: 76.0, bottom: 58.0, ink: Ink::Own };
    /// A part of a page, which has the head and the legend as text and the colours in its style sheet.
    pub const PAGE: Frame =
        Frame { width: 760.0, left: 86.0, right: 26.0, top: 12.0, bottom: 52.0, ink: Ink::Classes(BROAD) };
    /// The same for a narrow screen: letters have the size of text there, and the labels of y have no room on the left.
    pub const PHONE: Frame =
        Frame { width: 360.0, left: 68.0, right: 26.0, top: 26.0, bottom: 62.0, ink: Ink::Classes(NARROW) };

    pub fn width(self) -> f64 {
        self.width
    }

    /// Where the panels begin.
    pub(crate) fn top(self) -> f64 {
        self.top
    }

    fn is_file(self) -> bool {
        self.ink == Ink::Own
    }

    fn is_phone(self) -> bool {
        self.ink == Ink::Classes(NARROW)
    }

    /// For pictures whose names are inside the panel.
    pub(crate) fn without_labels_of_y(self) -> Frame {
        Frame { left: 16.0, right: if self.ink == Ink::Own { self.right } else { 28.0 }, ..self }
    }
}

/// As part of a page, which shows one of two widths, and as a file.
pub(crate) fn drawn(one: impl Fn(Frame) -> Drawing) -> [Drawing; 2] {
    let (mut page, phone) = (one(Frame::PAGE), one(Frame::PHONE));
    page.svg.push_str(&phone.svg);
    [page, one(Frame::FILE)]
}

/// Approximate width of a narrow frame's letters.
const LETTER: f64 = 6.3;

/// A picture, and the look of each series in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawing {
    pub svg: String,
    /// For a frame without room for it; the other frame has it in the picture.
    pub legend: Vec<Entry>,
}

/// One series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The number of its look; `None` if it is thin and grey.
    pub number: Option<usize>,
    pub name: String,
    /// The text below the name.
    pub note: String,
}

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
}

/// A line and a marker as they look in a picture, for a legend in text.
pub fn swatch(number: Option<usize>) -> String {
    let mut svg = Svg::bare(34.0, 14.0);
    let at = [(1.0, 7.0), (33.0, 7.0)];
    match number.map(|number| Look { number }) {
        Some(look) => {
            svg.line(at[0], at[1], look.pen());
            svg.marker(look.number, (17.0, 7.0), 4.0, look.colour());
        }
        None => svg.line(at[0], at[1], OTHERS),
    }
    svg.finish()
}

/// The pen of all series except the few important ones.
pub(crate) const OTHERS: Pen = Pen { colour: "#9a9a9a", width: 1.0, dash: "" };

const GRID: Pen = Pen { colour: "#dddddd", width: 1.0, dash: "" };
const FINE: Pen = Pen { colour: "#f0f0f0", width: 1.0, dash: "" };

/// The title of a picture, the lines below it, and a description.
pub struct Head<'a> {
    pub title: String,
    /// A description for readers who do not see it.
    pub about: String,
    /// The machine, and the version and time.
    pub below: [&'a str; 2],
    pub frame: Frame,
}

impl<'a> Head<'a> {
    pub fn new(title: &str, about: &str, below: [&'a str; 2], frame: Frame) -> Head<'a> {
        Head { title: title.into(), about: about.into(), below, frame }
    }
}

pub struct Chart {
    pub svg: Svg,
    frame: Frame,
    height: f64,
    x: Option<Axis>,
    legend: Vec<Entry>,
}

/// One frame of a chart.
pub struct Panel {
    pub x: Axis,
    pub y: Axis,
    frame: Frame,
    top: f64,
    height: f64,
}

impl Chart {
    /// For panels of `height` in all.
    pub fn new(head: &Head<'_>, height: f64) -> Chart {
        let frame = head.frame;
        let whole = frame.top + height + frame.bottom;
        let mut svg = Svg::new((frame.width, whole), frame.ink, &head.title, &head.about);
        if frame.is_file() {
            svg.bold((16.0, 26.0), 17.0, &cut(&head.title, 100));
            svg.text((16.0, 45.0), 12.0, Anchor::Start, &cut(head.below[0], 150));
            svg.text((16.0, 61.0), 12.0, Anchor::Start, &cut(head.below[1], 150));
        }
        Chart { svg, frame, height: whole, x: None, legend: Vec::new() }
    }

    /// A panel with its lines, from `top` on within the room for panels. The labels of x are below the last.
    pub fn panel(&mut self, (x, y): (Axis, Axis), (top, height): (f64, f64), label: &str) -> Panel {
        let panel = Panel { x, y, frame: self.frame, top: self.frame.top + top, height };
        self.svg.group("grid", None);
        let (left, bottom) = (panel.left(), panel.top + height);
        let right = left + panel.width();
        for (fine, pen) in [(true, FINE), (false, GRID)] {
            let across = panel.y.ticks.iter().filter(|t| t.label.is_empty() == fine).map(|t| panel.at_y(t.at));
            let across = across.map(|y| path([(left, y), (right, y)]));
            let up = panel.x.ticks.iter().filter(|t| t.label.is_empty() == fine).map(|t| panel.at_x(t.at));
            let up = up.map(|x| path([(x, panel.top), (x, bottom)]));
            let lines: String = up.chain(across).collect();
            if !lines.is_empty() {
                self.svg.path(&lines, pen);
            }
        }
        self.svg.close();
        self.svg.group("axis y", None);
        let mut before = f64::INFINITY;
        for t in panel.y.ticks.iter().filter(|t| !t.label.is_empty()) {
            let y = panel.at_y(t.at);
            if before - y >= 14.0 {
                self.svg.text((left - 7.0, y + 4.0), 12.0, Anchor::End, &t.label);
                before = y;
            }
        }
        let first = self.x.is_none();
        match self.frame.is_phone() {
            _ if label.is_empty() => {}
            true if first => self.svg.text((4.0, 14.0), 13.0, Anchor::Start, label),
            true => {}
            false => {
                let x = if self.frame.is_file() { 18.0 } else { 12.0 };
                self.svg.upright((x, panel.top + height / 2.0), 13.0, label);
            }
        }
        self.svg.close();
        self.svg.frame((left, panel.top), (panel.width(), height));
        self.x = Some(panel.x.clone());
        panel
    }

    /// A line for each series, beside the panel. `note` is written below the name.
    pub fn legend(&mut self, panel: &Panel, series: &[(Look, &str, String)]) {
        if !self.frame.is_file() {
            let entry = |(look, name, note): &(Look, &str, String)| Entry {
                number: Some(look.number),
                name: (*name).into(),
                note: note.clone(),
            };
            self.legend.extend(series.iter().map(entry));
            return;
        }
        self.svg.group("legend", None);
        for (i, (look, name, note)) in series.iter().enumerate() {
            let y = panel.top + 12.0 + 34.0 * i as f64;
            let x = self.frame.width - self.frame.right + 12.0;
            self.svg.group("entry", Some(name));
            self.svg.line((x, y), (x + 34.0, y), look.pen());
            self.svg.marker(look.number, (x + 17.0, y), 4.0, look.colour());
            self.svg.text((x + 42.0, y + 4.0), 12.0, Anchor::Start, &cut(name, 26));
            self.svg.text((x + 42.0, y + 18.0), 10.0, Anchor::Start, &cut(note, 38));
            self.svg.close();
        }
        self.svg.close();
    }

    /// Describes the thin grey lines, if the legend is not drawn.
    pub fn others(&mut self, name: String) {
        self.legend.push(Entry { number: None, name, note: String::new() });
    }

    /// With the labels of x.
    pub fn finish(mut self, label: &str) -> Drawing {
        let Frame { width, left, right, bottom: room, .. } = self.frame;
        let bottom = self.height - room;
        let width = width - left - right;
        self.svg.group("axis x", None);
        let mut before = f64::NEG_INFINITY;
        for t in self.x.iter().flat_map(|x| x.ticks.iter().map(|t| (left + x.part(t.at) * width, &t.label))) {
            let half = 3.4 * t.1.len() as f64;
            if !t.1.is_empty() && t.0 - half > before + 6.0 {
                self.svg.text((t.0, bottom + 17.0), 12.0, Anchor::Middle, t.1);
                before = t.0 + half;
            }
        }
        if self.frame.is_phone() {
            let whole = self.frame.width;
            for (n, line) in lines(label, (whole / LETTER) as usize).iter().enumerate() {
                self.svg.text((whole / 2.0, bottom + 36.0 + 16.0 * n as f64), 13.0, Anchor::Middle, line);
            }
        } else {
            self.svg.text((left + width / 2.0, bottom + 40.0), 13.0, Anchor::Middle, label);
        }
        self.svg.close();
        Drawing { svg: self.svg.finish(), legend: self.legend }
    }
}

impl Panel {
    pub fn width(&self) -> f64 {
        self.frame.width - self.frame.left - self.frame.right
    }

    pub fn left(&self) -> f64 {
        self.frame.left
    }

    pub fn top(&self) -> f64 {
        self.top
    }

    pub fn height(&self) -> f64 {
        self.height
    }

    pub fn at_x(&self, v: f64) -> f64 {
        self.frame.left + self.x.part(v).clamp(0.0, 1.0) * self.width()
    }

    pub fn at_y(&self, v: f64) -> f64 {
        self.top + (1.0 - self.y.part(v).clamp(0.0, 1.0)) * self.height
    }

    pub fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.at_x(x), self.at_y(y))
    }
}

/// Broken between words, into lines of at most this many characters.
fn lines(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// At most this many characters.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}
