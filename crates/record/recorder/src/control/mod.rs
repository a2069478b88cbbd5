//! The control socket: other processes read a recorder's state, begin and end pauses, and make a flight recorder save.
//!
//! [`folder`] finds the sockets and checks their folder. [`socket`] makes one. [`server`] is the thread that serves peers. [`messages`] has requests and
//! answers. [`client`] is the other side. Without a socket the recording continues.
//!
//! Invariant: the program does not notice it. The thread begins after the program, and descriptors are closed at the
//! program's exec.

pub mod client;
pub mod folder;
pub mod messages;
mod server;
mod socket;

pub use server::{Ask, who};

use server::{Asks, Bell, Server};
use socket::Socket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The recorder's side.
pub struct Control {
    state: State,
    /// Why there is no socket.
    why_not: Option<String>,
}

enum State {
    Made(Socket),
    Open { asks: Asks, bell: Arc<Bell>, ended: Arc<AtomicBool>, thread: Option<JoinHandle<()>> },
    Closed,
}

impl Control {
    /// To be called before the program starts, so that failures are known by then.
    pub fn make() -> Control {
        match Socket::make() {
            Ok(socket) => Control { state: State::Made(socket), why_not: None },
            Err(e) => Control { state: State::Closed, why_not: Some(e.to_string()) },
        }
    }

    /// The program runs: requests are accepted from now on.
    pub fn open(&mut self, pid: i32) {
        let State::Made(mut socket) = std::mem::replace(&mut self.state, State::Closed) else { return };
        let opened = socket.call(pid).and_then(|()| {
            let (bell, ended) = (Bell::new()?, Arc::<AtomicBool>::default());
            let (server, asks) = Server::new(socket.listener.try_clone()?, bell.clone(), folder::own_uid());
            let over = ended.clone();
            let run = move || {
                server.run(|| over.load(Ordering::Acquire));
                // Last: a process that connects now finds no socket.
                drop(socket);
            };
            let thread = std::thread::Builder::new().name("control".into()).spawn(run)?;
            Ok(State::Open { asks, bell, ended, thread: Some(thread) })
        });
        match opened {
            Ok(open) => self.state = open,
            Err(e) => self.why_not = Some(e.to_string()),
        }
    }

    /// The next request, if there is one.
    pub fn next(&self) -> Option<Ask> {
        match &self.state {
            State::Open { asks, .. } => asks.next(),
            _ => None,
        }
    }

    /// Why the recorder cannot be asked.
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let State::Open { bell, ended, thread, .. } = &mut self.state {
            ended.store(true, Ordering::Release);
            bell.ring();
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}
