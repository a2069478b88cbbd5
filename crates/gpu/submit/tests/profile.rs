//! Ranges contain every size once, a choice exists for each, a written profile is read back as the same, and
//! no text causes a panic.

use proptest::prelude::*;
use proptest::sample::select;
use submit::route_choice::{
    Ask, Direction, Facts, Figure, Key, LoadError, Metric, Places, Plan, Point, Profile, Range, Refused, Undecided,
};

const ROUTES: [&str; 4] =
    ["host->ce2->gpu0", "host->bar1[flush]->gpu0", "host->inline->gpu0", "host->cuda[graph,polled]->gpu0"];

fn facts() -> Facts {
    Facts {
        doorbell: "0.1.0".into(),
        gpu: "NVIDIA H200".into(),
        uuid: "GPU-4f".into(),
        driver: "580.159.04".into(),
        cpu: "Intel(R) Xeon(R) \"8468\" \\".into(),
        nodes: "0-1".into(),
        kernel: "6.18.5".into(),
    }
}

fn figure(route: &str, ns: u64) -> Figure {
    Figure { route: route.into(), ns, interval: Some((ns - ns / 100, ns + ns / 100)), samples: 1000 }
}

/// An H200's crossover, as measured.
fn profile() -> Profile {
    let points = [
        (4096, 1340, 2810, 4570),
        (65_536, 4200, 8560, 5830),
        (81_920, 5200, 10_100, 6100),
        (131_072, 7260, 14_700, 7020),
    ];
    let points = points.map(|(bytes, bar1, inline, ce)| Point {
        bytes,
        figures: vec![figure(ROUTES[0], ce), figure(ROUTES[2], inline), figure(ROUTES[1], bar1)],
    });
    let range = |from, to, route: &str| Range { from, to, route: route.into(), by: Metric::P50 };
    let key = Key {
        direction: Direction::ToGpu,
        memory: "pinned".into(),
        places: Places::Same,
        batch: 1,
        metric: Metric::P50,
        load: "idle".into(),
    };
    let ranges = vec![range(1, Some(106_496), ROUTES[1]), range(106_497, None, ROUTES[0])];
    let plan = Plan { key, ranges, points: points.into(), undecided: Vec::new() };
    Profile { functional: false, taken: "2026-11-22T22:45:00Z".into(), facts: facts(), plans: vec![plan] }
}

fn ask(bytes: u64) -> Ask<'static> {
    Ask::of(Direction::ToGpu, bytes)
}

#[test]
fn the_reason_has_the_figure_the_next_best_and_the_border() {
    let why = |bytes| profile().choose(&ask(bytes)).unwrap().why;
    assert_eq!(
        why(4096),
        "4 KiB: host->bar1[flush]->gpu0, p50 1.34 us; next host->inline->gpu0 2.81 us; border at 104 KiB (80 KiB .. 128 KiB)"
    );
    let near = why(70_000);
    assert!(near.contains("p50 4.20 us at 64 KiB") && near.contains("next host->ce2->gpu0 5.83 us"), "{near}");
    let above = why(1 << 20);
    assert!(above.contains("host->ce2->gpu0, p50 7.02 us at 128 KiB; next host->bar1[flush]->gpu0 7.26 us"), "{above}");
    assert!(above.contains("border at 104 KiB") && above.contains("nothing above 128 KiB was measured"), "{above}");
}

#[test]
fn a_slower_route_that_is_preferred_says_why() {
    let mut kept = profile();
    kept.plans[0].ranges = vec![Range { from: 1, to: None, route: ROUTES[0].into(), by: Metric::P50 }];
    kept.plans[0].points = vec![Point { bytes: 8, figures: vec![figure(ROUTES[0], 1040), figure(ROUTES[1], 1000)] }];
    let why = kept.choose(&ask(8)).unwrap().why;
    assert!(why.contains("4.0 % less") && why.contains("leaves the CPU") && why.contains("for every size"), "{why}");
}

#[test]
fn a_software_gpu_has_no_figures() {
    let why = Profile { functional: true, ..profile() }.choose(&ask(4096)).unwrap().why;
    assert!(why.contains("no speed") && !why.contains(" us") && !why.contains("p50"), "{why}");
}

