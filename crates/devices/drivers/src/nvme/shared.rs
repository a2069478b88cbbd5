//! What a controller and its queues share: registers, the admin queue, and whether the device may still write to memory.
//!
//! The invariant: memory whose address the controller got stays until the controller was stopped, its queue was deleted, or the device is gone. If
//! a device does not stop, the memory is never freed.

use crate::nvme::admin::{self, Admin};
use crate::nvme::command::Entry;
use crate::nvme::error::Error;
use crate::nvme::identify::ControllerPage;
use crate::nvme::registers::{ACQ, AQA, ASQ, CC, CRTO, CSTS, Capabilities, Configuration, INTMS, NOTHING, State};
use crate::nvme::ring::Doorbell;
use crate::nvme::{command::Asked, wait};
use pcie::{Bar, Function, Identity};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

pub(crate) struct Shared {
    /// Which controller of this process.
    pub(crate) number: u64,
    pub(crate) identity: Identity,
    pub(crate) is_functional: bool,
    pub(crate) registers: Bar,
    pub(crate) cap: Capabilities,
    function: Mutex<Box<dyn Function>>,
    running: Mutex<Running>,
    /// Queues of earlier epochs take no commands.
    stopping: AtomicU64,
    /// Commands of earlier epochs write no more.
    stopped: AtomicU64,
    /// It did not stop when asked to.
    wedged: AtomicBool,
}

/// State while the controller is enabled.
pub(crate) struct Running {
    pub(crate) admin: Option<Admin>,
    /// Counts how often the controller was enabled.
    pub(crate) epoch: u64,
    /// I/O queue pairs that it grants.
    pub(crate) granted: u16,
    /// Numbers of I/O queues that have an owner. The first is number 1.
    taken: Vec<bool>,
}

/// How the device's registers look, and whether it is there at all.
pub(crate) enum Health {
    Well,
    Fatal(u32),
    Gone,
}

/// A shutdown notification may take long on drives with a cache (RTD3E); this is the maximum wait.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// The number of queues is negotiated once, after the controller was enabled.
const MOST_QUEUES: u16 = 128;

impl Shared {
    pub(crate) fn new(function: Box<dyn Function>, registers: Bar, cap: Capabilities, number: u64) -> Shared {
        let running = Running { admin: None, epoch: 0, granted: 0, taken: Vec::new() };
        Shared {
            number,
            identity: function.identity(),
            is_functional: function.is_functional(),
            registers,
            cap,
            function: Mutex::new(function),
            running: Mutex::new(running),
            stopping: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            wedged: AtomicBool::new(false),
        }
    }

