//! Errors, by name. Those that a submission returns allocate no memory.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the session is not open; open it first")]
    Closed,
    #[error("this session is open already: close it first, or make another one")]
    AlreadyOpen,
    #[error(
        "this is a fork's child: the GPU's channels are its parent's; start a new program (exec) to use the GPU here"
    )]
    Forked,
    #[error("no such {0}: it was freed, is of another session, or was never one")]
    Handle(&'static str),
    #[error("the memory behind the buffer was freed, or is another allocation now: unpin it, and pin what is there")]
    Freed,
    #[error("{length:#x} bytes at {offset:#x} do not lie within the buffer's {size:#x}")]
    Outside { offset: u64, length: u64, size: u64 },
    #[error("another thread submits on this lane at this moment; nothing was submitted: try again, or open more lanes")]
    Busy,
    #[error("{0} of this are under way, and there is no room for more; wait for one of them first")]
    Full(u32),
    #[error(
        "the next frame is still under way: the producer has come round the ring; wait for it, or have more frames"
    )]
    Overrun,
    #[error("no more than {0} of these at a time; close some first")]
    Limit(usize),
    #[error("{0}")]
    Argument(&'static str),
    #[error("{}", Late(*.0))]
    Timeout(Duration),
    #[error("the channel was killed by error {0} (Xid), the kernel log says why; close the session and open it again")]
    Killed(u32),
    #[error(
        "the channel was stopped, because memory was freed under a copy that did not end in time; close the session and \
         open it again"
    )]
    Stopped,
    #[error(transparent)]
    Pin(#[from] machine::PinError),
    #[error("{0}")]
    Unavailable(String),
    #[error("the graph cannot be launched past CUDA: {0}")]
    Graph(String),
    #[error(transparent)]
    Gpu(gpu::Error),
    #[error(transparent)]
    Cuda(cuda::Error),
}

/// The text of a timeout. It allocates no memory.
struct Late(Duration);

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_nanos() {
            0 => f.write_str("not done yet"),
            1..10_000 => write!(f, "not done within {} ns", self.0.as_nanos()),
            10_000..10_000_000 => write!(f, "not done within {} us", self.0.as_micros()),
            10_000_000..10_000_000_000 => write!(f, "not done within {} ms", self.0.as_millis()),
            _ => write!(f, "not done within {} s", self.0.as_secs()),
        }
    }
}

impl From<gpu::Error> for Error {
    #[inline]
    fn from(error: gpu::Error) -> Error {
        match error {
            gpu::Error::Forked => Error::Forked,
            gpu::Error::Stale | gpu::Error::Reused => Error::Freed,
            gpu::Error::Outside { offset, length, size } => Error::Outside { offset, length, size },
            gpu::Error::RingFull(entries) => Error::Full(entries),
            gpu::Error::ChannelKilled(code) => Error::Killed(code),
            gpu::Error::ChannelStopped => Error::Stopped,
            gpu::Error::Timeout { after, .. } => Error::Timeout(after),
            error @ (gpu::Error::NotSeen { .. } | gpu::Error::Group(_) | gpu::Error::Architecture(_)) => {
                Error::Unavailable(error.to_string())
            }
            gpu::Error::Length(0) => Error::Argument("no bytes: pass how many"),
            other => Error::Gpu(other),
        }
    }
}

impl From<machine::Error> for Error {
    fn from(error: machine::Error) -> Error {
        match error {
            machine::Error::Pin(error) => Error::Pin(error),
            machine::Error::Gpu(gpu::Error::NotPinnable { va, length, why }) => {
                Error::Pin(machine::PinError::NotMapped { pointer: va, length, why })
            }
            machine::Error::Gpu(error) => error.into(),
            machine::Error::Unavailable(why) => Error::Unavailable(why.reason),
            machine::Error::Cuda(error) => Error::Cuda(error),
        }
    }
}

impl From<launch::Error> for Error {
    fn from(error: launch::Error) -> Error {
        match error {
            launch::Error::Gpu(error) => error.into(),
            launch::Error::Channel(why) => Error::Unavailable(why.into()),
            other => Error::Graph(other.to_string()),
        }
    }
}

impl From<cuda::Error> for Error {
    fn from(error: cuda::Error) -> Error {
        Error::Cuda(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_its_limit_with_a_unit() {
        let text = |nanoseconds| Error::Timeout(Duration::from_nanos(nanoseconds)).to_string();
        assert_eq!(text(0), "not done yet");
        assert_eq!(text(2_000_000), "not done within 2000 us");
        assert_eq!(text(10_000_000_000), "not done within 10 s");
    }

    #[test]
    fn a_gpu_on_which_channels_were_not_seen_has_none_to_offer() {
        let error = Error::from(gpu::Error::Architecture("Ada (AD102 to AD107), ADA_COMPUTE_A".into()));
        assert!(matches!(&error, Error::Unavailable(why) if why.contains("ADA_COMPUTE_A")), "{error}");
    }
}
