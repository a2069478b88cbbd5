//! When kernels ran, from the ends that the GPU stored (`record --gpu-times`).
//!
//! An end is exact: the GPU wrote it. A start is computed. If the stream was idle, the kernel started some time after its doorbell. If the stream was busy, it
//! started some time after the end of the kernel before it. Both times were measured (`IDLE`, `BUSY`). If the channel waited for another, or if kernels
//! overlap, only bounds are known.

mod on_tape;

use crate::qmds::Order;
use crate::recording::Recording;
use on_tape::{Again, OnTape};
use pushbuf::qmd::end_time::{self, Found};
use pushbuf::snapshot::Snapshot;
use schema::channel::Channel;
use schema::operations::{GpuTime, Start};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use tape::event::runs;
use tape::region::STAMPS_BYTES;
use tape::stamp::{AS_BEFORE, CopiedBody, LaunchedBody, SLOTS, STRIDE, StampsBody, WRITER, number, state};

/// Nanoseconds from the doorbell to the start of a kernel on an idle stream (measured on four H200: 2.3 to 3.0 us from p1 to p99, and 1.9 to 2.8 on one).
const IDLE: i64 = 2_300;
/// From the end that a kernel stores to the start of the next in its stream: the minimum, and the usual time. Measured on two H200: 0.86 to 1.41 us from p1 to
/// p99. Where kernels of other streams ran, one in a hundred started earlier.
const BUSY: (u64, u64) = (600, 1_000);
/// The same for a kernel that another one of its graph starts (measured on two H200: 0.22 to 0.42 us).
const NODE: u64 = 300;
/// From the end of a copy to the start of a kernel that waits for it: the minimum, and the usual time (measured on an H200: 1.8 us at p1, 3.0 at p50, 9.5 at
/// p99).
const AFTER_A_COPY: (u64, u64) = (1_500, 3_000);
/// From the end of a kernel to the start of the next, with a small fill or an inline write between them: the minimum, and the usual time. (Measured on an H200:
/// 100 such kernels begin 2.35 us after the end, if they last as long as under CUPTI. CUPTI delays them by 2 us more).
const AFTER_A_WRITE: (u64, u64) = (1_500, 2_350);
/// Ends and clocks of all processes.
#[derive(Debug, Default)]
pub(crate) struct GpuTimes {
    images: HashMap<u32, Image>,
}

#[derive(Debug, Default)]
pub(crate) struct Image {
    /// The GPU's address of the slots.
    area: Option<u64>,
    /// The latest [`state`], and CUDA's return value.
    state: Option<(u32, u32)>,
    tape: RefCell<OnTape>,
    hz: f64,
}

/// The times of an image: those known so far, and the tape that has the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times<'a> {
    image: &'a Image,
    /// `None` if all of the tape was read.
    r: Option<&'a Recording>,
}

/// The readings of one GPU's clock.
#[derive(Debug)]
struct Readings {
    /// The first reading. Nanoseconds since 1970 are more than a double holds, so `pairs` count from here.
    base: u64,
    pairs: Vec<Pair>,
    is_sorted: bool,
}

/// One moment on both clocks; the GPU's counts from its first reading.
#[derive(Debug, Clone, Copy)]
struct Pair {
    tsc: f64,
    ns: f64,
    /// Half the time that the reading took, in nanoseconds.
    error: f64,
}

impl GpuTimes {
    /// Reads no chunk yet. Has no images if ends were not requested.
    pub fn of_recording(r: &Recording) -> GpuTimes {
        let mut all = GpuTimes::default();
        let hz = r.header().tsc_hz;
        if !(r.header().gpu_times && hz.is_finite() && hz > 1.0) {
            return all;
        }
        let mut chunks: Vec<u32> = (0..).take(r.chunks.len()).collect();
        let chunk = |i: &u32| &r.chunks[*i as usize];
        chunks.sort_by_key(|i| chunk(i).place.tsc);
        let pages = on_tape::pages();
        for i in chunks {
            let source = chunk(&i).source;
            let new = || Image { hz, tape: RefCell::new(OnTape::new(&pages)), ..Image::default() };
            let tape = all.images.entry(source.process).or_insert_with(new).tape.get_mut();
            (if source.tid == WRITER { &mut tape.of_recorder } else { &mut tape.of_others }).push_back(i);
        }
        all
    }

