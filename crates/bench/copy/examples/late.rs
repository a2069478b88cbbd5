//! CUDA first, doorbell second: CUDA's context, memory and work exist before a machine opens channels that copy that memory.
//!
//! `cargo run --release -p copy --example late`, on a GPU.

use copy::{Machine, Where, open};
use cuda::{Cuda, DeviceBuffer, PinnedBuffer};
use machine::pin;
use std::time::{Duration, Instant};

const BYTES: usize = 8 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Cuda::load()?.device(0)?.primary_context()?;
    let (host, device) = (PinnedBuffer::new(&context, BYTES)?, DeviceBuffer::new(&context, BYTES)?);
    let small = DeviceBuffer::new(&context, 512)?;
    device.write(&vec![1; BYTES])?;

    let begun = Instant::now();
    let machine = Machine::open(Where::Real)?;
    let space = machine.space()?;
    println!("opened {} us after CUDA was there", begun.elapsed().as_micros());
    let from = pin(&machine, host.as_ptr() as u64, BYTES as u64)?;
    let to = pin(&machine, device.address(), BYTES as u64)?;
    let little = pin(&machine, small.address(), 512)?;
    let mut channel = gpu::Channel::new(space, gpu::Engine::Copy(3), gpu::ChannelOptions::default())?;
    for (target, length) in [(&to, BYTES), (&little, 512)] {
        let (to, from) = (target.region().part(0, length as u64)?, from.region().part(0, length as u64)?);
        let mut copy = gpu::Prepared::copy(&mut channel, &to, &from, length as u32, gpu::CopyMode::Plain)?;
        for round in 0..100u64 {
            let data: Vec<u8> = (0..length as u64).map(|n| ((n * 31 + round * 7) >> 3) as u8).collect();
            // SAFETY: the buffer has that many bytes, and no copy is pending.
            unsafe { std::slice::from_raw_parts_mut(host.as_ptr(), length) }.copy_from_slice(&data);
            let ticket = copy.submit(&mut channel)?;
            channel.wait(ticket, Duration::from_secs(5))?;
            let mut back = vec![0; length];
            if length == BYTES {
                device.read(&mut back)?
            } else {
                small.read(&mut back)?
            }
            assert!(back == data, "round {round}");
        }
        println!("{length} bytes, 100 times: right");
    }
    for name in [
        "host->ce3->gpu0",
        "gpu0->ce3->host",
        "host->inline->gpu0",
        "host->bar1->gpu0",
        "host->inline[group=cuda]->gpu0",
    ] {
        match open(&machine, name, 4096).and_then(|mut route| copy::verify(&mut route, 4096, 1, Duration::from_secs(5)))
        {
            Ok(None) => println!("{name}: right"),
            Ok(Some(wrong)) => println!("{name}: {wrong}"),
            Err(error) => println!("{name}: refused: {error}"),
        }
    }
    let before = pin(&machine, device.address(), BYTES as u64)?;
    drop(device);
    println!(
        "after CUDA freed it: {}",
        if before.region().is_live() { "STILL LIVE" } else { "stale, as it should be" }
    );
    Ok(())
}
