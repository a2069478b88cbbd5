//! The driver's kernels that start other kernels by a table, replaced by QMDs without blocks.
//!
//! CUDA (13.0, driver 580.159.04, seen on an H200) adds a driver kernel after each kernel that others wait for, in three cases: more than two
//! kernels follow one, kernels of several streams join, or the node is conditional. That driver kernel has 32 threads. Its parameters are its row
//! in a table (u32), how many rows it acts on (u32), the table, an array after the table, and an address that is always the same (u64 each). The
//! table has a row of 64 bytes for each node of the fan:
//!
//! | word | |
//! |---|---|
//! | 0 | 0; 1 for a conditional node |
//! | 1 | rows that follow this one |
//! | 2 | the index of the first of their numbers in the array (of u32) |
//! | 3, 4 | how many rows precede it: the count that is decremented, and its reset value. (1 if there are none.) |
//! | 5 | -1 |
//! | 6 | address of its QMD / 256 |
//! | 7 | the PCAS_ACTION on it when all of them are complete: SCHEDULE, or DECREMENT_DEPENDENCE if others precede it, too |
//! | 8 to 15 | unused, with old contents |
//!
//! So the table holds all edges. The words do not show how that kernel reaches the scheduler, and doorbell need not know: a QMD without blocks that
//! acts on two others does the same, and CUDA itself uses such QMDs for a fork of three streams. One such QMD replaces the kernel and keeps its
//! counters. If it acts on more than two others, more QMDs are added between them, as a tree. A QMD with several predecessors counts them itself
//! (DEPENDENCE_COUNTER, 16 bits), as CUDA does where two chains join.

use crate::kernels::{Banks, Kernels};
use crate::refused::Refused;
use crate::step::{Placed, Step};
use pushbuf::qmd::{DependentAction, PcasAction, Qmd};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Words of a row.
const ROW: usize = 16;
/// A write longer than a counter may be a table.
const COUNTER_BYTES: u32 = 4;
/// QMDs that CUDA does not have get addresses at the end of the range that QMD pointers can hold (40 bits). They are moved before anything is
/// submitted.
const NEW_BELOW: u64 = 1 << 40;
const STRIDE: u64 = 0x200;
/// Fields that a QMD without blocks copies from the kernel that it replaces. All others are 0, except [`NO_BLOCKS`] (the same as in CUDA's QMDs for
/// a fork).
const KEPT: &[&str] = &[
    "DEPENDENCE_COUNTER",
    "QMD_GROUP_ID",
    "QMD_TYPE",
    "REQUIRE_SCHEDULING_PCAS",
    "SELF_COPY_ON_COMPLETION",
    "SASS_VERSION",
    "SHADER_LOCAL_MEMORY_HIGH_SIZE",
    "API_VISIBLE_CALL_LIMIT",
    "SAMPLER_INDEX",
    "QMD_MINOR_VERSION",
    "QMD_MAJOR_VERSION",
    "INVALIDATE_",
    "MIN_SM_CONFIG_",
    "MAX_SM_CONFIG_",
    "TARGET_SM_CONFIG_",
    "BARRIER_COUNT",
];
/// Only the QMD that replaces the kernel releases its counters.
const RELEASES: &str = "RELEASE_";
const NO_BLOCKS: [(&str, u64); 4] = [
    ("CTA_THREAD_DIMENSION0", 1),
    ("CTA_THREAD_DIMENSION1", 1),
    ("CTA_THREAD_DIMENSION2", 1),
    // As CUDA's own.
    ("REGISTER_COUNT", 3),
];
/// Fields of the added QMDs between the replacing QMD and the others: one QMD starts each of them, every time.
const BETWEEN: [(&str, u64); 3] =
    [("DEPENDENCE_COUNTER", 0), ("REQUIRE_SCHEDULING_PCAS", 1), ("SELF_COPY_ON_COMPLETION", 1)];

