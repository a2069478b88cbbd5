//! Green contexts: some of the GPU's SMs. A handle of one, of its context and of what it is made from is the number of its SMs, at a place that no other
//! handle has.

use std::ffi::c_int;

/// CU_DEV_RESOURCE_TYPE_SM
pub(crate) const SM: c_int = 1;
/// SMs of the GPU.
pub(crate) const ALL: u32 = 132;

const FIRST: usize = 0x6_0000;

/// `CUdevResource`: its type, and at word 24 how many SMs.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Resource([u32; 36]);

impl Resource {
    pub fn of(sms: u32) -> Resource {
        let mut words = [0; 36];
        (words[0], words[24]) = (SM as u32, sms);
        Resource(words)
    }

    pub fn sms(&self) -> u32 {
        self.0[24]
    }
}

pub(crate) fn handle(sms: u32) -> usize {
    FIRST + sms as usize
}

/// The SMs that a handle stands for.
pub(crate) fn sms(handle: usize) -> Option<u32> {
    let sms = u32::try_from(handle.checked_sub(FIRST)?).ok()?;
    (1..=ALL).contains(&sms).then_some(sms)
}
