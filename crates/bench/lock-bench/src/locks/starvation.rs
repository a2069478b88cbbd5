//! How long one thread waits for a rwlock that other threads keep taking in the other mode.
//!
//! The crowd never releases the lock completely: each of its threads stays inside for one section and returns immediately, and they began at
//! different times, so that their sections overlap.

use super::subject::{Access, Subject, Visit, with_rwlock};
use super::{Missing, Plan, Policy, Wait, Waits, keep, none_yet, turns};
use measure::clock::Clock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub const POLICIES: [Policy; 5] =
    [Policy::Stock, Policy::StockPreferWriter, Policy::Old, Policy::PhaseFair, Policy::Guard];

/// A waiter with this access, and a crowd with the other one; the policies take turns. `progress` is called for each policy.
pub fn starvation(plan: &Plan, clock: &Clock, waiter: Access, progress: &mut dyn FnMut(Policy)) -> Vec<Waits> {
    let mut dice = fastrand::Rng::with_seed(plan.seed);
    let mut all = none_yet(&POLICIES);
    for _ in 0..plan.repeats {
        for policy in turns(&all, &mut dice) {
            progress(policy);
            let after = plan.section.mul_f64(1.0 + dice.f64());
            keep(&mut all, policy, with_rwlock(policy, Behind { plan, clock, waiter, after }));
        }
    }
    all
}

struct Behind<'a> {
    plan: &'a Plan,
    clock: &'a Clock,
    waiter: Access,
    /// From the crowd's start to the request.
    after: Duration,
}

/// Shared state of the crowd and the waiter.
#[derive(Default)]
struct Scene {
    /// Threads of the crowd that have requested the lock.
    began: AtomicU32,
    home: AtomicBool,
    /// Ticks of the request; 0 before it.
    asked: AtomicU64,
    sections: AtomicU64,
    trouble: AtomicI32,
}

impl Visit for Behind<'_> {
    type Out = Wait;

    fn visit<S: Subject>(self, lock: &S) -> Result<Wait, Missing> {
        let scene = Scene::default();
        let (this, scene_of_all) = (&self, &scene);
        let wait = thread::scope(|scope| {
            for number in 0..self.plan.crowd {
                scope.spawn(move || this.stay(lock, scene_of_all, number));
            }
            this.wait(lock, scene_of_all)
        });
        match scene.trouble.load(Ordering::Relaxed) {
            0 => Ok(wait),
            code => Err(Missing::Failed(format!("an operation of the lock ended with error {code}"))),
        }
    }
}

impl Behind<'_> {
    /// One thread of the crowd.
    fn stay<S: Subject>(&self, lock: &S, scene: &Scene, number: u32) {
        let access = if self.waiter == Access::Write { Access::Read } else { Access::Write };
        let hand = lock.hand();
        thread::sleep(self.plan.section * number / self.plan.crowd.max(1));
        scene.began.fetch_add(1, Ordering::Relaxed);
        while !scene.home.load(Ordering::Relaxed) {
            let taken = lock.take(&hand, access);
            if taken != 0 {
                scene.trouble.store(taken, Ordering::Relaxed);
                return;
            }
            scene.sections.fetch_add(1, Ordering::Relaxed);
            thread::sleep(self.plan.section);
            let released = lock.release(&hand, access);
            scene.trouble.fetch_or(released, Ordering::Relaxed);
            let asked = scene.asked.load(Ordering::Relaxed);
            if asked != 0 && self.clock.ns(self.clock.now().saturating_sub(asked)) >= self.cap_ns() {
                return;
            }
        }
    }

    fn cap_ns(&self) -> u64 {
        self.plan.cap.as_nanos() as u64
    }

    /// The starved thread; runs on the calling thread.
    fn wait<S: Subject>(&self, lock: &S, scene: &Scene) -> Wait {
        let hand = lock.hand();
        while scene.began.load(Ordering::Relaxed) < self.plan.crowd {
            thread::sleep(Duration::from_micros(500));
        }
        thread::sleep(self.after);
        let before = scene.sections.load(Ordering::Relaxed);
        let asked = self.clock.now();
        scene.asked.store(asked, Ordering::Relaxed);
        let taken = lock.take(&hand, self.waiter);
        let ns = self.clock.ns(self.clock.now().saturating_sub(asked));
        let overtaken = scene.sections.load(Ordering::Relaxed).saturating_sub(before);
        scene.home.store(true, Ordering::Relaxed);
        let released = if taken == 0 { lock.release(&hand, self.waiter) } else { taken };
        scene.trouble.fetch_or(released, Ordering::Relaxed);
        Wait { ns, capped: ns >= self.cap_ns(), overtaken }
    }
}
