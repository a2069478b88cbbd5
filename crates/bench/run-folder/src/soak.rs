//! Soaks: an experiment that runs for hours in one process, in periods, each with its own account.
//!
//! [`measuring`] turns laps of a stage into periods, in the measuring process. [`lead`] starts that process, watches it and replaces it. [`folder`]
//! keeps finished periods; `sum_up` and `judge` compute the results.
//!
//! The invariant: the kept data grows only with periods, not with samples, and every reported figure was measured.

pub mod account;
mod cell;
pub mod clock;
mod delay;
pub mod folder;
mod judge;
pub mod lead;
pub mod measuring;
pub mod planted;
mod sum_up;

pub use account::Soak;
pub use folder::Folder;

/// Whether an experiment's file, its variant, or a changed setting states how many transfers are compared.
pub fn says_every(text: &str, variant: Option<&str>, sets: &[String]) -> bool {
    let file = text.parse::<toml::Table>().unwrap_or_default();
    let in_table = |table: &toml::Table| table.get("verify").is_some_and(|verify| verify.get("every").is_some());
    let in_variant = || file.get("variant")?.get(variant?)?.as_table().map(in_table);
    sets.iter().any(|set| set.trim_start().starts_with("verify.every"))
        || in_table(&file)
        || in_variant().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `DOORBELL_WRITE_SCHEMA=1` writes the file.
    #[test]
    fn the_schema_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/soak.schema.json");
        let mut schema = serde_json::to_value(schemars::schema_for!(Soak)).unwrap();
        schema["title"] = "A soak of doorbell (soak.json)".into();
        schema["properties"]["schema"] = serde_json::json!({ "const": account::SCHEMA });
        let text = format!("{schema:#}\n");
        if std::env::var_os("DOORBELL_WRITE_SCHEMA").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            text,
            "DOORBELL_WRITE_SCHEMA=1 cargo test -p run-folder writes it"
        );
    }
}
