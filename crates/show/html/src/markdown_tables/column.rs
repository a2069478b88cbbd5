//! One column of a marker: `[SELECTOR:]FIGURE`, or a key.

use crate::markdown_tables::words::{Show, Unit};
use experiment::Observe;
use statistics::{Figure, Percentile};

/// What a column shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// The values of these keys.
    Label(Vec<String>),
    Figure {
        of: Vec<Term>,
        figure: Shown,
    },
    /// A figure of the rows' fields.
    Over {
        of: Vec<Term>,
        over: Over,
    },
}

/// A number for several rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Over {
    pub how: How,
    pub path: String,
    /// Each row's field is divided by this one of it.
    pub by: Option<String>,
    /// The number is divided by it.
    pub scale: f64,
    pub show: Show,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Median,
    Min,
    Max,
    Sum,
    /// How many rows have the field.
    Count,
}

/// Units of numbers that are no times.
const SCALES: [(&str, f64); 7] =
    [("k", 1e3), ("M", 1e6), ("G", 1e9), ("Ki", 1024.0), ("Mi", 1048576.0), ("percent", 0.01), ("one", 1.0)];

/// What a cell must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub key: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub what: What,
    /// What the cell observes, if none is given.
    pub part: Option<Observe>,
    pub unit: Option<Unit>,
    pub show: Show,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Samples,
    Rounds,
    /// Samples that were cut short.
    Capped,
    /// Of all samples.
    Time(Figure),
    /// Samples that took longer than this many nanoseconds.
    Above(u64),
    /// Samples a second.
    Rate,
    Bandwidth,
    /// Times the baseline.
    Ratio(Figure),
    /// Figures of the stage's load.
    LoadRate,
    LoadLongest,
    LoadThreads,
    /// What at least half of the calls did not exceed (the median).
    Commands(&'static str),
}

pub const FIGURES: &str = "samples, rounds, capped, min, mean, p50, p90, p99, p99.9, p99.99, max, above(TIME), rate, GB/s, ratio, \
     load.rate, load.longest, load.threads, commands.doorbells, commands.entries, commands.pushbuffer_bytes, commands.inline_bytes, \
     commands.locks";

const PERCENTILES: [Percentile; 5] =
    [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999];

/// Texts between commas that neither brackets nor single quotes hold.
pub fn split(text: &str, at: char) -> Vec<&str> {
    let (mut all, mut depth, mut quoted, mut from) = (Vec::new(), 0i32, false, 0);
    for (i, c) in text.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            c if c == at && depth <= 0 => {
                all.push(text[from..i].trim());
                from = i + c.len_utf8();
            }
            _ => {}
        }
    }
    all.push(text[from..].trim());
    all
}

/// Without the single quotes around it.
pub fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(text)
}

impl Column {
    /// `is_key` says whether the data has such a key.
    pub fn parse(text: &str, is_key: impl Fn(&str) -> bool) -> Result<Column, String> {
        let keys: Vec<&str> = split(text, '&');
        if keys.iter().all(|key| is_key(key)) {
            return Ok(Column::Label(keys.into_iter().map(str::to_owned).collect()));
        }
        let (of, figure) = match text.rsplit_once(':') {
            Some((of, figure)) => (split(of, '&'), figure.trim()),
            None => (Vec::new(), text),
        };
        let term = |term: &str| match term.split_once('=').filter(|(key, _)| is_key(key)) {
            Some((key, value)) => Term { key: key.to_owned(), value: unquoted(value).to_owned() },
            None => Term { key: "subject".into(), value: unquoted(term).to_owned() },
        };
        if let Some(over) = Over::parse(figure)? {
            if let Some(path) = [Some(&over.path), over.by.as_ref()].into_iter().flatten().find(|path| !is_key(path)) {
                return Err(format!("{text:?}: the rows have no field {path}"));
            }
            return Ok(Column::Over { of: of.into_iter().map(term).collect(), over });
        }
        let figure = Shown::parse(figure).ok_or_else(|| {
            let words: Vec<&str> = Unit::ALL.iter().map(|(name, _)| *name).collect();
            format!(
                "{text:?} is no column: it is a key of the data, or [SUBJECT:][done.|submit.|engine.]FIGURE[.UNIT][.interval|.both] \
                 with a figure of {FIGURES}, and a unit of {}",
                words.join(", ")
            )
        })?;
        Ok(Column::Figure { of: of.into_iter().map(term).collect(), figure })
    }
}

impl Over {
    /// `median(PATH)` or `median(PATH/PATH)`, with `.G` or another scale, and `.interval` or `.both`.
    fn parse(text: &str) -> Result<Option<Over>, String> {
        let Some((how, rest)) = text.split_once('(') else { return Ok(None) };
        let how = match how {
            "median" => How::Median,
            "min" => How::Min,
            "max" => How::Max,
            "sum" => How::Sum,
            "count" => How::Count,
            _ => return Ok(None),
        };
        let wrong = || {
            let scales: Vec<&str> = SCALES.iter().map(|(name, _)| *name).collect();
            let scales = scales.join(", ");
            format!(
                "{text:?} is no number of rows: write median(FIELD) or median(FIELD/FIELD), then .SCALE ({scales}), .interval or .both"
            )
        };
        let (paths, rest) = rest.split_once(')').ok_or_else(wrong)?;
        let (path, by) = match paths.split_once('/') {
            Some((path, by)) => (path, Some(by.trim().to_owned())),
            None => (paths, None),
        };
        let mut over = Over { how, path: path.trim().to_owned(), by, scale: 1.0, show: Show::Value };
        for word in rest.split('.').skip(1) {
            match (word, SCALES.iter().find(|(name, _)| *name == word)) {
                (_, Some((_, scale))) => over.scale = *scale,
                ("interval", _) => over.show = Show::Interval,
                ("both", _) => over.show = Show::Both,
                _ => return Err(wrong()),
            }
        }
        if !(rest.is_empty() || rest.starts_with('.')) {
            return Err(wrong());
        }
        Ok(Some(over))
    }
}

