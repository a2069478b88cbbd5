//! Latches by which kernels of ours overlap.
//!
//! CUDA gives numbers of latches to executable graphs with programmatic launches, one for each such edge, and no number twice while a graph lives that has
//! it (seen on an H200). So CUDA makes a graph here whose kernels do nothing. Nobody launches it after it was learnt, so its latches are ours for
//! as long as the context lives. Graphs of ours take theirs from these and give them back when their last launch is done.

use crate::learn;
use cuda::{Cuda, EarlyChain};
use gpu::{AddressSpace, Watched};
use std::sync::{Arc, Mutex, PoisonError};

/// Latches that no graph of ours uses now, with the number of the context that has them.
static FREE: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
/// At least so many are made at once.
const CHAIN: usize = 16;

/// Some latches of a context, ours alone until this is dropped.
#[derive(Debug)]
pub(crate) struct Latches {
    context: u64,
    pub numbers: Vec<u64>,
}

impl Latches {
    /// So many of the context that is current.
    pub fn take(watched: &Watched, space: &Arc<AddressSpace>, count: usize) -> Result<Latches, String> {
        let cuda = Cuda::load().map_err(|error| error.to_string())?;
        let context = cuda::context_number(&cuda).map_err(|error| error.to_string())?;
        let mut latches = Latches { context, numbers: Vec::new() };
        latches.take_free(count);
        let missing = count - latches.numbers.len();
        if missing > 0 {
            let made = made(watched, space, cuda, missing.max(CHAIN))?;
            free().extend(made.into_iter().map(|latch| (context, latch)));
            latches.take_free(missing);
        }
        Ok(latches)
    }

    fn take_free(&mut self, count: usize) {
        let (context, mut left) = (self.context, count);
        free().retain(|(of, latch)| {
            let takes = *of == context && left > 0;
            if takes {
                self.numbers.push(*latch);
                left -= 1;
            }
            !takes
        });
    }
}

impl Drop for Latches {
    fn drop(&mut self) {
        free().extend(self.numbers.drain(..).map(|latch| (self.context, latch)));
    }
}

fn free() -> std::sync::MutexGuard<'static, Vec<(u64, u64)>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The latches of a new graph of CUDA's.
fn made(watched: &Watched, space: &Arc<AddressSpace>, cuda: Cuda, count: usize) -> Result<Vec<u64>, String> {
    let chain = EarlyChain::new(cuda, count).map_err(|error| error.to_string())?;
    let no_fills = || Err("the graph fills nothing".to_owned());
    let recipe = learn::learn(watched, space, &mut || chain.launch(), no_fills).map_err(|error| error.to_string())?;
    let latches = recipe.latches();
    match latches.len() == count {
        true => Ok(latches),
        false => Err(format!("CUDA gave {} latches to a graph of {count} programmatic launches", latches.len())),
    }
}
