//! The pieces of a batch of copies, from the arrays that the program passes.

use tape::fix::Why;

/// A batch, in the forms of cuMemcpyBatchAsync and cuMemcpy3DBatchAsync.
pub enum Batch {
    Copies {
        to: usize,
        from: usize,
        bytes: usize,
        count: usize,
        attributes: usize,
        attributes_at: usize,
        attributes_count: usize,
    },
    Operations {
        at: usize,
        count: usize,
        flags: u64,
    },
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub to: usize,
    pub from: usize,
    pub bytes: usize,
}

/// `CUmemcpyAttributes`
#[repr(C)]
struct Attributes {
    order: u32,
    hints: [u32; 4],
    flags: u32,
}

/// `CUmemcpy3DOperand`
#[repr(C)]
#[derive(Clone, Copy)]
struct Operand {
    kind: u32,
    address: usize,
    /// In bytes and in rows; 0 for those of the copy.
    row: usize,
    layer: usize,
    hint: [u32; 2],
}

/// `CUDA_MEMCPY3D_BATCH_OP`
#[repr(C)]
#[derive(Clone, Copy)]
struct Operation {
    from: Operand,
    to: Operand,
    width: usize,
    height: usize,
    depth: usize,
    order: u32,
    flags: u32,
}

const _: () = assert!(size_of::<Attributes>() == 24 && size_of::<Operation>() == 112);

/// CU_MEMCPY_OPERAND_TYPE_POINTER
const POINTER: u32 = 1;
/// Pieces of a batch.
const MOST: usize = 1 << 24;
/// Rows of all planes: CUDA needs no more room for a plane of many rows, so the call must not wait for room.
const MOST_ROWS: usize = 4000;

/// CU_MEMCPY_SRC_ACCESS_ORDER_STREAM and _ANY, with at most CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE.
fn is_usual(order: u32, flags: u32) -> bool {
    [1, 3].contains(&order) && flags & !1 == 0
}

impl Operation {
    /// Rows that are no neighbours, and the bytes of each. `None` for arrays, an empty copy, and rows that overlap.
    fn rows(&self) -> Option<(usize, usize)> {
        let [from, to] = [&self.from, &self.to];
        let fits = |of: &Operand| {
            of.kind == POINTER && (of.row == 0 || of.row >= self.width) && (of.layer == 0 || of.layer >= self.height)
        };
        if !fits(from) || !fits(to) || [self.width, self.height, self.depth].contains(&0) {
            return None;
        }
        let rows = self.height.checked_mul(self.depth)?;
        let whole = self.width.checked_mul(rows)?;
        let joined = |of: &Operand| {
            (rows == 1 || self.row(of) == self.width) && (self.depth == 1 || self.layer(of) == self.height)
        };
        // (The last byte has an address.)
        for of in [from, to] {
            let layers = self.row(of).checked_mul(self.layer(of))?.checked_mul(self.depth)?;
            of.address.checked_add(layers.max(whole))?;
        }
        Some(if joined(from) && joined(to) { (1, whole) } else { (rows, self.width) })
    }

    fn row(&self, of: &Operand) -> usize {
        if of.row == 0 { self.width } else { of.row }
    }

    fn layer(&self, of: &Operand) -> usize {
        if of.layer == 0 { self.height } else { of.layer }
    }

    fn address(&self, of: &Operand, n: usize) -> usize {
        let (layer, row) = (n / self.height, n % self.height);
        of.address + (layer * self.layer(of) + row) * self.row(of)
    }
}

impl Batch {
    /// Number of pieces.
    ///
    /// # Errors
    /// Why doorbell does not make these copies.
    ///
    /// # Safety
    /// The arrays are those of a caller of the function.
    pub unsafe fn count(&self) -> Result<usize, Why> {
        match *self {
            Batch::Copies { to, from, bytes, count, attributes, attributes_at, attributes_count } => {
                if [to, from, bytes, attributes, attributes_at, attributes_count].contains(&0) {
                    return Err(Why::Flags);
                }
                // SAFETY: the caller's arrays.
                let usual = |n: usize| unsafe {
                    let of = (attributes as *const Attributes).add(n);
                    is_usual((*of).order, (*of).flags)
                };
                // SAFETY: as above.
                let starts = (unsafe { *(attributes_at as *const usize) }) == 0;
                if starts && count <= MOST && (0..attributes_count).all(usual) { Ok(count) } else { Err(Why::Flags) }
            }
            Batch::Operations { at, count, flags } => {
                if at == 0 || flags != 0 {
                    return Err(Why::Flags);
                }
                let mut all = 0usize;
                for n in 0..count {
                    // SAFETY: the caller's array.
                    let of = unsafe { (at as *const Operation).add(n).read() };
                    let (rows, _) = of.rows().filter(|_| is_usual(of.order, of.flags)).ok_or(Why::Flags)?;
                    all = all.checked_add(rows).filter(|all| *all <= MOST_ROWS).ok_or(Why::Full)?;
                }
                Ok(all)
            }
        }
    }

