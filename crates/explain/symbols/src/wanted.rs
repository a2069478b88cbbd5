//! The places that rows show by name.

use schema::locks::{Locks, OrderRow};
use schema::names::parts;
use schema::slow_calls::Why;
use schema::symbols::{Content, Place, Places};

/// Looks up only what is shown by name in the first `rows` rows of each kind.
pub fn of_locks(l: &mut Locks, rows: usize) {
    let names = names_of_locks(l, rows);
    l.symbols = crate::look_up(&l.places, names.iter().map(String::as_str));
}

/// Looks up the locks that are variables, and no calls.
pub fn of_variables(l: &mut Locks) {
    let is_variable = |p: &Option<Place>| p.as_ref().is_some_and(|p| p.content == Content::Variable);
    let names = l.places.by_name.iter().filter(|(_, place)| is_variable(place)).map(|(name, _)| name.as_str());
    l.symbols = crate::look_up(&l.places, names);
}

fn names_of_locks(l: &Locks, rows: usize) -> Vec<String> {
    let mut sites: Vec<&str> = Vec::new();
    let mut locks: Vec<&str> = Vec::new();
    for row in l.locks.iter().take(rows) {
        locks.push(&row.name);
        sites.extend(row.longest_hold_site.as_deref());
    }
    let inversions = l.inversions.iter().take(rows);
    let holders = l.waits.iter().take(rows).flat_map(|w| &w.holders).chain(inversions.clone().map(|i| &i.holder));
    for holder in holders {
        sites.push(&holder.site);
        locks.extend(holder.behind.iter().map(|b| b.lock.as_str()));
    }
    for (lock, site) in (l.waits.iter().take(rows).map(|w| (&w.lock, &w.site)))
        .chain(inversions.map(|i| (&i.lock, &i.site)))
        .chain(l.left.iter().take(rows).map(|r| (&r.lock, &r.site)))
    {
        locks.push(lock);
        sites.push(site);
    }
    let edges = l.cycles.iter().take(rows).flat_map(|c| &c.edges);
    for OrderRow { held, taken, held_site, taken_site, .. } in edges.chain(l.order.iter().take(rows)) {
        locks.extend([held.as_str(), taken.as_str()]);
        sites.extend([held_site.as_str(), taken_site.as_str()]);
    }
    if let Some(calls) = &l.calls {
        let patterns = calls.calls.iter().take(rows).flat_map(|c| &c.patterns);
        locks.extend(patterns.flat_map(|p| &p.locks).map(|e| e.lock.as_str()));
        locks.extend(calls.shared.iter().take(rows).map(|s| s.lock.as_str()));
    }
    sites.extend(locks.into_iter().map(|lock| parts(lock).0));
    sites.sort_unstable();
    sites.dedup();
    sites.into_iter().map(str::to_owned).collect()
}

/// Looks up the places in the rows of calls.
pub fn of_calls(why: &mut Why, places: &Places) {
    why.symbols = crate::look_up(places, names_of_calls(why).iter().map(String::as_str));
}

fn names_of_calls(why: &Why) -> Vec<String> {
    let mut names: Vec<&str> = why.pageable.iter().map(|p| p.site.as_str()).collect();
    let gaps = why.between.worst.iter().flat_map(|gap| &gap.because).filter_map(|l| l.doing_what.as_ref());
    names.extend(gaps.map(|what| parts(what).0));
    for call in &why.worst {
        names.push(&call.site);
        let rows = call.parts.iter().flat_map(|p| &p.of);
        let links = rows.clone().flat_map(|o| &o.because);
        let locks = rows
            .map(|o| &o.what)
            .chain(links.clone().map(|l| &l.what))
            .chain(links.filter_map(|l| l.doing_what.as_ref()));
        names.extend(locks.map(|lock| parts(lock).0));
    }
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(str::to_owned).collect()
}
