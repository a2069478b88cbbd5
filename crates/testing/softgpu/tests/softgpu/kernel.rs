//! The kernel driver's side: its answers, and its errors for misuse.

use crate::rig::*;
use doorbell_softgpu::{Mode, SoftDriver, status};
use rm::abi::{ChannelAlloc, ChannelAllocFull, CopyAlloc, DeviceAlloc, MemoryAlloc, control, uvm};
use rm::class::{self, engine};
use rm::driver::{self, Driver, RmError};

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, RmError>, status: u32) {
    assert_eq!(result.unwrap_err().status(), Some(status));
}

#[test]
fn version_and_card() {
    let driver = SoftDriver::new(Mode::Strict);
    let ctl = open(&driver, c"/dev/nvidiactl");
    assert_eq!(driver::driver_version(&driver, ctl).unwrap(), "580.159.04");
    let cards = driver::card_info(&driver, ctl).unwrap();
    assert_eq!(cards.len(), 1);
    assert!(cards[0].dev_name.starts_with(b"softgpu"));
    assert_eq!((cards[0].vendor_id, cards[0].minor), (0x10de, 0));
    assert!(driver.open(c"/dev/nvidia1").is_err());
}

#[test]
fn classes_ids_and_uuid() {
    let rig = bare(Mode::Strict);
    let classes = driver::class_list(&rig.driver, rig.ctl, rig.client, rig.device).unwrap();
    for class in [0xc86f, 0xc8b5, 0xcbc0, 0xa140, 0xc661, 0xc461, 0xc36f] {
        assert!(classes.contains(&class), "{class:#x}");
    }
    let mut list = control::ClassListV2::default();
    unsafe {
        driver::control(&rig.driver, rig.ctl, rig.client, rig.device, control::CLASS_LIST_V2, &mut list).unwrap();
    }
    assert_eq!(list.classes[..list.count as usize], classes);
    let mut ids = control::AttachedIds::default();
    unsafe {
        driver::control(&rig.driver, rig.ctl, rig.client, rig.client, control::GPU_ATTACHED_IDS, &mut ids).unwrap();
    }
    let cards = driver::card_info(&rig.driver, rig.ctl).unwrap();
    assert_eq!(ids.gpu_ids[..2], [cards[0].gpu_id, u32::MAX]);
    assert_eq!(&rig.uuid(), b"doorbell-softgpu");
    let mut caps = control::CeAllCaps::default();
    unsafe {
        driver::control(&rig.driver, rig.ctl, rig.client, rig.subdevice, control::CE_ALL_CAPS, &mut caps).unwrap();
    }
    assert_eq!(caps.present, 0x3ff);
}

