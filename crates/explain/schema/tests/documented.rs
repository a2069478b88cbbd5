//! Every key that is printed is documented, and every documented key is printed.
//!
//! The samples below have a value for each field, so that a new field does not compile before it stands here.

use schema::Place;
use schema::channel::{Accounted, Channel, Watch};
use schema::cuda_calls::{CallRow, Calls, ElementRow, PatternRow, ShareRow, SharedRow, Total};
use schema::diff::{CallDiff, Change, Diff, LockDiff, OrderDiff, Tolerance};
use schema::document::{Document, Kind};
use schema::driver_calls::DriverCallRow;
use schema::graphs::{CounterRow, EdgeRow, GraphRow, GroupRow, NodeRow, RecipeRow, SentRow, StartRow};
use schema::happened::{OneCall, OneSwitch};
use schema::kernels::{CallCount, KernelRow, Kernels};
use schema::lines::Line;
use schema::lines::RecordingRow;
use schema::lock_uses::UseRow;
use schema::locks::{
    BehindRow, Cycle, HolderRow, Inversion, LeftRow, LockRow, Locks, OffCpu, OrderRow, SwitchesRow, ThreadRow, WaitRow,
};
use schema::objects::{MappingRow, ObjectRow, Objects};
use schema::operations::{CopyRow, InCall, LaunchRow, Mode, Shape, When};
use schema::processes::{HowEnded, ProcessRow, RankRow, UnwatchedRow};
use schema::submissions::{CommandRow, EntryRow, SubmissionRow};
use schema::summary::{
    Bucket, Copies, Direction, LaunchShape, Launches, Lost, Page, Pauses, Problems, Program, Semaphores, Site,
    SizeCount, Summary, Tap, Transfers, UnknownMethod,
};
use schema::symbols::{Places, SymbolRow, Symbols};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

const REFERENCE: &str = include_str!("../../../../docs/reference/json.md");

/// The keys of a section of the reference.
fn documented(section: &str) -> BTreeSet<String> {
    let from = REFERENCE.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let body = &REFERENCE[from + 1..];
    let body = &body[..body.find("\n## ").unwrap_or(body.len())];
    let mut all = BTreeSet::new();
    for (key, meaning) in body.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`')) {
        all.insert(key.trim_end_matches("[]").to_owned());
        // `as [channel](#channel)`: the keys of that section.
        if let Some((_, rest)) = meaning.split_once("as [")
            && let Some((other, _)) = rest.split_once("](#")
        {
            all.extend(documented(other).iter().filter(|k| *k != "schema").map(|k| format!("{key}.{k}")));
        }
    }
    all
}

fn keys(v: &Value, prefix: &str, into: &mut BTreeSet<String>) {
    let Value::Object(map) = v else { return };
    for (k, v) in map {
        let path = format!("{prefix}{k}");
        if k != "*" {
            into.insert(path.clone());
        }
        keys(v, &format!("{path}."), into);
        for element in v.as_array().into_iter().flatten() {
            keys(element, &format!("{path}[]."), into);
        }
    }
}

fn printed(v: &impl Serialize) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    keys(&serde_json::to_value(v).unwrap(), "", &mut all);
    all
}

fn same(section: &str, v: &impl Serialize) {
    let (documented, printed) = (documented(section), printed(v));
    let missing: Vec<_> = printed.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&printed).collect();
    assert!(missing.is_empty() && gone.is_empty(), "{section}: not documented {missing:?}, not printed {gone:?}");
}

fn document<T: Kind>(section: &str, v: &T) {
    same(section, &Document::of(v));
    assert!(REFERENCE.contains(&format!("`{}`", T::SCHEMA)), "{}", T::SCHEMA);
}

#[test]
fn documented_keys_are_the_printed_ones() {
    document("summary", &summary());
    same("submission", &submission_row());
    same("copy", &copy_row());
    same("launch", &launch_row());
    same("kernels", &kernels());
    same("graph", &graph_row());
    same("channel", &channel());
    document("objects", &objects());
    document("locks", &locks());
    document("calls", &calls());
    document("diff", &diff());
    same("call", &driver_call_row());
    same("lock", &use_row());
    same("cuda_call", &one_call());
    same("switch", &one_switch());
    let Value::Object(mut symbol) = serde_json::to_value(Line::Symbol { place: "x", symbol: &symbol_row() }).unwrap()
    else {
        panic!()
    };
    symbol.remove("type");
    same("symbol", &symbol);
    same("recording", &recording_row());
    assert!(REFERENCE.contains(<tape::file::Header as Kind>::SCHEMA));
}

