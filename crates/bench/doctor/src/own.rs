//! Separate channels: tried, if no known fact prevents it.
//!
//! The trial uses a separate address space, in parallel with other users of the GPU: one channel of one copy engine, and a copy of eight bytes to
//! GPU memory and back. Everything is freed afterwards.

use crate::{Check, Verdict, places};
use gpu::{AddressSpace, Channel, ChannelOptions, CopyEngine, CopyMode, DeviceOptions, Engine, Prepared};
use rm::driver::Driver;
use std::sync::Arc;
use std::time::Duration;

const CHANNELS: &str = "own channels";
const BYTES: usize = 8;
/// Time limit of one copy.
const LIMIT: Duration = Duration::from_secs(2);

/// `found`: earlier results. If one of them makes channels impossible, the GPU is not used.
pub fn checks(found: &[Check], attempt: bool) -> Vec<Check> {
    let mut all = Vec::new();
    let against: Vec<&Check> = found.iter().filter(|c| c.verdict == Verdict::No && speaks_against(&c.name)).collect();
    if let Some(reason) = reason(&against) {
        all.push(Check::no(CHANNELS, "not tried", &reason));
    } else if !attempt {
        all.push(Check::info(CHANNELS, "not tried", "--no-try"));
    } else {
        all.extend(trial(Arc::new(rm::driver::Libc), true));
    }
    all
}

