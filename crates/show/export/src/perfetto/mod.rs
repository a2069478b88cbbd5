//! A trace for ui.perfetto.dev and its trace processor: what threads did, and what their doorbells sent to each channel.
//!
//! Times are CLOCK_MONOTONIC. Copies and launches are instants at the time of their doorbell. Where the GPU's times were recorded, kernels and copies that ran are
//! slices.
//! Packets come in the order of the rows, which is not that of time: readers sort them.

mod packets;
mod proto;
mod tracks;

use crate::about::About;
use crate::{ExportError, Writer, rows};
use decode::Recording;
use packets::{Event, Packets, What};
use schema::driver_calls::DriverCallRow;
use schema::happened::{OneCall, OneRange, OneSwitch};
use schema::kernel_runs::KernelRun;
use schema::lines::Line;
use schema::lock_uses::UseRow;
use schema::names::short_name;
use schema::operations::{CopyRow, GpuTime, InCall, LaunchRow, Mode, When};
use schema::submissions::SubmissionRow;
use std::collections::HashMap;
use std::io::{self, Write};
use tracks::{Below, Thread, Tracks};

/// Waits that are joined with who held the lock, the longest ones.
const JOINED: usize = 50_000;

/// Writes the whole recording as a trace.
pub fn perfetto(r: &Recording, out: &mut dyn Write) -> Result<(), ExportError> {
    let about = About::of(r, JOINED)?;
    let mut packets = Packets::new(out);
    for c in r.clocks() {
        packets.clocks(c.monotonic_ns, (c.realtime_ns != 0).then_some(c.realtime_ns))?;
    }
    if r.clocks().is_empty() {
        packets.clocks(0, None)?;
    }
    let tracks = Tracks::of(&about, &mut packets)?;
    let mut trace = Trace { joins: Joins::of(&about), about: &about, packets, tracks };
    trace.begin(r)?;
    rows::each(r, &about, &mut trace)
}

struct Trace<'a> {
    about: &'a About,
    packets: Packets<'a>,
    tracks: Tracks,
    joins: Joins,
}

/// Which waits are joined with which holds.
struct Joins {
    /// Thread and time stamp at which a wait began: its flows, one to each hold.
    waits: HashMap<(Thread, u64), Vec<u64>>,
    /// Thread and time stamp at which a lock was taken: who waited for it, from when, and the flow.
    holds: HashMap<(Thread, u64), Vec<Waiter>>,
}

struct Waiter {
    tid: i32,
    from: u64,
    flow: u64,
}

impl Joins {
    fn of(about: &About) -> Joins {
        let mut joins = Joins { waits: HashMap::new(), holds: HashMap::new() };
        for (i, w) in about.waits.iter().enumerate().filter(|(_, w)| !w.holders.is_empty()) {
            for (k, h) in w.holders.iter().enumerate() {
                let flow = flow(Flow::Wait, (i as u64) << 8 | k as u64);
                joins.waits.entry(((w.process, w.tid), w.tsc)).or_default().push(flow);
                let waiter = Waiter { tid: w.tid, from: w.tsc, flow };
                joins.holds.entry(((w.process, h.tid), h.tsc)).or_default().push(waiter);
            }
        }
        joins
    }
}

/// What a flow joins.
#[derive(Clone, Copy)]
enum Flow {
    /// A call with its submissions.
    Call,
    /// A doorbell with its submissions.
    Submission,
    /// A wait with who held the lock.
    Wait,
    /// A launch with its kernel.
    Run,
}

