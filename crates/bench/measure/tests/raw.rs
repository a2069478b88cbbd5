//! The raw study on the software GPU: its transfers are right, faults are reported, and there are no times.

use doorbell_softgpu::{Mode as Doorbells, Planted, SoftDriver};
use gpu::{AddressSpace, Device};
use measure::raw::{self, Budget, Cell, Direction, Mode, Plan};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn plan(sizes: &str) -> Plan {
    Plan {
        sizes: settings::sizes::parse(sizes).unwrap(),
        repeats: 2,
        seed: 7,
        copy_engine: 2,
        budget: Budget::SOFT,
        timeout: Duration::from_secs(20),
    }
}

fn run(driver: SoftDriver, plan: &Plan) -> Vec<Cell> {
    let space = AddressSpace::new(&Device::open(Arc::new(driver), 0).unwrap()).unwrap();
    let mut sizes = Vec::new();
    let cells = raw::run(&space, plan, |bytes| sizes.push(bytes)).unwrap();
    assert_eq!(sizes, plan.sizes, "each size is told of");
    assert_eq!(cells.len(), 5 * plan.sizes.len());
    cells
}

#[test]
fn every_way_moves_what_it_should_and_no_time_is_given() {
    let driver = SoftDriver::new(Doorbells::Strict);
    let cells = run(driver, &plan("4B..16KiB,1KiB,31KiB,100000,1MiB"));
    for cell in &cells {
        let longer = cell.mode == Mode::Inline && cell.bytes > 512 << 10;
        assert_eq!(cell.verified, !longer, "{cell:?}");
        assert_eq!(cell.unavailable.is_some(), longer, "{cell:?}");
        assert_eq!((cell.failed.as_deref(), cell.raw_p50_ns, cell.gbps), (None, None, None));
        assert_eq!(cell.engine, if cell.mode == Mode::Inline { "inline" } else { "ce2" });
    }
    assert!(raw::curves(&cells).is_empty());
    // One submission holds all copies: the number of doorbells is independent of the number of copies.
    let c = driver.counters();
    let load = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    assert!(load(&c.copies) > 4 * load(&c.doorbells), "{} copies, {} doorbells", load(&c.copies), load(&c.doorbells));
    assert_eq!(load(&c.faults), 0);
}

#[test]
fn a_broken_copy_engine_is_reported_and_inline_copies_continue() {
    for (fault, says) in [
        (Planted::ShortCopy, "1 of 4096 bytes differs, the first at offset 4095"),
        (Planted::LongCopy, "next to the destination"),
    ] {
        let cells = run(SoftDriver::broken(Doorbells::Strict, fault), &plan("4KiB"));
        for cell in cells {
            let copied = cell.mode != Mode::Inline;
            assert_eq!(cell.verified, !copied, "{cell:?}");
            if copied {
                assert!(cell.failed.as_deref().unwrap().contains(says), "{cell:?}");
            }
        }
    }
}

#[test]
fn a_channel_that_dies_ends_its_own_cells() {
    let fault = Planted::DeadChannel { entry: 4, xid: 31 };
    let cells = run(SoftDriver::broken(Doorbells::Strict, fault), &plan("8B,64B"));
    let failed = |cell: &Cell| cell.failed.clone().unwrap_or_default();
    assert!(cells.iter().any(|cell| failed(cell).starts_with("the channel was killed by error 31")));
    assert!(cells.iter().all(|cell| !cell.verified || cell.mode == Mode::Inline));
    let last = cells.iter().rfind(|cell| cell.direction == Direction::DeviceToHost).unwrap();
    assert!(failed(last).contains("killed by error 31"), "{last:?}");
}

#[test]
fn timestamps_that_go_backwards_are_no_result() {
    let cells = run(SoftDriver::broken(Doorbells::Strict, Planted::ClockBack), &plan("8B"));
    assert!(cells.iter().any(|cell| cell.failed.as_deref().is_some_and(|why| why.contains("is not after the first"))));
}
