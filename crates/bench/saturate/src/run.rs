//! A run. Its parts are the cells of a plan, in a new random order for each repeat, or those that the search for the knee selects.

use crate::Error;
use crate::account::{Measured, Part, SCHEMA, Saturated, Status};
use crate::cell::{self, Cell, Outcome};
use crate::folder::Folder;
use crate::plan::{Amounts, CellName, Plan};
use crate::source::{Checked, Shape, Source};
use crate::sum_up;
use crate::wire::{Wire, crossed};
use crate::worker::Limits;
use measure::clock::Clock;
use std::time::Duration;

/// Samples of the wire.
const EVERY: Duration = Duration::from_millis(100);

/// What a run needs.
pub struct Leader<'a> {
    pub folder: &'a Folder,
    pub source: &'a mut dyn Source,
    pub wire: &'a mut dyn Wire,
    pub clock: &'a Clock,
    /// Asked before each cell.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    Stopped,
}

/// What is about to be measured.
#[derive(Clone, Copy, Debug)]
pub struct News {
    pub cell: CellName,
    pub repeat: u32,
    /// How many parts are done, and how many there will be; `None` while a search decides that.
    pub done: usize,
    pub of: Option<usize>,
}

impl Leader<'_> {
    /// Measures the missing parts.
    ///
    /// # Errors
    /// The folder cannot be written, or the plan is not valid. A cell that fails becomes a part with the reason.
    pub fn run(&mut self, tell: &mut dyn FnMut(News)) -> Result<End, Error> {
        let asked = self.folder.asked();
        let (plan, amounts) = (asked.plan.clone(), amounts(&asked.plan)?);
        let mut parts = self.folder.parts()?;
        // The knee is found by rates; without rates every cell is measured.
        if asked.find_knee && !self.source.is_functional() {
            return self.search(&plan, amounts, &mut parts, tell);
        }
        let cells = plan.cells();
        for repeat in 0..plan.run.repeats {
            for number in order(cells.len(), plan.run.seed, repeat) {
                let (done, of) = (parts.len(), Some(cells.len() * plan.run.repeats as usize));
                if self.is_done(&parts, repeat, number) {
                    continue;
                }
                if (self.is_stopped)() {
                    return Ok(End::Stopped);
                }
                tell(News { cell: cells[number], repeat, done, of });
                parts.push(self.part(&plan, amounts, (repeat, number), cells[number])?);
            }
        }
        Ok(End::Complete)
    }

    fn is_done(&self, parts: &[Part], repeat: u32, number: usize) -> bool {
        parts.iter().any(|part| (part.repeat, part.number as usize) == (repeat, number))
    }

    /// Measures until each knee is found, the peaks first.
    fn search(
        &mut self,
        plan: &Plan,
        amounts: Amounts,
        parts: &mut Vec<Part>,
        tell: &mut dyn FnMut(News),
    ) -> Result<End, Error> {
        let cells = plan.cells();
        loop {
            // A cell that a stopped run measured only in some repeats does not affect the search.
            let whole = of_all_repeats(parts, plan.run.repeats);
            let totals = sum_up::totals(plan, &whole, None, &|flow| self.source.traffic(flow));
            let peak = cells.iter().position(|cell| {
                cell.role == crate::plan::Role::Peak && totals.iter().all(|total| total.cell != *cell)
            });
            let asked =
                || sum_up::knees(plan, &totals).0.and_then(|asked| cells.iter().position(|cell| *cell == asked));
            let Some(number) = peak.or_else(asked) else { return Ok(End::Complete) };
            for repeat in 0..plan.run.repeats {
                if self.is_done(parts, repeat, number) {
                    continue;
                }
                if (self.is_stopped)() {
                    return Ok(End::Stopped);
                }
                tell(News { cell: cells[number], repeat, done: parts.len(), of: None });
                parts.push(self.part(plan, amounts, (repeat, number), cells[number])?);
            }
        }
    }

    /// Measures one cell and keeps it.
    fn part(
        &mut self,
        plan: &Plan,
        amounts: Amounts,
        (repeat, number): (u32, usize),
        name: CellName,
    ) -> Result<Part, Error> {
        let started = environment::utc_now().unwrap_or_default();
        let cell = cell_of(plan, amounts, &name, repeat);
        let measured = match cell.shape.part {
            0 => {
                let what =
                    format!("run.buffer has no room for {} I/Os of {} bytes of each queue", 2 * name.depth, name.bytes);
                Err(Error::Unavailable(what))
            }
            _ => cell::run(self.source, &cell, self.clock, self.wire),
        };
        let mut part = Part {
            repeat,
            number: number as u32,
            cell: name,
            started,
            status: Status::Done,
            ios: 0,
            submitted: 0,
            refused: 0,
            checked: Checked::default(),
            measured: None,
            notes: Vec::new(),
        };
        match measured {
            Ok(outcome) => fill(&mut part, outcome, &cell, self.source.is_functional()),
            Err(Error::Unavailable(why)) => part.status = Status::Unavailable(why),
            Err(error) => part.status = Status::Failed(error.to_string()),
        }
        self.folder.write_part(&part)?;
        Ok(part)
    }

    /// What the parts say together, so far.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn account(&self) -> Result<Saturated, Error> {
        let parts = self.folder.parts()?;
        let asked = self.folder.asked();
        let functional = self.source.is_functional();
        let facts = asked.environment.get("facts").cloned().unwrap_or_default();
        let link = sum_up::link(&facts, &asked.plan.link).filter(|_| !functional);
        let cells = sum_up::totals(&asked.plan, &parts, link.as_ref(), &|flow| self.source.traffic(flow));
        let (missing, knees) = sum_up::knees(&asked.plan, &cells);
        let all = asked.plan.cells().len() * asked.plan.run.repeats as usize;
        let is_whole = of_all_repeats(&parts, asked.plan.run.repeats).len() == parts.len();
        let is_found = asked.find_knee && !functional && missing.is_none() && is_whole;
        let complete = parts.len() == all || is_found;
        Ok(Saturated {
            schema: SCHEMA.into(),
            doorbell: asked.doorbell.clone(),
            commit: asked.commit.clone(),
            command: asked.command.clone(),
            plan: asked.plan.clone(),
            started: asked.started.clone(),
            ended: environment::utc_now().unwrap_or_default(),
            complete,
            functional,
            environment: asked.environment.clone(),
            warnings: asked.warnings.clone(),
            source: self.source.about(),
            link,
            cells,
            knees: if functional { Vec::new() } else { knees },
        })
    }
}

