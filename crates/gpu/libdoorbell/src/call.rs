//! Common parts of all functions: panics and errors become codes, and pointers are checked first.

use crate::codes::{DOORBELL_OK, DOORBELL_PANIC, code};
use crate::detail;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use submit::{Error, Session};

#[inline]
pub(crate) fn run(call: impl FnOnce() -> Result<(), Error>) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => DOORBELL_OK,
        Ok(Err(error)) => failed(&error),
        Err(panic) => panicked(&*panic),
    }
}

/// In a fork's child each call returns DOORBELL_FORKED, also with a wrong handle or argument. Errors that a program retries in a loop are not checked,
/// because the check is a system call: the child gets none of them.
#[cold]
fn failed(error: &Error) -> i32 {
    let can_be_child = !matches!(error, Error::Busy | Error::Full(_) | Error::Timeout(_));
    let error = if can_be_child && Session::same_process().is_err() { &Error::Forked } else { error };
    detail::set(error);
    code(error)
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> i32 {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    detail::set(&text.unwrap_or("a panic without a text"));
    DOORBELL_PANIC
}

/// A wrong argument.
pub(crate) const fn wrong(what: &'static str) -> Error {
    Error::Argument(what)
}

/// The memory for a result. It is checked before the call, so a call without such memory has no effect.
pub(crate) struct To<T>(*mut T);

impl<T> To<T> {
    /// # Safety
    /// `at` is null or may be written.
    pub(crate) unsafe fn new(at: *mut T) -> Result<To<T>, Error> {
        if at.is_null() { Err(wrong("the pointer for the answer is null")) } else { Ok(To(at)) }
    }

    pub(crate) fn put(self, value: T) {
        // SAFETY: not null, and the caller of `new` guarantees that it may be written. (Packed structs of C and C++ align nothing.)
        unsafe { self.0.write_unaligned(value) };
    }
}

/// Writes a result if the caller passed memory for it.
///
/// # Safety
/// `at` is null or may be written.
pub(crate) unsafe fn put_if_wanted<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the caller guarantees it.
        unsafe { at.write_unaligned(value) };
    }
}

/// Writes as much of a text as fits, and a zero after it.
///
/// # Safety
/// `at` is null or has room for `room` bytes.
pub(crate) unsafe fn put_text(at: *mut c_char, room: usize, text: &str) {
    if at.is_null() || room == 0 {
        return;
    }
    // Whole characters only.
    let fits = (0..room.min(text.len() + 1)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    // SAFETY: the caller guarantees it. One byte is left for the zero.
    unsafe {
        at.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), fits);
        at.add(fits).write(0);
    }
}

/// The same, for a call that takes `most` at a time: a count that was never set is mostly larger, and nothing is read then.
///
/// # Safety
/// As [`many`].
pub(crate) unsafe fn few<'a, T>(at: *const T, count: usize, most: usize) -> Result<&'a [T], Error> {
    if count > most {
        return Err(Error::Limit(most));
    }
    // SAFETY: the caller guarantees it.
    unsafe { many(at, count) }
}

/// # Safety
/// `at` is null or points to `count` values.
pub(crate) unsafe fn many<'a, T>(at: *const T, count: usize) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if at.is_null() || !at.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(wrong("a pointer is null or not aligned, or the count is too large"));
    }
    // SAFETY: the caller guarantees it.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

pub(crate) fn limit(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}
