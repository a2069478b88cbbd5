//! Sequences of calls as a CUDA program makes them, and the expected state of the graph afterwards.

use super::*;
use crate::abi::{self, Plain, control, nr, rm_request, uvm};
use crate::class;

const CTL: i32 = 3;
const UVM: i32 = 4;
const GPU: i32 = 5;
const CLIENT: u32 = 0xc1d0_0001;
const DEVICE: u32 = 0x5c00_0001;
const SUBDEVICE: u32 = 0x5c00_0002;
const VASPACE: u32 = 0x5c00_0003;
/// The 2 MiB of GPU memory that hold all rings, and where CUDA maps them.
const RINGS: u32 = 0x5c00_0100;
const RINGS_AT: u64 = 0x2_0060_0000;
/// Pushbuffers in host memory.
const PUSH: u32 = 0x5c00_0101;
const PUSH_AT: u64 = 0x2_0080_0000;
const UUID: [u8; 16] = [7; 16];

/// Issues calls as a program does, all of them successful unless said otherwise.
struct Program {
    g: ObjectGraph,
    next_fd: i32,
    status: u32,
    ret: i32,
}

impl Program {
    fn new() -> Program {
        let mut g = ObjectGraph::new();
        g.open(CTL, FileKind::Ctl);
        g.open(UVM, FileKind::Uvm);
        g.open(GPU, FileKind::Gpu(0));
        Program { g, next_fd: 10, status: 0, ret: 0 }
    }

    /// A program with a device, a VA space and the memory for its rings and pushbuffers.
    fn with_device() -> Program {
        let mut p = Program::new();
        p.alloc(0, 0, CLIENT, class::NV01_ROOT_CLIENT, &[]);
        let device = abi::DeviceAlloc { device_id: 1, ..Default::default() };
        p.alloc(CLIENT, CLIENT, DEVICE, class::NV01_DEVICE_0, device.as_bytes());
        p.alloc(CLIENT, DEVICE, SUBDEVICE, class::NV20_SUBDEVICE_0, &[0; 4]);
        p.alloc(CLIENT, DEVICE, VASPACE, class::FERMI_VASPACE_A, &[0; 56]);
        p.uvm(
            uvm::REGISTER_GPU_VASPACE,
            &uvm::RegisterGpuVaspace { uuid: UUID, client: CLIENT, va_space: VASPACE, ..Default::default() },
        );
        p.video(RINGS, 2 << 20);
        p.external(RINGS_AT, 2 << 20, RINGS, 0);
        p.map(RINGS, 0, 2 << 20, RINGS_AT);
        p.host(PUSH, 4 << 20, PUSH_AT);
        p.external(PUSH_AT, 4 << 20, PUSH, 0);
        p
    }

    fn rm<T: Plain>(&mut self, nr: u32, arg: &T, nested: &[u8]) {
        let (request, ret) = (rm_request(nr, size_of::<T>()), self.ret);
        let arg = arg.as_bytes();
        self.g.ioctl(IoctlRecord { fd: CTL, file: FileKind::Ctl, request, ret, arg, nested });
    }

    fn uvm<T: Plain>(&mut self, request: u64, arg: &T) {
        let (arg, ret) = (arg.as_bytes(), self.ret);
        self.g.ioctl(IoctlRecord { fd: UVM, file: FileKind::Uvm, request, ret, arg, nested: &[] });
    }

    fn alloc(&mut self, root: u32, parent: u32, new: u32, class: u32, params: &[u8]) {
        let a = abi::Nvos64 { root, parent, new, class, status: self.status, ..Default::default() };
        self.rm(nr::ALLOC, &a, params);
    }

    fn free(&mut self, old: u32) {
        let f = abi::Nvos00 { root: CLIENT, old, status: self.status, ..Default::default() };
        self.rm(nr::FREE, &f, &[]);
    }

    fn control<T: Plain>(&mut self, object: u32, cmd: u32, params: &T) {
        let c = abi::Nvos54 { client: CLIENT, object, cmd, status: self.status, ..Default::default() };
        self.rm(nr::CONTROL, &c, params.as_bytes());
    }

    fn video(&mut self, handle: u32, size: u64) {
        let m = abi::MemoryAlloc { size, ..Default::default() };
        self.alloc(CLIENT, DEVICE, handle, class::NV01_MEMORY_LOCAL_USER, m.as_bytes());
    }

    /// RM_ALLOC_MEMORY of host memory, mapped through its own descriptor.
    fn host(&mut self, handle: u32, size: u64, at: u64) {
        let fd = self.fresh(FileKind::Ctl);
        let class = class::NV01_MEMORY_SYSTEM;
        let (root, limit, status) = (CLIENT, size - 1, self.status);
        let a = abi::Nvos02Fd { root, parent: DEVICE, new: handle, class, limit, status, fd, ..Default::default() };
        self.rm(nr::ALLOC_MEMORY, &a, &[]);
        self.g.mmap(MmapRecord { addr: at, len: size, fd, ..Default::default() });
    }

    fn fresh(&mut self, kind: FileKind) -> i32 {
        self.next_fd += 1;
        self.g.open(self.next_fd, kind);
        self.next_fd
    }

    /// RM_MAP_MEMORY through a fresh descriptor, mmap, close.
    fn map(&mut self, memory: u32, offset: u64, length: u64, at: u64) {
        let fd = self.fresh(FileKind::Gpu(0));
        let status = self.status;
        let m =
            abi::Nvos33Fd { client: CLIENT, device: DEVICE, memory, offset, length, fd, status, ..Default::default() };
        self.rm(nr::MAP_MEMORY, &m, &[]);
        self.g.mmap(MmapRecord { addr: at, len: length, fd, ..Default::default() });
        self.g.close(fd);
    }

