//! Routes by name: lists of them, which ones stand for all, and which ones are compared.

use copy::spec::{Host, Memory};
use copy::{Listed, Spec};

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

/// Of each executor and direction the first route that is here (else the first) and has no options.
pub fn plain(listed: Vec<Listed>) -> Vec<String> {
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
