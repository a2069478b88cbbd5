//! The kernel's counts for one CPU: time that the host took, interrupts, and softirqs.

use std::time::Duration;

/// Counts since boot, or between two moments ([`Taken::since`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub cpu: usize,
    /// The host ran something else (/proc/stat, steal; in hundredths of a second).
    pub steal: Duration,
    /// Time in interrupts and in softirqs (irq, softirq; as above).
    pub interrupts_time: Duration,
    pub softirq_time: Duration,
    /// Interrupts of all kinds (/proc/interrupts); `None` where that is not readable.
    pub interrupts: Option<u64>,
}

/// USER_HZ: what /proc/stat counts in, whatever the kernel's own tick is.
const TICK: Duration = Duration::from_millis(10);

impl Taken {
    /// The counts now; `None` if the kernel does not report them.
    pub fn now(cpu: usize) -> Option<Taken> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let interrupts = std::fs::read_to_string("/proc/interrupts").ok().and_then(|text| of_interrupts(&text, cpu));
        let [irq, softirq, steal] = of_stat(&stat, cpu)?;
        let time = |ticks: u64| TICK * ticks.min(u32::MAX.into()) as u32;
        let (interrupts_time, softirq_time) = (time(irq), time(softirq));
        Some(Taken { cpu, steal: time(steal), interrupts_time, softirq_time, interrupts })
    }

    /// The difference to an earlier moment.
    pub fn since(&self, earlier: &Taken) -> Taken {
        Taken {
            cpu: self.cpu,
            steal: self.steal.saturating_sub(earlier.steal),
            interrupts_time: self.interrupts_time.saturating_sub(earlier.interrupts_time),
            softirq_time: self.softirq_time.saturating_sub(earlier.softirq_time),
            interrupts: self.interrupts.zip(earlier.interrupts).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// `cpuN user nice system idle iowait irq softirq steal ...`: the last three, which are charged to no program.
fn of_stat(text: &str, cpu: usize) -> Option<[u64; 3]> {
    let name = format!("cpu{cpu}");
    let line = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(&name))?;
    let mut fields = line.split_ascii_whitespace().skip(6).map(|field| field.parse().ok());
    Some([fields.next()??, fields.next()??, fields.next()??])
}

/// The sum of a CPU's column; the first line names the columns.
fn of_interrupts(text: &str, cpu: usize) -> Option<u64> {
    let mut lines = text.lines();
    let name = format!("CPU{cpu}");
    let column = lines.next()?.split_ascii_whitespace().position(|head| head == name)?;
    let counts = lines.filter_map(|line| line.split_ascii_whitespace().nth(1 + column)?.parse::<u64>().ok());
    Some(counts.fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 60 70 80 0 0\ncpu11 1 2 3 4 5 6 7 8 0 0\nintr 5\n";
        assert_eq!(of_stat(stat, 1), Some([60, 70, 80]));
        assert_eq!(of_stat(stat, 11), Some([6, 7, 8]));
        assert_eq!(of_stat(stat, 2), None);
        let interrupts =
            "           CPU0       CPU2\n  1:   10   20  IO-APIC timer\nLOC:  5  7  Local timer\nERR:  3\n";
        assert_eq!((of_interrupts(interrupts, 2), of_interrupts(interrupts, 0)), (Some(27), Some(18)));
        assert_eq!(of_interrupts(interrupts, 1), None);
    }

    #[test]
    fn this_machine_counts_and_counts_only_grow() {
        let Some(first) = crate::placement::affinity().ok().and_then(|all| Taken::now(*all.first()?)) else {
            test_support::skip!("no /proc/stat of this CPU");
        };
        let second = Taken::now(first.cpu).unwrap();
        assert_eq!(second.since(&second).steal, Duration::ZERO);
        assert!(second.interrupts >= first.interrupts && second.steal >= first.steal);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_counted_or_refused(text in "([ 0-9a-zA-Z:]{0,40}\n){0,6}", cpu in 0..5usize) {
            let _ = (of_stat(&text, cpu), of_interrupts(&text, cpu));
        }

        #[test]
        fn lists_of_the_kernel_read_back(columns in proptest::collection::vec(0..1u64 << 40, 10)) {
            let row: Vec<String> = columns.iter().map(u64::to_string).collect();
            let text = format!("cpu  1 2 3 4 5 6 7 8 9 10\ncpu3 {}\nintr 5\n", row.join(" "));
            proptest::prop_assert!(of_stat(&text, 3).is_some() && of_stat(&text, 2).is_none());
        }

        #[test]
        fn huge_counts_are_no_overflow(n in proptest::prelude::any::<u64>()) {
            let stat = format!("cpu0 {n} {n} {n} {n} {n} {n} {n} {n} {n} {n}\n");
            let interrupts = format!("  CPU0\n 0: {n} timer\n 1: {n} timer\n");
            let _ = (of_stat(&stat, 0), of_interrupts(&interrupts, 0));
        }
    }
}
