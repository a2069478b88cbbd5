//! A load that only needs a CPU.

use crate::entry::{Entry, PLAIN};
use crate::{Error, Opened, Subject};
use std::time::{Duration, Instant};

const YIELD: &str = "yield";

pub(crate) const HOG: Entry = Entry {
    name: "hog",
    form: "hog(yield)",
    about: "keeps a CPU busy for 1 ms, without CUDA or system calls; yield: then yields to threads of the same priority",
    words: &[YIELD],
    open: |_, call, _| Ok(Box::new(Hog { yields: call.has(YIELD) })),
    ..PLAIN
};

const FOR: Duration = Duration::from_millis(1);

/// If it has the same FIFO priority and CPU as another thread, a hog that never yields is all that ever runs there.
#[derive(Clone, Copy)]
struct Hog {
    yields: bool,
}

impl Opened for Hog {
    fn about(&self) -> String {
        HOG.about.into()
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(*self))
    }
}

impl Subject for Hog {
    fn fire(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        while start.elapsed() < FOR {
            std::hint::spin_loop();
        }
        if self.yields {
            std::thread::yield_now();
        }
        Ok(())
    }
}
