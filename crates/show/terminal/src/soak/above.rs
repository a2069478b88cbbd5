//! The sample above the bound of `--stop-above`, by its recording.

use super::name;
use crate::number::{nanoseconds, of};
use run_folder::delay::{CudaCall, Delay, Holder, Waited};
use run_folder::soak::Soak;
use std::io::{self, Write};

/// Waits and calls that are written; the file has all.
const MOST: usize = 5;

pub(super) fn above(out: &mut dyn Write, soak: &Soak) -> io::Result<()> {
    let Some(above) = &soak.above else { return Ok(()) };
    writeln!(out)?;
    // Times of the software GPU are left out; those of locks and of the CPU are real, but within such a time.
    let took = if soak.functional { String::new() } else { format!(", {}", nanoseconds(above.sample.done())) };
    writeln!(out, "above the bound: {}{took}, in period {}", name(soak, &above.cell), above.period)?;
    if let Some(delay) = &above.delay {
        lines(delay).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    if let Some(ms) = above.steal_ms.filter(|ms| *ms > 0.0) {
        writeln!(out, "  the host took the CPU away for {ms} ms in its lap (steal)")?;
    }
    match (&above.not_joined, &above.recording) {
        (Some(why), _) => writeln!(out, "  its recording cannot be used: {why}")?,
        (None, Some(file)) => {
            writeln!(
                out,
                "  its recording is {file} in the soak's folder; the sample is its last: `doorbell show --locks {file}`"
            )?;
        }
        (None, None) => writeln!(out, "  nothing was recorded: it is unknown who held a lock")?,
    }
    Ok(())
}

/// One line each: locks, the CPU, calls.
pub fn lines(delay: &Delay) -> Vec<String> {
    let mut lines: Vec<String> = delay.waits.iter().take(MOST).map(wait).collect();
    if delay.waits.is_empty() {
        lines.push("it waited for no lock that is recorded".into());
    }
    lines.push(match &delay.off_cpu {
        None => "whether its thread was off the CPU is not recorded".into(),
        Some(off) if off.ns == 0 => "its thread was on the CPU all the time".into(),
        Some(off) => {
            let by = if off.by.is_empty() { String::new() } else { format!(" (by {})", off.by) };
            let preempted = nanoseconds(off.preempted_ns);
            format!("its thread was off the CPU for {}, of which {preempted} preempted{by}", nanoseconds(off.ns))
        }
    });
    lines.extend(delay.calls.iter().take(MOST).map(|call| format!("in {}", cuda_call(call))));
    lines.extend(delay.beside.iter().map(|call| format!("meanwhile thread {} was in {}", call.tid, cuda_call(call))));
    lines.extend(delay.incomplete_because.iter().map(|why| format!("the recording is not complete: {why}")));
    lines
}

fn wait(wait: &Waited) -> String {
    let inside = wait.inside.as_ref().map_or(String::new(), |call| format!(" in {call}"));
    let holders: Vec<String> = wait.holders.iter().map(holder).collect();
    let held = if holders.is_empty() { "no recorded hold covers that time".into() } else { holders.join("; ") };
    let free = if wait.free_ns > 0 { format!("; free for {}", nanoseconds(wait.free_ns)) } else { String::new() };
    format!("{} for {}{inside}: {held}{free}", nanoseconds(wait.ns), wait.lock)
}

fn holder(h: &Holder) -> String {
    let thread = if h.thread.is_empty() { format!("thread {}", h.tid) } else { format!("{} ({})", h.thread, h.tid) };
    let inside = h.inside.as_ref().map_or_else(|| format!(" at {}", h.site), |call| format!(" in {call}"));
    let off = h
        .off_cpu_ns
        .filter(|ns| *ns > 0)
        .map_or(String::new(), |ns| format!(", {} of it off its CPU", nanoseconds(ns)));
    format!("{thread} held it for {}{inside}{off}", nanoseconds(h.of_wait_ns))
}

fn cuda_call(call: &CudaCall) -> String {
    let took = call.ns.map_or_else(|| "which had not returned".into(), nanoseconds);
    let size = if call.size > 0 { format!(", {}", of(call.size, "byte or block")) } else { String::new() };
    format!("{} ({took}{size})", call.call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use run_folder::delay::OffCpu;

    #[test]
    fn each_cause_is_a_line() {
        let holder = Holder {
            tid: 7,
            thread: "loader".into(),
            of_wait_ns: 90_000,
            inside: Some("cuModuleLoadData".into()),
            site: "libcuda+0x10".into(),
            off_cpu_ns: Some(0),
        };
        let other =
            Holder { tid: 8, of_wait_ns: 1_000, site: "prog+0x9".into(), off_cpu_ns: Some(500), ..Holder::default() };
        let waited = Waited {
            lock: "libcuda+0x1/rwlock".into(),
            ns: 95_000,
            free_ns: 4_000,
            inside: Some("cuMemcpyAsync".into()),
            holders: vec![holder, other],
        };
        let delay = Delay {
            waits: vec![waited],
            off_cpu: Some(OffCpu { ns: 3_000, preempted_ns: 2_000, by: "hog".into() }),
            calls: vec![CudaCall { tid: 1, call: "cuMemcpyAsync".into(), ns: Some(99_000), size: 0 }],
            beside: vec![CudaCall { tid: 7, call: "cuModuleLoadData".into(), ns: None, size: 0 }],
            incomplete_because: Vec::new(),
        };
        let want = [
            "95.0 us for libcuda+0x1/rwlock in cuMemcpyAsync: loader (7) held it for 90.0 us in cuModuleLoadData; thread 8 held it for \
             1.00 us at prog+0x9, 500 ns of it off its CPU; free for 4.00 us",
            "its thread was off the CPU for 3.00 us, of which 2.00 us preempted (by hog)",
            "in cuMemcpyAsync (99.0 us)",
            "meanwhile thread 7 was in cuModuleLoadData (which had not returned)",
        ];
        assert_eq!(lines(&delay), want);
        let none = ["it waited for no lock that is recorded", "whether its thread was off the CPU is not recorded"];
        assert_eq!(lines(&Delay::default()), none);
    }
}
