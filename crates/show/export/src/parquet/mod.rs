//! A folder of Parquet files, one for each type of row.
//!
//! A column is named as the key in JSON; keys within keys are joined by `_`, and the three numbers of an extent end in `_x`, `_y`, `_z`.

mod table;

use crate::about::About;
use crate::{ExportError, Writer, rows};
use decode::Recording;
use parquet::file::metadata::KeyValue;
use schema::Place;
use schema::channel::{Accounted, Channel};
use schema::document::Kind;
use schema::driver_calls::DriverCallRow;
use schema::happened::{OneCall, OneRange, OneSwitch};
use schema::kernel_runs::KernelRun;
use schema::lines::Line;
use schema::lock_uses::UseRow;
use schema::operations::{CopyRow, GpuTime, InCall, LaunchRow, Mode, Shape, When};
use schema::processes::ProcessRow;
use schema::ranges::RangeWork;
use schema::submissions::{CommandRow, EntryRow, SubmissionRow};
use schema::symbols::SymbolRow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{Row, Table};

/// Writes the whole recording into an existing folder without any of these files.
pub fn parquet(r: &Recording, folder: &Path) -> Result<(), ExportError> {
    let about = About::of(r, 0)?;
    let mut tables = Tables::new(folder, &about);
    about.summary.processes.iter().try_for_each(|p| tables.process(p))?;
    rows::each(r, &about, &mut tables)?;
    Ok(tables.close(r, &about)?)
}

struct Tables {
    folder: PathBuf,
    metadata: Arc<Vec<KeyValue>>,
    processes: Table,
    channels: Table,
    driver_calls: Table,
    submissions: Table,
    entries: Table,
    commands: Table,
    copies: Table,
    launches: Table,
    kernel_runs: Table,
    ranges: Table,
    locks: Table,
    cuda_calls: Table,
    switches: Table,
    symbols: Table,
    notes: Table,
}

impl Tables {
    fn new(folder: &Path, about: &About) -> Tables {
        let row = &about.row;
        let metadata = [
            ("doorbell.schema", <tape::file::Header as Kind>::SCHEMA.to_owned()),
            ("doorbell.complete", row.complete.to_string()),
            ("doorbell.incomplete_because", row.incomplete_because.join("\n")),
            ("doorbell.lost", row.lost.to_string()),
            ("doorbell.lost_events", row.lost_detail.gap_events.to_string()),
            ("doorbell.clock_error_ns", row.clock_error_ns.map_or("unknown".into(), |ns| ns.to_string())),
        ];
        let metadata = Arc::new(metadata.map(|(k, v)| KeyValue::new(k.into(), v)).to_vec());
        let table = |name: &str| Table::new(folder.join(format!("{name}.parquet")), metadata.clone());
        Tables {
            folder: folder.into(),
            processes: table("processes"),
            channels: table("channels"),
            driver_calls: table("driver_calls"),
            submissions: table("submissions"),
            entries: table("entries"),
            commands: table("commands"),
            copies: table("copies"),
            launches: table("launches"),
            kernel_runs: table("kernel_runs"),
            ranges: table("ranges"),
            locks: table("locks"),
            cuda_calls: table("cuda_calls"),
            switches: table("switches"),
            symbols: table("symbols"),
            notes: table("notes"),
            metadata,
        }
    }

