//! A value for each field: locks, CUDA calls, and differences between two recordings.

use crate::commands::range_work;
use schema::cuda_calls::{CallRow, Calls, ElementRow, PatternRow, ShareRow, SharedRow, Total};
use schema::diff::{CallDiff, Change, Diff, LockDiff, OrderDiff, Tolerance};
use schema::happened::{OneCall, OneRange, OneSwitch};
use schema::histogram::Step;
use schema::holds::HoldsOthers;
use schema::lock_uses::UseRow;
use schema::locks::{
    BehindRow, Cycle, HolderRow, Inversion, LeftRow, LockRow, Locks, OffCpu, OrderRow, SwitchesRow, ThreadRow, WaitRow,
};
use schema::symbols::{Places, SymbolRow, Symbols};

pub fn switches_row() -> SwitchesRow {
    SwitchesRow { scope: "x", reason: "x".into(), count: 1, lost: 1 }
}

pub fn off_cpu() -> OffCpu {
    OffCpu { off_ns: 1, preempted_ns: 1, by_tid: Some(1), by: "x".into(), by_ns: 1 }
}

pub fn lock_row() -> LockRow {
    LockRow {
        name: "x".into(),
        named_by: "x",
        instances: 1,
        attributes: vec!["x"],
        operations: [("*", 1)].into(),
        failed: 1,
        reacquired: 1,
        contended: 1,
        wait_ns: 1,
        longest_wait_ns: 1,
        wait_p50_ns: Some(1),
        wait_p99_ns: Some(1),
        wait_histogram: vec![Step { from_ns: 1, count: 1 }],
        hold_ns: Some(1),
        longest_hold_ns: Some(1),
        longest_hold_site: Some("x".into()),
        longest_hold_process: Some(1),
        longest_hold_tid: Some(1),
        longest_hold_inside: Some("x".into()),
        longest_hold_off_cpu: Some(off_cpu()),
        foreign_unlocks: 1,
    }
}

pub fn behind_row() -> BehindRow {
    BehindRow { lock: "x".into(), wait_ns: 1, holder: Some(1), holder_name: "x".into(), inside: Some("x".into()) }
}

pub fn holder_row() -> HolderRow {
    HolderRow {
        tid: 1,
        thread: "x".into(),
        site: "x".into(),
        since: 1.0,
        tsc: 1,
        hold_ns: 1,
        of_wait_ns: 1,
        unfinished: true,
        begin_unknown: true,
        end_unknown: true,
        off_cpu: Some(off_cpu()),
        inside: Some("x".into()),
        behind: vec![behind_row()],
    }
}

pub fn wait_row() -> WaitRow {
    WaitRow {
        at: 1.0,
        tsc: 1,
        process: 1,
        tid: 1,
        thread: "x".into(),
        lock: "x".into(),
        operation: "x",
        site: "x".into(),
        wait_ns: 1,
        result: 1,
        unfinished: true,
        free_ns: 1,
        off_cpu: Some(off_cpu()),
        ready_ns: Some(1),
        inside: Some("x".into()),
        holds: 1,
        held_ns: 1,
        overtaken: 1,
        overtaken_by_readers: 1,
        holders: vec![holder_row()],
        pattern: None,
    }
}

pub fn order_row() -> OrderRow {
    OrderRow {
        held: "x".into(),
        taken: "x".into(),
        count: 1,
        held_site: "x".into(),
        taken_site: "x".into(),
        tids: vec![1],
    }
}

pub fn cycle() -> Cycle {
    Cycle { edges: vec![order_row()], one_thread: true }
}

pub fn inversion() -> Inversion {
    Inversion {
        at: 1.0,
        tsc: 1,
        lock: "x".into(),
        wait_ns: 1,
        process: 1,
        tid: 1,
        thread: "x".into(),
        sched: "x".into(),
        site: "x".into(),
        holder: holder_row(),
        holder_sched: "x".into(),
        by_sched: Some("x".into()),
        inheritance_helps: true,
        why: "x",
    }
}

pub fn left_row() -> LeftRow {
    LeftRow {
        process: 1,
        tid: 1,
        thread: "x".into(),
        lock: "x".into(),
        site: "x".into(),
        since: 1.0,
        tsc: 1,
        waiting: true,
        since_unknown: true,
    }
}

pub fn thread_row() -> ThreadRow {
    ThreadRow { process: 1, tid: 1, name: "x".into(), sched: "x".into(), changes: vec![(1.0, "x".into())] }
}

pub fn total() -> Total {
    Total {
        calls: 1,
        failed: 1,
        ns: 1,
        mean_ns: 1,
        bytes: 1,
        bytes_at_least: true,
        copies: Some(1),
        submissions: 1,
        mutex_locks: 1,
        read_locks: 1,
        write_locks: 1,
        other_operations: 1,
        contended: 1,
        wait_ns: 1,
        off_cpu_ns: Some(1),
        held_ns: 1,
    }
}

pub fn element_row() -> ElementRow {
    ElementRow {
        lock: "x".into(),
        mode: "x",
        depth: 1,
        failed: true,
        again: true,
        times: 1.0,
        at_ns: 1,
        wait_ns: 1,
        hold_ns: 1,
    }
}

pub fn pattern_row() -> PatternRow {
    PatternRow { calls: 1, mean_ns: 1, locks: vec![element_row()] }
}

pub fn holds_others() -> HoldsOthers {
    HoldsOthers { p50_ns: 1, max_ns: 1, bytes: Some(1), with: "x", gpu: "x" }
}

