//! Every operation of every lock, one after the other.

use crate::facts::{AT_THE_END, Addresses, Facts, Held};
use crate::labels::Labels;
use crate::ops::{self, Class};
use decode::events;
use decode::{InsightError, Recording, Source};
use schema::lock_uses::UseRow;
use schema::symbols::Places;
use tape::event::{Body, Event};
use tape::lock::{attr, ended, left};

/// Calls `f` with each; never for a tape without locks. Returns the places of the names in the rows.
pub fn each_use<E: From<InsightError>>(r: &Recording, mut f: impl FnMut(UseRow) -> Result<(), E>) -> Result<Places, E> {
    let Some(facts) = Facts::of(r)? else { return Ok(Places::default()) };
    let labels = Labels::new(r, &facts);
    let mut addresses = Addresses::default();
    let mut outcome = Ok(());
    events::each(r, |source, e| {
        if outcome.is_ok()
            && let Some(row) = row(&labels, &mut addresses, source, e)
        {
            outcome = f(row);
        }
    })?;
    outcome.map(|()| crate::places(r, &facts))
}

fn row(t: &Labels<'_>, addresses: &mut Addresses, source: Source, e: &Event<'_>) -> Option<UseRow> {
    let Source { process, tid } = source;
    let (op, attributes) = ((e.head.flags >> 8) as u8, e.head.flags as u8);
    let names = &t.facts.names;
    let base = |lock: usize, class: Class, address: u64, site: u64| UseRow {
        at: t.seconds(e.head.tsc),
        tsc: e.head.tsc,
        process,
        pid: t.recording.pid(process),
        tid,
        operation: ops::name(op),
        lock: t.name(lock),
        address,
        kind: ops::attributes(class, attributes),
        site: names.site(process, site, e.head.tsc),
        result: 0,
        wait_ns: 0,
        hold_ns: None,
        held_at_least_ns: None,
        ended: None,
        release_site: None,
        depth: None,
        waited: None,
        held: None,
    };
    let waited = |to: u64, ticks: u64| (ticks > 0).then(|| (to.saturating_sub(ticks), to));
    if let Some(h) = Held::of(e) {
        let class = Class::of_hold(h.op)?;
        let (lock, _) = addresses.lock(process, h.addr, class, h.op, 0)?;
        let known =
            matches!(h.ended, ended::UNLOCK | ended::COND_WAIT | AT_THE_END) && h.taken != 0 && h.open.is_none();
        let at_least = matches!(h.ended, ended::OPEN_UNLOCK | ended::OPEN_COND_WAIT);
        let (result, release_site) = match &e.body {
            Body::Pair(p) => (0, Some(p.site.wrapping_add_signed(p.release.into()))),
            Body::Hold(b) => (b.result, (h.end_is_known() || h.open.is_some()).then_some(b.release_site)),
            Body::Held(h) => (h.result, None),
            _ => (0, None),
        };
        let ended = match h.ended {
            ended::UNLOCK | ended::OPEN_UNLOCK | ended::OPEN_LATE => "unlock",
            ended::COND_WAIT | ended::OPEN_COND_WAIT => "cond_wait",
            ended::CANCELLED_WAIT => "cancelled_wait",
            AT_THE_END => "at_the_end",
            ended::PAUSED => "pause",
            _ => "by_another",
        };
        return Some(UseRow {
            result,
            wait_ns: t.ns(h.wait),
            hold_ns: known.then(|| t.ns(h.released.saturating_sub(h.taken))),
            held_at_least_ns: at_least.then(|| t.ns(h.released.saturating_sub(h.taken))),
            ended: Some(ended),
            release_site: release_site.map(|s| names.site(process, s, e.head.tsc)),
            depth: Some((attributes & attr::DEPTH) >> attr::DEPTH_SHIFT),
            waited: waited(if h.taken == 0 { h.released } else { h.taken }, h.wait),
            held: (known || at_least).then_some((h.taken, h.released)),
            ..base(lock, class, h.addr, h.site)
        });
    }
    match &e.body {
        Body::Op(o) => {
            let class = Class::of(op)?;
            let (lock, _) = addresses.lock(process, o.addr, class, op, o.result)?;
            let waited = waited(e.head.tsc, o.wait);
            Some(UseRow { result: o.result, wait_ns: t.ns(o.wait), waited, ..base(lock, class, o.addr, o.site) })
        }
        Body::Held(h) => {
            let class = Class::of(op)?;
            let (lock, _) = addresses.lock(process, h.addr, class, op, 0).filter(|_| h.waiting == left::WAITING)?;
            let ticks = e.head.tsc.saturating_sub(h.since);
            let (wait_ns, waited) = (t.ns(ticks), waited(e.head.tsc, ticks));
            Some(UseRow { wait_ns, waited, ended: Some("at_the_end"), ..base(lock, class, h.addr, h.site) })
        }
        _ => None,
    }
}
