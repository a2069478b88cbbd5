//! An engine's own time, without the driver (the method of arXiv 2604.26889, section 6.2).
//!
//! One pushbuffer holds a warm-up, a release with a timestamp, N equal copies, and another release. It is submitted once, and the time of a copy is
//! the distance of the two timestamps divided by N. The CPU is not involved in between. All copies of a pushbuffer have the same source and
//! destination. Variants of one size take turns, repeat by repeat.
//!
//! Each variant is verified at each size: the destination is set to the complement of the expected bytes, with random bytes around it, and the same
//! pushbuffer that was timed runs again. On the software GPU there are no times.

pub mod profiler;

use gpu::{AddressSpace, Channel, ChannelOptions, Engine, Memory, Pushbuffer, Semaphore, Semaphores, Validated};
use pushbuf::encode::MAX_INLINE;
use serde::Serialize;
use statistics::Summary;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workload::Difference;

/// Offset of a transfer in its memory: on a page, with room before it.
const OFFSET: u64 = 0x1000;
/// Number of bytes next to the destination that are checked.
const GUARD: usize = 64;
/// Words of one pushbuffer, 2 MiB: a GPFIFO entry counts to 2^21 - 1.
const MAX_WORDS: usize = 1 << 19;
/// Words of a copy, an inline copy without its data, and the releases around them: no more.
const COPY_WORDS: usize = 9;
const INLINE_WORDS: usize = 10;
/// The largest inline copy here: two of them and a warm-up fit into one pushbuffer.
const MOST_INLINE: usize = 512 << 10;
const RELEASES: usize = 32;
/// Up to this size the CPU reads GPU memory itself; BAR1 loads are slow.
const READ_BY_CPU: usize = 64 << 10;
/// The part of the largest bandwidth at which a variant counts as saturated.
const SATURATED: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Direction {
    #[serde(rename = "h2d")]
    HostToDevice,
    #[serde(rename = "d2h")]
    DeviceToHost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A copy-engine copy that waits for earlier ones (NON_PIPELINED).
    Plain,
    /// A copy-engine copy that may overlap earlier ones (PIPELINED).
    Pipelined,
    /// Data in the command stream itself, by the compute class.
    Inline,
}

/// A variant: direction and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub direction: Direction,
    pub mode: Mode,
}

/// All variants: inline data is only possible to the device.
pub const WAYS: [Way; 5] = [
    Way { direction: Direction::HostToDevice, mode: Mode::Inline },
    Way { direction: Direction::HostToDevice, mode: Mode::Plain },
    Way { direction: Direction::HostToDevice, mode: Mode::Pipelined },
    Way { direction: Direction::DeviceToHost, mode: Mode::Plain },
    Way { direction: Direction::DeviceToHost, mode: Mode::Pipelined },
];

/// The sizes of the paper's figure and beyond: 4 B to 64 MiB doubling, 1 to 31 KiB in steps.
pub const SIZES: &str = "4B..64MiB,1KiB..31KiB/1KiB";
/// The sizes of the paper's Table 2.
pub const TABLE_2: &str = "8B,32B,128B,512B,2KiB,8KiB,32KiB,128KiB,512KiB,2MiB,8MiB,32MiB";

/// How many copies one pushbuffer holds.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes that all copies of one submission move together, unless that is fewer than `least` copies.
    pub bytes: u64,
    pub least: u64,
    pub most: u64,
}

impl Budget {
    /// For hardware: enough copies that the releases' own time is small.
    pub const REAL: Budget = Budget { bytes: 256 << 20, least: 4, most: 2048 };
    /// For the software GPU, which only shows that it works.
    pub const SOFT: Budget = Budget { bytes: 64 << 10, least: 2, most: 8 };

    fn copies(&self, bytes: u64, mode: Mode) -> u64 {
        let words = match mode {
            Mode::Inline => inline_words(bytes),
            Mode::Plain | Mode::Pipelined => COPY_WORDS as u64,
        };
        // An eighth more of the words is for the warm-up.
        let room = (MAX_WORDS - RELEASES) as u64 * 8 / 9 / words;
        (self.bytes / bytes.max(1)).clamp(self.least, self.most).min(room.saturating_sub(1)).max(1)
    }
}

