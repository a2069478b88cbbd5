//! Copies between the program's memory and pinned pieces.

/// Bytes that are stored at a time, past the caches.
const LINE: usize = 64;

/// Two pages are copied at a time, a line of each in turn: the CPU fetches ahead within a page only.
const PAGE: usize = 4096;

/// Copies `n` bytes. They are stored past the caches, so that the CPU does not read the lines that it will overwrite. 64 MiB through pieces of 1 MiB on an H200's host:
/// from pieces 3.6 ms, with memcpy 7.8; to pieces 6.6 ms, 8.2 with one page at a time, 9.1 with memcpy.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`].
pub unsafe fn copy(from: usize, to: usize, n: usize) {
    // SAFETY: the caller's; the three parts are the whole.
    unsafe {
        let head = (to.wrapping_neg() % LINE).min(n);
        core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, head);
        let (pairs, lines) = ((n - head) / (2 * PAGE) * (2 * PAGE), (n - head) / LINE * LINE);
        for at in (head..head + pairs).step_by(2 * PAGE) {
            stream::<2>(from + at, to + at, PAGE);
        }
        stream::<1>(from + head + pairs, to + head + pairs, lines - pairs);
        fence();
        let tail = head + lines;
        core::ptr::copy_nonoverlapping((from + tail) as *const u8, (to + tail) as *mut u8, n - tail);
    }
}

/// Copies `n` bytes of each of so many pages in a row.
///
/// # Safety
/// As [`copy`], of whole lines, to a multiple of [`LINE`].
#[cfg(target_arch = "x86_64")]
unsafe fn stream<const PAGES: usize>(from: usize, to: usize, n: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for at in (0..n).step_by(LINE).flat_map(|at| (0..PAGES).map(move |page| at + page * PAGE)) {
        let (from, to) = ((from + at) as *const __m128i, (to + at) as *mut __m128i);
        // SAFETY: the caller's. SSE2 is in every CPU of this architecture.
        unsafe {
            let line: [__m128i; 4] = core::array::from_fn(|i| _mm_loadu_si128(from.add(i)));
            for (i, part) in line.into_iter().enumerate() {
                _mm_stream_si128(to.add(i), part);
            }
        }
    }
}

/// ORDERING: streamed stores are seen before any store after this, such as a doorbell.
#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: SSE is in every CPU of this architecture.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

/// # Safety
/// As [`copy`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream<const PAGES: usize>(from: usize, to: usize, n: usize) {
    // SAFETY: the caller's.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, n * PAGES) };
}

#[cfg(not(target_arch = "x86_64"))]
fn fence() {}

#[cfg(test)]
mod tests {
    #[test]
    fn each_byte_arrives_and_none_beside() {
        const MOST: usize = 3 * 8192 + 77;
        let from: Vec<u8> = (0..MOST + 128).map(|i| (i * 7 + i / 251) as u8).collect();
        let lengths = [0, 1, 15, 63, 64, 65, 128, 200, 256, 4096, 8191, 8192, 8300, 16384, MOST];
        for (n, shift) in lengths.into_iter().flat_map(|n| (0..64).map(move |s| (n, s))) {
            let mut to = vec![0u8; MOST + 128];
            // SAFETY: 64 + MOST bytes are in both.
            unsafe { super::copy(from.as_ptr() as usize + 64 - shift, to.as_mut_ptr() as usize + shift, n) };
            let (before, rest) = to.split_at(shift);
            let (copied, after) = rest.split_at(n);
            assert_eq!(copied, &from[64 - shift..][..n], "{n} {shift}");
            assert!(before.iter().chain(after).all(|b| *b == 0), "{n} {shift}");
        }
    }
}
