//! How deep an idle CPU sleeps, and how long it takes to wake.

use crate::files::Files;
use crate::gather::Gathered;
use crate::value::Known;

/// One idle state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    name: String,
    /// From the interrupt until the CPU runs again, according to the driver.
    exit_us: u64,
    off: bool,
}

impl State {
    fn text(&self) -> String {
        format!("{} {} us{}", self.name, self.exit_us, if self.off { " off" } else { "" })
    }
}

pub fn facts(files: &Files, cpu: Known<u64>, into: &mut Gathered) {
    let states = cpu.and_then(|cpu| states(files, cpu));
    into.put("cpu.idle_driver", files.text("/sys/devices/system/cpu/cpuidle/current_driver"));
    into.put("cpu.idle_governor", governor(files));
    into.put("cpu.idle_states", states.clone().map(|all| all.iter().map(State::text).collect::<Vec<_>>()));
    into.put("cpu.idle_exit_us", states.and_then(|all| deepest(&all)));
    into.put("cpu.dma_latency_us", files.bytes("/dev/cpu_dma_latency").and_then(|b| dma_latency(&b)));
}

fn governor(files: &Files) -> Known<String> {
    let of = |name: &str| files.text(&format!("/sys/devices/system/cpu/cpuidle/{name}"));
    of("current_governor").or_else(|_| of("current_governor_ro"))
}

fn states(files: &Files, cpu: u64) -> Known<Vec<State>> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let mut numbers: Vec<u32> =
        files.names(&folder)?.iter().filter_map(|n| n.strip_prefix("state")?.parse().ok()).collect();
    numbers.sort_unstable();
    let one = |n: u32| {
        let file = |name: &str| format!("{folder}/state{n}/{name}");
        let exit_us = files.number(&file("latency"))?;
        Ok(State {
            name: files.text(&file("name"))?,
            exit_us: u64::try_from(exit_us).map_err(|_| format!("{}: {exit_us}", file("latency")))?,
            // Bit 0: the user's, bit 1: the driver's.
            off: files.number(&file("disable")).is_ok_and(|d| d != 0),
        })
    };
    numbers.into_iter().map(one).collect()
}

/// The longest of the enabled states.
fn deepest(states: &[State]) -> Known<u64> {
    let on = states.iter().filter(|s| !s.off).map(|s| s.exit_us).max();
    on.ok_or_else(|| "no state of sleep is on".into())
}

/// No process has asked for a limit.
pub const NO_LIMIT_US: i64 = 2_000_000_000;

/// The file holds one number of 32 bits: the shortest wake-up time that any process has requested.
fn dma_latency(bytes: &[u8]) -> Known<i64> {
    match <[u8; 4]>::try_from(bytes) {
        Ok(b) => Ok(i64::from(i32::from_ne_bytes(b))),
        Err(_) => Err(format!("/dev/cpu_dma_latency holds {} bytes, not 4", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, exit_us: u64, off: bool) -> State {
        State { name: name.into(), exit_us, off }
    }

    #[test]
    fn states_that_are_off_do_not_count() {
        let all = [state("POLL", 0, false), state("C1", 2, false), state("C6", 133, true)];
        assert_eq!(deepest(&all), Ok(2));
        assert_eq!(all[2].text(), "C6 133 us off");
        assert!(deepest(&[state("C1", 2, true)]).is_err() && deepest(&[]).is_err());
    }

    #[test]
    fn the_latency_is_a_number_of_32_bits() {
        assert_eq!(dma_latency(&[0x00, 0x94, 0x35, 0x77]), Ok(NO_LIMIT_US));
        assert!(dma_latency(&[]).is_err() && dma_latency(&[0; 8]).is_err());
    }
}
