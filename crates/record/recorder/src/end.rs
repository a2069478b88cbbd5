//! The ends on the tape, of each image and of the whole recording: whether the tape has everything, and if not, why.
//!
//! Invariant: a recording is complete only if no event is known that was, or may have been, missed.

use crate::image::{Image, counter};
use crate::region::Region;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tape::file::{End, EndChannel, KernelEnds, ProcessEnd, Unwatched};
use tape::python::state;
use tape::region::{self, Slot};

/// Maximum number of programs' names in one reason.
const NAMES: usize = 5;

/// Why a program's loader did not load the agent although it could.
const LOST_RIGHTS: &str =
    "it may not open the recorder's memory: dropped capabilities, another namespace, a limit of open files";

/// The beginning of a reason why calls have no Python frames.
const NO_FRAMES: &str = "no Python frames";

/// Why an image has no Python frames, if its interpreter was refused.
fn refused_python(region: &Region) -> Option<String> {
    let found = region.control().python.load(Ordering::Relaxed);
    let why = state::TEXT.get(found as usize).filter(|_| !matches!(found, state::NONE | state::READ))?;
    Some(format!("{NO_FRAMES}: {why}"))
}

/// How an image of a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The status, as `wait` gives it.
    Status(i32),
    /// It ended with an unknown status.
    Unknown,
    /// The process executed another program. A new image follows.
    Exec,
    /// The process still runs when the recording ends.
    StillRunning,
    /// The process and its recording continue, and the newest part is saved.
    GoesOn,
}

/// The state of a process that has not ended.
const STILL_RUNNING: &str = "still running";

/// Maximum number of different reasons.
const REASONS: usize = 256;

/// The sum of all images.
#[derive(Clone, Default)]
pub struct Totals {
    ends: End,
    /// Reasons of images, with the number of images for each.
    because: Vec<(String, u32)>,
    /// Reasons that arrived after the maximum was reached.
    other_reasons: u64,
    images: u32,
    pub turned_away: u32,
    pub refused: u32,
    pub started: u32,
    /// Programs that should have loaded the agent and did not.
    pub silent: u32,
    pub unwatched: Vec<Unwatched>,
    pub unwatched_lost: u64,
    /// Processes that still ran when the recording ended and were not recorded.
    pub left: u32,
    /// Why regions could not be made.
    pub no_region: Option<String>,
    /// Python frames were requested.
    pub wants_python: bool,
    /// Python frames were read in some image.
    has_python: bool,
}

impl Totals {
    pub fn add(&mut self, e: ProcessEnd) {
        let t = &mut self.ends;
        t.trapped = t.trapped.saturating_add(e.trapped);
        t.tapped = t.tapped.saturating_add(e.tapped);
        t.strangers = t.strangers.saturating_add(e.strangers);
        t.sites_patched = t.sites_patched.saturating_add(e.sites_patched);
        t.gap_events = t.gap_events.saturating_add(e.gap_events);
        t.gap_entries = t.gap_entries.saturating_add(e.gap_entries);
        t.gap_bytes = t.gap_bytes.saturating_add(e.gap_bytes);
        t.paused_doorbells = t.paused_doorbells.saturating_add(e.paused_doorbells);
        t.short_calls = t.short_calls.saturating_add(e.short_calls);
        for text in e.trouble {
            if t.trouble.len() < REASONS && !t.trouble.contains(&text) {
                t.trouble.push(text);
            }
        }
        self.has_python |= e.python == state::READ;
        self.images += 1;
        t.channels = if self.images == 1 { e.channels } else { Vec::new() };
        for reason in e.incomplete_because {
            let many = self.because.len();
            match self.because.iter_mut().find(|(r, _)| *r == reason) {
                Some((_, n)) => *n += 1,
                // (Each reason may contain a different number, so thousands of processes that end in a day would fill
                // memory.)
                None if many >= REASONS => self.other_reasons += 1,
                None => self.because.push((reason, 1)),
            }
        }
    }

    /// The end of a part that is saved while the program continues.
    pub fn so_far(self, pid: i32) -> End {
        let because = self.because.into_iter();
        let because: Vec<String> = because
            .map(|(reason, n)| if n == 1 { reason } else { format!("{reason} (in {})", processes(n)) })
            .chain(others(self.other_reasons))
            .collect();
        End {
            how: STILL_RUNNING.into(),
            pid,
            agent: self.images > 0,
            processes: self.images,
            complete: because.is_empty(),
            incomplete_because: because,
            ..self.ends
        }
    }

