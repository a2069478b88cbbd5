//! Names of the operations, and the locks that they belong to.

use tape::lock::{attr, op};

/// The kind of an operation's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    Mutex,
    Rwlock,
    Cond,
    Sem,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Mutex => "mutex",
            Class::Rwlock => "rwlock",
            Class::Cond => "cond",
            Class::Sem => "sem",
        }
    }

    /// The kind of the lock that an operation names; `None` for an unknown number.
    pub fn of(op: u8) -> Option<Class> {
        Some(match op {
            op::MUTEX_LOCK..=op::MUTEX_DESTROY => Class::Mutex,
            op::RWLOCK_RDLOCK..=op::RWLOCK_DESTROY => Class::Rwlock,
            op::COND_WAIT..=op::COND_DESTROY => Class::Cond,
            op::SEM_WAIT..=op::SEM_DESTROY => Class::Sem,
            _ => return None,
        })
    }

    /// The kind of the lock that is held: after a wait for a condition, its mutex.
    pub fn of_hold(op: u8) -> Option<Class> {
        if is_wait_for_condition(op) { Some(Class::Mutex) } else { Class::of(op) }
    }

    /// The operation that ends a hold.
    pub fn unlock(self) -> u8 {
        if self == Class::Rwlock { op::RWLOCK_UNLOCK } else { op::MUTEX_UNLOCK }
    }
}

pub fn is_wait_for_condition(op: u8) -> bool {
    matches!(op, op::COND_WAIT..=op::COND_CLOCKWAIT)
}

/// An operation that takes a mutex or a rwlock.
pub fn takes(op: u8) -> bool {
    matches!(op, op::MUTEX_LOCK..=op::MUTEX_CLOCKLOCK | op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKWRLOCK)
}

pub fn reads(op: u8) -> bool {
    matches!(op, op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKRDLOCK)
}

pub fn tries(op: u8) -> bool {
    matches!(op, op::MUTEX_TRYLOCK | op::RWLOCK_TRYRDLOCK | op::RWLOCK_TRYWRLOCK | op::SEM_TRYWAIT)
}

pub fn makes(op: u8) -> bool {
    matches!(op, op::MUTEX_INIT | op::RWLOCK_INIT | op::COND_INIT | op::SEM_INIT)
}

pub fn destroys(op: u8) -> bool {
    matches!(op, op::MUTEX_DESTROY | op::RWLOCK_DESTROY | op::COND_DESTROY | op::SEM_DESTROY)
}

pub fn unlocks(op: u8) -> bool {
    matches!(op, op::MUTEX_UNLOCK | op::RWLOCK_UNLOCK)
}

/// The function, without its `pthread_`.
pub fn name(op: u8) -> &'static str {
    const NAMES: [&str; op::COUNT] = [
        "?",
        "mutex_lock",
        "mutex_trylock",
        "mutex_timedlock",
        "mutex_clocklock",
        "mutex_unlock",
        "mutex_init",
        "mutex_destroy",
        "rwlock_rdlock",
        "rwlock_tryrdlock",
        "rwlock_timedrdlock",
        "rwlock_clockrdlock",
        "rwlock_wrlock",
        "rwlock_trywrlock",
        "rwlock_timedwrlock",
        "rwlock_clockwrlock",
        "rwlock_unlock",
        "rwlock_init",
        "rwlock_destroy",
        "cond_wait",
        "cond_timedwait",
        "cond_clockwait",
        "cond_signal",
        "cond_broadcast",
        "cond_init",
        "cond_destroy",
        "sem_wait",
        "sem_trywait",
        "sem_timedwait",
        "sem_clockwait",
        "sem_post",
        "sem_init",
        "sem_destroy",
    ];
    NAMES.get(op as usize).copied().unwrap_or("?")
}

/// Kind and protocol of a lock in words, empty for the usual.
pub fn attributes(class: Class, a: u8) -> Vec<&'static str> {
    let mut out = Vec::new();
    match (class, a & attr::KIND) {
        (Class::Mutex, 1) => out.push("recursive"),
        (Class::Mutex, 2) => out.push("errorcheck"),
        (Class::Mutex, 3) => out.push("adaptive"),
        (Class::Rwlock, 1) => out.push("prefers writers"),
        (Class::Rwlock, 2) => out.push("prefers writers, not recursive"),
        _ => {}
    }
    let bits = [
        (attr::ROBUST, "robust"),
        (attr::INHERIT, "priority inheritance"),
        (attr::PROTECT, "priority ceiling"),
        (attr::SHARED, "process-shared"),
    ];
    out.extend(bits.iter().filter(|(bit, _)| a & bit != 0).map(|(_, name)| *name));
    out
}
