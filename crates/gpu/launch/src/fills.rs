//! The argument order of CUDA's fill macro, measured on the machine when the first graph has such a memset.
//!
//! CUDA makes two fills of known words and lengths in separate memory while its channels are watched. Exactly one way of reading ([`FillMacro::derive`])
//! must explain the words that it sent. The memory must hold the requested words and no other change.

use crate::given::segments_of;
use cuda_graph::{FillCall, FillMacro};
use gpu::{AddressSpace, Given, Watched};
use std::sync::{Arc, Mutex};

/// Has CUDA fill memory.
pub trait Memsets {
    /// The address of [`WORDS`] words of CUDA's memory with no other user. Each call writes [`BACKGROUND`] to all of them.
    ///
    /// # Errors
    /// CUDA's error.
    fn begin(&mut self) -> Result<u64, String>;

    /// Has CUDA fill the first words with one `cuMemsetD32Async`, and waits until that is done.
    ///
    /// # Errors
    /// CUDA's error.
    fn fill(&mut self, value: u32, words: u32) -> Result<(), String>;

    /// The current contents of the memory.
    ///
    /// # Errors
    /// CUDA's error.
    fn read(&mut self) -> Result<Vec<u32>, String>;
}

/// Size of the memory in words, and their first value.
pub const WORDS: usize = 64;
pub const BACKGROUND: u32 = 0xeeee_eeee;

/// Words and lengths of the fills: no word is equal to a count of any of the lengths.
const KNOWN: [(u32, u32); 2] = [(0xa5c3_0f1b, 7), (0x1d2c_4b67, 13)];
/// Attempts for each fill, if another thread has CUDA submit something during one.
const TRIES: usize = 3;

/// Results by the process's libcuda, by GPU.
static MEASURED: Mutex<Vec<([u8; 16], FillMacro)>> = Mutex::new(Vec::new());

/// Measures the macro with the process's libcuda, in the current context, once for each GPU.
pub(crate) fn by_libcuda(watched: &Watched, space: &Arc<AddressSpace>) -> Result<FillMacro, String> {
    let gpu = space.device().uuid();
    let mut measured = poison::ignore(MEASURED.lock());
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
    // (CUDA may load or open something for the first fill.)
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

/// Makes one fill. Returns its call of the macro, if there was exactly one.
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

/// Fills by the libcuda of the process.
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
