//! Variants of one file: the keys that they replace, the keys that they keep, and mistakes in them.

use experiment::{Experiment, Processes, read, read_variant, variants};

const FILE: &str = r#"about = "all"
[run]
duration = "10s"
samples = 100
rounds = 12
[matrix]
bytes = ["8B", "4KiB"]
crowd.count = [0, 8]
policy = ["stock", "pi"]
[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
[[load]]
name = "crowd"
route = "host->cuda->gpu0"
bytes = "4MiB"
[compare]
baseline = "cuda"

[variant.alone]
about = "nothing runs beside it"
load = []
[variant.alone.run]
rounds = 20
samples = ""
[variant.alone.matrix]
crowd.count = ""
policy = ""
[variant.alone.compare]
baseline = ""

[variant.turned]
about = "another order"
[variant.turned.matrix]
bytes = ["64B"]
[[variant.turned.subject]]
route = "gpu0->cuda->host"
[variant.turned.compare]
baseline = "gpu0->cuda->host"
"#;

fn chosen(name: &str, sets: &[&str]) -> Experiment {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    read_variant(FILE, "x.toml", Some(name), &sets, Processes::One).unwrap_or_else(|e| panic!("{e}"))
}

fn axes(experiment: &Experiment) -> Vec<&str> {
    experiment.matrix.iter().map(|axis| axis.name.as_str()).collect()
}

#[test]
fn a_file_with_variants_is_an_experiment_by_itself() {
    let plain = read(FILE, "x.toml", &[]).unwrap();
    assert_eq!((plain.variant.as_deref(), plain.title().as_str()), (None, "x"));
    assert_eq!(axes(&plain), ["bytes", "crowd.count", "policy"]);
    assert!(!serde_json::to_string(&plain).unwrap().contains("variant"));
    let without = FILE.split("\n[variant.alone]").next().unwrap();
    assert_eq!(read(without, "x.toml", &[]).unwrap(), plain);
    let named: Vec<_> = variants(FILE, "x.toml").unwrap().into_iter().map(|v| (v.name, v.about)).collect();
    let both = [("alone", "nothing runs beside it"), ("turned", "another order")];
    assert_eq!(named, both.map(|(name, about)| (name.to_owned(), about.to_owned())));
}

#[test]
fn keys_are_replaced_one_by_one_and_an_empty_text_takes_one_out() {
    let alone = chosen("alone", &[]);
    assert_eq!((alone.about.as_str(), alone.title().as_str()), ("nothing runs beside it", "x, variant alone"));
    assert_eq!((alone.run.rounds, alone.run.samples, alone.run.duration_ns), (20, None, Some(10_000_000_000)));
    assert!(alone.loads.is_empty() && alone.compare.is_none());
    assert_eq!(axes(&alone), ["bytes"]);
    assert_eq!(alone.subjects, read(FILE, "x.toml", &[]).unwrap().subjects);
}

#[test]
fn lists_of_tables_are_replaced_as_a_whole_and_a_named_axis_is_last() {
    let turned = chosen("turned", &[]);
    assert_eq!(turned.subjects.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["gpu0->cuda->host"]);
    assert_eq!(axes(&turned), ["crowd.count", "policy", "bytes"]);
    assert_eq!(turned.loads.len(), 1);
}

#[test]
fn options_change_the_variant() {
    let turned = chosen("turned", &["gpu0->cuda->host.deadline=1ms", "matrix.policy="]);
    assert_eq!(turned.subjects[0].deadline_ns, Some(1_000_000));
    assert_eq!(axes(&turned), ["crowd.count", "bytes"]);
}

#[test]
fn a_written_experiment_keeps_its_variant() {
    let alone = chosen("alone", &[]);
    let again = read(&alone.to_toml(), "elsewhere", &[]).unwrap();
    assert_eq!(alone, again);
    assert!(serde_json::to_string(&alone).unwrap().contains(r#""variant":"alone""#));
}

#[test]
fn mistakes_are_named() {
    let of = |text: &str, name: Option<&str>, words: &[&str]| {
        let message = match read_variant(text, "x.toml", name, &[], Processes::One) {
            Ok(_) => panic!("this is read: {name:?}\n{text}"),
            Err(e) => e.to_string(),
        };
        words.iter().for_each(|word| assert!(message.contains(word), "{word:?} is not in: {message}"));
    };
    of(FILE, Some("turnd"), &["there is no variant \"turnd\"", "`turned`", "`alone`", "--variant turnd"]);
    let plain = FILE.split("\n[variant.alone]").next().unwrap();
    of(plain, Some("alone"), &["there is no variant", "has no variants"]);
    of(&FILE.replace("about = \"another order\"\n", ""), None, &["[variant.turned] has no `about`"]);
    of(&format!("{FILE}[variant.turned.sections]\n"), None, &["`sections` in [variant.turned]"]);
    of(&format!("{FILE}[variant.turned.run]\nround = 3\n"), Some("turned"), &["`round` in [run]", "`rounds`"]);
    of(&format!("variant = 3\n{plain}"), None, &["`variant` is the number 3", "[variant.NAME]"]);
    of(&format!("{FILE}[variant.\"a/b\"]\nabout = \"b\"\n"), None, &["[variant.a/b]"]);
    let set = read(FILE, "x.toml", &["variant=alone".into()]).unwrap_err().to_string();
    assert!(set.contains("--variant NAME"), "{set}");
}