    /// Whether a process's ends are recorded from here on.
    pub fn state(&mut self, process: u32, s: &StampsBody) {
        let Some(image) = self.images.get_mut(&process) else { return };
        image.state = Some((s.state, s.result));
        if s.state == state::ON {
            image.area.get_or_insert(s.area);
        }
    }

    /// Writes the state except for the ends and clocks that can be read again, and writes how much of those was read.
    pub fn save(&self, to: &mut Vec<u8>) {
        let image = |(process, image): (&u32, &Image)| (*process, image.area, image.state, image.tape.borrow().read);
        self.images.iter().map(image).collect::<Vec<_>>().save(to);
    }

    /// Continues from a saved state. `None`: the state belongs to another recording.
    pub fn load(&mut self, r: &Recording, from: &mut &[u8]) -> Option<()> {
        type Written = (u32, Option<u64>, Option<(u32, u32)>, [usize; 2]);
        let all: Vec<Written> = Snapshot::load(from)?;
        if all.len() != self.images.len() {
            return None;
        }
        for (process, area, state, read) in all {
            let image = self.images.get_mut(&process)?;
            (image.area, image.state) = (area, state);
            image.tape.get_mut().read_again(r, read)?;
        }
        Some(())
    }

    pub fn of<'a>(&'a self, r: &'a Recording, process: u32) -> Option<Times<'a>> {
        self.images.get(&process).map(|image| Times { image, r: Some(r) })
    }
}

impl Times<'_> {
    /// Takes the stamps out of a segment's words, which then are the program's own. Calls `stamp` with a QMD's address and its number.
    pub fn take_stamps(self, words: &mut [u32], mut stamp: impl FnMut(u64, u64)) {
        let Some(area) = self.image.area else { return };
        let cells = std::cell::Cell::from_mut(words).as_slice_of_cells();
        let word = |i: usize| cells.get(i).map_or(0, std::cell::Cell::get);
        let set = |i: usize, value: u32| {
            if let Some(cell) = cells.get(i) {
                cell.set(value);
            }
        };
        let is_slot = |address: u64| address.wrapping_sub(area) < STAMPS_BYTES as u64;
        end_time::find(cells.len(), word, |found| {
            if let Found::Kernel(qmd) = found
                && let Some((_, payload)) = end_time::take(qmd.at, is_slot, word, set)
            {
                stamp(qmd.address, number(payload));
            }
        });
    }

    pub fn state(self) -> Option<(u32, u32)> {
        self.image.state
    }

    pub fn has_clock(self) -> bool {
        self.image.tape.borrow_mut().has_clock(self.r)
    }

    /// Number of ends on the tape.
    pub fn ends(self) -> u64 {
        self.image.tape.borrow_mut().ends(self.r)
    }

    /// When a kernel ended; `None` if that is not on the tape.
    fn ended(self, number: u64) -> Option<u64> {
        self.image.tape.borrow_mut().ended(self.r, number)
    }

    /// When a graph's kernel ended that the doorbell at a time stamp launched. `None` also if the stored end may be that of a later launch, which is written to
    /// the same place.
    fn ended_of(self, gpu: Option<u32>, tsc: u64, kernel: &Ran) -> Option<u64> {
        let end = self.ended(kernel.number)?;
        let is_before = |tape: &mut OnTape, at: u64| {
            self.convert(tape, gpu, at).is_some_and(|(ns, error)| end <= ns.saturating_add(error as u64))
        };
        let mut tape = self.image.tape.borrow_mut();
        let is_sure = match tape.again(self.r, kernel.qmd, tsc, is_before) {
            Again::At(at) => is_before(&mut tape, at),
            Again::Never => true,
            Again::NotKnown => false,
        };
        is_sure.then_some(end)
    }

    /// When a copy engine's transfer ran that the doorbell at a time stamp started; its begin and end were stored under these numbers.
    pub fn transfer(self, gpu: Option<u32>, tsc: u64, [begin, end]: [u64; 2]) -> Option<GpuTime> {
        let (start, end) = (self.ended(begin)?, self.ended(end)?);
        let (bell, error) = self.gpu_ns(gpu, tsc).unwrap_or((start, 0.0));
        Some(GpuTime {
            end_ns: end,
            start_ns: start.min(end),
            earliest_ns: start.min(end),
            start: Start::Stored,
            queued_ns: start.saturating_sub(bell),
            clock_error_ns: error.ceil() as u64,
        })
    }

    /// The GPU's time at a time stamp, and its maximum error.
    fn gpu_ns(self, gpu: Option<u32>, tsc: u64) -> Option<(u64, f64)> {
        self.convert(&mut self.image.tape.borrow_mut(), gpu, tsc)
    }

    fn convert(self, tape: &mut OnTape, gpu: Option<u32>, tsc: u64) -> Option<(u64, f64)> {
        let at = tsc as f64;
        let clock = tape.readings(self.r, gpu, Some(tsc), |clock| clock.next(at, |p| p.tsc))?;
        let (ns, error) = clock.convert(at, |p| p.tsc, |p| p.ns, 1e9 / self.image.hz)?;
        Some((clock.base.saturating_add_signed(ns.round() as i64), error))
    }

    /// The time stamp at a GPU time: the inverse of [`Times::gpu_ns`].
    pub fn tsc(self, gpu: Option<u32>, ns: u64) -> Option<u64> {
        let mut tape = self.image.tape.borrow_mut();
        let at = |clock: &Readings| since(clock.base, ns);
        let clock = tape.readings(self.r, gpu, None, |clock| clock.next(at(clock), |p| p.ns))?;
        let (tsc, _) = clock.convert(at(clock), |p| p.ns, |p| p.tsc, self.image.hz / 1e9)?;
        Some(tsc.round() as u64)
    }
}

