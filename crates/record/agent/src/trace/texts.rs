//! NVTX texts: read from the program's memory, numbered, and recorded once.
//!
//! The number of a text is computed from its bytes, so usually it is read and its number is found in a table. If that
//! table is full, nothing is lost: further texts are recorded each time. Texts that the program registers, and names of
//! domains, are kept, because they must be recorded again in a forked child or after a pause.

use crate::process::region;
use crate::process::sys;
use crate::record;
use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_setzero_si128};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tape::nvtx::{self, LONGEST, TextBody, kind, names, text_flags};
use tape::region::trouble;
use tape::ring::Writer;

/// A text in the program's memory, or in a caller's.
#[derive(Clone, Copy)]
pub struct Text {
    /// Its number; 0 for none.
    pub id: u64,
    /// Null if only the number is known, as for a registered text.
    at: *const u8,
    len: u32,
    cut: bool,
}

impl Text {
    pub const NONE: Text = Text { id: 0, at: core::ptr::null(), len: 0, cut: false };

    /// A registered text, or a domain's name: its handle is its number.
    pub fn of_handle(handle: usize) -> Text {
        Text { id: handle as u64, ..Text::NONE }
    }

    /// A C string.
    ///
    /// # Safety
    /// `at` is a C string, or not a pointer at all, and remains so while the text is used.
    #[inline(always)]
    pub unsafe fn of(at: *const u8) -> Text {
        if (at as usize) < 4096 {
            return Text::NONE;
        }
        // SAFETY: the caller's.
        unsafe {
            let len = length(at);
            let (len, cut) = if len > LONGEST { (LONGEST, true) } else { (len, false) };
            Text { id: nvtx::text_at(at, len), at, len: len as u32, cut }
        }
    }

    /// A string of `wchar_t`, as UTF-8.
    ///
    /// # Safety
    /// As [`Text::of`]; the text is used no longer than `room`.
    pub unsafe fn of_wide(at: *const u32, room: &mut [u8; LONGEST]) -> Text {
        if (at as usize) < 4096 {
            return Text::NONE;
        }
        let mut len = 0;
        let mut cut = false;
        for i in 0.. {
            // SAFETY: the caller's: it ends with 0.
            let c = match unsafe { at.add(i).read_unaligned() } {
                0 => break,
                c => char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER),
            };
            let Some(to) = room.get_mut(len..len + c.len_utf8()) else {
                cut = true;
                break;
            };
            c.encode_utf8(to);
            len += c.len_utf8();
        }
        Text { id: nvtx::text(&room[..len]), at: room.as_ptr(), len: len as u32, cut }
    }

    fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: promised to the function that made this text.
        (!self.at.is_null()).then(|| unsafe { core::slice::from_raw_parts(self.at, self.len as usize) })
    }
}

/// Length of a C string; at most one more than the maximum kept. Reads whole aligned pieces, each of which is in one
/// page.
///
/// # Safety
/// `at` is a C string.
#[inline(always)]
unsafe fn length(at: *const u8) -> usize {
    let first = (at as usize & !15) as *const __m128i;
    let before = at as usize & 15;
    // SAFETY: the caller's; every piece holds a byte of the string or its end.
    unsafe {
        let zeros =
            |i: usize| _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_load_si128(first.add(i)), _mm_setzero_si128())) as u32;
        let found = zeros(0) >> before;
        if found != 0 {
            return found.trailing_zeros() as usize;
        }
        let mut i = 1;
        while i * 16 - before <= LONGEST {
            let found = zeros(i);
            if found != 0 {
                return i * 16 - before + found.trailing_zeros() as usize;
            }
            i += 1;
        }
    }
    LONGEST + 1
}

const SEEN_BITS: u32 = 14;
/// Numbers of texts that are on this process's tape.
static SEEN: [AtomicU64; 1 << SEEN_BITS] = [const { AtomicU64::new(0) }; 1 << SEEN_BITS];
/// 1 after there is one.
static ANY: AtomicU32 = AtomicU32::new(0);
/// Number of places, from its own on, in which a number may be stored.
const NEAR: usize = 8;

/// Records a text, if it is not on the tape yet.
#[inline(always)]
pub fn say(w: &mut Writer, text: &Text) {
    let first = (text.id >> (64 - SEEN_BITS)) as usize;
    if text.id != 0 && SEEN.get(first).is_some_and(|seen| seen.load(Ordering::Relaxed) != text.id) {
        look(w, text, first);
    }
}

