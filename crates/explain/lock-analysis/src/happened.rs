//! Every CUDA call and every context switch, one after the other.

use crate::facts::Facts;
use crate::fast_map::FastMap;
use crate::labels::Labels;
use crate::labels::function_name;
use decode::events;
use decode::python::{frame, stacks};
use decode::python_frames::{Found, Stacks};
use decode::ranges::{Ranges, Texts};
use decode::{InsightError, Recording, Source};
use schema::happened::{OneCall, OneSwitch};
use schema::symbols::Places;
use tape::call::{self, CallBody, flag};
use tape::event::{Body, Event};
use tape::switch::{SwitchBody, switch_flags};

/// One or the other, in the order of their ends.
#[derive(Clone, Debug)]
pub enum Happened {
    Call(OneCall),
    Switch(OneSwitch),
}

/// Calls `f` with each; never for a tape without them. Returns the places of the names in the rows.
pub fn each_call<E: From<InsightError>>(
    r: &Recording,
    mut f: impl FnMut(Happened) -> Result<(), E>,
) -> Result<Places, E> {
    let Some(facts) = Facts::of(r)? else { return Ok(Places::default()) };
    let labels = Labels::new(r, &facts);
    let stacks = stacks(r)?;
    let mut outcome = Ok(());
    let (mut ranges, mut texts) = (FastMap::<u32, Ranges>::default(), Texts::default());
    events::each(r, |source, e| {
        if let Body::Text(t, text) = &e.body {
            texts.event(e.head.flags, t, text);
        }
        let ranges = ranges.entry(source.process).or_default();
        ranges.event(source, e, &mut |_| ());
        if outcome.is_ok()
            && let Some(mut happened) = of(&labels, &stacks, source, e)
        {
            if let Happened::Call(call) = &mut happened
                && let Some(open) = ranges.around(source.tid)
            {
                call.ranges = open.labels(&texts).collect();
            }
            outcome = f(happened);
        }
    })?;
    outcome.map(|()| crate::places(r, &facts))
}

fn of(t: &Labels<'_>, stacks: &Stacks, source: Source, e: &Event<'_>) -> Option<Happened> {
    Some(match &e.body {
        Body::Call(c) => Happened::Call(one_call(t, stacks, source, e, c, true)),
        Body::InCall(c) if t.facts.is_superseded(source, c.seq, e.head.tsc) => return None,
        Body::InCall(c) => Happened::Call(one_call(t, stacks, source, e, c, false)),
        Body::Switch(s) => Happened::Switch(one_switch(t, source.process, e, s)),
        _ => return None,
    })
}

fn one_call(t: &Labels<'_>, stacks: &Stacks, source: Source, e: &Event<'_>, c: &CallBody, returned: bool) -> OneCall {
    let Source { process, tid } = source;
    let function = e.head.flags;
    OneCall {
        at: t.seconds(c.began),
        tsc: c.began,
        process,
        pid: t.recording.pid(process),
        tid,
        call: function_name(function),
        number: (c.seq != 0).then_some(c.seq),
        kind: call::function(function).map_or("other", |f| f.class.name()),
        ns: returned.then(|| t.ns(e.head.tsc.saturating_sub(c.began))),
        result: returned.then_some(c.result),
        stream: c.stream,
        object: c.object,
        size: c.size,
        size_at_least: c.flags & flag::AT_LEAST != 0,
        copies: (c.copies > 0).then_some(c.copies),
        source: (c.copies > 0).then_some(c.source),
        site: t.facts.names.site(process, c.site, e.head.tsc),
        inner: c.inner,
        python: match stacks.stack(process, c.python) {
            Found::Stack(stack) => stack.frames.iter().map(frame).collect(),
            _ => Vec::new(),
        },
        ranges: Vec::new(),
    }
}

fn one_switch(t: &Labels<'_>, process: u32, e: &Event<'_>, s: &SwitchBody) -> OneSwitch {
    let what = match e.head.flags & (switch_flags::OUT | switch_flags::PREEMPTED) {
        switch_flags::OUT => "blocked",
        f if f & switch_flags::OUT != 0 => "preempted",
        _ => "on",
    };
    OneSwitch {
        at: t.seconds(e.head.tsc),
        tsc: e.head.tsc,
        process,
        pid: t.recording.pid(process),
        tid: s.tid,
        cpu: s.cpu,
        what,
        other: (s.other >= 0).then_some(s.other),
        other_name: t.other(process, s.other, e.head.tsc),
    }
}
