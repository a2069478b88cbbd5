//! Two channels whose USERD are in one page: the writes of both reach the GPU, recorded or not.

use assert_cmd::cargo::cargo_bin;
use rm::abi::control::Schedule;
use rm::abi::{
    Abi, ChannelAllocFull, ChannelGroupAlloc, CopyAlloc, DeviceAlloc, MemoryAlloc, Plain, SubdeviceAlloc, VaspaceAlloc,
    control, usermode, uvm, va_flags,
};
use rm::class::{self, engine};
use rm::driver::{self, Driver, Libc};
use std::os::fd::RawFd;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};
use test_support::finished;

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn channels_that_share_a_userd_page_have_no_shadow_and_all_their_work_reaches_the_gpu() {
    let dir = tempfile::tempdir().unwrap();
    for tap in ["trap", "auto"] {
        let tape = dir.path().join(tap);
        let mut command = Command::new(cargo_bin!("doorbell"));
        command.args(["record", "-q", "--gpu", "soft", "--tap", tap, "-o"]).arg(&tape).arg("--");
        command.arg(std::env::current_exe().unwrap()).args([
            "plays_two_channels",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        let out = finished(&mut command, tap);
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && text.contains("1 passed"), "{tap}: {text}");
        let mut show = Command::new(cargo_bin!("doorbell"));
        let shown = finished(show.args(["show", "--summary", "--json"]).arg(&tape), "show");
        let summary: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!((&summary["entries"], &summary["lost"]), (&16.into(), &0.into()), "{tap}: {summary}");
        // If every doorbell traps, there are no shadows.
        let refused = summary["trouble"].to_string().contains("could not be shadowed");
        assert_eq!(refused, tap == "auto", "{tap}: {summary}");
    }
}

/// The objects that the driver has opened for the program.
struct Opened {
    ctl: RawFd,
    uvm: RawFd,
    client: u32,
    device: u32,
    subdevice: u32,
    uuid: [u8; 16],
}

impl Opened {
    fn new() -> Opened {
        let (ctl, uvm) = (Libc.open(c"/dev/nvidiactl").unwrap(), Libc.open(c"/dev/nvidia-uvm").unwrap());
        driver::driver_version(&Libc, ctl).unwrap();
        let client = driver::alloc_client(&Libc, ctl).unwrap();
        let mut o = Opened { ctl, uvm, client, device: 0, subdevice: 0, uuid: [0; 16] };
        o.device = o.alloc(client, class::NV01_DEVICE_0, &mut DeviceAlloc::default());
        o.subdevice = o.alloc(o.device, class::NV20_SUBDEVICE_0, &mut SubdeviceAlloc::default());
        o.uuid = driver::gpu_uuid(&Libc, ctl, client, o.subdevice).unwrap();
        o.uvm(uvm::INITIALIZE, &mut uvm::Initialize::default());
        o.uvm(uvm::REGISTER_GPU, &mut uvm::RegisterGpu { uuid: o.uuid, ctl_fd: -1, ..Default::default() });
        o
    }

    fn alloc<T: Plain>(&self, parent: u32, class: u32, params: &mut T) -> u32 {
        driver::alloc(&Libc, self.ctl, self.client, parent, 0, class, params).unwrap()
    }

    fn uvm<T: driver::UvmParams>(&self, request: u64, params: &mut T) {
        // SAFETY: each struct matches its request.
        unsafe { driver::uvm_call(&Libc, &Abi::of("580.159.04"), self.uvm, request, params) }.unwrap();
    }

    fn map(&self, handle: u32, at: u64, length: u64, object: u32, video: bool) -> *mut u8 {
        let fd = Libc.open(if video { c"/dev/nvidia0" } else { c"/dev/nvidiactl" }).unwrap();
        if video {
            driver::register_fd(&Libc, fd, self.ctl).unwrap();
        }
        driver::map_memory(&Libc, self.ctl, self.client, object, handle, 0, length, 0, fd).unwrap();
        let (prot, fixed) = (libc::PROT_READ | libc::PROT_WRITE, if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE });
        // SAFETY: the call replaces no existing mapping.
        let at = unsafe { Libc.mmap(at as *mut _, length as usize, prot, libc::MAP_SHARED | fixed, fd, 0) };
        at.unwrap().cast()
    }

    /// Memory that the program and the GPU have at the same address.
    fn memory(&self, at: u64, length: u64, video: bool) -> u32 {
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
}

#[test]
#[ignore = "a program for the test above"]
fn plays_two_channels() {
    const RINGS: u64 = 0x20_0000_0000;
    const WORDS: u64 = 0x20_1000_0000;
    const USERDS: u64 = 0x4000;
    let o = Opened::new();
    let flags = va_flags::IS_EXTERNALLY_OWNED | va_flags::ENABLE_PAGE_FAULTING;
    let va_space =
        o.alloc(o.device, class::FERMI_VASPACE_A, &mut VaspaceAlloc { flags, va_base: 0x1000, ..Default::default() });
    let (uuid, ctl_fd, client) = (o.uuid, o.ctl, o.client);
    let mut space = uvm::RegisterGpuVaspace { uuid, ctl_fd, client, va_space, ..Default::default() };
    o.uvm(uvm::REGISTER_GPU_VASPACE, &mut space);
    let page = o.alloc(o.subdevice, class::VOLTA_USERMODE_A, &mut [0u8; 2]);
    let bell = o.map(page, 0, usermode::LENGTH, o.subdevice, true);
    // Two rings of 512 entries, and both USERDs in the page after them.
    let rings = o.memory(RINGS, 0x8000, true);
    o.memory(WORDS, 0x1000, false);
    // SET_OBJECT of the copy class, on subchannel 4.
    let words = [1 << 29 | 1 << 16 | 4 << 13, class::HOPPER_DMA_COPY_A];
    // SAFETY: memory that was just mapped.
    unsafe { (WORDS as *mut [u32; 2]).write_volatile(words) };
    let channels = [0u64, 1].map(|i| {
        let engine_type = engine::COPY0 + 2 + i as u32;
        let mut group = ChannelGroupAlloc { va_space, engine_type, ..Default::default() };
        let group = o.alloc(o.device, class::KEPLER_CHANNEL_GROUP_A, &mut group);
        let mut params = ChannelAllocFull::default();
        (params.client.gpfifo, params.client.entries) = (RINGS + 0x1000 * i, 512);
        (params.client.userd_memory[0], params.client.userd_offset[0]) = (rings, USERDS + 0x200 * i);
        params.client.engine_type = engine_type;
        let shape = &Abi::of("580.159.04").branch().layouts.channel_alloc;
        let class = class::HOPPER_CHANNEL_GPFIFO_A;
        let channel = driver::alloc_shaped(&Libc, o.ctl, o.client, group, 0, class, shape, &mut params).unwrap();
        o.alloc(channel, class::HOPPER_DMA_COPY_A, &mut CopyAlloc { version: 1, engine_type });
        let token = driver::work_submit_token(&Libc, o.ctl, o.client, channel).unwrap();
        let mut register = uvm::RegisterChannel { uuid, ctl_fd, client, channel, ..Default::default() };
        o.uvm(uvm::REGISTER_CHANNEL, &mut register);
        let mut on = Schedule { enable: 1, ..Default::default() };
        // SAFETY: the parameters have no pointers.
        unsafe { driver::control(&Libc, o.ctl, o.client, group, control::GROUP_SCHEDULE, &mut on) }.unwrap();
        (RINGS + 0x1000 * i, RINGS + USERDS + 0x200 * i, token)
    });
    for n in 0..8u32 {
        for (ring, userd, token) in channels {
            let entry = pushbuf::gpfifo::Entry::segment(WORDS, 2).unwrap().encode();
            // SAFETY: the channel's ring and USERD, and the doorbell page, all mapped above.
            let get = unsafe {
                (ring as *mut u64).add(n as usize).write_volatile(entry);
                ((userd + pushbuf::userd::GP_PUT as u64) as *mut u32).write_volatile(n + 1);
                bell.add(usermode::DOORBELL as usize).cast::<u32>().write_volatile(token);
                (userd + pushbuf::userd::GP_GET as u64) as *const u32
            };
            let begin = Instant::now();
            // SAFETY: as above.
            while unsafe { ptr::read_volatile(get) } != n + 1 {
                assert!(begin.elapsed() < PATIENCE, "entry {n} of token {token:#x} never ran");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}
