//! The class tables: what each method and field of an object class is called.
//!
//! Built from `classes/*.tsv`. A lookup by offset is one array access. A class without a table is unknown: callers print its methods raw.

/// A value's name within a field: `(name, value)`.
pub type Enum = (&'static str, u32);

/// Bits `hi..=lo` of a method's data word.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub hi: u8,
    pub lo: u8,
    pub enums: &'static [Enum],
}

impl Field {
    /// The field's bits, moved down to bit 0.
    pub fn extract(&self, word: u32) -> u32 {
        (word >> (self.lo & 31)) & self.mask()
    }

    /// `word` with this field set to the low bits of `value`.
    pub fn insert(&self, word: u32, value: u32) -> u32 {
        let mask = self.mask() << (self.lo & 31);
        (word & !mask) | ((value << (self.lo & 31)) & mask)
    }

    /// Name of a value of this field, as given by [`Field::extract`].
    pub fn enum_name(&self, value: u32) -> Option<&'static str> {
        self.enums.iter().find(|(_, v)| *v == value).map(|(name, _)| *name)
    }

    fn mask(&self) -> u32 {
        u32::MAX >> (31 - u32::from(self.hi.saturating_sub(self.lo)).min(31))
    }
}

/// One method; an array of `count` methods, `stride` bytes apart, when `stride` is not zero.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    pub name: &'static str,
    /// In bytes.
    pub offset: u16,
    /// In bytes; 0 for a single method.
    pub stride: u16,
    pub count: u16,
    pub fields: &'static [Field],
}

impl Method {
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// A method at an offset, with its index where it is an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodRef {
    pub method: &'static Method,
    pub index: Option<u32>,
}

/// An object class: the methods that one engine (or the host) understands.
pub struct Class {
    pub id: u32,
    pub name: &'static str,
    /// Sorted by offset.
    pub methods: &'static [Method],
    /// For each word of method space, one more than the method's place in `methods`; 0 for none.
    index: &'static [u16; 4096],
}

impl core::fmt::Debug for Class {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}({:#06x})", self.name, self.id)
    }
}

impl PartialEq for Class {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Class {}

/// What an engine class is for. A family's methods have the same offsets in every generation that has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// 0x..6F: the methods that the host itself executes.
    Host,
    /// 0x..B5.
    Copy,
    /// 0x..C0.
    Compute,
    /// 0x..40: inline to memory.
    InlineToMemory,
}

impl Family {
    /// The family of a class id, given by its low byte; the class need not have a table.
    pub fn of(id: u32) -> Option<Family> {
        match id & 0xff {
            _ if id > 0xffff => None,
            0x6f => Some(Family::Host),
            0xb5 => Some(Family::Copy),
            0xc0 => Some(Family::Compute),
            0x40 => Some(Family::InlineToMemory),
            _ => None,
        }
    }

    /// The family of the class on a subchannel. If no class is known (0), the fixed use of the subchannels of a graphics runlist decides. The CUDA
    /// driver keeps to that use on copy runlists, too.
    pub fn answering(subch: u8, class_id: u32) -> Option<Family> {
        match (class_id, subch) {
            (0, 1) => Some(Family::Compute),
            (0, 2) => Some(Family::InlineToMemory),
            (0, 4) => Some(Family::Copy),
            (0, _) => None,
            (id, _) => Family::of(id),
        }
    }
}

impl Class {
    pub fn family(&self) -> Option<Family> {
        Family::of(self.id)
    }

    /// The method at a byte offset.
    pub fn method(&'static self, byte_offset: u16) -> Option<MethodRef> {
        let slot = *self.index.get(usize::from(byte_offset / 4))?;
        let method = self.methods.get(usize::from(slot).checked_sub(1)?)?;
        let index = (byte_offset & !3).checked_sub(method.offset)?.checked_div(method.stride).map(u32::from);
        Some(MethodRef { method, index })
    }

    /// The method of a name.
    pub fn method_named(&self, name: &str) -> Option<&'static Method> {
        self.methods.iter().find(|m| m.name == name)
    }
}

/// The class of an id, where there is a table for it.
pub fn by_id(id: u32) -> Option<&'static Class> {
    ALL.binary_search_by_key(&id, |class| class.id).ok().and_then(|i| ALL.get(i)).copied()
}

