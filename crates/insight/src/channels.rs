//! The channels of a recording and what each of them owes.
//!
//! A slot of the agent's table is used again after its channel was freed; each use is a channel of its own here, told
//! apart by `generation`.
//!
//! How losses are counted, each once: a channel's loss is the number of entries that its final GP_PUT accounts for minus
//! the entries on the tape with all that the tap could have kept. A gap that the agent counted is part of that number
//! whenever the channel's final GP_PUT is known. So the recording's loss is the larger of the two totals: what the
//! channels miss, and what the gaps counted.

use crate::place::Place;
use serde::Serialize;
use tape::event::{ChannelBody, watch};
use tape::file::EndChannel;

/// How a channel's ring was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Watch {
    /// Read where the program's ring lies.
    Direct,
    /// Ordinary memory in its place, entries forwarded.
    Shadow,
    /// No CPU mapping: rings seen, entries not.
    Blind,
    #[default]
    Unknown,
}

impl Watch {
    fn of(raw: u32) -> Watch {
        match raw {
            watch::DIRECT => Watch::Direct,
            watch::SHADOW => Watch::Shadow,
            watch::BLIND => Watch::Blind,
            _ => Watch::Unknown,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Watch::Direct => "direct",
            Watch::Shadow => "shadow",
            Watch::Blind => "blind",
            Watch::Unknown => "unknown",
        }
    }
}

/// Where the number of entries that a channel should have comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accounted {
    /// The channel was freed and its final GP_PUT read.
    Freed,
    /// It was alive at the end: read from shared memory.
    End,
    /// Neither is on the tape: the highest entry counter seen, a lower bound.
    #[default]
    Seen,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Channel {
    /// Number in the table of this recording.
    pub number: usize,
    /// The agent's slot, and which use of it this is, from 0.
    pub slot: u32,
    pub generation: u32,
    pub client: u32,
    pub handle: u32,
    pub class: u32,
    pub class_name: String,
    /// `GRAPHICS`, `COPY2`, ...; empty if unknown.
    pub engine: String,
    /// From the token; GA100 and later carry it in bits 22:16.
    pub runlist: Option<u32>,
    pub chid: Option<u32>,
    pub token: Option<u32>,
    /// Entries of its ring.
    pub ring_entries: u32,
    /// GPU virtual address of the GPFIFO.
    pub gpfifo: u64,
    pub gpfifo_place: Place,
    pub userd_place: Place,
    pub pushbuffer_place: Place,
    pub watch: Watch,
    /// Doorbells rung for it.
    pub rings: u64,
    /// Rings that brought entries.
    pub submissions: u64,
    /// Entries on the tape.
    pub entries: u64,
    /// Bytes of their segments.
    pub command_bytes: u64,
    /// Entries that its final GP_PUT accounts for.
    pub accounted: u64,
    pub accounted_by: Accounted,
    /// `accounted` minus the entries that are on the tape.
    pub lost: u64,
    /// Entries on the tape that the final GP_PUT does not account for: a fault of the recording.
    pub surplus: u64,
    /// Entries written to the ring but not rung when the program died. Not lost: the GPU was never told of them.
    pub unrung: u64,
    /// Rings that never came, by the ring counter.
    pub rings_missing: u64,
    pub freed: bool,
    /// The agent said that it follows this channel (its first event is on the tape).
    pub announced: bool,
    #[serde(skip)]
    pub began: u64,
    /// One more than the highest entry counter seen.
    #[serde(skip)]
    pub(crate) next_entry: u64,
    /// Entries whose words fell into a gap.
    #[serde(skip)]
    pub(crate) cut: u64,
}

impl Channel {
    pub(crate) fn announced(number: usize, generation: u32, tsc: u64, b: &ChannelBody) -> Channel {
        Channel {
            number,
            slot: b.slot,
            generation,
            client: b.client,
            handle: b.handle,
            class: b.class,
            ring_entries: b.entries,
            gpfifo: b.gpfifo,
            watch: Watch::of(b.watch),
            began: tsc,
            announced: true,
            ..Channel::default()
        }
    }