    /// The end of the recording.
    pub fn end(self, pid: i32, status: ExitStatus, took: Duration, stopped: Option<&str>) -> End {
        let mut because = Vec::new();
        let how = match stopped {
            Some(why) => format!("recording stopped early: {why}"),
            None => how_it_ended(status),
        };
        because.extend(stopped.map(|_| how.clone()));
        let mut trouble = self.ends.trouble;
        if self.refused > 0 {
            let text = "the agent is of another version than this doorbell";
            trouble.push(text.into());
            because.push(text.into());
        } else if self.started == 0 && self.images == 0 {
            let text = "the agent never reported in: the program did not load it";
            trouble.push(text.into());
            because.push(text.into());
        }
        if self.wants_python && !self.has_python && !trouble.iter().any(|t| t.starts_with(NO_FRAMES)) {
            trouble.push(format!("{NO_FRAMES}: no call of CUDA's was made from Python"));
        }
        if self.turned_away > 0 {
            because.push(format!("{} found no region to be recorded in", processes(self.turned_away)));
        }
        if self.left > 0 {
            because.push(format!(
                "{} that the program left behind still ran, and nothing of it was recorded: `--wait` goes on until it ends",
                processes(self.left)
            ));
        }
        if crate::memory::is_lost() {
            because.push("a part of the memory shared with the program was gone: its file was made shorter".to_owned());
        }
        because.extend(self.no_region.map(|e| format!("memory for processes could not be had: {e}")));
        for (reason, n) in self.because {
            because.push(if n == 1 { reason } else { format!("{reason} (in {})", processes(n)) });
        }
        because.extend(others(self.other_reasons));
        // (The first one was reported above.)
        let silent = if self.started == 0 { self.silent.saturating_sub(1) } else { self.silent };
        if silent > 0 {
            because.push(format!(
                "not watched: {silent} of the programs that were started did not load the agent ({LOST_RIGHTS})"
            ));
        }
        because.extend(unwatched(&self.unwatched, self.unwatched_lost));
        End {
            how,
            pid,
            exit_code: status.code(),
            signal: status.signal(),
            seconds: took.as_secs_f64(),
            agent: self.started > 0 || self.images > 0,
            processes: self.images,
            complete: because.is_empty(),
            incomplete_because: because,
            trouble,
            ..self.ends
        }
    }
}

fn others(n: u64) -> Option<String> {
    (n > 0).then(|| format!("{n} more reasons of processes"))
}

fn processes(n: u32) -> String {
    if n == 1 { "1 process".into() } else { format!("{n} processes") }
}

/// Why a recording is not complete if programs were not watched.
fn unwatched(all: &[Unwatched], lost: u64) -> Option<String> {
    if all.is_empty() && lost == 0 {
        return None;
    }
    let name = |u: &Unwatched| {
        let path = if u.path.is_empty() { "a program" } else { &u.path };
        let times = if u.count > 1 { format!(", {} times", u.count) } else { String::new() };
        format!("{path} ({}{times})", u.why)
    };
    let mut names: Vec<String> = all.iter().take(NAMES).map(name).collect();
    let rest = all.len().saturating_sub(NAMES) as u64 + lost;
    if rest > 0 {
        names.push(format!("{rest} more"));
    }
    Some(format!("not watched: {}", names.join(", ")))
}

