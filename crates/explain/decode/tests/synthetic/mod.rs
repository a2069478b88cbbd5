//! Tapes made by hand, as a recorder would write them: the tests of `decode`, `terminal` and `doorbell` share them.
#![allow(dead_code, unused_imports)] // each test binary uses a part

mod copies;
mod large;
mod slow;

pub use copies::copy_times;
pub use large::{RARE, large};
use pushbuf::encode::{Words, inline_dma, launch_dma};
use pushbuf::gpfifo;
use pushbuf::qmd::end_time::{self, Found};
use pushbuf::qmd::{Layout, Qmd};
use rm::abi::{self, Plain as _, nr, rm_request, uvm};
use rm::class;
pub use slow::{slow_launches, slow_launches_after};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tape::event::*;
use tape::file::{Clock, End, EndChannel, Header, Process, ProcessEnd, Rank, Unwatched, Writer};

pub const CTL: i32 = 3;
pub const UVM: i32 = 4;
pub const CLIENT: u32 = 0xc1d0_0001;
pub const DEVICE: u32 = 0x5c00_0001;
pub const GROUP: u32 = 0x5c00_0010;
/// GPU memory with rings, host memory with pushbuffers, GPU memory and host memory of the user.
pub const RINGS_AT: u64 = 0x2_0060_0000;
pub const PUSH_AT: u64 = 0x2_0080_0000;
pub const DEVICE_AT: u64 = 0x7f00_2000_0000;
/// Address of the QMDs of launches: SEND_PCAS_A has 40 bits of address.
pub const QMD_AT: u64 = RINGS_AT + 0x10_0000;
pub const HOST_AT: u64 = 0x2_0400_0000;
pub const GHZ: f64 = 1e9;
/// UUIDs of two GPUs.
pub const GPU_0: [u8; 16] = [7; 16];
pub const GPU_1: [u8; 16] = [9; 16];

/// A channel as the tape's threads use it.
struct Live {
    handle: u32,
    token: u32,
    ring: u32,
    put: u32,
    entries: u64,
    rings: u64,
    recorded: bool,
}

/// A tape that is being written.
#[derive(Default)]
pub struct Tape {
    /// Chunks in file order, and events of each thread not yet in a chunk.
    chunks: Vec<((u32, i32), Vec<u8>)>,
    open: BTreeMap<(u32, i32), Vec<u8>>,
    live: HashMap<(u32, u32), Live>,
    pub tsc: u64,
    pub header: Header,
    pub end: Option<End>,
    /// The process of the next events.
    pub process: u32,
    /// Classes of the next channels: host, compute, copy engine. Hopper's unless changed.
    pub classes: [u32; 3],
    pub processes: Vec<Process>,
    pub process_ends: Vec<ProcessEnd>,
    pub unwatched: Vec<Unwatched>,
    /// The call in which later doorbells are rung.
    pub call: RingBody,
    next_fd: i32,
    /// As the agent does if the kernel's UVM arguments differ from its branch's: it stores none.
    pub without_uvm: bool,
}

impl Tape {
    pub fn new() -> Tape {
        let header = Header {
            doorbell: "0.1.0".into(),
            args: Some(vec!["./app".into(), "--fast".into()]),
            exe: "/opt/app".into(),
            started: "2026-01-02T03:04:05Z".into(),
            driver: "580.159.04".into(),
            gpu: "NVIDIA H100 80GB HBM3".into(),
            cuda: Some("13.0".into()),
            tsc_hz: GHZ,
            tap: "auto".into(),
            ..Header::default()
        };
        let end =
            End { how: "exited 0".into(), pid: 4242, exit_code: Some(0), seconds: 1.5, agent: true, ..End::default() };
        let classes = [class::HOPPER_CHANNEL_GPFIFO_A, class::HOPPER_COMPUTE_A, class::HOPPER_DMA_COPY_A];
        Tape { header, end: Some(end), tsc: 1000, next_fd: 10, without_uvm: false, classes, ..Tape::default() }
    }

    /// Appends an event to a thread, ten ticks after the last one.
    pub fn event<B: Plain>(&mut self, tid: i32, kind: u16, flags: u16, body: &B, a: &[u8], b: &[u8]) {
        self.tsc += 10;
        self.event_at(tid, self.tsc, kind, flags, body, a, b);
    }

    #[allow(clippy::too_many_arguments)]
    pub fn event_at<B: Plain>(&mut self, tid: i32, tsc: u64, kind: u16, flags: u16, body: &B, a: &[u8], b: &[u8]) {
        let mut bytes = bytes_of(body).to_vec();
        bytes.extend(a);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(b);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let head = Head { kind, flags, len: 16 + bytes.len() as u32, tsc };
        let to = self.open.entry((self.process, tid)).or_default();
        to.extend(bytes_of(&head));
        to.extend(bytes);
    }

    /// Appends raw bytes to a thread's chunk.
    pub fn raw(&mut self, tid: i32, bytes: &[u8]) {
        self.open.entry((self.process, tid)).or_default().extend(bytes);
    }

    /// Flips `n` bits of the events, at places that `random` gives.
    pub fn flip(&mut self, n: usize, mut random: impl FnMut(usize) -> usize) {
        let tids: Vec<(u32, i32)> = self.open.keys().copied().collect();
        for _ in 0..n {
            let b = self.open.get_mut(&tids[random(tids.len())]).unwrap();
            let at = random(b.len());
            b[at] ^= 1 << random(8);
        }
    }