#[test]
fn unknown_controls_are_not_supported() {
    let rig = bare(Mode::Strict);
    let mut nothing = [0u8; 4];
    for object in [rig.client, rig.device, rig.subdevice] {
        let result =
            unsafe { driver::control_bytes(&rig.driver, rig.ctl, rig.client, object, 0x2080_ffff, &mut nothing) };
        refused(result, status::NOT_SUPPORTED);
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let rig = bare(Mode::Strict);
    let mut short = [0u8; 100];
    let class = class::NV01_MEMORY_LOCAL_USER;
    let result = driver::alloc_bytes(&rig.driver, rig.ctl, rig.client, rig.device, 0, class, &mut short);
    refused(result, status::INVALID_PARAM_STRUCT);
    let result = unsafe {
        driver::control_bytes(&rig.driver, rig.ctl, rig.client, rig.subdevice, control::GID_INFO, &mut short)
    };
    refused(result, status::INVALID_PARAM_STRUCT);
    // A request whose own size is wrong does not even get a status.
    let mut nvos54 = [0u8; 40];
    let request = rm::abi::rm_request(rm::abi::nr::CONTROL, 40);
    assert!(unsafe { rig.driver.ioctl(rig.ctl, request, nvos54.as_mut_ptr().cast()) }.is_err());
}

#[test]
fn handles_classes_and_parents_are_checked() {
    let rig = bare(Mode::Strict);
    let memory = || MemoryAlloc { size: 0x1000, ..Default::default() };
    refused(rig.alloc(0x1234, class::NV01_MEMORY_SYSTEM, &mut memory()), status::INVALID_OBJECT_PARENT);
    refused(rig.alloc(rig.device, 0xdead, &mut 0u32), status::INVALID_CLASS);
    refused(rig.alloc(rig.client, class::NV01_MEMORY_SYSTEM, &mut memory()), status::INVALID_OBJECT_PARENT);
    let again = driver::alloc(
        &rig.driver,
        rig.ctl,
        rig.client,
        rig.device,
        rig.subdevice,
        class::NV01_MEMORY_SYSTEM,
        &mut memory(),
    );
    refused(again, status::INSERT_DUPLICATE_NAME);
    let mut device = DeviceAlloc { device_id: 1, ..Default::default() };
    refused(rig.alloc(rig.client, class::NV01_DEVICE_0, &mut device), status::INVALID_DEVICE);
    refused(driver::free(&rig.driver, rig.ctl, rig.client, rig.client, 0x1234), status::OBJECT_NOT_FOUND);
}

#[test]
fn a_client_belongs_to_its_file() {
    let rig = bare(Mode::Strict);
    let other = open(&rig.driver, c"/dev/nvidiactl");
    let class = class::NV01_MEMORY_SYSTEM;
    let mut params = MemoryAlloc { size: 0x1000, ..Default::default() };
    let result = driver::alloc(&rig.driver, other, rig.client, rig.device, 0, class, &mut params);
    refused(result, status::INVALID_CLIENT);
    // A duplicate is the same file, and a registered nvidia0 belongs to it.
    rig.driver.machine.duplicated(rig.ctl, 1_000_000);
    driver::alloc(&rig.driver, 1_000_000, rig.client, rig.device, 0, class, &mut params).unwrap();
    driver::alloc(&rig.driver, rig.gpu, rig.client, rig.device, 0, class, &mut params).unwrap();
}

#[test]
fn closing_the_last_control_file_frees_its_clients_and_stops_their_channels() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    rig.driver.machine.duplicated(rig.ctl, 1_000_001);
    rig.driver.close(rig.ctl).unwrap();
    channel.push(&host_sem(SRC, 1, 1));
    channel.bell();
    until(|| rig.src.u32(0) == 1);
    rig.driver.machine.closed(1_000_001);
    channel.push(&host_sem(SRC, 2, 1));
    channel.bell();
    settle();
    assert_eq!(rig.src.u32(0), 1);
}

#[test]
fn register_fd_wants_a_control_file_once() {
    let rig = bare(Mode::Strict);
    let gpu = open(&rig.driver, c"/dev/nvidia0");
    assert!(driver::register_fd(&rig.driver, gpu, rig.uvm).is_err());
    driver::register_fd(&rig.driver, gpu, rig.ctl).unwrap();
    assert!(driver::register_fd(&rig.driver, gpu, rig.ctl).is_err());
}

#[test]
fn mapping_wants_the_right_file_offset_and_length_once() {
    let rig = bare(Mode::Strict);
    let (video, host) = (rig.alloc_memory(0x4000, VIDEO).unwrap(), rig.alloc_memory(0x4000, HOST).unwrap());
    let map = |memory, offset, length, fd| {
        driver::map_memory(&rig.driver, rig.ctl, rig.client, rig.device, memory, offset, length, 0, fd)
    };
    refused(map(video, 0, 0x4000, rig.fresh(HOST)), status::INVALID_ARGUMENT);
    refused(map(host, 0, 0x4000, rig.fresh(VIDEO)), status::INVALID_ARGUMENT);
    refused(map(video, 0x1000, 0x4000, rig.fresh(VIDEO)), status::INVALID_LIMIT);
    refused(map(0x99, 0, 0x1000, rig.fresh(VIDEO)), status::OBJECT_NOT_FOUND);
    let fd = rig.fresh(VIDEO);
    let mmap = |len: usize, offset| unsafe {
        rig.driver.mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, offset)
    };
    assert!(mmap(0x2000, 0).is_err(), "no RM_MAP_MEMORY yet");
    map(video, 0x1000, 0x2000, fd).unwrap();
    refused(map(video, 0, 0x1000, fd), status::STATE_IN_USE);
    assert!(mmap(0x1000, 0).is_err(), "BAR mappings take the exact length");
    assert!(mmap(0x2000, 0x1000).is_err(), "the offset must be 0");
    mmap(0x2000, 0).unwrap();
    mmap(0x2000, 0).unwrap();
}

