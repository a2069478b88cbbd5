//! Messages of up to 56 bytes to a running kernel, and its answers. A message is not a copy.
//!
//! A message is one line of 64 bytes: the bytes, a number, and a sum over both ([`gpu::message`]). The CPU stores it into a mailbox in GPU memory as
//! one write on the bus. A kernel that polls the mailbox takes the message when its number has changed and its sum is right. It answers with a line of the
//! same form in host memory. Only the newest message counts: one that the kernel has not taken is overwritten.

use crate::error::Error;
use crate::handle::{BUFFER, Buffer, MESSAGE, Message};
use crate::lane::{Inner, Place};
use crate::mailbox::Mailbox;
use crate::session::Session;
use crate::sleepers::Sleepers;
use crate::transfers::{locate, name};
use crate::wait::{Pace, Paused};
use gpu::message;
use gpu::stores::{LINE, Line};
use std::time::Duration;

/// Maximum number of mailboxes of one lane.
const MOST: usize = 256;

impl Session {
    /// Maximum number of bytes of a message, and of an answer.
    pub const MESSAGE: usize = message::LONGEST;

    /// Makes a mailbox of 64 bytes in GPU memory, and a line of 64 bytes of host memory for its answers, both at multiples of 64. Writes message and answer
    /// number 0, without bytes, to both. Launch the kernel after this call.
    ///
    /// # Errors
    /// [`Error::Argument`] for other memory or another place, [`Error::Outside`], [`Error::Handle`], [`Error::Freed`], [`Error::Limit`], [`Error::Full`],
    /// [`Error::Gpu`] if the mailbox cannot be mapped, [`Error::Closed`], [`Error::Forked`].
    pub fn message(&self, (to, at): (Buffer, u64), (answers, answers_at): (Buffer, u64)) -> Result<Message, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let buffers = [BUFFER.decode(now.opening(), to.0)?, BUFFER.decode(now.opening(), answers.0)?];
        let (lane, mut claim) = self.own_lane(&setup, 0, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        // SAFETY: the claim outlives these entries.
        let [entry, answers] = unsafe { [self.buffers.find(buffers[0])?, self.buffers.find(buffers[1])?] };
        if entry.place != rm::graph::Place::Video || answers.place != rm::graph::Place::Host {
            return Err(Error::Argument("a mailbox is in GPU memory, and its answers come to host memory"));
        }
        let (to, line) = (entry.region.part(at, LINE as u64)?, answers.region.part(answers_at, LINE as u64)?);
        let pointer = answers.pointer.wrapping_add(answers_at);
        if !to.va().is_multiple_of(LINE as u64) || !pointer.is_multiple_of(LINE as u64) {
            return Err(Error::Argument("mailbox and answers begin at multiples of 64"));
        }
        let map = entry.map_part(at, LINE as u64)?;
        let Inner { messages, copies: Some(copies), channel, .. } = inner else { return Err(Error::Closed) };
        // A free of the memory waits for this.
        let held = copies.begin(channel)?;
        held.hold((&to, 0), LINE as u64)?;
        held.hold((&line, 0), LINE as u64)?;
        map.store_line(0, &Line([0; LINE]))?;
        map.wait_for_stores(0)?;
        // SAFETY: a line of host memory that the CPU sees there and that cannot be freed while it is held.
        unsafe { std::ptr::write_bytes(pointer as *mut u8, 0, LINE) };
        drop(held);
        let mailbox = Mailbox { map, to, answers: line, pointer, buffers, number: 0 };
        let (index, used) = Place::put(messages, MOST, mailbox)?;
        Ok(Message(MESSAGE.encode(now.opening(), name(lane, index), used)))
    }