/// Words of an inline copy: one LAUNCH_DMA, and the data headers that the bytes need.
fn inline_words(bytes: u64) -> u64 {
    INLINE_WORDS as u64 + bytes.div_ceil(4) + bytes / MAX_INLINE as u64
}

#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes.
    pub sizes: Vec<u64>,
    /// Submissions of each cell.
    pub repeats: u32,
    /// Random seed for the data.
    pub seed: u64,
    /// Number of the copy engine.
    pub copy_engine: u32,
    pub budget: Budget,
    /// Time after which a submission counts as lost.
    pub timeout: Duration,
}

/// One variant at one size, as in result files.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// `ce2`, `inline`.
    pub engine: String,
    pub direction: Direction,
    pub mode: Mode,
    pub bytes: u64,
    /// Copies between the two timestamps.
    pub copies: u64,
    pub repeats: u32,
    /// Nanoseconds of one copy, over the repeats; null on the software GPU and without a measurement.
    pub raw_p50_ns: Option<f64>,
    pub raw_min_ns: Option<f64>,
    pub raw_max_ns: Option<f64>,
    /// 10^9 bytes per second, from the p50.
    pub gbps: Option<f64>,
    /// Every byte arrived, and the bytes around are unchanged.
    pub verified: bool,
    /// Why there is no result: this variant does not move so many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Cell {
    pub fn way(&self) -> Way {
        Way { direction: self.direction, mode: self.mode }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error("all semaphores are in use")]
    NoSemaphore,
    #[error("wrong data: {0}")]
    Data(Difference),
    #[error("bytes next to the destination were written: {0}")]
    Beside(Difference),
    #[error("the second timestamp ({end} ns) is not after the first ({start} ns)")]
    Backwards { start: u64, end: u64 },
}

/// Runs the whole study; `progress` is called with each size before it begins.
///
/// # Errors
/// If memory or a channel is unavailable. Later failures are in the cells.
pub fn run(space: &Arc<AddressSpace>, plan: &Plan, mut progress: impl FnMut(u64)) -> Result<Vec<Cell>, Error> {
    let mut study = Study::open(space, plan)?;
    let mut cells = Vec::new();
    for &bytes in &plan.sizes {
        progress(bytes);
        study.size(plan, bytes, &mut cells);
    }
    Ok(cells)
}

/// A memory to read and one to write.
struct Pair {
    source: Arc<Memory>,
    destination: Arc<Memory>,
}

struct Study {
    space: Arc<AddressSpace>,
    copy: Channel,
    graphics: Channel,
    /// Why a channel is no longer used: copy, graphics.
    dead: [Option<String>; 2],
    down: Pair,
    up: Pair,
    /// Host memory for reading GPU memory.
    scratch: Arc<Memory>,
    start: Semaphore,
    end: Semaphore,
    functional: bool,
    random: fastrand::Rng,
}

/// A variant that is ready at one size, and its times.
struct Ready {
    way: Way,
    copies: u64,
    pushbuffer: Result<Validated, String>,
    /// Nanoseconds between the timestamps.
    taken: Vec<u64>,
    verified: bool,
    failed: Option<String>,
}

impl Study {
    fn open(space: &Arc<AddressSpace>, plan: &Plan) -> Result<Study, Error> {
        let room = plan.sizes.iter().copied().max().unwrap_or(0) + 2 * OFFSET;
        let semaphores = Semaphores::new(space)?;
        let semaphore = || semaphores.alloc().ok_or(Error::NoSemaphore);
        Ok(Study {
            copy: Channel::new(space, Engine::Copy(plan.copy_engine), ChannelOptions::default())?,
            graphics: Channel::new(space, Engine::Graphics, ChannelOptions::default())?,
            dead: [None, None],
            down: Pair { source: space.alloc_host(room)?, destination: space.alloc_video(room)? },
            up: Pair { source: space.alloc_video(room)?, destination: space.alloc_host(room)? },
            scratch: space.alloc_host(room)?,
            start: semaphore()?,
            end: semaphore()?,
            functional: space.device().is_soft(),
            random: fastrand::Rng::with_seed(plan.seed),
            space: space.clone(),
        })
    }