/// The end of one image. `stopped`: why the recording has stopped, if it has.
pub fn of_image(image: &Image, ending: &Ending, stopped: Option<&str>) -> ProcessEnd {
    let c = image.region.control();
    let gaps = image.gaps();
    let live = || image.region.slots().iter().filter(|s| s.state.load(Ordering::Acquire) == 1);
    let count = |n: &AtomicU64| counter(n).unwrap_or(0);
    let sum = |of: fn(&Slot) -> &AtomicU64| live().fold(0u64, |n, s| n.saturating_add(count(of(s))));
    let (trapped, rings) = (sum(|s| &s.trapped_total), sum(|s| &s.rings_total));
    let channels = image.region.slots().iter().enumerate().filter(|(_, s)| s.state.load(Ordering::Acquire) == 1);
    let status = match ending {
        Ending::Status(raw) => Some(ExitStatus::from_raw(*raw)),
        _ => None,
    };
    let ringless = count(&c.ringless);
    let because = reasons(image, ending, stopped, ringless);
    ProcessEnd {
        index: image.index,
        how: match (ending, status) {
            (_, Some(s)) => how_it_ended(s),
            (Ending::Exec, _) => "exec".into(),
            (Ending::StillRunning | Ending::GoesOn, _) => STILL_RUNNING.into(),
            _ => "ended".into(),
        },
        exit_code: status.and_then(|s| s.code()),
        signal: status.and_then(|s| s.signal()),
        seconds: image.took().as_secs_f64(),
        trapped: count(&c.trapped).saturating_add(trapped),
        tapped: count(&c.tapped).saturating_add(rings.saturating_sub(trapped)),
        strangers: count(&c.strangers),
        sites_patched: c.patched.load(Ordering::Relaxed),
        gap_events: gaps.events.saturating_add(ringless),
        gap_entries: gaps.entries,
        gap_bytes: gaps.bytes,
        paused_doorbells: count(&c.paused_rings),
        short_calls: image.short_calls(),
        trouble: trouble(&image.region).map(|t| t.1.to_owned()).chain(refused_python(&image.region)).collect(),
        python: c.python.load(Ordering::Relaxed),
        kernel_ends: (c.contents & region::contents::GPU_TIMES != 0).then(|| kernel_ends(image)),
        // (While the image continues, some doorbells may still be in the rings.)
        channels: match ending {
            Ending::GoesOn => Vec::new(),
            _ => channels.map(|(i, s)| end_channel(&image.region, i, s)).collect(),
        },
        complete: because.is_empty(),
        incomplete_because: because,
    }
}

fn kernel_ends(image: &Image) -> KernelEnds {
    let c = image.region.control();
    let count = |n: &AtomicU64| counter(n).unwrap_or(0);
    KernelEnds {
        stamped: count(&c.stamped),
        ends: image.ends.taken,
        slots_full: count(&c.slots_full),
        words_in_use: count(&c.words_in_use),
        other_version: count(&c.other_version),
        no_shadow: count(&c.no_shadow),
        by_cupti: count(&c.by_cupti),
        given_up: image.ends.given_up,
    }
}

/// Why the tape does not have everything that the image did.
fn reasons(image: &Image, ending: &Ending, stopped: Option<&str>, ringless: u64) -> Vec<String> {
    let mut out = Vec::new();
    let c = image.region.control();
    let count = |n: &AtomicU64| counter(n).unwrap_or(0);
    if stopped.is_some() {
        out.push("the recording stopped before it ended".to_owned());
    } else if *ending == Ending::StillRunning {
        out.push(match image.pid {
            ..0 => format!(
                "process {} of another pid namespace was not found in /proc: when it ended is not known",
                image.pid.saturating_neg()
            ),
            pid => format!("process {pid} was still running"),
        });
    }
    if c.pauses.load(Ordering::Relaxed) > 0 {
        let rings = count(&c.paused_rings);
        out.push(format!("it was recorded with pauses, in which {rings} doorbells went by"));
    }
    let (gaps, dropped) = (image.gaps().events, image.dropped.events);
    let lost = gaps.saturating_sub(dropped);
    if lost > 0 {
        out.push(format!("{lost} events did not fit into the rings"));
    }
    if ringless > 0 {
        let memory = c.no_memory.load(Ordering::Relaxed) > 0;
        let why = if memory { " (the memory for rings was used up)" } else { "" };
        out.push(format!("{ringless} events came from threads without a ring{why}"));
    }
    if image.is_another_program {
        out.push("it became another program by a system call of its own, past libc: that was not watched".to_owned());
    }
    let had_children = image.child_faults > c.child_faults.load(Ordering::Relaxed);
    if had_children && c.children.load(Ordering::Relaxed) == 0 {
        out.push("it started others by system calls of its own, past libc: those were not watched".to_owned());
    }
    let strangers = count(&c.strangers);
    if strangers > 0 {
        out.push(format!("{strangers} doorbells were rung for channels that were not known"));
    }
    if image.has_wild_counters() {
        out.push("the program has overwritten counters of losses: how much is missing is not known".to_owned());
    }
    let strange = image.strange();
    if strange > 0 {
        out.push(format!("{strange} bytes in the rings were overwritten by the program"));
    }
    out.extend(image.unmapped.as_ref().map(|e| format!("a ring could not be mapped: {e}")));
    out.extend(trouble(&image.region).filter(|t| t.0).map(|t| t.1.to_owned()));
    out.extend(refused_python(&image.region));
    out
}

pub fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited {code}"),
        (_, Some(s)) => format!("killed by signal {s}"),
        _ => "ended".into(),
    }
}