    /// Bytes of events so far.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|c| c.1.len()).chain(self.open.values().map(Vec::len)).sum()
    }

    /// Ends a thread's chunk: its next event starts another.
    pub fn cut(&mut self, tid: i32) {
        let thread = (self.process, tid);
        if let Some(b) = self.open.remove(&thread) {
            self.chunks.push((thread, b));
        }
    }

    pub fn ioctl(&mut self, tid: i32, fd: i32, file: u32, request: u64, arg: &[u8], nested: &[u8]) {
        self.tsc += 10;
        let arg = if self.without_uvm && file == file::UVM { &[] } else { arg };
        let body = IoctlBody {
            fd,
            file,
            request,
            arg: arg.len() as u32,
            nested: nested.len() as u32,
            tsc_end: self.tsc + 5,
            ..IoctlBody::default()
        };
        self.event(tid, kind::IOCTL, 0, &body, arg, nested);
    }

    pub fn rm<T: abi::Plain>(&mut self, tid: i32, nr: u32, arg: &T, nested: &[u8]) {
        self.ioctl(tid, CTL, file::CTL, rm_request(nr, size_of::<T>()), arg.as_bytes(), nested);
    }

    pub fn alloc(&mut self, tid: i32, parent: u32, new: u32, class: u32, params: &[u8]) {
        let root = if class == class::NV01_ROOT_CLIENT { 0 } else { CLIENT };
        let a = abi::Nvos64 { root, parent, new, class, ..Default::default() };
        self.rm(tid, nr::ALLOC, &a, params);
    }

    pub fn free(&mut self, tid: i32, old: u32) {
        self.rm(tid, nr::FREE, &abi::Nvos00 { root: CLIENT, old, ..Default::default() }, &[]);
    }

    /// Memory of a class, mapped at a GPU address; host memory also at the same CPU address.
    pub fn memory(&mut self, tid: i32, handle: u32, class: u32, base: u64, length: u64) {
        self.memory_of(tid, DEVICE, handle, class, length);
        self.external(tid, GPU_0, handle, base, length);
        self.next_fd += 1;
        let fd = self.next_fd;
        let map = abi::Nvos33Fd { client: CLIENT, device: DEVICE, memory: handle, length, fd, ..Default::default() };
        self.rm(tid, nr::MAP_MEMORY, &map, &[]);
        let body = MmapBody { addr: base, len: length, fd, file: file::GPU, ..Default::default() };
        self.event(tid, kind::MMAP, 0, &body, &[], &[]);
    }

    /// Memory of a class on a GPU, not mapped.
    pub fn memory_of(&mut self, tid: i32, device: u32, handle: u32, class: u32, size: u64) {
        let m = abi::MemoryAlloc { size, ..Default::default() };
        self.alloc(tid, device, handle, class, m.as_bytes());
    }

    /// UVM maps memory at a GPU address of one GPU.
    pub fn external(&mut self, tid: i32, uuid: [u8; 16], memory: u32, base: u64, length: u64) {
        let gpu = uvm::GpuMapping { uuid, mapping: 1, ..Default::default() };
        let head = uvm::MapExternalHead { base, length, offset: 0, gpu, pad: 0 };
        let tail = uvm::MapExternalTail { gpu_count: 1, ctl_fd: CTL, client: CLIENT, memory, status: 0 };
        let mut arg = head.as_bytes()[..60].to_vec();
        arg.extend_from_slice(tail.as_bytes());
        self.ioctl(tid, UVM, file::UVM, uvm::MAP_EXTERNAL_ALLOCATION, &arg, &[]);
    }

    /// RM maps memory at a GPU address of an address space.
    pub fn map_in_space(&mut self, tid: i32, dma: u32, memory: u32, base: u64, length: u64) {
        let (client, dma_offset) = (CLIENT, base);
        let m = abi::Nvos46 { client, dma, memory, length, dma_offset, ..Default::default() };
        self.rm(tid, nr::MAP_MEMORY_DMA, &m, &[]);
    }

    /// A device and its address space, registered with UVM.
    pub fn device(&mut self, tid: i32, device: u32, instance: u32, va_space: u32, uuid: [u8; 16]) {
        let params = abi::DeviceAlloc { device_id: instance, ..Default::default() };
        self.alloc(tid, CLIENT, device, class::NV01_DEVICE_0, params.as_bytes());
        self.alloc(tid, device, va_space, class::FERMI_VASPACE_A, &[0; 56]);
        let space = uvm::RegisterGpuVaspace { uuid, client: CLIENT, va_space, ..Default::default() };
        self.ioctl(tid, UVM, file::UVM, uvm::REGISTER_GPU_VASPACE, space.as_bytes(), &[]);
    }

    /// The objects that a CUDA context makes before its first channel.
    pub fn context(&mut self, tid: i32) {
        for (fd, what, path) in [(CTL, file::CTL, "/dev/nvidiactl"), (UVM, file::UVM, "/dev/nvidia-uvm")] {
            let body = FileBody { fd, other: -1, file: what, path: path.len() as u32 };
            self.event(tid, kind::OPEN, 0, &body, path.as_bytes(), &[]);
        }
        self.alloc(tid, 0, CLIENT, class::NV01_ROOT_CLIENT, &[]);
        self.alloc(tid, CLIENT, DEVICE, class::NV01_DEVICE_0, abi::DeviceAlloc::default().as_bytes());
        self.memory(tid, 0x5c00_0100, class::NV01_MEMORY_LOCAL_USER, RINGS_AT, 2 << 20);
        self.memory(tid, 0x5c00_0101, class::NV01_MEMORY_SYSTEM, PUSH_AT, 4 << 20);
        self.memory(tid, 0x5c00_0102, class::NV01_MEMORY_LOCAL_USER, DEVICE_AT, 256 << 20);
        self.memory(tid, 0x5c00_0103, class::NV01_MEMORY_SYSTEM, HOST_AT, 256 << 20);
        let page = PageBody { page: 0, class: 0xc661, addr: 0x7000_0000, len: 0x10000, tapped: 1, handle: 0x5c00_0200 };
        self.event(tid, kind::PAGE, 0, &page, &[], &[]);
    }

    /// A channel with its driver calls, with its number. `engine`: 1 graphics, 9 + n copy engine n.
    pub fn channel(&mut self, tid: i32, slot: u32, handle: u32, engine: u32, ring: u32) {
        self.channel_on(tid, DEVICE, 0, slot, handle, engine, ring);
    }

    /// As [`Tape::channel`], on a device, its group in an address space.
    #[allow(clippy::too_many_arguments)]
    pub fn channel_on(&mut self, tid: i32, device: u32, va_space: u32, slot: u32, handle: u32, engine: u32, ring: u32) {
        self.driver_channel(tid, device, va_space, handle, engine, ring);
        self.announced(tid, slot, handle, ring);
        self.engines(tid, handle, engine);
        let token = (engine << 16) | slot;
        self.event(tid, kind::TOKEN, 0, &TokenBody { slot, token }, &[], &[]);
        self.bare_channel(slot, handle, token, ring);
    }

    /// The agent's event of a channel.
    pub fn announced(&mut self, tid: i32, slot: u32, handle: u32, ring: u32) {
        let body = ChannelBody {
            slot,
            client: CLIENT,
            handle,
            class: self.classes[0],
            gpfifo: RINGS_AT,
            entries: ring,
            watch: watch::SHADOW,
        };
        self.event(tid, kind::CHANNEL, 0, &body, &[], &[]);
    }

    /// The driver's calls that make the engine objects of a channel.
    pub fn engines(&mut self, tid: i32, handle: u32, engine: u32) {
        let copy = abi::CopyAlloc { version: 1, engine_type: engine };
        if engine == 1 {
            self.alloc(tid, handle, handle + 0x10_0000, self.classes[1], &[]);
            self.alloc(tid, handle, handle + 0x20_0000, class::KEPLER_INLINE_TO_MEMORY_B, &[]);
        }
        self.alloc(tid, handle, handle + 0x30_0000, self.classes[2], copy.as_bytes());
    }

    /// The driver's calls that make a channel and its group.
    pub fn driver_channel(&mut self, tid: i32, device: u32, va_space: u32, handle: u32, engine: u32, ring: u32) {
        let group = GROUP + handle % 0x1000;
        let g = abi::ChannelGroupAlloc { engine_type: engine, va_space, ..Default::default() };
        self.alloc(tid, device, group, class::KEPLER_CHANNEL_GROUP_A, g.as_bytes());
        let mut c = abi::ChannelAllocFull::default();
        (c.client.gpfifo, c.client.entries, c.client.engine_type) = (RINGS_AT, ring, engine);
        (c.client.userd_memory[0], c.client.userd_offset[0]) = (0x5c00_0100, 0x2000);
        let params = abi::Branch::usual().layouts.channel_alloc.bytes(&c);
        self.alloc(tid, group, handle, self.classes[0], &params);
    }

    /// A channel of which the tape has only the rings.
    pub fn bare_channel(&mut self, slot: u32, handle: u32, token: u32, ring: u32) {
        self.live
            .insert((self.process, slot), Live { handle, token, ring, put: 0, entries: 0, rings: 0, recorded: true });
    }

    /// From now on the slot's rings are made but not recorded (or recorded again).
    pub fn recording(&mut self, slot: u32, on: bool) {
        self.live.get_mut(&(self.process, slot)).unwrap().recorded = on;
    }

    /// Rings with one entry for each list of words.
    pub fn submit(&mut self, tid: i32, slot: u32, segments: &[&[u32]]) {
        self.tsc += 100;
        self.submit_at(tid, self.tsc, slot, segments, 0, 1 << 12);
    }

    /// As [`Tape::submit`], with flags, at a time; entries longer than `piece` words come in pieces.
    pub fn submit_at(&mut self, tid: i32, tsc: u64, slot: u32, segments: &[&[u32]], flags: u16, piece: usize) {
        let c = self.live.get_mut(&(self.process, slot)).unwrap();
        let (from, first, n) = (c.put, c.entries, segments.len() as u32);
        c.put = (c.put + n) % c.ring;
        c.entries += u64::from(n);
        c.rings += 1;
        let (ring, recorded) = (c.ring, c.recorded);
        let body = RingBody {
            token: c.token,
            slot,
            seq: c.rings - 1,
            put_from: from,
            put_to: c.put,
            tid: tid as u32,
            page: 0,
            ..self.call
        };
        if !recorded {
            return;
        }
        self.event_at(tid, tsc, kind::RING, flags, &body, &[], &[]);
        for (i, words) in segments.iter().enumerate() {
            let va = PUSH_AT + 0x1000 * u64::from(slot);
            let gp = gpfifo::Entry::segment(va, words.len() as u32).unwrap().encode();
            let index = (from + i as u32) % ring;
            let entry = EntryBody { gp, seq: first + i as u64, slot, index, words: 0, lack: lack::NONE };
            let pieces: Vec<&[u32]> = words.chunks(piece).collect();
            for (k, words) in pieces.iter().enumerate() {
                let mut flags = if k > 0 { entry_flags::CONTINUED } else { 0 };
                flags |= if k + 1 < pieces.len() { entry_flags::MORE } else { 0 };
                let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                let body = EntryBody { words: words.len() as u32, ..entry };
                self.event_at(tid, tsc, kind::ENTRY, flags, &body, &bytes, &[]);
            }
        }
    }

    /// As [`Tape::submit_at`], one segment with one transfer, which stores its begin as number `number` and its end as the next.
    pub fn submit_timed(&mut self, tid: i32, tsc: u64, slot: u32, words: &[u32], number: u64) {
        let entry = self.live[&(self.process, slot)].entries;
        let body = tape::stamp::CopiedBody { entry, number, slot, transfers: 1 };
        self.event_at(tid, tsc, tape::stamp::kind::COPIED, 0, &body, &[], &[]);
        self.submit_at(tid, tsc, slot, &[words], 0, 1 << 12);
    }

    /// One entry of any kind as its own ring: `gp` as given, no words.
    pub fn submit_raw(&mut self, tid: i32, slot: u32, gp: u64, lack: u32) {
        self.ring_only(tid, slot, 1);
        let c = &self.live[&(self.process, slot)];
        let (seq, index) = (c.entries - 1, (c.put + c.ring - 1) % c.ring);
        let body = EntryBody { gp, seq, slot, index, words: 0, lack };
        self.event_at(tid, self.tsc, kind::ENTRY, 0, &body, &[], &[]);
    }

    /// A ring with `n` new entries, which the caller writes or loses.
    pub fn ring_only(&mut self, tid: i32, slot: u32, n: u32) {
        self.tsc += 100;
        let c = self.live.get_mut(&(self.process, slot)).unwrap();
        let (from, token) = (c.put, c.token);
        c.put = (c.put + n) % c.ring;
        c.entries += u64::from(n);
        c.rings += 1;
        let (seq, tid_) = (c.rings - 1, tid as u32);
        let body = RingBody { token, slot, seq, put_from: from, put_to: c.put, tid: tid_, ..RingBody::default() };
        self.event_at(tid, self.tsc, kind::RING, 0, &body, &[], &[]);
    }

    /// An ENTRY event of one segment.
    pub fn entry(&mut self, tid: i32, slot: u32, seq: u64, index: u32, words: &[u32]) {
        let va = PUSH_AT + 0x1000 * u64::from(slot);
        let gp = gpfifo::Entry::segment(va, words.len() as u32).unwrap().encode();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let body = EntryBody { gp, seq, slot, index, words: words.len() as u32, lack: lack::NONE };
        self.event_at(tid, self.tsc, kind::ENTRY, 0, &body, &bytes, &[]);
    }

    /// Frees a channel: its account is closed.
    pub fn end_channel(&mut self, tid: i32, slot: u32) {
        let c = self.live.remove(&(self.process, slot)).unwrap();
        let body = ChannelEndBody { slot, put: c.put, entries: c.entries, rings: c.rings };
        self.event(tid, kind::CHANNEL_END, 0, &body, &[], &[]);
        self.free(tid, c.handle);
    }

    /// GAP: the thread's totals so far.
    pub fn gap(&mut self, tid: i32, events: u64, entries: u64, bytes: u64) {
        self.event(tid, kind::GAP, 0, &GapBody { events, entries, bytes }, &[], &[]);
    }

    pub fn note(&mut self, tid: i32, text: &str) {
        self.event(tid, kind::NOTE, 0, &NoteBody { text: text.len() as u32, pad: 0 }, text.as_bytes(), &[]);
    }

    /// The events that are in no chunk yet, by thread.
    pub fn take_open(&mut self) -> BTreeMap<(u32, i32), Vec<u8>> {
        std::mem::take(&mut self.open)
    }

    /// Writes the file: the chunks cut so far, the open ones, clocks, and the end with the channels still alive.
    pub fn write(&mut self, path: &Path) {
        self.chunks.extend(std::mem::take(&mut self.open));
        let mut w = self.begin(path);
        for ((process, tid), bytes) in &self.chunks {
            w.events(*process, *tid, bytes).unwrap();
        }
        self.finish(w);
    }

    /// The file up to its events.
    pub fn begin(&self, path: &Path) -> Writer {
        let mut w = Writer::replace(path, &self.header).unwrap();
        w.clock(&Clock { tsc: 1000, monotonic_ns: 5_000_000_000, ..Clock::default() }).unwrap();
        self.processes.iter().for_each(|p| w.process(p).unwrap());
        w
    }

    /// Writes the events of threads that have at least so many bytes of them.
    pub fn pour(&mut self, w: &mut Writer, bytes: usize) {
        for ((process, tid), events) in &mut self.open {
            if events.len() >= bytes {
                w.events(*process, *tid, events).unwrap();
                events.clear();
            }
        }
    }

    /// Writes the chunks after the events.
    pub fn finish(&mut self, mut w: Writer) {
        w.clock(&Clock { tsc: self.tsc, monotonic_ns: 5_000_000_000 + self.tsc - 1000, ..Clock::default() }).unwrap();
        self.unwatched.iter().for_each(|u| w.unwatched(u).unwrap());
        for e in &self.process_ends {
            let mut e = e.clone();
            self.add_channels(e.index, &mut e.channels);
            w.process_end(&e).unwrap();
        }
        if let Some(end) = &self.end {
            let mut end = end.clone();
            if self.process_ends.is_empty() {
                self.add_channels(0, &mut end.channels);
            }
            w.end(&end).unwrap();
        }
    }

    fn add_channels(&self, process: u32, to: &mut Vec<EndChannel>) {
        for ((_, slot), c) in self.live.iter().filter(|((p, _), _)| *p == process) {
            if !to.iter().any(|e| e.slot == *slot) {
                to.push(EndChannel {
                    slot: *slot,
                    handle: c.handle,
                    token: c.token,
                    put: c.put,
                    entries: c.entries,
                    rings: c.rings,
                    ..EndChannel::default()
                });
            }
        }
    }
}