/// (In a reader's order, a use may precede a text that another thread has just recorded. Readers name ranges at the end.)
#[cold]
#[inline(never)]
fn look(w: &mut Writer, text: &Text, first: usize) {
    let places = || (0..NEAR).filter_map(|i| SEEN.get((first + i) % SEEN.len()));
    if places().any(|seen| seen.load(Ordering::Relaxed) == text.id) {
        return;
    }
    let said = match text.bytes() {
        Some(bytes) => put(w, text.id, 0, names::TEXT, text.cut, bytes),
        None => kept(text.id).is_some_and(|(bytes, cut)| put(w, text.id, 0, names::TEXT, cut, bytes)),
    };
    // A text that did not fit into the ring is recorded again later.
    if said {
        ANY.store(1, Ordering::Relaxed);
        let _ = places().any(|seen| seen.compare_exchange(0, text.id, Ordering::Relaxed, Ordering::Relaxed).is_ok());
    }
}

fn put(w: &mut Writer, id: u64, domain: u64, names: u32, cut: bool, bytes: &[u8]) -> bool {
    let body = TextBody { id, domain, bytes: bytes.len() as u32, names };
    let flags = if cut { text_flags::CUT } else { 0 };
    record::push(w, kind::TEXT, flags, sys::tsc(), &body, bytes, &[])
}

/// Names a thread or a category.
pub fn name(id: u64, domain: u64, what: u32, text: &Text) {
    let Some(bytes) = text.bytes() else { return };
    record::with(|w, _| {
        put(w, id, domain, what, text.cut, bytes);
        w.publish();
    });
}

/// In a forked child: no text is on its tape. (Only pages that are written to are copied for the child.)
pub fn renew() {
    if ANY.swap(0, Ordering::Relaxed) != 0 {
        SEEN.iter().filter(|seen| seen.load(Ordering::Relaxed) != 0).for_each(|seen| seen.store(0, Ordering::Relaxed));
    }
}

const KEPT: usize = 1 << 13;
/// Numbers of kept texts; 0 for a free place, [`TAKEN`] while one is being filled.
static KEPT_IDS: [AtomicU64; KEPT] = [const { AtomicU64::new(0) }; KEPT];
/// Their places: offset and, in the upper bits, length and whether it is cut.
static KEPT_AT: [AtomicU32; KEPT] = [const { AtomicU32::new(0) }; KEPT];
const TAKEN: u64 = u64::MAX;
/// Bytes for them, 56 for each. (All of the agent's memory counts where a program locks all of its own: many users may lock 8 MiB.)
const ROOM: usize = 56 * KEPT;
const OFFSET_BITS: u32 = 20;

struct Room(UnsafeCell<[u8; ROOM]>);
// SAFETY: each byte is written once, by the thread that has got it from USED, before the number that leads to it is
// stored.
unsafe impl Sync for Room {}
static BYTES: Room = Room(UnsafeCell::new([0; ROOM]));
static USED: AtomicUsize = AtomicUsize::new(0);

fn places(id: u64) -> impl Iterator<Item = (&'static AtomicU64, &'static AtomicU32)> {
    let first = (id >> 32) as usize;
    (0..64).filter_map(move |i| Some((KEPT_IDS.get((first + i) % KEPT)?, KEPT_AT.get((first + i) % KEPT)?)))
}

/// Keeps a text. Returns its number, which is its handle.
#[cold]
pub fn keep(text: &Text) -> u64 {
    let Some(bytes) = text.bytes() else { return text.id };
    for (id, at) in places(text.id) {
        // ORDERING: Acquire and Release: a thread that finds the number finds its bytes.
        match id.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Acquire) {
            Err(other) if other == text.id => return text.id,
            Err(_) => continue,
            Ok(_) => {}
        }
        let offset = USED.fetch_add(bytes.len(), Ordering::Relaxed);
        if offset + bytes.len() > ROOM {
            USED.fetch_sub(bytes.len(), Ordering::Relaxed);
            id.store(0, Ordering::Release);
            break;
        }
        // SAFETY: only this thread has these bytes, see `Room`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), BYTES.0.get().cast::<u8>().add(offset), bytes.len()) };
        let (len, cut) = (bytes.len() as u32, u32::from(text.cut));
        at.store(offset as u32 | len << OFFSET_BITS | cut << 31, Ordering::Relaxed);
        id.store(text.id, Ordering::Release);
        return text.id;
    }
    // There is no room to keep it: it can only be recorded now.
    if region::arrive() {
        region::trouble(trouble::TEXTS_FULL);
        record::with(|w, _| {
            say(w, text);
            w.publish();
        });
    }
    text.id
}

