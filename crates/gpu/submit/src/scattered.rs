//! Lists of pieces, from a list of them or by the numbers of their pages.
//!
//! A long list is submitted in parts: the GPU copies the first ones while the others are written. All parts are on one lane, so the last one's ticket is that of all.

use crate::buffers::Entry;
use crate::copying::Piece;
use crate::distinct;
use crate::error::Error;
use crate::handle::{Buffer, Copy};
use crate::in_order::InOrder;
use crate::session::{Now, Session};
use gpu::pages::{CHUNK, LONGEST, Spot};
use gpu::{Channel, Copies, Patience, Ticket, Written};
use std::ops::Range;

/// Pieces of the first part of a submission, and of each later one.
const FIRST: usize = 128;
const NEXT: usize = 240;
/// Pieces after which a part releases the ticket, so that there is room for more.
const RELEASED: usize = 2048;
/// Pieces for which a lane that is idle has room, whatever their lengths and buffers.
pub(crate) const AT_ONCE: usize = 4096;

/// Two buffers between which pages are copied, and where in each the page number 0 begins.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Part {
    pub to: Buffer,
    pub to_at: u64,
    pub from: Buffer,
    pub from_at: u64,
}

/// The numbers of pages.
#[derive(Clone, Copy, Debug)]
pub enum Index<'a> {
    /// 0, 1, 2 and so on.
    Whole,
    U32(&'a [u32]),
    U64(&'a [u64]),
}

impl Index<'_> {
    #[inline]
    pub(crate) fn at(&self, n: usize) -> u64 {
        match self {
            Index::Whole => n as u64,
            Index::U32(index) => index.get(n).map_or(u64::MAX, |n| (*n).into()),
            Index::U64(index) => index.get(n).copied().unwrap_or(u64::MAX),
        }
    }
}

/// The same pages of each part: number `from_index[n]` of the one buffer becomes number `to_index[n]` of the other.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    pub bytes: u64,
    /// Bytes from a page's begin to that of the next number.
    pub to_stride: u64,
    pub from_stride: u64,
    pub to_index: Index<'a>,
    pub from_index: Index<'a>,
    pub count: usize,
    /// A destination that is named twice, and parts whose pages overlap in one buffer, are errors. The check allocates.
    pub distinct: bool,
}

/// What is to be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List<'a> {
    Pieces(&'a [Piece]),
    Pages(&'a [Part], &'a Pages<'a>),
}

impl List<'_> {
    pub fn count(&self) -> Result<usize, Error> {
        match self {
            List::Pieces(pieces) => Ok(pieces.len()),
            List::Pages(parts, pages) => parts.len().checked_mul(pages.count).ok_or(Error::Limit(usize::MAX)),
        }
    }

    /// The buffers of the first piece.
    #[inline]
    pub fn first(&self) -> Option<(Buffer, Buffer)> {
        self.run(0..1).map(|(buffers, _)| buffers)
    }

    /// The buffers of the first of these pieces, and those that have the same ones.
    #[inline]
    fn run(&self, within: Range<usize>) -> Option<((Buffer, Buffer), Range<usize>)> {
        if within.is_empty() {
            return None;
        }
        match self {
            List::Pieces(pieces) => {
                let pieces = pieces.get(within.start..within.end.min(pieces.len()))?;
                let first = pieces.first()?;
                let is_same = |piece: &&Piece| (piece.to, piece.from) == (first.to, first.from);
                let count = pieces.iter().take_while(is_same).count();
                Some(((first.to, first.from), within.start..within.start + count))
            }
            List::Pages(parts, pages) => {
                let at = within.start.checked_div(pages.count)?;
                let part = parts.get(at)?;
                Some(((part.to, part.from), within.start..within.end.min((at + 1) * pages.count)))
            }
        }
    }

    /// Pieces of one run.
    #[inline]
    fn put(&self, first: usize, to: &mut [Spot]) {
        match self {
            List::Pieces(pieces) => {
                for (to, piece) in to.iter_mut().zip(pieces.get(first..).unwrap_or(&[])) {
                    *to = Spot { to: piece.to_at, from: piece.from_at, bytes: piece.bytes };
                }
            }
            List::Pages(parts, pages) => {
                let Some(part) = parts.get(first / pages.count) else { return };
                let first = first % pages.count;
                // (More than any buffer has, which is an error later.)
                let place = |base: u64, stride: u64, index: u64| {
                    index.checked_mul(stride).and_then(|at| at.checked_add(base)).unwrap_or(u64::MAX)
                };
                for (n, to) in (first..).zip(to) {
                    *to = Spot {
                        to: place(part.to_at, pages.to_stride, pages.to_index.at(n)),
                        from: place(part.from_at, pages.from_stride, pages.from_index.at(n)),
                        bytes: pages.bytes,
                    };
                }
            }
        }
    }
}

