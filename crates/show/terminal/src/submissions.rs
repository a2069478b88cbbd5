//! Every submission with its decoded commands.

use crate::cell::{called, extent};
use crate::number::{bytes, moment};
use crate::table::{Style, text_to_stdout, to_stdout};
use crate::{ReportError, json};
use decode::Recording;
use decode::merge::missing;
use decode::rows::{self, Collector, in_call, lack_text};
use decode::walk::{At, Filter, Segment, Sink, walk};
use pushbuf::decode::{Item, Target};
use pushbuf::ops::{Op, Purpose, What};
use pushbuf::text::ClassName;
use schema::{Clock, Place};
use std::io::{self, Write};

/// Shows submissions on standard output.
pub fn print(r: &Recording, filter: Filter, style: Style, as_json: bool) -> Result<(), ReportError> {
    if as_json {
        return to_stdout(|out| write_json(r, filter, out));
    }
    text_to_stdout(style, |out| write(r, filter, style, out))
}

/// Writes submissions as text, one line for each method.
pub fn write(r: &Recording, filter: Filter, style: Style, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut t = Text { out, style, filter, clock: rows::clock(r), shown: 0, targets: [None; 8], error: None };
    walk(r, &mut t)?;
    t.error.map_or(Ok(()), |e| Err(e.into()))
}

struct Text<'a> {
    out: &'a mut dyn Write,
    style: Style,
    filter: Filter,
    clock: Clock,
    shown: u64,
    /// Class last named on each subchannel of the submission at hand.
    targets: [Option<u32>; 8],
    error: Option<io::Error>,
}

impl Text<'_> {
    fn keep(&mut self, r: io::Result<()>) {
        if let Err(e) = r {
            self.error.get_or_insert(e);
        }
    }

    fn skips(&self, at: &At<'_>) -> bool {
        self.done() || !self.filter.wants_at(at, &self.clock)
    }

    /// Names the class of a subchannel where it is not the one named last.
    fn target(&mut self, t: Target) -> io::Result<()> {
        let named = &mut self.targets[usize::from(t.subch & 7)];
        if *named != Some(t.class_id) {
            *named = Some(t.class_id);
            writeln!(self.out, "    subchannel {}: {}", t.subch, ClassName(t))?;
        }
        Ok(())
    }

    fn head(&mut self, at: &At<'_>) -> io::Result<()> {
        let (s, c) = (at.submission, at.channel);
        let mut line = format!("#{}", at.number);
        if let Some(t) = self.clock.seconds(s.tsc) {
            line.push_str(&format!("  {}", moment(t)));
        }
        line.push_str(&format!("  thread {}  channel {}", s.tid, c.label()));
        if !c.engine.is_empty() {
            line.push_str(&format!(" ({})", c.engine));
        }
        match s.ring {
            Some(r) => line.push_str(&format!("  token {:#x}  GP_PUT {} -> {}", r.token, r.put_from, r.put_to)),
            None => line.push_str("  (the ring itself fell into a gap)"),
        }
        if let Some(call) = in_call(at) {
            line.push_str(&format!("  in {}", called(&call)));
        }
        if s.handed_over() {
            line.push_str("  handed over");
        }
        if s.trapped() {
            line.push_str("  trapped");
        }
        writeln!(self.out, "{}", self.style.bold(&line))
    }

    fn entry(&mut self, at: &At<'_>, s: &Segment<'_>) -> io::Result<()> {
        if s.after_gap {
            writeln!(self.out, "  {}", self.style.bad("entries are missing here"))?;
        }
        write!(self.out, "  [{}] {}", s.entry.index, s.gp)?;
        if s.dwords > 0 && at.place(s.va) != Place::Unknown {
            write!(self.out, " ({} memory)", at.place(s.va).name())?;
        }
        if s.entry.is_late() {
            write!(self.out, ", {}", self.style.bad("read late: its words may be of a later submission"))?;
        }
        match lack_text(s.entry.lack) {
            Some(why) if s.entry.lack == missing::NEVER_COPIED => writeln!(self.out, ": words missing: {why}"),
            Some(why) => writeln!(self.out, ": {} of {} words recorded: {why}", s.words.len(), s.dwords),
            None => writeln!(self.out),
        }
    }
}

