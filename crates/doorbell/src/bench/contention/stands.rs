//! Where the threads of a process that says nothing stand, from /proc: what a hang leaves behind.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The threads of a process and of all that it started, those that stand alike together, the most first; and what they did in
/// a second: who spins runs, who is stuck neither runs nor switches.
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

/// What all threads had of CPUs so far, ns, and how often they gave one up or lost it.
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

/// A process and its descendants.
fn family(process: u32) -> Vec<u32> {
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

/// Name without numbers, state, what it waits for in the kernel, system call with its first argument (a futex's address).
fn of_thread(task: &str, process: u32) -> String {
    let read = |file: &str| fs::read_to_string(format!("{task}/{file}")).unwrap_or_default();
    let name: String = read("comm").trim().chars().filter(|c| !c.is_ascii_digit()).collect();
    let stat = read("stat");
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    // The state is field 3, real-time priority 40, policy 41; those before the name and it are cut off.
    let field = |n: usize| fields.get(n - 3).copied().unwrap_or("?");
    let call = read("syscall");
    let mut call = call.split_ascii_whitespace();
    let call = match (call.next(), call.next()) {
        (Some(number), Some(argument)) => format!("system call {number} ({argument})"),
        (Some(word), None) => word.to_owned(),
        _ => "unknown".into(),
    };
    let policy = match field(41) {
        "0" => String::new(),
        policy => format!(", policy {policy} priority {}", field(40)),
    };
    format!("{} of {process}: {} {} {call}{policy}", name.trim(), field(3), read("wchan"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn sleeping_threads_of_what_was_started_are_said_to_sleep() {
        let mut shell = Command::new("sh").args(["-c", "sleep 60; true"]).stdin(Stdio::null()).spawn().unwrap();
        let mut text = String::new();
        for _ in 0..20 {
            text = where_threads_are(shell.id());
            if text.contains("sleep of ") && text.contains(": S ") {
                break;
            }
        }
        for process in family(shell.id()).into_iter().rev() {
            // SAFETY: two numbers; processes of this test.
            unsafe { libc::kill(process as i32, libc::SIGKILL) };
        }
        shell.wait().unwrap();
        assert!(text.contains("in a second its threads had 0.0"), "{text}");
        assert!(text.contains("1 x sh of ") && text.contains("1 x sleep of "), "{text}");
    }
}
