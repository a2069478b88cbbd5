//! GPU virtual ranges that have a CPU mapping in this process: the CPU's view of the memory that GPU addresses name.
//!
//! The cold zone records mappings (RM_MAP_MEMORY then mmap) and the GPU ranges that show them
//! (UVM_MAP_EXTERNAL_ALLOCATION), and keeps the pairs in one sorted table. The tap reads that table without a lock. There
//! are two copies. A change is made in the copy that is not read, and then a count switches to it. So a tap finds its
//! range even while the thread that changes the table is off its CPU, and the count shows when the table changed during a
//! read.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering, fence};

pub const MAX: usize = 16384;

/// A GPU virtual range with a CPU mapping.
#[derive(Clone, Copy, Default)]
pub struct Range {
    pub va: u64,
    pub len: u64,
    pub cpu: u64,
    /// In GPU memory: CPU loads cross PCIe.
    pub video: bool,
}

struct Table {
    n: usize,
    ranges: [Range; MAX],
}

struct Shared(UnsafeCell<[Table; 2]>);
// SAFETY: written only by the holder of the cold zone's lock, and only the table that is not read; read under the count.
unsafe impl Sync for Shared {}

const EMPTY: Range = Range { va: 0, len: 0, cpu: 0, video: false };
static TABLES: Shared =
    Shared(UnsafeCell::new([Table { n: 0, ranges: [EMPTY; MAX] }, Table { n: 0, ranges: [EMPTY; MAX] }]));
/// Counts changes. Its lowest bit is the table that is read. Channels also store it as the generation of their last hit.
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// Maximum number of times in a row that a reader starts again because the table changed.
const TRIES: u32 = 1000;

/// The table to read after this number of changes.
#[inline(always)]
fn table(changes: u64) -> *mut Table {
    // SAFETY: one of two, both static.
    unsafe { TABLES.0.get().cast::<Table>().add((changes & 1) as usize) }
}

/// Result of a read of the table. `None` if it changed during each of [`TRIES`] reads.
#[inline(always)]
fn look<T>(mut at: impl FnMut(*const Table) -> T) -> Option<T> {
    for _ in 0..TRIES {
        let before = CHANGES.load(Ordering::Acquire);
        let found = at(table(before));
        // ORDERING: the reads above before the count is read again: the table that was read is written again only after
        // one more change.
        fence(Ordering::Acquire);
        if CHANGES.load(Ordering::Relaxed) == before {
            return Some(found);
        }
        core::hint::spin_loop();
    }
    None
}

/// Changes whenever the table does.
#[inline]
pub fn generation() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// The range that holds all of `va..va+len`.
pub fn find(va: u64, len: u64) -> Option<Range> {
    let mut found = Range::default();
    find_into(va, len, &mut found).then_some(found)
}

/// As [`find`]; writes the range to `to`, field by field. False, and nothing is written, if there is none. (A returned
/// value that is kept is loaded in wider pieces than it was stored in: see [`tape::ring::Writer::push_words_with`].)
// Not inlined into the tap, which nearly always knows its range already.
#[inline(never)]
pub fn find_into(va: u64, len: u64, to: &mut Range) -> bool {
    // SAFETY: reads of plain words that may race with a writer two changes ahead; the count discards them then.
    let Some(Some(hit)) = look(|t| unsafe { search(t, va, len) }) else { return false };
    (to.va, to.len, to.cpu, to.video) = (hit.va, hit.len, hit.cpu, hit.video);
    true
}

/// True if a range that is mapped at its own address overlaps `addr..addr+len`. No lock: called for each munmap of the
/// program.
pub fn overlaps(addr: u64, len: u64) -> bool {
    // SAFETY: as in `find_into`.
    let last = look(|t| unsafe { last_below(t, addr.saturating_add(len)) });
    last.is_none_or(|last| last.is_some_and(|r| r.va.saturating_add(r.len) > addr))
}

/// The last range that begins below `end`.
#[inline(always)]
unsafe fn last_below(t: *const Table, end: u64) -> Option<Range> {
    // SAFETY: the table is static; n is clamped, so every index is inside.
    unsafe {
        let ranges = (&raw const (*t).ranges).cast::<Range>();
        let (mut lo, mut hi) = (0usize, (&raw const (*t).n).read_volatile().min(MAX));
        while lo < hi {
            let mid = (lo + hi) / 2;
            if (&raw const (*ranges.add(mid)).va).read_volatile() < end { lo = mid + 1 } else { hi = mid }
        }
        let last = ranges.add(lo.checked_sub(1)?);
        Some(Range {
            va: (&raw const (*last).va).read_volatile(),
            len: (&raw const (*last).len).read_volatile(),
            cpu: (&raw const (*last).cpu).read_volatile(),
            video: (&raw const (*last).video).read_volatile(),
        })
    }
}