/// The upload without the driver's kernels, if it has kernels as described at the top of this module. Other driver kernels are refused by [`left`].
pub(crate) fn replaced(
    upload: &[Placed],
    relaunch: &[Placed],
    kernels: &Kernels,
    banks: &Banks,
) -> Result<Option<Vec<Placed>>, Refused> {
    let mut fans = Fans { kernels, new: HashMap::new(), banks: HashSet::new(), tables: HashSet::new() };
    for table in tables(upload, relaunch, kernels, banks) {
        if let Some(read) = fans.read(&table, banks) {
            fans.replace(&table, &read)?;
        }
    }
    Ok((!fans.tables.is_empty()).then(|| fans.rewritten(upload.to_vec())))
}

/// Refuses kernels of the driver's that are not replaced.
pub(crate) fn left(upload: &[Placed], relaunch: &[Placed], kernels: &Kernels, banks: &Banks) -> Result<(), Refused> {
    tables(upload, relaunch, kernels, banks).first().map_or(Ok(()), |table| Err(table.refused()))
}

/// Memory that a kernel's parameters name and that only the upload writes.
struct Table<'a> {
    address: u64,
    bytes: u32,
    data: &'a [u32],
    /// The first kernel that names it.
    qmd: u64,
    /// Each launch writes to the address right after the table: it holds the value of a conditional node.
    value: bool,
}

struct Row {
    qmd: u64,
    /// How many rows go before it, or 1.
    before: u32,
    action: PcasAction,
    follow: Vec<u32>,
}

/// A driver kernel: the address of its QMD, and the QMDs that it acts on.
struct Driver {
    qmd: u64,
    on: Vec<(u64, DependentAction)>,
}

/// The contents of a table.
struct Read {
    drivers: Vec<Driver>,
    /// QMDs with several rows as predecessors: how many, and the action to take when all are done.
    counts: Vec<(u64, u32, PcasAction)>,
}

fn tables<'a>(upload: &'a [Placed], relaunch: &[Placed], kernels: &Kernels, banks: &Banks) -> Vec<Table<'a>> {
    let written: HashSet<u64> = relaunch.iter().filter_map(writes_to).collect();
    let table = |placed: &'a Placed| {
        let Step::Write { address, bytes, data, .. } = &placed.step else { return None };
        let own = kernels.holds(*address) || banks.holds(*address) || written.contains(address);
        if own || *bytes <= COUNTER_BYTES {
            return None;
        }
        let qmd = kernels.iter().find_map(|(at, qmd)| parameters(qmd, banks, *address).map(|_| at))?;
        let value = written.contains(&address.saturating_add(u64::from(*bytes)));
        Some(Table { address: *address, bytes: *bytes, data, qmd, value })
    };
    upload.iter().filter_map(table).collect()
}

/// What a launch writes, in whatever way: the upload may write it in another.
fn writes_to(placed: &Placed) -> Option<u64> {
    match placed.step {
        Step::Write { .. } | Step::Memset(_) | Step::Fill { .. } | Step::Copy { .. } => placed.step.address(),
        _ => None,
    }
}

/// The parameters of a kernel, if they name this address.
fn parameters<'a>(qmd: &Qmd, banks: &'a Banks, address: u64) -> Option<&'a [u8]> {
    let bytes = banks.bank(qmd.constant_buffer(0)?.address)?.parameter_bytes()?;
    bytes.as_chunks::<8>().0.contains(&address.to_le_bytes()).then_some(bytes)
}

