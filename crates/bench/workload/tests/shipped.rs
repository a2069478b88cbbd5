//! Every route and call of the shipped experiments can be opened somewhere.

use experiment::{Experiment, What};
use workload::spec::Memory;

/// The shipped ones, with their variants.
fn all() -> impl Iterator<Item = Experiment> {
    experiment::shipped().iter().flat_map(|shipped| shipped.read_all().unwrap())
}

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
    for experiment in all() {
        let mut all = whats(&experiment);
        all.sort_by(|a, b| a.text().cmp(b.text()));
        all.dedup();
        wrong.extend(
            all.iter().filter_map(|what| Some(format!("{}: {}", experiment.title(), workload::check(what).err()?))),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a route between host and GPU copies to the GPU; `None` for other routes.
fn goes_to_gpu(what: &What) -> Option<bool> {
    let What::Route(text) = what else { return None };
    let spec = workload::routes::parse(text).unwrap();
    match (spec.source.memory, spec.destination.memory) {
        (Memory::Host(_), Memory::Gpu(_)) => Some(true),
        (Memory::Gpu(_), Memory::Host(_)) => Some(false),
        _ => None,
    }
}

/// A copy from the GPU differs from one to it: a ratio of the two does not compare their executors.
#[test]
fn shipped_experiments_compare_routes_in_the_same_direction() {
    let mut wrong = Vec::new();
    for experiment in all() {
        for stage in experiment.stages().unwrap() {
            for cell in &stage.cells {
                let name = experiment.baseline_of(&cell.subject.name);
                let baseline =
                    stage.cells.iter().find(|one| name == Some(one.subject.name.as_str()) && one.bytes == cell.bytes);
                let (Some(own), Some(its)) =
                    (goes_to_gpu(&cell.subject.what), baseline.and_then(|one| goes_to_gpu(&one.subject.what)))
                else {
                    continue;
                };
                if own != its {
                    wrong.push(format!(
                        "{}: {} against {}",
                        experiment.title(),
                        cell.subject.name,
                        name.unwrap_or_default()
                    ));
                }
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words in the brackets of a launch of a graph.
fn words_of_graph(what: &What) -> Option<Vec<&str>> {
    let What::Call(text) = what else { return None };
    Some(text.strip_prefix("graph(")?.trim_end_matches(')').split(',').map(str::trim).collect())
}

/// A polled word is seen earlier than a waiting call returns: a ratio of the two does not compare the launching programs.
#[test]
fn shipped_experiments_compare_graphs_with_the_same_wait() {
    let mut wrong = Vec::new();
    for experiment in all() {
        for subject in &experiment.subjects {
            let name = experiment.baseline_of(&subject.name);
            let baseline = experiment.subjects.iter().find(|one| name == Some(one.name.as_str()));
            let (Some(own), Some(its)) =
                (words_of_graph(&subject.what), baseline.and_then(|one| words_of_graph(&one.what)))
            else {
                continue;
            };
            let by_doorbell = own.iter().any(|word| ["ours", "c", "python=doorbell"].contains(word));
            if by_doorbell && !(own.contains(&"polled") && its.contains(&"polled")) {
                wrong.push(format!("{}: {} against {}", experiment.title(), subject.name, name.unwrap_or_default()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
