//! The commands in `doorbell --help`, under headings. (clap has headings for options but not for commands.)

use crate::help;
use std::fmt::Write;

/// A reader's purposes, and the commands for each, in the order in which a user meets them.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Record a program, explain a recording",
        &["record", "attach", "save", "top", "show", "why", "export", "report", "diff", "redact"],
    ),
    ("Fix its locks", &["plan", "run"]),
    ("Measure", &["bench", "compare", "calibrate", "soak", "selfbench"]),
    ("Fill GPU memory from files", &["files"]),
    ("This machine", &["doctor", "demo", "sample", "selftest"]),
    ("Shell", &["completions", "man"]),
    ("Experimental", &["nvme"]),
];

/// The same command line, whose help has its commands in groups.
pub fn grouped(command: clap::Command) -> clap::Command {
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let longest = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{header}{title}:{header:#}");
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            // The name is padded to its column while lines are broken, and gets its color afterwards.
            let line = help::wrapped(&about, &format!("  {name:longest$}  "), longest + 4);
            let _ = writeln!(text, "{}", line.replacen(name, &format!("{literal}{name}{literal:#}"), 1));
        }
        text.push('\n');
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let cli = crate::command_line();
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
        let known: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        named.sort_unstable();
        let mut sorted = known.clone();
        sorted.sort_unstable();
        assert_eq!(named, sorted, "each once");
        // These characters would be a tag of the template.
        assert!(cli.get_subcommands().all(|c| !c.get_about().unwrap().to_string().contains('{')));
    }

    #[test]
    fn help_has_the_groups_in_any_width() {
        for columns in [60, 80, 100] {
            let text = help::laid_out_for(columns, || crate::command_line().render_help().to_string());
            let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what:?} is not in:\n{text}"));
            let places = GROUPS.iter().map(|(title, _)| at(&format!("\n{title}:\n")));
            assert!(places.chain([at("\nOptions:\n"), at("\nExamples:\n")]).is_sorted(), "{text}");
            assert!(at("\n  nvme ") < at("\nOptions:\n") && text.contains("\n  completions "), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
    }
}
