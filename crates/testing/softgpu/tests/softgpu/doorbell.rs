//! Doorbells: the trap, the snapshot, and the layers of signal handlers.

use crate::rig::*;
use doorbell_softgpu::Mode;
use rm::class;
use rm::driver::{self, Driver};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// SIGSEGV handlers belong to the process: these tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    poison::ignore(LOCK.lock())
}

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

struct Page {
    at: *mut u8,
    fd: i32,
}

impl Page {
    fn new(rig: &Rig, prot: i32) -> Page {
        let object =
            driver::alloc_bytes(&rig.driver, rig.ctl, rig.client, rig.subdevice, 0, class::HOPPER_USERMODE_A, &mut [])
                .unwrap();
        let fd = rig.fresh(VIDEO);
        driver::map_memory(&rig.driver, rig.ctl, rig.client, rig.subdevice, object, 0, 0x10000, 0, fd).unwrap();
        Page { at: Self::map(rig, fd, prot), fd }
    }

    fn map(rig: &Rig, fd: i32, prot: i32) -> *mut u8 {
        unsafe { rig.driver.mmap(std::ptr::null_mut(), 0x10000, prot, libc::MAP_SHARED, fd, 0) }.unwrap().cast()
    }

    fn store(&self, offset: usize, value: u32) {
        store(self.at, offset, value);
    }

    /// A `mov`: the decoder does not know comparisons with memory, into which a load may be folded.
    #[inline(never)]
    fn load(&self, offset: usize) -> u32 {
        unsafe { self.at.add(offset).cast::<u32>().read_volatile() }
    }
}

fn store(page: *mut u8, offset: usize, value: u32) {
    unsafe { page.add(offset).cast::<u32>().write_volatile(value) };
}

fn doorbells(rig: &Rig) -> u64 {
    rig.counters().doorbells.load(Ordering::Relaxed)
}

#[test]
fn a_store_to_the_doorbell_runs_the_channel() {
    let _alone = alone();
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let page = Page::new(&rig, libc::PROT_WRITE);
    let before = doorbells(&rig);
    for n in 1..50 {
        channel.push(&host_sem(SRC, n, 1));
        page.store(0x90, channel.token);
        assert_eq!(channel.finish(), None);
        assert_eq!(rig.src.u32(0), n as u32);
    }
    assert_eq!(doorbells(&rig) - before, 49);
}

#[test]
fn a_missing_ring_leaves_work_undone() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    channel.push(&host_sem(SRC, 1, 1));
    settle();
    assert_eq!(rig.src.u32(0), 0);
    channel.bell();
    assert_eq!(channel.finish(), None);
    assert_eq!(rig.src.u32(0), 1);
}

#[test]
fn a_ring_covers_only_the_gp_put_of_its_moment() {
    let rig = Rig::new();
    let (channel, gate) = (rig.copy_channel(), SRC + 0x100);
    channel.push(&[host_sem(gate, 1, 0), host_sem(SRC, 1, 1)].concat());
    channel.bell();
    // Written while the first is blocked, and never rung.
    channel.push(&host_sem(SRC, 2, 1));
    rig.src.set(0x100, 1);
    until(|| rig.src.u32(0) == 1);
    settle();
    assert_eq!(rig.src.u32(0), 1);
    channel.bell();
    until(|| rig.src.u32(0) == 2);
}

#[test]
fn one_ring_covers_all_entries_before_it() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    for n in 1..=5 {
        channel.push(&host_sem(SRC + 16 * n, n, 1));
    }
    let before = doorbells(&rig);
    channel.bell();
    assert_eq!(channel.finish(), None);
    assert_eq!(rig.src.u32(80), 5);
    assert_eq!(doorbells(&rig) - before, 1);
}

#[test]
fn another_channels_token_does_not_run_this_one() {
    let rig = Rig::new();
    let (channel, other) = (rig.copy_channel(), rig.copy_channel());
    channel.push(&host_sem(SRC, 1, 1));
    other.bell();
    settle();
    assert_eq!(rig.src.u32(0), 0);
    let counters = rig.counters();
    assert_eq!(counters.empty_doorbells.load(Ordering::Relaxed), 1);
    rig.driver.machine.ring(0x7777);
    assert_eq!(counters.unknown_tokens.load(Ordering::Relaxed), 1);
}

#[test]
fn stores_next_to_the_doorbell_do_not_ring() {
    let _alone = alone();
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let page = Page::new(&rig, RW);
    channel.push(&host_sem(SRC, 1, 1));
    page.store(0x94, channel.token);
    page.store(0x1090, channel.token);
    settle();
    assert_eq!(rig.src.u32(0), 0);
}

