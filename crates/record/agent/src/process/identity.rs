//! Writes this process's identity for the recorder: a short process may have ended before the recorder reads /proc.
//!
//! Uses little stack: the first thread that arrives here may have little.

use super::sys::{self, syscall6};
use super::{region, thread};
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use tape::region::{Control, IN_ENVIRON, Identity, NAME};

/// Longer than any variable of interest with its value.
const LINE: usize = 64;

pub fn say(i: &Identity) {
    // SAFETY: a NUL-terminated path, and memory of that length that only this thread writes to.
    let n = unsafe {
        let path = c"/proc/self/exe".as_ptr() as usize;
        syscall6(libc::SYS_readlink, path, i.exe.as_ptr() as usize, i.exe.len(), 0, 0, 0)
    };
    i.exe_len.store(n.max(0) as u32, Ordering::Relaxed);
    let mut have = 0;
    read(c"/proc/self/cmdline", |fd| {
        let room = i.args.get(have..).unwrap_or(&[]);
        // SAFETY: as above.
        let n = unsafe { syscall6(libc::SYS_read, fd as usize, room.as_ptr() as usize, room.len(), 0, 0, 0) };
        have += n.max(0) as usize;
        n > 0 && have < i.args.len()
    });
    i.args_len.store(have as u32, Ordering::Relaxed);
    let mut found = Variables { line: [0; LINE], len: 0, have: 0 };
    let mut piece = [0u8; 512];
    read(c"/proc/self/environ", |fd| {
        // SAFETY: a buffer with its length.
        let n = unsafe { syscall6(libc::SYS_read, fd as usize, piece.as_mut_ptr() as usize, piece.len(), 0, 0, 0) };
        piece.get(..n.max(0) as usize).unwrap_or(&[]).iter().for_each(|b| found.byte(*b, &i.environ));
        n > 0
    });
    i.environ_len.store(found.have as u32, Ordering::Relaxed);
}

/// The program as /proc/self/stat shows it at its begin.
struct Begin {
    /// The main thread's number.
    main: AtomicI32,
    child_faults: AtomicU64,
    start_stack: AtomicU64,
    name: [AtomicU8; NAME],
}

static BEGIN: Begin = Begin {
    main: AtomicI32::new(0),
    child_faults: AtomicU64::new(0),
    start_stack: AtomicU64::new(0),
    name: [const { AtomicU8::new(0) }; NAME],
};

/// Called by the constructor: later the process may have waited for children of this program.
pub fn begin() {
    BEGIN.main.store(sys::getpid(), Ordering::Relaxed);
    let mut text = [0u8; 512];
    // `pid (name) state ppid ...`, where the name may hold anything (proc_pid_stat(5)).
    let text = sys::read_file(c"/proc/self/stat", &mut text).unwrap_or(&[]);
    let (from, to) = (text.iter().position(|b| *b == b'('), text.iter().rposition(|b| *b == b')'));
    let (Some(from), Some(to)) = (from, to) else { return };
    let field = |i: usize| {
        let digits = text.get(to + 2..).unwrap_or(&[]).split(|b| *b == b' ').nth(i - 3).unwrap_or(&[]);
        digits.iter().fold(0u64, |n, b| n.wrapping_mul(10).wrapping_add(u64::from(b.wrapping_sub(b'0'))))
    };
    BEGIN.child_faults.store(field(11), Ordering::Relaxed);
    BEGIN.start_stack.store(field(28), Ordering::Relaxed);
    let name = text.get(from + 1..to).unwrap_or(&[]);
    BEGIN.name.iter().take(NAME - 1).zip(name).for_each(|(to, b)| to.store(*b, Ordering::Relaxed));
}

/// Tells the recorder what [`begin`] has read.
pub fn attached(c: &Control) {
    c.child_faults.store(BEGIN.child_faults.load(Ordering::Relaxed), Ordering::Relaxed);
    c.start_stack.store(BEGIN.start_stack.load(Ordering::Relaxed), Ordering::Relaxed);
    c.name.iter().zip(&BEGIN.name).for_each(|(to, b)| to.store(b.load(Ordering::Relaxed), Ordering::Relaxed));
}

/// A thread names itself. The main thread's name no longer shows which program the process is.
pub fn renamed() {
    if thread::number() != BEGIN.main.load(Ordering::Relaxed) {
        return;
    }
    for name in [Some(&BEGIN.name), region::control().map(|c| &c.name)].into_iter().flatten() {
        name[0].store(0, Ordering::Relaxed);
    }
}

