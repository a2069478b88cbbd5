//! Copies to and from write-combined memory: streaming stores and loads over raw ranges.
//!
//! Such memory has no cache: each single store may become a PCIe write, each load is a round trip. So whole 64-byte
//! lines are stored in one piece wherever the range has them (a write-combining buffer is sent as one write), and each
//! line is fetched once. This module does not fence, allocate, lock or call the kernel.

use std::arch::asm;
use std::arch::x86_64::{
    __cpuid, __cpuid_count, __m128i, __m256i, _mm_lfence, _mm_load_si128, _mm_loadu_si128, _mm_mfence, _mm_sfence,
    _mm_storeu_si128, _mm_stream_load_si128, _mm_stream_si32, _mm_stream_si64, _mm_stream_si128, _mm256_loadu_si256,
    _mm256_storeu_si256, _mm256_stream_load_si256, _mm256_stream_si256,
};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Bytes of a cache line, and of a write-combining buffer.
pub const LINE: usize = 64;

/// The instructions for a copy. Every x86-64 CPU has the first level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// 16-byte streaming stores; ordinary loads.
    Sse2,
    /// With 16-byte streaming loads (MOVNTDQA), which fetch a whole line.
    Sse41,
    /// 32 bytes.
    Avx2,
    /// 64 bytes: one line per instruction.
    Avx512,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Sse2, Level::Sse41, Level::Avx2, Level::Avx512];

    /// True if this CPU and its operating system support it.
    pub fn is_available(self) -> bool {
        match self {
            Level::Sse2 => true,
            Level::Sse41 => is_x86_feature_detected!("sse4.1"),
            Level::Avx2 => is_x86_feature_detected!("avx2"),
            Level::Avx512 => is_x86_feature_detected!("avx512f"),
        }
    }

    /// The widest level of this CPU.
    pub fn best() -> Level {
        Level::ALL.into_iter().rev().find(|level| level.is_available()).unwrap_or(Level::Sse2)
    }
}

/// How one whole line is stored in one piece: one write on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStore {
    /// MOVDIR64B: bypasses the write-combining buffers, and is sent immediately.
    Direct,
    /// One AVX-512 store: a full write-combining buffer is sent by itself.
    Full,
    /// The widest streaming stores and an SFENCE, which empties the buffers.
    Fenced,
}

impl LineStore {
    pub const ALL: [LineStore; 3] = [LineStore::Direct, LineStore::Full, LineStore::Fenced];

    /// True if this CPU supports it.
    pub fn is_available(self) -> bool {
        match self {
            // CPUID leaf 7: MOVDIR64B is bit 28 of ECX.
            LineStore::Direct => __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx >> 28 & 1 != 0,
            LineStore::Full => Level::Avx512.is_available(),
            LineStore::Fenced => true,
        }
    }

    /// The first of [`LineStore::ALL`] that this CPU has.
    pub fn best() -> LineStore {
        LineStore::ALL.into_iter().find(|how| how.is_available()).unwrap_or(LineStore::Fenced)
    }
}

/// A whole line of bytes, aligned as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line(pub [u8; LINE]);

/// Stores one line to write-combined memory and sends it. It may overtake earlier stores unless they are fenced.
///
/// # Safety
/// `how` is available. `to` begins a line that may be written.
#[inline]
pub unsafe fn store_line(how: LineStore, to: *mut u8, line: &Line) {
    let from = line.0.as_ptr();
    // SAFETY: one line each, by the caller's promise and by its type.
    unsafe {
        match how {
            LineStore::Direct => {
                asm!("movdir64b {to}, zmmword ptr [{from}]", to = in(reg) to, from = in(reg) from, options(nostack));
            }
            LineStore::Full => store_lines_avx512(to, from, 1),
            LineStore::Fenced => {
                store(Level::best(), to, from, LINE);
                sfence();
            }
        }
    }
}

/// Sends earlier stores from the write-combining buffers, ahead of all later stores.
#[inline]
pub fn sfence() {
    // SAFETY: every x86-64 CPU has SSE.
    unsafe { _mm_sfence() };
}

/// As [`sfence`]; also, later loads see no data that was fetched before it.
#[inline]
pub fn mfence() {
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { _mm_mfence() };
}

/// Loads and counter reads do not cross it.
#[inline]
pub fn lfence() {
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { _mm_lfence() };
}

