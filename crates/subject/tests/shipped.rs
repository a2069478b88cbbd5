//! Every route and call of the shipped experiments is one that can be opened somewhere.

use experiment::{Experiment, What};

fn whats(experiment: &Experiment) -> Vec<What> {
    let stages = experiment.stages().unwrap();
    let of_stage = |stage: &experiment::Stage| {
        let cells = stage.cells.iter().map(|cell| cell.subject.what.clone());
        cells.chain(stage.loads.iter().map(|load| load.what.clone())).collect::<Vec<_>>()
    };
    stages.iter().flat_map(of_stage).collect()
}

#[test]
fn shipped_experiments_name_routes_and_calls_that_exist() {
    let mut wrong = Vec::new();
    for shipped in experiment::shipped() {
        let experiment = experiment::read(shipped.text, &format!("{}.toml", shipped.name), &[]).unwrap();
        let mut all = whats(&experiment);
        all.sort_by(|a, b| a.text().cmp(b.text()));
        all.dedup();
        wrong.extend(all.iter().filter_map(|what| Some(format!("{}: {}", shipped.name, subject::check(what).err()?))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
