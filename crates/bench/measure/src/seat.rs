//! The placement of the measuring thread: its CPU and its class, and the CPUs left for everything else.

use environment::placement::{Placement, Wish, renice};
use experiment::{Class, Cpus, Stage};

/// The CPUs of this process, and the measuring thread's among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seats {
    all: Vec<usize>,
    measuring: Vec<usize>,
}

/// SCHED_FIFO priority of a thread that requests real time without a number.
const PRIORITY: i32 = 80;

impl Seats {
    /// # Errors
    /// Which CPUs this process may not use.
    pub fn of(stage: &Stage, all: Vec<usize>) -> Result<Seats, String> {
        let mut seats = Seats { all, measuring: Vec::new() };
        seats.measuring = seats.resolve(&stage.run.cpus)?;
        for cell in &stage.cells {
            cell.subject.cpus.iter().try_for_each(|cpus| seats.resolve(cpus).map(|_| ()))?;
        }
        Ok(seats)
    }

    /// Empty: the kernel chooses.
    ///
    /// # Errors
    /// Which CPUs this process may not use.
    pub fn resolve(&self, cpus: &Cpus) -> Result<Vec<usize>, String> {
        match cpus {
            Cpus::Any => Ok(Vec::new()),
            Cpus::Last => Ok(self.all.last().copied().into_iter().collect()),
            Cpus::Others => Ok(self.others()),
            Cpus::These(these) => match these.iter().find(|cpu| !self.all.contains(cpu)) {
                Some(wrong) => Err(format!("this process may not run on CPU {wrong} (`taskset -p $$` shows the CPUs)")),
                None => Ok(these.clone()),
            },
        }
    }

    /// All but the measuring thread's; all if there is no other.
    pub fn others(&self) -> Vec<usize> {
        let others: Vec<usize> = self.all.iter().copied().filter(|cpu| !self.measuring.contains(cpu)).collect();
        if others.is_empty() { self.all.clone() } else { others }
    }

    /// Whether the measuring thread has a CPU without loads.
    pub fn is_alone(&self) -> bool {
        !self.measuring.is_empty() && self.measuring.len() < self.all.len()
    }
}

/// The calling thread, placed; on drop it gets its earlier placement again.
pub(crate) struct Seat {
    placed: Placement,
    nice: Option<i32>,
    pub notes: Vec<String>,
}

impl Seat {
    pub fn take(class: Class, cpus: &[usize]) -> Seat {
        let cpu = cpus.first().copied();
        let mut notes = Vec::new();
        let placed = match class {
            Class::RealTime | Class::Deadline => Placement::real_time(cpu, PRIORITY),
            Class::Fifo(priority) => Placement::take(Wish { cpu, fifo: Some(priority as i32) }),
            Class::Other | Class::Nice(_) => Placement::take(Wish { cpu, fifo: None }),
        };
        if cpus.len() > 1
            && let Err(e) = environment::placement::cpus::confine(0, cpus)
        {
            notes.push(format!("CPUs {cpus:?} were refused: {e}"));
        }
        let mut nice = None;
        if let Class::Nice(wanted) = class {
            match renice(wanted) {
                Ok(was) => nice = Some(was),
                Err(e) => notes.push(format!("nice {wanted} was refused: {e}")),
            }
        }
        notes.extend(placed.notes.iter().cloned());
        Seat { placed, nice, notes }
    }

    pub fn cpu(&self) -> Option<usize> {
        self.placed.cpu
    }

    pub fn throttled(&self) -> u64 {
        self.placed.throttled()
    }

    /// The granted class, as text.
    pub fn class(&self) -> String {
        match (&self.placed.class, self.nice) {
            (Some(class), _) => class.to_string(),
            (None, Some(_)) => "SCHED_OTHER, another nice value".into(),
            (None, None) => "SCHED_OTHER".into(),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(was) = self.nice {
            let _ = renice(was);
        }
    }
}
