//! BAR1 maps, the aperture, the clock and the copy engines, on the software GPU in process.
// The unsafe blocks here pass a driver's calls on, or read a clock.
#![allow(clippy::undocumented_unsafe_blocks)]

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Aperture, Bar1Map, Channel, ChannelOptions, Device, Engine, Error, Memory, Pushbuffer, Semaphores,
};
use proptest::prelude::*;
use rm::driver::{Driver, Layer};
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use test_support::noise;

const TIMEOUT: Duration = Duration::from_secs(10);

fn machine() -> (SoftDriver, Arc<AddressSpace>) {
    let driver = SoftDriver::new(Mode::Strict);
    let device = Device::open(Arc::new(driver), 0).unwrap();
    (driver, AddressSpace::new(&device).unwrap())
}

fn contents(memory: &Memory) -> Vec<u8> {
    let mut all = vec![0; memory.length() as usize];
    memory.read(0, &mut all);
    all
}

#[test]
fn a_map_shows_its_part_of_the_memory() {
    let (_, space) = machine();
    let memory = space.alloc_video(0x5000).unwrap();
    let before = noise(0x5000, 1);
    memory.write(0, &before);
    let map = Bar1Map::of(&memory, 0x1234, 0x2345).unwrap();
    assert_eq!(map.length(), 0x2345);
    let mut seen = vec![0; 0x2345];
    map.read(0, &mut seen).unwrap();
    assert!(seen == before[0x1234..0x1234 + 0x2345]);
    let data = noise(0x1001, 2);
    map.write(0x77, &data).unwrap();
    let mut wanted = before;
    wanted[0x1234 + 0x77..][..0x1001].copy_from_slice(&data);
    assert!(contents(&memory) == wanted);
}

#[test]
fn a_copy_engine_takes_what_a_store_left() {
    let (_, space) = machine();
    let semaphores = Semaphores::new(&space).unwrap();
    let (video, host) = (space.alloc_video(0x2000).unwrap(), space.alloc_host(0x2000).unwrap());
    let map = Bar1Map::of(&video, 0, 0x2000).unwrap();
    let data = noise(0x2000, 3);
    map.write(0, &data).unwrap();
    let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let done = semaphores.alloc().unwrap();
    let mut pushbuffer = Pushbuffer::new(&space, 64).unwrap();
    pushbuffer.copy(host.va(), video.va(), 0x2000).unwrap().copy_release(&done, 1).unwrap();
    channel.submit(&pushbuffer.validate(&channel).unwrap()).unwrap();
    done.wait(1, TIMEOUT).unwrap();
    assert!(contents(&host) == data);
}

#[test]
fn words_are_stored_and_loaded_in_one_piece() {
    let (_, space) = machine();
    let memory = space.alloc_video(0x1000).unwrap();
    let map = Bar1Map::of(&memory, 0, 0x1000).unwrap();
    map.store32(4, 0xdead_beef).unwrap();
    map.store64(0xff8, 0x0123_4567_89ab_cdef).unwrap();
    assert_eq!(memory.word(4).load(Ordering::Relaxed), 0xdead_beef);
    assert_eq!(memory.word64(0xff8).load(Ordering::Relaxed), 0x0123_4567_89ab_cdef);
    assert_eq!((map.load32(0xffc).unwrap(), map.load64(0).unwrap()), (0x0123_4567, 0xdead_beef << 32));
    assert!(matches!(map.store32(2, 0), Err(Error::Misaligned { offset: 2, size: 4 })));
    assert!(matches!(map.load64(4), Err(Error::Misaligned { offset: 4, size: 8 })));
    // In a map that begins between two words, alignment is that of the address.
    let odd = Bar1Map::of(&memory, 2, 0x100).unwrap();
    odd.store32(2, 7).unwrap();
    assert_eq!(memory.word(4).load(Ordering::Relaxed), 7);
    assert!(matches!(odd.store32(0, 7), Err(Error::Misaligned { .. })));
}

