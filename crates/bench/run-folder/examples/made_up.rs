//! Writes the folder of a synthetic run, to try readers of samples: `made_up FOLDER [SAMPLES]`.

#[path = "../tests/made/mod.rs"]
mod made;

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which folder?")?;
    let n = args.next().map_or(Ok(100_000), |n| n.parse())?;
    let folder = run_folder::Folder::create(Path::new(&path), &made::experiment(), true)?;
    for repeat in 0..2 {
        let cells = [1, 2, 3].map(|cell| made::samples(10 * u64::from(repeat) + cell, n));
        let began = std::time::Instant::now();
        folder.write_part(&made::part(0, repeat, &cells), &cells)?;
        let bytes = std::fs::metadata(folder.samples_path(0, repeat))?.len();
        let took = began.elapsed();
        println!("{:.2} bytes a sample, written in {took:?}", bytes as f64 / (3 * n) as f64);
    }
    Ok(())
}
