//! Whether the kernel driver gives a file that becomes readable at an interrupt of the GPU, and how often that happens within two
//! seconds: `cargo run -p gpu --example os_event`. Needs a GPU and libcuda. Other programs' work raises such interrupts, too.

use cuda::Cuda;
use gpu::{Entry, Libcuda, OsEvent};
use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let watched = Libcuda::open()?;
    let cuda = Cuda::load()?;
    let context = cuda.device(0)?.primary_context()?;
    let space = watched.address_space(context.device().uuid()?, Entry::OwnClient)?;
    let event = OsEvent::new(space.device())?;
    println!("driver {} gives an event", space.device().driver_version());
    let (start, mut times) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(2) {
        let mut poll = libc::pollfd { fd: event.as_fd().as_raw_fd(), events: libc::POLLIN | libc::POLLPRI, revents: 0 };
        // SAFETY: one entry, a local variable.
        times += u32::from(unsafe { libc::poll(&raw mut poll, 1, 100) } == 1);
    }
    println!("readable {times} times within 2 s");
    Ok(())
}