/// The 15 words of a 64 MiB copy from host to device as CUDA 13.0 sends them.
pub fn copy_64_mib() -> Vec<u32> {
    copy(HOST_AT, DEVICE_AT, 64 << 20)
}

/// A copy and its timed release in the driver's form.
pub fn copy(src: u64, dst: u64, bytes: u32) -> Vec<u32> {
    let (hi, lo) = (|a: u64| (a >> 32) as u32, |a: u64| a as u32);
    let mut w = vec![0x2004_8100, hi(src), lo(src), hi(dst), lo(dst), 0x2001_8106, bytes, 0x2001_80c0, 0x182];
    w.extend([0x2003_8090, hi(RINGS_AT), lo(RINGS_AT) + 0x10, 0x17, 0x2001_80c0, 0x14]);
    w
}

/// A launch as the driver sends it: the QMD and constants by an inline write, then SEND_PCAS.
pub fn launch(qmd_at: u64, grid: [u64; 3]) -> Vec<u32> {
    launch_of(qmd_at, &qmd(grid))
}

/// The QMD of the launch.
pub fn qmd(grid: [u64; 3]) -> Qmd {
    let mut qmd = Qmd::new(Layout::of(4, 0).unwrap());
    for (name, value) in [
        ("QMD_TYPE", 2),
        ("GRID_WIDTH", grid[0]),
        ("GRID_HEIGHT", grid[1]),
        ("GRID_DEPTH", grid[2]),
        ("CTA_THREAD_DIMENSION0", 128),
        ("CTA_THREAD_DIMENSION1", 1),
        ("CTA_THREAD_DIMENSION2", 1),
        ("REGISTER_COUNT", 24),
        ("PROGRAM_ADDRESS_UPPER", 0x7f),
        ("PROGRAM_ADDRESS_LOWER", 0x1234_0000),
    ] {
        qmd.set(name, value).unwrap();
    }
    qmd
}

