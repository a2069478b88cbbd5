//! Coexistence: CUDA's kernels, copies and graphs beside every kind of our channels, for any time, with every
//! byte compared.
//!
//! Each worker is a thread that does one thing again and again and says so after each round. Who says nothing for the
//! watchdog's patience hangs, and a run with a hanging worker ends without it: a thread that never comes back is left behind.

mod churn;
mod cuda;
pub mod kernel_log;
mod own;
mod whereabouts;

use copy::Machine;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub duration: Duration,
    /// A worker that says nothing for so long hangs.
    pub patience: Duration,
    /// The largest transfer of our own, bytes.
    pub capacity: u64,
    pub seed: u64,
}

/// Why a worker ended before it was told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// What it does is not possible on this machine.
    Unavailable(String),
    /// Bytes are not what they should be: where the first one is and how many there are.
    Data(String),
    Error(String),
}

impl From<copy::Error> for Trouble {
    fn from(error: copy::Error) -> Trouble {
        match error {
            copy::Error::Unavailable(u) => Trouble::Unavailable(u.reason),
            other => Trouble::Error(other.to_string()),
        }
    }
}

impl From<copy::Unavailable> for Trouble {
    fn from(unavailable: copy::Unavailable) -> Trouble {
        Trouble::Unavailable(unavailable.reason)
    }
}

impl From<::cuda::Error> for Trouble {
    fn from(error: ::cuda::Error) -> Trouble {
        Trouble::Error(error.to_string())
    }
}

impl From<gpu::Error> for Trouble {
    fn from(error: gpu::Error) -> Trouble {
        Trouble::Error(error.to_string())
    }
}

/// What a worker tells while it runs. Shared with who watches.
#[derive(Debug)]
pub struct Beat {
    stop: Arc<AtomicBool>,
    beats: AtomicU64,
    rounds: AtomicU64,
    bytes: AtomicU64,
    stale: AtomicU64,
    notes: Mutex<Vec<String>>,
    /// What it is about to do: says where it hung.
    step: Mutex<&'static str>,
    /// The kernel's number of its thread; 0 before it has begun.
    thread: AtomicI32,
    /// A wait within a round may take so long: longer than the watchdog waits, so that it is the watchdog that tells.
    pub(self) timeout: Duration,
}

