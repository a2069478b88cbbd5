//! A struct as one driver branch has it: which bytes of the full declaration the branch lacks.
//!
//! Each struct is declared once, with every field that any branch has. NVIDIA has only ever inserted fields or lengthened an array, so a branch's
//! layout is the declaration with some bytes removed.

use super::Plain;
use core::marker::PhantomData;
use core::mem::size_of;

/// How a branch lays out `T`.
#[derive(Clone, Copy, Debug)]
pub struct Shape<T> {
    cuts: Cuts,
    of: PhantomData<fn() -> T>,
}

/// Begin and end of the missing ranges, in bytes of the declaration; in order, without overlap.
pub type Cuts = &'static [(usize, usize)];

impl<T: Plain> Shape<T> {
    /// All of it.
    pub const fn whole() -> Self {
        Shape { cuts: &[], of: PhantomData }
    }

    /// All but these bytes.
    pub const fn without(cuts: Cuts) -> Self {
        let (mut i, mut at) = (0, 0);
        while i < cuts.len() {
            assert!(at <= cuts[i].0 && cuts[i].0 < cuts[i].1 && cuts[i].1 <= size_of::<T>(), "cuts");
            at = cuts[i].1;
            i += 1;
        }
        Shape { cuts, of: PhantomData }
    }

    /// The bytes that the branch does not have.
    pub const fn cuts(&self) -> Cuts {
        self.cuts
    }

    /// Size of the branch's struct in bytes (0: the branch has no such struct).
    pub const fn size(&self) -> usize {
        size_of::<T>() - missing(self.cuts, size_of::<T>())
    }

    /// The branch's offset of the field declared at `offset`; `None` if the branch lacks it.
    pub const fn offset(&self, offset: usize) -> Option<usize> {
        let mut i = 0;
        while i < self.cuts.len() {
            if self.cuts[i].0 <= offset && offset < self.cuts[i].1 {
                return None;
            }
            i += 1;
        }
        Some(offset - missing(self.cuts, offset))
    }

    /// The struct at the start of the branch's `bytes`; `None` if there are too few. What the branch has not is zero.
    pub fn read(&self, bytes: &[u8]) -> Option<T> {
        if bytes.len() < self.size() { None } else { Some(self.read_short(bytes)) }
    }

    /// The struct whose first bytes are the branch's `bytes`, the rest zero: for records that were cut.
    pub fn read_short(&self, bytes: &[u8]) -> T {
        let mut value = T::zeroed();
        expand(self.cuts, bytes, value.as_bytes_mut());
        value
    }

    /// The struct's bytes as the branch has them.
    #[cfg(any(feature = "std", test))]
    pub fn bytes(&self, value: &T) -> Vec<u8> {
        let mut bytes = value.as_bytes().to_vec();
        let size = compact(self.cuts, value.as_bytes(), &mut bytes);
        bytes.truncate(size);
        bytes
    }

    /// Puts the struct into `to` as the branch has it. Returns its size; `None` if `to` is shorter.
    pub fn write(&self, value: &T, to: &mut [u8]) -> Option<usize> {
        let to = to.get_mut(..self.size())?;
        compact(self.cuts, value.as_bytes(), to);
        Some(to.len())
    }
}

/// Bytes that are missing before `offset` of the declaration.
const fn missing(cuts: Cuts, offset: usize) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < cuts.len() && cuts[i].0 < offset {
        sum += if cuts[i].1 < offset { cuts[i].1 } else { offset } - cuts[i].0;
        i += 1;
    }
    sum
}

/// The pieces between the cuts of a declaration of `whole` bytes: where they begin and end.
fn pieces(cuts: Cuts, whole: usize) -> impl Iterator<Item = (usize, usize)> {
    let begins = core::iter::once(0).chain(cuts.iter().map(|cut| cut.1));
    begins.zip(cuts.iter().map(|cut| cut.0).chain(core::iter::once(whole)))
}

/// From a branch's bytes, which may be cut short, to those of the declaration. Bytes that the branch has not stay.
pub(crate) fn expand(cuts: Cuts, mut from: &[u8], to: &mut [u8]) {
    for (begin, end) in pieces(cuts, to.len()) {
        let Some(piece) = to.get_mut(begin..end) else { return };
        let n = piece.len().min(from.len());
        let (now, rest) = from.split_at(n);
        piece[..n].copy_from_slice(now);
        from = rest;
    }
}

/// From the declaration's bytes to the branch's, as many as `to` takes. Returns how many.
pub(crate) fn compact(cuts: Cuts, from: &[u8], to: &mut [u8]) -> usize {
    let mut at = 0;
    for (begin, end) in pieces(cuts, from.len()) {
        let (Some(piece), Some(room)) = (from.get(begin..end), to.get_mut(at..)) else { break };
        let n = piece.len().min(room.len());
        room[..n].copy_from_slice(&piece[..n]);
        at += n;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    type Four = [u32; 4];
    const MIDDLE: Shape<Four> = Shape::without(&[(4, 8), (12, 16)]);

    #[test]
    fn a_shape_reads_and_writes_its_fields() {
        assert_eq!((MIDDLE.size(), Shape::<Four>::whole().size()), (8, 16));
        let mut bytes = [0xff; 10];
        assert_eq!(MIDDLE.write(&[1, 2, 3, 4], &mut bytes), Some(8));
        assert_eq!(bytes, [1, 0, 0, 0, 3, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(MIDDLE.read(&bytes), Some([1, 0, 3, 0]));
        assert_eq!(MIDDLE.read(&bytes[..7]), None);
        assert_eq!(MIDDLE.read_short(&bytes[..5]), [1, 0, 3, 0]);
        assert_eq!(MIDDLE.write(&[0; 4], &mut [0; 7]), None);
        assert_eq!([0, 4, 8, 12].map(|at| MIDDLE.offset(at)), [Some(0), None, Some(4), None]);
        assert_eq!(Shape::<Four>::without(&[(0, 16)]).size(), 0);
    }
}
