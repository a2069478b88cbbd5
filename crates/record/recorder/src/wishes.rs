//! Requests of the user during a recording: by SIGUSR2, and at the control socket. They are looked at once a round.

use crate::control::messages::{Answer, Request, Status, parts};
use crate::control::{Ask, Control};
use crate::followed::Followed;
use crate::record::{Capture, Locks, Options};
use crate::signals::Signals;
use crate::usage;
use crate::writing::Piece;
use std::path::PathBuf;
use std::time::Instant;
use tape::event::pause_by;

pub struct Wishes<'a> {
    signals: &'a Signals,
    control: Control,
    about: About,
    /// The peer that switched recording on, and its process.
    attached: Option<(u64, i32)>,
}

/// Facts that do not change during a recording.
pub struct About {
    version: String,
    program: String,
    file: PathBuf,
    dormant: bool,
    parts: u32,
    begun: Instant,
    pid: i32,
    /// The signal that saves a flight recorder's memory, and its name.
    saves: Option<(i32, &'static str)>,
}

impl About {
    pub fn new(o: &Options, pid: i32) -> About {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        let name = o.command.first().map(|name| name.to_string_lossy().into_owned());
        About {
            version: o.version.into(),
            program: name.filter(|_| !o.no_args).unwrap_or_default(),
            file: std::path::absolute(&o.out).unwrap_or_else(|_| o.out.clone()),
            dormant: o.capture == Capture::Attach,
            parts: bit(o.calls || o.python, parts::CALLS)
                | bit(o.locks != Locks::Off, parts::LOCKS)
                | bit(o.gpu_times, parts::GPU_TIMES),
            begun: Instant::now(),
            pid,
            saves: o.last.as_ref().and_then(|last| last.signal),
        }
    }
}

impl<'a> Wishes<'a> {
    /// The program runs.
    pub fn new(signals: &'a Signals, mut control: Control, about: About) -> Wishes<'a> {
        control.open(about.pid);
        Wishes { signals, control, about, attached: None }
    }

    /// Why there is no socket.
    pub fn no_control(&self) -> Option<&str> {
        self.control.why_not()
    }

    pub fn look(&mut self, followed: &mut Followed) {
        if self.signals.toggled() {
            followed.toggle();
        }
        if let Some((_, name)) = self.about.saves.filter(|(signal, _)| self.signals.saves(*signal)) {
            // (No peer waits for the result. The end counts it.)
            let _ = followed.flight.as_ref().map(|flight| flight.save(name, ""));
        }
        while let Some(ask) = self.control.next() {
            self.answer(ask, followed);
        }
    }

    fn answer(&mut self, ask: Ask, followed: &mut Followed) {
        match &ask.request {
            Request::Status => {
                let status = Some(self.status(followed));
                ask.answer(Answer { status, ..Answer::ok() });
            }
            Request::Counters => {
                let counters = Some(followed.counters.asked());
                ask.answer(Answer { counters, ..Answer::ok() });
            }
            Request::Now => {
                let (live, details) = followed.live_rows();
                details.answer(live, ask);
            }
            Request::Stacks => crate::inspect::stacks::answer(&followed.live_rows().0, ask),
            Request::Pause => {
                if ask.reply.is_none() && self.attached.is_none_or(|(peer, _)| peer != ask.peer) {
                    return;
                }
                self.attached = None;
                followed.pause(true, pause_by::REQUEST);
                let answer = |written| ask.answer(Answer { written: Some(written), ..Answer::ok() });
                followed.out.send(Piece::OnceWritten(Box::new(answer)));
            }
            Request::Resume => {
                followed.pause(false, pause_by::REQUEST);
                ask.answer(Answer::ok());
            }
            Request::Attach(what) => match self.may_attach(*what, followed) {
                Ok(()) => {
                    self.attached = Some((ask.peer, ask.pid));
                    followed.pause(false, pause_by::REQUEST);
                    ask.answer(Answer::ok());
                }
                Err(why) => ask.answer(Answer::error(why)),
            },
            Request::Save(what) => match save(followed, what) {
                Ok(number) => ask.answer(Answer { save: Some(number), ..Answer::ok() }),
                Err(why) => ask.answer(Answer::error(why)),
            },
        }
    }

    fn may_attach(&self, what: u32, followed: &Followed) -> Result<(), String> {
        if let Some(why) = followed.out.progress.stopped() {
            return Err(format!("nothing more is recorded: {why}"));
        }
        if let Some((_, pid)) = self.attached {
            return Err(format!("process {pid} is attached already"));
        }
        if !followed.is_paused() {
            return Err(format!("it is being recorded already, into {}", self.about.file.display()));
        }
        let missing = parts::names(what & !self.about.parts);
        let Some(first) = missing.first() else { return Ok(()) };
        let options: Vec<String> = missing.iter().map(|name| format!("--{name}")).collect();
        Err(format!(
            "{first} cannot be switched on in a program that runs, because {}; start it with `doorbell record --dormant {} PROGRAM`",
            why_not(first),
            options.join(" ")
        ))
    }

    fn status(&self, followed: &Followed) -> Status {
        let About { version, program, file, dormant, parts: of, begun, pid, .. } = &self.about;
        let stopped = followed.out.progress.stopped().map(str::to_owned);
        let state = match (stopped.is_some(), followed.is_paused(), dormant) {
            (true, ..) => "stopped",
            (_, true, true) => "dormant",
            (_, true, _) => "paused",
            _ => "recording",
        };
        Status {
            doorbell: version.clone(),
            pid: *pid,
            recorder: std::process::id() as i32,
            program: program.clone(),
            file: file.to_string_lossy().into_owned(),
            state: state.into(),
            stopped,
            dormant: *dormant,
            parts: parts::names(*of),
            attached: self.attached.map(|(_, pid)| pid),
            seconds: begun.elapsed().as_secs_f64(),
            processes: followed.pids(),
            lost_events: followed.lost(),
            recorder_use: usage::now(followed.lateness.worst()),
            saved: followed.flight.as_ref().map(|flight| flight.schedule.so_far()),
        }
    }
}

/// Requests a file of the newest part. Returns the number of the request.
fn save(followed: &Followed, what: &str) -> Result<u64, String> {
    let why = if followed.cut.is_some() { "is in parts" } else { "keeps everything" };
    let nothing = || format!("this recording {why}: there is nothing to save");
    followed.flight.as_ref().ok_or_else(nothing)?.save("doorbell save", what)
}

/// Why a part must be requested at the start.
fn why_not(part: &str) -> &'static str {
    match part {
        "locks" => "the program's calls of pthread functions lead past doorbell by now",
        "calls" => "CUDA's functions are hooked when their libraries are loaded",
        _ => "the memory into which the GPU writes times is mapped at CUDA's start",
    }
}
