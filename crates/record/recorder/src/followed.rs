//! All processes of a recording: drains them all in one round, and closes each as it ends.
//!
//! Invariant: a region is freed only when its process has ended or will write no more, and all its events have been
//! taken.

use crate::beside::Beside;
use crate::claims::{Claim, Claims, Outcome};
use crate::counters::Counters;
use crate::end::{self, Ending, Totals};
use crate::flight::Flight;
use crate::gpu_clock::GpuClocks;
use crate::image::Image;
use crate::last;
use crate::lateness::Lateness;
use crate::lineage::Lineage;
use crate::live::{self, Details};
use crate::looks::Begun;
use crate::output::Output;
use crate::parts::Cut;
use crate::processes::{self, Identity, Stat};
use crate::saving::Request;
use crate::shared_session::SharedSession;
use crate::switches::Switches;
use crate::triggers::Why;
use crate::writing::Piece;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::event::pause_by;
use tape::file::Unwatched;
use tape::live::Live;
use tape::region::capture;
use tape::session::{Noted, environment, paused};
use tape::stamp;

/// Rings are searched for dead owners this often, and more often while threads are created and end faster.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_SHORT: Duration = Duration::from_millis(2);
const LOOK_LONG: Duration = Duration::from_millis(500);
/// A process with more rings than this counts as short of them.
const MANY_RINGS: usize = tape::rings::SMALL / 4;
/// The time that a process has to end.
const ABOUT_TO_END: Duration = Duration::from_millis(100);
/// The maximum duration of the last rounds.
const LAST: Duration = Duration::from_secs(1);

pub struct Followed<'a> {
    session: &'a SharedSession,
    pub out: Output,
    /// Counts events for a viewer.
    pub counters: Counters,
    claims: Claims<'a>,
    lineage: Lineage,
    images: Vec<Image>,
    ended: live::Ended,
    kin: live::Kin,
    switches: Option<Switches>,
    /// The GPUs' clocks, if ends of kernels are recorded.
    clocks: Option<GpuClocks>,
    totals: Totals,
    /// What began or ended pauses for all processes: one of [`pause_by`].
    said_by: Option<u32>,
    /// When rings were last searched for dead owners, and how many had one.
    looked: Instant,
    freed: usize,
    pub lateness: Lateness,
    /// Set if only the newest part is kept.
    pub flight: Option<Flight>,
    /// Looks at the programs for files of it.
    looks: Begun,
    /// Set if the recording is in parts.
    pub cut: Option<Cut>,
}

