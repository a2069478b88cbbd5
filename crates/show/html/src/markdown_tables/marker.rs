//! The comments that mark tables: `<!-- table: key=value key="two words" -->`.

/// A comment of doorbell, in one line or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub kind: Kind,
    /// In their order.
    pub pairs: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A table follows, until the end.
    Table,
    /// A line follows with the machine and the version with which the data were measured.
    Machine,
    /// The names of labels on this page.
    Names,
    End,
}

impl Marker {
    /// `None` if the comment is not one of these. `text` is without `<!--` and `-->`.
    pub fn parse(text: &str) -> Option<Result<Marker, String>> {
        let text = text.trim();
        let (kind, rest) = match text.split_once(':') {
            Some(("table", rest)) => (Kind::Table, rest),
            Some(("machine", rest)) => (Kind::Machine, rest),
            Some(("names", rest)) => (Kind::Names, rest),
            _ if text == "end" => (Kind::End, ""),
            _ => return None,
        };
        Some(pairs(rest).map(|pairs| Marker { kind, pairs }))
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = word(rest, true)?;
        let Some(after) = after.strip_prefix('=') else {
            return Err(format!("{key:?} has no value: write {key}=VALUE, with quotes around a value with spaces"));
        };
        let (value, after) = word(after, false)?;
        if !(after.is_empty() || after.starts_with(char::is_whitespace)) {
            return Err(format!("a space is missing after {key}={value:?}"));
        }
        if key.is_empty() || value.is_empty() {
            return Err(format!("{key}={value}: a key or a value is empty"));
        }
        if pairs.iter().any(|(k, _)| *k == key) {
            return Err(format!("{key} is there twice; several values are written {key}=A|B"));
        }
        pairs.push((key, value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// A word, or the contents of quotes, and the rest.
fn word(text: &str, is_key: bool) -> Result<(String, &str), String> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (word, rest) = quoted.split_once('"').ok_or_else(|| format!("the quotes of {text:?} do not end"))?;
        return Ok((word.to_owned(), rest));
    }
    let ends = |c: char| c.is_whitespace() || c == '"' || (is_key && c == '=');
    let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
    Ok((word.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        Marker::parse(text).unwrap().map(|m| m.pairs)
    }

    #[test]
    fn a_marker_is_pairs() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            read(" table: a=b c.d=\"two words\"\n e=f(1,x=2)|g "),
            Ok(vec![pair("a", "b"), pair("c.d", "two words"), pair("e", "f(1,x=2)|g"),])
        );
        assert_eq!(read("names: \"a=0\"=\"nothing\""), Ok(vec![pair("a=0", "nothing")]));
        assert_eq!(Marker::parse("end").unwrap().unwrap().kind, Kind::End);
        assert_eq!(Marker::parse(" a comment: with a colon "), None);
        for (text, what) in [
            ("table: a", "has no value"),
            ("table: a=", "empty"),
            ("table: =b", "empty"),
            ("table: a=\"b", "do not end"),
            ("table: a=b a=c", "twice"),
            ("table: a=\"b\"c=d", "a space is missing"),
        ] {
            assert!(read(text).unwrap_err().contains(what), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(table|machine|names|end)?:?[ a-z=|\"\\-\n]{0,40}|.{0,20}") {
            if let Some(Ok(marker)) = Marker::parse(&text) {
                // What was read can be written and read again.
                let again: String = marker.pairs.iter().map(|(k, v)| format!(" \"{k}\"=\"{v}\"")).collect();
                if !again.contains("\"\"") {
                    prop_assert_eq!(pairs(&again).unwrap(), marker.pairs);
                }
            }
        }
    }
}
