//! The causes of a call's time, from the activities in it.

use crate::activity::{Shares, What};
use schema::slow_calls::Cause;
use tape::call::{Class, Effect, Function};

/// Causes, in the order of [`Cause`].
pub const CAUSES: [Cause; 18] = [
    Cause::Usual,
    Cause::Gpu,
    Cause::Engine,
    Cause::Queue,
    Cause::HostFunction,
    Cause::Lock,
    Cause::Condition,
    Cause::DriverCall,
    Cause::Preempted,
    Cause::PageFault,
    Cause::CodeLoading,
    Cause::Memory,
    Cause::Making,
    Cause::GraphUpload,
    Cause::Pageable,
    Cause::FullRing,
    Cause::Asleep,
    Cause::Unknown,
];

/// Waits for the GPU.
const WAITS: [Cause; 3] = [Cause::Gpu, Cause::Queue, Cause::Engine];

/// Ticks by cause. They add up to the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts([u64; CAUSES.len()]);

impl Parts {
    fn add(&mut self, cause: Cause, ticks: u64) {
        self.0[cause as usize] += ticks;
    }

    pub fn each(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        CAUSES.iter().copied().zip(self.0.iter().copied()).filter(|(_, ticks)| *ticks > 0)
    }

    pub fn get(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Time that is not by design.
    pub fn lost(&self) -> u64 {
        self.each().filter(|(cause, _)| !cause.is_by_design()).map(|(_, ticks)| ticks).sum()
    }

    /// How long it waited for the GPU.
    pub fn waited(&self) -> u64 {
        WAITS.iter().map(|cause| self.get(*cause)).sum()
    }

    /// The largest part of that time.
    pub fn waits_for(&self) -> Option<Cause> {
        WAITS.into_iter().filter(|cause| self.get(*cause) > 0).max_by_key(|cause| self.get(*cause))
    }

    /// The largest part of the lost time.
    pub fn cause(&self) -> Option<Cause> {
        let lost = self.each().filter(|(cause, _)| !cause.is_by_design());
        lost.max_by_key(|(_, ticks)| *ticks).map(|(cause, _)| cause)
    }
}

/// Further facts about a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    /// The kernel, or this version of the graph, was not launched before.
    pub is_first: bool,
    /// How long the CPU and the engine may take for the pageable memory that it moved, in ticks; 0 if it moved none.
    pub pageable: u64,
    /// Its channel's ring may be full, and the calls before it were as slow.
    pub ring_is_full: bool,
    /// The work that it waits for included host functions.
    pub host_functions: bool,
    /// Ticks on a CPU that are usual for its kind.
    pub usual: u64,
}

impl Parts {
    pub fn of(function: Option<&Function>, shares: &Shares, about: &About) -> Parts {
        let mut p = Parts::default();
        let s = |what| shares.get(what);
        p.add(Cause::Lock, s(What::Lock));
        p.add(Cause::Preempted, s(What::Preempted));
        p.add(Cause::PageFault, s(What::Fault));
        p.add(Cause::Engine, s(What::Engine) + s(What::Bounded));
        p.add(Cause::Queue, s(What::Beside) + s(What::Queue));
        let class = function.map(|f| f.class);
        let (driver, condition, asleep, rest) = (s(What::Driver), s(What::Condition), s(What::Asleep), shares.rest);
        match class {
            Some(Class::Synchronize) => {
                p.add(Cause::DriverCall, driver);
                p.add(if about.host_functions { Cause::HostFunction } else { Cause::Gpu }, condition + asleep + rest);
                return p;
            }
            Some(Class::Alloc | Class::Free) => p.add(Cause::Memory, driver + asleep + rest),
            Some(Class::Create | Class::Destroy) => {
                let loads = function.is_some_and(|f| matches!(f.effect, Effect::LoadsCode | Effect::UnloadsCode));
                p.add(if loads { Cause::CodeLoading } else { Cause::Making }, driver + asleep + rest);
            }
            Some(Class::Copy) => {
                p.add(Cause::DriverCall, driver);
                let pageable = about.pageable.min(asleep + rest);
                p.add(Cause::Pageable, pageable);
                p.add(Cause::Gpu, asleep + rest - pageable);
            }
            _ => {
                // Calls of one kind differ. Without an explanation, only time beyond twice the usual counts as lost.
                let explained = about.pageable > 0 || about.is_first || about.ring_is_full;
                let own = rest.min(if explained { about.usual } else { about.usual.saturating_mul(2) });
                let beyond = rest - own;
                p.add(Cause::Usual, own);
                if about.pageable > 0 {
                    // (The rest of a longer call waited for earlier work in the stream.)
                    let pageable = about.pageable.min(beyond + asleep);
                    p.add(Cause::Pageable, pageable);
                    p.add(Cause::Gpu, beyond + asleep - pageable);
                    p.add(Cause::DriverCall, driver);
                } else if about.is_first {
                    let graph = matches!(class, Some(Class::GraphLaunch));
                    let cause = if graph { Cause::GraphUpload } else { Cause::CodeLoading };
                    p.add(cause, beyond + driver + asleep);
                } else {
                    p.add(if about.ring_is_full { Cause::FullRing } else { Cause::Unknown }, beyond);
                    p.add(Cause::DriverCall, driver);
                    p.add(Cause::Asleep, asleep);
                }
            }
        }
        p.add(Cause::Condition, condition);
        p
    }
}

