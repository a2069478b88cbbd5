//! Exit statuses and hints for the recorder's errors.

use super::wrapper;
use recorder::{ProgramError, RecordError};
use std::io;
use tape::file::TapeError;

type Cause<'a> = &'a (dyn std::error::Error + 'static);

/// The status of `record` and `run` if a program could not be started.
pub fn status(cause: Cause<'_>) -> Option<u8> {
    let of_start = |cause: &io::Error| match cause.kind() {
        io::ErrorKind::NotFound => wrapper::NOT_FOUND,
        _ => wrapper::CANNOT_EXECUTE,
    };
    Some(match cause.downcast_ref::<RecordError>()? {
        RecordError::Program(ProgramError::NotFound(_)) => wrapper::NOT_FOUND,
        RecordError::Program(_) => wrapper::CANNOT_EXECUTE,
        RecordError::Start { cause, .. } => of_start(cause),
        _ => wrapper::FAILED,
    })
}

pub fn hint(cause: Cause<'_>) -> Option<&'static str> {
    cause.downcast_ref::<RecordError>().map(helps)
}

/// The hint for a program that could not be recorded.
fn helps(e: &RecordError) -> &'static str {
    match e {
        RecordError::Program(p) => program_hint(p),
        RecordError::Tape(TapeError::Io { cause, .. }) | RecordError::Close { cause, .. } => out_hint(cause),
        RecordError::Tape(_) => "-o FILE writes the tape elsewhere",
        RecordError::Region(cause) => region_hint(cause),
        RecordError::FileSizeLimit { .. } => {
            "raise it (`ulimit -f unlimited`), or take smaller rings (`--ring 1MiB`); `--max-size` bounds the recording alone"
        }
        RecordError::NoRoom { .. } => "raise it (`ulimit -d`, `ulimit -v`)",
        RecordError::NoProc => "mount it: `mount -t proc proc /proc`",
        RecordError::OtherProc { .. } => {
            "mount this namespace's: `mount -t proc proc /proc`, or `unshare --pid --fork --mount-proc doorbell record ./app`"
        }
        RecordError::AgentDir { .. } => {
            "--agent-dir takes a directory in memory, for example one under /dev/shm or /run"
        }
        RecordError::Start { cause, .. } => start_hint(cause),
        RecordError::Fault { .. } => "the message above says where; what was recorded until then can be read",
        RecordError::NoControl(_) => "set XDG_RUNTIME_DIR to a directory of this user's alone, with room in it",
        RecordError::IsProgram(_) => "-o FILE writes the tape elsewhere",
    }
}

fn program_hint(e: &ProgramError) -> &'static str {
    match e {
        ProgramError::NotFound(_) => "give its path (`./app`), or a name that is in the PATH",
        ProgramError::Directory(_) => "give the program that lies in it",
        ProgramError::NotExecutable(_) => {
            "`chmod +x` makes it executable; a script can be given to its interpreter (`python3 app.py`)"
        }
        ProgramError::Io { cause, .. } => match cause.kind() {
            io::ErrorKind::PermissionDenied => "this user must be able to read the program",
            _ => "look at the file and at the disk it lies on",
        },
        ProgramError::Musl(_) => "build it for glibc, as NVIDIA's libraries are",
        ProgramError::ThirtyTwoBit(_) | ProgramError::Foreign(_) => "build it for x86-64",
        ProgramError::NotAProgram(_) => "give a program, or an interpreter and the file (`sh FILE`)",
        ProgramError::SetUid(_) => "record a copy of it: `cp` leaves these bits and capabilities out",
    }
}

/// The hint for a tape that cannot be written.
fn out_hint(e: &io::Error) -> &'static str {
    use io::ErrorKind::*;
    match e.kind() {
        NotFound => "the folder must exist; -o FILE writes the tape elsewhere",
        PermissionDenied | ReadOnlyFilesystem => "this user may not write there; -o FILE writes the tape elsewhere",
        IsADirectory => "give a file, not a folder: -o FILE",
        StorageFull | QuotaExceeded => "free some space, or write the tape elsewhere with -o FILE",
        _ => "-o FILE writes the tape elsewhere",
    }
}

/// The hint for a failing memfd_create, ftruncate, fallocate or mmap.
fn region_hint(e: &io::Error) -> &'static str {
    use io::ErrorKind::*;
    match e.kind() {
        OutOfMemory | StorageFull => "`--ring 1MiB` needs the least; `ulimit -v` or a container may limit the memory",
        FileTooLarge => "raise the file size limit (`ulimit -f unlimited`)",
        PermissionDenied | Unsupported => "the kernel or a sandbox forbids memfd_create: record outside of the sandbox",
        _ if e.raw_os_error() == Some(libc::EMFILE) => "raise the limit of open files (`ulimit -n`)",
        _ => "`--ring 1MiB` needs the least memory",
    }
}

/// The hint for a failing fork or exec of a program that looked right.
fn start_hint(e: &io::Error) -> &'static str {
    use io::ErrorKind::*;
    match e.kind() {
        NotFound => "its dynamic loader or its interpreter is missing: `file` and `ldd` name it",
        PermissionDenied => "its file system may be mounted noexec",
        ArgumentListTooLong => "its arguments and environment are longer than the kernel takes",
        WouldBlock | OutOfMemory => "the limit of processes (`ulimit -u`) or of memory is reached",
        _ => "see whether it starts without doorbell",
    }
}
