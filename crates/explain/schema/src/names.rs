//! What rows call threads, streams, kernels and places, for people: functions, variables and lines in the place of `app+0x11a9`. Keys, plans and
//! comparisons keep that form.

use crate::locks::Locks;
use crate::symbols::{Content, Places, SymbolRow, Symbols};

/// The names of places in rows, and their names in the source.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub places: &'a Places,
    pub symbols: &'a Symbols,
}

/// Splits `app+0x4060/mutex#2` into the place and the rest.
pub fn parts(lock: &str) -> (&str, &str) {
    lock.rfind('/').map_or((lock, ""), |at| lock.split_at(at))
}

/// [`Named::site`] for a recording's locks.
pub fn site(l: &Locks, place: &str) -> String {
    Named::of(l).site(place)
}

impl<'a> Named<'a> {
    pub fn of(l: &'a Locks) -> Named<'a> {
        Named { places: &l.places, symbols: &l.symbols }
    }

    /// `push_work at queue.c:4`, `PyThread_acquire_lock`; or the place, with the reason where its file is here and was not used.
    pub fn site(&self, place: &str) -> String {
        let Some(row) = self.symbols.0.get(place) else { return place.into() };
        if let Some(refused) = row.refused {
            return format!("{place} ({refused})");
        }
        let name = row.name.as_deref().map_or_else(|| place.into(), short);
        match (&row.file, row.line) {
            (Some(file), Some(line)) => format!("{name} at {}:{line}", file.rsplit('/').next().unwrap_or(file)),
            _ => name,
        }
    }

    /// `queue_lock/mutex#2` for a lock that is a variable.
    pub fn lock(&self, name: &str) -> String {
        let (place, rest) = parts(name);
        match self.variable(place) {
            Some(SymbolRow { refused: Some(refused), .. }) => format!("{name} ({refused})"),
            Some(SymbolRow { name: Some(variable), .. }) if self.is_only(place, variable) => {
                format!("{variable}{rest}")
            }
            Some(SymbolRow { name: Some(variable), .. }) => format!("{variable}{rest} ({place})"),
            _ => name.into(),
        }
    }

    /// The same with the name that a plan has to give.
    pub fn lock_and_key(&self, name: &str) -> String {
        match self.variable(parts(name).0) {
            Some(SymbolRow { name: Some(variable), .. }) => format!("{variable} ({name})"),
            _ => self.lock(name),
        }
    }

    fn variable(&self, place: &str) -> Option<&'a SymbolRow> {
        let is_variable = |content: Content| content == Content::Variable;
        self.places.by_name.get(place)?.as_ref().filter(|p| is_variable(p.content))?;
        self.symbols.0.get(place)
    }

    /// No other place in the rows has this variable's name: there may be a `lock` in each file.
    fn is_only(&self, place: &str, variable: &str) -> bool {
        !self.symbols.0.iter().any(|(other, row)| other != place && row.name.as_deref() == Some(variable))
    }
}

/// Longer names lose the arguments of their templates.
const LONG: usize = 60;

/// `std::map<..>::find`
fn short(name: &str) -> String {
    if name.len() <= LONG {
        return name.into();
    }
    let mut out = String::new();
    let mut depth = 0;
    for c in name.chars() {
        // (Not `operator<`, nor `<T as Trait>::f`, nor `->`.)
        let is_template =
            c == '<' && out.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)) && !out.ends_with("operator");
        match c {
            '<' if depth > 0 => depth += 1,
            '<' if is_template => {
                depth = 1;
                out.push_str("<..>");
            }
            '>' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            c => out.push(c),
        }
    }
    out
}

/// `thread 12 (main)`
pub fn thread(tid: i32, name: &str) -> String {
    if name.is_empty() { format!("thread {tid}") } else { format!("thread {tid} ({name})") }
}

/// A stream by its handle, or what the handle means; `-` outside of any call.
pub fn stream(handle: Option<u64>) -> String {
    match handle {
        None => "-".into(),
        Some(0) => "default".into(),
        Some(1) => "legacy default".into(),
        Some(2) => "default of the thread".into(),
        Some(handle) => match tape::call::thread_of(handle) {
            Some(tid) => format!("default of thread {tid}"),
            None => format!("{handle:#x}"),
        },
    }
}

/// A kernel: `gemm` of `void lib::(anonymous namespace)::gemm<float, 3>(float*)`.
pub fn short_name(name: &str) -> String {
    let whole = name.replace("(anonymous namespace)::", "");
    let plain = whole.split(['(', '<']).next().unwrap_or_default();
    match plain.rsplit([':', ' ']).next() {
        Some(last) if !last.is_empty() => last.to_owned(),
        _ => whole,
    }
}

