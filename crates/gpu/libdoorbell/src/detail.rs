//! Error details: the reason for a thread's last failed call, in the thread's own buffer. Writing it allocates no memory.

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::fmt::{Display, Write};

const ROOM: usize = 512;

struct Detail {
    /// Always ends with a zero.
    text: [u8; ROOM],
    length: usize,
}

thread_local!(static DETAIL: UnsafeCell<Detail> = const { UnsafeCell::new(Detail { text: [0; ROOM], length: 0 }) });

impl Write for Detail {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = ROOM - 1 - self.length;
        // Whole characters only.
        let fits = (0..=text.len().min(room)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.text[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}

#[cold]
pub(crate) fn set(what: &dyn Display) {
    let _ = DETAIL.try_with(|detail| {
        // SAFETY: only this thread uses it, and `what` does not call this again.
        let detail = unsafe { &mut *detail.get() };
        detail.length = 0;
        // The rest of a long text is left out.
        let _ = write!(detail, "{what}");
        detail.text[detail.length] = 0;
    });
}

/// Returns the reason for this thread's last failed call, in English. It is never null, and valid until this thread's next failed
/// call. Successful calls do not change it.
/// Cost: none. Threads: any, each has its own.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_error_detail() -> *const c_char {
    DETAIL.try_with(|detail| detail.get() as *const c_char).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn text() -> &'static str {
        // SAFETY: ends with a zero, and no call of this thread can fail until then.
        unsafe { CStr::from_ptr(doorbell_error_detail()) }.to_str().unwrap()
    }

    #[test]
    fn long_details_end_at_a_character_and_short_ones_replace_them() {
        set(&"\u{20ac}".repeat(400));
        assert_eq!(text().chars().count(), (ROOM - 1) / 3);
        set(&"short");
        assert_eq!(text(), "short");
        assert_eq!(std::thread::spawn(|| text().len()).join().unwrap(), 0);
    }
}
