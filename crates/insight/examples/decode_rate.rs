//! How fast a tape is read: writes one of a given size (MB, 500 if not said) as a training loop would make it, and tallies it.
//!
//! `cargo run --release -p insight --example decode_rate -- 500`

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use insight::Recording;
use std::time::Instant;
use synthetic::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let megabytes: usize = std::env::args().nth(1).map_or(Ok(500), |a| a.parse())?;
    let dir = std::env::temp_dir().join(format!("decode-rate-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let path = dir.join("rate.doorbell");
    let mut t = Tape::new();
    t.context(1);
    for i in 0..8 {
        t.channel(1, i, 0x5c00_1000 + i, 1, 1024);
    }
    t.channel(1, 8, 0x5c00_1008, 9, 1024);
    t.cut(1);
    // A launch is 2.2 times a step's copies and events.
    let launch = launch(QMD_AT, [64, 2, 1]);
    let copy = copy(HOST_AT, DEVICE_AT, 1 << 20);
    let mut steps = 0u64;
    while t.bytes() < megabytes * 1_000_000 {
        for k in 0..20u32 {
            let thread = 2 + (steps % 4) as i32;
            t.submit(thread, k % 8, &[&launch]);
        }
        t.submit(6, 8, &[&copy]);
        steps += 1;
        if steps.is_multiple_of(50) {
            (2..7).for_each(|tid| t.cut(tid));
        }
    }
    t.write(&path);
    drop(t);
    let bytes = std::fs::metadata(&path)?.len();
    for _ in 0..3 {
        let begin = Instant::now();
        let r = Recording::open(&path)?;
        let opened = begin.elapsed();
        let s = insight::summary(&r)?;
        let took = begin.elapsed();
        assert_eq!((s.launches, s.copies.copy_engine, s.lost), (20 * steps, steps, 0));
        println!(
            "{:.0} MB, {} submissions: checked in {:.3} s, all in {:.3} s, {:.0} MB/s, {:.2} M submissions/s",
            bytes as f64 / 1e6,
            s.submissions,
            opened.as_secs_f64(),
            took.as_secs_f64(),
            bytes as f64 / 1e6 / took.as_secs_f64(),
            s.submissions as f64 / 1e6 / took.as_secs_f64()
        );
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
