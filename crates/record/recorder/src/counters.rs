//! Counts what passes the recorder for a viewer (`doorbell top`): submissions, launches, copies, calls, waits for locks.
//!
//! The counts are estimates from the heads of events and of methods, without the driver's objects. `decode` makes the exact rows of a recording. No event
//! is counted while no viewer asks.

use pushbuf::encode::{launch_dma, offset, subchannel};
use pushbuf::header::{Header, Kind};
use pushbuf::qmd::end_time;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tape::event::{Head, entry_flags, kind};
use tape::{call, lock};

/// Counting continues for this long after the last request.
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// The maximum of the last second is kept in parts of this length.
const PART: Duration = Duration::from_millis(100);
const PARTS: usize = 10;
/// Maximum number of threads whose unfinished entries are remembered.
const THREADS: usize = 4096;

/// SEND_SIGNALING_PCAS_B (compute classes before 0xC6C0): bit 1 schedules.
const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
const COPY_LINE_COUNT: u16 = offset::COPY_LINE_LENGTH_IN + 4;

/// Sums since counting began. They rise while a viewer asks at least every 5 seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// When they were read, in seconds since the recording began.
    pub seconds: f64,
    /// Doorbells.
    pub submissions: u64,
    /// Launches in the commands. For a graph, the launches that start it, not the kernels that they start.
    pub kernels: u64,
    /// Copies by copy engines, with fills. The bytes do not include fills.
    pub copies: u64,
    pub copy_bytes: u64,
    /// CUDA calls that returned, if calls are recorded.
    pub calls: u64,
    /// Waits for mutexes and rwlocks, if locks are recorded.
    pub lock_waits: u64,
    pub events: u64,
    pub event_bytes: u64,
    /// The longest call and the longest wait for a lock that ended in the last second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_call: Option<Worst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_lock_wait: Option<Worst>,
}

/// A call or a wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worst {
    /// The CUDA call, or a lock's kind and address.
    pub name: String,
    pub pid: i32,
    pub tid: i32,
    pub ms: f64,
}

/// The longest so far, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    ticks: u64,
    /// The function's number, or the operation of a lock.
    what: u16,
    addr: u64,
    pid: i32,
    tid: i32,
}

impl Longest {
    fn add(&mut self, other: Longest) {
        if other.ticks > self.ticks {
            *self = other;
        }
    }
}

/// How the words of a thread's latest entry continue.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    /// Data words of a sequence that are still missing.
    skip: usize,
    line_length: u32,
    lines: u32,
    /// The QMD that was written last runs no kernel: it only orders or starts others.
    is_order: bool,
}

pub struct Counters {
    begun: Instant,
    asked: Option<Instant>,
    pub tsc_hz: f64,
    sums: Counts,
    calls: [Longest; PARTS],
    waits: [Longest; PARTS],
    /// The part of time that is being filled, counted from `begun`.
    part: u64,
    words: HashMap<(i32, i32), Words>,
}

impl Counters {
    pub fn new(tsc_hz: f64) -> Counters {
        let (sums, calls, waits, words) = Default::default();
        Counters { begun: Instant::now(), asked: None, tsc_hz, sums, calls, waits, part: 0, words }
    }

    /// Counts events of one thread of the process `pid`.
    pub fn pass(&mut self, pid: i32, tid: i32, events: &[u8]) {
        if self.asked.is_none() {
            return;
        }
        self.count(pid, tid, events);
    }

    /// The sums. Counting continues for some seconds from now.
    pub fn asked(&mut self) -> Counts {
        self.asked = Some(Instant::now());
        self.look_at_time();
        let longest = |parts: &[Longest]| {
            let mut all = Longest::default();
            parts.iter().for_each(|one| all.add(*one));
            (all.ticks > 0).then_some(all)
        };
        let worst = |l: Longest, name: String| {
            let ms = l.ticks as f64 / self.tsc_hz.max(1.0) * 1e3;
            Worst { name, pid: l.pid, tid: l.tid, ms }
        };
        Counts {
            seconds: self.begun.elapsed().as_secs_f64(),
            worst_call: longest(&self.calls).map(|l| {
                let name = call::function(l.what).map_or("a call", |f| f.name);
                worst(l, name.to_owned())
            }),
            worst_lock_wait: longest(&self.waits)
                .map(|l| worst(l, format!("{} {:#x}", lock_kind(l.what as u8), l.addr))),
            ..self.sums.clone()
        }
    }

