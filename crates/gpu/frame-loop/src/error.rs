//! Why a loop does not start, and why it has ended.

use std::io;

/// A loop that was not started, or a call that had no effect.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Argument(&'static str),
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    #[error("the loop's thread was not given what it requires: {}", .0.join("; "))]
    Refused(Vec<String>),
    #[error("this is a fork's child: the loop is its parent's")]
    Forked,
    #[error("all slots have inputs that the loop has not taken; try again, or have more slots")]
    Full,
    #[error("the loop has ended: {0}")]
    Ended(Reason),
    #[error(transparent)]
    Session(#[from] submit::Error),
}

/// Whether a loop runs. The numbers are the values of `Progress::state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    Starts = 0,
    Runs = 1,
    Ended = 2,
}

/// Why it has ended. The numbers are the values of `Progress::reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// It has not ended.
    None = 0,
    /// The program stopped it.
    Asked = 1,
    /// The results were not read, and the options say to stop then.
    Unread = 2,
    /// The channel was killed; the status has its error (Xid).
    Killed = 3,
    /// The channel was stopped, because memory that it uses was freed.
    Stopped = 4,
    /// CUDA has freed memory that the chain uses.
    Freed = 5,
    /// The session was closed.
    Closed = 6,
    /// The chain was released.
    Handle = 7,
    /// This is a fork's child.
    Forked = 8,
    /// A result took longer than `LoopOptions::limit`.
    Timeout = 9,
    /// The launch was refused for another reason.
    Refused = 10,
    /// An error in doorbell.
    Panicked = 11,
}

impl Reason {
    pub(crate) fn of(number: u32) -> Reason {
        use Reason::*;
        let all = [None, Asked, Unread, Killed, Stopped, Freed, Closed, Handle, Forked, Timeout, Refused, Panicked];
        all.get(number as usize).copied().unwrap_or(Panicked)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::None => "the loop has not ended",
            Reason::Asked => "the loop was stopped",
            Reason::Unread => "the results were not read in time, and the loop was to stop then",
            Reason::Killed => {
                "the channel was killed by an error (Xid), the kernel log says why; close the session and open it again"
            }
            Reason::Stopped => {
                "the channel was stopped, because memory was freed under it; close the session and open it again"
            }
            Reason::Freed => "memory that the chain names was freed",
            Reason::Closed => "the session was closed",
            Reason::Handle => "the chain was released",
            Reason::Forked => "this is a fork's child: the loop is its parent's",
            Reason::Timeout => "a result did not come within the loop's limit",
            Reason::Refused => "the launch was refused",
            Reason::Panicked => "the loop's thread failed, which is an error of doorbell's",
        })
    }
}

/// The state of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub state: State,
    pub reason: Reason,
    /// The channel's error if it was killed.
    pub code: u32,
}

/// The end of a loop, internally: the reason, the channel's error, and the text of the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub reason: Reason,
    pub code: u32,
    pub text: Option<String>,
}

impl From<Reason> for Ended {
    fn from(reason: Reason) -> Ended {
        Ended { reason, code: 0, text: None }
    }
}

impl From<submit::Error> for Ended {
    fn from(error: submit::Error) -> Ended {
        let (reason, code) = match error {
            submit::Error::Killed(code) => (Reason::Killed, code),
            submit::Error::Stopped => (Reason::Stopped, 0),
            submit::Error::Freed => (Reason::Freed, 0),
            submit::Error::Closed => (Reason::Closed, 0),
            submit::Error::Handle(_) => (Reason::Handle, 0),
            submit::Error::Forked => (Reason::Forked, 0),
            _ => (Reason::Refused, 0),
        };
        Ended { reason, code, text: Some(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_refuses_a_launch_is_told_in_its_own_words() {
        let ended = Ended::from(submit::Error::Unavailable("the stack has another size now".into()));
        assert_eq!((ended.reason, ended.text.as_deref()), (Reason::Refused, Some("the stack has another size now")));
        let ended = Ended::from(submit::Error::Killed(31));
        assert!(ended.reason == Reason::Killed && ended.code == 31 && ended.text.unwrap().contains("Xid"));
    }

    #[test]
    fn reasons_are_those_of_their_numbers() {
        assert!((0..12).all(|number| Reason::of(number) as u32 == number));
        assert_eq!(Reason::of(12), Reason::Panicked);
    }
}
