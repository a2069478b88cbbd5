//! A walk that ends early has the same times of kernels as a whole walk, and reads no more than it needs for them.

mod synthetic;

use decode::Recording;
use decode::walk::{At, Sink, walk};
use pushbuf::ops::{Op, What};
use schema::operations::GpuTime;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tape::file::{Item, Reader};
use tape::stamp::WRITER;

struct Times {
    limit: usize,
    all: Vec<Option<GpuTime>>,
}

impl Sink for Times {
    fn done(&self) -> bool {
        self.all.len() >= self.limit
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let What::Launch(_) = op.what {
            self.all.push(at.gpu_time());
        }
    }
}

/// A byte of each chunk of the program's events, and its offset. (The recorder's chunks are all read up to the next
/// reading of the clocks.)
fn places(path: &Path) -> Vec<(u64, u8)> {
    let mut reader = Reader::open(path).unwrap().unread();
    let whole = std::fs::read(path).unwrap();
    let mut all = Vec::new();
    while let Some(item) = reader.item().unwrap() {
        if let Item::Events { tid, .. } = item
            && tid != WRITER
        {
            let offset = reader.place().offset;
            all.push((offset, whole[offset as usize]));
        }
    }
    all
}

#[test]
fn a_walk_that_ends_early_has_the_same_times_and_reads_little() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    synthetic::large(&path, 20_000);
    let times = |limit| {
        let r = Recording::open(&path).unwrap();
        let mut times = Times { limit, all: Vec::new() };
        walk(&r, &mut times).unwrap();
        (times.all, r.damage().is_some())
    };
    let (all, damaged) = times(usize::MAX);
    assert!(!damaged && all.len() == 17_500 && all.iter().all(Option::is_some));
    // A read of any chunk of events after the middle finds it damaged.
    let places = places(&path);
    let file = File::options().write(true).open(&path).unwrap();
    for (offset, byte) in &places[places.len() / 2..] {
        file.write_all_at(&[byte ^ 1], *offset).unwrap();
    }
    assert!(times(usize::MAX).1);
    let (first, damaged) = times(20);
    assert!(!damaged);
    assert_eq!(first, all[..20]);
}
