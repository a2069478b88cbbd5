//! An SVG file, written element by element. Text is escaped, and coordinates have one decimal.

use crate::plot::colours::{class, dashes};
use std::fmt::Write;

/// Where lines and areas get their colours from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Each element has its own colours, because the file is separate.
    Own,
    /// The style sheet of the page sets the colours of classes; this class is the picture's.
    Classes(&'static str),
}

/// Classes of pictures in a page: for a wide screen, and for a narrow one.
pub const BROAD: &str = "broad";
pub const NARROW: &str = "narrow";

pub struct Svg {
    ink: Ink,
    text: String,
    open: Vec<&'static str>,
}

/// Where a text begins, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub struct Pen {
    pub colour: &'static str,
    pub width: f64,
    /// As `stroke-dasharray`; empty: solid.
    pub dash: &'static str,
}

pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to write these.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// `M x y L x y ..`, each point to a tenth.
pub fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut d = String::new();
    for (x, y) in points {
        let _ = write!(d, "{}{x:.1} {y:.1}", if d.is_empty() { "M" } else { "L" });
    }
    d
}

impl Svg {
    /// `about` is read to those who do not see it.
    pub fn new((width, height): (f64, f64), ink: Ink, title: &str, about: &str) -> Svg {
        let mut svg = Svg { ink, text: String::new(), open: Vec::new() };
        let (title, about) = (escaped(title), escaped(about));
        let _ = match ink {
            Ink::Own => write!(
                svg.text,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
                 viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"Helvetica, Arial, sans-serif\">\n\
                 <title>{title}</title>\n<desc>{about}</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            ),
            Ink::Classes(class) => {
                writeln!(
                    svg.text,
                    "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}. {about}\">"
                )
            }
        };
        svg
    }

    /// A small picture in a page, which only repeats the text next to it.
    pub fn bare(width: f64, height: f64) -> Svg {
        let text = format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" aria-hidden=\"true\">"
        );
        Svg { ink: Ink::Classes(BROAD), text, open: Vec::new() }
    }

    /// Opens a group until [`Svg::close`]. `class` is its kind; `title` is shown under a pointer.
    pub fn group(&mut self, class: &str, title: Option<&str>) {
        let _ = writeln!(self.text, "<g class=\"{}\">", escaped(class));
        if let Some(title) = title {
            let _ = writeln!(self.text, "<title>{}</title>", escaped(title));
        }
        self.open.push("g");
    }

    pub fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            let _ = writeln!(self.text, "</{name}>");
        }
    }

    pub fn text(&mut self, (x, y): (f64, f64), size: f64, anchor: Anchor, text: &str) {
        self.styled((x, y), size, anchor, "#222", "", text);
    }

    pub fn bold(&mut self, (x, y): (f64, f64), size: f64, text: &str) {
        self.styled((x, y), size, Anchor::Start, "#000", " font-weight=\"bold\"", text);
    }

    /// From the bottom to the top.
    pub fn upright(&mut self, (x, y): (f64, f64), size: f64, text: &str) {
        let turned = format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"");
        self.styled((x, y), size, Anchor::Middle, "#222", &turned, text);
    }

    fn styled(&mut self, (x, y): (f64, f64), size: f64, anchor: Anchor, colour: &str, more: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        if self.ink != Ink::Own {
            let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
            let _ = writeln!(self.text, "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}{more}>{}</text>", escaped(text));
            return;
        }
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\"{more}>{}</text>",
            escaped(text)
        );
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), pen: Pen) {
        self.path(&path([from, to]), pen);
    }

    pub fn path(&mut self, d: &str, pen: Pen) {
        if self.ink != Ink::Own {
            let dash = dashes(pen.dash).map_or(String::new(), |n| format!(" d{n}"));
            let width = match pen.width {
                w if w < 1.5 => " thin",
                w if w > 2.2 => " strong",
                _ => "",
            };
            let class = format!("l {}{dash}{width}", class(pen.colour));
            let _ = writeln!(self.text, "<path class=\"{class}\" d=\"{d}\"/>");
            return;
        }
        let dash = if pen.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", pen.dash) };
        let _ = writeln!(
            self.text,
            "<path d=\"{d}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{dash} stroke-linejoin=\"round\"/>",
            pen.colour, pen.width
        );
    }

    pub fn area(&mut self, points: impl IntoIterator<Item = (f64, f64)>, colour: &str, opacity: f64) {
        let d = path(points);
        if self.ink != Ink::Own {
            let weight = if opacity > 0.5 { " full" } else { "" };
            let _ = writeln!(self.text, "<path class=\"a {}{weight}\" d=\"{d}Z\"/>", class(colour));
            return;
        }
        let _ = writeln!(self.text, "<path d=\"{d}Z\" fill=\"{colour}\" fill-opacity=\"{opacity}\" stroke=\"none\"/>");
    }

    pub fn frame(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let look = if self.ink != Ink::Own { "class=\"frame\"" } else { "fill=\"none\" stroke=\"#444\"" };
        let _ =
            writeln!(self.text, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {look}/>");
    }

    /// A different shape for each of the first six numbers.
    pub fn marker(&mut self, number: usize, (x, y): (f64, f64), r: f64, colour: &'static str) {
        let shape = match number % 6 {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" "),
            1 => polygon(&[(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]),
            2 => polygon(&[(x, y - 1.2 * r), (x + 1.1 * r, y + r), (x - 1.1 * r, y + r)]),
            3 => polygon(&[(x, y - 1.3 * r), (x + 1.3 * r, y), (x, y + 1.3 * r), (x - 1.3 * r, y)]),
            4 => polygon(&[(x, y + 1.2 * r), (x + 1.1 * r, y - r), (x - 1.1 * r, y - r)]),
            _ => {
                let d = path([(x - r, y - r), (x + r, y + r)]) + &path([(x - r, y + r), (x + r, y - r)]);
                return self.path(&d, Pen { colour, width: 2.0, dash: "" });
            }
        };
        if self.ink != Ink::Own {
            let _ = writeln!(self.text, "{shape}class=\"m {}\"/>", class(colour));
            return;
        }
        let _ = writeln!(self.text, "{shape}fill=\"white\" stroke=\"{colour}\" stroke-width=\"1.8\"/>");
    }

    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text.push_str("</svg>\n");
        self.text
    }
}

fn polygon(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polygon points=\"{}\" ", points.join(" "))
}