/// The parts of cells that were measured in every repeat.
fn of_all_repeats(parts: &[Part], repeats: u32) -> Vec<Part> {
    let count = |number: u32| parts.iter().filter(|part| part.number == number).count();
    parts.iter().filter(|part| count(part.number) == repeats as usize).cloned().collect()
}

fn amounts(plan: &Plan) -> Result<Amounts, Error> {
    plan.amounts().map_err(|(what, hint)| Error::Plan { origin: plan.name.clone(), what, hint: hint.into() })
}

/// The order of the cells in a repeat; the same for the same seed.
pub fn order(cells: usize, seed: u64, repeat: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(repeat)).shuffle(&mut order);
    order
}

/// The part has 0 bytes if the buffer has no room for twice the depth.
fn cell_of(plan: &Plan, amounts: Amounts, name: &CellName, repeat: u32) -> Cell {
    let queues = u64::from(name.devices * name.queues);
    let fit = amounts.buffer / queues / name.bytes.max(1);
    let is_peak = name.role == crate::plan::Role::Peak;
    // The peak gets as much as it needs.
    let blocks = if is_peak { fit.max(2 * u64::from(name.depth)).next_power_of_two() } else { fit };
    let blocks = if blocks < 2 * u64::from(name.depth) { 0 } else { 1 << blocks.ilog2() };
    Cell {
        shape: Shape {
            flow: name.flow(),
            devices: name.devices,
            queues: name.queues,
            depth: name.depth,
            bytes: name.bytes,
            part: blocks * name.bytes,
            batch: name.batch,
            way: name.way,
            seed: plan.run.seed ^ u64::from(repeat) << 32,
        },
        threads: name.threads,
        cpus: cpus(&plan.run.cpus, name.threads as usize),
        duration: amounts.duration,
        // A few long I/Os are enough to warm up.
        limits: Limits {
            warm_ios: plan.run.warm_up.min((amounts.buffer / name.bytes.max(1)).max(1)),
            patience: amounts.timeout,
        },
        every: EVERY,
    }
}

/// The named CPUs, or the last ones of this process: the first ones serve interrupts and everything else.
fn cpus(named: &[usize], threads: usize) -> Vec<usize> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let all = placement::affinity().unwrap_or_default();
    if all.len() > threads { all[all.len() - threads..].to_vec() } else { Vec::new() }
}

fn fill(part: &mut Part, outcome: Outcome, cell: &Cell, functional: bool) {
    part.ios = outcome.ios();
    part.submitted = outcome.submitted;
    part.refused = outcome.refused();
    part.measured = (!functional && part.ios > 0).then(|| measured(&outcome, cell));
    part.checked = outcome.checked;
    part.notes = outcome.notes;
}

fn measured(outcome: &Outcome, cell: &Cell) -> Measured {
    let (ios, threads) = (outcome.ios() as f64, &outcome.threads);
    let iops = outcome.iops();
    let cycles: Option<u64> = threads.iter().map(|thread| thread.used.cycles).sum();
    Measured {
        seconds: threads.iter().map(|thread| thread.seconds).fold(0.0, f64::max),
        iops,
        payload: iops * cell.shape.bytes as f64,
        latency: outcome.latency(),
        cpu_ns_per_io: threads.iter().map(|thread| thread.used.cpu_ns as f64).sum::<f64>() / ios,
        cycles_per_io: cycles.map(|cycles| cycles as f64 / ios),
        cycles_with_kernel: threads.iter().all(|thread| thread.used.with_kernel),
        wire: crossed(&outcome.moments, cell.shape.bytes, cell.every),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repeat_has_an_order_of_its_own_and_the_same_again() {
        let orders: Vec<Vec<usize>> = (0..3).map(|repeat| order(20, 7, repeat)).collect();
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        assert_eq!(order(20, 7, 1), orders[1]);
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_cell_has_room_for_twice_its_depth_or_none() {
        let plan =
            crate::plan::read("name = 'a'\n[run]\nbuffer = '1MiB'\n[matrix]\nbytes = '4KiB,8KiB'", "a", &[]).unwrap();
        let (cells, amounts) = (plan.cells(), plan.amounts().unwrap());
        let part = |cell: &CellName| cell_of(&plan, amounts, cell, 0).shape.part;
        // The peak gets what it needs: 8 I/Os of 16 MiB.
        assert_eq!(cells.iter().map(part).collect::<Vec<_>>(), [128 << 20, 1 << 20, 0]);
    }
}