impl Readings {
    fn from(base: u64) -> Readings {
        Readings { base, pairs: Vec::new(), is_sorted: true }
    }

    fn add(&mut self, pair: Pair) {
        self.is_sorted &= self.pairs.last().is_none_or(|last| last.tsc <= pair.tsc);
        self.pairs.push(pair);
    }

    /// The first reading after a time.
    fn next(&mut self, at: f64, from: fn(&Pair) -> f64) -> Option<Pair> {
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.pairs.sort_by(|a, b| a.tsc.total_cmp(&b.tsc));
        }
        self.pairs.get(self.pairs.partition_point(|p| from(p) <= at)).copied()
    }

    /// The time on the clock `to` when the clock `from` showed `at`, and its maximum error in nanoseconds. `slope`: ticks of `to` in one of `from`, for times
    /// outside of all readings.
    fn convert(&self, at: f64, from: fn(&Pair) -> f64, to: fn(&Pair) -> f64, slope: f64) -> Option<(f64, f64)> {
        let i = self.pairs.partition_point(|p| from(p) <= at);
        let before = i.checked_sub(1).and_then(|i| self.pairs.get(i));
        match (before, self.pairs.get(i)) {
            (Some(a), Some(b)) => {
                let part = (at - from(a)) / (from(b) - from(a)).max(1.0);
                Some((to(a) + part * (to(b) - to(a)), a.error.max(b.error)))
            }
            (Some(p), None) | (None, Some(p)) => {
                let away = (at - from(p)) * slope;
                // Allows 10 ppm of drift.
                Some((to(p) + away, p.error + away.abs() * 1e-5))
            }
            (None, None) => None,
        }
    }
}

/// Nanoseconds from one time to another.
fn since(base: u64, ns: u64) -> f64 {
    ns.wrapping_sub(base) as i64 as f64
}

/// The QMDs of some runs.
fn qmds(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let each = runs(bytes).flat_map(|run| (0..u64::from(run.count)).map(move |i| run.qmd.saturating_add(STRIDE * i)));
    each.take(SLOTS as usize)
}

/// A graph's kernel that ran in a launch.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    pub qmd: u64,
    pub number: u64,
}

/// State of an image's kernels while its submissions are read.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// When the last kernel of a channel's stream ran, by the GPU's clock; `None` if that is not known.
    last: HashMap<(usize, u64), Option<Last>>,
    /// Channels whose next kernel may begin while the one before it in its stream still runs.
    early: HashSet<usize>,
    /// The latest ends on each GPU.
    latest: HashMap<Option<u32>, Latest>,
    /// Channels that received a wait since their last kernel.
    waited: HashSet<usize>,
    /// Channels that have written inline data, by themselves or by a macro, since their last kernel.
    wrote: HashSet<usize>,
    /// When the last transfer of a channel ended, if that is known. `moved_by` has the same by the semaphore that the channel releases after the transfer.
    moved: HashMap<usize, u64>,
    moved_by: HashMap<u64, u64>,
    /// When the copies ended that channels have waited for since their last kernel.
    not_before: HashMap<usize, u64>,
    /// Words that kernels count up when they end, with the channel's stream of these kernels. A stream waits for its own kernels by such words.
    own: HashMap<u64, (usize, u64)>,
    /// The kernels that entries launch, by slot and number of the entry, for graphs that were uploaded before.
    launched: HashMap<(u32, u64), Vec<Ran>>,
    /// The same for entries of copy engines: the numbers of their transfers' begins and ends.
    copied: HashMap<(u32, u64), Range<u64>>,
}

