//! The cost of a recording's summary, with the times of kernels: from a walk over all of it, and from the copy stored in the file.
//!
//! The recording is generated (`tests/synthetic/large.rs`). `examples/large.rs` makes and times larger ones.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use decode::Recording;

const SUBMISSIONS: u64 = 100_000;

fn walks(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("large.doorbell");
    synthetic::large(&path, SUBMISSIONS);
    let open = || Recording::open(&path).expect("a recording");
    let mut group = c.benchmark_group("summary");
    group.sample_size(10);
    group.throughput(Throughput::Elements(SUBMISSIONS));
    group.bench_function("walk", |b| b.iter(|| decode::summary(&open()).expect("a recording").submissions));
    decode::store_summary(&path, std::time::Duration::MAX).expect("a recording");
    group.bench_function("stored", |b| b.iter(|| decode::summary(&open()).expect("a recording").submissions));
    group.finish();
}

criterion_group!(benches, walks);
criterion_main!(benches);
