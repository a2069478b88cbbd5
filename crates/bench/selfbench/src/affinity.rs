//! Measured programs stay on one CPU.

use anyhow::Context;

/// Keeps this process on one CPU.
pub fn stay_on(cpu: usize) -> anyhow::Result<()> {
    // SAFETY: a zeroed set is an empty set, and cpu is checked against its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        anyhow::ensure!(cpu < libc::CPU_SETSIZE as usize, "CPU {cpu} is out of range");
        libc::CPU_SET(cpu, &mut set);
        if libc::sched_setaffinity(0, size_of_val(&set), &set) != 0 {
            return Err(std::io::Error::last_os_error()).with_context(|| format!("CPU {cpu}"));
        }
    }
    Ok(())
}
