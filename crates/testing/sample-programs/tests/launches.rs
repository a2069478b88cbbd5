//! Graphs in CUDA's words, through the validator, on a separate channel. Their kernels are the software GPU's stand-ins.

use cuda_graph::words::{Graph, Places};
use doorbell_softgpu::{Mode, Planted, SoftDriver};
use gpu::{Channel, Engine, Memory};
use sample_programs::checks::{Ground, Rig, Stop};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Code of the software GPU: its first bytes, and operations.
const CODE: &[u8; 16] = b"soft kernel code";
const ADD: u32 = 1;
const LOG: u32 = 3;
/// Turns of the GPU for which a kernel is active at least.
const TURNS: u32 = 20;
/// In GPU memory: QMDs, then banks, then code.
const BANKS: u64 = 0x1_0000;
const CODES: u64 = 0x3_0000;
const VIDEO: u64 = 0x4_0000;
/// In host memory: counters, then trackers, then the word that kernels add to, then their log.
const TRACKERS: u64 = 0x400;
const SUM: u64 = 0x800;
const LOGGED: u64 = 0x1000;
const HOST: u64 = 0x1_0000;
/// Words that a submission adds itself, and some more.
const SPARE: usize = 64;

struct Launcher {
    channel: Channel,
    video: Arc<Memory>,
    host: Arc<Memory>,
}

impl Launcher {
    fn new(rig: &Rig) -> Result<Launcher, Stop> {
        let (video, host) = (rig.memory(true, VIDEO)?, rig.memory(false, HOST)?);
        let launcher = Launcher { channel: rig.channel(Engine::Graphics)?, video, host };
        for operation in [ADD, LOG] {
            let at = CODES + 0x100 * u64::from(operation);
            launcher.video.write(at, CODE);
            launcher.video.write(at + 16, &[operation.to_le_bytes(), TURNS.to_le_bytes()].concat());
        }
        Ok(launcher)
    }

    fn places(&self) -> Places {
        Places {
            qmds: self.video.va(),
            banks: self.video.va() + BANKS,
            shared_banks: None,
            counters: self.host.va(),
            trackers: self.host.va() + TRACKERS,
            code: self.code(LOG),
        }
    }

    fn code(&self, operation: u32) -> u64 {
        self.video.va() + CODES + 0x100 * u64::from(operation)
    }

    /// Parameters of a kernel that logs this number.
    fn logs(&self, number: u32) -> Vec<u8> {
        [&(self.host.va() + LOGGED).to_le_bytes()[..], &number.to_le_bytes()].concat()
    }

    /// Places the graph here, with kernels that log their numbers, and permits the channel to start them.
    fn lay(&mut self, mut graph: Graph) -> Graph {
        graph.at = self.places();
        for i in 0..graph.kernels.len() {
            if !graph.kernels[i].is_empty() {
                graph.kernels[i].parameters = self.logs(i as u32);
            }
        }
        let qmds: Vec<u64> = (0..graph.kernels.len()).map(|i| graph.at.qmd(i)).collect();
        // SAFETY: the QMDs that are uploaded here start stand-ins of the software GPU, which access only this launcher's memory.
        unsafe { self.channel.grant_launches(qmds) };
        graph
    }

    fn submit(&mut self, rig: &Rig, words: &[u32]) -> Result<(), Stop> {
        rig.submit(&mut self.channel, words.len() + SPARE, |pushbuffer| pushbuffer.raw(words).map(drop))
    }

    /// Waits until a group's counter shows that launch `k` is complete.
    fn done(&self, rig: &Rig, k: u32) -> Result<(), Stop> {
        let (start, wanted) = (Instant::now(), Graph::done(k.into()).0);
        loop {
            let counter = self.host.word(0).load(Ordering::Acquire);
            if counter == wanted {
                return Ok(());
            }
            rig.alive(&self.channel)?;
            ensure(start.elapsed() < rig.ground.patience, || {
                let ran = self.log().len();
                format!("launch {k} is not done: its counter is {counter}, not {wanted}; {ran} kernels ran")
            })?;
            std::thread::yield_now();
        }
    }

    fn log(&self) -> Vec<u32> {
        let word = |i: u64| self.host.word(LOGGED + 4 * i).load(Ordering::Acquire);
        (1..=u64::from(word(0))).map(word).collect()
    }

    fn expect_log(&self, expected: &[u32]) -> Result<(), Stop> {
        let log = self.log();
        let at = log.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(log.len().min(expected.len()));
        let (found, wanted) = (log.get(at), expected.get(at));
        ensure(found == wanted, || {
            format!("place {at} of {} in the order of kernels has {found:?}, not {wanted:?}", expected.len())
        })
    }
}

