//! `record --last`: what is kept, when it is saved, and what is printed about it.

use crate::failure::Failure;
use crate::units;
use recorder::{KernelLog, Last, SavedFile, Saves, Span, Tell, Trigger, When};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use terminal::foreign;
use terminal::number;
use terminal::table::Style;

#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Keep only the newest part, in memory, for example 256MiB or 30s (of a time at most 1GiB); a busy program takes up to 40 MB more,
    /// and a file while it is written as much again. A file is written when the program
    /// crashes, when doorbell gets SIGUSR1 (see --save-signal), at `doorbell save`, and as --save-when says. Its names: NAME.doorbell, NAME.2.doorbell and so on
    #[arg(long, value_name = "SIZE|TIME", value_parser = span, conflicts_with = "max_size")]
    pub last: Option<Span>,
    /// With --last: write a file when this happens, such as `call > 5ms` (a CUDA call takes longer), `wait > 1ms` (for a lock, with
    /// --locks), `hang > 10s` (a call has not returned, a lock is waited for, or a kernel has not ended, for longer), `kernel > 3ms` or `kernel > 2x median` (of its runs before; with --gpu-times), `lost > 0` (events that did not fit into the rings), `xid` (the driver reports an error of a GPU in the kernel's log), `exit` (the program ends). May be given more than once
    #[arg(long, value_name = "EVENT", value_parser = when, requires = "last")]
    pub save_when: Vec<When>,
    /// With --last: the signal to doorbell that writes a file. A signal that the program handles itself is passed on to it instead
    #[arg(long, value_name = "SIGNAL", value_enum, ignore_case = true, default_value_t, requires = "last")]
    pub save_signal: SaveSignal,
    /// With --last: write at most so many files, and one more at the end
    #[arg(long, value_name = "N", default_value_t = 10, requires = "last")]
    pub max_saves: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SaveSignal {
    /// SIGUSR1
    #[default]
    Usr1,
    /// SIGUSR2
    Usr2,
    /// No signal: all are passed on to the program
    None,
}

/// The kinds of events that a trigger may need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Records {
    pub calls: bool,
    pub locks: bool,
    pub gpu_times: bool,
}

/// Minimum memory: it must hold the events without which a program cannot be decoded.
const LEAST: u64 = 1 << 20;
const LONGEST: Duration = Duration::from_secs(3600);

fn span(text: &str) -> Result<Span, String> {
    let of_time = match units::time(text) {
        Ok(d) if d <= LONGEST => return Ok(Span::Time(d)),
        Ok(_) => return Err("at most an hour (1h) fits; a size such as 1GiB keeps what fits".into()),
        Err(e) => e,
    };
    match units::size(text) {
        Ok(n) if n >= LEAST => Ok(Span::Bytes(n)),
        Ok(_) if text.bytes().all(|b| b.is_ascii_digit()) => Err("it needs a unit: 256MiB or 30s".into()),
        Ok(_) => Err("at least 1MiB is needed".into()),
        Err(_) if text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with('s') => Err(of_time),
        Err(_) => Err("a size or a time, such as 256MiB or 30s".into()),
    }
}

const EVENTS: &str =
    "examples: 'call > 5ms', 'wait > 1ms', 'hang > 10s', 'kernel > 3ms', 'kernel > 2x median', 'lost > 0', xid, exit";

fn when(text: &str) -> Result<When, String> {
    let trigger = trigger(text.trim()).map_err(|e| format!("{e}; {EVENTS}"))?;
    Ok(When { trigger, text: text.split_whitespace().collect::<Vec<_>>().join(" ") })
}

fn trigger(text: &str) -> Result<Trigger, String> {
    match text {
        "exit" => return Ok(Trigger::Exit),
        "xid" => return Ok(Trigger::Xid),
        _ => {}
    }
    let Some((what, limit)) = text.split_once('>') else {
        return Err(if text.contains(['<', '=']) { "only > is known".into() } else { format!("`{text}` is no event") });
    };
    let (what, limit) = (what.trim(), limit.trim());
    let time = || units::time(limit).map_err(|e| format!("`{limit}`: {e}"));
    match what {
        "call" => time().map(Trigger::Call),
        "wait" => time().map(Trigger::Wait),
        "hang" => time().map(Trigger::Hang),
        "kernel" => kernel(limit),
        "lost" => limit.parse().map(Trigger::Lost).map_err(|_| format!("`{limit}` is no number of events")),
        _ => Err(format!("`{what}` is nothing that is watched")),
    }
}