#[test]
fn what_was_not_measured_is_answered_by_the_nearest_and_said() {
    let of = |metric, batch, load: &str, route: &str| {
        let (direction, memory, load) = (Direction::ToGpu, "pinned".into(), load.into());
        let key = Key { direction, memory, places: Places::Same, batch, metric, load };
        let ranges = vec![Range { from: 1, to: None, route: route.into(), by: metric }];
        Plan { key, ranges, points: Vec::new(), undecided: Vec::new() }
    };
    let mut moving = of(Metric::P50, 1, "idle", "a->moving->b");
    moving.key.places = Places::Others;
    let plans = vec![
        of(Metric::Max, 1, "idle", "a->max->b"),
        of(Metric::P50, 1, "idle", "a->one->b"),
        of(Metric::P50, 16, "idle", "a->sixteen->b"),
        of(Metric::P50, 1, "crowd", "a->crowd->b"),
        moving,
    ];
    let profile = Profile { plans, ..profile() };
    let choose = |ask: Ask<'_>| profile.choose(&ask).unwrap();
    assert_eq!(choose(Ask { metric: Metric::Max, ..ask(8) }).route, "a->max->b");
    let p999 = choose(Ask { metric: Metric::P999, ..ask(8) });
    assert!(
        p999.route == "a->one->b" && p999.why.contains("not measured for metric p99.9, this is for p50"),
        "{p999:?}"
    );
    let batch = choose(Ask { batch: 64, ..ask(8) });
    assert!(batch.route == "a->sixteen->b" && batch.why.contains("batches of 64, this is for 16"), "{batch:?}");
    assert_eq!(choose(Ask { batch: 15, ..ask(8) }).route, "a->one->b");
    assert_eq!(choose(Ask { load: "crowd", metric: Metric::Max, ..ask(8) }).route, "a->crowd->b");
    assert_eq!(choose(Ask { load: "other", ..ask(8) }).route, "a->one->b");
    let moving = Ask { places: Places::Others, ..ask(8) };
    assert_eq!((choose(moving).route.as_str(), choose(ask(8)).route.as_str()), ("a->moving->b", "a->one->b"));
    let batch = choose(Ask { batch: 16, ..moving });
    assert!(batch.route == "a->sixteen->b" && batch.why.contains("places: others, this is for same"), "{batch:?}");
    let none = profile.choose(&Ask { memory: "pageable", ..ask(8) }).unwrap_err().to_string();
    assert!(none.contains("pageable") && none.contains("to-gpu with pinned"), "{none}");
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line() {
    let good = profile().to_toml();
    assert_eq!(Profile::parse(&good, "p.toml").as_ref(), Ok(&profile()));
    let says = |from: &str, to: &str, words: &[&str]| {
        assert!(good.contains(from), "{from}");
        let bad = good.replacen(from, to, 1);
        let line = good.lines().position(|l| l.contains(from.lines().next().unwrap())).unwrap() + 1;
        let e = Profile::parse(&bad, "p.toml").unwrap_err().to_string();
        assert!(e.starts_with(&format!("p.toml:{line}:")), "line {line}: {e}");
        assert!(words.iter().all(|word| e.contains(word)), "{e}");
    };
    says("version = 1", "version = 2", &["version 2", "reads version 1", "doorbell calibrate"]);
    says("functional = false", "functional = \"no\"", &["boolean"]);
    says("taken = ", "token = ", &["token", "taken"]);
    says("\"NVIDIA H200\"", "\"\"", &["empty", "not known"]);
    says("direction = \"to-gpu\"", "direction = \"up\"", &["\"up\"", "`from-gpu`"]);
    says("batch = 1", "batch = 0", &["0 does not fit", "from 1"]);
    says("metric = \"p50\"", "metric = \"p99\"", &["\"p99\"", "`p99.9`"]);
    says("memory = \"pinned\"", "memory = \" pinned\"", &["no name"]);
    says("from = \"106497B\"", "from = \"106498B\"", &["leaves sizes out", "106497B"]);
    says("from = \"106497B\"", "from = \"104KiB\"", &["overlaps", "106497B"]);
    says("from = \"106497B\", ", "from = \"106497B\", to = \"8B\", ", &["ends before"]);
    says("from = \"106497B\", route = \"host->ce2->gpu0\"", "from = \"106497B\", route = \"ce2\"", &["no route"]);
    says("bytes = \"80KiB\"", "bytes = \"64KiB\"", &["does not follow"]);
    says("bytes = \"80KiB\"", "bytes = \"80KB\"", &["KiB is 1024"]);
    says("ns = 1340, low = 1327", "ns = 1340, low = 13270", &["no interval"]);
    let headless = good.replacen("version = 1", "", 1);
    assert!(Profile::parse(&headless, "p.toml").unwrap_err().to_string().contains("no `version`"));
    let twice = format!("{good}{}", &good[good.find("[[plan]]").unwrap()..]);
    assert!(Profile::parse(&twice, "p.toml").unwrap_err().to_string().contains("a second plan"));
    let cut = good.replacen("  { from = \"106497B\", route = \"host->ce2->gpu0\", by = \"p50\" },\n", "", 1);
    assert!(Profile::parse(&cut, "p.toml").unwrap_err().to_string().contains("no range holds sizes from 106497B on"));
}

#[test]
fn a_file_is_written_whole_and_one_that_is_missing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let missing = Profile::load(&path).unwrap_err().to_string();
    assert!(missing.contains("No such file"), "{missing}");
    profile().save(&path).unwrap();
    assert_eq!(Profile::load(&path).unwrap(), profile());
    assert_eq!(Profile::load_for(&path, &facts()).unwrap(), profile());
    let newer = Facts { driver: "590.1".into(), ..facts() };
    let stale = Profile::load_for(&path, &newer).unwrap_err().to_string();
    assert!(stale.contains("p.toml") && stale.contains("driver was \"580.159.04\" and is \"590.1\""), "{stale}");
    // A profile of the software GPU is refused for a real one, whatever its other facts are.
    Profile { functional: true, ..profile() }.save(&path).unwrap();
    assert!(matches!(Profile::load_for(&path, &facts()), Err(Refused::Functional(_))));
    let soft = Facts { gpu: Facts::SOFT.into(), ..facts() };
    Profile { functional: true, facts: soft.clone(), ..profile() }.save(&path).unwrap();
    assert!(Profile::load_for(&path, &soft).is_ok());
    std::fs::write(&path, "version = 1\n").unwrap();
    assert!(matches!(Profile::load(&path), Err(LoadError::Text(_))));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z0-9=_-]{1,8}", 1 => "[a-z][a-zA-Z\"\\\\ü. ]{0,6}[a-z]"]
}

