//! Reading a recording takes no more memory and time than its size allows, also where a stray pointer of the program or an
//! attacker wrote it. Each of these recordings has valid checksums, and as many of one kind of thing as fit.

use decode::Recording;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tape::call::{self, CallBody};
use tape::event::*;
use tape::file::{Header, Process, Unwatched, Writer};
use tape::lock::{self, HeldBody, HoldBody, LAYOUT, LocksBody, MappingBody, OpBody, PairBody, SchedBody, op};
use tape::nvtx;
use tape::python::{self, CodeBody, StackBody};
use tape::ring::event_len;
use tape::switch::{self, SwitchBody, TaskBody, switch_flags};

/// xorshift64*: the same bytes every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}

/// A recording in the making: events of one thread until the next `flush`.
struct Tape {
    file: Writer,
    bytes: Vec<u8>,
    /// Bytes of events, before they are packed.
    written: u64,
    tsc: u64,
    process: u32,
    tid: i32,
}

impl Tape {
    fn event<B: Plain>(&mut self, kind: u16, flags: u16, body: &B, payload: &[u8]) {
        // (Times that differ: a chunk of events that pack to almost nothing is refused.)
        self.tsc += 10 + (self.tsc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56);
        let len = event_len(size_of::<B>(), payload.len());
        let head = Head { kind, flags, len: len as u32, tsc: self.tsc };
        let end = self.bytes.len() + len;
        self.bytes.extend(bytes_of(&head));
        self.bytes.extend(bytes_of(body));
        self.bytes.extend(payload);
        self.bytes.resize(end, 0);
        if self.bytes.len() > 1 << 20 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.written += bytes.len() as u64;
        self.file.events(self.process, self.tid, &bytes).unwrap();
    }

    /// One event of process `p`, thread `t`, in a separate chunk.
    fn alone<B: Plain>(&mut self, p: u32, t: i32, kind: u16, flags: u16, body: &B) {
        self.flush();
        (self.process, self.tid) = (p, t);
        self.event(kind, flags, body, &[]);
        self.flush();
    }

    fn locks(&mut self) {
        self.event(lock::kind::LOCKS, 0, &LocksBody { layout: LAYOUT, pid: 1 }, &[]);
    }
}

type Make = fn(&mut Tape, u64, &mut Random);

fn of(op: u8) -> u16 {
    u16::from(op) << 8
}

