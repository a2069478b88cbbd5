//! Schema rows, filled from a walk.

use crate::merge::missing;
use crate::place::place;
use crate::python;
use crate::python_frames::Found;
use crate::ranges::{Range, Style, Texts};
use crate::recording::Recording;
use crate::walk::{At, GraphKernel, Segment};
use numbers::bytes;
use pushbuf::decode::{Item, Target};
use pushbuf::ops::{How, Layout, Op, Purpose, Semaphore, Space, Transfer, What};
use pushbuf::text::{ClassName, MethodName};
use rm::graph::ObjectGraph;
use schema::happened::OneRange;
use schema::kernel_runs::KernelRun;
use schema::objects::{MappingRow, ObjectRow, Objects};
use schema::operations::{CopyRow, GpuTime, InCall, LaunchRow, Mode, Ran, When};
use schema::submissions::{CommandRow, EntryRow, NEVER_COPIED, SubmissionRow};
use schema::{Clock, Place};
use tape::call;
use tape::event::lack;
use tape::nvtx::{payload, range_flags};

/// The clock of a recording's rows: it counts from the first clock reading of the tape, or from its first event.
pub fn clock(r: &Recording) -> Clock {
    clock_at(r, r.header().tsc_hz)
}

/// The same with another rate of time stamps.
pub fn clock_at(r: &Recording, hz: f64) -> Clock {
    Clock::new(r.clocks().first().map_or_else(|| r.first_tsc().unwrap_or(0), |c| c.tsc), hz)
}

fn when(at: &At<'_>, clock: &Clock) -> When {
    When {
        submission: at.number,
        tsc: at.submission.tsc,
        seconds: clock.seconds(at.submission.tsc),
        process: at.channel.process,
        pid: at.channel.pid,
        tid: at.submission.tid,
        slot: at.channel.slot,
        generation: at.channel.generation,
        engine: at.channel.engine.clone(),
        call: in_call(at),
        ranges: at.ranges().collect(),
    }
}

/// The call in which it was rung.
pub fn in_call(at: &At<'_>) -> Option<InCall> {
    let ring = at.submission.ring.filter(|ring| ring.function != 0)?;
    let name = call::name(ring.function);
    let python = match at.stacks.stack(at.channel.process, ring.python) {
        Found::Stack(stack) => stack.user().map(python::frame),
        Found::None | Found::Lost => None,
    };
    Some(InCall { name, number: ring.call, stream: ring.stream, object: ring.object, python })
}

/// `None` for any other operation, and for inline writes that belong to a launch.
pub fn copy(at: &At<'_>, op: &Op, clock: &Clock) -> Option<CopyRow> {
    let gpu = at.gpu_time();
    let ran = ran(at, gpu, clock);
    let row = |mode, dst, bytes, lines, semaphore: Option<Semaphore>| CopyRow {
        when: when(at, clock),
        mode,
        src: None,
        src_place: None,
        src_gpu: None,
        dst,
        dst_place: at.located(dst).0,
        dst_gpu: at.located(dst).1,
        bytes,
        lines,
        pipelined: false,
        pitch: true,
        semaphore: semaphore.map(|s| s.address),
        payload: semaphore.map(|s| s.payload),
        physical: false,
        gpu,
        ran,
        complete: true,
        guessed: op.guessed,
    };
    match &op.what {
        What::Copy(c) => Some(CopyRow {
            src: Some(c.src),
            src_place: Some(at.located(c.src).0),
            src_gpu: at.located(c.src).1,
            pipelined: c.transfer == Transfer::Pipelined,
            pitch: c.src_layout == Layout::Pitch && c.dst_layout == Layout::Pitch,
            physical: c.src_space == Space::Physical || c.dst_space == Space::Physical,
            ..row(Mode::CopyEngine, c.dst, c.bytes(), c.line_count, c.semaphore)
        }),
        What::Fill(f) => Some(CopyRow {
            pipelined: f.transfer == Transfer::Pipelined,
            pitch: f.dst_layout == Layout::Pitch,
            physical: f.dst_space == Space::Physical,
            ..row(Mode::Fill, f.dst, f.bytes(), f.lines, f.semaphore)
        }),
        What::Inline(i) if i.purpose == Purpose::Data => Some(CopyRow {
            pitch: i.dst_layout == Layout::Pitch,
            complete: i.complete,
            ..row(Mode::Inline, i.dst, i.bytes(), i.line_count, i.semaphore)
        }),
        _ => None,
    }
}