impl Table<'_> {
    fn refused(&self) -> Refused {
        let what = if self.value { "a conditional node" } else { "a fan-out or fan-in of many kernels" };
        Refused::ByDriver { what, qmd: self.qmd, table: self.address, bytes: self.bytes }
    }

    /// The table's rows, if the array after them begins at this address.
    fn rows(&self, array: u64) -> Option<Vec<Row>> {
        let bytes = array.checked_sub(self.address).filter(|bytes| bytes.is_multiple_of(4 * ROW as u64))?;
        let all = self.data.get(..self.bytes as usize / 4)?;
        let (rows, numbers) = all.split_at_checked(usize::try_from(bytes / 4).ok()?)?;
        let rows = rows.as_chunks::<ROW>().0;
        let row = |[kind, count, first, left, before, none, qmd, action, ..]: &[u32; ROW]| {
            let follow = numbers.get(*first as usize..)?.get(..*count as usize)?;
            let known = *kind == 0 && left == before && *none == u32::MAX;
            let inside = follow.iter().all(|number| (*number as usize) < rows.len());
            let action = PcasAction::of_word(*action);
            (known && inside).then(|| Row {
                qmd: u64::from(*qmd) << 8,
                before: *before,
                action,
                follow: follow.to_vec(),
            })
        };
        rows.iter().map(row).collect()
    }
}

/// The changes to an upload.
struct Fans<'a> {
    kernels: &'a Kernels,
    /// New QMDs by address, each with the additional QMDs that must be uploaded before it.
    new: HashMap<u64, (Qmd, Vec<(u64, Qmd)>)>,
    /// Banks of the driver's kernels, with their bytes.
    banks: HashSet<(u64, u32)>,
    tables: HashSet<u64>,
}

