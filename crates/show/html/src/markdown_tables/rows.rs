//! The rows of one table.

use crate::markdown_tables::column::{Column, FIGURES, How, Over, Shown, Term, What, split, unquoted};
use crate::markdown_tables::data::{At, Data, plain};
use crate::markdown_tables::marker::Marker;
use crate::markdown_tables::words::{self, Unit};
use terminal::number;
use terminal::run::three_digits;

/// Words of a marker that are no keys of the data.
const WORDS: [&str; 6] = ["data", "crc32", "rows", "columns", "unit", "against"];

/// The request of a marker.
pub struct Table<'a> {
    data: &'a Data,
    names: &'a [(String, String)],
    rows: Vec<String>,
    columns: Vec<(String, Column)>,
    filters: Vec<(String, Vec<String>)>,
    unit: Unit,
    against: Option<String>,
}

impl<'a> Table<'a> {
    pub fn new(marker: &Marker, data: &'a Data, names: &'a [(String, String)]) -> Result<Table<'a>, String> {
        let needed =
            |key: &str| marker.get(key).ok_or_else(|| format!("{key}= is missing; a table has {}", WORDS.join(", ")));
        let is_key = |key: &str| data.is_key(key);
        let rows = split(needed("rows")?, ',');
        if let Some(wrong) = rows.iter().find(|key| !is_key(key)) {
            return Err(format!("rows={wrong}: no such key; the keys are {}", data.keys().join(", ")));
        }
        let columns = split(needed("columns")?, ',');
        let columns = columns.into_iter().map(|text| Ok((text.to_owned(), Column::parse(text, is_key)?)));
        let mut filters = Vec::new();
        for (key, value) in marker.pairs.iter().filter(|(key, _)| !WORDS.contains(&key.as_str())) {
            if !is_key(key) {
                let keys = data.keys().join(", ");
                return Err(format!(
                    "{key}= is no word of a table ({}), and no key of the data ({keys})",
                    WORDS.join(", ")
                ));
            }
            let wanted: Vec<String> = split(value, '|').into_iter().map(|value| unquoted(value).to_owned()).collect();
            known(data, key, &wanted)?;
            filters.push((key.clone(), wanted));
        }
        let unit = match marker.get("unit") {
            None => Unit::default(),
            Some(text) => Unit::parse(text).ok_or_else(|| {
                let all: Vec<&str> = Unit::ALL.iter().map(|(name, _)| *name).collect();
                format!("unit={text}: use one of {}", all.join(", "))
            })?,
        };
        let table = Table {
            data,
            names,
            rows: rows.into_iter().map(str::to_owned).collect(),
            columns: columns.collect::<Result<_, String>>()?,
            filters,
            unit,
            against: marker.get("against").map(str::to_owned),
        };
        if let Some((text, _)) = table.columns.iter().find(|(_, column)| match column {
            Column::Figure { .. } => data.is_rows(),
            Column::Over { .. } => !data.is_rows(),
            Column::Label(_) => false,
        }) {
            let of = if data.is_rows() { "median(FIELD), min, max, sum or count of its fields" } else { FIGURES };
            return Err(format!("column {text}: this data file has {of}"));
        }
        for term in table.columns.iter().flat_map(|(_, column)| match column {
            Column::Figure { of, .. } | Column::Over { of, .. } => of.as_slice(),
            Column::Label(_) => &[],
        }) {
            known(data, &term.key, std::slice::from_ref(&term.value))?;
        }
        Ok(table)
    }

    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Heads if the page has none: the columns as the marker names them.
    pub fn heads(&self) -> Vec<String> {
        let head = |(text, column): &(String, Column)| match column {
            Column::Figure { figure, .. } if figure.is_time() => {
                let unit = figure.unit.unwrap_or(self.unit);
                match Unit::ALL.iter().find(|(_, u)| *u == unit && *u != Unit::Auto) {
                    Some((name, _)) => format!("{}, {name}", text.replace(':', " ")),
                    None => text.replace(':', " "),
                }
            }
            _ => text.replace(':', " "),
        };
        self.columns.iter().map(head).collect()
    }

    /// `--:` for numbers, which are aligned to the right.
    pub fn alignments(&self) -> Vec<&'static str> {
        let one = |(_, column): &(String, Column)| if matches!(column, Column::Label(_)) { "---" } else { "--:" };
        self.columns.iter().map(one).collect()
    }

    pub fn cells(&self) -> Result<Vec<Vec<String>>, String> {
        let is_asked = |at: &At| self.filters.iter().all(|(key, wanted)| wanted.contains(&self.data.value(*at, key)));
        let mut groups: Vec<(Vec<String>, Vec<At>)> = Vec::new();
        for at in self.data.cells().filter(is_asked) {
            let row: Vec<String> = self.rows.iter().map(|key| self.data.value(at, key)).collect();
            match groups.iter_mut().find(|(known, _)| *known == row) {
                Some((_, cells)) => cells.push(at),
                None => groups.push((row, vec![at])),
            }
        }
        // By the keys in their order; for each key, its values in the order of the file.
        let orders: Vec<Vec<String>> = self.rows.iter().map(|key| self.data.values(key)).collect();
        let place = |row: &[String]| -> Vec<Option<usize>> {
            row.iter().zip(&orders).map(|(value, order)| order.iter().position(|known| known == value)).collect()
        };
        groups.sort_by_cached_key(|(row, _)| place(row));
        if groups.is_empty() {
            return Err("no cell of the data matches all that this marker asks for".into());
        }
        let row = |(row, cells): &(Vec<String>, Vec<At>)| {
            let one = |(text, column): &(String, Column)| {
                self.one(column, cells).map_err(|what| format!("column {text}, row {}: {what}", row.join(" ")))
            };
            self.columns.iter().map(one).collect()
        };
        groups.iter().map(row).collect()
    }

    fn one(&self, column: &Column, cells: &[At]) -> Result<String, String> {
        match column {
            Column::Label(keys) => {
                let mut texts: Vec<Vec<(&str, String)>> = Vec::new();
                for at in cells {
                    let text = keys.iter().map(|key| (key.as_str(), self.data.value(*at, key))).collect();
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                match texts.as_slice() {
                    [one] => Ok(self.label(one)),
                    _ => Err("its cells differ in it: add it to rows=".into()),
                }
            }
            Column::Over { of, over } => {
                let is_it = |at: &&At| of.iter().all(|Term { key, value }| self.data.value(**at, key) == *value);
                Ok(self.over(over, cells.iter().filter(is_it)))
            }
            Column::Figure { of, figure } => {
                let is_it = |at: &&At| of.iter().all(|Term { key, value }| self.data.value(**at, key) == *value);
                let mut those = cells.iter().filter(is_it);
                let Some(at) = those.next() else { return Ok(words::NONE.into()) };
                // A load is the stage's.
                let another = those.find(|other| !figure.is_of_load() || other.stage != at.stage);
                if let Some(other) = another {
                    let differs =
                        self.data.keys().iter().filter(|key| self.data.value(*at, key) != self.data.value(*other, key));
                    let differs: Vec<&str> = differs.map(String::as_str).collect();
                    return Err(format!(
                        "several cells, which differ in {}: add one of these to rows=, write KEY=VALUE as a filter, or SUBJECT: in \
                         the column",
                        differs.join(", ")
                    ));
                }
                self.figure(*at, figure)
            }
        }
    }

    /// As the page names it: all keys together, one key with its value, or the value.
    fn label(&self, values: &[(&str, String)]) -> String {
        let name = |text: &str| self.names.iter().find(|(known, _)| known == text).map(|(_, name)| name.clone());
        let pairs: Vec<String> = values.iter().map(|(key, value)| format!("{key}={value}")).collect();
        name(&pairs.join("&")).unwrap_or_else(|| {
            let one = |((_, value), pair): (&(&str, String), &String)| {
                name(pair).or_else(|| name(value)).unwrap_or_else(|| value.clone())
            };
            values.iter().zip(&pairs).map(one).collect::<Vec<_>>().join(", ")
        })
    }

    /// Rows are repeats: so is the interval of a median.
    fn over<'c>(&self, over: &Over, cells: impl Iterator<Item = &'c At>) -> String {
        let one = |at: &At| {
            let number = self.data.number(*at, &over.path)?;
            Some(match &over.by {
                Some(by) => number / self.data.number(*at, by).filter(|n| *n != 0.0)?,
                None => number,
            })
        };
        let mut all: Vec<f64> = cells.filter_map(one).collect();
        all.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (all.first().copied(), all.last().copied()) else { return words::NONE.into() };
        let value = match over.how {
            How::Median => statistics::median(&mut all).unwrap_or(low),
            How::Min => low,
            How::Max => high,
            How::Sum => all.iter().sum(),
            How::Count => all.len() as f64,
        };
        let interval =
            statistics::median_over_processes(&all, statistics::CONFIDENCE).and_then(|(_, interval)| interval);
        let interval = interval.filter(|_| over.how == How::Median);
        // What was counted has no digits after the point.
        let counts = over.by.is_none() && over.scale == 1.0 && all.iter().all(|v| *v >= 0.0 && v.fract() == 0.0);
        words::value(Some(run_folder::data_file::Value { value, interval, at_least: false }), over.show, |v| match v {
            v if (counts || over.how == How::Count) && v >= 0.0 && v.fract() == 0.0 => number::count(v as u64),
            v => words::rate(v / over.scale),
        })
    }

    /// The median of all calls.
    fn commands(&self, at: At, name: &str) -> Result<String, String> {
        let Some(text) = self.data.cell(at).commands.get(name) else { return Ok(words::NONE.into()) };
        let values = run_folder::data_file::series::values_of(text).map_err(|e| format!("commands.{name}: {e}"))?;
        let median = statistics::Figure::P50.of(&values);
        Ok(median.map_or(words::NONE.into(), |v| number::count(v as u64)))
    }

    fn figure(&self, at: At, shown: &Shown) -> Result<String, String> {
        let unit = shown.unit.unwrap_or(self.unit);
        let time = |ns: f64| unit.time(ns);
        let of_load =
            |f: &dyn Fn(&run_folder::data_file::Load) -> String| Ok(self.data.load(at).map_or(words::NONE.into(), f));
        match shown.what {
            What::LoadRate => return of_load(&|l| words::rate(l.transfers as f64 / l.seconds)),
            What::LoadLongest => return of_load(&|l| time(l.longest_ns as f64)),
            What::LoadThreads => return of_load(&|l| l.threads.to_string()),
            What::Commands(name) => return self.commands(at, name),
            _ => {}
        }
        let Some(measured) = self.data.measured(at, shown.part)? else { return Ok(words::NONE.into()) };
        let (value, number): (_, Box<dyn Fn(f64) -> String>) = match shown.what {
            What::Samples => return Ok(number::count(measured.samples())),
            What::Rounds => return Ok(number::count(measured.rounds())),
            What::Capped => return Ok(number::count(measured.capped)),
            What::Above(ns) => return Ok(number::count(measured.above(ns))),
            What::Time(figure) => (measured.figure(figure), Box::new(time)),
            What::Rate => (measured.rate(), Box::new(words::rate)),
            What::Bandwidth => {
                let bytes = self.data.cell(at).bytes;
                if bytes == 0 {
                    return Err("it moves no bytes".into());
                }
                (measured.rate(), Box::new(move |rate| three_digits(rate * bytes as f64 / 1e9)))
            }
            What::Ratio(figure) => {
                let Some(baseline) = self.data.baseline(at, self.against.as_deref())? else {
                    return Ok(words::NONE.into());
                };
                if baseline == at {
                    (Some(plain(1.0)), Box::new(|_| "1".into()))
                } else {
                    let baseline = self.data.measured(baseline, shown.part)?;
                    (baseline.and_then(|b| measured.ratio(&b, figure)), Box::new(three_digits))
                }
            }
            What::LoadRate | What::LoadLongest | What::LoadThreads | What::Commands(_) => {
                return Err(format!("use one of {FIGURES}"));
            }
        };
        Ok(words::value(value, shown.show, number))
    }
}

/// Each of these is a value of the key.
fn known(data: &Data, key: &str, wanted: &[String]) -> Result<(), String> {
    let values = data.values(key);
    match wanted.iter().find(|value| !values.contains(value)) {
        Some(value) => Err(format!("{key} is never {value:?} in the data; its values are {}", values.join(", "))),
        None => Ok(()),
    }
}
