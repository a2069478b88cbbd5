//! Prints what the shipped experiments would do: `cargo run -p experiment --example plan`.

fn main() -> Result<(), experiment::Error> {
    for shipped in experiment::shipped() {
        let plan = experiment::read(shipped.text, &format!("{}.toml", shipped.name), &[])?.estimate()?;
        let open = if plan.is_open() { " and more" } else { "" };
        println!(
            "{}: {} stages, {} cells, {} processes, {} s{open}, {} samples, {} MB",
            shipped.name,
            plan.stages,
            plan.cells,
            plan.processes,
            plan.time_ns / 1_000_000_000,
            plan.samples,
            plan.sample_bytes / 1_000_000
        );
    }
    Ok(())
}