    fn external(&mut self, base: u64, length: u64, memory: u32, offset: u64) {
        self.external_on(base, length, memory, offset, UUID);
    }

    fn external_on(&mut self, base: u64, length: u64, memory: u32, offset: u64, uuid: [u8; 16]) {
        let gpu = uvm::GpuMapping { uuid, mapping: 1, ..Default::default() };
        let head = uvm::MapExternalHead { base, length, offset, gpu, pad: 0 };
        let tail = uvm::MapExternalTail { gpu_count: 1, ctl_fd: CTL, client: CLIENT, memory, status: self.status };
        let mut arg = head.as_bytes()[..60].to_vec();
        arg.extend_from_slice(tail.as_bytes());
        let (request, ret) = (uvm::MAP_EXTERNAL_ALLOCATION, self.ret);
        self.g.ioctl(IoctlRecord { fd: UVM, file: FileKind::Uvm, request, ret, arg: &arg, nested: &[] });
    }

    /// Channel `i` of a group, its ring and USERD where CUDA puts them.
    fn channel(&mut self, i: u32, group: u32, flags: u32) -> u32 {
        let handle = 0x5c00_1000 + i;
        let mut c = abi::ChannelAllocFull::default();
        c.client.gpfifo = RINGS_AT + 0x3000 * u64::from(i);
        c.client.entries = 1024;
        c.client.flags = flags;
        c.client.userd_memory[0] = RINGS;
        c.client.userd_offset[0] = 0x3000 * u64::from(i) + 0x2000;
        c.client.error_object = PUSH;
        let params = self.g.branch().layouts.channel_alloc.bytes(&c);
        self.alloc(CLIENT, group, handle, class::HOPPER_CHANNEL_GPFIFO_A, &params);
        handle
    }

    fn group(&mut self, handle: u32, engine_type: u32) {
        let g = abi::ChannelGroupAlloc { va_space: VASPACE, engine_type, ..Default::default() };
        self.alloc(CLIENT, DEVICE, handle, class::KEPLER_CHANNEL_GROUP_A, g.as_bytes());
    }

    fn token(&mut self, channel: u32, token: u32) {
        self.control(channel, abi::CTRL_WORK_SUBMIT_TOKEN, &control::WorkSubmitToken { token });
    }
}

/// A CUDA context: 8 graphics channels in one group on two runqueues, and 12 copy channels, each in a separate group.
fn cuda_context() -> Program {
    let mut p = Program::with_device();
    p.group(0x5c00_0200, class::engine::GRAPHICS);
    for i in 0..20u32 {
        let (group, flags) = if i < 8 {
            (0x5c00_0200, if i % 2 == 0 { 0x20 } else { 0x30 })
        } else {
            let group = 0x5c00_0200 + i;
            p.group(group, class::engine::copy(i % 4).unwrap());
            (group, 0x20)
        };
        let ch = p.channel(i, group, flags);
        let (engine_class, runlist) =
            if i < 8 { (class::HOPPER_COMPUTE_A, 0) } else { (class::HOPPER_DMA_COPY_A, i % 4 + 1) };
        p.alloc(CLIENT, ch, 0x5c00_2000 + i, engine_class, &[]);
        p.token(ch, runlist << 16 | (0x10 + i));
        let (base, length) = (0x7000_0000 + (u64::from(i) << 26), 1 << 26);
        let reg = uvm::RegisterChannel { uuid: UUID, client: CLIENT, channel: ch, base, length, ..Default::default() };
        p.uvm(uvm::REGISTER_CHANNEL, &reg);
        let s = control::Schedule { enable: 1, ..Default::default() };
        p.control(group, control::GROUP_SCHEDULE, &s);
    }
    p
}

#[test]
fn a_cuda_context_has_twenty_channels() {
    let p = cuda_context();
    let ch = p.g.channels();
    assert_eq!(ch.len(), 20);
    for (i, c) in ch.iter().enumerate() {
        let at = RINGS_AT + 0x3000 * i as u64;
        assert_eq!((c.gpfifo, c.entries, c.gpu), (at, 1024, Some(1)));
        let ring = c.gpfifo_at.unwrap();
        assert_eq!((ring.place, ring.offset, ring.cpu), (Place::Video, 0x3000 * i as u64, Some(at)));
        let userd = c.userd.unwrap();
        assert_eq!((userd.place, userd.cpu, userd.gpu), (Place::Video, Some(at + 0x2000), Some(at + 0x2000)));
        assert_eq!(c.runqueue, u32::from(i < 8 && i % 2 == 1));
        assert_eq!(c.uvm.unwrap().1, 1 << 26);
        assert_eq!(c.error_notifier, Some(PUSH));
        assert!(c.alive() && c.scheduled);
        assert_eq!(c.chid(), Some(0x10 + i as u32));
        assert_eq!(c.engines.len(), 1);
        if i < 8 {
            assert_eq!((c.engine_name(), c.runlist(), c.group), (Some("GRAPHICS"), Some(0), Some(0x5c00_0200)));
        } else {
            assert_eq!(c.runlist(), Some(i as u32 % 4 + 1));
            assert_eq!(class::engine::copy_index(c.engine), Some(i as u32 % 4));
        }
    }
    assert_eq!(p.g.channel_by_token(0x1_0018).unwrap().id, ChannelId(8));
    assert_eq!(p.g.channel_by_token_on(0x1_0018, 1).unwrap().id, ChannelId(8));
    assert!(p.g.channel_by_token_on(0x1_0018, 0).is_none());
    assert!(p.g.channel_by_token(0xdead).is_none());
    assert_eq!(p.g.va_spaces(), &[(CLIENT, VASPACE, UUID)]);
    assert_eq!(p.g.client_fds(CLIENT), vec![CTL]);
}

