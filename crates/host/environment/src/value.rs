//! What a fact can be.

use serde::{Deserialize, Serialize};
use std::fmt;

/// In JSON without a tag: the JSON type shows the kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Truth(bool),
    Integer(i64),
    /// Finite.
    Number(f64),
    Text(String),
    List(Vec<Value>),
}

/// A value, or the reason why it is unknown.
pub type Known<T> = Result<T, String>;

impl Value {
    pub fn truth(&self) -> Option<bool> {
        match self {
            Value::Truth(b) => Some(*b),
            _ => None,
        }
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(n) => Some(*n),
            _ => None,
        }
    }

    /// Integers too.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(n) => Some(*n as f64),
            Value::Number(n) => Some(*n),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(t) => Some(t),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[Value]> {
        match self {
            Value::List(all) => Some(all),
            _ => None,
        }
    }
}

/// `a, b` of a list, `none` of an empty one.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Truth(b) => f.write_str(if *b { "yes" } else { "no" }),
            Value::Integer(n) => write!(f, "{n}"),
            Value::Number(n) => write!(f, "{n}"),
            Value::Text(t) => f.write_str(t),
            Value::List(all) if all.is_empty() => f.write_str("none"),
            Value::List(all) => {
                for (i, v) in all.iter().enumerate() {
                    write!(f, "{}{v}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Truth(b)
    }
}

/// A value above the range of i64 becomes the largest i64: no real count is that large.
impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Value {
        Value::Integer(n)
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Value {
        Value::from(n as u64)
    }
}

/// JSON has no infinity and no NaN: they become text.
impl From<f64> for Value {
    fn from(n: f64) -> Value {
        if n.is_finite() { Value::Number(n) } else { Value::Text(n.to_string()) }
    }
}

impl From<String> for Value {
    fn from(t: String) -> Value {
        Value::Text(t)
    }
}

impl From<&str> for Value {
    fn from(t: &str) -> Value {
        Value::Text(t.into())
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(all: Vec<T>) -> Value {
        Value::List(all.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let one = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            // serde_json reads numbers of 17 digits with an error in the last bit; the numbers here have fewer digits.
            (-1i64 << 40..1 << 40).prop_map(|n| Value::from(n as f64 / 1000.0)),
            ".{0,20}".prop_map(Value::from),
        ];
        prop_oneof![one.clone(), proptest::collection::vec(one, 0..4).prop_map(Value::List)]
    }

    proptest! {
        #[test]
        fn json_and_back_is_the_same(value in any_value()) {
            let text = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }

    #[test]
    fn as_people_read_them() {
        assert_eq!(Value::from(vec![0u64, 1]).to_string(), "0, 1");
        assert_eq!(Value::from(Vec::<String>::new()).to_string(), "none");
        assert_eq!(Value::from(true).to_string(), "yes");
        assert_eq!(Value::from(f64::NAN), Value::Text("NaN".into()));
    }
}
