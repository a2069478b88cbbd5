//! The kernels that wait. Both take the address of the line, that of the host's two lines, the number of the line that is there,
//! and the nanoseconds without a new line after which they end. Both read the clock only while no line arrives, so that it delays
//! no answer.

use super::super::ptx::{STRONG, copy};
use gpu::message::{WORDS, factor};

/// Messages of up to 8 bytes, and longer ones.
pub(super) const SHORT: &str = "message_short";
pub(super) const LONG: &str = "message_long";
pub(super) const RESIDENT: &str = "resident";
/// Threads of the kernel that copies.
pub(super) const THREADS: u32 = 512;
/// Offset from the line where they count the blocks that are done. It is 0 when they are launched.
pub(super) const COUNT: u64 = 64;
/// Pending loads of 16 bytes for each thread: one multiprocessor's 512 threads have 64 KiB.
const UNROLL: usize = 8;

/// Offset in host memory where the kernel writes why it ended. The answer is before it.
pub(super) const ENDED: u64 = 64;
/// No line has this number: it ends the kernel.
pub(super) const STOP: u32 = u32::MAX;
/// Why it ended: on request. The other reason is 2: no line arrived within the limit.
pub(super) const STOPPED: u32 = 1;

/// After a look that found no new line: another one, until none has come for the limit.
const IDLE: &str = r"IDLE:
    add.u32 %spins, %spins, 1;
    and.b32 %r0, %spins, 63;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra LOOK;
    mov.u64 %now, %globaltimer;
    setp.eq.u32 %p0, %fresh, 0;
    @%p0 bra SINCE;
    mov.u64 %since, %now;
    mov.u32 %fresh, 0;
SINCE:
    sub.u64 %now, %now, %since;
    setp.lt.u64 %p0, %now, %limit;
    @%p0 bra LOOK;
    mov.u32 %why, 2;
";

/// One thread answers each line whose number follows the last one. A short message and its number are in one load of 16 bytes. A
/// long one is read in four. If its sum does not match, it is a mix of two lines, and is read again.
const MESSAGES: &str = r"
.visible .entry NAME(.param .u64 NAME_mailbox, .param .u64 NAME_host, .param .u32 NAME_seen, .param .u64 NAME_limit)
{
    .reg .pred %p<3>;
    .reg .b32 %seen, %number, %spins, %fresh, %why, %r<4>;
    .reg .b32 %a<16>;
    .reg .b64 %mailbox, %host, %limit, %since, %now;
    ld.param.u64 %mailbox, [NAME_mailbox];
    ld.param.u64 %host, [NAME_host];
    ld.param.u32 %seen, [NAME_seen];
    ld.param.u64 %limit, [NAME_limit];
    cvta.to.global.u64 %mailbox, %mailbox;
    cvta.to.global.u64 %host, %host;
    mov.u64 %since, %globaltimer;
    mov.u32 %spins, 0;
    mov.u32 %fresh, 0;
LOOK:
    LOAD
    setp.eq.u32 %p1, %number, %seen;
    @%p1 bra IDLE;
    setp.eq.u32 %p2, %number, 0xffffffff;
    @%p2 bra STOPPED;
    SUM
    STORE
    mov.u32 %seen, %number;
    mov.u32 %fresh, 1;
    bra LOOK;
IDLE
    bra END;
STOPPED:
    mov.u32 %why, 1;
END:
    st.release.sys.global.u32 [%host+64], %why;
    ret;
}
";

/// The line to `%a`, and its number.
const SHORT_LOAD: &str = "ld.relaxed.sys.global.v4.u32 {%a0, %a1, %number, %a3}, [%mailbox];
    mov.u32 %a2, %number;";
const LONG_LOAD: &str = "ld.relaxed.sys.global.v4.u32 {%a0, %a1, %a2, %a3}, [%mailbox];
    ld.relaxed.sys.global.v4.u32 {%a4, %a5, %a6, %a7}, [%mailbox+16];
    ld.relaxed.sys.global.v4.u32 {%a8, %a9, %a10, %a11}, [%mailbox+32];
    ld.relaxed.sys.global.v4.u32 {%a12, %a13, %a14, %a15}, [%mailbox+48];
    mov.u32 %number, %a14;";
