//! Taking functions from their drivers, and giving them back, also when the process that took them is killed.

use super::through;
use crate::report::{Outcome, ensure};
use pcie::bind::{self, To, Word};
use pcie::{Address, Function, Tree, sysfs, vfio};
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it holds.
pub fn until(what: &str, holds: impl Fn() -> bool) -> Outcome {
    let started = Instant::now();
    while !holds() {
        ensure(started.elapsed() < PATIENCE, || format!("{what}: not after {PATIENCE:?}"))?;
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The kernel's driver has it, and shows its namespace.
pub fn is_the_kernels(drive: Address) -> Outcome {
    let tree = Tree::default();
    until("the driver nvme has it", || tree.driver(drive).as_deref() == Some("nvme"))?;
    until("its namespace is there", || !bind::disks(&tree, drive).is_empty())?;
    let folder = format!("/sys/bus/pci/devices/{drive}");
    let over = fs::read_to_string(format!("{folder}/driver_override"))?;
    ensure(over.trim() == "(null)", || format!("its override is {over:?}"))
}

pub fn to_nobody_and_back(drive: Address) -> Outcome {
    is_the_kernels(drive)?;
    let bound = bind::take(&Tree::default(), drive, To::Nobody, Word::None)?;
    ensure(bound.before() == Some("nvme"), || format!("before: {:?}", bound.before()))?;
    ensure(Tree::default().driver(drive).is_none(), || "it has a driver still".into())?;
    through::drive(&sysfs::open(drive)?)?;
    drop(bound);
    is_the_kernels(drive)
}

pub fn to_vfio_and_back(drive: Address) -> Outcome {
    is_the_kernels(drive)?;
    ensure(To::fitting(&Tree::default(), drive) == To::Vfio, || "vfio does not fit".into())?;
    let bound = bind::take(&Tree::default(), drive, To::Vfio, Word::None)?;
    let device = vfio::open(drive)?;
    through::drive(&device)?;
    drop(device);
    drop(bound);
    is_the_kernels(drive)
}

/// The harness has put a partition on this drive, and swap space on that.
pub fn in_use(drive: Address) -> Outcome {
    is_the_kernels(drive)?;
    let tree = Tree::default();
    let disk = bind::disks(&tree, drive).remove(0);
    let partition = format!("{disk}p1");
    until("its partition is there", || Path::new(&format!("/dev/{partition}")).exists())?;
    let take = |word| bind::take(&tree, drive, To::Vfio, word);
    through::refused(take(Word::None), &[&format!("{partition} is a partition")])?;

    let path = CString::new(format!("/dev/{partition}"))?;
    // SAFETY: a text that ends with a zero byte.
    let on = unsafe { libc::swapon(path.as_ptr(), 0) };
    ensure(on == 0, || format!("swapon: {}", std::io::Error::last_os_error()))?;
    let refused = through::refused(take(Word::None), &[&format!("{partition} is swap space")]);
    // SAFETY: as above.
    unsafe { libc::swapoff(path.as_ptr()) };
    refused?;
    ensure(tree.driver(drive).as_deref() == Some("nvme"), || "it was taken".into())?;

    drop(take(Word::TakeIt)?);
    is_the_kernels(drive)
}

/// This program again, which holds something and is killed.
struct Killed(Child);

impl Killed {
    fn holding(what: &str, at: Address) -> Result<Killed, Box<dyn std::error::Error>> {
        let mut child = Killed(Command::new("/init").args([what, &at.to_string()]).stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        ensure(line.trim() == "holds", || format!("the child said {line:?}"))?;
        Ok(child)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // SIGKILL: it cannot put anything back itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The child's part.
pub fn child(words: &[String]) -> Outcome {
    let [what, at] = words else { return Err("two words".into()) };
    let at: Address = at.parse()?;
    let _held: Box<dyn std::any::Any> = match what.as_str() {
        "sysfs" => {
            let device = sysfs::open(at)?;
            let memory = device.allocate(1 << 20)?;
            Box::new((device, memory))
        }
        _ => {
            let bound = bind::take(&Tree::default(), at, To::Vfio, Word::None)?;
            let device = vfio::open(at)?;
            let memory = device.allocate(1 << 20)?;
            Box::new((memory, device, bound))
        }
    };
    println!("holds");
    loop {
        std::thread::park();
    }
}

pub fn killed_with_sysfs(edu: Address) -> Outcome {
    let file = |name: &str| fs::read(format!("/sys/bus/pci/devices/{edu}/{name}")).unwrap_or_default();
    let free = || fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    let before = free();
    let killed = Killed::holding("sysfs", edu)?;
    ensure(file("config")[4] & 4 != 0 && file("enable") == b"1\n", || "bus mastering is off".into())?;
    ensure(free() != before, || "it has no huge page".into())?;
    drop(killed);
    until("bus mastering is off", || file("config")[4] & 4 == 0 && file("enable") == b"0\n")?;
    until("its huge page is free", || free() == before)
}

pub fn killed_with_vfio(drive: Address) -> Outcome {
    let killed = Killed::holding("vfio", drive)?;
    ensure(Tree::default().driver(drive).as_deref() == Some("vfio-pci"), || "vfio does not have it".into())?;
    // Another process cannot open its group meanwhile.
    through::refused(vfio::open(drive).map(drop), &["another process has its group"])?;
    drop(killed);
    is_the_kernels(drive)
}
