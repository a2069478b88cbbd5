//! A value for each field: submissions, and the driver's objects.

use crate::locks::one_range;
use crate::summary::stream_kind;
use schema::Place;
use schema::driver_calls::{DriverCallCount, DriverCallRow, WithinCount};
use schema::graphs::{CounterRow, EdgeRow, GraphRow, GroupRow, NodeRow, RecipeRow, SentRow, StartRow};
use schema::histogram::Step;
use schema::kernel_runs::KernelRun;
use schema::kernel_times::{KernelTimes, LackingRow, Reason, State};
use schema::kernels::{CallCount, GpuTimes, KernelRow, Kernels, StreamRow};
use schema::objects::{MappingRow, ObjectRow, Objects};
use schema::operations::{CopyRow, GpuTime, InCall, LaunchRow, Mode, Ran, Shape, Start, When};
use schema::python::{FrameRow, FunctionRow, InterpreterRow, LineRow, MainLine, Python};
use schema::ranges::{EachRange, EachRow, RangeCounts, RangeParts, RangeRow, RangeWork, Ranges, Watched};
use schema::submissions::{CommandRow, EntryRow, SubmissionRow};

pub fn shape() -> Shape {
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

pub fn command_row() -> CommandRow {
    CommandRow {
        word: 1,
        class: Some(1),
        offset: Some(1),
        method: Some("x".into()),
        value: Some(1),
        words: Some(1),
        text: "x".into(),
        target: None,
        means: Vec::new(),
    }
}

pub fn entry_row() -> EntryRow {
    EntryRow {
        index: 1,
        seq: 1,
        gp: 1,
        gp_text: String::new(),
        va: 1,
        place: Place::Video,
        dwords: 1,
        recorded: 1,
        lack: Some("x"),
        late: true,
        after_gap: true,
        va_guessed: true,
        commands: vec![command_row()],
        means: Vec::new(),
    }
}

pub fn submission_row() -> SubmissionRow {
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
        ranges: vec!["x".into()],
        token: Some(1),
        seq: Some(1),
        put_from: Some(1),
        put_to: Some(1),
        trapped: true,
        handed_over: true,
        entries: vec![entry_row()],
        means: Vec::new(),
    }
}

pub fn when() -> When {
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
        ranges: vec!["x".into()],
    }
}

pub fn in_call() -> InCall {
    InCall { name: "x", number: 1, stream: 1, object: 1, python: Some(frame_row()) }
}

pub fn frame_row() -> FrameRow {
    FrameRow { file: "x".into(), line: Some(1), function: "x".into() }
}

pub fn python() -> Python {
    let row = LineRow {
        at: frame_row(),
        calls: 1,
        failed: 1,
        launches: 1,
        bytes: 1,
        ns: 1,
        mean_ns: 1,
        p50_ns: 1,
        p99_ns: 1,
        max_ns: 1,
        max_at: 1.0,
        functions: vec![FunctionRow { name: "x".into(), calls: 1 }],
        stacks: 1,
        stack: vec![frame_row()],
        deeper: true,
    };
    let interpreter = InterpreterRow { process: 1, pid: 1, version: "x".into(), read: true, why: "x" };
    Python { recorded: true, interpreters: vec![interpreter], lines: vec![row], without: 1, lost: 1, others: 1 }
}

pub fn copy_row() -> CopyRow {
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
        gpu: Some(gpu_time()),
        ran: Ran { tsc: Some([1, 1]), start_seconds: Some(1.0), end_seconds: Some(1.0) },
        complete: true,
        guessed: true,
    }
}

pub fn launch_row() -> LaunchRow {
    LaunchRow {
        when: when(),
        number: 1,
        how: "x",
        qmd: 1,
        shape: Some(shape()),
        empty: true,
        again: true,
        symbol: Some("x".into()),
        name: Some("x".into()),
        gpu: Some(gpu_time()),
        guessed: true,
    }
}

fn gpu_time() -> GpuTime {
    GpuTime { end_ns: 1, start_ns: 1, earliest_ns: 1, start: Start::Bounded, queued_ns: 1, clock_error_ns: 1 }
}

pub fn kernel_run() -> KernelRun {
    KernelRun {
        when: when(),
        launch: Some(1),
        symbol: Some("x".into()),
        name: Some("x".into()),
        code: 1,
        in_graph: true,
        shape: shape(),
        ran: Ran { tsc: Some([1, 1]), start_seconds: Some(1.0), end_seconds: Some(1.0) },
        gpu: gpu_time(),
    }
}

