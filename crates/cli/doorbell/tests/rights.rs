//! doorbell with a capability, as `setcap cap_perfmon+ep` gives it: the program can still reach the recorder's memory, and
//! does not inherit the capability.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY: u32 = 65534;

/// A copy of doorbell under another name, which all users may execute.
fn copy(dir: &Path, name: &str) -> PathBuf {
    let to = dir.join(name);
    std::fs::copy(assert_cmd::cargo::cargo_bin!("doorbell"), &to).unwrap();
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
    to
}

/// Gives a program a capability, as `setcap cap_perfmon+ep` does. False where that is not allowed.
fn give_perfmon(path: &Path) -> bool {
    // struct vfs_cap_data, revision 2 with the effective bit: permitted and inheritable of the low and the high half.
    // CAP_PERFMON is number 38.
    let words = [0x0200_0001u32, 0, 0, 1 << (38 - 32), 0];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = c"security.capability".as_ptr();
    // SAFETY: NUL-terminated names, and bytes with their length.
    unsafe { libc::setxattr(path.as_ptr(), name, bytes.as_ptr().cast(), bytes.len(), 0) == 0 }
}

#[test]
fn a_capability_of_doorbells_own_is_no_hindrance_and_is_not_lent() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return test_support::skip_part!("only root can give a file a capability and become another user");
    }
    let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let (doorbell, program, tape) = (copy(dir.path(), "capable"), copy(dir.path(), "program"), dir.path().join("t"));
    if !give_perfmon(&doorbell) {
        return test_support::skip_part!("this file system takes no file capabilities");
    }
    let script = format!("grep CapEff /proc/self/status; {} sample copies --gpu soft", program.display());
    let mut c = Command::new(&doorbell);
    c.args(["record", "--gpu", "soft", "-o"]).arg(&tape).args(["sh", "-c", &script]);
    let out = c.uid(NOBODY).gid(NOBODY).current_dir(dir.path()).output().unwrap();
    let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}{err}");
    assert!(text.contains(&format!("CapEff:\t{}", "0".repeat(16))), "{text}");
    let mut end = None;
    let mut reader = tape::file::Reader::open(&tape).unwrap();
    while let Some(item) = reader.item().unwrap() {
        if let tape::file::Item::End(e) = item {
            end = Some(*e);
        }
    }
    let end = end.unwrap();
    assert!(end.complete && end.processes >= 1 && end.tapped + end.trapped > 0, "{end:?}");
}
