//! The CUDA runtime's copies, with the calls that programs make: `cudaMemcpyAsync` on a stream and
//! `cudaStreamSynchronize`, or (sync) `cudaMemcpy`. Compared with `cuda`, whose calls are one library lower, this shows
//! what the runtime adds.
//!
//! Done means the same as for `cuda`.

use super::call::Call;
use super::cuda::{Side, side_at};
use crate::ends::{Direction, Ends, both_ways};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{Spec, Word};
use cuda::runtime::{Runtime, Stream};
use machine::Unavailable;

const SYNC: &str = "sync";

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "cudart", numbered: false, options: &[SYNC] },
    about: |_, _| "the CUDA runtime's copies, on a stream or (sync) by the one call that also waits".into(),
    list,
    check,
    open,
};

fn list(machine: &Machine) -> Vec<String> {
    let mut names = Vec::new();
    for host in ["host", "host[pageable]"] {
        for cudart in ["cudart", "cudart[sync]"] {
            names.extend(both_ways(machine, host, cudart));
        }
    }
    names
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    machine.context()?;
    machine.runtime().map(|_| ())
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let runtime = machine.runtime()?;
    let device = machine.context()?.device().ordinal();
    let start = |error: cuda::Error| Unavailable::new(format!("the CUDA runtime does not start: {error}"));
    runtime.set_device(device).map_err(start)?;
    let stream = Stream::new(runtime).map_err(start)?;
    Ok(Box::new(Copies { stream, runtime, sync: spec.executor.has(SYNC) }))
}

struct Copies {
    stream: Stream,
    runtime: Runtime,
    sync: bool,
}

impl Executor for Copies {
    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        ends.check(bytes)?;
        let aim = move |ends: &Ends<'r>, at| side_at(*ends, bytes, at);
        if self.sync {
            let runtime = self.runtime;
            let call = move |Side { host, device, direction }: &mut Side<'r>| match direction {
                // SAFETY: the host buffer has the slice's length, and the call no longer uses it when it returns.
                Direction::ToGpu => Ok(unsafe { runtime.upload_now(*device, *host) }?),
                // SAFETY: as above.
                Direction::FromGpu => Ok(unsafe { runtime.download_now(*host, *device) }?),
            };
            return Ok(Box::new(Call::new(ends, bytes, aim, call)?));
        }
        let stream = &self.stream;
        let call = move |Side { host, device, direction }: &mut Side<'r>| match direction {
            // SAFETY: the host buffer has the slice's length; the transfer borrows both, and waits for the stream when it is
            // dropped.
            Direction::ToGpu => Ok(unsafe { stream.upload(*device, *host) }?),
            // SAFETY: as above.
            Direction::FromGpu => Ok(unsafe { stream.download(*host, *device) }?),
        };
        Ok(Box::new(Call::new(ends, bytes, aim, call)?.within(stream)))
    }
}
