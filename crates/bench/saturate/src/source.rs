//! Devices with queues for I/Os, and the memory from and to which they move bytes.

use crate::Error;
use crate::link::{Access, Beside};
use crate::queue::Queue;
use crate::walk::{IMAGES, Walk, fill};
use crate::way::Way;
use serde::{Deserialize, Serialize};

/// The memory at the other end of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Host,
    Gpu,
}

impl Flow {
    /// Reads to that target, by doorbells.
    pub fn to(target: Target) -> Flow {
        Flow { target, operation: Operation::Read, submission: Submission::Doorbell }
    }

    /// Whether the payload goes towards the GPU, if it crosses the GPU's link.
    pub fn is_to_gpu(self) -> bool {
        (self.target == Target::Gpu) == (self.operation == Operation::Read)
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

/// How a device is notified of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Submission {
    /// An entry in a ring and a doorbell, for each I/O or for several.
    #[default]
    Doorbell,
    /// The I/O waits at a gate in the channel, which a store opens. Then the next one is submitted there, with a doorbell.
    Armed,
}

/// Whether an I/O reads bytes from the device or writes them to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// From the device to the target.
    #[default]
    Read,
    /// From the target to the device, whose earlier bytes are lost.
    Write,
}

/// The two ends of an I/O, and how it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub target: Target,
    pub operation: Operation,
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
    /// How copy engines get an I/O and report its completion.
    pub way: Way,
    /// Seed of the contents of the devices' memory.
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

    /// How this payload crosses the GPU's link; `None` if it does not.
    fn traffic(&self, flow: Flow) -> Option<Traffic>;

    /// Whether the device is emulated, so that its rates and times mean nothing.
    fn is_functional(&self) -> bool;

    /// Opens the queues of this many devices, those of the first device first.
    ///
    /// # Errors
    /// What there is not here.
    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened<'s> + 's>, Error>;
}

/// Where the I/Os of several laps end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// At the target's place of each: a later lap overwrites an earlier one.
    Over,
    /// At the device's place of each: the target has room for all images.
    Apart,
}

/// Queues that are open, and their memory.
pub trait Opened<'s> {
    /// Handed out once.
    fn queues(&mut self) -> Vec<Box<dyn Queue + 's>>;

    fn placed(&self) -> Placed {
        Placed::Over
    }

    /// Compares in its own way. `None`: every block of the target is compared.
    fn check(&mut self, _walks: &[Walk]) -> Option<Result<Checked, Error>> {
        None
    }

    /// What an I/O moves to its destination: for reads, the device's bytes at this place of a queue; for writes, the target's bytes for this place
    /// of the device.
    ///
    /// # Errors
    /// They cannot be read.
    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Writes a queue's part of the target while nothing is in flight; for writes, the device's part.
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
    /// Blocks compared, including those that no I/O wrote.
    pub blocks: u64,
    /// Blocks with a wrong byte.
    pub wrong: u64,
    /// The first of them, for people.
    pub first: Option<String>,
}

/// Bytes that are compared in one step.
const CHUNK: u64 = 4 << 20;

impl Checked {
    /// Adds the comparison of one block with what it should hold.
    pub(crate) fn add(&mut self, queue: usize, at: u64, block: &[u8], wanted: &[u8], is_touched: bool) {
        self.blocks += 1;
        if block != wanted {
            self.wrong += 1;
            self.first.get_or_insert_with(|| located((queue, at, block, wanted, is_touched)));
        }
    }
}

/// Bytes of a queue's part of the target.
fn room(opened: &dyn Opened<'_>, walk: &Walk) -> u64 {
    match opened.placed() {
        Placed::Over => walk.part(),
        Placed::Apart => walk.part() * IMAGES,
    }
}

/// Sets every byte of the targets to a value that no I/O of the first lap leaves there; if laps have separate places, to a value that no I/O
/// leaves.
pub(crate) fn clear(opened: &mut dyn Opened<'_>, walks: &[Walk]) -> Result<(), Error> {
    let mut bytes = Vec::new();
    for (queue, walk) in walks.iter().enumerate() {
        let (mut at, room) = (0, room(opened, walk));
        while at < room {
            bytes.resize((room - at).min(CHUNK) as usize, 0);
            opened.device_bytes(queue, at, &mut bytes)?;
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
            opened.write_target(queue, at, &bytes)?;
            at += bytes.len() as u64;
        }
    }
    Ok(())
}

/// Compares every byte of the targets with what the submitted I/Os must have left there.
pub(crate) fn check(opened: &mut dyn Opened<'_>, walks: &[Walk]) -> Result<Checked, Error> {
    if let Some(checked) = opened.check(walks) {
        return checked;
    }
    match opened.placed() {
        Placed::Over => check_over(opened, walks),
        Placed::Apart => check_apart(opened, walks),
    }
}

/// Compares each image's blocks at their own places: those that a lap has written, and those that none has.
fn check_apart(opened: &mut dyn Opened<'_>, walks: &[Walk]) -> Result<Checked, Error> {
    let mut checked = Checked::default();
    let (mut found, mut wanted, mut blank) = (Vec::new(), Vec::new(), Vec::new());
    for (queue, walk) in walks.iter().enumerate() {
        let (laps, bytes) = (walk.laps(), walk.bytes() as usize);
        let step = CHUNK.max(walk.bytes()) / walk.bytes() * walk.bytes();
        for image in 0..IMAGES {
            let mut at = 0;
            while at < walk.part() {
                let (length, place) = ((walk.part() - at).min(step) as usize, image * walk.part() + at);
                [&mut wanted, &mut found].into_iter().for_each(|bytes: &mut Vec<u8>| bytes.resize(length, 0));
                opened.device_bytes(queue, place, &mut wanted)?;
                opened.read_target(queue, place, &mut found)?;
                blank.clear();
                blank.extend(wanted.iter().map(|byte| !byte));
                for (n, block) in found.chunks(bytes).enumerate() {
                    let is_touched = laps[at as usize / bytes + n] > image;
                    let wanted = if is_touched { &wanted } else { &blank };
                    let wanted = &wanted[n * bytes..n * bytes + block.len()];
                    checked.add(queue, place + (n * bytes) as u64, block, wanted, is_touched);
                }
                at += length as u64;
            }
        }
    }
    Ok(checked)
}

fn check_over(opened: &mut dyn Opened<'_>, walks: &[Walk]) -> Result<Checked, Error> {
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
                checked.add(queue, at + (n * bytes) as u64, block, wanted, holds.is_some());
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

/// The images of a device whose contents this program wrote.
pub(crate) fn filled(seed: u64, queue: usize, at: u64, into: &mut [u8]) {
    fill(into, seed ^ (queue as u64 + 1) << 40, at);
}