/// [`Named::lock`] for a recording's locks.
pub fn lock(l: &Locks, name: &str) -> String {
    Named::of(l).lock(name)
}

/// [`Named::lock_and_key`] for a recording's locks.
pub fn lock_and_key(l: &Locks, name: &str) -> String {
    Named::of(l).lock_and_key(name)
}

/// The name of a lock that is a variable, for a comment.
pub fn variable_of<'a>(l: &'a Locks, name: &str) -> Option<&'a str> {
    Named::of(l).variable(parts(name).0)?.name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Place;

    #[test]
    fn a_kernel_has_a_short_name() {
        for (name, short) in [
            ("add", "add"),
            ("void lib::(anonymous namespace)::gemm<float, 3>(float*)", "gemm"),
            ("nchw<float, (bool)1>(int)", "nchw"),
            ("(anonymous namespace)::f(int)", "f"),
            ("operator()", "operator"),
            ("<lambda>", "<lambda>"),
        ] {
            assert_eq!(short_name(name), short);
        }
    }

    fn locks() -> Locks {
        let mut l = Locks::default();
        let row = |name: &str, line: Option<u32>, refused| SymbolRow {
            name: (!name.is_empty()).then(|| name.to_owned()),
            file: line.map(|_| "/src/queue.c".into()),
            line,
            refused,
        };
        let rows = [
            ("app+0x11a9", Content::AfterCall, row("push_work", Some(4), None)),
            ("app+0x22", Content::AfterCall, row("plain", None, None)),
            ("app+0x33", Content::AfterCall, row("", Some(7), None)),
            ("app+0x4060", Content::Variable, row("queue_lock", None, None)),
            ("liba+0x1", Content::Variable, row("lock", None, None)),
            ("libb+0x1", Content::Variable, row("lock", None, None)),
            ("old+0x1", Content::AfterCall, row("", None, Some("rebuilt since"))),
            ("old+0x2", Content::Variable, row("", None, Some("rebuilt since"))),
        ];
        for (name, content, row) in rows {
            let place = Place { file: Default::default(), offset: 0, content };
            l.places.by_name.insert(name.into(), Some(place));
            l.symbols.0.insert(name.into(), row);
        }
        l
    }

    #[test]
    fn a_place_is_called_what_the_source_calls_it() {
        let l = locks();
        let sites = [
            ("app+0x11a9", "push_work at queue.c:4"),
            ("app+0x22", "plain"),
            ("app+0x33", "app+0x33 at queue.c:7"),
            ("old+0x1", "old+0x1 (rebuilt since)"),
            ("libcuda+0x1", "libcuda+0x1"),
        ];
        for (place, expected) in sites {
            assert_eq!(site(&l, place), expected);
        }
    }

    #[test]
    fn long_names_lose_the_arguments_of_their_templates() {
        let long = "raw_hash_set<FlatHashMapPolicy<Key const*, std::vector<long> >, Hash>::find_or_prepare<Key*>";
        assert_eq!(short(long), "raw_hash_set<..>::find_or_prepare<..>");
        assert_eq!(short("work::Queue::push<long>"), "work::Queue::push<long>");
        let kept = "a_class_with_quite_a_long_name_that_goes_on_and_on::operator<=>(int)";
        assert_eq!(short(kept), kept);
        let of_rust = "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop::<and_this_is_long>";
        assert_eq!(short(of_rust), "<alloc::vec::Vec<..> as core::ops::drop::Drop>::drop::<..>");
    }

    #[test]
    fn a_lock_that_is_a_variable_has_its_name_and_one_on_the_heap_keeps_its_own() {
        let l = locks();
        let names = [
            ("app+0x4060/mutex", "queue_lock/mutex"),
            ("app+0x4060/mutex#2", "queue_lock/mutex#2"),
            // Made there.
            ("app+0x11a9/mutex#7", "app+0x11a9/mutex#7"),
            ("liba+0x1/rwlock", "lock/rwlock (liba+0x1)"),
            ("old+0x2/mutex", "old+0x2/mutex (rebuilt since)"),
            ("", ""),
        ];
        for (name, expected) in names {
            assert_eq!(lock(&l, name), expected);
        }
        assert_eq!(lock_and_key(&l, "app+0x4060/mutex"), "queue_lock (app+0x4060/mutex)");
        assert_eq!(lock_and_key(&l, "app+0x22/mutex"), "app+0x22/mutex");
        assert_eq!(variable_of(&l, "app+0x4060/mutex"), Some("queue_lock"));
    }
}
