//! What a comparison finds: routes of plain memory that go wrong at one transfer, in ways in which real ones could.

use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use workload::spec::{End, Host, Memory};
use workload::{Buffer, Ends, Error, Executor, GUARD, HostEnd, Inspect, Machine, Route, Transfer};
use workload::{Checks, Opened, Wanted, Wrong, of_route};

const TIMEOUT: Duration = Duration::from_secs(1);
const G: usize = GUARD as usize;

/// What the n-th transfer does, counted from 1; all others are right.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Nothing.
    Skips,
    /// All but the last byte.
    LastByte,
    /// One bit in the middle is another.
    OneBit,
    /// One byte more.
    OneMore,
    /// One byte before the start.
    OneBefore,
}

const FAULTS: [Fault; 5] = [Fault::Skips, Fault::LastByte, Fault::OneBit, Fault::OneMore, Fault::OneBefore];

/// Moves bytes by the CPU; all transfers except one are right.
struct Plain {
    fault: Fault,
    at: u64,
    transfers: u64,
}

impl Executor for Plain {
    fn reach(&mut self, _: &Buffer<'_>, _: &Buffer<'_>) -> Result<(), Error> {
        Ok(())
    }
    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        let data = Vec::with_capacity(bytes as usize + G);
        Ok(Box::new(Moves { plain: self, ends, bytes: bytes as usize, from: 0, to: 0, data }))
    }
}

struct Moves<'r> {
    plain: &'r mut Plain,
    ends: Ends<'r>,
    bytes: usize,
    from: usize,
    to: usize,
    data: Vec<u8>,
}

impl Transfer for Moves<'_> {
    fn submit(&mut self) -> Result<(), Error> {
        let plain = &mut *self.plain;
        plain.transfers += 1;
        let fault = if plain.transfers == plain.at { plain.fault } else { Fault::None };
        let (moved, before) = match fault {
            Fault::Skips => (0, 0),
            Fault::LastByte => (self.bytes - 1, 0),
            Fault::OneMore => (self.bytes + 1, 0),
            Fault::OneBefore => (self.bytes, 1),
            Fault::None | Fault::OneBit => (self.bytes, 0),
        };
        self.data.resize(before + moved, 0);
        self.ends.source.read(self.from as i64 - before as i64, &mut self.data)?;
        if fault == Fault::OneBit {
            self.data[self.bytes / 2] ^= 4;
        }
        self.ends.destination.write(self.to as i64 - before as i64, &self.data)
    }
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(true)
    }
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(())
    }
    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        (self.from, self.to) = (source as usize, destination as usize);
        Ok(())
    }
    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

const TRANSFERS: u64 = 100;

/// The transfers at which a comparison of each n-th, and of the last, finds something.
fn found(opened: &mut dyn Opened, every: u64) -> Vec<(u64, Wrong)> {
    let mut subject = opened.prepare(7).unwrap();
    assert_eq!(subject.checks(), Checks::BytesAndGuards);
    let mut found = Vec::new();
    for n in 1..=TRANSFERS {
        subject.renew().unwrap();
        subject.fire().unwrap();
        subject.wait(TIMEOUT).unwrap();
        if n % every == 0 || n == TRANSFERS {
            found.extend(subject.check().unwrap().map(|wrong| (n, wrong)));
        }
    }
    found
}

fn each(mut work: impl FnMut(HostEnd, Wanted, u64)) {
    for host in [HostEnd::Source, HostEnd::Destination] {
        for bytes in [1, 2, 8, 17, 24, 25, 64, 4096, 5000] {
            for (fresh_data, random_addresses) in [(true, false), (false, false), (true, true), (false, true)] {
                let capacity = if random_addresses { 40_000 } else { bytes };
                work(host, Wanted { fresh_data, random_addresses, ..Wanted::of(bytes) }, capacity);
            }
        }
    }
}

/// A machine whose GPU memory is ordinary memory.
fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| Machine::of_driver(Arc::new(SoftDriver::new(Mode::Poll)), false).unwrap())
}