/// Copies `length` bytes to write-combined memory. The stores are weakly ordered: an SFENCE makes them visible.
///
/// # Safety
/// `level` is available. `to` may be written and `from` be read for `length` bytes, and they do not overlap.
pub unsafe fn store(level: Level, to: *mut u8, from: *const u8, length: usize) {
    let head = to.align_offset(LINE).min(length);
    let lines = (length - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: the three parts are within the range, one after the other; `to + head` begins a line if there is one.
    unsafe {
        store_edge(to, from, head);
        if lines != 0 {
            let (to, from) = (to.add(head), from.add(head));
            match level {
                Level::Sse2 | Level::Sse41 => store_lines_sse2(to, from, lines),
                Level::Avx2 => store_lines_avx2(to, from, lines),
                Level::Avx512 => store_lines_avx512(to, from, lines),
            }
        }
        store_edge(to.add(tail), from.add(tail), length - tail);
    }
}

/// Copies `length` bytes from write-combined memory.
///
/// # Safety
/// `level` is available. `from` may be read for `length` bytes, as may the rest of the 64-byte lines that the range begins
/// and ends in; `to` may be written for `length` bytes, and they do not overlap.
pub unsafe fn load(level: Level, to: *mut u8, from: *const u8, length: usize) {
    // A flag or a counter: a single load of that size.
    if length <= 8 && length.is_power_of_two() && from.addr().is_multiple_of(length) {
        // SAFETY: aligned, and within both ranges.
        unsafe { load_one(to, from, length) };
        return;
    }
    let head = from.align_offset(LINE).min(length);
    let lines = (length - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: the three parts are within the range, one after the other; `from + head` begins a line if there is one.
    unsafe {
        load_edge(level, to, from, head);
        if lines != 0 {
            load_lines(level, to.add(head), from.add(head), lines);
        }
        load_edge(level, to.add(tail), from.add(tail), length - tail);
    }
}

/// Less than a line: stores of 1 to 16 bytes, each as long as its address allows.
///
/// # Safety
/// As [`store`].
unsafe fn store_edge(mut to: *mut u8, mut from: *const u8, mut length: usize) {
    while length != 0 {
        let step = 1 << to.addr().trailing_zeros().min(length.ilog2()).min(4);
        // SAFETY: `step` is at most `length`, and `to` is aligned to it; `from` is read as unaligned.
        unsafe {
            match step {
                1 => (*to.cast::<AtomicU8>()).store(*from, Ordering::Relaxed),
                2 => (*to.cast::<AtomicU16>()).store(from.cast::<u16>().read_unaligned(), Ordering::Relaxed),
                4 => _mm_stream_si32(to.cast(), from.cast::<i32>().read_unaligned()),
                8 => _mm_stream_si64(to.cast(), from.cast::<i64>().read_unaligned()),
                _ => _mm_stream_si128(to.cast(), _mm_loadu_si128(from.cast())),
            }
            (to, from) = (to.add(step), from.add(step));
        }
        length -= step;
    }
}

/// # Safety
/// As [`store`], for `lines` lines; `to` begins one.
unsafe fn store_lines_sse2(to: *mut u8, from: *const u8, lines: usize) {
    for at in (0..lines * LINE).step_by(LINE) {
        // SAFETY: one line at a time of the ranges that the caller named.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m128i>(), from.add(at).cast::<__m128i>());
            let line = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(i)));
            for (i, part) in line.into_iter().enumerate() {
                _mm_stream_si128(to.add(i), part);
            }
        }
    }
}

/// # Safety
/// As [`store_lines_sse2`], and AVX2 is available.
#[target_feature(enable = "avx2")]
unsafe fn store_lines_avx2(to: *mut u8, from: *const u8, lines: usize) {
    for at in (0..lines * LINE).step_by(LINE) {
        // SAFETY: one line at a time of the ranges that the caller named.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m256i>(), from.add(at).cast::<__m256i>());
            let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, low);
            _mm256_stream_si256(to.add(1), high);
        }
    }
}

/// Registers above 15 need no VZEROUPPER. In assembly, because the intrinsics are newer than the minimum compiler version.
///
/// # Safety
/// As [`store_lines_sse2`], `lines` is not 0, and AVX-512F is available.
unsafe fn store_lines_avx512(to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: one line at a time of the ranges that the caller named.
    unsafe {
        asm!(
            "2:",
            "vmovdqu64 zmm16, zmmword ptr [{from}]",
            "vmovntdq zmmword ptr [{to}], zmm16",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("zmm16") _,
            options(nostack),
        );
    }
}

