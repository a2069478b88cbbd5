//! Regions, and the processes that claim them: keeps regions in memory ahead of use, finds each claim, and offers a region again.

use crate::processes::{self, Handle, Identity};
use crate::region::Region;
use crate::shared_session::SharedSession;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::session::{REGIONS, state};

/// Entries are looked at this often, even if no agent calls.
const LOOK: Duration = Duration::from_millis(50);

/// A process that has claimed a region.
pub struct Claim {
    pub entry: usize,
    pub region: Region,
    pub pid: i32,
    pub handle: Handle,
    pub identity: Identity,
}

/// What became of a claim.
pub enum Outcome {
    /// The process writes to the region.
    Attached,
    /// The process runs without a recording; why is one of [`tape::session::unwatched`].
    Abandoned { why: u32 },
    /// The process was killed before it wrote.
    Killed,
}

pub struct Claims<'a> {
    session: &'a SharedSession,
    /// Regions that are in memory ahead of use, by their entry.
    ready: Vec<Option<Region>>,
    /// Entries whose region a process is known to have.
    taken: Vec<bool>,
    /// Claims whose outcome is not known.
    open: Vec<Claim>,
    /// [`tape::session::Session::calls`] as last seen, and when entries were last looked at.
    calls: u32,
    looked: Instant,
    /// Why there was no memory for a region.
    pub no_region: Option<String>,
}

impl<'a> Claims<'a> {
    /// Offers regions. To be called before the program starts.
    pub fn new(session: &'a SharedSession) -> Claims<'a> {
        let (ready, taken) = (session.prepare(), vec![false; REGIONS]);
        Claims { session, ready, taken, open: Vec::new(), calls: 0, looked: Instant::now(), no_region: None }
    }

    /// The claims whose outcome is now known, in the order in which they were made.
    pub fn look(&mut self) -> Vec<(Claim, Outcome)> {
        let page = self.session.page();
        let calls = page.calls.load(Ordering::Acquire);
        // (An agent that was killed between its claim and its call is found a little later.)
        if std::mem::replace(&mut self.calls, calls) != calls || self.looked.elapsed() > LOOK {
            self.looked = Instant::now();
            (0..REGIONS).for_each(|entry| self.look_at(entry));
        }
        // An exec may have followed the first claim immediately.
        self.open.sort_by_key(|c| page.regions.get(c.entry).map_or(0, |e| e.tsc.load(Ordering::Acquire)));
        let (mut known, mut i) = (Vec::new(), 0);
        while let Some(claim) = self.open.get(i) {
            match self.outcome(claim) {
                Some(outcome) => known.push((self.open.remove(i), outcome)),
                None => i += 1,
            }
        }
        known
    }

    fn look_at(&mut self, entry: usize) {
        if self.taken.get(entry).copied().unwrap_or(true) {
            return;
        }
        let Some(e) = self.session.page().regions.get(entry) else { return };
        let (state::CLAIMED | state::ABANDONED, pid) = e.state() else { return };
        let Some(pid) = self.outside(entry, pid) else { return };
        // Immediately: the process may exec, or end.
        let (handle, identity) = (Handle::open(pid), Identity::of(pid));
        let ready = self.ready.get_mut(entry).and_then(Option::take);
        match ready.map_or_else(|| self.session.region(entry), Ok) {
            Ok(region) => self.open.push(Claim { entry, region, pid, handle, identity }),
            // (There is no memory for more.)
            Err(e) => drop(self.no_region.get_or_insert_with(|| e.to_string())),
        }
        self.taken[entry] = true;
    }

    fn outcome(&self, claim: &Claim) -> Option<Outcome> {
        let e = self.session.page().regions.get(claim.entry)?;
        let is_attached = || claim.region.control().state.load(Ordering::Acquire) != 0;
        match e.state().0 {
            state::ABANDONED => Some(Outcome::Abandoned { why: e.why.load(Ordering::Relaxed) }),
            _ if is_attached() => Some(Outcome::Attached),
            // (It may have attached before its end.)
            _ if claim.handle.has_ended() && !is_attached() => Some(Outcome::Killed),
            _ => None,
        }
    }

    /// The recorder's number for the process that has claimed an entry. `None`: not yet known. It stays negative if the process is
    /// in another pid namespace and is not found.
    fn outside(&self, entry: usize, number: i32) -> Option<i32> {
        if number >= 0 {
            return Some(number);
        }
        let e = self.session.page().regions.get(entry)?;
        if e.tsc.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (namespace, begins) = (e.namespace.load(Ordering::Relaxed), self.session.begins(entry));
        Some(processes::inside(number.saturating_neg(), namespace, begins).unwrap_or(number))
    }

    pub fn give_back(&mut self, entry: usize, region: Region) {
        self.session.offer_again(entry, region, &mut self.ready);
        if let Some(taken) = self.taken.get_mut(entry) {
            *taken = false;
        }
    }

    /// The processes whose claims are open.
    pub fn pids(&self) -> impl ExactSizeIterator<Item = i32> {
        self.open.iter().map(|c| c.pid)
    }

    /// Sleeps until a process calls, or for `at_most`.
    pub fn sleep(&self, at_most: Duration) {
        self.session.sleep(self.calls, at_most);
    }
}
