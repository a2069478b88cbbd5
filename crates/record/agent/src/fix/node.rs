//! The NUMA node on which the kernel would put the calling thread's pages.

use super::nodes;
use crate::process::restrictions::{may, need};
use crate::process::sys::syscall6;

/// Nodes that are known here.
const NODES: usize = 1024;

/// `None` if the thread's policy is another than to take the node that it runs on, if the thread may not use that node, or if
/// the driver may not make memory on it.
pub fn of_thread() -> Option<i32> {
    /// MPOL_DEFAULT, MPOL_LOCAL
    const USUAL: [i32; 2] = [0, 4];
    const MEMS_ALLOWED: usize = 4;
    if !may(need::NODE | need::FILES) || !nodes::are_usable() {
        return None;
    }
    let mut mode = -1i32;
    let mut allowed = [0u64; NODES / 64];
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: places for what the three calls write, with the length of the mask.
    unsafe {
        let policy = syscall6(libc::SYS_get_mempolicy, &raw mut mode as usize, 0, 0, 0, 0, 0);
        // (A container without CAP_SYS_NICE forbids the call. A policy from before its start is not seen then: it decides where pages
        // are, not what they hold.)
        if policy == 0 && !USUAL.contains(&mode) {
            return None;
        }
        if syscall6(libc::SYS_getcpu, &raw mut cpu as usize, &raw mut node as usize, 0, 0, 0, 0) != 0 {
            return None;
        }
        let mask = (&raw mut allowed as usize, NODES + 1);
        let asked = syscall6(libc::SYS_get_mempolicy, 0, mask.0, mask.1, 0, MEMS_ALLOWED, 0);
        let word = allowed.get(node as usize / 64)?;
        if asked == 0 && word >> (node % 64) & 1 == 0 {
            return None;
        }
    }
    i32::try_from(node).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_without_a_policy_has_the_node_that_it_runs_on() {
        let node = super::of_thread().expect("a node");
        assert!(std::path::Path::new(&format!("/sys/devices/system/node/node{node}")).exists() || node == 0);
    }

    #[test]
    fn a_thread_with_a_policy_has_none() {
        // (MPOL_INTERLEAVE over node 0; only this thread.)
        let mask = 1u64;
        // SAFETY: a mask of one word.
        let set = unsafe { libc::syscall(libc::SYS_set_mempolicy, 3, &raw const mask, 64usize) };
        if set == 0 {
            assert_eq!(super::of_thread(), None);
        }
    }
}
