//! A file as a source, with the software GPU: to the GPU every byte is compared, to the host the last block of each slot.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use measure::clock::Clock;
use saturate::Error;
use saturate::cell::{Cell, run};
use saturate::source::{Flow, Shape, Source, Target};
use saturate::sources::files::Files;
use saturate::walk::fill;
use saturate::way::Way;
use saturate::wire::Uncounted;
use saturate::worker::Limits;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use workload::Machine;

fn machine() -> Machine {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Poll)), 0).unwrap();
    Machine::of_space(AddressSpace::new(&device).unwrap())
}

/// In the build folder: temporary files may be in memory, which has no direct I/O.
fn file(name: &str, bytes: usize) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("saturate-{name}-{}", std::process::id()));
    let mut all = vec![0; bytes];
    fill(&mut all, 5, 0);
    std::fs::write(&path, all).unwrap();
    path
}

fn cell(target: Target, bytes: u64, (threads, queues): (u32, u32), batch: u32) -> Cell {
    let part = bytes << 4;
    Cell {
        shape: Shape {
            flow: Flow::to(target),
            devices: 1,
            queues,
            depth: 4,
            bytes,
            part,
            batch,
            way: Way::default(),
            seed: 3,
        },
        threads,
        cpus: Vec::new(),
        duration: Duration::from_millis(10),
        // Two laps: both images of every block.
        limits: Limits { warm_ios: 40, patience: Duration::from_secs(30) },
        every: Duration::from_millis(10),
    }
}

#[test]
fn a_file_arrives_completely_in_gpu_memory_and_the_slots_hold_the_last_reads() {
    let (machine, path) = (machine(), file("whole", 1 << 20));
    let mut files = match Files::open(&path, Some(&machine)) {
        Err(Error::File { what, .. }) if what.contains("no direct I/O") => test_support::skip!("{what}"),
        files => files.unwrap(),
    };
    assert!(files.is_functional() && files.traffic(Flow::to(Target::Host)).is_none());
    assert!(files.traffic(Flow::to(Target::Gpu)).is_some(), "the wire bytes of the copy engine");
    for (target, bytes, threads, batch) in
        [(Target::Gpu, 4096, (1, 1), 1), (Target::Gpu, 4096, (2, 2), 4), (Target::Host, 8192, (1, 2), 1)]
    {
        let cell = cell(target, bytes, threads, batch);
        let outcome = match run(&mut files, &cell, &Clock::monotonic_raw(), &mut Uncounted) {
            // A kernel, or a container, without it.
            Err(Error::File { what, .. }) if what.starts_with("io_uring") => test_support::skip!("{what}"),
            outcome => outcome.unwrap(),
        };
        let queues = u64::from(threads.1);
        // Both images of each of 16 blocks, or four slots.
        let blocks = if target == Target::Gpu { 2 * 16 * queues } else { 4 * queues };
        let found = (outcome.checked.wrong, outcome.refused(), outcome.checked.blocks);
        assert_eq!(found, (0, 0, blocks), "{:?}", outcome.checked);
        assert!(outcome.submitted >= 40 * queues);
    }
    let shape = Shape { part: 1 << 20, ..cell(Target::Gpu, 4096, (1, 1), 1).shape };
    let why = files.open(&shape).map(drop).unwrap_err().to_string();
    assert!(why.contains("the file has 1048576"), "{why}");
    let odd = Shape { bytes: 1000, part: 16_000, ..shape };
    let why = files.open(&odd).map(drop).unwrap_err().to_string();
    assert!(why.contains("direct I/O on this file needs multiples"), "{why}");
    let two = Shape { devices: 2, part: 4096 << 4, ..shape };
    assert!(files.open(&two).map(drop).unwrap_err().to_string().contains("there is one file"));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn an_unusable_file_is_refused_with_a_hint() {
    let open = |path: &Path| Files::open(path, None).map(drop).unwrap_err();
    let missing = open(Path::new("/none/data.bin"));
    assert!(missing.to_string().contains("/none/data.bin") && missing.hint() == "check the path", "{missing}");
    assert!(open(Path::new("/")).to_string().contains("a directory"));
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        test_support::skip!("no file system in memory");
    }
    let path = memory.join(format!("saturate-{}", std::process::id()));
    std::fs::write(&path, [1; 8192]).unwrap();
    let refused = open(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(refused.to_string().contains("no direct I/O") && refused.hint().contains("ext4"), "{refused}");
}
