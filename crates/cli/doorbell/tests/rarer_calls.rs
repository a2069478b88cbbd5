//! Every function of the driver's that has a row made from CUDA's headers: called once, by a program and a library that are made from the same rows.
//!
//! Each function of the library checks its arguments and returns a number of its own, so that a call that gets wrong words is seen.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::{Command, Stdio};
use tape::call::{FUNCTIONS, Function, ROWS, Stream, function};
use tape::event::{Body, Events};
use tape::file::{Item, Reader};

/// Symbol, function, and the result of its call: 0 for the first ten, which are too short to be written.
fn symbols() -> Vec<(String, &'static Function, i32)> {
    let all = FUNCTIONS[ROWS..].iter().flat_map(|f| f.suffixes.iter().map(move |s| (format!("{}{s}", f.name), f)));
    all.enumerate().map(|(n, (symbol, f))| (symbol, f, if n < 10 { 0 } else { 1000 + n as i32 })).collect()
}

fn word(symbol: usize, n: u8) -> u64 {
    0x5a00_0000_0000 + (symbol as u64) * 100 + u64::from(n)
}

fn list<T>(n: u8, one: impl Fn(u8) -> T) -> String
where
    T: std::fmt::Display,
{
    (0..n).map(|n| one(n).to_string()).collect::<Vec<_>>().join(", ")
}

#[test]
fn every_function_of_the_headers_is_recorded_with_its_result_and_its_stream() {
    let dir = tempfile::tempdir().unwrap();
    let all = symbols();
    let mut library = String::from("int cuDriverGetVersion(int *v) { return *v = 13000, 0; }\n");
    let mut app = String::from(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {\n  void *l = dlopen(\"libcuda.so.1\", RTLD_NOW); int n = 0, r;\n",
    );
    for (n, (symbol, f, result)) in all.iter().enumerate() {
        let parameters = if f.words == 0 { "void".into() } else { list(f.words, |n| format!("long a{n}")) };
        let right = (0..f.words).map(|w| format!(" && a{w} == {}", word(n, w))).collect::<String>();
        writeln!(library, "long {symbol}({parameters}) {{ return 1{right} ? {result} : 1; }}").unwrap();
        let arguments = list(f.words, |w| word(n, w));
        writeln!(app, "  r = (int)((long (*)())dlsym(l, \"{symbol}\"))({arguments}); if (r != {result}) printf(\"{symbol}: %d\\n\", r); n++;").unwrap();
    }
    app += "  printf(\"%d calls\\n\", n);\n  return 0;\n}\n";
    for (name, text, options) in [
        ("library.c", &library, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1"][..]),
        ("app.c", &app, &["-std=gnu11", "-o", "app", "-ldl"]),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(dir.path()).args(["-O1", "-w", name]).args(options);
        match cc.status() {
            Ok(status) => assert!(status.success(), "{name}"),
            Err(e) => test_support::skip!("no C compiler ({e})"),
        }
    }
    let tape = dir.path().join("t.doorbell");
    let mut doorbell = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    doorbell.args(["record", "--calls", "--quiet", "-o"]).arg(&tape).arg("--").arg(dir.path().join("app"));
    let out = doorbell.env("LD_LIBRARY_PATH", dir.path()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!((said.as_ref(), out.status.code()), (format!("{} calls\n", all.len()).as_str(), Some(0)));
    let mut found: BTreeMap<(&str, i32), u64> = BTreeMap::new();
    let mut written = 0;
    let mut reader = Reader::open(&tape).unwrap();
    while let Some(item) = reader.item().unwrap() {
        let Item::Events { bytes, .. } = item else { continue };
        for e in Events::new(&bytes) {
            if let Body::Call(body) = e.body {
                written += u64::from(body.result == 0);
                found.insert((function(e.head.flags).unwrap().name, body.result), body.stream);
            }
        }
    }
    for (n, (symbol, f, result)) in all.iter().enumerate() {
        let stream = match f.stream {
            Stream::Word(at) => word(n, at),
            _ => 0,
        };
        let expected = if *result == 0 && stream == 0 { None } else { Some(&stream) };
        // (A first call may take longer on a busy machine.)
        let got = found.get(&(f.name, *result));
        assert!(got == expected || *result == 0, "{symbol}: {got:?}, {expected:?}");
    }
    assert!(written < 10, "calls of less than 10 us are written");
    let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = show.args(["show", "--calls", "--json"]).arg(&tape).output().unwrap();
    let calls: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(calls["short"], 10 - written, "each of the others is counted");
    let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let text = String::from_utf8(show.args(["show", "--calls"]).arg(&tape).output().unwrap().stdout).unwrap();
    assert!(text.contains(&format!("{} short calls", 10 - written)), "{text}");
}
