//! Parsing and the graph accept any recording, and the graph stays consistent.

use proptest::collection::vec;
use proptest::prelude::*;
use rm::abi::{self, Plain, nr, rm_request, uvm};
use rm::call::{Call, FileKind};
use rm::graph::{IoctlRecord, MmapRecord, ObjectGraph, ObjectKind};

/// One record, with numbers from so small a range that handles, descriptors and addresses collide.
#[derive(Clone, Debug)]
enum Op {
    Ioctl { fd: i32, file: u32, request: u64, ret: i32, arg: Vec<u8>, nested: Vec<u8> },
    Mmap { addr: u64, len: u64, offset: u64, fd: i32 },
    Munmap { addr: u64, len: u64 },
    Mremap { old: u64, old_len: u64, new: u64, new_len: u64 },
    Open { fd: i32, file: u32 },
    Close { fd: i32 },
    Dup { old: i32, new: i32 },
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0u64..16).prop_map(|p| p * 0x1000),
        1 => 0u64..0x10000,
        1 => (0u64..4).prop_map(|n| u64::MAX - n * 0xfff),
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![6 => (0u64..8).prop_map(|p| p * 0x1000), 1 => Just(1u64), 1 => Just(u64::MAX)]
}

fn handle() -> impl Strategy<Value = u32> {
    1u32..12
}

fn class() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![
        0x41, 0x80, 0x2080, 0x90f1, 0xa06c, 0x9067, 0xc86f, 0xc86f, 0xc661, 0x40, 0x3e, 0x71, 0x50a0, 0xc8b5, 0xcbc0,
        0x1234,
    ])
}

/// RM_ALLOC of anything, anywhere.
fn alloc() -> impl Strategy<Value = Op> {
    let params = prop_oneof![
        vec(any::<u8>(), 0..200),
        (address(), 0u32..2048, handle(), address(), any::<u32>()).prop_map(|(gpfifo, entries, userd, at, flags)| {
            let mut c = abi::ChannelAllocFull::default();
            (c.client.gpfifo, c.client.entries, c.client.flags) = (gpfifo, entries, flags);
            c.client.userd_memory[0] = userd;
            c.client.userd_offset[0] = at;
            abi::Branch::usual().layouts.channel_alloc.bytes(&c)
        }),
    ];
    (handle(), handle(), handle(), class(), params).prop_map(|(root, parent, new, class, nested)| {
        let a = abi::Nvos64 { root, parent, new, class, ..Default::default() };
        rm(nr::ALLOC, &a, nested)
    })
}

fn rm<T: Plain>(nr: u32, arg: &T, nested: Vec<u8>) -> Op {
    let request = rm_request(nr, size_of::<T>());
    Op::Ioctl { fd: 1, file: 1, request, ret: 0, arg: arg.as_bytes().to_vec(), nested }
}

fn uvm_op<T: Plain>(request: u64, arg: &T) -> Op {
    Op::Ioctl { fd: 2, file: 2, request, ret: 0, arg: arg.as_bytes().to_vec(), nested: Vec::new() }
}

