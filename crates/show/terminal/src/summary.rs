//! A recording at a glance.

use crate::cell::{extent, place_name, through};
use crate::number::{bytes, count, of, seconds};
use crate::table::{Out, Style};
use crate::{channels, kernel_times, processes};
use schema::Summary;
use schema::ranges::Watched;
use schema::summary::{Problems, Site, Transfers};
use std::io;

/// Writes the summary as text.
pub fn write(out: &mut dyn Out, style: &Style, s: &Summary) -> io::Result<()> {
    let mut row = |name: &str, text: String| -> io::Result<()> {
        // Blanks first, escapes after: widths count letters.
        let name = if name.is_empty() { " ".repeat(13) } else { style.bold(&format!("{name:<13}")) };
        let indent = text.len() - text.trim_start().len();
        for (n, line) in style.wrapped(&text, 13).iter().enumerate() {
            match n {
                0 => writeln!(out, "{name}{line}")?,
                _ => writeln!(out, "{:1$}{line}", "", 13 + indent)?,
            }
        }
        Ok(())
    };
    row("program", program(s))?;
    if s.children == "not recorded" {
        row("children", format!("{}, nor what this program execs", s.children))?;
    }
    let driver = driver(s);
    if !driver.is_empty() {
        row("driver", driver)?;
    }
    let gpu = used_gpu(s);
    if gpu {
        row("tap", tap(s))?;
        row("submissions", submissions(s))?;
    }
    match s.locks.as_deref() {
        Some("waits") => row("locks", "waits only, each with who held the lock (--locks=waits)".into())?,
        Some(_) => row("locks", "every operation (--locks)".into())?,
        None => {}
    }
    for (i, line) in s.saved.iter().flat_map(crate::saved::lines).enumerate() {
        row(["saved", "left out", ""][i.min(2)], line)?;
    }
    if let Some(why) = &s.nothing {
        row(if gpu { "" } else { "submissions" }, style.bad(why))?;
    }
    let lost = lost(s);
    row("lost", if s.lost == 0 { lost } else { style.bad(&lost) })?;
    row("complete", if s.complete { "yes".into() } else { style.bad("no") })?;
    for why in &s.incomplete_because {
        row("", style.bad(why))?;
    }
    if s.lost_detail.gap_events > 0
        && let (Some(cause), _) = s.recorder.as_ref().map(schema::lost::why).unwrap_or_default()
    {
        row("", cause)?;
    }
    if gpu {
        operations(&mut row, s)?;
    }
    for (i, line) in s.kernel_times.iter().flat_map(|all| kernel_times::lines(all)).enumerate() {
        row(if i == 0 { "kernel times" } else { "" }, line)?;
    }
    if let Some(nvtx) = &s.nvtx {
        row("NVTX", ranges(nvtx))?;
    }
    if let Some(e) = &s.end {
        row("end", e.how.clone())?;
    } else {
        row("end", style.bad("not in the recording, which did not end as it should"))?;
    }
    if let Some(used) = &s.recorder {
        let cpu = seconds(used.user_seconds + used.system_seconds);
        row("doorbell", format!("{cpu} of CPU time, {} of memory", bytes(used.peak_memory_bytes)))?;
    }
    processes::write(out, style, s)?;
    sizes(out, style, "Copy engine, by size", &s.copies.copy_engine_detail)?;
    sizes(out, style, "Inline, by size", &s.copies.inline_detail)?;
    shapes(out, style, s)?;
    if gpu {
        heading(out, style, "Channels")?;
        channels::write(out, style, &s.channel_list, 2)?;
    }
    sites(out, style, &s.sites)?;
    problems(out, style, &s.problems)?;
    list(out, style, "Notes", &s.notes)?;
    list(out, style, "Trouble", &s.trouble)?;
    if let Some(d) = &s.damage {
        list(out, style, "Damage", std::slice::from_ref(d))?;
    }
    Ok(())
}

/// The program did something that a GPU or its driver should notice; without that there is nothing to report about them.
fn used_gpu(s: &Summary) -> bool {
    s.doorbells > 0 || s.driver_calls > 0 || s.channels > 0
}

fn ranges(nvtx: &Watched) -> String {
    match (nvtx.connected, nvtx.missed) {
        (false, false) => "not used".into(),
        (false, true) => "not watched: the program has its own injection library, or an unknown NVTX".into(),
        (true, missed) => {
            let lacks = if missed { ", and some that were not watched" } else { "" };
            format!("{}{lacks} (`show --nvtx`)", of(nvtx.seen, "range"))
        }
    }
}

fn submissions(s: &Summary) -> String {
    format!(
        "{} ({}, {} GPFIFO entries, {} of commands)",
        count(s.submissions),
        of(s.doorbells, "doorbell"),
        count(s.entries),
        bytes(s.command_bytes)
    )
}

