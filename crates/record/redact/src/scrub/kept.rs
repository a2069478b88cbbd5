//! Which methods keep their values: those in the class tables, except those that carry a payload.

use pushbuf::class::{self, Class, Family};
use pushbuf::decode::Target;

/// Methods whose values are, or might be, the program's data: the beginnings of their names.
const PAYLOAD: [&str; 13] = [
    "LOAD_INLINE_DATA",
    // Constants of a fill.
    "SET_REMAP_CONST_",
    // Macros: code, start addresses, arguments.
    "LOAD_MME_",
    "CALL_MME_",
    "SET_MME_SHADOW_SCRATCH",
    // Their meaning is left to whoever programs them.
    "SET_FALCON",
    "SET_SPARE",
    "SET_I2M_SPARE_NOOP",
    "SET_RESERVED_SW_METHOD",
    "SET_INSTRUMENTATION_METHOD",
    // Without effect: any value will do.
    "NO_OPERATION",
    "NOP",
    "PIPE_NOP",
];

/// A bit for each word of method space (0x4000 bytes).
#[derive(Clone)]
struct Bits([u64; 64]);

impl Bits {
    fn set(&mut self, address: u16) {
        let i = usize::from(address / 4) & 4095;
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn get(&self, address: u16) -> bool {
        let i = usize::from(address / 4) & 4095;
        self.0[i / 64] >> (i % 64) & 1 != 0
    }
}

/// By class, and by family for classes without a table.
pub struct Tables {
    classes: Vec<(u32, Bits)>,
    families: [Bits; 4],
    nothing: Bits,
}

/// The methods of one target.
#[derive(Clone, Copy)]
pub struct Kept<'a>(&'a Bits);

impl Kept<'_> {
    pub fn keeps(self, address: u16) -> bool {
        self.0.get(address)
    }
}

impl Tables {
    pub fn new() -> Tables {
        let none = Bits([0; 64]);
        let mut classes = Vec::new();
        let mut families = std::array::from_fn(|_| none.clone());
        let mut payload = families.clone();
        for class in class::ALL {
            let (kept, dropped) = of_class(class);
            if let Some(i) = class.family().map(index) {
                let (all, none): (&mut Bits, &mut Bits) = (&mut families[i], &mut payload[i]);
                all.0.iter_mut().zip(kept.0).for_each(|(a, b)| *a |= b);
                none.0.iter_mut().zip(dropped.0).for_each(|(a, b)| *a |= b);
            }
            classes.push((class.id, kept));
        }
        classes.sort_by_key(|(id, _)| *id);
        // A payload method in one class of a family counts as one wherever the class is not known.
        for (all, none) in families.iter_mut().zip(payload) {
            all.0.iter_mut().zip(none.0).for_each(|(a, b)| *a &= !b);
        }
        Tables { classes, families, nothing: none }
    }

    /// For the class on a subchannel (or for the host's methods, below 0x100).
    pub fn of(&self, target: &Target, host: bool) -> Kept<'_> {
        if let Ok(i) = self.classes.binary_search_by_key(&target.class_id, |(id, _)| *id) {
            return Kept(&self.classes[i].1);
        }
        let family = if host { Some(Family::Host) } else { Family::answering(target.subch, target.class_id) };
        Kept(family.map_or(&self.nothing, |f| &self.families[index(f)]))
    }
}

fn index(family: Family) -> usize {
    match family {
        Family::Host => 0,
        Family::Copy => 1,
        Family::Compute => 2,
        Family::InlineToMemory => 3,
    }
}

/// The methods that keep their values, and those that carry a payload.
fn of_class(class: &Class) -> (Bits, Bits) {
    let (mut kept, mut dropped) = (Bits([0; 64]), Bits([0; 64]));
    for m in class.methods {
        let payload = PAYLOAD.iter().any(|p| m.name.starts_with(p));
        for i in 0..m.count.max(1) {
            let to = if payload { &mut dropped } else { &mut kept };
            to.set(m.offset.wrapping_add(i.wrapping_mul(m.stride)));
        }
    }
    (kept, dropped)
}
