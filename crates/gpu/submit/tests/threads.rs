//! Threads that pin, prepare, submit, unpin and close at random in one process with the software GPU, for a race detector:
//! `RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu -p submit --test threads`.

mod rig;

use cuda::DeviceBuffer;
use gpu::{AddressSpace, Entry};
use rig::{BYTES, LIMIT, Rig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use submit::{Buffer, Chooser, Direction, Done, Error, Executor, Follow, Options, Piece, Queue, Session, Wait};

const THREADS: u64 = 8;

struct Mixed;

impl Chooser for Mixed {
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)> {
        if direction == Direction::ToGpu { vec![(64, Executor::Stores), (512, Executor::Inline)] } else { vec![] }
    }

    fn why(&self, _: Direction, _: u64) -> String {
        "mixed".into()
    }
}

fn options() -> Options {
    Options { lanes: 3, profile: Follow::Given(Arc::new(Mixed)), ..Options::default() }
}

/// Errors that other threads' unpins and closes may cause in a call.
fn known<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(made) => Some(made),
        Err(
            Error::Closed
            | Error::Handle(_)
            | Error::Busy
            | Error::Full(_)
            | Error::Freed
            | Error::Stopped
            | Error::Argument(_),
        ) => None,
        Err(error) => panic!("{error}"),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }
}

fn once(rig: &Rig, shared: &[AtomicU64], queue: &Queue<&Session>, random: &mut Random) -> Option<()> {
    let s = &rig.session;
    let place = random.below(shared.len() as u64) as usize;
    let other = Buffer::from_raw(shared[random.below(shared.len() as u64) as usize].load(Ordering::SeqCst));
    let third = Buffer::from_raw(shared[random.below(shared.len() as u64) as usize].load(Ordering::SeqCst));
    let bytes = [8, 300, 1500][random.below(3) as usize];
    match random.below(6) {
        5 => {
            let piece = Piece { to: other, to_at: 0, from: third, from_at: 2048, bytes };
            let copy = known(s.copy_batch(&[piece]))?;
            if random.below(4) == 0 {
                known(queue.descriptor())?;
            }
            known(queue.add(copy, 0))?;
            match queue.wait(Duration::from_micros(random.below(2000))) {
                Ok(()) | Err(Error::Timeout(_)) => {}
                other => return known(other),
            }
            let mut done: [Done; 3] = Default::default();
            let count = queue.take(&mut done).unwrap();
            for done in &mut done[..count] {
                known(std::mem::replace(&mut done.result, Ok(())));
            }
            (count > 0).then_some(())
        }
        0 => {
            let piece = Piece { to: other, to_at: 0, from: third, from_at: 2048, bytes };
            let copy = known(s.copy_batch(&[piece]))?;
            known(s.wait(copy, LIMIT))
        }
        1 => {
            let transfer = known(s.prepare((other, 0), (third, 2048), bytes))?;
            for _ in 0..3 {
                if let Some(copy) = known(s.submit(transfer)) {
                    known(s.wait(copy, LIMIT));
                }
            }
            known(s.release(transfer))
        }
        2 => {
            let transfer = known(s.prepare_bytes((other, 0), 56))?;
            known(s.submit_bytes(transfer, &[1; 56]));
            known(s.release(transfer))
        }
        3 => {
            let buffer = known(s.allocate(BYTES as u64, random.below(2) == 0))?;
            shared[place].store(buffer.raw(), Ordering::SeqCst);
            std::thread::yield_now();
            known(s.unpin(buffer))
        }
        _ => {
            let block = DeviceBuffer::new(&rig.context, BYTES).unwrap();
            let pinned = known(s.pin(block.address(), BYTES as u64))?;
            shared[place].store(pinned.raw(), Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(random.below(300)));
            known(s.unpin(pinned))?;
            let mark = [random.below(200) as u8 + 50; BYTES];
            block.write(&mark).unwrap();
            std::thread::sleep(Duration::from_micros(random.below(300)));
            assert!(rig::found(&block) == mark, "written after it was unpinned");
            Some(())
        }
    }
}

#[test]
fn threads_at_random_find_memory_as_they_left_it() {
    let rig = rig::rig(true, &options());
    let shared: [AtomicU64; 12] = Default::default();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    rig.session.set_wait(Wait::Sleep { spin: Duration::ZERO });
    let queue = Queue::new(&rig.session, 16).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (rig, shared, queue, stop, done) = (&rig, &shared, &queue, &stop, &done);
            scope.spawn(move || {
                rig.context.make_current().unwrap();
                let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (number + 1) << 20);
                while !stop.load(Ordering::Relaxed) {
                    done.fetch_add(once(rig, shared, queue, &mut random).is_some().into(), Ordering::Relaxed);
                }
            });
        }
        while start.elapsed() < Duration::from_millis(1500) {
            std::thread::sleep(Duration::from_millis(100));
            rig.session.close().unwrap();
            open(&rig);
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{} calls", done.load(Ordering::Relaxed));
    assert!(done.load(Ordering::Relaxed) > 50);
    rig.session.close().unwrap();
    assert_eq!(rig.driver.counters().faults.load(Ordering::Relaxed), 0);
}

fn open(rig: &Rig) {
    let of_the_session = rig.cuda.device(0).unwrap().primary_context().unwrap();
    let uuid = rig.watched.gpus()[0];
    let ours: Arc<AddressSpace> = rig.watched.address_space(Arc::new(rig.driver), uuid, Entry::OwnClient).unwrap();
    rig.session.open_in(ours.clone(), Some(machine::Machine::beside(of_the_session, ours)), &options()).unwrap();
}
