//! What a program with host buffers calls ([`crate::device::transfers`]): it moves its device's bytes into a buffer and on to the GPU, or back. One
//! sample is both calls; in the mode that writes directly to the GPU, the second call finds the bytes there.

use crate::device::transfers::{Frame, Mode, Settings, Transfers};
use crate::entry::{Call, Entry, PLAIN, Result as Open};
use crate::spec::{End, Memory};
use crate::{Buffer, Difference};
use crate::{Checks, Error, Machine, Opened, Subject, Unavailable, Waiting, Wanted, Wrong};
use std::time::Duration;

/// Straight to the GPU.
const PINNED: &str = "pinned";
/// To the device.
const WRITE: &str = "write";

pub(crate) const TRANSFERS: Entry = Entry {
    name: "transfers",
    form: "transfers(pinned,write)",
    about: "a device's bytes into a buffer and on to the GPU, by the calls of a program with host buffers; pinned: the same calls, directly to \
            the GPU; write: from the GPU to the device",
    bytes: 1 << 20,
    words: &[PINNED, WRITE],
    open,
    ..PLAIN
};

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    if wanted.random_addresses || wanted.sweep.is_some() {
        return Err(
            Unavailable::new("the calls of a program with host buffers are made one at a time, at one place").into()
        );
    }
    let bytes = wanted.bytes;
    let mode = if call.has(PINNED) { Mode::GpuPinned } else { Mode::Host };
    let own = Buffer::new(machine, End { memory: Memory::Device, offset: 0 }, bytes)?;
    let mut transfers = Transfers::new(machine, Settings { mode, gpu: machine.index() }, own)?;
    let frame = transfers.frame(bytes)?;
    // With another mode than requested, it would be another subject.
    if transfers.mode() != mode {
        return Err(Unavailable::new(transfers.about()).into());
    }
    Ok(Box::new(Calls { transfers, frame, bytes, write: call.has(WRITE), number: 0, fresh: wanted.fresh_data }))
}

struct Calls<'m> {
    transfers: Transfers<'m>,
    frame: Frame,
    bytes: u64,
    write: bool,
    number: u64,
    /// Before each call.
    fresh: bool,
}

impl Calls<'_> {
    /// Both calls.
    fn call(&mut self) -> Result<(), Error> {
        let Calls { transfers, frame, bytes, write, .. } = self;
        if *write {
            transfers.download(*frame, *bytes)?;
            transfers.write(*frame, 0, *bytes)
        } else {
            transfers.read(*frame, 0, *bytes)?;
            transfers.upload(*frame, *bytes)
        }
    }

    /// The buffers from which and to which the bytes go.
    fn ends(&self) -> Result<(&Buffer<'_>, &Buffer<'_>), Error> {
        let (own, gpu) = (self.transfers.own(), self.transfers.gpu(self.frame)?);
        Ok(if self.write { (gpu, own) } else { (own, gpu) })
    }

    /// Writes other bytes than before at the source, and their complement at the destination.
    fn renew(&mut self, seed: u64) -> Result<(), Error> {
        self.number = seed;
        let sent = content(seed, self.bytes);
        let none: Vec<u8> = sent.iter().map(|byte| !byte).collect();
        let (from, to) = self.ends()?;
        from.write(0, &sent)?;
        to.write(0, &none)
    }

    fn compare(&self) -> Result<Option<Wrong>, Error> {
        let mut found = vec![0; self.bytes as usize];
        self.ends()?.1.read(0, &mut found)?;
        Ok(Difference::between(&content(self.number, self.bytes), &found, None).map(Wrong::Data))
    }
}

/// Bytes of which no two pages are alike.
fn content(seed: u64, bytes: u64) -> Vec<u8> {
    let mut all = vec![0; bytes as usize];
    fastrand::Rng::with_seed(seed).fill(&mut all);
    all
}

impl Opened for Calls<'_> {
    fn about(&self) -> String {
        format!("the calls of a program for host buffers, {}", self.transfers.about())
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        self.renew(seed)?;
        Ok(Box::new(Called { calls: self, seed, done: false }))
    }
}

struct Called<'r, 'm> {
    calls: &'r mut Calls<'m>,
    seed: u64,
    done: bool,
}

impl Subject for Called<'_, '_> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    fn renew(&mut self) -> Result<(), Error> {
        if self.calls.fresh {
            self.seed = self.seed.wrapping_add(1);
            self.calls.renew(self.seed)?;
        }
        Ok(())
    }

    fn fire(&mut self) -> Result<(), Error> {
        self.calls.call()?;
        self.done = true;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.done)
    }

    fn wait(&mut self, _: Duration) -> Result<(), Error> {
        if self.done { Ok(()) } else { Err(Error::Idle) }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        self.calls.compare()
    }
}
