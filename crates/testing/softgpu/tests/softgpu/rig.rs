//! A machine with one address space and channels that take raw words.

use doorbell_softgpu::{Counters, Mode, SoftDriver};
use rm::abi::{
    ChannelAlloc, ChannelAllocFull, ChannelGroupAlloc, ContextShareAlloc, CopyAlloc, DeviceAlloc, MemoryAlloc,
    SubdeviceAlloc, VaspaceAlloc, control, uvm,
};
use rm::class::{self, engine};
use rm::driver::{self, Driver, RmError};
use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const VIDEO: bool = true;
pub const HOST: bool = false;

/// Data that the tests copy: 1 MiB each. Both halves of the addresses matter.
pub const SRC: u64 = 0x3_2340_0000;
pub const DST: u64 = 0x4_5670_0000;
pub const DATA: u64 = 1 << 20;
/// Nothing is mapped here.
pub const NOWHERE: u64 = 0x7_8900_0000;

pub struct Mem {
    pub va: u64,
    pub handle: u32,
    pub cpu: *mut u8,
}

impl Mem {
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        unsafe { self.cpu.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        unsafe { self.cpu.add(offset).copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        bytes
    }

    pub fn word(&self, offset: usize) -> &AtomicU32 {
        unsafe { &*self.cpu.add(offset).cast() }
    }

    pub fn u32(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::Acquire)
    }

    pub fn u64(&self, offset: usize) -> u64 {
        unsafe { &*self.cpu.add(offset).cast::<AtomicU64>() }.load(Ordering::Acquire)
    }

    pub fn set(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }
}

pub struct Rig {
    pub driver: SoftDriver,
    pub ctl: RawFd,
    pub gpu: RawFd,
    pub uvm: RawFd,
    pub client: u32,
    pub device: u32,
    pub subdevice: u32,
    pub space: u32,
    pub src: Mem,
    pub dst: Mem,
    next_va: Cell<u64>,
}

pub fn open(driver: &SoftDriver, path: &std::ffi::CStr) -> RawFd {
    driver.open(path).unwrap()
}

