//! Permission to write: the user's explicit word for one device, and a check that it holds no data that someone may need.

use crate::nvme::controller::Controller;
use crate::nvme::data::Piece;
use crate::nvme::error::Error;
use crate::nvme::namespace::{Io, Namespace};
use crate::nvme::queue::Queue;
use crate::nvme::signature::{AREA, Ends, Signature};
use pcie::Address;

/// The user's word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// How the user named the device when opening it: its address, or the name of an emulated one.
    pub given: String,
    /// `--i-mean-to-overwrite DEVICE`: the same name again.
    pub device: Option<String>,
    /// `--destroy WHAT`: file systems that may be lost, by name.
    pub destroy: Vec<String>,
}

impl Word {
    /// The word for a device with this name that holds no data.
    pub fn of(given: impl Into<String>) -> Word {
        let given = given.into();
        Word { device: Some(given.clone()), given, destroy: Vec::new() }
    }

    /// Two addresses of one function (with or without the domain) are equal. Otherwise only the device's own name names it.
    fn is_named(&self, said: &str) -> bool {
        let same = || Some(said.parse::<Address>().ok()? == self.given.parse().ok()?);
        said == self.given || same().unwrap_or(false)
    }
}

/// Permission to write to one namespace. Only this type makes writes.
#[derive(Clone, Debug)]
pub struct Overwrite {
    namespace: Namespace,
}

impl Overwrite {
    /// Checks whether the word names this device, and whether the first and last blocks contain a use that the word does not name. `queue` has no
    /// command in flight; its slot 0 is prepared for other data afterwards.
    ///
    /// Always refused, whatever the word: partition tables, LVM, RAID, swap, and members of pools. A file system, encrypted data, and bytes of an
    /// unknown format are refused unless the word names them.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason; errors of reading.
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
                    None => "you have not confirmed that its contents may be lost".into(),
                    Some(said) => format!("your word is for {said}"),
                };
                return Err(refused(why, format!("add --i-mean-to-overwrite {} if they may", word.given)));
            }
        }
        if namespace.page().is_write_protected {
            let why = format!("namespace {} is write protected", namespace.number());
            return Err(refused(why, "take the protection away first (nvme set-feature -f 0x84)".into()));
        }
        let found = signatures(controller, queue, namespace)?;
        if let Some(bound) = found.iter().find(|found| found.is_final()) {
            let why = format!("it holds {bound}: partitions, LVM, RAID, swap and pools are never overwritten");
            return Err(refused(
                why,
                "clear it with the tool that made it, or with wipefs, if nothing needs it".into(),
            ));
        }
        if let Some(kept) = found.iter().find(|found| !word.destroy.iter().any(|said| said == found.what)) {
            let why = format!("it holds {}", kept.text());
            return Err(refused(why, format!("add --destroy {} if it may be lost", kept.what)));
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

/// Uses of a namespace that its first and last blocks show.
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
