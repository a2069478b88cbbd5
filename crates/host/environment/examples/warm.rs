//! Cost of the first touch of memory compared with later ones. The argument is MiB; the default is 1024.

use std::io;

fn main() -> io::Result<()> {
    let mib = std::env::args().nth(1).and_then(|a| a.parse::<usize>().ok()).unwrap_or(1024);
    for time in ["first", "second", "third"] {
        let warmed = environment::warm_memory(mib << 20)?;
        let ns = warmed.time.as_nanos() as f64 / (warmed.bytes >> 12).max(1) as f64;
        println!(
            "{time}: {} MiB in {:.1} ms, {ns:.0} ns for each 4 KiB",
            warmed.bytes >> 20,
            warmed.time.as_secs_f64() * 1e3
        );
    }
    Ok(())
}
