//! The header, the Python package's declarations and the tables of the reference page are what the sources say, and compilers take the header
//! without a warning.

mod declared;
mod page;
mod python;

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The environment variable with which this writes them instead.
const WRITE: &str = "DOORBELL_WRITE_HEADER";

fn header() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["codes.rs", "types.rs", "detail.rs", "calls.rs", "graphs.rs", "chains.rs", "recording.rs"] {
        builder = builder.with_src(root().join("src").join(file));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    String::from_utf8(made).unwrap()
}

/// C, Python and the reference page say the same, because all of it is made from the declarations and their comments.
#[test]
fn what_is_made_of_the_sources_is_up_to_date() {
    let header = header();
    let all = declared::declared(&header);
    let page = root().join("../../../docs/reference/libdoorbell.md");
    let filled = page::filled(&std::fs::read_to_string(&page).unwrap(), &all);
    let python = python::python(&all);
    for (path, made) in [
        (root().join("include/doorbell.h"), header),
        (root().join("../../../python/doorbell/_header.py"), python),
        (page, filled),
    ] {
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == made, "{} is not what the sources say: run this test with {WRITE}=1", path.display());
    }
}

#[test]
fn c11_and_cpp17_take_it_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++17")] {
        if !test_support::installed(compiler) {
            test_support::skip_part!("no {compiler}");
            continue;
        }
        let source: PathBuf = folder.path().join(format!("include.{language}"));
        // Twice, and alone.
        std::fs::write(&source, "#include \"doorbell.h\"\n#include \"doorbell.h\"\nint answer(void);\nint answer(void) { doorbell_options_t options = {0}; options.size = sizeof options; return doorbell_open(&options) + DOORBELL_BUSY; }\n".replace("{0}", if language == "c" { "{0}" } else { "{}" })).unwrap();
        let mut command = Command::new(compiler);
        command.args([
            &format!("-std={standard}"),
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-c",
            "-o",
            "/dev/null",
        ]);
        command.args(["-I", root().join("include").to_str().unwrap(), "-x", language]).arg(&source);
        let out = test_support::finished(&mut command, compiler);
        assert!(out.status.success(), "{compiler}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