/// The same with this QMD.
pub fn launch_of(qmd_at: u64, qmd: &Qmd) -> Vec<u32> {
    let mut data: Vec<u8> = qmd.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    data.extend([0x5a; 0x210 - 0x180]);
    let mut buffer = vec![0; 1000];
    let mut w = Words::new(&mut buffer);
    w.inline(1, qmd_at, &data, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR).unwrap();
    w.launch(1, qmd_at).unwrap();
    w.as_slice().to_vec()
}

/// An inline write by the user.
pub fn inline(dst: u64, data: &[u8]) -> Vec<u32> {
    let mut buffer = vec![0; 10_000];
    let mut w = Words::new(&mut buffer);
    w.inline(1, dst, data, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR).unwrap();
    w.as_slice().to_vec()
}

/// A fill by the copy engine.
pub fn fill(dst: u64, value: u32, elements: u32) -> Vec<u32> {
    let mut buffer = vec![0; 100];
    let mut w = Words::new(&mut buffer);
    w.fill(4, dst, value, elements, launch_dma::NON_PIPELINED | launch_dma::PITCH).unwrap();
    w.as_slice().to_vec()
}

/// All small tapes of this module.
pub fn of_every_kind() -> [Tape; 7] {
    [one_of_everything(), late_and_uncopied(), calls_and_locks(), kernel_times(), copy_times(), two_gpus(), two_ranks()]
}

