//! Programs that are killed while they drive a function: everything that they took is restored, and no device writes into memory that has a
//! new owner by then.

use super::binding::{is_the_kernels, until};
use super::{faults, through, used};
use crate::report::{Outcome, ensure};
use drivers::nvme::{self, Controller, Depth, Done, Io, Overwrite, Piece, Queue, Word};
use pcie::bind::{self, To};
use pcie::{Address, Function, Memory, Tree, sysfs, vfio};
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// This program again, in another part.
pub struct Other {
    child: Child,
    words: BufReader<ChildStdout>,
    input: Option<ChildStdin>,
}

impl Other {
    /// Starts it, and waits until it reports that it has come this far.
    pub fn start(what: &str, at: Address) -> Result<Other, Box<dyn Error>> {
        let mut command = Command::new("/init");
        let command = command.args([what, &at.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let words = BufReader::new(child.stdout.take().ok_or("no output")?);
        let input = child.stdin.take();
        let mut other = Other { child, words, input };
        let mut line = String::new();
        other.words.read_line(&mut line)?;
        ensure(line.trim() == "holds", || format!("{what} said {line:?}"))?;
        Ok(other)
    }

    /// Closes its input, which makes it end, and returns its last output.
    fn ends(mut self) -> Result<String, Box<dyn Error>> {
        drop(self.input.take());
        let mut text = String::new();
        self.words.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SIGKILL: it cannot restore anything itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part of such a program.
pub fn child(words: &[String]) -> Outcome {
    let [what, at] = words else { return Err("two words".into()) };
    let at: Address = at.parse()?;
    let take = |to| bind::take(&Tree::default(), at, to, bind::Word::None);
    match what.as_str() {
        "takes memory" => return take_memory(),
        "opens" | "mounts" => {
            let _held = used::hold(what, at)?;
            println!("holds");
            std::io::stdin().read_to_end(&mut Vec::new())?;
            return Ok(());
        }
        "drives" => return drive(at),
        "gives up" => {
            let device = sysfs::open(at)?;
            let memory = device.allocate(1 << 20)?;
            device.is_stuck();
            drop((device, memory));
            println!("holds");
            // Until the end of its input.
            std::io::stdin().read_to_end(&mut Vec::new())?;
            return Ok(());
        }
        "takes and drives" => {
            let _bound = take(To::Nobody)?;
            return drive(at);
        }
        _ => {}
    }
    let _held: Box<dyn std::any::Any> = match what.as_str() {
        "sysfs" => {
            let device = sysfs::open(at)?;
            // Its registers may still name memory of an earlier owner.
            ensure(!masters(at), || "bus mastering is on from the start".into())?;
            device.master()?;
            let memory = device.allocate(1 << 20)?;
            Box::new((device, memory))
        }
        _ => {
            let bound = take(To::Vfio)?;
            let device = vfio::open(at)?;
            ensure(!masters(at), || "bus mastering is on from the start".into())?;
            let memory = device.allocate(1 << 20)?;
            Box::new((memory, device, bound))
        }
    };
    println!("holds");
    loop {
        std::thread::park();
    }
}

const SLOTS: u16 = 64;
const PART: u64 = 64 << 10;

/// Reads and writes in a loop until it is killed, with as many commands in flight as the queue has slots.
fn drive(at: Address) -> Outcome {
    let controller = Controller::open(Box::new(sysfs::open(at)?))?;
    let namespace = controller.namespace(1)?;
    let mut queue = controller.queue(&Depth { slots: SLOTS, most_bytes: PART, deadline: Duration::from_secs(60) })?;
    let word = Word { destroy: vec!["unknown".into()], ..Word::of(at.to_string()) };
    let leave = Overwrite::ask(&controller, &mut queue, &namespace, &word)?;
    let memory = controller.allocate(u64::from(SLOTS) * PART)?;
    let blocks = PART / namespace.block_bytes();
    // The other checks' blocks are in the first half.
    let from = namespace.blocks() / 2;
    let io = |slot: u16| -> Result<Io, nvme::Error> {
        let first = from + u64::from(slot) * blocks;
        if slot.is_multiple_of(4) { leave.write(first, blocks) } else { namespace.read(first, blocks) }
    };
    let start = |queue: &mut Queue, memory: &Memory, slot: u16| -> Outcome {
        queue.prepare(slot, &[Piece::new(memory, u64::from(slot) * PART, PART)])?;
        Ok(queue.submit(slot, &io(slot)?)?)
    };
    for slot in 0..SLOTS {
        start(&mut queue, &memory, slot)?;
    }
    println!("holds");
    let mut done = [Done::NONE; 64];
    loop {
        let count = queue.wait(&mut done)?;
        for one in &done[..count] {
            ensure(one.is_success(), || format!("{one:?}"))?;
            start(&mut queue, &memory, one.slot)?;
        }
    }
}

const HUGE: usize = 2 << 20;
const MARK: u8 = 0xa5;

/// Takes each huge page that is or becomes free and fills it. When its input ends it prints how many pages it had, and how many of their bytes have
/// changed.
fn take_memory() -> Outcome {
    let mut taken: Vec<&mut [u8]> = Vec::new();
    let mut take = || {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel puts it.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), HUGE, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return false;
        }
        // SAFETY: mapped just now, for the life of this process; nothing else in it uses the page.
        let page = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), HUGE) };
        page.fill(MARK);
        taken.push(page);
        true
    };
    while take() {}
    println!("holds");
    let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor of this process.
    while unsafe { libc::poll(&raw mut input, 1, 1) } == 0 {
        while take() {}
    }
    let bytes = taken.iter().map(|page| page.iter().filter(|byte| **byte != MARK).count()).sum::<usize>();
    println!("{} {bytes}", taken.len());
    Ok(())
}

