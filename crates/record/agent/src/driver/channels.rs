//! The lives of channels: allocated, seen, given a token, freed.

use super::model;
use crate::process::own_lock::OwnLock;
use crate::process::wiped::word;
use crate::process::{region, sys};
use crate::record;
use crate::tap::channel::{self, Channel, Span, USERD};
use crate::tap::{page, ranges, shadow, submit};
use core::sync::atomic::{AtomicU32, Ordering};
use rm::abi::ChannelAlloc;
use tape::event::{ChannelBody, ChannelEndBody, TokenBody, kind, watch};
use tape::region::{PAGE, SLOTS, Slot, tap as how, trouble};

/// Held while channels are added, removed or given other memory: threads create contexts at the same time.
static CHANNELS: OwnLock<(), { word::CHANNELS }> = OwnLock::new(());

/// States of a slot ([`Slot::state`]).
const LIVE: u32 = 1;
const ENDED: u32 = 2;
/// Its channel ended while a tap was still using it: the slot is not used again.
const GIVEN_UP: u32 = 3;

fn is_live(slot: &Slot) -> bool {
    slot.state.load(Ordering::Relaxed) == LIVE
}

fn is_of(slot: &Slot, client: u32, handle: u32) -> bool {
    slot.client.load(Ordering::Relaxed) == client && slot.handle.load(Ordering::Relaxed) == handle
}

fn is_blind(i: usize) -> bool {
    channel::lies(i).is_some_and(|lies| lies.watch == watch::BLIND)
}

/// A client was allocated: RM gives a handle to one at a time, so the channels of an earlier one with this handle are
/// gone. (It ended with its file, not by RM_FREE.)
pub fn client_begins(client: u32) {
    end_all(|slot| slot.client.load(Ordering::Relaxed) == client);
}

/// Ends the channels whose end was not seen.
fn end_all(are_gone: impl Fn(&Slot) -> bool) {
    (0..SLOTS).filter(|&i| region::slot(i).is_some_and(|s| is_live(s) && are_gone(s))).for_each(end);
}

/// A channel was allocated.
pub fn begin(client: u32, handle: u32, class: u32, p: &ChannelAlloc) {
    end_all(|slot| is_of(slot, client, handle));
    let device = model::device_of(client, handle);
    let Some(_one) = CHANNELS.lock() else { return };
    // Not earlier: the end of the slot's last channel must be on the tape before this.
    let tsc = sys::tsc();
    let is_free = |s: &Slot| ![LIVE, GIVEN_UP].contains(&s.state.load(Ordering::Relaxed));
    let free = (0..SLOTS).find(|&i| region::slot(i).is_some_and(is_free));
    let Some(i) = free else {
        region::trouble(trouble::TABLE_FULL);
        return;
    };
    let Some(slot) = region::slot(i) else { return };
    let mut c = Channel {
        // Without entries it is never located.
        entries: if super::is_plausible(p) { p.entries } else { 0 },
        gpfifo_va: p.gpfifo,
        userd_memory: p.userd_memory[0],
        userd_offset: p.userd_offset[0],
        client,
        watch: watch::BLIND,
        ..Channel::NONE
    };
    LOOKED.store(0, Ordering::Relaxed);
    channel::begins(i);
    channel::set_device(i, device);
    slot.claim.store(1, Ordering::Relaxed);
    for zero in
        [&slot.entries_total, &slot.rings_total, &slot.trapped_total, &slot.lost, &slot.shadow_userd, &slot.real_userd]
    {
        zero.store(0, Ordering::Relaxed);
    }
    slot.put.store(0, Ordering::Relaxed);
    slot.token.store(0, Ordering::Relaxed);
    slot.client.store(client, Ordering::Relaxed);
    slot.handle.store(handle, Ordering::Relaxed);
    slot.entries.store(p.entries, Ordering::Relaxed);
    slot.generation.fetch_add(1, Ordering::Relaxed);
    if c.entries != 0 {
        locate(&mut c, i);
    }
    // SAFETY: the slot was not in use.
    if let Some(to) = unsafe { channel::get(i) } {
        *to = c;
    }
    slot.state.store(LIVE, Ordering::Release);
    let body =
        ChannelBody { slot: i as u32, client, handle, class, gpfifo: p.gpfifo, entries: p.entries, watch: c.watch };
    record::event(kind::CHANNEL, 0, tsc, &body, &[], &[]);
    submit::settle(i);
}

