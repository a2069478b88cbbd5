//! The functions that replace NVTX's.

use crate::trace::ranges::{self, About};
use crate::trace::texts::{self, Text};
use core::ffi::c_int;
use tape::nvtx::{LONGEST, names, range_flags};

/// A function, by its address.
pub struct Replacement(pub *const ());
// SAFETY: addresses of code.
unsafe impl Sync for Replacement {}

/// By module and index in its table, as NVTX 2 and 3 number them. (NVTX fills the indices that are missing here with
/// functions that do nothing.)
pub static MODULES: [(u32, &[(usize, Replacement)]); 2] = [(1, &CORE), (5, &CORE2)];

static CORE: [(usize, Replacement); 15] = [
    (1, Replacement(mark_ex as *const ())),
    (2, Replacement(mark as *const ())),
    (3, Replacement(mark_wide as *const ())),
    (4, Replacement(start_ex as *const ())),
    (5, Replacement(start as *const ())),
    (6, Replacement(start_wide as *const ())),
    (7, Replacement(end as *const ())),
    (8, Replacement(push_ex as *const ())),
    (9, Replacement(push as *const ())),
    (10, Replacement(push_wide as *const ())),
    (11, Replacement(pop as *const ())),
    (12, Replacement(name_category as *const ())),
    (13, Replacement(name_category_wide as *const ())),
    (14, Replacement(name_thread as *const ())),
    (15, Replacement(name_thread_wide as *const ())),
];

static CORE2: [(usize, Replacement); 12] = [
    (1, Replacement(domain_mark_ex as *const ())),
    (2, Replacement(domain_start_ex as *const ())),
    (3, Replacement(domain_end as *const ())),
    (4, Replacement(domain_push_ex as *const ())),
    (5, Replacement(domain_pop as *const ())),
    (8, Replacement(domain_name_category as *const ())),
    (9, Replacement(domain_name_category_wide as *const ())),
    (10, Replacement(register as *const ())),
    (11, Replacement(register_wide as *const ())),
    (12, Replacement(create_domain as *const ())),
    (13, Replacement(create_domain_wide as *const ())),
    (14, Replacement(destroy_domain as *const ())),
];

/// A caller's description of a range or a mark (nvtxEventAttributes_t).
#[repr(C)]
struct Attributes {
    version: u16,
    /// Its size in the version that the caller was built with.
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: usize,
}

const _: () = assert!(size_of::<Attributes>() == 48);

/// Kinds of messages, and the kind of a colour.
const ASCII: i32 = 1;
const WIDE: i32 = 2;
const REGISTERED: i32 = 3;
const ARGB: i32 = 1;

impl About {
    #[inline(always)]
    fn plain(text: Text) -> About {
        About { domain: 0, text, payload: 0, color: 0, category: 0, flags: 0 }
    }

    /// # Safety
    /// `a` is the argument that NVTX was called with.
    #[inline(always)]
    unsafe fn with<R>(domain: usize, a: *const Attributes, then: impl FnOnce(&About) -> R) -> R {
        let mut about = About { domain: domain as u64, ..About::plain(Text::NONE) };
        // SAFETY: the caller's; a struct shorter than this one is not read.
        let Some(a) = (unsafe { a.as_ref() }).filter(|a| usize::from(a.size) >= size_of::<Attributes>()) else {
            return then(&about);
        };
        about.category = a.category;
        if a.category != 0 {
            about.flags |= range_flags::CATEGORY;
        }
        if a.color_type == ARGB {
            about.color = a.color;
            about.flags |= range_flags::COLOR;
        }
        if (1..=6).contains(&a.payload_type) {
            about.payload = match a.payload_type {
                1..=3 => a.payload,
                // (The other half is arbitrary.)
                _ => u64::from(a.payload as u32),
            };
            about.flags |= a.payload_type as u16;
        }
        match a.message_type {
            // SAFETY: the caller's.
            ASCII => about.text = unsafe { Text::of(a.message as *const u8) },
            REGISTERED => about.text = Text::of_handle(a.message),
            // SAFETY: the caller's.
            WIDE => return unsafe { wide(a.message as *const u32, |text| then(&About { text, ..about })) },
            _ => {}
        }
        then(&about)
    }
}

/// # Safety
/// `at` is a string of `wchar_t`, or no pointer.
#[inline(never)]
unsafe fn wide<R>(at: *const u32, then: impl FnOnce(Text) -> R) -> R {
    let mut room = [0; LONGEST];
    // SAFETY: the caller's; the text ends with `then`.
    then(unsafe { Text::of_wide(at, &mut room) })
}

unsafe extern "C" fn push(text: *const u8) -> c_int {
    // SAFETY: the argument that NVTX was called with, here and in all functions below.
    ranges::push(&About::plain(unsafe { Text::of(text) }))
}

