//! The answer to `now`: what the threads of all recorded processes do at this moment.
//!
//! The thread that drains the rings only copies the rows of the threads, which are in the shared memory ([`rows`]). Another thread
//! then reads /proc and the words of locks ([`Details`]), so the rings wait for neither. The program is not stopped, and executes
//! nothing for it.
//!
//! Invariant: a row that changes while it is read is read again, or left out.

mod details;
mod ended;
mod kin;
mod others;
pub mod proc;
pub mod readers;
mod sockets;
mod waiting;
mod waits;

pub use details::Details;
pub use ended::Ended;
pub use kin::Kin;

use crate::image::Image;
use details::end;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};
use tape::call;
use tape::live::{Live, LiveCall, LiveChannel, LiveHold, LiveProcess, LiveThread, state};
use tape::region::{CallRow, HeldLock, LockTable, Slot, contents};

/// Maximum number of threads, and of locks that they hold, in an answer.
const THREADS: usize = 4000;
const HOLDS: usize = 8000;
/// How often rows that change are read again.
const READINGS: u32 = 8;

/// What the threads' rows have now, and the processes that have ended. `hz`: ticks per second.
pub fn rows(images: &[Image], ended: &Ended, hz: f64) -> Live {
    let mut live = Live { tsc: crate::clock::tsc(), hz, ..Live::default() };
    let (mut threads, mut holds) = (0, 0);
    for image in images {
        let control = image.region.control();
        // In a pause no thread records which locks it takes or releases, so older rows may be wrong.
        let has_paused = control.pauses.load(Ordering::Relaxed) != 0;
        let paused_at = control.paused_at.load(Ordering::Relaxed);
        let mut of: BTreeMap<i32, LiveThread> = BTreeMap::new();
        for i in image.region.mapped() {
            let (Some(owner), Some(ring)) = (image.region.table().owner(i), image.region.ring(i)) else { continue };
            if threads == THREADS || holds >= HOLDS {
                live.cut = true;
                break;
            }
            let (waits, mut held) = locks(ring.locks());
            held.retain(|h| !has_paused || h.since > paused_at);
            let call = call(ring.call());
            if image.region.table().owner(i).is_none_or(|now| now.tid() != owner.tid()) {
                continue;
            }
            (threads, holds) = (threads + 1, holds + held.len());
            // (A thread may have a second, larger ring. Its rows stay in the first.)
            let t = of.entry(owner.tid()).or_default();
            t.tid = owner.tid();
            t.call = t.call.take().or(call);
            t.waits = t.waits.or(waits);
            t.holds.extend(held);
        }
        let has_ended = image.has_ended();
        live.processes.push(LiveProcess {
            pid: image.pid,
            parent: image.parent,
            began: image.start_tsc,
            paused: image.is_paused(),
            state: if has_ended { state::ENDED } else { state::UNKNOWN }.into(),
            ended: has_ended.then(|| end(false, image.handle.status())),
            other_numbers: control.pid.load(Ordering::Relaxed) != image.pid,
            threads: of.into_values().collect(),
            ..LiveProcess::default()
        });
    }
    live.processes.extend(ended.all(images));
    live
}

/// Adds what the streams have to do, and who signalled the conditions for which threads wait, to the rows of the same images.
pub fn add_streams(live: &mut Live, images: &[Image]) {
    for image in images {
        let Some(p) = live.processes.iter_mut().find(|p| p.pid == image.pid) else { continue };
        let contents = image.region.control().contents;
        let names = contents & contents::NO_NAMES == 0;
        (p.streams, p.polls) = image.work.live(names);
        p.collectives = image.work.collectives(names);
        p.rank.clone_from(&image.rank);
        p.channels = channels(image);
        let waits = p.threads.iter().filter_map(|t| t.waits.as_ref()).map(|w| w.address);
        let conditions: BTreeSet<u64> = waits.collect();
        p.signals = conditions.into_iter().filter_map(|at| image.signalled.last(at)).collect();
        let (of, has_paused) = (
            contents & (contents::LOCKS | contents::WAITS),
            image.region.control().pauses.load(Ordering::Relaxed) != 0,
        );
        p.has_signals = of == contents::LOCKS && !has_paused && image.signalled.has_all();
    }
}

/// Its channels that are in use, with what the program gave them. (What the GPU has read of it is read later.)
fn channels(image: &Image) -> Vec<LiveChannel> {
    let of = |(n, s): (usize, &Slot)| {
        let userd = s.real_userd.load(Ordering::Relaxed);
        (s.state.load(Ordering::Acquire) == 1 && userd != 0).then(|| LiveChannel {
            channel: n as u32,
            put: s.put.load(Ordering::Relaxed),
            get: 0,
            stream: image.work.stream_of(n),
            userd,
        })
    };
    image.region.slots().iter().enumerate().filter_map(of).collect()
}

