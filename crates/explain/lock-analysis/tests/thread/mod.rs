//! Tapes with locks, written event by event.

use decode::Recording;
use schema::locks::Locks;
use tape::event::{Head, Plain, bytes_of};
use tape::file::{End, Header, Writer};
use tape::lock::{LocksBody, MappingBody, kind};

/// The events of one thread.
#[derive(Default)]
pub struct Thread(pub Vec<u8>);

impl Thread {
    pub fn add<B: Plain>(mut self, kind: u16, flags: u16, tsc: u64, body: &B, tail: &[u8]) -> Thread {
        let len = (size_of::<Head>() + size_of::<B>() + tail.len()).next_multiple_of(8);
        self.0.extend_from_slice(bytes_of(&Head { kind, flags, len: len as u32, tsc }));
        self.0.extend_from_slice(bytes_of(body));
        self.0.extend_from_slice(tail);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self
    }

    /// Locks are recorded with this layout, of a program that is mapped from 0x1000 to 0x9000.
    pub fn begins_with(self, layout: u32) -> Thread {
        let path = b"/opt/app";
        let map = MappingBody { start: 0x1000, end: 0x9000, rights: 5, path: path.len() as u32, ..Default::default() };
        self.add(kind::LOCKS, 0, 1, &LocksBody { layout, pid: 7 }, &[]).add(kind::MAPPING, 0, 1, &map, path)
    }
}

/// The locks of a tape of these threads, each of a process image. One tick is a nanosecond.
pub fn told(header: Header, threads: impl IntoIterator<Item = (u32, i32, Thread)>) -> Locks {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    let mut w = Writer::create(&path, &Header { tsc_hz: 1e9, locks: true, ..header }).unwrap();
    for (process, tid, t) in threads {
        w.events(process, tid, &t.0).unwrap();
    }
    w.end(&End::default()).unwrap();
    lock_analysis::locks(&Recording::open(&path).unwrap(), 100).unwrap()
}
