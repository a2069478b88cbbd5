//! A kernel whose launches give the right result only in the right order, each exactly once, and the same result on the
//! CPU. Programs use it to prove their results. Samples and subjects run it; a change to it changes the checksums of
//! samples.

use crate::{Argument, DeviceBuffer, Function, Module, Result, Stream};

/// PTX 7.0 for sm_70: the driver compiles it for the GPU of the machine.
pub const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64

// cells[i] = cells[i] * 1664525 + value + i
.visible .entry step(.param .u64 step_cells, .param .u32 step_n, .param .u32 step_value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [step_cells];
    ld.param.u32 %r1, [step_n];
    ld.param.u32 %r2, [step_value];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra STEP_END;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r6, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    mad.lo.u32 %r8, %r7, 1664525, %r2;
    add.u32 %r9, %r8, %r6;
    st.global.u32 [%rd4], %r9;
STEP_END:
    ret;
}
";

/// Its name in [`PTX`].
pub const NAME: &str = "step";
const BLOCK: u32 = 128;

/// The kernel on the CPU.
pub fn on_cpu(cells: &mut [u32], value: u32) {
    for (n, cell) in (0u32..).zip(cells) {
        *cell = cell.wrapping_mul(1_664_525).wrapping_add(value).wrapping_add(n);
    }
}

/// Launches the kernel on all words of a buffer. `function` is the [`NAME`] of a module of [`PTX`].
///
/// # Errors
/// CUDA's error for the launch.
pub fn launch(function: &Function<'_>, cells: &DeviceBuffer<'_>, value: u32, stream: &Stream<'_>) -> Result<()> {
    let n = (cells.len() / 4) as u32;
    let arguments = [Argument::U64(cells.address()), Argument::U32(n), Argument::U32(value)];
    // SAFETY: the arguments are the kernel's, which stays within `n` words; freeing the buffer waits for it.
    unsafe { function.launch([n.div_ceil(BLOCK), 1, 1], [BLOCK, 1, 1], 0, stream, &arguments) }
}

/// The kernel of a module, and one buffer of cells.
pub struct Steps<'b> {
    function: Function<'b>,
    cells: &'b DeviceBuffer<'b>,
}

impl<'b> Steps<'b> {
    /// # Errors
    /// A module without the kernel.
    pub fn new(module: &'b Module<'_>, cells: &'b DeviceBuffer<'b>) -> Result<Self> {
        Ok(Steps { function: module.function(NAME)?, cells })
    }

    /// # Errors
    /// CUDA's error for the launch.
    pub fn launch(&self, stream: &Stream<'_>, value: u32) -> Result<()> {
        launch(&self.function, self.cells, value, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::on_cpu;

    #[test]
    fn steps_depend_on_order_and_number() {
        let run = |values: &[u32]| {
            let mut cells = vec![1, 2, 3];
            values.iter().for_each(|value| on_cpu(&mut cells, *value));
            cells
        };
        assert_eq!(run(&[5]), [1_664_530, 3_329_056, 4_993_582]);
        assert_ne!(run(&[5, 6]), run(&[6, 5]));
        assert_ne!(run(&[5, 5]), run(&[5]));
    }
}