    /// Completes the files. The last one is the recording's, with the number of rows in each of them.
    fn close(self, r: &Recording, about: &About) -> io::Result<()> {
        let tables = [
            ("rows_processes", self.processes),
            ("rows_channels", self.channels),
            ("rows_driver_calls", self.driver_calls),
            ("rows_submissions", self.submissions),
            ("rows_entries", self.entries),
            ("rows_commands", self.commands),
            ("rows_copies", self.copies),
            ("rows_launches", self.launches),
            ("rows_kernel_runs", self.kernel_runs),
            ("rows_ranges", self.ranges),
            ("rows_locks", self.locks),
            ("rows_cuda_calls", self.cuda_calls),
            ("rows_switches", self.switches),
            ("rows_symbols", self.symbols),
            ("rows_notes", self.notes),
        ];
        let mut counts = Vec::with_capacity(tables.len());
        for (name, table) in tables {
            counts.push((name, table.close()?));
        }
        let mut recording = Table::new(self.folder.join("recording.parquet"), self.metadata);
        let (row, header, clock) = (&about.row, r.header(), r.clocks().first());
        recording.push(|out| {
            out.flag("complete", row.complete);
            out.text("incomplete_because", &*row.incomplete_because.join("\n"));
            out.uint("lost", row.lost).uint("lost_events", row.lost_detail.gap_events);
            out.uint("clock_error_ns", row.clock_error_ns);
            out.double("tsc_hz", header.tsc_hz);
            out.uint("first_tsc", clock.map(|c| c.tsc));
            out.uint("first_monotonic_ns", clock.map(|c| c.monotonic_ns));
            out.uint("first_realtime_ns", clock.map(|c| c.realtime_ns).filter(|ns| *ns != 0));
            out.double("seconds", about.summary.seconds);
            out.text("exe", &*header.exe).text("started", &*header.started).text("host", &*header.host);
            out.text("kernel", &*header.kernel).text("cpu", &*header.cpu).text("gpu", &*header.gpu);
            out.text("driver", &*header.driver).text("cuda", header.cuda.as_deref());
            out.text("doorbell", &*header.doorbell).text("tap", &*header.tap);
            out.flag("locks", header.locks).flag("no_data", header.no_data);
            for (name, count) in &counts {
                out.uint(name, *count);
            }
        })?;
        recording.close().map(drop)
    }

    fn process(&mut self, p: &ProcessRow) -> io::Result<()> {
        self.processes.push(|out| {
            out.uint("index", u64::from(p.index)).int("pid", i64::from(p.pid)).int("ppid", i64::from(p.ppid));
            out.uint("parent", p.parent.map(u64::from)).uint("image", u64::from(p.image)).text("exe", &*p.exe);
            out.text("args", p.args.as_ref().map(|a| a.join(" ")).as_deref());
            let rank = p.rank.as_ref();
            out.uint("rank_rank", rank.map(|r| r.rank.into()));
            out.uint("rank_local_rank", rank.and_then(|r| r.local_rank).map(u64::from));
            out.uint("rank_world_size", rank.and_then(|r| r.world_size).map(u64::from));
            out.text("rank_launcher", rank.map(|r| &*r.launcher));
            out.double("began", p.began);
            out.text("end_how", p.end.as_ref().map(|e| &*e.how));
            out.int("end_exit_code", p.end.as_ref().and_then(|e| e.exit_code).map(i64::from));
            out.int("end_signal", p.end.as_ref().and_then(|e| e.signal).map(i64::from));
            out.flag("complete", p.complete).text("incomplete_because", &*p.incomplete_because.join("\n"));
            out.uint("doorbells", p.doorbells).uint("submissions", p.submissions).uint("entries", p.entries);
            out.uint("lost", p.lost).uint("copies", p.copies).uint("launches", p.launches);
            out.uint("channels", p.channels).uint("driver_calls", p.driver_calls);
        })
    }

    fn channel(&mut self, c: &Channel) -> io::Result<()> {
        self.channels.push(|out| {
            out.uint("number", c.number as u64).uint("process", u64::from(c.process)).int("pid", i64::from(c.pid));
            out.uint("slot", u64::from(c.slot)).uint("generation", u64::from(c.generation));
            out.uint("client", u64::from(c.client)).uint("handle", u64::from(c.handle));
            out.uint("class", u64::from(c.class)).text("class_name", &*c.class_name);
            out.uint("gpu", c.gpu.map(u64::from)).text("engine", &*c.engine);
            out.uint("runlist", c.runlist.map(u64::from)).uint("chid", c.chid.map(u64::from));
            out.uint("token", c.token.map(u64::from)).uint("ring_entries", u64::from(c.ring_entries));
            out.uint("gpfifo", c.gpfifo).text("gpfifo_place", place(c.gpfifo_place));
            out.text("userd_place", place(c.userd_place)).text("pushbuffer_place", place(c.pushbuffer_place));
            out.text("watch", c.watch.name()).uint("rings", c.rings).uint("submissions", c.submissions);
            out.uint("entries", c.entries).uint("command_bytes", c.command_bytes).uint("accounted", c.accounted);
            let accounted_by = match c.accounted_by {
                Accounted::Freed => "freed",
                Accounted::End => "end",
                Accounted::Seen => "seen",
            };
            out.text("accounted_by", accounted_by);
            out.uint("lost", c.lost).uint("surplus", c.surplus).uint("unrung", c.unrung);
            out.uint("rings_missing", c.rings_missing).flag("freed", c.freed).flag("announced", c.announced);
        })
    }

