//! Whether confidential computing is on: then submissions are encrypted and may not be changed.

use crate::process::real;
use core::ffi::{c_int, c_void};
use rm::abi::control::{CONFIDENTIAL_CAPABILITIES, ConfidentialCapabilities};
use rm::abi::{self, Nvos54, Nvos64, nr};
use rm::class::{NV_CONFIDENTIAL_COMPUTE, NV01_ROOT_CLIENT};

/// Asks the driver through a client that ends with its file. False if the driver does not support the question. These
/// calls are not recorded.
pub fn is_on() -> bool {
    // SAFETY: a path, and flags without O_CREAT.
    let fd = unsafe { real::open(c"/dev/nvidiactl".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0) };
    if fd < 0 {
        return false;
    }
    let feature = feature(fd);
    // SAFETY: opened above.
    unsafe { real::close(fd) };
    feature.is_some_and(|feature| feature != 0)
}

fn feature(fd: c_int) -> Option<u8> {
    let client = alloc(fd, 0, NV01_ROOT_CLIENT, core::ptr::null_mut(), 0)?;
    let mut root = client;
    let object = alloc(fd, client, NV_CONFIDENTIAL_COMPUTE, (&raw mut root).cast(), size_of::<u32>())?;
    let mut p = ConfidentialCapabilities::default();
    let mut a = Nvos54 {
        client,
        object,
        cmd: CONFIDENTIAL_CAPABILITIES,
        params: (&raw mut p) as u64,
        params_size: size_of::<ConfidentialCapabilities>() as u32,
        ..Default::default()
    };
    (call(fd, nr::CONTROL, &mut a) && a.status == 0).then_some(p.feature)
}

/// RM_ALLOC of the client or of an object below it. Returns the handle.
fn alloc(fd: c_int, client: u32, class: u32, params: *mut c_void, bytes: usize) -> Option<u32> {
    let mut a = Nvos64 {
        root: client,
        parent: client,
        class,
        params: params as u64,
        params_size: bytes as u32,
        ..Default::default()
    };
    (call(fd, nr::ALLOC, &mut a) && a.status == 0).then_some(a.new)
}

fn call<T>(fd: c_int, number: u32, a: &mut T) -> bool {
    // SAFETY: a struct of the size that the request declares, with pointers that are valid for the call.
    unsafe { real::ioctl(fd, abi::rm_request(number, size_of::<T>()), (&raw mut *a).cast()) == 0 }
}
