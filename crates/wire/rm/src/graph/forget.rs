//! Removes freed objects from a graph that lives as long as its program.

use super::objects::Backing;
use super::*;
use std::collections::HashSet;

/// Number of freed objects that may stay in a small graph.
const FEW: usize = 1024;

/// The new position of each entry that stays in a list, by its old position.
struct Kept(Vec<Option<usize>>);

impl Kept {
    /// Removes all other entries from the list.
    fn of<T>(list: &mut Vec<T>, stays: impl Fn(usize, &T) -> bool) -> Kept {
        let (mut old, mut next) = (0, 0);
        let mut positions = Vec::with_capacity(list.len());
        list.retain(|one| {
            let kept = stays(old, one);
            positions.push(kept.then_some(next));
            old += 1;
            next += usize::from(kept);
            kept
        });
        list.shrink_to(2 * next);
        Kept(positions)
    }

    fn at(&self, old: usize) -> Option<usize> {
        self.0.get(old).copied().flatten()
    }

    /// Replaces an old position by the new one. False if the entry was removed.
    fn renumber(&self, at: &mut usize) -> bool {
        self.at(*at).inspect(|new| *at = *new).is_some()
    }

    fn renumber_memory(&self, id: &mut Option<MemoryId>) {
        *id = id.and_then(|m| self.at(m.0)).map(MemoryId);
    }
}

impl ObjectGraph {
    /// Removes freed objects if there are many: call it after each record. Queries about living objects and mapped memory return what they returned before.
    /// Earlier ids are not valid any more. The `born` of a memory does not change.
    pub fn forget_freed(&mut self) {
        let all = self.objects.len() + self.files.len();
        if all > 2 * self.remembered + FEW {
            self.forget_all_freed();
        }
    }

    /// As [`ObjectGraph::forget_freed`], even if they are few.
    pub fn forget_all_freed(&mut self) {
        let gone = |o: &Object| o.kind == ObjectKind::Client && !self.live.contains_key(&(o.client, o.client));
        let gone: HashSet<u32> = self.objects.iter().filter(|o| gone(o)).map(|o| o.client).collect();
        self.spaces_dma.retain(|(client, _), _| !gone.contains(client));

        let channels = Kept::of(&mut self.channels, |_, c| c.alive());
        self.alive = (0..self.channels.len()).map(ChannelId).collect();
        self.latest.retain(|_, id| channels.renumber(&mut id.0));
        self.tokens.retain(|_, with_token| {
            with_token.retain_mut(|id| channels.renumber(&mut id.0));
            !with_token.is_empty()
        });

        let mut used: HashSet<usize> = self.fds.values().chain(&self.spaces).copied().collect();
        used.extend(self.cpu.iter().map(|(_, _, m)| m.file));
        let files = Kept::of(&mut self.files, |at, _| used.contains(&at));
        for file in self.fds.values_mut().chain(&mut self.spaces) {
            files.renumber(file);
        }

        let (memories, pages) = self.named();
        let memories = Kept::of(&mut self.memories, |at, m| m.freed.is_none() || memories.contains(&at));
        let pages = Kept::of(&mut self.pages, |at, page| page.freed.is_none() || pages.contains(&at));
        let target = |target: &mut Target| match target {
            Target::Memory(id) => memories.renumber(&mut id.0),
            Target::Usermode(page) => pages.renumber(page),
            Target::Object { .. } | Target::Uvm => true,
        };
        for (bound, _) in self.files.iter_mut().filter_map(|file| file.bound.as_mut()) {
            target(bound);
        }
        for m in self.cpu.values_mut() {
            target(&mut m.target);
            files.renumber(&mut m.file);
        }
        let on_gpu = self.on_gpu.iter_mut().map(|(_, own)| own);
        let mapped = self.spaces_dma.values_mut().chain(on_gpu).chain([&mut self.external]);
        for e in mapped.flat_map(Intervals::values_mut) {
            if let Backing::Memory { memory, .. } = &mut e.backing {
                memories.renumber_memory(memory);
            }
        }
        for (at, c) in self.channels.iter_mut().enumerate() {
            c.id = ChannelId(at);
            c.userd.iter_mut().for_each(|u| memories.renumber_memory(&mut u.memory));
            c.gpfifo_at.iter_mut().for_each(|at| memories.renumber_memory(&mut at.memory));
        }
        self.memories.iter_mut().enumerate().for_each(|(at, m)| m.id = MemoryId(at));

        let objects = Kept::of(&mut self.objects, |_, o| o.freed.is_none());
        for id in self.live.values_mut() {
            objects.renumber(&mut id.0);
        }
        for (at, o) in self.objects.iter_mut().enumerate() {
            o.id = ObjectId(at);
            o.parent = o.parent.and_then(|p| objects.at(p.0)).map(ObjectId);
            o.children.retain_mut(|child| objects.renumber(&mut child.0));
            match &mut o.kind {
                ObjectKind::Memory(id) => memories.renumber(&mut id.0),
                ObjectKind::Channel(id) => channels.renumber(&mut id.0),
                ObjectKind::Usermode(page) => pages.renumber(page),
                _ => true,
            };
        }
        self.remembered = self.objects.len() + self.files.len();
    }

    /// Memories and doorbell pages that are mapped, or that a channel or a file names: they may outlive their handles.
    fn named(&self) -> (HashSet<usize>, HashSet<usize>) {
        let (mut memories, mut pages) = (HashSet::new(), HashSet::new());
        let bound = self.files.iter().filter_map(|file| Some(file.bound?.0));
        for target in bound.chain(self.cpu.iter().map(|(_, _, m)| m.target)) {
            match target {
                Target::Memory(id) => drop(memories.insert(id.0)),
                Target::Usermode(page) => drop(pages.insert(page)),
                Target::Object { .. } | Target::Uvm => {}
            }
        }
        let mapped = self.spaces_dma.values().chain(self.on_gpu.iter().map(|(_, own)| own)).chain([&self.external]);
        memories.extend(mapped.flat_map(Intervals::iter).filter_map(|(_, _, e)| match e.backing {
            Backing::Memory { memory, .. } => Some(memory?.0),
            Backing::SemaphorePool => None,
        }));
        for c in &self.channels {
            memories.extend(c.userd.and_then(|u| Some(u.memory?.0)));
            memories.extend(c.gpfifo_at.and_then(|at| Some(at.memory?.0)));
        }
        (memories, pages)
    }
}
