//! One frame: wait for its moment, take an input, launch, wait, publish. No allocation, lock or system call except the sleep and the eventfd
//! (`sys`).

use crate::error::{Ended, Reason};
use crate::memory::Memory;
use crate::options::{Late, LoopOptions, Pace};
use crate::pace::{self, Tick, Ticks};
use crate::sink::{Outcome, Outlet};
use crate::source::{Input, Inputs, add, read};
use crate::sys;
use crate::wait::Waiter;
use std::sync::atomic::Ordering;
use submit::{Copy, Error, Graph, Hold, Session};

/// Failed launches before the thread naps between them.
const EAGER: u32 = 64;
const NAP: u64 = 20_000;

/// The state of the thread.
pub(crate) struct Turns {
    graph: Graph,
    input: Option<Hold>,
    output: Option<Hold>,
    /// None: as frames come.
    ticks: Option<Ticks>,
    late: Late,
    /// After the tick or the commit (0: at the next tick).
    deadline: u64,
    spin: u64,
    limit: u64,
    inputs: Inputs,
    outlet: Outlet,
    waiter: Waiter,
}

/// When a frame is due.
enum Moment {
    Tick(Tick),
    /// An input is committed. If `waited`, the thread has waited for it.
    Input {
        waited: bool,
    },
}

impl Turns {
    pub fn new(options: &LoopOptions, input: Option<Hold>, output: Option<Hold>) -> Turns {
        let (spin, limit) = (sys::ns(options.spin), sys::ns(options.limit));
        let ticks = match options.pace {
            Pace::Period(period) => {
                let period = sys::ns(period).max(1);
                let now = sys::now();
                let first = if options.first == 0 { now + period } else { options.first };
                Some(Ticks::new((first, now), period, spin, options.late))
            }
            Pace::Frames => None,
        };
        Turns {
            graph: options.graph,
            input,
            output,
            ticks,
            late: options.late,
            deadline: options.deadline.map_or(0, sys::ns),
            spin,
            limit,
            inputs: Inputs::new(options.take),
            outlet: Outlet::new(options.full, options.signal_each),
            waiter: Waiter::new(options.waiting, limit),
        }
    }

    /// One frame, or one that is left out.
    pub fn turn(&mut self, memory: &Memory, session: &Session) -> Result<(), Ended> {
        let header = memory.header();
        let moment = self.moment(memory)?;
        if self.outlet.is_full(memory) {
            return Err(Reason::Unread.into());
        }
        let Some(mut outcome) = self.frame(memory, &moment) else {
            add(&header.counters.starved, 1);
            return Ok(());
        };
        if self.late == Late::Skip && outcome.deadline != 0 && sys::now() > outcome.deadline {
            outcome.refused = true;
            add(&header.counters.skipped, 1);
            add(&header.counters.missed, matches!(moment, Moment::Tick(_)).into());
            self.publish(memory, &mut outcome);
            return Ok(());
        }
        let copy = self.launch(memory, session)?;
        outcome.launched = sys::now();
        let next = if let Moment::Tick(tick) = &moment { Some(tick.next) } else { None };
        let done = self.waiter.wait(memory, outcome.launched, next, || session.poll(copy));
        outcome.done = done.inspect_err(|ended| {
            add(&header.counters.abandoned, matches!(ended.reason, Reason::Asked | Reason::Timeout).into());
        })?;
        outcome.late = outcome.deadline != 0 && outcome.done > outcome.deadline;
        add(&header.counters.late, outcome.late.into());
        header.done.add(outcome.done.saturating_sub(outcome.due));
        add(&header.counters.frames, 1);
        self.publish(memory, &mut outcome);
        Ok(())
    }

