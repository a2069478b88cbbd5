//! A plan of names alone: `pi,phase-fair`.

use crate::plan::{Error, GUARD, Plan, class_name, number, suits};
use tape::policy::{class, protocol};

impl Plan {
    /// Reads names with commas between them. Each policy applies to the locks that it suits.
    ///
    /// # Errors
    /// An unknown name, or one that no lock is left for.
    pub fn of_names(list: &str) -> Result<Plan, Error> {
        let wrong = |what: String| Error::Names { list: list.into(), what };
        let mut plan = Plan { mutex: 0, rwlock: 0, rules: Vec::new(), guard: false, fixes: 0, kernels: Vec::new() };
        let lower = list.to_ascii_lowercase();
        let mut names: Vec<&str> = lower.split(',').map(str::trim).collect();
        // A policy for both classes takes the class that the others leave.
        names.sort_by_key(|n| matches!(*n, "boost" | "stock"));
        for name in names {
            if name == GUARD {
                plan.guard = true;
                continue;
            }
            let Some(p) = number(name) else { return Err(wrong(format!("`{name}` is no policy"))) };
            let both = suits(p, class::MUTEX) && suits(p, class::RWLOCK);
            let mut taken = Vec::new();
            let mut set = false;
            for (slot, class) in [(&mut plan.mutex, class::MUTEX), (&mut plan.rwlock, class::RWLOCK)] {
                if suits(p, class) && *slot == 0 {
                    *slot = p;
                    set = true;
                } else if suits(p, class) {
                    taken.push(format!("{} follow {} already", class_name(class), protocol::NAMES[usize::from(*slot)]));
                }
            }
            if !set || !both && !taken.is_empty() {
                return Err(wrong(format!("no lock is left for `{name}`: {}", taken.join(", "))));
            }
        }
        for slot in [&mut plan.mutex, &mut plan.rwlock] {
            *slot = (*slot).max(protocol::STOCK);
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_to_the_locks_that_they_suit() {
        let of = |s: &str| Plan::of_names(s).map(|p| (p.mutex, p.rwlock)).map_err(|e| e.to_string());
        assert_eq!(of("pi"), Ok((protocol::PI, protocol::STOCK)));
        assert_eq!(of("pi,phase-fair"), Ok((protocol::PI, protocol::PHASE_FAIR)));
        assert_eq!(of("boost"), Ok((protocol::BOOST, protocol::BOOST)));
        assert_eq!(of("boost, phase-fair"), Ok((protocol::BOOST, protocol::PHASE_FAIR)));
        assert_eq!(of("stock"), Ok((protocol::STOCK, protocol::STOCK)));
        let guard = |s: &str| Plan::of_names(s).map(|p| (p.mutex, p.rwlock, p.guard)).map_err(|e| e.to_string());
        assert_eq!(guard("guard"), Ok((protocol::STOCK, protocol::STOCK, true)));
        assert_eq!(guard("pi,guard"), Ok((protocol::PI, protocol::STOCK, true)));
        assert_eq!(guard("pi"), Ok((protocol::PI, protocol::STOCK, false)));
        assert!(of("pi,ticket").unwrap_err().contains("no lock is left for `ticket`: mutexes follow pi already"));
        assert!(of("boost,pi,phase-fair").unwrap_err().contains("no lock is left for `boost`"));
        assert_eq!(of("PI, Phase-Fair"), of("pi,phase-fair"));
        assert_eq!(guard("GUARD"), guard("guard"));
        assert!(of("fair").unwrap_err().contains("`fair` is no policy"));
        assert!(of("").unwrap_err().contains("`` is no policy"));
    }
}
