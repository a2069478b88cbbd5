//! Namespaces, and the commands that concern their blocks.

use crate::nvme::command::{Entry, Pointer, io};
use crate::nvme::error::Error;
use crate::nvme::identify::NamespacePage;

/// A namespace of one controller that can be used: its blocks have no metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Which [`crate::nvme::Controller`] of this process.
    pub(crate) controller: u64,
    pub(crate) number: u32,
    pub(crate) page: NamespacePage,
}

/// Maximum number of blocks in one command: the count has 16 bits (NVM command set, figure of Read, dword 12).
const MOST_BLOCKS: u64 = 1 << 16;

impl Namespace {
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn blocks(&self) -> u64 {
        self.page.blocks
    }

    pub fn block_bytes(&self) -> u64 {
        self.page.block_bytes
    }

    pub fn bytes(&self) -> u64 {
        self.page.bytes()
    }

    pub fn page(&self) -> &NamespacePage {
        &self.page
    }

    fn io(&self, opcode: u8, block: u64, blocks: u64) -> Result<Io, Error> {
        if blocks == 0 || blocks > MOST_BLOCKS {
            return Err(Error::Count(blocks));
        }
        let end = block.saturating_add(blocks);
        if end > self.page.blocks {
            return Err(Error::Range { namespace: self.number, block, end, of: self.page.blocks });
        }
        let bytes = blocks * self.page.block_bytes;
        Ok(Io { controller: self.controller, opcode, namespace: self.number, block, blocks: blocks as u32, bytes })
    }

    /// A read of blocks.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Range`].
    pub fn read(&self, block: u64, blocks: u64) -> Result<Io, Error> {
        self.io(io::READ, block, blocks)
    }

    /// All earlier writes are on the medium when this is done.
    pub fn flush(&self) -> Io {
        let (controller, namespace) = (self.controller, self.number);
        Io { controller, opcode: io::FLUSH, namespace, block: 0, blocks: 0, bytes: 0 }
    }

    /// Only [`crate::nvme::Overwrite`] hands it out.
    pub(crate) fn write(&self, block: u64, blocks: u64) -> Result<Io, Error> {
        self.io(io::WRITE, block, blocks)
    }
}

/// What one command does. It is checked: its blocks exist. Only an [`crate::nvme::Overwrite`] makes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    pub(crate) controller: u64,
    opcode: u8,
    namespace: u32,
    block: u64,
    blocks: u32,
    bytes: u64,
}

impl Io {
    /// How much data it moves.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_write(&self) -> bool {
        self.opcode == io::WRITE
    }

    /// For errors.
    pub fn name(&self) -> &'static str {
        match self.opcode {
            io::FLUSH => "Flush",
            io::WRITE => "Write",
            _ => "Read",
        }
    }

    #[inline]
    pub(crate) fn entry(&self, id: u16, pointer: Pointer) -> Entry {
        match self.opcode {
            io::FLUSH => Entry::flush(self.namespace).with_id(id),
            opcode => Entry::blocks(opcode, self.namespace, self.block, self.blocks, pointer).with_id(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_exist_are_named() {
        let page = NamespacePage {
            blocks: 1 << 20,
            block_bytes: 512,
            metadata_bytes: 0,
            metadata_inline: false,
            is_write_protected: false,
        };
        let namespace = Namespace { controller: 1, number: 1, page };
        assert_eq!(namespace.read((1 << 20) - 8, 8).unwrap().bytes(), 4096);
        assert!(matches!(namespace.read((1 << 20) - 7, 8), Err(Error::Range { .. })));
        assert!(matches!(namespace.read(u64::MAX, 8), Err(Error::Range { .. })));
        assert!(matches!(namespace.read(0, 0), Err(Error::Count(0))));
        assert!(matches!(namespace.read(0, 65537), Err(Error::Count(65537))));
        assert_eq!(namespace.flush().bytes(), 0);
        assert!(!namespace.read(0, 1).unwrap().is_write() && namespace.write(0, 1).unwrap().is_write());
    }
}
