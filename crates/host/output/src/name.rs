//! Names with fields: `%h`, `%p`, `%n`, `%q{VAR}`, `%%`.

use crate::{Error, Rank};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Counter,
}

/// A name with all fields filled in, except the counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
}

impl Pattern {
    /// Reads a name as typed. If it has no field and this process is one of several ranks, the rank is added before the extension: `a.doorbell`
    /// becomes `a.rank3.doorbell`.
    ///
    /// # Errors
    /// An unknown field, or a variable that is not set.
    pub fn new(name: &Path) -> Result<Pattern, Error> {
        Pattern::with(name, Rank::of_this_process(), host, |v| std::env::var_os(v))
    }

    fn with(
        name: &Path,
        rank: Option<Rank>,
        host: impl Fn() -> Vec<u8>,
        get: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Pattern, Error> {
        let text = name.as_os_str().as_bytes();
        if !text.contains(&b'%') {
            let name = rank.map_or(name.into(), |r| before_extension(name, &format!("rank{}", r.rank)));
            return Ok(Pattern { parts: vec![Part::Text(name.into_os_string().into_vec())] });
        }
        let wrong = |what: String| Error::Pattern { name: name.display().to_string(), what };
        let (mut parts, mut literal) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some(at) = rest.iter().position(|&b| b == b'%') {
            literal.extend_from_slice(&rest[..at]);
            let field = rest.get(at + 1..).unwrap_or(&[]);
            let mut taken = 1;
            match field.first() {
                Some(b'%') => literal.push(b'%'),
                Some(b'h') => literal.extend(host()),
                Some(b'p') => literal.extend(std::process::id().to_string().bytes()),
                Some(b'n') => {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                    parts.push(Part::Counter);
                }
                Some(b'q') => {
                    let end = field.iter().position(|&b| b == b'}').filter(|_| field.get(1) == Some(&b'{'));
                    let Some(end) = end else { return Err(wrong("%q needs a variable in braces: %q{VAR}".into())) };
                    let variable = OsStr::from_bytes(&field[2..end]);
                    let Some(value) = (!variable.is_empty()).then(|| get(variable)).flatten() else {
                        let what = format!("the environment variable {:?} is not set", variable.to_string_lossy());
                        return Err(wrong(what));
                    };
                    literal.extend_from_slice(value.as_bytes());
                    taken = end + 1;
                }
                Some(&other) => {
                    let what = format!("%{} is no field", (other as char).escape_default());
                    return Err(wrong(what));
                }
                None => return Err(wrong("a percent sign ends it".into())),
            }
            rest = &field[taken..];
        }
        literal.extend_from_slice(rest);
        parts.push(Part::Text(literal));
        Ok(Pattern { parts })
    }

    pub fn has_counter(&self) -> bool {
        self.parts.contains(&Part::Counter)
    }

    /// The path with this number in place of each counter.
    pub fn path(&self, n: u64) -> PathBuf {
        let mut name = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(t) => name.extend_from_slice(t),
                Part::Counter => name.extend(n.to_string().bytes()),
            }
        }
        OsString::from_vec(name).into()
    }
}

/// `a.doorbell` and `rank3`: `a.rank3.doorbell`. A name without an extension gets it at its end.
pub(crate) fn before_extension(name: &Path, word: &str) -> PathBuf {
    let (Some(stem), Some(extension)) = (name.file_stem(), name.extension()) else {
        let mut all = name.as_os_str().to_owned();
        all.push(".");
        all.push(word);
        return all.into();
    };
    let mut file = stem.to_owned();
    file.push(".");
    file.push(word);
    file.push(".");
    file.push(extension);
    name.with_file_name(file)
}

fn host() -> Vec<u8> {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim_ascii().to_vec();
    if name.is_empty() { b"localhost".to_vec() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expand(name: &str, rank: Option<u64>) -> Result<String, String> {
        let get = |v: &OsStr| (v == "JOB").then(|| "j 7".into());
        let rank = rank.map(|rank| Rank { rank, size: 4 });
        let p = Pattern::with(Path::new(name), rank, || b"node1".to_vec(), get).map_err(|e| e.to_string())?;
        Ok(p.path(9).display().to_string())
    }

    #[test]
    fn fields_are_filled_in() {
        let pid = std::process::id();
        for (name, expected) in [
            ("a.doorbell", "a.doorbell".to_owned()),
            ("%h/%q{JOB}-%n.%%", "node1/j 7-9.%".to_owned()),
            ("%p%p", format!("{pid}{pid}")),
        ] {
            assert_eq!(expand(name, None), Ok(expected));
        }
    }

    #[test]
    fn unknown_fields_are_errors() {
        for (name, what) in [
            ("a%", "a%: a percent sign ends it"),
            ("a%x", "a%x: %x is no field"),
            ("%q", "braces"),
            ("%qJOB}", "braces"),
            ("%q{JOB", "braces"),
            ("%q{}", "\"\" is not set"),
            ("%q{NO}", "\"NO\" is not set"),
        ] {
            let e = expand(name, None).unwrap_err();
            assert!(e.contains(what), "{name}: {e}");
        }
    }

    #[test]
    fn ranks_get_names_of_their_own_unless_the_name_has_fields() {
        assert_eq!(expand("out/a.doorbell", Some(3)).unwrap(), "out/a.rank3.doorbell");
        assert_eq!(expand("out.d/a", Some(3)).unwrap(), "out.d/a.rank3");
        assert_eq!(expand("a-%q{JOB}", Some(3)).unwrap(), "a-j 7");
        assert_eq!(expand("a%%", Some(3)).unwrap(), "a%");
    }

    proptest! {
        #[test]
        fn no_name_panics(name in any::<Vec<u8>>(), fields in "[%hpnq{}A-Z./]{0,24}") {
            let get = |_: &OsStr| Some("v".into());
            for bytes in [name, fields.into_bytes()] {
                let name = Path::new(OsStr::from_bytes(&bytes));
                if let Ok(p) = Pattern::with(name, Some(Rank { rank: 1, size: 2 }), || b"h".to_vec(), get) {
                    p.path(u64::MAX);
                }
            }
        }
    }
}
