//! A graph, and the words of its launches.

use crate::words::fill::fill;
use crate::words::kernel::{BANK_HEADER, BANK_NAMES, DECREMENT, Kernel, SCHEDULE};
use crate::words::places::Places;
use crate::words::table::Table;
use crate::words::{COMPUTE, COPY};
use pushbuf::encode::{CONSTANT_CACHES, Error, Words, inline_dma, launch_dma, offset};
use pushbuf::qmd::PcasAction;
use pushbuf::semaphore::Execute;

const INLINE: u32 = inline_dma::PITCH | inline_dma::NO_SYSMEMBAR;
const TRANSFER: u32 = launch_dma::NON_PIPELINED | launch_dma::PITCH;
/// SET_REPORT_SEMAPHORE_D: RELEASE, FOUR_WORDS, FLUSH_DISABLE.
const REPORT: u32 = 4;
/// What each launch adds to a counter, and the first payload of trackers.
const STEP: i64 = 4;
const TRACKED: i64 = 100;

/// What a launch does, in order.
#[derive(Clone, Debug)]
pub enum Step {
    /// The following steps are on another channel. A launch begins on channel 0.
    On(usize),
    /// Waits for a counter to be `4 * launch` and this. (What is below 0 belongs to the launch before, and the first launch has none.)
    Wait(usize, i64),
    /// Sets a counter so that it is `4 * launch + 2` when all kernels that release it are done.
    Set(usize),
    /// Does something to a kernel's QMD.
    Start(usize, PcasAction),
    Memset {
        at: u64,
        value: u32,
        bytes: u32,
    },
    /// By the macro of the engine.
    MacroMemset {
        at: u64,
        bytes: u32,
        arguments: [u32; 2],
    },
    Memcpy {
        from: u64,
        to: u64,
        bytes: u32,
    },
    /// Compute releases the channel's tracker when the earlier steps are done. If a channel has no release, this one is added after its last step.
    /// (A submission ends with one.)
    Release,
    /// The copy engine releases the tracker.
    CopyRelease,
    /// Waits for the last value released to a channel's tracker.
    WaitFor(usize),
    Raw(Vec<u32>),
}

/// Kernels, and what a launch does with them.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub kernels: Vec<Kernel>,
    pub launch: Vec<Step>,
    pub at: Places,
    /// By which kernels of the driver's start others.
    pub table: Option<Table>,
}

/// Words that one step or one kernel takes at most, but for raw ones: a bank and a QMD are less than 600.
const ROOM: usize = 1 << 10;