#[test]
fn ptimer_and_flush_register_read() {
    let _alone = alone();
    let rig = Rig::new();
    let page = Page::new(&rig, libc::PROT_WRITE);
    let time = |page: &Page| u64::from(page.load(0x84)) << 32 | u64::from(page.load(0x80));
    let (first, second) = (time(&page), time(&page));
    assert!(first > 0 && second >= first && second - first < 1_000_000_000);
    rig.copy_channel().ok(&host_sem(SRC, 1, 1 | 1 << 25));
    assert!(rig.src.u64(8) >= second, "the same clock as the semaphores'");
    assert_eq!(page.load(0x94), 0);
}

#[test]
fn a_second_mapping_of_the_same_file_is_another_doorbell() {
    let _alone = alone();
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let page = Page::new(&rig, RW);
    let second = Page::map(&rig, page.fd, RW);
    assert_ne!(page.at, second);
    channel.push(&host_sem(SRC, 1, 1));
    store(second, 0x90, channel.token);
    assert_eq!(channel.finish(), None);
}

#[test]
fn a_moved_doorbell_still_rings() {
    let _alone = alone();
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let page = Page::new(&rig, RW);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let target = unsafe { libc::mmap(std::ptr::null_mut(), 0x10000, libc::PROT_NONE, flags, -1, 0) };
    let move_flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let moved = unsafe { libc::mremap(page.at.cast(), 0x10000, 0x10000, move_flags, target) };
    assert_eq!(moved, target);
    channel.push(&host_sem(SRC, 1, 1));
    store(target.cast(), 0x90, channel.token);
    assert_eq!(channel.finish(), None);
}

#[test]
fn a_doorbell_mapped_twice_by_mremap_rings_at_both_places() {
    let _alone = alone();
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let page = Page::new(&rig, RW);
    let second = unsafe { libc::mremap(page.at.cast(), 0, 0x10000, libc::MREMAP_MAYMOVE) };
    assert_ne!(second, libc::MAP_FAILED);
    for (n, at) in [(1, page.at), (2, second.cast())] {
        channel.push(&host_sem(SRC, n, 1));
        store(at, 0x90, channel.token);
        assert_eq!(channel.finish(), None);
    }
}

#[test]
fn doorbells_that_move_while_threads_ring_lose_nothing() {
    let _alone = alone();
    let rig = Rig::new();
    let page = Page::new(&rig, RW);
    let second = unsafe { libc::mremap(page.at.cast(), 0, 0x10000, libc::MREMAP_MAYMOVE) };
    let before = doorbells(&rig);
    let (at, stop) = (page.at as usize, AtomicU32::new(0));
    std::thread::scope(|scope| {
        let stop = &stop;
        let ringer = scope.spawn(move || {
            let mut rung = 0;
            while stop.load(Ordering::Relaxed) == 0 {
                store(at as *mut u8, 0x90, 0x7777);
                rung += 1;
            }
            rung
        });
        let mut spare = second;
        for _ in 0..300 {
            // Another mapping replaces the one that is being rung.
            let more = unsafe { libc::mremap(page.at.cast(), 0, 0x10000, libc::MREMAP_MAYMOVE) };
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let moved = unsafe { libc::mremap(spare, 0x10000, 0x10000, flags, page.at.cast::<c_void>()) };
            assert_eq!(moved, page.at.cast());
            spare = more;
        }
        stop.store(1, Ordering::Relaxed);
        let rung = ringer.join().unwrap();
        assert_eq!(doorbells(&rig) - before, rung);
    });
}

#[test]
fn ring_pages_may_be_moved_and_shadowed() {
    let rig = Rig::new();
    let channel = rig.copy_channel();
    // As a tap does it: the real ring a second time elsewhere, ordinary memory moved over the first.
    let elsewhere = unsafe { libc::mremap(channel.ring.cpu.cast(), 0, 0x3000, libc::MREMAP_MAYMOVE) };
    assert_ne!(elsewhere, libc::MAP_FAILED);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let shadow = unsafe { libc::mmap(std::ptr::null_mut(), 0x3000, RW, flags, -1, 0) };
    let move_flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let place: *mut c_void = channel.ring.cpu.cast();
    assert_eq!(unsafe { libc::mremap(shadow, 0x3000, 0x3000, move_flags, place) }, place);
    let real = Mem { va: channel.ring.va, handle: 0, cpu: elsewhere.cast() };
    channel.ring.write(0x2088, &real.read(0x2088, 8));
    channel.push(&host_sem(SRC, 1, 1));
    channel.bell();
    settle();
    assert_eq!(rig.src.u32(0), 0, "the shadow is not the ring");
    let put = channel.put.get();
    real.write(8, &channel.ring.read(8, 8));
    real.set(0x208c, put);
    channel.bell();
    until(|| rig.src.u32(0) == 1);
    until(|| real.u32(0x2088) == put);
}

