//! A driver that returns nonsense must lead to an error with a text, never a panic, a wrong mapping or a leak.
//!
//! The answers are those of the software GPU's driver, one or a few of them spoilt: the struct of the call, and the
//! bytes that its parameters point to.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Bar1Map, Channel, ChannelOptions, CopyMode, Device, Engine, Entry, Prepared, Watched, Watching,
};
use proptest::prelude::*;
use rm::abi::{self, Nvos54, Nvos64, Plain, nr, uvm};
use rm::driver::{Driver, Layer};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How an answer is damaged.
#[derive(Clone, Copy, Debug)]
enum Spoil {
    Zeros,
    Ones,
    /// One bit, by its number.
    Bit(u32),
    /// Other bytes, by their seed.
    Noise(u64),
}

/// Which answers are damaged: the n-th, counted from 0, and how.
#[derive(Clone, Debug)]
struct Plan(Vec<(u32, Spoil)>);

#[derive(Debug, Default)]
struct Account {
    calls: u32,
    open: BTreeSet<RawFd>,
    mapped: BTreeSet<(usize, usize)>,
    wild: Vec<String>,
}

#[derive(Debug)]
struct Lying {
    driver: SoftDriver,
    plan: Plan,
    account: Mutex<Account>,
}

impl Lying {
    fn new(plan: Plan) -> Arc<Lying> {
        Arc::new(Lying { driver: SoftDriver::new(Mode::Strict), plan, account: Mutex::default() })
    }

    fn account(&self) -> std::sync::MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }

    fn wild(&self, what: String) {
        self.account().wild.push(what);
    }
}

fn spoil(bytes: &mut [u8], how: Spoil) {
    match how {
        Spoil::Zeros => bytes.fill(0),
        Spoil::Ones => bytes.fill(0xff),
        Spoil::Bit(_) if bytes.is_empty() => {}
        Spoil::Bit(bit) => bytes[bit as usize / 8 % bytes.len()] ^= 1 << (bit % 8),
        Spoil::Noise(seed) => {
            let mut state = seed | 1;
            for byte in bytes {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = (state >> 32) as u8;
            }
        }
    }
}

