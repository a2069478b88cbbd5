//! QEMU's test protocol (qtest): one line per request, one line per answer. Reads and writes memory and ports, in order.

use super::process::Process;
use crate::error::Error;
use std::fmt::{Arguments, Write as _};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// One connection, for any number of threads. After the first failure every request fails with the same message.
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

/// Time limit for the child's exit after it closed its socket.
const EXIT: Duration = Duration::from_secs(2);

impl Wire {
    pub fn new(stream: UnixStream, process: Arc<Process>, patience: Duration) -> Result<Wire, Error> {
        let state = State { patience, stream, line: String::with_capacity(64), answer: Vec::with_capacity(64) };
        let wire = Wire { state: Mutex::new(state), failed: OnceLock::new(), process };
        wire.set_patience(patience)?;
        Ok(wire)
    }

    /// Time limit for each following answer.
    pub fn set_patience(&self, patience: Duration) -> Result<(), Error> {
        let mut state = poison::ignore(self.state.lock());
        let reading = state.stream.set_read_timeout(Some(patience));
        reading
            .and_then(|()| state.stream.set_write_timeout(Some(patience)))
            .map_err(|e| Error::system("a time limit for QEMU's socket", e))?;
        state.patience = patience;
        Ok(())
    }

    /// The first failure.
    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Makes every following request fail.
    pub fn close(&self, why: &str) {
        let _ = self.failed.set(why.into());
    }

    /// Sends a request that returns a number.
    pub fn number(&self, request: Arguments<'_>) -> Result<u64, Error> {
        let mut state = poison::ignore(self.state.lock());
        self.ask(&mut state, request)?;
        let State { line, answer, .. } = &mut *state;
        let digits = std::str::from_utf8(answer).ok().and_then(|a| a.strip_prefix("OK 0x"));
        let number = digits.and_then(|d| u64::from_str_radix(d, 16).ok());
        number.ok_or_else(|| refused(line, answer))
    }

    /// Sends a request without a result.
    pub fn command(&self, request: Arguments<'_>) -> Result<(), Error> {
        let mut state = poison::ignore(self.state.lock());
        self.ask(&mut state, request)?;
        if state.answer.starts_with(b"OK") {
            return Ok(());
        }
        Err(refused(&state.line, &state.answer))
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
                    self.process.ending(Duration::ZERO)
                ),
                _ => format!("the connection broke at '{asked}' ({e}); {}", self.process.ending(EXIT)),
            };
            Error::Qemu(self.failed.get_or_init(|| why).clone())
        })
    }
}

fn refused(asked: &str, answer: &[u8]) -> Error {
    Error::Qemu(format!("'{}' was answered by '{}'", asked.trim_end(), String::from_utf8_lossy(answer)))
}

/// Sends the line and waits for the answer. Skips the lines that report interrupts.
fn exchange(state: &mut State) -> std::io::Result<()> {
    state.stream.write_all(state.line.as_bytes())?;
    loop {
        state.answer.clear();
        // Nothing can follow the answer: the next request is not sent yet.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    /// A wire whose far end sends these answers and then closes.
    fn answered_by(answers: &'static [&'static str]) -> Wire {
        let (near, far) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut questions = BufReader::new(far.try_clone().unwrap()).lines();
            let mut far = far;
            for answer in answers {
                if questions.next().is_none() {
                    return;
                }
                // In two writes, to test partial reads.
                let (first, second) = answer.split_at(answer.len() / 2);
                for piece in [first, second] {
                    far.write_all(piece.as_bytes()).unwrap();
                    std::thread::sleep(Duration::from_millis(3));
                }
            }
        });
        let process = Process::start("true", &[], Vec::new()).unwrap();
        Wire::new(near, Arc::new(process), Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn answers_are_taken_apart_and_refusals_told() {
        let wire = answered_by(&[
            "OK 0x00000000000000ed\n",
            "IRQ raise 4\nIRQ lower 4\nOK 0x7\n",
            "OK\n",
            "FAIL no such port\n",
        ]);
        assert_eq!(wire.number(format_args!("readl 0x0")).unwrap(), 0xed);
        assert_eq!(wire.number(format_args!("readl 0x0")).unwrap(), 7);
        wire.command(format_args!("writel 0x0 0x1")).unwrap();
        let told = wire.command(format_args!("outl 0xcf8 0x1")).unwrap_err().to_string();
        assert_eq!(told, "QEMU: 'outl 0xcf8 0x1' was answered by 'FAIL no such port'");
        // A refused request is no failure of the connection.
        assert_eq!(wire.failure(), None);
        let told = wire.number(format_args!("readl 0x4")).unwrap_err().to_string();
        assert!(
            told.contains("the connection broke at 'readl 0x4'") && told.contains("it ended (exit status: 0)"),
            "{told}"
        );
        let again = wire.number(format_args!("readl 0x8")).unwrap_err().to_string();
        assert_eq!(again, told);
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for answer in [&["OK\n"][..], &["OK 0x\n"], &["OK 0x12345678901234567\n"], &["ERR\n"], &["\n"], &["OK 0xg\n"]] {
            assert!(answered_by(answer).number(format_args!("readl 0x0")).is_err(), "{answer:?}");
        }
    }
}
