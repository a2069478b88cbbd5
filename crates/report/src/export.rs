//! A recording as JSON Lines: one object for each driver call, submission, copy and launch, and behind those for each
//! operation of a lock, then for each of CUDA's calls and each context switch.

use crate::submissions::Collector;
use crate::{ReportError, json};
use insight::Recording;
use insight::channels::Channel;
use insight::rows::{Clock, CopyRow, LaunchRow};
use insight::walk::{At, Call, Segment, Sink, walk};
use pushbuf::decode::Item;
use pushbuf::ops::Op;
use rm::call::{Call as Rm, FileKind};
use serde::Serialize;
use std::io::{self, Write};

/// Writes the whole tape. What comes first in time comes first.
pub fn jsonl(r: &Recording, out: &mut dyn Write) -> Result<(), ReportError> {
    json::line(out, &Line::Header(r.header()))?;
    let mut e = Export { out, clock: Clock::of(r), collector: Collector::default(), ops: Vec::new(), error: None };
    let outcome = walk(r, &mut e)?;
    if let Some(error) = e.error {
        return Err(error.into());
    }
    for c in &outcome.channels {
        json::line(out, &Line::Channel(c))?;
    }
    insight::locks::each_use(r, |u| Ok::<(), ReportError>(json::line(out, &Line::Lock(&u))?))?;
    insight::locks::each_call(r, |c| {
        let line = match &c {
            insight::locks::Happened::Call(c) => Line::CudaCall(c),
            insight::locks::Happened::Switch(s) => Line::Switch(s),
        };
        Ok::<(), ReportError>(json::line(out, &line)?)
    })?;
    if let Some(end) = r.end() {
        json::line(out, &Line::End(end))?;
    }
    Ok(())
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Header(&'a tape::file::Header),
    Call(CallRow<'a>),
    Submission(&'a crate::submissions::SubmissionRow),
    Copy(&'a CopyRow),
    Launch(&'a LaunchRow),
    Lock(&'a insight::locks::UseRow),
    CudaCall(&'a insight::locks::OneCall),
    Switch(&'a insight::locks::OneSwitch),
    Note { text: std::borrow::Cow<'a, str> },
    Channel(&'a Channel),
    End(&'a tape::file::End),
}

#[derive(Default, Serialize)]
struct CallRow<'a> {
    call: &'static str,
    tsc: u64,
    seconds: Option<f64>,
    tid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fd: Option<i32>,
    /// What an ioctl asked for, by name where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ret: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_name: Option<&'static str>,
    /// Ticks that the call took.
    #[serde(skip_serializing_if = "Option::is_none")]
    ticks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<std::borrow::Cow<'a, str>>,
}

fn file_name(f: FileKind) -> String {
    match f {
        FileKind::Ctl => "nvidiactl".into(),
        FileKind::Uvm => "nvidia-uvm".into(),
        FileKind::Gpu(n) => format!("nvidia{n}"),
        FileKind::Node => "nvidia node".into(),
        FileKind::Other => "other".into(),
    }
}

/// What an ioctl asked for: `RM_ALLOC HOPPER_CHANNEL_GPFIFO_A`.
fn ioctl_name(call: &Rm<'_>) -> String {
    let class = |c: u32| rm::class::name(c).map_or_else(|| format!("class {c:#06x}"), str::to_string);
    let plain = match call {
        Rm::Alloc(a) => return format!("RM_ALLOC {}", class(a.class)),
        Rm::Control(c) => {
            return match c.name() {
                Some(n) => format!("RM_CONTROL {n}"),
                None => format!("RM_CONTROL {:#010x}", c.cmd),
            };
        }
        Rm::AllocMemory(a) => return format!("RM_ALLOC_MEMORY {}", class(a.class)),
        Rm::Other { nr, .. } => return format!("RM ioctl {nr:#x}"),
        Rm::UvmOther { request } => return format!("UVM ioctl {request}"),
        Rm::Foreign { request } => return format!("ioctl {request:#x}"),
        Rm::Free(_) => "RM_FREE",
        Rm::MapMemory(_) => "RM_MAP_MEMORY",
        Rm::UnmapMemory(_) => "RM_UNMAP_MEMORY",
        Rm::DupObject(_) => "RM_DUP_OBJECT",
        Rm::VidHeapControl(_) => "RM_VID_HEAP_CONTROL",
        Rm::MapMemoryDma(_) => "RM_MAP_MEMORY_DMA",
        Rm::UnmapMemoryDma(_) => "RM_UNMAP_MEMORY_DMA",
        Rm::RegisterFd(_) => "REGISTER_FD",
        Rm::CardInfo(_) => "CARD_INFO",
        Rm::CheckVersion(_) => "CHECK_VERSION_STR",
        Rm::UvmInitialize(_) => "UVM_INITIALIZE",
        Rm::UvmMmInitialize(_) => "UVM_MM_INITIALIZE",
        Rm::UvmRegisterGpu(_) => "UVM_REGISTER_GPU",
        Rm::UvmUnregisterGpu(_) => "UVM_UNREGISTER_GPU",
        Rm::UvmRegisterGpuVaspace(_) => "UVM_REGISTER_GPU_VASPACE",
        Rm::UvmUnregisterGpuVaspace(_) => "UVM_UNREGISTER_GPU_VASPACE",
        Rm::UvmRegisterChannel(_) => "UVM_REGISTER_CHANNEL",
        Rm::UvmUnregisterChannel(_) => "UVM_UNREGISTER_CHANNEL",
        Rm::UvmCreateExternalRange(_) => "UVM_CREATE_EXTERNAL_RANGE",
        Rm::UvmMapExternal(_) => "UVM_MAP_EXTERNAL_ALLOCATION",
        Rm::UvmUnmapExternal(_) => "UVM_UNMAP_EXTERNAL",
        Rm::UvmFree(_) => "UVM_FREE",
        Rm::UvmSemaphorePool { .. } => "UVM_ALLOC_SEMAPHORE_POOL",
    };
    plain.into()
}

struct Export<'a> {
    out: &'a mut dyn Write,
    clock: Clock,
    collector: Collector,
    /// Copies and launches of the submission at hand; they follow it.
    ops: Vec<OpRow>,
    error: Option<io::Error>,
}

// One of them at a time waits in a short list.
#[allow(clippy::large_enum_variant)]
enum OpRow {
    Copy(CopyRow),
    Launch(LaunchRow),
}

impl Export<'_> {
    fn line(&mut self, l: &Line<'_>) {
        if self.error.is_none() {
            self.error = json::line(self.out, l).err();
        }
    }
}

impl Sink for Export<'_> {
    fn done(&self) -> bool {
        self.error.is_some()
    }

    fn call(&mut self, tid: i32, tsc: u64, call: &Call<'_>) {
        let base = CallRow { tsc, seconds: self.clock.seconds(tsc), tid, ..CallRow::default() };
        let on = |fd: i32, file: FileKind| CallRow { fd: Some(fd), file: Some(file_name(file)), ..CallRow::default() };
        let row = match *call {
            Call::Ioctl { body, arg, nested } => {
                let file = FileKind::from_raw(body.file);
                let parsed = Rm::parse(file, body.request, arg, nested);
                let status = parsed.status();
                CallRow {
                    call: "ioctl",
                    what: Some(ioctl_name(&parsed)),
                    request: Some(body.request),
                    ret: Some(body.ret),
                    status,
                    status_name: status.and_then(rm::status::name),
                    ticks: Some(body.tsc_end.saturating_sub(tsc)),
                    ..on(body.fd, file)
                }
            }
            Call::Mmap(m) => CallRow {
                call: "mmap",
                address: Some(m.addr),
                length: Some(m.len),
                ..on(m.fd, FileKind::from_raw(m.file))
            },
            Call::Munmap { addr, len } => {
                CallRow { call: "munmap", address: Some(addr), length: Some(len), ..CallRow::default() }
            }
            Call::Mremap { new, new_len, .. } => {
                CallRow { call: "mremap", address: Some(new), length: Some(new_len), ..CallRow::default() }
            }
            Call::Open { fd, file, path } => {
                CallRow { call: "open", path: Some(String::from_utf8_lossy(path)), ..on(fd, file) }
            }
            Call::Close { fd, file } => CallRow { call: "close", ..on(fd, file) },
            Call::Dup { new, file, .. } => CallRow { call: "dup", ..on(new, file) },
        };
        self.line(&Line::Call(CallRow { tsc: base.tsc, seconds: base.seconds, tid, ..row }));
    }

    fn note(&mut self, text: &[u8]) {
        self.line(&Line::Note { text: String::from_utf8_lossy(text) });
    }

    fn submission(&mut self, at: &At<'_>) {
        self.collector.begin(at, &self.clock);
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        self.collector.segment(at, s);
    }

    fn item(&mut self, _: &At<'_>, item: &Item<'_>) {
        self.collector.item(item);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let Some(row) = CopyRow::of(at, op, &self.clock) {
            self.ops.push(OpRow::Copy(row));
        } else if let Some(row) = LaunchRow::of(at, op, &self.clock) {
            self.ops.push(OpRow::Launch(row));
        }
    }

    fn submission_end(&mut self, _: &At<'_>) {
        let row = std::mem::take(&mut self.collector.row);
        self.line(&Line::Submission(&row));
        for op in std::mem::take(&mut self.ops) {
            match op {
                OpRow::Copy(row) => self.line(&Line::Copy(&row)),
                OpRow::Launch(row) => self.line(&Line::Launch(&row)),
            }
        }
    }
}