#[test]
fn ranges_outside_are_errors_and_change_nothing() {
    let (driver, space) = machine();
    let (video, host) = (space.alloc_video(0x2000).unwrap(), space.alloc_host(0x1000).unwrap());
    let mappings = driver.machine.bar1_mappings();
    assert!(matches!(Bar1Map::of(&host, 0, 0x1000), Err(Error::NotVideo)));
    assert!(matches!(Aperture::of(&host), Err(Error::NotVideo)));
    assert!(matches!(Bar1Map::of(&video, 0, 0), Err(Error::Length(0))));
    for (offset, length) in [(0, 0x2001), (0x2000, 1), (0x1fff, 2), (u64::MAX, 2), (1, u64::MAX)] {
        let error = Bar1Map::of(&video, offset, length).unwrap_err();
        assert!(matches!(error, Error::Outside { size: 0x2000, .. }), "{error}");
    }
    assert_eq!(driver.machine.bar1_mappings(), mappings);
    let map = Bar1Map::of(&video, 0x800, 0x1000).unwrap();
    video.write(0, &noise(0x2000, 4));
    for (offset, length) in [(0xfff, 2), (0x1000, 1), (u64::MAX, 1)] {
        let error = map.write(offset, &vec![0; length]).unwrap_err();
        assert!(matches!(error, Error::Outside { size: 0x1000, .. }), "{error}");
        assert!(map.read(offset, &mut vec![0; length]).is_err());
    }
    assert!(map.store32(0xffe, 0).is_err() && map.load64(u64::MAX - 3).is_err());
    assert!(map.write(0x1000, &[]).is_ok());
    assert!(contents(&video) == noise(0x2000, 4));
}

#[test]
fn another_device_finds_the_memory_at_its_bus_address() {
    let (driver, space) = machine();
    let (a, b) = (space.alloc_video(0x4000).unwrap(), space.alloc_video(0x4000).unwrap());
    a.write(0, &noise(0x4000, 5));
    b.write(0, &noise(0x4000, 6));
    let maps = [Bar1Map::of(&a, 0, 0x4000).unwrap(), Bar1Map::of(&b, 0x1010, 0x100).unwrap()];
    let card = *space.device().card();
    for map in &maps {
        let range = map.bus_range().unwrap();
        assert_eq!((range.address, range.length), (map.bus_address(), map.length()));
        assert!((card.fb_address..card.fb_address + card.fb_size).contains(&range.address));
    }
    let mut seen = vec![0; 0x100];
    driver.machine.bus_read(maps[1].bus_address(), &mut seen).unwrap();
    assert!(seen == noise(0x4000, 6)[0x1010..0x1110]);
    driver.machine.bus_write(maps[0].bus_address() + 0x3fff, b"!").unwrap();
    let mut last = [0];
    maps[0].read(0x3fff, &mut last).unwrap();
    assert_eq!(&last, b"!");
    let gone = maps[1].bus_address();
    drop(maps);
    assert_eq!(driver.machine.bus_read(gone, &mut seen), None);
}

