//! A plan in a TOML file.

use crate::plan::{GUARD, HINT, Kernel, Plan, Rule, TextError, class_name, fixes, kernels, number, suits};
use serde::Deserialize;
use tape::policy::{NAME, RULES, class, protocol};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    mutexes: Option<Spanned<String>>,
    rwlocks: Option<Spanned<String>>,
    calls: Option<Spanned<String>>,
    fixes: Option<Spanned<String>>,
    #[serde(default)]
    lock: Vec<RuleText>,
    #[serde(default)]
    kernel: Vec<KernelText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: Option<Spanned<String>>,
    module: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    policy: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelText {
    library: Option<String>,
    name: Spanned<String>,
    hash: Spanned<String>,
}

/// The hint for a rule that names no lock.
const NAMED: &str = "name = \"libcuda+0x3f21c0/mutex\" (as `doorbell show --locks` has it) or module = \"libcuda\", and \
                     policy = \"pi\"";

/// The plan's text, to find the lines of errors.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn line(&self, at: usize) -> usize {
        // (Counts bytes, so that a position inside a character cannot panic. The parser's own positions are never
        // inside one.)
        self.0.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1
    }

    fn wrong(&self, s: &Spanned<String>, what: String, hint: &'static str) -> TextError {
        TextError { line: self.line(s.span().start), what, hint }
    }

    /// The protocol that `s` names, if all these classes can follow it.
    fn protocol(&self, s: &Spanned<String>, classes: &[u8]) -> Result<u8, TextError> {
        let name = s.get_ref();
        let Some(p) = number(name) else { return Err(self.wrong(s, format!("`{name}` is no policy"), HINT)) };
        match classes.iter().find(|c| !suits(p, **c)) {
            Some(c) => Err(self.wrong(s, format!("`{name}` is not for {}", class_name(*c)), HINT)),
            None => Ok(p),
        }
    }

    fn fallback(&self, s: &Option<Spanned<String>>, class: u8) -> Result<u8, TextError> {
        s.as_ref().map_or(Ok(protocol::STOCK), |s| self.protocol(s, &[class]))
    }

    fn guard(&self, s: &Option<Spanned<String>>) -> Result<bool, TextError> {
        let Some(s) = s else { return Ok(false) };
        match s.get_ref() {
            name if name.eq_ignore_ascii_case("stock") => Ok(false),
            name if name.eq_ignore_ascii_case(GUARD) => Ok(true),
            other => {
                let what = format!("`{other}` is no policy for CUDA's calls");
                Err(self.wrong(s, what, "calls = \"guard\" or \"stock\""))
            }
        }
    }

    fn fixes(&self, s: &Option<Spanned<String>>) -> Result<u32, TextError> {
        let Some(s) = s.as_ref().filter(|s| !s.get_ref().trim().is_empty()) else { return Ok(0) };
        fixes::bits(s.get_ref())
            .map_err(|name| self.wrong(s, format!("there is no fix `{name}`"), "fixes = \"pins,copies\""))
    }

    fn rule(&self, rule: &RuleText) -> Result<Rule, TextError> {
        let (from, module, offset, of_name) = match (&rule.name, &rule.module) {
            (Some(name), None) => match split(name.get_ref()) {
                Some((module, offset, c)) => (name, module, Some(offset), c),
                None => return Err(self.wrong(name, format!("`{}` is no lock's name", name.get_ref()), NAMED)),
            },
            (None, Some(module)) => (module, module.get_ref().as_str(), None, 0),
            (Some(name), Some(_)) => {
                return Err(self.wrong(name, "a rule has a name or a module, not both".into(), NAMED));
            }
            (None, None) => return Err(self.wrong(&rule.policy, "a rule needs a name or a module".into(), NAMED)),
        };
        if module.is_empty() || module.len() >= NAME {
            return Err(self.wrong(from, format!("`{module}` is no module's name (1 to {} bytes)", NAME - 1), NAMED));
        }
        let given = match rule.kind.as_ref().map(|k| (k, k.get_ref().as_str())) {
            None => 0,
            Some((_, "mutex")) => class::MUTEX,
            Some((_, "rwlock")) => class::RWLOCK,
            Some((k, other)) => {
                return Err(self.wrong(k, format!("`{other}` is no kind of lock"), "kind = \"mutex\" or \"rwlock\""));
            }
        };
        if let Some(k) = rule.kind.as_ref().filter(|_| of_name != 0 && of_name != given) {
            return Err(self.wrong(k, "the name says another kind".into(), NAMED));
        }
        let mut c = if of_name == 0 { given } else { of_name };
        let p = self.protocol(&rule.policy, if c == 0 { &[] } else { std::slice::from_ref(&c) })?;
        if c == 0 {
            // Locks in the module of the one class that the policy suits.
            c = [class::MUTEX, class::RWLOCK].into_iter().find(|c| !suits(p, 3 - *c)).unwrap_or(0);
        }
        Ok(Rule { module: module.into(), offset, protocol: p, class: c })
    }
}