    fn driver_call(&mut self, c: &DriverCallRow<'_>) -> io::Result<()> {
        self.driver_calls.push(|out| {
            out.text("call", c.call).uint("tsc", c.tsc).double("seconds", c.seconds);
            out.uint("process", u64::from(c.process)).int("pid", i64::from(c.pid)).int("tid", i64::from(c.tid));
            out.text("file", c.file.as_deref()).int("fd", c.fd.map(i64::from)).text("what", c.what.as_deref());
            out.uint("request", c.request).int("ret", c.ret.map(i64::from)).uint("status", c.status.map(u64::from));
            out.text("status_name", c.status_name).uint("ticks", c.ticks);
            out.uint("address", c.address).uint("length", c.length).text("path", c.path.as_deref());
        })
    }

    fn submission(&mut self, s: &SubmissionRow) -> io::Result<()> {
        self.submissions.push(|out| {
            out.uint("number", s.number).uint("tsc", s.tsc).double("seconds", s.seconds);
            out.uint("process", u64::from(s.process)).int("pid", i64::from(s.pid)).int("tid", i64::from(s.tid));
            out.uint("slot", u64::from(s.slot)).uint("generation", u64::from(s.generation)).text("engine", &*s.engine);
            in_call(out, s.call.as_ref());
            ranges(out, &s.ranges);
            out.uint("token", s.token.map(u64::from)).uint("seq", s.seq);
            out.uint("put_from", s.put_from.map(u64::from)).uint("put_to", s.put_to.map(u64::from));
            out.flag("trapped", s.trapped).flag("handed_over", s.handed_over);
            out.uint("entries", s.entries.len() as u64);
        })?;
        for e in &s.entries {
            self.entry(s.number, e)?;
        }
        Ok(())
    }

    fn entry(&mut self, submission: u64, e: &EntryRow) -> io::Result<()> {
        self.entries.push(|out| {
            out.uint("submission", submission).uint("index", u64::from(e.index)).uint("seq", e.seq);
            out.uint("gp", e.gp).uint("va", e.va).text("place", place(e.place));
            out.uint("dwords", u64::from(e.dwords)).uint("recorded", e.recorded as u64).text("lack", e.lack);
            out.flag("late", e.late).flag("after_gap", e.after_gap).flag("va_guessed", e.va_guessed);
        })?;
        for c in &e.commands {
            self.command(submission, e.seq, c)?;
        }
        Ok(())
    }

    fn command(&mut self, submission: u64, entry_seq: u64, c: &CommandRow) -> io::Result<()> {
        self.commands.push(|out| {
            out.uint("submission", submission).uint("entry_seq", entry_seq).uint("word", u64::from(c.word));
            out.uint("class", c.class.map(u64::from)).uint("offset", c.offset.map(u64::from));
            out.text("method", c.method.as_deref()).uint("value", c.value.map(u64::from));
            out.uint("words", c.words.map(|n| n as u64)).text("text", &*c.text);
        })
    }

    fn copy(&mut self, c: &CopyRow) -> io::Result<()> {
        self.copies.push(|out| {
            when(out, &c.when);
            let mode = match c.mode {
                Mode::CopyEngine => "copy_engine",
                Mode::Inline => "inline",
                Mode::Fill => "fill",
            };
            out.text("mode", mode).uint("src", c.src).text("src_place", c.src_place.map(place));
            out.uint("src_gpu", c.src_gpu.map(u64::from)).uint("dst", c.dst).text("dst_place", place(c.dst_place));
            out.uint("dst_gpu", c.dst_gpu.map(u64::from)).uint("bytes", c.bytes).uint("lines", u64::from(c.lines));
            out.flag("pipelined", c.pipelined).flag("pitch", c.pitch).uint("semaphore", c.semaphore);
            out.uint("payload", c.payload).flag("physical", c.physical).flag("complete", c.complete);
            out.flag("guessed", c.guessed);
            out.double("start_seconds", c.ran.start_seconds).double("end_seconds", c.ran.end_seconds);
            gpu(out, c.gpu.as_ref());
        })
    }