#[test]
fn poll_needs_no_doorbell() {
    let rig = Rig::with(Mode::Poll);
    let channel = rig.channel(rm::class::engine::COPY0, class::HOPPER_CHANNEL_GPFIFO_A, 64);
    channel.push(&host_sem(SRC, 3, 1));
    until(|| rig.src.u32(0) == 3);
    let page = Page::new(&rig, RW);
    page.store(0x90, channel.token);
    assert_eq!(page.load(0x90), channel.token, "plain memory");
    let first = page.load(0x80);
    until(|| page.load(0x80) != first);
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static REAL: AtomicUsize = AtomicUsize::new(0);
static SHADOW: AtomicUsize = AtomicUsize::new(0);

/// As in a tap's handler: takes the store that the shadow page did not allow, and rings the real page itself.
extern "C" fn tap(_: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    use trap::Registers;
    let address = unsafe { (*info).si_addr() } as usize;
    let shadow = SHADOW.load(Ordering::Relaxed);
    assert!((shadow..shadow + 0x10000).contains(&address));
    let mut registers = unsafe { trap::ucontext::Context::from_handler(context) }.unwrap();
    let code = unsafe { std::slice::from_raw_parts(registers.rip() as *const u8, 15) };
    let access = trap::decode(code).unwrap();
    let token = trap::store_value(&access, &registers).unwrap() as u32;
    trap::advance(&access, &mut registers);
    CALLS.fetch_add(1, Ordering::Relaxed);
    store(REAL.load(Ordering::Relaxed) as *mut u8, address - shadow, token);
}

fn handle(handler: usize, flags: i32) -> libc::sigaction {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        // Everything blocked, SIGSEGV too: a nested fault must get through all the same.
        libc::sigfillset(&mut action.sa_mask);
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(doorbell_softgpu::signal::sigaction(libc::SIGSEGV, &action, &mut old), 0);
        old
    }
}

#[test]
fn a_page_that_the_program_protected_faults_in_the_layer_above_which_may_ring_itself() {
    let _alone = alone();
    let rig = Rig::new();
    let channel = rig.copy_channel();
    let page = Page::new(&rig, RW);
    REAL.store(Page::map(&rig, page.fd, RW) as usize, Ordering::Relaxed);
    SHADOW.store(page.at as usize, Ordering::Relaxed);
    // Registered without SA_NODEFER, as a handler that never expects to fault would be.
    let old = handle(tap as *const () as usize, libc::SA_SIGINFO);
    assert_eq!(unsafe { libc::mprotect(page.at.cast(), 0x10000, libc::PROT_READ) }, 0);
    CALLS.store(0, Ordering::Relaxed);
    assert!(page.load(0x80) > 0 || page.load(0x84) > 0, "loads are still allowed");
    assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    for n in 1..20 {
        channel.push(&host_sem(SRC, n, 1));
        page.store(0x90, channel.token);
        assert_eq!(channel.finish(), None);
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), 19);
    let back = handle(old.sa_sigaction, old.sa_flags);
    assert_eq!(back.sa_sigaction, tap as *const () as usize, "sigaction returns what was registered");
}

#[test]
fn sixteen_threads_ring_and_nothing_is_lost() {
    let _alone = alone();
    let rig = Rig::new();
    let page = Page::new(&rig, RW);
    let at = page.at as usize;
    let before = doorbells(&rig);
    let channels: Vec<_> = (0..8).map(|_| rig.copy_channel()).collect();
    let rung = before + 8 + 8 * 500;
    // Two threads per channel; the one with the lock has the ring.
    let locks: Vec<Mutex<()>> = channels.iter().map(|_| Mutex::new(())).collect();
    struct Shared<'a>(&'a [Chan<'a>]);
    unsafe impl Sync for Shared<'_> {}
    let shared = Shared(&channels);
    std::thread::scope(|scope| {
        let (shared, locks) = (&shared, &locks);
        for thread in 0..16 {
            scope.spawn(move || {
                let channel = &shared.0[thread % 8];
                for n in 0..250 {
                    let guard = locks[thread % 8].lock().unwrap();
                    channel.push(&host_sem(SRC + 16 * thread as u64, n + 1, 1));
                    drop(guard);
                    // Outside the lock: two rings of one channel may arrive in any order.
                    store(at as *mut u8, 0x90, channel.token);
                }
            });
        }
    });
    for channel in &channels {
        assert_eq!(channel.finish(), None);
    }
    for thread in 0..16 {
        assert_eq!(rig.src.u32(16 * thread), 250);
    }
    assert_eq!(doorbells(&rig), rung);
    assert_eq!(rig.counters().entries.load(Ordering::Relaxed), 8 + 8 * 500);
}
