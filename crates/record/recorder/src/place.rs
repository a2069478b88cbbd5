//! Where programs find the recorder's files: as memory files of its descriptors, or in a folder that the user named.
//!
//! A memory file is open to processes that may look into this process: the same user, with as many rights, in the same
//! namespaces. Files in a folder are open to whoever knows their path, because a program may change its user. The path has a random part,
//! in a folder that only its owner can list: other users do not find them.

use crate::memory::{self, memfd};
use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// This recording's own folder inside the requested one; `None`: memory files.
pub struct Place(Option<PathBuf>);

/// A file, and the path at which programs open it while it exists.
pub struct SharedFile {
    pub file: File,
    pub path: String,
}

/// Maximum bytes of the folder's path: the agent's memory has room for two libraries in it.
const LONGEST: usize = 90;

impl Place {
    /// True for files whose file system may have less room than they are long.
    pub fn is_limited(&self) -> bool {
        self.0.is_some() || memory::is_strict()
    }

    pub fn memory() -> Place {
        Place(None)
    }

    /// # Errors
    /// The folder does not exist or is no folder, or libraries cannot be loaded from it.
    pub fn folder(dir: &Path) -> io::Result<Place> {
        let other = |text: &str| io::Error::other(text.to_owned());
        let dir = dir.canonicalize()?;
        if !dir.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let listed = dir.join(format!("doorbell-{}-{:x}", std::process::id(), crate::clock::tsc()));
        let own = listed.join(format!("{:016x}", random()?));
        let bytes = own.as_os_str().as_bytes();
        if bytes.len() > LONGEST || own.to_str().is_none() || bytes.iter().any(|b| b": \t\n".contains(b)) {
            return Err(other("its path is too long, or has a colon or a space in it, which LD_PRELOAD cannot hold"));
        }
        if is_noexec(&dir)? {
            return Err(other("it is mounted noexec: no library can be loaded from it"));
        }
        let meta = dir.metadata()?;
        if meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0 {
            return Err(other(
                "others may rename what is in it, and the program loads a library from there: chmod go-w, or +t",
            ));
        }
        DirBuilder::new().mode(0o700).create(&listed)?;
        let place = Place(Some(own.clone()));
        DirBuilder::new().mode(0o700).create(&own)?;
        for folder in [&own, &listed] {
            fs::set_permissions(folder, Permissions::from_mode(0o711))?;
        }
        Ok(place)
    }

    /// A new file with `bytes` in it, at least `len` bytes long. `mode` is for a file in a folder.
    pub fn file(&self, name: &CStr, bytes: &[u8], len: usize, mode: u32) -> io::Result<SharedFile> {
        let Some(own) = &self.0 else {
            let file = memfd(name, bytes, len)?;
            let path = memory::path_of(&file);
            return Ok(SharedFile { file, path });
        };
        let path = own.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        // (For others only when it is complete: one who has opened it to write could change the library later.)
        let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(bytes)?;
        if len > bytes.len() {
            memory::make_longer(&file, len)?;
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        // (The path is text: see `folder`.)
        Ok(SharedFile { file, path: path.to_string_lossy().into_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(listed) = self.0.as_deref().and_then(Path::parent) {
            let _ = fs::remove_dir_all(listed);
        }
    }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: room for as many bytes as are requested.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_noexec(dir: &Path) -> io::Result<bool> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: zeroed is a statvfs to write to; a NUL-terminated path.
    unsafe {
        let mut s: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &mut s) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(s.f_flag & libc::ST_NOEXEC != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_folder_are_everybodys_and_go_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::folder(dir.path()).unwrap();
        let shared = place.file(c"doorbell-x", b"abc", 4096, 0o666).unwrap();
        let meta = fs::metadata(&shared.path).unwrap();
        assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (4096, 0o666));
        assert!(fs::read(&shared.path).unwrap().starts_with(b"abc\0"));
        drop(place);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_the_loader_cannot_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            Place::folder(&path).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert!(refused("a b").contains("LD_PRELOAD") && refused(&"x".repeat(LONGEST)).contains("too long"));
        assert_eq!(Place::folder(Path::new("/dev/null")).err().map(|e| e.kind()), Some(io::ErrorKind::NotADirectory));
        assert_eq!(Place::folder(&dir.path().join("none")).err().map(|e| e.kind()), Some(io::ErrorKind::NotFound));
    }
}