    /// Forgets parts that are older than a second. Stops counting if no viewer has asked for long.
    fn look_at_time(&mut self) {
        let part = (self.begun.elapsed().as_millis() / PART.as_millis()) as u64;
        for old in self.part + 1..=part.min(self.part + PARTS as u64) {
            let i = (old % PARTS as u64) as usize;
            (self.calls[i], self.waits[i]) = Default::default();
        }
        self.part = part;
        if self.asked.is_some_and(|t| t.elapsed() > ASKED_WITHIN) {
            self.asked = None;
            self.words.clear();
        }
    }

    fn count(&mut self, pid: i32, tid: i32, events: &[u8]) {
        self.look_at_time();
        let part = (self.part % PARTS as u64) as usize;
        let mut words = self.words.get(&(pid, tid)).copied().unwrap_or_default();
        let (before, mut has_words) = (words.skip, false);
        let sums = &mut self.sums;
        sums.event_bytes += events.len() as u64;
        let mut rest = events;
        while let Some((head, body, later)) = next(rest) {
            rest = later;
            sums.events += 1;
            match head.kind {
                kind::RING => sums.submissions += 1,
                kind::ENTRY => {
                    has_words = true;
                    if head.flags & entry_flags::CONTINUED == 0 {
                        words.skip = 0;
                    }
                    let data = body.get(ENTRY_BODY..).unwrap_or_default();
                    let n = word_at(body, ENTRY_WORDS).map_or(0, |n| n as usize);
                    words.pass(data.get(..n.saturating_mul(4)).unwrap_or(data), sums);
                }
                call::kind::CALL => {
                    sums.calls += 1;
                    let ticks = head.tsc.saturating_sub(u64_at(body, 0));
                    self.calls[part].add(Longest { ticks, what: head.flags, addr: 0, pid, tid });
                }
                lock::kind::HOLD | lock::kind::OP => {
                    if let Some((ticks, addr)) = lock_wait(&head, body) {
                        sums.lock_waits += 1;
                        self.waits[part].add(Longest { ticks, what: head.flags >> 8, addr, pid, tid });
                    }
                }
                _ => {}
            }
        }
        // (Most threads have no unfinished entry.)
        if has_words && (words.skip != before || words.skip != 0) {
            if self.words.len() >= THREADS {
                self.words.clear();
            }
            self.words.insert((pid, tid), words);
        }
    }
}

/// Bytes of an ENTRY's body, and the offset of its number of words.
const ENTRY_BODY: usize = size_of::<tape::event::EntryBody>();
const ENTRY_WORDS: usize = std::mem::offset_of!(tape::event::EntryBody, words);

impl Words {
    /// Counts the words of one entry, or of a part of it.
    fn pass(&mut self, data: &[u8], sums: &mut Counts) {
        let n = data.len() / 4;
        let word = |i: usize| word_at(data, i * 4).unwrap_or(0);
        let mut i = self.skip;
        while i < n {
            let header = Header::parse(word(i));
            i += 1;
            match header {
                Header::Methods { kind, subch, address, count } => {
                    let count = usize::from(count);
                    self.sequence(kind, subch, address, count.min(n - i), |k| word(i + k), sums);
                    i += count;
                }
                Header::Immediate { subch, address, value } => self.write(subch, address, value.into(), sums),
                Header::EndSegment { .. } => {
                    i = n;
                    break;
                }
                _ => {}
            }
        }
        self.skip = i - n;
    }

    fn sequence(
        &mut self,
        kind: Kind,
        subch: u8,
        address: u16,
        count: usize,
        word: impl Fn(usize) -> u32,
        sums: &mut Counts,
    ) {
        if subch == subchannel::COMPUTE && address == end_time::LOAD_INLINE_DATA {
            self.is_order = kind == Kind::NonInc && end_time::is_order(count, &word);
        }
        let methods = match subch {
            subchannel::COMPUTE => SEND_SIGNALING_PCAS_B..=offset::SEND_SIGNALING_PCAS2_B,
            subchannel::COPY => offset::COPY_LAUNCH_DMA..=COPY_LINE_COUNT,
            _ => return,
        };
        // The words of one method, or the few words that count among the others.
        let (first, step) = match kind {
            Kind::Inc | Kind::OldInc if address < *methods.start() => ((*methods.start() - address) / 4, 4),
            Kind::Inc | Kind::OldInc => (0, 4),
            _ => (0, 0),
        };
        for k in usize::from(first)..count {
            let at = usize::from(address) + k * step;
            if at > usize::from(*methods.end()) {
                return;
            }
            if step == 0 && k > 0 && !methods.contains(&address) {
                return;
            }
            self.write(subch, at as u16, word(k), sums);
        }
    }

