//! Faults in an executor or in the GPU: a check finds each of them, or a call returns an error.

use super::{KIB, TIMEOUT, moves, soft};
use doorbell_softgpu::{Mode, Planted as Fault, SoftDriver};
use std::sync::Arc;
use std::time::Duration;
use workload::routes::open;
use workload::{Buffer, Difference, Ends, Error, Executor, Machine, Route, Transfer, Wrong, verify};

/// The route, with another executor around its own.
fn around<'m>(route: Route<'m>, wrap: impl FnOnce(Box<dyn Executor + 'm>) -> Box<dyn Executor + 'm>) -> Route<'m> {
    let (source, executor, destination) = route.into_parts();
    Route::new("wrong", source, wrap(executor), destination).unwrap()
}

/// Changes bytes that the inner executor has moved.
struct Planted<'m> {
    inner: Box<dyn Executor + 'm>,
    fault: fn(&mut [u8]),
}

impl Executor for Planted<'_> {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        self.inner.reach(from, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        let inner = self.inner.prepare(ends, bytes)?;
        Ok(Box::new(Changing { inner, to: ends.destination, bytes, fault: self.fault }))
    }
}

struct Changing<'r> {
    inner: Box<dyn Transfer + 'r>,
    to: &'r Buffer<'r>,
    bytes: u64,
    fault: fn(&mut [u8]),
}

impl Transfer for Changing<'_> {
    fn submit(&mut self) -> Result<(), Error> {
        self.inner.submit()
    }

    fn poll(&mut self) -> Result<bool, Error> {
        self.inner.poll()
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.inner.wait(timeout)?;
        let mut bytes = vec![0; self.bytes as usize];
        self.to.read(0, &mut bytes)?;
        (self.fault)(&mut bytes);
        self.to.write(0, &bytes)
    }
}

#[test]
fn planted_differences_are_seen() {
    let (_driver, machine) = soft();
    let planted = |fault: fn(&mut [u8])| {
        let route = open(&machine, "host->ce0->gpu0", 4096).unwrap();
        let mut route = around(route, |inner| Box::new(Planted { inner, fault }));
        verify(&mut route, 1000, 5, TIMEOUT).unwrap()
    };
    assert_eq!(planted(|_| {}), None);
    let Some(Wrong::Data(last)) = planted(|bytes| bytes[999] ^= 1) else { panic!("not seen") };
    assert_eq!((last.first, last.differing, last.expected ^ last.found), (999, 1, 1));
    let several = planted(|bytes| bytes[10..20].iter_mut().for_each(|byte| *byte = !*byte));
    assert!(matches!(several, Some(Wrong::Data(Difference { first: 10, differing: 10, .. }))), "{several:?}");
}

/// Moves one byte too few, or one byte too many.
struct Miscounted<'m> {
    inner: Box<dyn Executor + 'm>,
    bytes: fn(u64) -> u64,
}

impl Executor for Miscounted<'_> {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        self.inner.reach(from, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        self.inner.prepare(ends, (self.bytes)(bytes))
    }
}

#[test]
fn a_byte_too_few_and_a_byte_too_many_are_seen() {
    let (_driver, machine) = soft();
    for name in ["host->ce0->gpu0", "gpu0->ce0->host", "host->inline->gpu0", "host->bar1->gpu0", "gpu0->aperture->host"]
    {
        for seed in 0..20 {
            let miscounted = |bytes| {
                let route = open(&machine, name, 4096).unwrap();
                let mut route = around(route, |inner| Box::new(Miscounted { inner, bytes }));
                verify(&mut route, 777, seed, TIMEOUT).unwrap()
            };
            let few = miscounted(|bytes| bytes - 1);
            assert!(matches!(few, Some(Wrong::Data(Difference { first: 776, differing: 1, .. }))), "{name}: {few:?}");
            let many = miscounted(|bytes| bytes + 1);
            assert!(matches!(many, Some(Wrong::PastTheEnd { touched: 1, first: 0 })), "{name}: {many:?}");
        }
    }
}

fn broken(fault: Fault) -> Machine {
    Machine::of_driver(Arc::new(SoftDriver::broken(Mode::Strict, fault)), false).unwrap()
}

