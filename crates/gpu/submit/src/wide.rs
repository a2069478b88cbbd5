//! Long lists to the GPU, by the engine with the most physical engines.
//!
//! On an H200 that engine has 12, and the one for copies to the GPU 2: 1,000 pages of 4 KiB take 91 us and 128 us. It is also the engine of the copies from the
//! GPU, and two channels on one engine wait for each other's time slices of 1 ms. So one list at a time has a lane there, if no copy from the GPU is pending.
//! Until it is done, copies from the GPU that wait for nothing use the other engine, if that is idle. A session with prepared copies from the GPU, or with chains, keeps its lists off that engine.

use crate::error::Error;
use crate::handle::Buffer;
use crate::lane::Claim;
use crate::numbering::WIDE;
use crate::open::LANES;
use crate::session::{Now, Session};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The fewest pieces of such a list: with 64 of 4 KiB both engines are as fast.
pub(crate) const FROM: usize = 128;

/// What a session knows of its use of that engine. Hints: a wrong one costs time.
#[derive(Default)]
pub(crate) struct Wide {
    /// Something is prepared that uses it.
    taken: AtomicBool,
    /// A list may be pending there, or about to be.
    busy: AtomicBool,
}

impl Wide {
    pub const fn new() -> Wide {
        Wide { taken: AtomicBool::new(false), busy: AtomicBool::new(false) }
    }

    /// The session was opened, so nothing is prepared.
    pub fn opened(&self, has_lane: bool) {
        self.taken.store(!has_lane, Ordering::Relaxed);
    }

    /// From now on lists leave the engine alone.
    pub fn take(&self) {
        self.taken.store(true, Ordering::Relaxed);
    }
}

impl Session {
    /// A lane for this many pieces between two buffers, which may wait for others' work.
    #[inline]
    pub(crate) fn lane_for(
        &self,
        now: Now,
        buffers: (Buffer, Buffer),
        (pieces, waits): (usize, bool),
    ) -> Result<(usize, Claim<'_>), Error> {
        let mut half = self.half(now, buffers)?;
        if half == LANES && !waits && self.wide.busy.load(Ordering::Relaxed) {
            half = self.beside_lists(now);
        }
        if pieces >= FROM
            && self.is_to_video(now, buffers)
            && let Some(lane) = self.wide_lane(now)?
        {
            return Ok(lane);
        }
        self.any_lane(half, now)
    }

    /// A lane of that engine, if a list may use it now.
    fn wide_lane(&self, now: Now) -> Result<Option<(usize, Claim<'_>)>, Error> {
        // (A list there may be waiting, and would hold up this one.)
        let is_free = || self.are_idle(LANES..LANES + now.lanes()) && self.are_idle(WIDE..WIDE + 1);
        if now.between() != LANES || self.wide.taken.load(Ordering::Relaxed) || !is_free() {
            return Ok(None);
        }
        let Some(claim) = self.lanes[WIDE].claim() else { return Ok(None) };
        self.wide.busy.store(true, Ordering::Relaxed);
        Ok(Some((WIDE, self.still(claim, now)?)))
    }

    /// Where copies from the GPU go while a list may be pending: to the other engine, unless a copy that waits there would hold them up.
    #[cold]
    fn beside_lists(&self, now: Now) -> usize {
        if self.are_idle(WIDE..WIDE + 1) {
            self.wide.busy.store(false, Ordering::Relaxed);
            return LANES;
        }
        if self.are_idle(0..now.lanes()) { 0 } else { LANES }
    }

    /// Whether no submission of these lanes is pending.
    fn are_idle(&self, lanes: Range<usize>) -> bool {
        self.lanes[lanes].iter().all(|lane| lane.observe(|observer| Ok(observer.is_idle())).unwrap_or(true))
    }
}
