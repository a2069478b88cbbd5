//! A tape of copies whose times the GPU stored.

use super::*;
use pushbuf::semaphore::Execute;

/// Time of submission, the call's function, a slot, words, and the times that the GPU stores.
type Work<'a> = (u64, u32, u32, Vec<u32>, &'a [u64]);

/// A program whose copies' times are recorded, too. In stream 0x51, in ns after time stamp 0: 4 MiB are copied to the device from 210,000 to 400,000, and a
/// kernel waits for them and ends at 450,000. The same bytes are copied back from 460,000 to 680,000, then 4 KiB are filled from 690,000 to 692,000. A last
/// copy has no times.
pub fn copy_times() -> Tape {
    use tape::call::{self, CallBody, CallsBody, NameBody};
    use tape::stamp::{self, ClockBody, EndsBody, StampsBody, state};
    const MIB: u32 = 1 << 20;
    let mut t = Tape::with_times();
    t.context(100);
    for (slot, engine) in [(0, 1), (1, 11), (2, 12)] {
        t.channel(100, slot, 0x5c00_1000 + slot, engine, 1024);
    }
    t.name_kernel();
    for tsc in [100_000, 100_100_000] {
        t.clocks(tsc, tsc);
    }
    let (htod, kernel, dtoh, memset) = (13, 1, 15, 31);
    let (there, back) = (copy(HOST_AT, DEVICE_AT, 4 * MIB), copy(DEVICE_AT, HOST_AT, 4 * MIB));
    // (The semaphore that the copy releases.)
    let mut buffer = vec![0; 100];
    let mut w = Words::new(&mut buffer);
    w.host_semaphore(0, RINGS_AT + 0x10, 0x17, Execute::WAIT).unwrap();
    let waiting = [w.as_slice(), &stamped(QMD_AT, 2, &[])].concat();
    let work: [Work<'_>; 5] = [
        (200_000, htod, 1, there, &[210_000, 400_000]),
        (202_000, kernel, 0, waiting, &[450_000]),
        (204_000, dtoh, 2, back.clone(), &[460_000, 680_000]),
        (206_000, memset, 1, fill(DEVICE_AT, 0, 1024), &[690_000, 692_000]),
        (900_000, dtoh, 2, back, &[]),
    ];
    let mut number = 0;
    for (call, (tsc, function, slot, words, times)) in (1..).zip(work) {
        let handle = if function == kernel { 0xf1 } else { 0 };
        t.call = RingBody { function, call, stream: 0x51, kernel: handle, ..RingBody::default() };
        if function == kernel {
            t.submit_at(100, tsc, slot, &[&words], 0, 1 << 12);
        } else {
            t.submit_timed(100, tsc, slot, &words, number);
        }
        t.call = RingBody::default();
        let size = if function == kernel { 0 } else { 4 << 20 };
        let done = CallBody { began: tsc - 500, stream: 0x51, size, seq: call, ..CallBody::default() };
        t.event_at(100, tsc + 500, call::kind::CALL, function as u16, &done, &[], &[]);
        let all: Vec<u8> =
            (number..).zip(times).flat_map(|(n, ns)| [n, GPU_ZERO + ns]).flat_map(u64::to_le_bytes).collect();
        let body = EndsBody { count: times.len() as u32, pad: 0, settled: 0 };
        t.event_at(stamp::WRITER, tsc + 600_000, stamp::kind::ENDS, 0, &body, &all, &[]);
        number += times.len().max(1) as u64;
    }
    t.tsc = 101_000_000;
    t
}
