//! A device's frames ([`crate::device::frames`]): each is sent to one of several buffers in turn, and is consumed there for a stated time. One
//! sample is one frame, from the call that requests it until it is consumed, so the rate of samples is the frame rate.
//!
//! With several buffers the device is one frame ahead. A frame that arrives during a comparison, which is not timed, makes the next sample too
//! short; the untimed frames after each comparison absorb that.

use crate::device::frames::{self, MOST_BUFFERS, Ring};
use crate::entry::{Call, Entry, Number, PLAIN, Result as Open, Value};
use crate::spec::{Host, Memory};
use crate::{Machine, Unavailable, Wanted};
use std::time::Duration;

const CONSUME: &str = "consume";
/// Into the host's memory, not the GPU's.
const HOST: &str = "host";

pub(crate) const FRAMES: Entry = Entry {
    name: "frames",
    form: "frames(BUFFERS,host,consume=50us)",
    about: "a frame of a device to one of its buffers in turn, in GPU memory or host memory, where it is consumed: every page's number \
            is compared; with another buffer the next frame is in flight meanwhile",
    bytes: 1 << 20,
    number: Some(Number { of: "buffers", default: 4, least: 1, most: MOST_BUFFERS as u32 }),
    words: &[HOST],
    values: &[Value::Time(CONSUME)],
    open,
    ..PLAIN
};

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    if wanted.random_addresses || wanted.sweep.is_some() {
        return Err(Unavailable::new("frames go to their buffers in order").into());
    }
    let to = if call.has(HOST) { Memory::Host(Host::Pinned) } else { Memory::Gpu(machine.index()) };
    let consume = Duration::from_nanos(call.time_ns(CONSUME).unwrap_or(0));
    let wanted = frames::Wanted { bytes: wanted.bytes, buffers: call.number.into(), to, consume };
    let device = crate::device::open(machine)?;
    Ok(Box::new(Ring::new(machine, device, wanted)?))
}