fn one(ground: &Ground) -> Result<(), Stop> {
    let rig = ground.open()?;
    let mut launcher = Launcher::new(&rig)?;
    let mut graph = launcher.lay(Graph::chain(1));
    graph.kernels[0].code = Some(launcher.code(ADD));
    graph.kernels[0].parameters = (launcher.host.va() + SUM).to_le_bytes().to_vec();
    (graph.kernels[0].grid, graph.kernels[0].block) = ([3, 2, 1], [64, 2, 1]);
    launcher.submit(&rig, &graph.upload())?;
    launcher.done(&rig, 0)?;
    let sum = launcher.host.word(SUM).load(Ordering::Acquire);
    ensure(sum == 6 * 128, || format!("768 threads have added {sum}"))?;
    Ok(())
}

fn chain(ground: &Ground) -> Result<(), Stop> {
    let rig = ground.open()?;
    let mut launcher = Launcher::new(&rig)?;
    let graph = launcher.lay(Graph::chain(20));
    launcher.submit(&rig, &graph.upload())?;
    launcher.done(&rig, 0)?;
    launcher.expect_log(&(1..=20).collect::<Vec<_>>())?;
    Ok(())
}

/// The CPU waits for no launch before the next one.
fn repeated(ground: &Ground) -> Result<(), Stop> {
    const LAUNCHES: u32 = 200;
    let rig = ground.open()?;
    let mut launcher = Launcher::new(&rig)?;
    let graph = launcher.lay(Graph::chain(3));
    launcher.submit(&rig, &graph.upload())?;
    for k in 1..LAUNCHES {
        launcher.submit(&rig, &graph.again(k.into()))?;
    }
    launcher.done(&rig, LAUNCHES - 1)?;
    launcher.expect_log(&[1, 2, 3].repeat(LAUNCHES as usize))?;
    Ok(())
}

fn parameters(ground: &Ground) -> Result<(), Stop> {
    let rig = ground.open()?;
    let mut launcher = Launcher::new(&rig)?;
    let mut graph = launcher.lay(Graph::chain(2));
    launcher.submit(&rig, &graph.upload())?;
    launcher.done(&rig, 0)?;
    let mut expected = vec![1, 2];
    for k in 1..20 {
        let change = graph.set_parameters(2, &launcher.logs(100 + k));
        launcher.submit(&rig, &[change, graph.again(k.into())].concat())?;
        launcher.done(&rig, k)?;
        expected.extend([1, 100 + k]);
    }
    launcher.expect_log(&expected)?;
    Ok(())
}

fn refused(ground: &Ground) -> Result<(), Stop> {
    let rig = ground.open()?;
    let mut launcher = Launcher::new(&rig)?;
    let graph = launcher.lay(Graph::chain(2));
    // A QMD that the channel was not granted.
    let mut other = graph.clone();
    other.at.qmds += 16 * Places::QMD_BYTES;
    let refused = launcher.submit(&rig, &other.upload());
    ensure(refused.is_err(), || "a launch of a QMD that was not granted was submitted".into())?;
    launcher.submit(&rig, &graph.upload())?;
    launcher.done(&rig, 0)?;
    Ok(())
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Stop> {
    if holds { Ok(()) } else { Err(Stop::Failed(otherwise())) }
}

type Test = fn(&Ground) -> Result<(), Stop>;

#[test]
fn graphs_run_in_their_order_with_their_parameters_and_others_are_refused() {
    for test in [one, chain, repeated, parameters, refused] as [Test; 5] {
        test(&Ground::soft(Arc::new(SoftDriver::new(Mode::Strict)))).unwrap();
    }
}

/// Runs a test on a GPU with this fault: its complaint.
fn complaint(test: Test, fault: Planted) -> String {
    let mut ground = Ground::soft(Arc::new(SoftDriver::broken(Mode::Strict, fault)));
    ground.patience = Duration::from_millis(300);
    match test(&ground) {
        Err(Stop::Failed(why)) => why,
        other => panic!("{fault:?}: {other:?}"),
    }
}

#[test]
fn launches_that_go_wrong_are_found() {
    let lost = Planted::LostQmdRelease { nth: 1 };
    assert!(complaint(one, lost).contains("launch 0 is not done"));
    assert!(complaint(chain, Planted::LostDecrement { nth: 1 }).contains("launch 0 is not done"));
    assert!(complaint(repeated, Planted::LostQmdRelease { nth: 100 }).contains("launch 199 is not done"));
    let stale = complaint(parameters, Planted::StaleBank);
    assert!(stale.contains("place 3 of 40 in the order of kernels has Some(2), not Some(101)"), "{stale}");
}

/// Correct but slow work only takes longer.
#[test]
fn slow_kernels_are_waited_for() {
    for test in [chain, repeated, parameters] as [Test; 3] {
        let fault = Planted::SlowKernel { turns: 50 };
        test(&Ground::soft(Arc::new(SoftDriver::broken(Mode::Strict, fault)))).unwrap();
    }
}
