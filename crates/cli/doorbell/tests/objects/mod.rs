//! A program's objects on the software GPU, made call by call as libcuda makes them: channels in GPU memory, and a doorbell page.
#![allow(dead_code, reason = "no test file uses all of it")]

use rm::abi::control::Schedule;
use rm::abi::{
    Abi, ChannelAllocFull, ChannelGroupAlloc, CopyAlloc, DeviceAlloc, MemoryAlloc, Plain, SubdeviceAlloc, VaspaceAlloc,
    control, usermode, uvm, va_flags,
};
use rm::class::{self, engine};
use rm::driver::{self, Driver, Libc};
use std::arch::naked_asm;
use std::os::fd::RawFd;
use std::ptr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const DRIVER: &str = "580.159.04";
const WORDS: u64 = 0x20_1000_0000;
/// Where the page of rings has its USERDs.
pub const USERDS: u64 = 0x4000;

/// The objects that the driver has opened for the program.
pub struct Opened {
    ctl: RawFd,
    uvm: RawFd,
    pub client: u32,
    device: u32,
    subdevice: u32,
    uuid: [u8; 16],
    va_space: u32,
    bell: u64,
    files: Vec<RawFd>,
    maps: Vec<(u64, u64)>,
}

impl Opened {
    /// `client`: the handle that the client gets. `bell`: the address of the doorbell page. 0: any.
    pub fn new(client: u32, bell: u64) -> Opened {
        let (ctl, uvm) = (Libc.open(c"/dev/nvidiactl").unwrap(), Libc.open(c"/dev/nvidia-uvm").unwrap());
        driver::driver_version(&Libc, ctl).unwrap();
        let client = driver::alloc_bytes(&Libc, ctl, 0, 0, client, class::NV01_ROOT_CLIENT, &mut []).unwrap();
        let (device, subdevice, uuid, va_space) = (0, 0, [0; 16], 0);
        let files = vec![uvm, ctl];
        let mut o = Opened { ctl, uvm, client, device, subdevice, uuid, va_space, bell, files, maps: Vec::new() };
        o.device = o.alloc(client, class::NV01_DEVICE_0, &mut DeviceAlloc::default());
        o.subdevice = o.alloc(o.device, class::NV20_SUBDEVICE_0, &mut SubdeviceAlloc::default());
        o.uuid = driver::gpu_uuid(&Libc, ctl, client, o.subdevice).unwrap();
        o.uvm(uvm::INITIALIZE, &mut uvm::Initialize::default());
        o.uvm(uvm::REGISTER_GPU, &mut uvm::RegisterGpu { uuid: o.uuid, ctl_fd: -1, ..Default::default() });
        let flags = va_flags::IS_EXTERNALLY_OWNED | va_flags::ENABLE_PAGE_FAULTING;
        let mut space = VaspaceAlloc { flags, va_base: 0x1000, ..Default::default() };
        o.va_space = o.alloc(o.device, class::FERMI_VASPACE_A, &mut space);
        let (uuid, va_space) = (o.uuid, o.va_space);
        let mut space = uvm::RegisterGpuVaspace { uuid, ctl_fd: ctl, client, va_space, ..Default::default() };
        o.uvm(uvm::REGISTER_GPU_VASPACE, &mut space);
        let page = o.alloc(o.subdevice, class::VOLTA_USERMODE_A, &mut [0u8; 2]);
        o.bell = o.map(page, bell, usermode::LENGTH, o.subdevice, true) as u64;
        o
    }

    /// Address of the doorbell page.
    pub fn bell(&self) -> u64 {
        self.bell
    }

    fn alloc<T: Plain>(&self, parent: u32, class: u32, params: &mut T) -> u32 {
        driver::alloc(&Libc, self.ctl, self.client, parent, 0, class, params).unwrap()
    }

    fn uvm<T: driver::UvmParams>(&self, request: u64, params: &mut T) {
        // SAFETY: each struct matches its request.
        unsafe { driver::uvm_call(&Libc, &Abi::of(DRIVER), self.uvm, request, params) }.unwrap();
    }

