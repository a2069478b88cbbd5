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

/// The sections in the order in which a reader needs them.
const SECTIONS: [&str; 14] = [
    "types",
    "codes",
    "detail",
    "session",
    "buffers",
    "copies",
    "transfers",
    "tickets",
    "queues",
    "rings",
    "messages",
    "graphs",
    "chains",
    "loops",
];
const LAST: &str = "recording";

const HEAD: &str = "\
/* doorbell.h: copies between host and GPU memory, and launches of CUDA graphs, that any thread may submit.
 *
 *     doorbell_init();                                    before the first call of CUDA
 *     doorbell_create(NULL, &doorbell);                   a session: one GPU with separate channels
 *     doorbell_buffer_register(doorbell, memory, bytes, &buffer);
 *     doorbell_copy_async(doorbell, to, 0, from, 0, bytes, NULL, &ticket);
 *     doorbell_wait(doorbell, ticket, DOORBELL_FOREVER);
 *     doorbell_free(doorbell);
 *
 * Names: _create makes something, _free ends it, _async submits and returns a ticket, _wait waits for it, _poll checks without waiting.
 * Every function that can fail returns a code: 0 (DOORBELL_OK) or an error. doorbell_error_text() explains a code, and
 * doorbell_error_detail() describes this thread's last failed call. Handles are numbers: a stale or wrong one is DOORBELL_HANDLE, one of a
 * session that another thread frees may be DOORBELL_CLOSED. A null pointer to a result is DOORBELL_ARGUMENT. Any thread may call any
 * function, unless its comment limits that.
 *
 * Structs that programs fill begin with their size, and arrays are passed with the size of an element, so that both can grow: an older program
 * works with a newer library. With an older library it is an error to set a field that it lacks.
 *
 * Made from crates/gpu/libdoorbell/src by its test `header`. Do not edit. */

#ifndef DOORBELL_H
#define DOORBELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header. doorbell_version() is that of the library. */
";

/// Orders that most programs need.
const TAIL: &str = "
/* ======== Orders in one call. ======== */

// An order without waits.
static inline doorbell_order_t doorbell_order(void)
{
#ifdef __cplusplus
    doorbell_order_t order = {};
#else
    doorbell_order_t order = {0};
#endif
    order.size = sizeof order;
    return order;
}

// After submissions of the same session. The array of tickets must stay valid until the order has been used.
static inline doorbell_order_t doorbell_after(const doorbell_ticket_t *tickets, uint32_t count)
{
    doorbell_order_t order = doorbell_order();
    order.tickets = tickets;
    order.ticket_count = count;
    return order;
}

// After everything that a CUDA stream has queued when the order is used. Null is the default stream.
static inline doorbell_order_t doorbell_after_stream(void *stream)
{
    doorbell_order_t order = doorbell_order();
    order.flags = DOORBELL_ORDER_STREAM;
    order.stream = stream;
    return order;
}

// After the work that a CUDA event recorded last before the order is used.
static inline doorbell_order_t doorbell_after_event(void *event)
{
    doorbell_order_t order = doorbell_order();
    order.event = event;
    return order;
}
";

fn header() -> String {
    let mut text = String::from(HEAD);
    let version: Vec<&str> = env!("CARGO_PKG_VERSION").split('.').collect();
    for (name, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(&version) {
        text += &format!("#define DOORBELL_VERSION_{name} {number}\n");
    }
    text += "#define DOORBELL_VERSION (DOORBELL_VERSION_MAJOR << 16 | DOORBELL_VERSION_MINOR << 8 | DOORBELL_VERSION_PATCH)\n\n";
    text += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for section in SECTIONS.into_iter().chain([LAST]) {
        let file = root().join("src").join(section).with_extension("rs");
        let source = std::fs::read_to_string(&file).unwrap();
        let about = source.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("a file says what it is");
        text += &format!("\n/* ======== {about} ======== */\n\n");
        let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
        let mut made = Vec::new();
        cbindgen::Builder::new().with_config(config).with_src(file).generate().unwrap().write(&mut made);
        text += String::from_utf8(made).unwrap().trim_matches('\n');
        text += "\n";
    }
    text += TAIL;
    text + "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n"
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

/// Sizes and offsets as a C compiler sees them: what programs were built with stays what it is.
#[test]
fn sizes_and_offsets_are_those_of_the_table() {
    if !test_support::installed("cc") {
        test_support::skip!("no cc");
    }
    let mut source = String::from("#include \"doorbell.h\"\n#include <stdio.h>\nint main(void)\n{\n");
    for one in declared::declared(&header()) {
        let declared::Kind::Struct { fields } = &one.kind else { continue };
        let name = &one.name;
        source += &format!("    printf(\"{name} %zu\\n\", sizeof({name}));\n");
        for declared::Typed { name: field, .. } in fields {
            source += &format!(
                "    printf(\"  {field} %zu %zu\\n\", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));\n"
            );
        }
    }
    source += "    return 0;\n}\n";
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("sizes.c"), folder.path().join("sizes"));
    std::fs::write(&file, source).unwrap();
    std::fs::write(folder.path().join("doorbell.h"), header()).unwrap();
    let mut command = Command::new("cc");
    command.arg(&file).arg("-o").arg(&program);
    let out = test_support::finished(&mut command, "cc");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = test_support::finished(&mut Command::new(&program), "sizes");
    let made =
        format!("# name size, and of each field: name offset size. x86_64.\n{}", String::from_utf8_lossy(&out.stdout));
    let table = root().join("include/abi.txt");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&table, &made).unwrap();
    }
    let there = std::fs::read_to_string(&table).unwrap_or_default();
    assert!(
        there == made,
        "abi.txt: a struct has changed. Fields may be added at the end: run this test with {WRITE}=1 then"
    );
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
        let wrapper = if language == "c" { "" } else { "#include \"doorbell.hpp\"\n" };
        let text = "#include \"doorbell.h\"\n#include \"doorbell.h\"\nint answer(void);\nint answer(void) { doorbell_options_t options = {0}; options.size = sizeof options; doorbell_t *doorbell; return doorbell_create(&options, &doorbell) + DOORBELL_BUSY; }\n".replace("{0}", if language == "c" { "{0}" } else { "{}" });
        std::fs::write(&source, format!("{wrapper}{text}")).unwrap();
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
