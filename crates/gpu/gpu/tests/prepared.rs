//! Prepared transfers on the software GPU: validated once, submitted often.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{
    AddressSpace, Channel, ChannelOptions, CopyFlush, CopyMode, Device, Engine, Error, Form, InlineMode, InlineRelease,
    Place, Prepared, Pushbuffer, Semaphores, Told,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use test_support::noise;

const TIMEOUT: Duration = Duration::from_secs(10);

fn space() -> (SoftDriver, Arc<AddressSpace>) {
    let driver = SoftDriver::new(Mode::Strict);
    let device = Device::open(Arc::new(driver), 0).unwrap();
    (driver, AddressSpace::new(&device).unwrap())
}

fn everywhere() -> Vec<ChannelOptions> {
    let places = [Place::Video, Place::Host];
    let mut all = Vec::new();
    for (pushbuffer, tracker) in places.into_iter().flat_map(|a| places.map(|b| (a, b))) {
        for (gpfifo, userd) in places.into_iter().flat_map(|a| places.map(|b| (a, b))) {
            all.push(ChannelOptions { entries: 16, gpfifo, userd, pushbuffer, tracker, ..Default::default() });
        }
    }
    all
}

#[test]
fn copies_again_and_again_wherever_everything_lies() {
    let (driver, space) = space();
    let (source, target) = (space.alloc_host(1 << 16).unwrap(), space.alloc_video(1 << 16).unwrap());
    let (from, to) = (source.region(), target.region());
    for options in everywhere() {
        for mode in [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded] {
            let mut channel = Channel::new(&space, Engine::Copy(2), options).unwrap();
            let mut copy = Prepared::copy(&mut channel, &to, &from, 777, mode).unwrap();
            for n in 0..100u64 {
                let data = noise(777, n);
                let (at, into) = (n * 131 % 60000, n * 517 % 60000);
                source.write(at, &data);
                let ticket = copy.submit_at(&mut channel, target.va() + into, source.va() + at).unwrap();
                channel.wait(ticket, TIMEOUT).unwrap();
                let mut back = vec![0; 777];
                target.read(into, &mut back);
                assert!(back == data, "{options:?} {mode:?} round {n}");
            }
        }
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn untracked_copies_arrive_and_are_done_with_the_next_release() {
    let (driver, space) = space();
    let (source, target) = (space.alloc_host(1 << 16).unwrap(), space.alloc_video(1 << 16).unwrap());
    let word = Arc::new(Semaphores::new(&space).unwrap().alloc().unwrap());
    let told = |flush| Some(Told { word: word.clone(), flush });
    let flushes = [CopyFlush::None, CopyFlush::Local, CopyFlush::All];
    for told in flushes.map(told).into_iter().chain([None]) {
        for mode in [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded] {
            let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
            let (to, from) = (target.region(), source.region());
            let mut copy = Prepared::copy_untracked(&mut channel, &to, &from, 777, mode, told.clone()).unwrap();
            let data = noise(777 * 20, 5);
            source.write(0, &data);
            target.write(0, &vec![0; data.len()]);
            word.set(0);
            let mut last = channel.release().unwrap();
            for n in 0..20 {
                last = copy.submit_at(&mut channel, target.va() + 777 * n, source.va() + 777 * n).unwrap();
            }
            if told.is_some() {
                word.wait(last.number() as u32, TIMEOUT).unwrap();
                assert!(!channel.done(last), "{mode:?} {told:?}: the tracker was told");
            }
            let release = channel.release().unwrap();
            channel.wait(release, TIMEOUT).unwrap();
            assert!(channel.done(last));
            assert_eq!(word.value(), if told.is_some() { last.number() as u32 } else { 0 });
            let mut back = vec![0; data.len()];
            target.read(0, &mut back);
            assert!(back == data, "{mode:?} {told:?}");
        }
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn a_channel_that_goes_waits_for_its_untracked_copies() {
    let (driver, space) = space();
    let memory = space.alloc_host(1 << 16).unwrap();
    let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let whole = memory.region();
    let mut copy = Prepared::copy_untracked(&mut channel, &whole, &whole, 64, CopyMode::Plain, None).unwrap();
    let (ticket, observer) = (copy.submit(&mut channel).unwrap(), channel.observer());
    drop(channel);
    assert!(observer.done(ticket), "it was stopped instead");
    // A word of another address space is refused.
    let (_, other) = self::space();
    let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let word = Arc::new(Semaphores::new(&other).unwrap().alloc().unwrap());
    let told = Some(Told { word, flush: CopyFlush::None });
    let refused = Prepared::copy_untracked(&mut channel, &whole, &whole, 64, CopyMode::Plain, told).unwrap_err();
    assert!(matches!(refused, Error::OtherSpace { .. }), "{refused}");
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn inline_copies_of_every_length_with_new_data_each_time() {
    let (driver, space) = space();
    let target = space.alloc_video(1 << 20).unwrap();
    let to = target.region();
    for pushbuffer in [Place::Host, Place::Video] {
        let options = ChannelOptions { pushbuffer, ..Default::default() };
        let mut channel = Channel::new(&space, Engine::Graphics, options).unwrap();
        for bytes in [1u32, 3, 4, 8, 4095, 32764, 32765, 65535, 300_000] {
            for (mode, release) in [
                (InlineMode::Headers, InlineRelease::Host),
                (InlineMode::Launches, InlineRelease::Host),
                (InlineMode::Headers, InlineRelease::Engine),
                (InlineMode::Launches, InlineRelease::Engine),
            ] {
                let mut inline = Prepared::inline(&mut channel, &to, bytes, (mode, release)).unwrap();
                for n in 0..5 {
                    let data = noise(bytes as usize, n + u64::from(bytes));
                    target.write(u64::from(bytes), &[0x5a; 8]);
                    let ticket = inline.submit_data(&mut channel, &data).unwrap();
                    channel.wait(ticket, TIMEOUT).unwrap();
                    let mut back = vec![0; bytes as usize + 8];
                    target.read(0, &mut back);
                    assert!(back[..bytes as usize] == data, "{bytes} {mode:?}");
                    assert_eq!(back[bytes as usize..], [0x5a; 8], "{bytes} {mode:?}: not a byte too many");
                }
                assert!(matches!(inline.submit_data(&mut channel, &[]), Err(Error::Length(0))));
            }
        }
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn many_under_way_on_one_ring() {
    let (_, space) = space();
    let (source, target) = (space.alloc_host(1 << 16).unwrap(), space.alloc_host(1 << 16).unwrap());
    let data = noise(1 << 16, 9);
    source.write(0, &data);
    let whole = gpu::Memory::region;
    let mut channel = Channel::new(&space, Engine::Copy(3), ChannelOptions::default()).unwrap();
    let mut copy = Prepared::copy(&mut channel, &whole(&target), &whole(&source), 64, CopyMode::Pipelined).unwrap();
    let mut full = 0;
    let mut last = None;
    for n in 0..(1u64 << 16) / 64 {
        last = loop {
            match copy.submit_at(&mut channel, target.va() + 64 * n, source.va() + 64 * n) {
                Ok(ticket) => break Some(ticket),
                Err(Error::RingFull(_)) => full += 1,
                Err(error) => panic!("{error}"),
            }
        };
    }
    channel.wait(last.unwrap(), TIMEOUT).unwrap();
    let mut back = vec![0; 1 << 16];
    target.read(0, &mut back);
    assert!(back == data, "{full} times full");
}

#[test]
fn addresses_outside_and_memory_that_is_gone_are_errors_before_anything_is_rung() {
    let (driver, space) = space();
    let (source, target) = (space.alloc_host(0x1000).unwrap(), space.alloc_video(0x1000).unwrap());
    let whole = gpu::Memory::region;
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let (to, from) = (whole(&target), whole(&source));
    let mut copy = Prepared::copy(&mut channel, &to, &from, 0x800, CopyMode::Plain).unwrap();
    for (to, from) in [
        (target.va() + 0x801, source.va()),
        (target.va(), source.va() + 0x801),
        (target.va() - 1, source.va()),
        (u64::MAX - 4, source.va()),
    ] {
        let error = copy.submit_at(&mut channel, to, from).unwrap_err();
        assert!(matches!(error, Error::OutsideRegion { .. }), "{error}");
    }
    // Longer than its memory: the validator refuses it.
    let error = Prepared::copy(&mut channel, &to, &from, 0x1001, CopyMode::Plain).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let mut other = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    assert!(matches!(copy.submit(&mut other), Err(Error::OtherChannel)));
    let rung = driver.counters().doorbells.load(Ordering::Relaxed);
    drop(source);
    assert!(matches!(copy.submit(&mut channel), Err(Error::Stale)));
    assert_eq!(driver.counters().doorbells.load(Ordering::Relaxed), rung);
    // Dropping other memory only makes it check again.
    let source = space.alloc_host(0x1000).unwrap();
    let mut copy = Prepared::copy(&mut channel, &to, &whole(&source), 0x800, CopyMode::Plain).unwrap();
    drop(space.alloc_host(0x1000).unwrap());
    let ticket = copy.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
}

#[test]
fn dropped_while_under_way() {
    let (driver, space) = space();
    let (source, target) = (space.alloc_host(1 << 20).unwrap(), space.alloc_video(1 << 20).unwrap());
    let whole = gpu::Memory::region;
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut last = None;
    for _ in 0..200 {
        let mut copy =
            Prepared::copy(&mut channel, &whole(&target), &whole(&source), 1 << 20, CopyMode::Plain).unwrap();
        last = Some(copy.submit(&mut channel).unwrap());
    }
    channel.wait(last.unwrap(), TIMEOUT).unwrap();
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn a_childs_use_is_an_error() {
    let (_, space) = space();
    let (source, target) = (space.alloc_host(0x1000).unwrap(), space.alloc_host(0x1000).unwrap());
    let whole = gpu::Memory::region;
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut copy = Prepared::copy(&mut channel, &whole(&target), &whole(&source), 64, CopyMode::Plain).unwrap();
    let ticket = copy.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    // SAFETY: the child makes only calls that return without a lock, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let submit = matches!(copy.submit(&mut channel), Err(Error::Forked));
        let wait = matches!(channel.wait(ticket, TIMEOUT), Err(Error::Forked));
        let done = !channel.done(ticket);
        // Does not free the parent's resources.
        drop((copy, channel, source, target, space));
        // SAFETY: ends the child immediately.
        unsafe { libc::_exit(i32::from(!(submit && wait && done))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child's calls were errors");
    let ticket = copy.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
}

#[test]
fn a_region_never_reaches_past_its_memory_and_a_transfer_never_past_its_region() {
    let (driver, space) = space();
    let (source, target) = (space.alloc_host(0x1000).unwrap(), space.alloc_host(0x2000).unwrap());
    let (from, whole) = (source.region(), target.region());
    for (offset, length) in [(0, 1 << 40), (0, u64::MAX), (0x1fff, 2), (0x2000, 1), (u64::MAX, 2), (u64::MAX - 7, 8)] {
        let refused = whole.part(offset, length).unwrap_err();
        assert!(matches!(refused, Error::Outside { size: 0x2000, .. }), "{offset:#x} {length:#x}: {refused}");
    }
    let half = whole.part(0x1000, 0x1000).unwrap();
    assert!(
        matches!(half.part(0, 0x1001), Err(Error::Outside { size: 0x1000, .. })),
        "a part has no more than its own"
    );
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut copy = Prepared::copy(&mut channel, &half, &from, 8, CopyMode::Plain).unwrap();
    let rung = driver.counters().doorbells.load(Ordering::Relaxed);
    // Far away, in the same memory but not in the region, in other memory of doorbell, and in the channel's own ring.
    for to in [half.va() + (1 << 30), half.va() - 8, half.va() + 0xff9, source.va(), channel.gpfifo_va()] {
        let refused = copy.submit_at(&mut channel, to, source.va()).unwrap_err();
        assert!(matches!(refused, Error::OutsideRegion { .. }), "{to:#x}: {refused}");
    }
    assert_eq!(driver.counters().doorbells.load(Ordering::Relaxed), rung);
    let other = AddressSpace::new(space.device()).and_then(|other| other.alloc_host(0x1000));
    if let Ok(other) = other {
        let refused = Prepared::copy(&mut channel, &other.region(), &from, 8, CopyMode::Plain).unwrap_err();
        assert!(matches!(refused, Error::OtherSpace { .. }), "{refused}");
    }
}

#[test]
fn a_region_of_memory_that_is_gone_is_stale_whatever_comes_to_lie_there() {
    let (_, space) = space();
    let source = space.alloc_host(0x1000).unwrap();
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let target = space.alloc_host(0x1000).unwrap();
    let (gone, at) = (target.region(), target.va());
    drop(target);
    // Other tests' memory may take the address; then the case does not occur.
    let again = space.alloc_host(0x1000).unwrap();
    assert!(!gone.is_live());
    let refused = Prepared::copy(&mut channel, &gone, &source.region(), 8, CopyMode::Plain).unwrap_err();
    assert!(matches!(refused, Error::Stale), "{refused}");
    assert!(again.va() != at || again.region().is_live());
}

#[test]
fn a_submission_without_data_sends_the_newest_that_was_given() {
    let (_, space) = space();
    let target = space.alloc_video(1 << 16).unwrap();
    for pushbuffer in [Place::Video, Place::Host] {
        let options = ChannelOptions { pushbuffer, ..Default::default() };
        let mut channel = Channel::new(&space, Engine::Graphics, options).unwrap();
        for (bytes, mode) in [(8, InlineMode::Headers), (5001, InlineMode::Headers), (40_001, InlineMode::Launches)] {
            let mut inline = Prepared::inline(&mut channel, &target.region(), bytes, mode).unwrap();
            let mut sent = vec![0; bytes as usize];
            // Every slot is used more than once, with and without data.
            for n in 0..3 * inline.slots() as u64 {
                let ticket = if n % 3 == 0 {
                    sent = noise(bytes as usize, n);
                    inline.submit_data(&mut channel, &sent).unwrap()
                } else {
                    inline.submit(&mut channel).unwrap()
                };
                channel.wait(ticket, TIMEOUT).unwrap();
                let mut found = vec![0; bytes as usize];
                target.read(0, &mut found);
                assert!(found == sent, "{pushbuffer:?}, {bytes} bytes, submission {n}");
                target.write(0, &vec![0x77; bytes as usize]);
            }
        }
    }
}

#[test]
fn an_engine_says_when_it_begins() {
    let (_driver, space) = space();
    let (source, target) = (space.alloc_host(1 << 16).unwrap(), space.alloc_video(1 << 16).unwrap());
    let (from, to) = (source.region(), target.region());
    let mut transfers: Vec<(Channel, Prepared, Vec<u8>)> = Vec::new();
    for mode in [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded] {
        let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
        let copy =
            Prepared::copy(&mut channel, &to, &from, 5000, Form { mode, release: Default::default(), begins: true })
                .unwrap();
        transfers.push((channel, copy, Vec::new()));
    }
    for release in [InlineRelease::Engine, InlineRelease::Host, InlineRelease::Flag, InlineRelease::Execute] {
        for (bytes, mode) in [(8, InlineMode::Headers), (40_000, InlineMode::Headers), (40_000, InlineMode::Launches)] {
            let mut channel = Channel::new(&space, Engine::Graphics, ChannelOptions::default()).unwrap();
            let inline = Prepared::inline(&mut channel, &to, bytes, Form { mode, release, begins: true }).unwrap();
            transfers.push((channel, inline, noise(bytes as usize, 3)));
        }
    }
    for (channel, transfer, data) in &mut transfers {
        assert_eq!(transfer.started(), None, "before the first");
        let clock = space.device().clock();
        for n in 0..70u64 {
            let before = clock.now();
            let data: Vec<u8> =
                if data.is_empty() { noise(5000, n) } else { data.iter().map(|b| b ^ n as u8).collect() };
            let ticket = if transfer.bytes() == 5000 {
                source.write(0, &data);
                transfer.submit(channel).unwrap()
            } else {
                transfer.submit_data(channel, &data).unwrap()
            };
            channel.wait(ticket, TIMEOUT).unwrap();
            let (started, after) = (transfer.started().unwrap(), clock.now());
            assert!((before..=after).contains(&started), "{before} {started} {after}");
            if transfer.is_timed() {
                assert!((started..=after).contains(&channel.timestamp()), "{started} {}", channel.timestamp());
            }
            let mut back = vec![0; data.len()];
            target.read(0, &mut back);
            assert!(back == data, "round {n}");
        }
    }
    // A transfer that waits has not begun, whatever the one before it did.
    let gate = Semaphores::new(&space).unwrap().alloc().unwrap();
    for (channel, transfer, data) in &mut transfers {
        gate.set(0);
        let mut shut = Pushbuffer::new(&space, 16).unwrap();
        shut.host_acquire(&gate, 1).unwrap();
        let shut = shut.validate(channel).unwrap();
        assert!(transfer.started().is_some());
        channel.submit(&shut).unwrap();
        let ticket = match transfer.bytes() {
            5000 => transfer.submit(channel).unwrap(),
            _ => transfer.submit_data(channel, data).unwrap(),
        };
        assert_eq!(transfer.started(), None);
        gate.set(1);
        channel.wait(ticket, TIMEOUT).unwrap();
        assert!(transfer.started().is_some());
    }
    // The plain one does not report its start.
    let mut channel = Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap();
    let mut plain = Prepared::copy(&mut channel, &to, &from, 64, CopyMode::Plain).unwrap();
    let ticket = plain.submit(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(plain.started(), None);
}

#[test]
fn transfers_are_aimed_within_their_regions() {
    let (_driver, space) = space();
    let (source, target) = (space.alloc_host(1 << 16).unwrap(), space.alloc_video(1 << 16).unwrap());
    let (from, to) = (source.region(), target.region());
    let data = noise(1 << 16, 9);
    source.write(0, &data);
    for options in everywhere() {
        let mut channel = Channel::new(&space, Engine::Copy(2), options).unwrap();
        let mut copy = Prepared::copy(&mut channel, &to, &from, 777, CopyMode::Plain).unwrap();
        let mut graphics = Channel::new(&space, Engine::Graphics, options).unwrap();
        let mut inline = Prepared::inline(&mut graphics, &to, 777, InlineMode::Headers).unwrap();
        for n in 0..50u64 {
            let (at, into) = ((n * 131 % 60000) as usize, n * 517 % 60000);
            copy.aim(target.va() + into, Some(source.va() + at as u64)).unwrap();
            let ticket = copy.submit(&mut channel).unwrap();
            channel.wait(ticket, TIMEOUT).unwrap();
            let mut back = vec![0; 777];
            target.read(into, &mut back);
            assert!(back == data[at..at + 777], "{options:?} round {n}");
            inline.aim(target.va() + into + 1, None).unwrap();
            let ticket = inline.submit_data(&mut graphics, &data[at..at + 777]).unwrap();
            graphics.wait(ticket, TIMEOUT).unwrap();
            target.read(into + 1, &mut back);
            assert!(back == data[at..at + 777], "{options:?} round {n}, inline");
        }
        let (first, last) = (target.va(), target.va() + (1 << 16) - 777);
        copy.aim(last, Some(source.va())).unwrap();
        for (to, from) in
            [(last + 1, Some(source.va())), (first - 1, Some(source.va())), (first, Some(first)), (first, None)]
        {
            assert!(matches!(copy.aim(to, from), Err(Error::OutsideRegion { .. })), "{to:#x} {from:x?}");
        }
        inline.aim(last, None).unwrap();
        for (to, from) in [(last + 1, None), (first, Some(source.va()))] {
            assert!(matches!(inline.aim(to, from), Err(Error::OutsideRegion { .. })), "{to:#x} {from:x?}");
        }
    }
    // Several launches have several addresses.
    let mut graphics = Channel::new(&space, Engine::Graphics, ChannelOptions::default()).unwrap();
    let mut split = Prepared::inline(&mut graphics, &to, 40_000, InlineMode::Launches).unwrap();
    assert!(matches!(split.aim(target.va(), None), Err(Error::OutsideRegion { .. })));
}
