//! The living objects of a graph as texts, so that two graphs can be compared.

use super::objects::{Backing, External};
use super::*;

impl ObjectGraph {
    /// Everything that can be read of living objects, as sorted texts. If two graphs have equal texts, a reader gets the same from both.
    /// Freed objects and the indices of objects are left out.
    pub fn living(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (key, id) in &self.live {
            let Some(o) = self.objects.get(id.0) else { continue };
            let kind = match o.kind {
                ObjectKind::Memory(m) => self.memory_text(Some(m)),
                ObjectKind::Channel(_) => "channel".into(),
                ObjectKind::Usermode(page) => {
                    self.pages.get(page).map_or_else(String::new, |p| format!("{:?} {}", p.cpu, p.bar1))
                }
                other => format!("{other:?}"),
            };
            let parent = o.parent.is_some_and(|p| self.objects.get(p.0).is_some_and(|p| p.freed.is_none()));
            all.push(format!("object {key:x?} {:x} {parent} {:x} {kind}", o.parent_handle, o.class));
        }
        for c in self.alive.iter().filter_map(|c| self.channels.get(c.0)) {
            let (userd, fifo) = (c.userd.and_then(|u| u.memory), c.gpfifo_at.and_then(|at| at.memory));
            let memories = [self.memory_text(userd), self.memory_text(fifo)];
            let mut c = Channel { id: ChannelId(0), born: 0, freed: None, ..c.clone() };
            c.userd.iter_mut().for_each(|u| u.memory = None);
            c.gpfifo_at.iter_mut().for_each(|at| at.memory = None);
            all.push(format!("{c:?} {memories:?}"));
        }
        for (token, channels) in &self.tokens {
            let last = channels.iter().rev().find(|c| self.alive.contains(c)).and_then(|c| self.channels.get(c.0));
            all.extend(last.map(|c| format!("token {token:x} {:x} {:x}", c.client, c.handle)));
        }
        for (fd, file) in &self.fds {
            let Some(f) = self.files.get(*file) else { continue };
            let bound = f.bound.map(|(target, offset)| (self.target_text(target), offset));
            all.push(format!("file {fd} {:?} {} {bound:?} {:x?}", f.kind, f.fds, f.clients));
        }
        for (start, len, m) in self.cpu.iter() {
            all.push(format!("cpu {start:x} {len:x} {} {:x} {}", self.target_text(m.target), m.offset, m.fd));
        }
        let mut mapped = |what: String, at: &Intervals<External>| {
            all.extend(at.iter().map(|(start, len, e)| {
                let (backing, memory) = match e.backing {
                    Backing::Memory { client, handle, memory } => (Some((client, handle)), self.memory_text(memory)),
                    Backing::SemaphorePool => (None, String::new()),
                };
                format!(
                    "{what} {start:x} {len:x} {backing:x?} {memory} {:x} {:x?} {:?} {:x?}",
                    e.offset, e.gpus, e.home, e.space
                )
            }));
        };
        mapped("mapped".into(), &self.external);
        self.spaces_dma.iter().for_each(|(space, at)| mapped(format!("{space:x?}"), at));
        self.on_gpu.iter().for_each(|(gpu, at)| mapped(format!("{gpu:x?}"), at));
        all.push(format!(
            "{:?} {:x?} {:?} {:x?} {:?}",
            self.instances, self.ranges, self.gpus, self.va_spaces, self.driver_version
        ));
        all.sort();
        all
    }

    fn memory_text(&self, id: Option<MemoryId>) -> String {
        id.and_then(|m| self.memories.get(m.0)).map_or_else(String::new, |m| {
            let (place, user) = (m.place, m.user_address);
            format!(
                "{:x}/{:x} {:x} {} {place:?} {user:?} {:x} {}",
                m.client,
                m.handle,
                m.class,
                m.size,
                m.va_space,
                m.freed.is_some()
            )
        })
    }

    fn target_text(&self, target: Target) -> String {
        match target {
            Target::Memory(m) => self.memory_text(Some(m)),
            Target::Usermode(page) => {
                self.pages.get(page).map_or_else(String::new, |p| format!("page {:x}/{:x}", p.client, p.handle))
            }
            other => format!("{other:?}"),
        }
    }
}
