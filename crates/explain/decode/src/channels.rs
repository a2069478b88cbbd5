//! The channels of a recording, and the entries that each of them lacks.
//!
//! The agent reuses a slot of its table after that slot's channel was freed. Each use is a separate channel here,
//! identified by `generation`.
//!
//! How losses are counted, each once: a channel's loss is the number of entries that its final GP_PUT accounts for,
//! minus the entries on the tape with all words that the tap could have kept. A gap that the agent counted is part of
//! that number whenever the channel's final GP_PUT is known. So the recording's loss is the larger of two totals: the
//! entries that the channels lack, and the losses that the gaps counted.

use schema::channel::{Accounted, Channel, Watch};
use tape::event::{ChannelBody, watch};
use tape::file::EndChannel;

fn watch_of(raw: u32) -> Watch {
    match raw {
        watch::DIRECT => Watch::Direct,
        watch::SHADOW => Watch::Shadow,
        watch::BLIND => Watch::Blind,
        _ => Watch::Unknown,
    }
}

pub(crate) fn announced(generation: u32, b: &ChannelBody) -> Channel {
    Channel {
        slot: b.slot,
        generation,
        client: b.client,
        handle: b.handle,
        class: b.class,
        ring_entries: b.entries,
        gpfifo: b.gpfifo,
        watch: watch_of(b.watch),
        announced: true,
        ..Channel::default()
    }
}

/// A channel of which only doorbells are on the tape.
pub(crate) fn implied(slot: u32, generation: u32) -> Channel {
    Channel { slot, generation, ..Channel::default() }
}

pub(crate) fn set_token(c: &mut Channel, token: u32) {
    c.token = Some(token);
    // kfifoGenerateWorkSubmitTokenHal: before GA100 (class 0xC56F) the token is the channel id alone.
    let has_runlist = c.class == 0 || c.class >= 0xc56f;
    c.runlist = has_runlist.then_some(token >> 16 & 0x7f);
    c.chid = Some(if has_runlist { token & 0xfff } else { token });
}

/// A channel's counters that are not in its row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// One more than the highest entry counter seen.
    pub next_entry: u64,
    /// Entries whose words were lost in a gap; they count in the channel's `entries`.
    pub cut: u64,
    /// Doorbells rung for it, according to its end.
    pub rings: Option<u64>,
    /// Entries and doorbells of the account that were left out on purpose.
    pub left_out: (u64, u64),
}

pushbuf::snapshot!(Seen { next_entry, cut, rings, left_out });

impl Seen {
    /// Settles the account with the state at the end.
    pub fn settle(&self, c: &mut Channel, end: Option<&EndChannel>) {
        if c.accounted_by == Accounted::Seen {
            match end {
                Some(e) => {
                    (c.accounted, c.accounted_by) = (e.entries, Accounted::End);
                    if let (Some(fin), true) = (e.final_put, c.ring_entries > 0) {
                        let n = u64::from(c.ring_entries);
                        c.unrung = (u64::from(fin) + n - u64::from(e.put) % n) % n;
                    }
                }
                None => c.accounted = self.next_entry,
            }
        }
        c.accounted = c.accounted.saturating_sub(self.left_out.0);
        let kept = c.entries - self.cut;
        // Entries beyond the account are a fault of the account, and are reported as that: they do not offset lost
        // entries.
        c.lost = if kept <= c.accounted { c.accounted - kept } else { self.cut.min(c.accounted) };
        c.surplus = c.entries.saturating_sub(c.accounted);
        let rings = self.rings.or(end.map(|e| e.rings)).map(|rings| rings.saturating_sub(self.left_out.1));
        c.rings_missing = c.rings_missing.max(rings.map_or(0, |r| r.saturating_sub(c.rings)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(entries: u64, next_entry: u64) -> (Channel, Seen) {
        let c = Channel { entries, ring_entries: 1024, ..Channel::default() };
        (c, Seen { next_entry, ..Seen::default() })
    }

    #[test]
    fn the_final_put_decides_what_is_lost() {
        let (mut c, seen) = channel(2040, 2050);
        seen.settle(&mut c, Some(&EndChannel { entries: 2050, put: 2, ..Default::default() }));
        assert_eq!((c.lost, c.surplus, c.accounted_by), (10, 0, Accounted::End));
        let (mut c, seen) = channel(2050, 2050);
        (c.accounted, c.accounted_by) = (2050, Accounted::Freed);
        seen.settle(&mut c, Some(&EndChannel { entries: 9999, ..Default::default() }));
        assert_eq!(c.lost, 0);
    }

    #[test]
    fn what_was_left_out_is_not_lost() {
        let end = EndChannel { entries: 2050, put: 2, rings: 700, ..Default::default() };
        for (end, by) in [(Some(&end), Accounted::End), (None, Accounted::Seen)] {
            let (mut c, mut seen) = channel(50, 2050);
            (seen.left_out, c.rings) = ((2000, 680), 20);
            seen.settle(&mut c, end);
            assert_eq!((c.lost, c.surplus, c.accounted, c.rings_missing, c.accounted_by), (0, 0, 50, 0, by));
        }
    }

    #[test]
    fn without_a_final_put_holes_still_count() {
        let (mut c, seen) = channel(7, 10);
        seen.settle(&mut c, None);
        assert_eq!((c.lost, c.accounted_by), (3, Accounted::Seen));
    }

    #[test]
    fn entries_without_their_words_are_lost_and_more_than_accounted_is_surplus() {
        let (mut c, mut seen) = channel(10, 10);
        seen.cut = 2;
        seen.settle(&mut c, Some(&EndChannel { entries: 10, ..Default::default() }));
        assert_eq!(c.lost, 2);
        let (mut c, seen) = channel(10, 10);
        seen.settle(&mut c, Some(&EndChannel { entries: 8, ..Default::default() }));
        assert_eq!((c.lost, c.surplus), (0, 2));
    }

    #[test]
    fn written_but_not_rung_is_no_loss() {
        let (mut c, seen) = channel(1023, 1023);
        seen.settle(&mut c, Some(&EndChannel { entries: 1023, put: 1023, final_put: Some(1), ..Default::default() }));
        assert_eq!((c.lost, c.unrung), (0, 2));
    }

    #[test]
    fn a_token_names_runlist_and_channel_id_from_ampere_on() {
        let mut c = Channel { class: 0xc86f, ..Channel::default() };
        set_token(&mut c, 0x3_0016);
        assert_eq!((c.runlist, c.chid), (Some(3), Some(0x16)));
        let mut c = Channel { class: 0xc46f, ..Channel::default() };
        set_token(&mut c, 0x12);
        assert_eq!((c.runlist, c.chid), (None, Some(0x12)));
    }
}
