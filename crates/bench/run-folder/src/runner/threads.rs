//! The activity of a silent process's threads, from /proc: evidence of a hang.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The threads of a process and of its descendants, with equal ones grouped, the most frequent first, and their CPU use in a second. Spinning
/// threads use CPU time; stuck ones neither use it nor switch.
pub fn where_threads_are(process: u32) -> String {
    let mut alike: BTreeMap<String, u32> = BTreeMap::new();
    let before = done(process);
    std::thread::sleep(Duration::from_secs(1));
    let after = done(process);
    for process in family(process) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            *alike.entry(of_thread(&task.path().to_string_lossy(), process)).or_default() += 1;
        }
    }
    let mut all: Vec<(u32, String)> = alike.into_iter().map(|(text, n)| (n, text)).collect();
    all.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    let text: String = all.iter().map(|(n, text)| format!("; {n} x {text}")).collect();
    let (ran, switched) = (after.0.saturating_sub(before.0) as f64 / 1e9, after.1.saturating_sub(before.1));
    format!("; in a second its threads had {ran:.2} s of CPUs and switched {switched} times{text}")
}

/// CPU time of all threads so far, ns, and their context switches.
fn done(process: u32) -> (u64, u64) {
    let mut sum = (0, 0);
    for process in family(process) {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let number = |text: Option<&str>| text.and_then(|t| t.trim().parse::<u64>().ok()).unwrap_or(0);
            sum.0 += number(read("schedstat").split_ascii_whitespace().next());
            let status = read("status");
            let switches = status.lines().filter(|line| line.contains("ctxt_switches:"));
            sum.1 += switches.map(|line| number(line.split(':').nth(1))).sum::<u64>();
        }
    }
    sum
}

/// Whether a process exists and is alive: a dead one may stay in /proc until its parent waits for it.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A process and its descendants.
pub fn family(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        next += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_ascii_whitespace().filter_map(|c| c.parse::<u32>().ok()));
        }
    }
    all
}

/// One thread, from its files in /proc.
fn of_thread(task: &str, process: u32) -> String {
    let read = |file: &str| fs::read_to_string(format!("{task}/{file}")).unwrap_or_default();
    described(process, &read("comm"), &read("stat"), &read("wchan"), &read("syscall"))
}

/// Name without digits, state, the kernel function that it sleeps in, system call with its first argument (a futex's address).
fn described(process: u32, comm: &str, stat: &str, wchan: &str, syscall: &str) -> String {
    let name: String = comm.trim().chars().filter(|c| !c.is_ascii_digit()).collect();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    // The state is field 3, real-time priority 40, policy 41; the state and the fields before it are cut off.
    let field = |n: usize| fields.get(n - 3).copied().unwrap_or("?");
    let mut call = syscall.split_ascii_whitespace();
    let call = match (call.next(), call.next()) {
        (Some(number), Some(argument)) => format!("system call {number} ({argument})"),
        (Some(word), None) => word.to_owned(),
        _ => "unknown".into(),
    };
    let policy = match field(41) {
        "0" => String::new(),
        policy => format!(", policy {policy} priority {}", field(40)),
    };
    format!("{} of {process}: {} {wchan} {call}{policy}", name.trim(), field(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::{Command, Stdio};

    proptest! {
        #[test]
        fn no_text_of_the_kernel_panics(pid: u32, comm in ".{0,20}", stat in "[0-9 ()a-zS]{0,80}", call in "[0-9a-fx ]{0,20}") {
            let of = format!(" of {pid}: ");
            prop_assert!(described(pid, &comm, &stat, "", &call).contains(&of));
        }
    }

    #[test]
    fn sleeping_threads_of_a_started_process_are_reported() {
        let mut shell = Command::new("sh").args(["-c", "sleep 60; true"]).stdin(Stdio::null()).spawn().unwrap();
        let mut text = String::new();
        for _ in 0..20 {
            text = where_threads_are(shell.id());
            if text.contains("sleep of ") && text.contains(": S ") {
                break;
            }
        }
        for process in family(shell.id()).into_iter().rev() {
            // SAFETY: two numbers, and the processes belong to this test.
            unsafe { libc::kill(process as i32, libc::SIGKILL) };
        }
        shell.wait().unwrap();
        assert!(text.contains("in a second its threads had 0.0"), "{text}");
        assert!(text.contains("1 x sh of ") && text.contains("1 x sleep of "), "{text}");
    }
}
