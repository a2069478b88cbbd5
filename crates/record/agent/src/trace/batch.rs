//! What a batch of copies moves, from the arrays that the program passes.
//!
//! The driver reads all of these arrays in the same call. Here, at most [`ADDED_UP`] elements are read.

use super::call::{Words, behind};
use tape::call::{ADDED_UP, Size};

/// Layout of `CUDA_MEMCPY3D_BATCH_OP` in cuda.h: two operands, then width, height and depth.
const OPERATION: usize = 112;
const SOURCE: usize = 0;
const DESTINATION: usize = 40;
const EXTENT: usize = 80;
/// In an operand: its type, and its address if that is `CU_MEMCPY_OPERAND_TYPE_POINTER`.
const ADDRESS: usize = 8;
const POINTER: u32 = 1;

/// The number of copies, and the addresses of the first one: 0 for a CUDA array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct First {
    pub copies: u32,
    pub to: u64,
    pub from: u64,
}

/// The bytes of the first [`ADDED_UP`] copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    pub sum: u64,
    /// There are no others, and all sizes are in bytes.
    pub is_all: bool,
}

/// # Safety
/// The arguments are a caller's of a function with this size.
pub unsafe fn first(of: Size, a: &Words) -> First {
    // SAFETY: the caller's: of each array, the first element.
    let (n, [to, from]) = unsafe {
        match of {
            Size::Copies(to, from, _, n) if a.at(n) > 0 => (n, [to, from].map(|i| behind(a.at(i), 0))),
            Size::Copies3d(at, n) if a.at(n) > 0 => {
                (n, [DESTINATION, SOURCE].map(|i| operand(a.at(at), i).unwrap_or(0)))
            }
            _ => return First::default(),
        }
    };
    First { copies: u32::try_from(a.at(n)).unwrap_or(u32::MAX), to, from }
}

/// # Safety
/// As [`first`].
#[inline(never)]
pub unsafe fn bytes(of: Size, a: &Words) -> Bytes {
    let (n, array) = match of {
        Size::Copies(_, _, sizes, n) => (a.at(n), a.at(sizes)),
        Size::Copies3d(at, n) => (a.at(n), a.at(at)),
        _ => (0, 0),
    };
    let read = n.min(ADDED_UP);
    let (mut sum, mut is_all) = (0u64, n == read);
    for i in 0..read {
        // SAFETY: the caller's: `n` elements.
        sum = sum.wrapping_add(unsafe {
            if matches!(of, Size::Copies(..)) {
                behind(array, i * 8)
            } else {
                let at = i * OPERATION;
                is_all &= operand(array, at + SOURCE).is_some() && operand(array, at + DESTINATION).is_some();
                let [x, y, z] = [0, 8, 16].map(|d| behind(array, at + EXTENT + d));
                x.wrapping_mul(y).wrapping_mul(z)
            }
        });
    }
    Bytes { sum, is_all }
}

/// The address of an operand; `None` for a CUDA array.
///
/// # Safety
/// It is there, unless the pointer is null.
#[inline(always)]
unsafe fn operand(operations: usize, at: usize) -> Option<u64> {
    // SAFETY: the caller's.
    unsafe { (behind(operations, at) as u32 == POINTER).then(|| behind(operations, at + ADDRESS)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: [usize; 4]) -> Words {
        let [a, b, c, d] = of;
        Words([a, b, c, d, 0, 0, 0, 0, 0, 0, 0])
    }

    #[test]
    fn sizes_are_added_up_to_a_bound() {
        let copies = Size::Copies(0, 1, 2, 3);
        let sizes: Vec<u64> = (1..=ADDED_UP as u64 + 5).collect();
        let (to, from) = ([0x7f00_0000_1000u64, 1], [0x7f00_0000_2000u64, 2]);
        let at = |n: usize| words([to.as_ptr() as usize, from.as_ptr() as usize, sizes.as_ptr() as usize, n]);
        let sum = |n: u64| n * (n + 1) / 2;
        for (n, bytes, is_all) in [
            (0, 0, true),
            (1, 1, true),
            (3, 6, true),
            (ADDED_UP, sum(ADDED_UP as u64), true),
            (ADDED_UP + 1, sum(ADDED_UP as u64), false),
            // Only so many are read.
            (usize::MAX, sum(ADDED_UP as u64), false),
        ] {
            // SAFETY: arrays of as many elements as are read.
            let (first, found) = unsafe { (first(copies, &at(n)), super::bytes(copies, &at(n))) };
            assert_eq!(found, Bytes { sum: bytes, is_all }, "{n}");
            let [to, from] = if n == 0 { [0, 0] } else { [to[0], from[0]] };
            assert_eq!(first, First { copies: u32::try_from(n).unwrap_or(u32::MAX), to, from }, "{n}");
        }
        // Without arrays, which the driver refuses.
        let none = words([0, 0, 0, 2]);
        // SAFETY: null pointers are not read.
        assert_eq!(unsafe { first(copies, &none) }, First { copies: 2, to: 0, from: 0 });
        // SAFETY: as above.
        assert_eq!(unsafe { bytes(copies, &none) }, Bytes { sum: 0, is_all: true });
    }

    #[test]
    fn boxes_are_added_up_and_arrays_are_at_least_one_byte_an_element() {
        let copies = Size::Copies3d(1, 0);
        // As words: source, destination (type, address, row, layer, hint), extent, order and flags.
        let one = |from: [u64; 2], to: [u64; 2], [x, y, z]: [u64; 3]| {
            [from[0], from[1], 0, 0, 0, to[0], to[1], 0, 0, 0, x, y, z, 1]
        };
        let rows = one([1, 0x1000_0000], [1, 0x2000_0000], [100, 20, 1]);
        let into_array = one([1, 0x1000_0000], [2, 0xa44a], [16, 16, 2]);
        let at = |all: &[[u64; 14]]| words([all.len(), all.as_ptr() as usize, 0, 0]);
        for (all, to, sum, is_all) in [
            (vec![rows], 0x2000_0000, 2000, true),
            (vec![rows, rows, into_array], 0x2000_0000, 4512, false),
            (vec![into_array], 0, 512, false),
        ] {
            // SAFETY: arrays of as many elements as they say.
            let (first, found) = unsafe { (first(copies, &at(&all)), bytes(copies, &at(&all))) };
            assert_eq!(first, First { copies: all.len() as u32, to, from: 0x1000_0000 });
            assert_eq!(found, Bytes { sum, is_all });
        }
    }
}