    /// Sends up to 56 bytes. Returns the message's number. The message is on the bus when this returns, before all later submissions of this thread. No
    /// lock, no allocation, no system call.
    ///
    /// # Errors
    /// [`Error::Argument`] for more bytes, [`Error::Busy`] while another thread submits on the lane, [`Error::Handle`], [`Error::Freed`], [`Error::Closed`],
    /// [`Error::Forked`]. The message was not sent.
    #[inline]
    pub fn send(&self, message: Message, bytes: &[u8]) -> Result<u32, Error> {
        if bytes.len() > message::LONGEST {
            return Err(Error::Argument("a message has 56 bytes at most"));
        }
        self.with_mailbox(message, |mailbox| {
            // Kernels may use 2^32 - 1 as a number that is never sent; 0 is the initial number.
            let number = if mailbox.number >= u32::MAX - 1 { 1 } else { mailbox.number + 1 };
            // ORDERING: bytes, number and sum are one write.
            mailbox.map.store_line(0, &Line(message::line(bytes, number)))?;
            mailbox.number = number;
            Ok(number)
        })
    }

    /// The newest answer, with the number of the message that it answers; `None` before the first, and while one is being written.
    ///
    /// # Errors
    /// As [`Session::send`].
    #[inline]
    pub fn answer(&self, message: Message) -> Result<Option<(u32, [u8; message::LONGEST])>, Error> {
        self.with_mailbox(message, |mailbox| {
            let mut line = [0; LINE];
            for (n, word) in line.chunks_exact_mut(4).enumerate() {
                // SAFETY: a word of host memory that the CPU sees there and that cannot be freed while it is held. The GPU may be writing it, so each is one
                // load.
                let found = unsafe { (mailbox.pointer as *const u32).add(n).read_volatile() };
                word.copy_from_slice(&found.to_le_bytes());
            }
            Ok(message::of_line(&line).filter(|(number, _)| *number != 0))
        })
    }

    /// Waits for the answer to this message or to a later one, in the way that [`Session::set_wait`] has set.
    ///
    /// # Errors
    /// As [`Session::answer`] without [`Error::Busy`], and [`Error::Timeout`].
    pub fn answered(&self, message: Message, number: u32, limit: Duration) -> Result<[u8; message::LONGEST], Error> {
        // Lanes have no estimate of how long a kernel takes to answer.
        let sleepers = Sleepers::new();
        let mut pace = Pace::new(self.how(), limit, &sleepers, 0);
        loop {
            match self.answer(message) {
                Ok(Some((found, bytes))) if found.wrapping_sub(number) as i32 >= 0 => return Ok(bytes),
                Ok(_) | Err(Error::Busy | Error::Full(_)) => {}
                Err(error) => return Err(error),
            }
            if pace.pause() == Paused::Over {
                return Err(Error::Timeout(limit));
            }
        }
    }

    /// Ends the mailbox. The kernel gets no message: first send the one that ends it.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn message_release(&self, message: Message) -> Result<(), Error> {
        Session::same_process()?;
        let now = self.now()?;
        let (place, used) = MESSAGE.decode(now.opening(), message.0)?;
        let (lane, index) = locate(place);
        let lane = self.lanes.get(lane).ok_or_else(|| MESSAGE.wrong())?;
        let mut claim = self.still(lane.claim_in_time(), now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        Place::take(&mut inner.messages, index, used).map(drop).ok_or_else(|| MESSAGE.wrong())
    }

    #[inline]
    fn with_mailbox<T>(
        &self,
        message: Message,
        look: impl FnOnce(&mut Mailbox) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let now = self.now()?;
        let (place, used) = MESSAGE.decode(now.opening(), message.0)?;
        let (lane, index) = locate(place);
        if lane >= self.lanes.len() {
            return Err(MESSAGE.wrong());
        }
        let mut claim = self.claim(lane, now)?;
        let Inner { messages, copies: Some(copies), channel, .. } = claim.as_mut().ok_or(Error::Closed)? else {
            return Err(MESSAGE.wrong());
        };
        let mailbox = Place::find(messages, index, used).ok_or_else(|| MESSAGE.wrong())?;
        for buffer in mailbox.buffers {
            // SAFETY: the claim outlives this entry.
            unsafe { self.buffers.find(buffer) }.map_err(|_| Error::Freed)?;
        }
        if now.asks() {
            mailbox.to.ask_where_wanted()?;
            mailbox.answers.ask_where_wanted()?;
        }
        let held = copies.begin(channel)?;
        held.hold((&mailbox.to, 0), LINE as u64)?;
        held.hold((&mailbox.answers, 0), LINE as u64)?;
        let found = look(mailbox);
        drop(held);
        found
    }
}
