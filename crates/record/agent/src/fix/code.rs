//! Code that CUDA compiles: doorbell's compiler loads it first, in a process of its own, so CUDA's cache has it when the program loads it.
//!
//! cuModuleLoadData holds the lock for which launches wait while it compiles: a second for 400 kernels on an H200. From the cache
//! it takes 3 ms, and their cubin 1. The program's own call follows in any case, so its result, its errors and its logs are CUDA's.

use super::driver::{Driver, NOT_READY, SUCCESS};
use super::image::{CONTROL, DATA};
use super::{driver, turn_off};
use crate::process::restrictions::{may, need};
use crate::process::sys;
use core::ffi::{CStr, c_char};
use tape::compile::{self, Kind, MOST, OPTIONS, Request, Setting, state};
use tape::event::bytes_of;
use tape::fix::{Count, Why};

/// `CUjit_option`s of a call: how many, and the addresses of the options and of their values.
pub struct Options {
    pub count: usize,
    pub names: usize,
    pub values: usize,
}

/// Has the compiler load the code at `image`, or in the file of that name.
///
/// # Safety
/// As CUDA reads the code, or the name, and the options of its call.
pub unsafe fn compile(count: &Count, socket: u32, image: usize, is_file: bool, options: &Options) -> Result<(), Why> {
    let d = driver(count)?;
    if image == 0 {
        return Err(Why::NoText);
    }
    if socket == 0 || !may(need::SOCKET) {
        return Err(Why::NoCompiler);
    }
    let mut settings = [Setting::default(); OPTIONS];
    // SAFETY: the caller's.
    let n = unsafe { known(options, &mut settings) }.ok_or(Why::Flags)?;
    let settings = settings.get(..n).unwrap_or(&[]);
    if !is_file {
        // SAFETY: the caller's.
        return unsafe { sent(count, &d, socket, image, settings) };
    }
    // SAFETY: the caller's name.
    let file = File::read(unsafe { CStr::from_ptr(image as *const c_char) }).ok_or(Why::NoText)?;
    // SAFETY: a file's bytes with a NUL after them. (A fat binary's lengths are checked against the file's.)
    unsafe { if file.holds_its_lengths() { sent(count, &d, socket, file.at, settings) } else { Err(Why::NoText) } }
}

/// Sends the code to the compiler, and waits until it has loaded it.
///
/// # Safety
/// As [`compile`].
unsafe fn sent(count: &Count, d: &Driver, socket: u32, image: usize, settings: &[Setting]) -> Result<(), Why> {
    let (mut device, mut uuid) = (-1, [0; 16]);
    // SAFETY: places for the number and the UUID.
    if unsafe { (d.current_device)(&raw mut device) != SUCCESS || (d.uuid)(&raw mut uuid, device) != SUCCESS } {
        return Err(Why::Driver);
    }
    // SAFETY: the caller's.
    let code = unsafe { text(image).or_else(|| fat_binary(image, chip(d, device)?)) }.ok_or(Why::NoText)?;
    let request = Request { uuid, options: settings.len() as u64, bytes: code.len() as u64 };
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

/// A GPU's compute capability, as code for it says it: 90 for 9.0.
fn chip(d: &Driver, device: i32) -> Option<u32> {
    /// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
    const CAPABILITY: [i32; 2] = [75, 76];
    let mut of = [0; 2];
    for (which, to) in CAPABILITY.into_iter().zip(&mut of) {
        // SAFETY: a place for the number.
        if unsafe { (d.attribute)(to, which, device) } != SUCCESS {
            return None;
        }
    }
    Some((of[0] * 10 + of[1]) as u32)
}

/// A copy of a file, with zeros after it. (Another process may shorten the file itself.)
struct File {
    at: usize,
    bytes: usize,
}

impl File {
    fn read(path: &CStr) -> Option<File> {
        if !may(need::FILES | need::MEMORY | need::NUMBERS) {
            return None;
        }
        let status = sys::status(path).filter(|of| of.st_mode & libc::S_IFMT == libc::S_IFREG)?;
        let bytes = usize::try_from(status.st_size).ok().filter(|bytes| (16..=MOST).contains(bytes))?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, one byte longer than the file.
        let at = unsafe { sys::mmap(sys::AWAY, bytes + 1, protection, flags, -1, 0) }?;
        let file = File { at, bytes };
        // SAFETY: that mapping.
        let room = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, bytes) };
        (sys::read_file(path, room)?.len() == bytes).then_some(file)
    }

    /// True unless this is a fat binary that is longer than the file. (Its data stands in the file itself.)
    fn holds_its_lengths(&self) -> bool {
        // SAFETY: the mapping, of 17 bytes at least.
        let [first, header, data] = unsafe {
            let at = self.at as *const u8;
            [
                u64::from(at.cast::<u32>().read_unaligned()),
                u64::from(at.add(6).cast::<u16>().read_unaligned()),
                at.add(8).cast::<u64>().read_unaligned(),
            ]
        };
        first != u64::from(CONTROL) && (first != u64::from(DATA) || header.saturating_add(data) <= self.bytes as u64)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the mapping of `read`, which nobody uses any more.
        unsafe { sys::munmap(self.at, self.bytes + 1) };
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

/// A fat binary that CUDA compiles: one with PTX, and without a cubin for the chip; its control or its data ([`super::image`]). Entries: kind (1: PTX,
/// 2: cubin), .., bytes of the header at 4, bytes after it at 8, chip at 28.
///
/// # Safety
/// As for [`text`].
unsafe fn fat_binary<'a>(image: usize, chip: u32) -> Option<&'a [u8]> {
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
                // (A cubin runs on chips of its generation, from its own on.)
                CUBIN => {
                    let of = word(entry + 28)?;
                    if of / 10 == chip / 10 && of <= chip {
                        return None;
                    }
                }
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
