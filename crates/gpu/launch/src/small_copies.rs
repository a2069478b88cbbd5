//! The arguments of CUDA's macro that copies a few words, measured on the machine when the first graph has such a copy.
//!
//! CUDA launches graphs of one memcpy node after a memset node each, in separate memory, with known sources and lengths. Exactly one way of reading
//! ([`CopyMacro::derive`]) must explain the words. The target must hold the bytes that the source had at the launch (they are written after the graph was
//! made), and no other change.

use crate::given::segments_of;
use cuda::SmallCopies;
use cuda_graph::{CopyCall, CopyMacro};
use gpu::{AddressSpace, Given, Watched};
use std::sync::{Arc, Mutex};

/// Offsets of the sources and words of the copies: no half of an address is equal to a count.
const KNOWN: [(usize, u32); 2] = [(0x140, 2), (0xa80, 4)];
const BACKGROUND: u8 = 0xee;
/// Attempts for each copy, if another thread has CUDA submit something during one.
const TRIES: usize = 3;

/// Results by GPU.
static MEASURED: Mutex<Vec<([u8; 16], CopyMacro)>> = Mutex::new(Vec::new());

/// Measures the macro with the process's libcuda, in the current context, once for each GPU.
pub(crate) fn by_libcuda(watched: &Watched, space: &Arc<AddressSpace>) -> Result<CopyMacro, String> {
    let gpu = space.device().uuid();
    let mut measured = poison::ignore(MEASURED.lock());
    if let Some((_, known)) = measured.iter().find(|(of, _)| *of == gpu) {
        return Ok(*known);
    }
    let cuda = cuda::Cuda::load().map_err(|error| error.to_string())?;
    let copies = SmallCopies::new(cuda).map_err(|error| error.to_string())?;
    let found = measure(watched, space, &copies)?;
    measured.push((gpu, found));
    Ok(found)
}

fn measure(watched: &Watched, space: &Arc<AddressSpace>, copies: &SmallCopies) -> Result<CopyMacro, String> {
    let (source, target) = copies.addresses().map_err(|error| error.to_string())?;
    let mut seen = Vec::new();
    for (offset, words) in KNOWN {
        let bytes: Vec<u8> =
            (0..4 * words).map(|i| (i as u8).wrapping_mul(37).wrapping_add(offset as u8 | 1)).collect();
        let once = || one(watched, space, copies, (offset, &bytes, target)).transpose();
        let call = (0..TRIES).find_map(|_| once());
        let call = call.unwrap_or_else(|| Err("CUDA copies so few words in a graph without it".into()))?;
        seen.push((call, source + offset as u64));
    }
    let arguments: Vec<_> = seen.iter().map(|(call, _)| call.arguments).collect();
    CopyMacro::derive(&seen).ok_or_else(|| {
        format!(
            "copies from {source:#x} and {KNOWN:x?} (offset, words), which had the arguments {arguments:x?}, do not tell"
        )
    })
}

/// Makes one copy. Returns its call of the macro, if there was exactly one.
fn one(
    watched: &Watched,
    space: &Arc<AddressSpace>,
    copies: &SmallCopies,
    (offset, bytes, target): (usize, &[u8], u64),
) -> Result<Option<CopyCall>, String> {
    let mut given = None;
    let left = copies.copy(offset, bytes, BACKGROUND, |launch| {
        let mark = watched.mark(space);
        launch()?;
        given = mark.and_then(|mark| watched.given(&mark)).ok();
        Ok(())
    });
    let left = left.map_err(|error| error.to_string())?;
    let right = left.starts_with(bytes) && left.iter().skip(bytes.len()).all(|byte| *byte == BACKGROUND);
    if !right {
        return Err(format!("a copy of {} bytes in a graph left something else in memory", bytes.len()));
    }
    let calls = given.map(|given: Given| calls(&given)).unwrap_or_default();
    let calls: Vec<CopyCall> = calls.into_iter().filter(|call| call.address == target).collect();
    Ok(match calls[..] {
        [call] if call.bytes as usize == bytes.len() => Some(call),
        _ => None,
    })
}

fn calls(given: &Given) -> Vec<CopyCall> {
    let (channels, segments) = segments_of(given);
    cuda_graph::copy_calls(&channels, &segments)
}
