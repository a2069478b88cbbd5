//! What is refused without the necessary rights.

use super::through;
use crate::report::{Outcome, ensure};
use pcie::{Address, Function, sysfs};
use std::fs;
use std::io;

/// include/uapi/linux/capability.h: _LINUX_CAPABILITY_VERSION_3, CAP_SYS_ADMIN.
const VERSION: u32 = 0x2008_0522;
const SYS_ADMIN: u32 = 21;

/// `cap_user_data_t`, of which version 3 has two.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Rights {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `call` is capget or capset, of this thread.
fn rights(call: libc::c_long, of: &mut [Rights; 2]) -> io::Result<()> {
    let head = [VERSION, 0];
    // SAFETY: both calls take these two structs.
    match unsafe { libc::syscall(call, head.as_ptr(), of.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Another user than root.
pub fn not_root(edu: Address) -> Outcome {
    let become_user = |user| {
        // SAFETY: changes whose rights this process has.
        match unsafe { libc::seteuid(user) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    become_user(65_534)?;
    let refused = sysfs::open(edu).map(drop);
    become_user(0)?;
    through::refused(refused, &["this needs root", "sudo"])
}

/// Root without the right to physical addresses, as in a container: the kernel shows zeros, which must not become bus addresses.
pub fn hidden_addresses(edu: Address) -> Outcome {
    let device = sysfs::open(edu)?;
    let mut all = [Rights::default(); 2];
    rights(libc::SYS_capget, &mut all)?;
    let mut fewer = all;
    fewer[0].effective &= !(1 << SYS_ADMIN);
    rights(libc::SYS_capset, &mut fewer)?;
    let refused = device.allocate(4096).map(drop).and(device.allocate(4 << 20).map(drop));
    rights(libc::SYS_capset, &mut all)?;
    let why = refused.err().ok_or("memory was allocated")?;
    // The cause is reported with the call.
    let told = format!("{why}: {}", std::error::Error::source(&why).map(ToString::to_string).unwrap_or_default());
    ensure(told.contains("CAP_SYS_ADMIN"), || told.clone())?;
    Ok(device.allocate(4096).map(drop)?)
}

/// The last check: lockdown cannot be undone.
pub fn lockdown(edu: Address) -> Outcome {
    fs::write("/sys/kernel/security/lockdown", "integrity")?;
    through::refused(sysfs::open(edu), &["locked down (integrity)", "vfio"])
}
