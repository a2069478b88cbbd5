//! Submissions as fast as possible, each checked: a stress test for taps. For the software GPU.
//!
//! `storm SCENARIO [count]`, with these scenarios:
//! * `channels`: eight threads, a channel each
//! * `shared`: two threads on one channel
//! * `behind`: count submissions that wait for a semaphore, which is set late
//! * `churn`: channels made and freed in a loop
//! * `launch`: kernel launches
//! * `forever`: until killed

use gpu::{
    AddressSpace, Channel, ChannelOptions, Device, Engine, Error, Memory, Pushbuffer, Semaphores, Site, Validated,
};
use rm::driver::Libc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const TIMEOUT: Duration = Duration::from_secs(30);

struct Storm {
    space: Arc<AddressSpace>,
    semaphores: Semaphores,
    count: u32,
}

/// Submits; waits for room while the ring is full.
fn submit(channel: &mut Channel, pushbuffer: &Validated) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        match channel.submit(pushbuffer) {
            Err(Error::RingFull(_)) if start.elapsed() < TIMEOUT => std::thread::yield_now(),
            result => return result.map(drop),
        }
    }
}

/// A chain of copies through memory, each of which moves the first word on by one place. Only all of them, in order,
/// give the right result.
struct Chain {
    memory: Arc<Memory>,
    steps: Vec<Validated>,
}

impl Chain {
    fn new(storm: &Storm, channel: &Channel) -> Outcome<Chain> {
        let memory = storm.space.alloc_video(0x1000)?;
        let steps = (0..16u64)
            .map(|i| {
                let mut pushbuffer = Pushbuffer::new(&storm.space, 64)?;
                let (from, to) = (memory.va() + 64 * i, memory.va() + 64 * ((i + 1) % 16));
                pushbuffer.copy(to, from, 64)?;
                pushbuffer.validate(channel)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Chain { memory, steps })
    }

    fn start(&self, value: u32) {
        for i in 0..16 {
            self.memory.word(64 * i).store(if i == 0 { value } else { !value }, Ordering::Release);
        }
    }

    /// After 16 steps the value is everywhere.
    fn check(&self, value: u32) -> Outcome {
        for i in 0..16 {
            let found = self.memory.word(64 * i).load(Ordering::Acquire);
            if found != value {
                return Err(format!("place {i} holds {found:#x}, not {value:#x}").into());
            }
        }
        Ok(())
    }
}

impl Storm {
    fn channel(&self, engine: Engine, site: Site) -> Result<Channel, Error> {
        Channel::new(&self.space, engine, ChannelOptions { site, ..Default::default() })
    }

    fn release(&self, channel: &Channel, semaphore: &gpu::Semaphore, value: u32) -> Outcome<Validated> {
        let mut pushbuffer = Pushbuffer::new(&self.space, 16)?;
        pushbuffer.host_release(semaphore, value)?;
        Ok(pushbuffer.validate(channel)?)
    }

    fn one(&self, number: u32) -> Outcome<u64> {
        let site = if number.is_multiple_of(2) { Site::Libcuda } else { Site::Displacement };
        let mut channel = self.channel(Engine::Copy(number % 10), site)?;
        let done = self.semaphores.alloc().ok_or("no semaphore left")?;
        let chain = Chain::new(self, &channel)?;
        for round in 0..self.count.div_ceil(17) {
            let value = (number << 24) + round + 1;
            chain.start(value);
            for step in &chain.steps {
                submit(&mut channel, step)?;
            }
            let last = self.release(&channel, &done, value)?;
            submit(&mut channel, &last)?;
            done.wait(value, TIMEOUT)?;
            chain.check(value)?;
        }
        Ok(channel.entries_written())
    }

