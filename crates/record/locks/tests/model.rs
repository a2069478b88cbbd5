//! Every interleaving (up to a bound of preemptions) of a few threads at the gates. The futex is modelled after the
//! kernel's: a wake-up without a sleeper is lost. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p locks --test model --release`.
#![cfg(loom)]

use locks::phase_fair::PhaseFair;
use locks::ticket::Ticket;
use locks::{Clock, Deadline, Kind, Node, NotHeld, Outcome, Tid};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// The data that a lock guards: the checker rejects a write concurrent with another access.
struct Guarded<L> {
    lock: L,
    value: UnsafeCell<u32>,
}

// SAFETY: the model checks each access to `value`.
unsafe impl<L: Sync> Sync for Guarded<L> {}
// SAFETY: as above.
unsafe impl<L: Send> Send for Guarded<L> {}

impl<L> Guarded<L> {
    fn add(&self) {
        // SAFETY: checked by the model.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: checked by the model.
        self.value.with(|value| unsafe { *value })
    }
}

/// The model's deadlines pass as soon as they are waited for.
fn soon() -> Deadline {
    Deadline::new(Clock::Monotonic, libc::timespec { tv_sec: 1, tv_nsec: 0 })
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

fn ticket() -> Arc<Guarded<Ticket>> {
    Arc::new(Guarded { lock: Ticket::new(), value: UnsafeCell::new(0) })
}

fn gate() -> Arc<Guarded<PhaseFair>> {
    Arc::new(Guarded { lock: PhaseFair::new(), value: UnsafeCell::new(0) })
}

fn locked(shared: &Guarded<Ticket>, me: u32) -> u32 {
    let me = Tid::from_raw(me);
    assert!(shared.lock.lock(me).is_acquired());
    shared.add();
    shared.lock.unlock(me).unwrap();
    1
}

fn timed(shared: &Guarded<Ticket>, me: u32) -> u32 {
    let me = Tid::from_raw(me);
    match shared.lock.lock_until(me, &soon()) {
        Outcome::Acquired { .. } => {
            shared.add();
            shared.lock.unlock(me).unwrap();
            1
        }
        outcome => {
            assert_eq!(outcome, Outcome::TimedOut);
            0
        }
    }
}

fn tried(shared: &Guarded<Ticket>, me: u32) -> u32 {
    match shared.lock.try_lock() {
        Outcome::Acquired { .. } => {
            shared.add();
            shared.lock.unlock(Tid::from_raw(me)).unwrap();
            1
        }
        outcome => {
            assert_eq!(outcome, Outcome::Busy);
            0
        }
    }
}

type Part<L> = fn(&Guarded<L>, u32) -> u32;

/// The last part runs in the model's first thread.
fn together<L: Send + Sync + 'static>(shared: Arc<Guarded<L>>, parts: &[Part<L>]) -> Arc<Guarded<L>> {
    let (last, others) = parts.split_last().unwrap();
    let mut threads = Vec::new();
    for (number, &part) in others.iter().enumerate() {
        let shared = shared.clone();
        threads.push(thread::spawn(move || part(&shared, number as u32 + 2)));
    }
    let mut entered = last(&shared, 1);
    for thread in threads {
        entered += thread.join().unwrap();
    }
    assert_eq!(shared.get(), entered);
    shared
}

fn ticket_is_free(shared: &Guarded<Ticket>) {
    assert!(!shared.lock.is_locked());
    assert_eq!(shared.lock.unlock(Tid::from_raw(1)), Err(NotHeld));
}

#[test]
fn ticket_two_lock() {
    model(4, || ticket_is_free(&together(ticket(), &[locked, locked])));
}

#[test]
fn ticket_three_lock() {
    model(3, || ticket_is_free(&together(ticket(), &[locked, locked, locked])));
}

#[test]
fn ticket_withdrawal_against_grant() {
    model(4, || ticket_is_free(&together(ticket(), &[timed, locked])));
    model(3, || ticket_is_free(&together(ticket(), &[timed, timed, locked])));
    model(3, || ticket_is_free(&together(ticket(), &[timed, locked, locked])));
}

#[test]
fn ticket_try_against_hand_over() {
    model(3, || ticket_is_free(&together(ticket(), &[tried, locked, locked])));
}

/// Queues, and jumps out of its wait.
fn leaves(shared: &Guarded<Ticket>, me: u32) -> u32 {
    let (me, node) = (Tid::from_raw(me), Node::new(Kind::Writer, 0));
    shared.lock.join(me, &node);
    shared.lock.abandon(me, &node);
    shared.lock.abandon(me, &node);
    0
}

#[test]
fn ticket_left_by_a_jump() {
    model(4, || ticket_is_free(&together(ticket(), &[leaves, locked])));
    model(3, || ticket_is_free(&together(ticket(), &[leaves, leaves, locked])));
    model(3, || ticket_is_free(&together(ticket(), &[leaves, locked, locked])));
}

fn writes(shared: &Guarded<PhaseFair>, me: u32) -> u32 {
    let me = Tid::from_raw(me);
    assert!(shared.lock.write(me).is_acquired());
    shared.add();
    shared.lock.leave_write(me).unwrap();
    1
}

fn writes_in_time(shared: &Guarded<PhaseFair>, me: u32) -> u32 {
    let me = Tid::from_raw(me);
    let outcome = shared.lock.write_until(me, &soon());
    if outcome.is_acquired() {
        shared.add();
        shared.lock.leave_write(me).unwrap();
        return 1;
    }
    assert_eq!(outcome, Outcome::TimedOut);
    0
}