impl<'a> Followed<'a> {
    /// Offers regions. To be called before the program starts. `named`: names and arguments may be on the tape.
    pub fn new(
        session: &'a SharedSession,
        out: Output,
        counters: Counters,
        named: bool,
        switches: Option<Switches>,
        clocks: Option<GpuClocks>,
    ) -> Followed<'a> {
        Followed {
            session,
            out,
            counters,
            claims: Claims::new(session),
            lineage: Lineage::new(named),
            images: Vec::new(),
            ended: live::Ended::default(),
            kin: live::Kin::default(),
            switches,
            clocks,
            totals: Totals::default(),
            said_by: None,
            looked: Instant::now(),
            freed: 0,
            lateness: Lateness::new(),
            flight: None,
            looks: Begun::default(),
            cut: None,
        }
    }

    /// The first program runs.
    pub fn program(&mut self, pid: i32) {
        self.lineage.first = pid;
    }

    /// One round over everything. Returns the bytes of events that it took.
    pub fn round(&mut self) -> usize {
        // ORDERING: events in the old part were there before the cut was requested, so they are older than this round.
        let is_cut = self.cut.as_ref().is_some_and(|due| due.swap(false, Ordering::AcqRel));
        // Events published before this time are taken in this round.
        let began = crate::clock::tsc();
        self.lateness.begins();
        self.look_at_claims();
        let page = self.session.page();
        page.take_unwatched(|n| self.lineage.unwatched(n, &mut self.out));
        page.beat.fetch_add(1, Ordering::Relaxed);
        let taken = self.images.iter_mut().map(|i| i.round(page, &mut self.out, &mut self.counters)).sum();
        let (lost, progress) = (self.lost(), &self.out.progress);
        self.lateness.ends(lost, progress.held_up.take(), progress.longest_write.take());
        self.look_at_switches();
        self.read_gpu_clocks();
        self.look_at_children();
        self.free_dead_rings();
        self.end_those_that_ended();
        self.go_on_with_looks();
        if let Some(due) = self.flight.as_mut().and_then(|flight| flight.look(&self.images)) {
            self.save(due.why, due.request, began);
        }
        if is_cut {
            self.save(last::why("part", String::new(), began), None, began);
        }
        if self.out.progress.stopped().is_some() {
            self.stop();
        }
        taken
    }

    /// Requests a file of the present state from the thread that writes.
    fn save(&mut self, why: Why, number: Option<u64>, until: u64) {
        let mut totals = self.totals.clone();
        let ends: Vec<_> = self.images.iter().map(|i| end::of_image(i, &Ending::GoesOn, None)).collect();
        ends.iter().cloned().for_each(|e| totals.add(e));
        let held = self.images.iter().flat_map(|i| i.held().into_iter().map(|(tid, bytes)| (i.index, tid, bytes)));
        let (held, clock, end) = (held.collect(), Some(crate::clock::near()), totals.so_far(self.lineage.first));
        // (Parts of a long recording have none.)
        let looks = if self.flight.is_some() { self.looks.add(self.live_rows()) } else { None };
        self.out.send(Piece::Save(Box::new(Request { why, number, ends, held, until, clock, looks, end })));
    }

    fn go_on_with_looks(&mut self) {
        let mut looks = std::mem::take(&mut self.looks);
        looks.go_on(|| self.live_rows());
        self.looks = looks;
    }

    /// Has children looked at that were started since the last round.
    fn look_at_children(&mut self) {
        for image in &mut self.images {
            let started = image.region.control().children.load(Ordering::Relaxed).wrapping_add(1);
            if started != image.started && self.kin.ask(image.pid) {
                image.started = started;
            }
        }
    }

    fn free_dead_rings(&mut self) {
        let is_short = self.images.iter().any(|i| i.region.mapped().count() > MANY_RINGS);
        let look = match is_short && self.freed > 0 {
            true => LOOK_SHORT,
            // (A ring that is kept longer costs only its memory.)
            false if self.is_dormant() => LOOK_LONG,
            false => LOOK,
        };
        if self.looked.elapsed() > look {
            self.looked = Instant::now();
            self.freed = self.images.iter_mut().map(|i| i.free_dead(&mut self.out, &mut self.counters)).sum();
        }
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

    /// What their threads do now, and what completes that.
    pub fn live_rows(&self) -> (Live, Details) {
        let names = live::has_names(&self.images);
        let mut live = live::rows(&self.images, &self.ended, self.counters.tsc_hz);
        live::add_streams(&mut live, &self.images);
        (live, Details::new(names, self.kin.known()))
    }

    /// Events that did not fit into the rings of the processes that are recorded now.
    pub fn lost(&self) -> u64 {
        self.images.iter().fold(0, |n, i| n.saturating_add(i.gaps().events))
    }

    /// Sleeps until a process calls, or for `at_most`.
    pub fn sleep(&mut self, at_most: Duration) {
        self.lateness.pauses(at_most);
        self.claims.sleep(at_most);
    }

    fn look_at_claims(&mut self) {
        for (claim, outcome) in self.claims.look() {
            if let Outcome::Attached = outcome {
                self.begin(claim);
                continue;
            }
            if let Outcome::Abandoned { why } = outcome {
                let (tsc, path) = (crate::clock::tsc(), claim.identity.exe.as_bytes());
                self.unwatched(Noted { why, pid: claim.pid, parent: claim.identity.ppid, tsc, path });
            }
            self.claims.give_back(claim.entry, claim.region);
        }
    }

    /// A process has attached: it is an image of the recording from now on.
    fn begin(&mut self, claim: Claim) {
        let Claim { entry, region, pid, handle, identity } = claim;
        if let Some(old) = self.images.iter().position(|i| i.pid == pid && pid > 0) {
            // Either the old process ended and another got its number, or it was an exec. In both cases the old image
            // writes no more.
            let another = self.images[old].handle.is_another_than(&handle);
            let ending = if another { self.ending(old) } else { Ending::Exec };
            self.end_image(old, ending);
        }
        let identity = identity.or(Identity::from(region.said()));
        let e = self.session.page().regions.get(entry);
        let (said, tsc) = e.map_or((0, 0), |e| (e.ppid.load(Ordering::Relaxed), e.tsc.load(Ordering::Acquire)));
        // In its own pid namespace the process knows its parent by another number, or not at all.
        let same_numbers = region.control().pid.load(Ordering::Relaxed) == pid;
        let ppid = if identity.ppid == 0 && same_numbers { said } else { identity.ppid };
        let process = self.lineage.image(pid, ppid, tsc, identity);
        let (index, rank) = (process.index, process.rank.clone());
        self.out.beside(Beside::Process(process));
        if let Some(s) = &mut self.switches {
            s.follow(pid, same_numbers);
        }
        let mut image = Image::new(index, entry, pid, handle, region);
        (image.parent, image.start_tsc, image.rank) = (ppid, tsc, rank);
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

    fn ending(&self, i: usize) -> Ending {
        self.images.get(i).and_then(|i| i.handle.status()).map_or(Ending::Unknown, Ending::Status)
    }

    /// Closes the images of processes that have ended. The first program's image is closed when it is reaped.
    fn end_those_that_ended(&mut self) {
        let mut i = 0;
        while let Some(image) = self.images.get(i) {
            if image.pid != self.lineage.first && image.has_ended() {
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
        if let Some(i) = self.images.iter().position(|i| i.pid == self.lineage.first) {
            last.into_iter().for_each(|s| self.images[i].look(s));
            self.end_image(i, Ending::Status(status));
        }
        self.lineage.first = 0;
    }

    fn end_image(&mut self, i: usize, ending: Ending) {
        let mut image = self.images.swap_remove(i);
        image.handle.remains().into_iter().for_each(|s| image.look(&s));
        if ending == Ending::StillRunning {
            image.stop();
        }
        image.finish(self.session.page(), &mut self.out, &mut self.counters);
        if matches!(ending, Ending::Status(_) | Ending::Unknown) {
            self.lineage.forget(image.pid);
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
        self.ended.add(&image, &ending);
        self.out.beside(Beside::ProcessEnd(end.clone()));
        self.totals.add(end);
        // (A process that still runs has the region's memory, so no other process may get it.)
        if ending != Ending::StillRunning {
            self.claims.give_back(image.entry, image.region);
        }
    }

    fn look_at_switches(&mut self) {
        let Some(mut s) = self.switches.take() else { return };
        s.watch(!self.is_dormant());
        if self.out.progress.stopped().is_none() {
            s.look(false);
            for image in &mut self.images {
                s.policies(image.pid, || image.threads());
                for (writer, events) in s.take(image.pid) {
                    image.tell(writer, &events, &mut self.out);
                }
            }
        }
        self.switches = Some(s);
    }

    /// A program that is not watched.
    pub fn unwatched(&mut self, n: Noted<'_>) {
        self.lineage.unwatched(n, &mut self.out);
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
                !self.images.iter().any(|i| i.pid == *pid) && !self.claims.pids().any(|claimed| claimed == *pid)
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
        self.images.len() + self.claims.pids().len()
    }

    /// As [`Followed::live`], without processes whose end the recorder would not notice.
    pub fn live_and_found(&self) -> usize {
        self.images.iter().filter(|i| i.pid > 0).count() + self.claims.pids().len()
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
        let (unwatched, unnamed) = self.lineage.all_unwatched();
        // (The first of each name is on the tape.)
        for u in unwatched.iter().filter(|u| u.count > 1) {
            self.out.beside(Beside::Unwatched(Unwatched { count: u.count - 1, ..u.clone() }));
        }
        let (page, totals) = (self.session.page(), &mut self.totals);
        totals.turned_away = page.turned_away.load(Ordering::Relaxed);
        totals.refused = page.refused.load(Ordering::Relaxed);
        totals.started = page.starts.started.load(Ordering::Relaxed);
        totals.silent = page.starts.silent();
        totals.unwatched = unwatched;
        totals.unwatched_lost = unnamed + u64::from(page.unwatched_lost.load(Ordering::Relaxed));
        totals.no_region = self.claims.no_region;
        (self.out, self.totals)
    }
}