    /// A channel of which only rings are on the tape.
    pub(crate) fn implied(number: usize, slot: u32, generation: u32, tsc: u64) -> Channel {
        Channel { number, slot, generation, began: tsc, ..Channel::default() }
    }

    pub(crate) fn set_token(&mut self, token: u32) {
        self.token = Some(token);
        // kfifoGenerateWorkSubmitTokenHal: before GA100 (class 0xC56F) the token is the channel id alone.
        let has_runlist = self.class == 0 || self.class >= 0xc56f;
        self.runlist = has_runlist.then_some(token >> 16 & 0x7f);
        self.chid = Some(if has_runlist { token & 0xfff } else { token });
    }

    /// Settles the account with what was known at the end.
    pub(crate) fn settle(&mut self, end: Option<&EndChannel>) {
        if self.accounted_by == Accounted::Seen {
            match end {
                Some(e) => {
                    (self.accounted, self.accounted_by) = (e.entries, Accounted::End);
                    if let (Some(fin), true) = (e.final_put, self.ring_entries > 0) {
                        let n = u64::from(self.ring_entries);
                        self.unrung = (u64::from(fin) + n - u64::from(e.put) % n) % n;
                    }
                }
                None => self.accounted = self.next_entry,
            }
        }
        let kept = self.entries - self.cut.min(self.entries);
        self.lost = self.accounted.saturating_sub(kept);
        self.surplus = self.entries.saturating_sub(self.accounted);
    }

    /// A short name: slot, and the generation where the slot was used more than once.
    pub fn label(&self) -> String {
        if self.generation == 0 { self.slot.to_string() } else { format!("{}.{}", self.slot, self.generation) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(entries: u64, next_entry: u64) -> Channel {
        Channel { entries, next_entry, ring_entries: 1024, ..Channel::default() }
    }

    #[test]
    fn the_final_put_decides_what_is_lost() {
        let mut c = channel(2040, 2050);
        c.settle(Some(&EndChannel { entries: 2050, put: 2, ..Default::default() }));
        assert_eq!((c.lost, c.surplus, c.accounted_by), (10, 0, Accounted::End));
        let mut c = channel(2050, 2050);
        (c.accounted, c.accounted_by) = (2050, Accounted::Freed);
        c.settle(Some(&EndChannel { entries: 9999, ..Default::default() }));
        assert_eq!(c.lost, 0);
    }

    #[test]
    fn without_a_final_put_holes_still_count() {
        let mut c = channel(7, 10);
        c.settle(None);
        assert_eq!((c.lost, c.accounted_by), (3, Accounted::Seen));
    }

    #[test]
    fn entries_without_their_words_are_lost_and_more_than_accounted_is_surplus() {
        let mut c = channel(10, 10);
        c.cut = 2;
        c.settle(Some(&EndChannel { entries: 10, ..Default::default() }));
        assert_eq!(c.lost, 2);
        let mut c = channel(10, 10);
        c.settle(Some(&EndChannel { entries: 8, ..Default::default() }));
        assert_eq!((c.lost, c.surplus), (0, 2));
    }

    #[test]
    fn written_but_not_rung_is_no_loss() {
        let mut c = channel(1023, 1023);
        c.settle(Some(&EndChannel { entries: 1023, put: 1023, final_put: Some(1), ..Default::default() }));
        assert_eq!((c.lost, c.unrung), (0, 2));
    }

    #[test]
    fn a_token_names_runlist_and_channel_id_from_ampere_on() {
        let mut c = Channel { class: 0xc86f, ..Channel::default() };
        c.set_token(0x3_0016);
        assert_eq!((c.runlist, c.chid), (Some(3), Some(0x16)));
        let mut c = Channel { class: 0xc46f, ..Channel::default() };
        c.set_token(0x12);
        assert_eq!((c.runlist, c.chid), (None, Some(0x12)));
    }
}
