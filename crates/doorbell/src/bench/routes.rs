//! Routes by name: lists as they are typed, the machine that has them, and which ones are compared.

use crate::failure::Failure;
use crate::record::Gpu;
use copy::spec::{Host, Memory};
use copy::{Listed, Machine, Spec, Where};
use report::table::{self, Style, to_stdout};

const LISTED: &str = "`doorbell bench --list` lists the routes of this machine";

pub fn open_machine(gpu: Gpu) -> anyhow::Result<Machine> {
    let place = match gpu {
        Gpu::Real => Where::Real,
        Gpu::Soft => Where::Soft,
    };
    Machine::open(place).map_err(|e| {
        let hint = match gpu {
            Gpu::Real => "`doorbell doctor` says what is missing; `--gpu soft` shows on any machine what works",
            Gpu::Soft => "`doorbell doctor` says what works here",
        };
        Failure::impossible(format!("no GPU to measure: {e}"), hint).into()
    })
}

/// The names in a list; a comma within brackets belongs to a name.
pub fn split(list: &str) -> Vec<&str> {
    let (mut names, mut from, mut depth) = (Vec::new(), 0, 0u32);
    for (at, c) in list.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                names.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    names.push(list[from..].trim());
    names
}

/// The routes of a list as they are written shortest. `all` is every one that is worth knowing here, `plain` one of each
/// executor and direction.
pub fn resolve(machine: &Machine, list: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for name in split(list) {
        match name {
            "all" => names.extend(copy::names(machine).into_iter().map(|l| l.name)),
            "plain" => names.extend(plain(copy::names(machine))),
            name => names.push(one(name)?),
        }
    }
    Ok(names)
}

/// Of each executor and direction the first route that is here (else the first) and has no options.
fn plain(listed: Vec<Listed>) -> Vec<String> {
    let end = |m: Memory| matches!(m, Memory::Host(Host::Pinned) | Memory::Gpu(_));
    let has_no_options = |s: &Spec| {
        let (from, to) = (s.source, s.destination);
        s.executor.options.is_empty() && from.offset + to.offset == 0 && end(from.memory) && end(to.memory)
    };
    let mut chosen: Vec<((&str, Memory), Listed)> = Vec::new();
    for l in listed {
        let Some(spec) = copy::parse(&l.name).ok().filter(has_no_options) else { continue };
        let kind = (spec.executor.name, spec.source.memory);
        match chosen.iter_mut().find(|c| c.0 == kind) {
            Some((_, first)) if first.unavailable.is_some() && l.unavailable.is_none() => *first = l,
            Some(_) => {}
            None => chosen.push((kind, l)),
        }
    }
    chosen.into_iter().map(|c| c.1.name).collect()
}

pub fn one(name: &str) -> anyhow::Result<String> {
    match copy::parse(name) {
        Ok(spec) => Ok(spec.to_string()),
        Err(e) => Err(Failure::new(e.to_string(), LISTED).into()),
    }
}

/// For each route the one that it is compared with: `with`, else the first that leads the same way.
pub fn compare(routes: &[String], with: Option<&str>) -> Vec<Option<usize>> {
    // Two kinds of host memory lead the same way.
    let way = |name: &String| {
        let kind = |m: Memory| match m {
            Memory::Host(_) => None,
            Memory::Gpu(n) => Some(n),
        };
        copy::parse(name).ok().map(|s| (kind(s.source.memory), kind(s.destination.memory)))
    };
    let first = |name: &String| match with {
        Some(w) => routes.iter().position(|r| r == w),
        None => routes.iter().position(|r| way(r) == way(name)),
    };
    routes.iter().enumerate().map(|(i, r)| first(r).filter(|f| *f != i)).collect()
}

pub fn list(machine: &Machine) -> anyhow::Result<()> {
    let style = Style::of_stdout();
    let mut t = style.table(&["route", "what moves the bytes", "here"]);
    for l in copy::names(machine) {
        t.add_row([l.name, l.about, l.unavailable.map_or("yes".into(), |u| format!("no: {}", u.reason))]);
    }
    Ok(to_stdout(|out| Ok(table::write(out, &t, 0)?))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_within_brackets_belongs_to_the_name() {
        let list = "host->ce0->gpu0, host[pageable,offset=1]->cuda[sync]->gpu0 ,all";
        assert_eq!(split(list), ["host->ce0->gpu0", "host[pageable,offset=1]->cuda[sync]->gpu0", "all"]);
        assert_eq!(split("a]],b[,c"), ["a]]", "b[,c"]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn the_plain_routes_are_one_of_each_executor_and_direction() {
        let listed = |(name, here): (&str, bool)| Listed {
            name: name.into(),
            about: String::new(),
            unavailable: (!here).then(|| copy::Unavailable::new("no")),
        };
        let all = [
            ("host->cuda[sync]->gpu0", true),
            ("host[pageable]->cuda->gpu0", true),
            ("host->cuda->gpu0", false),
            ("host->ce0->gpu0", false),
            ("gpu0->ce1->host", true),
            ("host->ce1->gpu0", true),
            ("host->ce2->gpu0", true),
        ];
        let chosen = plain(all.map(listed).into());
        assert_eq!(chosen, ["host->cuda->gpu0", "host->ce1->gpu0", "gpu0->ce1->host"]);
    }

    #[test]
    fn routes_are_compared_with_the_first_that_leads_the_same_way() {
        let routes: Vec<String> = [
            "host->cuda->gpu0",
            "gpu0->cuda->host",
            "host[pageable]->cuda->gpu0",
            "gpu0->cuda[sync]->host",
            "host->cuda->gpu0",
        ]
        .map(String::from)
        .to_vec();
        assert_eq!(compare(&routes, None), [None, None, Some(0), Some(1), Some(0)]);
        assert_eq!(compare(&routes, Some("gpu0->cuda->host")), [Some(1), None, Some(1), Some(1), Some(1)]);
    }
}
