//! The kernels that wait at a mailbox: one of a single block, one of clusters of blocks.
//!
//! The first thread of the first block of each cluster spins on the mailbox ([`super::mailbox`]). It passes the command on: to
//! its block through shared memory, and to the other blocks of its cluster through theirs. All threads wait at a barrier for it.
//! All copy their part and meet at the barrier again. Then the same thread answers with the number, after a fence for all their
//! writes. Clusters do not communicate: each spins, copies its part and answers in its own word.
//!
//! Loads of the source are strong: the multiprocessor's caches, which outlive the transfer, do not serve them.

use super::super::ptx::{STRONG, copy};

pub(super) const ONE: &str = "resident";
pub(super) const CLUSTERS: &str = "resident_clusters";

/// Pending loads of 16 bytes for each thread: one multiprocessor's 512 threads have 64 KiB.
const UNROLL: usize = 8;

/// Offsets in host memory where the kernel writes: the clusters' answers (0), why they ended, and for each block the number of
/// its multiprocessor plus 1.
pub(super) const ENDED: usize = 64;
pub(super) const PLACES: usize = 128;
/// No transfer has this number: it ends the kernel.
pub(super) const STOP: u32 = u32::MAX;
/// In the second line of host memory: ended on request. The other reason is 2: no command arrived within the limit.
pub(super) const STOPPED: u32 = 1;

const KERNEL: &str = r"
.visible .entry NAME(.param .u64 NAME_mailbox, .param .u64 NAME_host, .param .u32 NAME_seen, .param .u64 NAME_limit)
.maxntid 512, 1, 1
{
    .shared .align 16 .b8 told[32];
    .reg .pred %p<4>, %leads, %first_lane;
    .reg .b32 %a<4>, %b<4>, %r<4>;
    .reg .b32 %tid_x, %lane, %warp, %rank, %size, %cluster, %clusters, %seen, %spins, %fresh, %why, %here;
    .reg .b64 %mailbox, %host, %limit, %since, %now, %at;
    .reg .b64 %src, %dst, %bytes, %first, %step;
    ld.param.u64 %mailbox, [NAME_mailbox];
    ld.param.u64 %host, [NAME_host];
    ld.param.u32 %seen, [NAME_seen];
    ld.param.u64 %limit, [NAME_limit];
    cvta.to.global.u64 %mailbox, %mailbox;
    cvta.to.global.u64 %host, %host;
    mov.u32 %here, told;
    mov.u32 %tid_x, %tid.x;
    and.b32 %lane, %tid_x, 31;
    shr.u32 %warp, %tid_x, 5;
    WHERE
    // Warps' pieces of 512 bytes go to the blocks in turn, and to the clusters first.
    mad.lo.u32 %r0, %rank, %clusters, %cluster;
    mul.lo.u32 %r1, %size, %clusters;
    mad.lo.u32 %r0, %warp, %r1, %r0;
    shl.b32 %r0, %r0, 5;
    add.u32 %r0, %r0, %lane;
    cvt.u64.u32 %first, %r0;
    mov.u32 %r2, %ntid.x;
    mul.wide.u32 %step, %r1, %r2;
    setp.ne.u32 %p0, %tid_x, 0;
    @%p0 bra PLACED;
    mov.u32 %r0, %smid;
    add.u32 %r0, %r0, 1;
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %at, %r1, 4;
    add.u64 %at, %at, %host;
    st.relaxed.sys.global.u32 [%at+PLACES], %r0;
PLACED:
    or.b32 %r0, %rank, %warp;
    setp.eq.u32 %leads, %r0, 0;
    setp.eq.u32 %first_lane, %lane, 0;
    mov.u32 %why, 1;
    mov.u32 %spins, 0;
    mov.u32 %fresh, 0;
    mov.u64 %since, %globaltimer;
    READY
AGAIN:
    @!%leads bra TOLD;
    @!%first_lane bra PASS_ON;
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
IDLE:
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
    mov.u32 %a3, 0xffffffff;
FOUND:
    st.shared.v4.u32 [told], {%a0, %a1, %a2, %a3};
    st.shared.v4.u32 [told+16], {%b0, %b1, %b2, %b3};
PASS_ON:
    bar.warp.sync 0xffffffff;
    PASS
TOLD:
    MEET
    ld.shared.v4.u32 {%a0, %a1, %a2, %a3}, [told];
    ld.shared.v4.u32 {%b0, %b1, %b2, %b3}, [told+16];
    setp.eq.u32 %p0, %a3, 0xffffffff;
    @%p0 bra END;
    mov.b64 %src, {%a0, %a1};
    mov.b64 %dst, {%a2, %b0};
    mov.b64 %bytes, {%b1, %b2};
    COPY
    MEET
    or.b32 %r0, %rank, %tid_x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra AGAIN;
    mul.wide.u32 %at, %cluster, 4;
    add.u64 %at, %at, %host;
    fence.acq_rel.sys;
    st.relaxed.sys.global.u32 [%at], %a3;
    bra AGAIN;
END:
    or.b32 %r0, %rank, %tid_x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra OUT;
    mul.wide.u32 %at, %cluster, 4;
    add.u64 %at, %at, %host;
    st.release.sys.global.u32 [%at+ENDED], %why;
OUT:
    ret;
}
";

