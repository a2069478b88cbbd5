//! doorbell's channels: all routes of one engine, or of one way of the CPU, in turn, with random bytes of any size. The bytes and guards of every
//! transfer are compared.

use super::{Unit, Units, any_size, size};
use crate::entry::{Entry, Number, Result as Open};
use crate::{Error, Machine, Unavailable, Wanted, Wrong};
use copy::{Checked, Route};
use std::time::Duration;

const GROUP: &str = "group=cuda";

pub(crate) const CE: Entry = Entry {
    name: "ce",
    form: "ce(ENGINE)",
    about: "copies of any size by a copy engine on a separate channel, in both directions and every mode, compared",
    bytes: super::BYTES,
    number: Some(Number { of: "the engine", default: 0, least: 0, most: 63 }),
    words: &[],
    one_word: false,
    values: &[],
    open: |machine, call, wanted| {
        let (n, gpu) = (call.number, format!("gpu{}", machine.index()));
        let both = |mode: &str| [format!("host->ce{n}{mode}->{gpu}"), format!("{gpu}->ce{n}{mode}->host")];
        open(machine, ["", "[pipelined]", "[folded]"].iter().flat_map(|mode| both(mode)).collect(), wanted)
    },
};

pub(crate) const INLINE: Entry = Entry {
    name: "inline",
    form: "inline(group=cuda)",
    about: "inline copies of any size on a separate channel, or in CUDA's channel group, compared",
    bytes: super::BYTES,
    number: None,
    words: &[GROUP],
    one_word: false,
    values: &[],
    open: |machine, call, wanted| {
        let options = if call.has(GROUP) { ["[group=cuda]", "[group=cuda,split]"] } else { ["", "[split]"] };
        let gpu = machine.index();
        open(machine, options.iter().map(|o| format!("host->inline{o}->gpu{gpu}")).collect(), wanted)
    },
};

pub(crate) const BAR1: Entry = Entry {
    name: "bar1",
    form: "bar1",
    about: "stores and loads of any size through BAR1, compared",
    bytes: super::BYTES,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: |machine, _, wanted| {
        let gpu = machine.index();
        let up = ["bar1", "bar1[flush]"].map(|way| format!("host->{way}->gpu{gpu}"));
        open(machine, [up.as_slice(), &[format!("gpu{gpu}->bar1->host")]].concat(), wanted)
    },
};

pub(crate) const APERTURE: Entry = Entry {
    name: "aperture",
    form: "aperture",
    about: "stores and loads of any size through a window of BAR1 that is moved, compared",
    bytes: super::BYTES,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: |machine, _, wanted| {
        let gpu = machine.index();
        open(machine, vec![format!("host->aperture->gpu{gpu}"), format!("gpu{gpu}->aperture->host")], wanted)
    },
};

/// The maximum number of submissions of one transfer in flight.
const UNDER_WAY: u32 = 4;
/// Longer than any transfer takes that ever completes.
const PATIENCE: Duration = Duration::from_secs(30);

fn open<'m>(machine: &'m Machine, names: Vec<String>, wanted: &Wanted) -> Open<'m> {
    let (mut routes, mut missing) = (Vec::new(), None);
    for name in &names {
        match copy::open(machine, name, size(wanted)) {
            Ok(route) => routes.push(route),
            // Some engines cannot do all of it; the rest is still done.
            Err(Error::Unavailable(why)) => missing = Some(why),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(why) if routes.is_empty() => Err(why.into()),
        _ => Ok(Box::new(Units(Routes { routes, next: 0 }))),
    }
}

/// Every route of doorbell that can be opened temporarily.
pub(super) fn every_name(machine: &Machine) -> Vec<String> {
    let gpu = format!("gpu{}", machine.index());
    let engines = machine.copy_engines().map(|all| all.iter().map(|e| e.number).collect());
    let mut all = Vec::new();
    for n in engines.unwrap_or_else(|| vec![0]) {
        for mode in ["", "[pipelined]", "[folded]"] {
            all.push(format!("host->ce{n}{mode}->{gpu}"));
            all.push(format!("{gpu}->ce{n}{mode}->host"));
        }
    }
    for way in ["inline", "inline[split]", "inline[group=cuda]", "inline[group=cuda,split]", "bar1", "bar1[flush]"] {
        all.push(format!("host->{way}->{gpu}"));
    }
    for way in ["bar1", "aperture"] {
        all.push(format!("{gpu}->{way}->host"));
    }
    all.push(format!("host->aperture->{gpu}"));
    all
}

struct Routes<'m> {
    routes: Vec<Route<'m>>,
    next: usize,
}

impl Unit for Routes<'_> {
    fn about(&self) -> String {
        let names: Vec<&str> = self.routes.iter().map(|route| route.name()).collect();
        format!("random bytes of any size by {}, compared", names.join(", "))
    }

    fn work(&mut self, random: &mut fastrand::Rng) -> Result<Option<Wrong>, Error> {
        self.next = (self.next + 1) % self.routes.len();
        exchange(&mut self.routes[self.next], random)
    }
}

/// Moves random bytes of a random length once or several times, the last time with new bytes, and compares them and the guards at both ends.
pub(super) fn exchange(route: &mut Route<'_>, random: &mut fastrand::Rng) -> Result<Option<Wrong>, Error> {
    let bytes = any_size(random, route.capacity());
    let mut transfer = route.prepare(bytes)?;
    let hidden = || Unavailable::new("its memories cannot be read");
    let mut checked = Checked::new(transfer.ends().ok_or_else(hidden)?, bytes, random.u64(..))?;
    for _ in 0..random.u32(0..UNDER_WAY) {
        match transfer.submit() {
            // Only a few large transfers can be in flight.
            Err(Error::Gpu(gpu::Error::RingFull(_))) => transfer.wait(PATIENCE)?,
            other => other?,
        }
    }
    match transfer.wait(PATIENCE) {
        // None was submitted.
        Err(Error::Idle) => {}
        other => other?,
    }
    checked.renew(transfer.ends().ok_or_else(hidden)?)?;
    transfer.submit()?;
    transfer.wait(PATIENCE)?;
    checked.check(transfer.ends().ok_or_else(hidden)?)
}
