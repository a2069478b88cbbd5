//! The JSON that PyTorch's profiler writes: a Chrome trace with Kineto's categories and metadata.
//!
//! Copies and launches are instants at the time of their doorbell. Where the GPU's times were recorded, kernels and copies that ran have durations, and a launch is
//! not drawn. Locks held, operations that did not wait, and context switches are left out: threads have one row each here, and these would not nest.
//!
//! Tools treat everything with `stream` as GPU work, and 0 as no stream. So `stream` holds the number of a row, and stream handles have another
//! key.

use crate::about::About;
use crate::lanes::Lanes;
use crate::{ExportError, Writer, rows};
use decode::Recording;
use decode::streams::Stream;
use schema::Place;
use schema::driver_calls::DriverCallRow;
use schema::happened::{OneCall, OneRange};
use schema::kernel_runs::KernelRun;
use schema::lines::Line;
use schema::lock_uses::UseRow;
use schema::operations::{CopyRow, GpuTime, InCall, LaunchRow, Mode, When};
use schema::python::FrameRow;
use schema::submissions::SubmissionRow;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

const TIMES: &str =
    "The GPU's own times are not recorded. Copies and launches are instants at the time of their doorbell.";
const TIMES_OF_THE_GPU: &str = "Kernels have their times on the GPU, and so have copies. Those whose times are not known are instants at the time of their doorbell.";

/// Writes the whole recording as a trace.
pub fn kineto(r: &Recording, out: &mut dyn Write) -> Result<(), ExportError> {
    let about = About::of(r, 0)?;
    let mut trace = Trace::new(&about, out);
    trace.head(r)?;
    rows::each(r, &about, &mut trace)?;
    trace.out.write_all(b"\n]}\n")?;
    Ok(())
}

struct Trace<'a> {
    about: &'a About,
    out: &'a mut dyn Write,
    any: bool,
    /// By image, slot and generation.
    channels: HashMap<(u32, u32, u32), Row>,
    /// Where the work of a channel's stream is.
    streams: HashMap<Stream, Runs>,
    /// The last row of a channel or of a stream.
    last_row: usize,
    /// The submission whose arrow has begun.
    arrow: Option<u64>,
    /// Threads that made calls, by image and number.
    threads: HashMap<(u32, i32), u64>,
}

/// A channel.
#[derive(Clone)]
struct Row {
    /// Its GPU.
    pid: Value,
    gpu: Option<u32>,
    number: usize,
    title: String,
}

/// Rows next to each other, for kernels that run at the same time.
#[derive(Default)]
struct Runs {
    lanes: Lanes,
    rows: Vec<usize>,
}

/// An event of the trace.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    cat: &'static str,
    name: &'a str,
    pid: &'a Value,
    tid: Value,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Scope of an instant: its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    /// An arrow ends at the slice that encloses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

