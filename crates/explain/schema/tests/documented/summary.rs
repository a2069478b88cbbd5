//! A value for each field: rows about a recording as a whole.

use crate::commands::shape;
use schema::Place;
use schema::channel::{Accounted, Channel, Watch};
use schema::lines::RecordingRow;
use schema::now::{Now, NowCall, NowEdge, NowFrame, NowHolder, NowKernel, NowPath, NowStream, NowThread, NowWait};
use schema::now_ranks::{NowCollective, NowRank, NowRecorder};
use schema::processes::{HowEnded, ProcessRow, RankRow, UnwatchedRow};
use schema::ranges::Watched;
use schema::streams::StreamKind;
use schema::summary::{
    Bucket, Copies, Direction, FirstClock, LaunchShape, Launches, Lost, Page, Pauses, Problems, Program, RecordedBy,
    Saved, Semaphores, Site, SizeCount, Summary, Tap, Transfers, UnknownMethod,
};
use schema::top::{Top, TopWorst};
use tape::file::RecorderUse;

pub fn top() -> Top {
    let worst = || Some(TopWorst { name: "x".into(), pid: 1, tid: 1, thread: Some("x".into()), ms: 1.0 });
    Top {
        pid: 1,
        program: "x".into(),
        state: "x",
        seconds: 1.0,
        submissions_per_second: 1.0,
        kernels_per_second: 1.0,
        copies_per_second: 1.0,
        bytes_per_second: 1.0,
        calls_per_second: Some(1.0),
        worst_call: worst(),
        lock_waits_per_second: Some(1.0),
        worst_lock_wait: worst(),
        longest_wait: worst(),
        lost_events: 1,
        recorder_cpu_percent: 1.0,
        recorder_peak_memory_bytes: 1,
        processes: 1,
    }
}

pub fn program() -> Program {
    Program { exe: "x".into(), args: Some(vec!["x".into()]), pid: 1, started: "x".into() }
}

pub fn stream_kind() -> StreamKind {
    StreamKind { process: 1, stream: 1, priority: 1, green: true, sms: Some(1) }
}

pub fn tap() -> Tap {
    Tap { asked: "x".into(), trapped: 1, rewritten: 1, handed_over: 1, sites_patched: 1 }
}