#[test]
fn what_may_exceed_2_to_the_53_is_a_string() {
    let mut s = submission_row();
    (s.tsc, s.entries[0].gp) = (u64::MAX, u64::MAX);
    let v = serde_json::to_value(&s).unwrap();
    assert_eq!((&v["tsc"], &v["entries"][0]["gp"]), (&"18446744073709551615".into(), &"0xffffffffffffffff".into()));
    let mut c = copy_row();
    c.payload = None;
    assert!(serde_json::to_value(&c).unwrap()["payload"].is_null());
    assert_eq!(serde_json::to_value(wait_row()).unwrap()["tsc"], "1");
}

fn program() -> Program {
    Program { exe: "x".into(), args: Some(vec!["x".into()]), pid: 1, started: "x".into() }
}

fn tap() -> Tap {
    Tap { asked: "x".into(), trapped: 1, rewritten: 1, handed_over: 1, sites_patched: 1 }
}

fn lost() -> Lost {
    Lost {
        by_channels: 1,
        by_gaps: 1,
        gap_events: 1,
        gap_bytes: 1,
        channels_unaccounted: 1,
        rings_missing: 1,
        blind_rings: 1,
        unrung: 1,
        strangers: 1,
    }
}

fn direction() -> Direction {
    Direction { from: Some(Place::Video), from_gpu: Some(1), to: Place::Video, to_gpu: Some(1), count: 1, bytes: 1 }
}

fn bucket() -> Bucket {
    Bucket { from: 1, to: 1, count: 1, bytes: 1 }
}

fn size_count() -> SizeCount {
    SizeCount { bytes: 1, count: 1 }
}

fn transfers() -> Transfers {
    Transfers {
        bytes: 1,
        by_place: vec![direction()],
        sizes: vec![bucket()],
        commonest_sizes: vec![size_count()],
        other_sizes: 1,
    }
}

fn copies() -> Copies {
    Copies {
        copy_engine: 1,
        copy_engine_detail: transfers(),
        inline: 1,
        inline_detail: transfers(),
        inline_for_launches: 1,
        inline_for_launches_bytes: 1,
    }
}

fn semaphores() -> Semaphores {
    Semaphores { released: 1, acquired: 1, timestamps: 1 }
}

fn launches() -> Launches {
    Launches {
        by_pcas: 1,
        by_inline_qmd: 1,
        empty: 1,
        again: 1,
        without_qmd: 1,
        programs: 1,
        shapes: 1,
        not_told_apart: 1,
    }
}

fn shape() -> Shape {
    Shape {
        grid: [1; 3],
        block: [1; 3],
        cluster: Some([1; 3]),
        registers: 1,
        shared_memory: 1,
        program: 1,
        kernel: Some(1),
    }
}

fn launch_shape() -> LaunchShape {
    LaunchShape { shape: shape(), count: 1 }
}

fn channel() -> Channel {
    Channel {
        number: 1,
        process: 1,
        pid: 1,
        slot: 1,
        generation: 1,
        client: 1,
        handle: 1,
        class: 1,
        class_name: "x".into(),
        gpu: Some(1),
        engine: "x".into(),
        runlist: Some(1),
        chid: Some(1),
        token: Some(1),
        ring_entries: 1,
        gpfifo: 1,
        gpfifo_place: Place::Video,
        userd_place: Place::Video,
        pushbuffer_place: Place::Video,
        watch: Watch::Direct,
        rings: 1,
        submissions: 1,
        entries: 1,
        command_bytes: 1,
        accounted: 1,
        accounted_by: Accounted::End,
        lost: 1,
        surplus: 1,
        unrung: 1,
        rings_missing: 1,
        freed: true,
        announced: true,
    }
}

fn unknown_method() -> UnknownMethod {
    UnknownMethod { class: 1, offset: 1, count: 1 }
}

fn problems() -> Problems {
    Problems {
        unknown_methods: vec![unknown_method()],
        bad_headers: 1,
        skipped_words: 1,
        unmapped_segments: 1,
        unmapped_bytes: 1,
        cut_segments: 1,
        torn_segments: 1,
        late_segments: 1,
        uncopied_segments: 1,
        holes: 1,
        guessed: 1,
        unknown_events: 1,
        stray_bytes: 1,
        late_rings: 1,
    }
}