    fn launch(&mut self, l: &LaunchRow) -> io::Result<()> {
        self.launches.push(|out| {
            when(out, &l.when);
            out.text("how", l.how).uint("qmd", l.qmd);
            shape(out, l.shape.as_ref());
            out.flag("empty", l.empty).flag("again", l.again);
            out.text("symbol", l.symbol.as_deref()).text("name", l.name.as_deref());
            gpu(out, l.gpu.as_ref());
            out.flag("guessed", l.guessed);
        })
    }

    fn kernel_run(&mut self, k: &KernelRun) -> io::Result<()> {
        self.kernel_runs.push(|out| {
            when(out, &k.when);
            out.text("symbol", k.symbol.as_deref()).text("name", k.name.as_deref());
            out.uint("code", k.code).flag("in_graph", k.in_graph);
            out.double("start_seconds", k.ran.start_seconds).double("end_seconds", k.ran.end_seconds);
            gpu(out, Some(&k.gpu));
        })
    }

    fn lock(&mut self, u: &UseRow) -> io::Result<()> {
        self.locks.push(|out| {
            out.double("at", u.at).uint("tsc", u.tsc);
            out.uint("process", u64::from(u.process)).int("pid", i64::from(u.pid)).int("tid", i64::from(u.tid));
            out.text("operation", u.operation).text("lock", &*u.lock).uint("address", u.address);
            out.text("kind", &*u.kind.join(", ")).text("site", &*u.site).int("result", i64::from(u.result));
            out.uint("wait_ns", u.wait_ns).uint("hold_ns", u.hold_ns);
            out.uint("held_at_least_ns", u.held_at_least_ns).text("ended", u.ended);
            out.text("release_site", u.release_site.as_deref()).uint("depth", u.depth.map(u64::from));
        })
    }

    fn range(&mut self, r: &OneRange) -> io::Result<()> {
        self.ranges.push(|out| {
            out.double("at", r.at).uint("tsc", r.tsc);
            out.uint("process", u64::from(r.process)).int("pid", i64::from(r.pid)).int("tid", i64::from(r.tid));
            out.text("domain", r.domain.as_deref()).text("text", &*r.text).text("style", r.style);
            out.uint("ns", r.ns).int("end_tid", r.end_tid.map(i64::from)).uint("level", r.level);
            out.text("payload", r.payload.as_deref()).text("color", r.color.as_deref());
            out.uint("category", r.category.map(u64::from));
            let work = |ns: fn(&RangeWork) -> u64| r.all_threads.as_ref().map(ns);
            out.uint("all_threads_runs", work(|w| w.runs)).uint("all_threads_ns", work(|w| w.ns));
            out.uint("all_threads_busy_ns", work(|w| w.busy_ns)).uint("all_threads_copies", work(|w| w.copies));
            out.uint("all_threads_copies_ns", work(|w| w.copies_ns));
            out.uint("all_threads_queued_ns", work(|w| w.queued_ns)).uint("all_threads_idle_ns", work(|w| w.idle_ns));
            out.uint("all_threads_without_time", work(|w| w.without_time));
        })
    }

    fn cuda_call(&mut self, c: &OneCall) -> io::Result<()> {
        self.cuda_calls.push(|out| {
            out.double("at", c.at).uint("tsc", c.tsc);
            out.uint("process", u64::from(c.process)).int("pid", i64::from(c.pid)).int("tid", i64::from(c.tid));
            out.text("call", &*c.call).uint("number", c.number.map(u64::from)).text("kind", c.kind);
            out.uint("ns", c.ns).int("result", c.result.map(i64::from)).uint("stream", c.stream);
            out.uint("object", c.object).uint("size", c.size).flag("size_at_least", c.size_at_least.then_some(true));
            out.uint("copies", c.copies.map(u64::from)).uint("source", c.source);
            out.text("site", &*c.site).uint("inner", u64::from(c.inner));
            out.text("python", (!c.python.is_empty()).then(|| rows::stack(&c.python)).as_deref());
            ranges(out, &c.ranges);
        })
    }

