//! Descriptors and their mappings.

use super::*;

const PAGE: u64 = 4096;

/// Rounds up to whole pages; a length at the end of the address space stays as it is.
fn pages(len: u64) -> u64 {
    len.checked_next_multiple_of(PAGE).unwrap_or(len)
}

impl ObjectGraph {
    /// A descriptor was opened.
    pub fn open(&mut self, fd: i32, file: FileKind) {
        self.now += 1;
        self.drop_fd(fd);
        self.new_file(fd, file);
    }

    /// A descriptor was closed.
    pub fn close(&mut self, fd: i32) {
        self.now += 1;
        self.drop_fd(fd);
    }

    /// A descriptor was duplicated; `new` is closed first if it was open.
    pub fn dup(&mut self, old: i32, new: i32) {
        self.now += 1;
        if old == new || new < 0 {
            return;
        }
        let Some(&file) = self.fds.get(&old) else { return self.drop_fd(new) };
        // Count first, then drop the old meaning of `new`: both may be the same file.
        self.files[file].fds += 1;
        self.drop_fd(new);
        self.fds.insert(new, file);
    }

    /// Something was mapped into the program. Mappings of files that are not the driver's only hide earlier mappings.
    pub fn mmap(&mut self, m: MmapRecord) {
        self.now += 1;
        if m.addr == u64::MAX || m.len == 0 {
            return;
        }
        let len = pages(m.len);
        self.cut_cpu(m.addr, len);
        let Some(&file) = self.fds.get(&m.fd) else { return };
        let (target, offset) = match (self.files[file].kind, self.files[file].bound) {
            (FileKind::Uvm, _) => (Target::Uvm, m.offset),
            (_, Some((target, offset))) => (target, offset.wrapping_add(m.offset)),
            (_, None) => return,
        };
        self.insert_cpu(m.addr, len, CpuMapping { target, offset, fd: m.fd, file });
    }

    /// A range was unmapped.
    pub fn munmap(&mut self, addr: u64, len: u64) {
        self.now += 1;
        self.cut_cpu(addr, pages(len));
    }

    /// A range moved. `new` is all ones if it failed; `old_len` 0 makes a second mapping of the same pages.
    pub fn mremap(&mut self, old: u64, old_len: u64, new: u64, new_len: u64) {
        self.now += 1;
        if new == u64::MAX || new_len == 0 {
            return;
        }
        let (old_len, new_len) = (pages(old_len), pages(new_len));
        if old_len == 0 {
            let Some((start, _, m)) = self.cpu.at(old) else { return };
            let mut copy = *m;
            copy.offset = copy.offset.wrapping_add(old - start);
            self.insert_cpu(new, new_len, copy);
            return;
        }
        let pieces = self.cpu.cut(old, old_len);
        let covered = self.cpu.cut(new, new_len);
        for (start, len, m) in &pieces {
            let at = start - old;
            if at >= new_len {
                continue;
            }
            // The last piece grows with the mapping, and all are cut at its new end.
            let len = if at + len == old_len { new_len - at } else { (*len).min(new_len - at) };
            if let Some(start) = new.checked_add(at) {
                self.insert_cpu(start, len, *m);
            }
        }
        // Only now, so that a file whose mapping is being moved does not lose its last reference.
        for (_, _, m) in pieces.into_iter().chain(covered) {
            self.release_if_gone(m.file);
        }
    }

    fn new_file(&mut self, fd: i32, kind: FileKind) -> usize {
        let id = self.files.len();
        self.files.push(File { kind, fds: 1, ..File::default() });
        self.fds.insert(fd, id);
        id
    }

    /// The file of a descriptor; a new entry is made if it was opened before the recording began.
    pub(super) fn file_of(&mut self, fd: i32, kind: FileKind) -> usize {
        match self.fds.get(&fd) {
            Some(&f) => f,
            None => self.new_file(fd, kind),
        }
    }

    fn drop_fd(&mut self, fd: i32) {
        if let Some(file) = self.fds.remove(&fd) {
            self.files[file].fds = self.files[file].fds.saturating_sub(1);
            self.release_if_gone(file);
        }
    }

    /// The kernel frees a file's clients when the last descriptor and the last mapping of it are gone.
    fn release_if_gone(&mut self, file: usize) {
        let f = &self.files[file];
        if f.fds > 0 || f.clients.is_empty() || self.cpu.iter().any(|(_, _, m)| m.file == file) {
            return;
        }
        for client in std::mem::take(&mut self.files[file].clients) {
            self.free_handle(client, client);
        }
    }

    fn insert_cpu(&mut self, addr: u64, len: u64, m: CpuMapping) {
        self.cut_cpu(addr, len);
        self.cpu.insert(addr, len, m);
        match m.target {
            Target::Memory(id) => self.userd_mapped(id, addr, len, m.offset),
            Target::Usermode(page) => self.pages[page].cpu = Some(addr),
            Target::Object { .. } | Target::Uvm => {}
        }
    }

    fn cut_cpu(&mut self, addr: u64, len: u64) {
        for (_, _, m) in self.cpu.cut(addr, len) {
            self.release_if_gone(m.file);
        }
    }

    /// A memory object was mapped: sets the USERD address of channels whose USERD is in it.
    fn userd_mapped(&mut self, memory: MemoryId, addr: u64, len: u64, offset: u64) {
        for id in &self.alive {
            let Some(c) = self.channels.get_mut(id.0) else { continue };
            if let Some(u) = c.userd.as_mut().filter(|u| u.memory == Some(memory))
                && let Some(by) = u.offset.checked_sub(offset).filter(|by| *by < len)
            {
                u.cpu = addr.checked_add(by);
            }
        }
    }
}
