//! `--color`, for all output.

use colorchoice::ColorChoice;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr, stdout};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set to anything but nothing
    #[default]
    Auto,
    /// Also into files and pipes
    Always,
    /// Nowhere
    Never,
}

impl When {
    /// The value of `--color`, found before the command line is parsed: help and errors have colors, too.
    pub fn in_arguments(arguments: impl Iterator<Item = OsString>) -> When {
        let mut arguments = arguments.take_while(|a| a != "--");
        let mut found = When::Auto;
        while let Some(a) = arguments.next() {
            let value = match a.to_str() {
                Some("--color") => arguments.next(),
                Some(a) => a.strip_prefix("--color=").map(OsString::from),
                None => None,
            };
            let known = |v: OsString| <When as clap::ValueEnum>::from_str(v.to_str()?, false).ok();
            found = value.and_then(known).unwrap_or(found);
        }
        found
    }

    /// From here on it applies to all output of this process.
    pub fn set(self) {
        match self {
            When::Auto => ColorChoice::Auto,
            When::Always => ColorChoice::Always,
            When::Never => ColorChoice::Never,
        }
        .write_global();
    }

    /// For clap's own help and errors.
    pub fn of_clap(self) -> clap::ColorChoice {
        match self {
            When::Always => clap::ColorChoice::Always,
            When::Never => clap::ColorChoice::Never,
            // Decided for each stream separately if one of them may have colors.
            When::Auto if terminal::table::wants_color(stdout().is_terminal() || stderr().is_terminal()) => {
                clap::ColorChoice::Auto
            }
            When::Auto => clap::ColorChoice::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> When {
        When::in_arguments(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_choice_is_found_wherever_it_stands() {
        assert_eq!(found("show a.doorbell"), When::Auto);
        assert_eq!(found("--color always show"), When::Always);
        assert_eq!(found("show a --color=never"), When::Never);
        assert_eq!(found("show --color"), When::Auto);
        assert_eq!(found("show --color pink"), When::Auto);
        assert_eq!(found("record -- ls --color never"), When::Auto);
    }
}
