//! Which threads of this process may run on which CPUs.

use crate::placement::affinity_of;
use std::io;

/// Lets a thread of this process (0: the calling one) run on these CPUs only.
pub fn confine(thread: i32, cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an empty set is all zeros; every index is below its size; the call reads the set.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(*cpu, &mut set);
        }
        libc::sched_setaffinity(thread, size_of_val(&set), &set)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Narrows the CPUs of a thread to those among `others`.
fn keep_to(thread: i32, others: &[usize]) -> io::Result<()> {
    let has = affinity_of(thread)?;
    let kept: Vec<usize> = has.iter().copied().filter(|cpu| others.contains(cpu)).collect();
    match kept.len() {
        n if n == has.len() => Ok(()),
        0 => confine(thread, others),
        _ => confine(thread, &kept),
    }
}

/// The threads of this process, by their kernel thread ids.
pub(crate) fn threads() -> io::Result<Vec<i32>> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str().and_then(|n| n.parse().ok());
    Ok(std::fs::read_dir("/proc/self/task")?.flatten().filter_map(number).collect())
}

/// Takes every other thread of this process off the CPUs that are not among `others`: a thread keeps those that are, or gets all of `others` if it
/// has none. Threads in `spared`, by their kernel thread ids, are unchanged. Returns the number of threads, and how many of them could not be moved.
pub fn clear(others: &[usize], spared: &[i32]) -> io::Result<(usize, usize)> {
    // SAFETY: only reads the calling thread's id.
    let own = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let (mut threads, mut stayed) = (0, 0);
    for thread in self::threads()? {
        if thread == own || spared.contains(&thread) {
            continue;
        }
        threads += 1;
        match keep_to(thread, others) {
            Ok(()) => {}
            // It has ended in the meantime.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => threads -= 1,
            Err(_) => stayed += 1,
        }
    }
    Ok((threads, stayed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_has_cpus_of_its_own_keeps_them() {
        let all = affinity_of(0).unwrap();
        let (Some(first), Some(last)) = (all.first().copied(), all.last().copied()) else { return };
        let (id, ids) = channel();
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                confine(0, &[first]).unwrap();
                // SAFETY: only reads the calling thread's id.
                id.send(unsafe { libc::syscall(libc::SYS_gettid) } as i32).unwrap();
                let _ = ended.recv();
            });
            let thread = ids.recv().unwrap();
            keep_to(thread, &all).unwrap();
            assert_eq!(affinity_of(thread).unwrap(), [first]);
            keep_to(thread, &[last]).unwrap();
            assert_eq!(affinity_of(thread).unwrap(), [last], "none of its earlier CPUs is left");
            confine(thread, &all).unwrap();
            keep_to(thread, &[first]).unwrap();
            assert_eq!(affinity_of(thread).unwrap(), [first]);
            clear(&[last], &[thread]).unwrap();
            assert_eq!(affinity_of(thread).unwrap(), [first], "it is spared");
            clear(&[last], &[]).unwrap();
            assert_eq!(affinity_of(thread).unwrap(), [last]);
            drop(end);
        });
    }
}