    fn channels(&self) -> Outcome<u64> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || self.one(number))).collect();
            threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked")?).sum()
        })
    }

    fn shared(&self) -> Outcome<u64> {
        let channel = Mutex::new(self.channel(Engine::Copy(2), Site::Libcuda)?);
        std::thread::scope(|scope| {
            let work = |number: u32| -> Outcome {
                let lock = || channel.lock().map_err(|_| "a thread panicked");
                let done = self.semaphores.alloc().ok_or("no semaphore left")?;
                for value in 1..=self.count / 2 {
                    let last = self.release(&*lock()?, &done, value)?;
                    submit(&mut *lock()?, &last)?;
                    done.wait(value, TIMEOUT).map_err(|e| format!("thread {number}: {e}"))?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..2).map(|number| scope.spawn(move || work(number))).collect();
            threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
        })?;
        Ok(channel.into_inner().map_err(|_| "a thread panicked")?.entries_written())
    }

    fn behind(&self) -> Outcome<u64> {
        let mut channel = self.channel(Engine::Graphics, Site::Libcuda)?;
        let (gate, done) = (self.semaphores.alloc().ok_or("none")?, self.semaphores.alloc().ok_or("none")?);
        let target = self.space.alloc_video(0x1000)?;
        let mut pushbuffer = Pushbuffer::new(&self.space, 64)?;
        pushbuffer.host_acquire(&gate, 1)?;
        let first = pushbuffer.validate(&channel)?;
        submit(&mut channel, &first)?;
        let mut pushbuffer = Pushbuffer::new(&self.space, 64)?;
        pushbuffer.inline(target.va(), b"behind the semaphore")?;
        let next = pushbuffer.validate(&channel)?;
        let last = self.release(&channel, &done, 1)?;
        std::thread::scope(|scope| {
            // Opens when the ring has been full for a while.
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                gate.set(1);
            });
            (0..self.count).try_for_each(|_| submit(&mut channel, &next))?;
            submit(&mut channel, &last)
        })?;
        done.wait(1, TIMEOUT)?;
        Ok(channel.entries_written())
    }

    fn churn(&self) -> Outcome<u64> {
        let mut entries = 0;
        for number in 0..self.count {
            let engine = if number.is_multiple_of(3) { Engine::Graphics } else { Engine::Copy(number % 10) };
            let mut channel = self.channel(engine, Site::Libcuda)?;
            let done = self.semaphores.alloc().ok_or("no semaphore left")?;
            for value in 1..=3 {
                let last = self.release(&channel, &done, value)?;
                submit(&mut channel, &last)?;
                done.wait(value, TIMEOUT)?;
            }
            entries += channel.entries_written();
        }
        Ok(entries)
    }

    fn launch(&self) -> Outcome<u64> {
        let mut channel = self.channel(Engine::Graphics, Site::Libcuda)?;
        let done = self.semaphores.alloc().ok_or("no semaphore left")?;
        let qmd = self.space.alloc_host(0x1000)?;
        // QMD V04: major version 583:580; a grid of 132 blocks (1055:1024) of 256 threads (1167:1152).
        qmd.word(18 * 4).store(4 << 4, Ordering::Relaxed);
        qmd.word(32 * 4).store(132, Ordering::Relaxed);
        qmd.word(36 * 4).store(256, Ordering::Relaxed);
        let mut pushbuffer = Pushbuffer::new(&self.space, 64)?;
        pushbuffer.launch(qmd.va())?;
        let launch = pushbuffer.validate(&channel)?;
        (0..self.count).try_for_each(|_| submit(&mut channel, &launch))?;
        let last = self.release(&channel, &done, 1)?;
        submit(&mut channel, &last)?;
        done.wait(1, TIMEOUT)?;
        Ok(channel.entries_written())
    }
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let scenario = arguments.next().ok_or("which scenario?")?;
    let count = arguments.next().map_or(Ok(2000), |a| a.parse())?;
    let device = Device::open(Arc::new(Libc), 0)?;
    let space = AddressSpace::new(&device)?;
    let semaphores = Semaphores::new(&space)?;
    let storm = Storm { space, semaphores, count };
    let start = Instant::now();
    let entries = match scenario.as_str() {
        "channels" => storm.channels()?,
        "shared" => storm.shared()?,
        "behind" => storm.behind()?,
        "churn" => storm.churn()?,
        "launch" => storm.launch()?,
        "forever" => loop {
            storm.channels()?;
        },
        other => return Err(format!("no scenario {other}").into()),
    };
    println!("{scenario}: {entries} entries, all right, {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
