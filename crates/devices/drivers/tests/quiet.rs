//! A command is prepared, started and reaped without an allocation and without a system call. (Waiting for a lock would be a system call.)

#[path = "support/soft.rs"]
mod soft;

use drivers::nvme::{Controller, Depth, Done, Piece};
use pcie::model::{ModelBus, plug};
use soft::Soft;
use test_support::counting::{Counting, cost, watch_system_calls};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn commands_allocate_nothing_and_make_no_system_call() {
    let bus = ModelBus::default();
    let (function, model) = plug(Soft { hold: true, ..Soft::default() }, &bus);
    let controller = Controller::open(function).unwrap();
    let namespace = controller.namespace(1).unwrap();
    let mut queue = controller.queue(&Depth { slots: 8, ..Depth::default() }).unwrap();
    let memory = controller.allocate(256 << 10).unwrap();
    let io = namespace.read(8, 64).unwrap();
    let watched = watch_system_calls();
    for turn in 0..40u64 {
        let mut good = true;
        let started = cost(watched, || {
            for slot in 0..8 {
                // Another place each time: a PRP list is written.
                let offset = u64::from(slot) * (32 << 10) + turn % 7 * 512;
                let bytes = if slot < 7 { 32 << 10 } else { 16 << 10 };
                good &= queue.prepare(slot, &[Piece::new(&memory, offset, bytes)]).is_ok();
            }
            good &= queue.submit(0, &io).is_ok() && queue.submit(1, &io).is_ok();
            good &= queue.submit_batch(&[(2, io), (3, io), (4, io)]).is_ok();
            // Errors need no system call either.
            good &= queue.submit(7, &io).is_err() && queue.submit(0, &io).is_err();
            good &= queue.reap(&mut [Done::NONE; 8]).is_ok_and(|count| count == 0);
        });
        assert_eq!((started, good), ((0, 0), true), "turn {turn}");
        model.with(|soft| soft.work(&bus, 1, usize::MAX));
        let mut done = [Done::NONE; 8];
        let mut count = Ok(0);
        assert_eq!(cost(watched, || count = queue.reap(&mut done)), (0, 0), "turn {turn}");
        assert_eq!(count.unwrap(), 5);
        assert!(done[..5].iter().all(Done::is_success));
    }
    if !watched {
        test_support::skip_part!("this kernel has no system call user dispatch: system calls were not looked for");
    }
}
