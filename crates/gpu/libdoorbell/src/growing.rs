//! Structs that grow. A program passes the size that a struct has in its header. Fields that an older header lacks are read as 0,
//! and fields that only a newer header has must be 0.

use crate::call::wrong;
use std::borrow::Cow;
use submit::Error;

/// A struct of numbers and pointers, for which all zeros are valid.
///
/// # Safety
/// It is such a struct, without padding that matters.
pub(crate) unsafe trait Growing: Copy {
    /// Its size in the first header that had it.
    const FIRST: usize;
}

const TOO_SMALL: Error = wrong("a struct's size is smaller than any version of it: set it to sizeof the struct");
const TOO_LARGE: Error = wrong("a struct's size is larger than 512, which none ever is: set it to sizeof the struct");
/// No version of a struct is larger. A size that was never set is mostly larger, and nothing is read then.
const MOST: usize = 512;
const NEWER: Error =
    wrong("a struct has something set that this library does not know: it is older than the program's doorbell.h");

/// Reads a struct that begins with its size. `None` for null.
///
/// # Safety
/// Null, or a struct of as many bytes as the `size_t` at its beginning.
#[inline]
pub(crate) unsafe fn one<T: Growing>(at: *const T) -> Result<Option<T>, Error> {
    if at.is_null() {
        return Ok(None);
    }
    if !at.is_aligned() {
        return Err(wrong("the pointer to a struct is not aligned"));
    }
    // SAFETY: the caller guarantees it. The size is the first field.
    let size = fitting::<T>(unsafe { at.cast::<usize>().read() })?;
    // SAFETY: the caller guarantees it.
    unsafe { read(at.cast(), size) }.map(Some)
}

/// Reads an array of at most `most` elements, which have `size` bytes in the program's header.
///
/// # Safety
/// Null, or `count` elements of `size` bytes.
#[inline]
pub(crate) unsafe fn array<'a, T: Growing>(
    at: *const T,
    count: usize,
    most: usize,
    size: usize,
) -> Result<Cow<'a, [T]>, Error> {
    if count > most {
        return Err(Error::Limit(most));
    }
    if size == size_of::<T>() {
        // SAFETY: the caller guarantees it.
        return unsafe { crate::call::many(at, count) }.map(Cow::Borrowed);
    }
    if count == 0 {
        return Ok(Cow::Borrowed(&[]));
    }
    let size = fitting::<T>(size)?;
    if at.is_null() || !at.is_aligned() {
        return Err(wrong("an array is null or not aligned"));
    }
    // SAFETY: the caller guarantees it.
    let element = |n: usize| unsafe { read(at.cast::<u8>().add(n * size), size) };
    (0..count).map(element).collect::<Result<Vec<T>, Error>>().map(Cow::Owned)
}

/// The size of a program's struct, if some version of it has that size.
fn fitting<T: Growing>(size: usize) -> Result<usize, Error> {
    match size {
        _ if size < T::FIRST => Err(TOO_SMALL),
        _ if size > MOST => Err(TOO_LARGE),
        _ => Ok(size),
    }
}

/// # Safety
/// `size` bytes can be read at `at`, at least `T::FIRST`.
unsafe fn read<T: Growing>(at: *const u8, size: usize) -> Result<T, Error> {
    let known = size.min(size_of::<T>());
    // SAFETY: the caller guarantees it.
    let beyond = unsafe { std::slice::from_raw_parts(at.add(known), size - known) };
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(NEWER);
    }
    let mut whole = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `size` bytes can be read, and 0 is valid for the others.
    Ok(unsafe {
        whole.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(at, known);
        whole.assume_init()
    })
}

/// The memory for a result, as large as the program's struct. It is checked before the call, so a call without it has no effect.
pub(crate) struct Room<T> {
    at: *mut T,
    size: usize,
}

