//! A program under lock policies: started with the agent in it and a board that says which; nothing is recorded.

use crate::preload::Preload;
use crate::program::Program;
use crate::session::{RecordError, has_ended, reap};
use crate::shared::{memfd, path_of};
use crate::signals::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::ExitStatus;
use tape::policy::Board;

pub struct PolicyOptions<'a> {
    /// Program and its arguments.
    pub command: Vec<OsString>,
    /// The agent library's bytes.
    pub agent: &'a [u8],
    /// The software GPU's bytes, if the program is to find that one.
    pub soft: Option<&'a [u8]>,
}

/// The board, shared with the program.
struct SharedBoard {
    file: File,
    at: *mut Board,
}

impl SharedBoard {
    fn new(write: impl FnOnce(&mut Board)) -> io::Result<SharedBoard> {
        let file = memfd(c"doorbell-policies", &[])?;
        file.set_len(size_of::<Board>() as u64)?;
        // SAFETY: a fresh mapping of our own file.
        let at = unsafe {
            let rw = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), size_of::<Board>(), rw, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let board = SharedBoard { file, at: at.cast() };
        // SAFETY: zeroed, which is a Board, and ours alone so far.
        write(unsafe { &mut *board.at });
        Ok(board)
    }
}

impl Drop for SharedBoard {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.at.cast(), size_of::<Board>()) };
    }
}

/// Runs one program from its start to its end. `write` says on the board what is wanted; `read` sees what came of it.
///
/// # Errors
/// The program cannot be preloaded or started.
pub fn run_with_policies(
    o: &PolicyOptions,
    write: impl FnOnce(&mut Board),
    read: impl FnOnce(&Board),
) -> Result<ExitStatus, RecordError> {
    let name = o.command.first().cloned().unwrap_or_default();
    let program = Program::find(&name)?;
    let board = SharedBoard::new(write).map_err(RecordError::Region)?;
    let preload = Preload::new(o.agent, o.soft).map_err(RecordError::Region)?;
    let mut command = preload.command(&program, &o.command);
    command.env("DOORBELL_POLICY_BOARD", path_of(&board.file)).env_remove("DOORBELL_REGION");
    let signals = Signals::handle();
    signals.prepare(&mut command);
    let child = command.spawn().map_err(|cause| RecordError::Start { path: program.path, cause })?;
    let pid = child.id() as i32;
    signals.program(Some(pid));
    // (A signal that is passed on ends the wait early.)
    while !has_ended(pid, true) {}
    // From here on the number may be another process's.
    signals.program(None);
    let status = reap(pid);
    // SAFETY: mapped; the program has ended, what it has forked may still count, in atomics.
    read(unsafe { &*board.at });
    Ok(status)
}
