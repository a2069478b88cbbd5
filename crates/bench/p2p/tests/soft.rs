//! The matrix on one software GPU that appears under several numbers: verified methods, unavailable ones, and no rates.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use p2p::{Cell, Plan, Staged, Status, Way, gpus, run};
use std::sync::Arc;
use std::time::Duration;
use workload::spec::{End, Memory};
use workload::{Buffer, Machine, Route, verify};

fn machine(gpus: u32) -> Machine {
    let space = AddressSpace::new(&Device::open(Arc::new(SoftDriver::new(Mode::Poll)), 0).unwrap()).unwrap();
    let one = |_| Machine::of_space(space.clone());
    (1..gpus).map(one).fold(Machine::of_space(space.clone()), Machine::with_peer)
}

fn plan(gpus: u32, ways: &[Way]) -> Plan {
    Plan {
        gpus,
        ways: ways.to_vec(),
        bytes: 64 << 10,
        rounds: 2,
        transfers: 2,
        samples: 10,
        latency_bytes: 16,
        seed: 1,
        timeout: Duration::from_secs(20),
    }
}

fn cells(machine: &Machine, plan: &Plan) -> Vec<Cell> {
    run(machine, plan, true, &|| false, &mut |_| {})
}

#[test]
fn three_gpus_are_a_matrix_of_nine_and_every_cell_is_verified() {
    let machine = machine(3);
    assert_eq!(gpus(&machine), 3);
    let cells = cells(&machine, &plan(3, &[Way::Ce, Way::Staged]));
    assert_eq!(cells.len(), 18);
    for cell in &cells {
        let within = cell.way == Way::Staged && cell.from == cell.to;
        match &cell.status {
            Status::Unavailable(why) => assert!(within && why.contains("within one GPU"), "{cell:?}"),
            status => {
                assert!(*status == Status::Done && !within && cell.verified == 4 && cell.wrong.is_none(), "{cell:?}")
            }
        }
        assert!(cell.alone.is_none() && cell.both.is_none() && cell.latency.is_none(), "an emulation has no rate");
        assert_eq!(cell.p2p, cell.way == Way::Ce);
    }
    let staged = cells.iter().find(|cell| cell.way == Way::Staged && (cell.from, cell.to) == (2, 1)).unwrap();
    assert!(staged.route.starts_with("gpu2->ce") && staged.route.contains("->host and host->ce"), "{}", staged.route);
}

#[test]
fn one_gpu_is_a_matrix_of_one_and_kernels_need_cuda() {
    let machine = machine(1);
    let cells = cells(&machine, &plan(gpus(&machine), &Way::ALL));
    assert_eq!(cells.iter().map(|cell| (cell.from, cell.to)).collect::<Vec<_>>(), [(0, 0); 4]);
    assert_eq!(cells[0].status, Status::Done);
    assert!(cells[1..].iter().all(|cell| matches!(cell.status, Status::Unavailable(_))), "{cells:?}");
}

/// More pieces than fit into host memory at a time.
#[test]
#[ignore = "1 s: 12 MiB through the software GPU; run by .ci/run"]
fn staged_copies_are_made_in_pieces_and_arrive_completely() {
    let machine = machine(2);
    let bytes = 3 * (4 << 20);
    let staged = Staged::new(&machine, ["gpu0->ce2->host", "host->ce3->gpu1"]).unwrap();
    let memory = |n| Buffer::new(&machine, End { memory: Memory::Gpu(n), offset: 0 }, bytes).unwrap();
    let mut route = Route::new("staged", memory(0), Box::new(staged), memory(1)).unwrap();
    assert_eq!(verify(&mut route, bytes, 3, Duration::from_secs(20)).unwrap(), None);
    assert_eq!(verify(&mut route, 24, 4, Duration::from_secs(20)).unwrap(), None);
    let odd = route.prepare((4 << 20) + 1).map(drop).unwrap_err().to_string();
    assert!(odd.contains("a multiple"), "{odd}");
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_has() {
    let told = std::cell::Cell::new(0);
    // GPU 0 alone, then both directions between the two.
    let cells = run(&machine(2), &plan(2, &[Way::Ce]), true, &|| told.get() == 2, &mut |_| told.set(told.get() + 1));
    assert_eq!(cells.iter().map(|cell| (cell.from, cell.to)).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 0)]);
}

/// Only counts; there are no times.
#[test]
fn the_cells_of_a_pair_take_turns_and_keep_every_sample() {
    let machine = machine(2);
    let plan = Plan { rounds: 6, samples: 4, bytes: 4096, ..plan(2, &[Way::Ce, Way::Staged]) };
    let mut told = Vec::new();
    let cells = run(&machine, &plan, false, &|| false, &mut |news| told.push((news.gpus, news.round)));
    let rounds = |gpus| (0..6).map(move |round| (gpus, Some(round)));
    let of_pair = |gpus| std::iter::once((gpus, None)).chain(rounds(gpus));
    assert_eq!(told, [(0, 0), (0, 1), (1, 1)].into_iter().flat_map(of_pair).collect::<Vec<_>>());
    for cell in cells.iter().filter(|cell| cell.status == Status::Done) {
        let (alone, latency) = (cell.alone.as_ref().unwrap(), cell.latency.as_ref().unwrap());
        assert_eq!((alone.times.ns.count, alone.times.rounds, latency.ns.count, latency.rounds), (12, 6, 24, 6));
        assert!(alone.interval.is_none_or(|i| i.holds(alone.rate)), "of twelve samples there may be none: {alone:?}");
        let over = cell.over_ce.as_ref().map(|ratio| ratio.rounds);
        assert_eq!(over, (cell.way == Way::Staged).then_some(6), "{cell:?}");
        let Some(both) = &cell.both else {
            assert_eq!(cell.from, cell.to);
            continue;
        };
        // The same measurement, from the other direction's cell.
        let back = cells.iter().find(|o| (o.way, o.from, o.to) == (cell.way, cell.to, cell.from)).unwrap();
        let back = back.both.as_ref().unwrap();
        assert_eq!((&both.this, &both.sum, both.this.times.ns.count), (&back.other, &back.sum, 12));
        assert!(both.sum.times.ns.max >= both.this.times.ns.max.max(both.other.times.ns.max));
    }
    assert_eq!(cells.iter().filter(|cell| cell.both.is_some()).count(), 4);
}
