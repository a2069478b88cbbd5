//! The common parts of routes over doorbell's own channels: where the channel's memory is, and the wait for its end.

use crate::buffer::{Buffer, HostBytes, PAGEABLE};
use crate::ends::Ends;
use crate::error::Error;
use crate::executor::{FIXED, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::spec::{Executor, Host, Memory, Spec};
use gpu::{AddressSpace, Armed, Bar, Batch, Channel, ChannelOptions, Group, Place, Prepared, Ticket};
use machine::Unavailable;
use std::sync::Arc;
use std::time::Duration;

/// The transfer waits in the channel, and a submission opens its gate ([`gpu::Armed`]). Until then the engine's runlist
/// is held: other channels on it, also CUDA's, run only in time slices.
pub(crate) const ARMED: &str = "armed";

/// The engine also writes the time when it begins: a second release before the transfer, in the same pushbuffer.
pub(crate) const TIMED: &str = "timed";

/// Uses CUDA's channel group, next to its kernels and without a context switch, instead of a separate group. CUDA's
/// client is entered when it is first needed.
pub(crate) const CUDAS_GROUP: &str = "group=cuda";

/// The address space of an executor's channel: entered with CUDA's client only for CUDA's group.
pub(crate) fn space<'m>(machine: &'m Machine, executor: &Executor) -> Result<&'m Arc<AddressSpace>, Unavailable> {
    if executor.has(CUDAS_GROUP) { machine.group_space() } else { machine.space() }
}

/// What an option changes.
type Change = fn(&mut ChannelOptions);

/// Options of routes over one channel.
const OPTIONS: [(&str, Change); 6] = [
    (CUDAS_GROUP, |options| options.group = Group::Cudas),
    // In host memory instead of GPU memory: the ring, USERD (GP_PUT), and the words of the transfer.
    ("gpfifo=host", |options| options.gpfifo = Place::Host),
    ("userd=host", |options| options.userd = Place::Host),
    ("pushbuffer=host", |options| options.pushbuffer = Place::Host),
    // The semaphore that is polled in GPU memory instead of host memory.
    ("tracker=video", |options| options.tracker = Place::Video),
    // The doorbell through the other usermode mapping: the one that libcuda rings on Hopper.
    ("doorbell=bar1", |options| options.bar = Bar::Bar1),
];

