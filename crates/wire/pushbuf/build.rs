//! Turns `classes/*.tsv` into static tables, so that a lookup at run time is one array access and no table is parsed in a traced program.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Host classes: id, name, table, overlays in the order in which they are laid.
const HOST: &[(u32, &str, &str, &[&str])] = &[
    (0xc36f, "VOLTA_CHANNEL_GPFIFO_A", "c36f", &["host"]),
    (0xc46f, "TURING_CHANNEL_GPFIFO_A", "c46f", &["host"]),
    (0xc56f, "AMPERE_CHANNEL_GPFIFO_A", "c56f", &["host", "host-ampere"]),
    (0xc76f, "AMPERE_CHANNEL_GPFIFO_B", "c76f", &["host", "host-ampere"]),
    (0xc86f, "HOPPER_CHANNEL_GPFIFO_A", "c76f", &["host", "host-ampere", "host-hopper"]),
    (0xc96f, "BLACKWELL_CHANNEL_GPFIFO_A", "c76f", &["host", "host-ampere", "host-hopper", "host-blackwell"]),
    (0xca6f, "BLACKWELL_CHANNEL_GPFIFO_B", "c76f", &["host", "host-ampere", "host-hopper", "host-blackwell"]),
];

const ENGINE: &[(u32, &str, &str)] = &[
    (0xa140, "KEPLER_INLINE_TO_MEMORY_B", "a140"),
    (0xc3b5, "VOLTA_DMA_COPY_A", "c3b5"),
    (0xc3c0, "VOLTA_COMPUTE_A", "c3c0"),
    (0xc4c0, "VOLTA_COMPUTE_B", "c3c0"),
    (0xc5b5, "TURING_DMA_COPY_A", "c5b5"),
    (0xc5c0, "TURING_COMPUTE_A", "c5c0"),
    (0xc6b5, "AMPERE_DMA_COPY_A", "c6b5"),
    (0xc6c0, "AMPERE_COMPUTE_A", "c6c0"),
    (0xc7b5, "AMPERE_DMA_COPY_B", "c7b5"),
    (0xc7c0, "AMPERE_COMPUTE_B", "c7c0"),
    (0xc8b5, "HOPPER_DMA_COPY_A", "c8b5"),
    (0xc9b5, "BLACKWELL_DMA_COPY_A", "c9b5"),
    (0xc9c0, "ADA_COMPUTE_A", "c9c0"),
    (0xcab5, "BLACKWELL_DMA_COPY_B", "cab5"),
    (0xcbc0, "HOPPER_COMPUTE_A", "cbc0"),
    (0xcdc0, "BLACKWELL_COMPUTE_A", "cdc0"),
    (0xcec0, "BLACKWELL_COMPUTE_B", "cec0"),
];

/// QMD tables, oldest class first. A version that several classes publish is taken from the last.
const QMD: &[&str] = &["c3c0qmd", "c6c0qmd", "c9c0qmd", "cbc0qmd", "cdc0qmd", "cec0qmd"];

/// Lengths of array methods that the next method does not bound. (`LOAD_INLINE_QMD_DATA` holds 64 words up to QMD 3 and 96 after.)
fn array_length(class: u32, method: &str) -> Option<u32> {
    match method {
        "LOAD_INLINE_QMD_DATA" if class >= 0xcbc0 => Some(96),
        "LOAD_INLINE_QMD_DATA" => Some(64),
        "SET_SCG_COMPUTE_SCHEDULING_PARAMETERS" => Some(16),
        _ => None,
    }
}

/// Words of method space: a header's 12-bit address.
const WORDS: u32 = 4096;

#[derive(Default)]
struct Method {
    offset: u32,
    stride: u32,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    hi: u32,
    lo: u32,
    stride: u32,
    enums: Vec<(String, u32)>,
}

/// Methods in the order of the file, by name.
#[derive(Default)]
struct Table {
    order: Vec<String>,
    methods: BTreeMap<String, Method>,
}

fn number(text: &str) -> u32 {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("not a number in a class table: {text:?}"))
}