fn site() -> Site {
    Site { process: 1, address: 1, module: "x".into(), offset: 1, patched: true, why: Some("x"), code: "x".into() }
}

fn page() -> Page {
    Page { process: 1, address: 1, class: 1, handle: 1, tapped: true }
}

fn how_ended() -> HowEnded {
    HowEnded { how: "x".into(), exit_code: Some(1), signal: Some(1) }
}

fn rank_row() -> RankRow {
    RankRow { rank: 1, local_rank: Some(1), world_size: Some(1), launcher: "x".into() }
}

fn process_row() -> ProcessRow {
    ProcessRow {
        index: 1,
        pid: 1,
        ppid: 1,
        parent: Some(1),
        image: 1,
        exe: "x".into(),
        args: Some(vec!["x".into()]),
        rank: Some(rank_row()),
        began: Some(1.0),
        end: Some(how_ended()),
        complete: true,
        incomplete_because: vec!["x".into()],
        doorbells: 1,
        submissions: 1,
        entries: 1,
        lost: 1,
        copies: 1,
        launches: 1,
        channels: 1,
        driver_calls: 1,
    }
}

fn unwatched_row() -> UnwatchedRow {
    UnwatchedRow { pid: 1, parent: Some(1), path: "x".into(), why: "x".into(), seconds: Some(1.0) }
}

fn summary() -> Summary {
    Summary {
        program: program(),
        children: "x",
        nothing: Some("x"),
        driver: "x".into(),
        gpu: "x".into(),
        gpus: vec![1],
        cuda: Some("x".into()),
        tap: tap(),
        seconds: Some(1.0),
        submissions: 1,
        doorbells: 1,
        entries: 1,
        complete: true,
        incomplete_because: vec!["x".into()],
        pauses: Some(Pauses { count: 1, seconds: 1.0, doorbells: 1 }),
        lost: 1,
        lost_detail: lost(),
        command_bytes: 1,
        command_bytes_recorded: 1,
        copies: copies(),
        fills: 1,
        fill_bytes: 1,
        semaphores: semaphores(),
        launches: 1,
        launch_detail: launches(),
        launch_shapes: vec![launch_shape()],
        channels: 1,
        channel_list: vec![channel()],
        problems: problems(),
        sites: vec![site()],
        pages: vec![page()],
        notes: vec!["x".into()],
        trouble: vec!["x".into()],
        end: Some(how_ended()),
        driver_calls: 1,
        processes: vec![process_row()],
        unwatched: vec![unwatched_row()],
        damage: Some("x".into()),
    }
}

fn command_row() -> CommandRow {
    CommandRow {
        word: 1,
        class: Some(1),
        offset: Some(1),
        method: Some("x".into()),
        value: Some(1),
        words: Some(1),
        text: "x".into(),
    }
}

fn entry_row() -> EntryRow {
    EntryRow {
        index: 1,
        seq: 1,
        gp: 1,
        va: 1,
        place: Place::Video,
        dwords: 1,
        recorded: 1,
        lack: Some("x"),
        late: true,
        after_gap: true,
        va_guessed: true,
        commands: vec![command_row()],
    }
}

fn submission_row() -> SubmissionRow {
    SubmissionRow {
        number: 1,
        tsc: 1,
        seconds: Some(1.0),
        process: 1,
        pid: 1,
        tid: 1,
        slot: 1,
        generation: 1,
        engine: "x".into(),
        call: Some(in_call()),
        token: Some(1),
        seq: Some(1),
        put_from: Some(1),
        put_to: Some(1),
        trapped: true,
        handed_over: true,
        entries: vec![entry_row()],
    }
}

fn when() -> When {
    When {
        submission: 1,
        tsc: 1,
        seconds: Some(1.0),
        process: 1,
        pid: 1,
        tid: 1,
        slot: 1,
        generation: 1,
        engine: "x".into(),
        call: Some(in_call()),
    }
}

fn in_call() -> InCall {
    InCall { name: "x", number: 1, stream: 1, object: 1 }
}

