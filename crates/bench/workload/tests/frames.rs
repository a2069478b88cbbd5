//! A device's frames, on the software GPU and with devices that lose or tear some.

use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::Arc;
use std::time::{Duration, Instant};
use workload::device::frames::{Ring, Wanted};
use workload::device::{Device, EngineDevice, Handle, Job};
use workload::spec::{Host, Memory};
use workload::{Error, Machine, Opened, Subject};

const TIMEOUT: Duration = Duration::from_secs(20);
const BYTES: u64 = 5 * 4096;

fn machine() -> Machine {
    Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap()
}

fn wanted(buffers: u64, to: Memory) -> Wanted {
    Wanted { bytes: BYTES, buffers, to, consume: Duration::ZERO }
}

const HOST: Memory = Memory::Host(Host::Pinned);

#[test]
fn every_frame_arrives_whole_in_its_turn() {
    let machine = machine();
    for to in [HOST, Memory::Gpu(0)] {
        for buffers in [1, 2, 4] {
            let device = Box::new(EngineDevice::new(&machine).unwrap());
            let mut ring = Ring::new(&machine, device, wanted(buffers, to)).unwrap();
            assert!(ring.about().contains("by the CPU"), "{}", ring.about());
            for seed in [1, 2] {
                let mut frames = ring.run(seed).unwrap();
                assert!(matches!(frames.wait(TIMEOUT), Err(Error::Idle)) && !frames.poll().unwrap());
                for n in 1..40 {
                    frames.fire().unwrap();
                    // The second of two requests waits for the first.
                    if n % 5 == 0 {
                        frames.fire().unwrap();
                    }
                    frames.wait(TIMEOUT).unwrap();
                    assert!(frames.poll().unwrap());
                    assert_eq!(frames.taken(), n + n / 5);
                    assert_eq!(frames.check().unwrap(), None, "{buffers} buffers of {to:?}, the {n}th");
                }
            }
        }
    }
    let device = || Box::new(EngineDevice::new(&machine).unwrap());
    for (wrong, why) in [
        (Wanted { bytes: 5000, ..wanted(4, HOST) }, "whole pages"),
        (Wanted { bytes: 0, ..wanted(4, HOST) }, "whole pages"),
        (wanted(0, HOST), "1 to 64"),
        (wanted(65, HOST), "1 to 64"),
    ] {
        let error = Ring::new(&machine, device(), wrong).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// With a device and a consumer that take 2 ms each, a frame takes 4 ms with one buffer. With another buffer, the next frame arrives during that time.
#[test]
fn with_several_buffers_the_next_frame_comes_while_one_is_consumed() {
    const EACH: Duration = Duration::from_millis(2);
    let machine = machine();
    let time = |buffers| {
        let device = Box::new(Odd { of: EngineDevice::new(&machine).unwrap(), how: How::Slow(EACH) });
        let mut ring = Ring::new(&machine, device, Wanted { consume: EACH, ..wanted(buffers, HOST) }).unwrap();
        let mut frames = ring.run(3).unwrap();
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..40 {
            let begun = Instant::now();
            frames.fire().unwrap();
            frames.wait(TIMEOUT).unwrap();
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        (times[0], times[20])
    };
    test_support::measured(|| {
        let ((single_least, single), (_, rotated)) = (time(1), time(4));
        assert!(single_least >= 2 * EACH, "{single_least:?} for both, one behind the other");
        let overlap = rotated < single * 3 / 4;
        overlap.then_some(()).ok_or_else(|| format!("{rotated:?} with four buffers, {single:?} with one"))
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Reports that the frame has arrived, and sends none.
    Loses(u64),
    /// Sends the previous frame again.
    Repeats(u64),
    /// The frame begins a page too early, so its first page belongs to another.
    Shifts(u64),
    /// Does not send the last page of any frame.
    Cuts,
    Slow(Duration),
}

/// A device with one fault.
struct Odd {
    of: EngineDevice,
    how: How,
}

struct OddJob<'r> {
    of: Box<dyn Job + 'r>,
    how: How,
    frame: u64,
    before: u64,
    begun: Instant,
    sent: bool,
}

impl Job for OddJob<'_> {
    fn start(&mut self, from: u64, to: u64) -> Result<(), Error> {
        let frame = self.frame;
        self.frame += 1;
        self.begun = Instant::now();
        self.sent = self.how != How::Loses(frame);
        let from = match self.how {
            How::Repeats(n) if n == frame => self.before,
            How::Shifts(n) if n == frame => from - 4096,
            _ => from,
        };
        self.before = from;
        if self.sent { self.of.start(from, to) } else { Ok(()) }
    }

    fn poll(&mut self) -> Result<bool, Error> {
        if let How::Slow(time) = self.how
            && self.begun.elapsed() < time
        {
            return Ok(false);
        }
        if self.sent { self.of.poll() } else { Ok(true) }
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.of.wait(timeout)
    }
}

impl Device for Odd {
    fn about(&self) -> String {
        format!("{:?}", self.how)
    }

    fn pin(&mut self, memory: &workload::Buffer<'_>) -> Result<Handle, Error> {
        self.of.pin(memory)
    }

    fn unpin(&mut self, handle: Handle) -> Result<(), Error> {
        self.of.unpin(handle)
    }

    fn job<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error> {
        let how = self.how;
        let of = self.of.job(from, to, if how == How::Cuts { bytes - 4096 } else { bytes })?;
        Ok(Box::new(OddJob { of, how, frame: 0, before: 0, begun: Instant::now(), sent: false }))
    }
}

#[test]
fn a_frame_that_is_lost_or_torn_is_an_error() {
    let machine = machine();
    for to in [HOST, Memory::Gpu(0)] {
        for buffers in [1, 2, 4] {
            for frame in [0, 1, 9, 10, 17] {
                let hows = [(How::Loses(frame), 5), (How::Repeats(frame), 5), (How::Shifts(frame), 5), (How::Cuts, 1)];
                for (how, pages) in hows {
                    // There is no frame before the first one, and `Cuts` fails with the first one.
                    let first = frame % (2 * buffers + 1) == 0;
                    if first && matches!(how, How::Repeats(0) | How::Shifts(_)) || frame > 0 && how == How::Cuts {
                        continue;
                    }
                    let device = Box::new(Odd { of: EngineDevice::new(&machine).unwrap(), how });
                    let mut ring = Ring::new(&machine, device, wanted(buffers, to)).unwrap();
                    let mut frames = ring.run(frame).unwrap();
                    for n in 0..frame {
                        frames.fire().unwrap();
                        frames.wait(TIMEOUT).unwrap_or_else(|e| panic!("{how:?}, {buffers} buffers, frame {n}: {e}"));
                    }
                    frames.fire().unwrap();
                    match frames.wait(TIMEOUT) {
                        Err(Error::Frame { frame: found, wrong, pages: 5 }) => {
                            assert_eq!((found, wrong), (frame, pages), "{how:?}, {buffers} buffers");
                        }
                        other => panic!("{how:?}, {buffers} buffers, frame {frame}: {other:?}"),
                    }
                }
            }
        }
    }
}
