//! QEMU's test protocol: one line asks, one line answers. Accesses of memory and ports go over it, in their order.

use super::process::Process;
use crate::error::Error;
use std::fmt::{Arguments, Write as _};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// One connection, that any thread may use. After the first failure every request fails with the same words.
pub(super) struct Wire {
    state: Mutex<State>,
    failed: OnceLock<String>,
    process: Arc<Process>,
}

struct State {
    patience: Duration,
    stream: UnixStream,
    line: String,
    answer: Vec<u8>,
}

/// How long a child that closed its socket may take to end.
const FUNERAL: Duration = Duration::from_secs(2);

impl Wire {
    pub fn new(stream: UnixStream, process: Arc<Process>, patience: Duration) -> Result<Wire, Error> {
        let state = State { patience, stream, line: String::with_capacity(64), answer: Vec::with_capacity(64) };
        let wire = Wire { state: Mutex::new(state), failed: OnceLock::new(), process };
        wire.set_patience(patience)?;
        Ok(wire)
    }

    /// How long the next answers may take.
    pub fn set_patience(&self, patience: Duration) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = state.stream.set_read_timeout(Some(patience));
        reading
            .and_then(|()| state.stream.set_write_timeout(Some(patience)))
            .map_err(|e| Error::system("a time limit for QEMU's socket", e))?;
        state.patience = patience;
        Ok(())
    }

    /// Why nothing works any more.
    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// From now on every request fails.
    pub fn close(&self, why: &str) {
        let _ = self.failed.set(why.into());
    }

    /// One request that is answered by a number.
    pub fn number(&self, request: Arguments<'_>) -> Result<u64, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.ask(&mut state, request)?;
        let State { line, answer, .. } = &mut *state;
        let digits = std::str::from_utf8(answer).ok().and_then(|a| a.strip_prefix("OK 0x"));
        let number = digits.and_then(|d| u64::from_str_radix(d, 16).ok());
        number.ok_or_else(|| refused(line, answer))
    }

    /// One request that is answered by nothing but its end.
    pub fn order(&self, request: Arguments<'_>) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.ask(&mut state, request)?;
        if state.answer.starts_with(b"OK") {
            return Ok(());
        }
        Err(refused(&state.line, &state.answer))
    }

    /// Two requests that nothing may come between: a selector, and the access that it selects.
    pub fn selected(&self, first: Arguments<'_>, then: Arguments<'_>) -> Result<Option<u64>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for request in [first, then] {
            self.ask(&mut state, request)?;
            if !state.answer.starts_with(b"OK") {
                return Err(refused(&state.line, &state.answer));
            }
        }
        let digits = std::str::from_utf8(&state.answer).ok().and_then(|a| a.strip_prefix("OK 0x"));
        Ok(digits.and_then(|d| u64::from_str_radix(d, 16).ok()))
    }

    fn ask(&self, state: &mut State, request: Arguments<'_>) -> Result<(), Error> {
        if let Some(why) = self.failure() {
            return Err(Error::Qemu(why.into()));
        }
        state.line.clear();
        let _ = writeln!(state.line, "{request}");
        exchange(state).map_err(|e| {
            let asked = state.line.trim_end();
            let why = match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                    "no answer to '{asked}' within {} s; {}",
                    state.patience.as_secs_f64(),
                    self.process.epitaph(Duration::ZERO)
                ),
                _ => format!("the connection broke at '{asked}' ({e}); {}", self.process.epitaph(FUNERAL)),
            };
            Error::Qemu(self.failed.get_or_init(|| why).clone())
        })
    }
}

fn refused(asked: &str, answer: &[u8]) -> Error {
    Error::Qemu(format!("'{}' was answered by '{}'", asked.trim_end(), String::from_utf8_lossy(answer)))
}

/// Sends the line, and waits for the answer. Lines about interrupts come between: nobody here asked for them.
fn exchange(state: &mut State) -> std::io::Result<()> {
    state.stream.write_all(state.line.as_bytes())?;
    loop {
        state.answer.clear();
        // An answer comes in one piece nearly always; what follows it is never asked for yet.
        let mut buffer = [0; 64];
        while state.answer.last() != Some(&b'\n') {
            let count = match state.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            state.answer.extend_from_slice(&buffer[..count]);
        }
        let start = state.answer[..state.answer.len() - 1].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        state.answer.drain(..start);
        state.answer.pop();
        if !state.answer.starts_with(b"IRQ") {
            return Ok(());
        }
    }
}