pub fn call_row() -> CallRow {
    CallRow {
        call: "x".into(),
        kind: "x",
        direction: Some("x"),
        size: Some("x"),
        total: total(),
        p50_ns: 1,
        p99_ns: 1,
        max_ns: 1,
        histogram: vec![Step { from_ns: 1, count: 1 }],
        max_at: 1.0,
        max_tsc: 1,
        max_process: 1,
        max_tid: 1,
        python: Some(crate::commands::main_line()),
        holds_others: Some(holds_others()),
        patterns: vec![pattern_row()],
        other_patterns: 1,
    }
}

pub fn share_row() -> ShareRow {
    ShareRow { call: "x".into(), mutex_locks: 1, read_locks: 1, write_locks: 1, wait_ns: 1 }
}

pub fn shared_row() -> SharedRow {
    SharedRow { lock: "x".into(), wait_ns: 1, by: vec![share_row()] }
}

pub fn calls() -> Calls {
    Calls {
        waits_only: true,
        totals: [("*", total())].into(),
        calls: vec![call_row()],
        shared: vec![shared_row()],
        unfinished: 1,
        export_tables: Some(1),
        short: Some(1),
        cut: 1,
        symbols: symbols(),
    }
}

pub fn locks() -> Locks {
    Locks {
        recorded: true,
        waits_only: true,
        complete: true,
        incomplete_because: vec!["x".into()],
        operations: [("*", 1)].into(),
        contended: 1,
        lost_events: 1,
        switches: switches_row(),
        locks: vec![lock_row()],
        waits: vec![wait_row()],
        waits_seen: 1,
        cycles: vec![cycle()],
        order: vec![order_row()],
        inversions: vec![inversion()],
        real_time: true,
        left: vec![left_row()],
        threads: vec![thread_row()],
        calls: Some(calls()),
        symbols: symbols(),
        places: Places::default(),
    }
}

pub fn symbols() -> Symbols {
    Symbols([("*".to_owned(), symbol_row())].into())
}

pub fn symbol_row() -> SymbolRow {
    SymbolRow { name: Some("x".into()), file: Some("x".into()), line: Some(1), refused: Some("x") }
}

pub fn tolerance() -> Tolerance {
    Tolerance { percent: 1.0, floor: 1 }
}

pub fn lock_diff() -> LockDiff {
    LockDiff {
        change: Change::Same,
        name: "x".into(),
        moved_to: Some("x".into()),
        operations: [("*", (1, 1))].into(),
        attributes: (vec!["x"], vec!["x"]),
        all_operations: (1, 1),
        contended: (1, 1),
        wait_ns: (1, 1),
        longest_wait_ns: (1, 1),
        longest_hold_ns: (1, 1),
    }
}

pub fn order_diff() -> OrderDiff {
    OrderDiff { change: Change::Same, held: "x".into(), taken: "x".into(), count: (1, 1) }
}

pub fn call_diff() -> CallDiff {
    CallDiff {
        change: Change::Same,
        call: "x".into(),
        direction: Some("x"),
        size: Some("x"),
        count: (1, 1),
        mean_ns: (1, 1),
        max_ns: (1, 1),
        waited: (1, 1),
        pattern: Some((vec!["x".into()], vec!["x".into()])),
    }
}

pub fn diff() -> Diff {
    Diff {
        equal: true,
        tolerance: tolerance(),
        operations: (1, 1),
        contended: (1, 1),
        wait_ns: (1, 1),
        longest_wait_ns: (1, 1),
        locks: vec![lock_diff()],
        order: vec![order_diff()],
        calls: vec![call_diff()],
    }
}

pub fn use_row() -> UseRow {
    UseRow {
        at: 1.0,
        tsc: 1,
        process: 1,
        pid: 1,
        tid: 1,
        operation: "x",
        lock: "x".into(),
        address: 1,
        kind: vec!["x"],
        site: "x".into(),
        result: 1,
        wait_ns: 1,
        hold_ns: Some(1),
        held_at_least_ns: Some(1),
        ended: Some("x"),
        release_site: Some("x".into()),
        depth: Some(1),
        waited: Some((1, 1)),
        held: Some((1, 1)),
    }
}

pub fn one_call() -> OneCall {
    OneCall {
        at: 1.0,
        tsc: 1,
        process: 1,
        pid: 1,
        tid: 1,
        call: "x".into(),
        number: Some(1),
        kind: "x",
        ns: Some(1),
        result: Some(1),
        stream: 1,
        object: 1,
        size: 1,
        size_at_least: true,
        copies: Some(1),
        source: Some(1),
        site: "x".into(),
        inner: 1,
        python: vec![crate::commands::frame_row()],
        ranges: vec!["x".into()],
    }
}

pub fn one_switch() -> OneSwitch {
    OneSwitch { at: 1.0, tsc: 1, process: 1, pid: 1, tid: 1, cpu: 1, what: "x", other: Some(1), other_name: "x".into() }
}

pub fn one_range() -> OneRange {
    OneRange {
        at: 1.0,
        tsc: 1,
        process: 1,
        pid: 1,
        tid: 1,
        domain: Some("x".into()),
        text: "x".into(),
        style: "x",
        ns: Some(1),
        end_tid: Some(1),
        level: 1,
        payload: Some("1".into()),
        color: Some("x".into()),
        category: Some(1),
        all_threads: Some(range_work()),
    }
}