/// The cluster's first warp passes the command to the other blocks, with a lane for each.
const PASS: &str = "setp.eq.u32 %p0, %lane, 0;
    setp.ge.u32 %p1, %lane, %size;
    or.pred %p0, %p0, %p1;
    @%p0 bra TOLD;
    ld.shared.v4.u32 {%a0, %a1, %a2, %a3}, [told];
    ld.shared.v4.u32 {%b0, %b1, %b2, %b3}, [told+16];
    mapa.shared::cluster.u32 %r0, %here, %lane;
    st.shared::cluster.v4.u32 [%r0], {%a0, %a1, %a2, %a3};
    st.shared::cluster.v4.u32 [%r0+16], {%b0, %b1, %b2, %b3};";

/// Release and acquire are the defaults.
const CLUSTER_BARRIER: &str = "barrier.cluster.arrive;
    barrier.cluster.wait;";

/// PTX 7.0 for sm_70.
pub(super) fn one() -> String {
    let kernel = KERNEL
        .replace(
            "WHERE",
            "mov.u32 %rank, 0;\n    mov.u32 %size, 1;\n    mov.u32 %cluster, 0;\n    mov.u32 %clusters, 1;",
        )
        .replace("READY", "")
        .replace("PASS\n", "\n")
        .replace("MEET", "barrier.sync 0;");
    text("7.0", "sm_70", ONE, kernel)
}

/// PTX 7.8 for sm_90: the first with clusters.
pub(super) fn clusters() -> String {
    let kernel = KERNEL
        .replace(
            "WHERE",
            "mov.u32 %rank, %cluster_ctarank;\n    mov.u32 %size, %cluster_nctarank;
    mov.u32 %cluster, %clusterid.x;\n    mov.u32 %clusters, %nclusterid.x;",
        )
        // No block may write to another's shared memory before that one runs.
        .replace("READY", CLUSTER_BARRIER)
        .replace("PASS\n", &format!("{PASS}\n"))
        .replace("MEET", CLUSTER_BARRIER);
    text("7.8", "sm_90", CLUSTERS, kernel)
}

fn text(version: &str, target: &str, name: &str, kernel: String) -> String {
    let kernel = kernel
        .replace("COPY\n", &format!("{}\n", copy(STRONG, UNROLL)))
        .replace("+PLACES", &format!("+{PLACES}"))
        .replace("+ENDED", &format!("+{ENDED}"))
        .replace("NAME", name);
    format!("\n.version {version}\n.target {target}\n.address_size 64\n{kernel}")
}

#[cfg(test)]
mod tests {
    use super::super::super::interpreter::{Kernel, Memory, Running};
    use super::*;

