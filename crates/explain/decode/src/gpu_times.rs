//! When kernels and copies ran, from the ends and clocks on the tape (`record --gpu-times`).
//!
//! Ends are on the tape later than their launches, so they are read on demand (`on_tape`). `tape::kernel_clock` computes the starts of kernels.

mod on_tape;

use crate::recording::Recording;
use on_tape::{Again, OnTape};
use pushbuf::qmd::end_time::{self, Found};
use pushbuf::snapshot::Snapshot;
use schema::operations::{GpuTime, Start};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use tape::event::qmds;
use tape::kernel_clock::{Kernels, Moment, Run};
use tape::region::STAMPS_BYTES;
use tape::stamp::{AS_BEFORE, CopiedBody, LaunchedBody, StampsBody, WRITER, number, state};

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
}

/// The times of an image: those known so far, and the tape that has the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times<'a> {
    image: &'a Image,
    /// `None` if all of the tape was read.
    r: Option<&'a Recording>,
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
            let new = || Image { tape: RefCell::new(OnTape::new(&pages)), ..Image::default() };
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
    pub fn ended(self, number: u64) -> Option<u64> {
        self.image.tape.borrow_mut().ended(self.r, number)
    }

    /// When a graph's kernel ended that the doorbell at a time stamp launched. `None` also if the stored end may be that of a later launch, which is written to
    /// the same place.
    pub fn ended_of(self, gpu: Option<u32>, tsc: u64, kernel: &Ran) -> Option<u64> {
        let end = self.ended(kernel.number)?;
        let is_before = |tape: &mut OnTape, at: u64| {
            self.convert(tape, gpu, at).is_some_and(|(ns, error)| end <= ns.saturating_add(error))
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
        let (bell, error) = self.gpu_ns(gpu, tsc).unwrap_or((start, 0));
        Some(GpuTime {
            end_ns: end,
            start_ns: start.min(end),
            earliest_ns: start.min(end),
            start: Start::Stored,
            queued_ns: start.saturating_sub(bell),
            clock_error_ns: error,
        })
    }

    /// The GPU's time at a time stamp, and its maximum error.
    pub fn gpu_ns(self, gpu: Option<u32>, tsc: u64) -> Option<(u64, u64)> {
        self.convert(&mut self.image.tape.borrow_mut(), gpu, tsc)
    }

    fn convert(self, tape: &mut OnTape, gpu: Option<u32>, tsc: u64) -> Option<(u64, u64)> {
        tape.clock(self.r, gpu, Moment::Tsc(tsc))?.gpu_ns(tsc)
    }

    /// The time stamp at a GPU time: the inverse of [`Times::gpu_ns`].
    pub fn tsc(self, gpu: Option<u32>, ns: u64) -> Option<u64> {
        self.image.tape.borrow_mut().clock(self.r, gpu, Moment::Gpu(ns))?.tsc(ns)
    }
}

/// As a row has it.
pub(crate) fn gpu_time(run: Run) -> GpuTime {
    GpuTime {
        end_ns: run.end,
        start_ns: run.start,
        earliest_ns: run.earliest,
        start: match run.from {
            tape::kernel_clock::Start::AfterTheDoorbell => Start::AfterTheDoorbell,
            tape::kernel_clock::Start::AfterTheOneBefore => Start::AfterTheOneBefore,
            tape::kernel_clock::Start::Delayed | tape::kernel_clock::Start::Bounded => Start::Bounded,
        },
        queued_ns: run.queued,
        clock_error_ns: run.clock_error,
    }
}

/// A graph's kernel that ran in a launch.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    pub qmd: u64,
    pub number: u64,
}

/// What is known of an image's kernels while its submissions are read.
#[derive(Debug, Default)]
pub(crate) struct Running {
    pub kernels: Kernels,
    /// The kernels that entries launch, by slot and number of the entry, for graphs that were uploaded before.
    launched: HashMap<(u32, u64), Vec<Ran>>,
    /// The same for entries of copy engines: the numbers of their transfers' begins and ends.
    copied: HashMap<(u32, u64), Range<u64>>,
}

pushbuf::snapshot!(Ran { qmd, number });
pushbuf::snapshot!(Running { kernels, launched, copied });

/// Maximum number of graph launches that wait for their doorbell.
const LAUNCHED: usize = 1 << 16;

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::kernel_clock::Clock;

    const TSC: u64 = 100_000_000_000_000;
    const BASE: u64 = 1_790_000_000_123_456_789;

    /// An image of GPUs whose clocks had these times at the same moment.
    fn image<const N: usize>(gpus: [u64; N]) -> Image {
        let clock = |(gpu, ns)| {
            let mut clock = Clock::new(3e9, ns);
            clock.add(TSC, TSC, ns);
            (gpu, clock)
        };
        let tape = OnTape::of_clocks((0..).zip(gpus).map(clock).collect());
        Image { tape: RefCell::new(tape), ..Image::default() }
    }

    impl Image {
        fn end(&mut self, number: u64, ns: u64) {
            self.tape.get_mut().end(number, ns);
        }

        fn times(&self) -> Times<'_> {
            Times { image: self, r: None }
        }
    }

    /// Two GPUs whose clocks are a second apart, and a third whose clock was not read.
    #[test]
    fn a_kernel_has_the_time_of_its_own_gpu_alone() {
        let clocks = [BASE, BASE + 1_000_000_000];
        let mut image = image(clocks);
        clocks.into_iter().zip(0..).for_each(|(clock, number)| image.end(number, clock + 20_000));
        let mut kernels = Kernels::default();
        let mut run = |gpu: u32, number| {
            let rung = image.times().gpu_ns(Some(gpu), TSC);
            let launch = kernels.launch((gpu as usize, 0), Some(gpu), rung, false);
            kernels.kernel(&launch, image.times().ended(number))
        };
        for gpu in [0, 1] {
            let time = gpu_time(run(gpu, gpu.into()).unwrap());
            assert_eq!(
                (time.queued_ns, time.duration_ns()),
                (tape::kernel_clock::IDLE, 20_000 - tape::kernel_clock::IDLE)
            );
            // (Kernels of the other GPU do not delay it.)
            assert_eq!(time.start, Start::AfterTheDoorbell);
        }
        assert_eq!(run(2, 1), None);
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
        let mut image = image([BASE]);
        image.end(0, BASE + 50_000);
        let kernel = Ran { qmd: 0x1000, number: 0 };
        let at = |ns: u64| TSC + 3 * ns;
        let of = |image: &Image| image.times().ended_of(Some(0), TSC, &kernel).is_some();
        assert!(of(&image));
        image.tape.get_mut().as_before(0x1000, vec![TSC - 30, at(60_000)]);
        assert!(of(&image), "launched again after its end");
        image.tape.get_mut().as_before(0x1000, vec![TSC - 30, at(40_000)]);
        assert!(!of(&image), "launched again before it");
    }
}