pub fn lost() -> Lost {
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

pub fn direction() -> Direction {
    Direction {
        from: Some(Place::Video),
        from_gpu: Some(1),
        to: Place::Video,
        to_gpu: Some(1),
        count: 1,
        bytes: 1,
        timed: 1,
        timed_bytes: 1,
        gpu_ns: 1,
        longest_ns: 1,
    }
}

pub fn bucket() -> Bucket {
    Bucket { from: 1, to: 1, count: 1, bytes: 1 }
}

pub fn size_count() -> SizeCount {
    SizeCount { bytes: 1, count: 1 }
}

pub fn transfers() -> Transfers {
    Transfers {
        bytes: 1,
        by_place: vec![direction()],
        sizes: vec![bucket()],
        commonest_sizes: vec![size_count()],
        other_sizes: 1,
    }
}

pub fn copies() -> Copies {
    Copies {
        copy_engine: 1,
        copy_engine_detail: transfers(),
        inline: 1,
        inline_detail: transfers(),
        inline_for_launches: 1,
        inline_for_launches_bytes: 1,
    }
}

pub fn semaphores() -> Semaphores {
    Semaphores { released: 1, acquired: 1, timestamps: 1 }
}

pub fn launches() -> Launches {
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

pub fn launch_shape() -> LaunchShape {
    LaunchShape { shape: shape(), count: 1 }
}

pub fn channel() -> Channel {
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

pub fn unknown_method() -> UnknownMethod {
    UnknownMethod { class: 1, offset: 1, count: 1 }
}

pub fn problems() -> Problems {
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

pub fn site() -> Site {
    Site {
        process: 1,
        address: 1,
        module: "x".into(),
        offset: 1,
        patched: true,
        why: Some("x".into()),
        code: "x".into(),
    }
}

pub fn page() -> Page {
    Page { process: 1, address: 1, class: 1, handle: 1, tapped: true }
}

pub fn how_ended() -> HowEnded {
    HowEnded { how: "x".into(), exit_code: Some(1), signal: Some(1) }
}

pub fn rank_row() -> RankRow {
    RankRow { rank: 1, local_rank: Some(1), world_size: Some(1), launcher: "x".into() }
}

pub fn process_row() -> ProcessRow {
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

pub fn unwatched_row() -> UnwatchedRow {
    UnwatchedRow { pid: 1, parent: Some(1), path: "x".into(), why: "x".into(), seconds: Some(1.0) }
}

pub fn summary() -> Summary {
    Summary {
        program: program(),
        recorded_by: RecordedBy { doorbell: "x".into(), host: "x".into(), kernel: "x".into(), cpu: "x".into() },
        clock: Some(FirstClock { monotonic_ns: 1, realtime_ns: 1, error_ns: 1 }),
        children: "x".into(),
        nothing: Some("x".into()),
        driver: "x".into(),
        gpu: "x".into(),
        gpus: vec![1],
        cuda: Some("x".into()),
        tap: tap(),
        locks: Some("x".into()),
        seconds: Some(1.0),
        submissions: 1,
        doorbells: 1,
        entries: 1,
        complete: true,
        incomplete_because: vec!["x".into()],
        nvtx: Some(Watched { asked: true, connected: true, missed: true, seen: 1 }),
        kernel_times: Some(vec![crate::commands::kernel_times()]),
        saved: Some(Saved {
            reason: "x".into(),
            what: "x".into(),
            number: 1,
            seconds: 1.0,
            events: 1,
            bytes: 1,
            doorbells: 1,
            processes: 1,
            forgotten: 1,
        }),
        pauses: Some(Pauses { count: 1, seconds: 1.0, doorbells: 1 }),
        recorder: Some(RecorderUse {
            user_seconds: 1.0,
            system_seconds: 1.0,
            peak_memory_bytes: 1,
            late_seconds: 1.0,
            held_up_seconds: 1.0,
            longest_write_seconds: 1.0,
        }),
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
        streams: vec![stream_kind()],
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

pub fn recording_row() -> RecordingRow {
    RecordingRow {
        complete: true,
        incomplete_because: vec!["x".into()],
        lost: 1,
        lost_detail: lost(),
        clock_error_ns: Some(1),
    }
}

pub fn now() -> Now {
    let call = NowCall { name: "x".into(), ns: 1, stream: 1, object: 1 };
    let waits = NowWait {
        lock: "x".into(),
        kind: "mutex",
        site: "x".into(),
        ns: 1,
        has_limit: true,
        holders: vec![NowHolder { tid: 1, how: "holds", ns: Some(1) }],
        holder: "known",
    };
    let path = || NowPath { kind: "locks", text: "x".into(), tids: vec![1], streams: vec![1], end: "call", waiting: 1 };
    let collective = NowCollective { name: "x".into(), number: 1, stream: 1, ns: 1 };
    let rank = NowRank {
        rank: Some(1),
        pid: 1,
        program: "x".into(),
        state: "sleeping".into(),
        collectives: 1,
        behind: 1,
        collective: Some(collective),
        call: Some(call.clone()),
        tid: 1,
        does: "x".into(),
    };
    let recorder = NowRecorder { pid: 1, program: "x".into(), failure: Some("x".into()) };
    let stream = NowStream {
        kernel: "x".into(),
        there: Some(1),
        wanted: Some(1),
        streams: vec![1],
        tids: vec![1],
        ..NowStream::default()
    };
    let (function, source) = (Some("x".into()), Some("x.c:1".into()));
    let frame = NowFrame { place: "x+0x1".into(), function, source, certain: true };
    let thread = NowThread {
        pid: 1,
        tid: 1,
        thread: "x".into(),
        state: "sleeping".into(),
        system_call: Some("futex".into()),
        waits: Some(waits),
        joins: Some(1),
        call: Some(call),
        keeps_waiting: 1,
        stack: vec![frame],
        no_stack: Some("x".into()),
    };
    let kernel = NowKernel { pid: 1, name: "spin".into(), stream: 0x51, tid: 1, ns: 600_000_000, after: 3 };
    Now {
        kernels: vec![kernel],
        pid: 1,
        program: "x".into(),
        apart_ns: 1,
        answer: vec!["x".into()],
        cycles: vec![path()],
        chains: vec![path()],
        stopped: vec![1],
        threads: vec![thread],
        waits: vec![NowEdge::default()],
        streams: vec![stream],
        ranks: vec![rank],
        recorders: vec![recorder],
        looked_at: 1,
        short_waits: 1,
        python_lock_waits: 1,
        not_followed: vec!["x".into()],
    }
}