    fn map(&mut self, handle: u32, at: u64, length: u64, object: u32, video: bool) -> *mut u8 {
        let fd = Libc.open(if video { c"/dev/nvidia0" } else { c"/dev/nvidiactl" }).unwrap();
        self.files.push(fd);
        if video {
            driver::register_fd(&Libc, fd, self.ctl).unwrap();
        }
        driver::map_memory(&Libc, self.ctl, self.client, object, handle, 0, length, 0, fd).unwrap();
        let (prot, fixed) = (libc::PROT_READ | libc::PROT_WRITE, if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE });
        // SAFETY: the call replaces no existing mapping.
        let at = unsafe { Libc.mmap(at as *mut _, length as usize, prot, libc::MAP_SHARED | fixed, fd, 0) };
        self.maps.push((at.as_ref().map_or(0, |at| *at as u64), length));
        at.unwrap().cast()
    }

    /// Memory that the program and the GPU have at the same address.
    fn memory(&mut self, at: u64, length: u64, video: bool) -> u32 {
        let class = if video { class::NV01_MEMORY_LOCAL_USER } else { class::NV01_MEMORY_SYSTEM };
        let memory = self.alloc(self.device, class, &mut MemoryAlloc { size: length, ..Default::default() });
        self.uvm(uvm::CREATE_EXTERNAL_RANGE, &mut uvm::Range { base: at, length, ..Default::default() });
        let (ctl_fd, client) = (self.ctl, self.client);
        let mut map = uvm::MapExternal { base: at, length, gpu_count: 1, client, memory, ctl_fd, ..Default::default() };
        map.gpus[0] = uvm::GpuMapping { uuid: self.uuid, mapping: 1, ..Default::default() };
        self.uvm(uvm::MAP_EXTERNAL_ALLOCATION, &mut map);
        assert_eq!(self.map(memory, at, length, self.device, video) as u64, at);
        memory
    }

    /// Channels of copy engines, one for each place: the addresses of its ring of 512 entries and of its USERD, which are
    /// in the same memory. `asks`: the driver reports their tokens; without it they are 0.
    pub fn channels<const N: usize>(&mut self, places: [(u64, u64); N], asks: bool) -> [Ring; N] {
        // A second set has its own page of words.
        let words = WORDS + 0x1000 * self.maps.len() as u64;
        self.memory(words, 0x1000, false);
        // SET_OBJECT of the copy class, on subchannel 4.
        // SAFETY: memory that was just mapped.
        unsafe { (words as *mut [u32; 2]).write_volatile([1 << 29 | 1 << 16 | 4 << 13, class::HOPPER_DMA_COPY_A]) };
        let begin = places.iter().map(|p| p.0.min(p.1)).min().unwrap() & !0xfff;
        let end = places.iter().map(|p| p.0.max(p.1) + 0x1000).max().unwrap().next_multiple_of(0x1000);
        let rings = self.memory(begin, end - begin, true);
        let mut number = 0;
        places.map(|(ring, userd)| {
            number += 1;
            let (uuid, ctl_fd, client, va_space) = (self.uuid, self.ctl, self.client, self.va_space);
            let engine_type = engine::COPY0 + 1 + number;
            let mut group = ChannelGroupAlloc { va_space, engine_type, ..Default::default() };
            let group = self.alloc(self.device, class::KEPLER_CHANNEL_GROUP_A, &mut group);
            let mut params = ChannelAllocFull::default();
            (params.client.gpfifo, params.client.entries) = (ring, 512);
            (params.client.userd_memory[0], params.client.userd_offset[0]) = (rings, userd - begin);
            params.client.engine_type = engine_type;
            let shape = &Abi::of(DRIVER).branch().layouts.channel_alloc;
            let class = class::HOPPER_CHANNEL_GPFIFO_A;
            let channel = driver::alloc_shaped(&Libc, self.ctl, client, group, 0, class, shape, &mut params).unwrap();
            self.alloc(channel, class::HOPPER_DMA_COPY_A, &mut CopyAlloc { version: 1, engine_type });
            let token = if asks { driver::work_submit_token(&Libc, self.ctl, client, channel).unwrap() } else { 0 };
            let mut register = uvm::RegisterChannel { uuid, ctl_fd, client, channel, ..Default::default() };
            self.uvm(uvm::REGISTER_CHANNEL, &mut register);
            let mut on = Schedule { enable: 1, ..Default::default() };
            // SAFETY: the parameters have no pointers.
            unsafe { driver::control(&Libc, self.ctl, client, group, control::GROUP_SCHEDULE, &mut on) }.unwrap();
            Ring { ring, userd, token, words, bell: self.bell, put: 0 }
        })
    }

    /// Gives everything back. `frees`: the client is freed; otherwise it ends with its file.
    pub fn close(self, frees: bool) {
        for &(at, length) in self.maps.iter().rev() {
            // SAFETY: this program's mappings, which it no longer uses.
            unsafe { Libc.munmap(at as *mut _, length as usize) }.unwrap();
        }
        if frees {
            driver::free(&Libc, self.ctl, self.client, self.client, self.client).unwrap();
        }
        for fd in self.files.iter().rev() {
            Libc.close(*fd).unwrap();
        }
    }
}

/// A channel as the program uses it.
#[derive(Clone, Copy)]
pub struct Ring {
    ring: u64,
    userd: u64,
    pub token: u32,
    words: u64,
    bell: u64,
    put: u32,
}

impl Ring {
    /// Submits one entry, rings, and waits for the GPU.
    pub fn submit(&mut self) {
        let entry = pushbuf::gpfifo::Entry::segment(self.words, 2).unwrap().encode();
        let n = self.put;
        self.put += 1;
        // SAFETY: the channel's ring and USERD, and the doorbell page, all mapped.
        let get = unsafe {
            (self.ring as *mut u64).add(n as usize).write_volatile(entry);
            ((self.userd + pushbuf::userd::GP_PUT as u64) as *mut u32).write_volatile(n + 1);
            store(self.bell as *mut u8, self.token);
            (self.userd + pushbuf::userd::GP_GET as u64) as *const u32
        };
        let begin = Instant::now();
        // SAFETY: as above.
        while unsafe { ptr::read_volatile(get) } != n + 1 {
            assert!(begin.elapsed() < PATIENCE, "entry {n} of token {:#x} never ran", self.token);
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Stores `token` (esi) at +0x90 of `page` (rdi), by an instruction that a tap can rewrite: six bytes.
#[unsafe(naked)]
unsafe extern "sysv64" fn store(page: *mut u8, token: u32) {
    naked_asm!(".p2align 4", ".byte 0x89, 0xb7, 0x90, 0x00, 0x00, 0x00", "ret")
}
