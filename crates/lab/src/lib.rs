//! Experiments: what to run in, samples out. Knows no route from another.
