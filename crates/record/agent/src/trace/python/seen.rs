//! Numbers of the stacks and code objects that are on the tape.
//!
//! A search is a few loads. A thread that finds no number takes a lock, writes the event into its own ring, and then
//! publishes the number. So the tape contains the event of every number that is used.

use super::frames::{Frame, Stack, Text, copy};
use super::loads::{half, word};
use super::versions::{BYTES, Offsets, SIZE};
use crate::process::own_lock::{Guard, OwnLock};
use crate::process::wiped::word as lock;
use crate::process::{region, sys};
use crate::record;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tape::event::Plain;
use tape::python::{
    CodeBody, DEPTH, FILE, Frame as Written, LINES, LOST, NAME, StackBody, UNKEPT, code_flags, kind, stack_flags,
};
use tape::region::trouble;

/// Hashes by place, 0 for a free place. The number of a hash is its place plus 1.
struct Table<const ROOM: usize>([AtomicU64; ROOM]);

/// Number of places, from its own on, in which a hash may be stored.
const NEAR: usize = 16;

impl<const ROOM: usize> Table<ROOM> {
    const fn new() -> Self {
        Table([const { AtomicU64::new(0) }; ROOM])
    }

    #[inline(always)]
    fn places(&self, hash: u64) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let first = (hash >> 32) as usize;
        (first..first + NEAR).filter_map(|i| Some((i % ROOM, self.0.get(i % ROOM)?)))
    }

    #[inline(always)]
    fn number(&self, hash: u64) -> Option<u32> {
        for (i, at) in self.places(hash) {
            // ORDERING: Acquire pairs with the Release in `write` and `code`: the event was written before.
            match at.load(Ordering::Acquire) {
                0 => return None,
                known if known == hash => return Some(i as u32 + 1),
                _ => {}
            }
        }
        None
    }

    /// A place for a hash that has none yet. One thread at a time.
    fn free(&self, hash: u64) -> Option<(usize, &AtomicU64)> {
        self.places(hash).find(|(_, at)| at.load(Ordering::Relaxed) == 0)
    }

    fn forget(&self) {
        // (Loaded first: a child gets a copy of each page that it writes to.)
        self.0.iter().filter(|at| at.load(Ordering::Relaxed) != 0).for_each(|at| at.store(0, Ordering::Relaxed));
    }
}

static STACKS: Table<{ 1 << 14 }> = Table::new();
static CODES: Table<{ 1 << 13 }> = Table::new();

/// The next number for one that has no place.
static NEXT: AtomicU32 = AtomicU32::new(UNKEPT);

/// Buffers for building an event. The thread that holds them writes.
pub struct Room {
    text: [u8; FILE + NAME],
    lines: [u8; LINES],
    frames: [u8; DEPTH * size_of::<Written>()],
}

static ROOM: OwnLock<Room, { lock::PYTHON }> =
    OwnLock::new(Room { text: [0; FILE + NAME], lines: [0; LINES], frames: [0; DEPTH * size_of::<Written>()] });

/// Held while the interpreter is examined.
pub fn lock() -> Option<Guard<'static, Room, { lock::PYTHON }>> {
    ROOM.lock()
}

/// The tape is new: nothing is on it yet.
pub fn forget() {
    STACKS.forget();
    CODES.forget();
    NEXT.store(UNKEPT, Ordering::Relaxed);
}

/// The number of a stack that is on the tape. (0 is not a hash: it marks a free place.)
#[inline(always)]
pub fn number(hash: u64) -> Option<u32> {
    STACKS.number(hash)
}

/// Writes a stack. Returns its number, or [`LOST`].
#[cold]
#[inline(never)]
pub fn write(o: &Offsets, stack: &Stack) -> u32 {
    let _keep = sys::Errno::keep();
    let Some(mut room) = ROOM.lock() else { return LOST };
    if let Some(number) = STACKS.number(stack.hash) {
        return number;
    }
    let mut n = 0;
    for f in stack.frames() {
        let written = Written { code: code(o, f, &mut room), at: f.at };
        let bytes = tape::event::bytes_of(&written);
        if let Some(to) = room.frames.get_mut(n..n + bytes.len()) {
            to.copy_from_slice(bytes);
            n += bytes.len();
        }
    }
    let frames = room.frames.get(..n).unwrap_or_default();
    let place = STACKS.free(stack.hash);
    let number = numbered(place.map(|(i, _)| i));
    let flags = if stack.deeper { stack_flags::DEEPER } else { 0 };
    let body = StackBody { number, frames: stack.frames().len() as u32 };
    if !push(kind::STACK, flags, &body, frames, &[]) {
        return LOST;
    }
    if let Some((_, at)) = place {
        // ORDERING: Release: see the head.
        at.store(stack.hash, Ordering::Release);
    }
    number
}

fn numbered(place: Option<usize>) -> u32 {
    match place {
        Some(i) => i as u32 + 1,
        None => {
            region::trouble(trouble::STACKS_FULL);
            NEXT.fetch_add(1, Ordering::Relaxed).clamp(UNKEPT, LOST - 1)
        }
    }
}

/// The number of a code object. Writes it if it is not on the tape.
fn code(o: &Offsets, f: &Frame, room: &mut Guard<'_, Room, { lock::PYTHON }>) -> u32 {
    if let Some(number) = CODES.number(f.key) {
        return number;
    }
    let Room { text, lines, .. } = &mut **room;
    let of = |field: u16| word(f.code + usize::from(field));
    let (file, name, table) = (Text::of(o, of(o.file)), Text::of(o, of(o.name)), of(o.lines));
    let mut flags = 0;
    // The end of a path is the most specific. (A unit has at most four bytes, so a cut is between units.)
    let left_out = file.bytes.saturating_sub(FILE);
    flags |= if left_out > 0 { code_flags::FILE_CUT } else { 0 };
    let file_bytes = copy(file.at + left_out, file.bytes - left_out, text.get_mut(..FILE).unwrap_or_default());
    let to = text.get_mut(file_bytes..file_bytes + NAME).unwrap_or_default();
    let name_bytes = copy(name.at, name.bytes, to);
    flags |= if name_bytes < name.bytes { code_flags::NAME_CUT } else { 0 };
    let size = word(table + SIZE);
    let lines_bytes = copy(table + BYTES, size, lines);
    flags |= if lines_bytes < size { code_flags::LINES_CUT } else { 0 };
    let place = CODES.free(f.key);
    let body = CodeBody {
        number: numbered(place.map(|(i, _)| i)),
        first_line: half(f.code + usize::from(o.first_line)) as i32,
        file: file_bytes as u32,
        name: name_bytes as u32,
        lines: lines_bytes as u32,
        file_unit: file.unit,
        name_unit: name.unit,
        minor: o.minor,
        flags,
    };
    let (text, lines) = (text.get(..file_bytes + name_bytes), lines.get(..lines_bytes));
    if !push(kind::CODE, 0, &body, text.unwrap_or_default(), lines.unwrap_or_default()) {
        return LOST;
    }
    if let Some((_, at)) = place {
        at.store(f.key, Ordering::Release);
    }
    body.number
}

/// False if it did not get onto the tape.
fn push<B: Plain>(kind: u16, flags: u16, body: &B, a: &[u8], b: &[u8]) -> bool {
    record::with(|w, _| {
        let written = record::push(w, kind, flags, sys::tsc(), body, a, b);
        w.publish();
        written
    })
    .unwrap_or(false)
}