/// An executor's own options, and then these.
pub(super) const fn with_options<const OWN: usize, const ALL: usize>(own: [&'static str; OWN]) -> [&'static str; ALL] {
    let (mut all, mut n) = ([""; ALL], 0);
    while n < ALL {
        all[n] = if n < OWN { own[n] } else { OPTIONS[n - OWN].0 };
        n += 1;
    }
    all
}

/// The channel options that an executor's options choose.
pub(crate) fn options(executor: &Executor) -> ChannelOptions {
    let mut options = ChannelOptions::default();
    OPTIONS.iter().filter(|(option, _)| executor.has(option)).for_each(|(_, set)| set(&mut options));
    options
}

/// Refuses a gate in CUDA's channel group, which was seen to keep its channels from running at all.
pub(crate) fn not_both(executor: &Executor) -> Result<(), Unavailable> {
    if executor.has(ARMED) && executor.has(CUDAS_GROUP) {
        return Err(Unavailable::new(
            "a gate in CUDA's channel group keeps the whole group waiting, CUDA's channels too",
        ));
    }
    if executor.has(ARMED) && executor.has(TIMED) {
        return Err(Unavailable::new("what is armed has begun when its gate is opened: choose timed or armed"));
    }
    Ok(())
}

/// Checks that this copy engine exists.
pub(crate) fn engine(machine: &Machine, n: u32) -> Result<(), Unavailable> {
    match machine.copy_engines() {
        Some(engines) if !engines.iter().any(|engine| engine.number == n) => {
            let there: Vec<String> = engines.iter().map(|engine| format!("ce{}", engine.number)).collect();
            Err(Unavailable::new(format!("this GPU has no ce{n}; it has {}", there.join(", "))))
        }
        _ => Ok(()),
    }
}

/// The channel's last error, if it has died.
#[inline]
pub(crate) fn alive(channel: &Channel) -> Result<(), Error> {
    channel.error().map_or(Ok(()), |code| Err(gpu::Error::ChannelKilled(code).into()))
}

/// Whether the last submission is done; false before the first.
///
/// # Errors
/// If the channel has died before.
#[inline]
pub(crate) fn poll(channel: &Channel, last: Option<Ticket>) -> Result<bool, Error> {
    match last {
        None => Ok(false),
        Some(last) if channel.done(last) => Ok(true),
        Some(_) => alive(channel).map(|()| false),
    }
}

/// Pins both memories for the channel's address space.
pub(crate) fn reach(channel: &Channel, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
    from.region(channel.space())?;
    to.region(channel.space())?;
    Ok(())
}

/// The maximum that the validator lets one copy move.
const MAX_BYTES: u64 = 1 << 30;

/// The length of one copy; `of` names the copy in errors.
pub(super) fn in_one_copy(bytes: u64, of: &str) -> Result<u32, Unavailable> {
    if bytes > MAX_BYTES {
        return Err(Unavailable::new(format!("{bytes} bytes {of}: 1 GiB at most go in one copy")));
    }
    Ok(bytes as u32)
}

/// Checks that a channel can be opened on that machine's GPU, and that an engine reaches both ends.
pub(crate) fn check(seat: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    not_both(&spec.executor)?;
    space(seat, &spec.executor)?;
    for end in [spec.source, spec.destination] {
        if end.memory == Memory::Host(Host::Pageable) {
            return Err(Unavailable::new(PAGEABLE));
        }
    }
    Ok(())
}

#[inline]
pub(crate) fn wait(channel: &Channel, last: Option<Ticket>, bytes: u64, timeout: Duration) -> Result<(), Error> {
    let last = last.ok_or(Error::Idle)?;
    channel.wait(last, timeout).map_err(|error| match error {
        gpu::Error::Timeout { after, .. } => Error::Late { bytes, after },
        other => other.into(),
    })
}

/// Longer than any transfer that ends at all.
const PATIENCE: Duration = Duration::from_secs(2);

/// Before a transfer returns the buffers: waits for its pending work. A submission that does not end is left to the
/// channel, which stops it when it is dropped.
pub(crate) fn settle(channel: &Channel, last: Option<Ticket>) {
    if let Some(last) = last {
        let _ = channel.wait(last, PATIENCE);
    }
}

/// A prepared transfer on doorbell's own channel.
enum Ready<'r> {
    Prepared(&'r mut Channel, Prepared),
    Armed(Armed<&'r mut Channel>),
    Batch(&'r mut Channel, Batch),
}

/// A transfer of a route over doorbell's own channel.
pub(crate) struct Own<'r> {
    ready: Ready<'r>,
    /// The bytes that are sent in the command stream. None for a copy engine, which reads its source itself.
    data: Option<HostBytes<'r>>,
    ends: Ends<'r>,
    last: Option<Ticket>,
}

impl<'r> Own<'r> {
    pub(crate) fn new(
        channel: &'r mut Channel,
        prepared: Prepared,
        data: Option<HostBytes<'r>>,
        ends: Ends<'r>,
    ) -> Own<'r> {
        Own { ready: Ready::Prepared(channel, prepared), data, ends, last: None }
    }

    pub(crate) fn armed(armed: Armed<&'r mut Channel>, data: Option<HostBytes<'r>>, ends: Ends<'r>) -> Own<'r> {
        Own { ready: Ready::Armed(armed), data, ends, last: None }
    }

    pub(crate) fn batch(channel: &'r mut Channel, batch: Batch, ends: Ends<'r>) -> Own<'r> {
        Own { ready: Ready::Batch(channel, batch), data: None, ends, last: None }
    }

    #[inline]
    fn channel(&self) -> &Channel {
        match &self.ready {
            Ready::Prepared(channel, _) | Ready::Batch(channel, _) => channel,
            Ready::Armed(armed) => armed.channel(),
        }
    }
}

impl Transfer for Own<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.last = Some(match (&mut self.ready, self.data) {
            (Ready::Prepared(channel, prepared), Some(data)) => prepared.submit_data(channel, data.bytes())?,
            (Ready::Prepared(channel, prepared), None) => prepared.submit(channel)?,
            (Ready::Armed(armed), Some(data)) => armed.submit_data(data.bytes())?,
            (Ready::Armed(armed), None) => armed.submit()?,
            (Ready::Batch(channel, batch), _) => batch.submit(channel)?,
        });
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        poll(self.channel(), self.last)
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let bytes = match &self.ready {
            Ready::Prepared(_, prepared) => prepared.bytes(),
            Ready::Armed(armed) => armed.bytes(),
            Ready::Batch(_, batch) => batch.bytes(),
        };
        wait(self.channel(), self.last, bytes, timeout)
    }

    fn rest(&mut self) -> Result<(), Error> {
        match &mut self.ready {
            Ready::Prepared(..) | Ready::Batch(..) => Ok(()),
            Ready::Armed(armed) => Ok(armed.rest()?),
        }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let prepared = match &mut self.ready {
            Ready::Prepared(_, prepared) => prepared,
            Ready::Armed(_) => {
                return Err(Unavailable::new("what is armed waits in the channel with its addresses").into());
            }
            Ready::Batch(..) => return Err(Unavailable::new(FIXED).into()),
        };
        let bytes = prepared.bytes();
        self.ends.hold([source, destination], bytes)?;
        let to = self.ends.destination.va() + destination;
        let aimed = match &mut self.data {
            None => prepared.aim(to, Some(self.ends.source.va() + source)),
            Some(data) => {
                let moved = self.ends.source.host_bytes(source, bytes)?;
                prepared.aim(to, None).map(|()| *data = moved)
            }
        };
        aimed.map_err(|error| match error {
            gpu::Error::OutsideRegion { .. } => {
                Unavailable::new("each of its launches has an address of its own").into()
            }
            other => other.into(),
        })
    }

    #[inline]
    fn started_gpu_ns(&self) -> Option<u64> {
        match &self.ready {
            Ready::Prepared(_, prepared) => prepared.started(),
            Ready::Armed(_) | Ready::Batch(..) => None,
        }
    }

    #[inline]
    fn released_gpu_ns(&self) -> Option<u64> {
        let timed = match &self.ready {
            Ready::Prepared(_, prepared) => prepared.is_timed(),
            Ready::Armed(armed) => armed.is_timed(),
            Ready::Batch(..) => true,
        };
        self.last.filter(|_| timed).map(|_| self.channel().timestamp())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        settle(self.channel(), self.last);
    }
}
