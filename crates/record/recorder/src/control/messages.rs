//! The protocol of the control socket: a request is a line of words, its answer a line of JSON.

use crate::counters::Counts;
use serde::{Deserialize, Serialize};
use tape::file::RecorderUse;
use tape::live::{Live, LiveStack};

/// Maximum bytes of a request, with its newline.
pub const LINE: usize = 4096;

/// A peer's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// What is recorded, and the state of the recording.
    Status,
    /// Record only driver calls from now on.
    Pause,
    /// Record everything again.
    Resume,
    /// As `Resume`, until the peer sends `Pause` or is gone. The parts to record, as bits of [`parts`].
    Attach(u32),
    /// The sums of counted events: [`Counts`].
    Counters,
    /// What all threads do at this moment: [`Live`].
    Now,
    /// Where all threads are, with the calls that led there: [`LiveStack`].
    Stacks,
    /// Save the events that a flight recorder holds, for this reason.
    Save(String),
}

/// Parts of a program that can be recorded in addition to its commands.
pub mod parts {
    pub const CALLS: u32 = 1;
    pub const LOCKS: u32 = 2;
    pub const GPU_TIMES: u32 = 4;
    /// Each part's bit and name. The option has the same name.
    pub const NAMES: [(u32, &str); 3] = [(CALLS, "calls"), (LOCKS, "locks"), (GPU_TIMES, "gpu-times")];

    /// `calls,locks`; empty for no part.
    pub fn names(of: u32) -> Vec<String> {
        NAMES.iter().filter(|(bit, _)| of & bit != 0).map(|(_, name)| (*name).to_owned()).collect()
    }

    /// # Errors
    /// The unknown name.
    pub fn read(text: &str) -> Result<u32, String> {
        let bit = |name: &str| NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit).ok_or(name.to_owned());
        text.split(',').filter(|name| !name.is_empty()).try_fold(0, |all, name| Ok(all | bit(name)?))
    }
}

impl Request {
    /// # Errors
    /// What is wrong, as text for the peer.
    pub fn read(line: &[u8]) -> Result<Request, String> {
        let text = std::str::from_utf8(line).map_err(|_| "a request is a line of UTF-8".to_owned())?.trim();
        let (verb, rest) = text.split_once(' ').map_or((text, ""), |(verb, rest)| (verb, rest.trim()));
        match (verb, rest) {
            ("status", "") => Ok(Request::Status),
            ("pause", "") => Ok(Request::Pause),
            ("resume", "") => Ok(Request::Resume),
            ("counters", "") => Ok(Request::Counters),
            ("now", "") => Ok(Request::Now),
            ("stacks", "") => Ok(Request::Stacks),
            ("attach", what) => Ok(Request::Attach(parts::read(what).map_err(|name| format!("no part `{name}`"))?)),
            ("save", reason) => Ok(Request::Save(reason.to_owned())),
            _ => Err(
                "requests: status, pause, resume, attach [calls,locks,gpu-times], counters, now, stacks, save [REASON]"
                    .to_owned(),
            ),
        }
    }

    /// As [`Request::read`] reads it, with its newline.
    pub fn line(&self) -> String {
        match self {
            Request::Status => "status\n".into(),
            Request::Pause => "pause\n".into(),
            Request::Resume => "resume\n".into(),
            Request::Counters => "counters\n".into(),
            Request::Now => "now\n".into(),
            Request::Stacks => "stacks\n".into(),
            Request::Attach(what) => format!("attach {}\n", parts::names(*what).join(",")),
            Request::Save(reason) => format!("save {}\n", reason.replace('\n', " ")),
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Live>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Vec<LiveStack>>,
    /// For `pause`: the file holds all events from before it, in this many bytes and chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// For `save`: the request's number, which finds its result in [`SavedSoFar::requests`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save: Option<u64>,
}

impl Answer {
    pub fn ok() -> Answer {
        Answer { ok: true, ..Answer::default() }
    }

    pub fn error(why: impl Into<String>) -> Answer {
        Answer { error: Some(why.into()), ..Answer::default() }
    }
}

/// How much of a file is written, in whole chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    pub bytes: u64,
    pub chunks: u64,
}

/// What is recorded, and the state of the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// doorbell's version.
    pub doorbell: String,
    /// The program that was started, and its recorder.
    pub pid: i32,
    pub recorder: i32,
    /// Empty with `--no-args`.
    pub program: String,
    /// The recording, an absolute path.
    pub file: String,
    /// `recording`, `paused` (by a request or by SIGUSR2: only driver calls), `dormant` (paused until a peer attaches), or `stopped` (no more events are
    /// written: the disk is full, or the size limit was reached).
    pub state: String,
    /// Why it has stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Started with `--dormant`.
    pub dormant: bool,
    /// Parts of the program that can be recorded in addition to its commands: `calls`, `locks`, `gpu-times`.
    pub parts: Vec<String>,
    /// The process that switched recording on. Recording is switched off when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<i32>,
    /// Since the recording began.
    pub seconds: f64,
    /// Processes that are recorded.
    pub processes: Vec<i32>,
    /// Events that did not fit into the rings so far.
    pub lost_events: u64,
    /// What the recorder has used.
    pub recorder_use: RecorderUse,
    /// Files that a flight recorder has saved; absent from other recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedSoFar>,
}