const SHORT_STORE: &str = "st.relaxed.sys.global.v4.u32 [%host], {%a0, %a1, %a2, %a3};";
const LONG_STORE: &str = "st.relaxed.sys.global.v4.u32 [%host], {%a0, %a1, %a2, %a3};
    st.relaxed.sys.global.v4.u32 [%host+16], {%a4, %a5, %a6, %a7};
    st.relaxed.sys.global.v4.u32 [%host+32], {%a8, %a9, %a10, %a11};
    st.relaxed.sys.global.v4.u32 [%host+48], {%a12, %a13, %a14, %a15};";

/// Jumps back if the sum does not match.
fn sum() -> String {
    let mut text = "mov.u32 %r0, 0;\n    mov.u32 %r1, 0;\n".to_owned();
    // Two chains, which the GPU computes in parallel.
    for word in 0..WORDS {
        let sum = ["%r0", "%r1"][word % 2];
        text += &format!("    mad.lo.u32 {sum}, %a{word}, {:#x}, {sum};\n", factor(word));
    }
    text + "    add.u32 %r0, %r0, %r1;\n    setp.ne.u32 %p2, %r0, %a15;\n    @%p2 bra IDLE;\n"
}

/// The first thread of each block spins on the line, and passes the command to the block's others through shared memory. All copy
/// their part and meet at a barrier. Then the first thread counts its block, after a fence for all their writes, and that of the
/// last block answers with the number. No block waits for another one. Loads of the source are strong: the multiprocessor's
/// caches, which outlive the transfer, do not serve them.
const COPIES: &str = r"
.visible .entry resident(.param .u64 resident_mailbox, .param .u64 resident_host, .param .u32 resident_seen, .param .u64 resident_limit)
.maxntid 512, 1, 1
{
    .shared .align 16 .b8 told[32];
    .reg .pred %p<4>;
    .reg .b32 %a<4>, %b<4>, %r<4>;
    .reg .b32 %tid_x, %threads, %blocks, %seen, %spins, %fresh, %why;
    .reg .b64 %mailbox, %host, %limit, %since, %now;
    .reg .b64 %src, %dst, %bytes, %first, %step;
    ld.param.u64 %mailbox, [resident_mailbox];
    ld.param.u64 %host, [resident_host];
    ld.param.u32 %seen, [resident_seen];
    ld.param.u64 %limit, [resident_limit];
    cvta.to.global.u64 %mailbox, %mailbox;
    cvta.to.global.u64 %host, %host;
    mov.u32 %tid_x, %tid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %step, %threads, %blocks;
    mov.u32 %r0, %ctaid.x;
    mad.lo.u32 %r0, %r0, %threads, %tid_x;
    cvt.u64.u32 %first, %r0;
    sub.u32 %blocks, %blocks, 1;
    mov.u32 %why, 1;
    mov.u32 %spins, 0;
    mov.u32 %fresh, 0;
    mov.u64 %since, %globaltimer;
AGAIN:
    setp.ge.u32 %p0, %tid_x, 32;
    @%p0 bra TOLD;
    setp.ne.u32 %p0, %tid_x, 0;
    @%p0 bra PASS_ON;
LOOK:
    ld.relaxed.sys.global.v4.u32 {%a0, %a1, %a2, %a3}, [%mailbox];
    ld.relaxed.sys.global.v4.u32 {%b0, %b1, %b2, %b3}, [%mailbox+16];
    setp.eq.u32 %p0, %a3, %seen;
    @%p0 bra IDLE;
    // One half is newer than the other: the rest of the line is on its way.
    setp.ne.u32 %p0, %a3, %b3;
    @%p0 bra IDLE;
    mov.u32 %seen, %a3;
    mov.u32 %fresh, 1;
    bra FOUND;
IDLE
    mov.u32 %a3, 0xffffffff;
FOUND:
    st.shared.v4.u32 [told], {%a0, %a1, %a2, %a3};
    st.shared.v4.u32 [told+16], {%b0, %b1, %b2, %b3};
PASS_ON:
    bar.warp.sync 0xffffffff;
TOLD:
    barrier.sync 0;
    ld.shared.v4.u32 {%a0, %a1, %a2, %a3}, [told];
    ld.shared.v4.u32 {%b0, %b1, %b2, %b3}, [told+16];
    setp.eq.u32 %p0, %a3, 0xffffffff;
    @%p0 bra END;
    mov.b64 %src, {%a0, %a1};
    mov.b64 %dst, {%a2, %b0};
    mov.b64 %bytes, {%b1, %b2};
    COPY
    barrier.sync 0;
    setp.ne.u32 %p0, %tid_x, 0;
    @%p0 bra AGAIN;
    fence.acq_rel.sys;
    setp.eq.u32 %p0, %blocks, 0;
    @%p0 bra LAST;
    // Counts to the last block, and then from 0 again.
    atom.acq_rel.gpu.global.inc.u32 %r0, [%mailbox+64], %blocks;
    setp.ne.u32 %p0, %r0, %blocks;
    @%p0 bra AGAIN;
    fence.acq_rel.sys;
LAST:
    st.relaxed.sys.global.u32 [%host+56], %a3;
    bra AGAIN;
END:
    setp.ne.u32 %p0, %tid_x, 0;
    @%p0 bra OUT;
    st.release.sys.global.u32 [%host+64], %why;
OUT:
    ret;
}
";

