//! The kernel's own clock. The program, or a library that it preloads, may override libc's clock_gettime (faketime). The
//! kernel does not use that clock, so a deadline computed with it passes immediately or never. A system call instead
//! would kill programs whose filter does not allow it.

use super::symbol::{Dyn, Tables};
use core::mem::transmute;

/// From now on the locks' deadlines use the vDSO's function if there is one, otherwise libc's. Called by the constructor.
pub fn look_up() {
    // SAFETY: reads a word from libc that the kernel gave this process.
    let at = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if at == 0 {
        return;
    }
    // SAFETY: the kernel maps the vDSO, a library, permanently, with its headers at its start.
    unsafe {
        let header = &*(at as *const libc::Elf64_Ehdr);
        let headers = (at + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        let headers = core::slice::from_raw_parts(headers, usize::from(header.e_phnum));
        let find = |kind| headers.iter().find(|h| h.p_type == kind);
        let (Some(first), Some(dynamic)) = (find(libc::PT_LOAD), find(libc::PT_DYNAMIC)) else { return };
        let base = at.wrapping_add(first.p_offset as usize).wrapping_sub(first.p_vaddr as usize);
        let dynamic = base.wrapping_add(dynamic.p_vaddr as usize) as *const Dyn;
        let Some(tables) = Tables::of(base, dynamic) else { return };
        if let Some(symbol) = tables.function(b"__vdso_clock_gettime") {
            let function = base.wrapping_add((*symbol).value);
            locks::deadline::read_clocks_with(transmute::<usize, locks::deadline::Read>(function));
        }
    }
}

#[cfg(test)]
mod tests {
    use locks::Clock;

    #[test]
    fn the_kernels_clock_is_that_of_libc() {
        let ns = |t: libc::timespec| t.tv_sec as i128 * 1_000_000_000 + i128::from(t.tv_nsec);
        for clock in [Clock::Monotonic, Clock::Realtime] {
            let before = ns(clock.now());
            super::look_up();
            let after = ns(clock.now());
            assert!((0..1_000_000_000).contains(&(after - before)), "{before} {after}");
        }
    }
}
