//! The rules that every subcommand and every argument keeps, checked over all of them.

use clap::{Arg, ArgAction, Command};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Every visible subcommand, with its full name.
fn all() -> Vec<(String, Command)> {
    fn collect(command: &Command, name: &str, into: &mut Vec<(String, Command)>) {
        into.push((name.to_owned(), command.clone()));
        for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
            collect(sub, &format!("{name} {}", sub.get_name()), into);
        }
    }
    let mut cli = crate::command_line().disable_help_subcommand(true);
    cli.build();
    let mut commands = Vec::new();
    collect(&cli, "doorbell", &mut commands);
    assert!(commands.len() > 20, "{} commands", commands.len());
    commands
}

/// Every visible argument, with its command.
fn arguments() -> Vec<(String, Arg)> {
    let of = |(name, command): (String, Command)| -> Vec<(String, Arg)> {
        let seen = command.get_arguments().filter(|a| !a.is_hide_set());
        seen.map(|a| (format!("{name}: {}", a.get_id()), a.clone())).collect()
    };
    all().into_iter().flat_map(of).collect()
}

fn value_name(arg: &Arg) -> Option<String> {
    arg.get_value_names().map(|names| names.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(" "))
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn help(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn clap_finds_no_mistake() {
    crate::command_line().debug_assert();
}

#[test]
fn every_command_has_a_text_and_an_example() {
    for (name, command) in all() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(
            about.len() > 10 && about.starts_with(char::is_uppercase) && !about.ends_with('.'),
            "{name}: {about:?}"
        );
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(
            after.starts_with("Examples:\n") && after.contains(&format!("doorbell {}", verb(&name))),
            "{name}: {after}"
        );
    }
}

/// `doorbell selfbench tap`: `selfbench tap`.
fn verb(name: &str) -> &str {
    name.strip_prefix("doorbell").unwrap_or(name).trim_start()
}

#[test]
fn every_argument_has_a_text_and_a_value_has_an_example() {
    let mut without = Vec::new();
    for (name, arg) in arguments() {
        let text = help(&arg);
        assert!(text.len() > 3 && text.starts_with(char::is_uppercase) && !text.ends_with('.'), "{name}: {text:?}");
        if !takes_value(&arg) {
            continue;
        }
        let named = value_name(&arg).filter(|v| v.chars().all(|c| c.is_ascii_uppercase() || "_|=".contains(c)));
        assert!(named.is_some(), "{name}: value name {:?}", value_name(&arg));
        let shown = !arg.get_default_values().is_empty()
            || !arg.get_possible_values().is_empty()
            || ["for example", "such as", "[default:"].iter().any(|w| text.contains(w))
            // A recording, if the command takes only that.
            || arg.is_positional() && named.as_deref() == Some("FILE");
        if !shown {
            without.push(format!("{name}: {text:?}"));
        }
    }
    assert!(without.is_empty(), "no default, choice or example:\n{}", without.join("\n"));
}

#[test]
fn one_unit_for_each_flag() {
    for (name, arg) in arguments().into_iter().filter(|(_, a)| takes_value(a)) {
        let value = value_name(&arg).unwrap_or_default();
        assert!(
            !["SECONDS", "S", "MS", "NS", "MICROSECONDS", "MIB", "MB", "KIB", "FOLDER", "PATH"]
                .contains(&value.as_str()),
            "{name}: {value}: times are TIME, sizes SIZE, directories DIR"
        );
        for default in arg.get_default_values().iter().filter_map(|d| d.to_str()) {
            match value.as_str() {
                crate::units::TIME => assert!(crate::units::time(default).is_ok(), "{name}: {default}"),
                crate::units::SIZE => assert!(crate::units::size(default).is_ok(), "{name}: {default}"),
                _ => {}
            }
        }
        // Times are parsed by `units`: without a unit they are refused.
        if value == crate::units::TIME {
            let words = |v: &str| {
                let command = name.split(':').next().unwrap_or_default();
                let mut words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
                words.push(format!("--{}={v}", arg.get_long().unwrap_or_default()).into());
                words
            };
            let refused = crate::command_line().try_get_matches_from(words("7"));
            let text = refused.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(text.contains("needs a unit"), "{name}: {text}");
        }
    }
}

/// Names with the same meaning everywhere: their value, and their short form.
const NAMES: [(&str, Option<&str>, Option<char>); 12] = [
    ("json", None, None),
    ("force", None, None),
    ("list", None, None),
    ("quiet", None, Some('q')),
    ("duration", Some("TIME"), None),
    ("timeout", Some("TIME"), None),
    ("seed", Some("N"), None),
    ("rounds", Some("N"), None),
    ("cpu", Some("N"), None),
    ("gpu", Some("GPU"), None),
    ("limit", Some("N"), None),
    ("bytes", Some("SIZE"), None),
];

#[test]
fn the_same_names_for_the_same_things() {
    let mut values: BTreeMap<String, (String, Option<String>, bool)> = BTreeMap::new();
    let mut shorts: BTreeMap<char, String> = BTreeMap::new();
    for (name, arg) in arguments() {
        let Some(long) = arg.get_long() else {
            assert!(arg.is_positional(), "{name} has no long form");
            continue;
        };
        if let Some(short) = arg.get_short() {
            let other = shorts.entry(short).or_insert_with(|| long.to_owned());
            assert_eq!(other, long, "{name}: -{short}");
        }
        if let Some((_, value, short)) = NAMES.iter().find(|n| n.0 == long) {
            assert_eq!(takes_value(&arg), value.is_some(), "{name}");
            assert_eq!(value_name(&arg).filter(|_| takes_value(&arg)).as_deref(), *value, "{name}");
            assert_eq!(arg.get_short(), *short, "{name}");
        }
        // (An option whose value may be left out counts as one that takes none.)
        let takes_value = takes_value(&arg) && arg.get_num_args().is_none_or(|n| n.min_values() > 0);
        let value = value_name(&arg).filter(|_| takes_value);
        // A directory is a file to be named, too.
        let value = value.map(|v| if v == "DIR" { "FILE".to_owned() } else { v });
        let first = values.entry(long.to_owned()).or_insert_with(|| (name.clone(), value.clone(), takes_value));
        assert_eq!((&first.1, first.2), (&value, takes_value), "--{long}: {} and {name}", first.0);
    }
}

#[test]
fn out_names_a_file_and_never_overwrites_by_itself() {
    for (name, command) in all() {
        let find = |long: &str| command.get_arguments().find(|a| a.get_long() == Some(long));
        assert!(find("output").is_none(), "{name}: --output is --out");
        let Some(out) = find("out") else { continue };
        assert_eq!(out.get_short(), Some('o'), "{name}");
        assert!(matches!(value_name(out).as_deref(), Some("FILE" | "DIR")), "{name}");
        let force = find("force").unwrap_or_else(|| panic!("{name}: --out without --force"));
        assert!(!takes_value(force), "{name}");
    }
    // No flag prints to standard output by taking `-`.
    for (name, arg) in arguments() {
        assert!(!help(&arg).contains("`-`"), "{name}: {}", help(&arg));
    }
}

#[test]
fn programs_stand_behind_the_options_with_or_without_dashes() {
    for (command, more) in [("record", &[][..]), ("run", &["--lock-policy", "pi"]), ("selfbench tap", &[])] {
        for dashes in [&[][..], &["--"]] {
            let mut words: Vec<&str> = vec!["doorbell"];
            words.extend(command.split(' '));
            words.extend(more);
            words.extend(dashes);
            words.extend(["./app", "--locks", "-o", "--", "--color", "x"]);
            let mut found =
                crate::command_line().try_get_matches_from(&words).unwrap_or_else(|e| panic!("{words:?}: {e}"));
            let mut sub = found.remove_subcommand().unwrap().1;
            while let Some((_, deeper)) = sub.remove_subcommand() {
                sub = deeper;
            }
            let program: Vec<OsString> = sub.remove_many("command").unwrap().collect();
            assert_eq!(program, ["./app", "--locks", "-o", "--", "--color", "x"], "{words:?}");
        }
        let mut words: Vec<&str> = vec!["doorbell"];
        words.extend(command.split(' '));
        words.extend(["--no-such-option", "./app"]);
        assert!(crate::command_line().try_get_matches_from(&words).is_err(), "{words:?}: a typing error is no program");
    }
}

#[test]
fn every_command_takes_color() {
    for (name, _) in all() {
        let mut words: Vec<OsString> = name.split(' ').map(OsString::from).collect();
        words.extend(["--color", "pink"].map(OsString::from));
        let e = crate::command_line().try_get_matches_from(words).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains("pink") && e.contains("always"), "{name}: {e}");
    }
}