    pub(crate) fn running(&self) -> MutexGuard<'_, Running> {
        poison::ignore(self.running.lock())
    }

    pub(crate) fn function(&self) -> MutexGuard<'_, Box<dyn Function>> {
        poison::ignore(self.function.lock())
    }

    /// Queues of this epoch take commands.
    #[inline]
    pub(crate) fn takes_commands(&self, epoch: u64) -> bool {
        epoch >= self.stopping.load(Ordering::Acquire)
    }

    /// No command of this epoch writes to memory any more.
    #[inline]
    pub(crate) fn is_over(&self, epoch: u64) -> bool {
        // ORDERING: what the device wrote before it stopped is seen.
        epoch < self.stopped.load(Ordering::Acquire)
    }

    /// Whether it failed to stop when asked to: then drop does not wait for it again.
    pub(crate) fn is_wedged(&self) -> bool {
        self.wedged.load(Ordering::Acquire)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stopped.load(Ordering::Acquire) == u64::MAX
    }

    pub(crate) fn gone(&self) -> Error {
        self.function().gone().into()
    }

    /// A device that was removed, or whose link went down, was reset by that and writes no more data (PCI Express Base, section 6.6.1).
    fn is_pulled_out(&self) -> bool {
        let gone = self.is_gone() || !self.function().is_present();
        if gone {
            self.stopping.store(u64::MAX, Ordering::Release);
            self.stopped.store(u64::MAX, Ordering::Release);
        }
        gone
    }

    pub(crate) fn health(&self) -> Health {
        let state = State(self.registers.load32(CSTS));
        // A device that is gone reads as ones on hardware, and as zeroes on some emulators: then it is not ready.
        if state.is_ready() && !state.is_fatal() && !state.is_nothing() {
            return Health::Well;
        }
        if self.is_pulled_out() { Health::Gone } else { Health::Fatal(state.0) }
    }

    /// # Errors
    /// [`pcie::Error::Gone`], [`Error::Fatal`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.health() {
            Health::Well => Ok(()),
            Health::Fatal(csts) => Err(Error::Fatal { csts }),
            Health::Gone => Err(self.gone()),
        }
    }

    /// Turns "not ready" into "gone" where the device is gone.
    pub(crate) fn or_gone(&self, error: Error) -> Error {
        match error {
            Error::Fatal { .. } | Error::TimedOut { .. } | Error::Wedged { .. } if self.is_pulled_out() => self.gone(),
            other => other,
        }
    }

    fn wait_ready(&self, ready: bool, what: &'static str) -> Result<(), Error> {
        let limit = self.cap.ready_limit_by(self.registers.load32(CRTO));
        let mut last = State(0);
        let came = wait::until(limit, || {
            last = State(self.registers.load32(CSTS));
            let fatal = ready && last.is_fatal() || last.is_nothing();
            match fatal {
                true => Some(Err(Error::Fatal { csts: last.0 })),
                false => (last.is_ready() == ready).then_some(Ok(())),
            }
        });
        came.unwrap_or(Err(Error::TimedOut { what, limit, csts: last.0 })).map_err(|error| self.or_gone(error))
    }

    /// Clears CC.EN and waits until the controller is not ready: then it has stopped all DMA (section 3.1.5).
    fn disable(&self) -> Result<(), Error> {
        let found = self.registers.load32(CC);
        let state = State(self.registers.load32(CSTS));
        if found == NOTHING && state.is_nothing() {
            return Err(self.or_gone(Error::Fatal { csts: state.0 }));
        }
        let found = Configuration(found);
        if found.is_enabled() {
            // Not while it is becoming ready.
            if !state.is_ready() && !state.is_fatal() {
                let _ = self.wait_ready(true, "ready before it is disabled");
            }
            // ORDERING: registers are written in their order.
            self.registers.store32(CC, found.disabled().0);
        }
        self.wait_ready(false, "the end of a reset (CSTS.RDY = 0)")
    }

    /// Stops the device: it writes no more data to memory after this. Commands in flight are lost. If the register does not stop a device, the bus
    /// resets it.
    ///
    /// # Errors
    /// [`Error::Wedged`]; [`pcie::Error::Gone`], which also means that it has stopped.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        let mut running = self.running();
        self.stop_running(&mut running)
    }

    fn stop_running(&self, running: &mut Running) -> Result<(), Error> {
        if self.is_gone() {
            return Err(self.gone());
        }
        let after = running.epoch + 1;
        self.stopping.fetch_max(after, Ordering::AcqRel);
        if let Err(error) = self.disable() {
            if error.is_gone() {
                return Err(error);
            }
            let reset = self.function().reset();
            if reset.is_err() || self.wait_ready(false, "the end of the function's reset").is_err() {
                let csts = self.registers.load32(CSTS);
                self.wedged.store(true, Ordering::Release);
                if let Some(admin) = &mut running.admin {
                    admin.close();
                }
                return Err(self.or_gone(Error::Wedged { csts }));
            }
        }
        // ORDERING: queues that see this give their memory back, after the device has stopped.
        self.stopped.fetch_max(after, Ordering::AcqRel);
        self.wedged.store(false, Ordering::Release);
        running.admin = None;
        Ok(())
    }

    /// Enables the controller, which is stopped, and prepares it for queues.
    pub(crate) fn start(&self) -> Result<ControllerPage, Error> {
        let mut running = self.running();
        let running = &mut *running;
        if self.is_gone() {
            return Err(self.gone());
        }
        let admin = Admin::new(&**self.function(), &self.registers, self.cap)?;
        // Not before it was stopped (CC.EN 0): addresses of an earlier owner's queues may belong to other memory by now.
        self.function().master()?;
        let (submissions, completions) = admin.addresses()?;
        let sizes = admin::ENTRIES - 1;
        running.epoch = self.stopped.load(Ordering::Acquire);
        let admin = running.admin.insert(admin);
        // ORDERING: registers are written in their order, the enabling one last; the queues' memory is zeroed before.
        std::sync::atomic::fence(Ordering::Release);
        self.registers.store32(INTMS, u32::MAX);
        self.registers.store32(AQA, sizes | sizes << 16);
        self.registers.store64(ASQ, submissions);
        self.registers.store64(ACQ, completions);
        self.registers.store32(CC, Configuration::ENABLED.0);
        self.wait_ready(true, "ready (CSTS.RDY = 1)")?;
        let said = (|| {
            let page = ControllerPage::read(&*admin.ask(|to| Entry::identify(Asked::Controller, to))?);
            let answer = admin.run(Entry::number_of_queues(MOST_QUEUES))?.result();
            // Submission queues in the lower half, completion queues in the upper one, both one less (section 5.21.1.7).
            let granted = (answer & 0xffff).min(answer >> 16).min(u32::from(MOST_QUEUES) - 1) as u16 + 1;
            Ok((page, granted))
        })();
        let (page, granted) = said.map_err(|error| self.or_gone(error))?;
        running.granted = granted;
        running.taken.resize(usize::from(granted).max(running.taken.len()), false);
        Ok(page)
    }

    /// A doorbell of an I/O queue.
    pub(crate) fn doorbell(&self, offset: u64) -> Result<Doorbell, Error> {
        self.registers.holds(offset, 4)?;
        Ok(Doorbell { registers: self.registers.clone(), offset })
    }

    /// Runs an admin command.
    pub(crate) fn run(&self, entry: Entry) -> Result<u32, Error> {
        let mut running = self.running();
        let admin = running.admin.as_mut().ok_or(Error::AdminClosed)?;
        let answer = admin.run(entry);
        drop(running);
        answer.map(|answer| answer.result()).map_err(|error| self.or_gone(error))
    }
}