pub fn launch(at: &At<'_>, op: &Op, clock: &Clock) -> Option<LaunchRow> {
    let What::Launch(l) = &op.what else { return None };
    let how = match l.how {
        How::InlineQmd => "inline_qmd",
        How::Pcas { .. } | How::Pcas2 { .. } => "pcas",
    };
    let started = at.started();
    let shape = started.and_then(|s| s.shape);
    let (empty, kernel) = (shape.is_some_and(|s| s.is_empty()), at.kernel());
    Some(LaunchRow {
        when: when(at, clock),
        number: at.launch(),
        how,
        qmd: l.qmd_address,
        shape,
        empty,
        again: started.is_some_and(|s| s.again),
        name: kernel.as_ref().map(|kernel| kernel.name.clone()),
        symbol: kernel.as_ref().map(|kernel| kernel.symbol.clone()),
        gpu: at.gpu_time(),
        guessed: op.guessed,
    })
}

/// The run of a kernel that was launched by itself; `None` for any other operation, and if its time is not known.
pub fn kernel_run(at: &At<'_>, op: &Op, clock: &Clock) -> Option<KernelRun> {
    let What::Launch(l) = &op.what else { return None };
    let (gpu, shape) = (at.gpu_time()?, at.started()?.shape?);
    let ran = GraphKernel { qmd: l.qmd_address, shape, kernel: at.kernel(), gpu };
    Some(KernelRun { launch: Some(at.launch()), in_graph: false, ..graph_kernel_run(at, &ran, clock) })
}

/// The run of a graph's kernel.
pub fn graph_kernel_run(at: &At<'_>, k: &GraphKernel, clock: &Clock) -> KernelRun {
    KernelRun {
        when: when(at, clock),
        launch: None,
        symbol: k.kernel.as_ref().map(|kernel| kernel.symbol.clone()),
        name: k.kernel.as_ref().map(|kernel| kernel.name.clone()),
        code: k.shape.code(),
        in_graph: true,
        shape: k.shape,
        ran: ran(at, Some(k.gpu), clock),
        gpu: k.gpu,
    }
}

/// When it ran, on the recording's clock. (Not computed from the doorbell: the clocks drift while a kernel is queued, and runs of one stream would
/// overlap.)
fn ran(at: &At<'_>, gpu: Option<GpuTime>, clock: &Clock) -> Ran {
    let tsc = gpu.and_then(|gpu| Some([at.tsc_at(gpu.start_ns)?, at.tsc_at(gpu.end_ns)?]));
    let [start_seconds, end_seconds] = tsc.map_or([None; 2], |tsc| tsc.map(|tsc| clock.seconds(tsc)));
    Ran { tsc, start_seconds, end_seconds }
}

/// Why words are missing.
fn lack_text(code: u32) -> Option<&'static str> {
    Some(match code {
        lack::NONE => return None,
        lack::UNMAPPED => "its address has no CPU mapping",
        lack::TOO_LONG => "longer than is recorded",
        lack::RING_FULL => "the tap's ring was full",
        missing::NEVER_COPIED => NEVER_COPIED,
        missing::TAPE_ENDS => "the recording ends before them",
        _ => "for no known reason",
    })
}

fn command(item: &Item<'_>) -> CommandRow {
    let plain = |word| CommandRow {
        word,
        class: None,
        offset: None,
        method: None,
        value: None,
        words: None,
        text: item.to_string(),
        target: None,
        means: Vec::new(),
    };
    match item {
        Item::Write(w) => CommandRow {
            class: Some(w.target.class_id),
            offset: Some(w.address),
            method: Some(MethodName(w.target, w.address).to_string()),
            value: Some(w.value),
            ..plain(w.word_index)
        },
        Item::Run(r) => CommandRow {
            class: Some(r.target.class_id),
            offset: Some(r.address),
            method: Some(MethodName(r.target, r.address).to_string()),
            words: Some(r.words.len()),
            ..plain(r.word_index)
        },
        Item::Nop { word_index, .. }
        | Item::SubdeviceMask { word_index, .. }
        | Item::EndSegment { word_index, .. }
        | Item::Unknown { word_index, .. } => plain(*word_index),
        Item::Skipped { word_index, words } => CommandRow { words: Some(words.len()), ..plain(*word_index) },
    }
}