/// A unique number for each flow: the bits of splitmix64, which maps different numbers to different ones.
fn flow(of: Flow, number: u64) -> u64 {
    let mut x = number.wrapping_mul(4).wrapping_add(of as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The flow of a call, the same wherever it is named.
fn flow_of_call(process: u32, tid: i32, number: u32) -> u64 {
    flow(Flow::Call, u64::from(number) ^ u64::from(tid as u32) << 32 ^ u64::from(process) << 48)
}

/// The flow from a launch to its run.
fn flow_of_run(when: &When, launch: u32) -> u64 {
    flow(Flow::Run, when.submission << 24 ^ u64::from(launch))
}

impl Writer for Trace<'_> {
    fn wants_details(&self) -> bool {
        false
    }

    fn row(&mut self, row: &Line<'_>) -> Result<(), ExportError> {
        match row {
            Line::Call(c) => self.driver_call(c)?,
            Line::Submission(s) => self.submission(s)?,
            Line::Copy(c) => self.copy(c)?,
            Line::Launch(l) => self.launch(l)?,
            Line::KernelRun(k) => self.kernel_run(k)?,
            Line::Range(r) => self.range(r)?,
            Line::Lock(u) => self.lock(u)?,
            Line::CudaCall(c) => self.cuda_call(c)?,
            Line::Switch(s) => self.switch(s)?,
            // (These rows contain only what is already known.)
            Line::Header(_) | Line::Recording(_) | Line::Note { .. } | Line::Channel(_) | Line::End(_) => {}
            // (Not requested: they follow after the slices that they name.)
            Line::Symbol { .. } => {}
        }
        Ok(())
    }
}

impl Trace<'_> {
    /// A slice as long as the recording, with the facts about all of it.
    fn begin(&mut self, r: &Recording) -> io::Result<()> {
        let Trace { about, packets, .. } = self;
        let (from, header) = (about.monotonic_ns, r.header());
        let to = from.saturating_add((about.summary.seconds.unwrap_or(0.0).max(0.0) * 1e9) as u64);
        packets.event(from, tracks::RECORDING, "recording", What::Begin("recording"), |e| {
            let row = &about.row;
            e.flag("complete", row.complete).uint("lost", row.lost);
            e.uint("lost_events", row.lost_detail.gap_events);
            for reason in &row.incomplete_because {
                e.text_once("incomplete_because", reason);
            }
            if let Some(ns) = row.clock_error_ns {
                e.uint("clock_error_ns", ns);
            }
            let times = if about.has_gpu_times {
                "of kernels and copies: launches, and copies whose times are not known, are at the time of their doorbell"
            } else {
                "not recorded: copies and launches are at the time of their doorbell"
            };
            e.text_once("gpu_times", times);
            let facts = [
                ("program", &header.exe),
                ("started", &header.started),
                ("host", &header.host),
                ("kernel", &header.kernel),
                ("cpu", &header.cpu),
                ("gpu", &header.gpu),
                ("driver", &header.driver),
                ("doorbell", &header.doorbell),
            ];
            for (name, text) in facts.into_iter().filter(|(_, text)| !text.is_empty()) {
                e.text_once(name, text);
            }
        })?;
        packets.event(to, tracks::RECORDING, "recording", What::End, |_| ())
    }

    fn slice(
        &mut self,
        (from, to): (u64, u64),
        track: u64,
        category: &str,
        name: &str,
        fill: impl FnOnce(&mut Event<'_, '_>),
    ) -> io::Result<()> {
        let (from, to) = (self.about.monotonic(from), self.about.monotonic(to));
        self.packets.event(from, track, category, What::Begin(name), fill)?;
        self.packets.event(to, track, category, What::End, |_| ())
    }

    fn driver_call(&mut self, c: &DriverCallRow<'_>) -> io::Result<()> {
        let track = self.tracks.below((c.process, c.tid), Below::DriverCalls, &mut self.packets)?;
        let name = c.what.as_deref().unwrap_or(c.call);
        let fill = |e: &mut Event<'_, '_>| {
            e.text("call", c.call);
            let texts = [("file", c.file.as_deref()), ("path", c.path.as_deref()), ("status", c.status_name)];
            texts.into_iter().for_each(|(name, text)| {
                text.map(|text| e.text(name, text));
            });
            let numbers = [("fd", c.fd), ("returned", c.ret)];
            numbers.into_iter().for_each(|(name, n)| {
                n.map(|n| e.int(name, n.into()));
            });
            c.address.map(|a| e.pointer("address", a));
            c.length.map(|n| e.uint("length", n));
        };
        match c.ticks {
            Some(ticks) => self.slice((c.tsc, c.tsc.saturating_add(ticks)), track, "driver call", name, fill),
            None => {
                let ns = self.about.monotonic(c.tsc);
                self.packets.event(ns, track, "driver call", What::Instant(name), fill)
            }
        }
    }

    fn submission(&mut self, s: &SubmissionRow) -> io::Result<()> {
        let track = self.tracks.of_thread((s.process, s.tid), &mut self.packets)?;
        let ns = self.about.monotonic(s.tsc);
        let name = if s.engine.is_empty() { "doorbell".to_owned() } else { format!("doorbell {}", s.engine) };
        self.packets.event(ns, track, "doorbell", What::Instant(&name), |e| {
            if let Some(number) = s.call.as_ref().and_then(number) {
                e.flow(flow_of_call(s.process, s.tid, number));
            }
            e.flow(flow(Flow::Submission, s.number));
            e.uint("submission", s.number).uint("slot", s.slot.into()).uint("generation", s.generation.into());
            e.uint("entries", s.entries.len() as u64);
            e.uint("words", s.entries.iter().map(|entry| u64::from(entry.dwords)).sum());
            let lacking = s.entries.iter().filter(|entry| entry.lack.is_some()).count();
            if lacking > 0 {
                e.uint("entries_without_words", lacking as u64);
            }
            s.seq.map(|seq| e.uint("seq", seq));
            in_call(e, s.call.as_ref());
        })
    }

    fn operation(
        &mut self,
        when: &When,
        category: &str,
        name: &str,
        fill: impl FnOnce(&mut Event<'_, '_>),
    ) -> io::Result<()> {
        let (ns, track) = (self.about.monotonic(when.tsc), self.tracks.of_channel(when));
        self.packets.event(ns, track, category, What::Instant(name), |e| {
            e.flow(flow(Flow::Submission, when.submission));
            fill(e);
            e.uint("submission", when.submission).int("tid", when.tid.into());
            in_call(e, when.call.as_ref());
        })
    }

    fn copy(&mut self, c: &CopyRow) -> io::Result<()> {
        let to = c.dst_place.name();
        let name = match (c.mode, c.src_place) {
            (Mode::Fill, _) => format!("fill {to}"),
            (Mode::Inline, _) => format!("inline write to {to}"),
            (Mode::CopyEngine, from) => format!("copy {} to {to}", from.map_or("?", |from| from.name())),
        };
        let category = if c.mode == Mode::Fill { "fill" } else { "copy" };
        let fill = |e: &mut Event<'_, '_>| {
            e.uint("bytes", c.bytes);
            c.src.map(|src| e.pointer("src", src));
            e.pointer("dst", c.dst);
            c.src_gpu.map(|gpu| e.uint("src_gpu", gpu.into()));
            c.dst_gpu.map(|gpu| e.uint("dst_gpu", gpu.into()));
            e.uint("lines", c.lines.into());
            for (is, what) in [(c.pipelined, "pipelined"), (c.guessed, "guessed"), (!c.complete, "incomplete")] {
                if is {
                    e.flag(what, true);
                }
            }
        };
        match (&c.gpu, self.about.ran(&c.ran)) {
            (Some(gpu), Some(ran)) => {
                let joins = flow(Flow::Submission, c.when.submission);
                self.ran(&c.when, gpu, ran, category, &name, joins, fill)
            }
            _ => self.operation(&c.when, category, &name, fill),
        }
    }

    fn launch(&mut self, l: &LaunchRow) -> io::Result<()> {
        let name = match (&l.name, l.shape) {
            _ if l.empty => "empty QMD".to_owned(),
            (Some(name), _) => short_name(name),
            (None, Some(shape)) => format!("kernel {:#x}", shape.code()),
            (None, None) => "kernel ?".to_owned(),
        };
        let run = l.gpu.map(|_| flow_of_run(&l.when, l.number));
        self.operation(&l.when, if l.empty { "empty launch" } else { "launch" }, &name, |e| {
            run.map(|run| e.flow(run));
            l.name.as_deref().map(|name| e.text("kernel", name));
            if let Some(s) = &l.shape {
                let extent = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
                e.text("grid", &extent(s.grid)).text("block", &extent(s.block));
                s.cluster.map(|cluster| e.text("cluster", &extent(cluster)));
                e.uint("registers", s.registers.into()).uint("shared_memory", s.shared_memory.into());
                e.pointer("program", s.program);
            }
            e.pointer("qmd", l.qmd).text("how", l.how);
            for (is, what) in [(l.again, "again"), (l.guessed, "guessed")] {
                if is {
                    e.flag(what, true);
                }
            }
        })
    }

    /// When a kernel ran.
    fn kernel_run(&mut self, k: &KernelRun) -> io::Result<()> {
        let Some(ran) = self.about.ran(&k.ran) else { return Ok(()) };
        let name = k.name.as_deref().map_or_else(|| format!("kernel {:#x}", k.code), short_name);
        let submission = || flow(Flow::Submission, k.when.submission);
        let joins = k.launch.map_or_else(submission, |launch| flow_of_run(&k.when, launch));
        self.ran(&k.when, &k.gpu, ran, "kernel", &name, joins, |e| {
            k.name.as_deref().map(|name| e.text("kernel", name));
            e.flag("in_graph", k.in_graph);
        })
    }

    /// What the GPU did from one time to another.
    #[allow(clippy::too_many_arguments)]
    fn ran(
        &mut self,
        when: &When,
        gpu: &GpuTime,
        (from, to): (i64, i64),
        category: &'static str,
        name: &str,
        joins: u64,
        fill: impl FnOnce(&mut Event<'_, '_>),
    ) -> io::Result<()> {
        let ns = |ns: i64| self.about.monotonic_ns.saturating_add_signed(ns);
        let (from, to) = (ns(from), ns(to));
        let track = self.tracks.of_run(when, (from, to), &mut self.packets)?;
        self.packets.event(from, track, category, What::Begin(name), |e| {
            e.flow(joins);
            fill(e);
            e.text("start", gpu.start.name()).uint("queued_ns", gpu.queued_ns);
            if gpu.earliest_ns < gpu.start_ns {
                e.uint("earlier_by_ns", gpu.start_ns - gpu.earliest_ns);
            }
            e.uint("clock_error_ns", gpu.clock_error_ns);
            e.uint("submission", when.submission).int("tid", when.tid.into());
            in_call(e, when.call.as_ref());
        })?;
        self.packets.event(to, track, category, What::End, |_| ())
    }

    fn lock(&mut self, u: &UseRow) -> io::Result<()> {
        let thread = (u.process, u.tid);
        if let Some((from, to)) = u.waited {
            let track = self.tracks.below(thread, Below::LockWaits, &mut self.packets)?;
            let condition = u.operation.starts_with("cond_") || u.operation.starts_with("sem_");
            let category = if condition { "condition wait" } else { "lock wait" };
            let flows = self.joins.waits.get(&(thread, from)).cloned().unwrap_or_default();
            self.slice((from, to), track, category, &u.lock, |e| {
                for flow in flows {
                    e.flow(flow);
                }
                operation(e, u);
                e.int("result", u.result.into());
            })?;
        }
        if let Some((from, to)) = u.held {
            let ns = (self.about.monotonic(from), self.about.monotonic(to));
            let track = self.tracks.beside(thread, Below::LocksHeld, ns, &mut self.packets)?;
            self.packets.event(ns.0, track, "lock hold", What::Begin(&u.lock), |e| {
                operation(e, u);
                u.release_site.as_deref().map(|site| e.text("release_site", site));
                u.ended.map(|ended| e.text("ended", ended));
                u.held_at_least_ns.map(|_| e.text("began", "here or before: not known"));
            })?;
            for w in self.joins.holds.get(&(thread, from)).into_iter().flatten() {
                // (After the begin of the wait, so that the arrow starts there.)
                let ns = self.about.monotonic(w.from).max(ns.0) + 1;
                self.packets.event(ns, track, "lock hold", What::Instant("another thread waits"), |e| {
                    e.flow(w.flow).int("waiter", w.tid.into());
                })?;
            }
            self.packets.event(ns.1, track, "lock hold", What::End, |_| ())?;
        }
        if u.waited.is_none() && u.held.is_none() {
            let track = self.tracks.below(thread, Below::LockOperations, &mut self.packets)?;
            let ns = self.about.monotonic(u.tsc);
            self.packets.event(ns, track, "lock operation", What::Instant(u.operation), |e| {
                e.text("lock", &u.lock);
                operation(e, u);
                e.int("result", u.result.into());
            })?;
        }
        Ok(())
    }

    fn range(&mut self, r: &OneRange) -> io::Result<()> {
        let thread = (r.process, r.tid);
        let from = self.about.monotonic(r.tsc);
        let fill = |e: &mut Event<'_, '_>| {
            r.domain.as_deref().map(|domain| e.text("domain", domain));
            r.payload.as_deref().map(|payload| e.text("payload", payload));
            r.color.as_deref().map(|color| e.text("color", color));
            r.category.map(|category| e.uint("category", category.into()));
            r.end_tid.filter(|tid| *tid != r.tid).map(|tid| e.int("end_tid", tid.into()));
            if let Some(work) = &r.all_threads {
                let ms = |ns: u64| ns as f64 / 1e6;
                e.double("gpu_busy_ms", ms(work.busy_ns)).double("queued_ms", ms(work.queued_ns));
                e.double("idle_ms", ms(work.idle_ns)).uint("without_time", work.without_time);
            }
        };
        if r.style == "mark" {
            let track = self.tracks.below(thread, Below::Ranges, &mut self.packets)?;
            return self.packets.event(from, track, "nvtx", What::Instant(&r.text), fill);
        }
        let to = r.ns.map(|ns| from.saturating_add(ns));
        let which = if r.style == "start_end" { Below::ProcessRanges } else { Below::Ranges };
        let track = self.tracks.beside(thread, which, (from, to.unwrap_or(u64::MAX)), &mut self.packets)?;
        self.packets.event(from, track, "nvtx", What::Begin(&r.text), fill)?;
        match to {
            Some(to) => self.packets.event(to, track, "nvtx", What::End, |_| ()),
            None => Ok(()),
        }
    }

    fn cuda_call(&mut self, c: &OneCall) -> io::Result<()> {
        let track = self.tracks.of_thread((c.process, c.tid), &mut self.packets)?;
        let from = self.about.monotonic(c.tsc);
        self.packets.event(from, track, "cuda call", What::Begin(&c.call), |e| {
            if let Some(number) = c.number {
                e.flow(flow_of_call(c.process, c.tid, number)).uint("number", number.into());
            }
            e.text("kind", c.kind).pointer("stream", c.stream).pointer("object", c.object).uint("size", c.size);
            e.text("site", &c.site).uint("inner", c.inner.into());
            c.copies.map(|copies| e.uint("copies", copies.into()));
            c.result.map(|result| e.int("result", result.into()));
            if !c.python.is_empty() {
                e.text("python", &rows::stack(&c.python));
            }
        })?;
        match c.ns {
            Some(ns) => self.packets.event(from.saturating_add(ns), track, "cuda call", What::End, |_| ()),
            None => Ok(()),
        }
    }

    fn switch(&mut self, s: &OneSwitch) -> io::Result<()> {
        let thread = (s.process, s.tid);
        let ns = self.about.monotonic(s.tsc);
        if let Some(track) = self.tracks.comes(thread) {
            self.packets.event(ns, track, "off CPU", What::End, |_| ())?;
        }
        if s.what == "on" {
            return Ok(());
        }
        let track = self.tracks.below(thread, Below::OffCpu, &mut self.packets)?;
        self.tracks.leaves(thread, track);
        self.packets.event(ns, track, "off CPU", What::Begin(s.what), |e| {
            e.uint("cpu", s.cpu.into());
            s.other.map(|other| e.int("next", other.into()));
            if !s.other_name.is_empty() {
                e.text("next_name", &s.other_name);
            }
        })
    }
}

/// The number of a call, if it has one.
fn number(call: &InCall) -> Option<u32> {
    (call.number != 0).then_some(call.number)
}

fn in_call(e: &mut Event<'_, '_>, call: Option<&InCall>) {
    if let Some(call) = call {
        e.text("in_call", call.name).uint("call_number", call.number.into()).pointer("stream", call.stream);
    }
}

fn operation(e: &mut Event<'_, '_>, u: &UseRow) {
    e.text("operation", u.operation).text("site", &u.site).pointer("address", u.address);
}