fn operations(row: &mut impl FnMut(&str, String) -> io::Result<()>, s: &Summary) -> io::Result<()> {
    let (ce, inline) = (&s.copies.copy_engine_detail, &s.copies.inline_detail);
    row("copies", format!("copy engine {} ({})", count(s.copies.copy_engine), bytes(ce.bytes)))?;
    for line in directions(ce, s.gpus.len() > 1) {
        row("", format!("  {line}"))?;
    }
    row("", format!("inline {} ({})", count(s.copies.inline), bytes(inline.bytes)))?;
    for line in directions(inline, s.gpus.len() > 1) {
        row("", format!("  {line}"))?;
    }
    if s.copies.inline_for_launches > 0 {
        let (n, b) = (s.copies.inline_for_launches, s.copies.inline_for_launches_bytes);
        row("", format!("not counted: {} of launches' own ({})", of(n, "inline write"), bytes(b)))?;
    }
    row("fills", format!("{} ({})", count(s.fills), bytes(s.fill_bytes)))?;
    row(
        "semaphores",
        format!(
            "{} released ({} with time), {} acquired",
            count(s.semaphores.released),
            count(s.semaphores.timestamps),
            count(s.semaphores.acquired)
        ),
    )?;
    row("launches", launches(s))?;
    row("driver calls", count(s.driver_calls))?;
    Ok(())
}

fn heading(out: &mut dyn Out, style: &Style, text: &str) -> io::Result<()> {
    writeln!(out, "\n{}", style.bold(text))
}

fn program(s: &Summary) -> String {
    let name = match &s.program.args {
        Some(a) if !a.is_empty() => a.join(" "),
        _ => s.program.exe.clone(),
    };
    let mut rest = Vec::new();
    if s.program.pid != 0 {
        rest.push(format!("process {}", s.program.pid));
    }
    if !s.program.started.is_empty() {
        rest.push(s.program.started.clone());
    }
    rest.extend(s.seconds.map(seconds));
    if rest.is_empty() { name } else { format!("{name} ({})", rest.join(", ")) }
}

fn driver(s: &Summary) -> String {
    let cuda = s.cuda.as_ref().map(|c| format!("CUDA {c}"));
    let gpu = match &s.gpus[..] {
        [] | [0] => s.gpu.clone(),
        [one] => format!("{} (GPU {one})", s.gpu),
        more => {
            let each: Vec<String> = more.iter().map(u32::to_string).collect();
            format!("{} x {} (GPU {})", more.len(), s.gpu, each.join(", "))
        }
    };
    let parts = [Some(s.driver.clone()), Some(gpu), cuda];
    parts.into_iter().flatten().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ")
}

fn tap(s: &Summary) -> String {
    let asked = if s.tap.asked.is_empty() { "not said" } else { &s.tap.asked };
    let mut text = format!(
        "{asked}: {} by trap, {} by {}",
        of(s.tap.trapped, "doorbell"),
        count(s.tap.rewritten),
        of(s.tap.sites_patched, "rewritten site")
    );
    if s.tap.handed_over > 0 {
        text.push_str(&format!(", {} handed over", count(s.tap.handed_over)));
    }
    text
}

/// What happened to the events that a recording lacks, by the reasons why it is not complete.
pub(crate) fn where_events_went(reasons: &[String]) -> &'static str {
    let stopped = reasons.iter().any(|r| r.starts_with("recording stopped early"));
    let full = reasons.iter().any(|r| r.contains("did not fit into the rings"));
    match (stopped, full) {
        (true, true) => "did not fit into the rings or occurred after the recording had stopped",
        (true, false) => "occurred after the recording had stopped",
        (false, _) => "did not fit into the rings",
    }
}

fn lost(s: &Summary) -> String {
    let l = &s.lost_detail;
    let mut why = Vec::new();
    if l.by_channels > 0 || l.by_gaps > 0 {
        why.push(format!("{} missing by GP_PUT", count(l.by_channels)));
        why.push(format!("{} in counted gaps", count(l.by_gaps)));
    }
    if l.gap_events > 0 {
        why.push(format!("{} {}", of(l.gap_events, "event"), where_events_went(&s.incomplete_because)));
    }
    if l.rings_missing > 0 {
        why.push(format!("{} missing", of(l.rings_missing, "doorbell")));
    }
    if l.blind_rings > 0 {
        why.push(format!("{} of channels whose ring cannot be seen", of(l.blind_rings, "doorbell")));
    }
    if l.strangers > 0 {
        why.push(format!("{} of unknown channels", of(l.strangers, "doorbell")));
    }
    if l.channels_unaccounted > 0 {
        why.push(format!("at least: {} without a final GP_PUT", of(l.channels_unaccounted, "channel")));
    }
    if l.unrung > 0 {
        why.push(format!("{} entries written but never rung", count(l.unrung)));
    }
    if why.is_empty() { count(s.lost) } else { format!("{} ({})", count(s.lost), why.join("; ")) }
}

fn directions(t: &Transfers, several: bool) -> Vec<String> {
    let line = |d: &schema::summary::Direction| {
        let from = d.from.map_or("stream".into(), |p| place_name(p, d.from_gpu.filter(|_| several)));
        let to = place_name(d.to, d.to_gpu.filter(|_| several));
        format!("{from} -> {to}: {} ({})", count(d.count), bytes(d.bytes))
    };
    t.by_place.iter().map(line).collect()
}

