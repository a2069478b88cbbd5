//! A stand-in for CUDA on the software GPU: it submits graphs in CUDA's words through its own channels, and its driver calls are watched.

use cuda_graph::words::{Graph, Places};
use doorbell_softgpu::standin::{self, Operation};
use doorbell_softgpu::{Mode, SoftDriver, StandIn, StandInMacro};
use gpu::{
    AddressSpace, Channel, ChannelOptions, Device, Engine, Entry, Group, Memory, Pushbuffer, Semaphore, Semaphores,
    Watched, Watching,
};
use pushbuf::encode::Words;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Size of the stand-in's rings.
const ENTRIES: u32 = 64;
pub const TIMEOUT: Duration = Duration::from_secs(20);
const BYTES: u64 = 1 << 20;
const BANKS: u64 = 0x4_0000;
const CODE: u64 = 0xf_0000;
/// In host memory: counters from 0, then these.
const TRACKERS: u64 = 0x800;
pub const LOG: u64 = 0x1000;
pub const DATA: u64 = 0x8_0000;

pub struct Rig {
    pub driver: SoftDriver,
    pub watched: &'static Watched,
    /// The stand-in's.
    pub cuda: Arc<AddressSpace>,
    channels: Mutex<Vec<Theirs>>,
    pub video: Arc<Memory>,
    pub host: Arc<Memory>,
    /// Addresses belong to the process: another test's memory would get this one's addresses.
    _one: MutexGuard<'static, ()>,
}

/// One of the stand-in's channels, and its pushbuffers.
struct Theirs {
    channel: Channel,
    words: Arc<Memory>,
    at: u64,
}

static ONE: Mutex<()> = Mutex::new(());

impl Rig {
    pub fn new() -> Rig {
        let one = poison::ignore(ONE.lock());
        let driver = SoftDriver::new(Mode::Strict);
        let watched: &'static Watched = Box::leak(Box::default());
        let device = Device::open(Arc::new(Watching(driver, watched)), 0).unwrap();
        let cuda = AddressSpace::new(&device).unwrap();
        let (video, host) = (cuda.alloc_video(BYTES).unwrap(), cuda.alloc_host(BYTES).unwrap());
        let rig = Rig { driver, watched, cuda, channels: Mutex::default(), video, host, _one: one };
        rig.open_channel(Group::Own);
        for operation in
            [Operation::Nothing, Operation::Add, Operation::Store, Operation::Log, Operation::Copy, Operation::Step]
        {
            rig.turns(operation, 0);
        }
        rig
    }

    fn open_channel(&self, group: Group) {
        let space = match group {
            Group::Own => self.cuda.clone(),
            // It also sees its own second channel.
            Group::Cudas => {
                let uuid = self.watched.gpus()[0];
                self.watched
                    .address_space(Arc::new(Watching(self.driver, self.watched)), uuid, Entry::CudasClient)
                    .unwrap()
            }
        };
        let engines = space.device().engines().unwrap();
        let number = engines.iter().find(|engine| engine.is_graphics()).unwrap().number;
        let channel = Channel::new(
            &space,
            Engine::Copy(number),
            ChannelOptions { group, entries: ENTRIES, ..Default::default() },
        )
        .unwrap();
        let words = space.alloc_host(4 << 20).unwrap();
        let mut theirs = Theirs { channel, words, at: 0 };
        let mut first = [0; 4];
        let mut to = Words::new(&mut first);
        to.set_object(cuda_graph::words::COMPUTE, rm::class::HOPPER_COMPUTE_A).unwrap();
        theirs.submit(to.as_slice());
        self.channels.lock().unwrap().push(theirs);
    }

    /// A second channel of the stand-in, in the group of the first.
    pub fn second_channel(&self) {
        self.open_channel(Group::Cudas);
    }

    /// doorbell's address space.
    pub fn enter(&self) -> Arc<AddressSpace> {
        self.try_enter().unwrap()
    }

    pub fn try_enter(&self) -> Result<Arc<AddressSpace>, gpu::Error> {
        let uuid = self.watched.gpus()[0];
        self.watched.address_space(Arc::new(self.driver), uuid, Entry::CudasClient)
    }

    pub fn channel(&self) -> Channel {
        launch::channel(&self.enter()).unwrap()
    }

    pub fn places(&self) -> Places {
        Places {
            qmds: self.video.va(),
            banks: self.video.va() + BANKS,
            shared_banks: None,
            counters: self.host.va(),
            trackers: self.host.va() + TRACKERS,
            code: self.code(Operation::Log),
        }
    }

    pub fn code(&self, operation: Operation) -> u64 {
        self.video.va() + CODE + 0x100 * operation as u64
    }

    /// Makes kernels of this operation take this many turns of the GPU's thread.
    pub fn turns(&self, operation: Operation, turns: u32) {
        self.video.write(CODE + 0x100 * operation as u64, &StandIn { operation, turns }.code());
    }

    /// The graph here, with kernels that log their numbers.
    pub fn logging(&self, mut graph: Graph) -> Graph {
        graph.at = self.places();
        for (i, kernel) in graph.kernels.iter_mut().enumerate().filter(|(_, kernel)| !kernel.is_empty()) {
            kernel.parameters = standin::pointer_and_word(self.host.va() + LOG, i as u32);
        }
        graph
    }

    pub fn log(&self) -> Vec<u32> {
        let n = self.host.word(LOG).load(Ordering::Acquire);
        (1..=u64::from(n)).map(|i| self.host.word(LOG + 4 * i).load(Ordering::Relaxed)).collect()
    }

