//! An initial file system: cpio's "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    count: u32,
}

impl Archive {
    /// A file that may be run, with the folders above it. `path` has no slash in front.
    pub fn file(&mut self, path: &str, contents: &[u8]) {
        let above: Vec<_> = Path::new(path).ancestors().skip(1).filter(|folder| *folder != Path::new("")).collect();
        for folder in above.into_iter().rev() {
            let folder = folder.to_str().unwrap().to_owned();
            if self.folders.insert(folder.clone()) {
                self.entry(&folder, FOLDER, (0, 0), &[]);
            }
        }
        self.entry(path, PROGRAM, (0, 0), contents);
    }

    /// A character device.
    pub fn device(&mut self, path: &str, number: (u32, u32)) {
        self.entry(path, DEVICE, number, &[]);
    }

    pub fn folder(&mut self, path: &str) {
        self.folders.insert(path.to_owned());
        self.entry(path, FOLDER, (0, 0), &[]);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.count += 1;
        let size = u32::try_from(contents.len()).unwrap();
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
        let name = path.len() as u32 + 1;
        let fields = [self.count, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
