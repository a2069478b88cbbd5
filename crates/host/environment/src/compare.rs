//! Differences between two environments.

use crate::names::{self, Kind};
use crate::{Environment, Value, Warning};

/// One fact that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub fact: String,
    /// `None`: unknown in that environment.
    pub first: Option<Value>,
    pub second: Option<Value>,
    /// The warning that only one of the two has.
    pub warning: Option<Warning>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or = |v: &Option<Value>| v.as_ref().map_or("unknown".to_string(), ToString::to_string);
        write!(f, "{}: {} against {}", self.fact, or(&self.first), or(&self.second))
    }
}

impl Environment {
    /// Settings that differ, in the order of [`names::ALL`], and facts of only one of the two moments that are a warning. Facts that differ between
    /// any two runs (times, clocks now, other programs) are left out. A fact that only one of the two has counts as different.
    pub fn compare(first: &Environment, second: &Environment) -> Vec<Difference> {
        let (of_first, of_second) = (first.warnings(), second.warnings());
        let about = |all: &[Warning], fact: &str| all.iter().find(|w| w.fact == fact).cloned();
        let one = |fact: &names::Fact| {
            let (a, b) = (first.get(fact.name), second.get(fact.name));
            let warned = (about(&of_first, fact.name), about(&of_second, fact.name));
            let warning = match warned {
                (Some(w), None) | (None, Some(w)) => Some(w),
                _ => None,
            };
            let differs = match fact.kind {
                Kind::Setting => a != b,
                Kind::Moment => a != b && warning.is_some(),
                Kind::Activity | Kind::Record => false,
            };
            differs.then(|| Difference { fact: fact.name.into(), first: a.cloned(), second: b.cloned(), warning })
        };
        names::ALL.iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(all: &[(&str, Value)]) -> Environment {
        let mut e = Environment::default();
        all.iter().for_each(|(name, value)| e.set(name, value.clone()));
        e
    }

    #[test]
    fn settings_differ_moments_do_not() {
        let a = environment(&[
            ("run.time", "2026-01-01T00:00:00Z".into()),
            ("cpu.governor", "performance".into()),
            ("gpu.temperature_c", 40u64.into()),
            ("gpu.driver", "580.1".into()),
            ("cpu.model", "Xeon".into()),
        ]);
        let b = environment(&[
            ("run.time", "2026-01-02T00:00:00Z".into()),
            ("cpu.governor", "powersave".into()),
            ("gpu.temperature_c", 60u64.into()),
            ("cpu.model", "Xeon".into()),
        ]);
        let found = Environment::compare(&a, &b);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["cpu.governor: performance against powersave", "gpu.driver: 580.1 against unknown"]);
        assert!(found[0].warning.as_ref().is_some_and(|w| w.text.contains("powersave")), "{found:?}");
        assert_eq!(Environment::compare(&a, &a), []);
    }

    #[test]
    fn a_moment_that_is_a_warning_in_one_differs() {
        let calm = environment(&[("gpu.throttle", Value::List(vec!["idle".into()]))]);
        let hot = environment(&[("gpu.throttle", Value::List(vec!["heat".into()]))]);
        assert_eq!(Environment::compare(&calm, &hot).len(), 1);
        // Effects of the run itself are no difference.
        let (idle, busy) =
            (environment(&[("cpu.pressure", 0.0.into())]), environment(&[("cpu.pressure", 90.0.into())]));
        assert_eq!((Environment::compare(&idle, &busy), busy.warnings().len()), (Vec::new(), 1));
        assert_eq!(Environment::compare(&hot, &hot), []);
    }
}
