//! The experiments that are part of doorbell, as files to read, run, copy and change.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    pub name: &'static str,
    /// The file, comments and all.
    pub text: &'static str,
}

impl Shipped {
    /// The experiment, then each of its variants, in the order of the file.
    ///
    /// # Errors
    /// As [`crate::read`].
    pub fn read_all(&self) -> Result<Vec<crate::Experiment>, crate::Error> {
        let variants = crate::variants(self.text, self.name)?;
        let names = std::iter::once(None).chain(variants.iter().map(|variant| Some(variant.name.as_str())));
        names.map(|name| crate::read_variant(self.text, self.name, name, &[], crate::Processes::Shared)).collect()
    }
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../../../experiments/", $name, ".toml")) }),*]
    };
}

const SHIPPED: &[Shipped] = files![
    "smoke",
    "headline",
    "small",
    "crossover",
    "bandwidth",
    "worst",
    "beside",
    "contention",
    "inversion",
    "setups",
    "chain",
    "peer",
    "device",
    "mixed",
    "seed-2013",
    "pipeline",
    "graphs",
    "traffic",
    "budget",
    "noise",
];

/// All of them, in a useful order for reading.
pub fn shipped() -> &'static [Shipped] {
    SHIPPED
}

pub fn shipped_named(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}
