//! The text of a route: `source -> executor -> destination`, each with options in brackets.
//!
//! `host->ce0->gpu0`, `gpu0->ce2[pipelined]->host`, `host[pageable]->cuda[sync]->gpu0`, `host[offset=1]->inline->gpu0`.
//! The registry defines the executors and the options of each ([`Word`]); the grammar contains no names. Two texts mean
//! the same route exactly if they parse to the same [`Spec`]. Printed, a spec is the shortest text.

use std::fmt;

/// One end of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    pub memory: Memory,
    /// Bytes from the start of the buffer, which is aligned to a page.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    Host(Host),
    /// GPU n.
    Gpu(u32),
    /// Memory of the device that moves bytes by itself ([`crate::device`]).
    Device,
}

/// Kinds of host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Host {
    /// Allocated pinned. The default, which is not written.
    #[default]
    Pinned,
    Pageable,
    /// Pageable memory that was pinned afterwards.
    Registered,
    /// Allocated pinned and write-combined: the CPU's stores bypass its caches; loads are slow.
    WriteCombined,
    /// Huge pages of 2 MiB, pinned afterwards.
    Huge,
    /// Memory of one NUMA node, pinned afterwards.
    Node(u32),
}

impl Host {
    /// Whether only CUDA can allocate or register it.
    pub fn is_cudas(self) -> bool {
        match self {
            Host::Pinned | Host::Pageable => false,
            Host::Registered | Host::WriteCombined | Host::Huge | Host::Node(_) => true,
        }
    }
}

/// Moves the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executor {
    /// The registry's name: `ce`.
    pub name: &'static str,
    /// The 2 of `ce2`.
    pub index: Option<u32>,
    /// Sorted, each once.
    pub options: Vec<&'static str>,
    /// Options with numbers, such as `pieces=256` or `engines=3+4`: sorted, each once.
    pub numbers: Vec<(&'static str, Vec<u32>)>,
}

impl Executor {
    pub fn has(&self, option: &str) -> bool {
        self.options.contains(&option)
    }

    /// The numbers after `option`, which ends in `=`.
    pub fn numbers(&self, option: &str) -> Option<&[u32]> {
        self.numbers.iter().find(|(name, _)| *name == option).map(|(_, numbers)| numbers.as_slice())
    }

    /// Without its options.
    pub fn word(&self) -> String {
        self.index.map_or_else(|| self.name.into(), |index| format!("{}{index}", self.name))
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(index) = self.index {
            write!(f, "{index}")?;
        }
        let numbers = self.numbers.iter().map(|(name, numbers)| {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("{name}{}", numbers.join("+"))
        });
        let all: Vec<String> = self.options.iter().map(|option| (*option).into()).chain(numbers).collect();
        if all.is_empty() { Ok(()) } else { write!(f, "[{}]", all.join(",")) }
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    pub source: End,
    pub executor: Executor,
    pub destination: End,
}

/// An executor that a route may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub name: &'static str,
    /// A number follows the name.
    pub numbered: bool,
    /// One that ends in `=` takes a number, or several with `+` between them.
    pub options: &'static [&'static str],
}

/// Why a text is not a route (or another `kind` of text), and the byte where the mistake is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{text}`: {what} at byte {at}; {allowed}")]
pub struct SyntaxError {
    /// The kind of text that was expected: `route`.
    pub kind: &'static str,
    pub text: String,
    pub at: usize,
    /// The mistake.
    pub what: String,
    /// What is allowed there.
    pub allowed: String,
}

impl SyntaxError {
    /// Says so if the text has one of these, which earlier versions knew.
    #[must_use]
    pub fn gone(mut self, words: &[&str]) -> SyntaxError {
        let mut its = self.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        if let Some(word) = its.find(|word| words.contains(word)) {
            self.allowed += &format!("; doorbell {} no longer has `{word}`", env!("CARGO_PKG_VERSION"));
        }
        self
    }
}

/// A larger offset can only be a mistake.
const MAX_OFFSET: u64 = 1 << 40;
const SHAPE: &str = "a route is `source->executor->destination`, such as `host->ce0->gpu0`";