/// A time, or a factor of the median.
fn kernel(limit: &str) -> Result<Trigger, String> {
    if let Ok(time) = units::time(limit) {
        return Ok(Trigger::Kernel(time));
    }
    let wrong = || format!("`{limit}`: a time such as 3ms, or a factor above 1 such as `2x median`");
    let factor = limit.strip_suffix("median").map(str::trim_end).and_then(|f| f.strip_suffix('x')).ok_or_else(wrong)?;
    let factor: f64 = factor.trim_end().parse().map_err(|_| wrong())?;
    if !(factor > 1.0 && factor <= 1e6) {
        return Err(wrong());
    }
    Ok(Trigger::KernelMedian((factor * 100.0) as u32))
}

impl Args {
    /// The settings for the recorder. `records`: the options of `record` that are on.
    /// `toggles`: SIGUSR2 has another meaning.
    pub fn asked(&self, name: PathBuf, force: bool, records: Records, toggles: bool) -> anyhow::Result<Option<Last>> {
        let Some(span) = self.last else { return Ok(None) };
        let signal = match self.save_signal {
            SaveSignal::Usr1 => Some((libc::SIGUSR1, "SIGUSR1")),
            SaveSignal::Usr2 if toggles => {
                let what = "--save-signal usr2: `--capture signal` has this signal";
                return Err(Failure::new(what, "--save-signal usr1 or none").into());
            }
            SaveSignal::Usr2 => Some((libc::SIGUSR2, "SIGUSR2")),
            SaveSignal::None => None,
        };
        for w in &self.save_when {
            let (lacks, option) = match w.trigger {
                Trigger::Call(_) => (!records.calls, "--calls"),
                Trigger::Wait(_) => (!records.locks, "--locks"),
                Trigger::Hang(_) => (!records.calls && !records.locks, "--locks"),
                Trigger::Kernel(_) | Trigger::KernelMedian(_) => (!records.gpu_times, "--gpu-times"),
                _ => (false, ""),
            };
            if lacks {
                let what = format!("--save-when '{}': that is not recorded", w.text);
                return Err(Failure::new(what, format!("add {option}, which records it")).into());
            }
            if w.trigger == Trigger::Xid
                && let Err(e) = KernelLog::open()
            {
                let what = format!("--save-when xid: /dev/kmsg cannot be read: {e}");
                return Err(Failure::new(
                    what,
                    "run doorbell as root or with CAP_SYSLOG, in a container with --device /dev/kmsg --cap-add SYSLOG",
                )
                .into());
            }
        }
        let (when, most_files) = (self.save_when.clone(), self.max_saves);
        Ok(Some(Last { span, when, name, force, signal, most_files }))
    }
}

/// Prints a line for each file when it is written.
pub fn teller(quiet: bool) -> Option<Arc<Tell>> {
    if quiet {
        return None;
    }
    Some(Arc::new(|done| {
        let name = Style::of_stderr().bold("doorbell:");
        let _ = match done {
            Ok(file) => writeln!(foreign::stderr(), "{name} {}", line(file)),
            Err(e) => writeln!(foreign::stderr(), "{name} nothing was saved: {e}; the recording goes on"),
        };
    }))
}

fn line(file: &SavedFile) -> String {
    let what = if file.why.what.is_empty() { String::new() } else { format!(": {}", file.why.what) };
    let (seconds, size) = (number::seconds(file.seconds), number::bytes(file.bytes));
    format!("wrote {}: the last {seconds}, {size} ({}{what})", file.path.display(), file.why.reason)
}