#[inline(always)]
unsafe fn search(t: *const Table, va: u64, len: u64) -> Option<Range> {
    let end = va.checked_add(len)?;
    // SAFETY: the caller's.
    let r = unsafe { last_below(t, va.checked_add(1)?) }?;
    (end <= r.va.wrapping_add(r.len)).then_some(r)
}

fn change(f: impl FnOnce(&mut Table)) {
    let changes = CHANGES.load(Ordering::Relaxed);
    // ORDERING: a reader of the other table that sees a word of the following writes also sees that its count has
    // changed.
    fence(Ordering::SeqCst);
    // SAFETY: the caller holds the cold zone's lock: one writer. Readers discard what they read in the other table, and
    // no thread writes this one.
    let (now, next) = unsafe { (&*table(changes), &mut *table(changes.wrapping_add(1))) };
    let n = now.n.min(MAX);
    next.ranges[..n].copy_from_slice(&now.ranges[..n]);
    next.n = n;
    f(next);
    CHANGES.store(changes.wrapping_add(1), Ordering::Release);
}

/// Adds a range. Replaces one that begins at the same address. False if the table is full. Cold zone only.
pub fn add(r: Range) -> bool {
    let mut ok = true;
    change(|t| {
        let n = t.n.min(MAX);
        let at = t.ranges[..n].partition_point(|x| x.va < r.va);
        if at < n && t.ranges[at].va == r.va {
            t.ranges[at] = r;
        } else if n < MAX {
            t.ranges.copy_within(at..n, at + 1);
            t.ranges[at] = r;
            t.n = n + 1;
        } else {
            ok = false;
        }
    });
    ok
}

/// Removes ranges that overlap `from..from+len`, by GPU address or by CPU address. Cold zone only.
pub fn remove(from: u64, len: u64, by_cpu: bool) {
    let end = from.saturating_add(len);
    let hit = |r: &Range| {
        let at = if by_cpu { r.cpu } else { r.va };
        at < end && at.saturating_add(r.len) > from
    };
    // SAFETY: the caller holds the cold zone's lock, so no thread writes.
    let t = unsafe { &*table(CHANGES.load(Ordering::Relaxed)) };
    if !t.ranges[..t.n.min(MAX)].iter().any(hit) {
        return;
    }
    change(|t| {
        let mut kept = 0;
        for i in 0..t.n.min(MAX) {
            let r = t.ranges[i];
            if !hit(&r) {
                t.ranges[kept] = r;
                kept += 1;
            }
        }
        t.n = kept;
    });
}

/// In a forked child: the parent's GPU addresses have no meaning here.
pub fn renew() {
    // (Another thread of the parent may have been changing the other table: that change never ends.)
    if CHANGES.load(Ordering::Relaxed) != 0 {
        change(|t| t.n = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError, mpsc};

    /// Stands for the cold zone's lock.
    static ONE_WRITER: Mutex<()> = Mutex::new(());

    fn range(va: u64) -> Range {
        Range { va, len: 0x1000, cpu: va + 0x100_0000, video: false }
    }

    #[test]
    fn a_range_is_found_while_a_thread_is_kept_from_changing_the_table() {
        let _lock = ONE_WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(add(range(0x7000_0000)));
        let (began, go) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        std::thread::scope(|scope| {
            let (say, wait) = (began.0, go.1);
            scope.spawn(move || {
                change(|t| {
                    t.n = 0;
                    say.send(()).unwrap();
                    wait.recv().unwrap();
                });
            });
            began.1.recv().unwrap();
            let (found, overlap) = (find(0x7000_0800, 8), overlaps(0x7000_0000, 1));
            let none = overlaps(0x6000_0000, 8);
            go.0.send(()).unwrap();
            assert_eq!((found.map(|r| r.cpu), overlap, none), (Some(0x7100_0000), true, false));
        });
        assert!(find(0x7000_0800, 8).is_none());
    }

    #[test]
    fn what_never_goes_is_always_found_whatever_comes_and_goes_beside_it() {
        let _lock = ONE_WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(add(range(0x9000_0000)));
        let over = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut looks = 0;
                        while !over.load(Ordering::Relaxed) || looks == 0 {
                            let found = find(0x9000_0ff8, 8).map(|r| (r.va, r.len, r.cpu));
                            assert_eq!(found, Some((0x9000_0000, 0x1000, 0x9100_0000)));
                            looks += 1;
                        }
                    })
                })
                .collect();
            for n in 0..2000 {
                let passing = [range(0x8000_0000 + (n % 7) * 0x1_0000), range(0xa000_0000 + (n % 5) * 0x1_0000)];
                assert!(passing.into_iter().all(add));
                passing.iter().for_each(|r| remove(r.va, r.len, false));
            }
            over.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        remove(0x9000_0000, 0x1000, false);
        assert!(find(0x9000_0800, 8).is_none());
    }
}