impl Shown {
    fn parse(text: &str) -> Option<Shown> {
        let mut words = Vec::new();
        for word in split(text, '.') {
            match words.last_mut() {
                // p99.9 is one word.
                Some(last) if *last == "p99" && matches!(word, "9" | "99") => {
                    *last = if word == "9" { "p99.9" } else { "p99.99" };
                }
                _ => words.push(word),
            }
        }
        let mut words = words.into_iter().peekable();
        let part = match *words.peek()? {
            "done" => Some(Observe::Done),
            "submit" => Some(Observe::Submit),
            "engine" => Some(Observe::Engine),
            _ => None,
        };
        if part.is_some() {
            words.next();
        }
        let what = match words.next()? {
            "samples" => What::Samples,
            "rounds" => What::Rounds,
            "capped" => What::Capped,
            "rate" => What::Rate,
            "GB/s" => What::Bandwidth,
            "ratio" => match words.peek().and_then(|word| time(word)) {
                Some(figure) => {
                    words.next();
                    What::Ratio(figure)
                }
                None => What::Ratio(Figure::P50),
            },
            "commands" => {
                let name = words.next()?;
                What::Commands(run_folder::data_file::COMMANDS.iter().find(|known| **known == name)?)
            }
            "load" => match words.next()? {
                "rate" => What::LoadRate,
                "longest" => What::LoadLongest,
                "threads" => What::LoadThreads,
                _ => return None,
            },
            word => match word.strip_prefix("above(").and_then(|rest| rest.strip_suffix(')')) {
                Some(ns) => What::Above(experiment::time_ns(ns).ok()?),
                None => What::Time(time(word)?),
            },
        };
        let mut shown = Shown { what, part, unit: None, show: Show::Value };
        for word in words {
            match (word, Unit::parse(word)) {
                ("interval", _) if shown.show == Show::Value => shown.show = Show::Interval,
                ("both", _) if shown.show == Show::Value => shown.show = Show::Both,
                (_, Some(unit)) if shown.unit.is_none() => shown.unit = Some(unit),
                _ => return None,
            }
        }
        Some(shown)
    }

    /// Whether all cells of a stage have the same.
    pub fn is_of_load(&self) -> bool {
        matches!(self.what, What::LoadRate | What::LoadLongest | What::LoadThreads)
    }

    /// Whether it is a time, which has a unit.
    pub fn is_time(&self) -> bool {
        matches!(self.what, What::Time(_) | What::LoadLongest)
    }
}

fn time(word: &str) -> Option<Figure> {
    match word {
        "min" => Some(Figure::Min),
        "mean" => Some(Figure::Mean),
        "max" => Some(Figure::Max),
        _ => PERCENTILES.iter().find(|p| p.to_string() == word).map(|p| Figure::Percentile(*p)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Column, String> {
        Column::parse(text, |key| ["subject", "bytes", "neighbour.what"].contains(&key))
    }

    #[test]
    fn columns_name_cells_and_figures() {
        let term = |key: &str, value: &str| Term { key: key.into(), value: value.into() };
        let figure = |what, unit, show| Shown { what, part: None, unit, show };
        assert_eq!(parse("bytes&neighbour.what"), Ok(Column::Label(vec!["bytes".into(), "neighbour.what".into()])));
        let p999 = What::Time(Figure::P999);
        assert_eq!(
            parse("graph(1,ours)&bytes=4KiB:p99.9.ms.both"),
            Ok(Column::Figure {
                of: vec![term("subject", "graph(1,ours)"), term("bytes", "4KiB")],
                figure: figure(p999, Some(Unit::Ms), Show::Both),
            })
        );
        let Ok(Column::Figure { figure, .. }) = parse("submit.ratio.p99.interval") else { panic!() };
        assert_eq!((figure.part, figure.what), (Some(Observe::Submit), What::Ratio(Figure::P99)));
        let Ok(Column::Figure { figure, .. }) = parse("above(2.5us)") else { panic!() };
        assert_eq!(figure.what, What::Above(2500));
        for wrong in ["p98", "p50.us.ms", "p50.both.interval", "x:", "load.p50", "above(x)", "done", ""] {
            assert!(parse(wrong).unwrap_err().contains("is no column"), "{wrong}");
        }
        assert_eq!(split("a(1,2),b[x,y],c,'d,e'", ','), ["a(1,2)", "b[x,y]", "c", "'d,e'"]);
        assert_eq!((unquoted("'d,e'"), unquoted("'d"), unquoted("d")), ("d,e", "'d", "d"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z0-9.:&=,()]{0,30}|.{0,20}") {
            let _ = parse(&text);
            let _ = split(&text, ',');
        }
    }
}