fn open(host: HostEnd, wanted: &Wanted, capacity: u64, fault: Fault, at: u64) -> Box<dyn Opened> {
    let buffer = |memory| {
        let buffer = Buffer::new(machine(), End { memory, offset: 0 }, capacity).unwrap();
        // The buffer's earlier contents are not zero.
        buffer.write(-(GUARD as i64), &vec![0xee; capacity as usize + 2 * G]).unwrap();
        buffer
    };
    let (near, far) = (buffer(Memory::Host(Host::Pageable)), buffer(Memory::Gpu(0)));
    let (source, destination) = if host == HostEnd::Source { (near, far) } else { (far, near) };
    let plain = Box::new(Plain { fault, at, transfers: 0 });
    of_route(Route::new("plain memory", source, plain, destination).unwrap(), "plain memory".into(), wanted)
}

#[test]
fn right_transfers_are_right() {
    each(|host, wanted, capacity| {
        let mut opened = open(host, &wanted, capacity, Fault::None, 0);
        assert_eq!(opened.verify(3, TIMEOUT).unwrap(), None, "{host:?} {wanted:?}");
        for every in [1, 16] {
            assert_eq!(found(&mut *opened, every), [], "{host:?} {wanted:?}");
        }
    });
}

#[test]
fn a_fault_at_any_transfer_is_found_where_every_transfer_is_compared() {
    let (mut asked, mut seen) = (0, 0);
    each(|host, wanted, capacity| {
        for fault in FAULTS {
            for at in [1, 67, TRANSFERS] {
                let text = format!("{host:?} {wanted:?} {fault:?} at {at}");
                let found = found(&mut *open(host, &wanted, capacity, fault, at), 1);
                asked += 1;
                let Some((first, wrong)) = found.first() else {
                    // With random places, a byte next to a transfer, or unchanged bytes, have the expected value by chance once in 256 times.
                    assert!(wanted.random_addresses, "{text}: not found");
                    continue;
                };
                seen += 1;
                assert_eq!(*first, at, "{text}: {wrong}");
                match (fault, wrong) {
                    (Fault::OneMore, Wrong::PastTheEnd { touched: 1, first: 0 }) => {}
                    (Fault::OneBefore, Wrong::BeforeTheStart { touched: 1, last: 1 }) => {}
                    // Two places of the destination may have had the same bytes.
                    (Fault::Skips, Wrong::Data(d)) => assert!(d.first == 0 || wanted.random_addresses, "{text}"),
                    (Fault::LastByte, Wrong::Data(d)) => assert_eq!(d.first, wanted.bytes - 1, "{text}"),
                    (Fault::OneBit, Wrong::Data(d)) => assert_eq!(d.expected ^ d.found, 4, "{text}"),
                    other => panic!("{text}: {other:?}"),
                }
            }
        }
    });
    assert!(seen * 50 > asked * 49, "{seen} of {asked}");
}

#[test]
fn a_fault_at_a_transfer_that_is_compared_is_found_and_damage_that_stays_is_found_later() {
    each(|host, wanted, capacity| {
        if wanted.random_addresses {
            return;
        }
        for fault in FAULTS {
            let text = format!("{host:?} {wanted:?} {fault:?}");
            let found = |at| found(&mut *open(host, &wanted, capacity, fault, at), 16).first().map(|(n, _)| *n);
            // If the bytes stay the same, earlier transfers have moved the same bytes: one that was not moved does not show.
            let shows = wanted.fresh_data || host == HostEnd::Destination;
            let stays = matches!(fault, Fault::OneMore | Fault::OneBefore);
            if shows || !matches!(fault, Fault::Skips | Fault::LastByte) {
                assert_eq!(found(64), Some(64), "{text}");
                assert_eq!(found(TRANSFERS), Some(TRANSFERS), "{text}");
            }
            // The next transfer moves the bytes again, but not those next to them.
            assert_eq!(found(65), stays.then_some(80), "{text}");
        }
    });
}

#[test]
fn initial_errors_are_found_before_anything_is_timed() {
    each(|host, wanted, capacity| {
        for fault in FAULTS {
            let mut opened = open(host, &wanted, capacity, fault, 1);
            let wrong = opened.verify(3, TIMEOUT).unwrap();
            assert!(wrong.is_some(), "{host:?} {wanted:?} {fault:?}");
        }
    });
}