/// Each makes its `i`th event or few.
const SHAPES: [(&str, Make); 25] = [
    ("doorbells of slots without end", |t, i, _| {
        t.event(kind::RING, 0, &RingBody { slot: i as u32, seq: 0, ..Default::default() }, &[]);
    }),
    ("doorbells and entries of slots in many processes", |t, i, _| {
        if i % 1024 == 0 {
            t.flush();
            t.process += 1;
        }
        let slot = (i % 512) as u32;
        t.event(kind::RING, 0, &RingBody { slot, seq: i, put_to: 9, ..Default::default() }, &[]);
        t.event(
            kind::ENTRY,
            0,
            &EntryBody { gp: 2 << 42 | 4096, slot, seq: i, words: 2, ..Default::default() },
            &[0x20; 8],
        );
    }),
    ("doorbells that wait for one that never comes", |t, i, _| {
        t.event(kind::RING, 0, &RingBody { slot: (i % 512) as u32, seq: i + 5, ..Default::default() }, &[]);
    }),
    ("channels that begin and never ring", |t, i, _| {
        let body =
            ChannelBody { slot: (i % 7) as u32, handle: i as u32, class: 0xc86f, entries: 8, ..Default::default() };
        t.event(kind::CHANNEL, 0, &body, &[]);
    }),
    ("a process for each event, backwards", |t, i, _| {
        t.alone(u32::MAX - 5 - i as u32, 1, kind::RING, 0, &RingBody::default());
    }),
    ("a thread for each pair", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        let body = PairBody { addr: i * 64, site: i, ..Default::default() };
        t.alone(0, i as i32 + 1, lock::kind::PAIR, of(op::MUTEX_LOCK), &body);
    }),
    ("command words at random", |t, i, r| {
        let words: Vec<u8> =
            (0..512).flat_map(|_| (r.next() as u32 & 0xe000_ffff | 0x2000_0000).to_le_bytes()).collect();
        t.event(kind::RING, 0, &RingBody { slot: (i % 64) as u32, seq: i / 64, put_to: 9, ..Default::default() }, &[]);
        let body =
            EntryBody { gp: 512 << 42 | 4096, slot: (i % 64) as u32, seq: i / 64, words: 512, ..Default::default() };
        t.event(kind::ENTRY, 0, &body, &words);
    }),
    ("driver calls at random", |t, _, r| {
        let arg: Vec<u8> = (0..6).flat_map(|_| r.below(9).to_le_bytes()).collect();
        let request =
            [0xc030_462a, 0xc020_462b, 0xc010_4629, 0xc038_464e, r.below(90) | 0xc030_4600][r.below(5) as usize];
        let body = IoctlBody { fd: r.below(4) as i32, file: 1, request, arg: 48, ..Default::default() };
        t.event(kind::IOCTL, 0, &body, &arg);
    }),
    ("mutexes made one after the other", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        t.event(lock::kind::OP, of(op::MUTEX_INIT), &OpBody { addr: i * 40, site: i * 3, ..Default::default() }, &[]);
    }),
    ("mappings of one file, and callers in them", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        let start = 0x7000_0000_0000 - i * 8192;
        let body = MappingBody { start, end: start + 4096, offset: 4096, rights: 5, path: 10 };
        t.event(lock::kind::MAPPING, 0, &body, b"/lib/x.so\0");
        let body = PairBody { addr: start + 64, site: start + 9, ..Default::default() };
        t.event(lock::kind::PAIR, of(op::MUTEX_LOCK), &body, &[]);
    }),
    ("mappings over one another, and callers in them", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        let body = MappingBody { start: 4096 + i, end: 1 << 46, offset: 0, rights: 5, path: 10 };
        t.event(lock::kind::MAPPING, 0, &body, b"/lib/x.so\0");
        let body = PairBody { addr: (1 << 45) + i * 64, site: (1 << 44) + i, ..Default::default() };
        t.event(lock::kind::PAIR, of(op::MUTEX_LOCK), &body, &[]);
    }),
    ("files of mappings without end", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        let body = MappingBody { start: i << 12, end: (i + 1) << 12, offset: 0, rights: 5, path: 16 };
        t.event(lock::kind::MAPPING, 0, &body, format!("/lib/{i:08}.so").as_bytes());
    }),
    ("locks inside locks inside locks", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        // A hold that never ends, with all others inside it at depth 3.
        let body = HoldBody { addr: (i % 5000) * 64, hold: 1 + i * 5, ..Default::default() };
        t.event(lock::kind::HOLD, of(op::MUTEX_LOCK) | 3 << lock::attr::DEPTH_SHIFT, &body, &[]);
    }),
    ("locks held at the end, and as many waits", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        let body = HeldBody { addr: i * 64, since: 5, waiting: (i % 2) as u32, ..Default::default() };
        t.event(lock::kind::HELD, of(op::MUTEX_LOCK), &body, &[]);
    }),
    ("waits that overlap", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        let wait = 10 * i;
        let body = HoldBody { addr: 64, site: i, wait, hold: 4 * i, ..Default::default() };
        t.event(lock::kind::HOLD, of([op::RWLOCK_RDLOCK, op::RWLOCK_WRLOCK][(i % 2) as usize]), &body, &[]);
    }),
    ("readers that wait, in many threads", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        if i % 64 == 0 {
            t.flush();
            t.tid = 1 + (i / 64 % 4000) as i32;
        }
        let body = HoldBody { addr: 64 * (i % 3), site: 8, wait: t.tsc / 2, hold: t.tsc / 3, ..Default::default() };
        t.event(lock::kind::HOLD, of(op::RWLOCK_RDLOCK), &body, &[]);
    }),
    ("switches and tasks", |t, i, r| {
        if i == 0 {
            t.locks();
            let body = HoldBody { addr: 64, site: 8, wait: 1 << 40, hold: 9, ..Default::default() };
            t.event(lock::kind::HOLD, of(op::MUTEX_LOCK), &body, &[]);
        }
        let flags = [0, switch_flags::OUT, switch_flags::OUT | switch_flags::PREEMPTED][r.below(3) as usize];
        let body = SwitchBody {
            tid: r.below(90) as i32,
            other: r.below(1 << 20) as i32,
            other_pid: 1,
            cpu: r.below(3) as u32,
        };
        t.event(switch::kind::SWITCH, flags, &body, &[]);
        t.event(switch::kind::TASK, 0, &TaskBody { tid: i as i32, policy: 1, ..Default::default() }, &[]);
    }),
    ("changes of policy without end", |t, i, _| {
        if i == 0 {
            t.locks();
        }
        let body = SchedBody { tid: 7, policy: 1, priority: i as i32 % 99, cpus: 1, ..Default::default() };
        t.event(lock::kind::SCHED, 0, &body, &[]);
        let body = HoldBody { addr: 64, site: 8, wait: 90, hold: 9, ..Default::default() };
        t.event(lock::kind::HOLD, of(op::MUTEX_LOCK), &body, &[]);
    }),
    ("calls with a pattern each", |t, i, r| {
        if i == 0 {
            t.locks();
            t.event(call::kind::CALLS, 0, &call::CallsBody { layout: call::LAYOUT, ..Default::default() }, &[]);
        }
        for _ in 0..4 {
            let body = PairBody { addr: 64 * r.below(5000), site: 9, hold: 3, release: 1 };
            t.event(lock::kind::PAIR, of(op::MUTEX_LOCK), &body, &[]);
        }
        let body = CallBody { began: t.tsc - 39, size: r.next(), ..Default::default() };
        t.event(call::kind::CALL, r.below(200) as u16, &body, &[]);
    }),
    ("lines of Python, each with a long table and a call", |t, i, r| {
        let body = CodeBody { number: i as u32, file: 8, lines: 200, file_unit: 1, minor: 11, ..Default::default() };
        let table: Vec<u8> = (0..208).map(|_| r.next() as u8 | 0x80).collect();
        t.event(python::kind::CODE, 0, &body, &table);
        let frames: Vec<u8> = (0..200).flat_map(|_| (r.below(i + 1) | r.below(400) << 32).to_le_bytes()).collect();
        t.event(python::kind::STACK, 0, &StackBody { number: i as u32 + 1, frames: 200 }, &frames);
        let body = CallBody { began: t.tsc >> r.below(60), python: i as u32 + 1, ..Default::default() };
        t.event(call::kind::CALL, r.below(200) as u16, &body, &[]);
    }),
    ("ranges in ranges, and calls in them", |t, i, _| {
        let body = nvtx::RangeBody { text: i, id: i, ..Default::default() };
        t.event(nvtx::kind::PUSH, 0, &body, &[]);
        t.event(call::kind::CALL, 1, &CallBody { began: t.tsc - 5, ..Default::default() }, &[]);
    }),
    ("ranges of the process, their texts, and doorbells", |t, i, _| {
        t.event(nvtx::kind::TEXT, 0, &nvtx::TextBody { id: i, bytes: 200, ..Default::default() }, &[b'x'; 200]);
        let body = nvtx::RangeBody { domain: i, text: i, id: i, ..Default::default() };
        t.event(nvtx::kind::START, 0, &body, &[]);
        t.event(kind::RING, 0, &RingBody { slot: 1, seq: i, ..Default::default() }, &[]);
    }),
    ("notes, programs and processes", |t, i, _| {
        let p = Process { index: 3_000_000 - i as u32, pid: i as i32, ..Default::default() };
        t.file.process(&p).unwrap();
        t.file.note(&format!("{i}")).unwrap();
        t.file.unwatched(&Unwatched { path: format!("{i}"), ..Default::default() }).unwrap();
    }),
    ("gaps and threads that begin", |t, i, _| {
        t.event(kind::GAP, 0, &GapBody { events: i, entries: i, bytes: u64::MAX }, &[]);
        t.event(kind::THREAD, 0, &ThreadBody { tid: i as i32, ..Default::default() }, &[]);
        if i % 1000 == 0 {
            t.event(kind::RING, 0, &RingBody { slot: NO_SLOT, ..Default::default() }, &[]);
        }
    }),
    ("anything", |t, i, r| {
        if i == 0 {
            t.locks();
        }
        const KINDS: [u16; 10] = [0, 32, 33, 34, 35, 36, 37, 56, 64, 96];
        let kind = KINDS[r.below(10) as usize] + r.below(20) as u16;
        let words = r.below(12) as usize + 2;
        let small = r.below(2) == 0;
        let body: Vec<u8> =
            (0..words).flat_map(|_| (if small { r.below(600) } else { r.next() }).to_le_bytes()).collect();
        t.event(kind, r.next() as u16, &NoteBody { text: r.below(40) as u32, pad: r.next() as u32 }, &body);
        if r.below(50) == 0 {
            t.flush();
            (t.process, t.tid) = (r.below(40) as u32, r.below(90) as i32);
        }
    }),
];

