//! Every command in the README and the guides must be accepted by the command line as printed.

#[path = "../tests/pages/mod.rs"]
mod pages;

#[test]
fn every_printed_command_is_taken() {
    let all = pages::all();
    assert!(all.len() > 60, "{} commands", all.len());
    let mut wrong = Vec::new();
    for printed in &all {
        let calls = printed.calls();
        assert!(!calls.is_empty(), "{}: {}", printed.at, printed.line);
        for call in calls {
            if let Err(e) = crate::command_line().try_get_matches_from(&call) {
                wrong.push(format!("{}: {}\n{e}", printed.at, printed.line));
            }
            // Names of experiments, and values for them.
            let at = |word: &str| call.iter().position(|w| w == word);
            if at("bench") == Some(1)
                && let Some(name) = call.get(2).filter(|name| experiment::shipped_named(name).is_some())
            {
                let sets: Vec<String> = call.windows(2).filter(|w| w[0] == "--set").map(|w| w[1].clone()).collect();
                let variant = at("--variant").and_then(|at| call.get(at + 1)).map(String::as_str);
                if let Err(e) = crate::bench::read_named(name, variant, &sets, experiment::Processes::Shared) {
                    wrong.push(format!("{}: {}\n{e:#}", printed.at, printed.line));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
