//! One row for each copy and each launch, with when and where.

use crate::place::Place;
use crate::qmds::Shape;
use crate::recording::Recording;
use crate::walk::At;
use pushbuf::ops::{How, Layout, Op, Purpose, Semaphore, Space, Transfer, What};
use serde::Serialize;

/// Turns time stamps into seconds since the recording began.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: u64,
    hz: f64,
}

impl Clock {
    /// Counts from the first clock reading of the tape, or from its first event.
    pub fn of(r: &Recording) -> Clock {
        let hz = r.header().tsc_hz;
        let hz = if hz.is_finite() && hz > 0.0 { hz } else { 0.0 };
        Clock { zero: r.clocks().first().map_or_else(|| r.first_tsc().unwrap_or(0), |c| c.tsc), hz }
    }

    /// `None` if the tape does not say how fast its time stamps count.
    pub fn seconds(&self, tsc: u64) -> Option<f64> {
        (self.hz > 0.0).then(|| tsc.wrapping_sub(self.zero) as i64 as f64 / self.hz)
    }
}

/// When, by whom and on which channel something was submitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct When {
    /// Number of the submission, as in `--submissions`.
    pub submission: u64,
    pub tsc: u64,
    pub seconds: Option<f64>,
    pub tid: i32,
    pub slot: u32,
    pub generation: u32,
    pub engine: String,
}

impl When {
    pub fn of(at: &At<'_>, clock: &Clock) -> When {
        When {
            submission: at.number,
            tsc: at.submission.tsc,
            seconds: clock.seconds(at.submission.tsc),
            tid: at.submission.tid,
            slot: at.channel.slot,
            generation: at.channel.generation,
            engine: at.channel.engine.clone(),
        }
    }
}

/// How bytes were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    CopyEngine,
    /// The bytes came in the command stream.
    Inline,
    /// A pattern, by the copy engine.
    Fill,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::CopyEngine => "copy engine",
            Mode::Inline => "inline",
            Mode::Fill => "fill",
        }
    }
}

/// A copy, an inline write or a fill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CopyRow {
    #[serde(flatten)]
    pub when: When,
    pub mode: Mode,
    /// GPU virtual address; `None` where the bytes do not come from memory.
    pub src: Option<u64>,
    pub src_place: Option<Place>,
    pub dst: u64,
    pub dst_place: Place,
    pub bytes: u64,
    pub lines: u32,
    /// May overlap the copies before it.
    pub pipelined: bool,
    /// Both sides are linear in memory.
    pub pitch: bool,
    /// Address and payload of the semaphore that is released with it.
    pub semaphore: Option<u64>,
    pub payload: Option<u64>,
    /// Physical addresses, which only a privileged channel may use.
    pub physical: bool,
    /// All inline data is on the tape.
    pub complete: bool,
}

impl CopyRow {
    /// `None` for anything else, and for inline writes that are a launch's own.
    pub fn of(at: &At<'_>, op: &Op, clock: &Clock) -> Option<CopyRow> {
        let row = |mode, dst, bytes, lines, semaphore: Option<Semaphore>| CopyRow {
            when: When::of(at, clock),
            mode,
            src: None,
            src_place: None,
            dst,
            dst_place: at.place(dst),
            bytes,
            lines,
            pipelined: false,
            pitch: true,
            semaphore: semaphore.map(|s| s.address),
            payload: semaphore.map(|s| s.payload),
            physical: false,
            complete: true,
        };
        match &op.what {
            What::Copy(c) => Some(CopyRow {
                src: Some(c.src),
                src_place: Some(at.place(c.src)),
                pipelined: c.transfer == Transfer::Pipelined,
                pitch: c.src_layout == Layout::Pitch && c.dst_layout == Layout::Pitch,
                physical: c.src_space == Space::Physical || c.dst_space == Space::Physical,
                ..row(Mode::CopyEngine, c.dst, c.bytes(), c.line_count, c.semaphore)
            }),
            What::Fill(f) => Some(CopyRow {
                pipelined: f.transfer == Transfer::Pipelined,
                pitch: f.dst_layout == Layout::Pitch,
                physical: f.dst_space == Space::Physical,
                ..row(Mode::Fill, f.dst, f.bytes(), f.lines, f.semaphore)
            }),
            What::Inline(i) if i.purpose == Purpose::Data => Some(CopyRow {
                pitch: i.dst_layout == Layout::Pitch,
                complete: i.complete,
                ..row(Mode::Inline, i.dst, i.bytes(), i.line_count, i.semaphore)
            }),
            _ => None,
        }
    }
}

/// A kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchRow {
    #[serde(flatten)]
    pub when: When,
    /// `pcas` or `inline_qmd`.
    pub how: &'static str,
    pub qmd: u64,
    /// `None` if the QMD was never in the stream.
    pub shape: Option<Shape>,
    /// A QMD without blocks: it only orders or starts others.
    pub empty: bool,
    /// Launched before and not written since.
    pub again: bool,
}

impl LaunchRow {
    pub fn of(at: &At<'_>, op: &Op, clock: &Clock) -> Option<LaunchRow> {
        let What::Launch(l) = &op.what else { return None };
        let how = match l.how {
            How::InlineQmd => "inline_qmd",
            How::Pcas { .. } | How::Pcas2 { .. } => "pcas",
        };
        let started = at.started();
        let shape = started.and_then(|s| s.shape);
        Some(LaunchRow {
            when: When::of(at, clock),
            how,
            qmd: l.qmd_address,
            shape,
            empty: shape.is_some_and(|s| s.is_empty()),
            again: started.is_some_and(|s| s.again),
        })
    }
}
