//! Submission entries (Base 1.4, section 4.2 and figure 105).

/// One submission entry: 16 dwords, as stored in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub [u32; 16]);

/// The place of a command's data: two PRP entries, or one and the address of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer(pub u64, pub u64);

impl Pointer {
    /// A command without data.
    pub const NONE: Pointer = Pointer(0, 0);
}

/// Admin opcodes (figure 139).
pub mod admin {
    pub const DELETE_SUBMISSION_QUEUE: u8 = 0x00;
    pub const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
    pub const DELETE_COMPLETION_QUEUE: u8 = 0x04;
    pub const CREATE_COMPLETION_QUEUE: u8 = 0x05;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
}

/// I/O opcodes of the NVM command set (figure 346).
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
}

/// The page that `identify` requests: CNS (figure 244).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Namespace(u32),
    Controller,
    /// What identifies a namespace: a list of descriptors (Base 1.4, section 5.15.2.4).
    Descriptors(u32),
    /// Active namespaces with numbers above this one.
    NamespacesAbove(u32),
}

impl Entry {
    pub fn new(opcode: u8, id: u16, namespace: u32) -> Entry {
        let mut words = [0; 16];
        words[0] = u32::from(opcode) | u32::from(id) << 16;
        words[1] = namespace;
        Entry(words)
    }

    pub fn with_data(mut self, pointer: Pointer) -> Entry {
        let bytes = u128::from(pointer.0) | u128::from(pointer.1) << 64;
        for (at, word) in self.0[6..10].iter_mut().enumerate() {
            *word = (bytes >> (32 * at)) as u32;
        }
        self
    }

    /// Command dwords from 10 on.
    fn with(mut self, from: usize, words: &[u32]) -> Entry {
        self.0[from..from + words.len()].copy_from_slice(words);
        self
    }

    pub fn opcode(&self) -> u8 {
        self.0[0] as u8
    }

    #[cfg(test)]
    pub fn id(&self) -> u16 {
        (self.0[0] >> 16) as u16
    }

    pub fn with_id(self, id: u16) -> Entry {
        let first = self.0[0] & 0xffff | u32::from(id) << 16;
        self.with(0, &[first])
    }

    /// Into one page at `to` (section 5.15).
    pub fn identify(asked: Asked, to: u64) -> Entry {
        let (selector, namespace) = match asked {
            Asked::Namespace(namespace) => (0, namespace),
            Asked::Controller => (1, 0),
            Asked::Descriptors(namespace) => (3, namespace),
            Asked::NamespacesAbove(namespace) => (2, namespace),
        };
        Entry::new(admin::IDENTIFY, 0, namespace).with_data(Pointer(to, 0)).with(10, &[selector])
    }

    /// Set Features, Number of Queues (section 5.21.1.7): as many queues each way.
    pub fn number_of_queues(pairs: u16) -> Entry {
        let wanted = u32::from(pairs.saturating_sub(1));
        Entry::new(admin::SET_FEATURES, 0, 0).with(10, &[0x07, wanted | wanted << 16])
    }

    /// Without interrupts, in contiguous memory (section 5.3).
    pub fn create_completion_queue(queue: u16, entries: u32, at: u64) -> Entry {
        let size = u32::from(queue) | (entries - 1) << 16;
        Entry::new(admin::CREATE_COMPLETION_QUEUE, 0, 0).with_data(Pointer(at, 0)).with(10, &[size, 1])
    }

    /// With the completion queue of the same number, in contiguous memory (section 5.4).
    pub fn create_submission_queue(queue: u16, entries: u32, at: u64) -> Entry {
        let size = u32::from(queue) | (entries - 1) << 16;
        let how = 1 | u32::from(queue) << 16;
        Entry::new(admin::CREATE_SUBMISSION_QUEUE, 0, 0).with_data(Pointer(at, 0)).with(10, &[size, how])
    }

    pub fn delete_submission_queue(queue: u16) -> Entry {
        Entry::new(admin::DELETE_SUBMISSION_QUEUE, 0, 0).with(10, &[queue.into()])
    }

    pub fn delete_completion_queue(queue: u16) -> Entry {
        Entry::new(admin::DELETE_COMPLETION_QUEUE, 0, 0).with(10, &[queue.into()])
    }

    /// Section 5.1.
    pub fn abort(queue: u16, id: u16) -> Entry {
        Entry::new(admin::ABORT, 0, 0).with(10, &[u32::from(queue) | u32::from(id) << 16])
    }

    /// A read or write of 1 to 65536 blocks (sections 6.9 and 6.15).
    pub fn blocks(opcode: u8, namespace: u32, block: u64, blocks: u32, pointer: Pointer) -> Entry {
        let words = [block as u32, (block >> 32) as u32, (blocks - 1) & 0xffff];
        Entry::new(opcode, 0, namespace).with_data(pointer).with(10, &words)
    }

    pub fn flush(namespace: u32) -> Entry {
        Entry::new(io::FLUSH, 0, namespace)
    }
}

/// A command's name, for errors.
pub fn name_of_admin(opcode: u8) -> &'static str {
    match opcode {
        admin::DELETE_SUBMISSION_QUEUE => "Delete I/O Submission Queue",
        admin::CREATE_SUBMISSION_QUEUE => "Create I/O Submission Queue",
        admin::DELETE_COMPLETION_QUEUE => "Delete I/O Completion Queue",
        admin::CREATE_COMPLETION_QUEUE => "Create I/O Completion Queue",
        admin::IDENTIFY => "Identify",
        admin::ABORT => "Abort",
        admin::SET_FEATURES => "Set Features",
        _ => "an admin command",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_laid_out_as_in_the_figure() {
        let read = Entry::blocks(io::READ, 3, 0x1_2345_6789, 16, Pointer(0x1_0000_1010, 0x2_0000_0000));
        let read = read.with_id(0xbeef);
        assert_eq!(read.0[0], 0xbeef_0002);
        assert_eq!(read.0[1], 3);
        assert_eq!(read.0[6..10], [0x1010, 1, 0, 2]);
        assert_eq!(read.0[10..13], [0x2345_6789, 1, 15]);
        assert_eq!((read.id(), read.opcode()), (0xbeef, io::READ));
    }

    #[test]
    fn queues_are_made_without_interrupts_and_contiguous() {
        assert_eq!(Entry::create_completion_queue(2, 129, 0x3000).0[10..12], [128 << 16 | 2, 1]);
        assert_eq!(Entry::create_submission_queue(2, 129, 0x3000).0[10..12], [128 << 16 | 2, 2 << 16 | 1]);
        assert_eq!(Entry::number_of_queues(4).0[10..12], [7, 3 << 16 | 3]);
        assert_eq!(Entry::abort(1, 0x42).0[10], 0x42 << 16 | 1);
    }
}
