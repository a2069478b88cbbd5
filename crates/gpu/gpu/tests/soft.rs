//! The crate on the software GPU, in process.

use doorbell_softgpu::{Mode, Planted, SoftDriver};
use gpu::{
    AddressSpace, Bar, Channel, ChannelOptions, Device, DeviceOptions, Engine, Error, Place, Pushbuffer, Semaphores,
    Site,
};
use pushbuf::encode::Lines;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use test_support::noise;

const TIMEOUT: Duration = Duration::from_secs(10);

struct Rig {
    driver: SoftDriver,
    device: Arc<Device>,
    space: Arc<AddressSpace>,
    semaphores: Semaphores,
}

fn rig() -> Rig {
    let driver = SoftDriver::new(Mode::Strict);
    let device = Device::open(Arc::new(driver), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let semaphores = Semaphores::new(&space).unwrap();
    Rig { driver, device, space, semaphores }
}

fn every_option() -> Vec<ChannelOptions> {
    let mut all = Vec::new();
    let places = [Place::Video, Place::Host];
    for (gpfifo, userd) in places.into_iter().flat_map(|a| places.map(|b| (a, b))) {
        for bar in [Bar::Bar0, Bar::Bar1] {
            for site in [Site::Libcuda, Site::Displacement] {
                all.push(ChannelOptions { gpfifo, userd, bar, site, entries: 16, ..Default::default() });
            }
        }
    }
    all
}

#[test]
fn handles_go_to_other_threads() {
    fn send<T: Send>() {}
    fn shared<T: Sync>() {}
    send::<Channel>();
    send::<Pushbuffer>();
    send::<gpu::Validated>();
    shared::<gpu::Semaphore>();
    shared::<AddressSpace>();
}

#[test]
fn device_tells_what_it_is() {
    let rig = rig();
    assert!(rig.device.is_soft());
    assert_eq!(rig.device.driver_version(), "580.159.04");
    let error = Device::open(Arc::new(rig.driver), 1).unwrap_err();
    assert!(matches!(error, Error::NoDevice { index: 1, count: 1 }), "{error}");
}

#[test]
fn clock_goes_on_and_is_the_semaphores_clock() {
    let rig = rig();
    let clock = rig.device.clock();
    let mut channel = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let semaphore = rig.semaphores.alloc().unwrap();
    let before = clock.now();
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.copy_release(&semaphore, 1).unwrap();
    channel.submit(&pushbuffer.validate(&channel).unwrap()).unwrap();
    semaphore.wait(1, TIMEOUT).unwrap();
    assert!(before <= semaphore.timestamp() && semaphore.timestamp() <= clock.now());
}

#[test]
fn copies_with_every_option_wrap_the_ring() {
    let rig = rig();
    let source = rig.space.alloc_host(1 << 16).unwrap();
    let target = rig.space.alloc_video(1 << 16).unwrap();
    for options in every_option() {
        let mut channel = Channel::new(&rig.space, Engine::Copy(2), options).unwrap();
        let done = rig.semaphores.alloc().unwrap();
        for n in 1..100 {
            let data = noise(5000, n);
            source.write(0, &data);
            let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
            pushbuffer.copy(target.va(), source.va(), 5000).unwrap().copy_release(&done, n as u32).unwrap();
            channel.submit(&pushbuffer.validate(&channel).unwrap()).unwrap();
            done.wait(n as u32, TIMEOUT).unwrap();
            let mut back = vec![0; 5000];
            target.read(0, &mut back);
            assert!(back == data, "{options:?}, round {n}");
        }
    }
}

#[test]
fn lines_fills_pipelined_copies_and_inline() {
    let rig = rig();
    let (a, b) = (rig.space.alloc_host(1 << 16).unwrap(), rig.space.alloc_video(1 << 16).unwrap());
    let done = rig.semaphores.alloc().unwrap();
    let mut copy = Channel::new(&rig.space, Engine::Copy(1), ChannelOptions::default()).unwrap();
    let mut graphics = Channel::new(&rig.space, Engine::Graphics, ChannelOptions::default()).unwrap();
    let data = noise(1 << 16, 1);
    a.write(0, &data);
    let mut pushbuffer = Pushbuffer::new(&rig.space, 256).unwrap();
    let lines = Lines { src: a.va(), dst: b.va(), src_pitch: 128, dst_pitch: 256, bytes: 100, lines: 10 };
    pushbuffer.copy_lines(lines).unwrap();
    pushbuffer.fill(b.va() + 0x8000, 0xdead_beef, 100).unwrap();
    pushbuffer.copy_pipelined(b.va() + 0x9000, a.va(), 64).unwrap().copy_release(&done, 1).unwrap();
    copy.submit(&pushbuffer.validate(&copy).unwrap()).unwrap();
    done.wait(1, TIMEOUT).unwrap();
    let mut back = vec![0; 1 << 16];
    b.read(0, &mut back);
    for line in 0..10 {
        assert_eq!(back[line * 256..][..100], data[line * 128..][..100]);
    }
    assert_eq!(back[0x8000..0x8190], 0xdead_beef_u32.to_le_bytes().repeat(100));
    assert_eq!(back[0x9000..0x9040], data[..64]);
    let mut pushbuffer = Pushbuffer::new(&rig.space, 2048).unwrap();
    pushbuffer.inline(b.va() + 0xa000, &data[..4097]).unwrap().host_release(&done, 2).unwrap();
    graphics.submit(&pushbuffer.validate(&graphics).unwrap()).unwrap();
    done.wait(2, TIMEOUT).unwrap();
    b.read(0, &mut back);
    assert_eq!(back[0xa000..0xa000 + 4097], data[..4097]);
}

#[test]
fn a_launch_runs_on_the_software_gpu() {
    let rig = rig();
    let mut channel = Channel::new(&rig.space, Engine::Graphics, ChannelOptions::default()).unwrap();
    let qmd = rig.space.alloc_host(0x1000).unwrap();
    // QMD_MAJOR_VERSION 583:580 = 4
    qmd.word(18 * 4).store(4 << 4, Ordering::Relaxed);
    let done = rig.semaphores.alloc().unwrap();
    // The QMD is not granted yet.
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.launch(qmd.va()).unwrap();
    assert!(matches!(pushbuffer.validate(&channel), Err(Error::Invalid(_))));
    // SAFETY: a QMD without blocks runs no code.
    unsafe { channel.grant_launches([qmd.va()]) };
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.launch(qmd.va()).unwrap().host_release(&done, 1).unwrap();
    channel.submit(&pushbuffer.validate(&channel).unwrap()).unwrap();
    done.wait(1, TIMEOUT).unwrap();
    assert_eq!(rig.driver.counters().launches.load(Ordering::Relaxed), 1);
}

#[test]
fn a_prepared_pushbuffer_is_submitted_thousands_of_times() {
    let rig = rig();
    let mut channel = Channel::new(&rig.space, Engine::Copy(3), ChannelOptions::default()).unwrap();
    let (a, b) = (rig.space.alloc_host(0x1000).unwrap(), rig.space.alloc_video(0x1000).unwrap());
    let done = rig.semaphores.alloc().unwrap();
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.copy(b.va(), a.va(), 64).unwrap();
    let pushbuffer = pushbuffer.validate(&channel).unwrap();
    let mut submitted = 0;
    while submitted < 5000 {
        match channel.submit(&pushbuffer) {
            Ok(_) => submitted += 1,
            Err(Error::RingFull(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    let mut last = Pushbuffer::new(&rig.space, 64).unwrap();
    last.copy_release(&done, 1).unwrap();
    let last = last.validate(&channel).unwrap();
    while let Err(error) = channel.submit(&last) {
        assert!(matches!(error, Error::RingFull(_)), "{error}");
    }
    done.wait(1, TIMEOUT).unwrap();
    assert_eq!(rig.driver.counters().copies.load(Ordering::Relaxed), 5000);
}

#[test]
fn one_doorbell_for_several_and_entries_without_words() {
    let rig = rig();
    let mut channel = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let done = rig.semaphores.alloc().unwrap();
    let prepared: Vec<_> = (1..=10)
        .map(|n| {
            let mut pushbuffer = Pushbuffer::new(&rig.space, 16).unwrap();
            pushbuffer.host_release(&done, n).unwrap();
            pushbuffer.validate(&channel).unwrap()
        })
        .collect();
    let before = rig.driver.counters().doorbells.load(Ordering::Relaxed);
    channel.submit_all(&prepared.iter().collect::<Vec<_>>()).unwrap();
    done.wait(10, TIMEOUT).unwrap();
    assert_eq!(rig.driver.counters().doorbells.load(Ordering::Relaxed), before + 1);
    for _ in 0..3000 {
        while channel.submit_nop().is_err() {
            std::thread::yield_now();
        }
    }
    assert!(channel.entries_written() >= 3011);
}

#[test]
fn a_full_ring_is_an_error_and_drains() {
    let rig = rig();
    let options = ChannelOptions { entries: 16, ..Default::default() };
    let mut channel = Channel::new(&rig.space, Engine::Copy(0), options).unwrap();
    let (gate, done) = (rig.semaphores.alloc().unwrap(), rig.semaphores.alloc().unwrap());
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.host_acquire(&gate, 1).unwrap();
    channel.submit(&pushbuffer.validate(&channel).unwrap()).unwrap();
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.host_release(&done, 5).unwrap();
    let pushbuffer = pushbuffer.validate(&channel).unwrap();
    let full = (0..16).find_map(|_| channel.submit(&pushbuffer).err()).expect("16 do not fit");
    assert!(matches!(full, Error::RingFull(_)), "{full}");
    assert_eq!(done.value(), 0);
    let pushbuffer = match pushbuffer.reuse() {
        Err(still_in_flight) => still_in_flight,
        Ok(_) => panic!("the GPU may still read it"),
    };
    gate.set(1);
    done.wait(5, TIMEOUT).unwrap();
    let again = std::time::Instant::now();
    while channel.submit(&pushbuffer).is_err() {
        assert!(again.elapsed() < TIMEOUT);
    }
}

#[test]
fn a_blocked_channel_does_not_stop_the_others() {
    let rig = rig();
    let mut waiting = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut other = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let (gate, done) = (rig.semaphores.alloc().unwrap(), rig.semaphores.alloc().unwrap());
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.host_acquire(&gate, 1).unwrap().host_release(&done, 7).unwrap();
    waiting.submit(&pushbuffer.validate(&waiting).unwrap()).unwrap();
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.host_release(&gate, 1).unwrap();
    assert!(done.wait(7, Duration::from_millis(20)).is_err());
    other.submit(&pushbuffer.validate(&other).unwrap()).unwrap();
    done.wait(7, TIMEOUT).unwrap();
}

#[test]
fn eight_channels_in_eight_threads() {
    let rig = rig();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let rig = &rig;
            scope.spawn(move || {
                let engine = if number % 2 == 0 { Engine::Copy(number) } else { Engine::Graphics };
                let mut channel = Channel::new(&rig.space, engine, ChannelOptions::default()).unwrap();
                let target = rig.space.alloc_video(0x1000).unwrap();
                let source = rig.space.alloc_host(0x1000).unwrap();
                let done = rig.semaphores.alloc().unwrap();
                for n in 1..200u32 {
                    let data = noise(1000, u64::from(n * 8 + number));
                    source.write(0, &data);
                    let mut pushbuffer = Pushbuffer::new(&rig.space, 512).unwrap();
                    match engine {
                        Engine::Copy(_) => pushbuffer.copy(target.va(), source.va(), 1000).unwrap(),
                        Engine::Graphics => pushbuffer.inline(target.va(), &data).unwrap(),
                    };
                    pushbuffer.host_release(&done, n).unwrap();
                    // Other threads free memory at the same time: this thread's pushbuffers do not become stale.
                    channel.submit(&pushbuffer.validate(&channel).unwrap()).unwrap();
                    done.wait(n, TIMEOUT).unwrap();
                }
            });
        }
    });
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_unmapped_elsewhere_makes_nothing_stale() {
    let rig = rig();
    let mut channel = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let other = rig.space.alloc_host(0x1000).unwrap();
    let done = rig.semaphores.alloc().unwrap();
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.host_release(&done, 1).unwrap();
    let pushbuffer = pushbuffer.validate(&channel).unwrap();
    let generation = rig.space.generation();
    drop(other);
    assert_ne!(rig.space.generation(), generation);
    channel.submit(&pushbuffer).unwrap();
    done.wait(1, TIMEOUT).unwrap();
}

#[test]
fn what_is_unmapped_makes_a_pushbuffer_stale() {
    let rig = rig();
    let mut channel = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let (a, b) = (rig.space.alloc_host(0x1000).unwrap(), rig.space.alloc_video(0x1000).unwrap());
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.copy(b.va(), a.va(), 64).unwrap();
    let mut pushbuffer = pushbuffer.validate(&channel).unwrap();
    channel.submit(&pushbuffer).unwrap();
    let done = rig.semaphores.alloc().unwrap();
    let mut last = Pushbuffer::new(&rig.space, 64).unwrap();
    last.copy_release(&done, 1).unwrap();
    channel.submit(&last.validate(&channel).unwrap()).unwrap();
    done.wait(1, TIMEOUT).unwrap();
    drop(b);
    assert!(matches!(channel.submit(&pushbuffer), Err(Error::Stale)));
    assert!(matches!(pushbuffer.revalidate(&channel), Err(Error::Invalid(_))));
    assert_eq!(channel.error(), None);
}

#[test]
fn rings_and_pushbuffers_are_not_to_be_named() {
    let rig = rig();
    let channel = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let source = rig.space.alloc_host(0x1000).unwrap();
    let mut victim = Pushbuffer::new(&rig.space, 64).unwrap();
    victim.raw(&[0]).unwrap();
    let victim = victim.validate(&channel).unwrap();
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64).unwrap();
    pushbuffer.copy(victim.va(), source.va(), 64).unwrap();
    assert!(matches!(pushbuffer.validate(&channel), Err(Error::Invalid(_))));
}

#[test]
fn a_pushbuffer_is_for_its_space_and_kind_of_channel() {
    let rig = rig();
    let other = AddressSpace::new(&Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap()).unwrap();
    let mut copy = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut graphics = Channel::new(&rig.space, Engine::Graphics, ChannelOptions::default()).unwrap();
    let mut foreign = Pushbuffer::new(&other, 16).unwrap();
    foreign.raw(&[0]).unwrap();
    assert!(matches!(foreign.validate(&copy), Err(Error::OtherChannel)));
    let target = rig.space.alloc_host(0x1000).unwrap();
    let mut inline = Pushbuffer::new(&rig.space, 64).unwrap();
    inline.inline(target.va(), b"data").unwrap();
    let inline = inline.validate(&graphics).unwrap();
    assert!(matches!(copy.submit(&inline), Err(Error::OtherChannel)));
    graphics.submit(&inline).unwrap();
}

#[test]
fn options_that_make_no_ring_are_refused() {
    let rig = rig();
    for entries in [0, 4, 12, 1000, 2048] {
        let options = ChannelOptions { entries, ..Default::default() };
        assert!(matches!(Channel::new(&rig.space, Engine::Copy(0), options), Err(Error::Entries(_))));
    }
    assert!(Channel::new(&rig.space, Engine::Copy(10), ChannelOptions::default()).is_err(), "an H100 has ten");
    assert!(matches!(rig.space.alloc_host(0), Err(Error::Length(0))));
    assert!(rig.space.alloc_host(u64::MAX).is_err());
}

#[test]
fn addresses_are_low_and_the_same_for_cpu_and_gpu() {
    let rig = rig();
    let channel = Channel::new(&rig.space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let memory = rig.space.alloc_host(0x1000).unwrap();
    assert!(memory.va() >= 0x2_0060_0000 && memory.va() < 1 << 40);
    assert_eq!(memory.as_ptr() as u64, memory.va());
    assert!(rig.space.contains(memory.va(), 0x1000) && !rig.space.contains(memory.va(), 0x1001));
    // CUDA's own layout, unless another test of this process uses the address at the moment.
    assert!(channel.gpfifo_va() >= 0x2_0060_0000 && (channel.gpfifo_va() % 0x20_0000).is_multiple_of(0x3000));
}

/// The software GPU without its mark.
struct Unmarked(SoftDriver);

impl rm::driver::Driver for Unmarked {
    fn open(&self, path: &std::ffi::CStr) -> std::io::Result<i32> {
        self.0.open(path)
    }

    unsafe fn ioctl(&self, fd: i32, request: u64, arg: *mut std::ffi::c_void) -> std::io::Result<()> {
        // SAFETY: the caller's contract; CARD_INFO's argument is an array of CardInfo.
        unsafe {
            self.0.ioctl(fd, request, arg)?;
            if rm::abi::rm_nr(request) == Some(rm::abi::nr::CARD_INFO) {
                (*arg.cast::<rm::abi::CardInfo>()).dev_name = [0; 10];
            }
        }
        Ok(())
    }

    unsafe fn mmap(
        &self,
        a: *mut std::ffi::c_void,
        l: usize,
        p: i32,
        f: i32,
        fd: i32,
        o: i64,
    ) -> std::io::Result<*mut std::ffi::c_void> {
        // SAFETY: the caller's contract.
        unsafe { self.0.mmap(a, l, p, f, fd, o) }
    }

    unsafe fn munmap(&self, a: *mut std::ffi::c_void, l: usize) -> std::io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.0.munmap(a, l) }
    }

    fn close(&self, fd: i32) -> std::io::Result<()> {
        self.0.close(fd)
    }
}

#[test]
fn real_hardware_is_refused_unless_it_is_allowed() {
    let driver = Arc::new(Unmarked(SoftDriver::new(Mode::Strict)));
    let error = Device::open(driver.clone(), 0).unwrap_err();
    assert!(matches!(error, Error::RealHardware { index: 0 }), "{error}");
    let device = DeviceOptions::default().allow_real(true).open(driver, 0).unwrap();
    assert!(!device.is_soft());
    // Kernels' memory accesses cannot be validated there.
    let space = AddressSpace::new(&device).unwrap();
    let channel = Channel::new(&space, Engine::Graphics, ChannelOptions::default()).unwrap();
    let qmd = space.alloc_host(0x1000).unwrap();
    let mut pushbuffer = Pushbuffer::new(&space, 16).unwrap();
    pushbuffer.launch(qmd.va()).unwrap();
    assert!(matches!(pushbuffer.validate(&channel), Err(Error::Invalid(_))));
}

#[test]
fn a_pushbuffer_that_no_gpfifo_entry_can_count_is_refused() {
    let rig = rig();
    let most = (1 << 21) - 1;
    for words in [0, most + 1, 1 << 30, usize::MAX / 4 + 2, usize::MAX / 2 + 2, usize::MAX] {
        let refused = Pushbuffer::new(&rig.space, words).unwrap_err();
        assert!(matches!(refused, Error::Words(n) if n == words) || words == 0, "{words}: {refused}");
    }
    // The longest pushbuffer is executed completely.
    let mut channel = Channel::new(&rig.space, Engine::Graphics, ChannelOptions::default()).unwrap();
    let done = rig.semaphores.alloc().unwrap();
    let mut pushbuffer = Pushbuffer::new(&rig.space, most).unwrap();
    pushbuffer.raw(&vec![0; most - 6]).unwrap().host_release(&done, 7).unwrap();
    assert_eq!(pushbuffer.len(), most);
    let pushbuffer = pushbuffer.validate(&channel).unwrap();
    let ticket = channel.submit(&pushbuffer).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(done.value(), 7);
}

#[test]
fn a_doorbell_that_is_missed_is_rung_again_also_for_those_that_only_poll() {
    // The first doorbell is the new channel's own submission.
    let driver = SoftDriver::broken(Mode::Strict, Planted::LostDoorbell { nth: 2 });
    let device = Device::open(Arc::new(driver), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let done = Semaphores::new(&space).unwrap().alloc().unwrap();
    let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let mut pushbuffer = Pushbuffer::new(&space, 16).unwrap();
    pushbuffer.copy_release(&done, 1).unwrap();
    let pushbuffer = pushbuffer.validate(&channel).unwrap();
    let ticket = channel.submit(&pushbuffer).unwrap();
    let start = Instant::now();
    while !channel.done(ticket) {
        assert!(start.elapsed() < TIMEOUT, "nobody rings again");
        // The interval of the polls does not matter.
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((done.value(), channel.rung_again()), (1, 1));
}
