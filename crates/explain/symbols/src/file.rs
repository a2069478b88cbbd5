//! The file that was mapped, and the one with its debug information, if they are on this machine.

use memmap2::Mmap;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{ElfFile, ProgramHeader};
use object::{LittleEndian, Object};
use schema::symbols::MappedFile;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where distributions keep debug files.
const DEBUG: &str = "/usr/lib/debug";
/// Debug files without a build id are told by a checksum of the whole: up to so many bytes of it.
const CHECKED: u64 = 256 << 20;
const PAGE: u64 = 4096;

/// What is known of a mapped file on this machine.
#[derive(Default)]
pub struct Files {
    /// The file itself, if it is the one that was mapped.
    main: Option<Mmap>,
    debug: Option<Mmap>,
    /// Why `main` is not used, where a file of its path is there.
    pub refused: Option<&'static str>,
}

/// An ELF file of 64 bits.
pub struct Mapped<'data> {
    pub elf: ElfFile<'data, FileHeader64<LittleEndian>>,
}

impl Files {
    /// `recorded_ns`: when the recording began, nanoseconds since 1970.
    pub fn of(file: &MappedFile, recorded_ns: u64) -> Files {
        let path = Path::new(file.path.strip_suffix(" (deleted)").unwrap_or(&file.path));
        let mut files = Files::default();
        if let Some((mapped, metadata)) = open(path) {
            let id = Mapped::parse(&mapped).and_then(|elf| elf.build_id());
            let is_newer = changed_ns(&metadata) > u128::from(recorded_ns);
            files.refused = match (&id, file.build_id.as_slice()) {
                (_, []) if is_newer => Some("changed since"),
                (_, []) => None,
                (Some(id), recorded) if id == recorded => None,
                _ if is_newer => Some("rebuilt since"),
                _ => Some("another build is here"),
            };
            files.main = files.refused.is_none().then_some(mapped);
        }
        let main = files.main.as_deref().and_then(Mapped::parse);
        if !main.as_ref().is_some_and(Mapped::has_lines) {
            // (A recording of an earlier doorbell has no ids; the file itself has been judged by its time.)
            let id = match file.build_id.as_slice() {
                [] => main.as_ref().and_then(Mapped::build_id).unwrap_or_default(),
                id => id.to_vec(),
            };
            files.debug = debug(path, main.as_ref(), &id);
        }
        files
    }

    /// The file itself first.
    pub fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.main.iter().chain(&self.debug).map(|mapped| &mapped[..])
    }
}

impl<'data> Mapped<'data> {
    pub fn parse(bytes: &'data [u8]) -> Option<Mapped<'data>> {
        Some(Mapped { elf: ElfFile::parse(bytes).ok()? })
    }

    fn build_id(&self) -> Option<Vec<u8>> {
        Some(self.elf.build_id().ok()??.to_vec())
    }

    pub fn has_lines(&self) -> bool {
        [".debug_line", ".zdebug_line"].iter().any(|name| self.elf.section_by_name(name).is_some())
    }

    /// The address, as the file counts them, of its first byte.
    pub fn base(&self) -> Option<u64> {
        let loaded = self.elf.elf_program_headers().iter().filter(|h| h.p_type(LittleEndian) == PT_LOAD);
        let first = loaded.min_by_key(|h| h.p_vaddr(LittleEndian))?;
        let (address, offset) = (first.p_vaddr(LittleEndian), first.p_offset(LittleEndian));
        Some((address & !(PAGE - 1)).wrapping_sub(offset & !(PAGE - 1)))
    }
}

/// When a file, or what its path means, was last changed.
fn changed_ns(metadata: &Metadata) -> u128 {
    let ns = |seconds: i64, ns: i64| seconds.max(0) as u128 * 1_000_000_000 + ns.max(0) as u128;
    ns(metadata.ctime(), metadata.ctime_nsec()).max(ns(metadata.mtime(), metadata.mtime_nsec()))
}

/// A regular file, without waiting for anybody: the path comes from a recording.
fn open(path: &Path) -> Option<(Mmap, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return None;
    }
    // SAFETY: a private mapping that is only read. If somebody writes to the file meanwhile, its parsers see other bytes, and they take
    // any; if it is cut, the process ends with SIGBUS.
    let mapped = unsafe { Mmap::map(&file) }.ok()?;
    Some((mapped, metadata))
}

/// The debug file of the build that was mapped: by its id, by the name that the file has of it, beside it.
fn debug(path: &Path, main: Option<&Mapped<'_>>, build_id: &[u8]) -> Option<Mmap> {
    let mut paths = Vec::new();
    if let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) {
        let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
        paths.push(PathBuf::from(format!("{DEBUG}/.build-id/{first:02x}/{rest}.debug")));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let link = main.and_then(|main| main.elf.gnu_debuglink().ok()?);
    if let Some((name, _)) = link
        && let Some(name) = str::from_utf8(name).ok().filter(|name| !name.contains('/'))
    {
        let elsewhere = Path::new(DEBUG).join(folder.strip_prefix("/").unwrap_or(folder));
        paths.extend([folder.join(name), folder.join(".debug").join(name), elsewhere.join(name)]);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".debug");
    paths.push(beside.into());
    paths.iter().find_map(|path| {
        let (mapped, metadata) = open(path)?;
        let elf = Mapped::parse(&mapped)?;
        let is_of_it = match (elf.build_id(), link) {
            (Some(id), _) if !build_id.is_empty() => id == build_id,
            (_, Some((_, checksum))) => metadata.len() <= CHECKED && crc32fast::hash(&mapped) == checksum,
            _ => false,
        };
        is_of_it.then_some(mapped)
    })
}
