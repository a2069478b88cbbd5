//! Where a thread of this process stands, as the kernel says: for one that says nothing itself.

use std::fmt::Write as _;

/// Lines of a kernel stack that are told.
const FRAMES: usize = 12;

/// The calling thread's number.
pub(super) fn own() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

/// State, system call, what it waits for in the kernel, and the kernel's stack where this process may see it.
pub(super) fn of(thread: i32) -> String {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}"));
    let mut text = format!("thread {thread}");
    let Ok(status) = read("status") else {
        let _ = write!(text, " is not there any more");
        return text;
    };
    let of_status = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.map_or("unknown".to_owned(), |value| value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let _ = write!(text, ": state {}", of_status("State:"));
    let switches = [of_status("voluntary_ctxt_switches:"), of_status("nonvoluntary_ctxt_switches:")];
    let _ = write!(text, ", switched {} times by itself and {} times not", switches[0], switches[1]);
    for what in ["wchan", "syscall"] {
        if let Ok(value) = read(what) {
            let _ = write!(text, "; {what} {}", value.trim());
        }
    }
    match read("stack") {
        Ok(stack) if !stack.trim().is_empty() => {
            let frames: Vec<&str> = stack.lines().take(FRAMES).map(|f| f.trim_start_matches("[<0>] ").trim()).collect();
            let _ = write!(text, "; kernel stack {}", frames.join(" < "));
        }
        Ok(_) => {}
        Err(error) => {
            let _ = write!(text, "; no kernel stack ({error})");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_found_in_its_call() {
        let (tell, told) = std::sync::mpsc::channel();
        let (open, shut) = std::sync::mpsc::channel::<()>();
        let sleeps = std::thread::spawn(move || {
            tell.send(own()).unwrap();
            let _ = shut.recv();
        });
        let thread = told.recv().unwrap();
        let told_of = (0..1000).map(|_| of(thread)).find(|text| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            text.contains("state S (sleeping)")
        });
        drop(open);
        sleeps.join().unwrap();
        assert!(told_of.is_some_and(|text| text.contains("times by itself")));
        assert!(of(thread).contains("not there any more"));
    }
}