#[test]
fn gpu_addresses_say_where_their_bytes_lie() {
    let mut p = Program::with_device();
    let at = p.g.place_of(PUSH_AT + 0x1234).unwrap();
    assert_eq!((at.place, at.handle, at.offset), (Place::Host, PUSH, 0x1234));
    assert_eq!((at.cpu, at.rest), (Some(PUSH_AT + 0x1234), (4 << 20) - 0x1234));
    assert!(p.g.place_of(PUSH_AT + (4 << 20)).is_none());
    assert!(p.g.place_of(RINGS_AT - 1).is_none());

    // cudaMalloc: GPU memory that the program does not see.
    p.video(0x77, 2 << 20);
    p.external(0x7f00_0000_0000, 2 << 20, 0x77, 0);
    let at = p.g.place_of(0x7f00_0010_0000).unwrap();
    assert_eq!((at.place, at.handle, at.offset, at.cpu), (Place::Video, 0x77, 1 << 20, None));
    // Mapped later, somewhere else, from its second half on.
    p.map(0x77, 1 << 20, 1 << 20, 0x5555_0000_0000);
    assert_eq!(p.g.place_of(0x7f00_0010_0040).unwrap().cpu, Some(0x5555_0000_0040));
    assert_eq!(p.g.place_of(0x7f00_000f_ffff).unwrap().cpu, None);

    // cudaHostRegister: the program's own pages.
    let class = class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
    let (memory, limit) = (0x6666_0000_0000, 0xffff);
    let a =
        abi::Nvos02Fd { root: CLIENT, parent: DEVICE, new: 0x78, class, memory, limit, fd: -1, ..Default::default() };
    p.rm(nr::ALLOC_MEMORY, &a, &[]);
    p.external(0x6666_0000_0000, 0x10000, 0x78, 0);
    let at = p.g.place_of(0x6666_0000_0010).unwrap();
    assert_eq!((at.place, at.cpu), (Place::Host, Some(0x6666_0000_0010)));

    // A mapping of memory that was never seen made is known, its place is not.
    p.external(0x9000_0000, 0x1000, 0xbad, 0x2000);
    let at = p.g.place_of(0x9000_0800).unwrap();
    assert_eq!((at.place, at.memory, at.handle, at.offset), (Place::Unknown, None, 0xbad, 0x2800));
}

#[test]
fn uvm_memory_without_an_rm_object_is_recognised() {
    let mut p = Program::with_device();
    // Semaphore pool: UVM's host memory, mapped from the UVM file at the same address.
    p.g.ioctl(IoctlRecord {
        fd: UVM,
        file: FileKind::Uvm,
        request: uvm::ALLOC_SEMAPHORE_POOL,
        ret: 0,
        arg: [0x8000_0000u64.to_le_bytes(), 0x20_0000u64.to_le_bytes()].as_flattened(),
        nested: &[],
    });
    assert_eq!(p.g.place_of(0x8000_0010).unwrap().cpu, None);
    p.g.mmap(MmapRecord { addr: 0x8000_0000, len: 0x20_0000, fd: UVM, ..Default::default() });
    let at = p.g.place_of(0x8000_0010).unwrap();
    assert_eq!((at.place, at.cpu, at.managed, at.offset), (Place::Host, Some(0x8000_0010), false, 0x10));
    // Managed memory: a mapping of the UVM file, without a fixed place.
    p.g.mmap(MmapRecord { addr: 0xa000_0000, len: 0x1000, fd: UVM, ..Default::default() });
    let at = p.g.place_of(0xa000_0010).unwrap();
    assert_eq!((at.place, at.cpu, at.managed), (Place::Unknown, Some(0xa000_0010), true));
}

#[test]
fn doorbell_pages_are_found_by_handle() {
    let mut p = Program::with_device();
    p.alloc(CLIENT, SUBDEVICE, 0x90, class::HOPPER_USERMODE_A, &[]);
    p.alloc(CLIENT, SUBDEVICE, 0x91, class::HOPPER_USERMODE_A, &[1, 0]);
    p.map(0x90, 0, 0x10000, 0x7fff_0000_0000);
    p.map(0x91, 0, 0x10000, 0x7fff_0010_0000);
    let pages = p.g.usermode_pages();
    assert_eq!((pages[0].bar1, pages[0].cpu), (false, Some(0x7fff_0000_0000)));
    assert_eq!((pages[1].bar1, pages[1].cpu), (true, Some(0x7fff_0010_0000)));
    assert_eq!(p.g.cpu_at(0x7fff_0010_0090).unwrap().2.target, Target::Usermode(1));
    // The page moves, as when a shadow takes its place.
    p.g.mremap(0x7fff_0000_0000, 0x10000, 0x4444_0000_0000, 0x10000);
    assert_eq!(p.g.usermode_pages()[0].cpu, Some(0x4444_0000_0000));
    assert_eq!(p.g.cpu_ranges(Target::Usermode(0)), vec![(0x4444_0000_0000, 0x10000)]);
    assert!(p.g.cpu_at(0x7fff_0000_0090).is_none());
    p.free(SUBDEVICE);
    assert!(p.g.usermode_pages().iter().all(|u| u.freed.is_some()));
}

#[test]
fn a_second_mmap_of_a_descriptor_shows_the_same() {
    let mut p = Program::with_device();
    let fd = p.fresh(FileKind::Gpu(0));
    let m = abi::Nvos33Fd { client: CLIENT, memory: RINGS, offset: 0x3000, length: 0x1000, fd, ..Default::default() };
    p.rm(nr::MAP_MEMORY, &m, &[]);
    p.g.dup(fd, 99);
    for (addr, fd) in [(0x1000_0000, fd), (0x2000_0000, fd), (0x3000_0000, 99)] {
        p.g.mmap(MmapRecord { addr, len: 0x1000, fd, ..Default::default() });
        let (_, _, shown) = p.g.cpu_at(addr + 8).unwrap();
        assert_eq!((shown.target, shown.offset), (Target::Memory(MemoryId(0)), 0x3000));
    }
    p.g.close(99);
    p.g.mmap(MmapRecord { addr: 0x4000_0000, len: 0x1000, fd: 99, ..Default::default() });
    assert!(p.g.cpu_at(0x4000_0000).is_none());
}