/// Files of a flight recorder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedSoFar {
    pub files: u64,
    /// The latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// Saves that failed: how many, and why the first one did.
    pub failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The results of the latest `save` requests.
    pub requests: Vec<SaveResult>,
}

/// The result of a `save` request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SaveResult {
    /// The number in the answer to the request.
    pub number: u64,
    /// An absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why there is no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::file::Rank;
    use tape::live::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for r in [
            Request::Status,
            Request::Pause,
            Request::Resume,
            Request::Counters,
            Request::Now,
            Request::Stacks,
            Request::Attach(0),
            Request::Attach(parts::CALLS | parts::GPU_TIMES),
            Request::Save(String::new()),
            Request::Save("a slow call".into()),
        ] {
            assert_eq!(Request::read(r.line().as_bytes()).as_ref(), Ok(&r));
        }
        for line in [&b"status now"[..], b"", b"\xff", b"attach calls,everything", b"delete"] {
            assert!(Request::read(line).is_err(), "{line:?}");
        }
        let two_lines = Request::Save("a\nb".into()).line();
        assert_eq!(two_lines.lines().count(), 1, "one request a line");
    }

    const REFERENCE: &str = include_str!("../../../../../docs/reference/control-socket.md");

    fn keys(v: &serde_json::Value, prefix: &str, into: &mut Vec<String>) {
        if let Some(first) = v.as_array().and_then(|all| all.first()) {
            keys(first, prefix, into);
        }
        for (k, v) in v.as_object().into_iter().flatten() {
            into.push(format!("{prefix}{k}"));
            keys(v, &format!("{prefix}{k}."), into);
        }
    }

    #[test]
    fn each_key_is_documented_and_each_documented_one_is_sent() {
        let worst = Some(crate::counters::Worst::default());
        let some = || Some(String::new());
        let requests = vec![SaveResult { number: 1, file: some(), failure: some() }];
        let saved = SavedSoFar { latest: some(), failure: some(), requests, ..SavedSoFar::default() };
        let other = LiveOther { name: "x".into(), tids: vec![1], ..LiveOther::default() };
        let on = LiveOn {
            name: "x".into(),
            to: "x".into(),
            address: Some(1),
            value: Some(1),
            expected: Some(1),
            place: Some(LivePlace::default()),
            barrier: Some(LiveBarrier::default()),
            request: Some(1),
            wchan: "x".into(),
            others: vec![other.clone()],
            ..LiveOn::default()
        };
        let thread = LiveThread {
            name: "x".into(),
            system_call: some(),
            sleeps: 1,
            joins: Some(1),
            on: vec![on],
            host_function: Some(1),
            call: Some(LiveCall::default()),
            waits: Some(LiveHold::default()),
            holds: vec![LiveHold::default()],
            ..LiveThread::default()
        };
        let work = LiveWork { value: 1, how: 1, there: Some(1), name: "x".into(), ..LiveWork::default() };
        let process = LiveProcess {
            name: "x".into(),
            ended: Some(LiveEnd { exit_code: Some(1), signal: Some(1), ..LiveEnd::default() }),
            tracer: Some(other),
            threads: vec![thread],
            locks: vec![LiveLock::default()],
            python: vec![LiveGil::default()],
            streams: vec![LiveStream { work: vec![work], ..LiveStream::default() }],
            collectives: vec![LiveCollectives { name: "x".into(), ..LiveCollectives::default() }],
            rank: Some(Rank::default()),
            channels: vec![LiveChannel::default()],
            polls: vec![LivePoll::default()],
            signals: vec![LiveSignal::default()],
            shares: vec![LiveShared::default()],
            pipes: vec![LivePipe::default()],
            ..LiveProcess::default()
        };
        let stack = LiveStack { frames: vec![LiveFrame::default()], lacks: some(), ..LiveStack::default() };
        let now = Live { processes: vec![process], ..Live::default() };
        let all = Answer {
            error: Some(String::new()),
            status: Some(Status {
                stopped: Some(String::new()),
                attached: Some(1),
                saved: Some(saved),
                ..Status::default()
            }),
            counters: Some(Counts { worst_call: worst.clone(), worst_lock_wait: worst, ..Counts::default() }),
            now: Some(now),
            stacks: Some(vec![stack]),
            written: Some(Written::default()),
            save: Some(1),
            ..Answer::ok()
        };
        let mut sent = Vec::new();
        keys(&serde_json::to_value(all).unwrap(), "", &mut sent);
        let answers = &REFERENCE[REFERENCE.find("## Answers").unwrap()..];
        let mut documented: Vec<&str> =
            answers.lines().filter_map(|l| Some(l.strip_prefix("| `")?.split_once('`')?.0)).collect();
        sent.sort_unstable();
        documented.sort_unstable();
        assert_eq!(documented, sent);
        let requests = &REFERENCE[..REFERENCE.len() - answers.len()];
        for verb in ["status", "pause", "resume", "attach", "counters", "now", "stacks", "save"] {
            assert!(requests.contains(&format!("\n| `{verb}")), "{verb}");
        }
    }

    #[test]
    fn an_answer_is_a_line_and_has_only_what_there_is() {
        let line = serde_json::to_string(&Answer::error("no\nsuch")).unwrap();
        assert_eq!(line, r#"{"ok":false,"error":"no\nsuch"}"#);
        let back: Answer = serde_json::from_str(r#"{"ok":true,"newer":1}"#).unwrap();
        assert_eq!(back, Answer::ok());
    }
}
