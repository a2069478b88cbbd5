//! A walk with a time filter ends soon after that time.

mod synthetic;

use decode::Recording;
use decode::rows::clock;
use decode::walk::{At, Filter, Sink, walk};
use schema::Clock;

struct Numbers {
    filter: Filter,
    clock: Clock,
    ends: bool,
    wanted: Vec<u64>,
    given: u64,
}

impl Sink for Numbers {
    fn until(&self) -> Option<u64> {
        self.filter.until(&self.clock).filter(|_| self.ends)
    }

    fn submission(&mut self, at: &At<'_>) {
        self.given += 1;
        if self.filter.wants_at(at, &self.clock) {
            self.wanted.push(at.number);
        }
    }
}

#[test]
fn what_comes_later_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut t = synthetic::Tape::new();
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    t.channel(101, 1, 0x5c00_1001, 11, 1024);
    // Ten a second for 20 s, in two threads.
    for i in 0..200u64 {
        let thread = (i % 2) as i32;
        let words = synthetic::copy(synthetic::HOST_AT, synthetic::DEVICE_AT, 4096);
        t.submit_at(100 + thread, 1_000_000 + i * 100_000_000, thread as u32, &[&words], 0, 1 << 12);
        if i % 16 == 15 {
            t.cut(100 + thread);
        }
    }
    t.write(&path);
    let r = Recording::open(&path).unwrap();
    let read = |between, ends| {
        let filter = Filter { between: Some(between), ..Filter::default() };
        let mut numbers = Numbers { filter, clock: clock(&r), ends, wanted: Vec::new(), given: 0 };
        walk(&r, &mut numbers).unwrap();
        (numbers.wanted, numbers.given)
    };
    for between in [(0.0, 1.0), (3.05, 3.06), (2.5, 4.0), (0.0, 1e300), (-5.0, -1.0)] {
        let (wanted, given) = read(between, true);
        let (all, all_given) = read(between, false);
        assert_eq!((&wanted, all_given), (&all, 200), "{between:?}");
        assert!(given < 55 || between.1 > 1e9, "{between:?}: {given}");
    }
}
