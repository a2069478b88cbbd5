//! Prints what the shipped experiments would do: `cargo run -p experiment --example plan`.

fn main() -> Result<(), experiment::Error> {
    for shipped in experiment::shipped() {
        let plan = experiment::read(shipped.text, &format!("{}.toml", shipped.name), &[])?.estimate()?;
        println!("{}: {plan}", shipped.name);
    }
    Ok(())
}