    /// Calls `put` for each piece.
    ///
    /// # Errors
    /// The first of `put`, or that a piece is not as it was counted.
    ///
    /// # Safety
    /// As [`Batch::count`].
    pub unsafe fn each(&self, mut put: impl FnMut(Piece) -> Result<(), Why>) -> Result<(), Why> {
        match *self {
            Batch::Copies { to, from, bytes, count, .. } => {
                for n in 0..count {
                    // SAFETY: the caller's arrays of `count` elements.
                    let [to, from, bytes] = [to, from, bytes].map(|at| unsafe { *(at as *const usize).add(n) });
                    put(Piece { to, from, bytes })?;
                }
            }
            Batch::Operations { at, count, .. } => {
                for n in 0..count {
                    // SAFETY: the caller's array.
                    let of = unsafe { (at as *const Operation).add(n).read() };
                    let (rows, bytes) = of.rows().ok_or(Why::Flags)?;
                    for row in 0..rows {
                        put(Piece { to: of.address(&of.to, row), from: of.address(&of.from, row), bytes })?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(address: usize, row: usize, layer: usize) -> Operand {
        Operand { kind: POINTER, address, row, layer, hint: [0; 2] }
    }

    fn pieces(of: &[Operation]) -> Result<Vec<(usize, usize, usize)>, Why> {
        let batch = Batch::Operations { at: of.as_ptr() as usize, count: of.len(), flags: 0 };
        let mut all = Vec::new();
        // SAFETY: an array of operations.
        unsafe {
            let count = batch.count()?;
            batch.each(|piece| {
                all.push((piece.to, piece.from, piece.bytes));
                Ok(())
            })?;
            assert_eq!(all.len(), count);
        }
        Ok(all)
    }

    #[test]
    fn rows_that_are_neighbours_on_both_sides_are_one_piece() {
        let of = |from, to, width, height, depth| Operation { from, to, width, height, depth, order: 1, flags: 1 };
        let whole = of(operand(0x1000, 0, 0), operand(0x9000, 4, 2), 4, 2, 3);
        assert_eq!(pieces(&[whole]), Ok(vec![(0x9000, 0x1000, 24)]));
        let one = of(operand(0x1000, 999, 7), operand(0x9000, 0, 0), 4, 1, 1);
        assert_eq!(pieces(&[one]), Ok(vec![(0x9000, 0x1000, 4)]));
        let rows = of(operand(0x1000, 16, 0), operand(0x9000, 0, 3), 4, 2, 2);
        let expected = vec![(0x9000, 0x1000, 4), (0x9004, 0x1010, 4), (0x900c, 0x1020, 4), (0x9010, 0x1030, 4)];
        assert_eq!(pieces(&[rows]), Ok(expected));
    }

    #[test]
    fn what_is_no_plain_copy_is_passed_on() {
        let good = || Operation {
            from: operand(0x1000, 0, 0),
            to: operand(0x9000, 0, 0),
            width: 4,
            height: 2,
            depth: 1,
            order: 3,
            flags: 0,
        };
        assert!(pieces(&[good(), good()]).is_ok());
        for change in [
            |of: &mut Operation| of.from.kind = 2,
            |of: &mut Operation| of.order = 2,
            |of: &mut Operation| of.flags = 2,
            |of: &mut Operation| of.width = 0,
            |of: &mut Operation| of.to.row = 3,
            |of: &mut Operation| of.to.layer = 1,
            |of: &mut Operation| of.height = usize::MAX,
            |of: &mut Operation| of.to.address = usize::MAX - 3,
            |of: &mut Operation| (of.height, of.from.row) = (MOST_ROWS + 1, 8),
        ] {
            let mut wrong = good();
            change(&mut wrong);
            assert!(matches!(pieces(&[good(), wrong]), Err(Why::Flags | Why::Full)));
        }
    }
}
