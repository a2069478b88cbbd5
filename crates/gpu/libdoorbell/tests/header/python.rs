//! The header for ctypes.

use crate::declared::{Declared, Kind, Typed};
use std::fmt::Write as _;

/// `_header.py` of the Python package.
pub fn python(all: &[Declared]) -> String {
    let mut text = String::from(
        "\"\"\"doorbell.h for ctypes: constants without DOORBELL_, structures, and the arguments of each function.\n\nGenerated from \
         crates/gpu/libdoorbell. Do not edit.\"\"\"\n\nimport ctypes\nfrom ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint32, \
         c_uint64, c_void_p\n\n",
    );
    for one in all {
        if let Kind::Constant { value } = &one.kind {
            if value.starts_with('(') {
                // Made of the others.
                continue;
            }
            let value = if value == "UINT64_MAX" { "(1 << 64) - 1" } else { value };
            let _ = writeln!(text, "{} = {value}", one.name.trim_start_matches("DOORBELL_"));
        }
    }
    for one in all {
        match &one.kind {
            Kind::Callback { parameters } => {
                let of: Vec<String> = parameters.iter().map(|p| of_ctypes(&p.of, all)).collect();
                let _ = writeln!(text, "\n{} = ctypes.CFUNCTYPE(None, {})", class(&one.name), of.join(", "));
            }
            Kind::Struct { fields } => {
                let field = |Typed { of, name }: &Typed| {
                    let name = if name == "from" { "from_" } else { name };
                    format!("        (\"{name}\", {}),\n", of_ctypes(of, all))
                };
                let fields: String = fields.iter().map(field).collect();
                let _ = writeln!(
                    text,
                    "\n\nclass {}(ctypes.Structure):\n    _fields_ = [\n{fields}    ]",
                    class(&one.name)
                );
            }
            _ => {}
        }
    }
    text.push_str("\n\n# Name -> what it answers, and its arguments.\nFUNCTIONS = {\n");
    for one in all {
        if let Kind::Function { answers, parameters } = &one.kind {
            let of: Vec<String> = parameters.iter().map(|p| of_ctypes(&p.of, all)).collect();
            let _ = writeln!(text, "    \"{}\": ({}, [{}]),", one.name, of_ctypes(answers, all), of.join(", "));
        }
    }
    text.push_str("}\n");
    text
}

/// `doorbell_options_t`: Options.
fn class(name: &str) -> String {
    let name = name.trim_start_matches("doorbell_").trim_end_matches("_t");
    name[..1].to_uppercase() + &name[1..]
}

fn of_ctypes(of: &str, all: &[Declared]) -> String {
    let plain = of.trim_start_matches("const ").trim();
    match plain {
        // (Sessions are pointers that nobody follows.)
        "void *" | "doorbell_t *" => return "c_void_p".into(),
        "char *" => return "c_char_p".into(),
        "int32_t" | "uint32_t" | "uint64_t" | "size_t" | "bool" => {
            return format!("c_{}", plain.trim_end_matches("_t")).replace("size", "size_t");
        }
        _ => {}
    }
    if let Some(pointed) = plain.strip_suffix('*') {
        return format!("POINTER({})", of_ctypes(pointed.trim(), all));
    }
    let known = all.iter().find(|one| one.name == plain).unwrap_or_else(|| panic!("what is {of}?"));
    match &known.kind {
        Kind::Alias { of } => of_ctypes(of, all),
        _ => class(plain),
    }
}
