//! How calls grow with their number: a table of each family, the lines through it, and where counts step.

use super::figures::three_digits;
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{Out, Style};
use run_folder::Run;
use run_folder::run::Scaling;
use statistics::{Line, Step};
use std::io;

/// Steps of one family that are named.
const SHOWN: usize = 12;

pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    run.scaling.iter().try_for_each(|family| one(out, style, family, run.functional))
}

fn one(out: &mut dyn Out, style: &Style, s: &Scaling, functional: bool) -> io::Result<()> {
    let size = if s.bytes > 0 { format!(", {} each", bytes(s.bytes)) } else { String::new() };
    let point: String = s.point.iter().map(|c| format!(", {c}")).collect();
    writeln!(out)?;
    writeln!(out, "{}", style.bold(&format!("{} against N{size}{point}", s.family)))?;
    let heads = [">N", ">call p50", ">done p50", ">pushbuffer", ">doorbells", ">locks", ">locks a MiB"];
    let mut t = style.table(&heads);
    for m in &s.members {
        let time = |ns: Option<u64>| ns.filter(|_| !functional).map_or("-".into(), nanoseconds);
        let number = |n: Option<u64>| n.map_or("-".into(), count);
        let mib = (m.number * s.bytes) as f64 / f64::from(1 << 20);
        let a_mib = m.locks.filter(|_| mib > 0.0).map_or("-".into(), |locks| three_digits(locks as f64 / mib));
        t.add_row([
            count(m.number),
            time(m.call_ns),
            time(m.done_ns),
            m.pushbuffer_bytes.map_or("-".into(), bytes),
            number(m.doorbells),
            number(m.locks),
            a_mib,
        ]);
    }
    out.table(&t, 0)?;
    let mut line = |what: &str, line: &Option<Line>, unit: &str, start: &str| match line {
        Some(line) => writeln!(out, "{what}: {}", fitted(line, unit, start)),
        None => Ok(()),
    };
    line("pushbuffer against N", &s.pushbuffer_by_number, "B", "B")?;
    if !functional {
        line("call against N", &s.call_by_number, "ns", "ns")?;
        line("done against N", &s.done_by_number, "ns", "ns")?;
        line("call against pushbuffer", &s.call_by_pushbuffer, "ns a byte", "ns")?;
        if let Some(rate) = s.call_by_pushbuffer.filter(|l| l.slope > 0.0).map(|l| 1e9 / l.slope / f64::from(1 << 20)) {
            writeln!(out, "  commands are written at {} MiB/s", three_digits(rate))?;
        }
    }
    steps(out, "pushbuffer", &s.pushbuffer_steps, &bytes)?;
    steps(out, "doorbells", &s.doorbell_steps, &count)
}

/// `4.3 B for each more (95 %: 4.1 .. 4.5), 340 B without any, r2 0.98`
fn fitted(line: &Line, unit: &str, start: &str) -> String {
    let signed = |v: f64| if v < 0.0 { format!("-{}", three_digits(-v)) } else { three_digits(v) };
    let interval =
        line.slope_interval.map_or(String::new(), |i| format!(" (95 %: {} .. {})", signed(i.low), signed(i.high)));
    let r2 = line.r_squared.map_or(String::new(), |r2| format!(", r2 {r2:.3}"));
    let points = of(line.points, "point");
    format!(
        "{} {unit} for each more{interval}, {} {start} without any{r2}, {points}",
        signed(line.slope),
        signed(line.intercept)
    )
}

fn steps(out: &mut dyn Out, what: &str, all: &[Step], text: &dyn Fn(u64) -> String) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let one = |s: &Step| format!("{} to {} between N = {} and {}", text(s.from), text(s.to), s.after, s.at);
    let shown: Vec<String> = all.iter().take(SHOWN).map(one).collect();
    let more = if all.len() > SHOWN { format!(", and {} more", all.len() - SHOWN) } else { String::new() };
    writeln!(out, "{what} steps: {}{more}", shown.join(", "))
}
