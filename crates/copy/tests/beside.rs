//! Our own routes on CUDA's memory, in CUDA's address space: a stand-in for libcuda whose memory is the software GPU's,
//! allocated by another client whose driver calls are watched.

mod fake;

use copy::{Error, Machine, PinError, names, open, pin, verify};
use cuda::Cuda;
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device, Entry, Watched};
use rm::driver::Driver;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

/// The stand-in is one for the process.
static ONE: Mutex<()> = Mutex::new(());

/// The software GPU's driver under the eyes of what watches CUDA's calls.
struct Watching(SoftDriver, &'static Watched);

impl Driver for Watching {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        let fd = self.0.open(path)?;
        self.1.opened(fd, path.to_bytes());
        Ok(fd)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        let mut answer = Ok(());
        let make = || {
            // SAFETY: the caller's contract.
            answer = unsafe { self.0.ioctl(fd, request, arg) };
            if answer.is_ok() { 0 } else { -1 }
        };
        // SAFETY: the caller's contract.
        unsafe { self.1.ioctl(fd, request, arg, make) };
        answer
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
        // SAFETY: the caller's contract.
        let at = unsafe { self.0.mmap(addr, len, prot, flags, fd, offset)? };
        let (addr, len, offset) = (at as u64, len as u64, offset as u64);
        self.1.mapped(rm::graph::MmapRecord { addr, len, offset, fd, prot: prot as u32, flags: flags as u32 });
        Ok(at)
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        self.1.unmapped(addr as u64, len as u64);
        // SAFETY: the caller's contract.
        unsafe { self.0.munmap(addr, len) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        self.1.closed(fd);
        self.0.close(fd)
    }
}

struct Rig {
    machine: Machine,
    driver: SoftDriver,
    _theirs: Arc<AddressSpace>,
    _one: MutexGuard<'static, ()>,
}

fn rig(entry: Entry) -> Rig {
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    let from = theirs.clone();
    *fake::SOURCE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Box::new(move |kind, bytes| {
        let memory = match kind {
            fake::Kind::Device { .. } => from.alloc_video(bytes as u64),
            _ => from.alloc_host(bytes as u64),
        };
        let memory = memory.unwrap();
        (memory.va(), Box::new(memory) as fake::Keep)
    }));
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), entry).unwrap();
    Rig { machine: Machine::beside(context, ours), driver, _theirs: theirs, _one: one }
}

#[test]
fn every_route_moves_cudas_memory() {
    for entry in [Entry::OwnClient, Entry::CudasClient] {
        let rig = rig(entry);
        for name in [
            "host->cuda->gpu0",
            "gpu0->cuda[sync]->host[pageable]",
            "host->ce0->gpu0",
            "gpu0[offset=3]->ce1[pipelined]->host[offset=5]",
            "host->ce2[folded]->gpu0",
            "host->inline->gpu0[offset=1]",
            "host[pageable]->inline[split]->gpu0",
            "host[pageable]->bar1->gpu0[offset=4097]",
            "gpu0->bar1->host",
            "host->aperture->gpu0[offset=11]",
            "gpu0->aperture->host[registered]",
        ] {
            let mut route = open(&rig.machine, name, 70_001).unwrap();
            for bytes in [1, 2, 3, 7, 8, 4095, 4097, 40_000, 70_001] {
                assert_eq!(verify(&mut *route, bytes, bytes).unwrap(), None, "{entry:?}, {name}, {bytes} bytes");
            }
            drop(route);
            assert_eq!(fake::alive(), [""; 0], "{name} left objects behind");
        }
        assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn what_is_listed_is_there() {
    let rig = rig(Entry::OwnClient);
    for listed in names(&rig.machine) {
        let opened = open(&rig.machine, &listed.name, 100);
        match (listed.unavailable, opened) {
            (None, Ok(mut route)) => assert_eq!(verify(&mut *route, 99, 1).unwrap(), None, "{}", listed.name),
            (Some(why), Err(Error::Unavailable(found))) => assert_eq!(why, found),
            // The stand-in's registered memory is none that the software GPU knows of.
            (None, Err(Error::Unavailable(why))) if listed.name.contains("registered") => {
                assert!(why.reason.contains("not mapped for the GPU"), "{why}");
            }
            (listed, opened) => panic!("{listed:?}, {:?}", opened.err()),
        }
    }
}

#[test]
fn pins_end_where_the_allocation_ends_and_not_where_its_pages_do() {
    let rig = rig(Entry::OwnClient);
    for kind in [fake::Kind::Device { ordinal: 0 }, fake::Kind::Pinned] {
        let memory = fake::plant(kind, 5000);
        let pinned = pin(&rig.machine, memory + 10, 4990).unwrap();
        assert_eq!((pinned.va(), pinned.length()), (memory + 10, 4990));
        let space = rig.machine.space().unwrap();
        assert!(space.contains(memory + 10, 4990) && !space.contains(memory + 10, 4991) && !space.contains(memory, 11));
        let past = pin(&rig.machine, memory + 10, 4991).unwrap_err();
        assert!(matches!(past, Error::Pin(PinError::PastEnd { left: 4990, .. })), "{past}");
        fake::take_back(memory);
        assert!(!space.contains(memory + 10, 4990), "freed under the pin");
        let freed = pin(&rig.machine, memory, 1).unwrap_err();
        assert!(matches!(freed, Error::Pin(PinError::Freed { .. })), "{freed}");
    }
}

#[test]
fn inline_copies_in_cudas_channel_group_need_its_client() {
    // The watched client of this stand-in has no channel, hence no group.
    for entry in [Entry::OwnClient, Entry::CudasClient] {
        let rig = rig(entry);
        let refused = open(&rig.machine, "host->inline[group=cuda]->gpu0", 100).err().unwrap();
        assert!(matches!(&refused, Error::Unavailable(why) if why.reason.contains("group")), "{refused}");
    }
}
