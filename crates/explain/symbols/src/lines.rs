//! Lines, from DWARF.

use crate::demangle;
use crate::file::Mapped;
use addr2line::{Context, Frame};
use gimli::{DwarfSections, EndianSlice, LittleEndian};
use object::{CompressionFormat, Object, ObjectSection};
use schema::symbols::SymbolRow;
use std::borrow::Cow;

/// Bytes of a section after decompression, at most.
const LARGEST: u64 = 1 << 30;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The sections of one file with debug information.
pub struct Sections<'data>(DwarfSections<Cow<'data, [u8]>>);

/// What they say.
pub struct Lines<'a>(Context<Reader<'a>>);

impl<'data> Sections<'data> {
    /// `None` for a file without lines.
    pub fn of(file: &Mapped<'data>) -> Option<Sections<'data>> {
        file.elf.section_by_name(".debug_line").or_else(|| file.elf.section_by_name(".zdebug_line"))?;
        let load = |id: gimli::SectionId| Ok::<_, gimli::Error>(section(file, id.name()).unwrap_or_default());
        Some(Sections(DwarfSections::load(load).ok()?))
    }

    pub fn lines(&self) -> Option<Lines<'_>> {
        let dwarf = self.0.borrow(|section| EndianSlice::new(section, LittleEndian));
        Context::from_dwarf(dwarf).ok().map(Lines)
    }
}

fn section<'data>(file: &Mapped<'data>, name: &str) -> Option<Cow<'data, [u8]>> {
    let compressed = file.elf.section_by_name(name)?.compressed_data().ok()?;
    let fits = compressed.format == CompressionFormat::None || compressed.uncompressed_size <= LARGEST;
    if fits { compressed.decompress().ok() } else { None }
}

impl Lines<'_> {
    /// The function and line of an instruction. Of functions that are inlined there the innermost one that is the program's own: not
    /// `std::lock_guard`, but who uses it.
    pub fn at(&self, address: u64) -> SymbolRow {
        let Ok(mut frames) = self.0.find_frames(address).skip_all_loads() else { return SymbolRow::default() };
        let mut first = None;
        while let Ok(Some(frame)) = frames.next() {
            let row = row(&frame);
            let is_own = row.file.as_deref().is_some_and(|file| !is_of_language(file));
            if is_own {
                return row;
            }
            first.get_or_insert(row);
        }
        first.unwrap_or_default()
    }
}

fn row(frame: &Frame<'_, Reader<'_>>) -> SymbolRow {
    let name = frame.function.as_ref().and_then(|f| f.raw_name().ok()).map(|name| demangle::name(name.as_bytes()));
    let location = frame.location.as_ref();
    SymbolRow {
        name,
        file: location.and_then(|l| l.file).map(demangle::printable),
        line: location.and_then(|l| l.line).filter(|line| *line > 0),
        refused: None,
    }
}

/// A header or source file that comes with a compiler.
fn is_of_language(file: &str) -> bool {
    ["/usr/include/", "/usr/lib/gcc/", "/rustc/"].iter().any(|folder| file.starts_with(folder))
        || file.contains("/include/c++/")
}