fn copy_row() -> CopyRow {
    CopyRow {
        when: when(),
        mode: Mode::Inline,
        src: Some(1),
        src_place: Some(Place::Video),
        src_gpu: Some(1),
        dst: 1,
        dst_place: Place::Video,
        dst_gpu: Some(1),
        bytes: 1,
        lines: 1,
        pipelined: true,
        pitch: true,
        semaphore: Some(1),
        payload: Some(1),
        physical: true,
        complete: true,
        guessed: true,
    }
}

fn launch_row() -> LaunchRow {
    LaunchRow {
        when: when(),
        how: "x",
        qmd: 1,
        shape: Some(shape()),
        empty: true,
        again: true,
        symbol: Some("x".into()),
        name: Some("x".into()),
        guessed: true,
    }
}

fn kernels() -> Kernels {
    let row = KernelRow {
        symbol: Some("x".into()),
        name: Some("x".into()),
        code: 1,
        launches: 1,
        in_graphs: Some(1),
        share: 1.0,
        shape: shape(),
        shape_launches: 1,
        shapes: 1,
        threads: 1,
        streams: 1,
        calls: vec![CallCount { name: "x", launches: 1 }],
        first_seconds: Some(1.0),
        last_seconds: Some(1.0),
    };
    Kernels { kernels: vec![row], without_qmd: 1, unknown_graph_launches: 1 }
}

fn graph_row() -> GraphRow {
    let node = NodeRow {
        kind: "x",
        group: 1,
        address: 1,
        bytes: Some(1),
        value: Some(1),
        shape: Some(shape()),
        symbol: Some("x".into()),
        name: Some("x".into()),
        bank: Some(1),
        bank_bytes: Some(1),
        parameter_bytes: Some(1),
    };
    let start = StartRow { node: 1, action: Some("x") };
    let recipe = RecipeRow {
        kernels: 1,
        has_data: true,
        upload_words: Some(1),
        relaunch_words: Some(1),
        references: 1,
        foreign: 1,
        nodes: vec![node],
        edges: vec![EdgeRow { from: 1, to: 1, by: "x", action: Some("x") }],
        groups: vec![GroupRow { channel: 1, waits: vec!["x"], starts: vec![start], nodes: 1 }],
        counters: vec![CounterRow { address: 1, nodes: vec![1], step: Some(1) }],
    };
    GraphRow {
        submission: 1,
        seconds: Some(1.0),
        process: 1,
        pid: 1,
        tid: 1,
        slot: 1,
        generation: 1,
        uploaded_by: Some(1),
        launches: 1,
        upload: Some(SentRow { submissions: 1, words: 1 }),
        launch: SentRow { submissions: 1, words: 1 },
        refused: Some("x".into()),
        recipe: Some(recipe),
    }
}

fn object_row() -> ObjectRow {
    ObjectRow {
        process: 1,
        client: 1,
        handle: 1,
        parent: 1,
        class: 1,
        class_name: "x".into(),
        detail: "x".into(),
        depth: 1,
        freed: true,
    }
}

fn mapping_row() -> MappingRow {
    MappingRow { process: 1, base: 1, length: 1, client: Some(1), handle: Some(1), offset: 1, place: Place::Video }
}

fn objects() -> Objects {
    Objects { objects: vec![object_row()], gpu_mappings: vec![mapping_row()] }
}

fn switches_row() -> SwitchesRow {
    SwitchesRow { scope: "x", reason: "x".into(), count: 1, lost: 1 }
}

fn off_cpu() -> OffCpu {
    OffCpu { off_ns: 1, preempted_ns: 1, by_tid: Some(1), by: "x".into(), by_ns: 1 }
}

fn lock_row() -> LockRow {
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
        hold_ns: 1,
        longest_hold_ns: 1,
        longest_hold_site: Some("x".into()),
        longest_hold_process: Some(1),
        longest_hold_tid: Some(1),
        longest_hold_inside: Some("x".into()),
        longest_hold_off_cpu: Some(off_cpu()),
        foreign_unlocks: 1,
    }
}

fn behind_row() -> BehindRow {
    BehindRow { lock: "x".into(), wait_ns: 1, holder: Some(1), holder_name: "x".into(), inside: Some("x".into()) }
}

fn holder_row() -> HolderRow {
    HolderRow {
        tid: 1,
        thread: "x".into(),
        site: "x".into(),
        since: 1.0,
        tsc: 1,
        hold_ns: 1,
        of_wait_ns: 1,
        unfinished: true,
        off_cpu: Some(off_cpu()),
        inside: Some("x".into()),
        behind: vec![behind_row()],
    }
}

