//! Copies by copy engine n, on doorbell's own channel. `ce0` copies one after another (NON_PIPELINED), `ce0[pipelined]`
//! copies may overlap earlier ones, and `ce0[folded]` has the release in the same LAUNCH_DMA as the copy.
//!
//! The `gpu` crate derives from the capabilities which engines run while kernels run, and which are on the graphics
//! runlist. Both kinds are `ceN` here. Engines on the graphics runlist can also be used from CUDA's own channel group
//! (`ce0[group=cuda]`).

use super::channel::{self, ARMED, CUDAS_GROUP, Own, TIMED};
use crate::buffer::Buffer;
use crate::ends::{Ends, between_gpus, both_ways, seat};
use crate::error::Error;
use crate::executor::{self, Transfer};
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{Executor, Memory, Spec, Word};
use gpu::{Armed, Channel, CopyMode, CopyRelease, Engine, Form, Prepared, Region};
use machine::Unavailable;

const PIPELINED: &str = "pipelined";
const FOLDED: &str = "folded";
/// Releases only the number, without the time.
const WORD: &str = "release=word";
/// The same, with a flush only for observers that read through the GPU.
const LOCAL: &str = "release=local";

pub(crate) const ENTRY: Entry = Entry {
    word: Word {
        name: "ce",
        numbered: true,
        options: &channel::with_options::<6, 12>([PIPELINED, FOLDED, ARMED, TIMED, WORD, LOCAL]),
    },
    about,
    list,
    check,
    open,
};

fn about(machine: &Machine, spec: &Spec) -> String {
    let engines = seat(machine, spec).ok().and_then(|seat| seat.copy_engines()).unwrap_or_default();
    let engine = engines.iter().find(|e| Some(e.number) == spec.executor.index);
    let kind = match engine {
        Some(engine) if engine.is_graphics() => ", which runs on graphics' runlist",
        Some(_) => ", which runs beside kernels",
        None => "",
    };
    let mode = match spec.executor.options.as_slice() {
        [PIPELINED] => "; copies may overlap",
        [FOLDED] => "; copy and release in one launch",
        [CUDAS_GROUP] => "; in CUDA's channel group",
        [TIMED] => "; it also says when it begins",
        _ => "",
    };
    format!("copy engine {}{kind}, on a channel of our own{mode}", spec.executor.index.unwrap_or(0))
}

fn list(machine: &Machine) -> Vec<String> {
    let mut names = Vec::new();
    let known = machine.copy_engines().map(|all| all.iter().map(|e| (e.number, e.is_graphics())).collect());
    for (engine, is_graphics) in known.unwrap_or(vec![(0, false)]) {
        let group: &[&str] = if is_graphics { &["[group=cuda]"] } else { &[] };
        for option in ["", "[pipelined]", "[folded]"].iter().chain(group) {
            names.extend(both_ways(machine, "host", &format!("ce{engine}{option}")));
        }
    }
    names.extend(between_gpus(machine, &format!("ce{}", machine.engine_between_gpus())));
    for host in ["host[wc]", "host[huge]", "host[node=0]"] {
        names.extend(both_ways(machine, host, "ce0"));
    }
    names
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    let machine = seat(machine, spec)?;
    if spec.executor.has(LOCAL) && matches!(spec.destination.memory, Memory::Host(_)) {
        return Err(Unavailable::new(
            "release=local says nothing about what is written to the host: choose release=word",
        ));
    }
    if spec.executor.has(WORD) && spec.executor.has(LOCAL) {
        return Err(Unavailable::new("there is one release at the end of a transfer: choose one"));
    }
    if spec.executor.has(TIMED) && release(&spec.executor) != CopyRelease::Timed {
        return Err(Unavailable::new("timed needs the release that writes the time: choose it or another release"));
    }
    channel::check(machine, spec)?;
    channel::engine(machine, spec.executor.index.unwrap_or(0))?;
    match (spec.executor.index, machine.copy_engines()) {
        (Some(n), Some(engines))
            if spec.executor.has(CUDAS_GROUP) && !engines.iter().any(|e| e.number == n && e.is_graphics()) =>
        {
            Err(Unavailable::new(format!(
                "ce{n} runs beside kernels, in groups of its own: CUDA's group has none of it"
            )))
        }
        _ if spec.executor.has(PIPELINED) && spec.executor.has(FOLDED) => {
            Err(Unavailable::new("pipelined and folded are two ways to say when a copy is done: choose one"))
        }
        _ => Ok(()),
    }
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let (engine, machine) = (Engine::Copy(spec.executor.index.unwrap_or(0)), seat(machine, spec)?);
    let channel = Channel::new(channel::space(machine, &spec.executor)?, engine, channel::options(&spec.executor))?;
    let (mode, release) = (mode(&spec.executor), release(&spec.executor));
    let (armed, timed) = (spec.executor.has(ARMED), spec.executor.has(TIMED));
    Ok(Box::new(CopyEngine { channel, mode, release, armed, timed }))
}

fn mode(executor: &Executor) -> CopyMode {
    match (executor.has(PIPELINED), executor.has(FOLDED)) {
        (true, _) => CopyMode::Pipelined,
        (_, true) => CopyMode::Folded,
        _ => CopyMode::Plain,
    }
}

fn release(executor: &Executor) -> CopyRelease {
    match (executor.has(WORD), executor.has(LOCAL)) {
        (true, _) => CopyRelease::Word,
        (_, true) => CopyRelease::LocalWord,
        _ => CopyRelease::Timed,
    }
}

/// The two ends of a copy of `bytes`.
fn regions(channel: &Channel, ends: &Ends<'_>, bytes: u64) -> Result<(Region, Region, u32), Error> {
    let bytes = channel::in_one_copy(bytes, "by the copy engine")?;
    // All of both buffers, because a transfer may be moved within them.
    let space = channel.space();
    Ok((ends.destination.region(space)?, ends.source.region(space)?, bytes))
}

struct CopyEngine {
    channel: Channel,
    mode: CopyMode,
    release: CopyRelease,
    armed: bool,
    timed: bool,
}

impl executor::Executor for CopyEngine {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        channel::reach(&self.channel, from, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        ends.check(bytes)?;
        let channel = &mut self.channel;
        let (to, from, bytes) = regions(channel, &ends, bytes)?;
        if self.armed {
            let armed = Armed::copy(channel, &to, &from, bytes, self.mode, self.release)?;
            return Ok(Box::new(Own::armed(armed, None, ends)));
        }
        let how = Form { mode: self.mode, release: self.release, begins: self.timed };
        let prepared = Prepared::copy(channel, &to, &from, bytes, how)?;
        Ok(Box::new(Own::new(channel, prepared, None, ends)))
    }
}