impl Trace<'_> {
    fn new<'a>(about: &'a About, out: &'a mut dyn Write) -> Trace<'a> {
        let pids: BTreeSet<i64> = about.summary.processes.iter().map(|p| p.pid.into()).collect();
        let row = |gpu: Option<u32>| match gpu {
            Some(n) if !pids.contains(&i64::from(n)) => json!(n),
            Some(n) => json!(format!("GPU {n}")),
            None => json!("GPU ?"),
        };
        let channels = about.summary.channel_list.iter().map(|c| {
            let title = format!("channel {} {}, pid {}", c.label(), c.engine, c.pid);
            ((c.process, c.slot, c.generation), Row { pid: row(c.gpu), gpu: c.gpu, number: c.number, title })
        });
        let channels = channels.collect::<HashMap<_, _>>();
        let last_row = channels.values().map(|c| c.number).max().unwrap_or(0);
        Trace {
            about,
            out,
            any: false,
            channels,
            streams: HashMap::new(),
            last_row,
            arrow: None,
            threads: HashMap::new(),
        }
    }

    /// All but the events, and the names of rows.
    fn head(&mut self, r: &Recording) -> Result<(), ExportError> {
        let s = &self.about.summary;
        let gpus = s.gpus.iter().map(|id| json!({ "id": id, "name": s.gpu })).collect::<Vec<_>>();
        let ranks: Vec<_> = s.processes.iter().filter_map(|p| p.rank.as_ref()).collect();
        let began = r.clocks().first().map_or(0, |c| c.realtime_ns);
        let mut head = json!({
            "schemaVersion": 1,
            "displayTimeUnit": "ms",
            "deviceProperties": gpus,
            "baseTimeNanoseconds": began,
            "traceName": r.path().file_name().unwrap_or_default().to_string_lossy(),
            "doorbell": self.about.row,
            "doorbell_version": r.header().doorbell,
            "gpu_times": if self.about.has_gpu_times { TIMES_OF_THE_GPU } else { TIMES },
        });
        if let [rank] = ranks[..] {
            head["distributedInfo"] = json!({ "rank": rank.rank, "world_size": rank.world_size });
        }
        // (Holistic Trace Analysis searches lines for `"rank": 3`, with the space.)
        let text = serde_json::to_string_pretty(&head).map_err(io::Error::from)?;
        write!(self.out, "{},\n  \"traceEvents\": [", text.strip_suffix("\n}").unwrap_or_default())?;
        self.names()
    }

    fn names(&mut self) -> Result<(), ExportError> {
        let mut names = Vec::new();
        for p in &self.about.summary.processes {
            let pid = json!(p.pid);
            let exe = p.exe.rsplit('/').next().unwrap_or_default();
            names.push(name("process_name", &pid, 0, json!({ "name": exe })));
            names.push(name("process_labels", &pid, 0, json!({ "labels": "CPU" })));
        }
        for t in self.about.threads.iter().filter(|t| !t.name.is_empty()) {
            let process = self.about.summary.processes.iter().find(|p| p.index == t.process);
            let pid = json!(process.map_or(0, |p| p.pid));
            names.push(name("thread_name", &pid, t.tid.into(), json!({ "name": t.name })));
        }
        let mut gpus = BTreeSet::new();
        for c in &self.about.summary.channel_list {
            let Some(Row { pid, number, title, .. }) = self.channels.get(&(c.process, c.slot, c.generation)) else {
                continue;
            };
            let gpu = c.gpu.map_or("GPU ?".into(), |n| format!("GPU {n}"));
            if gpus.insert(c.gpu) {
                let of =
                    if self.about.has_gpu_times { "times of kernels, else of doorbells" } else { "times of doorbells" };
                let title = format!("{} ({of})", self.about.summary.gpu);
                names.push(name("process_name", pid, 0, json!({ "name": title })));
                names.push(name("process_labels", pid, 0, json!({ "labels": gpu })));
            }
            names.push(name("thread_name", pid, *number as i64, json!({ "name": title })));
        }
        names.iter().try_for_each(|row| Ok(self.json(row)?))
    }

    fn json(&mut self, row: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        Ok(serde_json::to_writer(&mut *self.out, row)?)
    }

    fn us(&self, tsc: u64) -> f64 {
        self.about.ns(tsc) as f64 / 1e3
    }

    fn event<'e>(&self, (pid, tid): (&'e Value, i32), cat: &'static str, name: &'e str, tsc: u64) -> Event<'e> {
        let tid = json!(tid);
        Event {
            ph: "i",
            cat,
            name,
            pid,
            tid,
            ts: self.us(tsc),
            dur: None,
            id: None,
            s: Some("t"),
            bp: None,
            args: Value::Null,
        }
    }

    /// Joins a call with its submissions: a number that is unique for each call in the file.
    fn correlation(&mut self, process: u32, tid: i32, number: u32) -> u64 {
        let next = self.threads.len() as u64;
        let thread = *self.threads.entry((process, tid)).or_insert(next);
        thread << 32 | u64::from(number)
    }

    fn in_call(&mut self, args: &mut Value, process: u32, tid: i32, call: Option<&InCall>) {
        let Some(call) = call else { return };
        args["call"] = json!(call.name);
        args["stream_handle"] = json!(format!("{:#x}", call.stream));
        if let Some(line) = &call.python {
            args["python"] = json!(line.place());
        }
        if call.number != 0 {
            args["correlation"] = json!(self.correlation(process, tid, call.number));
        }
    }

    fn driver_call(&mut self, c: &DriverCallRow<'_>) -> io::Result<()> {
        let pid = json!(c.pid);
        let e = self.event((&pid, c.tid), "driver_call", c.what.as_deref().unwrap_or(c.call), c.tsc);
        let args = json!({ "call": c.call, "file": c.file, "fd": c.fd, "returned": c.ret, "status": c.status_name });
        let e = match c.ticks {
            Some(ticks) => {
                let dur = Some(self.us(c.tsc.saturating_add(ticks)) - e.ts);
                Event { ph: "X", dur, s: None, args, ..e }
            }
            None => Event { args, ..e },
        };
        self.json(&e)
    }

    fn submission(&mut self, s: &SubmissionRow) -> io::Result<()> {
        let (pid, name) = (json!(s.pid), format!("doorbell {}", s.engine));
        let mut args = json!({
            "submission": s.number,
            "slot": s.slot,
            "entries": s.entries.len(),
            "words": s.entries.iter().map(|e| u64::from(e.dwords)).sum::<u64>(),
        });
        self.in_call(&mut args, s.process, s.tid, s.call.as_ref());
        let e = self.event((&pid, s.tid), "doorbell", name.trim_end(), s.tsc);
        self.json(&Event { args, ..e })
    }

    fn channel(&self, when: &When) -> Row {
        let known = self.channels.get(&(when.process, when.slot, when.generation)).cloned();
        known.unwrap_or_else(|| Row { pid: json!("GPU ?"), gpu: None, number: 0, title: "channel ?".into() })
    }

    /// From the thread that rang; once for each submission.
    fn begin_arrow(&mut self, when: &When) -> io::Result<()> {
        if self.arrow.replace(when.submission) == Some(when.submission) {
            return Ok(());
        }
        let pid = json!(when.pid);
        let begin = self.event((&pid, when.tid), "ac2g", "ac2g", when.tsc);
        self.json(&Event { ph: "s", id: Some(when.submission), s: None, ..begin })
    }

    /// Something that a submission sent, and the arrow to it from the thread.
    fn operation(&mut self, when: &When, cat: &'static str, name: &str, mut args: Value) -> io::Result<()> {
        let Row { pid: row, number, .. } = self.channel(when);
        let tid = number as i32;
        let id = Some(when.submission);
        self.begin_arrow(when)?;
        args["submission"] = json!(when.submission);
        self.in_call(&mut args, when.process, when.tid, when.call.as_ref());
        let e = self.event((&row, tid), cat, name, when.tsc);
        self.json(&Event { args, ..e })?;
        let end = self.event((&row, tid), "ac2g", "ac2g", when.tsc);
        self.json(&Event { ph: "f", id, s: None, bp: Some("e"), ..end })
    }

    fn copy(&mut self, c: &CopyRow) -> io::Result<()> {
        let letter = |p: Place| match p {
            Place::Video => "D",
            Place::Host => "H",
            Place::Unknown => "?",
        };
        let (cat, name) = match (c.mode, c.src_place) {
            (Mode::Fill, _) => ("gpu_memset", "Memset".to_owned()),
            (Mode::CopyEngine, Some(from)) => {
                ("gpu_memcpy", format!("Memcpy {}to{}", letter(from), letter(c.dst_place)))
            }
            // The bytes came from the host in the command stream.
            _ => ("gpu_memcpy", format!("Memcpy Hto{} (inline)", letter(c.dst_place))),
        };
        let mut args = json!({ "bytes": c.bytes, "src_gpu": c.src_gpu, "dst_gpu": c.dst_gpu, "guessed": c.guessed });
        match (c.gpu, self.about.ran(&c.ran)) {
            (Some(gpu), Some(ran)) => {
                // (Bytes in a nanosecond are GB in a second.)
                args["memory bandwidth (GB/s)"] = json!(c.bytes as f64 / (ran.1 - ran.0).max(1) as f64);
                self.ran(&c.when, &gpu, ran, cat, &name, args)
            }
            _ => self.operation(&c.when, cat, &name, args),
        }
    }

    fn launch(&mut self, l: &LaunchRow) -> io::Result<()> {
        // (Its run follows. Tools would count the kernel twice.)
        if l.gpu.is_some_and(|_| self.about.has_gpu_times) {
            return Ok(());
        }
        let unnamed = || l.shape.map_or("kernel ?".into(), |s| format!("kernel {:#x}", s.code()));
        let name = if l.empty { "empty QMD".to_owned() } else { l.name.clone().unwrap_or_else(unnamed) };
        let args = match &l.shape {
            Some(s) => json!({
                "grid": s.grid,
                "block": s.block,
                "cluster": s.cluster,
                "registers per thread": s.registers,
                "shared memory": s.shared_memory,
                "again": l.again,
            }),
            None => json!({ "again": l.again }),
        };
        let category = match l.empty {
            true => "empty_launch",
            false if self.about.has_gpu_times => "launch",
            false => "kernel",
        };
        self.operation(&l.when, category, &name, args)
    }

    fn kernel_run(&mut self, k: &KernelRun) -> io::Result<()> {
        let Some(ran) = self.about.ran(&k.ran) else { return Ok(()) };
        let name = k.name.clone().unwrap_or_else(|| format!("kernel {:#x}", k.code));
        self.ran(&k.when, &k.gpu, ran, "kernel", &name, json!({ "in_graph": k.in_graph }))
    }

    /// What the GPU did from one time to another.
    fn ran(
        &mut self,
        when: &When,
        gpu: &GpuTime,
        (from, to): (i64, i64),
        cat: &'static str,
        name: &str,
        mut args: Value,
    ) -> io::Result<()> {
        let (ts, dur) = (from as f64 / 1e3, (to - from) as f64 / 1e3);
        let channel = self.channel(when);
        let (stream, row) = self.row_of_run(when, &channel, (from, to))?;
        self.begin_arrow(when)?;
        args["device"] = json!(channel.gpu);
        args["stream"] = json!(stream);
        args["start"] = json!(gpu.start.name());
        args["queued_ns"] = json!(gpu.queued_ns);
        args["earlier_by_ns"] = json!(gpu.start_ns.saturating_sub(gpu.earliest_ns));
        args["submission"] = json!(when.submission);
        self.in_call(&mut args, when.process, when.tid, when.call.as_ref());
        let place = (&channel.pid, row as i32);
        let e = self.event(place, cat, name, when.tsc);
        self.json(&Event { ph: "X", ts, dur: Some(dur), s: None, args, ..e })?;
        let end = self.event(place, "ac2g", "ac2g", when.tsc);
        self.json(&Event { ph: "f", ts, id: Some(when.submission), s: None, bp: Some("e"), ..end })
    }

    /// The number of its stream, and the row that it is drawn in.
    fn row_of_run(&mut self, w: &When, channel: &Row, (from, to): (i64, i64)) -> io::Result<(usize, usize)> {
        let of = Stream::of(w).or_default();
        let runs = self.streams.entry(of).or_default();
        // (As numbers without sign, in the same order.)
        let lane = runs.lanes.place_apart(from as u64 ^ 1 << 63, to as u64 ^ 1 << 63);
        if let (Some(stream), Some(row)) = (runs.rows.first(), runs.rows.get(lane)) {
            return Ok((*stream, *row));
        }
        self.last_row += 1;
        runs.rows.push(self.last_row);
        let (stream, row) = (runs.rows.first().copied().unwrap_or(self.last_row), self.last_row);
        let beside = if lane == 0 { String::new() } else { format!(" ({})", lane + 1) };
        let title = format!("{}{beside}, {}", of.title(&self.about.summary.streams), channel.title);
        self.json(&name("thread_name", &channel.pid, row as i64, json!({ "name": title })))?;
        Ok((stream, row))
    }

    fn lock(&mut self, u: &UseRow) -> io::Result<()> {
        let Some((from, to)) = u.waited else { return Ok(()) };
        let condition = u.operation.starts_with("cond_") || u.operation.starts_with("sem_");
        let pid = json!(u.pid);
        let e = self.event((&pid, u.tid), if condition { "condition_wait" } else { "lock_wait" }, u.operation, from);
        let dur = Some(self.us(to) - e.ts);
        let args = json!({ "lock": u.lock, "site": u.site, "result": u.result, "hold_ns": u.hold_ns });
        self.json(&Event { ph: "X", dur, s: None, args, ..e })
    }

    /// (Ranges of the process do not nest with those of a thread.)
    fn range(&mut self, r: &OneRange) -> io::Result<()> {
        if r.style == "start_end" {
            return Ok(());
        }
        let pid = json!(r.pid);
        let mut args = json!({ "domain": r.domain, "payload": r.payload, "color": r.color, "category": r.category });
        if let Some(work) = &r.all_threads {
            let times = [("gpu_busy_ms", work.busy_ns), ("queued_ms", work.queued_ns), ("idle_ms", work.idle_ns)];
            times.iter().for_each(|(name, ns)| args[*name] = json!(*ns as f64 / 1e6));
            args["without_time"] = json!(work.without_time);
        }
        let e = self.event((&pid, r.tid), "user_annotation", &r.text, r.tsc);
        let e = match r.ns {
            Some(ns) => Event { ph: "X", dur: Some(ns as f64 / 1e3), s: None, args, ..e },
            None if r.style == "mark" => Event { args, ..e },
            None => Event { ph: "B", s: None, args, ..e },
        };
        self.json(&e)
    }

    fn cuda_call(&mut self, c: &OneCall) -> io::Result<()> {
        let cat = if c.call.starts_with("cuda") { "cuda_runtime" } else { "cuda_driver" };
        let pid = json!(c.pid);
        let mut args = json!({ "kind": c.kind, "stream_handle": format!("{:#x}", c.stream), "size": c.size, "result": c.result, "site": c.site });
        if let Some(copies) = c.copies {
            args["copies"] = json!(copies);
        }
        if !c.python.is_empty() {
            args["Call stack"] = json!(call_stack(&c.python));
        }
        if let Some(number) = c.number {
            args["correlation"] = json!(self.correlation(c.process, c.tid, number));
        }
        let e = self.event((&pid, c.tid), cat, &c.call, c.tsc);
        let e = match c.ns {
            Some(ns) => Event { ph: "X", dur: Some(ns as f64 / 1e3), s: None, args, ..e },
            // It had not returned when the recording ended.
            None => Event { ph: "B", s: None, args, ..e },
        };
        self.json(&e)
    }
}

/// The name of a row.
fn name(what: &str, pid: &Value, tid: i64, args: Value) -> Value {
    json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args })
}

/// As PyTorch's profiler writes it (`with_stack`): `train.py(12): forward;...`, the innermost frame first.
fn call_stack(frames: &[FrameRow]) -> String {
    let frame = |f: &FrameRow| match f.line {
        Some(line) => format!("{}({line}): {}", f.file, f.function),
        None => format!("{}: {}", f.file, f.function),
    };
    frames.iter().map(frame).collect::<Vec<_>>().join(";")
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
            Line::Header(_)
            | Line::Recording(_)
            | Line::Switch(_)
            | Line::Symbol { .. }
            | Line::Note { .. }
            | Line::Channel(_)
            | Line::End(_) => {}
        }
        Ok(())
    }
}
