//! Removes the program's data from events (`--no-data`), on a separate thread: at the highest rates this takes as long as all other work
//! on them.

use crate::beside::Beside;
use crate::writing::Piece;
use redact::Scrubber;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};

/// A scrubber for each process.
#[derive(Default)]
pub struct Scrubbing(BTreeMap<u32, Scrubber>);

impl Scrubbing {
    pub fn clean(&mut self, piece: &mut Piece) {
        match piece {
            Piece::Events { process, bytes, .. } => self.0.entry(*process).or_default().clean(bytes),
            Piece::Beside(what) => {
                if let Beside::ProcessEnd(end) = &**what {
                    self.0.remove(&end.index);
                }
            }
            Piece::Save(_) | Piece::OnceWritten(_) | Piece::Settle { .. } => {}
        }
    }

    /// Cleans each piece and passes it on, until one of the two sides is gone.
    pub fn run(mut self, from: &Receiver<Piece>, to: &SyncSender<Piece>) {
        while let Ok(mut piece) = from.recv() {
            self.clean(&mut piece);
            if to.send(piece).is_err() {
                break;
            }
        }
    }
}
