//! A profile as a TOML file: written whole, read strictly.

use crate::route_choice::facts::{Facts, Stale};
use crate::route_choice::model::{Direction, Figure, Key, Metric, Places, Plan, Point, Profile, Range, Undecided};
use serde::Deserialize;
use settings::{Error, Lines, sizes};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Version of the format. Other versions are refused.
pub const VERSION: i64 = 1;
/// Maximum size: a calibration never writes larger files.
const MOST_BYTES: u64 = 16 << 20;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: std::io::Error },
    #[error(transparent)]
    Text(#[from] Error),
}

/// Why a profile is not used.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}: it was taken on the software GPU, whose times are none of a real one")]
    Functional(PathBuf),
    #[error("{path}: {stale}")]
    Stale { path: PathBuf, stale: Stale },
}

impl Refused {
    /// Advice: a command to run.
    pub const HINT: &str = "`doorbell calibrate` measures this machine and writes a new profile";
}

impl Profile {
    /// Reads a file for use on the machine with these facts.
    ///
    /// # Errors
    /// Errors of the file, or the facts that have changed since it was written.
    pub fn load_for(path: &Path, now: &Facts) -> Result<Profile, Refused> {
        let profile = Profile::load(path)?;
        if profile.functional && !now.is_soft() {
            return Err(Refused::Functional(path.into()));
        }
        let stale = |stale| Refused::Stale { path: path.into(), stale };
        profile.facts.still(now).map_err(stale)?;
        Ok(profile)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The error, its line, and a valid form.
    pub fn load(path: &Path) -> Result<Profile, LoadError> {
        let io = |cause| LoadError::Io { path: path.into(), cause };
        let length = std::fs::metadata(path).map_err(io)?.len();
        if length > MOST_BYTES {
            return Err(io(std::io::Error::other("it is too large to be a profile")));
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        Ok(Profile::parse(&text, &path.to_string_lossy())?)
    }

    /// Writes the whole file, and replaces an older one.
    ///
    /// # Errors
    /// If an error is returned, the old file is unchanged.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        output::replace(path, |file| file.write_all(self.to_toml().as_bytes()))
    }

    /// Reads a text; `origin` is its name in errors.
    ///
    /// # Errors
    /// The error, its line, and a valid form.
    pub fn parse(text: &str, origin: &str) -> Result<Profile, Error> {
        let text = Text { text, origin };
        let head: Head = text.toml()?;
        match head.version {
            Some(version) if *version.get_ref() == VERSION => {}
            Some(version) => {
                let what = format!("version {} of the format", version.get_ref());
                return Err(text.wrong(
                    version.span().start,
                    what,
                    format!("this doorbell reads version {VERSION}; {AGAIN}"),
                ));
            }
            None => return Err(text.wrong(0, "it has no `version`, so it is no profile".into(), AGAIN.into())),
        }
        let file: File = text.toml()?;
        let plans = file.plan.iter().map(|plan| text.plan(plan)).collect::<Result<Vec<_>, _>>()?;
        for (n, plan) in plans.iter().enumerate() {
            if plans[..n].iter().any(|other| other.key == plan.key) {
                let at = file.plan[n].direction.span().start;
                return Err(text.wrong(at, format!("a second plan for {}", plan.key), "one for each".into()));
            }
        }
        if let Some(odd) = [&file.facts.doorbell, &file.facts.gpu, &file.facts.driver, &file.taken]
            .into_iter()
            .find(|value| value.get_ref().is_empty())
        {
            return Err(text.wrong(
                odd.span().start,
                "an empty text".into(),
                "`not known` stands for what is not".into(),
            ));
        }
        let FactsText { doorbell, gpu, uuid, driver, cpu, nodes, kernel } = file.facts;
        let [doorbell, gpu, uuid, driver, cpu, nodes, kernel] =
            [doorbell, gpu, uuid, driver, cpu, nodes, kernel].map(Spanned::into_inner);
        let facts = Facts { doorbell, gpu, uuid, driver, cpu, nodes, kernel };
        Ok(Profile { functional: file.functional, taken: file.taken.into_inner(), facts, plans })
    }

    /// A text that is read back as the same profile.
    pub fn to_toml(&self) -> String {
        let mut out = String::from(
            "# Which route is the best for which size on this machine. `doorbell calibrate` writes it,\n\
             # `doorbell calibrate --explain` says what it holds. Times are ns; intervals (low, high) are 95 %.\n",
        );
        let _ = writeln!(out, "version = {VERSION}");
        if self.functional {
            out.push_str("# Taken on the software GPU: no time in it is a speed.\n");
        }
        let _ = writeln!(out, "functional = {}\ntaken = {}\n\n[facts]", self.functional, quoted(&self.taken));
        for (name, value) in self.facts.each() {
            let _ = writeln!(out, "{name} = {}", quoted(value));
        }
        self.plans.iter().for_each(|plan| plan.write(&mut out));
        out
    }
}

impl Plan {
    fn write(&self, out: &mut String) {
        let Key { direction, memory, places, batch, metric, load } = &self.key;
        let _ = writeln!(out, "\n[[plan]]\ndirection = \"{direction}\"\nmemory = {}\nbatch = {batch}", quoted(memory));
        if *places != Places::Same {
            let _ = writeln!(out, "places = \"{places}\"");
        }
        let _ = writeln!(out, "metric = \"{metric}\"\nload = {}\nranges = [", quoted(load));
        for Range { from, to, route, by } in &self.ranges {
            let to = to.map_or_else(String::new, |to| format!("to = \"{}\", ", sizes::text(to)));
            let (from, route) = (sizes::text(*from), quoted(route));
            let _ = writeln!(out, "  {{ from = \"{from}\", {to}route = {route}, by = \"{by}\" }},");
        }
        out.push_str("]\npoints = [\n");
        for Point { bytes, figures } in &self.points {
            let _ = writeln!(out, "  {{ bytes = \"{}\", figures = [", sizes::text(*bytes));
            for Figure { route, ns, interval, samples } in figures {
                let interval = interval.map_or_else(String::new, |(low, high)| format!("low = {low}, high = {high}, "));
                let _ = writeln!(out, "    {{ route = {}, ns = {ns}, {interval}samples = {samples} }},", quoted(route));
            }
            out.push_str("  ] },\n");
        }
        out.push_str("]\nundecided = [");
        let one = |u: &Undecided| {
            let Undecided { bytes, samples, needs } = u;
            format!("\n  {{ bytes = \"{}\", samples = {samples}, needs = {needs} }},", sizes::text(*bytes))
        };
        let all: String = self.undecided.iter().map(one).collect();
        let _ = writeln!(out, "{all}{}]", if all.is_empty() { "" } else { "\n" });
    }
}

/// A basic TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

const AGAIN: &str = "`doorbell calibrate` writes a new one";

#[derive(Deserialize)]
struct Head {
    version: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "version")]
    _version: i64,
    functional: bool,
    taken: Spanned<String>,
    facts: FactsText,
    #[serde(default)]
    plan: Vec<PlanText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FactsText {
    doorbell: Spanned<String>,
    gpu: Spanned<String>,
    uuid: Spanned<String>,
    driver: Spanned<String>,
    cpu: Spanned<String>,
    nodes: Spanned<String>,
    kernel: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    direction: Spanned<String>,
    memory: Spanned<String>,
    places: Option<Spanned<String>>,
    batch: Spanned<i64>,
    metric: Spanned<String>,
    load: Spanned<String>,
    ranges: Spanned<Vec<RangeText>>,
    points: Vec<PointText>,
    #[serde(default)]
    undecided: Vec<UndecidedText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeText {
    from: Spanned<String>,
    to: Option<Spanned<String>>,
    route: Spanned<String>,
    by: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PointText {
    bytes: Spanned<String>,
    figures: Vec<FigureText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FigureText {
    route: Spanned<String>,
    ns: Spanned<i64>,
    low: Option<i64>,
    high: Option<i64>,
    samples: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndecidedText {
    bytes: Spanned<String>,
    samples: Spanned<i64>,
    needs: Spanned<i64>,
}

/// The text, with its name, for errors that name a line.
struct Text<'t> {
    text: &'t str,
    origin: &'t str,
}

impl Text<'_> {
    fn wrong(&self, at: usize, what: String, allowed: String) -> Error {
        Error {
            origin: self.origin.into(),
            place: Lines::of(self.text).place(self.text, at),
            what,
            allowed,
            meant: None,
        }
    }

    fn toml<T: for<'de> Deserialize<'de>>(&self) -> Result<T, Error> {
        toml::from_str(self.text).map_err(|e| {
            let what = e.message().replace('\n', ", ");
            self.wrong(e.span().map_or(0, |span| span.start), what, AGAIN.into())
        })
    }

    fn word<T: Copy>(&self, text: &Spanned<String>, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, Error> {
        let found = all.iter().find(|value| name(**value) == text.get_ref());
        found.copied().ok_or_else(|| {
            let words: Vec<String> = all.iter().map(|value| format!("`{}`", name(*value))).collect();
            let what = format!("{:?} is not known", text.get_ref());
            self.wrong(text.span().start, what, format!("allowed: {}", words.join(", ")))
        })
    }

    fn metric(&self, text: &Spanned<String>) -> Result<Metric, Error> {
        self.word(text, &Metric::ALL, Metric::name)
    }

    fn size(&self, text: &Spanned<String>) -> Result<u64, Error> {
        sizes::one(text.get_ref()).map_err(|e| self.wrong(text.span().start, e.to_string(), String::new()))
    }

    fn whole(&self, number: &Spanned<i64>, least: u64) -> Result<u64, Error> {
        let found = u64::try_from(*number.get_ref()).ok().filter(|n| *n >= least);
        let what = || format!("{} does not fit", number.get_ref());
        found.ok_or_else(|| self.wrong(number.span().start, what(), format!("a whole number from {least} on")))
    }

    /// A name without blanks at its ends.
    fn name(&self, text: &Spanned<String>) -> Result<String, Error> {
        let name = text.get_ref();
        if name.is_empty() || name.trim() != name || name.chars().any(char::is_control) {
            return Err(self.wrong(text.span().start, format!("{name:?} is no name"), "as `pinned` or `idle`".into()));
        }
        Ok(name.clone())
    }

    fn route(&self, text: &Spanned<String>) -> Result<String, Error> {
        let route = text.get_ref();
        let parts: Vec<&str> = route.split("->").collect();
        if parts.len() != 3 || parts.iter().any(|part| part.trim().is_empty()) || route.chars().any(char::is_control) {
            let what = format!("{route:?} is no route");
            return Err(self.wrong(text.span().start, what, "as `host->ce2->gpu0`".into()));
        }
        Ok(route.clone())
    }

    fn plan(&self, plan: &PlanText) -> Result<Plan, Error> {
        let key = Key {
            direction: self.word(&plan.direction, &Direction::ALL, Direction::name)?,
            memory: self.name(&plan.memory)?,
            places: match &plan.places {
                Some(places) => self.word(places, &Places::ALL, Places::name)?,
                None => Places::Same,
            },
            batch: u32::try_from(self.whole(&plan.batch, 1)?).map_err(|_| {
                self.wrong(plan.batch.span().start, "more than a batch holds".into(), "a number of 32 bits".into())
            })?,
            metric: self.metric(&plan.metric)?,
            load: self.name(&plan.load)?,
        };
        let ranges = self.ranges(&plan.ranges)?;
        let mut points: Vec<Point> = Vec::with_capacity(plan.points.len());
        for point in &plan.points {
            let bytes = self.size(&point.bytes)?;
            if points.last().is_some_and(|last| last.bytes >= bytes) {
                let what = format!("{} does not follow the size before it", point.bytes.get_ref());
                return Err(self.wrong(point.bytes.span().start, what, "sizes ascend".into()));
            }
            let figures = point.figures.iter().map(|figure| self.figure(figure)).collect::<Result<_, _>>()?;
            points.push(Point { bytes, figures });
        }
        let undecided = |u: &UndecidedText| {
            let (samples, needs) = (self.whole(&u.samples, 0)?, self.whole(&u.needs, 1)?);
            Ok(Undecided { bytes: self.size(&u.bytes)?, samples, needs })
        };
        let undecided = plan.undecided.iter().map(undecided).collect::<Result<_, Error>>()?;
        Ok(Plan { key, ranges, points, undecided })
    }

    /// Checks that no size is missing and that none is there twice.
    fn ranges(&self, ranges: &Spanned<Vec<RangeText>>) -> Result<Vec<Range>, Error> {
        let mut all: Vec<Range> = Vec::with_capacity(ranges.get_ref().len());
        let mut next = Some(1);
        for range in ranges.get_ref() {
            let from = self.size(&range.from)?;
            let expected = next.ok_or_else(|| {
                self.wrong(range.from.span().start, "a range behind the last one".into(), LAST.into())
            })?;
            if from != expected {
                let gap = if from > expected { "leaves sizes out" } else { "overlaps the range before it" };
                let what = format!("`from = \"{}\"` {gap}", range.from.get_ref());
                return Err(self.wrong(range.from.span().start, what, format!("{:?} follows", sizes::text(expected))));
            }
            let to = range.to.as_ref().map(|to| self.size(to)).transpose()?;
            if let (Some(to), Some(text)) = (to, &range.to)
                && (to < from || to == u64::MAX)
            {
                return Err(self.wrong(
                    text.span().start,
                    "the range ends before it begins, or never".into(),
                    LAST.into(),
                ));
            }
            next = to.map(|to| to + 1);
            all.push(Range { from, to, route: self.route(&range.route)?, by: self.metric(&range.by)? });
        }
        match next {
            None => Ok(all),
            Some(from) => {
                let what = format!("no range holds sizes from {} on", sizes::text(from));
                Err(self.wrong(ranges.span().start, what, LAST.into()))
            }
        }
    }

    fn figure(&self, figure: &FigureText) -> Result<Figure, Error> {
        let at = figure.ns.span().start;
        let interval = match (figure.low, figure.high) {
            (None, None) => None,
            (Some(low), Some(high)) if 0 <= low && low <= high => Some((low as u64, high as u64)),
            _ => {
                return Err(self.wrong(
                    at,
                    "this is no interval".into(),
                    "`low` and `high`, ascending, or none".into(),
                ));
            }
        };
        let (ns, samples) = (self.whole(&figure.ns, 0)?, self.whole(&figure.samples, 1)?);
        Ok(Figure { route: self.route(&figure.route)?, ns, interval, samples })
    }
}

const LAST: &str = "the first range begins at 1B, and the last one has no `to`";
