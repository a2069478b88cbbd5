//! Functions that were removed. Programs that were built with them still start, and each call is an error.

use crate::call::run;
use submit::Error;

fn learners() -> i32 {
    const WHY: &str = "learners were removed: use doorbell_graph_create(), and see docs/results/torch-graph.md";
    run(|| Err(Error::Unavailable(WHY.into())))
}

#[unsafe(no_mangle)]
pub extern "C" fn doorbell_learner_create() -> i32 {
    learners()
}

#[unsafe(no_mangle)]
pub extern "C" fn doorbell_learner_launch() -> i32 {
    learners()
}

#[unsafe(no_mangle)]
pub extern "C" fn doorbell_learner_free() -> i32 {
    learners()
}