fn wait_row() -> WaitRow {
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
    }
}

fn order_row() -> OrderRow {
    OrderRow {
        held: "x".into(),
        taken: "x".into(),
        count: 1,
        held_site: "x".into(),
        taken_site: "x".into(),
        tids: vec![1],
    }
}

fn cycle() -> Cycle {
    Cycle { edges: vec![order_row()], one_thread: true }
}

fn inversion() -> Inversion {
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

fn left_row() -> LeftRow {
    LeftRow {
        process: 1,
        tid: 1,
        thread: "x".into(),
        lock: "x".into(),
        site: "x".into(),
        since: 1.0,
        tsc: 1,
        waiting: true,
    }
}

fn thread_row() -> ThreadRow {
    ThreadRow { process: 1, tid: 1, name: "x".into(), sched: "x".into(), changes: vec![(1.0, "x".into())] }
}

fn total() -> Total {
    Total {
        calls: 1,
        failed: 1,
        ns: 1,
        mean_ns: 1,
        bytes: 1,
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

fn element_row() -> ElementRow {
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

fn pattern_row() -> PatternRow {
    PatternRow { calls: 1, mean_ns: 1, locks: vec![element_row()] }
}

fn call_row() -> CallRow {
    CallRow {
        call: "x".into(),
        kind: "x",
        direction: Some("x"),
        size: Some("x"),
        total: total(),
        p50_ns: 1,
        p99_ns: 1,
        max_ns: 1,
        max_at: 1.0,
        max_tsc: 1,
        max_process: 1,
        max_tid: 1,
        patterns: vec![pattern_row()],
        other_patterns: 1,
    }
}

fn share_row() -> ShareRow {
    ShareRow { call: "x".into(), mutex_locks: 1, read_locks: 1, write_locks: 1, wait_ns: 1 }
}

fn shared_row() -> SharedRow {
    SharedRow { lock: "x".into(), wait_ns: 1, by: vec![share_row()] }
}

fn calls() -> Calls {
    Calls {
        totals: [("*", total())].into(),
        calls: vec![call_row()],
        shared: vec![shared_row()],
        unfinished: 1,
        cut: 1,
        symbols: symbols(),
    }
}

fn locks() -> Locks {
    Locks {
        recorded: true,
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

fn symbols() -> Symbols {
    Symbols([("*".to_owned(), symbol_row())].into())
}

fn symbol_row() -> SymbolRow {
    SymbolRow { name: Some("x".into()), file: Some("x".into()), line: Some(1), refused: Some("x") }
}

fn tolerance() -> Tolerance {
    Tolerance { percent: 1.0, floor: 1 }
}

fn lock_diff() -> LockDiff {
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

fn order_diff() -> OrderDiff {
    OrderDiff { change: Change::Same, held: "x".into(), taken: "x".into(), count: (1, 1) }
}

fn call_diff() -> CallDiff {
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

fn diff() -> Diff {
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

fn driver_call_row() -> DriverCallRow<'static> {
    DriverCallRow {
        call: "x",
        tsc: 1,
        seconds: Some(1.0),
        process: 1,
        pid: 1,
        tid: 1,
        file: Some("x".into()),
        fd: Some(1),
        what: Some("x".into()),
        request: Some(1),
        ret: Some(1),
        status: Some(1),
        status_name: Some("x"),
        ticks: Some(1),
        address: Some(1),
        length: Some(1),
        path: Some("x".into()),
    }
}

fn use_row() -> UseRow {
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
        ended: Some("x"),
        release_site: Some("x".into()),
        depth: Some(1),
        waited: Some((1, 1)),
        held: Some((1, 1)),
    }
}

fn one_call() -> OneCall {
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
        site: "x".into(),
        inner: 1,
    }
}

fn recording_row() -> RecordingRow {
    RecordingRow {
        complete: true,
        incomplete_because: vec!["x".into()],
        lost: 1,
        lost_detail: lost(),
        clock_error_ns: Some(1),
    }
}

fn one_switch() -> OneSwitch {
    OneSwitch { at: 1.0, tsc: 1, process: 1, pid: 1, tid: 1, cpu: 1, what: "x", other: Some(1), other_name: "x".into() }
}