#[test]
fn two_mappings_show_the_same_memory() {
    let rig = bare(Mode::Strict);
    let memory = rig.alloc_memory(0x4000, VIDEO).unwrap();
    let (a, b) = (rig.map_cpu(memory, 0x4000, VIDEO), rig.map_cpu(memory, 0x4000, VIDEO));
    unsafe {
        a.add(0x3fff).write_volatile(7);
        assert_eq!(b.add(0x3fff).read_volatile(), 7);
    }
}

#[test]
fn uvm_wants_initialize_first() {
    let rig = bare(Mode::Strict);
    assert!(rig.range(0x10_0000, 0x1000).is_err());
    rig.uvm_start();
    rig.range(0x10_0000, 0x1000).unwrap();
    let mut mm = uvm::MmInitialize { uvm_fd: rig.uvm, status: 1 };
    rig.uvm(uvm::MM_INITIALIZE, &mut mm).unwrap();
}

#[test]
fn uvm_ranges_and_mappings_are_checked() {
    let rig = Rig::new();
    refused(rig.range(0x50_0800, 0x1000), status::INVALID_ADDRESS);
    rig.range(0x50_0000, 0x4000).unwrap();
    refused(rig.range(0x50_3000, 0x2000), status::UVM_ADDRESS_IN_USE);
    let memory = rig.alloc_memory(0x2000, VIDEO).unwrap();
    refused(rig.map_gpu(0x60_0000, 0x1000, memory, 0, 1), status::INVALID_ADDRESS);
    refused(rig.map_gpu(0x50_0000, 0x4000, memory, 0, 1), status::INVALID_OFFSET);
    refused(rig.map_gpu(0x50_0000, 0x1000, 0x77, 0, 1), status::OBJECT_NOT_FOUND);
    rig.map_gpu(0x50_0000, 0x2000, memory, 0, 1).unwrap();
    refused(rig.map_gpu(0x50_1000, 0x1000, memory, 0, 1), status::UVM_ADDRESS_IN_USE);
    let mut wrong = uvm::RegisterGpu { uuid: [1; 16], ..Default::default() };
    refused(rig.uvm(uvm::REGISTER_GPU, &mut wrong), status::GPU_UUID_NOT_FOUND);
}

#[test]
fn mapping_before_the_va_space_is_registered_is_refused() {
    let rig = bare(Mode::Strict);
    rig.uvm_start();
    rig.range(0x50_0000, 0x1000).unwrap();
    let memory = rig.alloc_memory(0x1000, VIDEO).unwrap();
    refused(rig.map_gpu(0x50_0000, 0x1000, memory, 0, 1), status::INVALID_DEVICE);
}

#[test]
fn unmap_external_and_free_take_the_mapping_away() {
    let rig = Rig::new();
    rig.range(NOWHERE, 0x3000).unwrap();
    let memory = rig.alloc_memory(0x3000, VIDEO).unwrap();
    let write = |page: u64| rig.copy_channel().run(&copy(SRC, NOWHERE + page * 0x1000, 8, 0x182));
    rig.map_gpu(NOWHERE, 0x3000, memory, 0, 1).unwrap();
    assert_eq!(write(1), None);
    // A hole in the middle.
    let mut hole = uvm::GpuRange { base: NOWHERE + 0x1000, length: 0x1000, uuid: rig.uuid(), ..Default::default() };
    rig.uvm(uvm::UNMAP_EXTERNAL, &mut hole).unwrap();
    assert_eq!((write(0), write(1), write(2)), (None, Some(31), None));
    rig.uvm(uvm::FREE, &mut uvm::Range { base: NOWHERE, length: 0x3000, ..Default::default() }).unwrap();
    assert_eq!(write(0), Some(31));
    let again = rig.uvm(uvm::FREE, &mut uvm::Range { base: NOWHERE, length: 0x3000, ..Default::default() });
    refused(again, status::INVALID_ADDRESS);
}

#[test]
fn gpu_mappings_outlive_the_handle() {
    let rig = Rig::new();
    let memory = rig.memory(NOWHERE, 0x1000, VIDEO);
    driver::free(&rig.driver, rig.ctl, rig.client, rig.device, memory.handle).unwrap();
    rig.copy_channel().ok(&copy(SRC, NOWHERE, 8, 0x182));
}