fn make(path: &Path, shape: Make, bytes: u64) {
    let header = Header { tsc_hz: 1e9, locks: true, python: true, ..Default::default() };
    let file = Writer::replace(path, &header).unwrap();
    let mut t = Tape { file, written: 0, bytes: Vec::new(), tsc: 1000, process: 0, tid: 1 };
    let mut random = Random(42);
    for i in 0.. {
        shape(&mut t, i, &mut random);
        if t.written.max(t.file.bytes()) + t.bytes.len() as u64 >= bytes {
            break;
        }
    }
    t.flush();
}

#[test]
#[ignore = "a role of the other tests"]
fn plays_the_reader() {
    let told: Vec<String> = std::env::args().skip_while(|a| a != "--nocapture").skip(1).collect();
    let r = Recording::open(Path::new(&told[0])).unwrap();
    // (An error is also a result.)
    match &told[1][..] {
        "locks" => drop(lock_analysis::locks(&r, 20)),
        "python" => drop(lock_analysis::python(&r)),
        "ranges" => drop(lock_analysis::ranges(&r, &decode::walk::Filter::default())),
        "each range" => drop(lock_analysis::each_range(&r, &decode::walk::Filter::default())),
        _ => drop(decode::summary(&r)),
    }
}

/// Reads a recording in a separate process. Returns how long it took, and its peak memory.
#[allow(clippy::zombie_processes, reason = "wait4 takes it, with what it used")]
fn read(path: &Path, what: &str, at_most: Duration) -> (Duration, u64) {
    let begun = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "plays_the_reader", "--nocapture"])
        .arg(path)
        .arg(what)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // SAFETY: a zeroed rusage may be written to; only this code waits for the child.
    unsafe {
        let (mut status, mut usage): (i32, libc::rusage) = (0, std::mem::zeroed());
        while libc::wait4(child.id() as i32, &mut status, libc::WNOHANG, &mut usage) == 0 {
            if begun.elapsed() > at_most {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let took = Duration::from_secs_f64(
            (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) as f64
                + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) as f64 / 1e6,
        );
        assert!(status == 0 || begun.elapsed() > at_most, "{path:?}: {what}: status {status:#x}");
        (took.max(if status == 0 { took } else { at_most }), usage.ru_maxrss as u64 * 1024)
    }
}

