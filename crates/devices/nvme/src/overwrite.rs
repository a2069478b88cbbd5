//! Leave to write: the user's own word for one device, and nothing on it that somebody may miss.

use crate::controller::Controller;
use crate::data::Piece;
use crate::error::Error;
use crate::namespace::{Io, Namespace};
use crate::queue::Queue;
use crate::signature::{AREA, Ends, Signature};
use pcie::Address;

/// What the user has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// How the device was named when it was opened: its address, or the word for one that this program emulates.
    pub given: String,
    /// `--i-mean-to-overwrite DEVICE`: the same again.
    pub device: Option<String>,
    /// `--destroy WHAT`: file systems that may be lost, by name.
    pub destroy: Vec<String>,
}

impl Word {
    /// The word for a device that was named so, with nothing on it.
    pub fn of(given: impl Into<String>) -> Word {
        let given = given.into();
        Word { device: Some(given.clone()), given, destroy: Vec::new() }
    }

    /// Of two addresses of one function (with or without the domain) each names the other. Nothing else names a device but its own name.
    fn is_named(&self, said: &str) -> bool {
        let same = || Some(said.parse::<Address>().ok()? == self.given.parse().ok()?);
        said == self.given || same().unwrap_or(false)
    }
}

/// Leave to write to one namespace. Writes are made from it alone.
#[derive(Clone, Debug)]
pub struct Overwrite {
    namespace: Namespace,
}

impl Overwrite {
    /// Looks whether the word names this device, and whether the first and last blocks hold something that it does not name. `queue` has
    /// nothing in flight; its slot 0 is prepared for something else afterwards.
    ///
    /// What is refused whatever the word says: partition tables, LVM, RAID, swap, and members of pools. A file system, what is encrypted, and
    /// bytes of no format that is known here are refused until the word names them as well.
    ///
    /// # Errors
    /// [`Error::Refused`] with what stands against it; errors of reading.
    pub fn ask(
        controller: &Controller,
        queue: &mut Queue,
        namespace: &Namespace,
        word: &Word,
    ) -> Result<Overwrite, Error> {
        let refused = |why: String, hint: String| Error::refused(format!("writing to {}", word.given), why, hint);
        match &word.device {
            Some(said) if word.is_named(said) => {}
            said => {
                let why = match said {
                    None => "you have not said that what it holds may be lost".into(),
                    Some(said) => format!("your word is for {said}"),
                };
                return Err(refused(why, format!("--i-mean-to-overwrite {} says so", word.given)));
            }
        }
        if namespace.page().is_write_protected {
            let why = format!("namespace {} is write protected", namespace.number());
            return Err(refused(why, "take the protection away first (nvme set-feature -f 0x84)".into()));
        }
        let found = signatures(controller, queue, namespace)?;
        if let Some(bound) = found.iter().find(|found| found.what.is_final()) {
            let why = format!("it holds {bound}: partitions, LVM, RAID, swap and pools are never overwritten");
            return Err(refused(
                why,
                "clear it with the tool that made it, or with wipefs, if nothing needs it".into(),
            ));
        }
        if let Some(kept) = found.iter().find(|found| !word.destroy.iter().any(|said| said == found.what.name())) {
            let why = format!("it holds {}", kept.text());
            return Err(refused(why, format!("--destroy {} says that it may be lost", kept.what.name())));
        }
        Ok(Overwrite { namespace: namespace.clone() })
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A write of blocks.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn write(&self, block: u64, blocks: u64) -> Result<Io, Error> {
        self.namespace.write(block, blocks)
    }
}

/// What the first and last blocks of a namespace say of its use.
///
/// # Errors
/// Errors of reading.
pub fn signatures(controller: &Controller, queue: &mut Queue, namespace: &Namespace) -> Result<Vec<Signature>, Error> {
    let (length, block_bytes) = (namespace.bytes(), namespace.block_bytes());
    let area = AREA.min(length);
    let step = area.min(queue.most_bytes() / block_bytes * block_bytes).max(block_bytes);
    let memory = controller.allocate(step)?;
    let mut read = |from: u64| {
        let mut all = vec![0; area as usize];
        let mut at = 0;
        while at < area {
            let bytes = step.min(area - at);
            queue.prepare(0, &[Piece::new(&memory, 0, bytes)])?;
            queue.complete(0, &namespace.read((from + at) / block_bytes, bytes / block_bytes)?)?;
            memory.load(0, &mut all[at as usize..(at + bytes) as usize])?;
            at += bytes;
        }
        Ok::<_, Error>(all)
    };
    let (first, last) = (read(0)?, read(length - area)?);
    Ok(Ends { first: &first, last: &last, length, block_bytes }.signatures())
}
