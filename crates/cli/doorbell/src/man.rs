//! `doorbell man`: manual pages, from the same definitions as `--help`.

use crate::failure::Failure;
use crate::help::{self, Page};
use anyhow::Context;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use output::WholeFile;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write manual pages: one to standard output, or all to a directory
#[derive(Debug, clap::Args)]
#[command(after_help = Page::examples(&[
    ("doorbell man record | man -l -", "the page of `doorbell record`"),
    ("doorbell man -o ~/.local/share/man/man1", "all pages, one file a subcommand"),
]))]
pub struct Args {
    /// The subcommand, such as `record` or `selfbench tap` [default: doorbell itself]
    #[arg(value_name = "SUBCOMMAND", conflicts_with = "out")]
    subcommand: Vec<String>,
    /// Write all pages into this directory, which is created if need be (for example ~/.local/share/man/man1)
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace pages that exist
    #[arg(long, requires = "out")]
    force: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let all = pages();
        if let Some(dir) = &self.out {
            write_all(&all, dir, self.force)?;
            say!("doorbell: {} pages in {}", all.len(), dir.display());
            return Ok(ExitCode::SUCCESS);
        }
        let name = std::iter::once("doorbell").chain(self.subcommand.iter().map(String::as_str));
        let name = name.collect::<Vec<_>>().join("-");
        let Some((_, text)) = all.iter().find(|(n, _)| *n == name) else {
            let what = format!("there is no subcommand `{}`", self.subcommand.join(" "));
            return Err(Failure::new(what, "`doorbell --help` lists them").into());
        };
        terminal::table::to_stdout(|out| out.write_all(text))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn write_all(pages: &[(String, Vec<u8>)], dir: &Path, force: bool) -> anyhow::Result<()> {
    crate::result::is_file("--out", dir, "without --out one page goes to standard output")?;
    std::fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
    for (name, text) in pages {
        let mut file = WholeFile::open(&dir.join(format!("{name}.1")), text.len() as u64, force)?;
        file.write(|out| out.write_all(text)).with_context(|| format!("{}", file.path().display()))?;
    }
    Ok(())
}

/// Every page, `doorbell`, `doorbell-record` and so on. Hidden commands have none.
pub fn pages() -> Vec<(String, Vec<u8>)> {
    // `disable_help_subcommand`: a page for `help` would be empty.
    let mut cli = help::laid_out_for(WIDTH, crate::command_line).disable_help_subcommand(true);
    cli.build();
    let mut all = Vec::new();
    collect(&cli, "doorbell", &mut all);
    all
}

fn collect(command: &clap::Command, name: &str, into: &mut Vec<(String, Vec<u8>)>) {
    let titled = command.clone().name(name.to_owned());
    let mut text = Vec::new();
    // (Writing to memory does not fail.)
    let _ = page(titled, &mut text);
    into.push((name.to_owned(), text));
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        collect(sub, &format!("{name}-{}", sub.get_name()), into);
    }
}

/// Columns of a line: 80 less the margin of a page.
const WIDTH: usize = 72;

fn page(command: clap::Command, to: &mut dyn Write) -> io::Result<()> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_subcommands = command.get_subcommands().any(|s| !s.is_hide_set());
    let man = Man::new(command);
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    man.render_options_section(to)?;
    if has_subcommands {
        man.render_subcommands_section(to)?;
    }
    // The text after the options in `--help` is laid out already: its lines stay as they are.
    for (n, block) in after.split("\n\n").enumerate() {
        let (head, lines) = match block.split_once('\n') {
            Some(("Examples:", lines)) => (Some("EXAMPLES"), lines),
            _ if block.starts_with("Exit status: ") => (Some("EXIT STATUS"), block),
            _ => (if n == 1 { Some("DETAILS") } else { None }, block),
        };
        let mut roff = Roff::new();
        match head {
            Some(head) => roff.control("SH", [head]),
            None => roff.control("PP", []),
        };
        roff.control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).to_writer(to)?;
    }
    man.render_version_section(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(command: &clap::Command, name: String, into: &mut Vec<(String, Vec<String>)>) {
        let long = command.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long());
        into.push((name.clone(), long.map(str::to_owned).collect()));
        for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
            flags(sub, format!("{name}-{}", sub.get_name()), into);
        }
    }

    #[test]
    fn every_subcommand_has_a_page_with_each_of_its_flags() {
        let dir = tempfile::tempdir().unwrap();
        write_all(&pages(), dir.path(), false).unwrap();
        let mut cli = crate::command_line().disable_help_subcommand(true);
        cli.build();
        let mut expected = Vec::new();
        flags(&cli, "doorbell".into(), &mut expected);
        assert!(expected.len() > 20, "{}", expected.len());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), expected.len());
        for (name, flags) in expected {
            let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
            // roff writes a hyphen that must not change as `\-`.
            let text = page.replace("\\-", "-");
            for section in ["NAME", "SYNOPSIS", "EXAMPLES"] {
                assert!(text.contains(&format!(".SH {section}")), "{name}: {section}");
            }
            for flag in flags {
                assert!(text.contains(&format!("--{flag}")), "{name}: --{flag}");
            }
        }
    }

    #[test]
    fn pages_that_exist_are_kept_without_force() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("doorbell.1"), "mine").unwrap();
        assert!(write_all(&pages(), dir.path(), false).is_err());
        assert_eq!(std::fs::read(dir.path().join("doorbell.1")).unwrap(), b"mine");
        write_all(&pages(), dir.path(), true).unwrap();
    }
}
