//! One counter of unknown width, followed from reading to reading.

use crate::value::Known;
use std::time::{Duration, Instant};

/// A 32-bit counter wraps in 68 ms at the line rate of Gen5 x16.
pub(super) const TOO_LATE: Duration = Duration::from_millis(60);
/// More bytes per second than any link moves: 16 lanes of Gen6, before any coding.
const MOST_A_SECOND: f64 = 128e9;

/// A counter as it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub bytes: u64,
    /// NVML returns it as a 32-bit value. A counter returned in 64 bits may have 32, too.
    pub has_32_bits: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Width {
    #[default]
    Unknown,
    /// It wrapped within 32 bits, or NVML returns 32 bits.
    Narrow,
    /// It was above 32 bits at least once.
    Wide,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counting {
    /// When the counter was last read, and its value.
    last: Option<(Instant, u64)>,
    sum: u64,
    width: Width,
}

impl Counting {
    /// Restarts at the next value. The known width stays.
    pub fn again(self) -> Counting {
        Counting { width: self.width, ..Counting::default() }
    }

    /// Whether two readings are enough, however far apart.
    pub fn is_wide(&self) -> bool {
        self.width == Width::Wide
    }

    /// The sum since the first value. A value that fell within 32 bits wrapped once; that is certain only if readings are so close that it cannot
    /// have wrapped twice. The counter had the value at some moment from `asked` to `answered`.
    pub fn add(&mut self, asked: Instant, answered: Instant, value: Value) -> Known<u64> {
        let Value { bytes, has_32_bits } = value;
        match self.width {
            _ if bytes > u32::MAX.into() => self.width = Width::Wide,
            Width::Unknown if has_32_bits => self.width = Width::Narrow,
            _ => {}
        }
        let Some((then, last)) = self.last.replace((asked, bytes)) else { return Ok(0) };
        let apart = answered.duration_since(then);
        let more = match bytes.checked_sub(last) {
            Some(more) => more,
            None if self.width == Width::Wide => {
                return Err(format!("the counter of the link fell from {last} to {bytes}"));
            }
            None => {
                let more = bytes + (1 << 32) - last;
                if more as f64 > MOST_A_SECOND * apart.as_secs_f64() {
                    return Err(format!(
                        "the counter of the link fell from {last} to {bytes} in {} ms: it was set back, since no link moves {more} bytes in \
                         that time",
                        apart.as_millis()
                    ));
                }
                self.width = Width::Narrow;
                more
            }
        };
        if self.width != Width::Wide && apart > TOO_LATE {
            let has = if self.width == Width::Narrow { "has" } else { "may have" };
            // So that gaps of hours have one reason, and not a different one each.
            let ms = apart.as_millis();
            let apart = if ms < 1000 { format!("{ms} ms") } else { "more than a second".into() };
            return Err(format!(
                "the counter of the link {has} 32 bits, and two readings were {apart} apart: it may have wrapped unseen"
            ));
        }
        self.sum += more;
        Ok(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = u32::MAX as u64;
    const FAR: u64 = 1 << 40;

    /// Milliseconds and values of a counter in 64 bits.
    fn adds(values: &[(u64, u64)]) -> Vec<Known<u64>> {
        adds_of(false, values)
    }

    fn adds_of(has_32_bits: bool, values: &[(u64, u64)]) -> Vec<Known<u64>> {
        let (mut counting, begun) = (Counting::default(), Instant::now());
        let mut add = |&(ms, bytes): &(u64, u64)| {
            let at = begun + Duration::from_millis(ms);
            counting.add(at, at, Value { bytes, has_32_bits })
        };
        values.iter().map(&mut add).collect()
    }

    fn fails(known: &Known<u64>, with: &str) {
        assert!(known.as_ref().is_err_and(|why| why.contains(with)), "{known:?}: not {with}");
    }

    #[test]
    fn a_wide_counter_is_counted_by_its_growth() {
        assert_eq!(adds(&[(0, FAR), (20, FAR + 7), (500, FAR + 6_000_000_007)])[1..], [Ok(7), Ok(6_000_000_007)]);
        // It was reset.
        fails(&adds(&[(0, FAR), (20, 5)])[1], "fell from");
        fails(&adds(&[(0, FAR), (20, FAR - 1)])[1], "fell from");
    }

    #[test]
    fn a_counter_that_passes_32_bits_is_wide() {
        assert_eq!(adds(&[(0, TOP - 9), (20, TOP + 11), (900, TOP + 5_000_000_000)])[1..], [Ok(20), Ok(5_000_000_009)]);
    }

    #[test]
    fn a_counter_of_32_bits_is_followed_as_long_as_looks_are_close() {
        assert_eq!(adds(&[(0, TOP - 9), (20, 10), (40, 30), (60, 39)])[1..], [Ok(20), Ok(40), Ok(49)]);
        let late = adds(&[(0, TOP), (20, 10), (120, 20)]);
        assert_eq!(late[1], Ok(11));
        fails(&late[2], "has 32 bits, and two readings were 100 ms");
    }

    #[test]
    fn at_line_rate_32_bits_wrap_every_68_ms_without_loss() {
        // 63 GB/s, read every 20 ms, and once after 55.
        let times: Vec<u64> = (0..100).map(|n| n * 20 + if n > 50 { 35 } else { 0 }).collect();
        let values: Vec<(u64, u64)> = times.iter().map(|ms| (*ms, (ms * 63_000_000) & TOP)).collect();
        let last = times[99] * 63_000_000;
        assert_eq!(adds(&values)[99], Ok(last));
        assert_eq!(adds_of(true, &values)[99], Ok(last));
        // After 80 ms it has wrapped one more time than is visible.
        let unseen = [(0, 0), (20, 1_260_000_000), (100, 6_300_000_000 & TOP)];
        fails(&adds(&unseen)[2], "may have 32 bits, and two readings were 80 ms");
    }

    #[test]
    fn two_looks_far_apart_count_where_the_counter_is_seen_to_be_wide() {
        assert_eq!(adds(&[(0, FAR), (5000, FAR + 7)])[1], Ok(7));
        fails(&adds(&[(0, 5), (5000, 9)])[1], "may have 32 bits, and two readings were more than a second");
        fails(&adds_of(true, &[(0, 5), (5000, 9)])[1], "has 32 bits, and two readings were more than a second");
    }

    #[test]
    fn a_counter_of_32_bits_that_was_set_back_is_not_taken_for_one_that_came_round() {
        // To wrap, it would have to count 4.29 GB in 20 ms.
        fails(&adds(&[(0, 5000), (20, 10)])[1], "it was set back");
        fails(&adds_of(true, &[(0, 1 << 30), (20, 10)])[1], "it was set back");
    }

    #[test]
    fn the_duration_of_a_reading_counts_as_time_between() {
        let (mut counting, begun) = (Counting::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let value = |bytes| Value { bytes, has_32_bits: true };
        assert_eq!(counting.add(at(0), at(30), value(7)), Ok(0));
        // The reading began after 31 ms, and ended after 61.
        fails(&counting.add(at(31), at(61), value(9)), "61 ms");
    }

    #[test]
    fn a_counter_that_begins_again_forgets_the_time_between_and_keeps_its_width() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let value = |bytes| Value { bytes, has_32_bits: false };
        let mut counting = Counting::default();
        assert_eq!(counting.add(at(0), at(0), value(TOP)), Ok(0));
        assert_eq!(counting.add(at(20), at(20), value(6)), Ok(7));
        let mut again = counting.again();
        assert_eq!(again.add(at(2000), at(2000), value(50)), Ok(0));
        assert_eq!(again.add(at(2020), at(2020), value(60)), Ok(10));
        fails(&again.add(at(3000), at(3000), value(61)), "has 32 bits");
        assert!(!again.is_wide());
    }
}