impl Text<'_> {
    fn kernel(&self, kernel: &KernelText) -> Result<Kernel, TextError> {
        const HINT: &str = "name = \"_Z4stepPf\" and hash = \"9f0c6a1b2d3e4f50\", as `doorbell plan` writes them";
        let (name, hash) = (kernel.name.get_ref(), kernel.hash.get_ref());
        if name.is_empty() || name.contains('\0') {
            return Err(self.wrong(&kernel.name, format!("`{name}` is no kernel's name"), HINT));
        }
        let number = u64::from_str_radix(hash, 16).ok().filter(|hash| *hash != 0);
        let number = number.ok_or_else(|| self.wrong(&kernel.hash, format!("`{hash}` is no hash"), HINT))?;
        Ok(Kernel { library: kernel.library.clone(), name: name.clone(), hash: number })
    }
}

impl Plan {
    /// Reads a plan's text.
    ///
    /// # Errors
    /// A plan that is wrong: the line, what is wrong there, and a hint.
    pub fn parse(text: &str) -> Result<Plan, TextError> {
        let t = Text(text);
        let file: PlanFile = toml::from_str(text).map_err(|e| TextError {
            line: t.line(e.span().map_or(0, |s| s.start)),
            what: e.message().to_owned(),
            hint: "see `doorbell run --help` for what a plan looks like",
        })?;
        let mut plan = Plan {
            mutex: t.fallback(&file.mutexes, class::MUTEX)?,
            rwlock: t.fallback(&file.rwlocks, class::RWLOCK)?,
            guard: t.guard(&file.calls)?,
            fixes: t.fixes(&file.fixes)?,
            rules: file.lock.iter().map(|r| t.rule(r)).collect::<Result<_, _>>()?,
            kernels: file.kernel.iter().map(|k| t.kernel(k)).collect::<Result<_, _>>()?,
        };
        if !plan.kernels.is_empty() {
            plan.fixes |= tape::fix::KERNELS;
        }
        if !kernels::fit(plan.kernels.iter().map(|k| k.name.as_str())) {
            let what = format!("{} kernels", plan.kernels.len());
            return Err(TextError { line: 1, what, hint: "a plan has up to 1024 kernels, with 128 KiB of names" });
        }
        if plan.rules.len() > RULES {
            let what = format!("{} rules", plan.rules.len());
            return Err(TextError { line: 1, what, hint: "a plan has up to 1024 rules" });
        }
        Ok(plan)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pieces of plans, right and wrong.
    fn piece() -> impl Strategy<Value = String> {
        let pieces = [
            "mutexes",
            "rwlocks",
            "calls",
            "fixes",
            "\"pins,copies\"",
            "[[lock]]",
            "[[kernel]]",
            "hash",
            "\"9f\"",
            "[lock]",
            "name",
            "module",
            "kind",
            "policy",
            " = ",
            "\"pi\"",
            "\"libcuda+0x3f/mutex\"",
            "\"a+0xffffffffffffffffff\"",
            "\"+0x\"",
            "\"\"",
            "\n",
            "\"",
            "'",
            "#",
            "é",
            "3",
        ];
        prop_oneof![4 => proptest::sample::select(pieces.to_vec()).prop_map(String::from), 1 => ".{0,6}"]
    }

    proptest! {
        #[test]
        fn no_text_panics(pieces in proptest::collection::vec(piece(), 0..24), any in ".{0,64}") {
            for text in [pieces.concat(), any] {
                if let Err(e) = Plan::parse(&text) {
                    prop_assert!(e.line >= 1 && e.line <= text.lines().count() + 1 && !e.what.is_empty(), "{e:?}");
                }
                let _ = Plan::of_names(&text);
            }
        }

        #[test]
        fn what_a_plan_says_is_on_the_board(offset in any::<u64>(), module in "[a-z]{1,55}") {
            let text = format!("[[lock]]\nname = \"{module}+{offset:#x}/rwlock\"\npolicy = \"phase-fair\"\n");
            let plan = Plan::parse(&text).unwrap();
            prop_assert_eq!((plan.rules[0].module.as_str(), plan.rules[0].offset), (module.as_str(), Some(offset)));
        }
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
        let rules = rules.map(|(module, offset, protocol, class)| Rule { module, offset, protocol, class });
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
            ("[[kernel]]\nname = \"k\"\n", "3: missing field `hash`"),
            ("[[kernel]]\nname = \"k\"\nhash = \"0\"\n", "5: `0` is no hash"),
            ("[[kernel]]\nname = \"\"\nhash = \"1\"\n", "4: `` is no kernel's name"),
        ] {
            let e = Plan::parse(&format!("{first}{rest}")).unwrap_err().to_string();
            assert!(e.starts_with(expected), "{rest:?}: {e:?}, expected {expected:?}");
        }
    }
}
