//! All processes of a recording: gives a region to each that asks, drains them all in one round, and closes each as it
//! ends.
//!
//! Invariant: a region is freed only when its process has ended or will write no more, and all its events have been
//! taken.

use crate::beside::Beside;
use crate::counters::Counters;
use crate::end::{self, Ending, Totals};
use crate::flight::Flight;
use crate::gpu_clock::GpuClocks;
use crate::image::Image;
use crate::last;
use crate::lateness::Lateness;
use crate::output::Output;
use crate::processes::{self, Handle, Identity, Stat};
use crate::region::Region;
use crate::saving::Request;
use crate::shared_session::SharedSession;
use crate::switches::Switches;
use crate::triggers::Why;
use crate::writing::Piece;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tape::event::pause_by;
use tape::file::{Ancestor, Process, Unwatched};
use tape::region::capture;
use tape::session::{Noted, REGIONS, environment, paused, state, unwatched};
use tape::stamp;

/// Rings are searched for dead owners this often, and more often while threads are created and end faster.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_SHORT: Duration = Duration::from_millis(2);
const LOOK_LONG: Duration = Duration::from_millis(500);
/// A process with more rings than this counts as short of them.
const MANY_RINGS: usize = tape::rings::SMALL / 4;

pub struct Followed<'a> {
    session: &'a SharedSession,
    pub out: Output,
    /// Counts events for a viewer.
    pub counters: Counters,
    options: Options,
    /// Regions that are in memory ahead of use, by their entry.
    ready: Vec<Option<Region>>,
    /// Entries whose region a process is known to have.
    taken: Vec<bool>,
    /// [`tape::session::Session::calls`] when entries were last looked at.
    claims: u32,
    /// Processes that have claimed a region and have not yet written.
    claimed: Vec<Claimed>,
    images: Vec<Image>,
    /// The index of each process's latest image, and the number of its earlier images.
    latest: HashMap<i32, (u32, u32)>,
    next: u32,
    switches: Option<Switches>,
    /// The GPUs' clocks, if ends of kernels are recorded.
    clocks: Option<GpuClocks>,
    totals: Totals,
    /// The first program.
    first: i32,
    /// What began or ended pauses for all processes: one of [`pause_by`].
    said_by: Option<u32>,
    /// Programs that could not be followed: why, and how often.
    unwatched: HashMap<(String, &'static str), u64>,
    /// [`tape::session::Session::calls`] as last seen.
    calls: u32,
    looked: Instant,
    freed: usize,
    /// When the present round began. Events published before that are taken in it.
    round: u64,
    pub lateness: Lateness,
    /// Set if only the newest part is kept.
    pub flight: Option<Flight>,
    /// Set if the recording is in parts: true when a new one is to begin.
    pub cut: Option<Arc<AtomicBool>>,
}

/// Choices about the contents of the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub no_args: bool,
    pub gpu_times: bool,
}

struct Claimed {
    entry: usize,
    region: Region,
    pid: i32,
    handle: Handle,
    identity: Identity,
}