    pub fn clear_log(&self) {
        self.host.word(LOG).store(0, Ordering::Release);
    }

    pub fn data(&self, word: u64) -> u32 {
        self.host.word(DATA + 4 * word).load(Ordering::Acquire)
    }

    pub fn set_data(&self, word: u64, value: u32) {
        self.host.word(DATA + 4 * word).store(value, Ordering::Release);
    }

    pub fn kernels(&self) -> u64 {
        self.driver.counters().kernels.load(Ordering::Relaxed)
    }

    /// GPFIFO entries that were executed.
    pub fn entries(&self) -> u64 {
        self.driver.counters().entries.load(Ordering::Relaxed)
    }

    pub fn faults(&self) -> u64 {
        self.driver.counters().faults.load(Ordering::Relaxed)
    }

    /// Submits as another thread would through the stand-in.
    pub fn submit(&self, words: &[u32]) {
        self.channels.lock().unwrap()[0].submit(words);
    }

    /// Waits until the stand-in's channels have consumed all their entries.
    pub fn settle(&self) {
        self.channels.lock().unwrap().iter().for_each(Theirs::settle);
    }

    /// The stand-in loads a macro for fills into its channels, as CUDA does when it opens them.
    pub fn load_macro(&self, of: StandInMacro) {
        let words = cuda_graph::words::words(|w| {
            // LOAD_MME_INSTRUCTION_RAM_POINTER and the methods after it.
            w.inc(cuda_graph::words::COMPUTE, 0x114, &[0]).unwrap();
            w.non_inc(cuda_graph::words::COMPUTE, 0x118, &of.words()).unwrap();
            w.inc(cuda_graph::words::COMPUTE, 0x11c, &[0, 0]).unwrap();
        });
        self.channels.lock().unwrap().iter_mut().for_each(|theirs| theirs.submit(&words));
        self.settle();
    }

    /// The recipe that is learnt from a graph's words, read as they are.
    pub fn recipe(&self, graph: &Graph) -> cuda_graph::Recipe {
        let (upload, again) = (graph.upload_segments(), graph.again_segments(1));
        let channel = cuda_graph::Channel {
            class: cuda_graph::words::CHANNEL_CLASS,
            engines: cuda_graph::words::ENGINES.to_vec(),
            group: None,
        };
        let channels = vec![channel; 1 + upload.iter().map(|(channel, _)| *channel).max().unwrap_or(0)];
        let [upload, again] = [&upload, &again].map(|launch| {
            launch.iter().map(|(channel, words)| cuda_graph::Segment { channel: *channel, words }).collect::<Vec<_>>()
        });
        cuda_graph::learn(&channels, &upload, &[&again]).unwrap()
    }

    /// Launches a graph as CUDA does, the first time with its upload, and waits until it is done.
    pub fn launching<'a>(&'a self, graph: &'a Graph) -> impl FnMut() -> Result<(), String> + 'a {
        let mut k = 0;
        move || {
            self.launch(graph, k);
            k += 1;
            Ok(())
        }
    }

    /// Makes launch `k`, with the upload if it is 0.
    pub fn launch(&self, graph: &Graph, k: i64) {
        let mut channels = self.channels.lock().unwrap();
        for (channel, words) in if k == 0 { graph.upload_segments() } else { graph.again_segments(k) } {
            channels[channel].submit(&words);
        }
        let (counter, _) = Graph::done(k);
        let counters: std::collections::BTreeSet<_> =
            graph.kernels.iter().filter_map(|kernel| kernel.releases).collect();
        let start = Instant::now();
        for group in counters {
            while self.host.word(8 * group as u64).load(Ordering::Acquire) != counter {
                assert_eq!(channels[0].channel.error(), None, "the stand-in's channel was killed");
                assert!(start.elapsed() < TIMEOUT, "launch {k} of the stand-in does not come to its end");
                std::hint::spin_loop();
            }
        }
        for theirs in channels.iter_mut() {
            theirs.settle();
        }
    }
}

impl Theirs {
    fn submit(&mut self, words: &[u32]) {
        let bytes = 4 * words.len() as u64;
        if self.at + bytes > self.words.length() {
            self.at = 0;
        }
        for (i, word) in words.iter().enumerate() {
            self.words.word(self.at + 4 * i as u64).store(*word, Ordering::Relaxed);
        }
        self.channel.submit_unchecked(self.words.va() + self.at, words.len() as u32).unwrap();
        self.at += bytes.next_multiple_of(64);
    }

    /// Waits until all entries are consumed.
    fn settle(&self) {
        let start = Instant::now();
        while self.channel.entries_written() % u64::from(ENTRIES) != u64::from(self.channel.gp_get()) {
            assert!(start.elapsed() < TIMEOUT, "the stand-in's channel does not come to its end");
            std::hint::spin_loop();
        }
    }
}

/// The channel waits until the semaphore is set to 1.
pub fn gate(channel: &mut Channel) -> Semaphore {
    let gate = Semaphores::new(channel.space()).unwrap().alloc().unwrap();
    let mut words = Pushbuffer::new(channel.space(), 64).unwrap();
    words.host_acquire(&gate, 1).unwrap();
    let words = words.validate(channel).unwrap();
    channel.submit(&words).unwrap();
    gate
}

/// Opens it while the calling thread waits.
pub fn opens_soon(gate: Semaphore) -> JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.set(1);
    })
}