/// GPU memory in a file that another program shows as a BAR: its devices write into buffers by their bus addresses.
#[test]
fn memory_of_a_shared_file_stands_on_the_bus_in_the_order_of_the_file() {
    const BUS: u64 = 0x10_0000_0000;
    let file = tempfile(64 << 20);
    let driver = SoftDriver::with_video(Mode::Strict, file.as_fd(), BUS).unwrap();
    let space = AddressSpace::new(&Device::open(Arc::new(driver), 0).unwrap()).unwrap();
    let (a, b) = (space.alloc_video(0x4000).unwrap(), space.alloc_video(2 << 20).unwrap());
    b.write(0, &noise(2 << 20, 8));
    let maps = [&a, &b, &b].map(|memory| Bar1Map::of(memory, 0x1234, 0x1000).unwrap());
    let [at_a, at_b, again] = maps.each_ref().map(|map| map.bus_range().unwrap());
    assert!(at_b == again && at_a.address != at_b.address && at_b.length == 0x1000);
    let mut seen = vec![0; 0x1000];
    file.read_exact_at(&mut seen, at_b.address - BUS).unwrap();
    assert!(seen == noise(2 << 20, 8)[0x1234..0x2234]);
    file.write_all_at(&noise(0x1000, 9), at_a.address - BUS).unwrap();
    a.read(0x1234, &mut seen);
    assert!(seen == noise(0x1000, 9));
    // The other map of the same memory still works.
    let [_, first, second] = maps;
    drop(first);
    assert!(driver.machine.bus_read(second.bus_address(), &mut seen).is_some());
    // Also drops the CPU's mapping of all of it, which ends with the memory.
    drop((second, b));
    assert_eq!(driver.machine.bus_read(at_b.address, &mut seen), None);
    // The next owner must not see the old contents.
    let (before, length) = (a.va(), a.length());
    drop(a);
    let next = space.alloc_video(length).unwrap();
    assert!(contents(&next).iter().all(|&byte| byte == 0), "{before:#x}");
    assert!(space.alloc_video(128 << 20).is_err(), "more than the file has");
}