/// Words that occur on a command line, and some that do not.
fn word() -> impl Strategy<Value = OsString> {
    let mut known: Vec<String> =
        ["--", "-", "", "-o", "-q", "=", "8MiB", "5s", "stock", "a.toml"].map(String::from).to_vec();
    for (name, command) in all() {
        known.extend(name.split(' ').map(str::to_owned));
        let long = command.get_arguments().filter_map(|a| a.get_long().map(str::to_owned)).collect::<Vec<_>>();
        known.extend(long.iter().map(|l| format!("--{l}")));
        known.extend(long.iter().map(|l| format!("--{l}=1")));
    }
    let bytes = any::<Vec<u8>>().prop_map(std::os::unix::ffi::OsStringExt::from_vec);
    prop_oneof![4 => proptest::sample::select(known).prop_map(OsString::from), 1 => bytes, 1 => ".{0,12}".prop_map(OsString::from)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_command_line_panics(words in proptest::collection::vec(word(), 0..8)) {
        let words: Vec<OsString> = std::iter::once("doorbell".into()).chain(words).collect();
        crate::color::When::in_arguments(words.iter().skip(1).cloned());
        crate::failure::of_wrong_arguments(words.iter().cloned());
        let _ = crate::command_line().try_get_matches_from(&words);
    }

    #[test]
    fn no_value_with_a_unit_panics(text in "[0-9a-zA-Zµ., :+-]{0,16}", any in ".{0,8}") {
        for text in [&text, &any] {
            if let Ok(t) = crate::units::time(text) {
                prop_assert!(!t.is_zero());
            }
            if let Ok(bytes) = crate::units::size(text) {
                prop_assert!(bytes > 0);
            }
        }
    }
}