fn launches(s: &Summary) -> String {
    let d = &s.launch_detail;
    let mut rest = Vec::new();
    if d.programs > 0 {
        let least = if d.not_told_apart > 0 { "at least " } else { "" };
        rest.push(format!("{least}{}", of(d.programs, "program")));
    }
    if d.without_qmd > 0 {
        rest.push(format!("{} whose QMD was never in the stream", count(d.without_qmd)));
    }
    if d.empty > 0 {
        rest.push(format!("besides {} that only order or start others", of(d.empty, "empty QMD")));
    }
    if d.again > 0 {
        rest.push(format!("{} sent again from memory, as by graphs", of(d.again, "QMD")));
    }
    if rest.is_empty() { count(s.launches) } else { format!("{} ({})", count(s.launches), rest.join(", ")) }
}

fn sizes(out: &mut dyn Out, style: &Style, title: &str, t: &Transfers) -> io::Result<()> {
    if t.sizes.is_empty() {
        return Ok(());
    }
    heading(out, style, title)?;
    let mut table = style.table(&[">from", ">to", ">count", ">bytes"]);
    for b in &t.sizes {
        // The upper end as a round number: 'below'.
        let below = b.to.checked_add(1).map_or("-".into(), bytes);
        table.add_row([bytes(b.from), format!("< {below}"), count(b.count), bytes(b.bytes)]);
    }
    out.table(&table, 2)?;
    let common: Vec<String> =
        t.commonest_sizes.iter().take(6).map(|c| format!("{} ({})", bytes(c.bytes), count(c.count))).collect();
    writeln!(out, "  commonest: {}", common.join(", "))
}

fn shapes(out: &mut dyn Out, style: &Style, s: &Summary) -> io::Result<()> {
    if s.launch_shapes.is_empty() {
        return Ok(());
    }
    heading(out, style, "Launches, the commonest")?;
    let mut t = style.table(&[">count", "grid", "block", "cluster", ">registers", ">shared", "!program"]);
    for l in &s.launch_shapes {
        t.add_row([
            count(l.count),
            extent(l.shape.grid),
            extent(l.shape.block),
            l.shape.cluster.map_or("-".into(), extent),
            l.shape.registers.to_string(),
            bytes(l.shape.shared_memory.into()),
            format!("{:#x}{}", l.shape.code(), through(&l.shape)),
        ]);
    }
    out.table(&t, 2)
}

fn sites(out: &mut dyn Out, style: &Style, sites: &[Site]) -> io::Result<()> {
    if sites.is_empty() {
        return Ok(());
    }
    heading(out, style, "Doorbell sites")?;
    let mut t = style.table(&[">address", "!module", "code", "tapped by"]);
    for s in sites {
        let module = if s.module.is_empty() { "no file".into() } else { format!("{} + {:#x}", s.module, s.offset) };
        let by = if s.patched {
            "rewritten".into()
        } else {
            format!("trap: {}", s.why.as_deref().unwrap_or("no reason given"))
        };
        t.add_row([format!("{:#x}", s.address), module, s.code.clone(), by]);
    }
    out.table(&t, 2)
}

fn problems(out: &mut dyn Out, style: &Style, p: &Problems) -> io::Result<()> {
    let lines = [
        (p.unmapped_segments, "segment", format!(" without a CPU mapping ({})", bytes(p.unmapped_bytes))),
        (p.cut_segments, "segment", " longer than is recorded".into()),
        (p.torn_segments, "segment", " of which words did not fit into the rings".into()),
        (p.late_segments, "segment", " read late: its words may be of a later submission".into()),
        (p.uncopied_segments, "segment", " not copied yet when the program died".into()),
        (p.holes, "place", " where entries are missing".into()),
        (p.bad_headers, "word", " where a method header must stand".into()),
        (p.skipped_words, "word", " behind an END_PB_SEGMENT".into()),
        (p.unknown_events, "event", " of a kind that this version does not know".into()),
        (p.stray_bytes, "byte", " in whole chunks outside any event".into()),
        (p.late_rings, "ring", " out of the channel's order".into()),
    ];
    let unknown: u64 = p.unknown_methods.iter().map(|m| m.count).sum();
    if unknown == 0 && lines.iter().all(|(n, ..)| *n == 0) {
        return Ok(());
    }
    heading(out, style, "Not understood")?;
    for (n, noun, rest) in lines.iter().filter(|(n, ..)| *n > 0) {
        writeln!(out, "  {}{rest}", of(*n, noun))?;
    }
    if unknown > 0 {
        writeln!(out, "  {} without a name:", of(unknown, "method"))?;
        for m in p.unknown_methods.iter().take(20) {
            writeln!(out, "    class {:#06x} +{:#06x}: {}", m.class, m.offset, count(m.count))?;
        }
    }
    Ok(())
}

fn list(out: &mut dyn Out, style: &Style, title: &str, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    heading(out, style, title)?;
    lines.iter().try_for_each(|l| writeln!(out, "  {l}"))
}
