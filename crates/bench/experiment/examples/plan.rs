//! Prints the plans of the shipped experiments: `cargo run -p experiment --example plan`.

fn main() -> Result<(), experiment::Error> {
    for shipped in experiment::shipped() {
        for one in shipped.read_all()? {
            println!("{}: {}", one.title(), one.estimate()?);
        }
    }
    Ok(())
}