/// Reads something until two readings in a row are the same. Otherwise `None`.
fn twice<T: PartialEq>(read: impl Fn() -> T) -> Option<T> {
    let mut before = read();
    for _ in 0..READINGS {
        // ORDERING: the loads of one reading before those of the next.
        fence(Ordering::Acquire);
        let now = read();
        if now == before {
            return Some(now);
        }
        before = now;
    }
    None
}

/// The lock that a thread waits for, and those that it holds. Each is read on its own: a thread that takes and releases one lock all
/// the time may hold another one for long. (A thread that the kernel took off its CPU while it wrote a row of a lock that it had just
/// taken leaves parts of two rows. Such a thread does not wait, so it is in no cycle, and a mutex itself names its holder.)
fn locks(table: &LockTable) -> (Option<LiveHold>, Vec<LiveHold>) {
    let waits = || {
        // ORDERING: Acquire pairs with the agent's Release: if the word is 1, the row is complete.
        let waits = table.waits.load(Ordering::Acquire) == 1;
        let row = lock(&table.waiting);
        // (It is complete only if it still counts after it was read.)
        fence(Ordering::Acquire);
        (waits && table.waits.load(Ordering::Relaxed) == 1).then_some(row)
    };
    let n = || table.n.load(Ordering::Relaxed) as usize;
    let held = |(i, row): (usize, &HeldLock)| Some((i, twice(|| lock(row))?));
    let mut rows: Vec<_> = table.held.iter().take(n()).enumerate().filter_map(held).collect();
    // (A row that was given back meanwhile does not count.)
    let n = n();
    rows.retain(|(i, _)| *i < n);
    (twice(waits).flatten(), rows.into_iter().map(|(_, row)| row).collect())
}

fn lock(row: &HeldLock) -> LiveHold {
    let flags = row.flags.load(Ordering::Relaxed);
    let is_open = flags & HeldLock::OPEN != 0;
    LiveHold {
        address: row.addr.load(Ordering::Relaxed),
        site: row.site.load(Ordering::Relaxed),
        since: if is_open { 0 } else { row.since.load(Ordering::Relaxed) },
        flags: flags as u16,
        turn: if is_open { row.wait.load(Ordering::Relaxed) } else { 0 },
    }
}

fn call(row: &CallRow) -> Option<LiveCall> {
    let read = || {
        let (function, body) = row.event()?;
        Some((function, body.began, body.seq, body.stream, body.object, row.kernel.load(Ordering::Relaxed)))
    };
    let (function, began, number, stream, object, kernel) = twice(read).flatten()?;
    let function = call::function(function).map_or_else(|| format!("call {function}"), |f| f.name.into());
    Some(LiveCall { function, began, number, stream, object, kernel })
}

/// The program may record names: [`contents::NO_NAMES`].
pub fn has_names(images: &[Image]) -> bool {
    images.iter().all(|i| i.region.control().contents & contents::NO_NAMES == 0)
}
#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use tape::region::HELD;

    /// A thread that waits for one lock after the other: what is read is one of its waits, never parts of two.
    #[test]
    fn a_wait_that_changes_is_read_whole_or_left_out() {
        // SAFETY: atomics alone, for which zeros are values.
        let table: Box<LockTable> = unsafe { Box::new(std::mem::zeroed()) };
        let (over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let write = |row: &HeldLock, n: u64| {
            [&row.addr, &row.site, &row.since].iter().for_each(|word| word.store(n, Ordering::Relaxed));
        };
        std::thread::scope(|s| {
            s.spawn(|| {
                // A lock that is held all the time, below those that come and go.
                write(&table.held[0], 7);
                table.n.store(1, Ordering::Release);
                for n in 100.. {
                    write(&table.waiting, n);
                    table.waits.store(1, Ordering::Release);
                    std::hint::spin_loop();
                    table.waits.store(0, Ordering::Release);
                    table.n.store(2, Ordering::Release);
                    write(&table.held[1], n);
                    table.n.store(1, Ordering::Release);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            while table.n.load(Ordering::Acquire) == 0 {}
            for _ in 0..200_000 {
                let (waits, held) = locks(&table);
                if let Some(row) = waits {
                    assert!(row.address == row.site && row.site == row.since, "{row:?}");
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(held.first().map(|h| h.address), Some(7));
            }
            over.store(true, Ordering::Relaxed);
        });
        println!("{seen:?} rows");
        table.n.store(u32::MAX, Ordering::Relaxed);
        assert!(locks(&table).1.len() <= HELD);
    }
}
