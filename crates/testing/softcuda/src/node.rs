//! Work for a stream that a graph can contain, too.

use crate::kernels::Launch;
use crate::memory;
use crate::wait::Ended;
use std::sync::OnceLock;

/// Its addresses name memory that lives until it has run, which the program promises.
#[derive(Clone)]
pub(crate) enum Node {
    Kernel(Launch),
    /// Elements of 1, 2 or 4 bytes.
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

/// `DOORBELL_SOFTCUDA_COPIES=engine`: copies go through the channel's copy engine, if the GPU has both sides mapped.
fn by_the_engine() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(|| std::env::var("DOORBELL_SOFTCUDA_COPIES").is_ok_and(|way| way == "engine"))
}

fn has_copied(to: u64, from: u64, bytes: usize) -> bool {
    let is_mapped = |at: u64| memory::find(at, |_, _| ()).is_some();
    let (Some(soft), Ok(bytes), true) = (memory::soft(), u32::try_from(bytes), is_mapped(to) && is_mapped(from)) else {
        return false;
    };
    bytes > 0 && soft.channel.copy(to, from, bytes)
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

    /// The result of a fill: the repeated word, and the bytes.
    pub fn filled(&self) -> Option<(u64, u32, usize)> {
        let Node::Fill { to, value, size, count } = *self else { return None };
        let word = match size {
            1 => (value & 0xff) * 0x0101_0101,
            2 => (value & 0xffff) * 0x1_0001,
            _ => value,
        };
        Some((to, word, size * count))
    }

    /// Does on the CPU, on the stream's thread, what CUDA would submit to its own channels; small fills use the channel, as in CUDA.
    pub fn run(&self, ended: &Ended) {
        if let Some((to, word, bytes)) = self.filled() {
            let small = u32::try_from(bytes).is_ok_and(|bytes| (1..=cuda_graph::words::MOST_BY_MACRO).contains(&bytes));
            if !small || !memory::soft().is_some_and(|soft| soft.channel.fill(to, word, bytes as u32)) {
                let word = word.to_le_bytes();
                // SAFETY: as promised.
                (0..bytes).for_each(|n| unsafe { (to as *mut u8).add(n).write(word[n % 4]) });
            }
            return;
        }
        match *self {
            Node::Kernel(ref launch) => launch.run(ended),
            Node::Fill { .. } => {}
            Node::Copy { to, from, bytes } => {
                if !by_the_engine() || !has_copied(to, from, bytes) {
                    // SAFETY: as promised.
                    unsafe { memory::copy(to, from, bytes) }
                }
            }
        }
    }
}