    fn switch(&mut self, s: &OneSwitch) -> io::Result<()> {
        self.switches.push(|out| {
            out.double("at", s.at).uint("tsc", s.tsc);
            out.uint("process", u64::from(s.process)).int("pid", i64::from(s.pid)).int("tid", i64::from(s.tid));
            out.uint("cpu", u64::from(s.cpu)).text("what", s.what).int("other", s.other.map(i64::from));
            out.text("other_name", Some(&*s.other_name).filter(|name| !name.is_empty()));
        })
    }

    fn symbol(&mut self, place: &str, s: &SymbolRow) -> io::Result<()> {
        self.symbols.push(|out| {
            out.text("place", place).text("name", s.name.as_deref()).text("file", s.file.as_deref());
            out.uint("line", s.line.map(u64::from)).text("refused", s.refused);
        })
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        self.notes.push(|out| {
            out.text("text", text);
        })
    }
}

impl Writer for Tables {
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
            Line::Channel(c) => self.channel(c)?,
            Line::Note { text } => self.note(text)?,
            Line::Symbol { place, symbol } => self.symbol(place, symbol)?,
            Line::Header(_) | Line::Recording(_) | Line::End(_) => {}
        }
        Ok(())
    }
}

fn place(p: Place) -> &'static str {
    match p {
        Place::Video => "video",
        Place::Host => "host",
        Place::Unknown => "unknown",
    }
}

fn when(out: &mut Row<'_>, w: &When) {
    out.uint("submission", w.submission).uint("tsc", w.tsc).double("seconds", w.seconds);
    out.uint("process", u64::from(w.process)).int("pid", i64::from(w.pid)).int("tid", i64::from(w.tid));
    out.uint("slot", u64::from(w.slot)).uint("generation", u64::from(w.generation)).text("engine", &*w.engine);
    in_call(out, w.call.as_ref());
    ranges(out, &w.ranges);
}

/// The outermost first, joined by line feeds: texts may contain any other character.
fn ranges(out: &mut Row<'_>, ranges: &[String]) {
    out.text("ranges", Some(ranges.join("\n")).filter(|all| !all.is_empty()).as_deref());
}

fn in_call(out: &mut Row<'_>, call: Option<&InCall>) {
    out.text("call_name", call.map(|c| c.name)).uint("call_number", call.map(|c| c.number.into()));
    out.uint("call_stream", call.map(|c| c.stream)).uint("call_object", call.map(|c| c.object));
    let python = call.and_then(|c| c.python.as_ref());
    out.text("call_python_file", python.map(|f| &*f.file)).text("call_python_function", python.map(|f| &*f.function));
    out.uint("call_python_line", python.and_then(|f| f.line).map(u64::from));
}

fn gpu(out: &mut Row<'_>, gpu: Option<&GpuTime>) {
    out.uint("gpu_end_ns", gpu.map(|g| g.end_ns)).uint("gpu_start_ns", gpu.map(|g| g.start_ns));
    out.uint("gpu_earliest_ns", gpu.map(|g| g.earliest_ns)).text("gpu_start", gpu.map(|g| g.start.name()));
    out.uint("gpu_queued_ns", gpu.map(|g| g.queued_ns)).uint("gpu_clock_error_ns", gpu.map(|g| g.clock_error_ns));
}

fn shape(out: &mut Row<'_>, s: Option<&Shape>) {
    let extent = |out: &mut Row<'_>, names: [&'static str; 3], extent: Option<[u32; 3]>| {
        for (i, name) in names.into_iter().enumerate() {
            out.uint(name, extent.map(|e| e[i].into()));
        }
    };
    extent(out, ["shape_grid_x", "shape_grid_y", "shape_grid_z"], s.map(|s| s.grid));
    extent(out, ["shape_block_x", "shape_block_y", "shape_block_z"], s.map(|s| s.block));
    extent(out, ["shape_cluster_x", "shape_cluster_y", "shape_cluster_z"], s.and_then(|s| s.cluster));
    out.uint("shape_registers", s.map(|s| s.registers.into()));
    out.uint("shape_shared_memory", s.map(|s| s.shared_memory.into()));
    out.uint("shape_program", s.map(|s| s.program)).uint("shape_kernel", s.and_then(|s| s.kernel));
}
