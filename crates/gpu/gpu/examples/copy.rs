//! Copies random data to GPU memory and back, by the copy engine and inline, and checks every byte.
//!
//! `copy [rounds] [channels] [real]`: for the software GPU (preload it), or with `real` for a hardware GPU.

use gpu::{AddressSpace, Channel, ChannelOptions, DeviceOptions, Engine, Pushbuffer, Semaphores, Site};
use rm::driver::Libc;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const SIZE: usize = 64 << 10;

/// xorshift64*: data that is never all zeros.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(len).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().map_or(Ok(100), |a| a.parse())?;
    let channels: u64 = arguments.next().map_or(Ok(2), |a| a.parse())?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let real = arguments.next().is_some_and(|a| a == "real");
    let device = DeviceOptions::default().allow_real(real).open(Arc::new(Libc), 0)?;
    println!("driver {}, software GPU: {}", device.driver_version(), device.is_soft());
    let space = AddressSpace::new(&device)?;
    let semaphores = Semaphores::new(&space)?;
    let source = space.alloc_host(SIZE as u64)?;
    let video = space.alloc_video(SIZE as u64)?;
    let target = space.alloc_host(SIZE as u64)?;
    let mut entries = 0;
    for number in 0..channels {
        let engine = if number % 2 == 0 { Engine::Copy(2) } else { Engine::Graphics };
        let site = if number / 2 % 2 == 0 { Site::Libcuda } else { Site::Displacement };
        let mut channel = Channel::new(&space, engine, ChannelOptions { site, ..Default::default() })?;
        let done = semaphores.alloc().ok_or("no semaphore left")?;
        let mut round_trip = None;
        for round in 0..rounds {
            let payload = round as u32 + 1;
            let len = match engine {
                Engine::Copy(_) => SIZE,
                Engine::Graphics => 1 + random.next() as usize % 4096,
            };
            let data = random.bytes(len);
            source.write(0, &data);
            let mut pushbuffer = match round_trip.take() {
                Some(pushbuffer) => pushbuffer,
                None => Pushbuffer::new(&space, 2048)?,
            };
            match engine {
                Engine::Copy(_) => pushbuffer
                    .copy(video.va(), source.va(), SIZE as u32)?
                    .copy(target.va(), video.va(), SIZE as u32)?
                    .copy_release(&done, payload)?,
                Engine::Graphics => pushbuffer.inline(target.va(), &data)?.host_release(&done, payload)?,
            };
            let pushbuffer = pushbuffer.validate(&channel)?;
            channel.submit(&pushbuffer)?;
            done.wait(payload, TIMEOUT)?;
            let mut back = vec![0; data.len()];
            target.read(0, &mut back);
            if back != data {
                return Err(format!("round {round} on {engine:?}: the data is not what was sent").into());
            }
            round_trip = pushbuffer.reuse().ok();
        }
        entries += channel.entries_written();
    }
    println!("{} rounds, {entries} entries, every byte right", rounds * channels);
    Ok(())
}
