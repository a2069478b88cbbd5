//! The kernel's records of context switches: one event and one buffer for each CPU (perf_event_open(2)).
//!
//! If allowed, every switch of a CPU is recorded, with both threads. Otherwise only the processes that this thread
//! starts are watched, without the other thread of a switch. Times are CLOCK_MONOTONIC: in a virtual machine the kernel
//! offers no way to convert its own perf clock into the time stamp counter.
//!
//! A thread's records alternate, out and in, from the moment when all CPUs are watched. Earlier records are left out: while
//! the buffers are opened one after the other, a thread may leave a CPU that is watched and run on one that is not yet
//! watched. Only a loss, which has its own record, breaks the alternation.

use crate::clock;
use perf_event_open_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::bindings as abi;

/// Bytes of a buffer: enough for a tenth of a second in which the recorder does not run (100,000 records in 4 MiB). If
/// the kernel gives less, as much as it gives: 512 KiB a CPU to users without privileges (perf_event_mlock_kb).
const BUFFER: std::ops::RangeInclusive<usize> = 32 << 10..=4 << 20;
/// Bytes of all buffers together.
const ALL: usize = 64 << 20;
const PAGE: usize = 4096;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Switch(Switch),
    /// This many records were lost before this one.
    Lost {
        time: u64,
        records: u64,
    },
    /// A thread got a name, padded with zeros.
    Name {
        time: u64,
        pid: i32,
        tid: i32,
        name: [u8; 16],
    },
}

/// A thread left a CPU or got one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    pub pid: i32,
    pub tid: i32,
    pub cpu: u32,
    pub out: bool,
    pub preempted: bool,
    /// Process and thread that follow it, or preceded it; `None` if only the program is watched.
    pub other: Option<(i32, i32)>,
}

impl Record {
    pub fn time(&self) -> u64 {
        match self {
            Record::Switch(s) => s.time,
            Record::Lost { time, .. } | Record::Name { time, .. } => *time,
        }
    }

