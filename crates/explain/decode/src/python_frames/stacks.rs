//! Stacks by their numbers.

use super::lines::Lines;
use std::collections::HashMap;
use std::rc::Rc;
use tape::event::{Body, Event, python_frames};
use tape::python::{DEPTH, LAYOUT, LOST, code_flags, stack_flags, state, text};

/// Stacks and code objects of a recording that are kept, at most.
const MOST: usize = 1 << 20;

/// A code object: a function, a class, a module.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    pub file: String,
    /// Its qualified name; before 3.11 its name.
    pub function: String,
    lines: Lines,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub code: Rc<Code>,
    /// Absent where the code's line table has none.
    pub line: Option<u32>,
}

/// Frames, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    pub frames: Vec<Frame>,
    /// There are more further out.
    pub deeper: bool,
}

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// There was no Python code, or it was not watched.
    None,
    /// There was a stack that is not on the tape.
    Lost,
    Stack(&'a Stack),
}

/// An interpreter of a process image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    pub process: u32,
    /// As `sys.version` begins.
    pub version: String,
    /// One of [`state`].
    pub state: u32,
}

impl Interpreter {
    pub fn is_read(&self) -> bool {
        self.state == state::READ
    }

    pub fn why(&self) -> &'static str {
        state::TEXT.get(self.state as usize).copied().unwrap_or("for a reason that only a newer doorbell knows")
    }
}

/// A stack as it was written: its code objects may come later.
#[derive(Debug)]
struct Written {
    frames: Vec<(u32, u32)>,
    deeper: bool,
}

/// What the events of a tape say.
#[derive(Debug, Default)]
pub struct Stacks {
    codes: HashMap<(u32, u32), Rc<Code>>,
    written: HashMap<(u32, u32), Written>,
    stacks: HashMap<(u32, u32), Stack>,
    interpreters: Vec<Interpreter>,
    /// Images whose events have a layout that is not known.
    unknown: Vec<u32>,
}

impl Stacks {
    /// To be called with all events of a tape, then [`Stacks::finish`].
    pub fn event(&mut self, process: u32, e: &Event<'_>) {
        match &e.body {
            Body::Python(p, version) => {
                if p.layout != LAYOUT {
                    self.unknown.push(process);
                }
                let version = String::from_utf8_lossy(version).into_owned();
                let one = Interpreter { process, version, state: p.state };
                if self.interpreters.len() < MOST && !self.interpreters.contains(&one) {
                    self.interpreters.push(one);
                }
            }
            Body::PythonCode(c, file, name, table) if self.codes.len() < MOST => {
                let cut = |flag: u8| if c.flags & flag != 0 { "..." } else { "" };
                let file = format!("{}{}", cut(code_flags::FILE_CUT), text(file, c.file_unit));
                let function = format!("{}{}", text(name, c.name_unit), cut(code_flags::NAME_CUT));
                let lines = Lines::of(table, c.minor, c.first_line);
                let code = Code { file, function, lines };
                self.codes.insert((process, c.number), Rc::new(code));
            }
            Body::PythonStack(s, frames) if self.written.len() < MOST => {
                let deeper = e.head.flags & stack_flags::DEEPER != 0;
                let frames = python_frames(frames).take(DEPTH).map(|f| (f.code, f.at)).collect();
                self.written.insert((process, s.number), Written { frames, deeper });
            }
            _ => {}
        }
    }

    /// All events were seen.
    pub fn finish(&mut self) {
        for ((process, number), written) in std::mem::take(&mut self.written) {
            if self.unknown.contains(&process) {
                continue;
            }
            let frame = |&(code, at): &(u32, u32)| {
                let code = self.codes.get(&(process, code))?;
                Some(Frame { code: Rc::clone(code), line: code.lines.at(at) })
            };
            // (A frame whose code is not on the tape would make its neighbours look as if they had called each other.)
            let frames: Option<Vec<Frame>> = written.frames.iter().map(frame).collect();
            if let Some(frames) = frames.filter(|frames| !frames.is_empty()) {
                self.stacks.insert((process, number), Stack { frames, deeper: written.deeper });
            }
        }
    }

    /// What the number of a call or a doorbell stands for.
    pub fn stack(&self, process: u32, number: u32) -> Found<'_> {
        match (number, self.stacks.get(&(process, number))) {
            (0, _) => Found::None,
            (LOST, _) | (_, None) => Found::Lost,
            (_, Some(stack)) => Found::Stack(stack),
        }
    }

    pub fn interpreters(&self) -> &[Interpreter] {
        &self.interpreters
    }
}

impl Stack {
    /// The innermost frame of the user's code, or the innermost at all where every frame is a library's.
    pub fn user(&self) -> Option<&Frame> {
        self.frames.iter().find(|f| !is_of_a_library(&f.code.file)).or(self.frames.first())
    }
}