impl Sink for Text<'_> {
    fn done(&self) -> bool {
        self.error.is_some() || self.filter.limit.is_some_and(|n| self.shown >= n)
    }

    fn from(&self) -> Option<u64> {
        self.filter.from(&self.clock)
    }

    fn until(&self) -> Option<u64> {
        self.filter.until(&self.clock)
    }

    fn filter(&self) -> Option<&Filter> {
        Some(&self.filter)
    }

    fn submission(&mut self, at: &At<'_>) {
        if !self.skips(at) {
            self.targets = [None; 8];
            let r = self.head(at);
            self.keep(r);
        }
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        if !self.skips(at) {
            let r = self.entry(at, s);
            self.keep(r);
        }
    }

    fn item(&mut self, at: &At<'_>, item: &Item<'_>) {
        if self.skips(at) {
            return;
        }
        let target = match item {
            Item::Write(w) if !w.host => Some(w.target),
            Item::Run(r) if !r.host => Some(r.target),
            _ => None,
        };
        let r = target.map_or(Ok(()), |t| self.target(t)).and_then(|()| writeln!(self.out, "      {item}"));
        self.keep(r);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if self.skips(at) {
            return;
        }
        if let Some(text) = meaning(at, op) {
            let r = writeln!(self.out, "    {}", self.style.bold(&format!("= {text}")));
            self.keep(r);
        }
    }

    fn submission_end(&mut self, at: &At<'_>) {
        if !self.skips(at) {
            self.shown += 1;
        }
    }
}

/// What an operation does, in a line. Semaphore operations need no explanation.
fn meaning(at: &At<'_>, op: &Op) -> Option<String> {
    let place = |va: u64| format!("{} {va:#x}", at.place(va).name());
    Some(match &op.what {
        What::Copy(c) => format!("copy {}, {} -> {}", bytes(c.bytes()), place(c.src), place(c.dst)),
        What::Fill(f) => format!("fill {}, {}", bytes(f.bytes()), place(f.dst)),
        What::Inline(i) => {
            let own = match i.purpose {
                Purpose::Data => "",
                Purpose::Qmd => ", the launch's QMD",
                Purpose::Constants => ", the launch's constants",
            };
            format!("inline {}, stream -> {}{own}", bytes(i.bytes()), place(i.dst))
        }
        What::Launch(l) => match at.started().and_then(|s| s.shape) {
            Some(s) if s.is_empty() => format!("empty QMD {:#x}: only orders or starts others", l.qmd_address),
            Some(s) => format!("launch grid {}, block {}, program {:#x}", extent(s.grid), extent(s.block), s.program),
            None => format!("launch, its QMD at {:#x} is not in the stream", l.qmd_address),
        },
        What::Semaphore(_) => return None,
    })
}

struct Json<'a, 'b> {
    array: json::Array<'a>,
    filter: Filter,
    clock: &'b Clock,
    collector: Collector,
    shown: u64,
    error: Option<io::Error>,
}

impl Sink for Json<'_, '_> {
    fn done(&self) -> bool {
        self.error.is_some() || self.filter.limit.is_some_and(|n| self.shown >= n)
    }

    fn from(&self) -> Option<u64> {
        self.filter.from(self.clock)
    }

    fn until(&self) -> Option<u64> {
        self.filter.until(self.clock)
    }

    fn filter(&self) -> Option<&Filter> {
        Some(&self.filter)
    }

    fn submission(&mut self, at: &At<'_>) {
        self.collector.begin(at, self.clock);
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        if self.filter.wants_at(at, self.clock) {
            self.collector.segment(at, s);
        }
    }

    fn item(&mut self, at: &At<'_>, item: &Item<'_>) {
        if self.filter.wants_at(at, self.clock) {
            self.collector.item(item);
        }
    }

    fn submission_end(&mut self, at: &At<'_>) {
        if !self.done() && self.filter.wants_at(at, self.clock) {
            self.shown += 1;
            if let Err(e) = self.array.push(&self.collector.row) {
                self.error = Some(e);
            }
        }
    }
}

fn write_json(r: &Recording, filter: Filter, out: &mut dyn Write) -> Result<(), ReportError> {
    let clock = rows::clock(r);
    let array = json::Array::begin(out)?;
    let mut j = Json { array, filter, clock: &clock, collector: Collector::default(), shown: 0, error: None };
    walk(r, &mut j)?;
    match j.error {
        Some(e) => Err(e.into()),
        None => Ok(j.array.end()?),
    }
}
