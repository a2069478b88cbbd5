//! Numbers of 64 bits in JSON. Many readers keep numbers as doubles, which are exact up to 2^53 only. What may exceed that is
//! a string: time stamps in decimal, patterns of bits in hexadecimal.

use serde::{Deserialize, Deserializer, Serializer};

/// `"123456789"`
pub fn decimal<S: Serializer>(v: &u64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(v)
}

/// What [`decimal`] writes.
pub fn read_decimal<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
}

/// `"0x1f"`
pub fn hex<S: Serializer>(v: &u64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&format_args!("{v:#x}"))
}

/// What [`hex`] writes.
pub fn read_hex<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    let text = String::deserialize(d)?;
    u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(serde::de::Error::custom)
}

/// A list of what [`hex`] writes.
pub fn hexes<S: Serializer>(all: &[u64], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(all.iter().map(|v| format!("{v:#x}")))
}

/// As [`hex`]; null if there is none.
pub fn hex_if_any<S: Serializer>(v: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
    match v {
        Some(v) => hex(v, s),
        None => s.serialize_none(),
    }
}