/// Everything up to a device, without UVM.
pub fn bare(mode: Mode) -> Rig {
    let driver = SoftDriver::new(mode);
    let ctl = open(&driver, c"/dev/nvidiactl");
    let gpu = open(&driver, c"/dev/nvidia0");
    let uvm = open(&driver, c"/dev/nvidia-uvm");
    driver::register_fd(&driver, gpu, ctl).unwrap();
    let client = driver::alloc_client(&driver, ctl).unwrap();
    let mut params = DeviceAlloc::default();
    let device = driver::alloc(&driver, ctl, client, client, 0, class::NV01_DEVICE_0, &mut params).unwrap();
    let mut params = SubdeviceAlloc::default();
    let subdevice = driver::alloc(&driver, ctl, client, device, 0, class::NV20_SUBDEVICE_0, &mut params).unwrap();
    let none = || Mem { va: 0, handle: 0, cpu: std::ptr::null_mut() };
    let (src, dst, next_va) = (none(), none(), Cell::new(0x2_0000_0000));
    Rig { driver, ctl, gpu, uvm, client, device, subdevice, space: 0, src, dst, next_va }
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(Mode::Strict)
    }

    pub fn with(mode: Mode) -> Rig {
        let mut rig = bare(mode);
        rig.space = rig.vaspace().unwrap();
        rig.uvm_start();
        rig.register_space(rig.space).unwrap();
        rig.src = rig.memory(SRC, DATA, HOST);
        rig.dst = rig.memory(DST, DATA, VIDEO);
        rig
    }

    pub fn counters(&self) -> &'static Counters {
        self.driver.counters()
    }

    pub fn alloc<T: rm::abi::Plain>(&self, parent: u32, class: u32, params: &mut T) -> Result<u32, RmError> {
        driver::alloc(&self.driver, self.ctl, self.client, parent, 0, class, params)
    }

    pub fn alloc_channel(&self, parent: u32, class: u32, params: &mut ChannelAllocFull) -> Result<u32, RmError> {
        let shape = &rm::abi::Branch::usual().layouts.channel_alloc;
        driver::alloc_shaped(&self.driver, self.ctl, self.client, parent, 0, class, shape, params)
    }

    pub fn vaspace(&self) -> Result<u32, RmError> {
        let mut params = VaspaceAlloc { flags: 0x48, va_base: 0x1000, ..Default::default() };
        self.alloc(self.device, class::FERMI_VASPACE_A, &mut params)
    }

    pub fn uuid(&self) -> [u8; 16] {
        driver::gpu_uuid(&self.driver, self.ctl, self.client, self.subdevice).unwrap()
    }

    pub fn uvm<T: driver::UvmParams>(&self, request: u64, params: &mut T) -> Result<(), RmError> {
        let abi = rm::abi::Abi::of("580.159.04");
        unsafe { driver::uvm_call(&self.driver, &abi, self.uvm, request, params) }
    }

    pub fn uvm_start(&self) {
        self.uvm(uvm::INITIALIZE, &mut uvm::Initialize::default()).unwrap();
        let mut gpu = uvm::RegisterGpu { uuid: self.uuid(), ctl_fd: -1, ..Default::default() };
        self.uvm(uvm::REGISTER_GPU, &mut gpu).unwrap();
    }

    pub fn register_space(&self, va_space: u32) -> Result<(), RmError> {
        let mut call = uvm::RegisterGpuVaspace {
            uuid: self.uuid(),
            ctl_fd: self.ctl,
            client: self.client,
            va_space,
            ..Default::default()
        };
        self.uvm(uvm::REGISTER_GPU_VASPACE, &mut call)
    }

    pub fn alloc_memory(&self, length: u64, video: bool) -> Result<u32, RmError> {
        let class = if video { class::NV01_MEMORY_LOCAL_USER } else { class::NV01_MEMORY_SYSTEM };
        self.alloc(self.device, class, &mut MemoryAlloc { size: length, ..Default::default() })
    }

    pub fn fresh(&self, video: bool) -> RawFd {
        let fd = open(&self.driver, if video { c"/dev/nvidia0" } else { c"/dev/nvidiactl" });
        if video {
            driver::register_fd(&self.driver, fd, self.ctl).unwrap();
        }
        fd
    }

    /// Maps a memory object for the CPU, anywhere.
    pub fn map_cpu(&self, handle: u32, length: u64, video: bool) -> *mut u8 {
        let fd = self.fresh(video);
        driver::map_memory(&self.driver, self.ctl, self.client, self.device, handle, 0, length, 0, fd).unwrap();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        unsafe { self.driver.mmap(std::ptr::null_mut(), length as usize, prot, libc::MAP_SHARED, fd, 0) }
            .unwrap()
            .cast()
    }

    pub fn range(&self, base: u64, length: u64) -> Result<(), RmError> {
        self.uvm(uvm::CREATE_EXTERNAL_RANGE, &mut uvm::Range { base, length, ..Default::default() })
    }

    pub fn map_gpu(&self, base: u64, length: u64, memory: u32, offset: u64, mapping: u32) -> Result<(), RmError> {
        let mut call = uvm::MapExternal {
            base,
            length,
            offset,
            gpu_count: 1,
            client: self.client,
            memory,
            ctl_fd: self.ctl,
            ..Default::default()
        };
        call.gpus[0] = uvm::GpuMapping { uuid: self.uuid(), mapping, ..Default::default() };
        self.uvm(uvm::MAP_EXTERNAL_ALLOCATION, &mut call)
    }

    pub fn memory(&self, va: u64, length: u64, video: bool) -> Mem {
        let handle = self.alloc_memory(length, video).unwrap();
        self.range(va, length).unwrap();
        self.map_gpu(va, length, handle, 0, uvm::GpuMapping::READ_WRITE_ATOMIC).unwrap();
        Mem { va, handle, cpu: self.map_cpu(handle, length, video) }
    }

    fn low(&self, length: u64) -> u64 {
        let va = self.next_va.get();
        self.next_va.set(va + length);
        va
    }

    pub fn group(&self, engine_type: u32) -> u32 {
        let mut params = ChannelGroupAlloc { va_space: self.space, engine_type, ..Default::default() };
        self.alloc(self.device, class::KEPLER_CHANNEL_GROUP_A, &mut params).unwrap()
    }

    pub fn share(&self, group: u32, va_space: u32) -> Result<u32, RmError> {
        self.alloc(group, class::FERMI_CONTEXT_SHARE_A, &mut ContextShareAlloc { va_space, flags: 1, subcontext: 0 })
    }

    pub fn schedule(&self, object: u32, cmd: u32) -> Result<(), RmError> {
        let mut params = control::Schedule { enable: 1, ..Default::default() };
        unsafe { driver::control(&self.driver, self.ctl, self.client, object, cmd, &mut params) }
    }

    pub fn register_channel(&self, channel: u32) -> Result<(), RmError> {
        let mut call = uvm::RegisterChannel {
            uuid: self.uuid(),
            client: self.client,
            channel,
            ctl_fd: self.ctl,
            ..Default::default()
        };
        self.uvm(uvm::REGISTER_CHANNEL, &mut call)
    }

    pub fn copy_channel(&self) -> Chan<'_> {
        let channel = self.channel(engine::COPY0 + 2, class::HOPPER_CHANNEL_GPFIFO_A, 1024);
        channel.ok(&inc(4, 0, &[class::HOPPER_DMA_COPY_A]));
        channel
    }

    pub fn compute_channel(&self) -> Chan<'_> {
        let channel = self.channel(engine::GRAPHICS, class::HOPPER_CHANNEL_GPFIFO_A, 1024);
        channel.ok(&inc(1, 0, &[class::HOPPER_COMPUTE_A]));
        channel
    }

    /// A scheduled channel whose engine object is allocated and not yet set.
    pub fn channel(&self, engine_type: u32, class: u32, entries: u32) -> Chan<'_> {
        let graphics = engine_type == engine::GRAPHICS;
        let ring = self.memory(self.low(0x3000), 0x3000, VIDEO);
        let pushbuffer = self.memory(self.low(1 << 20), 1 << 20, HOST);
        let notifier = self.memory(self.low(0x1000), 0x1000, HOST);
        let group = self.group(engine_type);
        let context_share = if graphics { self.share(group, self.space).unwrap() } else { 0 };
        let mut client = ChannelAlloc {
            error_object: notifier.handle,
            gpfifo: ring.va,
            entries,
            context_share,
            engine_type,
            ..Default::default()
        };
        client.userd_memory[0] = ring.handle;
        client.userd_offset[0] = 0x2000;
        let mut params = ChannelAllocFull { client, ..Default::default() };
        let handle = self.alloc_channel(group, class, &mut params).unwrap();
        if graphics {
            for class in [class::HOPPER_COMPUTE_A, class::KEPLER_INLINE_TO_MEMORY_B, class::HOPPER_DMA_COPY_A] {
                driver::alloc_bytes(&self.driver, self.ctl, self.client, handle, 0, class, &mut []).unwrap();
            }
        } else {
            self.alloc(handle, class::HOPPER_DMA_COPY_A, &mut CopyAlloc { version: 1, engine_type }).unwrap();
        }
        let token = driver::work_submit_token(&self.driver, self.ctl, self.client, handle).unwrap();
        self.register_channel(handle).unwrap();
        self.schedule(group, control::GROUP_SCHEDULE).unwrap();
        let (put, cursor) = (Cell::new(0), RefCell::new(0));
        Chan { rig: self, handle, group, token, entries, ring, pushbuffer, notifier, put, cursor }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.driver.machine.stop();
    }
}