impl Spec {
    /// Parses a text with the given executors.
    pub fn parse(text: &str, words: &[Word]) -> Result<Spec, SyntaxError> {
        read(text, words).map_err(|wrong| wrong.of("route", text))
    }
}

fn read(text: &str, words: &[Word]) -> Result<Spec, Wrong> {
    let mut parts = Vec::new();
    let mut at = 0;
    for part in text.split("->") {
        parts.push(Part::parse(part, at)?);
        at += part.len() + 2;
    }
    let Ok([source, executor, destination]) = <[Part<'_>; 3]>::try_from(parts) else {
        let arrows = text.matches("->").count();
        return Err(Wrong { at: text.len(), what: format!("{arrows} `->` up to the end"), allowed: SHAPE.into() });
    };
    Ok(Spec { source: end(&source)?, executor: self::executor(&executor, words)?, destination: end(&destination)? })
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}->{}", self.source, self.executor, self.destination)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Pinned => f.write_str("pinned"),
            Host::Pageable => f.write_str("pageable"),
            Host::Registered => f.write_str("registered"),
            Host::WriteCombined => f.write_str("wc"),
            Host::Huge => f.write_str("huge"),
            Host::Node(n) => write!(f, "node={n}"),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.memory {
            Memory::Host(kind) => {
                f.write_str("host")?;
                (kind != Host::Pinned).then_some(kind)
            }
            Memory::Gpu(n) => {
                write!(f, "gpu{n}")?;
                None
            }
            Memory::Device => {
                f.write_str("device")?;
                None
            }
        };
        match (kind, self.offset) {
            (None, 0) => Ok(()),
            (Some(kind), 0) => write!(f, "[{kind}]"),
            (None, offset) => write!(f, "[offset={offset}]"),
            (Some(kind), offset) => write!(f, "[{kind},offset={offset}]"),
        }
    }
}

/// The mistake, its offset in the whole text, and what is allowed.
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) what: String,
    pub(crate) allowed: String,
}

impl Wrong {
    pub(crate) fn of(self, kind: &'static str, text: &str) -> SyntaxError {
        let Wrong { at, what, allowed } = self;
        SyntaxError { kind, text: text.into(), at, what, allowed }
    }
}