/// Looks at each piece, at its memory and at the signal, so that what is wrong is an error before the first part is submitted.
fn check<'e>(
    list: &List<'_>,
    count: usize,
    order: &InOrder<'_>,
    (copies, channel): (&mut Copies, &mut Channel),
    find: impl Fn(Buffer) -> Result<&'e Entry, Error>,
) -> Result<(), Error> {
    // It is dropped before it is submitted, so it does not count.
    let mut trial = copies.begin(channel)?;
    if let Some((word, at, value)) = order.signal {
        trial.release((&find(word)?.region, at), value)?;
    }
    let mut spots = [Spot::default(); CHUNK];
    let mut next = 0;
    while let Some(((to, from), run)) = list.run(next..count) {
        let (to, from) = (&find(to)?.region, &find(from)?.region);
        trial.hold((to, 0), 1)?;
        trial.hold((from, 0), 1)?;
        for first in run.clone().step_by(CHUNK) {
            let spots = &mut spots[..(run.end - first).min(CHUNK)];
            list.put(first, spots);
            for &Spot { to: to_at, from: from_at, bytes } in &*spots {
                for (at, length) in [(to_at, to.length()), (from_at, from.length())] {
                    if at > length || bytes > length - at {
                        return Err(Error::Outside { offset: at, length: bytes, size: length });
                    }
                }
                if bytes == 0 {
                    return Err(Error::Argument("no bytes: pass how many"));
                }
                if bytes > LONGEST {
                    return Err(Error::Argument("a piece of a list of more than 256 has 1 GiB at most"));
                }
            }
        }
        next = run.end;
    }
    Ok(())
}

impl Session {
    /// Copies the same pages of each part, with one ticket. Pages may overtake one another, so no two may have the same destination. The first part's buffers
    /// select the engine.
    ///
    /// # Errors
    /// As [`Session::copy_in`]. [`Error::Outside`] for a page, before any is copied.
    pub fn copy_pages(&self, parts: &[Part], pages: &Pages<'_>, order: &InOrder<'_>) -> Result<Copy, Error> {
        for index in [pages.to_index, pages.from_index] {
            let given = match index {
                Index::Whole => pages.count,
                Index::U32(index) => index.len(),
                Index::U64(index) => index.len(),
            };
            if given < pages.count {
                return Err(Error::Argument("fewer numbers than pages"));
            }
        }
        if pages.bytes > LONGEST {
            return Err(Error::Argument("a page has 1 GiB at most"));
        }
        let list = List::Pages(parts, pages);
        let queued = self.queue(order, |now| self.has_room(now, list.first()))?;
        self.copy_list(&list, order, &queued)
    }