/// When a kernel ran: the earliest start, and the end.
#[derive(Debug, Clone, Copy)]
struct Last {
    earliest: u64,
    end: u64,
}

impl From<GpuTime> for Last {
    fn from(time: GpuTime) -> Last {
        Last { earliest: time.earliest_ns, end: time.end_ns }
    }
}

pushbuf::snapshot!(Ran { qmd, number });
pushbuf::snapshot!(Last { earliest, end });

pushbuf::snapshot!(Latest(_));

pushbuf::snapshot!(Running { last, early, latest, waited, wrote, moved, moved_by, not_before, own, launched, copied });

/// Maximum number of words that kernels count up.
const OWN: usize = 1 << 16;
/// Maximum number of graph launches that wait for their doorbell.
const LAUNCHED: usize = 1 << 16;

/// The latest ends of the two streams whose kernels ended last; a stream belongs to a channel.
#[derive(Debug, Default)]
struct Latest([Option<((usize, u64), u64)>; 2]);

impl Latest {
    /// The latest end of other streams' kernels that were launched before this one; 0 if there is none.
    fn of_others(&mut self, stream: (usize, u64), end: u64) -> u64 {
        let [first, second] = self.0;
        let (mine, other) = match (first, second) {
            (Some((of, ns)), second) if of == stream => (Some(ns), second),
            (first, Some((of, ns))) if of == stream => (Some(ns), first),
            (first, _) => (None, first),
        };
        let mine = Some((stream, mine.map_or(end, |ns| ns.max(end))));
        let ends = |of: Option<((usize, u64), u64)>| of.map_or(0, |(_, ns)| ns);
        self.0 = if ends(mine) >= ends(other) { [mine, other] } else { [other, mine] };
        ends(other)
    }
}

impl Running {
    pub fn launched(&mut self, body: &LaunchedBody, bytes: &[u8]) {
        if body.number == AS_BEFORE {
            return;
        }
        // (If there are so many, their entries are not on the tape.)
        if self.launched.len() >= LAUNCHED {
            self.launched.clear();
        }
        let kernels = qmds(bytes).zip(body.number..).map(|(qmd, number)| Ran { qmd, number });
        self.launched.insert((body.slot, body.entry), kernels.collect());
    }

    pub fn copied(&mut self, body: &CopiedBody) {
        if self.copied.len() >= LAUNCHED {
            self.copied.clear();
        }
        let numbers = body.number..body.number.saturating_add(2 * u64::from(body.transfers));
        self.copied.insert((body.slot, body.entry), numbers);
    }

    /// The numbers under which an entry's transfers stored their begins and ends; empty if they had no order to store them.
    pub fn take_copied(&mut self, slot: u32, entry: u64) -> Range<u64> {
        self.copied.remove(&(slot, entry)).unwrap_or_default()
    }

    /// The kernels of graphs that an entry launches.
    pub fn take_launched(&mut self, slot: u32, entry: u64) -> Vec<Ran> {
        self.launched.remove(&(slot, entry)).unwrap_or_default()
    }

