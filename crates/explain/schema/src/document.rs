//! JSON documents name the schema that they follow.

use crate::cuda_calls::Calls;
use crate::diff::Diff;
use crate::locks::Locks;
use crate::now::Now;
use crate::objects::Objects;
use crate::rank::Ranks;
use crate::slow_calls::Why;
use crate::summary::Summary;
use crate::top::Top;
use serde::Serialize;

/// A document with a schema. The number after the slash rises whenever a key is removed or changes its meaning.
pub trait Kind: Serialize {
    const SCHEMA: &'static str;
}

impl Kind for Summary {
    const SCHEMA: &'static str = "doorbell.summary/2";
}

impl Kind for Locks {
    const SCHEMA: &'static str = "doorbell.locks/2";
}

impl Kind for Calls {
    const SCHEMA: &'static str = "doorbell.calls/2";
}

impl Kind for Objects {
    const SCHEMA: &'static str = "doorbell.objects/2";
}

impl Kind for Diff {
    const SCHEMA: &'static str = "doorbell.diff/2";
}

impl Kind for Why {
    const SCHEMA: &'static str = "doorbell.why/1";
}

impl Kind for Now {
    const SCHEMA: &'static str = "doorbell.now/1";
}

impl Kind for Ranks {
    const SCHEMA: &'static str = "doorbell.rank/1";
}

impl Kind for Top {
    const SCHEMA: &'static str = "doorbell.top/1";
}

/// The first line of an export.
impl Kind for tape::file::Header {
    const SCHEMA: &'static str = "doorbell.lines/2";
}

/// A value with the name of its schema as the first key.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Document<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

impl<'a, T: Kind> Document<'a, T> {
    pub fn of(body: &'a T) -> Document<'a, T> {
        Document { schema: T::SCHEMA, body }
    }
}
