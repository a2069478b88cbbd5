//! Which lock follows which policy: a list of names on the command line, or a plan in a file.

use crate::failure::Failure;
use serde::Deserialize;
use std::path::Path;
use tape::policy::{Board, NAME, RULES, Rule, class, protocol};
use toml::Spanned;

/// What the board is to say.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    pub mutex: u8,
    pub rwlock: u8,
    pub rules: Vec<(String, Option<u64>, u8, u8)>,
    /// CUDA's launches and copies go through one real-time mutex.
    pub guard: bool,
}

const HINT: &str = "policies: pi, ticket, boost (mutexes), phase-fair, boost (rwlocks), stock, guard (CUDA's calls); \
                    several with commas, such as `pi,phase-fair`; or a plan: a file that ends in .toml";

/// The policy of CUDA's calls.
const GUARD: &str = "guard";

fn number(name: &str) -> Option<u8> {
    protocol::NAMES.iter().position(|n| !n.is_empty() && *n == name).map(|n| n as u8)
}

fn suits(policy: u8, class: u8) -> bool {
    match policy {
        protocol::TICKET | protocol::PI => class == class::MUTEX,
        protocol::PHASE_FAIR => class == class::RWLOCK,
        _ => true,
    }
}

fn class_name(class: u8) -> &'static str {
    if class == class::MUTEX { "mutexes" } else { "rwlocks" }
}

impl Plan {
    /// Reads `--lock-policy`.
    pub fn read(argument: &str) -> anyhow::Result<Plan> {
        if argument.ends_with(".toml") || argument.contains('/') {
            let path = Path::new(argument);
            let text = std::fs::read_to_string(path).map_err(|e| {
                Failure::new(
                    format!("{argument}: {e}"),
                    format!("--lock-policy takes a plan's file or policies; {HINT}"),
                )
            })?;
            return Ok(Plan::parse(&text).map_err(|e| Failure::new(format!("{argument}:{}", e.0), e.1))?);
        }
        Ok(Plan::of_names(argument)?)
    }

    fn of_names(list: &str) -> Result<Plan, Failure> {
        let wrong = |what: String| Failure::new(format!("--lock-policy {list}: {what}"), HINT);
        let mut plan = Plan { mutex: 0, rwlock: 0, rules: Vec::new(), guard: false };
        let mut names: Vec<&str> = list.split(',').map(str::trim).collect();
        // What is for both takes what the others leave.
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

    /// Reads a plan's text. An error is `LINE: what is wrong`, and what helps.
    pub fn parse(text: &str) -> Result<Plan, (String, &'static str)> {
        let line = |at: usize| text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        let file: PlanFile = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            (format!("{}: {}", line(at), e.message()), "see `doorbell run --help` for what a plan looks like")
        })?;
        let wrong = |s: &Spanned<String>, what: String, hint| (format!("{}: {what}", line(s.span().start)), hint);
        let one = |s: &Spanned<String>, classes: &[u8]| {
            let Some(p) = number(s.get_ref()) else {
                return Err(wrong(s, format!("`{}` is no policy", s.get_ref()), HINT));
            };
            match classes.iter().find(|c| !suits(p, **c)) {
                Some(c) => Err(wrong(s, format!("`{}` is not for {}", s.get_ref(), class_name(*c)), HINT)),
                None => Ok(p),
            }
        };
        let fallback =
            |s: &Option<Spanned<String>>, class| s.as_ref().map_or(Ok(protocol::STOCK), |s| one(s, &[class]));
        let mut plan = Plan {
            mutex: fallback(&file.mutexes, class::MUTEX)?,
            rwlock: fallback(&file.rwlocks, class::RWLOCK)?,
            rules: Vec::new(),
            guard: match &file.calls {
                None => false,
                Some(s) => match s.get_ref().as_str() {
                    GUARD => true,
                    "stock" => false,
                    other => {
                        let hint = "calls = \"guard\" or \"stock\"";
                        return Err(wrong(s, format!("`{other}` is no policy for CUDA's calls"), hint));
                    }
                },
            },
        };
        for rule in &file.lock {
            const NAMED: &str = "name = \"libcuda+0x3f21c0/mutex\" (as `doorbell show --locks` has it) or \
                                 module = \"libcuda\", and policy = \"pi\"";
            let (from, module, offset, of_name) = match (&rule.name, &rule.module) {
                (Some(name), None) => match split(name.get_ref()) {
                    Some((module, offset, c)) => (name, module, Some(offset), c),
                    None => return Err(wrong(name, format!("`{}` is no lock's name", name.get_ref()), NAMED)),
                },
                (None, Some(module)) => (module, module.get_ref().as_str(), None, 0),
                (Some(name), Some(_)) => {
                    return Err(wrong(name, "a rule has a name or a module, not both".into(), NAMED));
                }
                (None, None) => return Err(wrong(&rule.policy, "a rule needs a name or a module".into(), NAMED)),
            };
            if module.is_empty() || module.len() >= NAME {
                return Err(wrong(from, format!("`{module}` is no module's name (1 to {} bytes)", NAME - 1), NAMED));
            }
            let given = match &rule.kind {
                None => 0,
                Some(k) => match k.get_ref().as_str() {
                    "mutex" => class::MUTEX,
                    "rwlock" => class::RWLOCK,
                    other => {
                        return Err(wrong(
                            k,
                            format!("`{other}` is no kind of lock"),
                            "kind = \"mutex\" or \"rwlock\"",
                        ));
                    }
                },
            };
            if let Some(k) = rule.kind.as_ref().filter(|_| of_name != 0 && of_name != given) {
                return Err(wrong(k, "the name says another kind".into(), NAMED));
            }
            let mut c = if of_name == 0 { given } else { of_name };
            let p = one(&rule.policy, if c == 0 { &[] } else { std::slice::from_ref(&c) })?;
            if c == 0 {
                // The locks of the module that the policy suits.
                c = [class::MUTEX, class::RWLOCK].into_iter().find(|c| !suits(p, 3 - *c)).unwrap_or(0);
            }
            plan.rules.push((module.into(), offset, p, c));
        }
        if plan.rules.len() > RULES {
            return Err((format!("1: {} rules", plan.rules.len()), "a plan has up to 1024 rules"));
        }
        Ok(plan)
    }

    pub fn write(&self, b: &mut Board) {
        b.magic = tape::policy::MAGIC;
        b.version = tape::policy::VERSION;
        b.mutex = self.mutex;
        b.rwlock = self.rwlock;
        b.guard = u8::from(self.guard);
        b.rules = self.rules.len() as u32;
        for (to, (module, offset, policy, class)) in b.rule.iter_mut().zip(&self.rules) {
            let mut name = [0; NAME];
            name[..module.len()].copy_from_slice(module.as_bytes());
            let offset = offset.unwrap_or(Rule::WHOLE);
            *to = Rule { module: name, offset, policy: *policy, class: *class, ..Rule::NONE };
        }
    }
}