/// Calls a function that may replace this process by another program. (Its own region only: a forked child before its
/// exec still has its parent's.)
pub fn in_exec<R>(exec: impl FnOnce() -> R) -> R {
    let c = region::control().filter(|c| c.pid.load(Ordering::Relaxed) == sys::getpid());
    let set = |n| c.into_iter().for_each(|c| c.in_exec.store(n, Ordering::Release));
    set(1);
    let r = exec();
    set(0);
    r
}

/// In a forked child, which has waited for none yet.
pub fn renew() {
    BEGIN.main.store(sys::getpid(), Ordering::Relaxed);
    BEGIN.child_faults.store(0, Ordering::Relaxed);
}

/// A forked child has its parent's identity.
pub fn same(to: &Identity, parent: &Identity) {
    let copy = |to: &[AtomicU8], len: &AtomicU32, from: &[AtomicU8], n: &AtomicU32| {
        let n = n.load(Ordering::Relaxed);
        to.iter().zip(from).take(n as usize).for_each(|(to, b)| to.store(b.load(Ordering::Relaxed), Ordering::Relaxed));
        len.store(n.min(to.len() as u32), Ordering::Relaxed);
    };
    copy(&to.exe, &to.exe_len, &parent.exe, &parent.exe_len);
    copy(&to.args, &to.args_len, &parent.args, &parent.args_len);
    copy(&to.environ, &to.environ_len, &parent.environ, &parent.environ_len);
}

/// Opens a file and calls `piece` with its descriptor until that returns false.
fn read(path: &CStr, mut piece: impl FnMut(i32) -> bool) {
    let Some(fd) = sys::open(path, libc::O_RDONLY) else { return };
    while piece(fd) {}
    // SAFETY: the agent's own descriptor.
    unsafe { sys::close(fd) };
}

/// Picks the variables of interest out of an environment that arrives byte by byte.
struct Variables {
    line: [u8; LINE],
    /// Bytes of the current entry so far; more than there is room for if the entry is too long.
    len: usize,
    /// Bytes written.
    have: usize,
}

impl Variables {
    fn byte(&mut self, b: u8, to: &[AtomicU8]) {
        if let Some(at) = self.line.get_mut(self.len) {
            *at = b;
        }
        self.len += 1;
        if b != 0 {
            return;
        }
        let entry = self.line.get(..self.len).unwrap_or(&[]);
        self.len = 0;
        let name = entry.split(|b| *b == b'=').next().unwrap_or(&[]);
        if IN_ENVIRON.iter().any(|k| k.as_bytes() == name)
            && let Some(room) = to.get(self.have..self.have + entry.len())
        {
            room.iter().zip(entry).for_each(|(to, b)| to.store(*b, Ordering::Relaxed));
            self.have += entry.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_picked_out_of_any_environment() {
        let to: [AtomicU8; 60] = [const { AtomicU8::new(0) }; 60];
        let mut v = Variables { line: [0; LINE], len: 0, have: 0 };
        let long = "RANK=".to_owned() + &"1".repeat(100);
        let all = [
            "A=1",
            "RANK=3",
            "RANK",
            "XRANK=4",
            &long,
            "",
            "WORLD_SIZE=8",
            "SLURM_NTASKS=123456789012",
            "PMI_RANK=1",
            "PMI_SIZE=7",
        ];
        all.iter().for_each(|e| e.bytes().chain([0]).for_each(|b| v.byte(b, &to)));
        let got: Vec<u8> = to.iter().take(v.have).map(|b| b.load(Ordering::Relaxed)).collect();
        // There was no room for the last one.
        assert_eq!(got, b"RANK=3\0WORLD_SIZE=8\0SLURM_NTASKS=123456789012\0PMI_RANK=1\0".to_vec());
    }

    #[test]
    fn we_say_who_we_are() {
        // SAFETY: atomics and numbers.
        let i: Box<Identity> = unsafe { Box::new(core::mem::zeroed()) };
        say(&i);
        let bytes = |n: &AtomicU32, of: &[AtomicU8]| {
            of.iter().take(n.load(Ordering::Relaxed) as usize).map(|b| b.load(Ordering::Relaxed)).collect::<Vec<u8>>()
        };
        assert_eq!(bytes(&i.exe_len, &i.exe), std::env::current_exe().unwrap().as_os_str().as_encoded_bytes());
        assert_eq!(bytes(&i.args_len, &i.args), std::fs::read("/proc/self/cmdline").unwrap());
        // SAFETY: atomics and numbers.
        let child: Box<Identity> = unsafe { Box::new(core::mem::zeroed()) };
        same(&child, &i);
        assert_eq!(bytes(&child.exe_len, &child.exe), bytes(&i.exe_len, &i.exe));
        assert_eq!(bytes(&child.args_len, &child.args), bytes(&i.args_len, &i.args));
    }
}
