//! A recorded ioctl as a value.
//!
//! Takes the request number, the argument's bytes and the bytes that RM_ALLOC's and RM_CONTROL's `params` pointed to, all as they were when the
//! call returned. Bytes may be cut anywhere: a call too short to hold its status is [`Call::Other`], and parameters that are too short read as
//! `None`. Nothing panics, nothing allocates.

use crate::abi::{self, Branch, Plain, control, heap, nr, uvm};
use core::mem::size_of;

/// Which file a descriptor is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileKind {
    #[default]
    Other,
    /// `/dev/nvidiactl`
    Ctl,
    /// `/dev/nvidia-uvm`
    Uvm,
    /// Another `/dev/nvidia*` node (modeset, caps, uvm-tools).
    Node,
    /// `/dev/nvidiaN`
    Gpu(u32),
}

impl FileKind {
    /// From the number that a recording holds: 0 other, 1 ctl, 2 uvm, 3 node, 0x100 + N for `/dev/nvidiaN`.
    pub const fn from_raw(raw: u32) -> FileKind {
        match raw {
            1 => FileKind::Ctl,
            2 => FileKind::Uvm,
            3 => FileKind::Node,
            n if n >= 0x100 => FileKind::Gpu(n - 0x100),
            _ => FileKind::Other,
        }
    }

    pub const fn to_raw(self) -> u32 {
        match self {
            FileKind::Other => 0,
            FileKind::Ctl => 1,
            FileKind::Uvm => 2,
            FileKind::Node => 3,
            FileKind::Gpu(n) => 0x100u32.saturating_add(n),
        }
    }

    /// From the path that was opened.
    pub fn of_path(path: &[u8]) -> FileKind {
        let Some(rest) = path.strip_prefix(b"/dev/nvidia") else { return FileKind::Other };
        match rest {
            b"ctl" => FileKind::Ctl,
            b"-uvm" => FileKind::Uvm,
            digits if !digits.is_empty() && digits.len() < 4 && digits.iter().all(u8::is_ascii_digit) => {
                FileKind::Gpu(digits.iter().fold(0, |n, d| n * 10 + u32::from(d - b'0')))
            }
            _ => FileKind::Node,
        }
    }
}

/// RM_ALLOC, in either form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alloc<'a> {
    pub root: u32,
    pub parent: u32,
    pub new: u32,
    pub class: u32,
    pub params_size: u32,
    pub status: u32,
    /// NVOS64 (libcuda's), not NVOS21.
    pub long: bool,
    pub nested: &'a [u8],
}

impl Alloc<'_> {
    /// The class's parameters, if all of their bytes were kept.
    pub fn params<T: Plain>(&self) -> Option<T> {
        T::read(self.nested)
    }
}

/// RM_CONTROL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control<'a> {
    pub client: u32,
    pub object: u32,
    pub cmd: u32,
    pub flags: u32,
    pub params_size: u32,
    pub status: u32,
    pub nested: &'a [u8],
}

impl Control<'_> {
    /// The command's parameters, if all of their bytes were kept.
    pub fn params<T: Plain>(&self) -> Option<T> {
        T::read(self.nested)
    }

    /// The command's name.
    pub fn name(&self) -> Option<&'static str> {
        crate::control::name(self.cmd)
    }
}

/// RM_VID_HEAP_CONTROL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VidHeap {
    pub root: u32,
    pub parent: u32,
    pub va_space: u32,
    pub status: u32,
    pub op: HeapOp,
}

/// What RM_VID_HEAP_CONTROL was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapOp {
    /// ALLOC_SIZE, ALLOC_SIZE_RANGE, ALLOC_TILED_PITCH_HEIGHT. `attr` as the driver left it.
    Alloc {
        memory: u32,
        kind: u32,
        flags: u32,
        attr: u32,
        size: u64,
    },
    /// ALLOC_OS_DESCRIPTOR: user pages.
    OsDescriptor {
        memory: u32,
        descriptor: u64,
        size: u64,
    },
    Free {
        memory: u32,
    },
    Other {
        function: u32,
    },
}

