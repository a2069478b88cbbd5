//! `doorbell show`: what a recording holds.

use crate::failure::{self, Failure};
use insight::Recording;
use insight::walk::Filter;
use report::table::Style;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what a recording holds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell show app.doorbell                                the summary
  doorbell show app.doorbell --submissions --limit 20       the first 20 submissions, decoded
  doorbell show app.doorbell --submissions --channel 3      those of one channel
  doorbell show app.doorbell --copies --json | jq '.[].bytes'
  doorbell show app.doorbell --locks                        who held a lock while another waited, and why so long
  doorbell show app.doorbell --calls --top 3                CUDA's calls, which locks they take and share
  doorbell show app.doorbell --calls --json | jq '.totals.launch.mean_ns'
  doorbell show app.doorbell --summary --json | jq .lost

A recording that was cut or damaged is shown up to the damage; the exit status is then 2.")]
pub struct Args {
    /// The recording.
    file: PathBuf,
    #[command(flatten)]
    view: View,
    /// JSON, numbers as numbers.
    #[arg(long)]
    json: bool,
    /// Only this process, for example 4242 (the summary lists them)
    #[arg(long, value_name = "PID")]
    process: Option<i32>,
    /// At most this many submissions, copies, launches, objects, or rows and waits of locks and calls, for example 20
    #[arg(long, visible_alias = "top", value_name = "N")]
    limit: Option<u64>,
    /// Only this channel (its number in the first column of --channels, for example 3 or 3.1)
    #[arg(long, value_name = "SLOT", value_parser = channel)]
    channel: Option<(u32, Option<u32>)>,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct View {
    /// Totals of everything (the default).
    #[arg(long)]
    summary: bool,
    /// Every submission with its decoded commands.
    #[arg(long)]
    submissions: bool,
    /// Every copy and inline write.
    #[arg(long)]
    copies: bool,
    /// Every kernel launch.
    #[arg(long)]
    launches: bool,
    /// The channels.
    #[arg(long)]
    channels: bool,
    /// The driver's objects as they stood at the end.
    #[arg(long)]
    objects: bool,
    /// Locks: waits and their holders, orders, priority inversions (recorded with `record --locks`).
    #[arg(long)]
    locks: bool,
    /// CUDA's calls: latency, what they waited for, the locks of each in their order (recorded with `record --locks`).
    #[arg(long)]
    calls: bool,
}

fn channel(text: &str) -> Result<(u32, Option<u32>), String> {
    let number = |t: &str| t.parse().map_err(|_| format!("{t:?} is no number"));
    match text.split_once('.') {
        Some((slot, generation)) => Ok((number(slot)?, Some(number(generation)?))),
        None => Ok((number(text)?, None)),
    }
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let recording = match self.process {
            Some(pid) => Recording::open_process(&self.file, pid, &mut |_, _| ())?,
            None => Recording::open(&self.file)?,
        };
        let filter = Filter { channel: self.channel, limit: self.limit };
        let style = Style::of_stdout();
        let (r, json) = (&recording, self.json);
        match &self.view {
            v if v.submissions => report::submissions::print(r, filter, style, json)?,
            v if v.copies => report::copies::print(r, filter, style, json)?,
            v if v.launches => report::launches::print(r, filter, style, json)?,
            v if v.channels => report::channels::print(r, filter, style, json)?,
            v if v.locks => report::locks::print(r, self.limit, style, json)?,
            v if v.calls => report::calls::print(r, self.limit, style, json)?,
            v if v.objects => report::objects::print(r, filter, style, json)?,
            _ => report::summary::print(r, style, json)?,
        }
        damage_of(&recording)
    }
}

/// Status 0, or the damage as an error after everything before it was shown.
pub fn damage_of(r: &Recording) -> anyhow::Result<ExitCode> {
    match r.damage() {
        None => Ok(ExitCode::SUCCESS),
        Some(d) => {
            let hint = failure::tape_hint(d).unwrap_or_else(|| "what is shown ends there".into());
            Err(Failure::new(d.to_string(), hint).into())
        }
    }
}
