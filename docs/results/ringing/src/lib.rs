//! `ring` opens a channel on the software GPU, rings its doorbell, and leaves a thread behind that goes on ringing.

use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Pushbuffer, Semaphore, Semaphores, Site};
use std::sync::Arc;
use std::time::Duration;

/// A channel, and the semaphore by which it tells that a submission is done.
struct Work {
    channel: Channel,
    done: Semaphore,
    round: u32,
}

impl Work {
    fn new() -> Result<Work, gpu::Error> {
        let device = Device::open(Arc::new(rm::driver::Libc), 0)?;
        let space = AddressSpace::new(&device)?;
        // Where libcuda keeps its rings.
        let options = ChannelOptions { entries: 1024, site: Site::Libcuda, ..ChannelOptions::default() };
        let channel = Channel::new(&space, Engine::Copy(0), options)?;
        let done = Semaphores::new(&space)?.alloc().expect("a semaphore of a new page");
        Ok(Work { channel, done, round: 0 })
    }

    /// Submissions, each waited for.
    fn rounds(&mut self, n: u32) -> Result<(), gpu::Error> {
        for _ in 0..n {
            self.round += 1;
            let mut pushbuffer = Pushbuffer::new(self.channel.space(), 64)?;
            pushbuffer.copy_release(&self.done, self.round)?;
            let pushbuffer = pushbuffer.validate(&self.channel)?;
            self.channel.submit(&pushbuffer)?;
            self.done.wait(self.round, Duration::from_secs(20))?;
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ring() {
    let mut work = Work::new().expect("a channel on the software GPU");
    // Enough for the site to be rewritten.
    work.rounds(20).expect("submissions that end");
    std::thread::spawn(move || {
        loop {
            work.rounds(3).expect("submissions that end");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}
