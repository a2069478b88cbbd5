//! Runs a program under lock policies: it is started with the agent and a board of the policies. No events are
//! recorded.

use crate::memory::Mapping;
use crate::orphans::{has_ended, reap};
use crate::place::{Place, SharedFile};
use crate::preload::Preload;
use crate::program::Program;
use crate::record::RecordError;
use crate::signals::Signals;
use crate::{closing, processes, rights};
use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use tape::policy::Board;
use tape::session::{environment, unwatched};

pub struct PolicyOptions<'a> {
    /// Program and its arguments.
    pub command: Vec<OsString>,
    /// The agent library's bytes.
    pub agent: &'a [u8],
    /// The software GPU's bytes, if the program is to use it.
    pub soft: Option<&'a [u8]>,
    /// The path of a further library that the program is to load.
    pub beside: Option<String>,
}

/// The board, shared with the program.
struct SharedBoard {
    shared: SharedFile,
    mapping: Mapping,
}

impl SharedBoard {
    fn new(write: impl FnOnce(&mut Board)) -> io::Result<SharedBoard> {
        let shared = Place::memory().file(c"doorbell-policies", &[], size_of::<Board>(), 0)?;
        if crate::memory::is_strict() {
            crate::memory::make_resident(&shared.file, 0, size_of::<Board>())?;
        }
        let mapping = Mapping::new(&shared.file, 0, size_of::<Board>())?;
        // SAFETY: zeroed, which is a Board, and not yet shared.
        write(unsafe { &mut *mapping.at().cast() });
        Ok(SharedBoard { shared, mapping })
    }

    fn board(&self) -> &Board {
        // SAFETY: mapped as long as `self` lives. Other processes write only its atomics.
        unsafe { &*self.mapping.at().cast() }
    }
}

/// Runs one program from its start to its end. `write` puts the requested policies on the board. `read` gets the
/// results.
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
    processes::can_be_followed()?;
    // A file over the size limit must be a reported error, not the recorder's death.
    let _no_death = (crate::signals::survive_file_size_limit(), crate::signals::survive_lost_memory());
    let board = SharedBoard::new(write).map_err(RecordError::memory)?;
    let preload =
        Preload::new(&Place::memory(), o.agent, o.soft).map_err(RecordError::memory)?.beside(o.beside.clone());
    rights::let_the_program_see_us();
    let starts = &board.board().starts;
    closing::open(starts);
    let mut command = preload.command(&program, &o.command, (environment::BOARD, &board.shared.path));
    let signals = Signals::handle(false, None);
    signals.prepare(&mut command);
    if program.is_static {
        starts.leave_out(unwatched::STATIC);
    } else {
        starts.expect();
    }
    let child = command.spawn().map_err(|cause| RecordError::Start { path: program.path, cause })?;
    let pid = child.id() as i32;
    signals.program(Some(pid));
    // (A signal that is passed on ends the wait early.)
    while !has_ended(pid, true) {}
    // From here on the number may belong to another process.
    signals.program(None);
    let status = reap(pid);
    signals.ended(status);
    closing::close(starts);
    // (Processes that it forked may still count.)
    read(board.board());
    Ok(status)
}
