//! Our own channels: one worker for each engine and each of the CPU's ways, all of whose routes it uses in turns.

use super::{Beat, Job, Plan, Trouble, any_size, outside_capture};
use copy::{Checked, Machine, Route, Unavailable, Wrong};
use std::sync::Arc;

/// Submissions of one transfer that are under way at a time, at most.
const UNDER_WAY: u32 = 4;

/// A worker, and the routes that it uses.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) routes: Vec<String>,
}

/// Every kind of our channels.
pub(super) fn kinds(machine: &Machine) -> Vec<Kind> {
    let gpu = format!("gpu{}", machine.index());
    let mut all = Vec::new();
    let mut add = |name: String, routes: &[String]| all.push(Kind { name, routes: routes.to_vec() });
    let engines = machine.space().ok().and_then(|space| space.device().engines().ok()).unwrap_or_default();
    for engine in &engines {
        let n = engine.number;
        let modes = ["", "[pipelined]", "[folded]"];
        let both = modes.iter().flat_map(|m| [format!("host->ce{n}{m}->{gpu}"), format!("{gpu}->ce{n}{m}->host")]);
        let kind = if engine.is_graphics() { "graphics" } else { "asynchronous" };
        add(format!("ce{n} ({kind})"), &both.collect::<Vec<_>>());
    }
    if engines.is_empty() {
        add("ce0".into(), &[format!("host->ce0->{gpu}"), format!("{gpu}->ce0->host")]);
    }
    let inline = |options: [&str; 2]| options.map(|o| format!("host->inline{o}->{gpu}"));
    add("inline".into(), &inline(["", "[split]"]));
    add("inline in CUDA's group".into(), &inline(["[group=cuda]", "[group=cuda,split]"]));
    let bar1 = ["host->bar1->", "host->bar1[flush]->"].map(|r| format!("{r}{gpu}"));
    add("bar1".into(), &[bar1.as_slice(), &[format!("{gpu}->bar1->host")]].concat());
    let aperture = [format!("host->aperture->{gpu}"), format!("{gpu}->aperture->host")];
    add("aperture".into(), &aperture);
    all
}

pub(super) fn jobs(machine: &Arc<Machine>, plan: &Plan) -> Vec<Job> {
    let (seed, capacity) = (plan.seed, plan.capacity);
    let job = |(n, kind): (usize, Kind)| {
        let (machine, seed) = (machine.clone(), seed ^ (n as u64) << 16);
        Job::new(kind.name.clone(), move |beat: &Beat| worker(&machine, &kind, capacity, seed, beat))
    };
    kinds(machine).into_iter().enumerate().map(job).collect()
}

fn worker(machine: &Machine, kind: &Kind, capacity: u64, seed: u64, beat: &Beat) -> Result<(), Trouble> {
    machine.enter()?;
    let mut routes = Vec::new();
    for name in &kind.routes {
        match copy::open(machine, name, capacity) {
            Ok(route) => routes.push(route),
            // Some engines cannot do all of it; what is left is worth doing.
            Err(copy::Error::Unavailable(u)) => beat.note(format!("{name} is unavailable: {}", u.reason)),
            Err(error) => return Err(Trouble::Error(format!("{name}: {error}"))),
        }
        beat.alive();
    }
    if routes.is_empty() {
        return Err(Trouble::Unavailable("none of its routes can be opened".into()));
    }
    let mut random = fastrand::Rng::with_seed(seed);
    // Each once at least, however long the opening took.
    loop {
        for route in &mut routes {
            exchange(route.as_mut(), &mut random, beat)?;
        }
        if beat.stopped() {
            return Ok(());
        }
    }
}

/// Moves random bytes of a random length once or a few times over, the last of them with bytes of its own, and compares them and
/// the guards at both ends.
pub(super) fn exchange(route: &mut dyn Route, random: &mut fastrand::Rng, beat: &Beat) -> Result<(), Trouble> {
    let bytes = any_size(random, route.capacity());
    let name = route.name().to_string();
    let mut step = |route: &mut dyn Route| -> Result<Option<Wrong>, copy::Error> {
        beat.step("prepares");
        let mut transfer = route.prepare(bytes)?;
        // Memory of CUDA's is filled with a wait for the whole context.
        beat.step("waits until no stream is in capture");
        let outside = outside_capture();
        beat.step("fills source, destination and guards");
        let seed = random.u64(..);
        let mut checked = match transfer.ends() {
            Some(ends) => Checked::new(ends, bytes, seed)?,
            None => return Err(Unavailable::new("its memories cannot be looked at").into()),
        };
        drop(outside);
        beat.step("submits");
        for _ in 0..random.u32(0..UNDER_WAY) {
            match transfer.submit() {
                // Of large transfers only few can be under way.
                Err(copy::Error::Gpu(gpu::Error::RingFull(_))) => transfer.wait(beat.timeout)?,
                other => other?,
            }
        }
        beat.step("waits for its transfers");
        match transfer.wait(beat.timeout) {
            // None was submitted.
            Err(copy::Error::Idle) => {}
            other => other?,
        }
        if let Some(ends) = transfer.ends() {
            checked.renew(ends)?;
        }
        beat.step("submits the last");
        transfer.submit()?;
        transfer.wait(beat.timeout)?;
        beat.step("reads the destination back");
        match transfer.ends() {
            Some(ends) => checked.check(ends),
            None => Ok(None),
        }
    };
    let wrong = step(route).map_err(|error| match Trouble::from(error) {
        Trouble::Unavailable(reason) => Trouble::Unavailable(reason),
        Trouble::Data(what) | Trouble::Error(what) => Trouble::Error(format!("{name}, {bytes} bytes: {what}")),
    })?;
    match wrong {
        None => {
            beat.round(bytes);
            Ok(())
        }
        Some(wrong) => Err(Trouble::Data(format!("{name}, {bytes} bytes: {wrong}"))),
    }
}