#[test]
fn unmapping_cuts_and_moving_keeps_offsets() {
    let mut p = Program::with_device();
    p.g.munmap(RINGS_AT + 0x3000, 0x1000);
    assert!(p.g.cpu_at(RINGS_AT + 0x3000).is_none());
    assert_eq!(p.g.place_of(RINGS_AT + 0x2000).unwrap().cpu, Some(RINGS_AT + 0x2000));
    assert_eq!(p.g.place_of(RINGS_AT + 0x4008).unwrap().cpu, Some(RINGS_AT + 0x4008));
    // Two pieces and the hole move together.
    p.g.mremap(RINGS_AT + 0x2000, 0x3000, 0x5_0000_0000, 0x3000);
    assert_eq!(p.g.place_of(RINGS_AT + 0x2010).unwrap().cpu, Some(0x5_0000_0010));
    assert_eq!(p.g.place_of(RINGS_AT + 0x3010).unwrap().cpu, None);
    assert_eq!(p.g.place_of(RINGS_AT + 0x4010).unwrap().cpu, Some(0x5_0000_2010));
    assert_eq!(p.g.place_of(RINGS_AT + 0x5010).unwrap().cpu, Some(RINGS_AT + 0x5010));
    // Anonymous memory mapped over it hides it.
    p.g.mmap(MmapRecord { addr: 0x5_0000_0000, len: 0x1000, fd: -1, ..Default::default() });
    assert_eq!(p.g.place_of(RINGS_AT + 0x2010).unwrap().cpu, None);
    // Shrunk, grown, failed, and a second mapping of the same pages.
    p.g.mremap(0x5_0000_2000, 0x1000, u64::MAX, 0x1000);
    assert!(p.g.cpu_at(0x5_0000_2000).is_some());
    p.g.mremap(PUSH_AT, 4 << 20, 0x6_0000_0000, 0x2000);
    assert_eq!(p.g.cpu_ranges(Target::Memory(MemoryId(1))), vec![(0x6_0000_0000, 0x2000)]);
    p.g.mremap(0x6_0000_0000, 0x2000, 0x6_0000_0000, 0x4000);
    assert_eq!(p.g.cpu_ranges(Target::Memory(MemoryId(1))), vec![(0x6_0000_0000, 0x4000)]);
    p.g.mremap(0x6_0000_1000, 0, 0x6_1000_0000, 0x1000);
    assert_eq!(p.g.cpu_at(0x6_1000_0000).unwrap().2.offset, 0x1000);
    assert_eq!(p.g.cpu_ranges(Target::Memory(MemoryId(1))).len(), 2);
}

#[test]
fn a_free_includes_children_and_keeps_history() {
    let mut p = cuda_context();
    p.free(0x5c00_0200);
    assert_eq!(p.g.channels().iter().filter(|c| !c.alive()).count(), 8);
    assert!(p.g.object(CLIENT, 0x5c00_2000).is_none(), "engine object of a freed channel");
    // The token is given to a new channel: the live one is meant, and after its end the latest.
    let dead = p.g.channel_by_token(0x10).unwrap().id;
    p.group(0x5c00_0201, class::engine::GRAPHICS);
    let new = p.channel(20, 0x5c00_0201, 0x20);
    p.token(new, 0x10);
    let live = p.g.channel_by_token(0x10).unwrap();
    assert!(live.alive() && live.id != dead);
    p.free(DEVICE);
    assert_eq!(p.g.channel_by_token(0x10).unwrap().id, ChannelId(20));
    assert_eq!(p.g.channels().len(), 21);
    assert!(p.g.channels().iter().all(|c| c.freed.is_some() && c.gpfifo_at.is_some()));
    assert!(p.g.memories().iter().all(|m| m.freed.is_some()));
    assert!(p.g.object(CLIENT, CLIENT).is_some());
    assert_eq!(p.g.channel(CLIENT, new).unwrap().id, ChannelId(20));
    // UVM holds the memory that it maps: the address stays good until it is unmapped.
    assert_eq!(p.g.place_of(RINGS_AT).unwrap().place, Place::Video);
    p.uvm(uvm::FREE, &uvm::Range { base: RINGS_AT, length: 2 << 20, ..Default::default() });
    assert!(p.g.place_of(RINGS_AT).is_none());
    p.free(CLIENT);
    assert!(p.g.objects().iter().all(|o| o.freed.is_some()));
}

#[test]
fn the_last_close_of_a_file_frees_its_clients() {
    let mut p = cuda_context();
    p.g.dup(CTL, 50);
    p.g.close(CTL);
    assert!(p.g.object(CLIENT, DEVICE).is_some());
    // A mapping of the file keeps it open, too.
    p.g.ioctl(IoctlRecord {
        fd: 50,
        file: FileKind::Ctl,
        request: rm_request(nr::MAP_MEMORY, 56),
        ret: 0,
        arg: abi::Nvos33Fd { client: CLIENT, memory: PUSH, fd: 50, length: 0x1000, ..Default::default() }.as_bytes(),
        nested: &[],
    });
    p.g.mmap(MmapRecord { addr: 0x3333_0000, len: 0x1000, fd: 50, ..Default::default() });
    p.g.close(50);
    assert!(p.g.object(CLIENT, DEVICE).is_some());
    p.g.munmap(0x3333_0000, 0x1000);
    assert!(p.g.object(CLIENT, DEVICE).is_none());
    assert!(p.g.channels().iter().all(|c| !c.alive()));
}

