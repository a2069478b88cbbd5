//! The kernels as PTX text, and the same arithmetic on the CPU for the expected results.
//!
//! PTX 7.0 for sm_70: the driver compiles it for the installed GPU, and no compiler is needed.

use cuda::{Context, Module};

const PTX: &str = r"
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

.extern .shared .align 4 .b8 exchange[];

// One word for each thread of a grid and block of up to three dimensions, passed to the neighbour in the block through
// dynamic shared memory if there is any.
.visible .entry cells(.param .u64 cells_out, .param .u32 cells_key, .param .u32 cells_exchange)
{
    .reg .pred %p<2>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [cells_out];
    ld.param.u32 %r1, [cells_key];
    ld.param.u32 %r2, [cells_exchange];
    // thread = (tid.z * ntid.y + tid.y) * ntid.x + tid.x
    mov.u32 %r3, %tid.z;
    mov.u32 %r4, %ntid.y;
    mov.u32 %r5, %tid.y;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    mov.u32 %r7, %ntid.x;
    mov.u32 %r8, %tid.x;
    mad.lo.u32 %r9, %r6, %r7, %r8;
    // threads = ntid.x * ntid.y * ntid.z
    mov.u32 %r10, %ntid.z;
    mul.lo.u32 %r11, %r7, %r4;
    mul.lo.u32 %r12, %r11, %r10;
    // block = (ctaid.z * nctaid.y + ctaid.y) * nctaid.x + ctaid.x
    mov.u32 %r13, %ctaid.z;
    mov.u32 %r14, %nctaid.y;
    mov.u32 %r15, %ctaid.y;
    mad.lo.u32 %r16, %r13, %r14, %r15;
    mov.u32 %r17, %nctaid.x;
    mov.u32 %r18, %ctaid.x;
    mad.lo.u32 %r19, %r16, %r17, %r18;
    // value = (block * 0x9e3779b1 ^ key) + thread * 0x85ebca6b
    mul.lo.u32 %r20, %r19, 0x9e3779b1;
    xor.b32 %r21, %r20, %r1;
    mul.lo.u32 %r22, %r9, 0x85ebca6b;
    add.u32 %r23, %r21, %r22;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra CELLS_STORE;
    mov.u64 %rd2, exchange;
    mul.wide.u32 %rd3, %r9, 4;
    add.u64 %rd4, %rd2, %rd3;
    st.shared.u32 [%rd4], %r23;
    bar.sync 0;
    add.u32 %r24, %r9, 1;
    rem.u32 %r25, %r24, %r12;
    mul.wide.u32 %rd3, %r25, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.shared.u32 %r26, [%rd4];
    xor.b32 %r23, %r26, %r9;
CELLS_STORE:
    mad.lo.u32 %r27, %r19, %r12, %r9;
    cvta.to.global.u64 %rd5, %rd1;
    mul.wide.u32 %rd6, %r27, 4;
    add.u64 %rd7, %rd5, %rd6;
    st.global.u32 [%rd7], %r23;
    ret;
}
";

/// The module with the kernels of [`PTX`].
pub(crate) fn module(context: &Context) -> cuda::Result<Module<'_>> {
    Module::from_ptx(context, PTX)
}

/// `cells` on the CPU.
pub(crate) fn cells(grid: [u32; 3], block: [u32; 3], key: u32, exchange: bool) -> Vec<u32> {
    let blocks: u32 = grid.iter().product();
    let threads: u32 = block.iter().product();
    let value = |block: u32, thread: u32| {
        (block.wrapping_mul(0x9e37_79b1) ^ key).wrapping_add(thread.wrapping_mul(0x85eb_ca6b))
    };
    (0..blocks)
        .flat_map(|block| {
            (0..threads).map(move |thread| match exchange {
                true => value(block, (thread + 1) % threads) ^ thread,
                false => value(block, thread),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_grid() {
        assert_eq!(cells([1, 1, 1], [2, 1, 1], 0, false), [0, 0x85eb_ca6b]);
        assert_eq!(cells([1, 1, 1], [2, 1, 1], 0, true), [0x85eb_ca6b, 1]);
        assert_eq!(cells([2, 3, 1], [4, 2, 2], 7, true).len(), 96);
    }
}
