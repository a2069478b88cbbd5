//! How CUDA's macro that fills memory is to be read: measured on the machine, when the first graph has one.
//!
//! CUDA is asked for two fills of known words and lengths, in memory of its own, while its channels are watched. What stands on the wire for them must be
//! explained by exactly one way of reading ([`FillMacro::derive`]), and the memory must hold what was asked for and nothing else.

use crate::given::segments_of;
use cuda_graph::{FillCall, FillMacro};
use gpu::{AddressSpace, Given, Watched};
use std::sync::{Arc, Mutex, PoisonError};

/// Whoever has CUDA fill memory.
pub trait Memsets {
    /// Where the memory lies: [`WORDS`] words of CUDA's that nothing else uses. Each call writes [`BACKGROUND`] to all of them.
    ///
    /// # Errors
    /// What CUDA has against it.
    fn begin(&mut self) -> Result<u64, String>;

    /// Has CUDA fill the first words with one `cuMemsetD32Async`, and waits until that is done.
    ///
    /// # Errors
    /// What CUDA has against it.
    fn fill(&mut self, value: u32, words: u32) -> Result<(), String>;

    /// What the memory holds now.
    ///
    /// # Errors
    /// What CUDA has against it.
    fn read(&mut self) -> Result<Vec<u32>, String>;
}

/// Words of the memory, and what they are at first.
pub const WORDS: usize = 64;
pub const BACKGROUND: u32 = 0xeeee_eeee;

/// Words and lengths of the fills: none of the words counts any of the lengths.
const KNOWN: [(u32, u32); 2] = [(0xa5c3_0f1b, 7), (0x1d2c_4b67, 13)];
/// How often each is made, where another thread has CUDA submit something meanwhile.
const TRIES: usize = 3;

/// What was measured by the process's libcuda, by GPU.
static MEASURED: Mutex<Vec<([u8; 16], FillMacro)>> = Mutex::new(Vec::new());

/// Measures it by the process's libcuda, in the context that is current, once for each GPU.
pub(crate) fn by_libcuda(watched: &Watched, space: &Arc<AddressSpace>) -> Result<FillMacro, String> {
    let gpu = space.device().uuid();
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = measured.iter().find(|(of, _)| *of == gpu) {
        return Ok(*known);
    }
    let found = measure(watched, space, &mut ByLibcuda(None))?;
    measured.push((gpu, found));
    Ok(found)
}

pub(crate) fn measure(
    watched: &Watched,
    space: &Arc<AddressSpace>,
    memsets: &mut dyn Memsets,
) -> Result<FillMacro, String> {
    // (The first fill may have CUDA load or open something.)
    memsets.begin()?;
    memsets.fill(0, 1)?;
    let mut seen = Vec::new();
    for (value, words) in KNOWN {
        let address = memsets.begin()?;
        let call = (0..TRIES).find_map(|_| one(watched, space, memsets, (address, value, words)).transpose());
        let call = call.unwrap_or_else(|| Err("CUDA fills memory in a stream without it".into()))?;
        let found = memsets.read()?;
        let filled = |i: usize| if i < words as usize { value } else { BACKGROUND };
        if found.len() != WORDS || found.iter().enumerate().any(|(i, word)| *word != filled(i)) {
            return Err(format!("a fill of {words} words with {value:#x} in a stream left something else in memory"));
        }
        seen.push((call, value));
    }
    let arguments: Vec<_> = seen.iter().map(|(call, _)| call.arguments).collect();
    FillMacro::derive(&seen).ok_or_else(|| {
        format!("fills of {KNOWN:x?} (word, length) in a stream, which had the arguments {arguments:x?}, do not tell")
    })
}

/// One fill, and the one call of the macro that was given for it, if there was one.
fn one(
    watched: &Watched,
    space: &Arc<AddressSpace>,
    memsets: &mut dyn Memsets,
    (address, value, words): (u64, u32, u32),
) -> Result<Option<FillCall>, String> {
    let mark = watched.mark(space).map_err(|error| error.to_string())?;
    memsets.fill(value, words)?;
    let Ok(given) = watched.given(&mark) else { return Ok(None) };
    let calls: Vec<FillCall> = calls(&given).into_iter().filter(|call| call.address == address).collect();
    Ok(match calls[..] {
        [call] if call.bytes == 4 * words => Some(call),
        _ => None,
    })
}

fn calls(given: &Given) -> Vec<FillCall> {
    let (channels, segments) = segments_of(given);
    cuda_graph::fill_calls(&channels, &segments)
}

/// By the libcuda of the process.
struct ByLibcuda(Option<cuda::Fills>);

impl ByLibcuda {
    fn fills(&mut self) -> Result<&cuda::Fills, String> {
        if self.0.is_none() {
            let cuda = cuda::Cuda::load().map_err(|error| error.to_string())?;
            self.0 = Some(cuda::Fills::new(cuda).map_err(|error| error.to_string())?);
        }
        self.0.as_ref().ok_or_else(String::new)
    }
}

impl Memsets for ByLibcuda {
    fn begin(&mut self) -> Result<u64, String> {
        let fills = self.fills()?;
        fills.write(&BACKGROUND.to_le_bytes().repeat(WORDS)).map_err(|error| error.to_string())?;
        Ok(fills.address())
    }

    fn fill(&mut self, value: u32, words: u32) -> Result<(), String> {
        self.fills()?.fill32(value, words as usize).map_err(|error| error.to_string())
    }

    fn read(&mut self) -> Result<Vec<u32>, String> {
        let bytes = self.fills()?.read().map_err(|error| error.to_string())?;
        Ok(bytes.as_chunks().0.iter().take(WORDS).map(|word| u32::from_le_bytes(*word)).collect())
    }
}
