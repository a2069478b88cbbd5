//! The machine without its GPU.

pub mod cpu;
pub mod idle;
pub mod kernel;
pub mod memory;
pub mod thread;

use crate::files::Files;
use crate::gather::Gathered;

/// The measuring thread is the calling one.
pub fn facts(files: &Files, into: &mut Gathered) {
    let cpu = thread::cpu();
    into.put("thread.cpu", cpu.clone());
    thread::facts(into);
    cpu::facts(files, cpu.clone(), into);
    idle::facts(files, cpu, into);
    kernel::facts(files, into);
    memory::facts(files, into);
}
