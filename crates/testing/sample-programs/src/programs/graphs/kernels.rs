//! The kernels of the shapes, as PTX text. Each module is loaded when a shape needs it, so that one that a driver does not compile costs no other
//! shape.

use cuda::{Context, Module};

/// A module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// `log`, `copy` and `store`.
    Plain,
    /// Of [`crate::kernels`]: `cells`.
    Cells,
    /// Stack frames, shared memory, parameters.
    Sizes,
    /// Clusters and programmatic launches, on GPUs of compute capability 9.0.
    Newer,
}

impl Code {
    pub const COUNT: usize = 4;

    pub fn load(self, context: &Context) -> cuda::Result<Module<'_>> {
        match self {
            Code::Plain => Module::from_ptx(context, PLAIN),
            Code::Cells => crate::kernels::module(context),
            Code::Sizes => Module::from_ptx(context, &sizes()),
            Code::Newer => Module::from_ptx(context, NEWER),
        }
    }
}

/// The factor of all kernels that count on.
pub(super) const FACTOR: u32 = 1_664_525;
/// Threads of a block of `turn` and `reach`.
pub(super) const TURN: u32 = 256;
/// Words that `wide` takes by value: 4,096 bytes of parameters with an address and a number.
pub(super) const WIDE: usize = 1021;
/// Words of the two stack frames.
pub(super) const FRAMES: [u32; 2] = [256, 4096];

const PLAIN: &str = r"
.version 7.0
.target sm_70
.address_size 64

// One thread: log[1 + log[0]] = value; log[0] += 1.
.visible .entry log(.param .u64 log_at, .param .u32 log_value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    or.b32 %r3, %r1, %r2;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra LOG_END;
    ld.param.u64 %rd1, [log_at];
    ld.param.u32 %r4, [log_value];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r5, [%rd2];
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4+4], %r4;
    add.u32 %r6, %r5, 1;
    st.global.u32 [%rd2], %r6;
LOG_END:
    ret;
}

// Whole words; each thread copies with a stride of the number of threads.
.visible .entry copy(.param .u64 copy_to, .param .u64 copy_from, .param .u32 copy_bytes)
{
    .reg .pred %p<2>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [copy_to];
    ld.param.u64 %rd2, [copy_from];
    ld.param.u32 %r1, [copy_bytes];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    shr.u32 %r2, %r1, 2;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    mov.u32 %r7, %nctaid.x;
    mul.lo.u32 %r8, %r7, %r4;
COPY_NEXT:
    setp.ge.u32 %p1, %r6, %r2;
    @%p1 bra COPY_END;
    mul.wide.u32 %rd5, %r6, 4;
    add.u64 %rd6, %rd4, %rd5;
    add.u64 %rd7, %rd3, %rd5;
    ld.global.u32 %r9, [%rd6];
    st.global.u32 [%rd7], %r9;
    add.u32 %r6, %r6, %r8;
    bra COPY_NEXT;
COPY_END:
    ret;
}

