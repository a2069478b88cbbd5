//! Kernels that are loaded late, on tapes that are written here.

use decode::Recording;
use slow_calls::{LateKernel, late_kernels};
use tape::call::{CallBody, CallsBody, LAYOUT, NAME_TICKS, NameBody, OriginBody, kind, number};
use tape::event::{Head, Plain, bytes_of};
use tape::file::{End, Header, Writer};
use tape::lock::MappingBody;

const LAUNCH: u16 = number("cuLaunchKernel");
const RUNTIME_LAUNCH: u16 = number("cudaLaunchKernel");

/// The events of a thread. One tick is a nanosecond.
#[derive(Default)]
struct Thread {
    bytes: Vec<u8>,
    now: u64,
}

impl Thread {
    fn event<B: Plain>(&mut self, kind: u16, flags: u16, body: &B, text: &[u8]) {
        let len = (size_of::<Head>() + size_of::<B>() + text.len()).next_multiple_of(8);
        let from = self.bytes.len();
        self.now += 10;
        self.bytes.extend_from_slice(bytes_of(&Head { kind, flags, len: len as u32, tsc: self.now }));
        self.bytes.extend_from_slice(bytes_of(body));
        self.bytes.extend_from_slice(text);
        self.bytes.resize(from + len, 0);
    }

    fn origin(&mut self, handle: u64, from: u64, hash: u64) {
        self.event(kind::ORIGIN, 0, &OriginBody { handle, from, hash }, &[]);
    }

    fn name(&mut self, handle: u64, name: &str, ticks: u64) {
        let body = NameBody { handle, name: name.len() as u32, pad: 0 };
        self.event(kind::NAME, (ticks / NAME_TICKS) as u16, &body, name.as_bytes());
    }

    fn launch(&mut self, function: u16, object: u64, began: u64, ticks: u64) {
        self.now = began + ticks - 10;
        self.event(kind::CALL, function, &CallBody { began, object, ..CallBody::default() }, &[]);
    }

    /// By the driver's function: the name is recorded before the call begins.
    fn first(&mut self, handle: u64, name: &str, asked: u64, ticks: u64) {
        self.name(handle, name, asked);
        self.launch(LAUNCH, handle, self.now + 5, ticks);
    }

    /// By the runtime: in the call.
    fn first_of_runtime(&mut self, function: u64, handle: u64, name: &str, ticks: u64) {
        let began = self.now;
        self.name(handle, name, 0);
        self.launch(RUNTIME_LAUNCH, function, began, ticks);
    }

    fn launches(&mut self, function: u16, object: u64, ticks: u64, times: u64) {
        (0..times).for_each(|_| self.launch(function, object, self.now + 100, ticks));
    }
}

fn found(t: &Thread) -> Vec<LateKernel> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    let mut w = Writer::create(&path, &Header { tsc_hz: 1e9, ..Default::default() }).unwrap();
    w.events(0, 7, &t.bytes).unwrap();
    w.end(&End::default()).unwrap();
    late_kernels(&Recording::open(&path).unwrap()).unwrap()
}

#[test]
fn a_first_launch_that_took_longer_than_the_others_is_late() {
    let mut t = Thread::default();
    t.event(kind::CALLS, 0, &CallsBody { layout: LAYOUT, pid: 7 }, &[]);
    let path = b"/opt/libfoo.so.1";
    let mapping = MappingBody { start: 0x7000, end: 0x9000, offset: 0, rights: 1, path: path.len() as u32 };
    t.event(tape::lock::kind::MAPPING, 0, &mapping, path);
    t.origin(0x10, 0x8000, 0xab);
    t.origin(0x20, 0x10, 0);
    t.origin(0x30, 0x20, 0);
    // A kernel of the library's, by its function's handle.
    t.first(0x30, "late", 0, 2_000_000);
    t.launches(LAUNCH, 0x30, 4_000, 5);
    // Loaded while its name was asked for.
    t.origin(0x40, 0x10, 0);
    t.first(0x40, "asked", 300_000, 4_000);
    t.launches(LAUNCH, 0x40, 4_000, 5);
    t.first_of_runtime(0x5555, 0x50, "of_runtime", 100_000);
    t.launches(RUNTIME_LAUNCH, 0x5555, 4_000, 2);
    // Not by 50 us, and not by twice its usual time.
    t.first(0x60, "soon", 0, 45_000);
    t.launches(LAUNCH, 0x60, 4_000, 5);
    t.first(0x70, "slow", 0, 400_000);
    t.launches(LAUNCH, 0x70, 300_000, 5);
    // A name that no launch followed: its kernel is a graph's.
    t.name(0x80, "node", 0);
    t.launches(LAUNCH, 0x30, 900_000, 1);
    let all = found(&t);
    let rows: Vec<_> = all.iter().map(|k| (k.name.as_str(), k.hash, k.library.as_deref(), k.launches)).collect();
    let expected = [
        ("late", Some(0xab), Some("libfoo"), 6),
        ("asked", Some(0xab), Some("libfoo"), 5),
        ("of_runtime", None, None, 2),
    ];
    assert_eq!(rows, expected, "{all:?}");
    assert!(all[0].first_ns == 2_000_000 && all[0].usual_ns.abs_diff(4_000) < 100, "{all:?}");
    assert!(all[1].first_ns.abs_diff(304_000) < NAME_TICKS, "{all:?}");
    assert!(found(&Thread::default()).is_empty());
}