fn meaningful() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => alloc(),
        2 => (handle(), handle()).prop_map(|(root, old)| rm(nr::FREE, &abi::Nvos00 { root, old, ..Default::default() }, vec![])),
        2 => (handle(), handle(), address(), length(), 0i32..6).prop_map(|(client, memory, offset, length, fd)| {
            rm(nr::MAP_MEMORY, &abi::Nvos33Fd { client, memory, offset, length, fd, ..Default::default() }, vec![])
        }),
        1 => (handle(), handle(), class(), address(), 0i32..6).prop_map(|(root, new, class, limit, fd)| {
            rm(nr::ALLOC_MEMORY, &abi::Nvos02Fd { root, new, class, limit, memory: limit, fd, ..Default::default() }, vec![])
        }),
        1 => (handle(), handle(), handle(), handle(), handle()).prop_map(|(client, parent, object, client_src, object_src)| {
            rm(nr::DUP_OBJECT, &abi::Nvos55 { client, parent, object, client_src, object_src, ..Default::default() }, vec![])
        }),
        1 => (handle(), handle(), 0u32..4).prop_map(|(client, object, token)| {
            let c = abi::Nvos54 { client, object, cmd: abi::CTRL_WORK_SUBMIT_TOKEN, ..Default::default() };
            rm(nr::CONTROL, &c, token.to_le_bytes().to_vec())
        }),
        2 => (handle(), handle(), address(), length(), address()).prop_map(|(client, memory, base, length, offset)| {
            let m = uvm::MapExternal { base, length, offset, client, memory, ..Default::default() };
            uvm_op(uvm::MAP_EXTERNAL_ALLOCATION, &m)
        }),
        1 => (address(), length(), prop::sample::select(vec![uvm::FREE, uvm::CREATE_EXTERNAL_RANGE]))
            .prop_map(|(base, length, request)| uvm_op(request, &uvm::Range { base, length, ..Default::default() })),
        1 => (address(), length()).prop_map(|(base, length)| {
            uvm_op(uvm::UNMAP_EXTERNAL, &uvm::GpuRange { base, length, ..Default::default() })
        }),
        1 => (address(), length()).prop_map(|(base, length)| uvm_op(uvm::ALLOC_SEMAPHORE_POOL, &[base, length])),
        1 => (handle(), handle(), address(), length()).prop_map(|(client, memory, dma_offset, length)| {
            let m = abi::Nvos46 { client, memory, length, dma_offset, offset: u64::MAX, ..Default::default() };
            rm(nr::MAP_MEMORY_DMA, &m, vec![])
        }),
        1 => (address(), length()).prop_map(|(dma_offset, size)| {
            rm(nr::UNMAP_MEMORY_DMA, &abi::Nvos47 { dma_offset, size, ..Default::default() }, vec![])
        }),
    ]
}

/// Any request number of the driver's, over any bytes.
fn noise() -> impl Strategy<Value = Op> {
    let request =
        prop_oneof![(0u32..256, 0usize..400).prop_map(|(nr, size)| rm_request(nr, size)), (0u64..100), any::<u64>(),];
    (0i32..6, 0u32..5, request, -1i32..1, vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..200)).prop_map(
        |(fd, file, request, ret, arg, nested)| Op::Ioctl {
            fd,
            file: if file == 4 { 0x100 } else { file },
            request,
            ret,
            arg,
            nested,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => meaningful(),
        2 => noise(),
        2 => (address(), length(), address(), -1i32..6).prop_map(|(addr, len, offset, fd)| Op::Mmap { addr, len, offset, fd }),
        1 => (address(), length()).prop_map(|(addr, len)| Op::Munmap { addr, len }),
        1 => (address(), length(), address(), length())
            .prop_map(|(old, old_len, new, new_len)| Op::Mremap { old, old_len, new, new_len }),
        1 => (0i32..6, 0u32..5).prop_map(|(fd, file)| Op::Open { fd, file }),
        1 => (0i32..6).prop_map(|fd| Op::Close { fd }),
        1 => (0i32..6, -1i32..6).prop_map(|(old, new)| Op::Dup { old, new }),
    ]
}

fn apply(g: &mut ObjectGraph, op: &Op) {
    match op {
        Op::Ioctl { fd, file, request, ret, arg, nested } => {
            g.ioctl(IoctlRecord { fd: *fd, file: FileKind::from_raw(*file), request: *request, ret: *ret, arg, nested })
        }
        Op::Mmap { addr, len, offset, fd } => {
            g.mmap(MmapRecord { addr: *addr, len: *len, offset: *offset, fd: *fd, ..Default::default() });
        }
        Op::Munmap { addr, len } => g.munmap(*addr, *len),
        Op::Mremap { old, old_len, new, new_len } => g.mremap(*old, *old_len, *new, *new_len),
        Op::Open { fd, file } => g.open(*fd, FileKind::from_raw(*file)),
        Op::Close { fd } => g.close(*fd),
        Op::Dup { old, new } => g.dup(*old, *new),
    }
}

fn disjoint(ranges: impl Iterator<Item = (u64, u64)>) -> bool {
    let mut end = 0;
    for (start, len) in ranges {
        if start < end || len == 0 || start.checked_add(len).is_none() {
            return false;
        }
        end = start + len;
    }
    true
}

