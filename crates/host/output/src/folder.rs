//! A folder of result files that is either complete or absent.

use crate::Error;
use crate::whole::{PREFIX, SUFFIX, folder_of};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes a folder with the files that `f` writes, readable by its owner only: under another name in the same place, which is then renamed. With
/// `force` it replaces a folder that contains only files whose names end in `ending`. A process that is killed in between leaves a folder with a
/// name of [`crate::is_part`].
///
/// # Errors
/// It exists, or cannot be written: there is no new folder, and an old one is as it was before.
pub fn whole_folder<E: From<Error>>(
    path: &Path,
    force: bool,
    ending: &str,
    f: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let old = may_become(path, force, ending)?;
    let create = |cause| Error::Create { path: path.into(), cause };
    let parent = folder_of(path);
    let part = || {
        let owner_only = fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).permissions(owner_only).tempdir_in(&parent);
        made.map_err(create)
    };
    let new = part()?;
    f(new.path())?;
    // An empty folder is replaced by the rename.
    let aside = if old { Some(part()?) } else { None };
    if let Some(aside) = &aside {
        fs::rename(path, aside.path()).map_err(create)?;
    }
    if let Err(cause) = fs::rename(new.path(), path) {
        if let Some(aside) = &aside {
            // (If that fails, too, the old one is still there under its other name.)
            let _ = fs::rename(aside.path(), path);
        }
        let taken = cause.kind() == io::ErrorKind::DirectoryNotEmpty;
        return Err(if taken { Error::Exists(path.into()) } else { create(cause) }.into());
    }
    // It no longer has the name under which it would be removed.
    let _ = new.keep();
    fs::File::open(&parent).and_then(|parent| parent.sync_all()).map_err(create)?;
    Ok(())
}

/// Whether there is a folder that is to be replaced.
fn may_become(path: &Path, force: bool, ending: &str) -> Result<bool, Error> {
    let kind = match fs::symlink_metadata(path) {
        Ok(m) => m.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(Error::Create { path: path.into(), cause }),
    };
    if kind.is_symlink() {
        return Err(Error::Link(path.into()));
    }
    if !kind.is_dir() {
        return Err(Error::NoFolder(path.into()));
    }
    let failed = |cause| Error::Create { path: path.into(), cause };
    let entries = fs::read_dir(path).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let is_ours = |e: &fs::DirEntry| {
        e.file_type().is_ok_and(|t| t.is_file()) && e.file_name().to_str().is_some_and(|name| name.ends_with(ending))
    };
    match entries.is_empty() {
        true => Ok(false),
        false if !force => Err(Error::Exists(path.into())),
        false if entries.iter().all(is_ours) => Ok(true),
        false => Err(Error::NotOurs(path.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn put(path: &Path, force: bool, name: &'static str) -> Result<(), Error> {
        whole_folder(path, force, ".x", |folder| {
            fs::write(folder.join(name), name).map_err(|cause| Error::Write { path: folder.into(), cause })
        })
    }

    #[test]
    fn a_folder_is_there_as_a_whole_or_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        put(&path, false, "a.x").unwrap();
        assert!(matches!(put(&path, false, "b.x"), Err(Error::Exists(_))));
        put(&path, true, "c.x").unwrap();
        assert_eq!(entries(&path), ["c.x"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let failed = whole_folder(&path, true, ".x", |folder| {
            fs::write(folder.join("half.x"), "").unwrap();
            assert_eq!(entries(dir.path()).iter().filter(|name| crate::is_part(name)).count(), 1);
            Err(Error::Exists("as if".into()))
        });
        assert!(failed.is_err());
        assert_eq!((entries(&path), entries(dir.path())), (vec!["c.x".into()], vec!["out".to_owned()]));
    }

    #[test]
    fn other_folders_are_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: &str| dir.path().join(n);
        fs::create_dir(at("home")).unwrap();
        fs::write(at("home").join("letter"), "dear").unwrap();
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(at("home"), at("link")).unwrap();
        assert!(matches!(put(&at("home"), true, "a.x"), Err(Error::NotOurs(_))));
        assert!(matches!(put(&at("file"), true, "a.x"), Err(Error::NoFolder(_))));
        assert!(matches!(put(&at("link"), true, "a.x"), Err(Error::Link(_))));
        assert!(matches!(put(&at("no/such"), true, "a.x"), Err(Error::Create { .. })));
        assert_eq!(entries(&at("home")), ["letter"]);
        fs::create_dir(at("empty")).unwrap();
        put(&at("empty"), false, "a.x").unwrap();
        assert_eq!(entries(&at("empty")), ["a.x"]);
    }
}
