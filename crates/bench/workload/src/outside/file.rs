//! Reads and writes of a file past the page cache (O_DIRECT). The file has no name: it disappears when its last descriptor is closed, however the
//! process ended.

use crate::Difference;
use crate::entry::{Entry, PLAIN, Result as Open};
use crate::{Checks, Did, Error, Opened, Subject, Unavailable, Wanted, Wrong};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const READ: &str = "read";
const WRITE: &str = "write";

pub(crate) const FILE: Entry = Entry {
    name: "file",
    form: "file(read|write)",
    about: "writes or reads a block of an unnamed file in TMPDIR past the page cache (O_DIRECT); alternately if neither is named",
    bytes: 1 << 20,
    words: &[READ, WRITE],
    one_word: true,
    open: |_, call, wanted| {
        let way = match () {
            () if call.has(READ) => Way::Reads,
            () if call.has(WRITE) => Way::Writes,
            () => Way::Both,
        };
        open(&std::env::temp_dir(), way, wanted)
    },
    ..PLAIN
};

/// Whole pages of memory and of the file: what O_DIRECT needs on any disk.
const ALIGN: usize = 4096;
/// Of the file.
const BLOCKS: u64 = 32;
const MOST: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Reads,
    Writes,
    Both,
}

fn open<'m>(folder: &Path, way: Way, wanted: &Wanted) -> Open<'m> {
    let bytes = wanted.bytes;
    if bytes > MOST {
        return Err(Unavailable::new(format!("a block of {bytes} bytes: at most {MOST}")).into());
    }
    let file = unnamed(folder).map_err(|cause| {
        let hint = "set TMPDIR to a folder of a disk that takes O_DIRECT and O_TMPFILE";
        Unavailable::new(format!("a file in {}: {cause}; {hint}", folder.display()))
    })?;
    let block = (bytes as usize).next_multiple_of(ALIGN);
    let blocks =
        Blocks { file, folder: folder.to_owned(), way, memory: Aligned::new(block), other: Aligned::new(block) };
    Ok(Box::new(blocks))
}

fn unnamed(folder: &Path) -> std::io::Result<File> {
    let flags = libc::O_TMPFILE | libc::O_DIRECT | libc::O_CLOEXEC;
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(folder)
}

/// Bytes that begin on a page.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + ALIGN];
        let from = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Aligned { bytes, from, len }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

struct Blocks {
    file: File,
    folder: PathBuf,
    way: Way,
    memory: Aligned,
    /// For comparisons.
    other: Aligned,
}

impl Blocks {
    fn subject(&mut self, seed: u64) -> Result<Turn<'_>, Error> {
        let mut turn = Turn { blocks: self, seed, step: 0, at: 0 };
        for block in 0..BLOCKS {
            turn.fill(block);
            turn.write(block)?;
        }
        Ok(turn)
    }
}

impl Opened for Blocks {
    fn about(&self) -> String {
        let way = match self.way {
            Way::Reads => "reads",
            Way::Writes => "writes",
            Way::Both => "writes and reads",
        };
        format!("{way} of {} bytes of a file of {BLOCKS} such blocks in {}", self.memory.len, self.folder.display())
    }

    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let mut subject = self.subject(seed)?;
        for _ in 0..2 {
            subject.renew()?;
            subject.fire()?;
            subject.wait(timeout)?;
        }
        subject.check()
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)?))
    }
}

struct Turn<'b> {
    blocks: &'b mut Blocks,
    seed: u64,
    step: u64,
    /// The block of the last one.
    at: u64,
}

/// The contents of a block: words computed from its number and the seed.
fn words(seed: u64, block: u64) -> [u8; 8] {
    (seed ^ (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()
}

impl Turn<'_> {
    fn fill(&mut self, block: u64) {
        let word = words(self.seed, block);
        self.blocks.memory.get_mut().chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
    }

    fn offset(&self, block: u64) -> u64 {
        block * self.blocks.memory.len as u64
    }

    fn failed(&self, cause: std::io::Error) -> Error {
        Error::System { what: format!("the file in {}", self.blocks.folder.display()), cause }
    }

    fn write(&self, block: u64) -> Result<(), Error> {
        self.blocks.file.write_all_at(self.blocks.memory.get(), self.offset(block)).map_err(|e| self.failed(e))
    }

    fn is_write(&self) -> bool {
        match self.blocks.way {
            Way::Reads => false,
            Way::Writes => true,
            Way::Both => self.step % 2 == 1,
        }
    }
}

impl Subject for Turn<'_> {
    fn renew(&mut self) -> Result<(), Error> {
        self.step += 1;
        self.at = self.step % BLOCKS;
        if self.is_write() {
            self.fill(self.at);
        } else {
            // What is not read is not right.
            self.blocks.memory.get_mut()[..8].fill(0);
        }
        Ok(())
    }

    fn fire(&mut self) -> Result<(), Error> {
        if self.is_write() {
            return self.write(self.at);
        }
        let offset = self.offset(self.at);
        let read = self.blocks.file.read_exact_at(self.blocks.memory.get_mut(), offset);
        read.map_err(|e| self.failed(e))
    }

    fn did(&mut self) -> Did {
        Did { bytes: self.blocks.memory.len as u64, ..Did::ONCE }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    /// What the last one left: in memory, and in the file.
    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let expected = words(self.seed, self.at).repeat(self.blocks.memory.len / 8);
        if let Some(wrong) = Difference::between(&expected, self.blocks.memory.get(), None) {
            return Ok(Some(Wrong::Data(wrong)));
        }
        let offset = self.offset(self.at);
        let read = self.blocks.file.read_exact_at(self.blocks.other.get_mut(), offset);
        read.map_err(|e| self.failed(e))?;
        Ok(Difference::between(&expected, self.blocks.other.get(), None).map(Wrong::Data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_is_read_and_no_file_name_is_left() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for way in [Way::Reads, Way::Writes, Way::Both] {
            let mut opened = match open(folder.path(), way, &Wanted::of(10_000)) {
                Ok(opened) => opened,
                // The source folder is on a file system without O_DIRECT.
                Err(Error::Unavailable(why)) => test_support::skip!("{}", why.reason),
                Err(e) => panic!("{e}"),
            };
            assert_eq!(opened.verify(3, Duration::ZERO).unwrap(), None);
            let mut turn = opened.prepare(5).unwrap();
            for _ in 0..BLOCKS + 3 {
                turn.renew().unwrap();
                turn.fire().unwrap();
                assert_eq!((turn.did().bytes, turn.check().unwrap()), (12_288, None));
            }
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_folder_that_cannot_have_it_is_a_reason() {
        let Err(Error::Unavailable(why)) = open(Path::new("/proc"), Way::Both, &Wanted::of(0)) else { panic!() };
        assert!(why.reason.contains("/proc") && why.reason.contains("TMPDIR"), "{}", why.reason);
    }
}