/// The lines about all files at the end.
pub fn lines(saves: &Saves) -> Vec<String> {
    let mut out = Vec::new();
    if saves.files.is_empty() && saves.failed == 0 {
        out.push("nothing happened: no file was written".to_owned());
    }
    if saves.failed > 1 {
        out.push(format!("{} could not be written", number::of(saves.failed, "file")));
    }
    if saves.too_soon > 0 {
        let n = number::of(saves.too_soon, "event");
        out.push(format!("{n} came less than 10 s after a file, and wrote none"));
    }
    if saves.too_many > 0 {
        let n = number::of(saves.too_many, "event");
        out.push(format!("{n} came when there were as many files as --max-saves allows"));
    }
    let k = saves.kernels.unwrap_or_default();
    if k.not_timed > 0 {
        let (n, all) = (number::count(k.not_timed), number::of(k.timed + k.not_timed, "kernel"));
        out.push(format!("the start of {n} of {all} is not known: they could save no file"));
    }
    if k.without_median > 0 {
        let (n, most) = (number::of(k.without_median, "run"), number::count(recorder::KERNELS_WITH_MEDIAN as u64));
        out.push(format!("{n} of kernels had no median: more than {most} different kernels ran"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_or_a_time_is_kept() {
        assert_eq!(span("256MiB"), Ok(Span::Bytes(256 << 20)));
        assert_eq!(span("30s"), Ok(Span::Time(Duration::from_secs(30))));
        assert_eq!(span("1m30s"), Ok(Span::Time(Duration::from_secs(90))));
        for (wrong, says) in [
            ("30", "needs a unit"),
            ("4KiB", "1MiB"),
            ("2h", "an hour"),
            ("", "256MiB or 30s"),
            ("lots", "256MiB or 30s"),
        ] {
            let e = span(wrong).unwrap_err();
            assert!(e.contains(says), "{wrong}: {e}");
        }
    }

    #[test]
    fn events_have_one_grammar_and_errors_have_examples() {
        let ms = Duration::from_millis;
        assert_eq!(when("call > 5ms").unwrap().trigger, Trigger::Call(ms(5)));
        assert_eq!(when(" wait>1ms ").unwrap().trigger, Trigger::Wait(ms(1)));
        assert_eq!(when("hang > 10s").unwrap().trigger, Trigger::Hang(ms(10_000)));
        assert_eq!(when("lost > 0").unwrap().trigger, Trigger::Lost(0));
        assert_eq!(when("kernel > 3ms").unwrap().trigger, Trigger::Kernel(ms(3)));
        assert_eq!(when("kernel>2.5x  median").unwrap().trigger, Trigger::KernelMedian(250));
        assert_eq!(when("exit").unwrap().trigger, Trigger::Exit);
        assert_eq!(when("xid").unwrap().trigger, Trigger::Xid);
        assert_eq!(when("call   >  5ms").unwrap().text, "call > 5ms");
        for wrong in [
            "",
            "call",
            "call < 5ms",
            "call > 5",
            "lost > 5ms",
            "kernel > 2x",
            "kernel > median",
            "kernel > 1x median",
            "kernel > nanx median",
            "call > 5ms > 4ms",
            "crash",
        ] {
            let e = when(wrong).unwrap_err();
            assert!(e.contains("'call > 5ms'"), "{wrong}: {e}");
        }
    }

    #[test]
    fn what_is_watched_for_must_be_recorded() {
        let of = |text: &str, records: Records| {
            let save_when = vec![when(text).unwrap()];
            let args = Args { last: Some(Span::Bytes(1 << 20)), save_when, ..Args::default() };
            args.asked("a".into(), false, records, false)
                .map_err(|e| e.downcast::<Failure>().unwrap().hint().to_owned())
        };
        let (none, calls) = (Records::default(), Records { calls: true, ..Records::default() });
        let all = Records { calls: true, locks: true, gpu_times: true };
        for (text, needs) in [
            ("call > 5ms", "--calls"),
            ("wait > 5ms", "--locks"),
            ("hang > 5s", "--locks"),
            ("kernel > 5ms", "--gpu-times"),
            ("kernel > 2x median", "--gpu-times"),
        ] {
            let hint = of(text, none).unwrap_err();
            assert!(hint.contains(needs), "{text}: {hint}");
            assert!(of(text, all).is_ok(), "{text}");
        }
        assert!(of("call > 5ms", calls).is_ok() && of("kernel > 5ms", calls).is_err());
        assert!(of("lost > 5", none).is_ok() && of("exit", none).is_ok());
    }
}
