//! Code that is compiled when it is loaded: it takes the lock while it is compiled, unless a cache has it.
//!
//! The cache is the folder CUDA_CACHE_PATH, if CUDA_CACHE_DISABLE is not 1. (Without that folder there is none.)

use crate::lock::exclusive;
use std::ffi::{CStr, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

/// To compile a kernel takes 2.5 ms, which is what 400 in a second make. (Fewer than 8 take no time.)
const KERNEL: Duration = Duration::from_micros(2500);

/// Loads a text with these options. False for one that is wrong. (What is no text is compiled already.)
///
/// # Safety
/// `image` begins with four bytes, and is a text with a NUL if these are of one.
pub(crate) unsafe fn load(image: *const c_char, settings: &[u64]) -> bool {
    // SAFETY: the caller's.
    let is_text = unsafe {
        (0..4).all(|i| (*image.add(i) as u8).is_ascii_graphic() || (*image.add(i) as u8).is_ascii_whitespace())
    };
    if !is_text {
        return true;
    }
    // SAFETY: the caller's text.
    let text = unsafe { CStr::from_ptr(image) }.to_string_lossy();
    if text.trim_start_matches(['/', ' ']).starts_with("wrong") {
        return false;
    }
    let kernels = text.matches(".entry").count() as u32;
    let cached = cached(&text, settings);
    if kernels < 8 || cached.as_ref().is_some_and(|file| file.exists()) {
        return true;
    }
    exclusive(KERNEL * kernels, || ());
    if let Some(file) = cached {
        // (A cache that cannot be written is none.)
        let _ = std::fs::write(file, []);
    }
    true
}

fn cached(text: &str, settings: &[u64]) -> Option<PathBuf> {
    if std::env::var_os("CUDA_CACHE_DISABLE").is_some_and(|off| off == "1") {
        return None;
    }
    let mut hash = DefaultHasher::new();
    (text, settings).hash(&mut hash);
    Some(PathBuf::from(std::env::var_os("CUDA_CACHE_PATH")?).join(format!("{:016x}", hash.finish())))
}
