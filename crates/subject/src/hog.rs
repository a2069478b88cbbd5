//! A load that needs a CPU and nothing else.

use crate::entry::Entry;
use crate::{Error, Opened, Subject, Waiting, Wrong};
use std::time::{Duration, Instant};

pub(crate) const HOG: Entry = Entry {
    name: "hog",
    form: "hog",
    about: "burns a CPU for 1 ms; no call of CUDA's and no system call",
    bytes: 0,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: |_, _, _| Ok(Box::new(Hog)),
};

const FOR: Duration = Duration::from_millis(1);

struct Hog;

impl Opened for Hog {
    fn about(&self) -> String {
        HOG.about.into()
    }

    fn verify(&mut self, _seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        Ok(None)
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(Hog))
    }
}

impl Subject for Hog {
    fn waiting(&self) -> Waiting {
        Waiting::Polled
    }

    fn fire(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        while start.elapsed() < FOR {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(())
    }
}