/// One aligned load of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// `from` is aligned to `length` and readable, `to` writable.
unsafe fn load_one(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match length {
            1 => to.write((*from.cast::<AtomicU8>()).load(Ordering::Relaxed)),
            2 => to.cast::<u16>().write_unaligned((*from.cast::<AtomicU16>()).load(Ordering::Relaxed)),
            4 => to.cast::<u32>().write_unaligned((*from.cast::<AtomicU32>()).load(Ordering::Relaxed)),
            _ => to.cast::<u64>().write_unaligned((*from.cast::<AtomicU64>()).load(Ordering::Relaxed)),
        }
    }
}

/// A part of one line. The whole line is fetched, in one round trip; single pieces would take several.
///
/// # Safety
/// As [`load`]; the range is within one line.
unsafe fn load_edge(level: Level, to: *mut u8, from: *const u8, length: usize) {
    if length == 0 {
        return;
    }
    let skip = from.addr() % LINE;
    let mut line = Line([0; LINE]);
    // SAFETY: the whole line may be read, and `to` takes `length` bytes of it from `skip` on.
    unsafe {
        load_lines(level, line.0.as_mut_ptr(), from.sub(skip), 1);
        to.copy_from_nonoverlapping(line.0.as_ptr().add(skip), length);
    }
}

/// # Safety
/// As [`load`], for `lines` lines (not 0); `from` begins one.
unsafe fn load_lines(level: Level, to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match level {
            Level::Sse2 => load_lines_sse2(to, from, lines),
            Level::Sse41 => load_lines_sse41(to, from, lines),
            Level::Avx2 => load_lines_avx2(to, from, lines),
            Level::Avx512 => load_lines_avx512(to, from, lines),
        }
    }
}

/// # Safety
/// As [`load_lines`].
unsafe fn load_lines_sse2(to: *mut u8, from: *const u8, lines: usize) {
    for at in (0..lines * LINE).step_by(16) {
        // SAFETY: 16 bytes at a time of the ranges that the caller named.
        unsafe { _mm_storeu_si128(to.add(at).cast(), _mm_load_si128(from.add(at).cast())) };
    }
}

/// # Safety
/// As [`load_lines`], and SSE4.1 is available.
#[target_feature(enable = "sse4.1")]
unsafe fn load_lines_sse41(to: *mut u8, from: *const u8, lines: usize) {
    for at in (0..lines * LINE).step_by(LINE) {
        // SAFETY: one line at a time of the ranges that the caller named.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m128i>(), from.add(at).cast::<__m128i>());
            // All four before a store: the line stays in its buffer only until the buffer is needed again.
            let line = [0, 1, 2, 3].map(|i| _mm_stream_load_si128(from.add(i).cast_mut()));
            for (i, part) in line.into_iter().enumerate() {
                _mm_storeu_si128(to.add(i), part);
            }
        }
    }
}

/// # Safety
/// As [`load_lines`], and AVX2 is available.
#[target_feature(enable = "avx2")]
unsafe fn load_lines_avx2(to: *mut u8, from: *const u8, lines: usize) {
    for at in (0..lines * LINE).step_by(LINE) {
        // SAFETY: one line at a time of the ranges that the caller named.
        unsafe {
            let (to, from) = (to.add(at).cast::<__m256i>(), from.add(at).cast::<__m256i>());
            let (low, high) = (_mm256_stream_load_si256(from), _mm256_stream_load_si256(from.add(1)));
            _mm256_storeu_si256(to, low);
            _mm256_storeu_si256(to.add(1), high);
        }
    }
}

