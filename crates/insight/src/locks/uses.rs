//! Every operation of every lock, one after the other.

use super::facts::{AT_THE_END, Addresses, Facts, Held};
use super::{Class, Telling, ops, walk};
use crate::{InsightError, Recording};
use serde::Serialize;
use tape::event::{Body, Event};
use tape::lock::{attr, ended};

/// An operation, or a lock and its unlock, as it is on the tape. In the order of their ends.
#[derive(Clone, Debug, Serialize)]
pub struct UseRow {
    /// When it ended, seconds since the first event.
    pub at: f64,
    pub tid: i32,
    /// The function that was called; of a hold, the one that took the lock.
    pub operation: &'static str,
    pub lock: String,
    pub address: u64,
    pub kind: Vec<&'static str>,
    /// Where it was called.
    pub site: String,
    /// What it returned; errno of those that return -1.
    pub result: i32,
    pub wait_ns: u64,
    /// Of a hold; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<u64>,
    /// How the hold ended: `unlock`, `cond_wait`, `cancelled_wait`, `by_another`, `at_the_end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<&'static str>,
    /// Where it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_site: Option<String>,
    /// Locks that the thread held already when it took this one; 3 for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u8>,
}

/// Calls `f` with each; nothing for a tape without locks.
pub fn each_use<E: From<InsightError>>(r: &Recording, mut f: impl FnMut(UseRow) -> Result<(), E>) -> Result<(), E> {
    let Some(facts) = Facts::of(r)? else { return Ok(()) };
    let telling = Telling::new(r, &facts);
    let mut addresses = Addresses::default();
    let mut outcome = Ok(());
    walk(r, |tid, e| {
        if outcome.is_ok()
            && let Some(row) = row(&telling, &mut addresses, tid, e)
        {
            outcome = f(row);
        }
    })?;
    outcome
}

fn row(t: &Telling<'_>, addresses: &mut Addresses, tid: i32, e: &Event<'_>) -> Option<UseRow> {
    let (op, attributes) = ((e.head.flags >> 8) as u8, e.head.flags as u8);
    let names = &t.facts.names;
    let base = |lock: usize, class: Class, address: u64, site: u64| UseRow {
        at: t.seconds(e.head.tsc),
        tid,
        operation: ops::name(op),
        lock: t.name(lock),
        address,
        kind: ops::attributes(class, attributes),
        site: names.site(site),
        result: 0,
        wait_ns: 0,
        hold_ns: None,
        ended: None,
        release_site: None,
        depth: None,
    };
    if let Some(h) = Held::of(e) {
        let class = Class::of_hold(h.op)?;
        let (lock, _) = addresses.lock(h.addr, class, h.op, 0);
        let known = matches!(h.ended, ended::UNLOCK | ended::COND_WAIT | AT_THE_END) && h.taken != 0;
        let (result, release_site) = match &e.body {
            Body::Pair(p) => (0, Some(p.site.wrapping_add_signed(p.release.into()))),
            Body::Hold(h) => (h.result, (h.ended != ended::BY_ANOTHER).then_some(h.release_site)),
            Body::Held(h) => (h.result, None),
            _ => (0, None),
        };
        let ended = match h.ended {
            ended::UNLOCK => "unlock",
            ended::COND_WAIT => "cond_wait",
            ended::CANCELLED_WAIT => "cancelled_wait",
            AT_THE_END => "at_the_end",
            _ => "by_another",
        };
        return Some(UseRow {
            result,
            wait_ns: t.ns(h.wait),
            hold_ns: known.then(|| t.ns(h.released.saturating_sub(h.taken))),
            ended: Some(ended),
            release_site: release_site.map(|s| names.site(s)),
            depth: Some((attributes & attr::DEPTH) >> attr::DEPTH_SHIFT),
            ..base(lock, class, h.addr, h.site)
        });
    }
    match &e.body {
        Body::Op(o) => {
            let class = Class::of(op)?;
            let (lock, _) = addresses.lock(o.addr, class, op, o.result);
            Some(UseRow { result: o.result, wait_ns: t.ns(o.wait), ..base(lock, class, o.addr, o.site) })
        }
        Body::Held(h) => {
            let class = Class::of(op)?;
            let (lock, _) = addresses.lock(h.addr, class, op, 0);
            let wait_ns = t.ns(e.head.tsc.saturating_sub(h.since));
            Some(UseRow { wait_ns, ended: Some("at_the_end"), ..base(lock, class, h.addr, h.site) })
        }
        _ => None,
    }
}
