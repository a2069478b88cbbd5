//! doorbell's own routes on the software GPU: the bytes that they move, the requests that they refuse, and that a check finds
//! faults (`found_out`). The tests show no speed.

mod compatible;
mod found_out;
mod linked;
mod on_bus;
#[path = "../placed/mod.rs"]
mod placed;

use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use workload::routes::{names, open, parse};
use workload::spec::{End, Host, Memory};
use workload::{Buffer, Checked, Ends, Error, Inspect, Machine, verify};

const TIMEOUT: Duration = Duration::from_secs(10);
const KIB: u64 = 1 << 10;

fn soft() -> (SoftDriver, Machine) {
    let driver = SoftDriver::new(Mode::Strict);
    (driver, Machine::of_driver(Arc::new(driver), false).unwrap())
}

fn reason(error: Error) -> String {
    match error {
        Error::Unavailable(unavailable) => unavailable.reason,
        other => panic!("{other}"),
    }
}

fn opening(machine: &Machine, name: &str, capacity: u64) -> String {
    match open(machine, name, capacity) {
        Ok(_) => panic!("{name} opens"),
        Err(error) => reason(error),
    }
}

/// Sizes around the boundaries of words, lines, pages, data headers and windows.
fn sizes(capacity: u64) -> Vec<u64> {
    let borders = [1, 4, 8, 64, 512, 4 * KIB, 32_764, 64 * KIB, 4 << 20];
    let mut sizes: Vec<u64> = borders.iter().flat_map(|border| border - 1..border + 4).collect();
    sizes.push(capacity);
    sizes.retain(|bytes| (1..=capacity).contains(bytes));
    sizes.dedup();
    sizes
}

fn moves(machine: &Machine, name: &str, capacity: u64) {
    let mut route = open(machine, name, capacity).unwrap();
    assert_eq!((route.name(), route.capacity()), (name, capacity));
    for bytes in sizes(capacity) {
        assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
    }
}

