//! Devices with queues for I/Os, and the memory from and to which they move bytes.

use crate::Error;
use crate::saturate::queue::Queue;
use crate::saturate::walk::{IMAGES, Walk, fill};
use crate::saturate::way::Way;

/// The memory at the other end of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Host,
    Gpu,
}

/// What is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub target: Target,
    /// Each I/O waits at a gate in the channel, which a store opens; then the next one is submitted there, with a doorbell.
    pub armed: bool,
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

/// Devices of one kind.
pub trait Source {
    /// What it is, in a few words.
    fn about(&self) -> String;

    /// Opens the queues of this many devices, those of the first device first.
    ///
    /// # Errors
    /// What there is not here.
    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened<'s> + 's>, Error>;
}

/// Queues that are open, and their memory.
pub trait Opened<'s> {
    /// Handed out once.
    fn queues(&mut self) -> Vec<Box<dyn Queue + 's>>;

    /// The device's bytes at this place of a queue.
    ///
    /// # Errors
    /// They cannot be read.
    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Writes a queue's part of the target while nothing is in flight.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks compared, including those that no I/O wrote.
    pub blocks: u64,
    /// Blocks with a wrong byte.
    pub wrong: u64,
    /// What the first of them should hold, and holds.
    pub first: Option<(Vec<u8>, Vec<u8>)>,
}

/// Bytes that are compared in one step.
const CHUNK: u64 = 4 << 20;

/// Sets every byte of the targets to a value that no I/O of the first lap leaves there.
pub(crate) fn clear(opened: &mut dyn Opened<'_>, walks: &[Walk]) -> Result<(), Error> {
    let mut bytes = Vec::new();
    for (queue, walk) in walks.iter().enumerate() {
        let (mut at, room) = (0, walk.part());
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
                    checked.first.get_or_insert_with(|| (wanted.to_vec(), block.to_vec()));
                }
            }
            at += length as u64;
        }
    }
    Ok(checked)
}

/// The images of a device whose contents this program wrote.
pub(crate) fn filled(seed: u64, queue: usize, at: u64, into: &mut [u8]) {
    fill(into, seed ^ (queue as u64 + 1) << 40, at);
}