    const MAILBOX: u64 = 0x1000;
    const HOST: u64 = 0x2000;
    const FROM: u64 = 0x1_0000;
    const TO: u64 = 0x2_0000;

    /// The two halves of a command.
    fn halves([from, to, bytes]: [u64; 3], number: u32) -> [[u32; 4]; 2] {
        let [low, high] = [|n: u64| n as u32, |n: u64| (n >> 32) as u32];
        [[low(from), high(from), low(to), number], [high(to), low(bytes), high(bytes), number]]
    }

    fn talk(kernel: &Kernel, clusters: u32, [size, threads]: [u32; 2]) {
        let mut memory = Memory::default();
        memory.add(MAILBOX, vec![0; 64]);
        memory.add(HOST, vec![0; 1024]);
        memory.add(FROM, vec![0; 4096]);
        memory.add(TO, vec![0; 4096]);
        let parameters = [("mailbox", MAILBOX), ("host", HOST), ("seen", 0), ("limit", 1 << 40)];
        let mut all: Vec<_> =
            (0..clusters).map(|n| Running::new(kernel, [n, clusters], [size, threads], &parameters)).collect();
        let mut turns = |memory: &mut Memory, n: usize| {
            (0..n).all(|_| all.iter_mut().map(|one| one.turn(memory)).fold(false, |a, b| a | b))
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
            // Only half of the line is there, so no kernel may act on it.
            memory.set(MAILBOX, &first);
            assert!(turns(&mut memory, 20) && memory.bytes(TO, 4096).iter().all(|byte| *byte == 0x77));
            memory.set(MAILBOX + 16, &second);
            let answers = |memory: &mut Memory| (0..clusters).all(|n| memory.word(HOST + 4 * u64::from(n)) == number);
            let mut left = 3000;
            while !answers(&mut memory) {
                assert!(turns(&mut memory, 1) && left > 0, "no answer to {bytes} bytes");
                left -= 1;
            }
            let sent = memory.bytes(FROM + source, bytes as usize).to_vec();
            let found = memory.bytes(TO, 4096);
            let (start, end) = (destination as usize, (destination + bytes) as usize);
            assert!(found[start..end] == sent, "{clusters} clusters of {size}: {bytes} bytes");
            assert!(found[..start].iter().chain(&found[end..]).all(|byte| *byte == 0x77), "{bytes} bytes: others");
        }
        let [first, second] = halves([0; 3], STOP);
        memory.set(MAILBOX, &first);
        memory.set(MAILBOX + 16, &second);
        assert!(!turns(&mut memory, 100), "told to end");
        for cluster in 0..u64::from(clusters) {
            assert_eq!(memory.word(HOST + ENDED as u64 + 4 * cluster), STOPPED);
        }
        for block in 0..clusters * size {
            assert_eq!(memory.word(HOST + PLACES as u64 + 4 * u64::from(block)), 101 + block, "where it runs");
        }
    }

    #[test]
    fn kernels_copy_what_they_are_told_and_end() {
        talk(&Kernel::parse(&one(), ONE), 1, [1, 64]);
        let kernel = Kernel::parse(&clusters(), CLUSTERS);
        for (clusters, shape) in [(1, [3, 32]), (2, [2, 64])] {
            talk(&kernel, clusters, shape);
        }
    }

    #[test]
    fn kernels_that_nobody_tells_anything_end_by_themselves() {
        for (kernel, size) in [(Kernel::parse(&one(), ONE), 1), (Kernel::parse(&clusters(), CLUSTERS), 2)] {
            let mut memory = Memory::default();
            memory.add(MAILBOX, vec![0; 64]);
            memory.add(HOST, vec![0; 1024]);
            let parameters = [("mailbox", MAILBOX), ("host", HOST), ("seen", 0), ("limit", 3)];
            let mut running = Running::new(&kernel, [0, 1], [size, 32], &parameters);
            assert!((0..2000).any(|_| !running.turn(&mut memory)), "it goes on");
            assert_eq!((memory.word(HOST), memory.word(HOST + ENDED as u64)), (0, 2));
        }
    }
}