impl Running {
    /// A free number for a queue.
    pub(crate) fn take_number(&mut self) -> Option<u16> {
        let most = usize::from(self.granted);
        let free = self.taken.iter().take(most).position(|taken| !taken)?;
        self.taken[free] = true;
        Some(free as u16 + 1)
    }

    /// The queue's owner is gone, and the controller does not use the number.
    pub(crate) fn give_number(&mut self, number: u16) {
        if let Some(taken) = self.taken.get_mut(usize::from(number).wrapping_sub(1)) {
            *taken = false;
        }
    }
}

impl Drop for Shared {
    /// Tells the device that it is shut down, and stops it (section 7.6.2).
    fn drop(&mut self) {
        let running = poison::ignore(self.running.get_mut());
        let mut running =
            std::mem::replace(running, Running { admin: None, epoch: running.epoch, granted: 0, taken: Vec::new() });
        if running.admin.is_none() || self.is_gone() {
            return;
        }
        if self.is_wedged() {
            self.function().is_stuck();
            std::mem::forget(running);
            return;
        }
        if matches!(self.health(), Health::Well) {
            let cc = Configuration(self.registers.load32(CC));
            // ORDERING: the last command was completed before.
            self.registers.store32(CC, cc.shutting_down().0);
            wait::until(SHUTDOWN, || {
                let state = State(self.registers.load32(CSTS));
                (state.is_shut_down() || state.is_nothing()).then_some(())
            });
        }
        match self.stop_running(&mut running) {
            // The device may write to it as long as it has power.
            Err(error) if !error.is_gone() => {
                self.function().is_stuck();
                std::mem::forget(running);
            }
            _ => {}
        }
    }
}
