//! The admin queue: one command at a time, each waited for (Base 1.4, section 5).

use crate::nvme::command::{Entry, name_of_admin};
use crate::nvme::completion::{Completion, Lie};
use crate::nvme::error::Error;
use crate::nvme::identify::Page;
use crate::nvme::registers::{CSTS, Capabilities, PAGE, State};
use crate::nvme::ring::{COMPLETION, Doorbell, Ring, SUBMISSION};
use crate::nvme::wait;
use pcie::{Bar, Function, Memory};
use std::time::Duration;

/// Entries of the admin queue; one page has 64 of them.
pub(crate) const ENTRIES: u32 = 32;

/// How long an admin command may take. QEMU and drives answer within milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Offsets in the admin memory.
const SUBMISSIONS: u64 = 0;
const COMPLETIONS: u64 = PAGE;
const ANSWER: u64 = 2 * PAGE;
const PAGES: u64 = 3;

/// The admin queue of a controller that is enabled, or about to be.
pub(crate) struct Admin {
    ring: Ring,
    memory: Memory,
    registers: Bar,
    next: u16,
    /// Set after a command without an answer, or with a wrong one: it may still write, so no command is sent any more.
    closed: bool,
}

impl Admin {
    pub(crate) fn new(function: &dyn Function, registers: &Bar, cap: Capabilities) -> Result<Admin, Error> {
        let memory = function.allocate(PAGES * PAGE)?;
        debug_assert!(u64::from(ENTRIES) * SUBMISSION.max(COMPLETION) <= PAGE);
        registers.holds(cap.head_doorbell(0), 4)?;
        let bell = |offset| Doorbell { registers: registers.clone(), offset };
        let bells = (bell(cap.tail_doorbell(0)), bell(cap.head_doorbell(0)));
        let ring = Ring::new(0, ENTRIES, &memory, (SUBMISSIONS, COMPLETIONS), bells)?;
        Ok(Admin { ring, memory, registers: registers.clone(), next: 0, closed: false })
    }

    /// Bus addresses of the two queues.
    pub(crate) fn addresses(&self) -> Result<(u64, u64), Error> {
        Ok((self.page(SUBMISSIONS)?, self.page(COMPLETIONS)?))
    }

    fn page(&self, offset: u64) -> Result<u64, Error> {
        page_address(&self.memory, offset)
    }

    /// No command is sent after this.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Sends a command and waits for its end. Its status may be an error.
    pub(crate) fn complete(&mut self, entry: Entry) -> Result<Completion, Error> {
        if self.closed {
            return Err(Error::AdminClosed);
        }
        // If a later step returns early, the command may still write.
        self.closed = true;
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let position = self.ring.write(&entry.with_id(id));
        self.ring.ring();
        let index = self.ring.next_index();
        let answer = wait::until(LIMIT, || match self.ring.next() {
            Ok(None) => match State(self.registers.load32(CSTS)) {
                state if state.is_fatal() || state.is_nothing() || !state.is_ready() => {
                    Some(Err(Error::Fatal { csts: state.0 }))
                }
                _ => None,
            },
            Ok(Some(answer)) => Some(Ok(answer)),
            Err((lie, entry)) => Some(Err(Error::Lied { queue: 0, index, lie, entry })),
        });
        let csts = || self.registers.load32(CSTS);
        let late = || Error::TimedOut { what: name_of_admin(entry.opcode()), limit: LIMIT, csts: csts() };
        let answer = answer.unwrap_or_else(|| Err(late()))?;
        let lied = |lie| Err(Error::Lied { queue: 0, index, lie, entry: answer });
        if answer.id() != id {
            return lied(Lie::NotInFlight(answer.id()));
        }
        if !self.ring.was_fetched(position) {
            return lied(Lie::NotFetched(id));
        }
        self.ring.acknowledge();
        self.closed = false;
        Ok(answer)
    }

    /// As [`Admin::complete`], but an error status becomes an error.
    pub(crate) fn run(&mut self, entry: Entry) -> Result<Completion, Error> {
        let answer = self.complete(entry)?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            status => Err(Error::Failed { command: name_of_admin(entry.opcode()), status }),
        }
    }

    /// Runs a command that answers with a page.
    pub(crate) fn ask(&mut self, entry: impl FnOnce(u64) -> Entry) -> Result<Box<Page>, Error> {
        self.memory.store(ANSWER, &[0; PAGE as usize])?;
        let entry = entry(self.page(ANSWER)?);
        self.run(entry)?;
        let mut page = Box::new([0; PAGE as usize]);
        self.memory.load(ANSWER, &mut page[..])?;
        Ok(page)
    }
}

/// Bus address of a whole page of memory.
pub(crate) fn page_address(memory: &Memory, offset: u64) -> Result<u64, Error> {
    contiguous(memory, offset, PAGE)
}

/// Bus address of bytes that must be contiguous on the bus, from a page's begin on.
pub(crate) fn contiguous(memory: &Memory, offset: u64, bytes: u64) -> Result<u64, Error> {
    let (bus, follow) = memory.bus(offset)?;
    if !bus.is_multiple_of(PAGE) || follow < bytes {
        let why = format!("{bytes} B of host memory at bus address {bus:#x} are not contiguous from a page's begin on");
        return Err(Error::refused(
            "the queue's memory",
            why,
            "reserve huge pages (sysctl vm.nr_hugepages=64) or ask for a smaller depth",
        ));
    }
    Ok(bus)
}
