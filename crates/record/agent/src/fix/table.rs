//! What the agent has made, and for which contexts.
//!
//! Invariant: a row is taken out by one thread, which then frees its memory.

use super::driver::{CONTEXT_IS_DESTROYED, Driver, INVALID_CONTEXT, SUCCESS};
use super::memory::{self, Memory};
use crate::process::locked;
use crate::process::own_lock::{Guard, OwnLock};
use crate::process::wiped::word;
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::fix::Why;

/// Allocations at a time.
const ROWS: usize = 4096;
/// Contexts at a time.
const CONTEXTS: usize = 16;

/// A context, by its handle and its number (cuCtxGetId), which no later context has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub handle: usize,
    pub id: u64,
}

impl Context {
    /// The calling thread's.
    pub fn current(d: &Driver) -> Option<Context> {
        let (mut handle, mut id) = (0, 0);
        // SAFETY: places for the results.
        let found = unsafe { (d.current)(&raw mut handle) == SUCCESS && (d.id)(handle, &raw mut id) == SUCCESS };
        (found && handle != 0).then_some(Context { handle, id })
    }

    /// True once it was destroyed, or reset if it is a device's primary one. (The driver knows handles of contexts that have ended.)
    pub fn has_ended(self, d: &Driver) -> bool {
        let mut id = 0;
        // SAFETY: a place for the number.
        match unsafe { (d.id)(self.handle, &raw mut id) } {
            SUCCESS => id != self.id,
            answer => [CONTEXT_IS_DESTROYED, INVALID_CONTEXT].contains(&answer),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Row {
    pub memory: Memory,
    pub context: Context,
    /// As the program asked for it.
    pub bytes: usize,
    pub kind: Kind,
}

#[derive(Clone, Copy)]
pub enum Kind {
    /// Of the host's, with the flags of cuMemHostAlloc.
    Pinned { flags: u32 },
    /// Of a GPU's, with a block of CUDA's.
    OnGpu { block: usize },
}

impl Kind {
    pub fn block(self) -> Option<usize> {
        match self {
            Kind::Pinned { .. } => None,
            Kind::OnGpu { block } => Some(block),
        }
    }
}

pub struct Table {
    rows: *mut Row,
    n: usize,
    /// Those with memory of the agent's, and whether [`super::pins`] has made a block there.
    contexts: [Option<(Context, bool)>; CONTEXTS],
}

static TABLE: OwnLock<Table, { word::PINS }> =
    OwnLock::new(Table { rows: core::ptr::null_mut(), n: 0, contexts: [None; CONTEXTS] });

/// Makes room. False without memory.
pub fn begin() -> bool {
    let (Some(at), Some(mut table)) = (locked::zeroed(ROWS * size_of::<Row>()), lock()) else { return false };
    table.rows = at as *mut Row;
    true
}

/// `None` in a signal handler that has interrupted the holder.
pub fn lock() -> Option<Guard<'static, Table, { word::PINS }>> {
    /// (A holder that is stopped keeps it longer than one attempt waits.)
    const ATTEMPTS: u32 = 8;
    (0..ATTEMPTS).find_map(|_| TABLE.lock())
}

/// Remembers memory that was just made, or frees it again.
pub fn keep(d: &Driver, row: Row) -> Result<(), Why> {
    if lock().is_some_and(|mut table| table.put(row)) {
        return Ok(());
    }
    // SAFETY: nobody has seen it.
    unsafe { memory::free(d, row.memory) };
    Err(Why::Full)
}

/// Takes the row of an address that is freed.
pub fn take(is: impl Fn(&Row) -> bool) -> Option<Row> {
    lock()?.take(is)
}

/// Frees memory as CUDA would, whose result is returned. `wait` waits until all work of its context has ended; an error of it is the answer.
/// `real` is CUDA's function, which does not free this memory: it returns the error of a context that has ended.
///
/// # Safety
/// As `real`. The row was taken by this thread.
pub unsafe fn free(d: &Driver, row: Row, real: unsafe extern "C" fn(usize) -> i32, wait: impl FnOnce() -> i32) -> i32 {
    let is_there = !row.context.has_ended(d);
    // SAFETY: the caller's.
    let result = if is_there { wait() } else { unsafe { real(row.memory.at) } };
    if is_there && result != SUCCESS {
        // (It is still the program's.)
        let _ = lock().is_some_and(|mut table| table.put(row));
        return result;
    }
    // SAFETY: the caller's, and the work that could use the memory has ended.
    unsafe { memory::free(d, row.memory) };
    result
}

/// CUDA's memory ends with its context.
pub fn end_with_contexts(d: &Driver) {
    let Some(contexts) = lock().map(|table| table.contexts) else { return };
    for (ended, _) in contexts.into_iter().flatten().filter(|(context, _)| context.has_ended(d)) {
        while let Some(row) = take(|row| row.context == ended) {
            // SAFETY: this thread took the row; the context's work has ended with it.
            unsafe { memory::free(d, row.memory) };
        }
        if let Some(mut table) = lock() {
            table.forget(ended);
        }
    }
}

/// The lowest address of all rows that there were, and the highest.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// False for most addresses that are in no row.
pub fn may_contain(address: usize) -> bool {
    (LOWEST.load(Ordering::Relaxed)..HIGHEST.load(Ordering::Relaxed)).contains(&address)
}

impl Table {
    fn rows(&self) -> &[Row] {
        if self.rows.is_null() {
            return &[];
        }
        // SAFETY: a mapping of ROWS rows, of which `n` are written.
        unsafe { core::slice::from_raw_parts(self.rows, self.n) }
    }

    fn has_room(&self) -> bool {
        !self.rows.is_null() && self.n < ROWS
    }

    fn put(&mut self, row: Row) -> bool {
        if self.has_room() {
            // SAFETY: a row after the written ones, in the mapping.
            unsafe { self.rows.add(self.n).write(row) };
            self.n += 1;
            LOWEST.fetch_min(row.memory.at, Ordering::Relaxed);
            HIGHEST.fetch_max(row.memory.at + row.bytes, Ordering::Relaxed);
            return true;
        }
        false
    }

    pub fn containing(&self, address: usize) -> Option<Row> {
        let is_in = |row: &&Row| (row.memory.at..row.memory.at + row.bytes).contains(&address);
        self.rows().iter().find(is_in).copied()
    }

    /// Takes a row out. `None` if another thread has.
    fn take(&mut self, is: impl Fn(&Row) -> bool) -> Option<Row> {
        let i = self.rows().iter().position(is)?;
        let row = *self.rows().get(i)?;
        self.n -= 1;
        // SAFETY: both are written rows; the last one replaces the removed one.
        unsafe { self.rows.add(i).write(*self.rows.add(self.n)) };
        Some(row)
    }

    /// Remembers a context, if there is room for a row. Whether [`super::pins`] has made a block there.
    pub fn begin_context(&mut self, context: Context) -> Result<&mut bool, Why> {
        let known = |place: &Option<(Context, bool)>| place.is_some_and(|(its, _)| its == context);
        let places = &self.contexts;
        let place = places.iter().position(known).or_else(|| places.iter().position(Option::is_none));
        let place = place.filter(|_| self.has_room()).and_then(|place| self.contexts.get_mut(place));
        Ok(&mut place.ok_or(Why::Full)?.get_or_insert((context, false)).1)
    }

    fn forget(&mut self, context: Context) {
        let ended = |place: &Option<(Context, bool)>| place.is_some_and(|(its, _)| its == context);
        self.contexts.iter_mut().filter(|place| ended(place)).for_each(|place| *place = None);
    }
}
