//! Channels are created and destroyed.

use super::Outcome;
use super::ground::{Ground, ensure};
use gpu::Engine;

pub(super) fn leaks(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    // A real channel takes the kernel driver milliseconds.
    let cycles = if rig.is_soft() { 10_000 } else { 200 };
    let done = rig.semaphore()?;
    let copy = rig.copy_engine()?;
    let life = |n: u32| {
        let engine = if n.is_multiple_of(2) { copy } else { Engine::Graphics };
        let mut channel = rig.channel(engine)?;
        rig.submit(&mut channel, 16, |pushbuffer| pushbuffer.host_release(&done, n).map(drop))?;
        rig.wait(&channel, &done, n)
    };
    life(1)?;
    life(2)?;
    let before = rig.ledger.balance();
    for n in 3..cycles + 3 {
        life(n)?;
    }
    let after = rig.ledger.balance();
    ensure(before == after, || format!("after {cycles} channels there are {after}; before {before}"))?;
    Ok(format!("{cycles} channels, each with work"))
}
