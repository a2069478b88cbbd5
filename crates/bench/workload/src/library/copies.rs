//! A copy to the GPU as a program makes it: prepared once, then submitted and waited for. C and Python do that with libdoorbell's functions.
//! For comparison, Python also does it with CUDA.

use super::python::{Prepared, Python};
use super::{C, Caller, PYTHON, Session, check, doorbell, is_done, wait};
use crate::entry::{Call, Entry, PLAIN, Result as Open};
use crate::spec::{self, End};
use crate::{Buffer, Difference};
use crate::{Checks, Error, Machine, Opened, Subject, Unavailable, Waiting, Wanted, Wrong};
use ::doorbell::*;
use cuda::{PinnedBuffer, Stream};
use std::time::Duration;

const POLLED: &str = "polled";
/// The polled word has a separate cache line.
const LINE: usize = 64;

pub(crate) const COPY: Entry = Entry {
    name: "copy",
    form: "copy(polled,c,python=doorbell|cuda)",
    about: "a copy from pinned host memory to the GPU: by libdoorbell's functions, prepared once, from C (c, or nothing) or from Python; python=cuda: \
            cuMemcpyHtoDAsync and cuStreamSynchronize, called from Python by ctypes; polled: the stream writes a word after the copy, which Python polls",
    bytes: 4096,
    words: &[POLLED, C],
    values: &[PYTHON],
    open,
    ..PLAIN
};

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    let bytes = usize::try_from(wanted.bytes).map_err(|_| Error::Memory { bytes: wanted.bytes })?;
    let caller = Caller::of(call)?.unwrap_or(Caller::C);
    let polled = call.has(POLLED);
    if polled && caller != Caller::PythonByCuda {
        return Err(Unavailable::new("doorbell_wait always polls a word: polled is for python=cuda").into());
    }
    Ok(Box::new(Copies::new(machine, caller, bytes, polled)?))
}

struct Copies<'m> {
    // Declared before the memory that it names and needs.
    by: By,
    _stream: Option<(Stream<'m>, PinnedBuffer<'m>)>,
    _session: Option<Session>,
    memory: Memory<'m>,
    bytes: usize,
    about: String,
}

enum By {
    C(Prepaid),
    Python(Prepared),
}

/// What C has prepared.
struct Prepaid {
    transfer: u64,
    buffers: [u64; 2],
    /// The ticket of the last submission.
    ticket: u64,
}

impl Drop for Prepaid {
    fn drop(&mut self) {
        doorbell_transfer_free(doorbell(), self.transfer);
        for buffer in self.buffers {
            doorbell_buffer_free(doorbell(), buffer);
        }
    }
}

/// Both memories. With CUDA they are CUDA's, as in a program; else they are doorbell's, which are freed with the prepared copy.
enum Memory<'m> {
    Cuda { host: PinnedBuffer<'m>, device: Box<Buffer<'m>> },
    Own { host: *mut u8, device: *const u8 },
}

impl Memory<'_> {
    fn host(&self) -> *mut u8 {
        match self {
            Memory::Cuda { host, .. } => host.as_ptr(),
            Memory::Own { host, .. } => *host,
        }
    }

    /// What the GPU has.
    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        match self {
            Memory::Cuda { device, .. } => device.read(0, into)?,
            // SAFETY: memory of this many bytes, mapped for the CPU, and no copy is in flight.
            Memory::Own { device, .. } => unsafe { device.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) },
        }
        Ok(())
    }
}

