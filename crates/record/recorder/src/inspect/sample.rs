//! Where a thread that runs is: one sample by the kernel, which interrupts the thread for some microseconds to copy its registers and
//! its stack. No signal is sent, and no system call of the thread returns earlier.

use crate::perf::{Buffer, attribute};
use perf_event_open_sys as sys;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use sys::bindings as abi;

/// Time on a CPU before the sample, ns, and the time to wait for it.
const PERIOD: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_millis(10);
/// Maximum bytes of the stack that are copied.
const STACK: u32 = 32 << 10;
/// Room for a few samples; a power of two.
const BUFFER: usize = 128 << 10;
/// The registers that are copied, as bits (asm/perf_regs.h), and their numbers in unwind tables, in the order of the bits.
const REGISTERS: u64 = 0xff_01ff;
const NUMBERS: [usize; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];

/// A thread's registers, by their numbers in unwind tables, and the words of its stack from its stack pointer on.
pub struct Sample {
    pub registers: [u64; 17],
    pub stack: Vec<u8>,
}

impl Sample {
    /// A sample of a thread. `None` if it did not run for long enough.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn of(tid: i32) -> io::Result<Option<Sample>> {
        let mut a = attribute(abi::PERF_COUNT_SW_CPU_CLOCK);
        a.__bindgen_anon_1.sample_period = PERIOD;
        a.sample_type = u64::from(abi::PERF_SAMPLE_REGS_USER | abi::PERF_SAMPLE_STACK_USER);
        (a.sample_regs_user, a.sample_stack_user) = (REGISTERS, STACK);
        a.set_sample_id_all(0);
        a.set_exclude_kernel(1);
        a.set_exclude_hv(1);
        // SAFETY: a filled attribute. The returned descriptor has no other owner.
        let event = unsafe {
            match sys::perf_event_open(&mut a, tid, -1, -1, abi::PERF_FLAG_FD_CLOEXEC.into()) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let mut buffer = Buffer::map(event, BUFFER)?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_nanos(PERIOD));
            let mut found = None;
            buffer.take(|records| found = Sample::first(records));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first sample among these records.
    fn first(mut records: &[u8]) -> Option<Sample> {
        loop {
            // perf_event_header: type u32, misc u16, size u16.
            let head = u64::from_le_bytes(*records.first_chunk()?);
            let (kind, len) = (head as u32, (head >> 48) as usize);
            if kind == abi::PERF_RECORD_SAMPLE {
                return Sample::parse(records.get(8..len)?);
            }
            records = records.get(len.max(8)..)?;
        }
    }

    /// ABI, registers, size of the stack's copy, the copy, and how much of it was filled.
    fn parse(record: &[u8]) -> Option<Sample> {
        let word = |n: usize| Some(u64::from_le_bytes(*record.get(n * 8..)?.first_chunk()?));
        if word(0)? != u64::from(abi::PERF_SAMPLE_REGS_ABI_64) {
            return None;
        }
        let mut registers = [0; 17];
        for (i, n) in NUMBERS.into_iter().enumerate() {
            *registers.get_mut(n)? = word(1 + i)?;
        }
        let (begin, size) = ((2 + NUMBERS.len()) * 8, word(1 + NUMBERS.len())? as usize);
        let stack = record.get(begin..begin.checked_add(size)?)?;
        let filled = if size == 0 { 0 } else { u64::from_le_bytes(*record.get(begin + size..)?.first_chunk()?) };
        Some(Sample { registers, stack: stack.get(..filled as usize)?.to_vec() })
    }
}