/// # Safety
/// As [`load_lines`], and AVX-512F is available.
unsafe fn load_lines_avx512(to: *mut u8, from: *const u8, lines: usize) {
    // SAFETY: one line at a time of the ranges that the caller named.
    unsafe {
        asm!(
            "2:",
            "vmovntdqa zmm16, zmmword ptr [{from}]",
            "vmovdqu64 zmmword ptr [{to}], zmm16",
            "add {from}, 64",
            "add {to}, 64",
            "dec {lines}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            lines = inout(reg) lines => _,
            out("zmm16") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Aligned([u8; 768]);

    fn noise(seed: u64) -> Aligned {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Aligned(std::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        }))
    }

    fn available() -> impl Iterator<Item = Level> {
        Level::ALL.into_iter().filter(|level| {
            let can = level.is_available();
            if !can {
                test_support::skip_part!("{level:?}: not on this CPU");
            }
            can
        })
    }

    /// Calls `copy(to, from, length)` for every alignment of `to`, some of `from`, and every length, and checks the
    /// resulting array, which had other contents before.
    fn everywhere(level: Level, copy: impl Fn(*mut u8, *const u8, usize)) {
        let (from, before) = (noise(1), noise(2));
        for at in 0..LINE {
            for other in [0, 1, 3, 4, 8, 16, 17, 31, 32, 63] {
                for length in 0..=300 {
                    let mut to = Aligned(before.0);
                    copy(to.0[at..][..length].as_mut_ptr(), from.0[other..][..length].as_ptr(), length);
                    let place = || format!("{level:?}, {length} bytes at {at} from {other}");
                    assert!(to.0[at..][..length] == from.0[other..][..length], "{}: contents", place());
                    assert!(to.0[..at] == before.0[..at], "{}: something before was written", place());
                    assert!(
                        to.0[at + length..] == before.0[at + length..],
                        "{}: something behind was written",
                        place()
                    );
                }
            }
        }
    }

    #[test]
    fn stores_write_the_range_and_nothing_else() {
        for level in available() {
            // SAFETY: the ranges are within the arrays, and the level is available.
            everywhere(level, |to, from, length| unsafe { store(level, to, from, length) });
        }
    }

    #[test]
    fn a_line_is_written_and_nothing_else() {
        let from = noise(4);
        for how in LineStore::ALL {
            if !how.is_available() {
                test_support::skip_part!("{how:?}: not on this CPU");
                continue;
            }
            let before = noise(5);
            let mut to = Aligned(before.0);
            let line = Line(std::array::from_fn(|i| from.0[i]));
            // SAFETY: the third line of an array of twelve.
            unsafe { store_line(how, to.0.as_mut_ptr().add(2 * LINE), &line) };
            sfence();
            assert_eq!(to.0[2 * LINE..3 * LINE], line.0, "{how:?}");
            assert!(to.0[..2 * LINE] == before.0[..2 * LINE] && to.0[3 * LINE..] == before.0[3 * LINE..], "{how:?}");
        }
        assert!(LineStore::best().is_available());
    }

    #[test]
    fn loads_give_the_range_and_nothing_else() {
        for level in available() {
            // SAFETY: as above, and the arrays are made of whole lines.
            everywhere(level, |to, from, length| unsafe { load(level, to, from, length) });
        }
    }

    /// Loads at every place of a line.
    #[test]
    fn loads_begin_anywhere() {
        let from = noise(3);
        for level in available() {
            for at in 0..2 * LINE {
                for length in 0..=200 {
                    let mut to = [0; 200];
                    // SAFETY: 128 + 200 bytes fit, and the array is made of whole lines.
                    unsafe { load(level, to.as_mut_ptr(), from.0.as_ptr().add(at), length) };
                    assert_eq!(to[..length], from.0[at..][..length], "{level:?}, {length} bytes at {at}");
                    assert!(to[length..].iter().all(|&byte| byte == 0));
                }
            }
        }
    }

    /// The last line of a page, with no mapping after it, and the first, with none before.
    #[test]
    fn no_byte_of_another_page_is_touched() {
        const PAGE: usize = 0x1000;
        // SAFETY: three new pages, of which only the middle one is made accessible.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = libc::mmap(std::ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(all, libc::MAP_FAILED);
            let page = all.cast::<u8>().add(PAGE);
            assert_eq!(libc::mprotect(page.cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
            page
        };
        for level in available() {
            for length in 1..=200 {
                for at in [0, PAGE - length] {
                    let (from, mut back) = (noise(length as u64), [0; 200]);
                    // SAFETY: within the accessible page.
                    unsafe {
                        store(level, page.add(at), from.0.as_ptr(), length);
                        load(level, back.as_mut_ptr(), page.add(at), length);
                    }
                    assert_eq!(back[..length], from.0[..length], "{level:?}, {length} at {at}");
                }
            }
        }
        // SAFETY: the three pages.
        unsafe { libc::munmap(page.sub(PAGE).cast(), 3 * PAGE) };
    }

    #[test]
    fn the_best_level_is_available_and_none_above_is() {
        let best = Level::best();
        assert!(best.is_available());
        assert!(Level::ALL.into_iter().filter(|&level| level > best).all(|level| !level.is_available()));
    }
}
