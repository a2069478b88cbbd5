//! A channel belongs to the process that made it.

use super::Outcome;
use super::ground::{Ground, Stop, ensure};
use gpu::{CopyMode, Prepared, Pushbuffer};
use std::time::{Duration, Instant};

/// The child's answers, as exit statuses.
const REFUSED: i32 = 10;
const LET_THROUGH: i32 = 11;
/// A child that hangs is ended after this long.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn fork(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let done = rig.semaphore()?;
    let mut pushbuffer = Pushbuffer::new(&rig.space, 64)?;
    pushbuffer.host_release(&done, 1)?;
    let pushbuffer = pushbuffer.validate(&channel)?;
    channel.submit(&pushbuffer)?;
    rig.wait(&channel, &done, 1)?;
    let memory = rig.memory(false, 0x1000)?;
    let whole = memory.region();
    let (to, from) = (whole.part(64, 64)?, whole.part(0, 64)?);
    let mut prepared = Prepared::copy(&mut channel, &to, &from, 64, CopyMode::Plain)?;
    let ticket = prepared.submit(&mut channel)?;
    channel.wait(ticket, ground.patience)?;
    // SAFETY: the child makes a few attempts, frees one channel, and ends without any other destructor.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = channel.submit(&pushbuffer).is_err()
            && prepared.submit(&mut channel).is_err()
            && channel.wait(ticket, Duration::from_millis(1)).is_err();
        drop((prepared, channel));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if refused { REFUSED } else { LET_THROUGH }) };
    }
    ensure(child > 0, || format!("fork: {}", std::io::Error::last_os_error()))?;
    let status = ended(child)?;
    if libc::WIFSIGNALED(status) {
        return Err(Stop::Failed(format!("the child died of signal {}", libc::WTERMSIG(status))));
    }
    ensure(libc::WEXITSTATUS(status) != LET_THROUGH, || {
        "the child's submission to its parent's channel was let through".into()
    })?;
    ensure(libc::WEXITSTATUS(status) == REFUSED, || format!("the child ended with {}", libc::WEXITSTATUS(status)))?;
    // The parent's channel is as it was.
    done.set(0);
    channel.submit(&pushbuffer)?;
    rig.wait(&channel, &done, 1)?;
    let ticket = prepared.submit(&mut channel)?;
    channel.wait(ticket, ground.patience)?;
    Ok("the child got an error, the parent continues".into())
}

/// Waits for the child's status; one that hangs is killed.
fn ended(child: libc::pid_t) -> Result<i32, Stop> {
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: a child of this process, and a valid place for its status.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if start.elapsed() > PATIENCE => {
                // SAFETY: a child of this process that was not yet waited for.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &raw mut status, 0);
                }
                return Err(Stop::Failed(format!("the child hung for {PATIENCE:?}")));
            }
            0 => std::thread::sleep(Duration::from_millis(1)),
            pid if pid == child => return Ok(status),
            _ => return Err(Stop::Failed(format!("waitpid: {}", std::io::Error::last_os_error()))),
        }
    }
}
