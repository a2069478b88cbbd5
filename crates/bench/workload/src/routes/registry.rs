//! The list of routes.

use crate::buffer::{self, Buffer};
use crate::error::Error;
use crate::executor::Route;
use crate::machine::Machine;
use crate::routes;
use crate::routes::entry::{Entry, Found, Opened};
use crate::spec::{Memory, Spec, SyntaxError, Word};
use machine::Unavailable;

#[rustfmt::skip]
const ENTRIES: &[Entry] = &[
    routes::cuda::ENTRY,
    routes::cudart::ENTRY,
    routes::ce::ENTRY,
    routes::split::ENTRY,
    routes::batch::ENTRY,
    routes::inline::ENTRY,
    routes::bar1::ENTRY,
    routes::waiting::MESSAGE,
    routes::aperture::ENTRY,
    routes::dma::ENTRY,
    routes::staged::ENTRY,
    routes::sm::ENTRY,
    routes::waiting::RESIDENT,
    routes::auto::ENTRY,
];

/// Routes of before.
const GONE: [&str; 8] = ["zerocopy", "answered", "gpc", "clusters", "cluster", "warps", "answer", "store"];

/// A route that may be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// The executor in one line.
    pub about: String,
    /// Why it cannot be opened on this machine, as far as that is known without an attempt.
    pub unavailable: Option<Unavailable>,
}

/// The routes worth knowing on this machine, also those that it lacks.
pub fn names(machine: &Machine) -> Vec<Listed> {
    let mut listed = Vec::new();
    for entry in ENTRIES {
        for name in (entry.list)(machine) {
            // Every listed text parses: a test checks each entry.
            let Ok(spec) = parse(&name) else { continue };
            let (about, unavailable) = ((entry.about)(machine, &spec), check(machine, &spec).err());
            listed.push(Listed { name, about, unavailable });
        }
    }
    listed
}

/// Parses the text of a route.
///
/// # Errors
/// The mistake, its place, and what is allowed there.
pub fn parse(text: &str) -> Result<Spec, SyntaxError> {
    let words: Vec<Word> = ENTRIES.iter().map(|entry| entry.word).collect();
    Spec::parse(text, &words).map_err(|error| error.gone(&GONE))
}

/// The executor of a route in one line, even if the route cannot be opened.
///
/// # Errors
/// As [`parse`].
pub fn about(machine: &Machine, name: &str) -> Result<String, SyntaxError> {
    let spec = parse(name)?;
    Ok(entry(&spec).map_or_else(|_| String::new(), |entry| (entry.about)(machine, &spec)))
}

/// Opens a route by its text, with buffers for transfers of up to `capacity` bytes.
///
/// # Errors
/// [`Error::Syntax`] for a text that is not a route, [`Error::Unavailable`] where this machine has no such route or its
/// driver refuses one, or an error from the allocation of buffers.
pub fn open<'m>(machine: &'m Machine, name: &str, capacity: u64) -> Opened<'m> {
    let spec = parse(name)?;
    let executor = of_spec(machine, &spec)?;
    let room = executor.room(capacity)?;
    let opened = memories(machine, &spec, room).and_then(|[source, destination]| {
        Route::new(&spec.to_string(), source, executor, destination).map(|route| route.up_to(capacity))
    });
    opened.map_err(refused)
}

/// Allocates both memories of a route, with room for transfers of `room` bytes.
fn memories<'m>(machine: &'m Machine, spec: &Spec, room: u64) -> Result<[Buffer<'m>; 2], Error> {
    // A device on the bus does not reach every kind of host memory.
    let of_device = [spec.source, spec.destination].iter().any(|end| end.memory == Memory::Device);
    let new = if of_device { Buffer::for_device } else { Buffer::new };
    let source = new(machine, spec.source, room)?;
    let mut destination = new(machine, spec.destination, room)?;
    // After a CUDA copy from pageable memory, only CUDA's later work is sure to see the bytes. So only CUDA may read there.
    // (`auto` may choose such a copy.)
    let executor = spec.executor.name;
    let is_promised = source.is_pinned() || !(executor.starts_with("cuda") || executor == "auto");
    if is_promised {
        destination.read_directly();
    }
    Ok([source, destination])
}

/// Opens a route's executor, for the caller's memories. Only the kinds of the route's two ends matter.
///
/// # Errors
/// As [`open`].
pub fn executor<'m>(machine: &'m Machine, name: &str) -> Found<'m> {
    of_spec(machine, &parse(name)?)
}

pub(super) fn of_spec<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    check(machine, spec)?;
    (entry(spec)?.open)(machine, spec).map_err(refused)
}

fn entry(spec: &Spec) -> Result<&'static Entry, Unavailable> {
    let name = spec.executor.name;
    let found = ENTRIES.iter().find(|entry| entry.word.name == name);
    found.ok_or_else(|| Unavailable::new(format!("no executor is called {name}")))
}

/// Why this machine has no such route, as far as that is known without an attempt.
pub(super) fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    (entry(spec)?.check)(machine, spec)?;
    buffer::check(machine, spec.source)?;
    buffer::check(machine, spec.destination)
}

/// Turns what the driver refused while a route was opened into [`Unavailable`].
pub(crate) fn refused(error: Error) -> Error {
    match error {
        Error::Gpu(refused) if is_refusal(&refused) => Unavailable::new(refused.to_string()).into(),
        other => other,
    }
}

/// Whether the kernel driver, or what is known about it, does not provide something that the route needs.
fn is_refusal(error: &gpu::Error) -> bool {
    use gpu::Error::{Architecture, Driver, Group, Map, NoClass, NotPinnable, TooManyChannels};
    matches!(
        error,
        Architecture(_) | Driver(_) | Group(_) | Map { .. } | NoClass(_) | NotPinnable { .. } | TooManyChannels(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_on_which_channels_were_not_seen_lacks_the_route() {
        let error = refused(gpu::Error::Architecture("Ada (AD102 to AD107), ADA_COMPUTE_A".into()).into());
        assert!(matches!(&error, Error::Unavailable(why) if why.reason.contains("ADA_COMPUTE_A")), "{error}");
    }

    #[test]
    fn every_executor_is_registered_once() {
        let mut names: Vec<_> = ENTRIES.iter().map(|entry| entry.word.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ENTRIES.len());
    }
}
