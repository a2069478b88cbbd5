//! Functions and variables that symbol tables name.

use crate::demangle;
use crate::file::Mapped;
use object::LittleEndian;
use object::elf;
use object::read::elf::{Sym, SymbolTable};
use schema::symbols::Content;

/// What the tables of a file, and of its debug file, have at some addresses.
pub struct Table<'data> {
    /// In their order, with what was found.
    addresses: Vec<(u64, Option<Found<'data>>)>,
}

#[derive(Clone, Copy)]
struct Found<'data> {
    start: u64,
    rank: u8,
    name: &'data [u8],
}

type Symbols<'data> = SymbolTable<'data, elf::FileHeader64<LittleEndian>>;

impl<'data> Table<'data> {
    /// Goes once over each table. The whole ones come first: they have functions that are not exported, too.
    pub fn of(files: &[Mapped<'data>], content: Content, addresses: Vec<u64>) -> Table<'data> {
        let mut out = Table { addresses: addresses.into_iter().map(|address| (address, None)).collect() };
        out.addresses.sort_unstable_by_key(|(address, _)| *address);
        let tables = files.iter().map(|f| f.elf.elf_symbol_table());
        for table in tables.chain(files.iter().map(|f| f.elf.elf_dynamic_symbol_table())) {
            if out.addresses.iter().any(|(_, found)| found.is_none()) {
                out.add(table, content);
            }
        }
        out
    }

    fn add(&mut self, table: &Symbols<'data>, content: Content) {
        for symbol in table.symbols() {
            let is_wanted = match symbol.st_type() {
                elf::STT_FUNC | elf::STT_GNU_IFUNC => content == Content::AfterCall,
                elf::STT_OBJECT => content == Content::Variable,
                _ => false,
            };
            // (An address beyond a symbol's size belongs to something that has no name.)
            let (start, size) = (symbol.st_value(LittleEndian), symbol.st_size(LittleEndian));
            if !is_wanted || size == 0 || symbol.is_undefined(LittleEndian) {
                continue;
            }
            let from = self.addresses.partition_point(|(address, _)| *address < start);
            let within = |address: u64| address - start < size;
            for (address, found) in self.addresses.get_mut(from..).unwrap_or_default() {
                if !within(*address) {
                    break;
                }
                let Ok(name) = symbol.name(LittleEndian, table.strings()) else { continue };
                let rank = match symbol.st_bind() {
                    elf::STB_GLOBAL => 2,
                    elf::STB_WEAK => 1,
                    _ => 0,
                };
                let new = Found { start, rank, name };
                if !name.is_empty() && found.is_none_or(|old| new.is_better(&old)) {
                    *found = Some(new);
                }
            }
        }
    }

    /// The symbol that an address is in, and how far into it.
    pub fn symbol(&self, address: u64) -> Option<(String, u64)> {
        let at = self.addresses.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        let found = self.addresses.get(at)?.1?;
        Some((demangle::name(found.name), address - found.start))
    }
}

impl Found<'_> {
    /// Of two symbols that have an address: the one that begins last, then the one that others are to use.
    fn is_better(&self, old: &Found<'_>) -> bool {
        let underscores = |name: &[u8]| name.iter().take_while(|b| **b == b'_').count();
        let key = |f: &Found<'_>| {
            let (few, short) = (usize::MAX - underscores(f.name), usize::MAX - f.name.len());
            (f.start, f.rank, few, short)
        };
        key(self) > key(old)
    }
}
