//! A value for each field: why calls were slow.

use crate::locks::{holds_others, symbol_row};
use crate::summary::now;
use schema::slow_calls::{
    Between, Cause, CauseRow, FixRow, GapRow, LinkRow, Moment, OfRow, PageFaults, PageableRow, PartRow, SlowCall,
    UnfinishedRow, Why,
};
use schema::symbols::Symbols;

fn link() -> LinkRow {
    LinkRow {
        pid: 1,
        tid: 1,
        thread: "x".into(),
        how: "x",
        what: "x".into(),
        ns: 1,
        times: 1,
        call: Some("x".into()),
        holds_others: Some(holds_others()),
        doing: Cause::Lock,
        doing_what: Some("x".into()),
        doing_ns: 1,
    }
}

fn part() -> PartRow {
    PartRow {
        cause: Cause::Lock,
        ns: 1,
        of: vec![OfRow { what: "x".into(), ns: 1, times: 1, at_most: true, free_ns: Some(1), because: vec![link()] }],
    }
}

fn slow_call() -> SlowCall {
    SlowCall {
        at: 1.0,
        tsc: 1,
        process: 1,
        pid: 1,
        tid: 1,
        thread: "x".into(),
        call: "x".into(),
        number: 1,
        kernel: Some("x".into()),
        size: 1,
        stream: 1,
        site: "x".into(),
        ns: 1,
        lost_ns: 1,
        cause: Some(Cause::Lock),
        parts: vec![part()],
        pageable_bytes: 1,
        host_functions: 1,
        page_faults: PageFaults { minor: 1, major: 1 },
        advice: Some("x".into()),
        saves_ns: Some(1),
    }
}

fn gap() -> GapRow {
    GapRow {
        at: 1.0,
        tsc: 1,
        process: 1,
        pid: 1,
        tid: 1,
        thread: "x".into(),
        call: "x".into(),
        number: 1,
        ns: 1,
        waits: 1,
        lock: "x".into(),
        because: vec![link()],
    }
}

pub fn why() -> Why {
    Why {
        complete: true,
        incomplete_because: vec!["x".into()],
        not_watched: vec!["x".into()],
        stolen_ns: Some(1),
        saved_because: Some(String::new()),
        moment: Some(Moment { when: "x".into(), now: now() }),
        calls: 1,
        ns: 1,
        slow_from_ns: 1,
        slow: 1,
        slow_starting: 1,
        causes: vec![CauseRow {
            cause: Cause::Lock,
            ns: 1,
            calls: 1,
            longest_ns: 1,
            starting_ns: 1,
            advice: Some("x"),
        }],
        pageable: vec![PageableRow { site: "x".into(), call: "x".into(), calls: 1, bytes: 1, ns: 1 }],
        unfinished: 1,
        first_unfinished: vec![UnfinishedRow {
            at: 1.0,
            pid: 1,
            tid: 1,
            thread: "x".into(),
            call: "x".into(),
            number: 1,
            ns: 1,
        }],
        between: Between { gaps: 1, ns: 1, longest_ns: 1, worst: vec![gap()] },
        worst: vec![slow_call()],
        fixes: vec![FixRow {
            fix: "pins",
            calls: 1,
            ns: 1,
            longest_ns: 1,
            answers: vec!["x".into()],
            not_with: vec!["x".into()],
        }],
        long_waits: 1,
        waits: vec![slow_call()],
        symbols: Symbols([("*".into(), symbol_row())].into()),
    }
}