impl<'a> Followed<'a> {
    pub fn new(
        session: &'a SharedSession,
        out: Output,
        counters: Counters,
        options: Options,
        switches: Option<Switches>,
    ) -> Followed<'a> {
        Followed {
            session,
            out,
            counters,
            options,
            ready: Vec::new(),
            taken: vec![false; REGIONS],
            claims: 0,
            claimed: Vec::new(),
            images: Vec::new(),
            latest: HashMap::new(),
            next: 0,
            switches,
            clocks: options.gpu_times.then(GpuClocks::open),
            totals: Totals::default(),
            first: 0,
            said_by: None,
            unwatched: HashMap::new(),
            calls: 0,
            looked: Instant::now(),
            freed: 0,
            round: 0,
            lateness: Lateness::new(),
            flight: None,
            cut: None,
        }
    }

    /// A request for a file of the present state.
    fn request(&self, why: Why, number: Option<u64>) -> Request {
        let mut totals = self.totals.clone();
        let ends: Vec<_> = self.images.iter().map(|i| end::of_image(i, &Ending::GoesOn, None)).collect();
        ends.iter().cloned().for_each(|e| totals.add(e));
        let held = self.images.iter().flat_map(|i| i.held().into_iter().map(|(tid, bytes)| (i.index, tid, bytes)));
        Request {
            why,
            number,
            ends,
            held: held.collect(),
            until: self.round,
            clock: Some(crate::clock::near()),
            end: totals.so_far(self.first),
        }
    }

    /// Offers regions. To be called before the program starts.
    pub fn prepare(&mut self) {
        self.ready = self.session.prepare();
    }

    /// The first program runs.
    pub fn program(&mut self, pid: i32) {
        self.first = pid;
    }

    /// One round over everything. Returns the bytes of events that it took.
    pub fn round(&mut self) -> usize {
        self.calls = self.session.page().calls.load(Ordering::Acquire);
        // ORDERING: events in the old part were there before the cut was requested, so they are older than this round.
        let is_cut = self.cut.as_ref().is_some_and(|due| due.swap(false, Ordering::AcqRel));
        self.round = crate::clock::tsc();
        self.lateness.begins();
        self.look_at_claims();
        self.take_unwatched();
        let page = self.session.page();
        page.beat.fetch_add(1, Ordering::Relaxed);
        let taken = self.images.iter_mut().map(|i| i.round(page, &mut self.out, &mut self.counters)).sum();
        let (lost, progress) = (self.lost(), &self.out.progress);
        self.lateness.ends(lost, progress.held_up.take(), progress.longest_write.take());
        self.look_at_switches(false);
        self.read_gpu_clocks();
        let look = match self.is_short_of_rings() && self.freed > 0 {
            true => LOOK_SHORT,
            // (A ring that is kept longer costs only its memory.)
            false if self.is_dormant() => LOOK_LONG,
            false => LOOK,
        };
        if self.looked.elapsed() > look {
            self.looked = Instant::now();
            self.freed = self.images.iter_mut().map(|i| i.free_dead(&mut self.out, &mut self.counters)).sum();
        }
        self.end_those_that_ended();
        if let Some(due) = self.flight.as_mut().and_then(|flight| flight.look(&self.images)) {
            let request = self.request(due.why, due.request);
            self.out.send(Piece::Save(Box::new(request)));
        }
        if is_cut {
            let request = self.request(last::why("part", String::new(), self.round), None);
            self.out.send(Piece::Save(Box::new(request)));
        }
        if self.out.progress.stopped().is_some() {
            self.stop();
        }
        taken
    }

    fn read_gpu_clocks(&mut self) {
        let stamped = |image: &Image| image.region.control().stamped.load(Ordering::Relaxed) > 0;
        if !self.images.iter().any(stamped) {
            return;
        }
        let events = self.clocks.as_mut().map(GpuClocks::events).unwrap_or_default();
        for image in self.images.iter_mut().filter(|image| !events.is_empty() && stamped(image)) {
            image.tell(stamp::WRITER, &events, &mut self.out);
        }
    }

    /// The user requested that a pause of all processes begin or end.
    pub fn toggle(&mut self) {
        let pause = self.session.page().paused.load(Ordering::Acquire) == paused::NO;
        self.pause(pause, pause_by::SIGNAL);
    }

    /// Begins or ends a pause of all processes, also of later ones. `by`: one of [`pause_by`].
    pub fn pause(&mut self, pause: bool, by: u32) {
        let paused = if pause { paused::BY_RECORDER } else { paused::NO };
        self.session.page().paused.store(paused, Ordering::Release);
        self.said_by = Some(by);
        if !pause && let Some(s) = &mut self.switches {
            s.watch(true);
        }
        self.images.iter_mut().for_each(|i| i.pause(pause, by, &mut self.out));
        if pause {
            // (Its threads' events first, so that each thread's are in order.)
            self.drain();
            self.images.iter_mut().for_each(|i| i.tell_waits(&mut self.out));
        }
    }

    /// Whether only driver calls are recorded of every process. (Each may have begun or ended a pause by itself.)
    pub fn is_paused(&self) -> bool {
        let of_all = self.session.page().paused.load(Ordering::Acquire) != paused::NO;
        let paused = self.images.iter().filter(|i| i.is_paused()).count();
        paused == self.images.len() && (of_all || paused > 0)
    }

    /// All processes are paused until the recorder resumes them. (Programs that end pauses by themselves do not wait for
    /// the recorder.)
    pub fn is_dormant(&self) -> bool {
        self.session.page().paused.load(Ordering::Acquire) == paused::BY_RECORDER && self.is_paused()
    }

    /// Takes all events at a time when no more arrive. It does not wait for a program that continues.
    pub fn drain(&mut self) {
        let begun = Instant::now();
        while self.round() > 0 && begun.elapsed() < LAST {}
    }

    /// The processes that are recorded.
    pub fn pids(&self) -> Vec<i32> {
        self.images.iter().map(|i| i.pid).collect()
    }

    /// Events that did not fit into the rings of the processes that are recorded now.
    pub fn lost(&self) -> u64 {
        self.images.iter().fold(0, |n, i| n.saturating_add(i.gaps().events))
    }

    /// Sleeps until a process calls, or for `at_most`.
    pub fn sleep(&mut self, at_most: Duration) {
        self.lateness.pauses(at_most);
        self.session.sleep(self.calls, at_most);
    }

    /// Whether some process uses, or has used, many rings.
    fn is_short_of_rings(&self) -> bool {
        self.images.iter().any(|i| i.region.mapped().count() > MANY_RINGS)
    }

    /// Handles processes that have claimed a region since the last look.
    fn look_at_claims(&mut self) {
        let page = self.session.page();
        let state_of = |entry: usize| page.regions.get(entry).map_or((state::FREE, 0), |e| e.state());
        // (An agent that was killed between its claim and its call is found a little later.)
        if self.claims != self.calls || self.looked.elapsed() > LOOK {
            self.claims = self.calls;
            for entry in 0..REGIONS {
                if self.taken.get(entry).copied().unwrap_or(true) {
                    continue;
                }
                let (state::CLAIMED | state::ABANDONED, pid) = state_of(entry) else { continue };
                let Some(pid) = self.outside(entry, pid) else { continue };
                // Immediately: the process may exec, or end.
                let (handle, identity) = (Handle::open(pid), Identity::of(pid));
                let ready = self.ready.get_mut(entry).and_then(Option::take);
                match ready.map_or_else(|| self.session.region(entry), Ok) {
                    Ok(region) => self.claimed.push(Claimed { entry, region, pid, handle, identity }),
                    // (There is no memory for more.)
                    Err(e) => drop(self.totals.no_region.get_or_insert_with(|| e.to_string())),
                }
                self.taken[entry] = true;
            }
        }
        // In the order of their claims: an exec may have followed the first claim immediately.
        self.claimed.sort_by_key(|c| page.regions.get(c.entry).map_or(0, |e| e.tsc.load(Ordering::Acquire)));
        let mut i = 0;
        while let Some(c) = self.claimed.get(i) {
            let (what, _) = state_of(c.entry);
            let attached = c.region.control().state.load(Ordering::Acquire) != 0;
            if what == state::ABANDONED {
                let c = self.claimed.remove(i);
                let why = page.regions.get(c.entry).map_or(0, |e| e.why.load(Ordering::Relaxed));
                let (tsc, path) = (crate::clock::tsc(), c.identity.exe.as_bytes());
                self.unwatched(Noted { why, pid: c.pid, parent: c.identity.ppid, tsc, path });
                self.give_back(c.entry, c.region);
            } else if attached {
                let c = self.claimed.remove(i);
                self.begin(c);
            } else if c.handle.has_ended() && c.region.control().state.load(Ordering::Acquire) == 0 {
                // The process was killed before it wrote.
                let c = self.claimed.remove(i);
                self.give_back(c.entry, c.region);
            } else {
                i += 1;
            }
        }
    }

    /// A process has attached: it is an image of the recording from now on.
    fn begin(&mut self, c: Claimed) {
        let Claimed { entry, region, pid, handle, identity } = c;
        if let Some(old) = self.images.iter().position(|i| i.pid == pid && pid > 0) {
            // Either the old process ended and another got its number, or it was an exec. In both cases the old image
            // writes no more.
            let another = self.images[old].handle.is_another_than(&handle);
            let ending = if another { self.ending(old) } else { Ending::Exec };
            self.end_image(old, ending);
        }
        let identity = identity.or(Identity::from(region.said()));
        let index = self.next;
        self.next += 1;
        let e = self.session.page().regions.get(entry);
        let (mut ppid, tsc) = e.map_or((0, 0), |e| (e.ppid.load(Ordering::Relaxed), e.tsc.load(Ordering::Acquire)));
        // In its own pid namespace the process knows its parent by another number, or not at all.
        let same_numbers = region.control().pid.load(Ordering::Relaxed) == pid;
        if !same_numbers {
            ppid = 0;
        }
        if identity.ppid != 0 {
            ppid = identity.ppid;
        }
        let number = self.latest.get(&pid).map_or(0, |(_, n)| n + 1);
        // The nearest ancestor that is recorded. Shells and launchers between them are not recorded.
        let between = if ppid > 0 { processes::parents(ppid, self.first) } else { Vec::new() };
        let ancestors: Vec<i32> = std::iter::once(ppid).chain(between).filter(|p| *p > 1).collect();
        let parent = ancestors.iter().find_map(|p| self.latest.get(p).map(|l| l.0));
        let named = !self.options.no_args;
        let within = |p: &&i32| !self.latest.contains_key(*p) && ancestors.contains(&self.first);
        let name = |p: &i32| if named { processes::name(*p) } else { String::new() };
        let through = ancestors.iter().take_while(within).map(|p| Ancestor { pid: *p, name: name(p) }).collect();
        self.latest.insert(pid, (index, number));
        self.out.beside(Beside::Process(Process {
            index,
            pid,
            ppid,
            parent,
            through,
            image: number,
            exe: if named { identity.exe } else { String::new() },
            args: (named && !identity.args.is_empty()).then_some(identity.args),
            start_tsc: tsc,
            rank: identity.rank,
        }));
        if let Some(s) = &mut self.switches {
            s.follow(pid, same_numbers);
        }
        let mut image = Image::new(index, entry, pid, handle, region);
        // The process may have claimed its region just before the user began or ended a pause.
        if matches!(image.region.control().capture, capture::SIGNAL | capture::ATTACH) || self.said_by.is_some() {
            let by = self.said_by.unwrap_or(pause_by::START);
            image.pause(self.session.page().paused.load(Ordering::Acquire) != paused::NO, by, &mut self.out);
        }
        if self.out.progress.stopped().is_some() {
            image.stop();
        }
        self.images.push(image);
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

    fn give_back(&mut self, entry: usize, region: Region) {
        self.session.offer_again(entry, region, &mut self.ready);
        if let Some(taken) = self.taken.get_mut(entry) {
            *taken = false;
        }
    }

    fn ending(&self, i: usize) -> Ending {
        self.images.get(i).and_then(|i| i.handle.status()).map_or(Ending::Unknown, Ending::Status)
    }

    /// Closes the images of processes that have ended. The first program's image is closed when it is reaped.
    fn end_those_that_ended(&mut self) {
        let mut i = 0;
        while let Some(image) = self.images.get(i) {
            if image.pid != self.first && image.has_ended() {
                let ending = self.ending(i);
                self.end_image(i, ending);
            } else {
                self.images[i].look_at_process();
                i += 1;
            }
        }
    }

    /// The first program has ended, with this status.
    /// `last`: its state before it was reaped.
    pub fn program_has_ended(&mut self, status: i32, last: Option<&Stat>) {
        // It may have claimed its region a moment ago.
        self.round();
        if let Some(i) = self.images.iter().position(|i| i.pid == self.first) {
            last.into_iter().for_each(|s| self.images[i].look(s));
            self.end_image(i, Ending::Status(status));
        }
        self.first = 0;
    }

    fn end_image(&mut self, i: usize, ending: Ending) {
        let mut image = self.images.swap_remove(i);
        image.handle.remains().into_iter().for_each(|s| image.look(&s));
        if ending == Ending::StillRunning {
            image.stop();
        }
        image.finish(self.session.page(), &mut self.out, &mut self.counters);
        if matches!(ending, Ending::Status(_) | Ending::Unknown) {
            // Its number may belong to another process from now on.
            self.latest.remove(&image.pid);
        }
        if let Some(s) = &mut self.switches {
            s.look(true);
            for (writer, events) in s.take(image.pid) {
                image.tell(writer, &events, &mut self.out);
            }
            s.forget(image.pid);
        }
        image.dropped = self.out.dropped(image.index);
        let end = end::of_image(&image, &ending, self.out.progress.stopped());
        self.out.beside(Beside::ProcessEnd(end.clone()));
        self.totals.add(end);
        let Image { entry, region, .. } = image;
        if ending == Ending::StillRunning {
            // The process still has the region's memory, so no other process may get it.
            return;
        }
        self.give_back(entry, region);
    }

    fn look_at_switches(&mut self, end: bool) {
        let Some(mut s) = self.switches.take() else { return };
        s.watch(!self.is_dormant());
        if self.out.progress.stopped().is_none() {
            s.look(end);
            for image in &mut self.images {
                s.policies(image.pid, || image.threads());
                for (writer, events) in s.take(image.pid) {
                    image.tell(writer, &events, &mut self.out);
                }
            }
        }
        self.switches = Some(s);
    }

    fn take_unwatched(&mut self) {
        let mut noted = Vec::new();
        self.session.page().take_unwatched(|n| noted.push((n.why, n.pid, n.parent, n.tsc, n.path.to_vec())));
        for (why, pid, parent, tsc, path) in noted {
            self.unwatched(Noted { why, pid, parent, tsc, path: &path });
        }
    }

    /// A program that is not watched. The first of each name is written to the tape immediately, the number of the
    /// others at the end.
    pub fn unwatched(&mut self, n: Noted<'_>) {
        let why = unwatched::TEXT.get(n.why as usize).unwrap_or(&unwatched::TEXT[0]);
        let path = if self.options.no_args { String::new() } else { String::from_utf8_lossy(n.path).into_owned() };
        // (A program that starts thousands of others fills neither the tape nor the recorder's memory.)
        if self.unwatched.len() >= MANY_UNWATCHED && !self.unwatched.contains_key(&(path.clone(), *why)) {
            self.totals.unwatched_lost += 1;
            return;
        }
        let count = self.unwatched.entry((path.clone(), why)).or_default();
        *count += 1;
        if *count == 1 {
            let parent = self.latest.get(&n.parent).map(|l| l.0);
            let why = (*why).to_owned();
            let first = Unwatched { pid: n.pid, ppid: n.parent, parent, path, why, tsc: n.tsc, count: 1 };
            self.out.beside(Beside::Unwatched(first));
        }
    }

    /// Stops the recording of all processes.
    fn stop(&mut self) {
        if self.session.page().stopped.load(Ordering::Relaxed) == 0 {
            self.session.stop();
        }
        self.images.iter_mut().for_each(Image::stop);
    }

    /// Waits a little for processes that are about to end, and stores the number of those that still run and are not
    /// recorded.
    pub fn look_for_others(&mut self) {
        let begun = Instant::now();
        loop {
            let mut others = processes::all_with(environment::SESSION, self.session.path());
            others.retain(|pid| {
                !self.images.iter().any(|i| i.pid == *pid) && !self.claimed.iter().any(|c| c.pid == *pid)
            });
            self.totals.left = others.len() as u32;
            if others.is_empty() || begun.elapsed() > ABOUT_TO_END {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
            self.round();
        }
    }

    /// The number of images that are recorded, or are about to be.
    pub fn live(&self) -> usize {
        self.images.len() + self.claimed.len()
    }

    /// As [`Followed::live`], without processes whose end the recorder would not notice.
    pub fn live_and_found(&self) -> usize {
        self.images.iter().filter(|i| i.pid > 0).count() + self.claimed.len()
    }

    /// The recording ends: processes that still run are not recorded any further.
    pub fn finish(mut self) -> (Output, Totals) {
        self.stop();
        // (`drain` has a time limit: a program that overwrites its rings may produce new events forever.)
        self.drain();
        while !self.images.is_empty() {
            let ended = self.images[0].has_ended();
            let ending = if ended { self.ending(0) } else { Ending::StillRunning };
            self.end_image(0, ending);
        }
        for ((path, why), count) in self.unwatched {
            let u = Unwatched { path, why: why.into(), count, ..Unwatched::default() };
            if count > 1 {
                self.out.beside(Beside::Unwatched(Unwatched { count: count - 1, ..u.clone() }));
            }
            self.totals.unwatched.push(u);
        }
        self.totals.unwatched.sort_by(|a, b| (&a.path, &a.why).cmp(&(&b.path, &b.why)));
        let page = self.session.page();
        self.totals.turned_away = page.turned_away.load(Ordering::Relaxed);
        self.totals.refused = page.refused.load(Ordering::Relaxed);
        self.totals.started = page.starts.started.load(Ordering::Relaxed);
        self.totals.silent = page.starts.silent();
        self.totals.unwatched_lost += u64::from(page.unwatched_lost.load(Ordering::Relaxed));
        (self.out, self.totals)
    }
}

/// The time that a process has to end.
const ABOUT_TO_END: Duration = Duration::from_millis(100);
/// The maximum duration of the last rounds.
const LAST: Duration = Duration::from_secs(1);
/// Maximum number of names of programs that are not watched.
const MANY_UNWATCHED: usize = 1000;
