//! Memory: the amount, the mechanisms by which the host may take or give it, and the part that may be moved or swapped out.

use crate::files::Files;
use crate::gather::Gathered;
use crate::value::Known;

pub fn facts(files: &Files, into: &mut Gathered) {
    let meminfo = files.text("/proc/meminfo");
    let of = |key: &str| meminfo.clone().and_then(|text| kilobytes(&text, key, "/proc/meminfo"));
    into.put("memory.total_kb", of("MemTotal"));
    into.put("memory.available_kb", of("MemAvailable"));
    into.put("memory.swap_kb", of("SwapTotal"));
    let used = of("SwapTotal").and_then(|total| Ok(total.saturating_sub(of("SwapFree")?)));
    into.put("memory.swap_used_kb", used);
    into.put("memory.huge_pages", meminfo.clone().and_then(|text| number(&text, "HugePages_Total", "/proc/meminfo")));
    let status = files.text("/proc/self/status");
    into.put("memory.locked_kb", status.and_then(|text| kilobytes(&text, "VmLck", "/proc/self/status")));
    into.put("memory.lock_limit", lock_limit());
    into.put("memory.transparent_huge_pages", files.text(&huge("enabled")).and_then(|t| chosen(&t)));
    into.put("memory.transparent_huge_pages_defrag", files.text(&huge("defrag")).and_then(|t| chosen(&t)));
    into.put("memory.grows", grows(files));
    into.put("memory.balloon_pages", files.text("/proc/vmstat").and_then(|t| balloon(&t)));
    let pressure = |what: &str| files.text(&format!("/proc/pressure/{what}")).and_then(|t| super::cpu::pressure(&t));
    into.put("memory.pressure", pressure("memory"));
    into.put("io.pressure", pressure("io"));
}

fn huge(file: &str) -> String {
    format!("/sys/kernel/mm/transparent_hugepage/{file}")
}

/// `key:  1234 ...`
fn number(text: &str, key: &str, file: &str) -> Known<u64> {
    let of = |line: &str| line.strip_prefix(key)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(of).ok_or_else(|| format!("{file} has no number of {key}"))
}

/// `key:  1234 kB`
pub fn kilobytes(text: &str, key: &str, file: &str) -> Known<u64> {
    number(text, key, file)
}

/// `always [madvise] never`: the one in brackets.
fn chosen(text: &str) -> Known<String> {
    let word = text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
    word.map(str::to_string).ok_or_else(|| format!("none is chosen in {text:?}"))
}

/// RLIMIT_MEMLOCK: bytes, or `unlimited`.
fn lock_limit() -> Known<String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit.
    match unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } {
        0 if limit.rlim_cur == libc::RLIM_INFINITY => Ok("unlimited".into()),
        0 => Ok(format!("{} bytes", limit.rlim_cur)),
        _ => Err(format!("getrlimit: {}", std::io::Error::last_os_error())),
    }
}

/// Drivers with a device by which the host provides this machine's memory only when it is touched, or takes it back.
fn grows(files: &Files) -> Known<Vec<String>> {
    let mut found = Vec::new();
    for driver in ["virtio_balloon", "virtio_mem", "hv_balloon", "xen_balloon", "vmw_balloon"] {
        for bus in ["virtio", "vmbus", "platform"] {
            let names = files.names(&format!("/sys/bus/{bus}/drivers/{driver}")).unwrap_or_default();
            // Apart from its devices, a driver's folder contains these.
            let devices =
                names.iter().any(|n| !["bind", "module", "uevent", "unbind", "new_id", "remove_id"].contains(&&**n));
            if devices {
                found.push(driver.to_string());
            }
        }
    }
    // The guest reports free pages, which the host may take back.
    if files.is_there("/sys/module/page_reporting/parameters/page_reporting_order") && !found.is_empty() {
        found.push("free page reporting".into());
    }
    Ok(found)
}

/// Pages that the host holds through a balloon now.
fn balloon(vmstat: &str) -> Known<u64> {
    let of = |key: &str| {
        let value = |l: &str| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse::<u64>().ok();
        vmstat.lines().find_map(value)
    };
    let known = of("nr_balloon_pages").or_else(|| Some(of("balloon_inflate")?.saturating_sub(of("balloon_deflate")?)));
    known.ok_or_else(|| "/proc/vmstat counts no balloon".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_kernel_is_parsed() {
        let meminfo = "MemTotal:       24684084 kB\nMemFree:        22442164 kB\nHugePages_Total:       3\n";
        assert_eq!(kilobytes(meminfo, "MemTotal", "f"), Ok(24_684_084));
        assert_eq!(number(meminfo, "HugePages_Total", "f"), Ok(3));
        assert_eq!(kilobytes(meminfo, "SwapTotal", "f"), Err("f has no number of SwapTotal".into()));
        assert_eq!(chosen("always [madvise] never").as_deref(), Ok("madvise"));
        assert!(chosen("always madvise").is_err());
        assert_eq!(balloon("nr_free 3\nnr_balloon_pages 7\nballoon_inflate 9\nballoon_deflate 1\n"), Ok(7));
        assert_eq!(balloon("balloon_inflate 9\nballoon_deflate 1\n"), Ok(8));
        assert!(balloon("nr_free 3\n").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([ 0-9a-zA-Z_:\\[\\]]{0,40}\n){0,5}") {
            let _ = (kilobytes(&text, "MemTotal", "f"), chosen(&text), balloon(&text));
        }
    }
}
