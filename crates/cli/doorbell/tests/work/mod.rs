//! The work of a test program on the software GPU, and how it reports to its test.
#![allow(dead_code, reason = "no test file uses all of it")]

use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Memory, Pushbuffer, Semaphore, Semaphores, Site};
use std::sync::Arc;
use std::time::Duration;

/// Begins the lines that a program prints for its test.
pub const SAYS: &str = "program: ";

pub fn say(what: &str, n: u64) {
    println!("{SAYS}{what} {n}");
}

/// A channel and work to do on it.
pub struct Work {
    pub channel: Channel,
    pub source: Arc<Memory>,
    pub target: Arc<Memory>,
    done: Semaphore,
    pub round: u32,
}

impl Work {
    pub fn new() -> Work {
        Work::with(Site::Libcuda)
    }

    pub fn with(site: Site) -> Work {
        Work::in_space(&Work::space(), site)
    }

    pub fn space() -> Arc<AddressSpace> {
        let device = Device::open(Arc::new(rm::driver::Libc), 0).expect("the software GPU");
        AddressSpace::new(&device).unwrap()
    }

    pub fn in_space(space: &Arc<AddressSpace>, site: Site) -> Work {
        let options = ChannelOptions { entries: 1024, site, ..ChannelOptions::default() };
        let channel = Channel::new(space, Engine::Copy(0), options).unwrap();
        let (source, target) = (space.alloc_host(4096).unwrap(), space.alloc_host(4096).unwrap());
        let done = Semaphores::new(space).unwrap().alloc().unwrap();
        Work { channel, source, target, done, round: 0 }
    }

    /// A copy, the wait for it, and a check of the result.
    pub fn rounds(&mut self, n: u32) {
        for _ in 0..n {
            self.round += 1;
            let data = [self.round.wrapping_mul(0x9e37_79b9); 16].map(u32::to_le_bytes).concat();
            self.source.write(0, &data);
            let mut pushbuffer = Pushbuffer::new(self.channel.space(), 64).unwrap();
            pushbuffer.copy(self.target.va(), self.source.va(), data.len() as u32).unwrap();
            pushbuffer.copy_release(&self.done, self.round).unwrap();
            let pushbuffer = pushbuffer.validate(&self.channel).unwrap();
            self.channel.submit(&pushbuffer).unwrap();
            self.done.wait(self.round, Duration::from_secs(20)).unwrap();
            let mut back = vec![0; data.len()];
            self.target.read(0, &mut back);
            assert_eq!(back, data, "round {}", self.round);
        }
    }

    pub fn say_entries(&self) {
        say("entries", self.channel.entries_written());
    }
}
