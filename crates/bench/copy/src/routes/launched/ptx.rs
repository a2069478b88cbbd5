//! The two kernels that are launched for each transfer.

use super::super::ptx::{WEAK, copy};

/// The copy kernel: threads copy pieces of 512 bytes, one for each whole warp, and the blocks get pieces in turn.
pub(super) const SM: &str = "copy_sm";
/// The other kernel: each thread loads one element and stores it.
pub(super) const ZEROCOPY: &str = "copy_elements";

/// Pending loads of 16 bytes for each thread.
const UNROLL: usize = 4;

/// Both kernels end the same way: if `told` is not null, the last block to finish stores `number` there, after all copied bytes.
/// `count` is a word that is 0 between launches.
const END: &str = "
    setp.eq.u64 %p1, %told, 0;
    @%p1 bra OUT;
    bar.sync 0;
    setp.ne.u32 %p1, %tid_x, 0;
    @%p1 bra OUT;
    setp.eq.u32 %p1, %blocks, 1;
    @%p1 bra LAST;
    atom.acq_rel.gpu.global.add.u32 %before, [%count], 1;
    add.u32 %before, %before, 1;
    setp.ne.u32 %p1, %before, %blocks;
    @%p1 bra OUT;
    st.relaxed.gpu.global.u32 [%count], 0;
LAST:
    st.release.sys.global.u32 [%told], %number;
OUT:
    ret;
}
";

const START: &str = "(.param .u64 NAME_to, .param .u64 NAME_from, .param .u64 NAME_bytes, .param .u64 NAME_told, .param .u64 NAME_count, .param .u32 NAME_number)
{
    .reg .pred %p<4>;
    .reg .b32 %r<4>;
    .reg .b32 %tid_x, %threads, %blocks, %block, %before, %number;
    .reg .b64 %dst, %src, %bytes, %told, %count, %first, %step;
    ld.param.u64 %dst, [NAME_to];
    ld.param.u64 %src, [NAME_from];
    ld.param.u64 %bytes, [NAME_bytes];
    ld.param.u64 %told, [NAME_told];
    ld.param.u64 %count, [NAME_count];
    ld.param.u32 %number, [NAME_number];
    cvta.to.global.u64 %dst, %dst;
    cvta.to.global.u64 %src, %src;
    mov.u32 %tid_x, %tid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %block, %ctaid.x;
";

/// Warps are spread over the blocks in turn, so that each multiprocessor has a part of a short transfer too.
const WARPS_IN_TURN: &str = "
    shr.u32 %r0, %tid_x, 5;
    mad.lo.u32 %r0, %r0, %blocks, %block;
    shl.b32 %r0, %r0, 5;
    and.b32 %r1, %tid_x, 31;
    add.u32 %r0, %r0, %r1;
    cvt.u64.u32 %first, %r0;
    mul.wide.u32 %step, %threads, %blocks;
";

/// Words where both addresses are multiples of 4, and the bytes after the last word; otherwise bytes.
const ELEMENT: &str = "
    .reg .b64 %words, %i, %at;
    mul.wide.u32 %i, %threads, %block;
    cvt.u64.u32 %at, %tid_x;
    add.u64 %i, %i, %at;
    or.b64 %at, %src, %dst;
    and.b64 %at, %at, 3;
    setp.eq.u64 %p0, %at, 0;
    shr.u64 %words, %bytes, 2;
    selp.b64 %words, %words, 0, %p0;
    setp.ge.u64 %p0, %i, %words;
    @%p0 bra BEHIND_WORDS;
    shl.b64 %at, %i, 2;
    add.u64 %src, %src, %at;
    add.u64 %dst, %dst, %at;
    ld.global.u32 %r0, [%src];
    st.global.u32 [%dst], %r0;
    bra STORED;
BEHIND_WORDS:
    sub.u64 %i, %i, %words;
    shl.b64 %words, %words, 2;
    add.u64 %i, %i, %words;
    setp.ge.u64 %p0, %i, %bytes;
    @%p0 bra STORED;
    add.u64 %src, %src, %i;
    add.u64 %dst, %dst, %i;
    ld.global.u8 %r0, [%src];
    st.global.u8 [%dst], %r0;
STORED:
";

/// PTX 6.0 for sm_70: the driver compiles it for the GPU of the machine.
pub(super) fn source() -> String {
    let kernel = |name: &str, body: &str| format!(".visible .entry {name}{}{body}{END}", START.replace("NAME", name));
    let (sm, elements) = (format!("{WARPS_IN_TURN}{}", copy(WEAK, UNROLL)), ELEMENT);
    format!("\n.version 6.0\n.target sm_70\n.address_size 64\n{}{}", kernel(SM, &sm), kernel(ZEROCOPY, elements))
}
