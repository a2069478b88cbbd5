//! What a watcher of this libcuda sees, and other channels next to its own.

mod program;

use cuda::Cuda;
use gpu::{Channel, ChannelOptions, Engine, Entry, Error, Group, InlineMode, Libcuda, Prepared};
use std::time::Duration;

#[test]
fn another_channel_opens_in_its_group_and_works() {
    if !program::inside("another_channel_opens_in_its_group_and_works") {
        return;
    }
    let libcuda = Libcuda::open().unwrap();
    let cuda = Cuda::load().unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    context.make_current().unwrap();
    let memory = cuda::DeviceBuffer::new(&context, 4096).unwrap();
    let uuid = cuda.device(0).unwrap().uuid().unwrap();
    let space = libcuda.address_space(uuid, Entry::CudasClient).unwrap();
    let options = ChannelOptions { group: Group::Cudas, ..Default::default() };
    let mut channel = Channel::new(&space, Engine::Graphics, options).unwrap();
    let pin = space.pin(memory.address(), 4096).unwrap();
    let mut inline = Prepared::inline(&mut channel, pin.region(), 56, InlineMode::Headers).unwrap();
    let ticket = inline.submit_data(&mut channel, &[7; 56]).unwrap();
    channel.wait(ticket, Duration::from_secs(10)).unwrap();
    let mut back = [0; 4096];
    memory.read(&mut back).unwrap();
    assert_eq!((&back[..56], back[56]), (&[7; 56][..], 0));
    let space = libcuda.address_space(uuid, Entry::OwnClient).unwrap();
    assert!(matches!(Channel::new(&space, Engine::Graphics, options), Err(Error::Group(_))));
}

/// A channel of the libcuda, as the watched calls describe it.
struct Theirs {
    ring: u64,
    entries: u32,
    put: u64,
    seen: u32,
    what: cuda_graph::Channel,
}

fn load<T: Copy>(at: u64) -> T {
    // SAFETY: a word of memory that the libcuda keeps mapped.
    unsafe { (at as *const T).read_volatile() }
}

impl Theirs {
    fn of(libcuda: &Libcuda) -> Theirs {
        let graph = libcuda.watched().graph();
        let all: Vec<_> =
            graph.channels().iter().filter(|c| c.alive() && c.engine_name() == Some("GRAPHICS")).collect();
        let [channel] = all[..] else { panic!("{all:?}") };
        let ring = channel.gpfifo_at.as_ref().unwrap().cpu.unwrap();
        let put = channel.userd.unwrap().cpu.unwrap() + pushbuf::userd::GP_PUT as u64;
        let engines = channel.engines.iter().map(|(_, class)| *class).collect();
        let what = cuda_graph::Channel { class: channel.class, engines, group: channel.group };
        Theirs { ring, entries: channel.entries, put, seen: load(put), what }
    }

    /// The words of each entry since the last time.
    fn new_segments(&mut self, libcuda: &Libcuda) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        while self.seen != load::<u32>(self.put) {
            let entry = pushbuf::gpfifo::Entry::parse(load(self.ring + 8 * u64::from(self.seen)));
            let pushbuf::gpfifo::Entry::Segment(segment) = entry else { panic!("{entry:?}") };
            let at = libcuda.watched().graph().place_of(segment.va).unwrap().cpu.unwrap();
            all.push((0..u64::from(segment.dwords)).map(|i| load(at + 4 * i)).collect());
            self.seen = (self.seen + 1) % self.entries;
        }
        all
    }
}

#[test]
fn a_graph_is_learnt_from_what_its_launches_put_into_the_channel() {
    if !program::inside("a_graph_is_learnt_from_what_its_launches_put_into_the_channel") {
        return;
    }
    let libcuda = Libcuda::open().unwrap();
    let context = Cuda::load().unwrap().device(0).unwrap().primary_context().unwrap();
    context.make_current().unwrap();
    let mut channel = Theirs::of(&libcuda);
    let module = cuda::Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let add = module.function("add1").unwrap();
    let memory = cuda::DeviceBuffer::new(&context, 4096).unwrap();
    let stream = cuda::Stream::new(&context).unwrap();
    let graph = cuda::Graph::capture(&stream, || {
        for n in 0..5 {
            if n == 3 {
                stream.fill32(memory.slice(64, 64).unwrap(), 5)?;
            }
            // SAFETY: the memory outlives the stream's work.
            unsafe { add.launch([2, 1, 1], [64, 1, 1], 0, &stream, &[cuda::Argument::U64(memory.address() + 8 * n)]) }?;
        }
        stream.copy(memory.slice(0, 16).unwrap(), memory.slice(64, 16).unwrap())
    });
    let exec = graph.unwrap().instantiate().unwrap();
    let mut launch = || {
        // SAFETY: as above.
        unsafe { exec.launch(&stream) }.unwrap();
        stream.synchronize().unwrap();
        channel.new_segments(&libcuda)
    };
    let [upload, first, second] = [(); 3].map(|()| launch());
    assert_eq!([&upload, &first, &second].map(|launch| launch.len()), [1; 3]);
    let segments = [upload, first, second].map(|launch| launch.concat());
    let [upload, first, second] = segments.each_ref().map(|words| [cuda_graph::Segment { channel: 0, words }]);
    let channels = [channel.what.clone()];
    let refused = cuda_graph::learn(&channels, &upload, &[&first, &second]).unwrap_err();
    assert!(matches!(refused, cuda_graph::Refused::MacroArguments { bytes: 64, arguments: [5, 16], .. }), "{refused}");
    // Two memsets of the stream show how the graph's is decoded.
    let fills: Vec<cuda_graph::FillCall> = [(7, 11), (12, 3)]
        .into_iter()
        .flat_map(|(value, words)| {
            stream.fill32(memory.slice(256, 4 * words).unwrap(), value).unwrap();
            stream.synchronize().unwrap();
            let segments = channel.new_segments(&libcuda);
            let segments: Vec<_> = segments.iter().map(|words| cuda_graph::Segment { channel: 0, words }).collect();
            cuda_graph::fill_calls(&channels, &segments)
        })
        .collect();
    let fills = cuda_graph::FillMacro::of_calls(&fills).unwrap();
    let learnt = cuda_graph::learn_with(Some(fills), &channels, &upload, &[&first, &second]).unwrap();
    // Kernels, the memset, the kernels after it, and the copy.
    assert_eq!((learnt.kernels(), learnt.groups.len(), learnt.counters.len()), (5, 3, 2));
    assert_eq!(learnt.banks[0].parameter_bytes().unwrap(), memory.address().to_le_bytes());
    let (fills, copies): (Vec<_>, Vec<_>) = (
        learnt.nodes.iter().filter(|node| node.work.name() == "memset").collect(),
        learnt.nodes.iter().filter(|node| node.work.name() == "memcpy").collect(),
    );
    assert_eq!((fills.len(), copies.len()), (1, 1));
}