#[test]
fn a_mapping_that_moves_keeps_its_file_open() {
    let mut p = cuda_context();
    let m = abi::Nvos33Fd { client: CLIENT, memory: PUSH, fd: CTL, length: 0x1000, ..Default::default() };
    p.rm(nr::MAP_MEMORY, &m, &[]);
    for addr in [0x3333_0000, 0x3334_0000] {
        p.g.mmap(MmapRecord { addr, len: 0x1000, fd: CTL, ..Default::default() });
    }
    p.g.close(CTL);
    // Onto the other mapping of the same file: for a moment neither is listed.
    p.g.mremap(0x3333_0000, 0x1000, 0x3334_0000, 0x1000);
    assert!(p.g.object(CLIENT, DEVICE).is_some());
    p.g.munmap(0x3334_0000, 0x1000);
    assert!(p.g.object(CLIENT, DEVICE).is_none());
}

#[test]
fn failed_calls_change_nothing() {
    let mut p = cuda_context();
    let before =
        format!("{:?}", (p.g.objects(), p.g.channels(), p.g.memories(), p.g.gpu_mappings().collect::<Vec<_>>()));
    for (status, ret) in [(0x1b, 0), (0, -1)] {
        p.status = status;
        p.ret = ret;
        p.video(0x1111, 4096);
        p.free(DEVICE);
        p.token(0x5c00_1000, 0x99);
        p.group(0x2222, 1);
        p.external(RINGS_AT, 0x1000, PUSH, 0);
        let range = uvm::Range { base: RINGS_AT, length: 0x1000, status, pad: 0 };
        p.uvm(uvm::FREE, &range);
        let dup = abi::Nvos55 {
            client: CLIENT,
            object: 0x3333,
            client_src: CLIENT,
            object_src: PUSH,
            status,
            ..Default::default()
        };
        p.rm(nr::DUP_OBJECT, &dup, &[]);
    }
    // The mmap itself fails.
    p.g.mmap(MmapRecord { addr: u64::MAX, len: 0x1000, fd: UVM, ..Default::default() });
    let after =
        format!("{:?}", (p.g.objects(), p.g.channels(), p.g.memories(), p.g.gpu_mappings().collect::<Vec<_>>()));
    assert_eq!(before, after);
}

#[test]
fn duplicated_memory_is_the_same_memory() {
    let mut p = Program::with_device();
    p.alloc(0, 0, 0xc2, class::NV01_ROOT_CLIENT, &[]);
    let (client_src, object_src) = (CLIENT, RINGS);
    let dup = abi::Nvos55 { client: 0xc2, parent: 0xc2, object: 0x5, client_src, object_src, ..Default::default() };
    p.rm(nr::DUP_OBJECT, &dup, &[]);
    let (a, b) = (p.g.memory_of(CLIENT, RINGS).unwrap(), p.g.memory_of(0xc2, 5).unwrap());
    assert_eq!(a.id, b.id);
    p.free(RINGS);
    let m = p.g.memory_of(0xc2, 5).unwrap();
    assert!(m.freed.is_none(), "one handle is left");
    let tree: Vec<String> = p.g.object_tree().iter().map(|n| n.to_string()).collect();
    assert!(tree.iter().any(|l| l.contains("2 MiB, GPU memory, same as 0x5c000100 of 0xc1d00001")), "{tree:#?}");
    let f = abi::Nvos00 { root: 0xc2, old: 5, ..Default::default() };
    p.rm(nr::FREE, &f, &[]);
    assert!(p.g.memories()[0].freed.is_some());
}

#[test]
fn unmapping_on_one_gpu_leaves_the_other() {
    let mut p = Program::with_device();
    p.external_on(RINGS_AT, 2 << 20, RINGS, 0, [9; 16]);
    let unmap = |uuid| uvm::GpuRange { base: RINGS_AT, length: 0x1000, uuid, ..Default::default() };
    p.uvm(uvm::UNMAP_EXTERNAL, &unmap(UUID));
    assert_eq!(p.g.place_of(RINGS_AT + 8).unwrap().place, Place::Video);
    p.uvm(uvm::UNMAP_EXTERNAL, &unmap([9; 16]));
    assert!(p.g.place_of(RINGS_AT + 8).is_none());
    assert_eq!(p.g.place_of(RINGS_AT + 0x1008).unwrap().offset, 0x1008);
    // A range is freed whole by its base, whatever length the call gives.
    p.uvm(uvm::CREATE_EXTERNAL_RANGE, &uvm::Range { base: 0xb000_0000, length: 0x4000, ..Default::default() });
    p.external(0xb000_0000, 0x4000, RINGS, 0);
    p.uvm(uvm::FREE, &uvm::Range { base: 0xb000_0000, ..Default::default() });
    assert!(p.g.place_of(0xb000_3000).is_none());
}

