//! What a stream is given that a graph can have, too.

use crate::kernels::Launch;
use crate::memory;
use crate::wait::Ended;

/// Its addresses name memory that lives until it has run, which the program promises.
#[derive(Clone)]
pub(crate) enum Node {
    Kernel(Launch),
    /// Elements of 1 or 4 bytes.
    Fill {
        to: u64,
        value: u32,
        size: usize,
        count: usize,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
}

impl Node {
    pub fn kernel(&self) -> Option<&Launch> {
        match self {
            Node::Kernel(launch) => Some(launch),
            _ => None,
        }
    }

    /// Kernels that wait for the program have no stand-in on the software GPU.
    pub fn can_be_captured(&self) -> bool {
        self.kernel().is_none_or(|launch| launch.kernel.operation.is_some())
    }

    /// By the CPU, on the stream's thread: what CUDA would put into its own channels.
    pub fn run(&self, ended: &Ended) {
        match *self {
            Node::Kernel(ref launch) => launch.run(ended),
            // SAFETY: as promised.
            Node::Fill { to, value, size: 1, count } => unsafe {
                std::ptr::write_bytes(to as *mut u8, value as u8, count);
            },
            Node::Fill { to, value, count, .. } => {
                // SAFETY: as promised.
                (0..count).for_each(|n| unsafe { (to as *mut u32).add(n).write(value) });
            }
            // SAFETY: as promised.
            Node::Copy { to, from, bytes } => unsafe { memory::copy(to, from, bytes) },
        }
    }
}
