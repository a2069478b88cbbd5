//! Which kernels ran, and how often.

use crate::cell::{channel, extent, green, main_line};
use crate::kernel_times;
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{Out, Style};
use schema::kernels::{GpuTimes, Kernels, StreamRow};
use schema::names::stream;
use std::io;

/// In all, of a run, of the longest, and from the doorbell to the start.
fn gpu_times(gpu: Option<&GpuTimes>) -> Vec<String> {
    let Some(gpu) = gpu else { return vec!["-".into(); 4] };
    [gpu.total_ns, gpu.mean_ns(), gpu.longest_ns, gpu.queued_ns / gpu.runs.max(1)].map(nanoseconds).into()
}

/// Writes the kernels, the most frequent first.
pub fn write(out: &mut dyn Out, style: &Style, k: &Kernels) -> io::Result<()> {
    let mut heads = if k.gpu_times { vec![">GPU time", ">mean", ">longest", ">queued"] } else { Vec::new() };
    heads.extend([
        ">launches",
        ">in graphs",
        ">share",
        "grid",
        "block",
        ">registers",
        ">shared",
        ">shapes",
        "call",
        "!kernel",
    ]);
    let has_lines = k.kernels.iter().any(|row| row.python.is_some());
    if has_lines {
        heads.push("line of Python");
    }
    let mut table = style.table(&heads);
    for row in &k.kernels {
        let call = row.calls.first().map_or("-", |call| call.name);
        let more = row.calls.len().saturating_sub(1);
        let mut cells = if k.gpu_times { gpu_times(row.gpu.as_ref()) } else { Vec::new() };
        cells.extend([
            count(row.launches),
            row.in_graphs.map_or("-".into(), |n| format!("{}{}", if row.conditional { ">= " } else { "" }, count(n))),
            format!("{:.1} %", 100.0 * row.share),
            extent(row.shape.grid),
            extent(row.shape.block),
            row.shape.registers.to_string(),
            bytes(row.shape.shared_memory.into()),
            count(row.shapes),
            if more > 0 { format!("{call} and {more} more") } else { call.into() },
            row.name.clone().unwrap_or_else(|| format!("{:#x}", row.code)),
        ]);
        if has_lines {
            cells.push(main_line(row.python.as_ref()));
        }
        table.add_row(cells);
    }
    if k.kernels.is_empty() {
        writeln!(out, "no kernel was launched, of those that were asked for")?;
    } else {
        out.table(&table, 0)?;
    }
    if k.without_qmd > 0 {
        writeln!(
            out,
            "{} more of kernels that are not known: what describes them was never in the stream",
            of(k.without_qmd, "launch")
        )?;
    }
    if k.unknown_graph_launches > 0 {
        let n = of(k.unknown_graph_launches, "launch");
        writeln!(
            out,
            "{n} more of graphs that are not understood: it is unknown which kernels they ran (`show --graphs` says why)"
        )?;
    }
    if k.kernels.iter().any(|row| row.conditional) {
        writeln!(
            out,
            ">=: not each launch of its graph runs it, or the GPU launches it; runs with a time are counted"
        )?;
    }
    if k.device_graphs > 0 {
        writeln!(out, "not seen: launches of {} that kernels may launch", of(k.device_graphs, "graph"))?;
    }
    if k.device_parents > 0 {
        writeln!(out, "not seen: what {} of kernels launched that may launch others", of(k.device_parents, "launch"))?;
    }
    if k.gpu_times {
        let (timed, bounded) =
            k.kernels.iter().filter_map(|row| row.gpu).fold((0, 0), |(t, b), gpu| (t + gpu.runs, b + gpu.bounded));
        let runs: u64 = k.kernels.iter().map(|row| row.launches + row.in_graphs.unwrap_or(0)).sum();
        let all: u64 = k.kernel_times.iter().flatten().map(|process| process.timed).sum();
        if timed != all {
            writeln!(out, "these rows have the GPU's time of {} of {}", count(timed), of(runs, "run"))?;
        }
        if bounded > 0 {
            writeln!(out, "of {} only bounds are known: the time is at most that", of(bounded, "run"))?;
        }
    }
    k.kernel_times.iter().try_for_each(|all| kernel_times::write(out, style, all))?;
    if k.kernels.iter().any(|row| row.name.is_none()) {
        writeln!(
            out,
            "An address is that of a kernel's code: calls were not recorded (`record --calls`), or CUDA launched it for itself"
        )?;
    }
    if k.streams.is_empty() { Ok(()) } else { write_streams(out, style, &k.streams) }
}

/// Writes how busy each stream was.
pub fn write_streams(out: &mut dyn Out, style: &Style, streams: &[StreamRow]) -> io::Result<()> {
    let many = streams.iter().any(|s| s.pid != streams[0].pid);
    let mut heads = vec![">busy", ">GPU time", ">kernels", ">queued", ">gaps", ">in gaps", ">longest gap"];
    heads.extend(["!stream", "channel", "engine", "GPU"]);
    let kinds = || streams.iter().filter_map(|s| s.kind.as_ref());
    let (priorities, greens) = (kinds().any(|kind| kind.priority != 0), kinds().any(|kind| kind.green));
    if priorities {
        heads.push(">priority");
    }
    if greens {
        heads.push(">green context");
    }
    if many {
        heads.push(">process");
    }
    let mut table = style.table(&heads);
    for s in streams {
        let most = if s.bounded > 0 { "at most " } else { "" };
        let mut cells = vec![
            format!("{most}{:.1} %", 100.0 * s.share),
            nanoseconds(s.busy_ns),
            count(s.runs),
            nanoseconds(s.queued_ns / s.runs.max(1)),
            count(s.gaps),
            nanoseconds(s.gaps_ns),
            nanoseconds(s.longest_gap_ns),
            stream(s.stream),
            channel(s.slot, s.generation),
            s.engine.clone(),
            s.gpu.map_or("-".into(), |gpu| gpu.to_string()),
        ];
        if priorities {
            cells.push(s.kind.map_or("-".into(), |kind| kind.priority.to_string()));
        }
        if greens {
            cells.push(s.kind.as_ref().map_or("-".into(), green));
        }
        if many {
            cells.push(s.pid.to_string());
        }
        table.add_row(cells);
    }
    writeln!(out)?;
    out.table(&table, 0)?;
    writeln!(
        out,
        "busy: of the time from a stream's first kernel to its last. gaps: longer than 10 us, without a kernel of the stream"
    )
}