    #[inline]
    fn write(&mut self, subch: u8, address: u16, value: u32, sums: &mut Counts) {
        match (subch, address) {
            // PCAS_ACTION: the actions that schedule.
            (subchannel::COMPUTE, offset::SEND_SIGNALING_PCAS2_B) => {
                let schedules = matches!(value & 15, 2 | 3 | 9 | 10);
                sums.kernels += u64::from(schedules && !std::mem::take(&mut self.is_order));
            }
            (subchannel::COMPUTE, SEND_SIGNALING_PCAS_B) => sums.kernels += u64::from(value >> 1 & 1),
            (subchannel::COPY, offset::COPY_LINE_LENGTH_IN) => self.line_length = value,
            (subchannel::COPY, COPY_LINE_COUNT) => self.lines = value,
            // DATA_TRANSFER_TYPE 0 moves nothing.
            (subchannel::COPY, offset::COPY_LAUNCH_DMA) if value & 3 != 0 => {
                sums.copies += 1;
                if value & launch_dma::REMAP == 0 {
                    let lines = if value & launch_dma::MULTI_LINE != 0 { self.lines } else { 1 };
                    sums.copy_bytes += u64::from(self.line_length) * u64::from(lines);
                }
            }
            _ => {}
        }
    }
}

/// Head and body of the first event, and the events after it.
fn next(events: &[u8]) -> Option<(Head, &[u8], &[u8])> {
    let first = u64_at(events, 0);
    let (kind, flags, len) = (first as u16, (first >> 16) as u16, (first >> 32) as u32);
    if (len as usize) < size_of::<Head>() {
        return None;
    }
    let (event, later) = events.split_at_checked(len as usize)?;
    Some((Head { kind, flags, len, tsc: u64_at(event, 8) }, event.get(size_of::<Head>()..)?, later))
}

/// Ticks that a thread waited for a mutex or a rwlock, and its address. `None` if the lock was free, or is neither.
fn lock_wait(head: &Head, body: &[u8]) -> Option<(u64, u64)> {
    use lock::op;
    let op = (head.flags >> 8) as u8;
    let takes = matches!(op, op::MUTEX_LOCK | op::MUTEX_TIMEDLOCK | op::MUTEX_CLOCKLOCK)
        || matches!(op, op::RWLOCK_RDLOCK | op::RWLOCK_TIMEDRDLOCK | op::RWLOCK_CLOCKRDLOCK)
        || matches!(op, op::RWLOCK_WRLOCK | op::RWLOCK_TIMEDWRLOCK | op::RWLOCK_CLOCKWRLOCK);
    let is_hold = head.kind == lock::kind::HOLD;
    let (wait, ended) = if is_hold {
        (u64_at(body, std::mem::offset_of!(lock::HoldBody, wait)), word_at(body, HOLD_ENDED).unwrap_or(0))
    } else {
        (u64_at(body, std::mem::offset_of!(lock::OpBody, wait)), 0)
    };
    (takes && wait > 0 && !lock::ended::is_open(ended)).then(|| (wait, u64_at(body, 0)))
}

const HOLD_ENDED: usize = std::mem::offset_of!(lock::HoldBody, ended);

fn lock_kind(op: u8) -> &'static str {
    match op {
        lock::op::RWLOCK_RDLOCK..=lock::op::RWLOCK_CLOCKWRLOCK => "rwlock",
        _ => "mutex",
    }
}