#[test]
fn memory_places_follow_class_and_attributes() {
    let mut p = Program::with_device();
    let sys = abi::MemoryAlloc { attr: abi::attr::LOCATION_PCI, size: 0x1000, ..Default::default() };
    p.alloc(CLIENT, DEVICE, 1, class::NV01_MEMORY_LOCAL_USER, sys.as_bytes());
    p.alloc(CLIENT, DEVICE, 2, class::NV01_MEMORY_SYSTEM, abi::MemoryAlloc::default().as_bytes());
    p.alloc(CLIENT, DEVICE, 3, class::NV50_MEMORY_VIRTUAL, sys.as_bytes());
    p.alloc(CLIENT, DEVICE, 4, class::NV01_MEMORY_LOCAL_USER, &[]);
    let mut heap = abi::Nvos32 { root: CLIENT, parent: DEVICE, function: abi::heap::ALLOC_SIZE, ..Default::default() };
    for (handle, attr, flags) in [(5u32, abi::attr::LOCATION_PCI, 0), (6, 0, 0), (7, 0, abi::alloc_flags::VIRTUAL)] {
        let a = abi::HeapAlloc { memory: handle, attr, flags, size: 0x2000, ..Default::default() };
        let n = size_of::<abi::HeapAlloc>();
        heap.data.as_bytes_mut()[..n].copy_from_slice(a.as_bytes());
        p.rm(nr::VID_HEAP_CONTROL, &heap, &[]);
    }
    let places: Vec<Place> = (1..8).map(|h| p.g.memory_of(CLIENT, h).unwrap().place).collect();
    use Place::*;
    assert_eq!(places, [Host, Host, Unknown, Video, Host, Video, Unknown]);
    assert_eq!(p.g.memory_of(CLIENT, 5).unwrap().size, 0x2000);
    // The short form of RM_ALLOC, and RM mappings of GPU addresses in the structs of two branches.
    let (new, class) = (8, class::NV01_MEMORY_SYSTEM);
    p.rm(nr::ALLOC, &abi::Nvos21 { root: CLIENT, parent: DEVICE, new, class, ..Default::default() }, &[]);
    assert!(p.g.memory_of(CLIENT, 8).is_some());
    let (client, memory, length) = (CLIENT, 8, 0x1000);
    let dma = abi::Nvos46 { client, memory, length, dma_offset: 0xcc00_0000, offset: 0x40, ..Default::default() };
    p.rm(nr::MAP_MEMORY_DMA, &dma, &[]);
    p.g.set_driver("570.133.20");
    let dma = abi::Nvos46 { dma_offset: 0xcd00_0000, ..dma };
    p.rm(nr::MAP_MEMORY_DMA, &dma, &[]);
    assert!(p.g.place_of(0xcd00_0004).is_none(), "another branch's struct says nothing");
    let short: [u8; 56] = *p.g.branch().layouts.map_dma.bytes(&dma).first_chunk().unwrap();
    p.rm(nr::MAP_MEMORY_DMA, &short, &[]);
    assert_eq!(p.g.place_of(0xcc00_0004).unwrap().offset, 0x44);
    assert_eq!(p.g.place_of(0xcd00_0004).unwrap().place, Host);
    p.rm(nr::UNMAP_MEMORY_DMA, &abi::Nvos47 { client, memory, dma_offset: 0xcc00_0000, ..Default::default() }, &[]);
    assert!(p.g.place_of(0xcc00_0004).is_none());
}

#[test]
fn a_channel_right_under_a_device_names_its_engine() {
    let mut p = Program::with_device();
    let ch = p.channel(0, DEVICE, 0);
    let c = p.g.channel(CLIENT, ch).unwrap();
    assert_eq!((c.group, c.engine, c.gpu), (None, 0, Some(1)));
    p.control(ch, control::CHANNEL_BIND, &control::Bind { engine_type: class::engine::COPY0 + 2 });
    assert_eq!(p.g.channel(CLIENT, ch).unwrap().engine_name(), Some("COPY2"));
    p.control(ch, control::CHANNEL_SCHEDULE, &[1u8, 0]);
    assert!(p.g.channel(CLIENT, ch).unwrap().scheduled);
    let ch = p.channel(1, DEVICE, 0);
    let copy = abi::CopyAlloc { version: 1, engine_type: class::engine::COPY0 + 3 };
    p.alloc(CLIENT, ch, 0x44, class::HOPPER_DMA_COPY_A, copy.as_bytes());
    assert_eq!(p.g.channel(CLIENT, ch).unwrap().engine_name(), Some("COPY3"));
}

#[test]
fn memory_mapped_after_its_channel_is_found() {
    let mut p = Program::new();
    p.alloc(0, 0, CLIENT, class::NV01_ROOT_CLIENT, &[]);
    p.alloc(CLIENT, CLIENT, DEVICE, class::NV01_DEVICE_0, &[]);
    p.video(RINGS, 2 << 20);
    let ch = p.channel(2, DEVICE, 0);
    assert!(p.g.channel(CLIENT, ch).unwrap().gpfifo_at.is_none());
    p.external(RINGS_AT, 2 << 20, RINGS, 0);
    p.map(RINGS, 0x8000, 0x1000, 0xaaaa_0000);
    let c = p.g.channel(CLIENT, ch).unwrap();
    assert_eq!(c.gpfifo_at.unwrap().place, Place::Video);
    let u = c.userd.unwrap();
    assert_eq!((u.gpu, u.cpu), (Some(RINGS_AT + 0x8000), Some(0xaaaa_0000)));
}

#[test]
fn the_tree_prints_parents_before_children() {
    let mut p = cuda_context();
    p.free(0x5c00_1001);
    let tree: Vec<String> = p.g.object_tree().iter().map(|n| n.to_string()).collect();
    assert_eq!(tree.len(), p.g.objects().len());
    assert_eq!(tree[0], "0xc1d00001 NV01_ROOT_CLIENT");
    assert_eq!(tree[1], "  0x5c000001 NV01_DEVICE_0 (GPU 1)");
    let want = "      0x5c001000 HOPPER_CHANNEL_GPFIFO_A (GRAPHICS, GPFIFO 0x200600000 of 1024 entries, token 0x10)";
    assert!(tree.iter().any(|l| l == want), "{tree:#?}");
    assert!(tree.iter().any(|l| l.starts_with("      0x5c001001") && l.ends_with(" freed")));
    assert!(tree.iter().any(|l| l == "        0x5c002000 HOPPER_COMPUTE_A"));
    assert!(tree.iter().any(|l| l == "    0x5c000101 NV01_MEMORY_SYSTEM (4 MiB, host memory)"), "{tree:#?}");
}

