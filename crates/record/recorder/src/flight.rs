//! How a flight recorder's trigger becomes a file. Four threads take part:
//!
//! 1. The thread that writes keeps each piece of events in memory and shows each event to the [`Triggers`]
//!    (`last::Newest::events`). A trigger makes a file due 100 ms later, so that the file has the events after it.
//! 2. The thread that drains the rings looks once a round ([`Flight::look`]). It looks at calls that have not returned, at
//!    other hangs and at the kernel's log, because these are no events. It also gets the users' requests, which are due immediately. When a file is due, it waits for the
//!    ends of the kernels launched so far. Then it sends a [`Request`] after the events. Only this thread knows the time before
//!    which all events have arrived, the state of each process, and the locks that threads hold.
//! 3. The thread that writes answers the request with a snapshot, which shares the packed pieces (`last::Newest::save`).
//! 4. A separate thread writes the file from the snapshot ([`crate::saving`]), so neither the rings nor the thread that writes wait
//!    for a disk. It also waits for two looks at the program ([`crate::looks`]). It reports to the [`Schedule`], where the next status of the recording finds the result.

use crate::control::messages::{SaveResult, SavedSoFar};
use crate::hangs::Hangs;
use crate::image::Image;
use crate::kernel_log::KernelLog;
use crate::last::{self, Last};
use crate::saving::{Request, SavedFile, Saves, Tell};
use crate::triggers::{Trigger, Triggers, Why};
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tape::file::End;

/// Time from a trigger to its file.
const AFTER: Duration = Duration::from_millis(100);
/// A trigger within this time after a file saves nothing and is counted.
const APART: Duration = Duration::from_secs(10);
/// The maximum time that a file waits for ends of kernels.
const ENDS_WITHIN: Duration = Duration::from_millis(50);
/// Calls in progress are looked at this often.
const LOOK_AT_CALLS: Duration = Duration::from_millis(20);
/// Maximum number of remembered results. Each peer has one request at a time.
const RESULTS: usize = 32;

/// The files that are due and the files that were saved, for all of these threads.
pub struct Schedule {
    pub last: Last,
    pub triggers: Triggers,
    /// A file may be due.
    is_due: AtomicBool,
    /// A file is being written.
    pub is_saving: AtomicBool,
    state: Mutex<State>,
    tell: Arc<Tell>,
}

#[derive(Default)]
struct State {
    /// At most one trigger, and requests.
    due: VecDeque<Due>,
    /// When the last file was begun.
    begun: Option<Instant>,
    begun_files: u32,
    /// The number of requests so far, and the latest results.
    requests: u64,
    results: VecDeque<SaveResult>,
    saves: Saves,
}

/// A file that is to be begun at a time.
#[derive(Clone, Debug)]
pub struct Due {
    pub why: Why,
    at: Instant,
    /// The number of the request; `None`: a trigger.
    pub request: Option<u64>,
}