fn u64_at(b: &[u8], i: usize) -> u64 {
    b.get(i..i + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn word_at(b: &[u8], i: usize) -> Option<u32> {
    b.get(i..i + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pushbuf::encode::Words as Written;
    use pushbuf::qmd::{Layout, PcasAction, Qmd};
    use tape::event::{EntryBody, Plain, RingBody, bytes_of};
    use tape::lock::{HoldBody, OpBody, op};

    fn event<B: Plain>(kind: u16, flags: u16, tsc: u64, body: B, tail: &[u8]) -> Vec<u8> {
        let len = (size_of::<Head>() + size_of::<B>() + tail.len()).next_multiple_of(8);
        let mut out = bytes_of(&Head { kind, flags, len: len as u32, tsc }).to_vec();
        out.extend_from_slice(bytes_of(&body));
        out.extend_from_slice(tail);
        out.resize(len, 0);
        out
    }

    fn entry(flags: u16, words: &[u32]) -> Vec<u8> {
        let tail: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        event(kind::ENTRY, flags, 1, EntryBody { words: words.len() as u32, ..EntryBody::default() }, &tail)
    }

    fn written(f: impl FnOnce(&mut Written<'_>)) -> Vec<u32> {
        let mut room = vec![0; 4096];
        let mut w = Written::new(&mut room);
        f(&mut w);
        w.as_slice().to_vec()
    }

    fn counting() -> Counters {
        let mut c = Counters::new(1e6);
        c.asked();
        c
    }

    #[test]
    fn nothing_is_counted_before_somebody_asks() {
        let ring = event(kind::RING, 0, 1, RingBody::default(), &[]);
        let mut c = Counters::new(1e6);
        c.pass(1, 1, &ring);
        assert_eq!((c.asked().submissions, c.asked().events), (0, 0));
        c.pass(1, 1, &ring);
        assert_eq!((c.asked().submissions, c.asked().event_bytes), (1, ring.len() as u64));
        c.asked = Some(Instant::now() - ASKED_WITHIN * 2);
        c.pass(1, 1, &ring);
        c.pass(1, 1, &ring);
        assert_eq!(c.sums.submissions, 2, "nor long after that");
    }

    #[test]
    fn launches_and_copies_are_counted_as_the_decoder_counts_them() {
        let mut c = counting();
        let copy = launch_dma::NON_PIPELINED | launch_dma::PITCH;
        let words = written(|w| {
            w.inline(subchannel::COMPUTE, 0x1000, &[0; 512], 0x41).unwrap();
            w.launch(subchannel::COMPUTE, 0x2000).unwrap();
            w.pcas(subchannel::COMPUTE, 0x2000, PcasAction::Invalidate).unwrap();
            w.copy(subchannel::COPY, 1 << 32, 2 << 32, 4096, copy).unwrap();
            w.copy_release(subchannel::COPY, 3 << 32, 7, true).unwrap();
            w.fill(subchannel::COPY, 2 << 32, 0, 64, copy).unwrap();
        });
        c.pass(1, 2, &entry(0, &words));
        let mut decoder = pushbuf::decode::Decoder::new(0xc86f);
        decoder.bind(subchannel::COMPUTE, 0xcbc0);
        decoder.bind(subchannel::COPY, 0xc8b5);
        let mut engine = pushbuf::ops::Engine::new();
        let (mut launches, mut copies) = (0, 0);
        engine.segment(&mut decoder, &words, |op| match op.what {
            pushbuf::ops::What::Launch(_) => launches += 1,
            pushbuf::ops::What::Copy(_) | pushbuf::ops::What::Fill(_) => copies += 1,
            _ => {}
        });
        let found = c.asked();
        assert_eq!((found.kernels, found.copies, found.copy_bytes), (launches, copies, 4096));
        assert!(launches > 0 && copies == 2);
    }

    /// CUDA starts such a QMD before a kernel that must wait for the previous kernel.
    #[test]
    fn a_qmd_without_blocks_is_no_kernel() {
        let mut c = counting();
        let mut qmd = Qmd::new(Layout::of(4, 0).unwrap());
        for (kind, kernels) in [(1, 0), (2, 1)] {
            qmd.set("QMD_TYPE", kind).unwrap();
            let bytes: Vec<u8> = qmd.words().iter().flat_map(|w| w.to_le_bytes()).collect();
            let words = written(|w| {
                w.inline(subchannel::COMPUTE, 0x2000, &bytes, 0x41).unwrap();
                w.launch(subchannel::COMPUTE, 0x2000).unwrap();
            });
            c.pass(1, 2, &entry(0, &words));
            assert_eq!(c.asked().kernels, kernels);
        }
    }

    #[test]
    fn a_sequence_that_goes_on_in_the_next_event_is_no_header() {
        let mut c = counting();
        // Data that looks like launches.
        let data: Vec<u32> = written(|w| (0..200).for_each(|_| w.launch(subchannel::COMPUTE, 0x2000).unwrap()));
        let words = written(|w| w.non_inc(subchannel::COMPUTE, 0x1b4, &data).unwrap());
        let (first, second) = words.split_at(50);
        c.pass(1, 2, &entry(entry_flags::MORE, first));
        c.pass(1, 3, &entry(0, &written(|w| w.launch(subchannel::COMPUTE, 0x2000).unwrap())));
        c.pass(1, 2, &entry(entry_flags::CONTINUED, second));
        assert_eq!(c.asked().kernels, 1, "the other thread's");
    }

    #[test]
    fn the_worst_call_and_wait_of_the_last_second_are_named() {
        let mut c = counting();
        let calls: Vec<u8> = [(10u64, 30u64), (40, 45)]
            .iter()
            .flat_map(|(began, ended)| {
                let body = call::CallBody { began: *began * 1000, ..Default::default() };
                event(call::kind::CALL, call::FUNCTIONS[0].number, *ended * 1000, body, &[])
            })
            .collect();
        c.pass(7, 8, &calls);
        let flags = u16::from(op::MUTEX_LOCK) << 8;
        let hold = |wait| HoldBody { addr: 0xabc, wait, ..HoldBody::default() };
        c.pass(7, 9, &event(lock::kind::HOLD, flags, 1, hold(5000), &[]));
        c.pass(7, 9, &event(lock::kind::HOLD, flags, 1, hold(0), &[]));
        let late = HoldBody { ended: lock::ended::OPEN_LATE, ..hold(9000) };
        c.pass(7, 9, &event(lock::kind::HOLD, flags, 1, late, &[]));
        let post = u16::from(op::SEM_WAIT) << 8;
        c.pass(7, 9, &event(lock::kind::OP, post, 1, OpBody { wait: 1 << 40, ..OpBody::default() }, &[]));
        let now = c.asked();
        assert_eq!((now.calls, now.lock_waits), (2, 1));
        let worst = now.worst_call.unwrap();
        assert_eq!((worst.name.as_str(), worst.pid, worst.tid, worst.ms), (call::FUNCTIONS[0].name, 7, 8, 20.0));
        let worst = now.worst_lock_wait.unwrap();
        assert_eq!((worst.name.as_str(), worst.ms), ("mutex 0xabc", 5.0));
        c.begun -= Duration::from_millis(1100);
        assert_eq!((c.asked().worst_call, c.asked().worst_lock_wait), (None, None), "not of the second before");
    }

    #[test]
    fn no_bytes_panic() {
        let mut c = counting();
        let mut bytes = entry(0, &[0xffff_ffff, 0x2000_0000, 0x3fff_c2b4, 1, 2]);
        for i in 0..bytes.len() {
            for b in [0, 1, 0x7f, 0xff] {
                let kept = std::mem::replace(&mut bytes[i], b);
                c.pass(1, 1, &bytes);
                c.pass(1, 1, &bytes[..i]);
                bytes[i] = kept;
            }
        }
    }

    /// `cargo test --release -p recorder counting_costs -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn counting_costs() {
        let words = written(|w| {
            w.inline(subchannel::COMPUTE, 0x1000, &[0; 384], 0x41).unwrap();
            w.launch(subchannel::COMPUTE, 0x2000).unwrap();
        });
        let body = call::CallBody { began: 5, ..Default::default() };
        let launch = [
            event(kind::RING, 0, 1, RingBody::default(), &[]),
            entry(0, &words),
            event(call::kind::CALL, call::FUNCTIONS[0].number, 9, body, &[]),
        ]
        .concat();
        let pair = event(lock::kind::PAIR, 0, 1, lock::PairBody::default(), &[]);
        for (name, one, events) in [("launch", &launch, 3), ("pair", &pair, 1)] {
            let chunk = one.repeat((64 << 10) / one.len());
            let n = chunk.len() / one.len() * events;
            let mut c = counting();
            let measure = |c: &mut Counters| {
                let begun = Instant::now();
                (0..200).for_each(|_| c.pass(1, 1, std::hint::black_box(&chunk)));
                begun.elapsed().as_secs_f64() * 1e9 / (200 * n) as f64
            };
            let asked = (0..5).map(|_| measure(&mut c)).fold(f64::MAX, f64::min);
            c.asked = None;
            let not = (0..5).map(|_| measure(&mut c)).fold(f64::MAX, f64::min);
            let mut packer = tape::file::Packer::default();
            let begun = Instant::now();
            (0..50).for_each(|_| assert!(packer.pack(&chunk).is_some()));
            let packing = begun.elapsed().as_secs_f64() * 1e9 / (50 * n) as f64;
            println!("{name}: {asked:.1} ns an event, {not:.2} ns where nobody asks; packing takes {packing:.0} ns");
        }
    }
}