fn end_channel(region: &Region, i: usize, s: &Slot) -> EndChannel {
    let userd = s.shadow_userd.load(Ordering::Relaxed);
    EndChannel {
        slot: i as u32,
        generation: s.generation.load(Ordering::Relaxed),
        handle: s.handle.load(Ordering::Relaxed),
        client: s.client.load(Ordering::Relaxed),
        token: s.token.load(Ordering::Relaxed),
        put: s.put.load(Ordering::Relaxed),
        entries: s.entries_total.load(Ordering::Relaxed),
        rings: s.rings_total.load(Ordering::Relaxed),
        lost: s.lost.load(Ordering::Relaxed),
        // GP_PUT in USERD, +0x8C.
        final_put: (userd != 0).then(|| region.word(userd.checked_add(0x8c)?)).flatten(),
    }
}

/// The agent's troubles, and whether each one lost events.
fn trouble(region: &Region) -> impl Iterator<Item = (bool, &'static str)> {
    let bits = region.control().trouble.load(Ordering::Relaxed);
    let known = [
        (
            region::trouble::UNDECODED,
            true,
            "an instruction that rang a doorbell could not be decoded: that page was opened and is not tapped any more",
        ),
        (
            region::trouble::NO_SECOND_MAPPING,
            true,
            "a doorbell page could not be mapped a second time: it is not tapped",
        ),
        (
            region::trouble::NO_SHADOW,
            false,
            "a ring in GPU memory could not be shadowed: it is read through BAR1, about 1 us a word",
        ),
        (
            region::trouble::TABLE_FULL,
            true,
            "a table of the agent was full: some mappings or channels are not followed",
        ),
        (region::trouble::NO_PATCH, false, "the kernel refused to have code rewritten: doorbells go on trapping"),
        (region::trouble::NO_CALLS, true, "a page of a library could not be written: calls of CUDA are missing"),
        (
            region::trouble::NO_TSC,
            true,
            "the program forbade itself the time stamp counter: locks and calls are not recorded from then on",
        ),
        (
            region::trouble::CONFINED,
            true,
            "the program forbade itself system calls: threads that began after that may not be recorded",
        ),
        (
            region::trouble::CALLS_FULL,
            true,
            "a function of CUDA's has more variants than doorbell has entries for it: calls of some are missing",
        ),
        (
            region::trouble::STACKS_FULL,
            false,
            "there were more Python stacks than are remembered: some are in the recording more than once",
        ),
        (region::trouble::NAMES_FULL, false, "more than 16,000 kernels were launched: some have no name"),
        (
            region::trouble::TEXTS_FULL,
            false,
            "more than 8,000 texts of NVTX were registered: after a fork or a pause some ranges have no name",
        ),
        (
            region::trouble::NO_RANGES,
            true,
            "ranges of NVTX were not watched: the program has its own injection library, or an unknown NVTX",
        ),
        (
            region::trouble::BYPASSED,
            true,
            "a library was opened with a scope or a namespace of its own (RTLD_DEEPBIND, dlmopen): its locks and calls are not recorded",
        ),
        (
            region::trouble::UNKNOWN_DRIVER,
            true,
            "the driver's struct of a channel is not the one known for its branch: nothing was tapped",
        ),
        (
            region::trouble::NEW_DRIVER,
            false,
            "the driver's version is not one that was checked: recorded with the structs of its branch, or of the nearest, \
             after asking the kernel for their sizes",
        ),
        (
            region::trouble::UNKNOWN_UVM,
            true,
            "the driver's structs of UVM are not those known for its branch: its calls were not read, so memory that it maps \
             has no place, and channels in it were not tapped",
        ),
    ];
    known.into_iter().filter(move |(bit, ..)| bits & bit != 0).map(|(_, missing, text)| (missing, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_each_end_for_a_reason_of_their_own_do_not_fill_memory() {
        let mut totals = Totals::default();
        for n in 0..100_000 {
            let because = vec![format!("{n} events did not fit into the rings"), "it was killed".to_owned()];
            totals.add(ProcessEnd { incomplete_because: because, ..ProcessEnd::default() });
        }
        let end = totals.clone().so_far(1);
        assert!(end.incomplete_because.len() == REASONS + 1 && !end.complete);
        assert!(end.incomplete_because.iter().any(|r| r == "it was killed (in 100000 processes)"));
        assert_eq!(end.incomplete_because.last().unwrap(), "99745 more reasons of processes");
        assert_eq!(totals.end(1, ExitStatus::default(), Duration::ZERO, None).incomplete_because.len(), REASONS + 1);
    }
}
