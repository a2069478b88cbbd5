//! doorbell's own routes on CUDA's memory, in CUDA's address space. The stand-in for libcuda has the software GPU's
//! memory, allocated by another client whose driver calls are watched.

#[path = "../../../gpu/machine/tests/fake/mod.rs"]
mod fake;

use cuda::Cuda;
use cuda::runtime::Runtime;
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Entry, Watched, Watching};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use workload::routes::{names, open};
use workload::{Error, Inspect, Machine, Opened, Route, Subject, verify};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The process has one stand-in.
static ONE: Mutex<()> = Mutex::new(());

struct Rig {
    machine: Machine,
    driver: SoftDriver,
    _theirs: Arc<AddressSpace>,
    _one: MutexGuard<'static, ()>,
}

/// A machine with both entries, the runtime and the kernel that answers.
fn rig(entry: Entry) -> Rig {
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for counter in [&fake::ANSWER_LIMIT, &fake::ANSWER_DEAF, &fake::ANSWER_LAUNCHES] {
        counter.store(0, Ordering::SeqCst);
    }
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    let from = theirs.clone();
    *fake::SOURCE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Box::new(move |kind, _, bytes| {
        let memory = match kind {
            fake::Kind::Device { .. } => from.alloc_video(bytes as u64),
            _ => from.alloc_host(bytes as u64),
        };
        let memory = memory.unwrap();
        (memory.va(), Box::new(memory) as fake::Keep)
    }));
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), entry).unwrap();
    // SAFETY: as above.
    let runtime = unsafe { Runtime::from_symbols(fake::find_runtime) }.unwrap();
    let uuid = theirs.device().uuid();
    let group = move || watched.address_space(Arc::new(driver), uuid, Entry::CudasClient);
    let machine = Machine::from(machine::Machine::beside(context, ours).with_group(group)).with_runtime(runtime);
    Rig { machine, driver, _theirs: theirs, _one: one }
}

