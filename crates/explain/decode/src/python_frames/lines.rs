//! CPython's line tables: which line an instruction is of.
//!
//! | version | table | described in CPython's sources |
//! |---|---|---|
//! | 3.9 | `co_lnotab`: pairs of bytes, how far and how many lines on | `Objects/lnotab_notes.txt` |
//! | 3.10 | `co_linetable`: the same, each pair a range; -128 is no line | `Objects/lnotab_notes.txt` |
//! | 3.11 to 3.14 | `co_linetable`: entries of one to eight units with lines and columns | `Objects/locations.md` |

/// No line.
const NONE: u32 = u32::MAX;

/// A line table, read: ranges of instructions by their ends, with their lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<(u32, u32)>);

impl Lines {
    /// `minor`: the 11 of 3.11; `first`: `co_firstlineno`.
    pub fn of(table: &[u8], minor: u8, first: i32) -> Lines {
        let mut lines = Lines::default();
        match minor {
            ..10 => lines.pairs(table, first),
            10 => lines.ranges(table, first),
            _ => lines.locations(table, first),
        }
        lines
    }

    /// The line of the instruction at an offset of `at` bytes. `None` if the table has no line for it, or ends before it (see
    /// [`tape::python::code_flags::LINES_CUT`]).
    pub fn at(&self, at: u32) -> Option<u32> {
        let range = self.0.partition_point(|(end, _)| *end <= at);
        self.0.get(range).map(|(_, line)| *line).filter(|line| *line != NONE)
    }

    fn push(&mut self, end: u32, line: Option<i32>) {
        let line = line.and_then(|line| u32::try_from(line).ok()).unwrap_or(NONE);
        match self.0.last_mut() {
            Some(last) if last.1 == line => last.0 = end,
            Some(last) if last.0 >= end => {}
            _ if end == 0 => {}
            _ => self.0.push((end, line)),
        }
    }

    fn pairs(&mut self, table: &[u8], first: i32) {
        let (mut line, mut begins) = (first, 0u32);
        for pair in table.chunks_exact(2) {
            let &[far, lines] = pair else { break };
            begins = begins.saturating_add(far.into());
            if far > 0 {
                self.push(begins, Some(line));
            }
            line = line.wrapping_add(i32::from(lines as i8));
        }
        self.push(u32::MAX, Some(line));
    }

    fn ranges(&mut self, table: &[u8], first: i32) {
        let (mut line, mut ends) = (first, 0u32);
        for pair in table.chunks_exact(2) {
            let &[far, lines] = pair else { break };
            ends = ends.saturating_add(far.into());
            let has_line = lines as i8 != i8::MIN;
            if has_line {
                line = line.wrapping_add(i32::from(lines as i8));
            }
            if far > 0 {
                self.push(ends, has_line.then_some(line));
            }
        }
    }

    fn locations(&mut self, table: &[u8], first: i32) {
        let (mut line, mut ends) = (first, 0u32);
        let mut rest = table;
        while let Some((&head, behind)) = rest.split_first() {
            let more = behind.iter().position(|b| b & FIRST != 0).unwrap_or(behind.len());
            let (entry, next) = behind.split_at(more);
            rest = next;
            ends = ends.saturating_add((u32::from(head & 7) + 1) * UNIT);
            let code = head >> 3 & 15;
            line = line.wrapping_add(match code {
                // With columns on several lines, or without columns.
                13 | 14 => signed(entry),
                // One line on, or two.
                11 | 12 => i32::from(code) - 10,
                _ => 0,
            });
            self.push(ends, (code != 15).then_some(line));
        }
    }
}

/// Bytes of a unit of code.
const UNIT: u32 = 2;
/// Begins an entry.
const FIRST: u8 = 0x80;

/// A number in pieces of six bits, the lowest first, whose lowest bit is its sign.
fn signed(bytes: &[u8]) -> i32 {
    let mut value = 0u32;
    for (i, b) in bytes.iter().enumerate() {
        value |= u32::from(b & 63).checked_shl(6 * i as u32).unwrap_or(0);
        if b & 64 == 0 {
            break;
        }
    }
    let size = (value >> 1) as i32;
    if value & 1 != 0 { size.wrapping_neg() } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_their_sign_in_the_lowest_bit() {
        for (bytes, value) in [(&[0][..], 0), (&[2], 1), (&[3], -1), (&[62], 31), (&[64, 1], 32), (&[65, 1], -32)] {
            assert_eq!(signed(bytes), value, "{bytes:?}");
        }
        assert_eq!(signed(&[]), 0);
    }

    proptest! {
        #[test]
        fn no_table_panics(table: Vec<u8>, minor in 8u8..16, first: i32, at: u32) {
            let lines = Lines::of(&table, minor, first);
            lines.at(at);
            lines.at(at % 1024);
            // In order, and no larger than the table.
            prop_assert!(lines.0.windows(2).all(|w| w[0].0 < w[1].0) && lines.0.len() <= table.len() + 1);
        }

        /// Entries written as CPython writes them are read back.
        #[test]
        fn lines_are_read_back(steps in prop::collection::vec((1u8..=8, -2000i32..2000, 0u8..4), 1..40)) {
            let (mut table, mut line_now, mut expected) = (Vec::new(), 100_000i32, Vec::new());
            for (units, lines, how) in steps {
                let head = |code: u8| 0x80 | code << 3 | (units - 1);
                let (lines, is_known) = match how {
                    0 => { table.push(head(15)); (0, false) }
                    1 => { table.extend([head(11), 5, 9]); (1, true) }
                    2 => { table.extend([head(3), 0x15]); (0, true) }
                    _ => {
                        table.push(head(13));
                        let mut v = (lines.unsigned_abs() << 1) | u32::from(lines < 0);
                        while v >= 64 { table.push(64 | (v & 63) as u8); v >>= 6; }
                        table.push(v as u8);
                        (lines, true)
                    }
                };
                line_now += lines;
                expected.extend((0..units).map(|_| is_known.then_some(line_now as u32)));
            }
            let lines = Lines::of(&table, 12, 100_000);
            for (i, expected) in expected.iter().enumerate() {
                prop_assert_eq!(lines.at(2 * i as u32), *expected);
                prop_assert_eq!(lines.at(2 * i as u32 + 1), *expected);
            }
            prop_assert_eq!(lines.at(2 * expected.len() as u32), None);
        }
    }
}
