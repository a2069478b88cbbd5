//! Page faults of the program's threads, as events for the tape.
//!
//! Three kernel events on each CPU (perf_event_open(2)): a fault begins, and it ended with or without a wait for a disk. A
//! fault's time is measured from both ends, not guessed. A fault that ends in a signal has no end and is left out. So are
//! the agent's own traps of doorbells.
//!
//! The buffers are separate from those of context switches: a program that touches much new memory may fill them.

use crate::clock;
use crate::perf::{self, Buffer, Refused};
use perf_event_open_sys as sys;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use sys::bindings as abi;
use tape::event::bytes_of;
use tape::fault::{Fault, FaultsBody, MAJOR, MOST, kind};

/// Bytes of a buffer: 10 ms of 1.6 million faults a second. Where locked memory is limited, as much of that as all CPUs get.
const BUFFER: usize = 1 << 20;
const SMALLEST: usize = 32 << 10;
/// Bytes of all buffers together.
const ALL: usize = 64 << 20;
/// The longest record. It does not fit if fewer bytes are free.
const LONGEST: usize = 48;
/// The recorder's files in addition to those of the CPUs, until it may have more.
const FILES: u64 = 128;
/// Events on each CPU, together with the event of context switches.
const EVENTS: u64 = 4;
/// Maximum number of threads in a fault: a fault that ends in a signal leaves one here.
const IN_FAULT: usize = 1 << 16;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Begins {
        time: u64,
        tid: i32,
    },
    Ended {
        time: u64,
        pid: i32,
        tid: i32,
        major: bool,
    },
    /// This many records, or an unknown number if it is 0.
    Lost {
        time: u64,
        records: u64,
    },
}

impl Record {
    pub fn time(&self) -> u64 {
        match self {
            Record::Begins { time, .. } | Record::Ended { time, .. } | Record::Lost { time, .. } => *time,
        }
    }
}

/// The numbers of one CPU's events.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    begins: u64,
    minor: u64,
    major: u64,
}

