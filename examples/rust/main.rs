//! The examples, one after the other: `cargo run -p submit --example tour`, beside CUDA or, with the software GPU preloaded,
//! without.

mod frames;
mod pages;
mod parameters;

use submit::{Error, Options, Session};

fn main() -> Result<(), Error> {
    static SESSION: Session = Session::new();
    // Before the first CUDA call of the program, where it makes any.
    let _ = Session::watch();
    let log = std::sync::Arc::new(|text: &str| println!("doorbell: {text}"));
    SESSION.open(&Options { log: Some(log), ..Options::default() })?;
    println!("200 frames, the camera had to wait {} times", frames::frames(&SESSION, 200)?);
    pages::pages(&SESSION, 256)?;
    println!("256 pages out and in");
    parameters::parameters(&SESSION, 1000)?;
    println!("1000 updates of parameters");
    SESSION.close()
}