fn file(at: Address, name: &str) -> Vec<u8> {
    fs::read(format!("/sys/bus/pci/devices/{at}/{name}")).unwrap_or_default()
}

fn masters(at: Address) -> bool {
    file(at, "config").get(4).is_some_and(|byte| byte & 4 != 0)
}

fn free() -> u64 {
    let text = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The reading and writing program is killed; two others take its memory as soon as it is free. `held`: QEMU lets no command of the drive through
/// from just before until long after.
fn kill_one(drive: Address, what: &str, held: bool) -> Outcome {
    let (enable, before) = (file(drive, "enable"), free());
    let victim = Other::start(what, drive)?;
    ensure(masters(drive), || "bus mastering is off".into())?;
    let its = before - free();
    let others = [Other::start("takes memory", drive)?, Other::start("takes memory", drive)?];
    let hold = held.then(faults::Held::begin).transpose()?;
    // At any point of its work.
    sleep(Duration::from_micros(2000 + u64::from(victim.child.id() % 23) * 400));
    drop(victim);
    match what {
        "drives" => until("bus mastering is off", || !masters(drive) && file(drive, "enable") == enable)?,
        _ => is_the_kernels(drive)?,
    }
    ensure(file(drive, "enable") == enable, || format!("enable: {:?} before {enable:?}", file(drive, "enable")))?;
    // Late writes arrive now.
    drop(hold);
    sleep(Duration::from_millis(50));
    let (mut pages, mut changed) = (0, 0);
    for other in others {
        let text = other.ends()?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut number = || numbers.next().ok_or_else(|| format!("it said {text:?}"));
        pages += number()??;
        changed += number()??;
    }
    // The process that ends later may also have taken pages of the one that ended first.
    ensure(pages >= before && its > 0, || format!("{pages} of {before} pages were taken, {its} of them its"))?;
    ensure(changed == 0, || format!("{changed} bytes of others have changed"))?;
    until("all pages are free", || free() == before)
}

/// Kills as often as requested: alternately on a drive without a driver, and on one that its driver gets back.
pub fn while_driving(drive: Address, kills: u32) -> Outcome {
    is_the_kernels(drive)?;
    for kill in 0..kills {
        let held = kill % 4 < 2;
        let done = match kill % 2 {
            0 => {
                let _bound = bind::take(&Tree::default(), drive, To::Nobody, bind::Word::None)?;
                kill_one(drive, "drives", held)
            }
            _ => kill_one(drive, "takes and drives", held),
        };
        done.map_err(|why| format!("kill {} of {kills}: {why}", kill + 1))?;
        is_the_kernels(drive)?;
    }
    Ok(())
}

/// A driver that could not stop its function reports that. Its restorer acts at the end of the process, and until then the function cannot be
/// opened.
pub fn stuck(edu: Address) -> Outcome {
    let stuck = Other::start("gives up", edu)?;
    ensure(!masters(edu), || "bus mastering is on".into())?;
    through::refused(sysfs::open(edu).map(drop), &["a program drives it already"])?;
    stuck.ends()?;
    sysfs::open(edu)?;
    ensure(file(edu, "enable") == b"0\n", || format!("enable: {:?}", file(edu, "enable")))
}

pub fn with_sysfs(edu: Address) -> Outcome {
    let before = free();
    let killed = Other::start("sysfs", edu)?;
    ensure(masters(edu) && file(edu, "enable") == b"1\n", || "bus mastering is off".into())?;
    ensure(free() != before, || "it has no huge page".into())?;
    drop(killed);
    until("bus mastering is off", || !masters(edu) && file(edu, "enable") == b"0\n")?;
    until("its huge page is free", || free() == before)
}

pub fn with_vfio(drive: Address) -> Outcome {
    let killed = Other::start("vfio", drive)?;
    ensure(Tree::default().driver(drive).as_deref() == Some("vfio-pci"), || "vfio does not have it".into())?;
    // Another process cannot open its group until then.
    through::refused(vfio::open(drive).map(drop), &["another process has its group"])?;
    drop(killed);
    is_the_kernels(drive)
}