    fn size(&mut self, plan: &Plan, bytes: u64, cells: &mut Vec<Cell>) {
        let mut data = vec![0; bytes as usize];
        self.random.fill(&mut data);
        self.down.source.write(OFFSET, &data);
        self.up.source.write(OFFSET, &data);
        let mut ready: Vec<Ready> = WAYS.iter().map(|way| self.prepare(plan, *way, &data)).collect();
        for round in 0..plan.repeats as usize {
            for turn in 0..ready.len() {
                let at = (round + turn) % ready.len();
                self.timed(plan, &mut ready[at]);
            }
        }
        for one in &mut ready {
            self.verified(plan, one, &data);
        }
        cells.extend(ready.into_iter().map(|one| self.cell(plan, one, bytes)));
    }

    fn pair(&self, direction: Direction) -> &Pair {
        match direction {
            Direction::HostToDevice => &self.down,
            Direction::DeviceToHost => &self.up,
        }
    }

    fn prepare(&mut self, plan: &Plan, way: Way, data: &[u8]) -> Ready {
        let copies = plan.budget.copies(data.len() as u64, way.mode);
        let pushbuffer = if way.mode == Mode::Inline && data.len() > MOST_INLINE {
            Err(format!("one pushbuffer has no room for two inline copies above {} KiB", MOST_INLINE >> 10))
        } else {
            Ok(self.pushbuffer(way, data, copies))
        };
        let mut ready =
            Ready { way, copies, pushbuffer: Err(String::new()), taken: Vec::new(), verified: false, failed: None };
        match pushbuffer {
            Err(reason) => ready.pushbuffer = Err(reason),
            Ok(Ok(validated)) => ready.pushbuffer = Ok(validated),
            Ok(Err(error)) => ready.failed = Some(error.to_string()),
        }
        ready
    }

    /// Warm-up, release, copies, release.
    fn pushbuffer(&self, way: Way, data: &[u8], copies: u64) -> Result<Validated, gpu::Error> {
        let pair = self.pair(way.direction);
        let (from, to) = (pair.source.va() + OFFSET, pair.destination.va() + OFFSET);
        let warm_up = (copies / 8).max(1);
        let (channel, words) = match way.mode {
            Mode::Inline => (&self.graphics, inline_words(data.len() as u64) as usize),
            Mode::Plain | Mode::Pipelined => (&self.copy, COPY_WORDS),
        };
        let mut pushbuffer = Pushbuffer::new(&self.space, words * (copies + warm_up) as usize + RELEASES)?;
        for (count, tracker) in [(warm_up, &self.start), (copies, &self.end)] {
            for _ in 0..count {
                match way.mode {
                    Mode::Inline => pushbuffer.inline_long(to, data)?,
                    Mode::Plain => pushbuffer.copy(to, from, data.len() as u32)?,
                    Mode::Pipelined => pushbuffer.copy_pipelined(to, from, data.len() as u32)?,
                };
            }
            match way.mode {
                Mode::Inline => pushbuffer.host_release(tracker, 1)?,
                Mode::Plain | Mode::Pipelined => pushbuffer.copy_release(tracker, 1)?,
            };
        }
        pushbuffer.validate(channel)
    }

    /// Submits once and gives the nanoseconds between the two timestamps.
    fn once(&mut self, plan: &Plan, way: Way, pushbuffer: &Validated) -> Result<u64, Error> {
        self.start.set(0);
        self.end.set(0);
        let channel = if way.mode == Mode::Inline { &mut self.graphics } else { &mut self.copy };
        channel.submit(pushbuffer)?;
        for tracker in [&self.start, &self.end] {
            wait(channel, tracker, plan.timeout)?;
        }
        let (start, end) = (self.start.timestamp(), self.end.timestamp());
        end.checked_sub(start).ok_or(Error::Backwards { start, end })
    }

    fn dead(&mut self, way: Way) -> &mut Option<String> {
        &mut self.dead[usize::from(way.mode == Mode::Inline)]
    }

    /// One more repeat, unless an earlier step failed.
    fn timed(&mut self, plan: &Plan, one: &mut Ready) {
        let Ok(pushbuffer) = &one.pushbuffer else { return };
        if one.failed.is_some() {
            return;
        }
        if let Some(why) = self.dead(one.way) {
            one.failed = Some(why.clone());
            return;
        }
        match self.once(plan, one.way, pushbuffer) {
            Ok(taken) => one.taken.push(taken),
            Err(error) => {
                one.failed = Some(error.to_string());
                // The submission may still be pending, or never end: this channel's semaphores are unreliable from now on.
                if matches!(error, Error::Gpu(_)) {
                    *self.dead(one.way) = Some(format!("not measured, since before: {error}"));
                }
            }
        }
    }

