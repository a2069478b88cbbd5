//! The stages that the matrix makes, and the effect of options.

use experiment::{Addresses, Arrival, Class, Cpus, Experiment, Processes, Record, What, read, read_variant};

/// In one process: its numbers are those of the text.
fn of(text: &str, sets: &[&str]) -> Experiment {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    read_variant(text, "x.toml", None, &sets, Processes::One).unwrap_or_else(|e| panic!("{e}"))
}

const TWO: &str = r#"
[run]
duration = "1s"
[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
[[subject]]
call = "launch"
sizes = "4B"
[[load]]
name = "crowd"
route = "host->cuda->gpu0"
bytes = "4MiB"
[[load]]
call = "malloc"
count = 2
"#;

#[test]
fn the_first_axis_changes_slowest() {
    let text =
        format!("{TWO}[matrix]\npolicy = [\"stock\", \"pi\"]\nbytes = [\"8B\", \"4KiB\"]\ncrowd.count = [1, 8]\n");
    let stages = of(&text, &[]).stages().unwrap();
    let points: Vec<String> =
        stages.iter().map(|s| s.point.iter().map(|(_, v)| v.as_str()).collect::<Vec<_>>().join(" ")).collect();
    let expected =
        ["stock 8B 1", "stock 8B 8", "stock 4KiB 1", "stock 4KiB 8", "pi 8B 1", "pi 8B 8", "pi 4KiB 1", "pi 4KiB 8"];
    assert_eq!(points, expected);
    let last = &stages[7];
    assert_eq!((last.number, last.run.policy.as_str(), last.loads[0].count), (7, "pi", 8));
    // Only subjects without their own sizes take those of the axis.
    assert_eq!(last.cells.iter().map(|c| c.bytes).collect::<Vec<_>>(), [4096, 4]);
    assert_eq!(last.cells[0].subject.sizes, [4096]);
    assert_eq!(last.point[0], ("policy".into(), "pi".into()));
}

#[test]
fn a_stage_without_threads_has_no_loads_and_is_there_once() {
    let matrix =
        "[matrix]\ncrowd.count = [0, 1]\ncrowd.bytes = [\"4KiB\", \"4MiB\"]\nmalloc.count = [0]\nbytes = [8]\n";
    let stages = of(&format!("{TWO}{matrix}"), &[]).stages().unwrap();
    assert_eq!(stages.len(), 3, "nothing, and one thread with each size");
    assert!(stages[0].loads.is_empty());
    let names: Vec<&str> = stages[0].point.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["crowd.count", "malloc.count", "bytes"], "the size of what does not run is not named");
    assert_eq!(stages.iter().map(|s| s.number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(stages[2].loads.iter().map(|l| (l.name.as_str(), l.bytes)).collect::<Vec<_>>(), [("crowd", 4 << 20)]);
}

#[test]
fn axes_change_what_they_name() {
    let matrix = r#"
        [matrix]
        run.class = ["fifo(80)"]
        run.cpus = "2-4,7"
        cuda.bytes = "4B..16B"
        cuda.arrival = ["paced(100us)"]
        cuda.what = ["host->ce3->gpu0", "memset"]
        crowd.rate = [1000]
        crowd.class = ["nice(19)"]
        malloc.call = ["stream"]
        "launch.cpus" = ["0"]
    "#;
    let stages = of(&format!("{TWO}{matrix}"), &[]).stages().unwrap();
    assert_eq!(stages.len(), 3 * 2);
    let (first, second) = (&stages[0], &stages[1]);
    assert_eq!(first.run.class, Class::Fifo(80));
    assert_eq!(first.run.cpus, Cpus::These(vec![2, 3, 4, 7]));
    assert_eq!(first.cells[0].subject.arrival, Arrival::Paced { period_ns: 100_000 });
    assert_eq!(first.cells[0].subject.what, What::Route("host->ce3->gpu0".into()));
    assert_eq!(second.cells[0].subject.what, What::Call("memset".into()));
    assert_eq!(first.cells[0].subject.name, "cuda", "the name stays");
    assert_eq!(stages[5].cells[0].bytes, 16);
    assert_eq!(first.cells[1].subject.cpus, Some(Cpus::These(vec![0])));
    assert_eq!((first.loads[0].rate, first.loads[0].class), (Some(1000.0), Class::Nice(19)));
    assert_eq!(first.loads[1].what, What::Call("stream".into()));
}

#[test]
fn addresses_and_arrivals_of_all_subjects_are_axes() {
    let matrix =
        "[matrix]\nbytes = [\"8B\"]\naddresses = [\"fixed\", \"random\"]\narrival = [\"closed(1)\", \"paced(2ms)\"]\n";
    let all = of(&format!("{TWO}{matrix}"), &[]);
    let stages = all.stages().unwrap();
    let of_stage = |n: usize| -> Vec<(Addresses, Arrival)> {
        stages[n].cells.iter().map(|cell| (cell.subject.addresses, cell.subject.arrival)).collect()
    };
    let paced = Arrival::Paced { period_ns: 2_000_000 };
    assert_eq!(stages.len(), 4);
    assert!(of_stage(0).iter().all(|both| *both == (Addresses::Fixed, Arrival::Closed { depth: 1 })));
    assert!(of_stage(3).len() > 1 && of_stage(3).iter().all(|both| *both == (Addresses::Random, paced)));
    assert_eq!(of(&all.to_toml(), &[]).stages().unwrap(), stages);
    let wrong = read(&format!("{TWO}[matrix]\nbytes = [\"8B\"]\naddresses = [\"rand\"]\n"), "x.toml", &[])
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("rand") && wrong.contains("`random`"), "{wrong}");
}

#[test]
fn an_axis_may_choose_the_subject() {
    let text = "[run]\nsamples = 1\n[[subject]]\ncall = \"launch\"\n[[load]]\nname = \"other\"\nbytes = 4\n\
                [matrix]\nother.what = [\"malloc\", \"host[pageable]->cuda->gpu0\"]\n";
    let all = of(text, &[]);
    assert_eq!(all.loads[0].what, What::Call("malloc".into()));
    let stages = all.stages().unwrap();
    assert_eq!(stages[1].loads[0].what, What::Route("host[pageable]->cuda->gpu0".into()));
    assert_eq!(of(&all.to_toml(), &[]).stages().unwrap(), stages);
}

#[test]
fn a_call_needs_no_size() {
    let stages = of("[run]\nsamples = 1\n[[subject]]\ncall = \"graph(20)\"\n", &[]).stages().unwrap();
    assert_eq!((stages.len(), stages[0].cells.len(), stages[0].cells[0].bytes), (1, 1, 0));
}

#[test]
fn defaults() {
    let all = of("[run]\nsamples = 1\n[[subject]]\ncall = \"launch\"\n", &[]);
    let run = &all.run;
    assert_eq!((run.seed, run.rounds, run.repeats, run.counters_every), (1, 10, 1, 0));
    assert_eq!((run.timeout_ns, run.noise_ns, run.policy.as_str()), (1_000_000_000, 200_000_000, "stock"));
    assert_eq!((run.class, &run.cpus, all.verify.every), (Class::Other, &Cpus::Any, 16));
    assert_eq!(all.subjects[0].arrival, Arrival::Closed { depth: 1 });
    assert!(all.compare.is_none() && all.asserts.is_empty() && all.matrix.is_empty());
}

#[test]
fn options_stand_for_lines() {
    let all = of(
        TWO,
        &[
            "name=other",
            "run.repeats=3",
            "run.cpus=0,2-3",
            "verify.every=1",
            "compare.baseline=cuda",
            "compare.metric=p99.9",
            "cuda.sizes=8B,4KiB",
            "cuda.deadline = 50us",
            "launch.call=graph(20)",
            "crowd.rate=1000/s",
            "crowd.count=0",
            "malloc.route=host->ce3->gpu0",
            "host->ce3->gpu0.bytes=8B",
            "matrix.run.class=other,fifo(80)",
        ],
    );
    assert_eq!((all.name.as_str(), all.run.repeats, all.verify.every), ("other", 3, 1));
    assert_eq!(all.run.cpus, Cpus::These(vec![0, 2, 3]));
    assert_eq!(all.subjects[0].sizes, [8, 4096]);
    assert_eq!(all.subjects[0].deadline_ns, Some(50_000));
    assert_eq!(all.subjects[1].what, What::Call("graph(20)".into()));
    assert_eq!((all.loads[0].rate, all.loads[0].count), (Some(1000.0), 0));
    assert_eq!((&all.loads[1].what, all.loads[1].bytes), (&What::Route("host->ce3->gpu0".into()), 8));
    let classes: Vec<Class> = all.stages().unwrap().iter().map(|s| s.run.class).collect();
    assert_eq!(classes, [Class::Other, Class::Fifo(80)]);
}

#[test]
fn options_reach_names_with_dots_and_equal_signs() {
    let text = "[run]\nsamples = 1\n[[subject]]\nroute = \"host->ce3[release=word]->gpu0\"\nsizes = \"8B\"\n\
                [[subject]]\nname = \"v1.2\"\ncall = \"launch\"\n[matrix]\nv1.2.arrival = [\"closed(1)\"]\n";
    let all = of(
        text,
        &[
            "host->ce3[release=word]->gpu0.sizes=4B",
            "v1.2.rests=true",
            "matrix.v1.2.arrival=closed(1),closed(2)",
            "matrix.host->ce3[release=word]->gpu0.bytes=8B,16B",
        ],
    );
    assert_eq!((all.subjects[0].sizes.as_slice(), all.subjects[1].rests), (&[4][..], true));
    assert_eq!(all.matrix[0].values, ["closed(1)", "closed(2)"]);
    assert_eq!(all.matrix[1].name, "host->ce3[release=word]->gpu0.bytes");
    assert_eq!(all.stages().unwrap().len(), 4);
    assert_eq!(of(&all.to_toml(), &["name=x"]), all);
}

#[test]
fn a_subject_has_cells_only_with_its_loads() {
    let text = "
[run]
duration = \"1s\"
patience = \"2s\"
[matrix]
loads = [\"none\", \"a\", \"a + b\", \"b\"]
[[subject]]
call = \"launch\"
[[subject]]
call = \"graph(1)\"
beside = \"none + b\"
[[load]]
name = \"a\"
call = \"stream\"
[[load]]
name = \"b\"
call = \"malloc\"
";
    let all = of(text, &[]);
    let cells: Vec<usize> = all.stages().unwrap().iter().map(|stage| stage.cells.len()).collect();
    assert_eq!((cells, all.run.patience_ns), (vec![2, 1, 2, 2], Some(2_000_000_000)));
    assert_eq!(of(&all.to_toml(), &["name=x"]), all);
    let alone = text.replace("call = \"launch\"", "call = \"launch\"\nbeside = \"a\"");
    let wrong = experiment::read(&alone.replace("none + b", "a"), "x.toml", &[]).unwrap_err();
    assert!(wrong.to_string().contains("no subject is measured at loads=none"), "{wrong}");
    let wrong = experiment::read(&text.replace("none + b", "none + c"), "x.toml", &[]).unwrap_err();
    assert!(wrong.to_string().contains("there is no load \"c\""), "{wrong}");
}

#[test]
fn options_may_have_quotes_and_brackets_as_in_the_file() {
    let sets = [
        "run.duration=\"2s\"",
        "matrix.policy=[\"stock\", 'pi']",
        "cuda.sizes=['8B', 4096]",
        "matrix.crowd.count=[0, 8]",
    ];
    let all = of(TWO, &sets);
    assert_eq!(all.run.duration_ns, Some(2_000_000_000));
    assert_eq!(all.policies(), ["stock", "pi"]);
    assert_eq!((all.subjects[0].sizes.as_slice(), all.stages().unwrap().len()), (&[8, 4096][..], 4));
}

#[test]
fn policies_have_one_text_each() {
    let more =
        "[matrix]\npolicy = [\"stock\", \"pi, phase-fair\"]\nbytes = 8\n[compare]\nbaseline = \"pi,phase-fair\"\n";
    let all = of(&format!("{TWO}{more}"), &[]);
    let stages = all.stages().unwrap();
    assert_eq!(all.policies(), ["stock", "pi+phase-fair"]);
    assert_eq!(all.compare.unwrap().baseline, "pi+phase-fair");
    assert_eq!((stages[1].run.policy.as_str(), stages[1].point[0].1.as_str()), ("pi+phase-fair", "pi+phase-fair"));
}

#[test]
fn an_option_without_a_value_takes_the_key_out() {
    let more = "[matrix]\npolicy = [\"stock\", \"pi\"]\nbytes = 8\n[compare]\nbaseline = \"stock\"\nmetric = \"max\"\n";
    let text = format!("{TWO}{more}");
    let all =
        of(&text, &["compare.baseline=", "matrix.policy=traced", "launch.sizes=", "run.samples=5", "run.duration="]);
    assert!(all.compare.is_none());
    assert_eq!((all.policies(), all.run.duration_ns, all.run.samples), (vec!["traced".to_owned()], None, Some(5)));
    assert!(all.subjects[1].sizes.is_empty());
    let all = of(&text, &["compare.baseline=", "matrix.policy="]);
    assert_eq!((all.policies(), all.matrix.len()), (vec!["stock".to_owned()], 1));
}

#[test]
fn later_options_win() {
    assert_eq!(of(TWO, &["cuda.sizes=8B", "run.rounds=3", "run.rounds=4"]).run.rounds, 4);
}

#[test]
fn a_stage_that_is_recorded_has_a_process_of_its_own() {
    let text = "[run]\nsamples = 1\nrepeats = 3\n[[subject]]\ncall = \"launch\"\n\
                [matrix]\nrun.record = [\"no\", \"commands\"]\nrun.class = [\"other\", \"fifo(80)\"]\n";
    let all = of(text, &[]);
    let recorded: Vec<Record> = all.stages().unwrap().iter().map(|stage| stage.run.record).collect();
    assert_eq!(recorded, [Record::No, Record::No, Record::Commands, Record::Commands]);
    assert_eq!(all.estimate().unwrap().processes, 3 * (1 + 2));
}

#[test]
fn an_axis_selects_loads_single_and_combined() {
    let text = format!(
        "{TWO}[matrix]\nloads = [\"none\", \"crowd\", \"crowd + malloc\", \"all\"]\ncrowd.bytes = [4096, 8192]\n"
    );
    let stages = of(&text, &["run.noise=0s", "cuda.bytes=", "matrix.bytes=8"]).stages().unwrap();
    let loads = |n: usize| stages[n].loads.iter().map(|l| (l.name.as_str(), l.count, l.bytes)).collect::<Vec<_>>();
    // Without the load its size does not matter: there is one such stage.
    assert_eq!(stages.len(), 7, "{:?}", stages.iter().map(|s| &s.point).collect::<Vec<_>>());
    assert_eq!(loads(0), []);
    assert_eq!((loads(1), loads(2)), (vec![("crowd", 1, 4096)], vec![("crowd", 1, 8192)]));
    assert_eq!(loads(3), [("crowd", 1, 4096), ("malloc", 2, 0)]);
    assert_eq!((loads(5), loads(6)), (loads(3), loads(4)));
    // The number of threads of a load that is left out does not matter either.
    let text = format!("{TWO}[matrix]\nbytes = [8]\ncrowd.count = [1, 8]\nloads = [\"malloc\", \"crowd\"]\n");
    let points: Vec<usize> = of(&text, &[]).stages().unwrap().iter().map(|s| s.point.len()).collect();
    assert_eq!(points, [2, 3, 3]);
    let wrong = read(&format!("{TWO}[matrix]\nbytes = [8]\nloads = [\"crowd + mallok\"]\n"), "x.toml", &[]);
    let wrong = wrong.unwrap_err().to_string();
    assert!(wrong.contains("no load \"mallok\"") && wrong.contains("did you mean `malloc`"), "{wrong}");
}