/// Finds the program's mappings of the channel's GPFIFO and USERD, and puts a shadow under them if they are in GPU
/// memory.
fn locate(c: &mut Channel, slot: usize) {
    let Some(ring) = ranges::find(c.gpfifo_va, u64::from(c.entries) * 8) else { return };
    let userd = model::address_of(c.client, c.userd_memory, c.userd_offset, USERD);
    let Some((userd, video)) = userd else { return };
    c.ring = ring.cpu + (c.gpfifo_va - ring.va);
    c.userd = userd;
    c.watch = watch::DIRECT;
    // Only if doorbells are seen: otherwise entries written to a shadow would not be forwarded.
    let wanted = region::control().is_some_and(|c| {
        c.tap == how::AUTO
            && page::any()
            && c.trouble.load(Ordering::Relaxed) & (trouble::UNDECODED | trouble::NO_SECOND_MAPPING) == 0
    });
    if wanted && (ring.video || video) {
        // If two channels share a page, one channel's GP_PUT there would be forwarded only with the other's doorbells.
        if !is_alone(c, slot) {
            region::trouble(trouble::NO_SHADOW);
        } else if shadow::put_under(c, slot) {
            c.watch = watch::SHADOW;
        } else {
            region::trouble(trouble::NO_SHADOW);
        }
    }
}

/// True if no other channel has its USERD in this one's page. Another one with a shadow there gets its ring back.
fn is_alone(c: &Channel, slot: usize) -> bool {
    let page = Span(c.userd & !(PAGE as u64 - 1), (c.userd | (PAGE as u64 - 1)) + 1);
    let mut alone = true;
    for i in (0..SLOTS).filter(|&i| i != slot) {
        let Some(other) = region::slot(i) else { break };
        let shares = || channel::lies(i).is_some_and(|l| l.watch != watch::BLIND && l.userd.overlaps(page));
        if is_live(other) && shares() {
            alone = false;
            submit::give_ring_back(i, other);
        }
    }
    alone
}

/// A channel has got its token.
pub fn token(client: u32, object: u32, token: u32) {
    let is_it = |&i: &usize| region::slot(i).is_some_and(|s| is_live(s) && is_of(s, client, object));
    let Some(i) = (0..SLOTS).find(is_it) else { return };
    let device = model::device_of(client, object);
    let Some(_one) = CHANNELS.lock() else { return };
    let is_taken = |j: usize| {
        let other = || region::slot(j).is_some_and(|s| is_live(s) && s.token.load(Ordering::Relaxed) == token);
        j != i && channel::has_token(j) && channel::device(j) == device && other()
    };
    if super::is_new() && (0..SLOTS).any(is_taken) {
        super::distrust();
    }
    name(i, token, device);
}

/// From now on slot `i`'s channel is found by this token.
fn name(i: usize, token: u32, device: u32) {
    if !channel::set_token(i, token, device) {
        region::trouble(trouble::TABLE_FULL);
    }
    record::event(kind::TOKEN, 0, sys::tsc(), &TokenBody { slot: i as u32, token }, &[], &[]);
}

/// Doorbells with an unknown token for which channels without a token are looked at. Each look is a load from the GPU.
const LOOKS: u32 = 1000;
static LOOKED: AtomicU32 = AtomicU32::new(0);

/// Whether another doorbell with an unknown token is looked at.
pub fn may_look() -> bool {
    LOOKED.load(Ordering::Relaxed) < LOOKS
}