impl Fans<'_> {
    /// `None` if anything differs from the recorded form.
    fn read(&mut self, table: &Table<'_>, banks: &Banks) -> Option<Read> {
        let mut kernels = Vec::new();
        for (at, qmd) in self.kernels.iter() {
            let Some(bytes) = parameters(qmd, banks, table.address) else { continue };
            let [first, named, array, _] = *bytes.as_chunks::<8>().0 else { return None };
            let ([row, count], []) = first.as_chunks::<4>() else { return None };
            let [named, array] = [named, array].map(u64::from_le_bytes);
            let bank = qmd.constant_buffer(0)?;
            let users =
                self.kernels.iter().filter(|(_, q)| q.constant_buffer(0).is_some_and(|b| b.address == bank.address));
            if bytes.len() != 32 || named != table.address || users.count() != 1 || qmd.dependents().next().is_some() {
                return None;
            }
            kernels.push((at, bank, u32::from_le_bytes(*row), u32::from_le_bytes(*count), array));
        }
        let array = kernels.first()?.4;
        let rows = table.rows(array)?;
        let mut before: BTreeMap<u32, u32> = BTreeMap::new();
        let mut seen = HashSet::new();
        for (.., row, count, its) in &kernels {
            let follow = &rows.get(*row as usize)?.follow;
            if *its != array || follow.len() != *count as usize || follow.is_empty() || !seen.insert(*row) {
                return None;
            }
            follow.iter().for_each(|number| *before.entry(*number).or_default() += 1);
        }
        // Each row with followers has its kernel, and each row with predecessors is started by the last of them.
        for (number, row) in (0..).zip(&rows) {
            let known = matches!(row.action, PcasAction::Schedule | PcasAction::DecrementDependence);
            let counted = before.get(&number).is_none_or(|n| *n == row.before && known);
            if !counted || row.follow.is_empty() == seen.contains(&number) {
                return None;
            }
        }
        let counts = before.iter().filter(|(_, n)| **n > 1);
        let counts = counts.map(|(number, n)| rows.get(*number as usize).map(|row| (row.qmd, *n, row.action)));
        let counts = counts.collect::<Option<_>>()?;
        let mut drivers = Vec::new();
        for (qmd, bank, row, ..) in kernels {
            let on = rows.get(row as usize)?.follow.iter().map(|number| {
                let row = rows.get(*number as usize)?;
                let alone = before.get(number) == Some(&1) && row.action == PcasAction::Schedule;
                let action = if alone { DependentAction::Schedule } else { DependentAction::DecrementDependence };
                Some((row.qmd, action))
            });
            drivers.push(Driver { qmd, on: on.collect::<Option<_>>()? });
            self.banks.insert((bank.address, bank.bytes));
        }
        Some(Read { drivers, counts })
    }

    fn replace(&mut self, table: &Table<'_>, read: &Read) -> Result<(), Refused> {
        for (at, count, action) in &read.counts {
            let mut qmd = *self.kernels.qmd(*at)?;
            // One decrement, in the place of which come so many, or none.
            let one = u32::from(*action == PcasAction::DecrementDependence);
            if (qmd.dependence_counter() == 0) != (one == 0) {
                return Err(table.refused());
            }
            qmd.set("DEPENDENCE_COUNTER", (qmd.dependence_counter() - one).saturating_add(*count).into())?;
            self.new.insert(*at, (qmd, Vec::new()));
        }
        for driver in &read.drivers {
            let kernel = match self.new.get(&driver.qmd) {
                Some((counting, _)) => *counting,
                None => *self.kernels.qmd(driver.qmd)?,
            };
            let mut ahead = Vec::new();
            let order = self.order(&kernel, &driver.on, true, &mut ahead)?;
            self.new.insert(driver.qmd, (order, ahead));
        }
        self.tables.insert(table.address);
        Ok(())
    }

    /// A QMD without blocks that acts on others. `in_place`: of the kernel, and not one between it and others.
    fn order(
        &self,
        kernel: &Qmd,
        on: &[(u64, DependentAction)],
        in_place: bool,
        ahead: &mut Vec<(u64, Qmd)>,
    ) -> Result<Qmd, Refused> {
        let mut order = Qmd::new(kernel.layout());
        for value in kernel.fields().filter(|value| value.value != 0) {
            let name = value.field.name;
            if KEPT.iter().any(|begin| name.starts_with(begin)) || in_place && name.starts_with(RELEASES) {
                order.set_element(name, value.index.unwrap_or(0), value.value)?;
            }
        }
        NO_BLOCKS.iter().try_for_each(|(field, value)| order.set(field, *value))?;
        if !in_place {
            BETWEEN.iter().try_for_each(|(field, value)| order.set(field, *value))?;
        }
        // Two, or two halves.
        for (slot, half) in (0..).zip(on.chunks(on.len().div_ceil(2).max(1))) {
            let (at, action) = match half {
                [one] => *one,
                several => {
                    let between = self.order(kernel, several, false, ahead)?;
                    let at = self.unused(ahead.len());
                    ahead.push((at, between));
                    (at, DependentAction::Schedule)
                }
            };
            order.set_dependent(slot, at)?;
            order.set_element("DEPENDENT_QMD_ENABLE", slot, 1)?;
            order.set_element("DEPENDENT_QMD_ACTION", slot, action.code().into())?;
            order.set_element("DEPENDENT_QMD_PREFETCH", slot, 1)?;
        }
        Ok(order)
    }

    /// An address that no QMD has, `ahead` being those that are not listed yet.
    fn unused(&self, ahead: usize) -> u64 {
        let listed: usize = self.new.values().map(|(_, ahead)| ahead.len()).sum();
        NEW_BELOW - (listed + ahead + 1) as u64 * STRIDE
    }

    fn rewritten(mut self, upload: Vec<Placed>) -> Vec<Placed> {
        let mut steps = Vec::with_capacity(upload.len());
        for mut placed in upload {
            if let Step::Write { address, data, launch, .. } = &mut placed.step {
                let of_bank =
                    |(at, bytes): &(u64, u32)| address.checked_sub(*at).is_some_and(|at| at < (*bytes).into());
                if self.tables.contains(address) || self.banks.iter().any(of_bank) {
                    continue;
                }
                if let Some((qmd, ahead)) = self.new.remove(address) {
                    data.iter_mut().zip(qmd.words()).for_each(|(to, from)| *to = *from);
                    for (qmd, words) in ahead {
                        let data = words.words().to_vec();
                        let write = Step::Write { address: qmd, bytes: 4 * data.len() as u32, data, launch: *launch };
                        let arm = Step::Pcas { qmd, action: PcasAction::InvalidatePrefetchCopySchedule };
                        steps.extend([write, arm].map(|step| Placed { channel: placed.channel, step }));
                    }
                }
            }
            steps.push(placed);
        }
        steps
    }
}
