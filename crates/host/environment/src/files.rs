//! Files of /proc and /sys, by their paths on the machine. In tests they are below a folder.

use crate::value::Known;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Files {
    /// Empty: the machine's own.
    root: PathBuf,
}

/// Larger files are not read: they contain no facts.
const MOST: u64 = 16 << 20;

impl Files {
    pub fn of_this_machine() -> Files {
        Files { root: PathBuf::new() }
    }

    #[cfg(test)]
    pub fn below(root: impl Into<PathBuf>) -> Files {
        Files { root: root.into() }
    }

    fn at(&self, path: &str) -> PathBuf {
        match self.root.as_os_str().is_empty() {
            true => PathBuf::from(path),
            false => self.root.join(path.trim_start_matches('/')),
        }
    }

    pub fn bytes(&self, path: &str) -> Known<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.at(path)).map_err(|e| why(path, &e))?;
        file.take(MOST).read_to_end(&mut bytes).map_err(|e| why(path, &e))?;
        Ok(bytes)
    }

    /// Without surrounding white space. Bytes that are no UTF-8 are replaced.
    pub fn text(&self, path: &str) -> Known<String> {
        self.bytes(path).map(|b| String::from_utf8_lossy(&b).trim().to_string())
    }

    pub fn number(&self, path: &str) -> Known<i64> {
        let text = self.text(path)?;
        text.parse().map_err(|_| format!("{path} holds no number, but {text:?}"))
    }

    /// Names in a folder, sorted.
    pub fn names(&self, path: &str) -> Known<Vec<String>> {
        let entries = fs::read_dir(self.at(path)).map_err(|e| why(path, &e))?;
        let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The path with all its links resolved.
    pub fn real(&self, path: &str) -> Known<String> {
        let real = fs::canonicalize(self.at(path)).map_err(|e| why(path, &e))?;
        let root = fs::canonicalize(&self.root).unwrap_or_default();
        let below = real.strip_prefix(&root).unwrap_or(&real).to_string_lossy().into_owned();
        Ok(if below.starts_with('/') { below } else { format!("/{below}") })
    }

    pub fn is_there(&self, path: &str) -> bool {
        self.at(path).exists()
    }
}

fn why(path: &str, e: &std::io::Error) -> String {
    match e.kind() {
        ErrorKind::NotFound => format!("{path} is not there"),
        ErrorKind::PermissionDenied => format!("{path} is not readable for this user"),
        _ => format!("{path}: {e}"),
    }
}

#[cfg(test)]
pub mod tree {
    //! A machine for tests: files and links below a folder, removed at the end.

    use super::Files;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    pub struct Tree(PathBuf);

    impl Tree {
        pub fn new(name: &str) -> Tree {
            let tree = Tree(std::env::temp_dir().join(format!("environment-{name}-{}", std::process::id())));
            let _ = fs::remove_dir_all(&tree.0);
            fs::create_dir_all(&tree.0).unwrap();
            tree
        }

        pub fn files(&self) -> Files {
            Files::below(&self.0)
        }

        pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
            fs::write(self.at(path), bytes).unwrap();
        }

        pub fn link(&self, path: &str, to: &str) {
            symlink(to, self.at(path)).unwrap();
        }

        fn at(&self, path: &str) -> PathBuf {
            let at = self.0.join(path.trim_start_matches('/'));
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            at
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_a_reason_that_names_it() {
        let files = Files::of_this_machine();
        let path = "/sys/devices/system/cpu/cpu100000/cpufreq/scaling_governor";
        assert_eq!(files.text(path), Err(format!("{path} is not there")));
        assert!(files.number("/proc/version").unwrap_err().starts_with("/proc/version holds no number"));
    }

    #[test]
    fn files_below_a_root_are_found_by_their_machine_path() {
        let tree = super::tree::Tree::new("files");
        tree.write("/sys/devices/pci0000:40/0000:41:00.0/vendor", "0x10de\n");
        tree.link("/sys/bus/pci/devices/0000:41:00.0", "../../../devices/pci0000:40/0000:41:00.0");
        let files = tree.files();
        let real = files.real("/sys/bus/pci/devices/0000:41:00.0");
        assert_eq!(real.as_deref(), Ok("/sys/devices/pci0000:40/0000:41:00.0"));
        assert_eq!(files.names("/sys/bus/pci/devices").unwrap(), ["0000:41:00.0"]);
        assert_eq!(files.text("/sys/bus/pci/devices/0000:41:00.0/vendor").as_deref(), Ok("0x10de"));
    }
}
