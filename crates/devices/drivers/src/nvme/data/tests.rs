use super::*;
use pcie::{Place, Run};
use proptest::prelude::*;
use std::sync::Arc;

/// Memory of these (bus, bytes), which is never accessed.
fn memory(runs: &[(u64, u64)]) -> Memory {
    let mut offset = 0;
    let runs = runs.iter().map(|(bus, length)| {
        let run = Run { offset, bus: *bus, length: *length };
        offset += length;
        run
    });
    // SAFETY: the memory is never accessed.
    unsafe { Memory::new(Place::Host, runs.collect(), None, Arc::new(())) }
}

struct Pages(Vec<Box<[u64; WORDS]>>);

/// The pretended bus address of list page `index`.
fn bus_of_page(index: usize) -> u64 {
    0x7700_0000_0000 + index as u64 * PAGE
}

impl Pages {
    fn new(pages: usize) -> Pages {
        Pages((0..pages).map(|_| Box::new([0xdead_dead_dead_dead; WORDS])).collect())
    }

    fn describe(&mut self, pieces: &[Piece<'_>]) -> Result<Pointer, Error> {
        let pages = self.0.iter_mut().enumerate();
        let pages: Vec<_> =
            pages.map(|(i, page)| ListPage { cpu: NonNull::from(&mut page[0]), bus: bus_of_page(i) }).collect();
        describe(pieces, 1 << 30, &Lists(&pages))
    }

    fn at(&self, bus: u64) -> Option<&[u64; WORDS]> {
        let index = bus.checked_sub(bus_of_page(0))? / PAGE;
        assert!(bus.is_multiple_of(PAGE));
        self.0.get(index as usize).map(|page| &**page)
    }

    /// How a controller interprets PRPs, as (bus, bytes) of each entry (Base 1.4, section 4.3).
    fn walk_prp(&self, pointer: Pointer, bytes: u64) -> Vec<(u64, u64)> {
        let Pointer(first, second) = pointer;
        let mut left = bytes;
        let mut found = Vec::new();
        let mut take = |bus: u64| {
            let part = (PAGE - bus % PAGE).min(left);
            found.push((bus, part));
            left -= part;
            left
        };
        if take(first) == 0 {
            return found;
        }
        if (bytes - found_bytes(first, bytes)) <= PAGE {
            assert_eq!(take(second), 0);
            return found;
        }
        let mut left = bytes - found_bytes(first, bytes);
        let mut list = self.at(second).expect("a list page");
        let mut index = 0;
        while left > 0 {
            if index == WORDS - 1 && left > PAGE {
                list = self.at(list[index]).expect("a list page");
                index = 0;
            }
            assert!(list[index].is_multiple_of(PAGE));
            left = take(list[index]);
            index += 1;
        }
        found
    }
}

fn found_bytes(first: u64, bytes: u64) -> u64 {
    (PAGE - first % PAGE).min(bytes)
}

/// Bus address ranges of the data, with adjacent ranges merged.
fn merged(parts: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (bus, bytes) in parts {
        match all.last_mut() {
            Some(last) if last.0 + last.1 == bus => last.1 += bytes,
            _ => all.push((bus, bytes)),
        }
    }
    all
}

#[test]
fn one_and_two_pages_need_no_list() {
    let host = memory(&[(0x10000, 0x2000)]);
    let mut pages = Pages::new(1);
    let told = |pages: &mut Pages, offset, bytes| pages.describe(&[Piece::new(&host, offset, bytes)]).unwrap();
    assert_eq!(told(&mut pages, 0, 4096), Pointer(0x10000, 0));
    assert_eq!(told(&mut pages, 0, 8192), Pointer(0x10000, 0x11000));
    assert_eq!(told(&mut pages, 0xe00, 512), Pointer(0x10e00, 0));
    assert_eq!(told(&mut pages, 0xe00, 1024), Pointer(0x10e00, 0x11000));
}

#[test]
fn a_list_crosses_into_the_next_page_at_its_last_entry() {
    for list in [2, 510, 511, 512, 513, 1022, 1023, 1024, 1534] {
        let bytes = (list + 1) * PAGE;
        let host = memory(&[(0x1000_0000, bytes)]);
        let mut pages = Pages::new(list_pages(bytes) as usize);
        let told = pages.describe(&[Piece::new(&host, 0, bytes)]).unwrap();
        assert_eq!(told, Pointer(0x1000_0000, bus_of_page(0)), "{list}");
        assert_eq!(merged(pages.walk_prp(told, bytes)), [(0x1000_0000, bytes)], "{list}");
        let full = pages.0[0][WORDS - 1];
        match list {
            ..512 => assert_eq!(full, 0xdead_dead_dead_dead),
            512 => assert_eq!(full, 0x1000_0000 + 512 * PAGE, "the last entry is data"),
            _ => assert_eq!(full, bus_of_page(1), "the last entry leads on"),
        }
    }
}

#[test]
fn host_and_peer_mix_and_what_prps_cannot_tell_is_refused() {
    let (host, peer) = (memory(&[(0x5000, 0x4000)]), memory(&[(0xe000_0000, 0x10000)]));
    let mut pages = Pages::new(1);
    let mixed = [Piece::new(&host, 0x800, 0x800), Piece::new(&peer, 0x3000, 0x2000), Piece::new(&host, 0x2000, 0x200)];
    let told = pages.describe(&mixed).unwrap();
    let expected = [(0x5800, 0x800), (0xe000_3000, 0x2000), (0x7000, 0x200)];
    assert_eq!(merged(pages.walk_prp(told, 0x2a00)), expected);

    let broken = [Piece::new(&host, 0, 0x200), Piece::new(&peer, 0, 0x200)];
    let refused = pages.describe(&broken);
    assert!(matches!(refused, Err(Error::Data(Unfit::Broken { at: 0x200 }))), "{refused:?}");
    let later = [Piece::new(&host, 0, 0x1000), Piece::new(&peer, 0x200, 0x200)];
    assert!(matches!(pages.describe(&later), Err(Error::Data(Unfit::Broken { at: 0x1000 }))));
}

#[test]
fn wrong_data_are_refused() {
    let host = memory(&[(0x5000, 0x4000)]);
    let mut pages = Pages::new(1);
    let mut refused = |offset, bytes| pages.describe(&[Piece::new(&host, offset, bytes)]).unwrap_err();
    assert!(matches!(refused(0, 0), Error::Data(Unfit::Nothing)));
    assert!(matches!(refused(0x3e00, 0x400), Error::Bus(pcie::Error::OutOfBounds { .. })));
    assert!(matches!(refused(0, 2 << 30), Error::Data(Unfit::TooLong { .. })));
    assert!(matches!(refused(2, 512), Error::Data(Unfit::Misaligned { bus: 0x5002 })));
    let scattered: Vec<(u64, u64)> = (0..600).map(|i| (0x100_0000 + i * 2 * PAGE, PAGE)).collect();
    let scattered = memory(&scattered);
    let many = pages.describe(&[Piece::new(&scattered, 0, 600 * PAGE)]);
    assert!(matches!(many, Err(Error::Data(Unfit::TooManyPieces(1)))), "{many:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// For any memories, a controller that follows the description finds exactly the data's bytes.
    #[test]
    fn a_description_names_exactly_the_data(
        runs in proptest::collection::vec((0u64..1 << 20, 1u64..40), 1..60),
        cuts in proptest::collection::vec((0u64..4, 1u64..600), 1..9),
    ) {
        let mut bus = 0x10_0000;
        let all: Vec<(u64, u64)> = runs.iter().map(|(gap, pages)| {
            bus += gap / 0x1000 * PAGE;
            let run = (bus, pages * PAGE);
            bus += pages * PAGE;
            run
        }).collect();
        let memory = memory(&all);
        let mut pieces = Vec::new();
        let mut offset = 0;
        for (skip, blocks) in cuts {
            offset += skip * 512;
            let bytes = (blocks * 512).min(memory.length().saturating_sub(offset));
            if bytes == 0 { break }
            pieces.push(Piece::new(&memory, offset, bytes));
            offset += bytes;
        }
        prop_assume!(!pieces.is_empty());
        let bytes = total(&pieces);
        let mut expected = Vec::new();
        segments(&pieces, |_, bus, bytes| { expected.push((bus, bytes)); Ok(()) }).unwrap();
        let mut pages = Pages::new(list_pages(bytes).max(2) as usize);
        match pages.describe(&pieces) {
            Ok(told) => prop_assert_eq!(merged(pages.walk_prp(told, bytes)), expected),
            Err(Error::Data(Unfit::Broken { .. })) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
