//! A headless Chromium, driven through two pipes by its DevTools protocol.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// On a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Browser {
    process: Child,
    into: File,
    heard: Receiver<Value>,
    next: u64,
}

/// A page, and all that it was heard to do.
pub struct Tab<'b> {
    browser: &'b mut Browser,
    session: String,
    pub events: Vec<Value>,
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the array holds two numbers; both ends are closed in programs that are started.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: they were just opened, and have no other owner.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

impl Browser {
    /// Its profile is in `folder`.
    pub fn start(folder: &Path) -> std::io::Result<Browser> {
        let ((to_read, to_write), (from_read, from_write)) = (pipe(), pipe());
        let mut command = Command::new("chromium");
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args(["--disable-component-update", "--disable-sync", "--disable-default-apps", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let (read, write) = (to_read.as_raw_fd(), from_write.as_raw_fd());
        // SAFETY: only dup2 and fcntl are called between fork and exec. The ends are moved out of the way first: they may be 3 or 4.
        unsafe {
            command.pre_exec(move || {
                let (read, write) = (libc::fcntl(read, libc::F_DUPFD, 10), libc::fcntl(write, libc::F_DUPFD, 10));
                if libc::dup2(read, 3) < 0 || libc::dup2(write, 4) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let process = command.spawn()?;
        drop((to_read, from_write));
        let (say, heard) = channel();
        let mut from = BufReader::new(File::from(from_read));
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if say.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        Ok(Browser { process, into: File::from(to_write), heard, next: 0 })
    }

    pub fn tab(&mut self) -> Tab<'_> {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }), &mut Vec::new());
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call(None, "Target.attachToTarget", attach, &mut Vec::new());
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let mut tab = Tab { browser: self, session, events: Vec::new() };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: Value, events: &mut Vec<Value>) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.into.write_all(format!("{message}\0").as_bytes()).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut heard = self.heard.recv_timeout(left).unwrap_or_else(|e| panic!("{method}: no answer: {e}"));
            if heard["id"] == self.next {
                assert!(heard["error"].is_null(), "{method}: {}", heard["error"]);
                return heard["result"].take();
            }
            events.push(heard);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Tab<'_> {
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params, &mut self.events)
    }

    /// The value of an expression, after its promises.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let done = self.call("Runtime.evaluate", params);
        assert!(done["exceptionDetails"].is_null(), "{expression:.200}: {}", done["exceptionDetails"]);
        done["result"]["value"].clone()
    }

    pub fn screen(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.media("screen", scheme);
    }

    pub fn media(&mut self, media: &str, scheme: &str) {
        // (A page that still scrolls is clicked in the wrong place.)
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": features }));
    }

    /// Opens a file and waits until all of it is loaded; returns the milliseconds that this took, as the page itself measured.
    pub fn open(&mut self, file: &Path) -> f64 {
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        let until = Instant::now() + PATIENCE;
        loop {
            let state = "location.protocol === 'file:' && document.readyState === 'complete' \
                         ? performance.getEntriesByType('navigation')[0].loadEventEnd : 0";
            let took = self.evaluate(state).as_f64().unwrap_or(0.0);
            if took > 0.0 {
                return took;
            }
            assert!(Instant::now() < until, "{}: not loaded", file.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn key(&mut self, key: &str, code: u32, text: &str) {
        let params =
            |kind: &str| json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", params("keyDown"));
        self.call("Input.dispatchKeyEvent", params("keyUp"));
    }

    /// Errors of the console, exceptions, and requests to anything but `file`.
    pub fn complaints(&self, file: &Path) -> Vec<String> {
        let own = format!("file://{}", file.display());
        let of = |e: &Value| {
            let (method, p) = (e["method"].as_str()?, &e["params"]);
            match method {
                "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" => Some(p.to_string()),
                "Log.entryAdded" => Some(p["entry"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = p["request"]["url"].as_str()?;
                    (url != own && !url.starts_with("blob:")).then(|| format!("asks for {url}"))
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(of).collect()
    }
}