/// What to do about a cause.
pub fn advice(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::Lock => {
            "another thread held the lock: make its slow calls at another time or in another process; `doorbell plan` tries other lock protocols"
        }
        Cause::HostFunction => {
            "the stream waits for a function of the program's (cudaLaunchHostFunc), which CUDA runs in one thread of its own: keep it short"
        }
        Cause::Condition => "another thread had to do something first: see which one, and what delayed it",
        Cause::DriverCall => {
            "the call needed the driver in the kernel: make such calls (memory, peers, events between processes) before the loop"
        }
        Cause::Preempted => {
            "another thread had the CPU: reserve a CPU for this one (taskset, cpusets), or give it a real-time policy"
        }
        Cause::PageFault => {
            "memory was touched for the first time, or was not in memory: touch it before the loop, use it again, or lock it (mlockall)"
        }
        Cause::CodeLoading => "load code before the loop: launch each kernel once, or set CUDA_MODULE_LOADING=EAGER",
        Cause::Memory => "make memory before the loop, or take it from a pool (cudaMallocAsync, a caching allocator)",
        Cause::Making => "make streams, events and graphs before the loop, and use them again",
        Cause::GraphUpload => "upload the graph before its first launch (cudaGraphUpload), and change it seldom",
        Cause::Pageable => {
            "use pinned memory (cudaMallocHost; in PyTorch pin_memory): the engine then accesses it itself, and the call returns immediately"
        }
        Cause::FullRing => {
            "the channel is full, because the GPU is slower than the CPU submits: larger kernels or a graph need fewer entries"
        }
        Cause::Engine => {
            "the GPU ran kernels and copies that the calls wait for: shorten those that take the most (`show --kernels`, `show --copies --sort time`), or do other work before the wait"
        }
        Cause::Queue => {
            "kernels or copies were submitted and did not run: fewer, longer ones or a graph have fewer pauses between them"
        }
        Cause::Usual | Cause::Gpu | Cause::Asleep | Cause::Unknown => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_numbered_as_they_stand() {
        assert!(CAUSES.iter().enumerate().all(|(i, cause)| *cause as usize == i));
    }

    #[test]
    fn parts_add_up_for_each_function() {
        let shares = Shares { of: [1, 20, 300, 4_000, 7_000, 50_000, 3, 40, 500, 6_000], rest: 600_000 };
        let all = shares.of.iter().sum::<u64>() + shares.rest;
        let functions = tape::call::FUNCTIONS.iter().map(Some).chain([None]);
        for f in functions {
            for bits in 0..16 {
                let about = About {
                    is_first: bits & 1 != 0,
                    pageable: if bits & 2 != 0 { 100_000 } else { 0 },
                    ring_is_full: bits & 4 != 0,
                    host_functions: bits & 8 != 0,
                    usual: 70_000,
                };
                let parts = Parts::of(f, &shares, &about);
                assert_eq!(parts.each().map(|(_, ticks)| ticks).sum::<u64>(), all, "{f:?} {about:?}");
            }
        }
    }
}
