//! Locks of pthread, taken and released: how threads that share one affect each other, without a GPU.
//!
//! The invariant: every subject and load of the process that names the same lock uses the same one. It is taken by the functions with which every
//! program takes its locks, so that `run --lock-policy` and `record --locks` see it.

use crate::entry::{Call, Entry, PLAIN, Value};
use crate::{Error, Opened, Subject, Unavailable, Wanted};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MUTEX: &str = "mutex";
const READ: &str = "rwlock-read";
const WRITE: &str = "rwlock-write";
const HOLD: &str = "hold";
const NAME: &str = "name";

pub(crate) const LOCK: Entry = Entry {
    name: "lock",
    form: "lock(mutex|rwlock-read|rwlock-write,hold=TIME,name=NAME)",
    about: "takes a pthread lock, holds it, releases it; calls that name the same lock share it, readers and writers too",
    words: &[MUTEX, READ, WRITE],
    one_word: true,
    values: &[Value::Time(HOLD), Value::Name(NAME)],
    open: |_, call, _: &Wanted| {
        let access = match () {
            () if call.has(READ) => Access::Read,
            () if call.has(WRITE) => Access::Write,
            () => Access::Mutex,
        };
        let lock = shared(access == Access::Mutex, call.given(NAME).unwrap_or_default())?;
        let hold = Duration::from_nanos(call.time_ns(HOLD).unwrap_or(0));
        Ok(Box::new(Taking { lock, access, hold, about: about(call, access) }))
    },
    ..PLAIN
};

fn about(call: &Call, access: Access) -> String {
    let take = match access {
        Access::Mutex => "pthread_mutex_lock",
        Access::Read => "pthread_rwlock_rdlock",
        Access::Write => "pthread_rwlock_wrlock",
    };
    match call.given(HOLD) {
        Some(time) => format!("{take}, held for {time}"),
        None => format!("{take}, released at once"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Mutex,
    Read,
    Write,
}

/// It never moves and is never destroyed.
enum Lock {
    Mutex(UnsafeCell<libc::pthread_mutex_t>),
    Rwlock(UnsafeCell<libc::pthread_rwlock_t>),
}

// SAFETY: only pthread's functions access the memory, and any thread may call them at any time.
unsafe impl Send for Lock {}
// SAFETY: as above.
unsafe impl Sync for Lock {}

/// The lock of this name; the first request creates it.
fn shared(is_mutex: bool, name: &str) -> Result<&'static Lock, Error> {
    static ALL: Mutex<Vec<(bool, String, &'static Lock)>> = Mutex::new(Vec::new());
    let mut all = poison::ignore(ALL.lock());
    if let Some((.., lock)) = all.iter().find(|(mutex, known, _)| *mutex == is_mutex && known == name) {
        return Ok(lock);
    }
    let lock: &'static Lock = Box::leak(Box::new(match is_mutex {
        true => Lock::Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)),
        false => Lock::Rwlock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER)),
    }));
    all.push((is_mutex, name.into(), lock));
    Ok(lock)
}

impl Lock {
    #[inline]
    fn take(&self, access: Access) -> c_int {
        // SAFETY: the lock was initialised and stays where it is.
        unsafe {
            match (self, access) {
                (Lock::Mutex(lock), _) => libc::pthread_mutex_lock(lock.get()),
                (Lock::Rwlock(lock), Access::Read) => libc::pthread_rwlock_rdlock(lock.get()),
                (Lock::Rwlock(lock), _) => libc::pthread_rwlock_wrlock(lock.get()),
            }
        }
    }

    #[inline]
    fn give(&self) -> c_int {
        // SAFETY: as above, and the calling thread has taken it.
        unsafe {
            match self {
                Lock::Mutex(lock) => libc::pthread_mutex_unlock(lock.get()),
                Lock::Rwlock(lock) => libc::pthread_rwlock_unlock(lock.get()),
            }
        }
    }
}

struct Taking {
    lock: &'static Lock,
    access: Access,
    hold: Duration,
    about: String,
}

impl Opened for Taking {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(Taken(self)))
    }
}

impl Taking {
    #[inline]
    fn once(&self) -> Result<(), Error> {
        let refused = |what: &str, code| {
            let why = std::io::Error::from_raw_os_error(code);
            Error::from(Unavailable::new(format!("the lock was not {what}: {why}")))
        };
        match self.lock.take(self.access) {
            0 => {}
            code => return Err(refused("given", code)),
        }
        if !self.hold.is_zero() {
            let taken = Instant::now();
            while taken.elapsed() < self.hold {
                std::hint::spin_loop();
            }
        }
        match self.lock.give() {
            0 => Ok(()),
            code => Err(refused("taken back", code)),
        }
    }
}

struct Taken<'t>(&'t Taking);

impl Subject for Taken<'_> {
    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        self.0.once()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, What, open};
    use std::sync::mpsc;

    /// Fires a call once on a separate thread; the receiver gets a message when it returns.
    fn fire(text: &str) -> mpsc::Receiver<bool> {
        let (back, heard) = mpsc::channel();
        let what = What::Call(text.into());
        std::thread::spawn(move || {
            let machine = Machine::without_a_gpu("this test needs none");
            let mut opened = open(&machine, &what, &Wanted::of(0)).unwrap();
            let fired = opened.prepare(1).unwrap().fire();
            let _ = back.send(fired.is_ok());
        });
        heard
    }

    const LONG: Duration = Duration::from_secs(20);
    /// A call that waits for a lock does not return within any time.
    const SHORT: Duration = Duration::from_millis(30);

    fn waits_for(lock: &Lock, access: Access, waits: &[&str], passes: &[&str]) {
        assert_eq!(lock.take(access), 0);
        let waiting: Vec<_> = waits.iter().map(|text| fire(text)).collect();
        for text in passes {
            assert_eq!(fire(text).recv_timeout(LONG), Ok(true), "{text} waits");
        }
        std::thread::sleep(SHORT);
        for (heard, text) in waiting.iter().zip(waits) {
            assert_eq!(heard.try_recv(), Err(mpsc::TryRecvError::Empty), "{text} does not wait");
        }
        assert_eq!(lock.give(), 0);
        assert!(waiting.iter().all(|heard| heard.recv_timeout(LONG) == Ok(true)));
    }

    #[test]
    fn only_calls_with_the_same_lock_name_wait_for_each_other() {
        let mutex = shared(true, "one").unwrap();
        let others = ["lock(mutex,name=two)", "lock(rwlock-write,name=one)", "lock"];
        waits_for(mutex, Access::Mutex, &["lock(mutex,name=one)", "lock(mutex,hold=1us,name=one)"], &others);
        let rwlock = shared(false, "one").unwrap();
        waits_for(rwlock, Access::Read, &["lock(rwlock-write,name=one)"], &["lock(rwlock-read,name=two)"]);
        let both = ["lock(rwlock-write,name=one)", "lock(rwlock-read,name=one)"];
        waits_for(rwlock, Access::Write, &both, &["lock(mutex,name=one)", "lock(rwlock-read)"]);
        // Readers share it.
        waits_for(rwlock, Access::Read, &[], &["lock(rwlock-read,name=one)"]);
    }

    #[test]
    fn a_lock_is_held_for_as_long_as_is_said() {
        let before = Instant::now();
        assert_eq!(fire("lock(rwlock-read,hold=20ms,name=held)").recv_timeout(LONG), Ok(true));
        assert!(before.elapsed() >= Duration::from_millis(20));
    }
}