    fn verified(&mut self, plan: &Plan, one: &mut Ready, data: &[u8]) {
        let Ok(pushbuffer) = &one.pushbuffer else { return };
        if one.failed.is_some() {
            return;
        }
        match self.verify(plan, one.way, pushbuffer, data) {
            Ok(()) => one.verified = true,
            Err(error) => one.failed = Some(error.to_string()),
        }
    }

    fn verify(&mut self, plan: &Plan, way: Way, pushbuffer: &Validated, data: &[u8]) -> Result<(), Error> {
        let mut before: Vec<u8> = vec![0; data.len() + 2 * GUARD];
        self.random.fill(&mut before);
        for (b, d) in before[GUARD..].iter_mut().zip(data) {
            *b = !d;
        }
        self.pair(way.direction).destination.write(OFFSET - GUARD as u64, &before);
        self.once(plan, way, pushbuffer)?;
        let after = self.look(plan, way, before.len())?;
        let inside = GUARD..GUARD + data.len();
        if let Some(d) = Difference::between(data, &after[inside.clone()], Some(&before[inside.clone()])) {
            return Err(Error::Data(d));
        }
        for beside in [0..GUARD, inside.end..before.len()] {
            if let Some(d) = Difference::between(&before[beside.clone()], &after[beside], None) {
                return Err(Error::Beside(d));
            }
        }
        Ok(())
    }

    /// The contents of the destination and its guards.
    fn look(&mut self, plan: &Plan, way: Way, length: usize) -> Result<Vec<u8>, Error> {
        let at = OFFSET - GUARD as u64;
        let mut found = vec![0; length];
        if way.direction == Direction::DeviceToHost || length <= READ_BY_CPU {
            self.pair(way.direction).destination.read(at, &mut found);
            return Ok(found);
        }
        let mut pushbuffer = Pushbuffer::new(&self.space, RELEASES + COPY_WORDS)?;
        let (from, to) = (self.down.destination.va() + at, self.scratch.va() + at);
        pushbuffer.copy(to, from, length as u32)?.copy_release(&self.end, 2)?;
        let pushbuffer = pushbuffer.validate(&self.copy)?;
        self.end.set(0);
        self.copy.submit(&pushbuffer)?;
        let start = Instant::now();
        while self.end.value() != 2 {
            alive(&self.copy, &self.end, 2, start, plan.timeout)?;
        }
        self.scratch.read(at, &mut found);
        Ok(found)
    }

    fn cell(&self, plan: &Plan, mut one: Ready, bytes: u64) -> Cell {
        let engine = match one.way.mode {
            Mode::Inline => "inline".into(),
            Mode::Plain | Mode::Pipelined => format!("ce{}", plan.copy_engine),
        };
        let measured = one.verified && !self.functional;
        let summary = Summary::of(&mut one.taken).filter(|_| measured);
        let per_copy = |ns: u64| ns as f64 / one.copies as f64;
        let p50 = summary.as_ref().map(|s| per_copy(s.p50));
        Cell {
            engine,
            direction: one.way.direction,
            mode: one.way.mode,
            bytes,
            copies: one.copies,
            repeats: one.taken.len() as u32,
            raw_p50_ns: p50,
            raw_min_ns: summary.as_ref().map(|s| per_copy(s.min)),
            raw_max_ns: summary.as_ref().map(|s| per_copy(s.max)),
            // Bytes per nanosecond. Below the clock's step there is no meaningful bandwidth.
            gbps: p50.filter(|ns| *ns > 0.0).map(|ns| bytes as f64 / ns),
            verified: one.verified,
            unavailable: one.pushbuffer.err().filter(|reason| !reason.is_empty()),
            failed: one.failed,
        }
    }
}

fn wait(channel: &Channel, semaphore: &Semaphore, timeout: Duration) -> Result<(), gpu::Error> {
    let start = Instant::now();
    while semaphore.value() != 1 {
        alive(channel, semaphore, 1, start, timeout)?;
    }
    Ok(())
}