fn tempfile(bytes: u64) -> std::fs::File {
    let fd = unsafe { libc::memfd_create(c"video".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.set_len(bytes).unwrap();
    file
}

#[test]
fn memory_stays_while_it_is_mapped() {
    let (driver, space) = machine();
    let memory = space.alloc_video(0x1000).unwrap();
    let map = Bar1Map::of(&memory, 0, 0x1000).unwrap();
    drop(memory);
    map.store32(0, 1).unwrap();
    let next = space.alloc_video(0x1000).unwrap();
    map.write(0, &noise(0x1000, 7)).unwrap();
    assert!(contents(&next).iter().all(|&byte| byte == 0));
    drop((map, next));
    assert_eq!(driver.machine.bar1_mappings(), (0, 0));
}

#[test]
fn threads_share_a_map() {
    let (_, space) = machine();
    let memory = space.alloc_video(0x8000).unwrap();
    let map = Bar1Map::of(&memory, 0, 0x8000).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8u64 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..200 {
                    let data = noise(0xfff, number * 1000 + round);
                    map.write(number * 0x1000 + 1, &data).unwrap();
                    let mut back = vec![0; 0xfff];
                    map.read(number * 0x1000 + 1, &mut back).unwrap();
                    assert!(back == data);
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A window over memory behaves like the memory itself, wherever the window is.
    #[test]
    fn an_aperture_is_the_memory(
        size in 1..20u64,
        window in 1..6u64,
        steps in prop::collection::vec((any::<bool>(), any::<u32>(), 0..0x4000usize, any::<u64>()), 1..20),
    ) {
        let (driver, space) = machine();
        let memory = space.alloc_video(size * 0x1000).unwrap();
        let size = memory.length();
        let mut model = noise(size as usize, 8);
        memory.write(0, &model);
        let standing = driver.machine.bar1_mappings();
        let mut aperture = Aperture::with_window(&memory, window * 0x1000 - 5).unwrap();
        for (write, at, length, seed) in steps {
            let at = u64::from(at) % (size + 1);
            let length = length.min((size - at) as usize);
            let range = at as usize..at as usize + length;
            if write {
                let data = noise(length, seed);
                aperture.write(at, &data).unwrap();
                model[range].copy_from_slice(&data);
            } else {
                let mut back = vec![0; length];
                aperture.read(at, &mut back).unwrap();
                prop_assert!(back == model[range]);
            }
            if let Some(seen) = aperture.window() {
                prop_assert_eq!(seen.end - seen.start, (window * 0x1000).min(size));
                prop_assert!(seen.end <= size);
            }
        }
        prop_assert!(contents(&memory) == model);
        drop(aperture);
        prop_assert_eq!(driver.machine.bar1_mappings(), standing);
    }
}

#[test]
fn a_window_moves_only_where_it_must() {
    let (driver, space) = machine();
    let memory = space.alloc_video(64 << 20).unwrap();
    let (count, bytes) = driver.machine.bar1_mappings();
    let mut aperture = Aperture::of(&memory).unwrap();
    assert_eq!((aperture.window(), aperture.moves()), (None, 0));
    let data = noise(10 << 20, 9);
    aperture.write((5 << 20) + 0x123, &data).unwrap();
    assert_eq!(aperture.moves(), 3, "10 MiB through windows of 4");
    assert_eq!(driver.machine.bar1_mappings(), (count + 1, bytes + Aperture::WINDOW));
    let mut back = vec![0; 10 << 20];
    memory.read((5 << 20) + 0x123, &mut back);
    assert!(back == data);
    aperture.move_to((8 << 20) + 0x1fff).unwrap();
    assert_eq!(aperture.window(), Some((8 << 20) + 0x1000..(12 << 20) + 0x1000));
    aperture.move_to((8 << 20) + 0x1000).unwrap();
    aperture.write(9 << 20, &data[..1 << 20]).unwrap();
    assert_eq!(aperture.moves(), 4);
    aperture.move_to((64 << 20) - 1).unwrap();
    assert_eq!(aperture.window(), Some(60 << 20..64 << 20));
    assert!(matches!(aperture.move_to(64 << 20), Err(Error::Outside { .. })));
    assert!(matches!(aperture.write((64 << 20) - 1, b"12"), Err(Error::Outside { .. })));
    assert!(matches!(Aperture::with_window(&memory, 0), Err(Error::Length(0))));
    assert_eq!((aperture.window(), aperture.moves()), (Some(60 << 20..64 << 20), 5));
}

/// The software GPU with injected errors.
struct Troubled {
    inner: SoftDriver,
    /// The call that fails with EIO, counted from 1 since this was set.
    fail: AtomicU32,
    /// A control that clients have no permission for.
    denied: u32,
    /// All GPU memory is in BAR1, in physical order.
    scattered: AtomicBool,
}

impl Troubled {
    fn open(denied: u32) -> (Arc<Troubled>, Arc<Device>) {
        let inner = SoftDriver::new(Mode::Strict);
        let driver = Arc::new(Troubled { inner, fail: AtomicU32::new(0), denied, scattered: AtomicBool::new(false) });
        let device = Device::open(driver.clone(), 0).unwrap();
        (driver, device)
    }

    fn turn(&self) -> io::Result<()> {
        match self.fail.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(1) => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }
}

impl Layer for Troubled {
    fn below(&self) -> &dyn Driver {
        &self.inner
    }

    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        self.turn()?;
        self.inner.open(path)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        self.turn()?;
        if rm::abi::rm_nr(request) == Some(rm::abi::nr::CONTROL) {
            let call = unsafe { &mut *arg.cast::<rm::abi::Nvos54>() };
            if call.cmd == self.denied {
                // NV_ERR_INSUFFICIENT_PERMISSIONS
                call.status = 0x1b;
                return Ok(());
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.inner.ioctl(fd, request, arg)? };
        if rm::abi::rm_nr(request) == Some(rm::abi::nr::CONTROL) && self.scattered.load(Ordering::Relaxed) {
            let call = unsafe { &*arg.cast::<rm::abi::Nvos54>() };
            if call.cmd == rm::abi::control::STATIC_BAR1_INFO {
                unsafe { (*(call.params as *mut rm::abi::control::StaticBar1Info)).enabled = 1 };
            }
        }
        Ok(())
    }

    unsafe fn mmap(
        &self,
        addr: *mut c_void,
        len: usize,
        prot: i32,
        flags: i32,
        fd: RawFd,
        offset: i64,
    ) -> io::Result<*mut c_void> {
        self.turn()?;
        // SAFETY: as the caller promises.
        unsafe { self.inner.mmap(addr, len, prot, flags, fd, offset) }
    }
}

#[test]
fn whatever_fails_half_way_is_taken_back() {
    let (driver, device) = Troubled::open(0);
    let space = AddressSpace::new(&device).unwrap();
    let memory = space.alloc_video(0x8000).unwrap();
    let mut aperture = Aperture::with_window(&memory, 0x2000).unwrap();
    aperture.write(0, b"here").unwrap();
    let standing = driver.inner.machine.bar1_mappings();
    // RM_DUP_OBJECT, open, REGISTER_FD, RM_MAP_MEMORY, mmap.
    for call in 1..=5 {
        driver.fail.store(call, Ordering::Relaxed);
        let error = Bar1Map::of(&memory, 0, 0x1000).unwrap_err();
        assert_eq!(driver.fail.load(Ordering::Relaxed), 0, "{error}");
        assert_eq!(driver.inner.machine.bar1_mappings(), standing, "after call {call}: {error}");
    }
    for call in 1..=4 {
        driver.fail.store(call, Ordering::Relaxed);
        let error = aperture.move_to(0x5000).unwrap_err();
        assert_eq!(aperture.window(), Some(0..0x2000), "after call {call}: {error}");
        assert_eq!(driver.inner.machine.bar1_mappings(), standing);
        let mut back = [0; 4];
        aperture.read(0, &mut back).unwrap();
        assert_eq!(&back, b"here");
    }
    driver.fail.store(0, Ordering::Relaxed);
    aperture.move_to(0x5000).unwrap();
    assert_eq!(aperture.moves(), 2);
}

#[test]
fn bus_addresses_are_promised_only_as_far_as_they_go_on() {
    let (driver, device) = Troubled::open(0);
    let space = AddressSpace::new(&device).unwrap();
    let memory = space.alloc_video(0x8000).unwrap();
    let maps = [(0u64, 0x8000u64), (0x1ff0, 0x1000), (0x10, 0x20)].map(|(at, n)| Bar1Map::of(&memory, at, n).unwrap());
    assert_eq!(maps.each_ref().map(|map| map.bus_range().unwrap().length), [0x8000, 0x1000, 0x20]);
    driver.scattered.store(true, Ordering::Relaxed);
    assert_eq!(maps.each_ref().map(|map| map.bus_range().unwrap().length), [0x1000, 0x10, 0x20]);
}

fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The software GPU's clock is CLOCK_MONOTONIC in steps of 32 ns, so the true value is known.
#[test]
fn correlations_hold_the_truth() {
    let (_, space) = machine();
    let clock = space.device().clock();
    let tsc = || unsafe { std::arch::x86_64::_rdtsc() };
    let first = clock.correlate();
    assert!(first.error_ns >= 32 && (100_000_000..20_000_000_000).contains(&first.tsc_hz), "{first:?}");
    std::thread::sleep(Duration::from_millis(30));
    let second = clock.correlate();
    let drift = first.drift(&second).expect("time has passed");
    for _ in 0..100 {
        let (before, now, after) = (tsc(), monotonic(), tsc());
        let slack = second.error_ns + 1 + (after - before) * 1_000_000_000 / second.tsc_hz
            // 100 ppm for the tsc's measured rate.
            + (after - second.tsc) / (second.tsc_hz / 100_000).max(1);
        let guess = second.gpu_ns_at(before);
        assert!(guess.abs_diff(now) <= slack, "{guess} {now} {slack} {second:?}");
        assert!(second.tsc_at(guess).abs_diff(before) <= second.tsc_hz / 100_000_000);
    }
    // By the rate seen, the first correlation predicts the second one's moment.
    assert!(drift.gpu_ns_at(second.tsc).abs_diff(second.gpu_ns) <= 1);
    assert!(drift.ppm().abs() <= drift.error_ppm() + 1000.0, "{} {}", drift.ppm(), drift.error_ppm());
}

#[test]
fn engines_are_named_with_what_they_can() {
    let (_, space) = machine();
    let engines = space.device().engines().unwrap();
    assert_eq!(engines.iter().map(|engine| engine.number).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    let graphics: Vec<_> = engines.iter().filter(|engine| engine.is_graphics()).map(|engine| engine.number).collect();
    assert_eq!(graphics, [0, 1]);
    for engine in &engines {
        assert_ne!(*engine.physical.as_ref().unwrap(), 0);
        assert_ne!(engine.is_graphics(), engine.is_asynchronous());
        let sharing =
            engines.iter().any(|other| other.number != engine.number && engine.shares_with(other) == Some(true));
        assert_eq!(sharing, engine.caps.names().any(|name| name == "SHARED"), "{engine:?}");
        // Each accepts a channel.
        Channel::new(&space, Engine::Copy(engine.number), ChannelOptions::default()).unwrap();
    }
    assert_eq!(
        engines[2].caps.to_string(),
        "SHARED | SYSMEM | P2P | BL_SIZE_GT_64K_SUPPORTED | SUPPORTS_NONPIPELINED_BL | SUPPORTS_PIPELINED_BL"
    );
}

#[test]
fn what_the_driver_does_not_tell_is_an_error_by_name() {
    let open = |control| Troubled::open(control).1;
    let error = open(0x2080_2a0a).engines().unwrap_err().to_string();
    assert!(error.contains("NV2080_CTRL_CMD_CE_GET_ALL_CAPS") && error.contains("(0x1b)"), "{error}");
    let engines = open(0x2080_2a02).engines().unwrap();
    assert_eq!(engines.len(), 10);
    let error = engines[3].physical.as_ref().unwrap_err().to_string();
    assert!(error.contains("NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK"), "{error}");
    assert_eq!(engines[3].shares_with(&engines[1]), None);
    assert!(engines[0].is_graphics());
    let space = AddressSpace::new(&open(0x2080_1354)).unwrap();
    let memory = space.alloc_video(0x1000).unwrap();
    let error = Bar1Map::of(&memory, 0, 64).unwrap().bus_range().unwrap_err().to_string();
    assert!(error.contains("NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO"), "{error}");
}

#[test]
fn memory_of_another_client_is_mapped_until_it_is_freed() {
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static gpu::Watched = Box::leak(Box::default());
    let theirs = Device::open(Arc::new(gpu::Watching(driver, watched)), 0).unwrap();
    let theirs = AddressSpace::new(&theirs).unwrap();
    let (memory, other) = (theirs.alloc_video(0x10000).unwrap(), theirs.alloc_video(0x1000).unwrap());
    let host = theirs.alloc_host(0x1000).unwrap();
    memory.write(0, &noise(0x10000, 20));
    for entry in [gpu::Entry::OwnClient, gpu::Entry::CudasClient] {
        let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), entry).unwrap();
        let standing = driver.machine.bar1_mappings();
        let pin = Arc::new(ours.pin(memory.va() + 0x1200, 0x8000).unwrap());
        let map = Bar1Map::of_pin(&pin, 0x34, 0x2000).unwrap();
        let mut seen = vec![0; 0x2000];
        map.read(0, &mut seen).unwrap();
        assert!(seen == noise(0x10000, 20)[0x1234..0x3234], "{entry:?}");
        let mut aperture = Aperture::of_pin(&pin, 0x3000).unwrap();
        let data = noise(0x8000, 21);
        aperture.write(0, &data).unwrap();
        assert_eq!(aperture.moves(), 3);
        let mut back = vec![0; 0x8000];
        memory.read(0x1200, &mut back);
        assert!(back == data);
        assert!(matches!(aperture.write(0x7fff, b"12"), Err(Error::Outside { .. })));
        assert!(matches!(Bar1Map::of_pin(&pin, 0x7000, 0x1001), Err(Error::Outside { .. })));
        let pinned = Arc::new(ours.pin(host.va(), 64).unwrap());
        assert!(matches!(Bar1Map::of_pin(&pinned, 0, 64), Err(Error::NotVideo)));
        drop((map, aperture));
        assert_eq!(driver.machine.bar1_mappings(), standing);
        memory.write(0, &noise(0x10000, 20));
    }
    let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), gpu::Entry::OwnClient).unwrap();
    let pin = Arc::new(ours.pin(memory.va(), 0x10000).unwrap());
    let map = Bar1Map::of_pin(&pin, 0, 0x10000).unwrap();
    let mut aperture = Aperture::of_pin(&pin, 0x1000).unwrap();
    // Dropping other memory has no effect on them.
    drop(other);
    map.store32(0, 1).unwrap();
    aperture.write(0x5000, b"still").unwrap();
    drop(memory);
    // Other memory, at the same address unless another test of this process was faster.
    let again = theirs.alloc_video(0x10000).unwrap();
    assert!(matches!(map.write(0, b"lost"), Err(Error::Stale)));
    assert!(matches!(map.read(0, &mut [0]), Err(Error::Stale)));
    assert!(matches!((map.load32(0), map.store64(0, 1)), (Err(Error::Stale), Err(Error::Stale))));
    assert!(matches!(aperture.read(0, &mut [0]), Err(Error::Stale)));
    assert!(matches!(aperture.move_to(0x9000), Err(Error::Stale)));
    assert!(matches!(Bar1Map::of_pin(&pin, 0, 4), Err(Error::Stale)));
    assert!(contents(&again).iter().all(|&byte| byte == 0));
    let fresh = Arc::new(ours.pin(again.va(), 0x10000).unwrap());
    Bar1Map::of_pin(&fresh, 0, 0x10000).unwrap().write(0, b"new").unwrap();
    assert_eq!(&contents(&again)[..3], b"new");
}