/// A second GPU: its device, its address space registered with UVM, and a channel in a group there.
fn with_second_gpu(p: &mut Program) -> ([u8; 16], u32, u32) {
    let (uuid, device, space) = ([9; 16], 0x5d00_0001, 0x5d00_0003);
    let params = abi::DeviceAlloc { device_id: 2, ..Default::default() };
    p.alloc(CLIENT, CLIENT, device, class::NV01_DEVICE_0, params.as_bytes());
    p.alloc(CLIENT, device, space, class::FERMI_VASPACE_A, &[0; 56]);
    let registered = uvm::RegisterGpuVaspace { uuid, client: CLIENT, va_space: space, ..Default::default() };
    p.uvm(uvm::REGISTER_GPU_VASPACE, &registered);
    (uuid, device, space)
}

#[test]
fn two_gpus_may_show_other_memory_at_one_address() {
    let mut p = Program::with_device();
    let (second, device, _) = with_second_gpu(&mut p);
    let (at, there) = (0x7_0000_0000, 0x5d00_0100);
    p.external(at, 0x10000, PUSH, 0);
    let m = abi::MemoryAlloc { size: 0x10000, ..Default::default() };
    p.alloc(CLIENT, device, there, class::NV01_MEMORY_LOCAL_USER, m.as_bytes());
    p.external_on(at, 0x10000, there, 0, second);
    assert_eq!(p.g.place_in(None, Some(1), at + 8), Some((Place::Host, None)));
    assert_eq!(p.g.place_in(None, Some(2), at + 8), Some((Place::Video, Some(2))));
    // A mapping on only the other GPU is not used.
    p.external_on(at + 0x10_0000, 0x1000, there, 0, second);
    assert_eq!(p.g.place_in(None, Some(1), at + 0x10_0000), None);
    assert_eq!(p.g.place_in(None, Some(2), at + 0x10_0000), Some((Place::Video, Some(2))));
    // The end on one is not the end on the other.
    p.uvm(uvm::UNMAP_EXTERNAL, &uvm::GpuRange { base: at, length: 0x10000, uuid: second, ..Default::default() });
    assert_eq!(p.g.place_in(None, Some(1), at + 8), Some((Place::Host, None)));
    assert_eq!(p.g.place_in(None, Some(2), at + 8), None);
}

#[test]
fn memory_that_each_gpu_has_mapped_in_other_parts_is_there_for_both() {
    let mut p = Program::with_device();
    let (second, ..) = with_second_gpu(&mut p);
    let at = 0x7_0000_0000;
    p.external(at, 0x10000, PUSH, 0);
    let first = p.g.gpus_of(at)[0];
    p.external_on(at, 0x6000, PUSH, 0, second);
    p.external_on(at + 0x6000, 0x4000, PUSH, 0x6000, second);
    let both = |p: &Program, by: u64| {
        let gpus = p.g.gpus_of(at + by);
        gpus.len() == 2 && gpus.contains(&first) && gpus.contains(&second)
    };
    assert!(both(&p, 0) && both(&p, 0x5fff) && both(&p, 0x6000) && both(&p, 0x9fff));
    assert_eq!(p.g.gpus_of(at + 0xa000), [first]);
    // Other bytes of the same memory at that address are not the same.
    p.external_on(at, 0x1000, PUSH, 0x8000, second);
    assert_eq!(p.g.gpus_of(at), [second]);
    p.uvm(uvm::UNMAP_EXTERNAL, &uvm::GpuRange { base: at, length: 0x10000, uuid: second, ..Default::default() });
    assert_eq!(p.g.gpus_of(at + 0xa000), [first]);
}

#[test]
fn each_gpu_has_its_own_mapping_at_an_address() {
    let mut p = Program::with_device();
    let (second, device, _) = with_second_gpu(&mut p);
    let (at, there) = (0x7_0000_0000, 0x5d00_0200);
    p.external(at, 0x10000, PUSH, 0);
    let first = p.g.gpus_of(at)[0];
    let m = abi::MemoryAlloc { size: 0x10000, ..Default::default() };
    p.alloc(CLIENT, device, there, class::NV01_MEMORY_LOCAL_USER, m.as_bytes());
    // The other GPU uses its own handle for it.
    p.external_on(at, 0x8000, there, 0x1000, second);
    let on = |p: &Program, gpu, by: u64| p.g.place_on(gpu, at + by).map(|l| (l.handle, l.offset, l.rest));
    assert_eq!(on(&p, first, 0x10), Some((PUSH, 0x10, 0xfff0)));
    assert_eq!(on(&p, second, 0x10), Some((there, 0x1010, 0x7ff0)));
    assert_eq!(on(&p, second, 0x8000), None);
    assert_eq!(on(&p, first, 0x10000), None);
    assert!(p.g.is_mapped_for(first, at) && p.g.is_mapped_for(second, at + 0x7fff));
    assert!(!p.g.is_mapped_for(second, at + 0x8000));
    p.uvm(uvm::UNMAP_EXTERNAL, &uvm::GpuRange { base: at, length: 0x8000, uuid: second, ..Default::default() });
    assert_eq!(on(&p, first, 0x10), Some((PUSH, 0x10, 0xfff0)));
    assert_eq!(on(&p, second, 0x10), None);
    assert!(p.g.is_mapped_for(first, at) && !p.g.is_mapped_for(second, at));
}

