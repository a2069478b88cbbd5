//! Many pieces with one doorbell: scattered copies of one copy engine, prepared and validated once, with one release
//! after the last.
//!
//! The first piece waits for the channel's earlier work. All others may overlap one another (PIPELINED): their order of
//! arrival is unknown, so no two may write the same bytes. The release follows them all. A submission is that of any
//! prepared transfer: it writes one number and rings, however many pieces there are.

use crate::channel::Channel;
use crate::error::Error;
use crate::prepared::Prepared;
use crate::region::Region;
use crate::tracker::Ticket;
use crate::transfer::{Between, CopyRelease, Layout, PAYLOAD};
use pushbuf::encode::subchannel::COPY;
use pushbuf::encode::{Words, launch_dma, layout, offset};

/// One copy of a batch, by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub to: u64,
    pub from: u64,
    pub bytes: u32,
}

/// Scattered pieces on one channel, ready to be submitted together.
#[derive(Debug)]
pub struct Batch {
    prepared: Prepared,
    pieces: usize,
}

impl Batch {
    /// The maximum number of pieces for one doorbell.
    pub const MOST: usize = 4096;

    /// Pieces between any of the regions. At either end a piece must be within one region.
    ///
    /// # Errors
    /// [`Error::OutsideRegion`] for a piece outside, [`Error::Length`] for none or more than [`Batch::MOST`], or the
    /// validator's error. No batch is made then.
    pub fn new(ch: &mut Channel, regions: &[Region], pieces: &[Piece], release: CopyRelease) -> Result<Batch, Error> {
        if pieces.is_empty() || pieces.len() > Batch::MOST {
            return Err(Error::Length(pieces.len() as u64));
        }
        let (Some((first, more)), (_, tracker)) = (regions.split_first(), ch.ends()) else {
            return Err(Error::Length(0));
        };
        for piece in pieces {
            let length = u64::from(piece.bytes);
            if length == 0 {
                return Err(Error::Length(0));
            }
            for va in [piece.to, piece.from] {
                if !regions.iter().any(|region| region.holds(va, length)) {
                    return Err(Error::OutsideRegion { va, length });
                }
            }
        }
        let between =
            Between { to: first.clone(), from: Some(first.clone()), more: more.to_vec(), begun: None, told: None };
        let bytes = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        let template = words(tracker, pieces, release)?;
        let prepared = Prepared::fixed(ch, template, bytes, between, release.is_timed())?;
        Ok(Batch { prepared, pieces: pieces.len() })
    }

    /// Submits all pieces again, with one doorbell.
    ///
    /// # Errors
    /// As [`Prepared::submit`].
    #[inline]
    pub fn submit(&mut self, ch: &mut Channel) -> Result<Ticket, Error> {
        self.prepared.submit(ch)
    }

    /// Bytes that one submission moves.
    pub fn bytes(&self) -> u64 {
        self.prepared.bytes()
    }

    pub fn pieces(&self) -> usize {
        self.pieces
    }

    /// True if [`Channel::timestamp`] is the time at which a submission of this was done.
    pub fn is_timed(&self) -> bool {
        self.prepared.is_timed()
    }
}

fn words(tracker: u64, pieces: &[Piece], release: CopyRelease) -> Result<(Vec<u32>, Layout), Error> {
    let mut words = vec![0; layout::COPY * pieces.len() + layout::SEMAPHORE];
    let mut w = Words::new(&mut words);
    let mut length = None;
    for (n, Piece { to, from, bytes }) in pieces.iter().enumerate() {
        let [from_hi, to_hi] = [from, to].map(|va| (va >> 32) as u32);
        w.inc(COPY, offset::COPY_OFFSET_IN_UPPER, &[from_hi, *from as u32, to_hi, *to as u32])?;
        // Registers keep their values: a length is written only when it changes.
        if length.replace(*bytes) != Some(*bytes) {
            w.inc(COPY, offset::COPY_LINE_LENGTH_IN, &[*bytes])?;
        }
        let overlap = if n == 0 { launch_dma::NON_PIPELINED } else { launch_dma::PIPELINED };
        w.inc(COPY, offset::COPY_LAUNCH_DMA, &[overlap | launch_dma::PITCH])?;
    }
    let payload = w.len() + layout::PAYLOAD;
    w.copy_semaphore(COPY, tracker, PAYLOAD)?;
    w.inc(COPY, offset::COPY_LAUNCH_DMA, &[release.launch()])?;
    Ok((w.as_slice().to_vec(), Layout { payload, ..Layout::default() }))
}