#[test]
fn copy_engines_move_every_size_both_ways() {
    let (driver, machine) = soft();
    for name in [
        "host->ce0->gpu0",
        "gpu0->ce0->host",
        "host->ce2[pipelined]->gpu0",
        "gpu0->ce3[pipelined]->host",
        "host[offset=1]->ce1->gpu0[offset=4095]",
        "gpu0[offset=3]->ce1[pipelined]->host[offset=13]",
    ] {
        moves(&machine, name, 200 * KIB);
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn several_engines_move_every_size_together() {
    let (driver, machine) = soft();
    for name in [
        "host->split->gpu0",
        "gpu0->split->host",
        "host[offset=1]->split[engines=0+2+3]->gpu0[offset=4095]",
        "gpu0[offset=3]->split[engines=3+1]->host[offset=13]",
    ] {
        moves(&machine, name, 200 * KIB);
        let mut route = open(&machine, name, 64 * KIB).unwrap();
        let mut transfer = route.prepare(64 * KIB).unwrap();
        let copies = || driver.counters().copies.load(Ordering::Relaxed);
        let before = copies();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        let engines = if name.contains('+') { name.matches('+').count() as u64 + 1 } else { 2 };
        assert_eq!(copies() - before, engines, "{name}: a piece for each engine");
        assert!(transfer.released_gpu_ns().is_some());
    }
    for (name, why) in [
        ("host->split[engines=2]->gpu0", "at least two engines"),
        ("host->split[engines=2+2]->gpu0", "each named once"),
        ("host->split[engines=2+99]->gpu0", "no ce99"),
        ("host[pageable]->split->gpu0", "pageable"),
        ("host->split->host", "a GPU at one of its ends"),
    ] {
        let found = opening(&machine, name, 4096);
        assert!(found.contains(why), "{name}: {found}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// The machine with its GPU as a second one.
fn with_itself(machine: Machine) -> Machine {
    let space = machine.space().unwrap().clone();
    let no_cuda = workload::Unavailable::new("CUDA was not asked for");
    machine.with_peer(machine::Machine::new(Ok(space), Err(no_cuda)).into())
}

/// A second GPU that is the first one with another number. This shows which engine moves which bytes, not how fast.
#[test]
fn bytes_go_from_gpu_to_gpu() {
    let (driver, machine) = soft();
    let machine = with_itself(machine);
    assert_eq!(machine.gpu(1).unwrap().index(), 1);
    for name in [
        "gpu0->ce2->gpu0[offset=8192]",
        "gpu0[offset=3]->ce1[pipelined]->gpu1[offset=5]",
        "gpu1->ce0[folded]->gpu0",
        "gpu1->split->gpu0",
        "host->ce3->gpu1",
        "gpu1->split->host",
    ] {
        moves(&machine, name, 70_001);
    }
    let mut route = open(&machine, "gpu0->batch[pieces=64]->gpu1", 70_001).unwrap();
    assert_eq!(verify(&mut route, 70_001, 1, TIMEOUT).unwrap(), None);
    for (name, why) in [
        ("host->bar1->gpu1", "gpu1 is not open; this machine was opened with gpu0"),
        ("gpu0->ce0->gpu2", "gpu2 is not open: this machine was opened with gpu0 alone"),
        ("gpu0->ce99->gpu1", "no ce99"),
    ] {
        let found = opening(&machine, name, 4096);
        assert!(found.contains(why), "{name}: {found}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// A copy engine takes the device's place.
#[test]
fn a_devices_bytes_go_to_the_host_straight_to_the_gpu_and_through_the_host() {
    let (driver, machine) = soft();
    for name in [
        "device->dma->host",
        "host->dma->device",
        "device[offset=65536]->dma->gpu0[offset=3]",
        "gpu0->dma->device",
        "device->staged->gpu0",
        "gpu0->staged[ce=3]->device",
    ] {
        moves(&machine, name, 70_001);
    }
    for (name, why) in [
        ("device->ce0->gpu0", "use dma or staged"),
        ("device->bar1->gpu0", "use dma or staged"),
        ("device->dma->device", "one end is the device's"),
        ("host->dma->gpu0", "one end is the device's"),
        ("device->dma->host[pageable]", "pageable"),
        ("device->dma->gpu1", "gpu1 is not open"),
        ("host->dma[buffers=4]->device", "read from the device"),
        ("device->dma[buffers=0]->gpu0", "1 to 64"),
        ("device->staged->host", "to the host it is dma"),
        ("device->staged[ce=99]->gpu0", "no ce99"),
    ] {
        let found = opening(&machine, name, 4096);
        assert!(found.contains(why), "{name}: {found}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn rotating_buffers_hold_the_last_transfers_one_each() {
    let (_driver, machine) = soft();
    let (bytes, frames) = (5000, 4_u64);
    moves(&machine, "device->dma[buffers=4]->gpu0", bytes);
    let mut route = open(&machine, "device->dma[buffers=4]->gpu0", bytes).unwrap();
    let stride = 8192;
    let mut transfer = route.prepare(bytes).unwrap();
    let mut checked = Checked::new(transfer.ends().unwrap(), bytes, 9).unwrap();
    for n in 0..11 {
        checked.renew(transfer.ends().unwrap()).unwrap();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        assert_eq!(checked.check(transfer.ends().unwrap()).unwrap(), None, "the {n}th");
    }
    drop(transfer);
    // Each of four transfers is in a separate buffer.
    let mut transfer = route.prepare(bytes).unwrap();
    for n in 0..frames as u8 {
        transfer.ends().unwrap().write_source(0, &vec![n + 1; bytes as usize]).unwrap();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
    }
    drop(transfer);
    let mut found = vec![0; bytes as usize + 1];
    for n in 0..frames {
        route.ends().read_destination((n * stride) as i64, &mut found).unwrap();
        assert!(found[..bytes as usize].iter().all(|byte| u64::from(*byte) == n + 1), "buffer {n}");
        assert!(found[bytes as usize] > 4, "no byte further");
    }
}

#[test]
fn a_device_moves_nothing_with_a_handle_that_was_unpinned() {
    use workload::device::{Device, EngineDevice};
    let (_driver, machine) = soft();
    let of = |memory| Buffer::new(&machine, End { memory, offset: 0 }, 8192).unwrap();
    let (host, own) = (of(Memory::Host(Host::Pinned)), of(Memory::Gpu(0)));
    let mut device = EngineDevice::new(&machine).unwrap();
    let (to, from) = (device.pin(&host).unwrap(), device.pin(&own).unwrap());
    own.write(0, &[7; 8192]).unwrap();
    let mut job = device.job(from, to, 100).unwrap();
    assert!(!job.poll().unwrap() && matches!(job.wait(TIMEOUT), Err(Error::Idle)));
    job.start(50, 8092).unwrap();
    job.wait(TIMEOUT).unwrap();
    assert!(matches!(job.start(0, 8093), Err(Error::Gpu(gpu::Error::OutsideRegion { .. }))));
    drop(job);
    let mut found = [0; 101];
    host.read(8091, &mut found).unwrap();
    assert!(found[0] == 0 && found[1..].iter().all(|byte| *byte == 7));
    assert!(matches!(device.job(from, to, 8193).err(), Some(Error::Capacity { capacity: 8192, .. })));
    device.unpin(to).unwrap();
    assert!(matches!(device.unpin(to), Err(Error::Unpinned)));
    assert!(matches!(device.job(from, to, 1).err(), Some(Error::Unpinned)));
}

#[test]
fn scattered_pieces_move_every_size_behind_one_doorbell() {
    let (driver, machine) = soft();
    moves(&machine, "host->batch[pieces=1]->gpu0", 200 * KIB);
    for (name, pieces) in [
        ("host->batch->gpu0", 256),
        ("gpu0[offset=3]->batch[pieces=7]->host[offset=13]", 7),
        ("host->batch[pieces=4096,engine=3]->gpu0", 4096),
    ] {
        let mut route = open(&machine, name, 64 * KIB).unwrap();
        for bytes in [pieces, pieces + 1, 2 * pieces - 1, 20_011, 64 * KIB] {
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
        assert!(reason(route.prepare(pieces - 1).err().unwrap()).contains("at least one byte"), "{name}");
        let mut transfer = route.prepare(64 * KIB).unwrap();
        let copies = || driver.counters().copies.load(Ordering::Relaxed);
        let before = copies();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        assert_eq!(copies() - before, pieces, "{name}");
    }
    for (name, why) in [
        ("host->batch[pieces=0]->gpu0", "1 to 4096"),
        ("host->batch[pieces=4097]->gpu0", "1 to 4096"),
        ("host->batch[engine=99]->gpu0", "no ce99"),
        ("host->batch[engine=1+2]->gpu0", "several are `split`"),
        ("gpu0->batch->host[pageable]", "pageable"),
    ] {
        let found = opening(&machine, name, 4096);
        assert!(found.contains(why), "{name}: {found}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn inline_moves_every_size_beyond_one_header_too() {
    let (driver, machine) = soft();
    for name in ["host->inline->gpu0", "host->inline[split]->gpu0", "host[pageable,offset=3]->inline->gpu0[offset=5]"] {
        moves(&machine, name, 200 * KIB);
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn stores_and_loads_through_bar1_move_every_size_both_ways() {
    let (_driver, machine) = soft();
    for name in [
        "host->bar1->gpu0",
        "host[pageable,offset=3]->bar1[flush]->gpu0[offset=61]",
        "gpu0->bar1->host",
        "gpu0[offset=4095]->bar1->host[pageable,offset=1]",
        "host->aperture->gpu0",
        "gpu0->aperture->host",
    ] {
        moves(&machine, name, 200 * KIB);
    }
}

#[test]
fn the_aperture_moves_over_what_is_larger_than_it() {
    let (_driver, machine) = soft();
    let capacity = (9 << 20) + 77;
    for name in ["host->aperture->gpu0[offset=5]", "gpu0[offset=4095]->aperture->host"] {
        let mut route = open(&machine, name, capacity).unwrap();
        for bytes in [(4 << 20) - 5, 4 << 20, (8 << 20) + 1, capacity] {
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
    }
}

#[test]
fn one_launch_with_several_headers_or_several_launches() {
    let (driver, machine) = soft();
    // The number after the data is one more launch.
    let ways = [
        ("host->inline->gpu0", 2),
        ("host->inline[split]->gpu0", 5),
        ("host->inline[release=engine]->gpu0", 1),
        ("host->inline[split,release=engine]->gpu0", 4),
    ];
    for (name, launches) in ways {
        let mut route = open(&machine, name, 128 * KIB).unwrap();
        let mut transfer = route.prepare(100_000).unwrap();
        let copies = || driver.counters().inline_copies.load(Ordering::Relaxed);
        let before = copies();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        assert_eq!(copies() - before, launches, "{name}");
    }
}

#[test]
fn transfers_are_submitted_again_and_again() {
    let (driver, machine) = soft();
    // More submissions than the ring has entries; for slow ones, more than there are slots.
    for (name, bytes, rounds) in [
        ("host->ce0->gpu0", 5001, 1200),
        ("gpu0->ce0[pipelined]->host", 5001, 1200),
        ("host->ce1[folded]->gpu0", 5001, 100),
        ("host->inline->gpu0", 101, 1200),
        ("host->bar1->gpu0", 101, 100),
        ("host->bar1[flush]->gpu0", 101, 100),
        ("gpu0->aperture->host", 101, 20),
        ("host->inline->gpu0", 40_001, 20),
        ("host->inline[split]->gpu0", 40_001, 20),
    ] {
        let mut route = open(&machine, name, 64 * KIB).unwrap();
        let mut transfer = route.prepare(bytes).unwrap();
        assert!(!transfer.poll().unwrap(), "nothing was submitted");
        assert!(matches!(transfer.wait(TIMEOUT), Err(Error::Idle)));
        for _ in 0..rounds {
            transfer.submit().unwrap();
            transfer.wait(TIMEOUT).unwrap();
            assert!(transfer.poll().unwrap());
        }
        drop(transfer);
        assert_eq!(verify(&mut route, bytes, 9, TIMEOUT).unwrap(), None, "{name}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn a_channel_lies_where_the_options_put_it() {
    let (driver, machine) = soft();
    for name in [
        "host->ce0[gpfifo=host,userd=host]->gpu0",
        "gpu0->ce1[pushbuffer=host,tracker=video]->host",
        "host->inline[doorbell=bar1,gpfifo=host,pushbuffer=host,tracker=video,userd=host]->gpu0",
    ] {
        moves(&machine, name, 5000);
    }
    assert!(opening(&machine, "host->ce0[folded,pipelined]->gpu0", 1).contains("choose one"));
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn an_inline_transfer_takes_what_the_source_holds_when_it_is_submitted() {
    let (_driver, machine) = soft();
    let mut route = open(&machine, "host->inline->gpu0", 4 * KIB).unwrap();
    let mut last = Vec::new();
    for round in 0..50u8 {
        last = vec![round; 1000];
        route.ends().write_source(0, &last).unwrap();
        let mut transfer = route.prepare(1000).unwrap();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
    }
    let mut back = vec![0; 1000];
    route.ends().read_destination(0, &mut back).unwrap();
    assert_eq!(back, last);
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let (_driver, machine) = soft();
    for name in ["host->ce0->gpu0", "host->inline->gpu0", "gpu0->bar1->host", "host->aperture->gpu0"] {
        let mut route = open(&machine, name, 5000).unwrap();
        assert!(reason(route.prepare(0).err().unwrap()).contains("0 bytes"), "{name}");
        for bytes in [5001, u64::MAX] {
            let refused = route.prepare(bytes).err();
            assert!(matches!(refused, Some(Error::Capacity { capacity: 5000, .. })), "{name}");
        }
        drop(route);
        for capacity in [0, 1 << 50, u64::MAX] {
            assert!(opening(&machine, name, capacity).contains("1 byte to 16 GiB"), "{name}");
        }
    }
    let mut inline = open(&machine, "host->inline->gpu0", 8 << 20).unwrap();
    assert_eq!(verify(&mut inline, 4 << 20, 2, TIMEOUT).unwrap(), None);
    assert!(reason(inline.prepare(5 << 20).err().unwrap()).contains("4 MiB"));
}

#[test]
fn what_does_not_exist_says_why() {
    let (_driver, machine) = soft();
    for (name, why) in [
        ("gpu0->inline->host", "travels in the command stream"),
        ("gpu0->bar1[flush]->host", "nothing to flush"),
        ("host->ce0->host", "a GPU at one of its ends"),
        ("gpu0->inline->gpu0", "the host at one of its ends"),
        ("gpu0->bar1->gpu0", "the host at one of its ends"),
        ("gpu0->cuda->gpu0", "software GPU has no CUDA"),
        ("gpu0->cuda->gpu1", "gpu1 is not open: this machine was opened with gpu0 alone"),
        ("gpu0->ce0->gpu99", "gpu99 is not open: GPUs are counted up to 15"),
        ("gpu0->ce0->gpu7", "gpu7 is not open"),
        ("host->ce99->gpu0", "no ce99; it has ce0"),
        ("host[pageable]->ce0->gpu0", "pageable"),
        ("gpu0->ce0->host[pageable]", "pageable"),
        ("host[registered]->ce0->gpu0", "software GPU has no CUDA"),
        ("host[wc]->ce0->gpu0", "software GPU has no CUDA"),
        ("gpu0->ce0->host[huge]", "software GPU has no CUDA"),
        ("host[node=0]->bar1->gpu0", "software GPU has no CUDA"),
        ("host->cuda->gpu0", "software GPU has no CUDA"),
        ("host->cudart->gpu0", "software GPU has no CUDA"),
        ("host->message->gpu0", "launched by CUDA: the software GPU has no CUDA"),
        ("gpu0->message->host", "a message goes to a kernel"),
        ("host->inline[group=cuda]->gpu0", "software GPU has no CUDA"),
        ("host->ce0[group=cuda]->gpu0", "software GPU has no CUDA"),
    ] {
        let found = opening(&machine, name, 4096);
        assert!(found.contains(why), "{name}: {found}");
    }
}

#[test]
fn what_is_listed_opens_or_says_why() {
    let (_driver, machine) = soft();
    let listed = names(&machine);
    for (executor, routes) in [
        ("cuda", 33),
        ("cudart", 8),
        ("ce0", 14),
        ("ce2", 6),
        ("ce3", 9),
        ("inline", 5),
        ("bar1", 4),
        ("aperture", 2),
        ("split", 5),
        ("dma", 5),
        ("staged", 2),
        ("batch", 5),
    ] {
        let is = |listed: &&workload::routes::Listed| parse(&listed.name).unwrap().executor.word() == executor;
        assert_eq!(listed.iter().filter(is).count(), routes, "{executor}");
    }
    for listed in listed {
        assert_eq!(parse(&listed.name).unwrap().to_string(), listed.name);
        assert!(listed.about.len() > 10);
        match listed.unavailable {
            Some(unavailable) => assert_eq!(opening(&machine, &listed.name, 4096), unavailable.reason),
            // A piece has at least one byte.
            None if listed.name.contains("pieces=") => {
                let mut route = open(&machine, &listed.name, 4096).unwrap();
                assert_eq!(verify(&mut route, 4096, 1, TIMEOUT).unwrap(), None, "{}", listed.name);
            }
            None => moves(&machine, &listed.name, 4096),
        }
    }
}

/// One executor for any two memories: each pair is reached when it is first used, and another pair in between has no effect.
#[test]
fn an_executor_moves_bytes_between_any_two_memories() {
    let (_driver, machine) = soft();
    const LENGTH: u64 = 5000;
    let memory = |memory, offset| Buffer::new(&machine, End { memory, offset }, LENGTH).unwrap();
    let two = |kind| [memory(kind, 4096), memory(kind, 2 * 4096 + 64)];
    for (name, up) in [
        ("host->ce2->gpu0", true),
        ("gpu0->ce2->host", false),
        ("host->inline->gpu0", true),
        ("host->bar1->gpu0", true),
        ("gpu0->bar1->host", false),
        ("host->aperture->gpu0", true),
        ("gpu0->aperture->host", false),
    ] {
        let (host, video) = (two(Memory::Host(Host::Pinned)), two(Memory::Gpu(0)));
        let mut executor = workload::routes::executor(&machine, name).unwrap();
        let (from, to) = if up { (&host, &video) } else { (&video, &host) };
        for n in [0, 1, 0, 1, 1, 0] {
            let (from, to) = (&from[n], &to[1 - n]);
            let sent: Vec<u8> = (0..LENGTH).map(|at| (at * 7 + n as u64) as u8).collect();
            from.write(0, &sent).unwrap();
            to.write(0, &vec![0xee; LENGTH as usize]).unwrap();
            let mut transfer = executor.prepare(Ends::new(from, to), LENGTH - 1).unwrap();
            transfer.submit().unwrap();
            transfer.wait(TIMEOUT).unwrap();
            drop(transfer);
            let mut found = vec![0; LENGTH as usize];
            to.read(0, &mut found).unwrap();
            assert_eq!(found[..4999], sent[..4999], "{name}");
            assert_eq!(found[4999], 0xee, "{name}: one byte too many");
            assert!(matches!(executor.prepare(Ends::new(from, to), LENGTH + 1).err(), Some(Error::Capacity { .. })));
        }
    }
}

#[test]
fn machines_are_shared_by_threads() {
    fn shared<T: Sync + Send>() {}
    shared::<Machine>();
}

#[test]
fn a_machine_without_a_gpu_says_what_it_lacks() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        test_support::skip!("this machine has a GPU");
    }
    let soft = Machine::open(workload::Where::Soft).map(drop);
    let real = Machine::open(workload::Where::Real).map(drop);
    assert!(reason(soft.unwrap_err()).contains("has to be preloaded"));
    let real = reason(real.unwrap_err());
    assert!(real.contains("CUDA") && real.contains("/dev/nvidiactl"), "{real}");
}

#[test]
fn transfers_move_to_other_places_of_their_buffers() {
    let (_driver, machine) = soft();
    for (name, bytes) in [
        ("host->ce2->gpu0", 777),
        ("gpu0[offset=8]->ce0[pipelined]->host", 4097),
        ("host->ce1[folded,pushbuffer=host]->gpu0", 64),
        ("host->split->gpu0", 9000),
        ("device->dma->gpu0", 777),
        ("device->staged->gpu0", 777),
        ("gpu0[offset=8]->split[engines=0+1+2]->host", 20_000),
        ("host->ce2[timed]->gpu0", 64),
        ("host->inline->gpu0", 8),
        ("host[offset=4]->inline->gpu0", 40_000),
        ("host->inline[timed]->gpu0", 777),
        ("host->inline[split]->gpu0", 777),
        ("host->bar1->gpu0", 777),
        ("host->bar1[flush]->gpu0", 8),
        ("gpu0->bar1->host", 777),
        ("host->aperture->gpu0", 777),
        ("gpu0->aperture->host", 777),
    ] {
        let capacity = 200_000;
        let mut route = open(&machine, name, capacity).unwrap();
        let mut transfer = route.prepare(bytes).unwrap();
        placed::in_random_places(transfer.as_mut(), capacity, bytes, 100, name, TIMEOUT);
        for (from, to) in [(capacity - bytes + 1, 0), (0, capacity - bytes + 1), (u64::MAX, 0)] {
            assert!(matches!(transfer.move_to(from, to), Err(Error::Capacity { .. })), "{name}");
        }
    }
    for (name, bytes, why) in [
        ("host->ce2[armed]->gpu0", 64, "waits in the channel"),
        ("host->inline[armed]->gpu0", 8, "waits in the channel"),
        ("host->inline[split]->gpu0", 40_000, "an address of its own"),
    ] {
        let mut route = open(&machine, name, 100_000).unwrap();
        let mut transfer = route.prepare(bytes).unwrap();
        match transfer.move_to(0, 0) {
            Err(Error::Unavailable(said)) => assert!(said.reason.contains(why), "{name}: {said}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn timed_routes_say_when_the_engine_began() {
    let (_driver, machine) = soft();
    let clock = machine.space().unwrap().device().clock();
    for name in [
        "host->ce2[timed]->gpu0",
        "gpu0->ce0[pipelined,timed]->host",
        "host->ce1[folded,timed]->gpu0",
        "host->inline[timed]->gpu0",
        "host->inline[release=host,timed]->gpu0",
    ] {
        moves(&machine, name, 5000);
        let mut route = open(&machine, name, 5000).unwrap();
        let mut transfer = route.prepare(5000).unwrap();
        assert_eq!(transfer.started_gpu_ns(), None, "{name}");
        for _ in 0..50 {
            let before = clock.now();
            transfer.submit().unwrap();
            transfer.wait(TIMEOUT).unwrap();
            let times = [before, transfer.started_gpu_ns().unwrap(), transfer.released_gpu_ns().unwrap(), clock.now()];
            assert!(times.is_sorted(), "{name}: {times:?}");
        }
    }
    // Routes without `timed` record no start.
    for name in ["host->ce2->gpu0", "host->inline[release=engine]->gpu0"] {
        let mut route = open(&machine, name, 8).unwrap();
        let mut transfer = route.prepare(8).unwrap();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        assert!(transfer.started_gpu_ns().is_none() && transfer.released_gpu_ns().is_some(), "{name}");
    }
    for (name, why) in [
        ("host->ce2[armed,timed]->gpu0", "timed or armed"),
        ("host->inline[armed,timed]->gpu0", "timed or armed"),
        ("host->ce2[release=word,timed]->gpu0", "writes the time"),
        ("host->inline[release=word,timed]->gpu0", "release=engine or release=host"),
    ] {
        let said = opening(&machine, name, 8);
        assert!(said.contains(why), "{name}: {said}");
    }
}