/// The GPUs that a UVM_MAP_EXTERNAL_ALLOCATION names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalGpus<'a> {
    first: [u8; 16],
    count: usize,
    /// The call's argument, as far as it was kept.
    arg: &'a [u8],
}

impl<'a> ExternalGpus<'a> {
    /// A single one.
    pub fn one(gpu: [u8; 16]) -> ExternalGpus<'static> {
        ExternalGpus { first: gpu, count: 1, arg: &[] }
    }

    /// Their UUIDs. `None` if there are several and the recording kept only the first: the others are unknown.
    pub fn iter(&self) -> Option<impl Iterator<Item = [u8; 16]> + 'a> {
        let (first, arg, others) = (self.first, self.arg, 1..self.count);
        if others.clone().any(|n| uvm::map_external_gpu(arg, n).is_none()) {
            return None;
        }
        Some(core::iter::once(first).chain(others.filter_map(move |n| uvm::map_external_gpu(arg, n))))
    }
}

/// UVM_MAP_EXTERNAL_ALLOCATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapExternal<'a> {
    pub base: u64,
    pub length: u64,
    pub offset: u64,
    pub gpus: ExternalGpus<'a>,
    pub ctl_fd: i32,
    pub client: u32,
    pub memory: u32,
    pub status: u32,
}

/// One call to the driver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call<'a> {
    Alloc(Alloc<'a>),
    Free(abi::Nvos00),
    Control(Control<'a>),
    MapMemory(abi::Nvos33Fd),
    UnmapMemory(abi::Nvos34),
    AllocMemory(abi::Nvos02Fd),
    DupObject(abi::Nvos55),
    VidHeapControl(VidHeap),
    MapMemoryDma(abi::Nvos46),
    UnmapMemoryDma(abi::Nvos47),
    RegisterFd(abi::RegisterFd),
    CardInfo(Cards<'a>),
    CheckVersion(abi::CheckVersion),
    UvmInitialize(uvm::Initialize),
    UvmMmInitialize(uvm::MmInitialize),
    UvmRegisterGpu(uvm::RegisterGpu),
    UvmUnregisterGpu(uvm::UnregisterGpu),
    UvmRegisterGpuVaspace(uvm::RegisterGpuVaspace),
    UvmUnregisterGpuVaspace(uvm::UnregisterGpu),
    UvmRegisterChannel(uvm::RegisterChannel),
    UvmUnregisterChannel(uvm::UnregisterChannel),
    UvmCreateExternalRange(uvm::Range),
    UvmMapExternal(MapExternal<'a>),
    UvmUnmapExternal(uvm::GpuRange),
    UvmFree(uvm::Range),
    /// UVM_ALLOC_SEMAPHORE_POOL: its range, and its status if the recording includes it.
    UvmSemaphorePool {
        base: u64,
        length: u64,
        status: Option<u32>,
    },
    /// Another UVM call, or one whose bytes were cut short.
    UvmOther {
        request: u64,
    },
    /// Another RM call, or one whose bytes were cut short: its number and the size its request declares.
    Other {
        nr: u32,
        size: usize,
    },
    /// Not a call that the driver's files take.
    Foreign {
        request: u64,
    },
}

/// The cards of a CARD_INFO call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cards<'a> {
    bytes: &'a [u8],
}

impl Cards<'_> {
    /// Those that are there.
    pub fn iter(&self) -> impl Iterator<Item = abi::CardInfo> + '_ {
        self.bytes.chunks_exact(size_of::<abi::CardInfo>()).filter_map(abi::CardInfo::read).filter(|c| c.valid != 0)
    }
}

