//! Nothing: the measured time of a call that does no work. It is the part of another call's time that is due to the clock, the loop and the
//! machine.

use crate::entry::{Call, Entry, PLAIN, Result as Open, Value};
use crate::routes::polling;
use crate::{Error, Machine, Opened, Subject, Wanted};
use std::time::{Duration, Instant};

const AFTER: &str = "after";
/// About the time of a launch of one kernel.
const USUALLY: Duration = Duration::from_micros(4);

pub(crate) const NOTHING: Entry = Entry {
    name: "nothing",
    form: "nothing(after=TIME)",
    about: "no work at all, complete this long after the first poll (4us): it shows what clock, loop and machine add to any call that is as far from \
            the one before",
    values: &[Value::Time(AFTER)],
    open,
    ..PLAIN
};

fn open<'m>(_: &'m Machine, call: &Call, _: &Wanted) -> Open<'m> {
    Ok(Box::new(Nothing(call.time_ns(AFTER).map_or(USUALLY, Duration::from_nanos))))
}

/// How long it takes.
struct Nothing(Duration);

struct Fired {
    takes: Duration,
    /// When it is complete; set at the first poll.
    done: Option<Instant>,
}

impl Opened for Nothing {
    fn about(&self) -> String {
        format!("nothing, which is complete {:?} after the first poll", self.0)
    }

    fn prepare(&mut self, _: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(Fired { takes: self.0, done: None }))
    }
}

impl Fired {
    #[inline]
    fn is_done(&mut self) -> bool {
        let (now, takes) = (Instant::now(), self.takes);
        now >= *self.done.get_or_insert_with(|| now + takes)
    }
}

impl Subject for Fired {
    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        self.done = None;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.is_done())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        polling::wait(timeout, 0, || self.is_done())
    }
}