impl Driver for Lying {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        let fd = self.driver.open(path)?;
        self.account().open.insert(fd);
        Ok(fd)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        let n = {
            let mut account = self.account();
            account.calls += 1;
            account.calls - 1
        };
        let whole = match abi::rm_nr(request) {
            Some(_) => abi::request_size(request),
            None => uvm::size(rm::abi::Branch::usual(), request),
        };
        // SAFETY: the struct belongs to the request.
        let before = unsafe { std::slice::from_raw_parts(arg.cast::<u8>(), whole) };
        let inner = match abi::rm_nr(request) {
            Some(nr::ALLOC) => Nvos64::read(before).map(|call| (call.params, call.params_size)),
            Some(nr::CONTROL) => Nvos54::read(before).map(|call| (call.params, call.params_size)),
            _ => None,
        };
        // SAFETY: the caller's contract.
        unsafe { self.driver.ioctl(fd, request, arg)? };
        for (_, how) in self.plan.0.iter().filter(|(at, _)| *at == n) {
            // SAFETY: the caller's structs, which it lets the driver write to.
            unsafe {
                spoil(std::slice::from_raw_parts_mut(arg.cast(), whole), *how);
                if let Some((at, length)) = inner.filter(|(at, _)| *at != 0) {
                    spoil(std::slice::from_raw_parts_mut(at as *mut u8, length as usize), *how);
                }
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
        if !addr.is_null() && flags & libc::MAP_FIXED_NOREPLACE == 0 || flags & libc::MAP_FIXED != 0 {
            self.wild(format!("mmap of {len:#x} bytes over whatever is at {addr:?}"));
        }
        // SAFETY: the caller's contract.
        let at = unsafe { self.driver.mmap(addr, len, prot, flags, fd, offset)? };
        self.account().mapped.insert((at as usize, len));
        Ok(at)
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        if !self.account().mapped.remove(&(addr as usize, len)) {
            self.wild(format!("munmap of {len:#x} bytes at {addr:?}, which were not mapped"));
            return Ok(());
        }
        // SAFETY: the caller's contract.
        unsafe { self.driver.munmap(addr, len) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        if !self.account().open.remove(&fd) {
            self.wild(format!("close of {fd}, which was not opened"));
        }
        self.driver.close(fd)
    }
}

type Done = Result<(), Box<dyn std::error::Error>>;
type Asks = fn(Arc<dyn Driver>) -> Done;

/// All calls of the driver that need no answer from the GPU.
fn without_a_channel(driver: Arc<dyn Driver>) -> Done {
    let device = Device::open(driver, 0)?;
    let _ = device.engines();
    let space = AddressSpace::new(&device)?;
    let (video, host) = (space.alloc_video(0x3000)?, space.alloc_host(0x1000)?);
    host.write(0, &[1; 0x1000]);
    let map = Bar1Map::of(&video, 0x1000, 0x1000)?;
    map.write(0, &[7; 64])?;
    let _ = map.bus_range();
    Ok(())
}

/// A copy on a channel.
fn with_a_channel(driver: Arc<dyn Driver>) -> Done {
    let device = Device::open(driver, 0)?;
    let space = AddressSpace::new(&device)?;
    let host = space.alloc_host(0x1000)?;
    let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default())?;
    let whole = host.region();
    let (to, from) = (whole.part(0, 64)?, whole.part(64, 64)?);
    let mut copy = Prepared::copy(&mut channel, &to, &from, 64, CopyMode::Plain)?;
    let ticket = copy.submit(&mut channel)?;
    channel.wait(ticket, Duration::from_secs(2))?;
    Ok(())
}

/// Runs `what` against such answers: no wild mapping, no leak, and an error has a text.
fn holds(plan: Plan, what: Asks) -> Result<u32, String> {
    let lying = Lying::new(plan.clone());
    let ended = what(lying.clone());
    let account = lying.account();
    if !account.wild.is_empty() {
        return Err(format!("{plan:?}: {:?}", account.wild));
    }
    if !account.open.is_empty() || !account.mapped.is_empty() {
        return Err(format!("{plan:?}: left open {:?}, mapped {:x?}", account.open, account.mapped));
    }
    match ended {
        Err(error) if error.to_string().len() < 10 => Err(format!("{plan:?}: {error:?}")),
        _ => Ok(account.calls),
    }
}

/// The number of calls when all answers are right.
fn calls(what: Asks) -> u32 {
    let lying = Lying::new(Plan(Vec::new()));
    what(lying.clone()).unwrap();
    let calls = lying.account().calls;
    assert!(calls > 20);
    calls
}

#[test]
fn each_answer_may_be_zeros_or_ones() {
    for n in 0..calls(without_a_channel) {
        for how in [Spoil::Zeros, Spoil::Ones] {
            holds(Plan(vec![(n, how)]), without_a_channel).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_answers_may_be_anything(plan in plans(60)) {
        prop_assert_eq!(holds(plan, without_a_channel).map(drop), Ok(()));
    }
}

fn plans(calls: u32) -> impl Strategy<Value = Plan> {
    let how = prop_oneof![
        Just(Spoil::Zeros),
        Just(Spoil::Ones),
        any::<u32>().prop_map(Spoil::Bit),
        any::<u64>().prop_map(Spoil::Noise)
    ];
    prop::collection::vec((0..calls, how), 1..4).prop_map(Plan)
}

/// Each channel with a wrong token or ring costs a wait of two seconds.
#[test]
#[ignore = "3 s; run by .ci/run"]
fn each_answer_on_the_way_to_a_channel_may_be_zeros_ones_or_noise() {
    let calls = calls(with_a_channel);
    let each = |first: u32| {
        for n in (first..calls).step_by(2) {
            for how in [Spoil::Zeros, Spoil::Ones, Spoil::Noise(n.into())] {
                holds(Plan(vec![(n, how)]), with_a_channel).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| each(1));
        each(0);
    });
}

/// The same for the graph built from CUDA's calls, with a watched driver.
#[test]
fn what_is_watched_may_be_answered_with_anything() {
    let calls = calls(without_a_channel);
    for n in 0..calls {
        for how in [Spoil::Zeros, Spoil::Ones, Spoil::Noise(u64::from(n) << 7), Spoil::Bit(n * 37)] {
            let watched: &'static Watched = Box::leak(Box::default());
            let lying = Lying::new(Plan(vec![(n, how)]));
            let _ = without_a_channel(Arc::new(Watching(Shared(lying.clone()), watched)));
            for gpu in watched.gpus() {
                let entered = watched.address_space(Arc::new(SoftDriver::new(Mode::Strict)), gpu, Entry::OwnClient);
                assert!(entered.is_err(), "what it would enter is gone");
            }
            assert!(lying.account().wild.is_empty(), "{n} {how:?}: {:?}", lying.account().wild);
        }
    }
}

/// One driver for several owners.
#[derive(Debug)]
struct Shared(Arc<Lying>);

impl Layer for Shared {
    fn below(&self) -> &dyn Driver {
        &*self.0
    }
}