/// PTX 7.0 for sm_70: the driver compiles it for the GPU of the machine.
const HEAD: &str = "\n.version 7.0\n.target sm_70\n.address_size 64\n";

pub(super) fn messages() -> String {
    let kernel = |name, load, sum: &str, store| {
        MESSAGES
            .replace("IDLE\n", IDLE)
            .replace("NAME", name)
            .replace("LOAD", load)
            .replace("SUM\n", sum)
            .replace("STORE", store)
    };
    [HEAD, &kernel(SHORT, SHORT_LOAD, "", SHORT_STORE), &kernel(LONG, LONG_LOAD, &sum(), LONG_STORE)].concat()
}

pub(super) fn resident() -> String {
    HEAD.to_owned() + &COPIES.replace("IDLE\n", IDLE).replace("COPY\n", &format!("{}\n", copy(STRONG, UNROLL)))
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{Kernel, Memory, Running};
    use super::*;

    const MAILBOX: u64 = 0x1000;
    const HOST: u64 = 0x2000;
    const FROM: u64 = 0x1_0000;
    const TO: u64 = 0x2_0000;

    fn memory() -> Memory {
        let mut memory = Memory::default();
        for (at, bytes) in [(MAILBOX, 128), (HOST, 128), (FROM, 4096), (TO, 4096)] {
            memory.add(at, vec![0; bytes]);
        }
        memory
    }

    fn parameters(limit: u64) -> [(&'static str, u64); 4] {
        [("mailbox", MAILBOX), ("host", HOST), ("seen", 0), ("limit", limit)]
    }

    /// The two halves of a command.
    fn halves([from, to, bytes]: [u64; 3], number: u32) -> [[u32; 4]; 2] {
        let [low, high] = [|n: u64| n as u32, |n: u64| (n >> 32) as u32];
        [[low(from), high(from), low(to), number], [high(to), low(bytes), high(bytes), number]]
    }

    #[test]
    fn the_kernel_copies_what_it_is_told_and_ends() {
        [1, 3].into_iter().for_each(copies_by);
    }

    fn copies_by(blocks: u32) {
        let (kernel, mut memory) = (Kernel::parse(&resident(), RESIDENT), memory());
        let of = |block| Running::new(&kernel, [block, blocks], 64, &parameters(1 << 40));
        let mut running: Vec<Running<'_>> = (0..blocks).map(of).collect();
        // The later blocks run less often.
        let mut turn = 0;
        let mut turns = |memory: &mut Memory, n: usize| {
            (0..n).all(|_| {
                turn += 1;
                let mut all = running.iter_mut().zip(1..);
                all.all(|(block, each)| turn % each != 0 || block.turn(memory))
            })
        };
        for (number, [source, destination, bytes]) in
            [[0, 0, 4], [3, 8, 13], [8, 3, 56], [5, 5, 1001], [0, 16, 2048]].into_iter().enumerate()
        {
            let number = number as u32 + 1;
            for (n, byte) in memory.bytes(FROM, 4096).iter_mut().enumerate() {
                *byte = ((n * 37) >> 3) as u8 ^ number as u8;
            }
            memory.bytes(TO, 4096).fill(0x77);
            let [first, second] = halves([FROM + source, TO + destination, bytes], number);
            // Only half of the line is there, so the kernel may not act on it.
            memory.set(MAILBOX, &first);
            assert!(turns(&mut memory, 20) && memory.bytes(TO, 4096).iter().all(|byte| *byte == 0x77));
            memory.set(MAILBOX + 16, &second);
            let mut left = 3000;
            while memory.word(HOST + 56) != number {
                assert!(turns(&mut memory, 1) && left > 0, "no answer to {bytes} bytes");
                left -= 1;
            }
            let sent = memory.bytes(FROM + source, bytes as usize).to_vec();
            let found = memory.bytes(TO, 4096);
            let (start, end) = (destination as usize, (destination + bytes) as usize);
            assert!(found[start..end] == sent, "{bytes} bytes");
            assert!(found[..start].iter().chain(&found[end..]).all(|byte| *byte == 0x77), "{bytes} bytes: others");
        }
        let [first, second] = halves([0; 3], STOP);
        memory.set(MAILBOX, &first);
        memory.set(MAILBOX + 16, &second);
        assert!(!turns(&mut memory, 100), "told to end");
        assert_eq!(memory.word(HOST + ENDED), STOPPED);
    }

    #[test]
    fn a_message_comes_back_whole_and_only_whole() {
        let (kernel, mut memory) = (Kernel::parse(&messages(), LONG), memory());
        let mut running = Running::new(&kernel, [0, 1], 1, &parameters(1 << 40));
        for number in 1..4 {
            let line = gpu::message::line(&[number as u8 * 3; 56], number);
            // All but one word, which is still the earlier line's.
            memory.bytes(MAILBOX, 64)[4..].copy_from_slice(&line[4..]);
            let before = memory.bytes(HOST, 64).to_vec();
            (0..20).for_each(|_| assert!(running.turn(&mut memory)));
            assert_eq!(memory.bytes(HOST, 64), before, "half of a line");
            memory.bytes(MAILBOX, 64).copy_from_slice(&line);
            (0..20).for_each(|_| assert!(running.turn(&mut memory)));
            assert_eq!(memory.bytes(HOST, 64), line);
        }
        memory.set(MAILBOX + 56, &[STOP]);
        assert!((0..100).any(|_| !running.turn(&mut memory)), "told to end");
        assert_eq!((memory.word(HOST + ENDED), memory.word(HOST + 56)), (STOPPED, 3));
    }

    #[test]
    fn a_short_message_comes_back_with_its_number() {
        let (kernel, mut memory) = (Kernel::parse(&messages(), SHORT), memory());
        let mut running = Running::new(&kernel, [0, 1], 1, &parameters(1 << 40));
        for number in 1..4 {
            memory.set(MAILBOX, &[7 * number, 9, number, number]);
            (0..20).for_each(|_| assert!(running.turn(&mut memory)));
            assert_eq!([0, 4, 8, 12].map(|at| memory.word(HOST + at)), [7 * number, 9, number, number]);
        }
        memory.set(MAILBOX + 8, &[STOP]);
        assert!((0..100).any(|_| !running.turn(&mut memory)), "told to end");
        assert_eq!((memory.word(HOST + ENDED), memory.word(HOST + 8)), (STOPPED, 3));
    }

    #[test]
    fn kernels_that_nobody_tells_anything_end_by_themselves() {
        let messages = messages();
        for kernel in
            [Kernel::parse(&resident(), RESIDENT), Kernel::parse(&messages, SHORT), Kernel::parse(&messages, LONG)]
        {
            let mut memory = memory();
            let mut running = Running::new(&kernel, [0, 1], 32, &parameters(3));
            assert!((0..2000).any(|_| !running.turn(&mut memory)), "it goes on");
            assert_eq!((memory.word(HOST + 56), memory.word(HOST + ENDED)), (0, 2));
        }
    }
}
