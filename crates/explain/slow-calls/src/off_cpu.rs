//! When threads were off CPU.

use crate::activity::{Span, What};
use decode::Source;
use lock_analysis::fast_map::FastMap;
use tape::switch::switch_flags;

/// Threads that are off CPU: since when, whether they were preempted, and the thread that has the CPU.
#[derive(Debug, Default)]
pub struct OffCpu(FastMap<Source, (u64, bool, i32)>);

impl OffCpu {
    /// Takes a context switch of a thread. Returns its time off CPU, if the switch ends that.
    pub fn event(&mut self, thread: Source, flags: u16, tsc: u64, other: i32) -> Option<Span> {
        if flags & switch_flags::OUT != 0 {
            self.0.insert(thread, (tsc, flags & switch_flags::PREEMPTED != 0, other));
            return None;
        }
        let (from, preempted, by) = self.0.remove(&thread)?;
        let (what, of) = if preempted { (What::Preempted, by as u32 as u64) } else { (What::Asleep, 0) };
        Some(Span { from, to: tsc, what, of })
    }
}
