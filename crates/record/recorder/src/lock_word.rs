//! The thread that a lock names as its holder, read from the memory of a running program.

use crate::inspect::memory;
use tape::lock::{op, readers};

/// What a lock's words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Free,
    /// The thread that has it alone, by its number in its own namespace.
    By(i32),
    /// So many readers, which are only counted.
    Readers(u32),
}

/// The thread that holds the lock at `addr`, for which another one waits by the function `of` ([`op`]). `None` if the lock
/// names none, or if the memory cannot be read.
pub fn holder(pid: i32, addr: u64, of: u8) -> Option<i32> {
    match held(pid, addr, of)? {
        Held::By(tid) => Some(tid),
        Held::Free | Held::Readers(_) => None,
    }
}

/// Who holds the lock at `addr`, as [`holder`]. `None`: not known.
pub fn held(pid: i32, addr: u64, of: u8) -> Option<Held> {
    let by = |word: u32| i32::try_from(word).ok().filter(|tid| *tid > 0).map(Held::By);
    match of {
        // `__lock` (+0) is 0 while it is free; `__owner` (+8) of `struct __pthread_mutex_s`, glibc on x86-64.
        op::MUTEX_LOCK..=op::MUTEX_CLOCKLOCK => {
            let [lock, _, owner]: [u32; 3] = read(pid, addr)?;
            if lock == 0 { Some(Held::Free) } else { by(owner) }
        }
        // `__readers` (+0); `__cur_writer` (+24) of `struct __pthread_rwlock_arch_t`.
        op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKWRLOCK => {
            let [word, _, _, _, _, _, writer]: [u32; 7] = read(pid, addr)?;
            match (word & readers::HAS_WRITER != 0 && writer != 0, word >> readers::SHIFT) {
                (true, _) => by(writer),
                (false, 0) => Some(Held::Free),
                (false, n) => Some(Held::Readers(n)),
            }
        }
        _ => None,
    }
}

/// Words of another process's memory.
pub fn read<const N: usize>(pid: i32, addr: u64) -> Option<[u32; N]> {
    let mut bytes = [[0; 4]; N];
    memory::fill(pid, addr, bytes.as_flattened_mut())?;
    Some(bytes.map(u32::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_this_libc_name_their_holder() {
        // SAFETY: no arguments.
        let (pid, me) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid) as i32) };
        let (mut m, mut l) = (libc::PTHREAD_MUTEX_INITIALIZER, libc::PTHREAD_RWLOCK_INITIALIZER);
        let (m, l) = (&raw mut m, &raw mut l);
        let mutex = || holder(pid, m as u64, op::MUTEX_LOCK);
        let rwlock = || holder(pid, l as u64, op::RWLOCK_RDLOCK);
        // SAFETY: locks of this function's own, each taken and released by this thread.
        unsafe {
            assert_eq!((mutex(), rwlock()), (None, None));
            libc::pthread_mutex_lock(m);
            libc::pthread_rwlock_wrlock(l);
            assert_eq!((mutex(), rwlock()), (Some(me), Some(me)));
            assert_eq!(holder(pid, m as u64, op::SEM_WAIT), None, "a semaphore has no holder");
            libc::pthread_mutex_unlock(m);
            libc::pthread_rwlock_unlock(l);
            libc::pthread_rwlock_rdlock(l);
            assert_eq!((mutex(), rwlock()), (None, None), "readers are only counted");
            libc::pthread_rwlock_unlock(l);
        }
        assert_eq!(holder(pid, 16, op::MUTEX_LOCK), None, "no memory");
    }
}