fn kept(text: u64) -> Option<(&'static [u8], bool)> {
    let (_, at) = places(text).find(|(id, _)| id.load(Ordering::Acquire) == text)?;
    let at = at.load(Ordering::Relaxed);
    let (offset, len) = (at & ((1 << OFFSET_BITS) - 1), at >> OFFSET_BITS & 0x7ff);
    // SAFETY: written before the number was stored, and never again.
    let bytes = unsafe { core::slice::from_raw_parts(BYTES.0.get().cast::<u8>().add(offset as usize), len as usize) };
    Some((bytes, at >> 31 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_from_wherever_it_lies() {
        for len in 0..LONGEST + 40 {
            for before in 0..17 {
                let mut all = vec![b'/'; before];
                all.extend((0..len).map(|i| b'a' + (i % 26) as u8));
                all.push(0);
                all.extend(*b"behind");
                // SAFETY: a C string.
                let text = unsafe { Text::of(all[before..].as_ptr()) };
                let kept = &all[before..][..len.min(LONGEST)];
                assert_eq!((text.bytes(), text.cut), (Some(kept), len > LONGEST), "{before} {len}");
                assert_eq!(text.id, nvtx::text(kept));
            }
        }
        // SAFETY: no pointers.
        unsafe {
            assert_eq!(Text::of(core::ptr::null()).id, 0);
            assert_eq!(Text::of(core::ptr::without_provenance(8)).id, 0);
        }
    }

    #[test]
    fn a_text_at_the_end_of_a_page_is_read_no_further() {
        // SAFETY: two pages, of which the second is not readable.
        unsafe {
            let at = libc::mmap(core::ptr::null_mut(), 8192, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            let page = at.cast::<u8>();
            libc::mprotect(page.add(4096).cast(), 4096, 0);
            for len in 0..100 {
                let from = page.add(4096 - len - 1);
                core::ptr::write_bytes(from, b'x', len);
                from.add(len).write(0);
                assert_eq!(Text::of(from).len as usize, len);
            }
            libc::munmap(at, 8192);
        }
    }

    #[test]
    fn wide_texts_are_utf8_and_end_with_a_whole_letter() {
        let wide = |text: &str| text.chars().map(u32::from).chain([0]).collect::<Vec<u32>>();
        let mut room = [0; LONGEST];
        for text in ["", "forward", "Schritt zurück", "日本語", "🦀"] {
            // SAFETY: ends with 0.
            let t = unsafe { Text::of_wide(wide(text).as_ptr(), &mut room) };
            assert_eq!((t.bytes(), t.cut), (Some(text.as_bytes()), false));
        }
        let long = "ü".repeat(200);
        // SAFETY: as above.
        let t = unsafe { Text::of_wide(wide(&long).as_ptr(), &mut room) };
        assert_eq!((t.bytes(), t.cut), (Some(&long.as_bytes()[..LONGEST]), true));
        // SAFETY: as above; a number that is not a character.
        let t = unsafe { Text::of_wide([0xd800, 0x11_0000, 0].as_ptr(), &mut room) };
        assert_eq!(t.bytes(), Some("\u{fffd}\u{fffd}".as_bytes()));
    }

    #[test]
    fn what_is_registered_is_kept_once() {
        let of = |text: &[u8]| Text {
            id: nvtx::text(text),
            at: text.as_ptr(),
            len: text.len() as u32,
            cut: text.len() == 5,
        };
        let texts: Vec<Vec<u8>> =
            (0..3000).map(|i| format!("kept {i}").into_bytes()).chain([vec![], b"12345".to_vec()]).collect();
        let handles: Vec<u64> = texts.iter().map(|t| keep(&of(t))).collect();
        let used = USED.load(Ordering::Relaxed);
        for (text, handle) in texts.iter().zip(&handles) {
            assert_eq!((keep(&of(text)), kept(*handle)), (*handle, Some((&text[..], text.len() == 5))));
        }
        assert_eq!(USED.load(Ordering::Relaxed), used);
        assert_eq!(kept(12345), None);
    }
}
