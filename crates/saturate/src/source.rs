//! Devices whose queues take I/Os, and the memory that they move bytes to and from.

use crate::Error;
use crate::link::{Access, Beside};
use crate::queue::Queue;
use crate::walk::{IMAGES, Walk, fill};
use serde::{Deserialize, Serialize};

/// Whose memory is at the other end of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Host,
    Gpu,
}

impl Flow {
    /// To that target, by doorbells.
    pub fn to(target: Target) -> Flow {
        Flow { target, submission: Submission::default() }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Target::Host => "host",
            Target::Gpu => "gpu",
        })
    }
}

/// How a device is told of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Submission {
    /// A ring's entry and a doorbell, for each or for several.
    #[default]
    Doorbell,
    /// It waits at a gate in the channel, which a store opens; then the next one is put there, with a doorbell.
    Armed,
}

/// Between whom bytes go, and how each I/O begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub target: Target,
    pub submission: Submission,
}

/// What is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub flow: Flow,
    pub devices: u32,
    /// Of each device.
    pub queues: u32,
    pub depth: u32,
    /// Bytes of one I/O.
    pub bytes: u64,
    /// Bytes of each queue's part of the target, a multiple of `bytes`.
    pub part: u64,
    /// I/Os that one doorbell announces.
    pub batch: u32,
    /// Of what lies in the devices' memory.
    pub seed: u64,
}

/// How the payload of I/Os crosses the GPU's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    pub access: Access,
    pub beside: Beside,
}

/// Devices of one kind.
pub trait Source {
    /// What it is, in a few words.
    fn about(&self) -> String;

    /// How many devices there are.
    fn devices(&self) -> u32;

    /// How such payload crosses the GPU's link; `None` where it does not.
    fn traffic(&self, flow: Flow) -> Option<Traffic>;

    /// Emulated: nothing of it is a rate or a time.
    fn is_functional(&self) -> bool;

    /// Opens the queues of so many devices, those of the first device first.
    ///
    /// # Errors
    /// What there is not here.
    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened + 's>, Error>;
}

/// Queues that are open, and their memory.
pub trait Opened {
    /// Handed out once.
    fn queues(&mut self) -> Vec<Box<dyn Queue>>;

    /// The device's bytes at this place of a queue's.
    ///
    /// # Errors
    /// They cannot be read.
    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Writes a queue's part of the target while nothing is under way.
    ///
    /// # Errors
    /// It cannot be written.
    fn write_target(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read.
    fn read_target(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error>;
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checked {
    /// Blocks that were compared, those that no I/O came to among them.
    pub blocks: u64,
    /// Blocks with a wrong byte.
    pub wrong: u64,
    /// The first of them, for people.
    pub first: Option<String>,
}

/// Bytes that are looked at in one go.
const CHUNK: u64 = 4 << 20;

/// Every byte of the targets becomes one that no I/O of the first lap leaves.
pub(crate) fn clear(opened: &mut dyn Opened, walks: &[Walk]) -> Result<(), Error> {
    let mut bytes = Vec::new();
    for (queue, walk) in walks.iter().enumerate() {
        let mut at = 0;
        while at < walk.part() {
            bytes.resize((walk.part() - at).min(CHUNK) as usize, 0);
            blank(opened, queue, at, &mut bytes)?;
            opened.write_target(queue, at, &bytes)?;
            at += bytes.len() as u64;
        }
    }
    Ok(())
}

/// What lies where no I/O has been: no byte of the first image is the same.
fn blank(opened: &mut dyn Opened, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
    opened.device_bytes(queue, at, into)?;
    into.iter_mut().for_each(|byte| *byte = !*byte);
    Ok(())
}

/// Compares every byte of the targets with what the I/Os that were submitted must have left there.
pub(crate) fn check(opened: &mut dyn Opened, walks: &[Walk]) -> Result<Checked, Error> {
    let mut checked = Checked::default();
    let (mut found, mut images) = (Vec::new(), [const { Vec::new() }; IMAGES as usize]);
    let mut untouched = Vec::new();
    for (queue, walk) in walks.iter().enumerate() {
        let holds = walk.images();
        // Whole blocks.
        let step = CHUNK.max(walk.bytes()) / walk.bytes() * walk.bytes();
        let mut at = 0;
        while at < walk.part() {
            let length = (walk.part() - at).min(step) as usize;
            for (n, image) in images.iter_mut().enumerate() {
                image.resize(length, 0);
                opened.device_bytes(queue, n as u64 * walk.part() + at, image)?;
            }
            untouched.clear();
            untouched.extend(images[0].iter().map(|byte| !byte));
            found.resize(length, 0);
            opened.read_target(queue, at, &mut found)?;
            let bytes = walk.bytes() as usize;
            for (n, block) in found.chunks(bytes).enumerate() {
                let holds = holds[at as usize / bytes + n];
                let wanted = holds.map_or(&untouched, |image| &images[image as usize]);
                let wanted = &wanted[n * bytes..n * bytes + block.len()];
                checked.blocks += 1;
                if block != wanted {
                    checked.wrong += 1;
                    let first = || (queue, at + (n * bytes) as u64, block, wanted, holds.is_some());
                    checked.first.get_or_insert_with(|| located(first()));
                }
            }
            at += length as u64;
        }
    }
    Ok(checked)
}

fn located((queue, at, block, wanted, is_touched): (usize, u64, &[u8], &[u8], bool)) -> String {
    let differing = block.iter().zip(wanted).filter(|(a, b)| a != b).count();
    let first = block.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(0);
    let why = if is_touched { "" } else { ", where no I/O was to go" };
    format!(
        "{differing} of {} bytes of the block at {at:#x} of queue {queue}{why}, the first at offset {first}: {:#04x} instead of {:#04x}",
        block.len(),
        block[first],
        wanted[first]
    )
}

/// The images of a device that was filled by us.
pub(crate) fn filled(seed: u64, queue: usize, at: u64, into: &mut [u8]) {
    fill(into, seed ^ (queue as u64 + 1) << 40, at);
}
