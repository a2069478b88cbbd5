//! A place in a recording at which a walk can begin, as its chunk has it.

use crate::merge::Position;
use crate::recording::Recording;
use crate::span::Span;
use pushbuf::snapshot::Snapshot;

/// Version of the stored data. Raise it when the saved fields of a walk change.
const LAYOUT: u32 = 3;
/// The doorbell that stored it.
const DOORBELL: &str = env!("CARGO_PKG_VERSION");

/// The chunk of place `number` of a recording with so many chunks of events.
pub fn bytes(
    chunks: usize,
    number: usize,
    (given, span): (u64, &Span),
    position: &[u8],
    calls: &[u8],
    state: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    (LAYOUT, DOORBELL.to_owned(), chunks, number).save(&mut out);
    given.save(&mut out);
    span.save(&mut out);
    out.extend(position);
    (calls.len(), state.len()).save(&mut out);
    out.extend(calls);
    out.extend(state);
    out
}

/// The stored data of one place.
pub struct Stored {
    /// Submissions given before it.
    pub given: u64,
    /// Since the place before.
    pub span: Span,
    pub position: Position,
    /// The driver calls since the place before, each after the number of its image.
    pub calls: Vec<u8>,
    /// What else a walk knows.
    pub state: Vec<u8>,
}

impl Stored {
    pub fn read(r: &Recording, number: usize) -> Option<Stored> {
        let mut bytes = Vec::new();
        r.load_checkpoint(number, &mut bytes)?;
        let mut from = &bytes[..];
        let (layout, doorbell, chunks, of): (u32, String, usize, usize) = Snapshot::load(&mut from)?;
        if (layout, doorbell.as_str(), chunks, of) != (LAYOUT, DOORBELL, r.chunks.len(), number) {
            return None;
        }
        let (given, span) = Snapshot::load(&mut from)?;
        let position = Position::load(&mut from)?;
        let (calls, state): (usize, usize) = Snapshot::load(&mut from)?;
        let (calls, from) = from.split_at_checked(calls)?;
        (from.len() == state).then(|| Stored { given, span, position, calls: calls.to_vec(), state: from.to_vec() })
    }
}