impl Table {
    /// `versions`: each row of a QMD table belongs to a version, which has no separate `M` row.
    fn read(&mut self, dir: &Path, name: &str, versions: bool) {
        let path = dir.join(format!("{name}.tsv"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
            let cols: Vec<&str> = line.split('\t').map(str::trim).collect();
            let col = |i: usize| cols.get(i).copied().unwrap_or("");
            match col(0) {
                "M" => {
                    let method = self.entry(col(1));
                    method.offset = number(col(2));
                    method.stride = if col(3).is_empty() { 0 } else { number(col(3)) };
                }
                // Fields of no method are GPFIFO entry and header bits: `gpfifo.rs` and `header.rs` have them.
                "F" if col(1) != "-" => {
                    if !versions && !self.methods.contains_key(col(1)) {
                        continue;
                    }
                    let stride = if col(5).is_empty() { 0 } else { number(col(5)) };
                    let (hi, lo) = (number(col(3)), number(col(4)));
                    let fields = &mut self.entry(col(1)).fields;
                    match fields.iter_mut().find(|f| f.name == col(2)) {
                        Some(field) => (field.hi, field.lo, field.stride) = (hi, lo, stride),
                        None => fields.push(Field { name: col(2).into(), hi, lo, stride, enums: Vec::new() }),
                    }
                }
                "E" if col(1) != "-" => {
                    let Some(method) = self.methods.get_mut(col(1)) else { continue };
                    let Some(field) = method.fields.iter_mut().find(|f| f.name == col(2)) else { continue };
                    // Two names of one value are both kept: the first is printed, both are understood.
                    field.enums.push((col(3).into(), number(col(4))));
                }
                _ => {}
            }
        }
    }

    fn entry(&mut self, name: &str) -> &mut Method {
        if !self.methods.contains_key(name) {
            self.order.push(name.into());
        }
        self.methods.entry(name.into()).or_default()
    }

    /// The header files of the host classes define sizes, values and one NOP word that look like methods in the tables.
    fn drop_false_methods(&mut self) {
        let names = self.order.clone();
        let prefixed = |name: &str| names.iter().any(|p| p != name && name.starts_with(&format!("{p}_")));
        self.order.retain(|n| {
            !matches!(n.as_str(), "NUMBER_OF_SUBCHANNELS" | "GP_ENTRY__SIZE" | "DMA_NOP")
                && !(n.starts_with("MEM_OP_") && (prefixed(n) || n.contains("_OPERATION_")))
        });
        self.methods.retain(|n, _| self.order.contains(n));
    }
}

fn fields_source(out: &mut String, fields: &[Field], array_fields: bool) {
    out.push_str("&[");
    for field in fields {
        let stride = if array_fields { format!(", stride: {}", field.stride) } else { String::new() };
        let kind = if array_fields { "crate::qmd::Field" } else { "Field" };
        write!(
            out,
            "{kind} {{ name: {:?}, hi: {}, lo: {}{stride}, enums: &{:?} }},",
            field.name, field.hi, field.lo, field.enums
        )
        .expect("a String takes any text");
    }
    out.push(']');
}

fn class_source(out: &mut String, id: u32, name: &str, table: &Table) {
    let mut methods: Vec<(&String, &Method)> =
        table.order.iter().map(|n| (n, &table.methods[n])).filter(|(_, m)| m.offset / 4 < WORDS).collect();
    methods.sort_by_key(|(_, m)| m.offset);

    let mut index = vec![0u16; WORDS as usize];
    for (i, (_, method)) in methods.iter().enumerate() {
        let slot = &mut index[(method.offset / 4) as usize];
        if *slot == 0 {
            *slot = i as u16 + 1;
        }
    }
    // Arrays after scalars: an array runs until the next method that is not its interleaved sister, or its known length.
    let mut counts = vec![1u32; methods.len()];
    for (i, (name, method)) in methods.iter().enumerate().filter(|(_, (_, m))| m.stride > 0) {
        let limit = array_length(id, name).unwrap_or(WORDS);
        while counts[i] < limit {
            let word = (method.offset + counts[i] * method.stride) / 4;
            match index.get_mut(word as usize) {
                Some(slot) if *slot == 0 => *slot = i as u16 + 1,
                _ => break,
            }
            counts[i] += 1;
        }
    }

    write!(out, "static CLASS_{id:04X}: Class = Class {{ id: {id:#x}, name: {name:?}, methods: &[")
        .expect("a String takes any text");
    for ((name, method), count) in methods.iter().zip(&counts) {
        write!(
            out,
            "\nMethod {{ name: {name:?}, offset: {:#x}, stride: {}, count: {count}, fields: ",
            method.offset, method.stride
        )
        .expect("a String takes any text");
        fields_source(out, &method.fields, false);
        out.push_str(" },");
    }
    write!(out, "], index: &{index:?} }};\n\n").expect("a String takes any text");
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=classes");
    let dir = Path::new("classes");
    let mut out = String::new();
    let mut ids = Vec::new();
    for (id, name, table, overlays) in HOST {
        let mut t = Table::default();
        t.read(dir, table, false);
        t.drop_false_methods();
        for overlay in *overlays {
            t.read(dir, overlay, false);
        }
        class_source(&mut out, *id, name, &t);
        ids.push(*id);
    }
    for (id, name, table) in ENGINE {
        let mut t = Table::default();
        t.read(dir, table, false);
        class_source(&mut out, *id, name, &t);
        ids.push(*id);
    }
    ids.sort_unstable();
    out.push_str("/// Sorted by id.\npub static ALL: &[&Class] = &[");
    for id in ids {
        write!(out, "&CLASS_{id:04X},").expect("a String takes any text");
    }
    out.push_str("];\n");
    let out_dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out_dir).join("classes.rs"), out).expect("cannot write classes.rs");

    let mut versions: BTreeMap<String, (String, Method)> = BTreeMap::new();
    for name in QMD {
        let mut t = Table::default();
        t.read(dir, name, true);
        for (version, method) in t.methods {
            versions.insert(version, (name.trim_end_matches("qmd").into(), method));
        }
    }
    let mut out = String::new();
    for (version, (_, method)) in &versions {
        write!(out, "const {version}: &[Field] = ").expect("a String takes any text");
        fields_source(&mut out, &method.fields, true);
        out.push_str(";\n");
    }
    out.push_str("/// Sorted by version.\npub static LAYOUTS: &[Layout] = &[");
    for (version, (class, _)) in &versions {
        let digits = version.strip_prefix("QMDV").expect("versions read QMDVmm_nn");
        let (major, minor) = digits.split_once('_').expect("versions read QMDVmm_nn");
        write!(
            out,
            "\nLayout {{ name: {version:?}, major: {}, minor: {}, class: 0x{class}, fields: {version}, places: Places::of({version}) }},",
            number(major.trim_start_matches('0')),
            minor.parse::<u32>().expect("the minor version is decimal")
        )
        .expect("a String takes any text");
    }
    out.push_str("];\n");
    fs::write(Path::new(&out_dir).join("qmd.rs"), out).expect("cannot write qmd.rs");
}
