//! Every call of CUDA's and every context switch, one after the other.

use super::calls::function_name;
use super::facts::Facts;
use super::{Telling, walk};
use crate::{InsightError, Recording};
use serde::Serialize;
use tape::call::{self, CallBody};
use tape::event::{Body, Event};
use tape::switch::{SwitchBody, switch_flags};

/// One or the other, in the order of their ends.
#[derive(Clone, Debug)]
pub enum Happened {
    Call(OneCall),
    Switch(OneSwitch),
}

/// A call of CUDA's.
#[derive(Clone, Debug, Serialize)]
pub struct OneCall {
    /// When it began, seconds since the first event.
    pub at: f64,
    pub tid: i32,
    pub call: String,
    /// `launch`, `async copy`, ...
    pub kind: &'static str,
    /// Absent if it had not returned when its thread, or the recording, ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<u64>,
    /// `CUresult` or `cudaError_t`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<i32>,
    /// As the caller passed it: 0 default, 1 legacy, 2 per thread.
    pub stream: u64,
    /// Kernel, graph, event or address.
    pub object: u64,
    /// Bytes; blocks of a launch.
    pub size: u64,
    /// Where it was called.
    pub site: String,
    /// Tapped calls that it made itself.
    pub inner: u16,
}

/// A thread of the program left a CPU or came onto one.
#[derive(Clone, Debug, Serialize)]
pub struct OneSwitch {
    /// Seconds since the first event.
    pub at: f64,
    pub tid: i32,
    pub cpu: u32,
    /// `preempted`: it could have run on; `blocked`; `on`: it came onto the CPU.
    pub what: &'static str,
    /// Who had the CPU next, or before: 0 nobody; absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub other_name: String,
}

/// Calls `f` with each; nothing for a tape without.
pub fn each_call<E: From<InsightError>>(r: &Recording, mut f: impl FnMut(Happened) -> Result<(), E>) -> Result<(), E> {
    let Some(facts) = Facts::of(r)? else { return Ok(()) };
    let telling = Telling::new(r, &facts);
    let mut outcome = Ok(());
    walk(r, |tid, e| {
        if outcome.is_ok()
            && let Some(happened) = of(&telling, tid, e)
        {
            outcome = f(happened);
        }
    })?;
    outcome
}

fn of(t: &Telling<'_>, tid: i32, e: &Event<'_>) -> Option<Happened> {
    Some(match &e.body {
        Body::Call(c) => Happened::Call(one_call(t, tid, e, c, true)),
        Body::InCall(c) => Happened::Call(one_call(t, tid, e, c, false)),
        Body::Switch(s) => Happened::Switch(one_switch(t, e, s)),
        _ => return None,
    })
}

fn one_call(t: &Telling<'_>, tid: i32, e: &Event<'_>, c: &CallBody, returned: bool) -> OneCall {
    let function = e.head.flags;
    OneCall {
        at: t.seconds(c.began),
        tid,
        call: function_name(function),
        kind: call::function(function).map_or("other", |f| f.class.name()),
        ns: returned.then(|| t.ns(e.head.tsc.saturating_sub(c.began))),
        result: returned.then_some(c.result),
        stream: c.stream,
        object: c.object,
        size: c.size,
        site: t.facts.names.site(c.site),
        inner: c.inner,
    }
}

fn one_switch(t: &Telling<'_>, e: &Event<'_>, s: &SwitchBody) -> OneSwitch {
    let what = match e.head.flags & (switch_flags::OUT | switch_flags::PREEMPTED) {
        switch_flags::OUT => "blocked",
        f if f & switch_flags::OUT != 0 => "preempted",
        _ => "on",
    };
    OneSwitch {
        at: t.seconds(e.head.tsc),
        tid: s.tid,
        cpu: s.cpu,
        what,
        other: (s.other >= 0).then_some(s.other),
        other_name: t.thread(s.other),
    }
}