fn reads(shared: &Guarded<PhaseFair>, me: u32) -> u32 {
    let me = Tid::from_raw(me);
    assert!(shared.lock.read(me).is_acquired());
    shared.get();
    shared.lock.leave_read(me).unwrap();
    0
}

fn reads_in_time(shared: &Guarded<PhaseFair>, me: u32) -> u32 {
    let me = Tid::from_raw(me);
    let outcome = shared.lock.read_until(me, &soon());
    if outcome.is_acquired() {
        shared.get();
        shared.lock.leave_read(me).unwrap();
    } else {
        assert_eq!(outcome, Outcome::TimedOut);
    }
    0
}

fn gate_is_free(shared: &Guarded<PhaseFair>) {
    assert_eq!(shared.lock.occupants(), (0, false));
    assert!(shared.lock.try_write().is_acquired());
}

#[test]
fn gate_pairs() {
    model(4, || gate_is_free(&together(gate(), &[writes, writes])));
    model(4, || gate_is_free(&together(gate(), &[reads, writes])));
    model(4, || gate_is_free(&together(gate(), &[reads, reads])));
}

#[test]
fn gate_readers_against_a_writer() {
    model(3, || gate_is_free(&together(gate(), &[reads, reads, writes])));
}

#[test]
fn gate_writers_against_a_reader() {
    model(3, || gate_is_free(&together(gate(), &[writes, writes, reads])));
}

/// The writer that others wait for gives up: the readers queued after it must get in.
#[test]
fn gate_withdrawal_of_a_writer() {
    model(4, || gate_is_free(&together(gate(), &[writes_in_time, reads])));
    model(3, || gate_is_free(&together(gate(), &[writes_in_time, reads, reads])));
    model(3, || gate_is_free(&together(gate(), &[writes_in_time, writes, reads])));
}

#[test]
fn gate_withdrawal_of_a_reader() {
    model(4, || gate_is_free(&together(gate(), &[reads_in_time, writes])));
    model(3, || gate_is_free(&together(gate(), &[reads_in_time, reads, writes])));
    model(3, || gate_is_free(&together(gate(), &[reads_in_time, writes_in_time, writes])));
}

/// Queues, and jumps out of its wait.
fn leaves_gate(shared: &Guarded<PhaseFair>, me: u32, kind: Kind) -> u32 {
    let (me, node) = (Tid::from_raw(me), Node::new(kind, 0));
    shared.lock.join(me, &node);
    shared.lock.abandon(me, &node);
    0
}

fn writer_leaves(shared: &Guarded<PhaseFair>, me: u32) -> u32 {
    leaves_gate(shared, me, Kind::Writer)
}

fn reader_leaves(shared: &Guarded<PhaseFair>, me: u32) -> u32 {
    leaves_gate(shared, me, Kind::Reader)
}

#[test]
fn gate_left_by_a_jump() {
    model(4, || gate_is_free(&together(gate(), &[writer_leaves, reads])));
    model(3, || gate_is_free(&together(gate(), &[writer_leaves, reads, writes])));
    model(3, || gate_is_free(&together(gate(), &[reader_leaves, reads, writes])));
    model(3, || gate_is_free(&together(gate(), &[reader_leaves, writer_leaves, writes])));
}

/// A gate in front of a real lock that one thread takes without the gate: the guarded data stays whole.
#[test]
fn gate_in_front_and_one_goes_round() {
    struct Fronted {
        gate: PhaseFair,
        real: loom::sync::RwLock<u32>,
    }
    model(3, || {
        let shared = Arc::new(Fronted { gate: PhaseFair::new(), real: loom::sync::RwLock::new(0) });
        let through = |me: u32| {
            let shared = shared.clone();
            thread::spawn(move || {
                let me = Tid::from_raw(me);
                assert!(shared.gate.write(me).is_acquired());
                *shared.real.write().unwrap() += 1;
                shared.gate.leave_write(me).unwrap();
            })
        };
        let threads = [through(2), through(3)];
        *shared.real.write().unwrap() += 1;
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*shared.real.read().unwrap(), 3);
    });
}

/// As in the agent: a thread that finds the gate open tries for the real lock directly. If that is taken, it waits in the gate.
#[test]
fn gate_in_front_and_beside_it() {
    struct Fronted {
        gate: PhaseFair,
        real: loom::sync::RwLock<u32>,
    }
    fn write(shared: &Fronted, me: u32) {
        let me = Tid::from_raw(me);
        if shared.gate.is_open_to_writers()
            && let Ok(mut value) = shared.real.try_write()
        {
            *value += 1;
            return;
        }
        assert!(shared.gate.write(me).is_acquired());
        *shared.real.write().unwrap() += 1;
        shared.gate.leave_write(me).unwrap();
    }
    fn read(shared: &Fronted, me: u32) {
        let me = Tid::from_raw(me);
        if shared.gate.is_open_to_readers()
            && let Ok(value) = shared.real.try_read()
        {
            assert!(*value <= 2);
            return;
        }
        assert!(shared.gate.read(me).is_acquired());
        assert!(*shared.real.read().unwrap() <= 2);
        shared.gate.leave_read(me).unwrap();
    }
    let kinds: [([fn(&Fronted, u32); 3], u32); 2] = [([write, write, read], 2), ([write, read, read], 1)];
    for (parts, writers) in kinds {
        model(3, move || {
            let shared = Arc::new(Fronted { gate: PhaseFair::new(), real: loom::sync::RwLock::new(0) });
            let threads = [2, 3].map(|me| {
                let (shared, part) = (shared.clone(), parts[me as usize - 2]);
                thread::spawn(move || part(&shared, me))
            });
            parts[2](&shared, 4);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(shared.gate.occupants(), (0, false));
            assert_eq!(*shared.real.read().unwrap(), writers);
        });
    }
}