#[test]
fn a_channel_of_a_group_is_in_the_groups_address_space() {
    let mut p = Program::with_device();
    let (_, device, other) = with_second_gpu(&mut p);
    // The same GPU addresses in both spaces: GPU memory in one, host memory in the other, last mapped.
    let (at, range) = (0xb000_0000, 0x5c00_0777);
    let map = |p: &mut Program, dma: u32, memory: u32| {
        let (client, length, dma_offset) = (CLIENT, 0x10000, at);
        p.rm(nr::MAP_MEMORY_DMA, &abi::Nvos46 { client, dma, memory, length, dma_offset, ..Default::default() }, &[]);
    };
    // RM is given the space itself, or a range of virtual memory that was made in it.
    let virt = abi::MemoryAlloc { va_space: VASPACE, size: 1 << 30, ..Default::default() };
    p.alloc(CLIENT, DEVICE, range, class::NV50_MEMORY_VIRTUAL, virt.as_bytes());
    map(&mut p, range, RINGS);
    map(&mut p, other, PUSH);
    p.group(0x5c00_0200, class::engine::GRAPHICS);
    let bytes = |c: &abi::ChannelAllocFull| Branch::usual().layouts.channel_alloc.bytes(c);
    let mut c = abi::ChannelAllocFull::default();
    (c.client.gpfifo, c.client.entries) = (at, 1024);
    p.alloc(CLIENT, 0x5c00_0200, 0x5c00_1000, class::HOPPER_CHANNEL_GPFIFO_A, &bytes(&c));
    let first = p.g.channel(CLIENT, 0x5c00_1000).unwrap();
    assert_eq!((first.va_space, first.gpfifo_at.unwrap().place), (Some(VASPACE), Place::Video));
    // By its context share; and in its own space.
    let share = abi::ContextShareAlloc { va_space: other, ..Default::default() };
    p.alloc(CLIENT, 0x5c00_0200, 0x5c00_0300, class::FERMI_CONTEXT_SHARE_A, share.as_bytes());
    c.client.context_share = 0x5c00_0300;
    p.alloc(CLIENT, 0x5c00_0200, 0x5c00_1001, class::HOPPER_CHANNEL_GPFIFO_A, &bytes(&c));
    (c.client.context_share, c.client.va_space) = (0, other);
    p.alloc(CLIENT, device, 0x5c00_1002, class::HOPPER_CHANNEL_GPFIFO_A, &bytes(&c));
    for handle in [0x5c00_1001, 0x5c00_1002] {
        let c = p.g.channel(CLIENT, handle).unwrap();
        assert_eq!((c.va_space, c.gpfifo_at.unwrap().place), (Some(other), Place::Host), "{handle:#x}");
    }
    // A space without a mapping there does not see those of others.
    p.alloc(CLIENT, DEVICE, 0x5c00_0004, class::FERMI_VASPACE_A, &[0; 56]);
    assert_eq!(p.g.place_in(Some((CLIENT, 0x5c00_0004)), Some(1), at), None);
    assert_eq!(p.g.place_in(Some((CLIENT, VASPACE)), Some(1), at).unwrap().0, Place::Video);
}

#[test]
fn uvm_frees_are_read_in_the_branchs_struct() {
    for (version, size) in [("535.288.01", 24), ("580.142", 24), ("590.48.01", 16), ("610.57.04", 16)] {
        let mut p = Program::new();
        p.g.set_driver(version);
        let shape = &p.g.branch().layouts.uvm_free;
        let call = |p: &mut Program, request: u64, arg: &[u8]| {
            p.g.ioctl(IoctlRecord { fd: UVM, file: FileKind::Uvm, request, ret: 0, arg, nested: &[] });
        };
        let range = uvm::Range { base: 0x4000_0000, length: 0x1000, ..Default::default() };
        call(&mut p, uvm::CREATE_EXTERNAL_RANGE, range.as_bytes());
        let map =
            uvm::MapExternal { base: range.base, length: 0x1000, client: CLIENT, gpu_count: 1, ..Default::default() };
        let map = p.g.branch().layouts.uvm_map_external.bytes(&map);
        call(&mut p, uvm::MAP_EXTERNAL_ALLOCATION, &map);
        assert!(p.g.place_of(range.base).is_some(), "{version}");
        // One that failed, by the status where the branch has it.
        let failed = shape.bytes(&uvm::Range { status: 0x1f, ..range });
        assert_eq!(failed.len(), size, "{version}");
        call(&mut p, uvm::FREE, &failed);
        assert!(p.g.place_of(range.base).is_some(), "{version}");
        call(&mut p, uvm::FREE, &shape.bytes(&range));
        assert!(p.g.place_of(range.base).is_none(), "{version}");
    }
}

#[test]
fn a_graph_that_forgets_stays_small_and_knows_what_is_mapped() {
    let mut p = Program::with_device();
    let (kept, kept_at) = (0x5c00_0200, 0x2_1000_0000);
    p.video(kept, 2 << 20);
    p.external(kept_at, 2 << 20, kept, 0);
    let born = |g: &ObjectGraph| g.memory(g.place_of(kept_at).unwrap().memory.unwrap()).unwrap().born;
    let before = born(&p.g);
    for n in 0..20_000_u32 {
        let (memory, at) = (0x5d00_0000 + n, 0x2_2000_0000 + u64::from(n % 64) * (2 << 20));
        p.video(memory, 2 << 20);
        p.external(at, 2 << 20, memory, 0);
        p.map(memory, 0, 4096, at);
        p.free(memory);
        // A mapping outlives the handle: the memory is known until the next one takes its address.
        let found = p.g.place_of(at).and_then(|found| p.g.memory(found.memory?));
        assert_eq!(found.map(|m| (m.handle, m.freed.is_some())), Some((memory, true)));
        p.g.forget_freed();
    }
    assert_eq!(born(&p.g), before);
    assert_eq!(p.g.memory_of(CLIENT, kept).map(|m| m.born), Some(before));
    let lists = [p.g.objects().len(), p.g.memories().len(), p.g.files.len()];
    assert!(lists.iter().all(|length| *length < 2048), "{lists:?}");
}