impl Schedule {
    /// `hz`: ticks per second. `tell` is called with each file.
    pub fn new(last: Last, hz: f64, tell: Arc<Tell>) -> Arc<Schedule> {
        Arc::new(Schedule {
            triggers: Triggers::new(&last.when, hz),
            last,
            is_due: AtomicBool::new(false),
            is_saving: AtomicBool::new(false),
            state: Mutex::default(),
            tell,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        poison::ignore(self.state.lock())
    }

    /// A trigger: a file is due [`AFTER`] it.
    pub fn happened(&self, why: Why, now: Instant) {
        let mut s = self.state();
        if s.due.iter().any(|d| d.request.is_none()) {
            return;
        }
        if s.begun.is_some_and(|at| now.saturating_duration_since(at) < APART) {
            s.saves.too_soon += 1;
        } else {
            let _ = self.make_due(&mut s, Due { why, at: now + AFTER, request: None });
        }
    }

    /// Requests a file now. Returns the number of the request. `None`: the maximum number of files is reached.
    fn requested(&self, why: Why) -> Option<u64> {
        let mut s = self.state();
        // An earlier request with the same text whose file is not yet begun will have all these events, too.
        let same = |d: &&Due| (&d.why.reason, &d.why.what) == (&why.reason, &why.what);
        if let Some(number) = s.due.iter().find(same).and_then(|d| d.request) {
            return Some(number);
        }
        let number = s.requests + 1;
        self.make_due(&mut s, Due { why, at: Instant::now(), request: Some(number) }).then(|| {
            s.requests = number;
            number
        })
    }

    fn make_due(&self, s: &mut State, due: Due) -> bool {
        if s.begun_files as usize + s.due.len() >= self.last.most_files as usize {
            s.saves.too_many += 1;
            return false;
        }
        s.due.push_back(due);
        self.is_due.store(true, Ordering::Release);
        true
    }

    /// A file that is to be begun now, once.
    fn due(&self, now: Instant) -> Option<Due> {
        // (This is called every millisecond.)
        if !self.is_due.load(Ordering::Acquire) || self.is_saving.load(Ordering::Acquire) {
            return None;
        }
        let mut s = self.state();
        let i = s.due.iter().position(|d| d.at <= now)?;
        let due = s.due.remove(i)?;
        self.is_due.store(!s.due.is_empty(), Ordering::Release);
        (s.begun, s.begun_files) = (Some(now), s.begun_files + 1);
        Some(due)
    }

    /// A file was written, or could not be. The first failure is reported, and the recording continues.
    pub fn has_saved(&self, request: Option<u64>, done: Result<SavedFile, String>) {
        let is_first = {
            let mut s = self.state();
            match &done {
                Ok(file) => s.saves.files.push(file.clone()),
                Err(e) => {
                    s.saves.failed += 1;
                    s.saves.failure.get_or_insert_with(|| e.clone());
                }
            }
            if let Some(number) = request {
                if s.results.len() >= RESULTS {
                    s.results.pop_front();
                }
                let file = done.as_ref().ok().map(|file| absolute(&file.path));
                s.results.push_back(SaveResult { number, file, failure: done.as_ref().err().cloned() });
            }
            s.saves.failed <= 1
        };
        if done.is_ok() || is_first {
            (self.tell)(done.as_ref().map_err(String::as_str));
        }
    }

    /// The files that were saved so far.
    pub fn so_far(&self) -> SavedSoFar {
        let s = self.state();
        let saves = &s.saves;
        SavedSoFar {
            files: saves.files.len() as u64,
            latest: saves.files.last().map(|f| absolute(&f.path)),
            failed: saves.failed,
            failure: saves.failure.clone(),
            requests: s.results.iter().cloned().collect(),
        }
    }

    pub fn saves(&self) -> Saves {
        self.state().saves.clone()
    }
}

fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy().into_owned()
}

/// What the thread that drains the rings does.
pub struct Flight {
    pub schedule: Arc<Schedule>,
    looked: Instant,
    /// Calls in progress that were already reported: thread, and when the call began.
    told: HashSet<(i32, u64)>,
    hangs: Hangs,
    /// Only with a trigger for it.
    kernel_log: Option<KernelLog>,
    waits: Option<Waits>,
}

/// A file that waits until all kernels have ended that were launched before it was due.
struct Waits {
    due: Due,
    since: Instant,
    /// The number of kernels of each image at that time.
    stamped: Vec<(u32, u64)>,
}

impl Flight {
    pub fn new(schedule: Arc<Schedule>) -> Flight {
        let kernel_log = schedule.triggers.has_xid().then(KernelLog::open).and_then(Result::ok);
        Flight { schedule, looked: Instant::now(), told: HashSet::new(), hangs: Hangs::new(), kernel_log, waits: None }
    }

    /// Requests a file of the newest part. Returns the number of the request.
    ///
    /// # Errors
    /// Why there will be no file, as text.
    pub fn save(&self, reason: &str, what: &str) -> Result<u64, String> {
        let most = self.schedule.last.most_files;
        let number = self.schedule.requested(last::why(reason, what.into(), crate::clock::tsc()));
        number.ok_or_else(|| format!("{most} files were written, and no more may be: --max-saves"))
    }

    /// Once a round: a file that is to be begun in it.
    pub fn look(&mut self, images: &[Image]) -> Option<Due> {
        self.look_at_calls(images);
        for why in self.hangs.look(&self.schedule.triggers, images) {
            self.schedule.happened(why, Instant::now());
        }
        for report in self.kernel_log.as_mut().map_or_else(Vec::new, KernelLog::reports) {
            let why = self.schedule.triggers.xid(report, crate::clock::tsc());
            why.into_iter().for_each(|why| self.schedule.happened(why, Instant::now()));
        }
        if self.waits.is_none() {
            let stamped = |i: &Image| (i.index, i.region.control().stamped.load(Ordering::Acquire));
            self.waits = self.schedule.due(Instant::now()).map(|due| Waits {
                due,
                since: Instant::now(),
                stamped: images.iter().map(stamped).collect(),
            });
        }
        let has_ended = |(index, stamped): &(u32, u64)| {
            images.iter().find(|i| i.index == *index).is_none_or(|i| i.ends.is_settled(*stamped))
        };
        let is_over = |waits: &mut Waits| waits.since.elapsed() >= ENDS_WITHIN || waits.stamped.iter().all(has_ended);
        self.waits.take_if(is_over).map(|waits| waits.due)
    }

