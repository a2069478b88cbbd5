//! PTX text that several kernels share: many threads copy one range, with 16 bytes for each load where that is possible.
//!
//! The destination's alignment decides. Its bytes before the first multiple of 16, and those after the last, are copied one by
//! one. Between them each store is 16 bytes. Where the source has a different offset in its 16 bytes, two aligned loads make one
//! store. Bytes that are read beyond the range are in the same 16 aligned bytes as a byte of the range, so never on another page.

/// Loads of memory that no code writes while the kernel runs.
pub(super) const WEAK: &str = "ld.global";
/// Loads that see writes made after the kernel began: no multiprocessor's cache serves them.
pub(super) const STRONG: &str = "ld.relaxed.sys.global";

/// A block of PTX that copies `%bytes` from `%src` to `%dst` (addresses of global memory, 64 bits each). Each thread that copies
/// has its own number in `%first`, below the count of these threads in `%step`, which is at least 32. `load` is [`WEAK`] or
/// [`STRONG`]; `unroll` is the number of pending loads of 16 bytes for each thread.
pub(super) fn copy(load: &str, unroll: usize) -> String {
    let mut text = format!(
        "{{
    .reg .pred %q<{predicates}>;
    .reg .b32 %w<{words}>;
    .reg .b32 %shift;
    .reg .b64 %head, %s, %d, %rest, %chunks, %tail, %at, %to, %skew, %i, %far, %p, %o, %t, %jump;
    neg.s64 %head, %dst;
    and.b64 %head, %head, 15;
    min.u64 %head, %head, %bytes;
    setp.ge.u64 %q0, %first, %head;
    @%q0 bra BEHIND_HEAD;
    add.u64 %at, %src, %first;
    add.u64 %to, %dst, %first;
    {load}.u8 %w0, [%at];
    st.global.u8 [%to], %w0;
BEHIND_HEAD:
    add.u64 %s, %src, %head;
    add.u64 %d, %dst, %head;
    sub.u64 %rest, %bytes, %head;
    shr.u64 %chunks, %rest, 4;
    and.b64 %tail, %rest, 15;
    sub.u64 %i, %first, 16;
    setp.ge.u64 %q0, %i, %tail;
    @%q0 bra BEHIND_TAIL;
    and.b64 %rest, %rest, -16;
    add.u64 %rest, %rest, %i;
    add.u64 %at, %s, %rest;
    add.u64 %to, %d, %rest;
    {load}.u8 %w0, [%at];
    st.global.u8 [%to], %w0;
BEHIND_TAIL:
    and.b64 %skew, %s, 15;
    mov.u64 %i, %first;
    shl.b64 %p, %first, 4;
    add.u64 %o, %d, %p;
    add.u64 %p, %s, %p;
    sub.u64 %p, %p, %skew;
    shl.b64 %t, %step, 4;
    setp.ne.u64 %q0, %skew, 0;
    @%q0 bra SKEWED;
",
        // The skewed copy needs the maximum.
        predicates = unroll + 3,
        words = (unroll * 4).max(unroll.div_ceil(2) * 8).max(8),
    );
    text += &format!("    mul.lo.u64 %jump, %step, {unroll};\nEVEN:\n");
    text += "    setp.ge.u64 %q0, %i, %chunks;\n    @%q0 bra COPIED;\n    mov.u64 %far, %i;\n";
    for n in 0..unroll {
        let [a, b, c, d] = [0, 1, 2, 3].map(|word| 4 * n + word);
        text += &format!(
            "    setp.lt.u64 %q{q}, %far, %chunks;
    @%q{q} {load}.v4.u32 {{%w{a}, %w{b}, %w{c}, %w{d}}}, [%p];
    add.u64 %p, %p, %t;
    add.u64 %far, %far, %step;
",
            q = n + 1
        );
    }
    for n in 0..unroll {
        let [a, b, c, d] = [0, 1, 2, 3].map(|word| 4 * n + word);
        text += &format!(
            "    @%q{q} st.global.v4.u32 [%o], {{%w{a}, %w{b}, %w{c}, %w{d}}};
    add.u64 %o, %o, %t;
",
            q = n + 1
        );
    }
    text += "    add.u64 %i, %i, %jump;\n    bra EVEN;\nSKEWED:\n";
    // Two loads for each store, so half as many stores at a time.
    let half = unroll.div_ceil(2);
    let (two, one) = (half + 1, half + 2);
    text += &format!(
        "    mul.lo.u64 %jump, %step, {half};
    cvt.u32.u64 %shift, %skew;
    and.b32 %w0, %shift, 8;
    setp.ne.u32 %q{two}, %w0, 0;
    and.b32 %w0, %shift, 4;
    setp.ne.u32 %q{one}, %w0, 0;
    and.b32 %shift, %shift, 3;
    shl.b32 %shift, %shift, 3;
AGAIN_SKEWED:
    setp.ge.u64 %q0, %i, %chunks;
    @%q0 bra COPIED;
    mov.u64 %far, %i;
"
    );
    for n in 0..half {
        let w: [usize; 8] = std::array::from_fn(|word| 8 * n + word);
        text += &format!(
            "    setp.lt.u64 %q{q}, %far, %chunks;
    @%q{q} {load}.v4.u32 {{%w{}, %w{}, %w{}, %w{}}}, [%p];
    @%q{q} {load}.v4.u32 {{%w{}, %w{}, %w{}, %w{}}}, [%p+16];
    add.u64 %p, %p, %t;
    add.u64 %far, %far, %step;
",
            w[0],
            w[1],
            w[2],
            w[3],
            w[4],
            w[5],
            w[6],
            w[7],
            q = n + 1
        );
    }
    for n in 0..half {
        let w = |word: usize| 8 * n + word;
        for word in 0..6 {
            text += &format!("    selp.b32 %w{a}, %w{b}, %w{a}, %q{two};\n", a = w(word), b = w(word + 2));
        }
        for word in 0..5 {
            text += &format!("    selp.b32 %w{a}, %w{b}, %w{a}, %q{one};\n", a = w(word), b = w(word + 1));
        }
        for word in 0..4 {
            text += &format!("    shf.r.wrap.b32 %w{a}, %w{a}, %w{b}, %shift;\n", a = w(word), b = w(word + 1));
        }
        text += &format!(
            "    @%q{q} st.global.v4.u32 [%o], {{%w{}, %w{}, %w{}, %w{}}};
    add.u64 %o, %o, %t;
",
            w(0),
            w(1),
            w(2),
            w(3),
            q = n + 1
        );
    }
    text += "    add.u64 %i, %i, %jump;\n    bra AGAIN_SKEWED;\nCOPIED:\n    }\n";
    text
}
