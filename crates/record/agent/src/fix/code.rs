//! Code that CUDA compiles: doorbell's compiler loads it first, in a process of its own, so CUDA's cache has it when the program loads it.
//!
//! cuModuleLoadData holds the lock for which launches wait while it compiles: a second for 400 kernels on an H200. From the cache
//! it takes 3 ms, and their cubin 1. The program's own call follows in any case, so its result, its errors and its logs are CUDA's.

use super::driver::{NOT_READY, SUCCESS};
use super::image::{CONTROL, DATA};
use super::{driver, turn_off};
use crate::process::restrictions::{may, need};
use crate::process::sys;
use tape::compile::{self, Kind, MOST, OPTIONS, Request, Setting, state};
use tape::event::bytes_of;
use tape::fix::{Count, Why};

/// `CUjit_option`s of a call: how many, and the addresses of the options and of their values.
pub struct Options {
    pub count: usize,
    pub names: usize,
    pub values: usize,
}

/// Has the compiler load the code at `image`.
///
/// # Safety
/// As CUDA reads the code and the options of its call.
pub unsafe fn compile(count: &Count, socket: u32, image: usize, options: &Options) -> Result<(), Why> {
    let d = driver(count)?;
    if image == 0 {
        return Err(Why::NoText);
    }
    if socket == 0 || !may(need::SOCKET) {
        return Err(Why::NoCompiler);
    }
    // SAFETY: the caller's.
    let code = unsafe { text(image).or_else(|| fat_binary(image)) }.ok_or(Why::NoText)?;
    let mut settings = [Setting::default(); OPTIONS];
    // SAFETY: the caller's.
    let n = unsafe { known(options, &mut settings) }.ok_or(Why::Flags)?;
    let (mut device, mut uuid) = (-1, [0; 16]);
    // SAFETY: places for the number and the UUID.
    if unsafe { (d.current_device)(&raw mut device) != SUCCESS || (d.uuid)(&raw mut uuid, device) != SUCCESS } {
        return Err(Why::Driver);
    }
    let request = Request { uuid, options: n as u64, bytes: code.len() as u64 };
    let settings = settings.get(..n).unwrap_or(&[]);
    // SAFETY: Setting is Plain.
    let words = unsafe { core::slice::from_raw_parts(settings.as_ptr().cast::<u8>(), size_of_val(settings)) };
    let Some(answer) = sys::ask(&compile::name(socket), &[bytes_of(&request), words, code]) else {
        // (Whoever waited in vain does not wait again.)
        turn_off(count, NOT_READY);
        return Err(Why::NoCompiler);
    };
    match answer.state {
        state::CACHED if answer.result != SUCCESS => Err(Why::NoText),
        state::CACHED => {
            count.answered(code.len() as u64);
            Ok(())
        }
        state::NO_CACHE => Err(Why::NoCache),
        _ => Err(Why::NoCompiler),
    }
}

/// PTX, without its NUL.
///
/// # Safety
/// As CUDA reads it: a text with a NUL, or a binary of some bytes at least.
unsafe fn text<'a>(image: usize) -> Option<&'a [u8]> {
    let at = image as *const u8;
    // SAFETY: the caller's; a NUL ends the look at a text, and no binary begins like one.
    unsafe {
        let is_text = (0..4).map(|i| *at.add(i)).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        if !is_text {
            return None;
        }
        let mut length = 4;
        while *at.add(length) != 0 {
            length += 1;
            if length > MOST {
                return None;
            }
        }
        Some(core::slice::from_raw_parts(at, length))
    }
}

/// A fat binary without a cubin: its control or its data ([`super::image`]). Entries: kind (1: PTX, 2: cubin), .., bytes of the header at 4, bytes after it at 8.
///
/// # Safety
/// As for [`text`].
unsafe fn fat_binary<'a>(image: usize) -> Option<&'a [u8]> {
    const PTX: u16 = 1;
    const CUBIN: u16 = 2;
    // SAFETY: the caller's, and the data's own lengths.
    unsafe {
        let mut at = image;
        if (at as *const u32).read_unaligned() == CONTROL {
            at = ((at + 8) as *const usize).read_unaligned();
        }
        if at == 0 || (at as *const u32).read_unaligned() != DATA {
            return None;
        }
        let header = usize::from(((at + 6) as *const u16).read_unaligned());
        let length = header.checked_add(((at + 8) as *const u64).read_unaligned() as usize)?;
        if header < 16 || length > MOST {
            return None;
        }
        let data = core::slice::from_raw_parts(at as *const u8, length);
        let half = |i: usize| Some(u16::from_le_bytes(data.get(i..i + 2)?.try_into().ok()?));
        let word = |i: usize| Some(u32::from_le_bytes(data.get(i..i + 4)?.try_into().ok()?));
        let long = |i: usize| Some(u64::from_le_bytes(data.get(i..i + 8)?.try_into().ok()?));
        let (mut entry, mut has_text) = (header, false);
        while entry < length {
            match half(entry)? {
                // (CUDA takes a cubin that fits, and compiles only if none does. Which one fits is not looked at.)
                CUBIN => return None,
                PTX => has_text = true,
                _ => {}
            }
            let next = (word(entry + 4)? as usize).checked_add(long(entry + 8)? as usize)?;
            if next == 0 {
                return None;
            }
            entry = entry.checked_add(next)?;
        }
        has_text.then_some(data)
    }
}

/// The options that change the code; `None` if one is not known, or if there are too many.
///
/// # Safety
/// As CUDA reads them.
unsafe fn known(options: &Options, to: &mut [Setting; OPTIONS]) -> Option<usize> {
    // (The number is a word of 32 bits.)
    let count = options.count as u32 as usize;
    if count > 0 && (options.names == 0 || options.values == 0) || count > 2 * OPTIONS {
        return None;
    }
    let mut n = 0;
    for i in 0..count {
        // SAFETY: the caller's.
        let (option, value) = unsafe {
            let option = (options.names as *const u32).add(i).read_unaligned();
            (option, (options.values as *const u64).add(i).read_unaligned())
        };
        match compile::option(option) {
            Kind::Value => {
                *to.get_mut(n)? = Setting { option, pad: 0, value };
                n += 1;
            }
            Kind::Output => {}
            Kind::Pointer => return None,
        }
    }
    Some(n)
}
