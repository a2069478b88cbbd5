//! CPU pressure while the cells took turns: the machine's, with the threads of the measurement and its loads.

use super::{PartOfRun, Run};

impl Run {
    /// The part of the measured time in which a runnable thread of the machine had no CPU, from 0 to 1. `None`: no part counted it. Those of an
    /// older doorbell did not.
    pub fn pressure(&self) -> Option<f64> {
        pressure(self.parts.iter())
    }

    /// The same for some stages.
    pub fn pressure_of(&self, stages: &[u32]) -> Option<f64> {
        pressure(self.parts.iter().filter(|part| stages.contains(&part.stage)))
    }
}

fn pressure<'p>(parts: impl Iterator<Item = &'p PartOfRun>) -> Option<f64> {
    let value = |part: &PartOfRun, name: &str| part.counted.iter().find(|c| c.name == name).map(|c| c.value);
    let each = parts.filter_map(|part| value(part, "cpu_pressure_ms").zip(value(part, "wall_ms")));
    let (waited, wall) = each.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    (wall > 0.0).then(|| (waited / wall).clamp(0.0, 1.0))
}