impl<'m> Copies<'m> {
    fn new(machine: &'m Machine, caller: Caller, bytes: usize, polled: bool) -> Result<Copies<'m>, Error> {
        let cudas = match machine.context() {
            Ok(context) => {
                let end = End { memory: spec::Memory::Gpu(machine.index()), offset: 0 };
                let (host, mut device) = (PinnedBuffer::new(context, bytes)?, Buffer::new(machine, end, bytes as u64)?);
                device.read_directly();
                Some((context, host, device))
            }
            Err(why) if caller == Caller::PythonByCuda => return Err(why.into()),
            Err(_) => None,
        };
        let places = cudas.as_ref().map_or((0, 0), |(_, host, device)| (host.as_ptr() as u64, device.va()));
        let stream = match (caller, &cudas) {
            (Caller::PythonByCuda, Some((context, ..))) => {
                Some((Stream::new(context)?, PinnedBuffer::new(context, LINE)?))
            }
            _ => None,
        };
        let session = if caller == Caller::PythonByCuda { None } else { Some(Session::open(machine)?) };
        let (by, own, about) = match caller {
            Caller::C => {
                let (prepared, own) = Prepaid::new(places, bytes)?;
                (
                    By::C(prepared),
                    own,
                    "doorbell_transfer_async and doorbell_wait of a prepared copy, from C".to_owned(),
                )
            }
            Caller::Python | Caller::PythonByCuda => {
                let python = Python::of_thread()?;
                let (host, device) = places;
                let text = match &stream {
                    Some((stream, word)) => {
                        let (stream, word) =
                            (stream.handle() as usize, if polled { word.as_ptr() as usize } else { 0 });
                        format!("copy_by_cuda({host}, {device}, {bytes}, {stream}, {word})")
                    }
                    None => format!("copy_by_doorbell({}, {host}, {device}, {bytes})", doorbell() as usize),
                };
                let tuple = python.tuple(&text)?;
                let prepared = Prepared::of(&tuple)?;
                let own = if cudas.is_none() { (tuple.number(3)?, tuple.number(4)?) } else { (0, 0) };
                let calls = match (&stream, polled) {
                    (None, _) => "submit() and wait() of a prepared copy of the package doorbell",
                    (Some(_), false) => "cuMemcpyHtoDAsync and cuStreamSynchronize, called by ctypes",
                    (Some(_), true) => {
                        "cuMemcpyHtoDAsync and cuStreamWriteValue32, called by ctypes, and a loop that polls the word"
                    }
                };
                (By::Python(prepared), own, format!("{calls}, from Python {}", python.version))
            }
        };
        let memory = match cudas {
            Some((_, host, device)) => Memory::Cuda { host, device: Box::new(device) },
            None => Memory::Own { host: own.0 as *mut u8, device: own.1 as *const u8 },
        };
        Ok(Copies { by, _stream: stream, _session: session, memory, bytes, about })
    }
}

impl Prepaid {
    /// Also returns the addresses of the memory that doorbell allocates for each address that is 0.
    fn new((host, device): (u64, u64), bytes: usize) -> Result<(Prepaid, (u64, u64)), Error> {
        let mut prepared = Prepaid { transfer: 0, buffers: [0; 2], ticket: 0 };
        let mut own = [std::ptr::null_mut(); 2];
        for (n, (at, place)) in [(host, DOORBELL_HOST), (device, DOORBELL_VIDEO)].into_iter().enumerate() {
            let buffer = &mut prepared.buffers[n];
            // SAFETY: this many bytes are there; the calls write a handle and an address.
            check(unsafe {
                match at {
                    0 => doorbell_buffer_create(doorbell(), place, bytes, buffer, &mut own[n]),
                    at => doorbell_buffer_register(doorbell(), at as *const _, bytes, buffer),
                }
            })?;
        }
        let [from, to] = prepared.buffers;
        // SAFETY: writes a handle.
        check(unsafe { doorbell_transfer_create(doorbell(), to, 0, from, 0, bytes as u64, &mut prepared.transfer) })?;
        Ok((prepared, (own[0] as u64, own[1] as u64)))
    }
}

impl Opened for Copies<'_> {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let host = self.memory.host();
        if host.is_null() {
            return Err(Unavailable::new("the CPU does not reach the memory").into());
        }
        // SAFETY: this many bytes of host memory. Only copies of this subject read it, and none is in flight while it is written.
        let source = unsafe { std::slice::from_raw_parts_mut(host, self.bytes) };
        fastrand::Rng::with_seed(seed).fill(source);
        Ok(Box::new(Moving {
            by: &mut self.by,
            memory: &self.memory,
            source,
            found: vec![0; self.bytes],
            state: seed | 1,
        }))
    }
}

struct Moving<'r, 'm> {
    by: &'r mut By,
    memory: &'r Memory<'m>,
    source: &'r mut [u8],
    found: Vec<u8>,
    state: u64,
}

/// Bytes that change at the start, in the middle and at the end, as in routes.
const STAMP: usize = 8;

impl Subject for Moving<'_, '_> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    fn renew(&mut self) -> Result<(), Error> {
        let length = self.source.len();
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let middle = (self.state >> 16) as usize % length.saturating_sub(STAMP).max(1);
        for at in [0, middle, length.saturating_sub(STAMP)] {
            let end = (at + STAMP).min(length);
            let new = self.state.to_le_bytes();
            self.source[at..end].copy_from_slice(&new[..end - at]);
        }
        Ok(())
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        match self.by {
            // SAFETY: writes a ticket.
            By::C(prepared) => check(unsafe {
                doorbell_transfer_async(doorbell(), prepared.transfer, std::ptr::null(), &mut prepared.ticket)
            }),
            By::Python(prepared) => prepared.fire.call(),
        }
    }

    fn poll(&mut self) -> Result<bool, Error> {
        match self.by {
            By::C(prepared) => is_done(prepared.ticket),
            By::Python(prepared) => prepared.wait.call().map(|()| true),
        }
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        match self.by {
            By::C(prepared) => wait(prepared.ticket, timeout, self.source.len() as u64),
            By::Python(prepared) => prepared.wait.call(),
        }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        self.memory.read(&mut self.found)?;
        Ok(Difference::between(self.source, &self.found, None).map(Wrong::Data))
    }
}