/// A small tape with one of everything, for texts.
pub fn one_of_everything() -> Tape {
    let mut t = Tape::new();
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    t.channel(100, 1, 0x5c00_1001, 11, 1024);
    let site =
        SiteBody { ip: 0x7f12_3456_0010, offset: 0x10, code: [0x89; 16], patched: 1, path: 18, ..Default::default() };
    t.event(100, kind::SITE, 0, &site, b"/lib/libcuda.so.13", &[]);
    let launch = launch(QMD_AT, [64, 2, 1]);
    t.submit(100, 0, &[&launch]);
    t.submit(100, 0, &[&inline(DEVICE_AT, &[7; 4096])]);
    t.submit(101, 1, &[&copy_64_mib()]);
    t.submit(101, 1, &[&copy(DEVICE_AT, HOST_AT, 4096), &fill(DEVICE_AT, 0, 1024)]);
    t.submit(101, 1, &[&[0x2001_82af, 0xdead]]);
    t.submit_raw(101, 1, gpfifo::Entry::segment(0x3_0000_0000, 8).unwrap().encode(), lack::UNMAPPED);
    t.submit_raw(101, 1, gpfifo::Entry::extended_base(0x7f00_0000_0000).encode(), lack::NONE);
    t.note(100, "child process 4300 is not recorded");
    t.end_channel(100, 1);
    t
}

/// Two submissions: the words of one were read late, those of the other never.
pub fn late_and_uncopied() -> Tape {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1000, 1, 64);
    let gp = gpfifo::Entry::segment(PUSH_AT, 600).unwrap().encode();
    for (seq, flags) in [(0, entry_flags::LATE), (1, entry_flags::MORE)] {
        t.ring_only(1, 0, 1);
        let words = if seq == 0 { 600 } else { 0 };
        let body = EntryBody { gp, seq, slot: 0, index: seq as u32, words, lack: lack::NONE };
        t.event(1, kind::ENTRY, flags, &body, &vec![0; words as usize * 4], &[]);
    }
    t
}