pub fn kernels() -> Kernels {
    let row = KernelRow {
        symbol: Some("x".into()),
        name: Some("x".into()),
        code: 1,
        launches: 1,
        in_graphs: Some(1),
        conditional: false,
        share: 1.0,
        shape: shape(),
        shape_launches: 1,
        shapes: 1,
        threads: 1,
        streams: 1,
        calls: vec![CallCount { name: "x", launches: 1 }],
        python: Some(main_line()),
        first_seconds: Some(1.0),
        last_seconds: Some(1.0),
        gpu: Some(GpuTimes { runs: 1, bounded: 1, total_ns: 1, shortest_ns: 1, longest_ns: 1, queued_ns: 1 }),
        gpu_histogram: vec![Step { from_ns: 1, count: 1 }],
    };
    let stream = StreamRow {
        process: 1,
        pid: 1,
        slot: 1,
        generation: 1,
        gpu: Some(1),
        engine: "x".into(),
        stream: Some(1),
        kind: Some(stream_kind()),
        runs: 1,
        bounded: 1,
        span_ns: 1,
        busy_ns: 1,
        share: 1.0,
        queued_ns: 1,
        gaps: 1,
        gaps_ns: 1,
        longest_gap_ns: 1,
    };
    Kernels {
        kernels: vec![row],
        without_qmd: 1,
        device_graphs: 1,
        device_parents: 50,
        unknown_graph_launches: 1,
        gpu_times: true,
        kernel_times: Some(vec![kernel_times()]),
        streams: vec![stream],
    }
}

pub fn kernel_times() -> KernelTimes {
    KernelTimes {
        process: 1,
        pid: 1,
        state: State::On,
        cuda_result: Some(1),
        kernels: 1,
        timed: 1,
        stamped: Some(1),
        ends: 1,
        lacking: vec![LackingRow::of(Reason::NotEnded, 1)],
    }
}

pub fn main_line() -> MainLine {
    let at = FrameRow { file: "x".into(), line: Some(1), function: "x".into() };
    MainLine { at, times: 1, others: 1 }
}

pub fn graph_row() -> GraphRow {
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

pub fn object_row() -> ObjectRow {
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
        text: "x".into(),
    }
}

pub fn mapping_row() -> MappingRow {
    MappingRow { process: 1, base: 1, length: 1, client: Some(1), handle: Some(1), offset: 1, place: Place::Video }
}

pub fn objects() -> Objects {
    Objects { objects: vec![object_row()], gpu_mappings: vec![mapping_row()] }
}

pub fn driver_call_row() -> DriverCallRow<'static> {
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

pub fn driver_call_count() -> DriverCallCount {
    DriverCallCount {
        what: "x".into(),
        calls: 1,
        failed: 1,
        ns: Some(1),
        mean_ns: Some(1),
        p50_ns: Some(1),
        p99_ns: Some(1),
        max_ns: Some(1),
        within: vec![WithinCount { call: "x".into(), driver_calls: 1 }],
    }
}

pub fn range_work() -> RangeWork {
    RangeWork { runs: 1, ns: 1, busy_ns: 1, copies: 1, copies_ns: 1, queued_ns: 1, idle_ns: 1, without_time: 1 }
}

fn range_counts() -> RangeCounts {
    RangeCounts {
        submissions: 1,
        launches: 1,
        copies: 1,
        copy_bytes: 1,
        calls: Some(1),
        calls_ns: Some(1),
        lock_waits: Some(1),
        lock_wait_ns: Some(1),
    }
}

pub fn each_range() -> EachRange {
    EachRange {
        watched: Watched { asked: true, connected: true, missed: true, seen: 1 },
        ranges: vec![EachRow {
            range: one_range(),
            counts: range_counts(),
            work: Some(range_work()),
            parts: Some(RangeParts { gpu_ns: 1, lock_ns: 1, queued_ns: 1, other_ns: 1, after_ns: 1 }),
        }],
        unfinished: 1,
        left_out: 1,
        not_counted: 1,
    }
}

pub fn ranges() -> Ranges {
    Ranges {
        watched: Watched { asked: true, connected: true, missed: true, seen: 1 },
        ranges: vec![RangeRow {
            domain: Some("x".into()),
            text: "x".into(),
            cut: true,
            style: "x",
            count: 1,
            unfinished: 1,
            ns: 1,
            mean_ns: 1,
            min_ns: 1,
            p50_ns: 1,
            p99_ns: 1,
            max_ns: 1,
            max_at: 1.0,
            max_tsc: 1,
            max_process: 1,
            max_tid: 1,
            threads: 1,
            counts: range_counts(),
            work: Some(range_work()),
            all_threads: Some(range_work()),
            color: Some("x".into()),
            category: Some(1),
        }],
        stray_ends: 1,
        left_out: 1,
    }
}