fn plan() -> impl Strategy<Value = Plan> {
    let places = select(&Places::ALL[..]);
    let key = (select(&Direction::ALL[..]), text(), places, 1..5000u32, select(&Metric::ALL[..]), text());
    let key = key.prop_map(|(direction, memory, places, batch, metric, load)| Key {
        direction,
        memory,
        places,
        batch,
        metric,
        load,
    });
    let borders = proptest::collection::btree_set(1..u64::MAX - 1, 0..6);
    let figure = (select(&ROUTES[..]), 0..1u64 << 40, proptest::option::of((0..1000u64, 0..1000u64)), 1..1u64 << 40);
    let figure = figure.prop_map(|(route, ns, interval, samples)| {
        let interval = interval.map(|(low, more)| (low, low + more));
        Figure { route: route.into(), ns, interval, samples }
    });
    let points = proptest::collection::btree_map(1..1u64 << 40, proptest::collection::vec(figure, 0..3), 0..5);
    let undecided = proptest::collection::vec((1..1u64 << 40, 0..10_000u64, 1..10_000u64), 0..3);
    let by = proptest::collection::vec((select(&ROUTES[..]), select(&Metric::ALL[..])), 7);
    (key, borders, points, undecided, by).prop_map(|(key, borders, points, undecided, by)| {
        let ends: Vec<Option<u64>> = borders.into_iter().map(Some).chain([None]).collect();
        let mut from = 1;
        let mut range = |(to, (route, by)): (Option<u64>, (&str, Metric))| {
            let range = Range { from, to, route: route.into(), by };
            from = to.map_or(0, |to| to + 1);
            range
        };
        let ranges = ends.into_iter().zip(by).map(&mut range).collect();
        let points = points.into_iter().map(|(bytes, figures)| Point { bytes, figures }).collect();
        let one = |(bytes, samples, needs)| Undecided { bytes, samples, needs };
        Plan { key, ranges, points, undecided: undecided.into_iter().map(one).collect() }
    })
}

