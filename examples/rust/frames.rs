//! A camera's frames go to the GPU through a ring of four: the camera fills the next while the copy of the one before is under
//! way. On crate `submit`.

use std::time::Duration;
use submit::{Error, Session};

const FRAMES: usize = 4;
const BYTES: u64 = 16 << 10;
const LIMIT: Duration = Duration::from_secs(30);

/// In an open session; how often the camera had to wait.
pub fn frames(session: &Session, wanted: u64) -> Result<u64, Error> {
    let camera = session.allocate(FRAMES as u64 * BYTES, false)?;
    let gpu = session.allocate(FRAMES as u64 * BYTES, true)?;
    let back = session.allocate(BYTES, false)?;
    let seen = session.place(back)?.0;
    let ring = session.ring((gpu, 0), (camera, 0), BYTES, FRAMES)?;
    let mut overruns = 0;
    for n in 0..wanted {
        let frame = loop {
            match session.ring_next(ring) {
                Err(Error::Overrun) => overruns += 1,
                other => break other?,
            }
            std::thread::yield_now();
        };
        // SAFETY: a frame that the ring has given out is the producer's alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(frame.pointer as *mut u8, BYTES as usize) };
        bytes.fill((n % 251) as u8);
        let ticket = session.ring_submit(ring)?;
        if n % 20 == 19 {
            session.wait(ticket, LIMIT)?;
            session.copy((back, 0), (gpu, frame.offset), BYTES, LIMIT)?;
            // SAFETY: the copy is over.
            let seen = unsafe { std::slice::from_raw_parts(seen as *const u8, BYTES as usize) };
            assert!(seen == bytes, "frame {n} is another on the GPU");
        }
    }
    session.ring_release(ring)?;
    Ok(overruns)
}