.visible .entry store(.param .u64 store_at, .param .u32 store_value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [store_at];
    ld.param.u32 %r1, [store_value];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

/// `frame` with a stack frame of this many words, a power of two: `frame[k] = cells[i] * (k | 1) + value` for all k, then `cells[i]` becomes the
/// one at its own bits from 3 up.
fn frame(words: u32) -> String {
    let (bytes, mask) = (words * 4, words - 1);
    format!(
        r"
.visible .entry frame_{words}(.param .u64 frame_cells, .param .u32 frame_n, .param .u32 frame_value)
{{
    .local .align 4 .b8 frame_words[{bytes}];
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [frame_cells];
    ld.param.u32 %r1, [frame_n];
    ld.param.u32 %r2, [frame_value];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra FRAME_END;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r6, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    mov.u64 %rd5, frame_words;
    mov.u32 %r8, 0;
FRAME_NEXT:
    or.b32 %r9, %r8, 1;
    mad.lo.u32 %r10, %r7, %r9, %r2;
    mul.wide.u32 %rd6, %r8, 4;
    add.u64 %rd7, %rd5, %rd6;
    st.local.u32 [%rd7], %r10;
    add.u32 %r8, %r8, 1;
    setp.lt.u32 %p2, %r8, {words};
    @%p2 bra FRAME_NEXT;
    shr.u32 %r11, %r7, 3;
    and.b32 %r12, %r11, {mask};
    mul.wide.u32 %rd8, %r12, 4;
    add.u64 %rd9, %rd5, %rd8;
    ld.local.u32 %r13, [%rd9];
    st.global.u32 [%rd4], %r13;
FRAME_END:
    ret;
}}
"
    )
}

/// The kernel of [`frame`] on the CPU.
pub(super) fn frame_on_cpu(cell: u32, words: u32, value: u32) -> u32 {
    let k = cell >> 3 & (words - 1);
    cell.wrapping_mul(k | 1).wrapping_add(value)
}

fn sizes() -> String {
    let frames: String = FRAMES.iter().map(|words| frame(*words)).collect();
    [SIZES, &frames].concat()
}

const SIZES: &str = r"
.version 7.0
.target sm_70
.address_size 64

.extern .shared .align 16 .b8 reach_words[];
.visible .global .align 4 .u32 small_cell = 0;

// Blocks of 256: each cell becomes its neighbour in the block * 1664525 + value, through static shared memory.
.visible .entry turn(.param .u64 turn_cells, .param .u32 turn_value)
{
    .shared .align 4 .b8 turn_words[1024];
    .reg .b32 %r<14>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [turn_cells];
    ld.param.u32 %r1, [turn_value];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r2, 256, %r3;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    mov.u64 %rd5, turn_words;
    mul.wide.u32 %rd6, %r3, 4;
    add.u64 %rd7, %rd5, %rd6;
    st.shared.u32 [%rd7], %r5;
    bar.sync 0;
    add.u32 %r6, %r3, 1;
    and.b32 %r7, %r6, 255;
    mul.wide.u32 %rd8, %r7, 4;
    add.u64 %rd9, %rd5, %rd8;
    ld.shared.u32 %r8, [%rd9];
    mad.lo.u32 %r9, %r8, 1664525, %r1;
    st.global.u32 [%rd4], %r9;
    ret;
}

// As turn, through dynamic shared memory from an offset on.
.visible .entry reach(.param .u64 reach_cells, .param .u32 reach_value, .param .u32 reach_offset)
{
    .reg .b32 %r<14>;
    .reg .b64 %rd<14>;
    ld.param.u64 %rd1, [reach_cells];
    ld.param.u32 %r1, [reach_value];
    ld.param.u32 %r10, [reach_offset];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r2, 256, %r3;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    mov.u64 %rd10, reach_words;
    cvt.u64.u32 %rd11, %r10;
    add.u64 %rd5, %rd10, %rd11;
    mul.wide.u32 %rd6, %r3, 4;
    add.u64 %rd7, %rd5, %rd6;
    st.shared.u32 [%rd7], %r5;
    bar.sync 0;
    add.u32 %r6, %r3, 1;
    and.b32 %r7, %r6, 255;
    mul.wide.u32 %rd8, %r7, 4;
    add.u64 %rd9, %rd5, %rd8;
    ld.shared.u32 %r8, [%rd9];
    mad.lo.u32 %r9, %r8, 1664525, %r1;
    st.global.u32 [%rd4], %r9;
    ret;
}

// One thread, four bytes of parameters: a word of the module's * 1664525 + value.
.visible .entry small(.param .u32 small_value)
{
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [small_value];
    ld.global.u32 %r2, [small_cell];
    mad.lo.u32 %r3, %r2, 1664525, %r1;
    st.global.u32 [small_cell], %r3;
    ret;
}

.visible .entry small_out(.param .u64 small_to)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [small_to];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [small_cell];
    st.global.u32 [%rd2], %r1;
    ret;
}

// 4,096 bytes of parameters: an address, a number, 1,021 words. Cell i becomes itself * 1664525 + word i, for the number of them.
.visible .entry wide(.param .align 8 .b8 wide_all[4096])
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [wide_all];
    ld.param.u32 %r1, [wide_all+8];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra WIDE_END;
    mov.b64 %rd2, wide_all;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.param.u32 %r6, [%rd4+12];
    cvta.to.global.u64 %rd5, %rd1;
    add.u64 %rd6, %rd5, %rd3;
    ld.global.u32 %r7, [%rd6];
    mad.lo.u32 %r8, %r7, 1664525, %r6;
    st.global.u32 [%rd6], %r8;
WIDE_END:
    ret;
}
";

const NEWER: &str = r"
.version 7.8
.target sm_90
.address_size 64

// Cell i becomes itself * 1664525 + value + the rank of its block in the cluster.
.visible .entry cluster(.param .u64 cluster_cells, .param .u32 cluster_value)
{
    .reg .b32 %r<12>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [cluster_cells];
    ld.param.u32 %r1, [cluster_value];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.u32 %r6, [%rd4];
    mov.u32 %r7, %cluster_ctarank;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mad.lo.u32 %r8, %r6, 1664525, %r1;
    add.u32 %r9, %r8, %r7;
    st.global.u32 [%rd4], %r9;
    ret;
}

// As log, begun before the kernel in front of it has ended.
.visible .entry log_early(.param .u64 early_at, .param .u32 early_value)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    griddepcontrol.launch_dependents;
    griddepcontrol.wait;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    or.b32 %r3, %r1, %r2;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra EARLY_END;
    ld.param.u64 %rd1, [early_at];
    ld.param.u32 %r4, [early_value];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r5, [%rd2];
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4+4], %r4;
    add.u32 %r6, %r5, 1;
    st.global.u32 [%rd2], %r6;
EARLY_END:
    ret;
}
";

/// What most kernels compute from a cell.
pub(super) fn on(cell: u32, value: u32) -> u32 {
    cell.wrapping_mul(FACTOR).wrapping_add(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_that_of_the_text() {
        for text in [&sizes(), NEWER] {
            assert!(text.contains(&format!(", {FACTOR}, ")), "{text}");
        }
        assert!(SIZES.contains(&format!("wide_all[{}]", 12 + 4 * WIDE)) && SIZES.contains(&format!(", {TURN}, ")));
    }

    #[test]
    fn a_frame_keeps_one_of_its_words() {
        let frame: Vec<u32> = (0..256).map(|k| 0x1234u32.wrapping_mul(k | 1).wrapping_add(7)).collect();
        assert_eq!(frame_on_cpu(0x1234, 256, 7), frame[(0x1234 >> 3) & 255]);
    }
}