/// In a fork's child every call is an error, and the child's drop does not free the parent's resources.
#[test]
fn a_forks_child_has_no_map() {
    let (driver, space) = machine();
    let memory = space.alloc_video(0x2000).unwrap();
    let map = Bar1Map::of(&memory, 0, 0x2000).unwrap();
    let mut aperture = Aperture::of(&memory).unwrap();
    let standing = driver.machine.bar1_mappings();
    // SAFETY: the child makes no call that another thread's lock could block, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(map.write(0, b"child"), Err(Error::Forked))
            && matches!(map.load32(0), Err(Error::Forked))
            && matches!(aperture.move_to(0), Err(Error::Forked));
        drop((map, aperture));
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert_eq!(driver.machine.bar1_mappings(), standing);
    map.write(0, b"parent").unwrap();
    aperture.write(0x1ffa, b"parent").unwrap();
    assert_eq!((&contents(&memory)[..6], &contents(&memory)[0x1ffa..]), (&b"parent"[..], &b"parent"[..]));
}

/// Adopted pages: a copy engine reads and writes them, and they outlive the GPU's access to them.
#[test]
fn pages_of_somebody_else_are_reached_as_long_as_the_gpu_may() {
    let (_driver, space) = machine();
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            0x5000,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let at = std::ptr::NonNull::new(at.cast::<u8>()).unwrap();
    let keep = Arc::new(());
    let adopted = unsafe { space.adopt_host(at, 0x5000, keep.clone()) }.unwrap();
    assert_eq!((adopted.va(), adopted.place()), (at.as_ptr() as u64, gpu::Place::Host));
    assert!(unsafe { space.adopt_host(at, 0x1001, keep.clone()) }.is_err(), "no whole pages");
    let video = space.alloc_video(0x5000).unwrap();
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    adopted.write(0, &noise(0x5000, 11));
    for (to, from) in [(&video, &adopted), (&adopted, &video)] {
        let mut copy =
            gpu::Prepared::copy(&mut channel, &to.region(), &from.region(), 0x5000, gpu::CopyMode::Plain).unwrap();
        let ticket = copy.submit(&mut channel).unwrap();
        channel.wait(ticket, TIMEOUT).unwrap();
        assert!(contents(to) == noise(0x5000, 11));
        to.write(0, &noise(0x5000, 12));
        video.write(0, &noise(0x5000, 11));
        drop(copy);
    }
    assert_eq!(Arc::strong_count(&keep), 2);
    drop(adopted);
    assert_eq!(Arc::strong_count(&keep), 1);
    // They are still mapped.
    assert_eq!(unsafe { at.as_ptr().read() }, noise(1, 12)[0]);
}
