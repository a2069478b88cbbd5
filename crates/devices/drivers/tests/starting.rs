//! The start of a controller: earlier activity ends first, and the driver respects the controller's time and depth limits.

#[path = "support/soft.rs"]
mod soft;

use drivers::nvme::{Controller, Depth, Error};
use pcie::model::{ModelBus, plug};
use pcie::{Bar, Function, Identity, Memory, Peer, Registers};
use soft::Soft;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CC: u64 = 0x14;

/// Each store to CC, and whether the function might master the bus then.
type Seen = Arc<Mutex<Vec<(u32, bool)>>>;

/// A function that records the stores to CC.
struct Watched {
    function: Arc<Mutex<Box<dyn Function>>>,
    seen: Seen,
}

fn masters(function: &dyn Function) -> bool {
    let mut command = [0; 2];
    function.read_config(4, &mut command).unwrap();
    command[0] & 4 != 0
}

struct Stores {
    bar: Bar,
    function: Arc<Mutex<Box<dyn Function>>>,
    seen: Seen,
}

impl Registers for Stores {
    fn load32(&self, offset: u64) -> u32 {
        self.bar.load32(offset)
    }

    fn store32(&self, offset: u64, value: u32) {
        if offset == CC {
            self.seen.lock().unwrap().push((value, masters(&**self.function.lock().unwrap())));
        }
        self.bar.store32(offset, value);
    }

    fn load64(&self, offset: u64) -> u64 {
        self.bar.load64(offset)
    }

    fn store64(&self, offset: u64, value: u64) {
        self.bar.store64(offset, value);
    }
}

impl Watched {
    fn inner(&self) -> std::sync::MutexGuard<'_, Box<dyn Function>> {
        self.function.lock().unwrap()
    }
}

impl Function for Watched {
    fn identity(&self) -> Identity {
        self.inner().identity()
    }

    fn is_functional(&self) -> bool {
        true
    }

    fn read_config(&self, offset: u16, into: &mut [u8]) -> Result<(), pcie::Error> {
        self.inner().read_config(offset, into)
    }

    fn write_config(&self, offset: u16, from: &[u8]) -> Result<(), pcie::Error> {
        self.inner().write_config(offset, from)
    }

    fn bar(&self, index: u8) -> Result<Bar, pcie::Error> {
        let bar = self.inner().bar(index)?;
        let (length, bus) = (bar.length(), bar.bus_address());
        let stores = Stores { bar, function: Arc::clone(&self.function), seen: Arc::clone(&self.seen) };
        Ok(Bar::elsewhere(Arc::new(stores), length, bus))
    }

    fn allocate(&self, bytes: u64) -> Result<Memory, pcie::Error> {
        self.inner().allocate(bytes)
    }

    fn reach(&self, peer: &Peer) -> Result<Memory, pcie::Error> {
        self.inner().reach(peer)
    }

    fn reset(&self) -> Result<(), pcie::Error> {
        self.inner().reset()
    }
}

#[test]
fn a_controller_that_runs_is_stopped_before_it_may_master_the_bus() {
    // As a process that died has left it: enabled, with queues in memory that others own by now.
    let left = Soft { cc: 0x0046_0001, ready: true, ..Soft::default() };
    let (function, model) = plug(left, &ModelBus::default());
    let function = Arc::new(Mutex::new(function));
    let seen = Seen::default();
    let watched = Watched { function: Arc::clone(&function), seen: Arc::clone(&seen) };
    let controller = Controller::open(Box::new(watched)).unwrap();
    let first: Vec<(bool, bool)> = seen.lock().unwrap().iter().map(|(cc, masters)| (cc & 1 != 0, *masters)).collect();
    assert_eq!(first, [(false, false), (true, true)], "(enabled, masters) at each store to CC");
    assert!(masters(&**function.lock().unwrap()) && model.with(|soft| soft.ready));
    drop(controller);
}

fn open(soft: Soft) -> Result<Controller, Error> {
    let (function, _) = plug(soft, &ModelBus::default());
    Controller::open(function)
}

#[test]
fn a_controller_has_the_time_that_its_register_of_ready_timeouts_gives_it() {
    // CAP.TO gives half a second; the controller needs 0.6.
    let slow = |modes: u64, crto: u32| {
        let cap = Soft::default().cap | 1 << 24 | modes << 59;
        open(Soft { cap, crto, slow: Duration::from_millis(600), ..Soft::default() })
    };
    // CRWMS and CRIMS: the upper half has a separate time, which does not apply to a controller that is enabled with its media.
    assert!(slow(3, 1 << 16 | 2).is_ok());
    let late = slow(0, 2).map(drop).unwrap_err();
    assert!(matches!(late, Error::TimedOut { limit, .. } if limit == Duration::from_millis(500)), "{late}");
}

#[test]
fn a_queue_is_as_deep_as_the_controller_allows() {
    // MQES 7: 8 entries, of which one stays empty.
    let controller = open(Soft { cap: Soft::default().cap & !0xffff | 7, ..Soft::default() }).unwrap();
    assert_eq!(controller.largest_depth(), 7);
    let refused = controller.queue(&Depth { slots: 8, ..Depth::default() }).map(drop).unwrap_err().to_string();
    assert!(refused.contains("8 slots; ask for 1 to 7"), "{refused}");
    assert_eq!(controller.queue(&controller.depth(32)).unwrap().slots(), 7);
    let controller = open(Soft::default()).unwrap();
    assert_eq!(controller.queue(&controller.depth(32)).unwrap().slots(), 32);
}
