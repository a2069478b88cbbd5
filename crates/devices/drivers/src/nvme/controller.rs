//! A controller: finds it, enables it, identifies it, and creates queues.

use crate::nvme::command::{Asked, Entry};
use crate::nvme::error::Error;
use crate::nvme::identify::{self, ControllerPage, NamespacePage, Unusable};
use crate::nvme::namespace::Namespace;
use crate::nvme::queue::{Depth, Queue};
use crate::nvme::registers::{CAP, Capabilities, DOORBELLS, NOTHING, PAGE, VS, Version};
use crate::nvme::shared::Shared;
use pcie::{Function, Identity, Memory, Peer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Class code of NVMe: mass storage, non-volatile memory, NVM Express (PCI code and ID assignment).
pub const CLASS: u32 = 0x01_0802;

/// Maximum number of active namespaces that are read: 4 list pages.
const MOST_NAMESPACES: usize = 4096;

/// A controller that is enabled. Its queues have their own lifetime; the device is shut down when the last of them is dropped.
pub struct Controller {
    pub(crate) shared: Arc<Shared>,
    page: ControllerPage,
    version: Version,
}

impl Controller {
    /// Resets the function's controller and enables it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the function is no supported NVMe controller; [`Error::TimedOut`], [`Error::Fatal`], [`pcie::Error::Gone`].
    pub fn open(function: Box<dyn Function>) -> Result<Controller, Error> {
        let identity = function.identity();
        let refused = |why: String, hint: &str| Error::refused(identity.address.to_string(), why, hint);
        if identity.class != CLASS {
            let why = format!("its class is {:06x}, NVMe's is {CLASS:06x}", identity.class);
            return Err(refused(why, "`doorbell nvme list` lists NVMe controllers"));
        }
        let registers = function.bar(0)?;
        registers.holds(0, DOORBELLS + 8)?;
        let cap = Capabilities(registers.load64(CAP));
        if cap.0 == u64::MAX || registers.load32(VS) == NOTHING || !function.is_present() {
            return Err(function.gone().into());
        }
        if cap.smallest_page() > PAGE {
            let why = format!("its smallest memory page has {} B", cap.smallest_page());
            return Err(refused(why, "the driver supports only pages of 4096 B"));
        }
        if !cap.has_nvm_commands() {
            return Err(refused("it has no NVM command set".into(), "it may be of another kind (key-value, zoned)"));
        }
        let version = Version(registers.load32(VS));
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared::new(function, registers, cap, number));
        shared.stop()?;
        let page = shared.start()?;
        Ok(Controller { shared, page, version })
    }

    pub fn identity(&self) -> Identity {
        self.shared.identity
    }

    /// It is emulated: its times have no meaning.
    pub fn is_functional(&self) -> bool {
        self.shared.is_functional
    }

    pub fn page(&self) -> &ControllerPage {
        &self.page
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn capabilities(&self) -> Capabilities {
        self.shared.cap
    }

    /// Maximum data of one command.
    pub fn largest_transfer(&self) -> u64 {
        self.page.largest_transfer.unwrap_or(u64::MAX)
    }

    /// Maximum number of slots of an I/O queue.
    pub fn largest_depth(&self) -> u16 {
        crate::nvme::queue::most_slots(self.shared.cap)
    }

    /// A queue with this many slots, or with the controller's maximum if that is less.
    pub fn depth(&self, slots: u16) -> Depth {
        Depth { slots: slots.min(self.largest_depth()), ..Depth::default() }
    }

    /// I/O queue pairs that it grants.
    pub fn queues(&self) -> u16 {
        self.shared.running().granted
    }

    /// Host memory that the controller reaches.
    ///
    /// # Errors
    /// As [`Function::allocate`].
    pub fn allocate(&self, bytes: u64) -> Result<Memory, Error> {
        Ok(self.shared.function().allocate(bytes)?)
    }

    /// Another device's memory, as the controller reaches it.
    ///
    /// # Errors
    /// As [`Function::reach`].
    pub fn reach(&self, peer: &Peer) -> Result<Memory, Error> {
        Ok(self.shared.function().reach(peer)?)
    }

    fn ask(&self, asked: Asked) -> Result<Box<identify::Page>, Error> {
        let mut running = self.shared.running();
        let admin = running.admin.as_mut().ok_or(Error::AdminClosed)?;
        let page = admin.ask(|to| Entry::identify(asked, to));
        drop(running);
        page.map_err(|error| self.shared.or_gone(error))
    }

    /// Numbers of the active namespaces.
    ///
    /// # Errors
    /// [`Error::Page`] for an invalid list; errors of admin commands.
    pub fn active(&self) -> Result<Vec<u32>, Error> {
        if self.version < Version::V1_1 {
            return Ok((1..=self.page.namespaces.min(MOST_NAMESPACES as u32)).collect());
        }
        let mut all = Vec::new();
        loop {
            let above = all.last().copied().unwrap_or(0);
            let page = self.ask(Asked::NamespacesAbove(above))?;
            let more = identify::active(&page, above).ok_or(Error::Page("the list of namespaces does not ascend"))?;
            let ended = more.len() < PAGE as usize / 4;
            all.extend(more);
            if ended || all.len() >= MOST_NAMESPACES {
                return Ok(all);
            }
        }
    }

    /// The format of a namespace, also of one that cannot be used.
    ///
    /// # Errors
    /// [`Error::Namespace`] for an invalid format; errors of admin commands.
    pub fn format(&self, number: u32) -> Result<NamespacePage, Error> {
        let page = self.ask(Asked::Namespace(number))?;
        NamespacePage::read(&page).map_err(|why| Error::Namespace { number, why })
    }

    /// A namespace to read and write.
    ///
    /// # Errors
    /// [`Error::NoNamespace`]; [`Error::Namespace`], with the reason (metadata); errors of admin commands.
    pub fn namespace(&self, number: u32) -> Result<Namespace, Error> {
        let active = self.active()?;
        if !active.contains(&number) {
            return Err(Error::NoNamespace { number, active });
        }
        let page = self.format(number)?;
        page.usable().map_err(|why| Error::Namespace { number, why })?;
        if self.version >= Version::V1_3 {
            match self.ask(Asked::Descriptors(number)).map(|page| identify::command_set(&page)) {
                Ok(0) | Err(Error::Failed { .. }) => {}
                Ok(other) => return Err(Error::Namespace { number, why: Unusable::CommandSet(other) }),
                Err(error) => return Err(error),
            }
        }
        Ok(Namespace { controller: self.shared.number, number, page })
    }

    /// An I/O queue pair.
    ///
    /// # Errors
    /// [`Error::Refused`] if no queue is left or it is too deep; errors of admin commands and of memory.
    pub fn queue(&self, depth: &Depth) -> Result<Queue, Error> {
        Queue::new(&self.shared, depth, self.largest_transfer())
    }

    /// Whether the device is there and works.
    ///
    /// # Errors
    /// [`pcie::Error::Gone`], [`Error::Fatal`].
    pub fn check(&self) -> Result<(), Error> {
        self.shared.check()
    }

    /// True if the function is present and its removal was not requested. Through vfio it becomes false as soon as someone removes the device: they
    /// wait until the controller, its queues and their memory are dropped. Makes a system call.
    pub fn is_present(&self) -> bool {
        self.shared.function().is_present()
    }

    /// Stops the controller. All queues are closed. Their commands in flight are returned as lost, and write no more data.
    ///
    /// # Errors
    /// [`Error::Wedged`] if it does not stop; [`pcie::Error::Gone`].
    pub fn stop(&self) -> Result<(), Error> {
        self.shared.stop()
    }

    /// A controller level reset: stops the controller and enables it again, for new queues.
    ///
    /// # Errors
    /// As [`Controller::stop`] and [`Controller::open`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.shared.stop()?;
        self.page = self.shared.start()?;
        Ok(())
    }
}