impl<'a> Call<'a> {
    /// Parses one recorded call to a driver of this branch.
    pub fn parse(branch: &Branch, file: FileKind, request: u64, arg: &'a [u8], nested: &'a [u8]) -> Call<'a> {
        match file {
            FileKind::Uvm => parse_uvm(branch, request, arg).unwrap_or(Call::UvmOther { request }),
            FileKind::Ctl | FileKind::Gpu(_) | FileKind::Node => match abi::rm_nr(request) {
                Some(nr) => {
                    let size = abi::request_size(request);
                    parse_rm(branch, nr, size, arg, nested).unwrap_or(Call::Other { nr, size })
                }
                None => Call::Foreign { request },
            },
            FileKind::Other => Call::Foreign { request },
        }
    }

    /// The status that the driver wrote; `None` where the call has none or it is not known.
    pub fn status(&self) -> Option<u32> {
        Some(match self {
            Call::Alloc(c) => c.status,
            Call::Free(c) => c.status,
            Call::Control(c) => c.status,
            Call::MapMemory(c) => c.status,
            Call::UnmapMemory(c) => c.status,
            Call::AllocMemory(c) => c.status,
            Call::DupObject(c) => c.status,
            Call::VidHeapControl(c) => c.status,
            Call::MapMemoryDma(c) => c.status,
            Call::UnmapMemoryDma(c) => c.status,
            Call::UvmInitialize(c) => c.status,
            Call::UvmMmInitialize(c) => c.status,
            Call::UvmRegisterGpu(c) => c.status,
            Call::UvmUnregisterGpu(c) | Call::UvmUnregisterGpuVaspace(c) => c.status,
            Call::UvmRegisterGpuVaspace(c) => c.status,
            Call::UvmRegisterChannel(c) => c.status,
            Call::UvmUnregisterChannel(c) => c.status,
            Call::UvmCreateExternalRange(c) | Call::UvmFree(c) => c.status,
            Call::UvmMapExternal(c) => c.status,
            Call::UvmUnmapExternal(c) => c.status,
            Call::UvmSemaphorePool { status, .. } => return *status,
            Call::RegisterFd(_)
            | Call::CardInfo(_)
            | Call::CheckVersion(_)
            | Call::UvmOther { .. }
            | Call::Other { .. }
            | Call::Foreign { .. } => return None,
        })
    }

    /// True if the call succeeded: ioctl returned 0 and the status, if there is one, is NV_OK.
    pub fn succeeded(&self, ret: i32) -> bool {
        ret == 0 && self.status().unwrap_or(0) == 0
    }
}

fn parse_rm<'a>(branch: &Branch, nr: u32, size: usize, arg: &'a [u8], nested: &'a [u8]) -> Option<Call<'a>> {
    Some(match nr {
        nr::ALLOC if size >= size_of::<abi::Nvos64>() => {
            let a = abi::Nvos64::read(arg)?;
            Call::Alloc(Alloc {
                root: a.root,
                parent: a.parent,
                new: a.new,
                class: a.class,
                params_size: a.params_size,
                status: a.status,
                long: true,
                nested,
            })
        }
        nr::ALLOC => {
            let a = abi::Nvos21::read(arg)?;
            Call::Alloc(Alloc {
                root: a.root,
                parent: a.parent,
                new: a.new,
                class: a.class,
                params_size: a.params_size,
                status: a.status,
                long: false,
                nested,
            })
        }
        nr::FREE => Call::Free(abi::Nvos00::read(arg)?),
        nr::CONTROL => {
            let c = abi::Nvos54::read(arg)?;
            Call::Control(Control {
                client: c.client,
                object: c.object,
                cmd: c.cmd,
                flags: c.flags,
                params_size: c.params_size,
                status: c.status,
                nested,
            })
        }
        nr::MAP_MEMORY => Call::MapMemory(abi::Nvos33Fd::read(arg)?),
        nr::UNMAP_MEMORY => Call::UnmapMemory(abi::Nvos34::read(arg)?),
        nr::ALLOC_MEMORY => Call::AllocMemory(abi::Nvos02Fd::read(arg)?),
        nr::DUP_OBJECT => Call::DupObject(abi::Nvos55::read(arg)?),
        nr::VID_HEAP_CONTROL => Call::VidHeapControl(parse_heap(arg)?),
        // If the size differs from the branch's, the struct differs too.
        nr::MAP_MEMORY_DMA => {
            let shape = &branch.layouts.map_dma;
            Call::MapMemoryDma(shape.read(arg).filter(|_| size == shape.size())?)
        }
        nr::UNMAP_MEMORY_DMA => {
            let shape = &branch.layouts.unmap_dma;
            Call::UnmapMemoryDma(shape.read(arg).filter(|_| size == shape.size())?)
        }
        nr::REGISTER_FD => Call::RegisterFd(abi::RegisterFd::read(arg)?),
        nr::CARD_INFO => Call::CardInfo(Cards { bytes: arg }),
        nr::CHECK_VERSION_STR => Call::CheckVersion(abi::CheckVersion::read(arg)?),
        _ => return None,
    })
}

