//! CUDA's rule: do not synchronise a context while one of its streams is in capture. Capturing takes the write lock, synchronising
//! the read lock.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static CAPTURE: RwLock<()> = RwLock::new(());

/// No thread waits for the whole context while this is held.
pub(crate) fn capturing() -> RwLockWriteGuard<'static, ()> {
    poison::ignore(CAPTURE.write())
}

/// No stream is in capture while this is held.
pub(crate) fn outside_capture() -> RwLockReadGuard<'static, ()> {
    poison::ignore(CAPTURE.read())
}
