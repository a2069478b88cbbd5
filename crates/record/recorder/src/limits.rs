//! The memory that the recorder may take: a part of the limit of its control group, which is the program's limit, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tape::session::LEAST_ROOM;

/// `usual`, or this part of the control group's limit of memory if that is less.
pub fn at_most(usual: usize, one_in: u64) -> usize {
    memory().map_or(usual, |limit| usual.min((limit / one_in) as usize))
}

/// The lowest limit of memory that holds for this process's control group, or half of its limit of address space (`ulimit -v`): rings
/// take twice their size of that. `None`: there is none.
pub fn memory() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = of(Path::new("/sys/fs/cgroup"), &groups);
        group.into_iter().chain(address_space().map(|bytes| bytes / 2)).min()
    })
}

/// The limit of this process's address space.
pub fn address_space() -> Option<u64> {
    limit(libc::RLIMIT_AS)
}

/// A limit of the program's memory that is too low for the agent to be loaded into it.
pub fn without_room() -> Option<u64> {
    [libc::RLIMIT_DATA, libc::RLIMIT_AS].into_iter().filter_map(limit).find(|bytes| *bytes < LEAST_ROOM)
}

fn limit(which: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call writes only the struct that it is given.
    unsafe { libc::getrlimit(which, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// `groups`: the text of /proc/self/cgroup. In a container a group's path may be one of the host's, of which `root` has only the
/// last part: the container's own.
fn of(root: &Path, groups: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/').to_owned());
        match controllers {
            "" => Some((root.to_owned(), path, "memory.max")),
            _ if controllers.split(',').any(|c| c == "memory") => {
                Some((root.join("memory"), path, "memory.limit_in_bytes"))
            }
            _ => None,
        }
    };
    groups.lines().filter_map(line).flat_map(|(root, path, file)| limits(&root, &path, file)).min()
}

/// The limits of a group and of those above it.
fn limits(root: &Path, path: &str, file: &str) -> Vec<u64> {
    let group: PathBuf = root.join(path);
    let all = group.ancestors().take_while(|at| at.starts_with(root));
    all.filter_map(|at| fs::read_to_string(at.join(file)).ok()?.trim().parse().ok()).filter(|n| *n < NONE).collect()
}

/// Version 1 has this or more where there is no limit.
const NONE: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_all_groups_counts_in_both_versions_and_in_containers() {
        let dir = tempfile::tempdir().unwrap();
        let put = |at: &str, text: &str| {
            let at = dir.path().join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, text).unwrap();
        };
        let of = |groups: &str| of(dir.path(), groups);
        assert_eq!(of("0::/a/b\n"), None);
        put("a/memory.max", "1000\n");
        put("a/b/memory.max", "max\n");
        assert_eq!((of("0::/a/b\n"), of("0::/\n")), (Some(1000), None));
        put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let old = "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n";
        assert_eq!(of(old), None);
        // The path is the host's, the folder is the container's own.
        put("memory/memory.limit_in_bytes", "5000\n");
        assert_eq!((of(old), of("")), (Some(5000), None));
    }
}