impl Beat {
    fn new(stop: Arc<AtomicBool>, patience: Duration) -> Beat {
        let [beats, rounds, bytes, stale] = [const { AtomicU64::new(0) }; 4];
        Beat {
            stop,
            beats,
            rounds,
            bytes,
            stale,
            notes: Mutex::default(),
            step: Mutex::default(),
            thread: AtomicI32::new(0),
            timeout: patience * 2,
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Alive, between rounds.
    fn alive(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    fn step(&self, what: &'static str) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// A round is done, and so many bytes were compared and right.
    fn round(&self, bytes: u64) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.alive();
    }

    /// A submission was refused for memory that is gone, as it should be.
    fn refused(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

type Body = Box<dyn FnOnce(&Beat) -> Result<(), Trouble> + Send>;

/// One thing that is done again and again.
pub struct Job {
    pub name: String,
    body: Body,
}

impl Job {
    pub fn new(name: impl Into<String>, body: impl FnOnce(&Beat) -> Result<(), Trouble> + Send + 'static) -> Job {
        Job { name: name.into(), body: Box::new(body) }
    }
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// When it was told to.
    Done,
    Trouble(Trouble),
    /// It said nothing for the watchdog's patience, and did not come back.
    Hangs,
}

/// One worker's account.
#[derive(Clone, Debug)]
pub struct Account {
    pub name: String,
    pub rounds: u64,
    /// Bytes that were compared and right.
    pub bytes: u64,
    /// Submissions to memory that was gone, refused.
    pub stale: u64,
    pub notes: Vec<String>,
    pub end: End,
}

impl Account {
    /// Something went wrong; that it is not possible here is no such thing.
    pub fn is_wrong(&self) -> bool {
        !matches!(self.end, End::Done | End::Trouble(Trouble::Unavailable(_)))
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub elapsed: Duration,
    pub workers: usize,
    pub rounds: u64,
    pub bytes: u64,
    pub wrong: usize,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub accounts: Vec<Account>,
    pub elapsed: Duration,
}

impl Outcome {
    pub fn hangs(&self) -> bool {
        self.accounts.iter().any(|a| a.end == End::Hangs)
    }

    pub fn wrong(&self) -> usize {
        self.accounts.iter().filter(|a| a.is_wrong()).count()
    }
}

/// All that there is to do beside one another: CUDA's part, every kind of our channels, and threads that allocate and free.
pub fn jobs(machine: &Arc<Machine>, plan: &Plan) -> Vec<Job> {
    let mut all = cuda::jobs(machine, plan);
    all.extend(own::jobs(machine, plan));
    all.extend(churn::jobs(machine, plan));
    all
}

/// A worker's thread, as the watchdog sees it.
struct Watched {
    name: String,
    beat: Arc<Beat>,
    thread: Option<JoinHandle<Result<(), Trouble>>>,
    seen: u64,
    at: Instant,
    end: Option<End>,
}

const LOOK: Duration = Duration::from_millis(20);
const TELL: Duration = Duration::from_secs(1);

/// Runs the jobs, each on its thread, until the time is over or one of them hangs: `hangs` is called then, before the others
/// are stopped.
pub fn run(jobs: Vec<Job>, plan: &Plan, mut tell: impl FnMut(Progress), mut hangs: impl FnMut()) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let mut watched: Vec<Watched> = jobs.into_iter().map(|job| start(job, &stop, plan)).collect();
    let mut told = began;
    while began.elapsed() < plan.duration && watched.iter().any(|w| w.end.is_none()) {
        std::thread::sleep(LOOK.min(plan.duration));
        watched.iter_mut().for_each(|w| w.look(plan.patience));
        if watched.iter().any(|w| w.end == Some(End::Hangs)) {
            // Before anything is stopped: who else has been long at what it does may hold what the silent one waits for.
            let long = |w: &&Watched| w.end.is_none() && w.at.elapsed() > plan.patience / 10;
            watched.iter().filter(long).for_each(|w| w.tells_where(plan.patience));
            hangs();
            break;
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            tell(progress(&watched, began));
        }
    }
    stop.store(true, Ordering::Relaxed);
    // Each has its patience once more to come to the end of its round and to give back what it has.
    watched.iter_mut().for_each(|w| w.at = Instant::now());
    while watched.iter().any(|w| w.end.is_none()) {
        std::thread::sleep(LOOK);
        watched.iter_mut().for_each(|w| w.look(plan.patience));
    }
    let stopped = Instant::now();
    while stopped.elapsed() < plan.patience * 3 && watched.iter().any(|w| w.end == Some(End::Hangs)) {
        if watched.iter().any(|w| w.comes_back(stopped)) {
            break;
        }
        std::thread::sleep(LOOK);
    }
    let elapsed = began.elapsed();
    Outcome { accounts: watched.into_iter().map(Watched::account).collect(), elapsed }
}

fn start(job: Job, stop: &Arc<AtomicBool>, plan: &Plan) -> Watched {
    let beat = Arc::new(Beat::new(stop.clone(), plan.patience));
    let (own, body) = (beat.clone(), job.body);
    // 15 characters are what the kernel keeps.
    let thread = std::thread::Builder::new().name(job.name.chars().take(15).collect());
    let started = thread.spawn(move || {
        own.thread.store(whereabouts::own(), Ordering::Relaxed);
        body(&own)
    });
    let (thread, end) = match started {
        Ok(thread) => (Some(thread), None),
        Err(e) => (None, Some(End::Trouble(Trouble::Error(format!("no thread was started: {e}"))))),
    };
    Watched { name: job.name, beat, thread, seen: 0, at: Instant::now(), end }
}

fn progress(watched: &[Watched], began: Instant) -> Progress {
    let sum = |f: fn(&Beat) -> &AtomicU64| watched.iter().map(|w| f(&w.beat).load(Ordering::Relaxed)).sum();
    let wrong =
        |w: &&Watched| matches!(&w.end, Some(end) if !matches!(end, End::Done | End::Trouble(Trouble::Unavailable(_))));
    Progress {
        elapsed: began.elapsed(),
        workers: watched.iter().filter(|w| w.end.is_none()).count(),
        rounds: sum(|b| &b.rounds),
        bytes: sum(|b| &b.bytes),
        wrong: watched.iter().filter(wrong).count(),
    }
}

impl Watched {
    fn look(&mut self, patience: Duration) {
        if self.end.is_some() {
            return;
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            self.end = Some(match self.thread.take().map(JoinHandle::join) {
                Some(Ok(Ok(()))) => End::Done,
                Some(Ok(Err(trouble))) => End::Trouble(trouble),
                Some(Err(_)) => End::Trouble(Trouble::Error("its thread panicked".into())),
                None => End::Hangs,
            });
            return;
        }
        let beats = self.beat.beats.load(Ordering::Relaxed);
        if beats != self.seen {
            (self.seen, self.at) = (beats, Instant::now());
        } else if self.at.elapsed() > patience {
            self.end = Some(End::Hangs);
            self.tells_where(patience);
        }
    }

    /// What it said last, and where the kernel has it.
    fn tells_where(&self, patience: Duration) {
        let step = *self.beat.step.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = self.at.elapsed();
        let thread = whereabouts::of(self.beat.thread.load(Ordering::Relaxed));
        let what = if silent > patience { "silent" } else { "at its work" };
        self.beat.note(format!("{what} for {silent:.1?}, the last it said: {step:?}; {thread}"));
    }

    /// Whether a worker that was given up says something after all.
    fn comes_back(&self, began: Instant) -> bool {
        let back = self.end == Some(End::Hangs) && self.beat.beats.load(Ordering::Relaxed) != self.seen;
        if back {
            self.beat.note(format!("it came back {:.1?} after the others were stopped", began.elapsed()));
        }
        back
    }

    fn account(self) -> Account {
        let beat = &self.beat;
        Account {
            name: self.name,
            rounds: beat.rounds.load(Ordering::Relaxed),
            bytes: beat.bytes.load(Ordering::Relaxed),
            stale: beat.stale.load(Ordering::Relaxed),
            notes: beat.notes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            end: self.end.unwrap_or(End::Hangs),
        }
    }
}

/// CUDA's rule: a context with a stream in capture must not be waited for as a whole. Who captures writes, who waits reads.
static CAPTURE: RwLock<()> = RwLock::new(());

/// No stream is in capture while this is held.
fn outside_capture() -> RwLockReadGuard<'static, ()> {
    CAPTURE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody waits for the whole context while this is held.
fn capturing() -> RwLockWriteGuard<'static, ()> {
    CAPTURE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A size between 1 and `most`, small ones as often as large ones.
fn any_size(random: &mut fastrand::Rng, most: u64) -> u64 {
    let most = most.max(1);
    let bits = u64::BITS - most.leading_zeros();
    (random.u64(1..=most) >> random.u32(0..bits)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(milliseconds: u64) -> Plan {
        Plan {
            duration: Duration::from_millis(milliseconds),
            patience: Duration::from_millis(400),
            capacity: 4096,
            seed: 1,
        }
    }

    fn busy(beat: &Beat) -> Result<(), Trouble> {
        while !beat.stopped() {
            beat.round(3);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    #[test]
    fn who_says_nothing_hangs_and_the_others_end() {
        let (open, shut) = std::sync::mpsc::channel::<()>();
        let stuck = Job::new("stuck", move |beat: &Beat| {
            beat.round(1);
            let _ = shut.recv();
            Ok(())
        });
        let outcome = run(vec![Job::new("busy", busy), stuck], &plan(60_000), |_| {}, || {});
        assert!(outcome.hangs() && outcome.elapsed < Duration::from_secs(50), "{outcome:?}");
        assert_eq!((&outcome.accounts[0].end, &outcome.accounts[1].end), (&End::Done, &End::Hangs));
        assert_eq!((outcome.wrong(), outcome.accounts[1].rounds), (1, 1));
        assert_eq!(outcome.accounts[0].bytes, outcome.accounts[0].rounds * 3);
        drop(open);
    }

    #[test]
    fn one_trouble_ends_one_worker() {
        let wrong = Job::new("wrong", |_: &Beat| Err(Trouble::Data("7 of 8 bytes".into())));
        let missing = Job::new("missing", |_: &Beat| Err(Trouble::Unavailable("no such engine".into())));
        let panics = Job::new("panics", |_: &Beat| panic!("as it was told to"));
        let outcome = run(vec![Job::new("busy", busy), wrong, missing, panics], &plan(200), |_| {}, || {});
        assert!(!outcome.hangs() && outcome.wrong() == 2, "{outcome:?}");
        assert!(outcome.accounts[0].end == End::Done && outcome.accounts[0].rounds > 0);
        assert!(outcome.elapsed >= Duration::from_millis(200));
    }

    #[test]
    fn sizes_reach_from_one_byte_to_the_most() {
        let mut random = fastrand::Rng::with_seed(1);
        let sizes: Vec<u64> = (0..20_000).map(|_| any_size(&mut random, 1 << 20)).collect();
        assert!(sizes.iter().all(|s| (1..=1 << 20).contains(s)));
        assert!(sizes.contains(&1) && sizes.iter().any(|s| *s > 1 << 19));
        assert!((0..100).all(|_| any_size(&mut random, 1) == 1));
    }
}