    /// When the kernels of a graph ran that the doorbell at a time stamp launched, in the order of their ends. `is_again`: it was uploaded before. `order`: the
    /// order of a QMD.
    pub fn graph(
        &mut self,
        times: Times<'_>,
        (channel, stream): (&Channel, u64),
        tsc: u64,
        kernels: &[Ran],
        is_again: bool,
        order: impl Fn(u64) -> Order,
    ) -> Vec<(u64, GpuTime)> {
        let end_of = |k: &Ran| times.ended_of(channel.gpu, tsc, k);
        let mut ended: Vec<(u64, Ran)> = kernels.iter().filter_map(|k| Some((end_of(k)?, *k))).collect();
        ended.sort_by_key(|(ns, _)| *ns);
        let then = |k: &Ran| order(k.qmd).starts.into_iter().filter(|qmd| *qmd != 0);
        // The latest end of the kernels that a kernel waits for.
        let mut waits_for: HashMap<u64, u64> = HashMap::new();
        for (ns, k) in &ended {
            for then in then(k) {
                let latest = waits_for.entry(then).or_insert(*ns);
                *latest = (*latest).max(*ns);
            }
        }
        // The earliest start of these kernels.
        let mut begun: HashMap<u64, u64> = HashMap::new();
        let is_whole = ended.len() == kernels.len();
        let bell = times.gpu_ns(channel.gpu, tsc);
        let mut all = Vec::with_capacity(ended.len());
        // The first kernel that waits for no other. Other such kernels may run at the same time.
        let mut first: Option<GpuTime> = None;
        for (ns, k) in ended {
            let time = match waits_for.get(&k.qmd) {
                Some(before) => {
                    let is_early = order(k.qmd).early;
                    let start =
                        if is_early { begun.get(&k.qmd).copied().unwrap_or(0) } else { before.saturating_add(NODE) };
                    let earliest = start.max(bell.map_or(0, |(ns, _)| ns)).min(ns);
                    let idle = bell.map_or(0, |(ns, _)| ns.saturating_add_signed(IDLE));
                    let start = earliest.max(idle).min(ns);
                    let kind = if is_whole && !is_early { Start::AfterTheOneBefore } else { Start::Bounded };
                    let (rung, error) = bell.unwrap_or((earliest, 0.0));
                    GpuTime {
                        end_ns: ns,
                        start_ns: start,
                        earliest_ns: earliest,
                        start: kind,
                        queued_ns: start.saturating_sub(rung),
                        clock_error_ns: error.ceil() as u64,
                    }
                }
                None => match first {
                    Some(first) => GpuTime { end_ns: ns, start: Start::Bounded, ..first },
                    None => match self.kernel(times, channel, stream, tsc, Some(k.number), is_again) {
                        Some(time) => *first.insert(time),
                        None => continue,
                    },
                },
            };
            for then in then(&k) {
                let earliest = begun.entry(then).or_insert(time.earliest_ns);
                *earliest = (*earliest).max(time.earliest_ns);
            }
            all.push((k.qmd, time));
        }
        if let Some((_, last)) = all.last() {
            self.last.insert((channel.number, stream), Some((*last).into()));
        }
        all
    }

    /// Notes that the next kernel of a channel may begin while the one before it in its stream still runs.
    pub fn begins_early(&mut self, channel: usize) {
        self.early.insert(channel);
    }

    pub fn waits(&mut self, channel: usize) {
        self.waited.insert(channel);
    }

    /// Notes that a channel's stream waits for a word of memory.
    pub fn waits_for(&mut self, channel: usize, stream: u64, word: u64) {
        if self.own.get(&word) != Some(&(channel, stream)) {
            self.waits(channel);
            if let Some(end) = self.moved_by.get(&word) {
                let latest = self.not_before.entry(channel).or_insert(*end);
                *latest = (*latest).max(*end);
            }
        }
    }

    /// A segment of a channel writes inline data, and launches no kernel.
    pub fn writes(&mut self, channel: usize) {
        self.wrote.insert(channel);
    }

    /// Notes that a transfer of a copy engine's channel ended.
    pub fn moved(&mut self, channel: usize, end_ns: u64) {
        self.moved.insert(channel, end_ns);
    }

    /// Notes that a channel releases a word by a command.
    pub fn releases_by_command(&mut self, channel: usize, word: u64) {
        if let Some(end) = self.moved.get(&channel)
            && (self.moved_by.len() < OWN || self.moved_by.contains_key(&word))
        {
            self.moved_by.insert(word, *end);
        }
    }

    /// Notes that a kernel of a channel's stream changes a word when it ends.
    pub fn releases(&mut self, channel: usize, stream: u64, word: u64) {
        if self.own.len() < OWN || self.own.contains_key(&word) {
            self.own.insert(word, (channel, stream));
        }
    }

