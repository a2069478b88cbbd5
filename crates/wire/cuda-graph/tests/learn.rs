//! What is learnt of graphs whose every part is known, and moving them.

mod graphs;

use cuda_graph::words::{Graph, Step as Do};
use cuda_graph::{BankId, Edge, Form, How, Memory, NodeId, Recipe, Segment, Site, Step, Target, Wait, Work, learn};
use graphs::{BANK_AT, CODE, USER, bank_at, channel, counter_at, learn_graph, learn_words, qmd_at};
use pushbuf::qmd::{DependentAction, PcasAction};

#[test]
fn a_graph_of_one_kernel() {
    let r = learn_graph(&Graph::chain(1)).unwrap();
    assert_eq!((r.nodes.len(), r.edges.len(), r.groups.len(), r.banks.len()), (1, 0, 1, 1));
    let Work::Kernel(kernel) = &r.nodes[0].work else { panic!("{:?}", r.nodes) };
    assert_eq!((kernel.address, kernel.qmd.grid(), kernel.qmd.block()), (qmd_at(0), [8, 1, 1], [128, 1, 1]));
    let bank = &r.banks[kernel.bank.unwrap().0];
    assert_eq!((bank.address, bank.bytes, bank.parameters()), (bank_at(0), 0x300, (0x210, 16)));
    assert_eq!(bank.parameter_bytes(), Some(&[0; 16][..]));
    assert_eq!((r.counters[0].address, &r.counters[0].released), (counter_at(0), &vec![(NodeId(0), 0, 1)]));
    assert_eq!(r.groups[0].acquires, [(0, Wait::LaunchBefore(0))]);
    // The wait and the counter rise by four a launch, the stream's own semaphore by one.
    let steps: Vec<_> = r.payloads.iter().map(|(i, p)| (*i, p.step.unwrap())).collect();
    assert_eq!(steps, [(0, 4), (1, 4), (3, 1)]);
    assert!(r.has_data());
}

#[test]
fn chains_of_ten_and_a_hundred_start_at_the_qmd_that_only_orders() {
    for n in [2, 10, 100] {
        let r = learn_graph(&Graph::chain(n)).unwrap();
        assert_eq!((r.nodes.len(), r.kernels(), r.edges.len(), r.banks.len()), (n + 1, n, n, n));
        assert!(matches!(r.nodes[0].work, Work::Order(_)));
        for (i, edge) in r.edges.iter().enumerate() {
            let action = if i == 0 { DependentAction::DecrementDependence } else { DependentAction::Schedule };
            let how = How::Dependent { slot: 0, action, prefetch: false };
            assert_eq!(*edge, Edge { from: NodeId(i), to: NodeId(i + 1), how });
        }
        let starts: Vec<_> = r.groups[0].starts.iter().map(|s| (s.node.0, s.action.unwrap())).collect();
        assert_eq!(starts, [(0, PcasAction::InvalidatePrefetchCopySchedule), (1, PcasAction::DecrementDependence)]);
        assert_eq!(r.counters[0].released, [(NodeId(n), 0, 1)]);
    }
}

#[test]
fn a_fan_out_and_its_join() {
    let r = learn_graph(&Graph::diamond()).unwrap();
    let edges: Vec<_> = r.edges.iter().map(|e| (e.from.0, e.to.0)).collect();
    assert_eq!(edges, [(0, 1), (0, 2), (1, 3), (2, 3)]);
}

#[test]
fn a_memset_waits_for_the_group_before_it() {
    let r = learn_graph(&Graph::memset(USER)).unwrap();
    assert_eq!((r.kernels(), r.nodes.len(), r.groups.len(), r.counters.len()), (3, 4, 2, 2));
    assert_eq!(r.groups[0].acquires.iter().map(|a| a.1).collect::<Vec<_>>(), [Wait::LaunchBefore(1)]);
    assert_eq!(r.groups[1].acquires.iter().map(|a| a.1).collect::<Vec<_>>(), [Wait::Counter(0)]);
    let memset =
        r.nodes.iter().position(|n| matches!(n.work, Work::Fill(f) if f.dst == USER && f.bytes() == 64)).unwrap();
    let of = |qmd| r.nodes.iter().position(|n| n.work.kernel().is_some_and(|k| k.address == qmd)).unwrap();
    let edge = |from: usize, to: usize| r.edges.iter().find(|e| (e.from.0, e.to.0) == (from, to)).map(|e| e.how);
    assert_eq!(edge(of(qmd_at(1)), memset), Some(How::Counter(0)));
    assert_eq!(edge(memset, of(qmd_at(2))), Some(How::Stream));
    assert_eq!(r.nodes[memset].group, 1);
}