    /// Submits a list on a lane that the caller has, in parts. Waits were put into the channel. After an error none of it is in progress.
    pub(crate) fn submit_list<'e>(
        &self,
        (copies, channel): (&mut Copies, &mut Channel),
        (now, lane): (Now, usize),
        list: &List<'_>,
        order: &InOrder<'_>,
        find: impl Fn(Buffer) -> Result<&'e Entry, Error>,
    ) -> Result<Ticket, Error> {
        let count = list.count()?;
        let is_one = count <= 2 * FIRST;
        if !is_one && order.word.is_some() && count > AT_ONCE {
            // (Who is to write the word may be this thread, after the call.)
            return Err(Error::Limit(AT_ONCE));
        }
        {
            // Looks at no buffer, and may take long.
            let _blind = self.lanes[lane].blind();
            if let List::Pages(parts, pages) = list {
                distinct::check(parts, pages)?;
            }
        }
        if !is_one {
            check(list, count, order, (copies, channel), &find)?;
        }
        let (mut next, mut released, mut last) = (0, 0, None);
        loop {
            let most = if next == 0 { FIRST } else { NEXT };
            let part = next..if is_one || count - next <= 2 * most { count } else { next + most };
            // (Where CUDA is asked between two parts, the one before must end without the next.)
            let releases = part.end == count || part.end - released > RELEASED || now.asks();
            let mut patience = Patience::new();
            let submitted = loop {
                let asked = if now.asks() { ask(list, part.clone(), &find) } else { Ok(()) };
                match asked.and_then(|()| put(copies, channel, list, part.clone(), (count, releases, order), &find)) {
                    // The first ones are on their way, so there will be room.
                    Err(Error::Full(_)) if last.is_some() => {}
                    result => break result,
                }
                if let Err(error) = self.pause(channel, (now, lane), &mut patience) {
                    break Err(error);
                }
            };
            if submitted.is_err() && last.is_some() {
                // Nobody gets a ticket of the parts before.
                self.end(channel, (now, lane));
            }
            let ticket = submitted?;
            if part.end == count {
                return Ok(ticket);
            }
            (next, last) = (part.end, Some(ticket));
            if releases {
                released = next;
            }
        }
    }

    /// Waits for room, so that the session can be closed and buffers freed meanwhile.
    fn pause(&self, channel: &mut Channel, (now, lane): (Now, usize), patience: &mut Patience) -> Result<(), Error> {
        let _blind = self.lanes[lane].blind();
        patience.pause();
        channel.check_doorbell();
        if self.lanes[lane].observe(|observer| Ok(observer.dies_with_others()))? {
            return Err(Error::Stopped);
        }
        if self.now()? == now { Ok(()) } else { Err(Error::Closed) }
    }

    /// Waits until all submissions have ended, or never will. (A close waits for them, too, and stops the lane.)
    fn end(&self, channel: &mut Channel, (now, lane): (Now, usize)) {
        let mut patience = Patience::new();
        let lives = || {
            self.lanes[lane].observe(|observer| {
                Ok(observer.error().is_none() && !observer.is_stopped() && !observer.dies_with_others())
            })
        };
        let is_open = || self.now().is_ok_and(|still| still == now);
        let _blind = self.lanes[lane].blind();
        // What the parts do not release.
        let ticket = loop {
            match channel.release() {
                Err(gpu::Error::RingFull(_)) if matches!(lives(), Ok(true)) && is_open() => patience.pause(),
                Err(_) => return,
                Ok(ticket) => break ticket,
            }
        };
        while !channel.done(ticket) && matches!(lives(), Ok(true)) && is_open() {
            patience.pause();
            channel.check_doorbell();
        }
    }
}

/// CUDA is asked whether the memory is still what was pinned. Before a ticket is taken: a thread that frees memory in a CUDA call waits for
/// tickets, and this call waits for CUDA.
fn ask<'e>(
    list: &List<'_>,
    within: Range<usize>,
    find: impl Fn(Buffer) -> Result<&'e Entry, Error>,
) -> Result<(), Error> {
    let mut next = within.start;
    while let Some(((to, from), run)) = list.run(next..within.end) {
        find(to)?.region.ask_where_wanted()?;
        find(from)?.region.ask_where_wanted()?;
        next = run.end;
    }
    Ok(())
}

/// One part. After an error it was not submitted.
fn put<'e>(
    copies: &mut Copies,
    channel: &mut Channel,
    list: &List<'_>,
    part: Range<usize>,
    (count, releases, order): (usize, bool, &InOrder<'_>),
    find: impl Fn(Buffer) -> Result<&'e Entry, Error>,
) -> Result<Ticket, Error> {
    let mut written = copies.begin(channel)?;
    if part.start > 0 {
        written.beside_earlier();
    } else if let Some((word, at, value)) = order.word {
        written.acquire((&find(word)?.region, at), value)?;
    }
    let mut next = part.start;
    while next < part.end
        && let Some((buffers, run)) = list.run(next..part.end)
    {
        put_run(&mut written, list, run.clone(), (&find(buffers.0)?.region, &find(buffers.1)?.region))?;
        next = run.end;
    }
    if let Some((word, at, value)) = order.signal.filter(|_| part.end == count) {
        written.release((&find(word)?.region, at), value)?;
    }
    Ok(if releases { written.submit()? } else { written.submit_without_release()? })
}

/// Pieces between two buffers.
#[inline]
fn put_run(
    written: &mut Written<'_>,
    list: &List<'_>,
    run: Range<usize>,
    (to, from): (&gpu::Region, &gpu::Region),
) -> Result<(), Error> {
    let is_long = |piece: &Piece| piece.bytes > LONGEST;
    if let List::Pieces(pieces) = list
        && (run.len() == 1 || pieces[run.clone()].iter().any(is_long))
    {
        for piece in &pieces[run] {
            written.copy((to, piece.to_at), (from, piece.from_at), piece.bytes)?;
        }
        return Ok(());
    }
    let mut next = run.start;
    Ok(written.scattered(to, from, |spots| {
        let n = (run.end - next).min(CHUNK);
        list.put(next, &mut spots[..n]);
        next += n;
        Ok(n)
    })?)
}