    /// When a kernel of a channel's stream ran that the doorbell at a time stamp launched. `waits_for_itself`: the kernel is in a graph that was launched
    /// before, and its channel waits for that launch.
    pub fn kernel(
        &mut self,
        times: Times<'_>,
        channel: &Channel,
        stream: u64,
        tsc: u64,
        number: Option<u64>,
        waits_for_itself: bool,
    ) -> Option<GpuTime> {
        let end = number.and_then(|n| times.ended(n));
        let before = self.last.insert((channel.number, stream), None);
        let is_early = self.early.remove(&channel.number);
        let has_waited = self.waited.remove(&channel.number);
        let copied = self.not_before.remove(&channel.number).unwrap_or(0);
        let end = end?;
        let (bell, error) = times.gpu_ns(channel.gpu, tsc)?;
        let (bell, error) = (bell as i64, error.ceil() as i64);
        let last = end as i64;
        let idle = bell.saturating_add(IDLE);
        let has_written = self.wrote.remove(&channel.number);
        let (least, usual) = if has_written { AFTER_A_WRITE } else { BUSY };
        // A kernel that ended later was not ahead of this one: it is in a graph launch that several segments upload.
        let ahead = before.flatten().filter(|before| before.end <= end);
        let behind = |gap: u64| ahead.map(|before| before.end.saturating_add(gap) as i64);
        let busy = behind(usual);
        // A kernel that begins early may begin as soon as the one before it has begun.
        let earliest_busy = if is_early { ahead.map(|before| before.earliest as i64) } else { behind(least) };
        // Not before its doorbell, not before the end of the kernel ahead of it in its stream, and not before the end of the copy that it waits for.
        let (least, usual) = AFTER_A_COPY;
        let after_copy = |ns: u64| if copied == 0 { 0 } else { copied.saturating_add(ns) as i64 };
        let earliest = earliest_busy.unwrap_or(0).max(bell).max(after_copy(least)).min(last);
        let busy_at = if is_early { earliest_busy } else { busy };
        let start = busy_at.unwrap_or(0).max(idle).max(after_copy(usual)).min(last);
        let beside = self.latest.entry(channel.gpu).or_default().of_others((channel.number, stream), end);
        let kind = match before {
            // A kernel of the stream whose end is not known; one of another stream, which may have delayed it; a wait for another channel.
            Some(None) => Start::Bounded,
            _ if beside as i64 > start => Start::Bounded,
            _ if has_waited && !waits_for_itself => Start::Bounded,
            _ if is_early => Start::Bounded,
            Some(Some(before)) if before.end as i64 > last => Start::Bounded,
            _ if has_written && busy.is_some_and(|busy| busy > idle) => Start::Bounded,
            _ if busy.is_some_and(|busy| busy > idle) => Start::AfterTheOneBefore,
            _ => Start::AfterTheDoorbell,
        };
        let time = GpuTime {
            end_ns: end,
            start_ns: start as u64,
            earliest_ns: earliest as u64,
            start: kind,
            queued_ns: start.saturating_sub(bell).max(0) as u64,
            clock_error_ns: error as u64,
        };
        self.last.insert((channel.number, stream), Some(time.into()));
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings 200 ms apart of clocks that drift; the GPU counts since 1970.
    fn image() -> Image {
        let base = 1_790_000_000_123_456_789;
        let at = [0.0, 2e8, 4e8, 6e8].map(|t| Pair {
            tsc: 3.0 * t + 1e14,
            ns: t * (1.0 + 8e-6) + t * t * 1e-15,
            error: 50.0,
        });
        of_clocks([(0, readings(base, &at))])
    }

    fn readings(base: u64, pairs: &[Pair]) -> Readings {
        let mut readings = Readings::from(base);
        pairs.iter().for_each(|pair| readings.add(*pair));
        readings
    }

    fn of_clocks<const N: usize>(clocks: [(u32, Readings); N]) -> Image {
        Image { tape: RefCell::new(OnTape::of_clocks(clocks)), hz: 3e9, ..Image::default() }
    }

    impl Image {
        fn end(&mut self, number: u64, ns: u64) {
            self.tape.get_mut().end(number, ns);
        }

        fn times(&self) -> Times<'_> {
            Times { image: self, r: None }
        }
    }

    #[test]
    fn a_time_of_today_is_known_to_the_nanosecond() {
        let image = image();
        let ns = |tsc: u64| image.times().gpu_ns(Some(0), tsc).unwrap().0;
        let first = 100_000_000_000_000;
        assert_eq!(ns(first), 1_790_000_000_123_456_789);
        for n in 1..1000 {
            let step = ns(first + 30 * n) - ns(first + 30 * (n - 1));
            assert!((9..=11).contains(&step), "{step} ns in 10");
        }
    }

    #[test]
    fn a_time_of_the_gpus_and_a_time_stamp_lead_to_each_other() {
        let image = image();
        for i in 0..3000 {
            // Before the first reading, between all readings, and after the last one.
            let tsc = 100_000_000_000_000 - 300_000_000 + i * 1_000_003;
            let (ns, _) = image.times().gpu_ns(Some(0), tsc).unwrap();
            assert!(image.times().tsc(Some(0), ns).unwrap().abs_diff(tsc) <= 3, "{tsc}");
        }
    }

