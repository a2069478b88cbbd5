//! What takes turns on the measuring thread: CUDA's calls, and our copies, which take no lock.

use super::cell::{Cell, Memory};
use crate::calls::{graph, setup};
use copy::{Error, Machine, Route};
use lab::launch;

/// What is opened, or why it is not.
pub(super) struct Measured<'m> {
    pub name: String,
    pub about: String,
    pub own: bool,
    pub bytes: u64,
    pub route: Result<Box<dyn Route + 'm>, Error>,
    /// It moved wrong data.
    pub wrong: Option<String>,
}

/// Of our copies: what fits into one submission of each route.
const OWN_BYTES: u64 = 4 << 10;
/// The sizes of [`Cell::Sizes`]: powers of four from 4 KiB to 64 MiB.
const SIZES: [u64; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// What a cell measures.
pub(super) fn of<'m>(machine: &'m Machine, cell: &Cell) -> Vec<Measured<'m>> {
    if *cell == Cell::Sizes {
        return sizes(machine);
    }
    if cell.is_setup() {
        let one = |kind: setup::Kind| measured_by_cuda(kind.name(), kind.about().into(), 0, setup::open(machine, kind));
        return setup::Kind::ALL.map(one).into();
    }
    let launch_about = "cuLaunchKernel of a kernel of one thread";
    let graph_about = format!("cuGraphLaunch of {} such kernels", graph::KERNELS);
    let mut all = vec![
        measured_by_cuda(launch::NAME, launch_about.into(), launch::BYTES, launch::open(machine)),
        measured_by_cuda(graph::NAME, graph_about, launch::BYTES, graph::open(machine)),
    ];
    let copy = copy::open(machine, &by_cuda(Memory::Pinned, machine.index()), OWN_BYTES);
    all.push(measured_by_cuda(
        "copy",
        format!("cuMemcpyHtoDAsync of {}, pinned: what ours does", size(OWN_BYTES)),
        OWN_BYTES,
        copy,
    ));
    all.extend(own_names(machine).into_iter().map(|name| {
        let route = copy::open(machine, &name, OWN_BYTES);
        let name = format!("{name} {}", size(OWN_BYTES));
        Measured {
            name,
            about: "prepared, through a channel of ours".into(),
            own: true,
            bytes: OWN_BYTES,
            route,
            wrong: None,
        }
    }));
    all
}

fn sizes(machine: &Machine) -> Vec<Measured<'_>> {
    let gpu = machine.index();
    let mut all = Vec::new();
    for memory in [Memory::Pinned, Memory::Pageable] {
        for bytes in SIZES {
            let route = copy::open(machine, &by_cuda(memory, gpu), bytes);
            let kind = if memory == Memory::Pinned { "pinned" } else { "pageable" };
            all.push(measured_by_cuda(
                &format!("copy {} {kind}", size(bytes)),
                "cuMemcpyHtoDAsync".into(),
                bytes,
                route,
            ));
        }
    }
    all
}

fn measured_by_cuda<'m>(
    name: &str,
    about: String,
    bytes: u64,
    route: Result<Box<dyn Route + 'm>, Error>,
) -> Measured<'m> {
    Measured { name: name.into(), about, own: false, bytes, route, wrong: None }
}

/// A copy of CUDA's to the GPU, as a route.
pub(super) fn by_cuda(memory: Memory, gpu: u32) -> String {
    match memory {
        Memory::Pinned => format!("host->cuda->gpu{gpu}"),
        Memory::Pageable => format!("host[pageable]->cuda->gpu{gpu}"),
    }
}

/// The same on a GPU that has no CUDA, in software.
pub(super) fn by_engine(memory: Memory, gpu: u32) -> String {
    match memory {
        Memory::Pinned => format!("host->ce0->gpu{gpu}"),
        Memory::Pageable => format!("host[pageable]->ce0->gpu{gpu}"),
    }
}

/// A copy engine that runs beside kernels, and inline copies. Of the engines the second: CUDA copies to the GPU on the first.
fn own_names(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    let mut engines: Vec<u32> =
        machine.copy_engines().unwrap_or_default().iter().filter(|e| e.is_asynchronous()).map(|e| e.number).collect();
    engines.sort_unstable();
    let engine = engines.get(1).or(engines.first()).copied().unwrap_or(0);
    // In a channel group of its own an inline copy waits for the end of the time slice of CUDA's.
    let inline = if machine.context().is_ok() { "inline[group=cuda]" } else { "inline" };
    vec![format!("host->ce{engine}->gpu{gpu}"), format!("host->{inline}->gpu{gpu}")]
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}
