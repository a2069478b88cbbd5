//! The control socket: other processes read a recorder's state, begin and end pauses, and have a flight recorder save.
//!
//! [`folder`]: where sockets are, and their modes. [`socket`] makes one. [`server`]: the thread that serves peers. [`messages`]: requests and answers.
//! [`client`]: the other side. Without a socket the recording goes on.
//!
//! Invariant: the program sees nothing of it. The thread begins after the program, and descriptors are closed at its exec.

pub mod client;
pub mod folder;
pub mod messages;
mod server;
mod socket;

pub use server::Ask;

use server::{Asks, Bell, Server};
use socket::Socket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The recorder's side.
pub struct Control {
    state: State,
    /// Why there is none.
    why_not: Option<String>,
}

enum State {
    Made(Socket),
    Open { asks: Asks, bell: Arc<Bell>, ended: Arc<AtomicBool>, thread: Option<JoinHandle<()>> },
    Closed,
}

impl Control {
    /// To be called before the program starts: what is not possible is known then.
    pub fn make() -> Control {
        match Socket::make() {
            Ok(socket) => Control { state: State::Made(socket), why_not: None },
            Err(e) => Control { state: State::Closed, why_not: Some(e.to_string()) },
        }
    }

    /// The program runs: requests are taken from now on.
    pub fn open(&mut self, pid: i32) {
        let State::Made(mut socket) = std::mem::replace(&mut self.state, State::Closed) else { return };
        let opened = socket.call(pid).and_then(|()| {
            let (bell, ended) = (Bell::new()?, Arc::<AtomicBool>::default());
            let (server, asks) = Server::new(socket.listener.try_clone()?, bell.clone(), folder::own_uid());
            let over = ended.clone();
            let run = move || {
                server.run(|| over.load(Ordering::Acquire));
                // Last: who connects now finds nothing.
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

    /// Why it cannot be asked anything.
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
