//! Which kernels launches start, and the QMDs that stay in memory.
//!
//! A kernel launched for itself has its QMD written right before it. A graph's QMDs are written once. Later launches of
//! the graph send only the address of its root, often an empty QMD that only starts others. So the last QMD launched at
//! an address is remembered and reused until the stream writes another one there.

use pushbuf::ops::{At, How, Launch};
use pushbuf::qmd::Qmd;
use pushbuf::snapshot::Snapshot;
use schema::operations::Shape;
use std::collections::HashMap;
use tape::kernel_clock::Order;

fn shape_of(l: &Launch) -> Option<Shape> {
    let q = l.qmd.as_ref()?;
    Some(Shape { kernel: l.kernel.filter(|k| *k != q.program_address()), ..shape(q) })
}

/// What a QMD starts.
pub(crate) fn shape(q: &Qmd) -> Shape {
    Shape {
        grid: q.grid(),
        block: q.block(),
        cluster: q.cluster(),
        registers: q.registers(),
        shared_memory: q.shared_memory(),
        program: q.program_address(),
        kernel: None,
    }
}

/// One launch, with its remembered QMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// `None` if the QMD was never in the stream.
    pub shape: Option<Shape>,
    /// The QMD was launched before and has not been written since.
    pub again: bool,
}

/// Maximum number of remembered QMDs.
const REMEMBERED: usize = 1 << 18;

/// The QMDs last launched at each address.
#[derive(Debug, Default)]
pub(crate) struct Qmds {
    known: HashMap<u64, (Shape, usize, Option<At>)>,
    /// The order of graphs' QMDs.
    orders: HashMap<u64, Order>,
}

type Known = (Shape, usize, Option<At>);

impl Snapshot for Qmds {
    fn save(&self, to: &mut Vec<u8>) {
        let known = |(address, (shape, channel, written)): (&u64, &Known)| {
            let Shape { grid, block, cluster, registers, shared_memory, program, kernel } = *shape;
            let written = written.map(|at| (at.segment, at.word));
            (*address, (grid, block, cluster, registers, shared_memory, program, kernel), *channel, written)
        };
        self.known.iter().map(known).collect::<Vec<_>>().save(to);
        let orders = self.orders.iter().map(|(address, order)| (*address, order.starts, order.early));
        orders.collect::<Vec<_>>().save(to);
    }

    fn load(from: &mut &[u8]) -> Option<Qmds> {
        let mut qmds = Qmds::default();
        type Shaped = ([u32; 3], [u32; 3], Option<[u32; 3]>, u32, u32, u64, Option<u64>);
        type Written = Option<(u64, u32)>;
        let all: Vec<(u64, Shaped, usize, Written)> = Snapshot::load(from)?;
        for (address, shape, channel, written) in all {
            let (grid, block, cluster, registers, shared_memory, program, kernel) = shape;
            let shape = Shape { grid, block, cluster, registers, shared_memory, program, kernel };
            let written = written.map(|(segment, word)| At { segment, word });
            qmds.known.insert(address, (shape, channel, written));
        }
        let all: Vec<(u64, [u64; 2], bool)> = Snapshot::load(from)?;
        let order = |(address, starts, early)| (address, Order { starts, early });
        qmds.orders = all.into_iter().map(order).collect();
        Some(qmds)
    }
}

impl Qmds {
    /// Returns what a launch starts, and remembers it.
    pub fn start(&mut self, channel: usize, l: &Launch) -> Started {
        let known = self.known.get(&l.qmd_address);
        let same = |(_, c, written): &(Shape, usize, Option<At>)| {
            // An inline QMD is sent with its launch. One in memory was written where the engine reports, or earlier.
            l.how != How::InlineQmd && (l.qmd.is_none() || (*c == channel && *written == l.written_at))
        };
        let again = known.is_some_and(same);
        // A QMD that has not been written since needs no second look.
        let shape = if again { known.map(|k| k.0) } else { shape_of(l).or(known.map(|k| k.0)) };
        if let (Some(shape), false) = (shape, again)
            && (self.known.len() < REMEMBERED || self.known.contains_key(&l.qmd_address))
        {
            self.known.insert(l.qmd_address, (shape, channel, l.written_at));
        }
        if let Some(q) = &l.qmd
            && (self.orders.len() < REMEMBERED || self.orders.contains_key(&l.qmd_address))
        {
            let mut order = Order { early: q.waits_on_latch(), ..Order::default() };
            order.starts.iter_mut().zip(q.dependents()).for_each(|(to, (_, dependent))| *to = dependent.address);
            if order != Order::default() || self.orders.contains_key(&l.qmd_address) {
                self.orders.insert(l.qmd_address, order);
            }
        }
        Started { shape, again }
    }

    /// The shape of the QMD at an address.
    pub fn shape(&self, qmd: u64) -> Option<Shape> {
        self.known.get(&qmd).map(|known| known.0)
    }

    /// The order of the QMD at an address.
    pub fn order(&self, qmd: u64) -> Order {
        self.orders.get(&qmd).copied().unwrap_or_default()
    }
}
