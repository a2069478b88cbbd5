//! The tables of the reference page.

use crate::declared::{Declared, Kind, Typed, parts};
use std::fmt::Write as _;

const BEGIN: &str = "<!-- from doorbell.h: ";
const END: &str = "<!-- end of doorbell.h -->";

/// The page with what stands between its markers made anew.
///
/// # Panics
/// Where a marker is missing.
pub fn filled(page: &str, all: &[Declared]) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(BEGIN) {
        let line = at + rest[at..].find('\n').expect("the marker's line");
        let what = rest[at + BEGIN.len()..line].trim_end_matches(" -->");
        text.push_str(&rest[..=line]);
        text.push_str(&match what {
            "calls" => calls(all),
            "codes" => codes(all),
            other => panic!("{BEGIN}{other}: calls or codes"),
        });
        let end = rest.find(END).expect("the end of what is from doorbell.h");
        text.push_str(END);
        rest = &rest[end + END.len()..];
    }
    text + rest
}

fn calls(all: &[Declared]) -> String {
    let mut text = String::from("| call | what it does | cost | errors |\n|---|---|---|---|\n");
    for one in all {
        let Kind::Function { parameters, .. } = &one.kind else { continue };
        let (about, [cost, threads, errors]) = parts(&one.about);
        // Nearly all begin with the session.
        let parameters: Vec<String> = parameters.iter().filter(|one| one.of != "doorbell_t *").map(parameter).collect();
        let said = threads.filter(|threads| *threads != "any." && ![cost, errors].contains(&Some(*threads)));
        let cost = [cost, said.map(|_| "Threads:"), said].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let row = [first_sentence(about), &cost, errors.unwrap_or("none")].map(cell);
        let name = one.name.trim_start_matches("doorbell_");
        let _ = writeln!(text, "| `{name}({})` | {} |", parameters.join(", "), row.join(" | "));
    }
    text
}

fn codes(all: &[Declared]) -> String {
    let mut text = String::from("| number | code | meaning |\n|--:|---|---|\n");
    let first = all.iter().position(|one| one.name == "DOORBELL_OK").expect("codes");
    let codes = all[first..].iter().take_while(|one| matches!(one.kind, Kind::Constant { .. }));
    for one in codes {
        if let Kind::Constant { value } = &one.kind {
            let _ =
                writeln!(text, "| {value} | `{}` | {} |", one.name.trim_start_matches("DOORBELL_"), cell(&one.about));
        }
    }
    text
}

/// Answers are passed by their address.
fn parameter(Typed { of, name }: &Typed) -> String {
    let is_answer =
        of.ends_with('*') && !of.starts_with("const") && !["void *", "char *", "doorbell_t *"].contains(&of.as_str());
    if is_answer { format!("&{name}") } else { name.clone() }
}

fn first_sentence(text: &str) -> &str {
    // Not the point of "e.g." or of "doorbell_t.kind".
    let end = text.match_indices(". ").find(|(at, _)| text[at + 2..].starts_with(|c: char| c.is_uppercase()));
    end.map_or(text, |(at, _)| &text[..=at])
}

/// Without what each row would repeat.
fn cell(text: &str) -> String {
    text.replace("$DOORBELL_", "$")
        .replace("DOORBELL_", "")
        .replace('$', "$DOORBELL_")
        .replace("doorbell_", "")
        .replace('|', "\\|")
        .trim_end_matches('.')
        .to_owned()
}