/// `name`, `number`, `[option,option=value]`, each with its offset.
struct Part<'a> {
    at: usize,
    name: &'a str,
    number: Option<(usize, &'a str)>,
    options: Vec<(usize, &'a str)>,
}

/// `text` without surrounding blanks, and its new offset.
fn trimmed(text: &str, at: usize) -> (usize, &str) {
    let start = text.trim_start();
    (at + text.len() - start.len(), start.trim_end())
}

/// What is before the brackets and its offset, and the options between them, each with its offset.
type Bracketed<'t> = (usize, &'t str, Vec<(usize, &'t str)>);

pub(crate) fn bracketed(text: &str, at: usize, [open, close]: [char; 2]) -> Result<Bracketed<'_>, Wrong> {
    let (at, text) = trimmed(text, at);
    let Some((word, rest)) = text.split_once(open) else { return Ok((at, text, Vec::new())) };
    let open = at + word.len();
    let inner = rest.strip_suffix(close).ok_or_else(|| Wrong {
        at: at + text.len(),
        what: "no closing bracket".into(),
        allowed: format!("`{close}` ends the options that began at byte {open}"),
    })?;
    let mut option_at = open + 1;
    let options = inner.split(',').map(|option| {
        let found = trimmed(option, option_at);
        option_at += option.len() + 1;
        found
    });
    Ok((at, word.trim_end(), options.collect()))
}

impl<'a> Part<'a> {
    fn parse(text: &'a str, at: usize) -> Result<Part<'a>, Wrong> {
        let (at, word, options) = bracketed(text, at, ['[', ']'])?;
        let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = (name.len() < word.len()).then(|| (at + name.len(), &word[name.len()..]));
        Ok(Part { at, name, number, options })
    }

    fn word(&self) -> String {
        match self.number {
            Some((_, digits)) => format!("{}{digits}", self.name),
            None => self.name.into(),
        }
    }

    fn number(&self) -> Result<Option<u32>, Wrong> {
        let Some((at, digits)) = self.number else { return Ok(None) };
        let canonical = digits.len() == 1 || !digits.starts_with('0');
        match digits.parse() {
            Ok(number) if canonical => Ok(Some(number)),
            _ => Err(Wrong {
                at,
                what: format!("the number {digits}"),
                allowed: format!("a number is 0 to {}, without zeros before it", u32::MAX),
            }),
        }
    }
}

pub(crate) fn or_nothing(word: &str) -> String {
    if word.is_empty() { "nothing".into() } else { format!("`{word}`") }
}

fn end(part: &Part<'_>) -> Result<End, Wrong> {
    const ENDS: &str = "a source or destination is host, host[pageable], host[registered], host[wc], host[huge], \
                        host[node=N], device or gpu0, gpu1, ...";
    let memory = match (part.name, part.number()?) {
        ("host", None) => Memory::Host(Host::default()),
        ("gpu", Some(n)) => Memory::Gpu(n),
        ("device", None) => Memory::Device,
        _ => return Err(Wrong { at: part.at, what: or_nothing(&part.word()), allowed: ENDS.into() }),
    };
    let (mut kind, mut offset) = (None, None);
    for &(at, option) in &part.options {
        let wrong = |what: String, allowed: &str| Wrong { at, what, allowed: allowed.into() };
        let twice = || wrong(format!("`{option}` after another of its kind"), "each kind of option is given once");
        if let Some(value) = option.strip_prefix("offset=") {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let value = value.parse().ok().filter(|value| digits && *value <= MAX_OFFSET);
            let value =
                value.ok_or_else(|| wrong(format!("`{option}`"), "an offset is a number of bytes up to 2^40"))?;
            if offset.replace(value).is_some() {
                return Err(twice());
            }
            continue;
        }
        let found = match (option, memory) {
            ("pinned", Memory::Host(_)) => Host::Pinned,
            ("pageable", Memory::Host(_)) => Host::Pageable,
            ("registered", Memory::Host(_)) => Host::Registered,
            ("wc", Memory::Host(_)) => Host::WriteCombined,
            ("huge", Memory::Host(_)) => Host::Huge,
            (_, Memory::Host(_)) if option.starts_with("node=") => {
                let digits = &option["node=".len()..];
                let number = digits.parse().ok().filter(|number: &u32| number.to_string() == digits);
                Host::Node(number.ok_or_else(|| wrong(format!("`{option}`"), "a NUMA node is a number: node=0"))?)
            }
            (_, Memory::Host(_)) => {
                let allowed = "options of host are pinned, pageable, registered, wc, huge, node=N, offset=BYTES";
                return Err(wrong(or_nothing(option), allowed));
            }
            (_, Memory::Gpu(_)) => return Err(wrong(or_nothing(option), "the option of a GPU is offset=BYTES")),
            (_, Memory::Device) => return Err(wrong(or_nothing(option), "the option of a device is offset=BYTES")),
        };
        if kind.replace(found).is_some() {
            return Err(twice());
        }
    }
    let memory = match kind {
        Some(kind) => Memory::Host(kind),
        None => memory,
    };
    Ok(End { memory, offset: offset.unwrap_or(0) })
}

fn executor(part: &Part<'_>, words: &[Word]) -> Result<Executor, Wrong> {
    let named: Vec<String> =
        words.iter().map(|word| if word.numbered { format!("{}N", word.name) } else { word.name.into() }).collect();
    let allowed = format!("executors are {}, N a number", named.join(", "));
    // `bar1` is a name as a whole; `ce1` is a name and a number.
    let whole = part.word();
    let word = words
        .iter()
        .find(|word| if word.numbered { word.name == part.name && part.number.is_some() } else { word.name == whole })
        .ok_or_else(|| Wrong { at: part.at, what: or_nothing(&whole), allowed })?;
    let index = if word.numbered { part.number()? } else { None };
    let (mut options, mut numbers) = (Vec::new(), Vec::new());
    for &(at, option) in &part.options {
        let is = |known: &&&'static str| {
            **known == option && !known.ends_with('=') || known.ends_with('=') && option.starts_with(**known)
        };
        let Some(&known) = word.options.iter().find(is) else {
            let allowed = match word.options {
                [] => format!("{} takes no options", word.name),
                options => format!("options of {} are {}", word.name, options.join(", ")),
            };
            return Err(Wrong { at, what: or_nothing(option), allowed });
        };
        if options.contains(&known) || numbers.iter().any(|(name, _)| *name == known) {
            let what = format!("`{known}` for the second time");
            return Err(Wrong { at, what, allowed: "each option is given once".into() });
        }
        if known.ends_with('=') {
            let read = |text: &str| text.parse().ok().filter(|number: &u32| number.to_string() == text);
            let all: Option<Vec<u32>> = option[known.len()..].split('+').map(read).collect();
            let all = all.ok_or_else(|| Wrong {
                at,
                what: format!("`{option}`"),
                allowed: format!("{known} takes a number, or several with + between them"),
            })?;
            numbers.push((known, all));
        } else {
            options.push(known);
        }
    }
    options.sort_unstable();
    numbers.sort_unstable();
    Ok(Executor { name: word.name, index, options, numbers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WORDS: [Word; 4] = [
        Word { name: "split", numbered: false, options: &["engines=", "fast"] },
        Word { name: "ce", numbered: true, options: &["pipelined"] },
        Word { name: "cuda", numbered: false, options: &["sync", "other"] },
        Word { name: "bar1", numbered: false, options: &[] },
    ];

    fn parse(text: &str) -> Result<Spec, SyntaxError> {
        Spec::parse(text, &WORDS)
    }

    #[test]
    fn ways_are_read() {
        let spec = parse("host->ce0->gpu0").unwrap();
        assert_eq!(spec.source, End { memory: Memory::Host(Host::Pinned), offset: 0 });
        assert_eq!(spec.executor, Executor { name: "ce", index: Some(0), options: vec![], numbers: vec![] });
        assert_eq!(spec.destination, End { memory: Memory::Gpu(0), offset: 0 });
        let spec = parse(" gpu1 [ offset=7 ] -> ce12[pipelined] -> host [registered , offset=3] ").unwrap();
        assert_eq!(spec.to_string(), "gpu1[offset=7]->ce12[pipelined]->host[registered,offset=3]");
        assert!(spec.executor.has("pipelined") && !spec.executor.has("sync"));
        assert_eq!(parse("host[pinned]->cuda[sync,other]->gpu0").unwrap().to_string(), "host->cuda[other,sync]->gpu0");
    }

    #[test]
    fn options_may_have_numbers() {
        let spec = parse("host->split[engines=3+4, fast]->gpu0").unwrap();
        assert_eq!(spec.executor.numbers("engines="), Some(&[3, 4][..]));
        assert!(spec.executor.has("fast") && spec.executor.numbers("fast").is_none());
        assert_eq!(spec.to_string(), "host->split[fast,engines=3+4]->gpu0");
        assert_eq!(parse("host->split[engines=0]->gpu0").unwrap().executor.numbers("engines="), Some(&[0][..]));
        for (text, what) in [
            ("engines=", "`engines=`"),
            ("engines=3+", "`engines=3+`"),
            ("engines=03", "`engines=03`"),
            ("engines=-1", "`engines=-1`"),
            ("engines=4294967296", "`engines=4294967296`"),
            ("engines=1,engines=2", "second time"),
            ("engine=1", "`engine=1`"),
        ] {
            let error = parse(&format!("host->split[{text}]->gpu0")).unwrap_err();
            assert!(error.what.contains(what), "{error}");
        }
    }

    #[test]
    fn a_name_may_end_in_a_digit() {
        assert_eq!(
            parse("host->bar1->gpu0").unwrap().executor,
            Executor { name: "bar1", index: None, options: vec![], numbers: vec![] }
        );
        assert_eq!(parse("host->bar2->gpu0").unwrap_err().what, "`bar2`");
        assert_eq!(parse("host->bar01->gpu0").unwrap_err().what, "`bar01`");
    }

    #[test]
    fn errors_say_what_where_and_what_is_allowed() {
        for (text, at, what, allowed) in [
            ("", 0, "0 `->`", "source->executor->destination"),
            ("host->ce0", 9, "1 `->`", "source->executor->destination"),
            ("host->ce0->gpu0->host", 21, "3 `->`", "source->executor->destination"),
            ("hots->ce0->gpu0", 0, "`hots`", "host[pageable]"),
            ("->ce0->gpu0", 0, "nothing", "gpu0"),
            ("host->ce0->gpu", 11, "`gpu`", "gpu0, gpu1"),
            ("host->ce0->gpu01", 14, "number 01", "without zeros"),
            ("host->ce4294967296->gpu0", 8, "number 4294967296", "0 to 4294967295"),
            ("host->dma0->gpu0", 6, "`dma0`", "ceN, cuda"),
            ("host->cuda1->gpu0", 6, "`cuda1`", "cuda"),
            ("host->ce0[pipelined->gpu0", 19, "no closing bracket", "began at byte 9"),
            ("host->ce0[fast]->gpu0", 10, "`fast`", "options of ce are pipelined"),
            ("host->ce0[]->gpu0", 10, "nothing", "options of ce are pipelined"),
            ("host->ce0[pipelined, pipelined]->gpu0", 21, "second time", "once"),
            ("host->ce->gpu0", 6, "`ce`", "ceN"),
            ("host->ce0->gpu0[pageable]", 16, "`pageable`", "offset=BYTES"),
            ("host[pageable,pinned]->ce0->gpu0", 14, "`pinned` after another", "once"),
            ("host[offset=1,offset=1]->ce0->gpu0", 14, "after another", "once"),
            ("host[node=]->ce0->gpu0", 5, "`node=`", "node=0"),
            ("host[node=01]->ce0->gpu0", 5, "`node=01`", "node=0"),
            ("host[wc,huge]->ce0->gpu0", 8, "`huge` after another", "once"),
            ("gpu0[wc]->ce0->host", 5, "`wc`", "offset=BYTES"),
            ("host[offset=+1]->ce0->gpu0", 5, "`offset=+1`", "bytes"),
            ("host[offset=99999999999999]->ce0->gpu0", 5, "`offset=99999999999999`", "2^40"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.at, error.text.as_str()), (at, text), "{error}");
            assert!(error.what.contains(what), "{error}");
            assert!(error.allowed.contains(allowed), "{error}");
        }
    }

    fn end() -> impl Strategy<Value = End> {
        let host = prop_oneof![
            Just(Host::Pinned),
            Just(Host::Pageable),
            Just(Host::Registered),
            Just(Host::WriteCombined),
            Just(Host::Huge),
            any::<u32>().prop_map(Host::Node),
        ];
        let memory = prop_oneof![host.prop_map(Memory::Host), any::<u32>().prop_map(Memory::Gpu), Just(Memory::Device)];
        (memory, prop_oneof![Just(0), 0..=MAX_OFFSET]).prop_map(|(memory, offset)| End { memory, offset })
    }

    fn executor() -> impl Strategy<Value = Executor> {
        (0..WORDS.len(), any::<u32>()).prop_flat_map(|(n, index)| {
            let word = WORDS[n];
            let chosen = prop::sample::subsequence(word.options, 0..=word.options.len());
            (chosen, prop::collection::vec(any::<u32>(), 1..4)).prop_map(move |(chosen, all)| {
                let (numbers, mut options): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|o| o.ends_with('='));
                options.sort_unstable();
                let numbers = numbers.into_iter().map(|name| (name, all.clone())).collect();
                Executor { name: word.name, index: word.numbered.then_some(index), options, numbers }
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(source in end(), executor in executor(), destination in end()) {
            let spec = Spec { source, executor, destination };
            prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC*") {
            if let Err(error) = parse(&text) {
                prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at), "{}", error);
            }
        }

        /// Texts that are nearly right: the parts of routes, in any order.
        #[test]
        fn nearly_right_texts_are_answered(parts in prop::collection::vec(prop::sample::select(vec![
            "host", "gpu0", "ce", "0", "node=", "wc", "->", "[", "]", ",", "pipelined", "offset=", "7", " ", "é", "cuda", "sync", "-", ">", "split", "engines=", "+",
        ]), 0..14)) {
            let text = parts.concat();
            match parse(&text) {
                Ok(spec) => prop_assert_eq!(parse(&spec.to_string()), Ok(spec)),
                Err(error) => prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at), "{}", error),
            }
        }
    }
}