/// The reason of a single check; several are listed by name, because the table already has each reason.
fn reason(against: &[&Check]) -> Option<String> {
    match against {
        [] => None,
        [one] => Some(format!("{}: {}", one.name, one.reason.as_deref().unwrap_or(&one.detail))),
        several => Some(several.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ") + ": see above"),
    }
}

/// Whether separate channels need the check with this name.
fn speaks_against(name: &str) -> bool {
    use places::{CONFIDENTIAL, MIG, SANDBOX, WHOLE, WSL};
    const NEEDED: [&str; 8] = ["processor", "driver", "driver version", SANDBOX, WSL, CONFIDENTIAL, MIG, WHOLE];
    NEEDED.contains(&name) || name.starts_with("/dev/")
}

/// One separate device, channel and copy, each with its result, until one of them is refused.
pub fn trial(driver: Arc<dyn Driver>, allow_real: bool) -> Vec<Check> {
    within(LIMIT, driver, allow_real)
}

fn within(limit: Duration, driver: Arc<dyn Driver>, allow_real: bool) -> Vec<Check> {
    let mut all = Vec::new();
    if let Err((name, detail, reason)) = steps(limit, driver, allow_real, &mut all) {
        all.push(Check::no(name, detail, &reason));
    }
    all
}

type Refused = (&'static str, String, String);

fn steps(limit: Duration, driver: Arc<dyn Driver>, allow_real: bool, all: &mut Vec<Check>) -> Result<(), Refused> {
    fn refused<E: std::fmt::Display>(name: &'static str, what: &str) -> impl FnOnce(E) -> Refused {
        let what = what.to_string();
        move |error| (name, what, error.to_string())
    }
    let name = "own device";
    let device =
        DeviceOptions::default().allow_real(allow_real).open(driver, 0).map_err(refused(name, "does not open"))?;
    let whose = if device.is_soft() { "the software GPU" } else { "a GPU" };
    all.push(Check::yes(name, format!("a separate client on {whose}, driver {}", device.driver_version())));

    let name = "copy engines";
    let engines = device.engines().map_err(refused(name, "the driver does not list them"))?;
    let Some(chosen) = engines.iter().find(|e| e.is_asynchronous()).or(engines.first()) else {
        return Err((name, "none".into(), "the driver lists no copy engine for this client".into()));
    };
    all.push(Check::yes(name, listed(&engines)).because("only a recording of CUDA shows which of them it uses"));

    let space = AddressSpace::new(&device).map_err(refused(CHANNELS, "no separate address space"))?;
    let what = format!("no channel of ce{}", chosen.number);
    let options = ChannelOptions::default();
    let mut channel = Channel::new(&space, Engine::Copy(chosen.number), options).map_err(refused(CHANNELS, &what))?;
    let (token, group) = (channel.token(), if chosen.is_asynchronous() { "asynchronous" } else { "graphics" });
    let runlist = token >> 16 & 0x7f;
    let detail = format!("a channel of ce{} ({group}), runlist {runlist}, token {token:#x}", chosen.number);
    all.push(Check::yes(CHANNELS, detail));

    let name = "own copy";
    let (sent, arrived) =
        copied(&space, &mut channel, limit).map_err(refused(name, "8 bytes to GPU memory and back"))?;
    match workload::Difference::between(&sent, &arrived, None) {
        None => {
            all.push(Check::yes(name, "8 random bytes to GPU memory and back, compared"));
            Ok(())
        }
        Some(d) => Err((name, "8 bytes to GPU memory and back".into(), d.to_string())),
    }
}

fn copied(
    space: &Arc<AddressSpace>,
    channel: &mut Channel,
    limit: Duration,
) -> Result<([u8; BYTES], [u8; BYTES]), gpu::Error> {
    let (host, video) = (space.alloc_host(0x1000)?, space.alloc_video(0x1000)?);
    let (mut sent, mut arrived) = ([0; BYTES], [0; BYTES]);
    fastrand::fill(&mut sent);
    let back = BYTES as u64 * 2;
    host.write(0, &sent);
    // So that old bytes do not look like copied ones.
    host.write(back, &sent.map(|byte| !byte));
    video.write(0, &sent.map(|byte| !byte));
    let bytes = BYTES as u64;
    let (first, there, second) =
        (host.region().part(0, bytes)?, video.region().part(0, bytes)?, host.region().part(back, bytes)?);
    for (to, from) in [(&there, &first), (&second, &there)] {
        let mut prepared = Prepared::copy(channel, to, from, BYTES as u32, CopyMode::Plain)?;
        let ticket = prepared.submit(channel)?;
        channel.wait(ticket, limit)?;
    }
    host.read(back, &mut arrived);
    Ok((sent, arrived))
}

/// `ce0 graphics (GRCE | ..., physical 0x1), ...`, with equal engines grouped.
fn listed(engines: &[CopyEngine]) -> String {
    let one = |e: &CopyEngine| {
        let kind = if e.is_asynchronous() { "asynchronous" } else { "graphics" };
        let physical = match &e.physical {
            Ok(mask) => format!("physical engines {mask:#x}"),
            Err(_) => "physical engines unknown".into(),
        };
        format!("ce{} {kind} ({}; {physical})", e.number, e.caps)
    };
    engines.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_softgpu::{Mode, Planted, SoftDriver};

    fn on(driver: SoftDriver) -> Vec<Check> {
        trial(Arc::new(driver), false)
    }

    #[test]
    fn the_software_gpu_has_channels_of_our_own() {
        let found = on(SoftDriver::new(Mode::Strict));
        let names: Vec<&str> = found.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["own device", "copy engines", CHANNELS, "own copy"]);
        assert!(found.iter().all(|c| c.verdict == Verdict::Yes && !c.required), "{found:?}");
        assert!(found[1].detail.contains("ce2 asynchronous") && found[1].detail.contains("ce0 graphics"), "{found:?}");
        assert!(found[2].detail.contains("ce2 (asynchronous), runlist"), "{found:?}");
    }

    #[test]
    fn a_broken_gpu_is_said_to_be_broken() {
        for (fault, word) in [
            (Planted::ShortCopy, "1 of 8 bytes differs"),
            (Planted::LostRelease { from: 2 }, "did not reach"),
            (Planted::DeadChannel { entry: 3, xid: 31 }, "killed by error 31"),
        ] {
            let limit = if word == "did not reach" { Duration::from_millis(100) } else { LIMIT };
            let found = within(limit, Arc::new(SoftDriver::broken(Mode::Strict, fault)), false);
            let last = found.last().unwrap();
            assert_eq!((last.name.as_str(), last.verdict), ("own copy", Verdict::No), "{fault:?}");
            assert!(last.reason.as_deref().is_some_and(|r| r.contains(word)), "{fault:?}: {last:?}");
        }
    }

    #[test]
    fn the_test_is_skipped_if_something_prevents_it() {
        let sandboxed = Check::no("outside a sandbox", "gVisor", "gVisor passes only what it knows").required();
        let found = checks(&[sandboxed, Check::no("tap: trap", "does not work", "no matter")], true);
        let last = found.last().unwrap();
        assert_eq!((last.name.as_str(), last.verdict, last.detail.as_str()), (CHANNELS, Verdict::No, "not tried"));
        let reason = last.reason.as_deref().unwrap();
        assert!(reason.starts_with("outside a sandbox: gVisor passes") && !reason.contains("no matter"), "{reason}");
        let driver = Check::no("driver", "no NVIDIA driver answers", "a long reason");
        let node = Check::no("/dev/nvidiactl", "does not open", "another");
        let found = checks(&[driver, node], true);
        assert_eq!(found.last().unwrap().reason.as_deref(), Some("driver, /dev/nvidiactl: see above"));
        let found = checks(&[], false);
        assert_eq!(found.last().unwrap().verdict, Verdict::Info);
    }

    #[test]
    fn missing_needs_of_own_channels_prevent_them() {
        assert!(speaks_against("whole GPU") && speaks_against("/dev/nvidia-uvm") && !speaks_against("libcuda"));
        // Separate channels do not use the service.
        assert!(!speaks_against(places::MPS));
    }
}