    fn channel(number: usize) -> Channel {
        Channel { number, gpu: Some(0), ..Channel::default() }
    }

    /// An image whose kernels ended so many nanoseconds after the doorbell, which is the first reading of its clocks.
    fn ended(after: &[u64]) -> (Image, u64) {
        let mut image = image();
        let (tsc, base) = (100_000_000_000_000, 1_790_000_000_123_456_789);
        after.iter().enumerate().for_each(|(i, ns)| image.end(i as u64, base + ns));
        (image, tsc)
    }

    #[test]
    fn a_kernel_that_waits_for_a_copy_starts_behind_it() {
        let (image, tsc) = ended(&[50_000, 60_000]);
        let copied = image.times().ended(0).unwrap();
        let mut running = Running::default();
        running.moved(7, copied);
        running.releases_by_command(7, 0x1000);
        running.waits_for(1, 0, 0x1000);
        let time = running.kernel(image.times(), &channel(1), 0, tsc, Some(1), false).unwrap();
        assert_eq!((time.start, time.earliest_ns), (Start::Bounded, copied + AFTER_A_COPY.0));
        assert_eq!(time.start_ns, copied + AFTER_A_COPY.1);
        // The next kernel follows the previous one; a wait for another word does not concern copies.
        running.waits_for(1, 0, 0x2000);
        let (image, tsc) = ended(&[50_000, 60_000, 70_000]);
        let time = running.kernel(image.times(), &channel(1), 0, tsc, Some(2), false).unwrap();
        assert_eq!((time.start, time.earliest_ns), (Start::Bounded, image.times().ended(1).unwrap() + BUSY.0));
    }

    /// (A clock's reading may have any value on a damaged tape.)
    #[test]
    fn clocks_that_are_far_apart_are_no_panic() {
        for (base, end) in [(1 << 40, 1 << 63), (i64::MAX as u64, 2), (u64::MAX / 2 + 7, i64::MAX as u64)] {
            let mut image = image();
            image.tape.get_mut().set_base(base);
            image.end(0, end);
            image.end(1, end - 1);
            let mut running = Running::default();
            for number in [0, 1] {
                running.writes(1);
                running.kernel(image.times(), &channel(1), 0, 100_000_000_000_000, Some(number), false);
            }
        }
    }

    #[test]
    fn a_kernel_behind_a_write_starts_later() {
        let (image, tsc) = ended(&[20_000, 60_000]);
        let mut running = Running::default();
        running.kernel(image.times(), &channel(1), 0, tsc, Some(0), false).unwrap();
        running.writes(1);
        let time = running.kernel(image.times(), &channel(1), 0, tsc, Some(1), false).unwrap();
        let before = image.times().ended(0).unwrap();
        assert_eq!((time.start, time.earliest_ns), (Start::Bounded, before + AFTER_A_WRITE.0));
        assert_eq!(time.start_ns, before + AFTER_A_WRITE.1);
    }

    /// A programmatic dependent launch. The GPU still stores its end after that of the previous kernel.
    #[test]
    fn a_kernel_that_may_begin_early_has_a_bounded_start() {
        let (image, tsc) = ended(&[20_000, 21_000, 30_000]);
        let mut running = Running::default();
        let mut run = |early: bool, number| {
            if early {
                running.begins_early(1);
            }
            running.kernel(image.times(), &channel(1), 0, tsc, Some(number), false).unwrap()
        };
        let first = run(false, 0);
        let second = run(true, 1);
        assert_eq!((second.start, second.earliest_ns), (Start::Bounded, first.earliest_ns));
        assert!(second.start_ns < image.times().ended(0).unwrap());
        let third = run(false, 2);
        assert_eq!(
            (third.start, third.earliest_ns),
            (Start::AfterTheOneBefore, image.times().ended(1).unwrap() + BUSY.0)
        );
        // The same in a graph.
        let kernels = [0, 1, 2].map(|number| Ran { qmd: 0x1000 * (number + 1), number });
        let order = |qmd| Order { starts: [if qmd < 0x3000 { qmd + 0x1000 } else { 0 }, 0], early: qmd == 0x2000 };
        let ran = Running::default().graph(image.times(), (&channel(1), 0), tsc, &kernels, false, order);
        let starts: Vec<_> = ran.iter().map(|(_, time)| (time.start, time.earliest_ns)).collect();
        let then = (Start::AfterTheOneBefore, image.times().ended(1).unwrap() + NODE);
        assert_eq!(starts[1..], [(Start::Bounded, first.earliest_ns), then]);
    }