    /// Waits for the moment of the next frame.
    fn moment(&mut self, memory: &Memory) -> Result<Moment, Ended> {
        let header = memory.header();
        let Some(ticks) = &mut self.ticks else {
            return Ok(Moment::Input { waited: pace::input(memory, &self.inputs, self.spin)? });
        };
        let tick = ticks.next(memory)?;
        add(&header.counters.missed, tick.missed);
        if let Some(woke) = tick.woke {
            header.wake.add(woke);
        }
        if self.late == Late::Skip && tick.missed > 0 && self.input.is_some() {
            // One input for each missed tick, but never the newest: its producer may wait for the result.
            let count = tick.missed.min(self.inputs.waiting(memory).saturating_sub(1));
            self.inputs.skip(memory, count);
        }
        Ok(Moment::Tick(tick))
    }

    /// Copies the input, if the loop has inputs, into the chain's own. None if there is no input.
    fn frame(&mut self, memory: &Memory, moment: &Moment) -> Option<Outcome> {
        let mut outcome = Outcome::default();
        if let Some(to) = &self.input {
            let newest = self.late == Late::Latest && self.is_behind(memory, moment);
            let Input { number, head, bytes } = self.inputs.take(memory, newest)?;
            outcome.frame = number;
            (outcome.sequence, outcome.tag) = (read(&head.sequence), read(&head.tag));
            (outcome.time_in, outcome.deadline) = (read(&head.time_in), read(&head.deadline));
            // SAFETY: the slot is the loop's until it is given back; the chain's input has as many bytes, and its last launch is over.
            unsafe { to.pointer().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), memory.input_bytes) };
            self.inputs.give_back(memory);
        }
        let wanted = match moment {
            Moment::Tick(tick) => {
                (outcome.frame, outcome.due) = (tick.number, tick.due);
                tick.next
            }
            Moment::Input { waited } => {
                outcome.due = outcome.time_in;
                if *waited {
                    memory.header().wake.add(sys::now().saturating_sub(outcome.due));
                }
                0
            }
        };
        if outcome.deadline == 0 {
            outcome.deadline = if self.deadline == 0 { wanted } else { outcome.due.saturating_add(self.deadline) };
        }
        Some(outcome)
    }

    /// Whether ticks were missed; as frames come, whether the next input's deadline has passed.
    fn is_behind(&self, memory: &Memory, moment: &Moment) -> bool {
        match moment {
            Moment::Tick(tick) => tick.behind,
            Moment::Input { .. } => self.inputs.next_head(memory).is_some_and(|head| {
                let after = if self.deadline == 0 { u64::MAX } else { self.deadline };
                let deadline = match read(&head.deadline) {
                    0 => read(&head.time_in).saturating_add(after),
                    own => own,
                };
                sys::now() > deadline
            }),
        }
    }

    fn publish(&mut self, memory: &Memory, outcome: &mut Outcome) {
        outcome.skipped = std::mem::take(&mut self.inputs.skipped);
        let from = if outcome.refused { None } else { self.output.as_ref().map(Hold::pointer) };
        let overrun = self.outlet.publish(memory, outcome, from);
        add(&memory.header().counters.overruns, overrun.into());
    }

    /// Launches, and tries again while other threads launch.
    fn launch(&self, memory: &Memory, session: &Session) -> Result<Copy, Ended> {
        let (mut tries, mut start) = (0u32, 0);
        loop {
            match session.launch(self.graph) {
                Err(Error::Busy | Error::Full(_)) => {}
                other => return Ok(other?),
            }
            let header = memory.header();
            add(&header.counters.busy, 1);
            pace::stopped(memory)?;
            tries += 1;
            if tries < EAGER {
                std::hint::spin_loop();
                continue;
            }
            let now = sys::now();
            start = if start == 0 { now } else { start };
            if now - start > self.limit {
                return Err(Reason::Timeout.into());
            }
            // The thread that has the lane may be waiting for this thread's CPU.
            let bell = &header.source.bell;
            sys::sleep(bell, bell.load(Ordering::Relaxed), Some(now + NAP));
        }
    }
}