/// As [`one_of_everything`], with CUDA calls, locks and context switches. Thread 100 holds two locks that it releases in the order of their taking; thread
/// 101 waits for the first one in a call, is preempted in it, and copies in that call.
pub fn calls_and_locks() -> Tape {
    use tape::call::{self, CallBody, CallsBody};
    use tape::lock::{self, HoldBody, LocksBody, OpBody, PairBody, attr, ended, op};
    use tape::switch::{self, SwitchBody, SwitchesBody, WRITER, scope, switch_flags};
    let mut t = Tape::new();
    for tid in [100, 101] {
        t.event(tid, lock::kind::LOCKS, 0, &LocksBody { layout: lock::LAYOUT, pid: 4242 }, &[], &[]);
        t.event(tid, call::kind::CALLS, 0, &CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
    }
    let switches = SwitchesBody { layout: switch::LAYOUT, scope: scope::ALL_CPUS, ..SwitchesBody::default() };
    t.event(WRITER, switch::kind::SWITCHES, 0, &switches, &[], &[]);
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    t.channel(100, 1, 0x5c00_1001, 11, 1024);
    // (Times below are of the event; it began before.)
    t.tsc = 100_000;
    let (first, second) = (0x5000, 0x6000);
    let pair = PairBody { addr: first, site: 0x2000, hold: 600, release: 4 };
    t.event_at(100, 100_600, lock::kind::PAIR, u16::from(op::MUTEX_LOCK) << 8, &pair, &[], &[]);
    let pair = PairBody { addr: second, site: 0x2100, hold: 600, release: 4 };
    let nested = u16::from(op::MUTEX_LOCK) << 8 | 1 << attr::DEPTH_SHIFT;
    t.event_at(100, 100_700, lock::kind::PAIR, nested, &pair, &[], &[]);
    let signal = OpBody { addr: 0x7000, site: 0x2200, ..OpBody::default() };
    t.event_at(100, 100_800, lock::kind::OP, u16::from(op::COND_SIGNAL) << 8, &signal, &[], &[]);
    let hold = HoldBody {
        addr: first,
        site: 0x2300,
        release_site: 0x2304,
        wait: 500,
        hold: 50,
        result: 0,
        ended: ended::UNLOCK,
    };
    t.event_at(101, 100_660, lock::kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, &hold, &[], &[]);
    for (tsc, flags, other) in [(100_200, switch_flags::OUT | switch_flags::PREEMPTED, 100), (100_605, 0, 0)] {
        let body = SwitchBody { tid: 101, other, other_pid: 4242, cpu: 3 };
        t.event_at(WRITER, tsc, switch::kind::SWITCH, flags, &body, &[], &[]);
    }
    let htod = 13;
    t.call = RingBody { function: htod, call: 7, stream: 0x51, object: HOST_AT, ..RingBody::default() };
    t.submit_at(101, 100_700, 1, &[&copy(HOST_AT, DEVICE_AT, 4096)], 0, 1 << 12);
    t.call = RingBody::default();
    let call = CallBody { began: 100_050, site: 0x2400, stream: 0x51, size: 4096, seq: 7, ..CallBody::default() };
    t.event_at(101, 100_900, call::kind::CALL, htod as u16, &call, &[], &[]);
    t.tsc = 200_000;
    t.submit(100, 0, &[&launch(QMD_AT, [64, 2, 1])]);
    t.submit(101, 1, &[&copy(DEVICE_AT, HOST_AT, 4096), &fill(DEVICE_AT, 0, 1024)]);
    t
}

/// GPU address of the slots into which kernels store their ends, and the GPU's time at time stamp 0.
pub const SLOTS_AT: u64 = 0x7f20_0000_0000;
pub const GPU_ZERO: u64 = 1_790_000_000_000_000_000;

/// A launch whose kernel stores its end as that of kernel `number`, and starts the QMDs at `then` when it is done.
pub fn stamped(qmd_at: u64, number: u64, then: &[u64]) -> Vec<u32> {
    stamped_in(qmd_at, number, number, then)
}

/// The same, in a slot of any number.
fn stamped_in(qmd_at: u64, number: u64, slot: u64, then: &[u64]) -> Vec<u32> {
    let mut qmd = qmd([1, 1, 1]);
    for (i, (at, pointer)) in then.iter().zip(["DEPENDENT_QMD0_POINTER", "DEPENDENT_QMD1_POINTER"]).enumerate() {
        qmd.set_element("DEPENDENT_QMD_ENABLE", i as u32, 1).unwrap();
        qmd.set_element("DEPENDENT_QMD_ACTION", i as u32, 1).unwrap();
        qmd.set(pointer, at >> 8).unwrap();
    }
    let mut buffer = vec![0; 1000];
    let mut w = Words::new(&mut buffer);
    let qmd: Vec<u8> = qmd.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    w.inline(1, qmd_at, &qmd, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR).unwrap();
    w.launch(1, qmd_at).unwrap();
    let mut words = w.as_slice().to_vec();
    let mut at = None;
    end_time::find(
        words.len(),
        |i| words[i],
        |found| {
            if let Found::Kernel(qmd) = found {
                at = Some(qmd.at);
            }
        },
    );
    let slot = SLOTS_AT + 16 * slot;
    let cells = std::cell::Cell::from_mut(&mut words[..]).as_slice_of_cells();
    let payload = tape::stamp::payload(number);
    assert!(end_time::store_at(at.unwrap(), slot, payload, |i| cells[i].get(), |i, value| cells[i].set(value)));
    words
}

/// A program whose kernels' ends are recorded. On channel 0, in ns after time stamp 0: stream 0x51 runs kernels until 210,000 and 230,000, one after the
/// other. Stream 0x52 runs one until 225,000. A graph in stream 0x53 runs one until 320,000, which starts two that run until 330,000 and 325,000. A last
/// kernel has no end.
pub fn kernel_times() -> Tape {
    use tape::call::{self, CallBody, CallsBody, NameBody};
    use tape::stamp::{self, ClockBody, EndsBody, StampsBody, state};
    let mut t = Tape::with_times();
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    t.name_kernel();
    // (The GPU counts 1 ns a tick, and 1,000 more at the second reading.)
    for (tsc, gpu_ns) in [(100_000, 100_000), (100_100_000, 100_101_000)] {
        t.clocks(tsc, gpu_ns);
    }
    let (kernel, graph) = (1, 260);
    let mut number = 0;
    let launches: [(u64, u32, u64, &[u64]); 5] = [
        (200_000, kernel, 0x51, &[210_000]),
        (201_000, kernel, 0x51, &[230_000]),
        (202_000, kernel, 0x52, &[225_000]),
        (300_000, graph, 0x53, &[320_000, 330_000, 325_000]),
        (400_000, kernel, 0x51, &[0]),
    ];
    for (call, (tsc, function, stream, ends)) in (1..).zip(launches) {
        let handle = if function == kernel { 0xf1 } else { 0 };
        let ring = RingBody { function, call, stream, object: 0xf0, kernel: handle, ..RingBody::default() };
        t.call = ring;
        let mut words = Vec::new();
        let mut all = Vec::new();
        let qmd = |number: u64| QMD_AT + 0x200 * number;
        for (i, ns) in ends.iter().enumerate() {
            let then = if function == graph && i == 0 { vec![qmd(number + 1), qmd(number + 2)] } else { Vec::new() };
            words.extend(stamped(qmd(number), number, &then));
            if *ns != 0 {
                all.extend(number.to_le_bytes());
                all.extend((GPU_ZERO + ns).to_le_bytes());
            }
            number += 1;
        }
        t.submit_at(100, tsc, 0, &[&words], 0, 1 << 12);
        t.call = RingBody::default();
        let done = CallBody { began: tsc - 500, stream, seq: call, ..CallBody::default() };
        t.event_at(100, tsc + 500, call::kind::CALL, function as u16, &done, &[], &[]);
        let body = EndsBody { count: (all.len() / 16) as u32, pad: 0, settled: 0 };
        t.event_at(stamp::WRITER, tsc + 50_000, stamp::kind::ENDS, 0, &body, &all, &[]);
    }
    t.tsc = 101_000_000;
    t
}

/// So many kernels, each launched by itself in a call, a microsecond after the one before, with their ends recorded. `begin` adds the events before them.
pub fn kernel_launches(kernels: u64, begin: impl FnOnce(&mut Tape)) -> Tape {
    use tape::call::{self, CallBody, CallsBody};
    let mut t = Tape::new();
    t.header.gpu_times = true;
    t.event(100, call::kind::CALLS, 0, &CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
    begin(&mut t);
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    for number in 0..kernels {
        let (tsc, call) = (200_000 + 1000 * number, number as u32 + 1);
        t.call = RingBody { function: 1, call, stream: 0x51, object: 0xf0, kernel: 0xf1, ..RingBody::default() };
        t.submit_at(100, tsc, 0, &[&stamped(QMD_AT + 0x200 * number, number, &[])], 0, 1 << 12);
        t.call = RingBody::default();
        let done = CallBody { began: tsc - 500, stream: 0x51, seq: call, ..CallBody::default() };
        t.event_at(100, tsc + 400, call::kind::CALL, 1, &done, &[], &[]);
    }
    t.tsc = 101_000_000;
    t
}

impl Tape {
    /// Calls and times on the GPU are recorded.
    pub fn with_times() -> Tape {
        use tape::call::{self, CallsBody};
        use tape::stamp::{self, StampsBody, state};
        let mut t = Tape::new();
        t.header.gpu_times = true;
        t.event(100, call::kind::CALLS, 0, &CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
        let stamps = StampsBody { layout: stamp::LAYOUT, state: state::ON, area: SLOTS_AT, ..StampsBody::default() };
        t.event(100, stamp::kind::STAMPS, 0, &stamps, &[], &[]);
        t
    }

    /// The kernel with handle 0xf1 is `add(int*)`.
    fn name_kernel(&mut self) {
        use tape::call::{self, NameBody};
        let name = b"_Z3addPi";
        let body = NameBody { handle: 0xf1, name: name.len() as u32, pad: 0 };
        self.event(100, call::kind::NAME, 0, &body, name, &[]);
    }

    /// A reading of both clocks.
    pub fn clocks(&mut self, tsc: u64, gpu_ns: u64) {
        use tape::stamp::{self, ClockBody};
        let body = ClockBody { after: tsc + 100, gpu_ns: GPU_ZERO + gpu_ns + 50, gpu: stamp::OWN_GPU, pad: 0 };
        self.event_at(stamp::WRITER, tsc, stamp::kind::CLOCK, 0, &body, &[], &[]);
    }

    /// A range of NVTX that a thread pushes and pops. The thread has no later events.
    pub fn range(&mut self, tid: i32, began: u64, ended: u64, text: &str) {
        use tape::nvtx::{self, EndBody, NvtxBody, RangeBody, TextBody, kind, names, state};
        let id = nvtx::text(text.as_bytes());
        let connected = NvtxBody { layout: nvtx::LAYOUT, state: state::CONNECTED };
        self.event_at(tid, began, kind::NVTX, 0, &connected, &[], &[]);
        let body = TextBody { id, bytes: text.len() as u32, names: names::TEXT, ..TextBody::default() };
        self.event_at(tid, began, kind::TEXT, 0, &body, text.as_bytes(), &[]);
        self.event_at(tid, began, kind::PUSH, 0, &RangeBody { text: id, ..RangeBody::default() }, &[], &[]);
        self.event_at(tid, ended, kind::POP, 0, &EndBody::default(), &[], &[]);
    }

    /// The first kernels ended, so many microseconds after 300,000 ns; the GPU counts a nanosecond a tick.
    pub fn ends(&mut self, us: &[u64]) {
        use tape::stamp::{self, ClockBody};
        for tsc in [100_000, 100_100_000] {
            self.clocks(tsc, tsc);
        }
        self.ends_without_clock(us);
    }

    pub fn ends_without_clock(&mut self, us: &[u64]) {
        use tape::stamp::{self, EndsBody};
        let ends = us.iter().zip(0u64..);
        let all: Vec<u8> =
            ends.flat_map(|(us, n)| [n, GPU_ZERO + 300_000 + 1000 * us]).flat_map(u64::to_le_bytes).collect();
        let body = EndsBody { count: us.len() as u32, pad: 0, settled: 0 };
        self.event_at(stamp::WRITER, 100_200_000, stamp::kind::ENDS, 0, &body, &all, &[]);
    }
}

/// A program on two GPUs. Each shows its own memory at [`BOTH_AT`]; [`PEER_AT`] is GPU memory of the second, mapped on both. Slots 0 and 1 are copy
/// channels of the first and of the second.
pub fn two_gpus() -> Tape {
    two_gpus_of(Tape::new())
}

pub fn two_gpus_of(mut t: Tape) -> Tape {
    t.context(100);
    // (The device that the context's memory is made under is instance 0, too.)
    t.device(100, 0x5a00_0001, 0, 0x5a00_0002, GPU_0);
    t.device(100, SECOND, 1, SECOND_SPACE, GPU_1);
    let video = class::NV01_MEMORY_LOCAL_USER;
    t.memory_of(100, DEVICE, 0x5a00_0100, class::NV01_MEMORY_SYSTEM, 1 << 20);
    t.external(100, GPU_0, 0x5a00_0100, BOTH_AT, 1 << 20);
    t.memory_of(100, SECOND, 0x5b00_0100, video, 1 << 20);
    t.external(100, GPU_1, 0x5b00_0100, BOTH_AT, 1 << 20);
    t.memory_of(100, SECOND, 0x5b00_0101, video, 1 << 20);
    t.external(100, GPU_0, 0x5b00_0101, PEER_AT, 1 << 20);
    t.external(100, GPU_1, 0x5b00_0101, PEER_AT, 1 << 20);
    for (gpu, uuid) in [GPU_0, GPU_1].into_iter().enumerate() {
        for (memory, at) in [(0x5c00_0100, RINGS_AT), (0x5c00_0101, PUSH_AT), (0x5c00_0103, HOST_AT)] {
            if gpu == 1 {
                t.external(100, uuid, memory, at, 2 << 20);
            }
        }
    }
    t.channel_on(100, DEVICE, 0, 0, 0x5c00_1001, 9, 32);
    t.channel_on(100, SECOND, SECOND_SPACE, 1, 0x5c00_1002, 9, 32);
    t
}

pub const SECOND: u32 = 0x5b00_0001;
pub const SECOND_SPACE: u32 = 0x5b00_0002;
pub const BOTH_AT: u64 = 0x7f10_0000_0000;
pub const PEER_AT: u64 = 0x7f11_0000_0000;

/// A launcher whose two ranks use the GPU: the same channel slots and addresses, separate in each.
pub fn two_ranks() -> Tape {
    let mut t = Tape::new();
    t.processes = vec![Process { index: 0, pid: 4242, exe: "/usr/bin/torchrun".into(), ..Process::default() }];
    t.process_ends = vec![ProcessEnd { index: 0, how: "exited 0".into(), exit_code: Some(0), ..ProcessEnd::default() }];
    for rank in 0..2u32 {
        let index = rank + 1;
        let of_job = Rank { rank, local_rank: Some(rank), world_size: Some(2), launcher: "torchrun".into() };
        t.processes.push(Process {
            index,
            pid: 5000 + rank as i32,
            ppid: 4242,
            parent: Some(0),
            exe: "/usr/bin/python3".into(),
            args: Some(vec!["python3".into(), "ddp.py".into()]),
            start_tsc: t.tsc,
            rank: Some(of_job),
            ..Process::default()
        });
        let how = if rank == 0 { "exited 0" } else { "killed by signal 9" };
        t.process_ends.push(ProcessEnd { index, how: how.into(), seconds: 1.0, ..ProcessEnd::default() });
    }
    for index in [1, 2] {
        t.process = index;
        let tid = 5000 + index as i32 - 1;
        t.context(tid);
        t.channel(tid, 0, 0x5c00_1001, 9, 32);
    }
    // They take turns, so that an event put down to the wrong one would show; the second submits twice as much.
    let words = copy(HOST_AT, DEVICE_AT, 4096);
    for _ in 0..5 {
        for (index, n) in [(1, 1), (2, 2)] {
            t.process = index;
            (0..n).for_each(|_| t.submit(5000 + index as i32 - 1, 0, &[&words]));
        }
    }
    t.end.as_mut().unwrap().processes = 3;
    t
}
