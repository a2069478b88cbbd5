//! What is created and destroyed while transfers are in flight: channels, and CUDA memory that is pinned, unpinned and freed during doorbell's
//! transfers.

use super::own::{every_name, exchange};
use super::{Unit, Units, size};
use crate::entry::{Call, Entry, Result as Open};
use crate::{Error, Machine, Unavailable, Wanted, Wrong};
use copy::Difference;
use cuda::{Context, DeviceBuffer};
use gpu::{Channel, ChannelOptions, CopyMode, Engine, Memory, Prepared, Ticket};
use std::sync::Arc;
use std::time::Duration;

const CHANNELS: &str = "channels";
const PINS: &str = "pins";
const SMALL_BLOCKS: &str = "small";

pub(crate) const CHURN: Entry = Entry {
    name: "churn",
    form: "churn(channels,pins,small)",
    about: "channels are created, used and dropped; CUDA memory is unpinned or freed during doorbell's transfers (pins), also in \
            small blocks, which CUDA gives out again (small); all three if none is named; all bytes compared",
    bytes: ROOM,
    number: None,
    words: &[CHANNELS, PINS, SMALL_BLOCKS],
    one_word: false,
    values: &[],
    open,
};

/// Bytes of short-lived routes' buffers.
const ROOM: u64 = 64 << 10;
/// The largest block that shares a mapping with others: CUDA frees it without a driver call.
const SMALL: usize = 64 << 10;
/// The driver makes a separate allocation for each block of this size; CUDA cuts smaller ones out of the memory that it keeps.
const LARGE: usize = 4 << 20;
/// How many allocations are made to get a small block's address again.
const TRIES: usize = 64;
/// Longer than any transfer takes that ever completes.
const PATIENCE: Duration = Duration::from_secs(30);

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    let asked = |word| call.words.is_empty() || call.has(word);
    let mut kinds: Vec<Kind<'m>> = Vec::new();
    if asked(CHANNELS) {
        machine.space()?;
        let capacity = if wanted.bytes == 0 { ROOM } else { size(wanted) };
        kinds.push(Kind::Channels(Channels { machine, names: every_name(machine), capacity }));
    }
    if asked(PINS) {
        kinds.push(Kind::Pins(Blocks::new(machine, LARGE)?));
    }
    if asked(SMALL_BLOCKS) {
        kinds.push(Kind::Small(Blocks::new(machine, SMALL)?));
    }
    Ok(Box::new(Units(Churn { kinds })))
}

enum Kind<'m> {
    Channels(Channels<'m>),
    Pins(Blocks<'m>),
    Small(Blocks<'m>),
}

struct Churn<'m> {
    kinds: Vec<Kind<'m>>,
}

impl Unit for Churn<'_> {
    fn about(&self) -> String {
        let kinds = self.kinds.iter().map(|kind| match kind {
            Kind::Channels(_) => "channels made and dropped",
            Kind::Pins(_) => "memory unpinned and freed in flight",
            Kind::Small(_) => "small blocks freed in flight and given out again",
        });
        kinds.collect::<Vec<_>>().join("; ")
    }

    fn work(&mut self, random: &mut fastrand::Rng) -> Result<Option<Wrong>, Error> {
        let n = random.usize(0..self.kinds.len());
        match &mut self.kinds[n] {
            Kind::Channels(channels) => channels.work(random),
            Kind::Pins(blocks) => blocks.large(random),
            Kind::Small(blocks) => blocks.small(random),
        }
    }
}

struct Channels<'m> {
    machine: &'m Machine,
    names: Vec<String>,
    capacity: u64,
}

impl Channels<'_> {
    /// Opens a route of any kind, uses it, and gives it back, with its channel and its buffers.
    fn work(&mut self, random: &mut fastrand::Rng) -> Result<Option<Wrong>, Error> {
        while !self.names.is_empty() {
            let n = random.usize(0..self.names.len());
            match copy::open(self.machine, &self.names[n], self.capacity) {
                Ok(mut route) => {
                    for _ in 0..random.u32(1..=3) {
                        let wrong = exchange(&mut route, random)?;
                        if wrong.is_some() {
                            return Ok(wrong);
                        }
                    }
                    return Ok(None);
                }
                // Not on this machine: another one is.
                Err(Error::Unavailable(_)) => drop(self.names.swap_remove(n)),
                Err(error) => return Err(error),
            }
        }
        Err(Unavailable::new("none of doorbell's routes can be opened").into())
    }
}

/// How memory is removed during a transfer.
#[derive(Clone, Copy, Debug)]
enum Going {
    /// It is unpinned while the transfer may be in flight.
    Unpinned,
    /// CUDA frees it while the transfer may be in flight, and it is unpinned afterwards.
    Freed,
    /// In the correct order: waited for, unpinned, freed.
    InOrder,
}