#[test]
fn a_memcpy_is_a_node_and_both_its_ends_are_references() {
    let mut graph = Graph::chain(1);
    graph.launch.push(Do::Memcpy { from: USER, to: USER + 4096, bytes: 128 });
    let r = learn_graph(&graph).unwrap();
    assert!(matches!(r.nodes[1].work, Work::Copy(c) if (c.src, c.dst, c.bytes()) == (USER, USER + 4096, 128)));
    let ends = [USER, USER + 4096].map(Target::Foreign);
    assert!(ends.iter().all(|end| r.references().any(|x| x.target == *end)));
}

#[test]
fn a_fork_onto_a_second_channel_is_joined_by_its_semaphore() {
    let graph = Graph::chain(2);
    let other = cuda_graph::words::words(|w| {
        let execute = pushbuf::semaphore::Execute {
            operation: pushbuf::semaphore::Operation::AcquireStrictGeq,
            ..pushbuf::semaphore::Execute::RELEASE
        };
        w.host_semaphore(0, graphs::TRACKER, 101, execute).unwrap();
        w.copy(4, USER, USER + 64, 64, 0x182).unwrap();
    });
    let (upload, again) = (graph.upload(), graph.again(1));
    let both = |words| [Segment { channel: 0, words }, Segment { channel: 1, words: &other }];
    let r = learn(&[channel(), channel()], &both(&upload), &[&both(&again)]).unwrap();
    assert_eq!(r.groups.iter().map(|g| g.channel).collect::<Vec<_>>(), [0, 1]);
    assert!(matches!(r.groups[1].acquires[..], [(_, Wait::Tracker(_))]));
    assert!(r.edges.iter().any(|e| e.how == How::Tracker && e.from == NodeId(3) && e.to == NodeId(2)), "{:?}", r.edges);
    let words = r.words(Form::Relaunch).unwrap();
    assert_eq!(words.iter().map(|(channel, _)| *channel).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_fork_onto_a_second_channel_is_joined_by_counters() {
    let graph = Graph::fork();
    let (upload, again) = (graph.upload_segments(), graph.again_segments(1));
    let r = learn(&[channel(), channel()], &segments(&upload), &[&segments(&again)]).unwrap();
    assert_eq!(r.groups.iter().map(|g| g.channel).collect::<Vec<_>>(), [0, 1, 0, 0]);
    assert_eq!(r.groups[3].acquires.iter().map(|a| a.1).collect::<Vec<_>>(), [Wait::Counter(1), Wait::Counter(2)]);
    let edges: Vec<_> = r.edges.iter().map(|e| (e.from.0, e.to.0)).collect();
    assert_eq!(edges, [(0, 1), (0, 2), (1, 3), (2, 3)]);
}

#[test]
fn own_and_foreign_addresses_are_distinguished() {
    let r = learn_graph(&Graph::chain(2)).unwrap();
    let own = |target| match target {
        Target::Own(block, offset) => Some((r.block(block).unwrap().memory, offset)),
        Target::Foreign(_) => None,
    };
    let foreign: Vec<u64> = r
        .references()
        .filter_map(|x| match x.target {
            Target::Foreign(at) => Some(at),
            Target::Own(..) => None,
        })
        .collect();
    assert!(foreign.iter().all(|at| [CODE, BANK_AT - 0x10000, BANK_AT - 0x20000].contains(at)), "{foreign:x?}");
    // The parameters of a bank are written into its middle.
    assert!(r.references().any(|x| matches!(own(x.target), Some((Memory::Bank(_), 0x210)))));
    let counters = r.references().filter(|x| matches!(own(x.target), Some((Memory::Counter(0), 0)))).count();
    // A release, and in each launch a write; in the second form also an acquire.
    assert_eq!(counters, 4);
}

/// A kernel reads the addresses of its parameters from its bank's header. In a copy of the graph they must be the copy's addresses.
#[test]
fn a_banks_header_names_the_graphs_own_memory_and_moves_with_it() {
    let r = learn_graph(&Graph::chain(2)).unwrap();
    let moved = r.relocate(|id, _| 0x3_0000_0000 + id.0 as u64 * 0x2000).unwrap();
    for (r, bank) in [&r, &moved].iter().flat_map(|r| [(r, 0), (r, 1)]) {
        let place = |memory| r.blocks.iter().find(|block| block.memory == memory).unwrap().address;
        let at = place(Memory::Bank(BankId(bank)));
        let node = r.nodes.iter().position(|n| n.work.kernel().is_some_and(|k| k.bank == Some(BankId(bank)))).unwrap();
        let named = [(0x38, place(Memory::Qmd(NodeId(node)))), (0xc0, at), (0x198, at + 0x210), (0x1a0, at + 0x220)];
        let header = r.banks[bank].contents.as_ref().unwrap();
        for (offset, address) in named {
            assert_eq!(header[offset..offset + 8], address.to_le_bytes(), "{offset:#x} of bank {bank}");
        }
        let sites: Vec<u32> = r
            .references()
            .filter_map(|x| match x.site {
                Site::Bank(BankId(of), offset) if of == bank => Some(offset),
                _ => None,
            })
            .collect();
        assert_eq!(sites, [0x38, 0xc0, 0x198, 0x1a0]);
    }
}

fn segments(words: &[(usize, Vec<u32>)]) -> Vec<Segment<'_>> {
    words.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect()
}

fn read_back(r: &Recipe) -> Recipe {
    let (upload, again) = (r.upload_words().unwrap(), r.relaunch_words().unwrap());
    learn(&r.channels, &segments(&upload), &[&segments(&again)]).unwrap()
}

#[test]
fn a_graph_that_is_moved_reads_back_as_the_same_graph_elsewhere() {
    for graph in [Graph::chain(1), Graph::chain(10), Graph::diamond(), Graph::memset(USER)] {
        let r = learn_graph(&graph).unwrap();
        // In the opposite order of addresses.
        let count = r.blocks.len() as u64;
        let to = |i: usize| 0x3_0000_0000 + (count - i as u64) * 0x2000;
        let moved = r.relocate(|id, _| to(id.0)).unwrap();
        assert!(moved.blocks.iter().all(|b| b.address >= 0x3_0000_0000));
        assert_eq!((&moved.edges, &moved.groups, &moved.payloads), (&r.edges, &r.groups, &r.payloads));
        let memory = |r: &Recipe| {
            let of = |target| match target {
                Target::Own(block, offset) => Ok((r.block(block).unwrap().memory, offset)),
                Target::Foreign(at) => Err(at),
            };
            r.references().map(|x| (x.site, of(x.target))).collect::<Vec<_>>()
        };
        assert_eq!(memory(&moved), memory(&r));
        let mut again = read_back(&moved);
        again.payloads.clone_from(&moved.payloads);
        assert_eq!(again, moved);
        // And back to where it was.
        let back = moved.relocate(|_, block| r.blocks.iter().find(|b| b.memory == block.memory).unwrap().address);
        assert_eq!(back.unwrap(), r);
    }
}

#[test]
fn blocks_go_only_where_the_hardware_can_reach_them() {
    let r = learn_graph(&Graph::chain(2)).unwrap();
    let wrong = |memory: fn(Memory) -> bool, at: u64| {
        r.relocate(|_, b| if memory(b.memory) { at } else { b.address }).unwrap_err().to_string()
    };
    let is_qmd = |m: Memory| m == Memory::Qmd(NodeId(1));
    assert_eq!(wrong(is_qmd, 0x1_0000_0080), "a QMD cannot be at 0x100000080: the address is not aligned");
    assert!(wrong(is_qmd, 1 << 40).contains("cannot hold the address 0x10000000000"));
    assert_eq!(wrong(is_qmd, qmd_at(0)), "two blocks of the graph overlap at 0x204c00000");
}

#[test]
fn one_launch_after_the_upload_is_enough_but_for_what_counts() {
    let graph = Graph::chain(10);
    let r = learn_words(&graph.upload(), &[&graph.again(1)]).unwrap();
    assert!(r.payloads.iter().all(|(_, p)| p.step.is_none()));
    assert_eq!(r.nodes, learn_graph(&graph).unwrap().nodes);
}

/// A graph of 2,000 nodes is read in milliseconds; the bound leaves room for an unoptimised build on a loaded machine.
#[test]
fn two_thousand_nodes_take_no_time() {
    let graph = Graph::chain(2000);
    let (upload, one, two) = (graph.upload(), graph.again(1), graph.again(2));
    let begun = std::time::Instant::now();
    let r = learn_words(&upload, &[&one, &two]).unwrap();
    let took = begun.elapsed();
    println!("{} words, {} nodes: {took:?}", upload.len(), r.nodes.len());
    assert_eq!(r.nodes.len(), 2001);
    assert!(took.as_millis() < 2000, "{took:?}");
    let upload = r.upload.iter().filter(|p| matches!(p.step, Step::Pcas { .. })).count();
    assert_eq!(upload, 2002);
}