fn any_profile() -> impl Strategy<Value = Profile> {
    (proptest::collection::vec(plan(), 0..4), any::<bool>(), "\\PC{1,12}").prop_map(|(mut plans, functional, gpu)| {
        let mut keys = Vec::new();
        plans.retain(|plan| {
            !keys.contains(&plan.key) && {
                keys.push(plan.key.clone());
                true
            }
        });
        Profile { functional, taken: "2026-11-22T22:45:00Z".into(), facts: Facts { gpu, ..facts() }, plans }
    })
}

/// Parts of a file, so that mutations are more than noise.
const PIECES: &[&str] = &[
    "version = 1\n",
    "functional = true\n",
    "taken = \"x\"\n",
    "[facts]\n",
    "[[plan]]\n",
    "ranges = [",
    "points = [",
    "undecided = []\n",
    "{ from = \"1B\", route = \"a->b->c\", by = \"p50\" }",
    "from = ",
    "to = ",
    "\"4KiB\"",
    "\"1B\"",
    "]",
    "}",
    "{",
    ",",
    "\n",
    "=",
    "\"",
    "bytes = ",
    "figures = ",
    "ns = 1",
    "low = 2",
    "high = 1",
    "samples = 0",
    "-1",
    "18446744073709551615",
    "1e999",
    "nan",
    "ü",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_is_written_reads_back(profile in any_profile()) {
        let text = profile.to_toml();
        let read = Profile::parse(&text, "p.toml");
        prop_assert_eq!(read.as_ref(), Ok(&profile), "{}", text);
    }

    #[test]
    fn each_size_has_one_range_and_a_choice(plan in plan(), any in 1..u64::MAX) {
        let ends = plan.ranges.iter().flat_map(|r| [r.from, r.to.unwrap_or(u64::MAX)]);
        for bytes in ends.flat_map(|b| [b, b.saturating_add(1), (b - 1).max(1)]).chain([1, any, u64::MAX]) {
            let holds = |r: &&Range| r.from <= bytes && r.to.is_none_or(|to| bytes <= to);
            prop_assert_eq!(plan.ranges.iter().filter(holds).count(), 1);
            prop_assert_eq!(plan.range(bytes), plan.ranges.iter().find(holds));
            let Key { direction, memory, places, batch, metric, load } = &plan.key;
            let (direction, places, batch, metric) = (*direction, *places, *batch, *metric);
            let ask = Ask { direction, memory, places, bytes, batch, metric, load };
            let profile = Profile { plans: vec![plan.clone()], ..profile() };
            let choice = profile.choose(&ask).unwrap();
            prop_assert_eq!(&choice.route, &plan.range(bytes).unwrap().route);
            prop_assert!(choice.why.contains(&choice.route));
        }
    }

    #[test]
    fn no_text_panics(pieces in proptest::collection::vec(select(PIECES), 0..30), any in "\\PC{0,60}", cut in any::<prop::sample::Index>(), piece in select(PIECES)) {
        let mut mutated = profile().to_toml();
        let mut at = cut.index(mutated.len());
        while !mutated.is_char_boundary(at) {
            at -= 1;
        }
        mutated.insert_str(at, piece);
        let truncated = profile().to_toml()[..at].to_owned();
        for text in [pieces.concat(), any, mutated, truncated] {
            match Profile::parse(&text, "p.toml") {
                Ok(read) => {
                    let again = Profile::parse(&read.to_toml(), "again");
                    prop_assert_eq!(again.as_ref(), Ok(&read));
                }
                Err(e) => prop_assert!(e.to_string().len() > 10),
            }
        }
    }
}