#[test]
fn a_context_share_wants_the_va_space_registered() {
    let rig = bare(Mode::Strict);
    rig.uvm_start();
    let space = rig.vaspace().unwrap();
    let mut params =
        rm::abi::ChannelGroupAlloc { va_space: space, engine_type: engine::GRAPHICS, ..Default::default() };
    let group = rig.alloc(rig.device, class::KEPLER_CHANNEL_GROUP_A, &mut params).unwrap();
    refused(rig.share(group, space), status::INVALID_STATE);
    rig.register_space(space).unwrap();
    rig.share(group, space).unwrap();
}

/// A channel's parameters on a fresh ring.
fn setup(rig: &Rig) -> ChannelAllocFull {
    let ring = rig.alloc_memory(0x3000, VIDEO).unwrap();
    let mut client = ChannelAlloc { gpfifo: 0x1000, entries: 1024, ..Default::default() };
    client.userd_memory[0] = ring;
    client.userd_offset[0] = 0x2000;
    ChannelAllocFull { client, ..Default::default() }
}

#[test]
fn a_graphics_channel_wants_uvm_before_schedule() {
    let rig = Rig::new();
    let group = rig.group(engine::GRAPHICS);
    let mut params = setup(&rig);
    params.client.context_share = rig.share(group, rig.space).unwrap();
    let channel = rig.alloc_channel(group, class::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap();
    refused(rig.schedule(group, control::GROUP_SCHEDULE), status::INVALID_STATE);
    rig.register_channel(channel).unwrap();
    rig.schedule(group, control::GROUP_SCHEDULE).unwrap();
}

#[test]
fn a_copy_channel_may_do_without_group_and_uvm() {
    let rig = Rig::new();
    let engine_type = engine::COPY0 + 3;
    let ring = rig.memory(0x1_0000_0000, 0x3000, VIDEO);
    let mut client =
        ChannelAlloc { gpfifo: ring.va, entries: 16, va_space: rig.space, engine_type, ..Default::default() };
    client.userd_memory[0] = ring.handle;
    client.userd_offset[0] = 0x2000;
    let mut params = ChannelAllocFull { client, ..Default::default() };
    let channel = rig.alloc_channel(rig.device, class::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap();
    let bind = |engine_type| unsafe {
        let mut bind = control::Bind { engine_type };
        driver::control(&rig.driver, rig.ctl, rig.client, channel, control::CHANNEL_BIND, &mut bind)
    };
    refused(bind(engine::COPY0), status::INVALID_ARGUMENT);
    bind(engine_type).unwrap();
    rig.schedule(channel, control::CHANNEL_SCHEDULE).unwrap();
    let token = driver::work_submit_token(&rig.driver, rig.ctl, rig.client, channel).unwrap();
    assert_eq!(token >> 16, 4);
    let words: Vec<u8> = host_sem(SRC, 9, 1).iter().flat_map(|w| w.to_le_bytes()).collect();
    rig.src.write(0x2000, &words);
    ring.write(0, &((SRC + 0x2000) | 6 << 42).to_le_bytes());
    ring.set(0x208c, 1);
    rig.driver.machine.ring(token);
    until(|| rig.src.u32(0) == 9);
}

#[test]
fn channels_are_checked() {
    let rig = Rig::new();
    let class = class::HOPPER_CHANNEL_GPFIFO_A;
    let (copy, graphics) = (rig.group(engine::COPY0), rig.group(engine::GRAPHICS));
    let attempt = |group, change: &dyn Fn(&mut ChannelAlloc)| {
        let mut params = setup(&rig);
        change(&mut params.client);
        rig.alloc_channel(group, class, &mut params)
    };
    let share = rig.share(graphics, rig.space).unwrap();
    let space = rig.space;
    refused(attempt(copy, &|c| c.va_space = space), status::INVALID_ARGUMENT);
    refused(attempt(graphics, &|c| (c.va_space, c.context_share) = (space, share)), status::INVALID_ARGUMENT);
    refused(
        attempt(rig.device, &|c| (c.va_space, c.context_share, c.engine_type) = (space, share, engine::GRAPHICS)),
        status::INVALID_ARGUMENT,
    );
    refused(attempt(copy, &|c| c.userd_memory[0] = 0), status::INVALID_OBJECT_HANDLE);
    refused(attempt(copy, &|c| c.userd_offset[0] = 0x2f00), status::INVALID_ARGUMENT);
    refused(attempt(copy, &|c| c.userd_offset[0] = 0x3000), status::INVALID_ARGUMENT);
    refused(attempt(copy, &|c| c.entries = 0), status::INVALID_ARGUMENT);
    let channel = attempt(copy, &|_| {}).unwrap();
    let mut wrong = CopyAlloc { version: 1, engine_type: engine::COPY0 + 1 };
    refused(rig.alloc(channel, class::HOPPER_DMA_COPY_A, &mut wrong), status::INVALID_ARGUMENT);
    let compute = driver::alloc_bytes(&rig.driver, rig.ctl, rig.client, channel, 0, class::HOPPER_COMPUTE_A, &mut []);
    refused(compute, status::INVALID_CLASS);
}

#[test]
fn freeing_a_group_frees_its_channels_and_their_numbers() {
    let rig = Rig::new();
    let mut tokens = Vec::new();
    for _ in 0..5 {
        let channel = rig.copy_channel();
        channel.alive();
        tokens.push(channel.token);
        driver::free(&rig.driver, rig.ctl, rig.client, rig.device, channel.group).unwrap();
        channel.push(&host_sem(SRC, 1, 1));
        channel.bell();
        settle();
        assert_eq!(rig.src.u32(0), 0, "it is gone");
        let token = driver::work_submit_token(&rig.driver, rig.ctl, rig.client, channel.handle);
        refused(token, status::OBJECT_NOT_FOUND);
    }
    assert!(tokens.iter().all(|t| *t == tokens[0]), "{tokens:x?}");
}

#[test]
fn duplicates_of_memory_are_the_same_memory() {
    let rig = Rig::new();
    let other = driver::alloc_client(&rig.driver, rig.ctl).unwrap();
    let mut params = DeviceAlloc::default();
    let device = driver::alloc(&rig.driver, rig.ctl, other, other, 0, class::NV01_DEVICE_0, &mut params).unwrap();
    let copy = driver::dup_object(&rig.driver, rig.ctl, other, device, rig.client, rig.dst.handle).unwrap();
    let fd = rig.fresh(VIDEO);
    driver::map_memory(&rig.driver, rig.ctl, other, device, copy, 0, DATA, 0, fd).unwrap();
    let at = unsafe {
        rig.driver.mmap(std::ptr::null_mut(), DATA as usize, libc::PROT_READ, libc::MAP_SHARED, fd, 0).unwrap()
    };
    rig.dst.write(0, b"same");
    assert_eq!(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), 4) }, b"same");
}

