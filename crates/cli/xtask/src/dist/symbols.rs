//! What a program or library needs from the system that loads it: symbols no newer than those of an old glibc, and only
//! glibc's libraries.

use anyhow::{Context, bail};
use flate2::read::ZlibDecoder;
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64, SHT_DYNSYM};
use object::read::elf::{Dyn, FileHeader, Sym};
use std::io::Read;

/// The version in RHEL 8, and therefore in manylinux_2_28.
const NEWEST: [u32; 2] = [2, 28];
/// Libraries of glibc, which each system has.
const LIBRARIES: [&str; 7] =
    ["ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1"];
/// How a 64-bit little-endian ELF file begins.
const MAGIC: [u8; 7] = *b"\x7fELF\x02\x01\x01";
/// How zlib's best compression begins: the command's build script packs libraries with it.
const PACKED: [u8; 2] = *b"\x78\xda";

pub fn newest() -> String {
    NEWEST.map(|n| n.to_string()).join(".")
}

/// One line for each symbol and library that an older system lacks, in `bytes` and in the ELF files inside it.
pub fn wrong(name: &str, bytes: &[u8], carries: usize) -> anyhow::Result<Vec<String>> {
    let mut wrong = of_one(bytes).with_context(|| name.to_owned())?;
    let mut carried = 0;
    let mut library = |at: usize, bytes: &[u8]| {
        // Bytes that cannot be parsed are no library: the magic also occurs alone, in tables.
        if let Ok(lines) = of_one(bytes) {
            carried += 1;
            wrong.extend(lines.into_iter().map(|line| format!("{line}, in the library at {at:#x}")));
        }
    };
    for at in memchr::memmem::find_iter(bytes, &MAGIC).filter(|at| *at > 0) {
        library(at, &bytes[at..]);
    }
    for at in memchr::memmem::find_iter(bytes, &PACKED) {
        if let Some(unpacked) = unpacked(&bytes[at..]) {
            library(at, &unpacked);
        }
    }
    if carried != carries {
        bail!("{name}: carries {carried} libraries, not {carries}: not all of it can be checked");
    }
    Ok(wrong.into_iter().map(|line| format!("{name}: {line}")).collect())
}

/// The ELF file that is packed here.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut from = ZlibDecoder::new(packed);
    let mut bytes = vec![0; MAGIC.len()];
    from.read_exact(&mut bytes).ok().filter(|()| bytes == MAGIC)?;
    from.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn of_one(bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let symbols = sections.symbols(endian, bytes, SHT_DYNSYM)?;
    let versions = sections.versions(endian, bytes)?.context("no versions of symbols")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut wrong = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        if !symbol.is_undefined(endian) {
            continue;
        }
        let Some(version) = versions.version(versions.version_index(endian, index).into())? else { continue };
        let version = text(version.name());
        if is_too_new(&version) {
            wrong.push(format!("{} of {version}", text(symbol.name(endian, symbols.strings())?)));
        }
    }
    let (entries, strings) = sections.dynamic(endian, bytes)?.context("no dynamic section")?;
    let strings = sections.strings(endian, bytes, strings)?;
    for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
        let library = text(entry.string(endian, strings)?);
        if !LIBRARIES.contains(&library.as_str()) {
            wrong.push(format!("needs {library}, which is no part of glibc"));
        }
    }
    Ok(wrong)
}

/// Compares glibc versions. A version that is not a number (GLIBC_PRIVATE) is outside glibc's promise.
fn is_too_new(version: &str) -> bool {
    let Some(numbers) = version.strip_prefix("GLIBC_") else { return false };
    let numbers: Result<Vec<u32>, _> = numbers.split('.').map(str::parse).collect();
    numbers.map_or(true, |numbers| numbers[..] > NEWEST[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use std::io::Write;

    #[test]
    fn versions_are_numbers() {
        let new = ["GLIBC_2.29", "GLIBC_2.34", "GLIBC_3.0", "GLIBC_2.28.1", "GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR"];
        assert!(new.into_iter().all(is_too_new));
        assert!(!["GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.28", "GCC_3.0"].into_iter().any(is_too_new));
    }

    /// This test is linked for the system that it runs on, with libgcc.
    #[test]
    fn what_is_too_new_is_named() {
        let me = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let lines = wrong("me", &me, 0).unwrap();
        assert!(lines.contains(&"me: needs libgcc_s.so.1, which is no part of glibc".to_owned()), "{lines:?}");
        // One library inside another file, as it is or packed: all its symbols are found.
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&me).unwrap();
        let packed = [&me[..], &packed.finish().unwrap()].concat();
        assert_eq!(wrong("packed", &packed, 1).unwrap().len(), 2 * lines.len());
        let within = [&me[..], &me[..]].concat();
        assert_eq!(wrong("both", &within, 1).unwrap().len(), 2 * lines.len());
        let e = wrong("both", &within, 2).unwrap_err();
        assert_eq!(e.to_string(), "both: carries 1 libraries, not 2: not all of it can be checked");
    }
}
