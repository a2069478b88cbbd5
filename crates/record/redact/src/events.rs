//! Events with replaced texts. Lengths change. The number and order of events do not.

use crate::driver_calls::DriverCalls;
use crate::names::Names;
use crate::scrub::whole_event;
use tape::call::NameBody;
use tape::event::{Body, Event, FileBody, Head, NoteBody, Plain, SiteBody, bytes_of};
use tape::fault::WatchedBody;
use tape::lock::{MappingBody, SchedBody};
use tape::nvtx::{self, EndBody, RangeBody, TextBody};
use tape::python::{self, CodeBody};
use tape::switch::{SwitchesBody, TaskBody};

const HEAD: usize = size_of::<Head>();
/// Where the argument of an IOCTL event begins.
const ARGUMENT: usize = HEAD + 40;

/// Appends the events of a chunk. The scrubber has already zeroed the bytes that are no part of an event.
pub fn rewrite(clean: &[u8], names: &mut Names, calls: &mut DriverCalls, out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(rest) = clean.get(at..).filter(|rest| !rest.is_empty()) {
        let Some((event, len)) = Event::parse(rest) else {
            // (Zeros by now, or an event of impossible contents whose head was kept.)
            let len = whole_event(rest).unwrap_or(rest.len());
            out.extend_from_slice(&rest[..len]);
            at += len;
            continue;
        };
        let head = event.head;
        match event.body {
            Body::Open(f, path) => {
                let path = names.path(path);
                put(out, head, &FileBody { path: path.len() as u32, ..f }, &path);
            }
            Body::Site(s, path) => {
                let path = names.path(path);
                put(out, head, &SiteBody { path: path.len() as u32, ..s }, &path);
            }
            Body::Mapping(m, path, id) => {
                let mut payload = names.path(path);
                let (path, flags) = (payload.len() as u32, if names.keeps_build_ids() { head.flags } else { 0 });
                payload.resize(payload.len().next_multiple_of(8), 0);
                payload.extend(&id[..usize::from(flags)]);
                put(out, Head { flags, ..head }, &MappingBody { path, ..m }, &payload);
            }
            Body::Name(n, name) => {
                let name = names.kernel(name);
                put(out, head, &NameBody { name: name.len() as u32, ..n }, &name);
            }
            Body::PythonCode(c, file, name, lines) => {
                let (file, name) = (python::text(file, c.file_unit), python::text(name, c.name_unit));
                let (mut payload, file_unit) = python::units(&names.python_file(&file));
                let (name, name_unit) = python::units(&names.python_function(&name));
                let body = CodeBody { file: payload.len() as u32, name: name.len() as u32, file_unit, name_unit, ..c };
                payload.extend(name);
                payload.resize(payload.len().next_multiple_of(8), 0);
                payload.extend(lines);
                put(out, head, &body, &payload);
            }
            Body::Text(t, text) => {
                let (id, text) = match t.names {
                    nvtx::names::TEXT => (names.range_number(t.id), names.range(t.id, text)),
                    nvtx::names::THREAD => (t.id, names.thread(text)),
                    _ => (t.id, names.range(nvtx::text(text), text)),
                };
                let body = TextBody { id, domain: names.range_number(t.domain), bytes: text.len() as u32, ..t };
                put(out, head, &body, &text);
            }
            Body::Push(r) | Body::Start(r) | Body::Mark(r) => {
                let (domain, text) = (names.range_number(r.domain), names.range_number(r.text));
                put(out, head, &RangeBody { domain, text, ..r }, &[]);
            }
            Body::Pop(e) | Body::End(e) => {
                put(out, head, &EndBody { domain: names.range_number(e.domain), ..e }, &[]);
            }
            Body::Note(text) => {
                let text = note(names, &String::from_utf8_lossy(text));
                put(out, head, &NoteBody { text: text.len() as u32, pad: 0 }, text.as_bytes());
            }
            Body::Switches(s, text) => {
                let text = names.text(&String::from_utf8_lossy(text));
                put(out, head, &SwitchesBody { text: text.len() as u32, ..s }, text.as_bytes());
            }
            Body::FaultsWatched(w, text) => {
                let text = names.text(&String::from_utf8_lossy(text));
                put(out, head, &WatchedBody { text: text.len() as u32, ..w }, text.as_bytes());
            }
            Body::Sched(s) => put(out, head, &SchedBody { name: thread(names, &s.name), ..s }, &[]),
            Body::Task(t) => put(out, head, &TaskBody { name: thread(names, &t.name), ..t }, &[]),
            Body::Ioctl(body, arg, nested) => {
                let from = out.len();
                out.extend_from_slice(&rest[..len]);
                let (arg_len, nested_len) = (arg.len(), nested.len());
                if let Some(payload) = out.get_mut(from + ARGUMENT..)
                    && let Some((arg, behind)) = payload.split_at_mut_checked(arg_len)
                    && let Some(nested) = behind.get_mut(arg_len.next_multiple_of(8) - arg_len..)
                    && let Some(nested) = nested.get_mut(..nested_len)
                {
                    calls.redact(&body, arg, nested);
                }
            }
            // Each kind is named: one that is added with a text of the program must not pass.
            Body::Ring(_)
            | Body::Entry(_, _)
            | Body::Mmap(_)
            | Body::Munmap(_)
            | Body::Mremap(_)
            | Body::Close(_)
            | Body::Dup(_)
            | Body::Channel(_)
            | Body::Token(_)
            | Body::ChannelEnd(_)
            | Body::Page(_)
            | Body::Gap(_)
            | Body::Thread(_)
            | Body::Pause(_)
            | Body::LeftOut(_)
            | Body::Locks(_)
            | Body::Pair(_)
            | Body::Hold(_)
            | Body::Op(_)
            | Body::Held(_)
            | Body::Switch(_)
            | Body::SwitchesLost(_)
            | Body::Deadline(_)
            | Body::Object(..)
            | Body::Origin(_)
            | Body::Faults(_, _)
            | Body::FaultsLost(_)
            | Body::Stolen(_)
            | Body::Calls(_)
            | Body::Call(_)
            | Body::InCall(_)
            | Body::ExportTable(_)
            | Body::Python(_, _)
            | Body::PythonStack(_, _)
            | Body::Nvtx(_)
            | Body::Stamps(_)
            | Body::GpuClock(_)
            | Body::Ends(_, _)
            | Body::Launched(_, _)
            | Body::Copied(_)
            | Body::Unknown => out.extend_from_slice(&rest[..len]),
        }
        at += len;
    }
}

/// The agent's note about a library begins with the library's name, which may have spaces.
fn note(names: &mut Names, text: &str) -> String {
    match text.split_once(": opened with ") {
        Some((library, how)) => format!("{}: opened with {how}", names.path_text(library)),
        None => names.text(text),
    }
}

fn thread(names: &mut Names, name: &[u8; 16]) -> [u8; 16] {
    let used = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    let substitute = names.thread(&name[..used]);
    let mut out = [0; 16];
    out.iter_mut().zip(&substitute).for_each(|(to, from)| *to = *from);
    out
}

fn put<B: Plain>(out: &mut Vec<u8>, head: Head, body: &B, payload: &[u8]) {
    let len = (HEAD + size_of::<B>() + payload.len()).next_multiple_of(8);
    let end = out.len() + len;
    out.extend_from_slice(bytes_of(&Head { len: len as u32, ..head }));
    out.extend_from_slice(bytes_of(body));
    out.extend_from_slice(payload);
    out.resize(end, 0);
}
