//! Every submission with its decoded commands.

use crate::cell::{called, channel};
use crate::number::moment;
use crate::table::Style;
use schema::Place;
use schema::submissions::{EntryRow, NEVER_COPIED, SubmissionRow};
use std::io::{self, Write};

/// Writes a submission as text, one line for each method.
pub fn write(out: &mut dyn Write, style: &Style, s: &SubmissionRow) -> io::Result<()> {
    let means = |out: &mut dyn Write, texts: &[String]| {
        texts.iter().try_for_each(|text| writeln!(out, "    {}", style.bold(&format!("= {text}"))))
    };
    head(out, style, s)?;
    means(out, &s.means)?;
    for e in &s.entries {
        entry(out, style, e)?;
        means(out, &e.means)?;
        for c in &e.commands {
            c.target.iter().try_for_each(|target| writeln!(out, "    {target}"))?;
            writeln!(out, "      {}", c.text)?;
            means(out, &c.means)?;
        }
    }
    Ok(())
}

fn head(out: &mut dyn Write, style: &Style, s: &SubmissionRow) -> io::Result<()> {
    let mut line = format!("#{}", s.number);
    if let Some(t) = s.seconds {
        line.push_str(&format!("  {}", moment(t)));
    }
    line.push_str(&format!("  thread {}  channel {}", s.tid, channel(s.slot, s.generation)));
    if !s.engine.is_empty() {
        line.push_str(&format!(" ({})", s.engine));
    }
    match (s.token, s.put_from, s.put_to) {
        (Some(token), Some(from), Some(to)) => {
            line.push_str(&format!("  token {token:#x}  GP_PUT {from} -> {to}"));
        }
        _ => line.push_str("  (the ring itself fell into a gap)"),
    }
    if let Some(call) = &s.call {
        line.push_str(&format!("  in {}", called(call)));
    }
    if s.handed_over {
        line.push_str("  handed over");
    }
    if s.trapped {
        line.push_str("  trapped");
    }
    writeln!(out, "{}", style.bold(&line))
}

fn entry(out: &mut dyn Write, style: &Style, e: &EntryRow) -> io::Result<()> {
    if e.after_gap {
        writeln!(out, "  {}", style.bad("entries are missing here"))?;
    }
    write!(out, "  [{}] {}", e.index, e.gp_text)?;
    if e.place != Place::Unknown {
        write!(out, " ({} memory)", e.place.name())?;
    }
    if e.late {
        write!(out, ", {}", style.bad("read late: its words may be of a later submission"))?;
    }
    match e.lack {
        Some(NEVER_COPIED) => writeln!(out, ": words missing: {NEVER_COPIED}"),
        Some(why) => writeln!(out, ": {} of {} words recorded: {why}", e.recorded, e.dwords),
        None => writeln!(out),
    }
}
