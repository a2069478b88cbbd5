//! Pages of a KV cache, scattered over the GPU's memory, go to the host with one doorbell, and come back elsewhere with another.
//! On crate `submit`.

use std::time::Duration;
use submit::{Error, Piece, Session};

const PAGE: u64 = 4096;
const LIMIT: Duration = Duration::from_secs(30);

/// In an open session: every second page goes out, and comes back into the page beside its old one.
pub fn pages(session: &Session, count: u64) -> Result<(), Error> {
    let (cache, swap) = (session.allocate(2 * count * PAGE, true)?, session.allocate(count * PAGE, false)?);
    let image = session.allocate(2 * count * PAGE, false)?;
    let pointer = session.place(image)?.0 as *mut u8;
    // SAFETY: the session's memory, which nothing copies while it is looked at here.
    let page = |n: u64| unsafe { std::slice::from_raw_parts_mut(pointer.add((n * PAGE) as usize), PAGE as usize) };
    for n in 0..2 * count {
        page(n).fill((n * 31 % 253) as u8);
    }
    session.copy((cache, 0), (image, 0), 2 * count * PAGE, LIMIT)?;
    let old = |n: u64| 2 * (count - 1 - n) * PAGE;
    let piece = |(to, to_at), (from, from_at)| Piece { to, to_at, from, from_at, bytes: PAGE };
    let out: Vec<_> = (0..count).map(|n| piece((swap, n * PAGE), (cache, old(n)))).collect();
    let back: Vec<_> = (0..count).map(|n| piece((cache, old(n) + PAGE), (swap, n * PAGE))).collect();
    for pieces in [out, back] {
        session.wait(session.copy_batch(&pieces)?, LIMIT)?;
    }
    session.copy((image, 0), (cache, 0), 2 * count * PAGE, LIMIT)?;
    for n in (0..2 * count).step_by(2) {
        assert!(page(n) == page(n + 1), "pages {n} and {} differ", n + 1);
    }
    Ok(())
}