/// `libcuda+0x3f21c0/mutex` (or without the kind): module, offset, class.
fn split(name: &str) -> Option<(&str, u64, u8)> {
    let (place, class) = match name.rsplit_once('/') {
        Some((place, "mutex")) => (place, class::MUTEX),
        Some((place, "rwlock")) => (place, class::RWLOCK),
        Some(_) => return None,
        None => (name, 0),
    };
    let (module, offset) = place.rsplit_once('+')?;
    Some((module, u64::from_str_radix(offset.strip_prefix("0x")?, 16).ok()?, class))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    mutexes: Option<Spanned<String>>,
    rwlocks: Option<Spanned<String>>,
    calls: Option<Spanned<String>>,
    #[serde(default)]
    lock: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Option<Spanned<String>>,
    module: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    policy: Spanned<String>,
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
        assert!(of("fair").unwrap_err().contains("`fair` is no policy"));
        assert!(of("").unwrap_err().contains("`` is no policy"));
    }

    #[test]
    fn a_plan_names_locks_as_they_are_shown() {
        let plan = Plan::parse(
            "mutexes = \"ticket\"\n[[lock]]\nname = \"libcuda+0x3f21c0/mutex\"\npolicy = \"pi\"\n\
             [[lock]]\nmodule = \"libcuda\"\npolicy = \"phase-fair\"\n[[lock]]\nmodule = \"app\"\npolicy = \"stock\"\n",
        )
        .unwrap();
        assert_eq!((plan.mutex, plan.rwlock), (protocol::TICKET, protocol::STOCK));
        let rules = [
            ("libcuda".to_owned(), Some(0x3f21c0), protocol::PI, class::MUTEX),
            ("libcuda".to_owned(), None, protocol::PHASE_FAIR, class::RWLOCK),
            ("app".to_owned(), None, protocol::STOCK, 0),
        ];
        assert_eq!(plan.rules, rules);
        assert!(!plan.guard && Plan::parse("calls = \"guard\"\n").unwrap().guard);
        assert!(!Plan::parse("calls = \"stock\"\n").unwrap().guard);
    }

    #[test]
    fn a_wrong_plan_is_told_where_it_is_wrong() {
        let first = "mutexes = \"pi\"\n\n";
        for (rest, expected) in [
            ("mutex = \"pi\"\n", "3: unknown field `mutex`"),
            ("rwlocks = \"pi\"\n", "3: `pi` is not for rwlocks"),
            ("rwlocks = \"fast\"\n", "3: `fast` is no policy"),
            ("calls = \"pi\"\n", "3: `pi` is no policy for CUDA's calls"),
            ("rwlocks = 3\n", "3: invalid type: integer `3`, expected a string"),
            ("rwlocks = \n", "3: "),
            ("[[lock]]\npolicy = \"pi\"\n", "4: a rule needs a name or a module"),
            ("[[lock]]\nname = \"libcuda\"\npolicy = \"pi\"\n", "4: `libcuda` is no lock's name"),
            ("[[lock]]\nname = \"a+0x1/sem\"\npolicy = \"pi\"\n", "4: `a+0x1/sem` is no lock's name"),
            ("[[lock]]\nname = \"a+0x1/rwlock\"\npolicy = \"pi\"\n", "5: `pi` is not for rwlocks"),
            ("[[lock]]\nmodule = \"a\"\nname = \"a+0x1\"\npolicy = \"pi\"\n", "5: a rule has a name or a module"),
            ("[[lock]]\nmodule = \"a\"\nkind = \"cond\"\npolicy = \"pi\"\n", "5: `cond` is no kind of lock"),
            ("[[lock]]\nmodule = \"a\"\n", "3: missing field `policy`"),
        ] {
            let e = Plan::parse(&format!("{first}{rest}")).unwrap_err().0;
            assert!(e.starts_with(expected), "{rest:?}: {e:?}, expected {expected:?}");
        }
    }
}
