//! Prints the JSON Schema of experiments: `cargo run -p experiment --example schema > docs/reference/experiment.schema.json`.

fn main() {
    print!("{}", experiment::schema::schema());
}