/// True for a file of the standard library or of an installed package.
pub fn is_of_a_library(file: &str) -> bool {
    let frozen = file.starts_with("<frozen ") || file.starts_with("<__array_function__");
    frozen || file.contains("/site-packages/") || file.contains("/dist-packages/") || is_standard(file)
}

/// `/usr/lib/python3.11/threading.py`
fn is_standard(file: &str) -> bool {
    file.split("/lib/python3.")
        .skip(1)
        .any(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('/'))
        || file.split("/lib64/python3.").nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::event::{Head, bytes_of};
    use tape::python::{CodeBody, Frame as OnTape, PythonBody, StackBody, kind};

    fn event(kind: u16, flags: u16, body: &[u8], payload: &[u8]) -> Vec<u8> {
        let len = (16 + body.len() + payload.len()).next_multiple_of(8);
        let mut out = bytes_of(&Head { kind, flags, len: len as u32, tsc: 1 }).to_vec();
        out.extend(body);
        out.extend(payload);
        out.resize(len, 0);
        out
    }

    fn code(number: u32, file: &str, name: &str, lines: &[u8]) -> Vec<u8> {
        let (file, name) = (file.as_bytes(), name.as_bytes());
        let body = CodeBody {
            number,
            first_line: 10,
            file: file.len() as u32,
            name: name.len() as u32,
            lines: lines.len() as u32,
            file_unit: 1,
            name_unit: 1,
            minor: 11,
            flags: 0,
        };
        let mut payload = [file, name].concat();
        payload.resize(payload.len().next_multiple_of(8), 0);
        payload.extend(lines);
        event(kind::CODE, 0, bytes_of(&body), &payload)
    }

    fn stack(number: u32, frames: &[(u32, u32)]) -> Vec<u8> {
        let bytes = frames.iter().flat_map(|&(code, at)| bytes_of(&OnTape { code, at }).to_vec()).collect::<Vec<_>>();
        event(kind::STACK, 1, bytes_of(&StackBody { number, frames: frames.len() as u32 }), &bytes)
    }

    fn collected(events: &[Vec<u8>]) -> Stacks {
        let mut all = Stacks::default();
        for e in events {
            all.event(3, &Event::parse(e).unwrap().0);
        }
        all.finish();
        all
    }

    #[test]
    fn a_number_stands_for_frames_whatever_came_first() {
        // One unit of one line further on.
        let table = [0x80 | 11 << 3, 0, 0];
        let library = "/opt/lib/python3.11/site-packages/torch/nn/functional.py";
        let all = collected(&[
            stack(7, &[(2, 0), (1, 0)]),
            code(1, "train.py", "main", &table),
            code(2, library, "linear", &[]),
            stack(8, &[(9, 0), (1, 0)]),
        ]);
        let Found::Stack(s) = all.stack(3, 7) else { panic!("{all:?}") };
        let rows: Vec<_> = s.frames.iter().map(|f| (f.code.file.as_str(), f.code.function.as_str(), f.line)).collect();
        assert_eq!(rows, [(library, "linear", None), ("train.py", "main", Some(11))]);
        assert_eq!(s.user().map(|f| f.code.function.as_str()), Some("main"));
        assert!(s.deeper);
        // Of code that is not on the tape; not on the tape itself; of another image; none.
        assert_eq!(all.stack(3, 8), Found::Lost);
        assert_eq!(all.stack(3, LOST), Found::Lost);
        assert_eq!(all.stack(4, 7), Found::Lost);
        assert_eq!(all.stack(3, 0), Found::None);
    }

    #[test]
    fn events_of_another_layout_are_not_read() {
        let body = PythonBody { layout: LAYOUT + 1, state: state::READ, minor: 11, text: 6 };
        let all = collected(&[
            event(kind::PYTHON, 0, bytes_of(&body), b"3.11.2"),
            code(1, "a.py", "f", &[]),
            stack(1, &[(1, 0)]),
        ]);
        assert_eq!(all.stack(3, 1), Found::Lost);
        assert_eq!(all.interpreters(), [Interpreter { process: 3, version: "3.11.2".into(), state: state::READ }]);
    }

    #[test]
    fn files_of_libraries_are_known() {
        for (file, is) in [
            ("/usr/lib/python3.11/threading.py", true),
            ("/usr/lib64/python3.9/threading.py", true),
            ("/home/me/.venv/lib/python3.12/site-packages/a.py", true),
            ("/usr/lib/python3/dist-packages/a.py", true),
            ("<frozen importlib._bootstrap>", true),
            ("<string>", false),
            ("train.py", false),
            ("/home/me/lib/python3.x/a.py", false),
        ] {
            assert_eq!(is_of_a_library(file), is, "{file}");
        }
    }
}