#[test]
fn video_memory_ends_somewhere() {
    let rig = bare(Mode::Strict);
    refused(rig.alloc_memory(81 << 30, VIDEO), status::NO_MEMORY);
    refused(rig.alloc_memory(0, VIDEO), status::INVALID_ARGUMENT);
}

#[test]
fn unknown_paths_files_and_requests_are_no_crash() {
    let rig = bare(Mode::Strict);
    let mut bytes = [0xffu8; 16384];
    for fd in [rig.ctl, rig.gpu, rig.uvm, 12345] {
        for request in (0..256).map(|nr| rm::abi::rm_request(nr, 1)).chain(1000..1100) {
            assert!(unsafe { rig.driver.ioctl(fd, request, bytes.as_mut_ptr().cast()) }.is_err());
        }
        assert!(unsafe { rig.driver.ioctl(fd, 0, std::ptr::null_mut()) }.is_err());
    }
}

#[test]
fn bus_addresses_belong_to_one_mapping_until_it_is_undone() {
    let rig = Rig::new();
    let map = |memory, offset, length| {
        let fd = rig.fresh(VIDEO);
        let at = driver::map_memory(&rig.driver, rig.ctl, rig.client, rig.device, memory, offset, length, 0, fd);
        rig.driver.close(fd).unwrap();
        at
    };
    let unmap = |memory, at| driver::unmap_memory(&rig.driver, rig.ctl, rig.client, rig.device, memory, at);
    let machine = rig.driver.machine;
    let standing = machine.bar1_mappings();
    let other = rig.alloc_memory(0x3000, VIDEO).unwrap();
    let (a, b) = (map(rig.dst.handle, 0x1000, 0x2000).unwrap(), map(other, 0, 0x3000).unwrap());
    assert_eq!(machine.bar1_mappings(), (standing.0 + 2, standing.1 + 0x5000));
    assert!(a + 0x2000 <= b || b + 0x3000 <= a, "{a:#x} {b:#x}");
    machine.bus_write(a + 5, b"through the bus").unwrap();
    assert_eq!(rig.dst.read(0x1005, 15), b"through the bus");
    let mut bytes = [0; 16];
    assert_eq!(machine.bus_read(a + 0x1ff1, &mut bytes), None, "past the end");
    refused(unmap(rig.dst.handle, b), status::OBJECT_NOT_FOUND);
    refused(unmap(rig.dst.handle, a + 0x1000), status::OBJECT_NOT_FOUND);
    unmap(rig.dst.handle, a).unwrap();
    refused(unmap(rig.dst.handle, a), status::OBJECT_NOT_FOUND);
    assert_eq!(machine.bus_read(a, &mut bytes), None);
    // A handle takes its own mappings along, not its duplicate's.
    let copy = driver::dup_object(&rig.driver, rig.ctl, rig.client, rig.device, rig.client, other).unwrap();
    let c = map(copy, 0, 0x1000).unwrap();
    driver::free(&rig.driver, rig.ctl, rig.client, rig.device, other).unwrap();
    assert_eq!(machine.bus_read(b, &mut bytes), None);
    machine.bus_write(c, b"still there").unwrap();
    driver::free(&rig.driver, rig.ctl, rig.client, rig.device, copy).unwrap();
    assert_eq!(machine.bar1_mappings(), standing);
    rig.driver.close(rig.ctl).unwrap();
    assert_eq!(machine.bar1_mappings(), (0, 0));
}