/// What must hold after any sequence.
fn consistent(g: &ObjectGraph) {
    for (i, o) in g.objects().iter().enumerate() {
        assert_eq!(o.id.0, i);
        assert_eq!(g.object(o.client, o.handle).is_some_and(|live| live.id == o.id), o.freed.is_none());
        if let Some(p) = o.parent {
            assert!(p < o.id, "parents come first");
            assert!(g.objects()[p.0].freed.is_none() || o.freed.is_some(), "no child outlives its parent");
        }
        match o.kind {
            ObjectKind::Channel(c) => assert_eq!(g.channels()[c.0].freed, o.freed),
            ObjectKind::Usermode(p) => assert_eq!(g.usermode_pages()[p].freed, o.freed),
            ObjectKind::Memory(m) => assert!(o.freed.is_some() || g.memories()[m.0].freed.is_none()),
            _ => {}
        }
    }
    assert!(disjoint(g.cpu_mappings().map(|(a, l, _)| (a, l))));
    assert!(disjoint(g.gpu_mappings().map(|m| (m.base, m.length))));
    for m in g.gpu_mappings() {
        let at = g.place_of(m.base).expect("a mapping's first byte is mapped");
        assert_eq!((at.offset, at.rest), (m.offset, m.length));
    }
    for token in 0..4 {
        if let Some(c) = g.channel_by_token(token) {
            let any_alive = g.channels().iter().any(|c| c.token == Some(token) && c.alive());
            assert!(c.alive() || !any_alive);
        }
    }
    assert_eq!(g.object_tree().len(), g.objects().len());
    for n in g.object_tree() {
        let _ = n.to_string();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_records_leaves_a_consistent_graph(ops in vec(op(), 0..80)) {
        let mut g = ObjectGraph::new();
        for o in &ops {
            apply(&mut g, o);
            for a in [0, 0x1000, 0x5555, u64::MAX] {
                let _ = g.place_of(a);
            }
        }
        consistent(&g);
    }

    #[test]
    fn a_graph_that_forgets_answers_as_one_that_does_not(ops in vec((op(), prop::bool::weighted(0.2)), 0..120)) {
        let (mut keeps, mut forgets) = (ObjectGraph::new(), ObjectGraph::new());
        let at = |g: &ObjectGraph, address| {
            let found = g.place_of(address)?;
            let born = found.memory.map(|id| g.memory(id).expect("what is mapped stays").born);
            Some((born, rm::graph::Located { memory: None, ..found }))
        };
        for (o, forget) in &ops {
            apply(&mut keeps, o);
            apply(&mut forgets, o);
            if *forget {
                forgets.forget_all_freed();
                prop_assert!(forgets.objects().iter().all(|o| o.freed.is_none()));
                prop_assert!(forgets.channels().iter().all(|c| c.alive()));
                consistent(&forgets);
            }
            // (What was mapped in the address spaces of a client that ended is forgotten with it.)
            let is_client = |o: &&rm::graph::Object| o.kind == ObjectKind::Client && o.freed.is_some();
            let ended: Vec<String> = keeps.objects().iter().filter(is_client).map(|o| format!("({:x}, ", o.client)).collect();
            let living = |g: &ObjectGraph| {
                let stays = |text: &String| !ended.iter().any(|client| text.starts_with(client));
                g.living().into_iter().filter(stays).collect::<Vec<_>>()
            };
            prop_assert_eq!(living(&keeps), living(&forgets));
            for address in [0, 0x1000, 0x5555, u64::MAX] {
                prop_assert_eq!(at(&keeps, address), at(&forgets, address));
            }
        }
        consistent(&forgets);
    }

    #[test]
    fn any_bytes_parse(file in 0u32..5, nr in 0u32..256, size in 0usize..400, raw in any::<u64>(),
                       arg in vec(any::<u8>(), 0..400), nested in vec(any::<u8>(), 0..64)) {
        let file = FileKind::from_raw(if file == 4 { 0x103 } else { file });
        let requests = [rm_request(nr, size), u64::from(nr), raw];
        for (branch, request) in abi::BRANCHES.iter().flat_map(|b| requests.map(|r| (b, r))) {
            let _ = Call::parse(branch, file, request, &arg, &nested).succeeded(0);
        }
    }

    #[test]
    fn a_cut_call_never_reads_as_another(cut in 0usize..48) {
        let a = abi::Nvos64 { root: 1, parent: 2, new: 3, class: 0x80, ..Default::default() };
        let request = rm_request(nr::ALLOC, 48);
        let parsed = Call::parse(abi::Branch::usual(), FileKind::Ctl, request, &a.as_bytes()[..cut], &[]);
        prop_assert_eq!(parsed, Call::Other { nr: nr::ALLOC, size: 48 });
    }
}