/// The words that an encoder writes, up to 2^18. Panics if the values cannot be encoded.
pub fn words(write: impl FnOnce(&mut Words<'_>)) -> Vec<u32> {
    words_within(1 << 18, write)
}

/// As [`words`], of at most so many. (The buffer is filled with zeros first, so a large buffer for each of many small steps would take most of the
/// time.)
fn words_within(room: usize, write: impl FnOnce(&mut Words<'_>)) -> Vec<u32> {
    let mut buffer = vec![0; room];
    let mut words = Words::new(&mut buffer);
    write(&mut words);
    words.as_slice().to_vec()
}

/// Words of the launch that is being written, by channel.
struct Segments(Vec<(usize, Vec<u32>)>);

impl Segments {
    fn add(&mut self, channel: usize, more: &[u32]) {
        match self.0.last_mut() {
            Some((last, words)) if *last == channel => words.extend_from_slice(more),
            _ => self.0.push((channel, more.to_vec())),
        }
    }
}

impl Graph {
    /// As the driver makes a chain: from two kernels on, a QMD without blocks decrements the first of them. The parameters of kernel `i` are 16 bytes
    /// of value `i`.
    pub fn chain(n: usize) -> Graph {
        if n == 1 {
            let kernels = vec![Kernel { releases: Some(0), ..Kernel::default() }];
            return Graph { kernels, launch: alone(0), ..Graph::default() };
        }
        let mut kernels = vec![Kernel::order(&[(1, DECREMENT)])];
        for i in 1..=n {
            let then = if i < n { vec![(i + 1, SCHEDULE)] } else { Vec::new() };
            let (waits_for, releases) = (if i == 1 { 2 } else { 0 }, (i == n).then_some(0));
            kernels.push(Kernel { parameters: vec![i as u8; 16], then, waits_for, releases, ..Kernel::default() });
        }
        let launch = vec![
            Step::Wait(0, -2),
            Step::Start(0, PcasAction::InvalidatePrefetchCopySchedule),
            Step::Set(0),
            Step::Start(1, PcasAction::DecrementDependence),
        ];
        Graph { kernels, launch, ..Graph::default() }
    }

    /// One kernel before two, and these before a fourth.
    pub fn diamond() -> Graph {
        let kernel = |then: &[(usize, u64)]| Kernel { then: then.to_vec(), ..Kernel::default() };
        let kernels = vec![
            kernel(&[(1, SCHEDULE), (2, SCHEDULE)]),
            kernel(&[(3, DECREMENT)]),
            kernel(&[(3, DECREMENT)]),
            Kernel { waits_for: 2, releases: Some(0), ..Kernel::default() },
        ];
        Graph { kernels, launch: alone(0), ..Graph::default() }
    }

    /// Two kernels, a memset of 64 bytes at `memset`, and a third kernel: the memset waits for the counter of the first group.
    pub fn memset(memset: u64) -> Graph {
        let kernels = vec![
            Kernel { then: vec![(1, SCHEDULE)], ..Kernel::default() },
            Kernel { releases: Some(0), ..Kernel::default() },
            Kernel { releases: Some(1), ..Kernel::default() },
        ];
        let launch = vec![
            Step::Wait(1, -2),
            Step::Set(0),
            Step::Start(0, PcasAction::InvalidatePrefetchCopySchedule),
            Step::Wait(0, 2),
            Step::Memset { at: memset, value: 0, bytes: 64 },
            Step::Set(1),
            Step::Start(2, PcasAction::InvalidatePrefetchCopySchedule),
        ];
        Graph { kernels, launch, ..Graph::default() }
    }

    /// As [`Graph::memset`], of so many bytes, by the macro.
    pub fn macro_memset(at: u64, bytes: u32, arguments: [u32; 2]) -> Graph {
        let mut graph = Graph::memset(at);
        for step in &mut graph.launch {
            if matches!(step, Step::Memset { .. }) {
                *step = Step::MacroMemset { at, bytes, arguments };
            }
        }
        graph
    }

    /// One kernel, then two on two channels, then a fourth on the first channel, which waits for both.
    pub fn fork() -> Graph {
        let start = |i| Step::Start(i, PcasAction::InvalidatePrefetchCopySchedule);
        let kernels = (0..4).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
        let launch = vec![
            Step::Wait(3, -2),
            Step::Set(0),
            start(0),
            Step::On(1),
            Step::Wait(0, 2),
            Step::Set(1),
            start(1),
            Step::On(0),
            Step::Wait(0, 2),
            Step::Set(2),
            start(2),
            Step::Wait(1, 2),
            Step::Wait(2, 2),
            Step::Set(3),
            start(3),
        ];
        Graph { kernels, launch, ..Graph::default() }
    }

    /// A kernel, a copy on a separate channel (1) that waits for it, and a kernel that waits for the copy. A memcpy node between host and device is
    /// sent like this.
    pub fn memcpy(from: u64, to: u64, bytes: u32) -> Graph {
        let start = |i| Step::Start(i, PcasAction::InvalidatePrefetchCopySchedule);
        let kernels = (0..2).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
        let launch = vec![
            Step::Set(0),
            start(0),
            Step::Release,
            Step::On(1),
            Step::WaitFor(0),
            Step::Wait(0, 2),
            Step::Memcpy { from, to, bytes },
            Step::CopyRelease,
            Step::On(0),
            Step::Set(1),
            Step::WaitFor(1),
            start(1),
            Step::Release,
        ];
        Graph { kernels, launch, ..Graph::default() }
    }

    /// The values of counters and trackers when launch `k` is done.
    pub fn done(k: i64) -> (u32, u32) {
        ((STEP * k + 2) as u32, (TRACKED + k) as u32)
    }

    /// The words of the launch that uploads the graph, of one that stays on one channel.
    pub fn upload(&self) -> Vec<u32> {
        one_channel(self.upload_segments())
    }

    /// The words of launch `k` after it, from 1.
    pub fn again(&self, k: i64) -> Vec<u32> {
        one_channel(self.again_segments(k))
    }

    /// The launch that uploads the graph: segments in their order, each with its channel.
    pub fn upload_segments(&self) -> Vec<(usize, Vec<u32>)> {
        let mut to = Segments(Vec::new());
        if let Some(table) = &self.table {
            let bytes: Vec<u8> = table.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            to.add(
                0,
                &words_within(ROOM + bytes.len(), |w| w.inline(COMPUTE, table.at, &bytes, INLINE).expect("a table")),
            );
        }
        for i in self.order_of_upload() {
            to.add(0, &words_within(ROOM, |w| self.upload_kernel(w, i)));
        }
        self.steps(&mut to, 0, true);
        to.0
    }

    pub fn again_segments(&self, k: i64) -> Vec<(usize, Vec<u32>)> {
        let mut to = Segments(Vec::new());
        self.steps(&mut to, k, false);
        to.0
    }

    /// The words that change a kernel's parameters from the next launch on: an inline write and an invalidation of constant caches.
    pub fn set_parameters(&mut self, kernel: usize, parameters: &[u8]) -> Vec<u32> {
        let at = self.at.bank(kernel) + BANK_HEADER;
        self.kernels[kernel].parameters = parameters.to_vec();
        words_within(ROOM, |w| {
            w.inline(COMPUTE, at, parameters, INLINE).expect("parameters of a kernel");
            w.inc(COMPUTE, offset::INVALIDATE_SHADER_CACHES_NO_WFI, &[CONSTANT_CACHES]).expect("a method");
        })
    }

    /// The words of the QMD of a kernel.
    pub fn qmd(&self, kernel: usize) -> pushbuf::qmd::Qmd {
        let next = self.kernels[kernel].then.first().and_then(|(next, _)| Some((*next, self.kernels.get(*next)?)));
        self.kernels[kernel].qmd(kernel, self.is_armed(kernel), next, &self.at)
    }

    /// Whether the upload arms a kernel: all that the stream does not start by itself.
    fn is_armed(&self, kernel: usize) -> bool {
        !self.launch.iter().any(
            |step| matches!(step, Step::Start(i, action) if *i == kernel && *action != PcasAction::DecrementDependence),
        )
    }

    /// Heads, then QMDs that decrement them, then other armed QMDs starting with the last, then QMDs that the stream starts: a QMD is written
    /// before another acts on it.
    fn order_of_upload(&self) -> Vec<usize> {
        let rank = |i: usize| match &self.kernels[i] {
            kernel if kernel.is_empty() => (1, i),
            kernel if kernel.waits_for > 0 => (0, i),
            _ if self.is_armed(i) => (2, usize::MAX - i),
            _ => (3, i),
        };
        let mut order: Vec<usize> = (0..self.kernels.len()).collect();
        order.sort_by_key(|i| rank(*i));
        order
    }

    fn upload_kernel(&self, w: &mut Words<'_>, i: usize) {
        let kernel = &self.kernels[i];
        if !kernel.is_empty() {
            assert!(
                kernel.bank_bytes() <= Places::BANK_BYTES,
                "kernel {i} has {} bytes of parameters",
                kernel.parameters.len()
            );
            let mut header: Vec<u8> = (0..BANK_HEADER as u32).map(|b| (b + i as u32) as u8).collect();
            let parameters = self.at.bank(i) + BANK_HEADER;
            let own = [self.at.qmd(i), self.at.bank(i), parameters, parameters + kernel.parameters.len() as u64];
            for (at, address) in BANK_NAMES.into_iter().zip(own) {
                header[at..at + 8].copy_from_slice(&address.to_le_bytes());
            }
            w.inline(COMPUTE, self.at.bank(i), &header, INLINE).expect("a bank's header");
            if !kernel.parameters.is_empty() {
                w.inline(COMPUTE, self.at.bank(i) + BANK_HEADER, &kernel.parameters, INLINE)
                    .expect("a bank's parameters");
            }
        }
        let bytes: Vec<u8> = self.qmd(i).words().iter().flat_map(|w| w.to_le_bytes()).collect();
        w.inline(COMPUTE, self.at.qmd(i), &bytes, INLINE).expect("a QMD");
        let starts = kernel.is_empty() || !self.is_armed(i);
        // One invalidation is enough: no kernel has read a bank that is written after it.
        if starts {
            w.inc(COMPUTE, offset::INVALIDATE_SHADER_CACHES_NO_WFI, &[CONSTANT_CACHES]).expect("a method");
        }
        if kernel.is_empty() || !starts {
            w.pcas(COMPUTE, self.at.qmd(i), PcasAction::InvalidatePrefetchCopySchedule).expect("a QMD below 2^40");
        }
    }

    /// The steps of launch `k`, and on each channel's last one the tracker.
    fn steps(&self, to: &mut Segments, k: i64, first: bool) {
        let mut channel = 0;
        // (A channel, and the step after which it does no more.)
        let mut last = vec![(0, 0)];
        let mut releases: Vec<usize> = Vec::new();
        for (i, step) in self.launch.iter().enumerate() {
            match step {
                Step::On(other) => channel = *other,
                _ => {
                    last.retain(|(c, _)| *c != channel);
                    last.push((channel, i));
                }
            }
            if matches!(step, Step::Release | Step::CopyRelease) {
                releases.push(channel);
            }
        }
        let tells = |channel: usize| releases.iter().filter(|of| **of == channel).count() as i64;
        // Channels released so far in this launch, once for each release.
        let mut told: Vec<usize> = Vec::new();
        channel = 0;
        let report = |to: &mut Segments, channel, payload| {
            to.add(channel, &words_within(ROOM, |w| self.report(w, channel, payload)));
        };
        for (i, step) in self.launch.iter().enumerate() {
            let so_far = |of: usize| told.iter().filter(|channel| **channel == of).count() as i64;
            let payload = |of: usize, nth: i64| (TRACKED + tells(of) * k - (tells(of) - nth)) as u32;
            match step {
                Step::On(other) => channel = *other,
                Step::Raw(raw) => to.add(channel, raw),
                Step::Release => report(to, channel, payload(channel, so_far(channel) + 1)),
                Step::CopyRelease => {
                    let (at, payload) = (self.at.tracker(channel), payload(channel, so_far(channel) + 1));
                    to.add(
                        channel,
                        &words_within(ROOM, |w| w.copy_release(COPY, at, payload, true).expect("a release")),
                    );
                }
                Step::WaitFor(of) => {
                    let (at, payload) = (self.at.tracker(*of), payload(*of, so_far(*of)));
                    let wait = |w: &mut Words<'_>| {
                        w.host_semaphore(0, at, payload.into(), Execute::WAIT_AND_SWITCH).expect("a semaphore")
                    };
                    to.add(channel, &words_within(ROOM, wait));
                }
                step => {
                    let write = |w: &mut Words<'_>| self.step(w, step, k, first).expect("a step that words can say");
                    to.add(channel, &words_within(ROOM, write));
                }
            }
            if matches!(step, Step::Release | Step::CopyRelease) {
                told.push(channel);
            }
            if last.contains(&(channel, i)) && !matches!(step, Step::On(_)) && tells(channel) == 0 {
                report(to, channel, (TRACKED + k) as u32);
            }
        }
        if self.launch.is_empty() {
            report(to, 0, (TRACKED + k) as u32);
        }
    }

    fn step(&self, w: &mut Words<'_>, step: &Step, k: i64, first: bool) -> Result<(), Error> {
        match step {
            Step::On(_) | Step::Raw(_) | Step::Release | Step::CopyRelease | Step::WaitFor(_) => Ok(()),
            Step::Wait(_, before) if first && *before < 0 => Ok(()),
            Step::Wait(counter, more) => {
                let payload = (STEP * k + more) as u32;
                w.host_semaphore(0, self.at.counter(*counter), payload.into(), Execute::WAIT)
            }
            Step::Set(counter) => {
                let released = self.kernels.iter().filter(|kernel| kernel.releases == Some(*counter)).count();
                let value = (STEP * k + 2 - released as i64) as u32;
                w.inline(COMPUTE, self.at.counter(*counter), &value.to_le_bytes(), INLINE)
            }
            // The upload has already run QMDs without blocks.
            Step::Start(i, _) if first && self.kernels.get(*i).is_some_and(Kernel::is_empty) => Ok(()),
            Step::Start(i, action) => w.pcas(COMPUTE, self.at.qmd(*i), *action),
            Step::Memset { at, value, bytes } => w.fill(COPY, *at, *value, bytes / 4, TRANSFER),
            Step::MacroMemset { at, bytes, arguments } => fill(w, *at, *bytes, *arguments),
            Step::Memcpy { from, to, bytes } => w.copy(COPY, *from, *to, *bytes, TRANSFER),
        }
    }

    fn report(&self, w: &mut Words<'_>, channel: usize, payload: u32) {
        let at = self.at.tracker(channel);
        let report = [(at >> 32) as u32, at as u32, payload, REPORT];
        w.inc(COMPUTE, offset::REPORT_SEMAPHORE_A, &report).expect("a method");
    }
}

/// A launch that starts one QMD.
fn alone(kernel: usize) -> Vec<Step> {
    vec![Step::Wait(0, -2), Step::Set(0), Step::Start(kernel, PcasAction::InvalidatePrefetchCopySchedule)]
}

fn one_channel(segments: Vec<(usize, Vec<u32>)>) -> Vec<u32> {
    assert!(segments.iter().all(|(channel, _)| *channel == 0), "the graph has several channels");
    segments.into_iter().flat_map(|(_, words)| words).collect()
}