fn all(bytes: u64, seconds: f64, memory: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let only = std::env::var("HOSTILE").unwrap_or_default();
    let mut over = Vec::new();
    for (name, shape) in SHAPES.iter().filter(|s| s.0.contains(&only)) {
        make(&path, *shape, bytes);
        let has_ranges = name.contains("ranges") || *name == "anything";
        let views = [
            ("summary", true),
            ("locks", true),
            ("ranges", has_ranges),
            ("each range", has_ranges),
            ("python", name.contains("Python")),
        ];
        for (what, _) in views.into_iter().filter(|view| view.1) {
            let (took, most) = read(&path, what, Duration::from_secs_f64(4.0 * seconds));
            let line = format!("{name}, {what}: {:.2} s, {} MiB", took.as_secs_f64(), most >> 20);
            println!("{line}");
            if took.as_secs_f64() > seconds || most > memory {
                over.push(line);
            }
        }
    }
    assert!(over.is_empty(), "more than {seconds} s or {} MiB: {over:#?}", memory >> 20);
}

/// A twentieth of the long form's size; a tenth of its time (unoptimised, on a busy machine), and memory for the decoders of 1,024 channels.
#[test]
fn a_hostile_recording_takes_no_more_than_its_size_allows() {
    all(1 << 20, 2.0, 160 << 20);
}

#[test]
#[ignore = "minutes; run by .ci/run --long"]
fn long_hostile_recordings_of_20_mb_take_a_gib_and_20_seconds_at_most() {
    all(20_000_000, 20.0, 1 << 30);
}
