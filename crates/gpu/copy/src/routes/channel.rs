//! What the routes over a channel of our own have in common: where the channel lies, and how its end is waited for.

use crate::buffer::{Buffer, HostBytes, PAGEABLE};
use crate::ends::Ends;
use crate::error::{Error, Unavailable};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::route::Transfer;
use crate::spec::{Executor, Host, Memory, Spec};
use gpu::{AddressSpace, Armed, Bar, Channel, ChannelOptions, Group, Place, Prepared, Ticket};
use std::sync::Arc;
use std::time::Duration;

/// The ring in host memory instead of video memory.
pub(crate) const GPFIFO_HOST: &str = "gpfifo=host";
/// USERD (GP_PUT) in host memory instead of video memory.
pub(crate) const USERD_HOST: &str = "userd=host";
/// The words of the transfer in host memory instead of video memory.
pub(crate) const PUSHBUFFER_HOST: &str = "pushbuffer=host";
/// The semaphore that is polled in video memory instead of host memory.
pub(crate) const TRACKER_VIDEO: &str = "tracker=video";
/// The doorbell through the other usermode mapping: the one that libcuda rings on Hopper.
pub(crate) const DOORBELL_BAR1: &str = "doorbell=bar1";

/// The transfer waits in the channel, and a submission opens its gate ([`gpu::Armed`]). The engine's runlist is held
/// meanwhile: others on it, CUDA's channels among them, get it by time slices only.
pub(crate) const ARMED: &str = "armed";

/// The engine also says when it begins: a release with the time in front of the transfer, in the same words.
pub(crate) const TIMED: &str = "timed";

/// In CUDA's channel group, beside its kernels and without a change of context, instead of one of our own. CUDA's client is
/// entered for it when it is first asked for.
pub(crate) const CUDAS_GROUP: &str = "group=cuda";

/// The address space of an executor's channel: entered with CUDA's client only for CUDA's group.
pub(crate) fn space<'m>(machine: &'m Machine, executor: &Executor) -> Result<&'m Arc<AddressSpace>, Unavailable> {
    if executor.has(CUDAS_GROUP) { machine.group_space() } else { machine.space() }
}

/// Where the options of an executor put its channel.
pub(crate) fn options(executor: &Executor) -> ChannelOptions {
    let mut options = ChannelOptions::default();
    if executor.has(GPFIFO_HOST) {
        options.gpfifo = Place::Host;
    }
    if executor.has(USERD_HOST) {
        options.userd = Place::Host;
    }
    if executor.has(PUSHBUFFER_HOST) {
        options.pushbuffer = Place::Host;
    }
    if executor.has(TRACKER_VIDEO) {
        options.tracker = Place::Video;
    }
    if executor.has(DOORBELL_BAR1) {
        options.bar = Bar::Bar1;
    }
    if executor.has(CUDAS_GROUP) {
        options.group = Group::Cudas;
    }
    options
}

/// A gate in CUDA's channel group was seen to keep its channels from running at all.
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

/// That there is such a copy engine.
pub(crate) fn engine(machine: &Machine, n: u32) -> Result<(), Unavailable> {
    match machine.copy_engines() {
        Some(engines) if !engines.iter().any(|engine| engine.number == n) => {
            let there: Vec<String> = engines.iter().map(|engine| format!("ce{}", engine.number)).collect();
            Err(Unavailable::new(format!("this GPU has no ce{n}; it has {}", there.join(", "))))
        }
        _ => Ok(()),
    }
}

/// The last error of a channel, if it has died.
#[inline]
pub(crate) fn alive(channel: &Channel) -> Result<(), Error> {
    channel.error().map_or(Ok(()), |code| Err(gpu::Error::ChannelKilled(code).into()))
}

/// Whether the last submission is done; false before the first.
///
/// # Errors
/// Where the channel has died before.
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

/// The most that the validator lets one copy move.
const MAX_BYTES: u64 = 1 << 30;

/// The length of one copy; `of` says what it is a copy of.
pub(super) fn in_one_copy(bytes: u64, of: &str) -> Result<u32, Unavailable> {
    if bytes > MAX_BYTES {
        return Err(Unavailable::new(format!("{bytes} bytes {of}: 1 GiB at most go in one copy")));
    }
    Ok(bytes as u32)
}

/// That there can be a channel on the GPU of that machine, and that an engine reaches both ends.
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

/// Longer than any transfer takes that will ever end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Before a transfer gives the buffers back: what is under way is let come to its end. One that does not is left to the
/// channel, which takes it along when it goes.
pub(crate) fn settle(channel: &Channel, last: Option<Ticket>) {
    if let Some(last) = last {
        let _ = channel.wait(last, PATIENCE);
    }
}

/// What is ready to go on a channel of our own.
enum Ready<'r> {
    Prepared(&'r mut Channel, Prepared),
    Armed(Armed<&'r mut Channel>),
}

/// A transfer of a route over a channel of our own.
pub(crate) struct Own<'r> {
    ready: Ready<'r>,
    /// What travels in the command stream; a copy engine reads its source itself.
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

    #[inline]
    fn channel(&self) -> &Channel {
        match &self.ready {
            Ready::Prepared(channel, _) => channel,
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
        };
        wait(self.channel(), self.last, bytes, timeout)
    }

    fn rest(&mut self) -> Result<(), Error> {
        match &mut self.ready {
            Ready::Prepared(..) => Ok(()),
            Ready::Armed(armed) => Ok(armed.rest()?),
        }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let Ready::Prepared(_, prepared) = &mut self.ready else {
            return Err(Unavailable::new("what is armed waits in the channel with its addresses").into());
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
            Ready::Armed(_) => None,
        }
    }

    #[inline]
    fn released_gpu_ns(&self) -> Option<u64> {
        let timed = match &self.ready {
            Ready::Prepared(_, prepared) => prepared.is_timed(),
            Ready::Armed(armed) => armed.is_timed(),
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
