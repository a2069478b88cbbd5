//! Soaks: an experiment that runs for hours in one process, in periods, each with its account.

pub mod account;

pub use account::Soak;

#[cfg(test)]
mod tests {
    use super::*;

    /// `DOORBELL_WRITE_SCHEMA=1` writes the file.
    #[test]
    fn the_schema_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/soak.schema.json");
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
            "DOORBELL_WRITE_SCHEMA=1 cargo test -p soak writes it"
        );
    }
}
