//! The files of a package in memory, in the order of their names, and the archives made of them.

use anyhow::Context;
use flate2::{Compression, GzBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    File { bytes: Vec<u8>, program: bool },
    Link(PathBuf),
}

#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<String, Entry>);

impl Files {
    /// All files below a folder.
    pub fn read(folder: &Path) -> anyhow::Result<Files> {
        let mut files = Files::default();
        files.read_below(folder, "").with_context(|| format!("{}", folder.display()))?;
        Ok(files)
    }

    fn read_below(&mut self, folder: &Path, name: &str) -> anyhow::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let file = path.file_name().and_then(|n| n.to_str()).context("a name that is not UTF-8")?;
            let name = if name.is_empty() { file.to_owned() } else { format!("{name}/{file}") };
            if kind.is_dir() {
                self.read_below(&path, &name)?;
            } else if kind.is_symlink() {
                self.0.insert(name, Entry::Link(fs::read_link(&path)?));
            } else {
                let program = fs::metadata(&path)?.permissions().mode() & 0o100 != 0;
                self.0.insert(name, Entry::File { bytes: fs::read(&path)?, program });
            }
        }
        Ok(())
    }

    pub fn add(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        self.0.insert(name.into(), Entry::File { bytes, program: false });
    }

    pub fn add_program(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        self.0.insert(name.into(), Entry::File { bytes, program: true });
    }

    pub fn insert(&mut self, name: impl Into<String>, entry: Entry) {
        self.0.insert(name.into(), entry);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The file `name`, or the file that it links to.
    pub fn bytes(&self, name: &str) -> anyhow::Result<&[u8]> {
        match self.0.get(name).with_context(|| format!("{name}: not in the prefix"))? {
            Entry::File { bytes, .. } => Ok(bytes),
            Entry::Link(to) => {
                let beside = Path::new(name).with_file_name(to);
                self.bytes(beside.to_str().context("a name that is not UTF-8")?)
            }
        }
    }

    /// A tar archive of all files, below the folder `under`, with the same time and root as the owner.
    pub fn tar(&self, under: &str, when: u64) -> anyhow::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        let header = |kind, mode, size| {
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_mtime(when);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(size);
            header
        };
        let mut folders = BTreeSet::new();
        for (name, entry) in &self.0 {
            let name = Path::new(under).join(name);
            let above: Vec<_> =
                name.ancestors().skip(1).filter(|above| !matches!(above.to_str(), Some("" | "."))).collect();
            for folder in above.into_iter().rev() {
                if folders.insert(folder.to_owned()) {
                    // A name that ends with a slash is a folder for all programs.
                    tar.append_data(&mut header(EntryType::Directory, 0o755, 0), folder.join(""), &[][..])?;
                }
            }
            match entry {
                Entry::File { bytes, program } => {
                    let mode = if *program { 0o755 } else { 0o644 };
                    tar.append_data(&mut header(EntryType::Regular, mode, bytes.len() as u64), &name, &bytes[..])?;
                }
                Entry::Link(to) => tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), &name, to)?,
            }
        }
        Ok(tar.into_inner()?)
    }
}

/// Has no name and no time in its header.
pub fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}
