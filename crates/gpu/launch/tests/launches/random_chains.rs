//! Random chains: their steps leave the same bytes as the same steps one after the other.

use crate::rig::{Rig, TIMEOUT};
use crate::try_learn;
use cuda_graph::words::{Graph, Kernel, SCHEDULE};
use doorbell_softgpu::standin::{self, Operation};
use gpu::{Channel, ChannelOptions, Engine, Memory, Place, Region};
use launch::{Chain, ChainBeside, ChainOptions, Order, Step, Stored, Transfer, Way};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::sync::Arc;

const BYTES: u64 = 64;
/// Places of bytes: only the CPU fills the first two. Two more are in host memory, the others in GPU memory.
const PLACES: usize = 8;
const INPUTS: usize = 2;
const HOST: usize = 4;
/// Graphs: the source and destination place of each of their kernels.
const GRAPHS: [&[(usize, usize)]; 6] =
    [&[(4, 5)], &[(5, 6), (6, 4)], &[(6, 7)], &[(2, 5)], &[(7, 3), (5, 7)], &[(0, 6)]];

struct Places {
    host: Arc<Memory>,
    video: Arc<Memory>,
}

impl Places {
    fn at(&self, place: usize) -> (&Memory, u64) {
        let memory = if place < HOST { &self.host } else { &self.video };
        (memory, 0x100 * (place % HOST) as u64)
    }

    fn va(&self, place: usize) -> u64 {
        let (memory, at) = self.at(place);
        memory.va() + at
    }

    fn region(&self, place: usize) -> Region {
        let (memory, at) = self.at(place);
        memory.region().part(at, BYTES).unwrap()
    }

    fn write(&self, place: usize, bytes: &[u8; BYTES as usize]) {
        let (memory, at) = self.at(place);
        memory.write(at, bytes);
    }

    fn read(&self, place: usize) -> [u8; BYTES as usize] {
        let (memory, at) = self.at(place);
        let mut bytes = [0; BYTES as usize];
        memory.read(at, &mut bytes);
        bytes
    }
}

/// Launches a chain on the launch channel and the copy channel.
type Launching = Box<dyn FnMut(&mut Channel, &mut Channel) -> gpu::Ticket>;

#[derive(Clone, Copy, Debug)]
enum Random {
    Copy { to: usize, from: usize, bytes: u64, by: Way },
    Launch(usize),
}

fn steps() -> impl Strategy<Value = Vec<Random>> {
    let copy = (INPUTS..PLACES, 0..PLACES, 1..=BYTES, any::<bool>()).prop_map(|(to, from, bytes, inline)| {
        // Inline bytes are read when the chain is submitted: no step writes them.
        let by = if inline && from < INPUTS { Way::Inline } else { Way::CopyEngine };
        Random::Copy { to, from, bytes, by }
    });
    let stored = (HOST..PLACES, 0..HOST, 1..=BYTES).prop_map(|(to, from, bytes)| Random::Copy {
        to,
        from,
        bytes,
        by: Way::Stores,
    });
    let first = prop_oneof![Just(Vec::new()), prop::collection::vec(stored, 1..3)];
    let others = prop::collection::vec(prop_oneof![copy, (0..GRAPHS.len()).prop_map(Random::Launch)], 1..9);
    (first, others).prop_map(|(first, others)| [first, others].concat())
}

fn model(steps: &[Random], places: &mut [[u8; BYTES as usize]; PLACES]) {
    let mut copy = |to: usize, from: usize, bytes: usize| {
        let source = places[from];
        places[to][..bytes].copy_from_slice(&source[..bytes]);
    };
    for step in steps {
        match *step {
            Random::Copy { to, from, bytes, .. } => copy(to, from, bytes as usize),
            Random::Launch(graph) => GRAPHS[graph].iter().for_each(|(from, to)| copy(*to, *from, BYTES as usize)),
        }
    }
}

#[test]
fn random_chains_leave_what_their_steps_leave() {
    let rig = Rig::new();
    let channel = RefCell::new(rig.channel());
    let space = channel.borrow().space().clone();
    let places = Places { host: space.alloc_host(0x1000).unwrap(), video: space.alloc_video(0x1000).unwrap() };
    let mut learnt = Vec::new();
    for (n, copies) in GRAPHS.iter().enumerate() {
        let mut graph = rig.logging(Graph::chain(1));
        (graph.at.qmds, graph.at.banks) = (graph.at.qmd(8 * n), graph.at.bank(8 * n));
        let last = copies.len() - 1;
        let kernel = |i: usize| Kernel {
            code: Some(rig.code(Operation::Copy)),
            parameters: standin::copy(places.va(copies[i].1), places.va(copies[i].0), BYTES as u32),
            releases: (i == last).then_some(0),
            then: if i == last { Vec::new() } else { vec![(i + 1, SCHEDULE)] },
            ..Kernel::default()
        };
        graph.kernels = (0..=last).map(kernel).collect();
        learnt.push(try_learn(&rig, &mut channel.borrow_mut(), &graph).unwrap());
    }
    let order = prop_oneof![Just(Order::Counter), Just(Order::AsCuda), Just(Order::Engines)];
    let counter = prop_oneof![Just(Place::Host), Just(Place::Video)];
    let copies = RefCell::new(Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap());
    let mut runner = TestRunner::new(Config::with_cases(50));
    let ran = runner.run(
        &(steps(), order, counter, 0u32..4, 1usize..5, any::<u8>(), any::<bool>()),
        |(random, order, counter, turns, launches, seed, beside)| {
            let mut channel = channel.borrow_mut();
            rig.turns(Operation::Copy, turns);
            let mut expected = [[0; BYTES as usize]; PLACES];
            for (place, bytes) in expected.iter_mut().enumerate() {
                bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = seed ^ (place * 31 + i * 7) as u8);
                places.write(place, bytes);
            }
            let step = |random: &Random| match *random {
                Random::Copy { to, from, bytes, by } => {
                    Step::Copy(Transfer { to: places.region(to), from: places.region(from), bytes, by: Some(by) })
                }
                Random::Launch(graph) => Step::Launch(&learnt[graph]),
            };
            let steps: Vec<Step<'_>> = random.iter().map(step).collect();
            let stored = vec![Stored::Memory(places.video.clone())];
            let options = ChainOptions { order, counter, stored, ..ChainOptions::default() };
            let stores = matches!(random.first(), Some(Random::Copy { by: Way::Stores, .. }));
            let mut copies = copies.borrow_mut();
            // SAFETY: stand-in kernels in memory of the test.
            let mut launch: Launching = unsafe {
                if beside {
                    let mut chain = ChainBeside::prepare(&mut channel, &mut copies, &steps, options).unwrap();
                    Box::new(move |channel, copies| chain.launch(channel, copies).unwrap())
                } else {
                    let mut chain = Chain::prepare(&mut channel, &steps, options).unwrap();
                    Box::new(move |channel, _| chain.launch(channel).unwrap())
                }
            };
            for n in 1..=launches {
                let ticket = launch(&mut channel, &mut copies);
                model(&random, &mut expected);
                // The CPU's stores are not ordered after earlier launches.
                if n == launches || stores {
                    if beside { copies.wait(ticket, TIMEOUT) } else { channel.wait(ticket, TIMEOUT) }.unwrap();
                }
            }
            for (place, bytes) in expected.iter().enumerate() {
                prop_assert_eq!(&places.read(place), bytes, "place {}", place);
            }
            prop_assert_eq!(rig.faults(), 0);
            Ok(())
        },
    );
    ran.unwrap();
}