    #[test]
    fn a_kernel_of_another_stream_may_be_in_the_way() {
        let (image, tsc) = ended(&[20_000, 22_000, 90_000, 91_000]);
        let mut running = Running::default();
        let mut start = |at: usize, stream, number| {
            running.kernel(image.times(), &channel(at), stream, tsc, Some(number), false).unwrap()
        };
        assert_eq!(start(1, 1, 0).start, Start::AfterTheDoorbell);
        assert_eq!(start(1, 2, 1).start, Start::Bounded);
        // On its own stream, the kernel before it is known.
        assert_eq!(start(1, 2, 2).start, Start::AfterTheOneBefore);
        // Another channel of the GPU.
        assert_eq!(start(2, 1, 3).start, Start::Bounded);
    }

    /// Two GPUs whose clocks are a second apart, and a third whose clock was not read.
    #[test]
    fn a_kernel_has_the_time_of_its_own_gpu_alone() {
        let (tsc, base) = (100_000_000_000_000, 1_790_000_000_123_456_789);
        let clock = |base| readings(base, &[Pair { tsc: tsc as f64, ns: 0.0, error: 50.0 }]);
        let (first, second) = (base, base + 1_000_000_000);
        let mut image = of_clocks([(0, clock(first)), (1, clock(second))]);
        [first, second, second].iter().zip(0..).for_each(|(clock, number)| image.end(number, clock + 20_000));
        let mut running = Running::default();
        let mut run = |gpu, number: u64| {
            let channel = Channel { gpu: Some(gpu), ..channel(number as usize) };
            running.kernel(image.times(), &channel, 0, tsc, Some(number), false)
        };
        for gpu in [0, 1] {
            let time = run(gpu, gpu.into()).unwrap();
            assert_eq!((time.queued_ns, time.duration_ns()), (IDLE as u64, 20_000 - IDLE as u64));
            // (Kernels of the other GPU do not delay it.)
            assert_eq!(time.start, Start::AfterTheDoorbell);
        }
        assert_eq!(run(2, 2), None);
    }

    #[test]
    fn launches_whose_entries_are_lost_leave_room_for_others() {
        let mut running = Running::default();
        let launch = |entry| LaunchedBody { entry, number: entry, slot: 0, runs: 0 };
        let copy = |entry| CopiedBody { entry, number: entry, slot: 0, transfers: 1 };
        for entry in 0..=LAUNCHED as u64 {
            running.launched(&launch(entry), &[]);
            running.copied(&copy(entry));
        }
        assert!(running.launched.contains_key(&(0, LAUNCHED as u64)));
        assert!(running.launched.len() <= LAUNCHED && running.copied.len() <= LAUNCHED);
        assert_eq!(running.take_copied(0, LAUNCHED as u64).count(), 2);
    }

    /// A graph's kernel whose later launch writes its end to the same place.
    #[test]
    fn an_end_that_may_be_of_a_later_launch_is_no_time() {
        let (mut image, tsc) = ended(&[50_000]);
        let kernel = Ran { qmd: 0x1000, number: 0 };
        let at = |ns: u64| tsc + 3 * ns;
        let of = |image: &Image| image.times().ended_of(Some(0), tsc, &kernel).is_some();
        assert!(of(&image));
        image.tape.get_mut().as_before(0x1000, vec![tsc - 30, at(60_000)]);
        assert!(of(&image), "launched again after its end");
        image.tape.get_mut().as_before(0x1000, vec![tsc - 30, at(40_000)]);
        assert!(!of(&image), "launched again before it");
        let ran =
            Running::default().graph(image.times(), (&channel(1), 0), tsc, &[kernel], false, |_| Order::default());
        assert!(ran.is_empty());
    }

    #[test]
    fn the_latest_ends_of_others_are_remembered() {
        let mut latest = Latest::default();
        let (a, b, c) = ((1, 0), (2, 0), (3, 0));
        assert_eq!(latest.of_others(a, 10), 0);
        assert_eq!(latest.of_others(a, 20), 0);
        assert_eq!(latest.of_others(b, 15), 20);
        assert_eq!(latest.of_others(a, 30), 15);
        assert_eq!(latest.of_others(c, 40), 30);
        assert_eq!(latest.of_others(c, 35), 30);
        assert_eq!(latest.of_others(b, 41), 40);
        assert_eq!(latest.of_others(c, 50), 41);
    }
}