/// A doorbell with an unknown token is about to be made. (After a restore from a checkpoint, libcuda may ring the new
/// channels by the tokens of before, without a call that reports them.) The GPU must find the entries that it announces,
/// so no channel keeps them in a shadow. If exactly one channel without a token has new entries, the token is that
/// channel's.
#[cold]
#[inline(never)]
pub fn of_unknown_token(token: u32, device: u32) {
    if device == page::INHERITED {
        LOOKED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Some(_one) = CHANNELS.lock() else { return };
    let is_there = |&i: &usize| {
        let theirs = channel::device(i);
        region::slot(i).is_some_and(is_live) && (device == 0 || theirs == 0 || theirs == device)
    };
    let live = || (0..channel::used()).filter(is_there);
    live().filter(|&i| channel::has_token(i)).for_each(|i| with_channel(i, |c, slot| submit::hand_on_written(c, slot)));
    let nameless = |i: &usize| !channel::has_token(*i) && may_look();
    let (mut with_entries, mut n) = (None, 0);
    for i in live().filter(nameless) {
        with_channel(i, |c, slot| {
            submit::give_back(c, slot, i);
            if c.written(slot.put.load(Ordering::Relaxed)).1 != 0 {
                with_entries = Some(i);
                n += 1;
            }
        });
    }
    if n == 1
        && let Some(i) = with_entries
    {
        name(i, token, channel::device(i));
        return;
    }
    LOOKED.fetch_add(1, Ordering::Relaxed);
    // Which of them it was for is unknown. The next doorbell finds only newer entries.
    live().filter(nameless).for_each(|i| with_channel(i, |c, slot| _ = submit::unseen(c, slot)));
}

/// Calls `f` under the slot's claim.
fn with_channel(i: usize, f: impl FnOnce(&mut Channel, &Slot)) {
    let Some(slot) = region::slot(i).filter(|_| channel::claim(i)) else { return };
    // SAFETY: this thread holds the claim.
    if let Some(c) = unsafe { channel::get(i) } {
        f(c, slot);
    }
    submit::settle(i);
}

/// Before RM_FREE of an object (`old`, or the whole client): finds the channels that it will free, and their last GP_PUT
/// while it is still readable. Their tokens are forgotten now: the driver may give a free token to another thread's
/// channel before this thread returns from the call.
pub fn before_free(root: u32, old: u32, going: &mut [u16; SLOTS]) -> usize {
    let n = model::with_tree(root, |is_under| {
        let mut n = 0;
        for i in 0..SLOTS {
            let Some(slot) = region::slot(i) else { break };
            if !is_live(slot) || slot.client.load(Ordering::Relaxed) != root {
                continue;
            }
            if (old == root || is_under(old, slot.handle.load(Ordering::Relaxed)))
                && let Some(g) = going.get_mut(n)
            {
                *g = i as u16;
                n += 1;
            }
        }
        n
    });
    let n = n.unwrap_or(0);
    for &i in going.get(..n).unwrap_or(&[]) {
        last_put(i as usize);
        if let Some(_one) = CHANNELS.lock() {
            channel::forget_token(i as usize);
        }
    }
    n
}

/// RM_FREE was refused: the channels continue.
#[cold]
pub fn not_freed(going: &[u16]) {
    let Some(_one) = CHANNELS.lock() else { return };
    for i in going.iter().map(|&i| usize::from(i)) {
        let (token, device) = (region::slot(i).map_or(0, |s| s.token.load(Ordering::Relaxed)), channel::device(i));
        channel::set_token(i, token, device);
    }
}

/// Counts entries that were written but never rung.
fn last_put(i: usize) {
    let Some(_one) = CHANNELS.lock() else { return };
    with_channel(i, |c, slot| _ = submit::unseen(c, slot));
}

/// A channel has ended.
pub fn end(i: usize) {
    let Some(slot) = region::slot(i) else { return };
    let Some(_one) = CHANNELS.lock() else { return };
    channel::forget_token(i);
    let claimed = channel::claim(i);
    // SAFETY: this thread holds the claim.
    if let Some(c) = unsafe { channel::get(i) }.filter(|_| claimed) {
        if c.watch == watch::SHADOW {
            let there = ranges::find(c.ring, 8).is_some();
            shadow::take_away(c, i, there);
        }
        *c = Channel::NONE;
        c.watch = watch::BLIND;
    }
    let body = ChannelEndBody {
        slot: i as u32,
        put: slot.put.load(Ordering::Relaxed),
        entries: slot.entries_total.load(Ordering::Relaxed),
        rings: slot.rings_total.load(Ordering::Relaxed),
    };
    record::event(kind::CHANNEL_END, 0, sys::tsc(), &body, &[], &[]);
    if let Some(c) = region::control() {
        let trapped = slot.trapped_total.load(Ordering::Relaxed);
        c.trapped.fetch_add(trapped, Ordering::Relaxed);
        c.tapped.fetch_add(body.rings - trapped, Ordering::Relaxed);
    }
    slot.state.store(if claimed { ENDED } else { GIVEN_UP }, Ordering::Release);
    if claimed {
        submit::settle(i);
    }
}

/// Memory was mapped: from now on channels are seen that were allocated before their ring was mapped.
pub fn look_again() {
    let Some(_one) = CHANNELS.lock() else { return };
    for i in 0..SLOTS {
        let Some(slot) = region::slot(i) else { break };
        if is_live(slot) && slot.rings_total.load(Ordering::Relaxed) == 0 && is_blind(i) {
            with_channel(i, |c, _| {
                if c.watch == watch::BLIND && c.entries != 0 {
                    locate(c, i);
                }
            });
        }
    }
}

/// A range is about to be unmapped: channels in it are no longer seen. `and` runs while no channel is added or removed.
/// False from a signal handler that interrupted a change of channels. Does not wait for other channels' taps.
pub fn before_unmap(addr: u64, end: u64, and: impl FnOnce()) -> bool {
    let Some(_one) = CHANNELS.lock() else { return false };
    let going = Span(addr, end);
    for i in 0..SLOTS {
        let Some(slot) = region::slot(i) else { break };
        let lies_there = || {
            channel::lies(i).is_some_and(|lies| {
                lies.watch != watch::BLIND && (lies.ring.overlaps(going) || lies.userd.overlaps(going))
            })
        };
        if !is_live(slot) || !lies_there() {
            continue;
        }
        with_channel(i, |c, _| {
            if c.watch == watch::SHADOW {
                shadow::take_away(c, i, false);
            }
            c.watch = watch::BLIND;
        });
        // The channel may have ended unseen, with its file, and another one may get this token.
        channel::forget_token(i);
    }
    and();
    true
}

/// The program ends: takes the last GP_PUT of its channels.
pub fn finish() {
    for i in 0..SLOTS {
        if region::slot(i).is_some_and(is_live) {
            last_put(i);
        }
    }
}