unsafe extern "C" fn push_wide(text: *const u32) -> c_int {
    // SAFETY: as in `push`.
    unsafe { wide(text, |text| ranges::push(&About::plain(text))) }
}

unsafe extern "C" fn push_ex(a: *const Attributes) -> c_int {
    // SAFETY: as in `push`.
    unsafe { About::with(0, a, ranges::push) }
}

unsafe extern "C" fn domain_push_ex(domain: usize, a: *const Attributes) -> c_int {
    // SAFETY: as in `push`.
    unsafe { About::with(domain, a, ranges::push) }
}

extern "C" fn pop() -> c_int {
    ranges::pop(0)
}

extern "C" fn domain_pop(domain: usize) -> c_int {
    ranges::pop(domain as u64)
}

unsafe extern "C" fn start(text: *const u8) -> u64 {
    // SAFETY: as in `push`.
    ranges::start(&About::plain(unsafe { Text::of(text) }))
}

unsafe extern "C" fn start_wide(text: *const u32) -> u64 {
    // SAFETY: as in `push`.
    unsafe { wide(text, |text| ranges::start(&About::plain(text))) }
}

unsafe extern "C" fn start_ex(a: *const Attributes) -> u64 {
    // SAFETY: as in `push`.
    unsafe { About::with(0, a, ranges::start) }
}

unsafe extern "C" fn domain_start_ex(domain: usize, a: *const Attributes) -> u64 {
    // SAFETY: as in `push`.
    unsafe { About::with(domain, a, ranges::start) }
}

extern "C" fn end(id: u64) {
    ranges::end(0, id);
}

extern "C" fn domain_end(domain: usize, id: u64) {
    ranges::end(domain as u64, id);
}

unsafe extern "C" fn mark(text: *const u8) {
    // SAFETY: as in `push`.
    ranges::mark(&About::plain(unsafe { Text::of(text) }));
}

unsafe extern "C" fn mark_wide(text: *const u32) {
    // SAFETY: as in `push`.
    unsafe { wide(text, |text| ranges::mark(&About::plain(text))) }
}

unsafe extern "C" fn mark_ex(a: *const Attributes) {
    // SAFETY: as in `push`.
    unsafe { About::with(0, a, ranges::mark) }
}

unsafe extern "C" fn domain_mark_ex(domain: usize, a: *const Attributes) {
    // SAFETY: as in `push`.
    unsafe { About::with(domain, a, ranges::mark) }
}

unsafe extern "C" fn name_category(category: u32, text: *const u8) {
    // SAFETY: as in `push`.
    texts::name(category.into(), 0, names::CATEGORY, &unsafe { Text::of(text) });
}

unsafe extern "C" fn name_category_wide(category: u32, text: *const u32) {
    // SAFETY: as in `push`.
    unsafe { wide(text, |text| texts::name(category.into(), 0, names::CATEGORY, &text)) }
}

unsafe extern "C" fn domain_name_category(domain: usize, category: u32, text: *const u8) {
    // SAFETY: as in `push`.
    texts::name(category.into(), domain as u64, names::CATEGORY, &unsafe { Text::of(text) });
}

unsafe extern "C" fn domain_name_category_wide(domain: usize, category: u32, text: *const u32) {
    // SAFETY: as in `push`.
    unsafe { wide(text, |text| texts::name(category.into(), domain as u64, names::CATEGORY, &text)) }
}

unsafe extern "C" fn name_thread(tid: u32, text: *const u8) {
    // SAFETY: as in `push`.
    texts::name(tid.into(), 0, names::THREAD, &unsafe { Text::of(text) });
}

unsafe extern "C" fn name_thread_wide(tid: u32, text: *const u32) {
    // SAFETY: as in `push`.
    unsafe { wide(text, |text| texts::name(tid.into(), 0, names::THREAD, &text)) }
}

unsafe extern "C" fn register(_domain: usize, text: *const u8) -> usize {
    // SAFETY: as in `push`.
    texts::keep(&unsafe { Text::of(text) }) as usize
}

unsafe extern "C" fn register_wide(_domain: usize, text: *const u32) -> usize {
    // SAFETY: as in `push`.
    unsafe { wide(text, |text| texts::keep(&text) as usize) }
}

/// Domains of the same name are the same.
unsafe extern "C" fn create_domain(name: *const u8) -> usize {
    // SAFETY: as in `push`.
    texts::keep(&unsafe { Text::of(name) }) as usize
}

unsafe extern "C" fn create_domain_wide(name: *const u32) -> usize {
    // SAFETY: as in `push`.
    unsafe { wide(name, |name| texts::keep(&name) as usize) }
}

/// (It can be made again, with the same name.)
extern "C" fn destroy_domain(_domain: usize) {}
