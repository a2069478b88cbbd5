//! Bytes in the command stream: `inline`, on doorbell's own graphics channel, to GPU memory only.
//!
//! A data header counts to 8,191 words (13 bits), 32,764 bytes. For more, `inline` puts several data headers after one
//! LAUNCH_DMA, whose LINE_LENGTH_IN has 32 bits; `inline[split]` puts a LAUNCH_DMA before each. Each submission copies
//! the source into the stream, so its time includes that. `inline[group=cuda]` uses a channel in CUDA's own channel
//! group.

use super::channel::{self, ARMED, CUDAS_GROUP, Own, TIMED};
use crate::buffer::Buffer;
use crate::ends::{Direction, Ends};
use crate::error::Error;
use crate::executor::{self, Transfer};
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{Executor, Spec, Word};
use gpu::{Armed, Channel, Engine, Form, InlineMode, InlineRelease, Prepared};
use machine::Unavailable;

const SPLIT: &str = "split";
/// What signals that the bytes have arrived, if not a second inline copy after them.
const RELEASES: [(&str, InlineRelease); 4] = [
    ("release=engine", InlineRelease::Engine),
    ("release=host", InlineRelease::Host),
    ("release=word", InlineRelease::EngineWord),
    ("release=execute", InlineRelease::Execute),
];
/// A GPFIFO entry counts to 2^21 words; two of the largest transfers stay well below that.
const MAX_BYTES: u64 = 4 << 20;

pub(crate) const ENTRY: Entry = Entry {
    word: Word {
        name: "inline",
        numbered: false,
        options: &channel::with_options::<7, 13>([
            SPLIT,
            ARMED,
            TIMED,
            RELEASES[0].0,
            RELEASES[1].0,
            RELEASES[2].0,
            RELEASES[3].0,
        ]),
    },
    about,
    list,
    check,
    open,
};

fn about(_: &Machine, spec: &Spec) -> String {
    let place = if spec.executor.has(CUDAS_GROUP) { " in CUDA's channel group" } else { "" };
    format!(
        "data in the command stream of a graphics channel of our own{place}, and a number behind them to the host; split: a \
         launch for each 31 KiB; release: who says that they are there; armed: waits in the channel, and holds the engine; timed: the engine says when it begins \
         and ends"
    )
}

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    vec![
        format!("host->inline->gpu{gpu}"),
        format!("host->inline[split]->gpu{gpu}"),
        format!("host->inline[group=cuda]->gpu{gpu}"),
        format!("host[pageable]->inline->gpu{gpu}"),
        format!("gpu{gpu}->inline->host"),
    ]
}

fn release(executor: &Executor) -> InlineRelease {
    let chosen = RELEASES.iter().find(|(option, _)| executor.has(option));
    // The default writes no time.
    let default = if executor.has(TIMED) { InlineRelease::Engine } else { InlineRelease::default() };
    chosen.map_or(default, |(_, release)| *release)
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    if RELEASES.iter().filter(|(option, _)| spec.executor.has(option)).count() > 1 {
        return Err(Unavailable::new("there is one release at the end of a transfer: choose one"));
    }
    if spec.executor.has(TIMED) && !matches!(release(&spec.executor), InlineRelease::Engine | InlineRelease::Host) {
        return Err(Unavailable::new("timed needs a release that writes the time: release=engine or release=host"));
    }
    channel::not_both(&spec.executor)?;
    match Direction::of(machine, spec)? {
        Direction::ToGpu => channel::space(machine, &spec.executor).map(drop),
        Direction::FromGpu => {
            Err(Unavailable::new("the inline copy's data travels in the command stream, there is none from GPU memory"))
        }
    }
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let space = channel::space(machine, &spec.executor)?;
    let channel = Channel::new(space, Engine::Graphics, channel::options(&spec.executor))?;
    let mode = if spec.executor.has(SPLIT) { InlineMode::Launches } else { InlineMode::Headers };
    let (release, armed) = (release(&spec.executor), spec.executor.has(ARMED));
    Ok(Box::new(Inline { channel, mode, release, armed, timed: spec.executor.has(TIMED) }))
}

struct Inline {
    channel: Channel,
    mode: InlineMode,
    release: InlineRelease,
    armed: bool,
    timed: bool,
}

impl executor::Executor for Inline {
    fn reach(&mut self, _: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        to.region(self.channel.space()).map(drop)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        ends.check(bytes)?;
        if bytes > MAX_BYTES {
            let reason = format!("{bytes} bytes in the command stream: 4 MiB at most go in one submission");
            return Err(Unavailable::new(reason).into());
        }
        let source = ends.source.host_bytes(0, bytes)?;
        // All of it, because a transfer may be moved within it.
        let destination = &ends.destination.region(self.channel.space())?;
        let (channel, bytes) = (&mut self.channel, bytes as u32);
        if self.armed {
            let armed = Armed::inline(channel, destination, bytes, self.mode, self.release)?;
            return Ok(Box::new(Own::armed(armed, Some(source), ends)));
        }
        let how = Form { mode: self.mode, release: self.release, begins: self.timed };
        let prepared = Prepared::inline(channel, destination, bytes, how)?;
        Ok(Box::new(Own::new(channel, prepared, Some(source), ends)))
    }
}