#[test]
fn duplicates_are_counted_once() {
    let rig = bare(Mode::Strict);
    let large = rig.alloc_memory(50 << 30, VIDEO).unwrap();
    let copy = driver::dup_object(&rig.driver, rig.ctl, rig.client, rig.device, rig.client, large).unwrap();
    driver::free(&rig.driver, rig.ctl, rig.client, rig.device, large).unwrap();
    refused(rig.alloc_memory(50 << 30, VIDEO), status::NO_MEMORY);
    driver::free(&rig.driver, rig.ctl, rig.client, rig.device, copy).unwrap();
    rig.alloc_memory(50 << 30, VIDEO).unwrap();
}

#[test]
fn copy_engines_report_their_physical_engines() {
    use rm::abi::control::{CE_PCE_MASK, CePceMask, STATIC_BAR1_INFO, StaticBar1Info};
    let rig = bare(Mode::Strict);
    let mask = |engine_type| {
        let mut params = CePceMask { engine_type, mask: 0 };
        let (client, subdevice) = (rig.client, rig.subdevice);
        unsafe { driver::control(&rig.driver, rig.ctl, client, subdevice, CE_PCE_MASK, &mut params) }?;
        Ok(params.mask)
    };
    let masks: Vec<u32> = (0..10).map(|n| mask(engine::copy(n).unwrap()).unwrap()).collect();
    assert_eq!(masks, [4, 8, 4, 8, 0x7010, 32, 64, 128, 256, 512]);
    refused(mask(engine::copy(10).unwrap()), status::NOT_SUPPORTED);
    refused(mask(engine::GRAPHICS), status::NOT_SUPPORTED);
    let mut info = StaticBar1Info { enabled: 9, ..Default::default() };
    unsafe { driver::control(&rig.driver, rig.ctl, rig.client, rig.subdevice, STATIC_BAR1_INFO, &mut info) }.unwrap();
    assert_eq!(info, StaticBar1Info::default());
}

#[test]
fn the_self_check_passes_on_every_branch_and_finds_a_planted_size() {
    use rm::abi::{BRANCHES, Branch};
    use rm::check::part;
    let check = |driver: &SoftDriver, branch: &Branch| driver::self_check(driver, branch).unwrap();
    for branch in &BRANCHES {
        let soft = SoftDriver::of_driver(Mode::Strict, branch.last, branch.number);
        let report = check(&soft, branch);
        assert_eq!((report.failed, report.seen), (0, 15), "{}", branch.number);
    }
    // The version string of one branch with the structs of another: exactly the differences are named.
    for (says, has, failed) in [
        (580, 570, part::MAPPINGS | part::MEMORY),
        (580, 610, part::CHANNELS | part::UVM),
        (580, 590, part::UVM),
        (580, 575, part::MAPPINGS | part::MEMORY),
        (595, 610, part::CHANNELS),
        (545, 535, part::MEMORY),
        (535, 550, part::MAPPINGS | part::MEMORY | part::UVM),
    ] {
        let soft = SoftDriver::of_driver(Mode::Strict, "1.2", has);
        assert_eq!(check(&soft, Branch::nearest(says)).failed, failed, "{says} on {has}");
    }
}
