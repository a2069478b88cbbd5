//! The loop `call-loop`: a CUDA call, by its address and through an entry of the agent.
//!
//! The call is a function of this program with the arguments of cuLaunchKernel. So the entry is measured, which is the same on every machine, with or
//! without a GPU.

use crate::{batch, clock, in_turns, print, stay_on, two_clock_reads};
use anyhow::bail;
use std::arch::asm;
use std::hint::black_box;

/// cuLaunchKernel on tapes.
pub(crate) const CU_LAUNCH_KERNEL: u32 = 1;

/// The arguments of cuLaunchKernel.
type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) -> i32;

#[inline(never)]
#[allow(clippy::too_many_arguments)]
extern "C" fn launch(f: u64, x: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, s: u64, p: u64, _: u64) -> i32 {
    // SAFETY: no instructions. It only keeps the compiler from removing the call.
    unsafe { asm!("/* {} {} {} */", in(reg) f, in(reg) s, in(reg) p, options(nostack, preserves_flags)) };
    x as i32
}

#[inline(always)]
fn call(f: Launch) {
    let r = f(0xf1, 7, 1, 1, 32, 1, 1, 0, 0x51, 0, 0);
    assert_eq!(r, 7, "the call's result");
}

#[inline(never)]
fn calls(f: Launch) -> f64 {
    batch(|| call(f))
}

#[inline(never)]
fn clocked_calls(f: Launch) -> f64 {
    batch(|| {
        black_box(clock());
        call(f);
        black_box(clock());
    })
}

/// Measures bare and tapped calls, `count` of each.
pub fn run(count: u32, cpu: Option<usize>) -> anyhow::Result<()> {
    stay_on(cpu)?;
    // SAFETY: the name is NUL-terminated. The agent's function of that name has this type, and returns an entry for a function of the type that it
    // is given.
    let tapped: Launch = unsafe {
        let find = libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_entry_of_call".as_ptr());
        if find.is_null() {
            bail!("this is the loop of `doorbell selfbench calls`, which starts it under the agent");
        }
        let find: extern "C" fn(u32, usize) -> usize = std::mem::transmute(find);
        match find(CU_LAUNCH_KERNEL, launch as *const () as usize) {
            0 => bail!("the agent taps no calls here"),
            at => std::mem::transmute::<usize, Launch>(at),
        }
    };
    let bare = black_box(launch as Launch);
    // The first call maps the ring.
    calls(tapped);
    calls(bare);
    print(in_turns(
        count,
        &mut [
            ("bare_ns", &mut || calls(bare)),
            ("clocked_ns", &mut || clocked_calls(bare)),
            ("clocks_ns", &mut || batch(two_clock_reads)),
            ("tapped_ns", &mut || calls(tapped)),
        ],
    ));
    Ok(())
}