/// Blocks of CUDA memory, and a separate channel that copies from or to them.
struct Blocks<'m> {
    // Declared before the memory that its work may name.
    channel: Channel,
    host: Arc<Memory>,
    data: Vec<u8>,
    found: Vec<u8>,
    machine: &'m Machine,
    context: &'m Context,
}

impl<'m> Blocks<'m> {
    fn new(machine: &'m Machine, room: usize) -> Result<Blocks<'m>, Error> {
        let (context, space) = (machine.context()?, machine.space()?);
        let engines = machine.copy_engines().unwrap_or_default();
        let engine = if room == LARGE { engines.first() } else { engines.last() };
        let engine = Engine::Copy(engine.map_or(0, |engine| engine.number));
        Ok(Blocks {
            channel: Channel::new(space, engine, ChannelOptions::default())?,
            host: space.alloc_host(room as u64)?,
            data: vec![0; room],
            found: vec![0; room],
            machine,
            context,
        })
    }

    /// From CUDA memory to the host: bytes that are read too late do no harm.
    fn large(&mut self, random: &mut fastrand::Rng) -> Result<Option<Wrong>, Error> {
        let Blocks { channel, host, data, found, machine, context } = self;
        let going = [Going::Unpinned, Going::Freed, Going::InOrder][random.usize(0..3)];
        let buffer = DeviceBuffer::new(context, LARGE)?;
        random.fill(data);
        buffer.write(data)?;
        // Other streams are not waited for: a route's kernel may be spinning in one.
        context.synchronize_default_stream()?;
        let pinned = machine::pin(machine, buffer.address(), LARGE as u64)?;
        let mode = [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded][random.usize(0..3)];
        let mut prepared = Prepared::copy(channel, &host.region(), pinned.region(), LARGE as u32, mode)?;
        let mut last: Option<Ticket> = None;
        for _ in 0..random.u32(1..=8) {
            last = Some(prepared.submit(channel)?);
        }
        let (mut buffer, mut pinned) = (Some(buffer), Some(pinned));
        match going {
            Going::Unpinned => pinned = None,
            Going::Freed => buffer = None,
            Going::InOrder => {}
        }
        if let Some(last) = last {
            channel.wait(last, PATIENCE)?;
        }
        host.read(0, found);
        if let Some(difference) = Difference::between(data, found, None) {
            return Ok(Some(Wrong::Data(difference)));
        }
        if matches!(going, Going::Freed) {
            still_refused(&mut prepared, channel, "CUDA has freed")?;
        }
        drop((pinned, buffer));
        still_refused(&mut prepared, channel, "is no longer pinned")?;
        alive(channel)?;
        Ok(None)
    }

    /// Small blocks share a mapping that CUDA keeps when it frees them, and CUDA gives them out again. A transfer that was prepared for the earlier
    /// block must not reach the next owner's.
    fn small(&mut self, random: &mut fastrand::Rng) -> Result<Option<Wrong>, Error> {
        let Blocks { channel, host, data, found, machine, context } = self;
        let bytes = random.usize(1..=SMALL);
        let block = DeviceBuffer::new(context, bytes)?;
        let address = block.address();
        let pinned = machine::pin(machine, address, bytes as u64)?;
        let mut prepared = Prepared::copy(channel, pinned.region(), &host.region(), bytes as u32, CopyMode::Plain)?;
        for _ in 0..random.u32(1..=4) {
            prepared.submit(channel)?;
        }
        drop(block);
        let mut owners = Vec::new();
        while owners.len() < TRIES && owners.last().is_none_or(|b: &DeviceBuffer<'_>| b.address() != address) {
            owners.push(DeviceBuffer::new(context, bytes)?);
        }
        let theirs = &mut data[..bytes];
        random.fill(theirs);
        let owner = owners.last().filter(|owner| owner.address() == address);
        if let Some(owner) = owner {
            owner.write(theirs)?;
            context.synchronize_default_stream()?;
        }
        still_refused(&mut prepared, channel, "CUDA has freed")?;
        if let Some(owner) = owner {
            let found = &mut found[..bytes];
            owner.read(found)?;
            if let Some(difference) = Difference::between(theirs, found, None) {
                return Ok(Some(Wrong::Data(difference)));
            }
        }
        drop((owners, pinned));
        alive(channel)?;
        Ok(None)
    }
}

fn alive(channel: &Channel) -> Result<(), Error> {
    channel.error().map_or(Ok(()), |code| Err(gpu::Error::ChannelKilled(code).into()))
}

/// Nothing may be submitted for memory that is freed.
fn still_refused(prepared: &mut Prepared, channel: &mut Channel, why: &'static str) -> Result<(), Error> {
    match prepared.submit(channel) {
        Err(gpu::Error::Stale | gpu::Error::Reused) => Ok(()),
        Ok(_) => Err(Error::Gone { why }),
        Err(error) => Err(error.into()),
    }
}