/// Called between two polls: whether to continue polling. The GPU is not accessed in between; no CPU time is measured.
fn alive(
    channel: &Channel,
    semaphore: &Semaphore,
    wanted: u32,
    start: Instant,
    timeout: Duration,
) -> Result<(), gpu::Error> {
    if let Some(code) = channel.error() {
        return Err(gpu::Error::ChannelKilled(code));
    }
    let after = start.elapsed();
    if after > timeout {
        return Err(gpu::Error::Timeout { wanted, found: semaphore.value(), after });
    }
    std::thread::yield_now();
    Ok(())
}

/// Figures of all sizes of one variant.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    pub engine: String,
    pub direction: Direction,
    pub mode: Mode,
    /// The p50 of the smallest size, and that size.
    pub startup_ns: f64,
    pub startup_bytes: u64,
    /// The largest bandwidth, and its size.
    pub best_gbps: f64,
    pub best_bytes: u64,
    /// The smallest size with at least 90 % of the largest bandwidth.
    pub saturation_bytes: u64,
}

/// A curve for each measured variant; none on the software GPU.
pub fn curves(cells: &[Cell]) -> Vec<Curve> {
    WAYS.iter().filter_map(|way| curve(cells, *way)).collect()
}

fn curve(cells: &[Cell], way: Way) -> Option<Curve> {
    let mut points: Vec<(&Cell, f64, f64)> = cells
        .iter()
        .filter(|cell| cell.way() == way)
        .filter_map(|cell| Some((cell, cell.raw_p50_ns?, cell.gbps?)))
        .collect();
    points.sort_by_key(|(cell, ..)| cell.bytes);
    let &(first, startup_ns, _) = points.first()?;
    let &(best, _, best_gbps) = points.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let &(saturated, ..) = points.iter().find(|point| point.2 >= SATURATED * best_gbps)?;
    Some(Curve {
        engine: first.engine.clone(),
        direction: way.direction,
        mode: way.mode,
        startup_ns,
        startup_bytes: first.bytes,
        best_gbps,
        best_bytes: best.bytes,
        saturation_bytes: saturated.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(bytes: u64, ns: f64) -> Cell {
        Cell {
            engine: "ce0".into(),
            direction: Direction::HostToDevice,
            mode: Mode::Plain,
            bytes,
            copies: 4,
            repeats: 1,
            raw_p50_ns: Some(ns),
            raw_min_ns: Some(ns),
            raw_max_ns: Some(ns),
            gbps: Some(bytes as f64 / ns),
            verified: true,
            unavailable: None,
            failed: None,
        }
    }

    #[test]
    fn a_curve_has_its_start_and_its_saturation() {
        // 0.04, 1, 9, 9.5, 10 and then 9.2 GB/s.
        let cells = [
            cell(4096, 4096.0),
            cell(4, 100.0),
            cell(1 << 16, (1 << 16) as f64 / 9.0),
            cell(1 << 17, (1 << 17) as f64 / 9.5),
            cell(1 << 18, (1 << 18) as f64 / 10.0),
            cell(1 << 19, (1 << 19) as f64 / 9.2),
        ];
        let curves = curves(&cells);
        assert_eq!(curves.len(), 1, "one way was measured");
        let c = &curves[0];
        assert_eq!((c.startup_bytes, c.startup_ns), (4, 100.0));
        assert_eq!((c.best_bytes, c.saturation_bytes), (1 << 18, 1 << 16));
        let mut unmeasured = cell(4, 1.0);
        unmeasured.raw_p50_ns = None;
        assert!(super::curves(&[unmeasured]).is_empty());
    }

    #[test]
    fn every_pushbuffer_fits_in_one_entry() {
        for budget in [Budget::REAL, Budget::SOFT] {
            for bytes in settings::sizes::parse(SIZES).unwrap() {
                for mode in [Mode::Plain, Mode::Pipelined, Mode::Inline] {
                    if mode == Mode::Inline && bytes as usize > MOST_INLINE {
                        continue;
                    }
                    let copies = budget.copies(bytes, mode);
                    let words = if mode == Mode::Inline { inline_words(bytes) as usize } else { COPY_WORDS };
                    let all = (copies + (copies / 8).max(1)) as usize * words + RELEASES;
                    assert!(copies >= 2 && all <= MAX_WORDS, "{bytes} {mode:?}: {copies} copies, {all} words");
                }
            }
        }
        assert_eq!(Budget::REAL.copies(64 << 20, Mode::Plain), 4);
        assert_eq!(Budget::REAL.copies(4, Mode::Plain), 2048);
    }
}