#[test]
fn every_route_moves_cudas_memory() {
    for entry in [Entry::OwnClient, Entry::CudasClient] {
        let rig = rig(entry);
        for name in [
            "host->cuda->gpu0",
            "gpu0->cuda[sync]->host[pageable]",
            "host->ce0->gpu0",
            "gpu0[offset=3]->ce1[pipelined]->host[offset=5]",
            "host->ce2[folded]->gpu0",
            "host->inline->gpu0[offset=1]",
            "host[pageable]->inline[split]->gpu0",
            "host[pageable]->bar1->gpu0[offset=4097]",
            "host[pageable,offset=9]->bar1[flush]->gpu0[offset=61]",
            "host->ce1[armed]->gpu0",
            "gpu0[offset=5]->ce2[armed,folded,release=word]->host",
            "host[pageable]->inline[armed,release=engine]->gpu0",
            "host[offset=1]->inline[armed]->gpu0",
            "host->ce3[folded,release=local]->gpu0",
            "host->inline[release=execute]->gpu0[offset=4]",
            "gpu0->bar1->host",
            "host->cudart->gpu0[offset=2]",
            "gpu0->cudart[sync]->host[pageable]",
            "host->aperture->gpu0[offset=11]",
            "gpu0->aperture->host[registered]",
        ] {
            let mut route = open(&rig.machine, name, 70_001).unwrap();
            for bytes in [1, 2, 3, 7, 8, 4095, 4097, 40_000, 70_001] {
                assert_eq!(
                    verify(&mut route, bytes, bytes, TIMEOUT).unwrap(),
                    None,
                    "{entry:?}, {name}, {bytes} bytes"
                );
            }
            drop(route);
            assert_eq!(fake::alive(), [""; 0], "{name} left objects behind");
        }
        assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn what_is_listed_is_there() {
    let (rig, _theirs) = rig_with_group();
    let _running = fake::run_by_itself();
    for listed in names(&rig.machine) {
        let opened = open(&rig.machine, &listed.name, 300);
        match (listed.unavailable, opened) {
            (None, Err(Error::Unavailable(why))) if listed.name.contains("message") => {
                assert!(why.reason.contains("carries 1 to 56 bytes"), "{why}");
            }
            (None, Ok(mut route)) => assert_eq!(verify(&mut route, 299, 1, TIMEOUT).unwrap(), None, "{}", listed.name),
            (Some(why), Err(Error::Unavailable(found))) => assert_eq!(why, found),
            // The software GPU does not know the stand-in's registered memory.
            (None, Err(Error::Unavailable(why)))
                if ["registered", "huge", "node="].iter().any(|kind| listed.name.contains(kind)) =>
            {
                let of_the_machine = why.reason.contains("huge pages") || why.reason.contains("NUMA node 0 alone");
                assert!(why.reason.contains("not mapped for the GPU") || of_the_machine, "{why}");
            }
            (listed, opened) => panic!("{listed:?}, {:?}", opened.err()),
        }
    }
}

#[test]
fn channels_in_cudas_group_say_what_is_missing() {
    // The watched client of this stand-in has no channel, so no group either.
    let rig = rig(Entry::OwnClient);
    for (name, missing) in [
        ("host->inline[group=cuda]->gpu0", "no graphics channel of CUDA's was seen"),
        ("gpu0->ce2[group=cuda]->host", "groups of its own"),
    ] {
        let refused = open(&rig.machine, name, 100).err().unwrap();
        assert!(matches!(&refused, Error::Unavailable(why) if why.reason.contains(missing)), "{refused}");
    }
}

/// As `rig`, with a graphics channel that belongs to the watched client.
fn rig_with_group() -> (Rig, Channel) {
    let rig = rig(Entry::OwnClient);
    let theirs = Channel::new(&rig._theirs, Engine::Graphics, ChannelOptions::default()).unwrap();
    (rig, theirs)
}

#[test]
fn both_entries_serve_one_machine() {
    let (rig, _theirs) = rig_with_group();
    let names = ["host->inline[group=cuda]->gpu0", "host->inline->gpu0", "host->ce2->gpu0", "host->cuda->gpu0"];
    let mut routes: Vec<_> = names.iter().map(|name| open(&rig.machine, name, 70_001).unwrap()).collect();
    for bytes in [1, 8, 4097, 70_001] {
        for route in &mut routes {
            assert_eq!(verify(route, bytes, bytes, TIMEOUT).unwrap(), None, "{}, {bytes} bytes", route.name());
        }
    }
    let engines = rig.machine.copy_engines().unwrap();
    for engine in engines.iter().filter(|engine| engine.is_graphics()) {
        let name = format!("gpu0->ce{}[group=cuda]->host", engine.number);
        let mut route = open(&rig.machine, &name, 5000).unwrap();
        assert_eq!(verify(&mut route, 5000, 1, TIMEOUT).unwrap(), None, "{name}");
    }
    let (own, group) = (rig.machine.space().unwrap(), rig.machine.group_space().unwrap());
    assert!(!Arc::ptr_eq(own, group));
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn the_kernel_that_answers_runs_from_prepare_to_rest_or_drop_and_keeps_nobody_waiting() {
    let rig = rig(Entry::OwnClient);
    let launches = || fake::ANSWER_LAUNCHES.load(Ordering::SeqCst);
    let runs = || fake::ANSWER_RUNS.load(Ordering::SeqCst);
    let mut answered = open(&rig.machine, "host->message->gpu0", 56).unwrap();
    assert_eq!((launches(), runs()), (2, 0), "both kernels are tried out when it is opened");
    let mut others: Vec<_> = ["gpu0->cuda->host[pageable]", "host->ce1->gpu0", "gpu0->cudart[sync]->host"]
        .map(|name| open(&rig.machine, name, 4096).unwrap())
        .into_iter()
        .collect();
    let mut transfer = answered.prepare(8).unwrap();
    assert!(matches!(transfer.wait(TIMEOUT), Err(Error::Idle)) && !transfer.poll().unwrap());
    for round in 0..50 {
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        assert!(transfer.poll().unwrap());
        if round % 10 == 0 {
            for route in &mut others {
                assert_eq!(verify(route, 4096, round, TIMEOUT).unwrap(), None, "{}", route.name());
            }
        }
    }
    assert_eq!((launches(), runs()), (3, 1), "one kernel for all, which nobody waited for");
    transfer.rest().unwrap();
    assert_eq!((launches(), runs()), (3, 0));
    transfer.submit().unwrap();
    transfer.wait(TIMEOUT).unwrap();
    assert_eq!((launches(), runs()), (4, 1), "woken by the next submission");
    drop(transfer);
    assert_eq!((launches(), runs()), (4, 0));
    // The last transfer's answer must not match a new transfer's first number.
    let transfer = answered.prepare(8).unwrap();
    assert_eq!(runs(), 1);
    drop(transfer);
    drop((answered, others));
    assert_eq!((runs(), fake::alive()), (0, Vec::new()));
}

/// Every offset in a line, and every length around one, two and three lines.
#[test]
fn stores_through_bar1_write_their_bytes_and_no_others() {
    let rig = rig(Entry::OwnClient);
    for name in ["host->bar1->gpu0", "host[pageable]->bar1[flush]->gpu0"] {
        let mut route = open(&rig.machine, name, 512).unwrap();
        for bytes in [1usize, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 191, 193] {
            let mut transfer = route.prepare(bytes as u64).unwrap();
            for place in 0..64u64 {
                let source = place * 7 % 61;
                let data: Vec<u8> = (0..bytes).map(|n| (n as u64 * 5 + place) as u8 | 1).collect();
                let ends = transfer.ends().unwrap();
                ends.write_source(source as i64, &data).unwrap();
                ends.write_destination(-64, &[0; 448]).unwrap();
                transfer.move_to(source, place).unwrap();
                transfer.submit().unwrap();
                transfer.wait(TIMEOUT).unwrap();
                let mut found = [1; 448];
                transfer.ends().unwrap().read_destination(-64, &mut found).unwrap();
                let (start, end) = (64 + place as usize, 64 + place as usize + bytes);
                assert!(found[start..end] == data, "{name}, {bytes} bytes at {place}");
                let mut others = found[..start].iter().chain(&found[end..]);
                assert!(others.all(|byte| *byte == 0), "{name}, {bytes} bytes at {place}: others");
            }
        }
    }
}

/// Each transfer has new bytes, all of which have arrived when it is answered.
fn again_and_again(route: &mut Route<'_>, name: &str) {
    let mut transfers = 0;
    for round in 0..20_u8 {
        let data = [round, 1, 2, 3, 4, 5, 6, !round];
        route.ends().write_source(0, &data).unwrap();
        let mut transfer = route.prepare(8).unwrap();
        for _ in 0..3 {
            transfer.submit().unwrap();
            transfer.wait(TIMEOUT).unwrap();
            transfers += 1;
        }
        drop(transfer);
        let mut found = [0; 8];
        route.ends().read_destination(0, &mut found).unwrap();
        assert_eq!(found, data, "{name}, after {transfers} transfers");
    }
}

#[test]
fn a_message_is_a_line_in_a_mailbox_and_no_copy() {
    let rig = rig(Entry::OwnClient);
    for name in ["host->message->gpu0", "host->message->gpu0[offset=64]", "host[pageable,offset=3]->message->gpu0"] {
        let mut route = open(&rig.machine, name, 56).unwrap();
        for bytes in [1, 5, 8, 9, 16, 17, 48, 55, 56] {
            assert_eq!(route.ends().footprint(bytes), 64, "the whole line is the message's");
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
        assert!(matches!(route.prepare(57).err(), Some(Error::Capacity { bytes: 57, capacity: 56 })), "{name}");
        again_and_again(&mut route, name);
    }
    for (name, capacity, why) in [
        ("host->message->gpu0", 57, "copies are bar1, ce and inline"),
        ("host->message->gpu0[offset=8]", 8, "multiple of 64"),
        ("gpu0->message->host", 8, "a message goes to a kernel"),
    ] {
        let refused = open(&rig.machine, name, capacity).err().unwrap();
        assert!(matches!(&refused, Error::Unavailable(u) if u.reason.contains(why)), "{name}: {refused}");
    }
    let listed: Vec<_> = names(&rig.machine).into_iter().filter(|route| route.name.contains("message")).collect();
    assert!(listed.len() == 1 && listed[0].about.contains("not a copy"), "{listed:?}");
    assert_eq!(fake::alive(), [""; 0]);
}

#[test]
fn a_long_message_is_read_again_until_all_of_it_is_there() {
    let rig = rig(Entry::OwnClient);
    let mut route = open(&rig.machine, "host->message->gpu0", 56).unwrap();
    let mut transfer = route.prepare(56).unwrap();
    for n in 0..20u8 {
        transfer.ends().unwrap().write_source(0, &[n; 56]).unwrap();
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
    }
    // The next number with bytes of another message: half of a line that has arrived.
    let torn = fake::ANSWER_TORN.load(Ordering::SeqCst);
    transfer.ends().unwrap().write_destination(0, &[0xee; 32]).unwrap();
    transfer.ends().unwrap().write_destination(56, &21u32.to_le_bytes()).unwrap();
    while fake::ANSWER_TORN.load(Ordering::SeqCst) < torn + 2 {
        std::thread::yield_now();
    }
    assert!(transfer.poll().unwrap(), "the answer is still that to the message before");
    transfer.submit().unwrap();
    transfer.wait(TIMEOUT).unwrap();
    drop(transfer);
    let mut found = [0; 56];
    route.ends().read_destination(0, &mut found).unwrap();
    assert_eq!(found, [19; 56]);
}

#[test]
fn a_kernel_that_ended_by_itself_is_launched_again() {
    let rig = rig(Entry::OwnClient);
    let mut answered = open(&rig.machine, "host->message->gpu0", 56).unwrap();
    fake::ANSWER_LIMIT.store(1, Ordering::SeqCst);
    let mut transfer = answered.prepare(56).unwrap();
    while fake::ANSWER_RUNS.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    fake::ANSWER_LIMIT.store(0, Ordering::SeqCst);
    // Its last store may still arrive.
    std::thread::sleep(Duration::from_millis(20));
    transfer.submit().unwrap();
    transfer.wait(TIMEOUT).unwrap();
}

#[test]
fn a_store_that_no_kernel_answers_is_late() {
    let rig = rig(Entry::OwnClient);
    let mut answered = open(&rig.machine, "host->message->gpu0", 56).unwrap();
    let mut transfer = answered.prepare(56).unwrap();
    fake::ANSWER_DEAF.store(1, Ordering::SeqCst);
    transfer.submit().unwrap();
    let late = transfer.wait(Duration::from_millis(30));
    assert!(!transfer.poll().unwrap());
    fake::ANSWER_DEAF.store(0, Ordering::SeqCst);
    assert!(matches!(late, Err(Error::Late { bytes: 56, .. })), "{late:?}");
    transfer.wait(TIMEOUT).unwrap();
}

#[test]
fn a_kernel_that_does_not_see_the_stores_is_found_when_the_route_is_opened() {
    let rig = rig(Entry::OwnClient);
    fake::ANSWER_DEAF.store(1, Ordering::SeqCst);
    fake::ANSWER_LIMIT.store(1_000_000, Ordering::SeqCst);
    let refused = open(&rig.machine, "host->message->gpu0", 56).err().unwrap();
    assert!(matches!(&refused, Error::Unavailable(why) if why.reason.contains("did not answer")), "{refused}");
    assert_eq!(fake::alive(), [""; 0]);
}

/// The device is one of doorbell's copy engines, the buffers are CUDA's, and a CUDA kernel consumes.
#[test]
fn frames_in_cudas_memory_are_consumed_by_a_kernel() {
    use workload::device::EngineDevice;
    use workload::device::frames::{Ring, Wanted};
    use workload::spec::Memory;
    const CONSUME: Duration = Duration::from_micros(300);
    let rig = rig(Entry::OwnClient);
    let _running = fake::run_by_itself();
    for buffers in [1, 4] {
        let wanted = Wanted { bytes: 3 * 4096, buffers, to: Memory::Gpu(0), consume: CONSUME };
        let device = Box::new(EngineDevice::new(&rig.machine).unwrap());
        let mut ring = Ring::new(&rig.machine, device, wanted).unwrap();
        assert!(ring.about().contains("by a kernel"), "{}", ring.about());
        for seed in [1, 2] {
            let mut frames = ring.run(seed).unwrap();
            for n in 0..15 {
                let begun = std::time::Instant::now();
                frames.fire().unwrap();
                frames.wait(TIMEOUT).unwrap();
                assert!(begun.elapsed() >= CONSUME);
                assert_eq!(frames.check().unwrap(), None, "{buffers} buffers, the {n}th");
            }
        }
    }
    assert_eq!(fake::alive(), [""; 0]);
}