#[test]
fn a_gpu_that_copies_too_little_or_too_much_is_found_out() {
    for (fault, says) in [
        (Fault::ShortCopy, "1 of 777 bytes differs, the first at offset 776"),
        (Fault::LongCopy, "1 bytes past the end of the transfer were written, the first at 0 bytes behind it"),
    ] {
        let machine = broken(fault);
        for name in ["host->ce0->gpu0", "gpu0->ce0[pipelined]->host", "host->ce0[folded]->gpu0"] {
            let mut route = open(&machine, name, 4096).unwrap();
            let found = verify(&mut route, 777, 4, TIMEOUT).unwrap().expect(name);
            assert!(found.to_string().contains(says), "{fault:?}, {name}: {found}");
        }
    }
}

/// Each piece lacks a byte, or has one too many.
#[test]
fn a_gpu_that_copies_too_little_or_too_much_of_a_piece_is_found_out() {
    for (fault, pieces_differ) in [(Fault::ShortCopy, true), (Fault::LongCopy, false)] {
        let machine = broken(fault);
        for (name, pieces) in [("host->split->gpu0", 2), ("gpu0->batch[pieces=7]->host", 7), ("device->dma->gpu0", 1)] {
            let mut route = open(&machine, name, 9000).unwrap();
            match verify(&mut route, 9000, 4, TIMEOUT).unwrap().expect(name) {
                Wrong::Data(found) if pieces_differ => assert_eq!(found.differing, pieces, "{name}"),
                Wrong::PastTheEnd { touched: 1, first: 0 } if !pieces_differ => {}
                // The extra byte belongs to the next piece, which may have been copied before.
                Wrong::Data(found) if !pieces_differ && pieces > 1 => assert!(found.differing < pieces, "{name}"),
                other => panic!("{fault:?}, {name}: {other}"),
            }
        }
    }
}

#[test]
fn a_semaphore_that_never_comes_is_late() {
    let machine = broken(Fault::LostRelease { from: 2 });
    let mut route = open(&machine, "host->ce0->gpu0", 4096).unwrap();
    let mut transfer = route.prepare(4096).unwrap();
    transfer.submit().unwrap();
    let late = transfer.wait(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(late, Error::Late { bytes: 4096, after } if after >= Duration::from_millis(50)), "{late}");
    assert!(!transfer.poll().unwrap());
}

#[test]
fn a_channel_that_dies_is_an_error_with_its_number() {
    // The first two entries bind the class and answer; the third is the transfer.
    let machine = broken(Fault::DeadChannel { entry: 3, xid: 43 });
    for name in ["host->ce0->gpu0", "host->inline->gpu0"] {
        let mut route = open(&machine, name, 4096).unwrap();
        let mut transfer = route.prepare(100).unwrap();
        transfer.submit().unwrap();
        let dead = transfer.wait(TIMEOUT).unwrap_err();
        assert!(matches!(dead, Error::Gpu(gpu::Error::ChannelKilled(43))), "{name}: {dead}");
        assert!(matches!(transfer.poll(), Err(Error::Gpu(gpu::Error::ChannelKilled(43)))));
        assert!(matches!(transfer.submit(), Err(Error::Gpu(gpu::Error::ChannelKilled(43)))));
    }
    // Routes of the CPU alone still work.
    moves(&machine, "host->bar1->gpu0", 4096);
}

/// The first two entries of each channel bind its class and answer; the third is a piece.
#[test]
fn a_piece_whose_channel_dies_is_an_error_of_the_whole_transfer() {
    let machine = broken(Fault::DeadChannel { entry: 3, xid: 31 });
    for name in ["host->split->gpu0", "host->batch[pieces=8]->gpu0", "device->dma->gpu0", "device->staged->gpu0"] {
        let mut route = open(&machine, name, 64 * KIB).unwrap();
        let mut transfer = route.prepare(64 * KIB).unwrap();
        let dead = transfer.submit().and_then(|()| transfer.wait(TIMEOUT)).unwrap_err();
        assert!(matches!(dead, Error::Gpu(gpu::Error::ChannelKilled(31))), "{name}: {dead}");
        assert!(matches!(transfer.poll(), Err(Error::Gpu(gpu::Error::ChannelKilled(31)))), "{name}");
    }
}
