//! After `prepare`, doorbell's own routes submit and poll without an allocation and without a system call. This test
//! counts them, so it has its own process.

#[path = "../../../gpu/machine/tests/fake/mod.rs"]
mod fake;

use cuda::Cuda;
use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::Arc;
use std::time::Duration;
use test_support::counting::{Counting, cost, watch_system_calls};
use workload::Machine;
use workload::routes::open;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The process has one gate.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn submit_and_poll_allocate_nothing_and_make_no_system_call() {
    // A GPU that polls, because the strict one makes system calls on this thread to trap a doorbell.
    let machine = Machine::of_driver(Arc::new(SoftDriver::new(Mode::Poll)), false).unwrap();
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let watched = watch_system_calls();
    if !watched {
        eprintln!("system calls are not watched: this kernel has no syscall user dispatch");
    }
    for (name, bytes) in [
        ("host->ce0->gpu0", 4096),
        ("gpu0->ce0[pipelined]->host", 4096),
        ("host->ce1[folded]->gpu0", 4096),
        ("host->split->gpu0", 9000),
        ("gpu0->batch[pieces=64]->host", 4096),
        ("device->dma[buffers=4]->gpu0", 4096),
        ("device->staged->gpu0", 4096),
        ("host->inline->gpu0", 8),
        ("host->inline->gpu0", 40_000),
        ("host->inline[split]->gpu0", 40_000),
        ("host->inline[armed]->gpu0", 8),
        ("host->inline[armed,release=engine]->gpu0", 5000),
        ("gpu0->ce2[armed]->host", 4096),
        ("host->bar1->gpu0", 4097),
        ("host->bar1[flush]->gpu0", 8),
        ("gpu0->bar1->host", 4097),
    ] {
        let mut route = open(&machine, name, bytes).unwrap();
        let mut transfer = route.prepare(bytes).unwrap();
        // More than one round of the ring, with the first submission in it. Large ones go round their slots several
        // times.
        for round in 0..if bytes > 10_000 { 60 } else { 1200 } {
            let mut failed = false;
            let spent = cost(watched, || {
                failed = transfer.submit().is_err() || transfer.poll().is_err();
                std::hint::black_box(transfer.released_gpu_ns());
            });
            assert_eq!((failed, spent), (false, (0, 0)), "{name}, {bytes} bytes, round {round}");
            transfer.wait(Duration::from_secs(10)).unwrap();
        }
    }
    // Checks that both counters count.
    let (allocations, calls) = cost(watched, || {
        drop(std::hint::black_box(Box::new(7)));
        // SAFETY: no arguments.
        unsafe { libc::getppid() };
    });
    assert_eq!((allocations, calls), (2, u32::from(watched)));
}

#[test]
fn cudas_forms_add_nothing_to_the_calls_that_they_make() {
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let machine = Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap();
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let watched = watch_system_calls();
    let _running = fake::run_by_itself();
    fake::ENTERS.set(Some(test_support::counting::stand_in));
    for form in [
        "cuda",
        "cuda[sync]",
        "cuda[polled]",
        "cuda[graph]",
        "cuda[graph,polled]",
        "cuda[graph,polled=write]",
        "cuda[batch]",
        "cuda[batch,polled]",
        "sm",
        "sm[polled]",
    ] {
        let name = format!("host->{form}->gpu0");
        let mut route = open(&machine, &name, 4096).unwrap();
        let mut transfer = route.prepare(4096).unwrap();
        for round in 0..60 {
            let mut failed = false;
            let spent = cost(watched, || {
                failed = transfer.submit().is_err() || transfer.poll().is_err();
            });
            assert_eq!((failed, spent), (false, (0, 0)), "{name}, round {round}");
            // A loop of polls, for routes where polling is a way to wait.
            let spent =
                cost(watched && transfer.is_polled(), || while transfer.is_polled() && !transfer.poll().unwrap() {});
            assert_eq!(spent, (0, 0), "{name}, round {round}");
            transfer.wait(Duration::from_secs(10)).unwrap();
        }
    }
    fake::ENTERS.set(None);
}

#[test]
fn kernels_that_wait_are_told_without_a_call() {
    let driver = SoftDriver::new(Mode::Strict);
    let watching: &'static gpu::Watched = Box::leak(Box::default());
    let device = gpu::Device::open(Arc::new(gpu::Watching(driver, watching)), 0).unwrap();
    let theirs = gpu::AddressSpace::new(&device).unwrap();
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    *fake::SOURCE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(fake::blocks(&theirs));
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let context = unsafe { Cuda::from_symbols(fake::find) }.unwrap().device(0).unwrap().primary_context().unwrap();
    let ours = watching.address_space(Arc::new(driver), device.uuid(), gpu::Entry::OwnClient).unwrap();
    let machine = Machine::from(machine::Machine::beside(context, ours));
    let watched = watch_system_calls();
    for (name, bytes) in [
        ("host->resident->gpu0", 4097),
        ("gpu0->resident->host", 4096),
        ("host->message->gpu0", 8),
        ("host->message->gpu0", 56),
    ] {
        let mut route = open(&machine, name, bytes).unwrap();
        let mut transfer = route.prepare(bytes).unwrap();
        for round in 0..20 {
            let mut failed = false;
            let spent = cost(watched, || {
                failed = transfer.submit().is_err();
                while !failed && !transfer.poll().unwrap() {}
            });
            assert_eq!((failed, spent), (false, (0, 0)), "{name}, round {round}");
        }
    }
    *fake::SOURCE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
}
