//! The recorder's rights: privileges that it got for a moment only, and its own limits.

/// The program opens the recorder's memory files by /proc/PID/fd. The kernel allows that only if the recorder has no
/// privileges that the program lacks. A doorbell with its own capabilities (`setcap cap_perfmon+ep`) has such privileges,
/// and also counts as undumpable. It gives them up. To be called by the process's first thread, when everything that needs
/// them is open.
///
/// Root keeps its privileges, because the programs that it starts have them, too.
pub fn let_the_program_see_us() {
    // SAFETY: no memory.
    if unsafe { libc::geteuid() } != 0 {
        drop_capabilities();
    }
    // SAFETY: no memory. The flag stays until a change of identity or an exec.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
}

/// `struct __user_cap_header_struct` and `struct __user_cap_data_struct` (capget(2)), version 3: two of the latter.
#[repr(C)]
struct Head {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn own() -> Option<(Head, [Data; 2])> {
    let mut head = Head { version: 0x2008_0522, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: the kernel writes two structs of this layout.
    let r = unsafe { libc::syscall(libc::SYS_capget, &raw mut head, data.as_mut_ptr()) };
    (r == 0).then_some((head, data))
}

/// The capabilities that this process may have, one bit each.
pub fn capabilities() -> u64 {
    own().map_or(0, |(_, [low, high])| u64::from(low.permitted) | u64::from(high.permitted) << 32)
}

fn drop_capabilities() {
    let Some((mut head, mut data)) = own() else { return };
    // The inheritable capabilities stay.
    for d in &mut data {
        (d.effective, d.permitted) = (0, 0);
    }
    // SAFETY: the kernel reads two structs of this layout.
    unsafe { libc::syscall(libc::SYS_capset, &raw mut head, data.as_ptr()) };
}

/// Each process takes two of the recorder's descriptors, so this raises the limit as far as allowed. To be called when
/// the program was started, which keeps the limit that it would have without doorbell.
pub fn have_many_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write only the struct that they are given.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max.min(MANY);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// The kernel kills a process at its hard limit of CPU time, and warns it at the soft limit. This process is warned a second
/// earlier ([`crate::signals`]). To be called when the program was started, which keeps the limit that it would have without
/// doorbell.
pub fn be_warned_of_the_time_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write only the struct that they are given.
    unsafe {
        let known = libc::getrlimit(libc::RLIMIT_CPU, &mut limit) == 0 && limit.rlim_max != libc::RLIM_INFINITY;
        if known && limit.rlim_cur >= limit.rlim_max {
            limit.rlim_cur = limit.rlim_max.saturating_sub(1);
            libc::setrlimit(libc::RLIMIT_CPU, &limit);
        }
    }
}

/// Maximum number of files that the recorder uses: two for each image, and one each for CPUs and the rest.
const MANY: u64 = 65_536;