impl Numbers {
    /// The record at the start of `b` (`None` if it is of no interest) and its length. Outer `None`: no record.
    fn parse(&self, b: &[u8]) -> Option<(Option<Record>, usize)> {
        let u32_at = |i: usize| b.get(i..i + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
        let u64_at = |i: usize| b.get(i..i + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
        // perf_event_header: type u32, misc u16, size u16.
        let len = (u32_at(4)? >> 16) as usize;
        if len < 8 || len > b.len() {
            return None;
        }
        let record = || match u32_at(0)? {
            // PERF_SAMPLE_IDENTIFIER, _TID, _TIME.
            abi::PERF_RECORD_SAMPLE if len >= 32 => {
                let (number, pid, tid, time) = (u64_at(8)?, u32_at(16)? as i32, u32_at(20)? as i32, u64_at(24)?);
                match number {
                    n if n == self.begins => Some(Record::Begins { time, tid }),
                    n if n == self.minor || n == self.major => {
                        Some(Record::Ended { time, pid, tid, major: n == self.major })
                    }
                    _ => None,
                }
            }
            // The same three follow: _TID, _TIME, _IDENTIFIER.
            abi::PERF_RECORD_LOST if len >= 48 => Some(Record::Lost { time: u64_at(32)?, records: u64_at(16)? }),
            _ => None,
        };
        Some((record(), len))
    }
}

struct Cpu {
    buffer: Buffer,
    numbers: Numbers,
    others: [OwnedFd; 2],
}

impl Cpu {
    fn open(cpu: i32, whole_machine: bool, bytes: usize) -> io::Result<Cpu> {
        let open = |config| {
            let mut a = perf::attribute(config);
            a.sample_type = (abi::PERF_SAMPLE_IDENTIFIER | abi::PERF_SAMPLE_TID | abi::PERF_SAMPLE_TIME).into();
            // Every event: with this period the kernel leaves none out.
            a.__bindgen_anon_1.sample_period = 1;
            perf::event(a, cpu, whole_machine)
        };
        let begins = open(abi::PERF_COUNT_SW_PAGE_FAULTS)?;
        let (minor, major) = (open(abi::PERF_COUNT_SW_PAGE_FAULTS_MIN)?, open(abi::PERF_COUNT_SW_PAGE_FAULTS_MAJ)?);
        let numbers = Numbers { begins: number(&begins)?, minor: number(&minor)?, major: number(&major)? };
        let buffer = Buffer::map(begins, bytes)?;
        if buffer.bytes() < bytes {
            // The next CPU would get no buffer.
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        for other in [&minor, &major] {
            // SAFETY: two events of this recorder on the same CPU.
            if unsafe { sys::ioctls::SET_OUTPUT(other.as_raw_fd(), buffer.event().as_raw_fd()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Cpu { buffer, numbers, others: [minor, major] })
    }

    fn take(&mut self, f: &mut impl FnMut(Record)) {
        let numbers = self.numbers;
        let room = self.buffer.bytes();
        self.buffer.take(|mut bytes| {
            // The kernel reports lost records before the next record that fits, which may never arrive.
            let is_full = bytes.len() + LONGEST > room;
            let mut last = 0;
            while let Some((record, len)) = numbers.parse(bytes) {
                last = record.map_or(last, |r| r.time());
                record.into_iter().for_each(&mut *f);
                bytes = bytes.get(len..).unwrap_or_default();
            }
            if is_full {
                f(Record::Lost { time: last, records: 0 });
            }
        });
    }
}

fn number(event: &OwnedFd) -> io::Result<u64> {
    let mut number = 0;
    // SAFETY: the kernel writes one word.
    match unsafe { sys::ioctls::ID(event.as_raw_fd(), &mut number) } {
        0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The buffers of all CPUs.
pub struct Faults {
    cpus: Vec<Cpu>,
    /// When all buffers were open, CLOCK_MONOTONIC, ns.
    since: u64,
    /// Faults in system calls are seen, too.
    pub in_the_kernel: bool,
    /// Records that were too young for the last batch.
    waiting: Vec<Record>,
    /// Threads in a fault, and since when.
    begun: HashMap<i32, u64>,
}

/// A page fault that has ended; CLOCK_MONOTONIC, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    pub pid: i32,
    pub tid: i32,
    pub from: u64,
    pub to: u64,
    pub major: bool,
}

impl Faults {
    /// Opens the buffers. To be called before the program starts.
    pub fn open() -> Result<Faults, String> {
        room()?;
        let of_size = |whole_machine, bytes: usize| {
            let most = |n: usize| ((ALL / n).max(SMALLEST) + 1).next_power_of_two() / 2;
            perf::each_cpu(|cpu, n| Cpu::open(cpu, whole_machine, bytes.min(most(n)))).map(|cpus| (cpus, whole_machine))
        };
        let of = |whole_machine| {
            let mut bytes = BUFFER;
            loop {
                match of_size(whole_machine, bytes) {
                    Err(_) if bytes > SMALLEST => bytes /= 2,
                    opened => return opened,
                }
            }
        };
        let (cpus, in_the_kernel) = of(true).or_else(|_| of(false)).map_err(|e| Refused::because(e).to_string())?;
        let since = clock::near().monotonic_ns;
        Ok(Faults { cpus, since, in_the_kernel, waiting: Vec::new(), begun: HashMap::new() })
    }

    /// Switches the kernel's records on or off.
    pub fn watch(&mut self, on: bool) {
        for cpu in &self.cpus {
            perf::enable(cpu.buffer.event(), on);
            cpu.others.iter().for_each(|event| perf::enable(event, on));
        }
        self.begun.clear();
        self.waiting.clear();
        if on {
            self.since = clock::near().monotonic_ns;
        }
    }

    /// Takes records older than `old`: each fault that had ended by then. Returns the number of lost records, if any.
    pub fn take(&mut self, old: u64, mut f: impl FnMut(Over)) -> Option<u64> {
        let mut records = std::mem::take(&mut self.waiting);
        let since = self.since;
        self.cpus.iter_mut().for_each(|c| {
            c.take(&mut |r| {
                if r.time() >= since {
                    records.push(r);
                }
            });
        });
        self.pair(records, old, &mut f)
    }

    fn pair(&mut self, mut records: Vec<Record>, old: u64, f: &mut impl FnMut(Over)) -> Option<u64> {
        // (Stable: both ends of a fault may have the same time, and were written in their order.)
        records.sort_by_key(Record::time);
        let n = records.partition_point(|r| r.time() < old);
        self.waiting = records.split_off(n);
        let mut lost = None;
        for r in records {
            match r {
                Record::Begins { time, tid } => {
                    if self.begun.len() >= IN_FAULT {
                        self.begun.clear();
                    }
                    self.begun.insert(tid, time);
                }
                Record::Ended { time, pid, tid, major } => {
                    if let Some(from) = self.begun.remove(&tid) {
                        f(Over { pid, tid, from, to: time, major });
                    }
                }
                // An end whose begin was lost would be paired with an older begin.
                Record::Lost { records, .. } => {
                    lost = Some(lost.unwrap_or(0u64).saturating_add(records));
                    self.begun.clear();
                }
            }
        }
        lost
    }
}

/// Checks that this process may open enough files.
fn room() -> Result<(), String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls write only the struct.
    let (r, n) =
        unsafe { (libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), libc::sysconf(libc::_SC_NPROCESSORS_CONF)) };
    let needed = EVENTS * n.clamp(1, 4096) as u64 + FILES;
    if r == 0 && limit.rlim_cur < needed {
        return Err(format!("it takes {needed} files, and {} are allowed (ulimit -n)", limit.rlim_cur));
    }
    Ok(())
}

/// Faults of one thread that make one event.
#[derive(Debug)]
struct Row {
    tid: i32,
    major: bool,
    from: u64,
    to: u64,
    faults: Vec<u8>,
    count: u32,
}

/// Faults of a process until they are written.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Adds a fault between two times, in ticks.
    pub fn add(&mut self, tid: i32, major: bool, from: u64, to: u64) {
        let short = |ticks: u64| u32::try_from(ticks).unwrap_or(u32::MAX);
        let fits = |r: &&mut Row| {
            (r.tid, r.major) == (tid, major)
                && from >= r.to
                && (r.count as usize) < MOST
                && u32::try_from(from - r.to).is_ok()
        };
        let ticks = short(to.saturating_sub(from));
        // (The latest row: an older row of the thread is full, or of the other kind.)
        let row = self.0.iter_mut().rev().find(|r| r.tid == tid);
        match row.filter(fits) {
            Some(r) => {
                r.faults.extend_from_slice(bytes_of(&Fault { after: short(from - r.to), ticks }));
                (r.count, r.to) = (r.count + 1, from + u64::from(ticks));
            }
            None => {
                let faults = bytes_of(&Fault { after: 0, ticks }).to_vec();
                self.0.push(Row { tid, major, from, to: from + u64::from(ticks), faults, count: 1 });
            }
        }
    }

    /// Writes the rows in the order of their begins.
    pub fn write(&mut self, mut add: impl FnMut(u16, u16, u64, &FaultsBody, &[u8])) {
        self.0.sort_by_key(|r| r.from);
        for r in self.0.drain(..) {
            let flags = if r.major { MAJOR } else { 0 };
            add(kind::FAULTS, flags, r.from, &FaultsBody { tid: r.tid, count: r.count }, &r.faults);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults() -> Faults {
        Faults { cpus: Vec::new(), since: 0, in_the_kernel: true, waiting: Vec::new(), begun: HashMap::new() }
    }

    #[test]
    fn records_are_read_as_the_kernel_writes_them_and_damaged_ones_do_not_panic() {
        let numbers = Numbers { begins: 7, minor: 8, major: 9 };
        let record = |kind: u32, words: &[u64]| {
            let mut b = kind.to_ne_bytes().to_vec();
            b.extend((((8 + 8 * words.len()) as u32) << 16).to_ne_bytes());
            b.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
            b
        };
        let thread = 5 | 6 << 32;
        let all = [
            record(9, &[7, thread, 100]),
            record(9, &[9, thread, 130]),
            record(2, &[7, 44, thread, 140, 7]),
            record(9, &[3, thread, 150]),
        ]
        .concat();
        let read = |mut b: &[u8]| {
            let mut found = Vec::new();
            while let Some((r, len)) = numbers.parse(b) {
                found.extend(r);
                b = &b[len..];
            }
            found
        };
        let ended = Record::Ended { time: 130, pid: 5, tid: 6, major: true };
        let expected = [Record::Begins { time: 100, tid: 6 }, ended, Record::Lost { time: 140, records: 44 }];
        assert_eq!(read(&all), expected);
        for at in 0..all.len() * 8 {
            let mut b = all.clone();
            b[at / 8] ^= 1 << (at % 8);
            read(&b[..b.len() - at % 9]);
        }
    }

    #[test]
    fn both_ends_of_a_fault_make_its_time_over_cpus_and_batches() {
        let mut f = faults();
        let begins = |time, tid| Record::Begins { time, tid };
        let ended = |time, tid, major| Record::Ended { time, pid: 5, tid, major };
        let mut over = Vec::new();
        // Thread 7's fault ends on another CPU. Thread 8's ends in a signal, and it begins again.
        let records = vec![
            ended(50, 7, true),
            begins(10, 7),
            begins(11, 8),
            begins(20, 8),
            ended(21, 8, false),
            begins(90, 7),
            ended(120, 7, false),
        ];
        assert_eq!(f.pair(records, 100, &mut |o| over.push(o)), None);
        let one = |tid, from, to, major| Over { pid: 5, tid, from, to, major };
        assert_eq!(over, [one(8, 20, 21, false), one(7, 10, 50, true)]);
        over.clear();
        let waiting = std::mem::take(&mut f.waiting);
        assert_eq!(f.pair(waiting, 200, &mut |o| over.push(o)), None);
        assert_eq!(over, [one(7, 90, 120, false)]);
        // Whether a fault that began before a loss went on is unknown.
        let lost = vec![begins(300, 7), Record::Lost { time: 310, records: 3 }, ended(320, 7, false)];
        assert_eq!(f.pair(lost, 400, &mut |o| panic!("{o:?}")), Some(3));
    }

    #[test]
    fn faults_of_a_thread_are_one_event_and_keep_their_times() {
        let mut rows = Rows::default();
        for i in 0..MOST as u64 + 10 {
            rows.add(7, false, 1000 + i * 100, 1000 + i * 100 + 40);
            rows.add(8, i == 3, 2000 + i * 1000, 2500 + i * 1000);
        }
        let (mut found, mut events) = (Vec::new(), 0);
        let mut last = 0;
        rows.write(|kind, flags, tsc, body, faults| {
            assert_eq!((kind, body.count as usize * size_of::<Fault>()), (kind::FAULTS, faults.len()));
            assert!(tsc >= last);
            (events, last) = (events + 1, tsc);
            found.extend(tape::event::faults(tsc, faults).map(|(from, to)| (body.tid, flags, from, to)));
        });
        found.sort_unstable();
        let of = |tid| found.iter().filter(move |f| f.0 == tid);
        assert!(of(7).zip(0u64..).all(|(f, i)| *f == (7, 0, 1000 + i * 100, 1040 + i * 100)));
        assert_eq!(of(7).count(), MOST + 10);
        assert_eq!(of(8).find(|f| f.1 == MAJOR), Some(&(8, MAJOR, 5000, 5500)));
        assert_eq!(events, 2 + 4, "two rows that were full, and one major fault between others");
    }

    /// Fresh memory of this process: each page is a fault, and all are seen.
    #[test]
    fn own_faults_are_seen_where_that_is_allowed() {
        let mut f = match Faults::open() {
            Ok(f) => f,
            Err(e) => test_support::skip!("{e}"),
        };
        // SAFETY: no arguments.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as i32 };
        const PAGES: usize = 500;
        // SAFETY: fresh memory of this test, touched within its bounds, then given back.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), PAGES << 12, rights, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            // Single pages, not huge ones.
            libc::madvise(memory, PAGES << 12, libc::MADV_NOHUGEPAGE);
            (0..PAGES).for_each(|i| memory.cast::<u8>().add(i << 12).write_volatile(1));
            libc::munmap(memory, PAGES << 12);
        }
        let mut mine = 0;
        let lost = f.take(u64::MAX, |o| {
            assert!(o.to >= o.from);
            mine += usize::from(o.tid == me);
        });
        assert!(mine >= PAGES || lost.is_some(), "{mine} faults, {lost:?} records lost");
    }
}