pub struct Chan<'a> {
    pub rig: &'a Rig,
    pub handle: u32,
    pub group: u32,
    pub token: u32,
    pub entries: u32,
    pub ring: Mem,
    pub pushbuffer: Mem,
    pub notifier: Mem,
    pub put: Cell<u32>,
    cursor: RefCell<usize>,
}

impl Chan<'_> {
    /// A raw entry, and GP_PUT; no ring.
    pub fn entry(&self, raw: u64) {
        let put = self.put.get();
        self.ring.write(8 * put as usize, &raw.to_le_bytes());
        self.put.set((put + 1) % self.entries);
        self.ring.set(0x208c, self.put.get());
    }

    /// Puts words into the pushbuffer; returns their address.
    pub fn place(&self, words: &[u32]) -> u64 {
        let mut cursor = self.cursor.borrow_mut();
        if *cursor + words.len() * 4 > 1 << 20 {
            *cursor = 0;
        }
        let at = *cursor;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.pushbuffer.write(at, &bytes);
        *cursor += bytes.len();
        self.pushbuffer.va + at as u64
    }

    pub fn push(&self, words: &[u32]) {
        self.entry(self.place(words) | (words.len() as u64) << 42);
    }

    pub fn bell(&self) {
        self.rig.driver.machine.ring(self.token);
    }

    pub fn get(&self) -> u32 {
        self.ring.u32(0x2088)
    }

    pub fn error(&self) -> Option<u32> {
        (self.notifier.u32(12) >> 16 == 0xffff).then(|| self.notifier.u32(8))
    }

    /// Waits until everything is consumed, or the channel is dead: its error then.
    pub fn finish(&self) -> Option<u32> {
        until(|| self.get() == self.put.get() || self.error().is_some());
        self.error()
    }

    /// Runs until everything is consumed or the channel is dead; a blocked channel is not waited for.
    pub fn run_for_a_while(&self) {
        let start = Instant::now();
        while self.get() != self.put.get() && self.error().is_none() && start.elapsed() < SETTLED {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub fn run(&self, words: &[u32]) -> Option<u32> {
        self.push(words);
        self.bell();
        self.finish()
    }

    #[track_caller]
    pub fn ok(&self, words: &[u32]) {
        assert_eq!(self.run(words), None, "the channel was killed");
    }

    /// The whole path of this rig's data: it still works after something else went wrong.
    #[track_caller]
    pub fn alive(&self) {
        self.rig.src.write(0x100, b"alive and well!!");
        self.ok(&copy(SRC + 0x100, DST + 0x100, 16, 0x182));
        assert_eq!(self.rig.dst.read(0x100, 16), b"alive and well!!");
    }
}

#[track_caller]
pub fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited 10 s in vain");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Long enough for a GPU that runs ahead to be seen.
const SETTLED: Duration = Duration::from_millis(20);

pub fn settle() {
    std::thread::sleep(SETTLED);
}

pub fn hi(va: u64) -> u32 {
    (va >> 32) as u32
}

pub fn lo(va: u64) -> u32 {
    va as u32
}

pub fn inc(subch: u32, address: u32, data: &[u32]) -> Vec<u32> {
    header(1, subch, address, data)
}

pub fn header(op: u32, subch: u32, address: u32, data: &[u32]) -> Vec<u32> {
    let mut words = vec![op << 29 | (data.len() as u32) << 16 | subch << 13 | address >> 2];
    words.extend_from_slice(data);
    words
}

pub fn copy(src: u64, dst: u64, bytes: u32, launch: u32) -> Vec<u32> {
    [inc(4, 0x400, &[hi(src), lo(src), hi(dst), lo(dst)]), inc(4, 0x418, &[bytes]), inc(4, 0x300, &[launch])].concat()
}

/// SEM_ADDR_LO to SEM_EXECUTE.
pub fn host_sem(va: u64, payload: u64, execute: u32) -> Vec<u32> {
    inc(0, 0x5c, &[lo(va), hi(va), lo(payload), hi(payload), execute])
}

/// Bytes that are not zero and do not repeat soon.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