/// What an operation does, in a line. Semaphore operations need no explanation.
fn meaning(at: &At<'_>, op: &Op) -> Option<String> {
    let place = |va: u64| format!("{} {va:#x}", at.place(va).name());
    let extent = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
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

/// Collects the rows of one submission at a time.
#[derive(Debug, Default)]
pub struct Collector {
    pub row: SubmissionRow,
    /// Class last named on each subchannel of the submission.
    targets: [Option<u32>; 8],
}

impl Collector {
    pub fn begin(&mut self, at: &At<'_>, clock: &Clock) {
        let (s, c) = (at.submission, at.channel);
        self.targets = [None; 8];
        self.row = SubmissionRow {
            number: at.number,
            tsc: s.tsc,
            seconds: clock.seconds(s.tsc),
            process: c.process,
            pid: c.pid,
            tid: s.tid,
            slot: c.slot,
            generation: c.generation,
            engine: c.engine.clone(),
            call: in_call(at),
            ranges: at.ranges().collect(),
            token: s.ring.map(|r| r.token),
            seq: s.ring.map(|r| r.seq),
            put_from: s.ring.map(|r| r.put_from),
            put_to: s.ring.map(|r| r.put_to),
            trapped: s.trapped(),
            handed_over: s.handed_over(),
            entries: Vec::new(),
            means: Vec::new(),
        };
    }

    pub fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        self.row.entries.push(EntryRow {
            index: s.entry.index,
            seq: s.entry.seq,
            gp: s.entry.gp,
            gp_text: s.gp.to_string(),
            va: s.va,
            place: if s.dwords > 0 { at.place(s.va) } else { Place::Unknown },
            dwords: s.dwords,
            recorded: s.words.len(),
            lack: lack_text(s.entry.lack),
            late: s.entry.is_late(),
            after_gap: s.after_gap,
            va_guessed: s.va_guessed,
            commands: Vec::new(),
            means: Vec::new(),
        });
    }

    pub fn item(&mut self, item: &Item<'_>) {
        let Some(e) = self.row.entries.last_mut() else { return };
        let target = match item {
            Item::Write(w) if !w.host => Some(w.target),
            Item::Run(r) if !r.host => Some(r.target),
            _ => None,
        };
        let is_new = |t: &Target| self.targets[usize::from(t.subch & 7)].replace(t.class_id) != Some(t.class_id);
        let target = target.filter(is_new).map(|t| format!("subchannel {}: {}", t.subch, ClassName(t)));
        e.commands.push(CommandRow { target, ..command(item) });
    }

    /// An operation that the commands so far add up to.
    pub fn op(&mut self, at: &At<'_>, op: &Op) {
        let row = &mut self.row;
        let means = row.entries.last_mut().map_or(&mut row.means, |e| match e.commands.last_mut() {
            Some(command) => &mut command.means,
            None => &mut e.means,
        });
        means.extend(meaning(at, op));
    }
}

/// An NVTX range, or a mark.
pub fn range(r: &Recording, range: &Range, texts: &Texts, clock: &Clock) -> OneRange {
    let (body, flags) = (&range.body, range.flags);
    let ended = range.ended.filter(|_| range.style != Style::Mark);
    let seconds = |tsc: u64| clock.seconds(tsc).unwrap_or(0.0);
    OneRange {
        at: seconds(range.began),
        tsc: range.began,
        process: range.source.process,
        pid: r.pid(range.source.process),
        tid: range.source.tid,
        domain: texts.domain(range.key),
        text: texts.text(range.key),
        style: range.style.name(),
        ns: ended.map(|(tsc, _)| (seconds(tsc.max(range.began)) * 1e9 - seconds(range.began) * 1e9).round() as u64),
        end_tid: ended.map(|(_, tid)| tid),
        level: range.level as u64,
        payload: payload_text(flags & range_flags::PAYLOAD, body.payload),
        color: (flags & range_flags::COLOR != 0).then(|| color(body.color)),
        category: (flags & range_flags::CATEGORY != 0).then_some(body.category),
        all_threads: None,
    }
}

/// `#rrggbb`
pub fn color(argb: u32) -> String {
    format!("#{:06x}", argb & 0xff_ffff)
}

fn payload_text(kind: u16, bits: u64) -> Option<String> {
    Some(match kind {
        payload::U64 => bits.to_string(),
        payload::I64 => (bits as i64).to_string(),
        payload::F64 => f64::from_bits(bits).to_string(),
        payload::U32 => (bits as u32).to_string(),
        payload::I32 => (bits as i32).to_string(),
        payload::F32 => f32::from_bits(bits as u32).to_string(),
        _ => return None,
    })
}

/// The objects of each image and its mappings, at most `limit` of each.
pub fn objects<'g>(graphs: impl Iterator<Item = (u32, &'g ObjectGraph)>, limit: usize) -> Objects {
    let mut all = Objects { objects: Vec::new(), gpu_mappings: Vec::new() };
    for (process, graph) in graphs {
        let row = |n: &rm::graph::TreeNode<'_>| ObjectRow {
            process,
            client: n.object.client,
            handle: n.object.handle,
            parent: n.object.parent_handle,
            class: n.object.class,
            class_name: n.object.class_name(),
            detail: n.detail(),
            depth: n.depth,
            freed: n.object.freed.is_some(),
            text: n.to_string(),
        };
        let mapping = |m: rm::graph::GpuMapping| MappingRow {
            process,
            base: m.base,
            length: m.length,
            client: m.handle.map(|h| h.0),
            handle: m.handle.map(|h| h.1),
            offset: m.offset,
            place: place(m.place),
        };
        let left = limit.saturating_sub(all.objects.len());
        all.objects.extend(graph.object_tree().iter().take(left).map(row));
        let left = limit.saturating_sub(all.gpu_mappings.len());
        all.gpu_mappings.extend(graph.gpu_mappings().take(left).map(mapping));
    }
    all
}