/// # Safety
/// Null, or as many bytes may be written as the `size_t` at its beginning, until the result is put there.
pub(crate) unsafe fn room<T: Growing>(at: *mut T) -> Result<Room<T>, Error> {
    if at.is_null() || !at.is_aligned() {
        return Err(wrong("the pointer for the answer is null or not aligned"));
    }
    // SAFETY: the caller guarantees it. The size is the first field.
    let size = fitting::<T>(unsafe { at.cast::<usize>().read() })?;
    Ok(Room { at, size })
}

impl<T: Growing> Room<T> {
    /// Writes those fields of a result that the program's struct has, but not its size.
    pub fn put(self, value: T) {
        let (head, known) = (size_of::<usize>(), self.size.min(size_of::<T>()));
        // SAFETY: within both, as the caller of `room` guarantees.
        unsafe {
            let from = (&raw const value).cast::<u8>().add(head);
            self.at.cast::<u8>().add(head).copy_from_nonoverlapping(from, known - head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Now {
        size: usize,
        old: u64,
        new: u64,
    }

    // SAFETY: numbers.
    unsafe impl Growing for Now {
        const FIRST: usize = 16;
    }

    fn given(words: &[u64]) -> Result<Option<Now>, Error> {
        // SAFETY: each test has as many words as the first one gives.
        unsafe { one(words.as_ptr().cast::<Now>()) }
    }

    #[test]
    fn old_programs_have_zeros_and_new_ones_may_not_set_what_is_unknown() {
        assert_eq!(given(&[16, 7]).unwrap(), Some(Now { size: 16, old: 7, new: 0 }));
        assert_eq!(given(&[24, 7, 8]).unwrap(), Some(Now { size: 24, old: 7, new: 8 }));
        assert_eq!(given(&[40, 7, 8, 0, 0]).unwrap(), Some(Now { size: 40, old: 7, new: 8 }));
        assert_eq!(given(&[40, 7, 8, 0, 1]).unwrap_err().to_string(), NEWER.to_string());
        assert_eq!(given(&[8]).unwrap_err().to_string(), TOO_SMALL.to_string());
        // Nothing behind the size is read.
        for size in [MOST as u64 + 1, 1 << 40, u64::MAX] {
            assert_eq!(given(&[size]).unwrap_err().to_string(), TOO_LARGE.to_string());
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { one::<Now>(std::ptr::null()) }.unwrap(), None);
    }

    #[test]
    fn arrays_are_read_by_the_size_of_the_programs_elements() {
        let words = [1u64, 2, 3, 0, 5, 6, 7, 0];
        // SAFETY: as many words as the sizes give.
        let of = |count, size| unsafe { array(words.as_ptr().cast::<Now>(), count, 4, size) };
        assert_eq!(of(2, 32).unwrap()[1], Now { size: 5, old: 6, new: 7 });
        assert_eq!(of(4, 16).unwrap()[2], Now { size: 5, old: 6, new: 0 });
        assert!(matches!(of(2, 24).unwrap(), Cow::Borrowed(_)));
        assert!(
            of(1, 64).is_err()
                && of(1, 0).is_err()
                && of(1, 1 << 31).is_err()
                && of(usize::MAX, 32).is_err()
                && of(0, 0).is_ok()
        );
    }

    #[test]
    fn answers_fill_what_the_program_has_room_for() {
        let mut words = [16u64, 9, 9, 9];
        let mut fill = |size: u64| {
            words = [size, 9, 9, 9];
            // SAFETY: the sizes below fit.
            let room = unsafe { room(words.as_mut_ptr().cast::<Now>()) };
            room.map(|room| {
                room.put(Now { size: 0, old: 1, new: 2 });
                words
            })
        };
        assert_eq!(fill(16).unwrap(), [16, 1, 9, 9]);
        assert_eq!(fill(24).unwrap(), [24, 1, 2, 9]);
        assert_eq!(fill(32).unwrap(), [32, 1, 2, 9]);
        assert!(fill(8).is_err() && fill(513).is_err() && fill(u64::MAX).is_err());
    }
}
