//! What the agent has made, and for which contexts.
//!
//! Invariant: a row is taken out by one thread, which then frees its memory.

use super::driver::{CONTEXT_IS_DESTROYED, Driver, INVALID_CONTEXT, SUCCESS};
use super::memory::Memory;
use crate::process::locked;
use crate::process::own_lock::{Guard, OwnLock};
use crate::process::wiped::word;
use core::sync::atomic::{AtomicUsize, Ordering};

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
    pub flags: u32,
}

pub struct Table {
    rows: *mut Row,
    n: usize,
    contexts: [Option<Context>; CONTEXTS],
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

    pub fn has_room(&self) -> bool {
        !self.rows.is_null() && self.n < ROWS
    }

    pub fn put(&mut self, row: Row) -> bool {
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

    pub fn find(&self, at: usize) -> Option<Row> {
        self.rows().iter().find(|row| row.memory.at == at).copied()
    }

    pub fn containing(&self, address: usize) -> Option<Row> {
        let is_in = |row: &&Row| (row.memory.at..row.memory.at + row.bytes).contains(&address);
        self.rows().iter().find(is_in).copied()
    }

    /// Takes a row out. `None` if another thread has.
    pub fn take(&mut self, is: impl Fn(&Row) -> bool) -> Option<Row> {
        let i = self.rows().iter().position(is)?;
        let row = *self.rows().get(i)?;
        self.n -= 1;
        // SAFETY: both are written rows; the last one replaces the removed one.
        unsafe { self.rows.add(i).write(*self.rows.add(self.n)) };
        Some(row)
    }

    /// Whether a context was remembered before; from now on it is. `None` if there are too many.
    pub fn knows(&mut self, context: Context) -> Option<bool> {
        if self.contexts.contains(&Some(context)) {
            return Some(true);
        }
        *self.contexts.iter_mut().find(|place| place.is_none())? = Some(context);
        Some(false)
    }

    pub fn contexts(&self) -> [Option<Context>; CONTEXTS] {
        self.contexts
    }

    pub fn forget(&mut self, context: Context) {
        self.contexts.iter_mut().filter(|place| **place == Some(context)).for_each(|place| *place = None);
    }
}
