//! QEMU's monitor (QMP) over a socket: adds and removes devices, and finds their addresses.

use super::process::Process;
use crate::error::Error;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct Monitor {
    reader: BufReader<UnixStream>,
    process: Arc<Process>,
    patience: Duration,
    /// Events received while waiting for answers, oldest first.
    events: Vec<Value>,
}

impl Monitor {
    /// Waits for QEMU's greeting, which QEMU sends once the machine exists.
    pub fn connect(stream: UnixStream, process: Arc<Process>, patience: Duration) -> Result<Monitor, Error> {
        let mut monitor = Monitor { reader: BufReader::new(stream), process, patience, events: Vec::new() };
        monitor.set_patience(patience)?;
        monitor.line("its start")?;
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Time limit for each following answer.
    pub fn set_patience(&mut self, patience: Duration) -> Result<(), Error> {
        let stream = self.reader.get_ref();
        let limits = stream.set_read_timeout(Some(patience)).and_then(|()| stream.set_write_timeout(Some(patience)));
        limits.map_err(|e| Error::system("a time limit for QEMU's monitor", e))?;
        self.patience = patience;
        Ok(())
    }

    fn line(&mut self, asked: &str) -> Result<Value, Error> {
        let mut line = String::new();
        let broken = |why: String| Error::Qemu(why);
        match self.reader.read_line(&mut line) {
            Ok(0) => Err(broken(format!("the monitor closed at {asked}; {}", self.process.ending(self.patience)))),
            Ok(_) => serde_json::from_str(&line).map_err(|e| broken(format!("the monitor at {asked}: {e}: {line}"))),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(broken(format!(
                "the monitor did not answer {asked} within {} s; {}",
                self.patience.as_secs_f64(),
                self.process.ending(Duration::ZERO)
            ))),
            Err(e) => {
                Err(broken(format!("the monitor broke at {asked} ({e}); {}", self.process.ending(self.patience))))
            }
        }
    }

    /// Runs one QMP command and returns its result.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, Error> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        // If the write fails, QEMU has ended, and the read below reports that with its stderr.
        let _ = self.reader.get_mut().write_all(line.as_bytes());
        loop {
            let mut answer = self.line(command)?;
            if answer.get("event").is_some() {
                self.events.push(answer);
            } else if let Some(error) = answer.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("an error without words");
                return Err(Error::Qemu(format!("{command}: {text}")));
            } else if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
        }
    }

    /// Waits for the event that `device` was removed.
    pub fn wait_until_deleted(&mut self, device: &str) -> Result<(), Error> {
        let until = Instant::now() + self.patience;
        let is = |event: &Value| event["event"] == "DEVICE_DELETED" && event["data"]["device"] == device;
        loop {
            if let Some(at) = self.events.iter().position(is) {
                self.events.remove(at);
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Error::Qemu(format!(
                    "{device} is not gone after {} s: it was not ejected",
                    self.patience.as_secs_f64()
                )));
            }
            let event = self.line(&format!("the end of {device}"))?;
            self.events.push(event);
        }
    }
}
