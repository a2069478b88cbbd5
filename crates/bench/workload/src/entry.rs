//! The description of a kind of call, and one call as requested.

use crate::{Error, Machine, Opened, Wanted};
use std::fmt;

/// What opening gives: it borrows the machine.
pub(crate) type Result<'m> = std::result::Result<Box<dyn Opened + 'm>, Error>;

/// One kind of call.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub name: &'static str,
    /// How it is written, with its options.
    pub form: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// The number of bytes that it is opened with where none is given; 0 for calls that take no size.
    pub bytes: u64,
    pub number: Option<Number>,
    pub words: &'static [&'static str],
    /// Only one of its words may be given.
    pub one_word: bool,
    /// What it takes as `key=value`.
    pub values: &'static [Value],
    pub open: for<'m> fn(&'m Machine, &Call, &Wanted) -> Result<'m>,
}

/// A call that takes nothing, without name and purpose.
pub const PLAIN: Entry = Entry {
    name: "",
    form: "",
    about: "",
    bytes: 0,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: |_, _, _| Err(Error::Idle),
};

/// The kind of value that a key takes, and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Time(&'static str),
    /// Letters, digits, `-` and `_`.
    Name(&'static str),
    /// From 1 on.
    Count(&'static str),
    /// Bytes, as `4KiB`.
    Size(&'static str),
    /// Names, numbers or addresses, with `+` between them.
    List(&'static str),
    /// One of these words.
    Choice(&'static str, &'static [&'static str]),
}

impl Value {
    pub fn key(self) -> &'static str {
        match self {
            Value::Time(key) | Value::Name(key) | Value::Choice(key, _) => key,
            Value::Count(key) | Value::Size(key) | Value::List(key) => key,
        }
    }
}

/// A number that a call takes.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// What it counts.
    pub of: &'static str,
    pub default: u32,
    pub least: u32,
    pub most: u32,
}

/// A call as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    /// The given number, or the call's default; 0 for calls without one.
    pub number: u32,
    /// Sorted as the catalogue has them.
    pub words: Vec<&'static str>,
    /// As it is printed.
    pub number_given: bool,
    /// Keys and given values, in the order of the catalogue. Times have been parsed once already.
    pub values: Vec<(&'static str, String)>,
}

impl Call {
    pub fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    /// The value given for a key.
    pub fn given(&self, key: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, text)| text.as_str())
    }

    pub fn time_ns(&self, key: &str) -> Option<u64> {
        experiment::time_ns(self.given(key)?).ok()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number_given.then(|| self.number.to_string());
        let values: Vec<String> = self.values.iter().map(|(key, text)| format!("{key}={text}")).collect();
        let words = number.as_deref().into_iter().chain(self.words.iter().copied());
        let inner: Vec<&str> = words.chain(values.iter().map(String::as_str)).collect();
        if inner.is_empty() { f.write_str(self.name) } else { write!(f, "{}({})", self.name, inner.join(",")) }
    }
}
