//! Parameters for a kernel that runs: 56 bytes travel in the command stream, then a number that says that they are there. On
//! crate `submit`.

use std::time::Duration;
use submit::{Error, Session};

const LIMIT: Duration = Duration::from_secs(30);

/// In an open session. The block is in host memory, so that this program can play the kernel; a real kernel's is pinned.
pub fn parameters(session: &Session, updates: u32) -> Result<(), Error> {
    let block = session.allocate(64, false)?;
    let pointer = session.place(block)?.0 as *const u8;
    let values = session.prepare_bytes((block, 0), 56)?;
    let number = session.prepare_bytes((block, 56), 4)?;
    for n in 1..=updates {
        let mut now = [0; 56];
        for (i, value) in now.chunks_mut(4).enumerate() {
            value.copy_from_slice(&(n as f32 + i as f32 / 16.0).to_le_bytes());
        }
        session.submit_bytes(values, &now)?;
        session.wait(session.submit_bytes(number, &n.to_le_bytes())?, LIMIT)?;
        // SAFETY: the session's memory, and the copies are over.
        let seen = unsafe { std::slice::from_raw_parts(pointer, 60) };
        assert!(seen[..56] == now && seen[56..] == n.to_le_bytes(), "update {n} is not there");
    }
    session.release(values)?;
    session.release(number)
}
