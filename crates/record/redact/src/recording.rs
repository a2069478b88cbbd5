//! A finished recording, chunk by chunk.

use crate::driver_calls::DriverCalls;
use crate::events;
use crate::names::Names;
use crate::scrub::Scrubber;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tape::file::{
    End, Header, Item, MAX_CHUNK, Process, ProcessEnd, Rank, Reader, Saved, TapeError, Unwatched, Writer,
};
use tape::live::{LiveProcess, Looks};
use tape::ring::whole_events;

/// What is to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct What {
    /// Words of the command stream that are the program's data, as by `record --no-data`.
    pub data: bool,
    /// Names of libraries, programs, threads and processes.
    pub names: bool,
    /// Command lines.
    pub arguments: bool,
    /// Folders of files.
    pub paths: bool,
    /// The machine's name, kernel and processor, and the numbers of its GPUs; what happened when a flight recorder saved the file (also with names).
    pub environment: bool,
}

impl What {
    pub const ALL: What = What { data: true, names: true, arguments: true, paths: true, environment: true };

    /// The options' names.
    pub fn list(self) -> Vec<&'static str> {
        let all = [
            (self.data, "data"),
            (self.names, "names"),
            (self.arguments, "arguments"),
            (self.paths, "paths"),
            (self.environment, "environment"),
        ];
        all.into_iter().filter_map(|(is_removed, name)| is_removed.then_some(name)).collect()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RedactionError {
    #[error(transparent)]
    Tape(#[from] TapeError),
    #[error("{0}: recorded with layout version 1, which says too little of its processes to be redacted")]
    Old(PathBuf),
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// The key of [`Header::extra`] that lists what was removed.
const REDACTED: &str = "redacted";
/// Possible values of [`Rank::launcher`].
const LAUNCHERS: [&str; 4] = ["torchrun", "slurm", "openmpi", "pmi"];

/// A recording that is open and not yet written.
pub struct Redaction {
    reader: Reader,
    what: What,
    names: Names,
    calls: DriverCalls,
    /// For each process image.
    scrubbers: HashMap<u32, Scrubber>,
}

impl Redaction {
    /// Opens it and reads its header.
    pub fn open(path: &Path, what: What) -> Result<Redaction, RedactionError> {
        let reader = Reader::open(path)?;
        if reader.version() == 1 {
            return Err(RedactionError::Old(path.into()));
        }
        let names = Names::new(what.names, what.paths);
        let calls = DriverCalls::of(&reader.header().driver, what.environment);
        Ok(Redaction { reader, what, names, calls, scrubbers: HashMap::new() })
    }

    /// Writes the redacted recording to an empty file. `path` is for errors. If a recording is damaged or cut,
    /// everything before that place is written, and the damage is returned.
    pub fn write(mut self, file: File, path: &Path) -> Result<Option<TapeError>, RedactionError> {
        let header = self.reader.header().clone();
        let header = self.header(header);
        let mut writer = Writer::begin(file, path, &header)?;
        loop {
            match self.reader.item() {
                Ok(None) => return Ok(None),
                Ok(Some(item)) => self.item(item, &mut writer)?,
                Err(damage @ TapeError::Damaged { .. }) => return Ok(Some(damage)),
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn item(&mut self, item: Item, to: &mut Writer) -> io::Result<()> {
        match item {
            Item::Events { process, tid, bytes } => self.events(process, tid, bytes, to),
            Item::Clock(c) => to.clock(&c),
            Item::Note(text) => to.note(&self.names.text(&text)),
            Item::Process(p) => to.process(&self.process(*p)),
            Item::ProcessEnd(e) => to.process_end(&self.process_end(*e)),
            Item::Unwatched(u) => to.unwatched(&self.unwatched(*u)),
            Item::Looks(looks) => to.looks(&self.looks(*looks)),
            Item::End(e) => to.end(&self.end(*e)),
            // The summary has the names and paths of everything before it.
            Item::Summary(_) | Item::Checkpoint => Ok(()),
            // Its contents cannot be known.
            Item::Unknown(kind) => to.note(&format!("a chunk of unknown kind {kind} was left out")),
        }
    }

    fn events(&mut self, process: u32, tid: i32, mut bytes: Vec<u8>, to: &mut Writer) -> io::Result<()> {
        let new = if self.what.data { Scrubber::default } else { Scrubber::of_slack };
        self.scrubbers.entry(process).or_insert_with(new).clean(&mut bytes);
        let mut out = Vec::with_capacity(bytes.len());
        events::rewrite(&bytes, &mut self.names, &mut self.calls, &mut out);
        let mut rest = &out[..];
        while !rest.is_empty() {
            // A substitute may be longer than the text that it replaces.
            let n = match whole_events(rest, MAX_CHUNK) {
                _ if rest.len() <= MAX_CHUNK => rest.len(),
                0 => MAX_CHUNK,
                n => n,
            };
            let (chunk, behind) = rest.split_at(n);
            to.events(process, tid, chunk)?;
            rest = behind;
        }
        Ok(())
    }

    fn header(&mut self, h: Header) -> Header {
        let machine = |text: String| if self.what.environment { String::new() } else { text };
        let (kernel, cpu, host) = (machine(h.kernel), machine(h.cpu), machine(h.host));
        let earlier = h.extra.get(REDACTED).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let mut list: Vec<Value> = self.what.list().into_iter().map(Value::from).collect();
        let earlier = What::ALL.list().into_iter().filter(|name| earlier.clone().any(|e| e == *name)).map(Value::from);
        list.extend(earlier.filter(|e| !self.what.list().contains(&e.as_str().unwrap_or_default())));
        // In words that name kernels and calls, or the GPU and the process of an Xid.
        let in_words = |what| if self.what.environment || self.what.names { String::new() } else { what };
        let saved = h.saved.map(|saved| Saved { what: in_words(saved.what), ..saved });
        Header {
            args: self.arguments(h.args),
            exe: self.names.path_text(&h.exe),
            kernel,
            cpu,
            host,
            no_data: h.no_data || self.what.data,
            saved,
            extra: [(REDACTED.to_owned(), Value::from(list))].into_iter().collect(),
            ..h
        }
    }

    /// A program's name is the first of its arguments. Others may be paths, or end in one.
    fn arguments(&mut self, args: Option<Vec<String>>) -> Option<Vec<String>> {
        let args = args.filter(|_| !self.what.arguments)?;
        let one = |(i, arg): (usize, String)| match arg.find('/') {
            _ if i == 0 => self.names.path_text(&arg),
            Some(at) if self.what.paths => format!("{}{}", &arg[..at], self.names.path_text(&arg[at..])),
            _ => arg,
        };
        Some(args.into_iter().enumerate().map(one).collect())
    }

    fn process(&mut self, p: Process) -> Process {
        let mut through = p.through;
        for ancestor in &mut through {
            let name = self.names.thread(ancestor.name.as_bytes());
            ancestor.name = String::from_utf8_lossy(&name).into_owned();
        }
        let known = |r: &Rank| !self.what.environment || LAUNCHERS.contains(&&*r.launcher);
        let rank = p.rank.map(|r| if known(&r) { r } else { Rank { launcher: String::new(), ..r } });
        Process { exe: self.names.path_text(&p.exe), args: self.arguments(p.args), through, rank, ..p }
    }

    fn unwatched(&mut self, u: Unwatched) -> Unwatched {
        Unwatched { path: self.names.path_text(&u.path), ..u }
    }

    fn process_end(&mut self, e: ProcessEnd) -> ProcessEnd {
        let trouble = self.texts(e.trouble);
        let incomplete_because = self.texts(e.incomplete_because);
        ProcessEnd { how: self.names.text(&e.how), trouble, incomplete_because, ..e }
    }

    fn looks(&mut self, mut looks: Looks) -> Looks {
        for p in [&mut looks.first, &mut looks.second].into_iter().flat_map(|l| &mut l.processes) {
            self.process_of_look(p);
        }
        looks
    }

    fn process_of_look(&mut self, p: &mut LiveProcess) {
        self.thread_name(&mut p.name);
        p.tracer.iter_mut().for_each(|t| self.thread_name(&mut t.name));
        p.shares.iter_mut().for_each(|s| s.path = self.names.path_text(&s.path));
        for t in &mut p.threads {
            self.thread_name(&mut t.name);
            for on in &mut t.on {
                // (`pipe:[123]` is no path.)
                if on.name.starts_with('/') {
                    on.name = self.names.path_text(&on.name);
                }
                on.place.iter_mut().for_each(|place| place.path = self.names.path_text(&place.path));
                on.others.iter_mut().for_each(|other| self.thread_name(&mut other.name));
            }
        }
        for w in p.streams.iter_mut().flat_map(|s| &mut s.work) {
            w.name = String::from_utf8_lossy(&self.names.kernel(w.name.as_bytes())).into_owned();
        }
    }

    fn thread_name(&mut self, name: &mut String) {
        *name = String::from_utf8_lossy(&self.names.thread(name.as_bytes())).into_owned();
    }

    fn end(&mut self, e: End) -> End {
        let trouble = self.texts(e.trouble);
        let incomplete_because = self.texts(e.incomplete_because);
        End { how: self.names.text(&e.how), trouble, incomplete_because, ..e }
    }

    fn texts(&mut self, texts: Vec<String>) -> Vec<String> {
        texts.iter().map(|text| self.names.text(text)).collect()
    }
}
