//! Fans as CUDA sends them: a driver kernel follows each kernel that others wait for.

use crate::words::graph::{Graph, Step};
use crate::words::kernel::{Kernel, SCHEDULE};
use crate::words::table::Table;
use pushbuf::qmd::PcasAction;

/// Words of a row.
const ROW: usize = 16;
/// The address that was always the same.
const ALWAYS: u64 = 0x7f8f_6ee0_0000;

impl Graph {
    /// A kernel followed by `n` others, with a driver kernel between. The table is at `table`.
    pub fn fan_out(n: usize, table: u64) -> Graph {
        let leaf = |i| Kernel { releases: Some(i), ..Kernel::default() };
        let mut kernels = vec![Kernel { then: vec![(1, SCHEDULE)], ..Kernel::default() }, drivers_kernel(None)];
        kernels.extend((0..n).map(leaf));
        let mut launch = vec![Step::Wait(0, -2)];
        launch.extend((0..n).map(Step::Set));
        launch.push(Step::Start(0, PcasAction::InvalidatePrefetchCopySchedule));
        let mut graph = Graph { kernels, launch, ..Graph::default() };
        let mut rows = vec![(1, (1..=n).collect())];
        rows.extend((0..n).map(|i| (2 + i, Vec::new())));
        graph.put_table(table, &rows);
        graph
    }

    /// `n` kernels, each on a separate channel, and one kernel after all of them. A driver kernel follows each of the `n`.
    pub fn fan_in(n: usize, table: u64) -> Graph {
        let (mut kernels, mut launch, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..n {
            kernels.push(Kernel { then: vec![(2 * i + 1, SCHEDULE)], ..Kernel::default() });
            kernels.push(drivers_kernel(Some(i)));
            rows.push((2 * i + 1, vec![n]));
            launch.extend([Step::On(i), Step::Set(i)]);
            if i + 1 == n {
                launch.push(Step::Set(n));
            }
            launch.push(Step::Start(2 * i, PcasAction::InvalidatePrefetchCopySchedule));
        }
        kernels.push(Kernel { releases: Some(n), ..Kernel::default() });
        rows.push((2 * n, Vec::new()));
        let mut graph = Graph { kernels, launch, ..Graph::default() };
        graph.put_table(table, &rows);
        graph
    }

    /// Writes a table of rows: each is a kernel, and the rows that follow it. One that has any is the driver's, whose parameters are set here.
    pub fn put_table(&mut self, at: u64, rows: &[(usize, Vec<usize>)]) {
        let (mut words, mut numbers) = (Vec::new(), Vec::new());
        let array = at + 4 * (ROW * rows.len()) as u64;
        for (number, (kernel, follow)) in rows.iter().enumerate() {
            let before = rows.iter().filter(|(_, follow)| follow.contains(&number)).count().max(1) as u32;
            let qmd = (self.at.qmd(*kernel) >> 8) as u32;
            let row = [0, follow.len() as u32, numbers.len() as u32, before, before, u32::MAX, qmd, 2];
            words.extend(row);
            // (Something is left over there.)
            words.extend([0x5624 + number as u32; ROW - 8]);
            numbers.extend(follow.iter().map(|row| *row as u32));
            if !follow.is_empty()
                && let Some(kernel) = self.kernels.get_mut(*kernel)
            {
                let first = number as u64 | (follow.len() as u64) << 32;
                kernel.parameters = [first, at, array, ALWAYS].map(u64::to_le_bytes).concat();
            }
        }
        words.extend(numbers);
        self.table = Some(Table { at, rows: rows.to_vec(), words });
    }
}

/// One warp.
fn drivers_kernel(releases: Option<usize>) -> Kernel {
    Kernel { grid: [1; 3], block: [32, 1, 1], releases, ..Kernel::default() }
}
