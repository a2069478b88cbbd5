//! Short variants of the lock experiments, with bounds that hold on two loaded CPUs.

use lock_bench::locks::{Access, Missing, Pairs, Plan, Policy, Waits, costs, inversion, libc_version, starvation};
use measure::clock::Clock;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

static TURN: RwLock<()> = RwLock::new(());

/// One experiment at a time: they load the machine, and one of them needs a dedicated CPU.
fn alone() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Starvation needs no busy CPU: the thread that holds the lock sleeps.
fn beside_one_another() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}

fn short() -> Plan {
    Plan {
        section: Duration::from_millis(20),
        cap: Duration::from_millis(300),
        repeats: 2,
        burn: Duration::from_millis(150),
        held: Duration::from_millis(3),
        inversions: 2,
        rounds: 2,
        samples: 20,
        threads: vec![4],
        contended: Duration::from_millis(10),
        ..Plan::default()
    }
}

/// The longest wait of a policy, and whether it was ended by the cap.
fn longest(all: &[Waits], policy: Policy) -> (Duration, bool) {
    let waits = all.iter().find(|waits| waits.policy == policy).unwrap();
    let list = waits.outcome.as_ref().unwrap_or_else(|missing| panic!("{policy:?}: {missing}"));
    assert_eq!(list.len(), 2, "{policy:?}");
    (Duration::from_nanos(waits.summary().unwrap().max), waits.capped() > 0)
}

#[test]
#[ignore = "2 s; run by .ci/run"]
fn a_writer_starves_with_many_readers_without_the_gate() {
    let _turn = beside_one_another();
    let plan = short();
    println!("{}", libc_version());
    test_support::measured(|| {
        let mut heard = 0;
        let all = starvation(&plan, &Clock::new(), Access::Write, &mut |_| heard += 1);
        assert_eq!(heard, 2 * all.len());
        let (fair, _) = longest(&all, Policy::PhaseFair);
        let starves = |policy| longest(&all, policy).0 > fair;
        let shown = fair < 10 * plan.section && starves(Policy::Stock) && starves(Policy::Old);
        shown.then_some(()).ok_or_else(|| format!("{all:?}"))
    });
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn a_reader_starves_with_many_writers_under_the_old_rule() {
    let _turn = beside_one_another();
    let plan = short();
    test_support::measured(|| {
        let all = starvation(&plan, &Clock::new(), Access::Read, &mut |_| {});
        let (fair, _) = longest(&all, Policy::PhaseFair);
        // A reader asleep is never woken while a writer waits, and with four of them one always does.
        let (old, endless) = longest(&all, Policy::Old);
        let overtaken = all.iter().find(|waits| waits.policy == Policy::Old).unwrap().overtaken();
        let shown = fair < 10 * plan.section && old > fair && endless && overtaken > 5;
        shown.then_some(()).ok_or_else(|| format!("{all:?}"))
    });
}

#[test]
#[ignore = "4 s; run by .ci/run"]
fn inheritance_ends_the_inversion_and_fairness_alone_does_not() {
    let _turn = alone();
    let plan = short();
    let unavailable = test_support::measured(|| match inversion(&plan, &Clock::new(), &mut |_| {}) {
        Ok(all) => inherits(&plan, &all).map(|()| None).map_err(|why| format!("{why}: {all:?}")),
        Err(reason) => Ok(Some(reason)),
    });
    if let Some(reason) = unavailable {
        assert!(reason.contains("SCHED_FIFO") || reason.contains("CPU"), "{reason}");
        test_support::skip!("{reason}");
    }
}

fn inherits(plan: &Plan, all: &[Waits]) -> Result<(), String> {
    let (stock, _) = longest(all, Policy::Stock);
    assert!(stock >= plan.burn, "{stock:?}");
    for policy in [Policy::Pi, Policy::Boost, Policy::Guard, Policy::StockInherit] {
        // In a container, process 1 converts no lock, and reports that.
        let waits = all.iter().find(|waits| waits.policy == policy).unwrap();
        if let Err(Missing::Unavailable(reason)) = &waits.outcome {
            test_support::skip_part!("{policy:?}: {reason}");
            continue;
        }
        assert_eq!(waits.overtaken(), 0, "middle ran while high waited under {policy:?}");
        let (wait, _) = longest(all, policy);
        if wait >= stock / 2 {
            return Err(format!("{policy:?}: {wait:?}, stock {stock:?}"));
        }
    }
    for policy in [Policy::Ticket, Policy::PhaseFair] {
        let (wait, _) = longest(all, policy);
        assert!(wait >= plan.burn, "{policy:?}: {wait:?}");
    }
    Ok(())
}

#[test]
fn every_policy_has_a_cost_alone_and_contended_and_excludes() {
    let _turn = alone();
    let all = costs(&short(), &Clock::new(), &mut |_| {});
    for cost in &all {
        let f = cost.outcome.as_ref().unwrap_or_else(|missing| panic!("{cost:?}: {missing}"));
        assert!(f.samples > 0 && f.p50_ns > 0.0 && f.p50_ns <= f.max_ns, "{cost:?}");
        assert!(f.p99_ns.is_none_or(|p99| f.p50_ns <= p99 && p99 <= f.max_ns), "{cost:?}");
        assert_eq!(f.added_ns.is_some(), cost.policy != Policy::Stock, "{cost:?}");
        assert_eq!(f.pairs_per_s.is_some(), cost.threads > 1, "{cost:?}");
        if cost.threads == 1 {
            assert_eq!(f.samples, 2 * 20);
        }
    }
    for threads in [1, 4] {
        for pairs in Pairs::ALL {
            let of = |cost: &&lock_bench::locks::Cost| cost.threads == threads && cost.pairs == pairs;
            assert_eq!(all.iter().filter(of).filter(|cost| cost.policy == Policy::Stock).count(), 1);
            assert!(all.iter().filter(of).count() >= 4);
        }
    }
}
