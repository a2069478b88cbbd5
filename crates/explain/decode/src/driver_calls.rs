//! Driver calls as rows, with the names of their requests.

use crate::recording::{Recording, Source};
use crate::state::Call;
use rm::abi::Branch;
use rm::call::{Call as Rm, FileKind};
use schema::Clock;
use schema::driver_calls::DriverCallRow;

fn file_name(f: FileKind) -> String {
    match f {
        FileKind::Ctl => "nvidiactl".into(),
        FileKind::Uvm => "nvidia-uvm".into(),
        FileKind::Gpu(n) => format!("nvidia{n}"),
        FileKind::Node => "nvidia node".into(),
        FileKind::Other => "other".into(),
    }
}

/// An ioctl's request by name: `RM_ALLOC HOPPER_CHANNEL_GPFIFO_A`.
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
        Rm::UvmOther { request } => {
            return rm::abi::uvm::name(*request).map_or_else(|| format!("UVM ioctl {request}"), str::to_string);
        }
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

/// The row of a driver call.
pub fn driver_call<'a>(
    r: &Recording,
    source: Source,
    tsc: u64,
    call: &Call<'a>,
    branch: &Branch,
    clock: &Clock,
) -> DriverCallRow<'a> {
    let on = |fd: i32, file: FileKind| DriverCallRow {
        fd: Some(fd),
        file: Some(file_name(file)),
        ..DriverCallRow::default()
    };
    let row = match *call {
        Call::Ioctl { body, arg, nested } => {
            let file = FileKind::from_raw(body.file);
            let parsed = Rm::parse(branch, file, body.request, arg, nested);
            let status = parsed.status();
            DriverCallRow {
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
        Call::Mmap(m) => DriverCallRow {
            call: "mmap",
            address: Some(m.addr),
            length: Some(m.len),
            ..on(m.fd, FileKind::from_raw(m.file))
        },
        Call::Munmap { addr, len } => {
            DriverCallRow { call: "munmap", address: Some(addr), length: Some(len), ..DriverCallRow::default() }
        }
        Call::Mremap { new, new_len, .. } => {
            DriverCallRow { call: "mremap", address: Some(new), length: Some(new_len), ..DriverCallRow::default() }
        }
        Call::Open { fd, file, path } => {
            DriverCallRow { call: "open", path: Some(String::from_utf8_lossy(path)), ..on(fd, file) }
        }
        Call::Close { fd, file } => DriverCallRow { call: "close", ..on(fd, file) },
        Call::Dup { new, file, .. } => DriverCallRow { call: "dup", ..on(new, file) },
    };
    let Source { process, tid } = source;
    DriverCallRow { tsc, seconds: clock.seconds(tsc), process, pid: r.pid(process), tid, ..row }
}