fn parse_heap(arg: &[u8]) -> Option<VidHeap> {
    let h = abi::Nvos32::read(arg)?;
    let data = h.data.as_bytes();
    let word = |at: usize| u32::read(&data[at..]);
    let op = match h.function {
        heap::ALLOC_SIZE => {
            let a = abi::HeapAlloc::read(data)?;
            HeapOp::Alloc { memory: a.memory, kind: a.kind, flags: a.flags, attr: a.attr, size: a.size }
        }
        // AllocSizeRange: as AllocSize up to partitionStride, then size@40.
        heap::ALLOC_SIZE_RANGE => HeapOp::Alloc {
            memory: word(4)?,
            kind: word(8)?,
            flags: word(12)?,
            attr: word(16)?,
            size: u64::read(&data[40..])?,
        },
        // AllocTiledPitchHeight: height@16, pitch@20, attr@24, size@48.
        heap::ALLOC_TILED_PITCH_HEIGHT => HeapOp::Alloc {
            memory: word(4)?,
            kind: word(8)?,
            flags: word(12)?,
            attr: word(24)?,
            size: u64::read(&data[48..])?,
        },
        heap::ALLOC_OS_DESCRIPTOR => {
            let d = abi::HeapOsDescriptor::read(data)?;
            HeapOp::OsDescriptor { memory: d.memory, descriptor: d.descriptor, size: d.limit.saturating_add(1) }
        }
        heap::FREE => HeapOp::Free { memory: abi::HeapFree::read(data)?.memory },
        function => HeapOp::Other { function },
    };
    Some(VidHeap { root: h.root, parent: h.parent, va_space: h.va_space, status: h.status, op })
}

fn parse_uvm<'a>(branch: &Branch, request: u64, arg: &'a [u8]) -> Option<Call<'a>> {
    let layouts = &branch.layouts;
    Some(match request {
        uvm::INITIALIZE => Call::UvmInitialize(uvm::Initialize::read(arg)?),
        uvm::MM_INITIALIZE => Call::UvmMmInitialize(uvm::MmInitialize::read(arg)?),
        uvm::REGISTER_GPU => Call::UvmRegisterGpu(uvm::RegisterGpu::read(arg)?),
        uvm::UNREGISTER_GPU => Call::UvmUnregisterGpu(uvm::UnregisterGpu::read(arg)?),
        uvm::REGISTER_GPU_VASPACE => Call::UvmRegisterGpuVaspace(uvm::RegisterGpuVaspace::read(arg)?),
        uvm::UNREGISTER_GPU_VASPACE => Call::UvmUnregisterGpuVaspace(uvm::UnregisterGpu::read(arg)?),
        uvm::REGISTER_CHANNEL => Call::UvmRegisterChannel(uvm::RegisterChannel::read(arg)?),
        uvm::UNREGISTER_CHANNEL => Call::UvmUnregisterChannel(layouts.uvm_unregister_channel.read(arg)?),
        uvm::CREATE_EXTERNAL_RANGE => Call::UvmCreateExternalRange(uvm::Range::read(arg)?),
        uvm::UNMAP_EXTERNAL => Call::UvmUnmapExternal(uvm::GpuRange::read(arg)?),
        uvm::FREE => Call::UvmFree(layouts.uvm_free.read(arg)?),
        uvm::MAP_EXTERNAL_ALLOCATION => {
            let (head, tail) = uvm::map_external(branch, arg)?;
            Call::UvmMapExternal(MapExternal {
                base: head.base,
                length: head.length,
                offset: head.offset,
                // A count of 0 names the first, too.
                gpus: ExternalGpus { first: head.gpu.uuid, count: tail.gpu_count.clamp(1, 256) as usize, arg },
                ctl_fd: tail.ctl_fd,
                client: tail.client,
                memory: tail.memory,
                status: tail.status,
            })
        }
        // base@0, length@8, perGpuAttributes[256]@16, gpuAttributesCount@9232, rmStatus@9240
        uvm::ALLOC_SEMAPHORE_POOL => Call::UvmSemaphorePool {
            base: u64::read(arg)?,
            length: u64::read(arg.get(8..)?)?,
            status: layouts.uvm_semaphore_pool.read(arg).map(|pool| pool.status),
        },
        _ => return None,
    })
}

