//! Prints what is known of this machine, with the warnings that follow from it, as JSON.

use environment::{Environment, Gpu};

fn main() -> Result<(), serde_json::Error> {
    let pci = std::env::args().nth(1);
    let environment = Environment::gather(Gpu::Real { pci: pci.as_deref() }, None, Vec::new());
    let all = serde_json::json!({ "warnings": environment.warnings(), "environment": environment });
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}
