//! Hangs: threads that have been in one CUDA call, or waited for one mutex or rwlock, for longer than a limit, and kernels whose
//! ends are overdue. These are no events yet, so the thread that drains the rings looks for them.
//!
//! Invariant: each hang is reported once.

use crate::image::Image;
use crate::live::{self, Ended};
use crate::triggers::{Triggers, Why, is_lock};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time between two looks: a part of the limit, within these bounds.
const PARTS: u32 = 8;
const BOUNDS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

pub struct Hangs {
    looked: Instant,
    /// Hangs that were reported and have not ended: the process, the thread, and when its call or its wait began.
    told: HashSet<(i32, i32, u64)>,
    kernels: HashMap<u32, Overdue>,
}

/// Kernels of an image that were launched before a time.
struct Overdue {
    /// Those whose number is below this.
    number: u64,
    launched: u64,
    is_told: bool,
}

impl Hangs {
    pub fn new() -> Hangs {
        Hangs { looked: Instant::now(), told: HashSet::new(), kernels: HashMap::new() }
    }

    /// Once a round: hangs that are longer than the limit by now.
    pub fn look(&mut self, triggers: &Triggers, images: &[Image]) -> Vec<Why> {
        let Some(limit) = triggers.hang() else { return Vec::new() };
        if self.looked.elapsed() < (limit / PARTS).clamp(BOUNDS.0, BOUNDS.1) {
            return Vec::new();
        }
        self.looked = Instant::now();
        let live = live::rows(images, &Ended::default(), triggers.hz);
        let (mut found, mut open) = (Vec::new(), HashSet::new());
        for (pid, t) in live.processes.iter().flat_map(|p| p.threads.iter().map(|t| (p.pid, t))) {
            let tid = t.tid;
            let wait = t.waits.filter(|w| is_lock(w.op()));
            // (A wait inside of a call is no other hang.)
            let (began, what) = match (&t.call, wait) {
                (Some(c), _) => (c.began, format!("{} has not returned in thread {tid}", c.function)),
                (None, Some(w)) => (w.since, format!("thread {tid} waits for a lock")),
                (None, None) => continue,
            };
            let Some(why) = triggers.hangs(&what, began, live.tsc) else { continue };
            if !self.told.contains(&(pid, tid, began)) {
                found.push(why);
            }
            open.insert((pid, tid, began));
        }
        self.told = open;
        self.kernels.retain(|index, _| images.iter().any(|i| i.index == *index));
        found.extend(images.iter().filter_map(|i| self.kernel(triggers, i, live.tsc)));
        found
    }

    fn kernel(&mut self, triggers: &Triggers, image: &Image, now: u64) -> Option<Why> {
        let number = image.region.control().stamped.load(Ordering::Acquire);
        let fresh = Overdue { number, launched: now, is_told: false };
        let Some(of) = self.kernels.get_mut(&image.index).filter(|of| !image.ends.is_settled(of.number)) else {
            self.kernels.insert(image.index, fresh);
            return None;
        };
        let why = triggers.hangs("a kernel has not ended", of.launched, now).filter(|_| !of.is_told)?;
        of.is_told = true;
        Some(why)
    }
}