    fn look_at_calls(&mut self, images: &[Image]) {
        let triggers = &self.schedule.triggers;
        if self.looked.elapsed() <= LOOK_AT_CALLS || !triggers.has_calls() {
            return;
        }
        self.looked = Instant::now();
        let now = crate::clock::tsc();
        let calls: Vec<_> = images.iter().flat_map(Image::calls).collect();
        self.told.retain(|(tid, began)| calls.iter().any(|c| (c.0, c.2) == (*tid, *began)));
        for (tid, function, began) in calls {
            if let Some(why) = triggers.in_call(tid, function, began, now)
                && self.told.insert((tid, began))
            {
                self.schedule.happened(why, Instant::now());
            }
        }
    }

    /// The file at the end: one that is still due, or that the end is a reason for. A crash always is.
    pub fn at_the_end(self, end: &End) -> Option<Request> {
        let due = self.waits.map(|waits| waits.due).or_else(|| self.schedule.state().due.pop_front());
        let since = self.kernel_log.and_then(|mut log| log.rest().into_iter().next());
        let xid = || self.schedule.triggers.xid(since?, crate::clock::tsc());
        let why = due.map(|due| due.why).or_else(xid).or_else(|| {
            let asked = self.schedule.last.when.iter().find(|w| w.trigger == Trigger::Exit);
            let reason = if end.exit_code == Some(0) { asked?.text.as_str() } else { "crash" };
            Some(last::why(reason, end.how.clone(), crate::clock::tsc()))
        });
        Some(Request { why: why?, until: u64::MAX, end: end.clone(), ..Request::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last::{Span, why};

    fn schedule(most_files: u32) -> Arc<Schedule> {
        let last = Last {
            span: Span::Bytes(1 << 20),
            when: Vec::new(),
            name: "a".into(),
            force: false,
            signal: None,
            most_files,
        };
        Schedule::new(last, 1e9, Arc::new(|_| ()))
    }

    #[test]
    fn a_request_and_a_trigger_of_the_same_moment_are_two_files() {
        let s = schedule(10);
        let begun = Instant::now();
        s.happened(why("call > 5ms", "cuMemAlloc took 7 ms".into(), 1), begun);
        s.happened(why("call > 5ms", "cuMemFree took 7 ms".into(), 2), begun);
        let first = s.requested(why("doorbell save", "slow".into(), 3)).unwrap();
        let same = s.requested(why("doorbell save", "slow".into(), 4)).unwrap();
        let other = s.requested(why("doorbell save", String::new(), 5)).unwrap();
        assert!(first == same && first != other);
        let due: Vec<_> = std::iter::from_fn(|| s.due(begun + 2 * AFTER)).collect();
        let due: Vec<_> = due.iter().map(|d| (d.why.reason.as_str(), d.request)).collect();
        assert_eq!(due, [("call > 5ms", None), ("doorbell save", Some(first)), ("doorbell save", Some(other))]);
        // A trigger waits, a request does not. A request whose file was begun is not joined.
        assert!(s.due(begun + 2 * AFTER).is_none());
        assert!(s.requested(why("doorbell save", "slow".into(), 6)).unwrap() > other);
        s.happened(why("call > 5ms", String::new(), 7), begun);
        assert_eq!(s.state().saves.too_soon, 1);
    }

    #[test]
    fn files_that_are_due_count_among_those_that_may_be() {
        let s = schedule(1);
        s.happened(why("call > 5ms", String::new(), 1), Instant::now());
        assert_eq!((s.requested(why("doorbell save", String::new(), 2)), s.state().saves.too_many), (None, 1));
        assert!(s.due(Instant::now()).is_none() && s.due(Instant::now() + AFTER).is_some());
        assert_eq!(s.requested(why("doorbell save", String::new(), 3)), None);
    }
}