/// The program's address of the parameters of RM_ALLOC or RM_CONTROL, and their size in bytes, as given in the call's argument. `None` for other
/// calls, and where there are none.
pub fn parameters(branch: &Branch, request: u64, arg: &[u8]) -> Option<(u64, u32)> {
    let size = abi::request_size(request);
    let (at, length) = match abi::rm_nr(request)? {
        nr::ALLOC if size >= size_of::<abi::Nvos64>() => {
            let a = abi::Nvos64::read(arg)?;
            (a.params, abi::alloc_params_size(branch, a.class, a.params_size))
        }
        nr::ALLOC => {
            let a = abi::Nvos21::read(arg)?;
            (a.params, abi::alloc_params_size(branch, a.class, a.params_size))
        }
        nr::CONTROL => {
            let c = abi::Nvos54::read(arg)?;
            (c.params, c.params_size)
        }
        _ => return None,
    };
    (at != 0).then_some((at, length))
}

/// The token that NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN returned, if the call is that.
pub fn work_submit_token(c: &Control<'_>) -> Option<u32> {
    if c.cmd != control::CTRL_WORK_SUBMIT_TOKEN {
        return None;
    }
    c.params::<control::WorkSubmitToken>().map(|t| t.token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::rm_request;
    use crate::class;

    fn bytes<T: Plain>(v: &T) -> Vec<u8> {
        v.as_bytes().to_vec()
    }

    #[test]
    fn paths_name_their_files() {
        for (path, kind) in [
            ("/dev/nvidiactl", FileKind::Ctl),
            ("/dev/nvidia-uvm", FileKind::Uvm),
            ("/dev/nvidia-uvm-tools", FileKind::Node),
            ("/dev/nvidia0", FileKind::Gpu(0)),
            ("/dev/nvidia15", FileKind::Gpu(15)),
            ("/dev/nvidia", FileKind::Node),
            ("/dev/nvidia-modeset", FileKind::Node),
            ("/dev/null", FileKind::Other),
        ] {
            assert_eq!(FileKind::of_path(path.as_bytes()), kind, "{path}");
            assert_eq!(FileKind::from_raw(kind.to_raw()), kind);
        }
    }

    #[test]
    fn both_forms_of_alloc_mean_the_same() {
        let p = abi::UsermodeAlloc { bar1: 1, privileged: 0 };
        let (root, parent, new, class) = (1, 2, 3, class::HOPPER_USERMODE_A);
        let short = bytes(&abi::Nvos21 { root, parent, new, class, params_size: 2, ..Default::default() });
        let long = bytes(&abi::Nvos64 { root, parent, new, class, params_size: 2, ..Default::default() });
        for (arg, is_long) in [(&short, false), (&long, true)] {
            match Call::parse(Branch::usual(), FileKind::Ctl, rm_request(nr::ALLOC, arg.len()), arg, p.as_bytes()) {
                Call::Alloc(a) => {
                    assert_eq!((a.root, a.parent, a.new, a.class, a.params_size), (1, 2, 3, class, 2));
                    assert_eq!((a.params::<abi::UsermodeAlloc>(), a.long), (Some(p), is_long));
                    assert_eq!(a.params::<abi::DeviceAlloc>(), None);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn external_mappings_come_whole_or_short() {
        let mut m = uvm::MapExternal {
            base: 1 << 33,
            length: 2 << 20,
            offset: 0x1000,
            gpu_count: 1,
            ctl_fd: 3,
            client: 4,
            memory: 5,
            ..Default::default()
        };
        m.gpus[0].uuid = [8; 16];
        let whole = bytes(&m);
        let mut short = whole[..60].to_vec();
        short.extend_from_slice(&whole[9240..]);
        assert_eq!(short.len(), uvm::MAP_EXTERNAL_SHORT_SIZE);
        let parse = |arg| Call::parse(Branch::usual(), FileKind::Uvm, uvm::MAP_EXTERNAL_ALLOCATION, arg, &[]);
        match parse(&whole) {
            Call::UvmMapExternal(x) => {
                assert_eq!((x.base, x.length, x.offset, x.memory), (1 << 33, 2 << 20, 0x1000, 5));
                assert_eq!(x.gpus.iter().unwrap().collect::<Vec<_>>(), [[8; 16]]);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(uvm::map_external_short(Branch::usual(), &whole), short.first_chunk().copied());
        let (Call::UvmMapExternal(a), Call::UvmMapExternal(b)) = (parse(&short), parse(&whole)) else { panic!() };
        let said = |m: MapExternal<'_>| (m.base, m.length, m.offset, m.ctl_fd, m.client, m.memory, m.status);
        assert_eq!(said(a), said(b));
        assert_eq!(parse(&short[..83]), Call::UvmOther { request: uvm::MAP_EXTERNAL_ALLOCATION });
        assert_eq!(parse(&whole[..9263]), Call::UvmOther { request: uvm::MAP_EXTERNAL_ALLOCATION });
    }

    #[test]
    fn calls_cut_short_keep_their_number() {
        let arg = bytes(&abi::Nvos54::default());
        let request = rm_request(nr::CONTROL, 32);
        assert!(matches!(Call::parse(Branch::usual(), FileKind::Gpu(0), request, &arg, &[]), Call::Control(_)));
        assert_eq!(
            Call::parse(Branch::usual(), FileKind::Gpu(0), request, &arg[..31], &[]),
            Call::Other { nr: nr::CONTROL, size: 32 }
        );
        assert_eq!(Call::parse(Branch::usual(), FileKind::Other, request, &arg, &[]), Call::Foreign { request });
        assert_eq!(Call::parse(Branch::usual(), FileKind::Ctl, 0x5401, &arg, &[]), Call::Foreign { request: 0x5401 });
    }

    #[test]
    fn success_needs_both_the_return_and_the_status() {
        let mut f = abi::Nvos00::default();
        for (ret, status, ok) in [(0, 0, true), (-1, 0, false), (0, 0x1b, false)] {
            f.status = status;
            let arg = bytes(&f);
            assert_eq!(
                Call::parse(Branch::usual(), FileKind::Ctl, rm_request(nr::FREE, 16), &arg, &[]).succeeded(ret),
                ok
            );
        }
        let mut pool = vec![0; 9248];
        assert!(Call::parse(Branch::usual(), FileKind::Uvm, uvm::ALLOC_SEMAPHORE_POOL, &pool, &[]).succeeded(0));
        pool[9240] = 0x1f;
        assert!(!Call::parse(Branch::usual(), FileKind::Uvm, uvm::ALLOC_SEMAPHORE_POOL, &pool, &[]).succeeded(0));
        assert!(Call::parse(Branch::usual(), FileKind::Uvm, uvm::ALLOC_SEMAPHORE_POOL, &pool[..64], &[]).succeeded(0));
    }

    #[test]
    fn only_cards_that_are_there_are_listed() {
        let cards = [abi::CardInfo { valid: 1, gpu_id: 7, ..Default::default() }, abi::CardInfo::default()];
        let arg = bytes(&cards);
        match Call::parse(Branch::usual(), FileKind::Ctl, rm_request(nr::CARD_INFO, arg.len()), &arg[..100], &[]) {
            Call::CardInfo(c) => assert_eq!(c.iter().map(|c| c.gpu_id).collect::<Vec<_>>(), [7]),
            other => panic!("{other:?}"),
        }
    }
}