    /// The record at the start of `b` (`None` if it is of no interest) and its length. Outer `None`: no record.
    fn parse(b: &[u8]) -> Option<(Option<Record>, usize)> {
        let u32_at = |i: usize| b.get(i..i + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
        let u64_at = |i: usize| b.get(i..i + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
        // perf_event_header: type u32, misc u16, size u16.
        let (kind, sizes) = (u32_at(0)?, u32_at(4)?);
        let (misc, len) = (sizes & 0xffff, (sizes >> 16) as usize);
        if len < 8 || len > b.len() {
            return None;
        }
        // PERF_SAMPLE_TID, _TIME, _CPU, at the end of every record (sample_id_all).
        const ID: usize = 24;
        let record = || {
            let id = len.checked_sub(ID)?;
            let (pid, tid, time, cpu) = (u32_at(id)? as i32, u32_at(id + 4)? as i32, u64_at(id + 8)?, u32_at(id + 16)?);
            let switch = |other| {
                let out = misc & abi::PERF_RECORD_MISC_SWITCH_OUT != 0;
                let preempted = out && misc & abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0;
                Record::Switch(Switch { time, pid, tid, cpu, out, preempted, other })
            };
            match kind {
                abi::PERF_RECORD_SWITCH => Some(switch(None)),
                abi::PERF_RECORD_SWITCH_CPU_WIDE if id >= 16 => {
                    Some(switch(Some((u32_at(8)? as i32, u32_at(12)? as i32))))
                }
                abi::PERF_RECORD_COMM if id >= 16 => {
                    let mut name = [0; 16];
                    let text = b.get(16..id)?.iter().take_while(|b| **b != 0);
                    name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
                    Some(Record::Name { time, pid: u32_at(8)? as i32, tid: u32_at(12)? as i32, name })
                }
                abi::PERF_RECORD_LOST if id >= 24 => Some(Record::Lost { time, records: u64_at(16)? }),
                _ => None,
            }
        };
        Some((record(), len))
    }
}

/// The buffers of all CPUs.
pub struct Buffers {
    cpus: Vec<Buffer>,
    /// When all buffers were open, CLOCK_MONOTONIC, ns.
    since: u64,
    /// Every thread of the machine is watched, not only the program's.
    pub whole_machine: bool,
}

/// Why there are no buffers.
#[derive(Debug, thiserror::Error)]
#[error("perf_event_open: {cause} (kernel.perf_event_paranoid is {paranoid}; CAP_PERFMON, or 0 there, allows it)")]
pub struct Refused {
    cause: io::Error,
    paranoid: String,
}

impl Refused {
    pub fn because(cause: io::Error) -> Refused {
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
        Refused { cause, paranoid: paranoid.map_or_else(|_| "not known".into(), |s| s.trim().to_owned()) }
    }
}

impl Buffers {
    /// Opens the buffers. If only the program may be watched, they watch the processes that this thread starts from now
    /// on.
    pub fn open() -> Result<Buffers, Refused> {
        Buffers::of(true).or_else(|_| Buffers::of(false)).map_err(Refused::because)
    }

    fn of(whole_machine: bool) -> io::Result<Buffers> {
        let cpus = each_cpu(|cpu, n| {
            let most = (ALL / n).clamp(*BUFFER.start(), *BUFFER.end());
            Buffer::open(cpu, whole_machine, (most + 1).next_power_of_two() / 2)
        })?;
        Ok(Buffers::together(cpus, whole_machine))
    }

    /// Buffers that are now all open.
    fn together(cpus: Vec<Buffer>, whole_machine: bool) -> Buffers {
        Buffers { cpus, since: clock::near().monotonic_ns, whole_machine }
    }

    /// Switches the kernel's records on or off.
    pub fn watch(&mut self, on: bool) {
        self.cpus.iter().for_each(|b| enable(&b.event, on));
        if on {
            self.since = clock::near().monotonic_ns;
        }
    }

    /// Takes all records, CPU by CPU. Events during the call may be taken from one CPU and missing from another.
    pub fn take(&mut self, mut f: impl FnMut(Record)) {
        let since = self.since;
        let mut counts = |r: Record| {
            if r.time() >= since {
                f(r);
            }
        };
        self.cpus.iter_mut().for_each(|b| b.take(|bytes| each(bytes, &mut counts)));
    }
}

/// A software event. Its records have times of CLOCK_MONOTONIC.
pub fn attribute(config: abi::perf_sw_ids) -> abi::perf_event_attr {
    let mut a = abi::perf_event_attr {
        type_: abi::PERF_TYPE_SOFTWARE,
        size: size_of::<abi::perf_event_attr>() as u32,
        config: config.into(),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    a.set_use_clockid(1);
    a.set_sample_id_all(1);
    a
}

/// Opens an event on a CPU, for all threads or for this thread's later children.
pub fn event(mut a: abi::perf_event_attr, cpu: i32, whole_machine: bool) -> io::Result<OwnedFd> {
    let pid = if whole_machine {
        -1
    } else {
        // Allowed without privileges. Children and their threads inherit it.
        a.set_exclude_kernel(1);
        a.set_exclude_hv(1);
        a.set_inherit(1);
        0
    };
    // SAFETY: a filled attribute. The returned descriptor has no other owner.
    unsafe {
        match sys::perf_event_open(&mut a, pid, cpu, -1, abi::PERF_FLAG_FD_CLOEXEC.into()) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Starts or stops an event, and the events of children that have inherited it.
pub fn enable(event: &OwnedFd, on: bool) {
    let fd = event.as_raw_fd();
    // SAFETY: an event of this recorder. (It changes its state, or stays as it was: then more is recorded than
    // requested.)
    unsafe { if on { sys::ioctls::ENABLE(fd, 0) } else { sys::ioctls::DISABLE(fd, 0) } };
}

/// Calls `f` for each online CPU, and returns the results. The first error ends it.
pub fn each_cpu<T>(mut f: impl FnMut(i32, usize) -> io::Result<T>) -> io::Result<Vec<T>> {
    // SAFETY: the call only reads a setting.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.clamp(1, 4096) as usize;
    let mut all = Vec::new();
    for cpu in 0..n as i32 {
        match f(cpu, n) {
            Ok(made) => all.push(made),
            // The CPU is not online.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
            Err(e) => return Err(e),
        }
    }
    if all.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(all) }
}

pub struct Buffer {
    event: OwnedFd,
    base: *mut u8,
    /// Bytes of records, a power of two. They begin one page after `base`.
    bytes: usize,
    /// A copy of the records being read.
    copy: Vec<u8>,
}

impl Buffer {
    /// `bytes`: a power of two.
    fn open(cpu: i32, whole_machine: bool, bytes: usize) -> io::Result<Buffer> {
        let mut a = attribute(abi::PERF_COUNT_SW_DUMMY);
        a.sample_type = (abi::PERF_SAMPLE_TID | abi::PERF_SAMPLE_TIME | abi::PERF_SAMPLE_CPU).into();
        a.set_context_switch(1);
        a.set_comm(1);
        Buffer::map(event(a, cpu, whole_machine)?, bytes)
    }

    /// The buffer of an event: `bytes` bytes, a power of two, or fewer if the kernel allows fewer.
    pub fn map(event: OwnedFd, mut bytes: usize) -> io::Result<Buffer> {
        loop {
            // SAFETY: a fresh mapping of this event's descriptor.
            let base = unsafe {
                let rights = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(std::ptr::null_mut(), PAGE + bytes, rights, libc::MAP_SHARED, event.as_raw_fd(), 0)
            };
            if base != libc::MAP_FAILED {
                return Ok(Buffer { event, base: base.cast(), bytes, copy: Vec::new() });
            }
            let e = io::Error::last_os_error();
            if bytes <= *BUFFER.start() {
                return Err(e);
            }
            bytes /= 2;
        }
    }

    /// The event that has this buffer.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the first page, which lives as long as `self` and which the kernel writes to.
        unsafe { &*self.base.add(offset).cast() }
    }

    /// Its bytes of records.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the records, as bytes.
    pub fn take(&mut self, f: impl FnOnce(&[u8])) {
        let (head, tail) = (
            self.word(std::mem::offset_of!(abi::perf_event_mmap_page, data_head)),
            self.word(std::mem::offset_of!(abi::perf_event_mmap_page, data_tail)),
        );
        // ORDERING: Acquire pairs with the kernel's barrier before it moves the head, so the records are complete.
        let (to, from) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let n = to.wrapping_sub(from).min(self.bytes as u64) as usize;
        let at = (from % self.bytes as u64) as usize;
        let mut copy = std::mem::take(&mut self.copy);
        copy.clear();
        // SAFETY: both pieces are in the mapped buffer, and the kernel does not write there before the tail moves.
        unsafe {
            let data = self.base.add(PAGE);
            let first = n.min(self.bytes - at);
            copy.extend_from_slice(std::slice::from_raw_parts(data.add(at), first));
            copy.extend_from_slice(std::slice::from_raw_parts(data, n - first));
        }
        // ORDERING: Release, so that the copy is made before the kernel may write there again.
        self.word(std::mem::offset_of!(abi::perf_event_mmap_page, data_tail)).store(to, Ordering::Release);
        f(&copy);
        self.copy = copy;
    }
}

/// Calls `f` with the records in `bytes`, up to the first bytes that are no record.
fn each(mut bytes: &[u8], f: &mut impl FnMut(Record)) {
    while let Some((record, len)) = Record::parse(bytes) {
        record.into_iter().for_each(&mut *f);
        bytes = bytes.get(len..).unwrap_or_default();
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: this buffer's own mapping, with no remaining references.
        unsafe { libc::munmap(self.base.cast(), PAGE + self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u32, body: &[u32], id: (i32, i32, u64, u32)) -> Vec<u8> {
        let len = 8 + 4 * body.len() as u32 + 24;
        let mut words = vec![kind, misc | len << 16];
        words.extend(body);
        words.extend([id.0 as u32, id.1 as u32, id.2 as u32, (id.2 >> 32) as u32, id.3, 0]);
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn all() -> Vec<u8> {
        let mut b = record(15, 0x6000, &[70, 71], (7, 8, 1 << 40, 3));
        b.extend(record(2, 0, &[1, 0, 500, 0], (0, 0, 5, 0)));
        b.extend(record(1, 0, &[9, 9, 9], (0, 0, 6, 0)));
        b.extend(record(3, 0, &[7, 8, u32::from_ne_bytes(*b"abc\0"), u32::MAX], (7, 8, 6, 0)));
        b.extend(record(14, 0, &[], (7, 9, 7, 1)));
        b
    }

    #[test]
    fn records_are_read_as_the_kernel_writes_them() {
        let mut found = Vec::new();
        each(&all(), &mut |r| found.push(r));
        let out = Switch { time: 1 << 40, pid: 7, tid: 8, cpu: 3, out: true, preempted: true, other: Some((70, 71)) };
        let back = Switch { time: 7, tid: 9, cpu: 1, out: false, preempted: false, other: None, ..out };
        let name = Record::Name { time: 6, pid: 7, tid: 8, name: *b"abc\0\0\0\0\0\0\0\0\0\0\0\0\0" };
        assert_eq!(found, [Record::Switch(out), Record::Lost { time: 5, records: 500 }, name, Record::Switch(back)]);
    }

    #[test]
    fn no_bytes_make_it_panic_or_go_round() {
        let whole = all();
        for n in 0..whole.len() {
            each(&whole[..n], &mut |_| {});
        }
        for at in 0..whole.len() * 8 {
            let mut b = whole.clone();
            b[at / 8] ^= 1 << (at % 8);
            let mut n = 0;
            each(&b, &mut |_| n += 1);
            assert!(n <= b.len() / 8);
        }
    }

    fn out_and_in(found: &[Record], of: impl Fn(&Switch) -> bool) -> Vec<bool> {
        let one = |r: &Record| match r {
            Record::Switch(s) if of(s) => Some(s.out),
            _ => None,
        };
        found.iter().filter_map(one).collect()
    }

    #[test]
    fn own_switches_are_seen_where_that_is_allowed() {
        let mut buffers = match Buffers::open() {
            Ok(b) => b,
            Err(e) => test_support::skip!("{e}"),
        };
        // SAFETY: no arguments.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as i32 };
        let mut found = Vec::new();
        for _ in 0..500 {
            // A thread that is preempted on its way into a sleep may not sleep at all.
            std::thread::sleep(std::time::Duration::from_millis(20));
            buffers.take(|r| found.push(r));
            let mine = out_and_in(&found, |s| s.tid == me && !s.preempted);
            if mine.contains(&true) && mine.contains(&false) {
                return;
            }
        }
        panic!("{found:?}");
    }

    /// Keeps this thread on one CPU.
    fn stay_on(cpu: usize) {
        // SAFETY: zeros are an empty set. The call reads it, for this thread.
        let error = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set)
        };
        assert_eq!(error, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_thread_that_moves_while_the_buffers_are_opened_is_not_seen_to_leave_twice() {
        let (_, mask) = crate::sched::cpus(0);
        let allowed: Vec<usize> = (0..128).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 != 0).collect();
        let [a, b, ..] = allowed[..] else { test_support::skip!("one CPU") };
        let open = |cpu: usize, whole| Buffer::open(cpu as i32, whole, 256 << 10);
        stay_on(a);
        let (first, whole) = match open(a, true).map(|first| (first, true)).or_else(|_| Ok((open(a, false)?, false))) {
            Ok(opened) => opened,
            Err::<_, io::Error>(e) => test_support::skip!("{e}"),
        };
        // The thread's switch out on the first CPU is recorded, its switch in on the second is not.
        stay_on(b);
        let mut buffers = Buffers::together(vec![first, open(b, whole).unwrap()], whole);
        stay_on(a);
        stay_on(b);
        let mut found = Vec::new();
        buffers.take(|r| found.push(r));
        found.sort_by_key(Record::time);
        // SAFETY: no arguments.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as i32 };
        let mine = out_and_in(&found, |s| s.tid == me);
        let lost = found.iter().any(|r| matches!(r, Record::Lost { .. }));
        let turns = mine.iter().enumerate().all(|(n, out)| *out == n.is_multiple_of(2));
        assert!(lost || mine.len() >= 4 && turns, "out, in, out, in: {found:?}");
    }
}