include!(concat!(env!("OUT_DIR"), "/classes.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_found_by_its_id_and_every_method_by_its_offset() {
        assert!(ALL.len() >= 23);
        for class in ALL {
            assert_eq!(by_id(class.id), Some(*class));
            for method in class.methods {
                for i in 0..method.count {
                    let at = class.method(method.offset + i * method.stride).unwrap();
                    assert_eq!(at.method.offset, method.offset, "{class:?} {}", method.name);
                    assert_eq!(at.index, (method.stride > 0).then_some(u32::from(i)));
                }
                for field in method.fields {
                    assert!(field.hi <= 31 && field.lo <= field.hi, "{class:?} {} {}", method.name, field.name);
                }
            }
        }
    }

    #[test]
    fn host_tables_have_no_false_methods() {
        for id in [0xc36f, 0xc46f, 0xc56f, 0xc76f, 0xc86f, 0xc96f, 0xca6f] {
            let class = by_id(id).unwrap();
            assert!(class.methods.iter().all(|m| m.offset < 0x100 && m.offset % 4 == 0), "{class:?}");
            assert!(class.methods.windows(2).all(|w| w[0].offset < w[1].offset), "{class:?}");
            assert_eq!(class.method(0).unwrap().method.name, "SET_OBJECT");
            assert_eq!(class.method(0x24).unwrap().method.name, "FB_FLUSH");
            let hi = class.method(0x60).unwrap().method;
            assert_eq!(hi.fields[0].hi, if id >= 0xc86f { 24 } else { 7 }, "{class:?}");
        }
        let mem_op = by_id(0xc86f).unwrap().method_named("MEM_OP_D").unwrap();
        assert_eq!(mem_op.field("OPERATION").unwrap().enum_name(0x10), Some("L2_FLUSH_DIRTY"));
        // (clc96f.h; clc86f.h has no such value.)
        let flush =
            |id| by_id(id).unwrap().method_named("MEM_OP_D").unwrap().field("OPERATION").unwrap().enum_name(0x11);
        assert_eq!(
            [0xc86f, 0xc96f, 0xca6f].map(flush),
            [None, Some("L2_SYSMEM_NCOH_INVALIDATE"), Some("L2_SYSMEM_NCOH_INVALIDATE")]
        );
    }

    /// Numbers from `g_allclasses.h` (open-gpu-kernel-modules 595.45.04) and open-gpu-doc; chips from `g_gpu_class_list.c`.
    #[test]
    fn channels_copies_and_compute_have_tables_from_volta_to_blackwell() {
        let published = [
            // GV100, GV11B
            (0xc36f, "VOLTA_CHANNEL_GPFIFO_A"),
            (0xc3b5, "VOLTA_DMA_COPY_A"),
            (0xc3c0, "VOLTA_COMPUTE_A"),
            (0xc4c0, "VOLTA_COMPUTE_B"),
            // TU10x, TU11x
            (0xc46f, "TURING_CHANNEL_GPFIFO_A"),
            (0xc5b5, "TURING_DMA_COPY_A"),
            (0xc5c0, "TURING_COMPUTE_A"),
            // GA100, GA10x, AD10x
            (0xc56f, "AMPERE_CHANNEL_GPFIFO_A"),
            (0xc76f, "AMPERE_CHANNEL_GPFIFO_B"),
            (0xc6b5, "AMPERE_DMA_COPY_A"),
            (0xc7b5, "AMPERE_DMA_COPY_B"),
            (0xc6c0, "AMPERE_COMPUTE_A"),
            (0xc7c0, "AMPERE_COMPUTE_B"),
            (0xc9c0, "ADA_COMPUTE_A"),
            // GH100
            (0xc86f, "HOPPER_CHANNEL_GPFIFO_A"),
            (0xc8b5, "HOPPER_DMA_COPY_A"),
            (0xcbc0, "HOPPER_COMPUTE_A"),
            // GB10x, GB20x
            (0xc96f, "BLACKWELL_CHANNEL_GPFIFO_A"),
            (0xca6f, "BLACKWELL_CHANNEL_GPFIFO_B"),
            (0xc9b5, "BLACKWELL_DMA_COPY_A"),
            (0xcab5, "BLACKWELL_DMA_COPY_B"),
            (0xcdc0, "BLACKWELL_COMPUTE_A"),
            (0xcec0, "BLACKWELL_COMPUTE_B"),
            // all of them but GB10x
            (0xa140, "KEPLER_INLINE_TO_MEMORY_B"),
        ];
        for (id, name) in published {
            assert_eq!(by_id(id).map(|class| class.name), Some(name), "{id:#x}");
        }
        assert_eq!(ALL.len(), published.len());
        // BLACKWELL_INLINE_TO_MEMORY_A: only its number is published.
        assert!(by_id(0xcd40).is_none());
    }

    #[test]
    fn arrays_end_where_the_next_method_starts() {
        let class = by_id(0xcbc0).unwrap();
        let qmd = class.method(0x320 + 95 * 4).unwrap();
        assert_eq!((qmd.method.name, qmd.index), ("LOAD_INLINE_QMD_DATA", Some(95)));
        assert!(class.method(0x320 + 96 * 4).is_none());
        assert_eq!(class.method(0x3808).unwrap().method.name, "CALL_MME_MACRO");
        assert_eq!(class.method(0x380c).unwrap().index, Some(1));
        assert_eq!(class.method_named("SET_MME_SHADOW_SCRATCH").unwrap().count, 256);
    }

    #[test]
    fn a_field_is_extracted_inserted_and_named() {
        let launch = by_id(0xc8b5).unwrap().method(0x300).unwrap().method;
        let field = launch.field("DATA_TRANSFER_TYPE").unwrap();
        assert_eq!(field.extract(0x182), 2);
        assert_eq!(field.enum_name(2), Some("NON_PIPELINED"));
        assert_eq!(field.insert(0x182, 1), 0x181);
        let whole = by_id(0xc8b5).unwrap().method(0x404).unwrap().method.fields[0].extract(u32::MAX);
        assert_eq!(whole, u32::MAX);
    }

    #[test]
    fn unknown_classes_are_unknown() {
        assert!(by_id(0xc8c0).is_none());
        assert!(by_id(0).is_none());
        assert_eq!(Family::of(0xc8c0), Some(Family::Compute));
    }
}
