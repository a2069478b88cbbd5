//! GPU memory, pinned memory, and pageable memory that is pinned afterwards.

use super::{Calls, Measured, Take};
use crate::entry::{Call, Entry, PLAIN, Result as Open};
use crate::{Error, Machine, Unavailable, Wanted};
use cuda::{Context, DeviceBuffer, PinnedBuffer, Registration};

/// The size where none is given.
const BYTES: u64 = 64 << 20;
/// A virtual machine's memory is allocated by the hypervisor on first use, which would be measured otherwise.
const TOUCHED: &str = "touched";
const PAGE: usize = 4096;

pub(crate) const MALLOC: Entry = Entry {
    name: "malloc",
    form: "malloc",
    about: "cuMemAlloc; freed before the next, untimed",
    bytes: BYTES,
    open: |machine, _, wanted| {
        let (context, bytes) = (machine.context()?, size(wanted)?);
        let about = format!("{} ({bytes} bytes)", MALLOC.about);
        Ok(Box::new(Measured::taking(Calls(move || Ok(DeviceBuffer::new(context, bytes)?)), about)))
    },
    ..PLAIN
};

pub(crate) const HOST_ALLOC: Entry = Entry {
    name: "hostalloc",
    form: "hostalloc(touched)",
    about: "cuMemHostAlloc; freed before the next, untimed; touched: the same amount of memory was used and freed beforehand, \
            so that a virtual machine already has it",
    bytes: BYTES,
    words: &[TOUCHED],
    open: open_host_allocs,
    ..PLAIN
};

pub(crate) const HOST_REGISTER: Entry = Entry {
    name: "hostregister",
    form: "hostregister",
    about: "cuMemHostRegister of memory that was written before; unregistered before the next, untimed",
    bytes: BYTES,
    open: |machine, _, wanted| {
        let call = registers(machine, wanted)?;
        let about = format!("{} ({} bytes)", HOST_REGISTER.about, call.bytes);
        Ok(Box::new(Measured::taking(call, about)))
    },
    ..PLAIN
};

pub(crate) const HOST_UNREGISTER: Entry = Entry {
    name: "hostunregister",
    form: "hostunregister",
    about: "cuMemHostUnregister; registered again before the next, untimed",
    bytes: BYTES,
    open: |machine, _, wanted| {
        let call = registers(machine, wanted)?;
        let about = format!("{} ({} bytes)", HOST_UNREGISTER.about, call.bytes);
        Ok(Box::new(Measured::giving(call, about)))
    },
    ..PLAIN
};

fn size(wanted: &Wanted) -> Result<usize, Error> {
    usize::try_from(wanted.bytes).map_err(|_| Error::Memory { bytes: wanted.bytes })
}

fn open_host_allocs<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    let (context, bytes) = (machine.context()?, size(wanted)?);
    if call.has(TOUCHED) {
        // Twice as much: the kernel need not return exactly the same pages.
        drop(written(2 * bytes)?);
    }
    let about = format!("cuMemHostAlloc of {bytes} bytes; freed before the next, untimed");
    Ok(Box::new(Measured::taking(Calls(move || Ok(PinnedBuffer::as_given(context, bytes)?)), about)))
}

/// Memory of which every page has been written, as words.
fn written(bytes: usize) -> Result<Vec<u64>, Error> {
    let mut memory: Vec<u64> = Vec::new();
    memory.try_reserve_exact(bytes.div_ceil(8)).map_err(|_| Error::Memory { bytes: bytes as u64 })?;
    // Not zero: for untouched zeros the kernel maps no page.
    memory.resize(bytes.div_ceil(8), 0x5a5a_5a5a_5a5a_5a5a);
    std::hint::black_box(memory.as_slice());
    Ok(memory)
}

fn registers<'m>(machine: &'m Machine, wanted: &Wanted) -> Result<Registers<'m>, Error> {
    let (context, bytes) = (machine.context()?, size(wanted)?);
    if bytes % PAGE != 0 {
        return Err(
            Unavailable::new(format!("{bytes} bytes to be registered: whole pages of {PAGE} bytes can be")).into()
        );
    }
    Ok(Registers { context, pages: written(bytes + PAGE)?, bytes })
}

struct Registers<'m> {
    context: &'m Context,
    /// One page more than is registered, so that the registered part can begin on a page.
    pages: Vec<u64>,
    bytes: usize,
}

impl<'m> Take for Registers<'m> {
    type Held = Registration<'m>;

    #[inline]
    fn take(&mut self) -> Result<Registration<'m>, Error> {
        let start = self.pages.as_mut_ptr().cast::<u8>();
        let at = start.wrapping_add(start.align_offset(PAGE));
        // SAFETY: this many bytes after the first page boundary belong to the vector, which is neither changed nor dropped before the registration:
        // `Taken` holds the registration and borrows this.
        Ok(unsafe { Registration::new(self.context, at, self.bytes) }?)
    }
}
