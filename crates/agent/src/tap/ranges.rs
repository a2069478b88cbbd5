//! Where the CPU finds what the GPU names: GPU virtual ranges that have a CPU mapping in this process.
//!
//! The cold zone learns mappings (RM_MAP_MEMORY then mmap), the GPU ranges that show them (UVM_MAP_EXTERNAL_ALLOCATION)
//! and keeps the pairs in one sorted table. The tap reads that table without a lock: a sequence count tells it when the
//! table changed under it.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering, fence};

pub const MAX: usize = 16384;

/// A GPU virtual range with a CPU mapping.
#[derive(Clone, Copy, Default)]
pub struct Range {
    pub va: u64,
    pub len: u64,
    pub cpu: u64,
    /// In video memory: CPU loads go over PCIe.
    pub video: bool,
}

struct Table {
    n: usize,
    ranges: [Range; MAX],
}

struct Shared(UnsafeCell<Table>);
// SAFETY: written only by the holder of the cold zone's lock, read under the sequence count.
unsafe impl Sync for Shared {}

static TABLE: Shared =
    Shared(UnsafeCell::new(Table { n: 0, ranges: [Range { va: 0, len: 0, cpu: 0, video: false }; MAX] }));
/// Odd while the table is being changed; also the generation that channels remember their last hit by.
static SEQ: AtomicU64 = AtomicU64::new(0);

/// Changes whenever the table does.
#[inline]
pub fn generation() -> u64 {
    SEQ.load(Ordering::Acquire)
}

/// The range that holds all of `va..va+len`.
pub fn find(va: u64, len: u64) -> Option<Range> {
    let mut found = Range::default();
    find_into(va, len, &mut found).then_some(found)
}

/// As [`find`]; writes it there, field by field. False, and nothing is written, if there is none. (A value that is returned
/// and then kept is loaded in wider pieces than it was stored in: see [`tape::ring::Writer::push_words_with`].)
pub fn find_into(va: u64, len: u64, to: &mut Range) -> bool {
    for _ in 0..1000 {
        let before = SEQ.load(Ordering::Acquire);
        if before & 1 == 0 {
            // SAFETY: volatile-free reads of plain words that may race with the writer; the count below discards them then.
            let hit = unsafe { search(TABLE.0.get(), va, len) };
            // ORDERING: the reads above before the second look at the count.
            fence(Ordering::Acquire);
            if SEQ.load(Ordering::Relaxed) == before {
                let Some(hit) = hit else { return false };
                (to.va, to.len, to.cpu, to.video) = (hit.va, hit.len, hit.cpu, hit.video);
                return true;
            }
        }
        core::hint::spin_loop();
    }
    false
}

/// True if a range that is mapped at its own address overlaps `addr..addr+len`. No lock: for every munmap of the program.
pub fn overlaps(addr: u64, len: u64) -> bool {
    for _ in 0..1000 {
        let before = SEQ.load(Ordering::Acquire);
        if before & 1 == 0 {
            // SAFETY: as in `find`.
            let hit = unsafe { last_below(TABLE.0.get(), addr.saturating_add(len)) }
                .is_some_and(|r| r.va.saturating_add(r.len) > addr);
            // ORDERING: as in `find`.
            fence(Ordering::Acquire);
            if SEQ.load(Ordering::Relaxed) == before {
                return hit;
            }
        }
        core::hint::spin_loop();
    }
    true
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
    SEQ.fetch_add(1, Ordering::AcqRel);
    // ORDERING: readers see the odd count before any change.
    fence(Ordering::SeqCst);
    // SAFETY: the caller holds the cold zone's lock: one writer.
    f(unsafe { &mut *TABLE.0.get() });
    SEQ.fetch_add(1, Ordering::Release);
}

/// Adds a range; one that begins at the same address is replaced. False if the table is full. Cold zone only.
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

/// Forgets what overlaps `from..from+len`, by GPU address or by CPU address. Cold zone only.
pub fn remove(from: u64, len: u64, by_cpu: bool) {
    let end = from.saturating_add(len);
    let hit = |r: &Range| {
        let at = if by_cpu { r.cpu } else { r.va };
        at < end && at.saturating_add(r.len) > from
    };
    // SAFETY: the caller holds the cold zone's lock, so nobody writes.
    let t = unsafe { &*TABLE.0.get() };
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

/// In a forked child: what the parent's GPU addresses name is of no use here.
pub fn renew() {
    // (Another thread of the parent may have been changing it.)
    SEQ.store(SEQ.load(Ordering::Relaxed).next_multiple_of(2), Ordering::Relaxed);
    change(|t| t.n = 0);
}
