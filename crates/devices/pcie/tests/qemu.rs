//! QEMU's devices through the trait `Function`: BARs, DMA, reset, hot removal, and the messages when QEMU fails.

use environment::config_space::{Config, Kind};
use pcie::qemu::{Machine, PROGRAM, Pages};
use pcie::{Bar, Error, Memory};
use std::path::Path;
use std::time::{Duration, Instant};
use test_support::skip;

/// QEMU's edu device (docs/specs/edu).
const EDU: &str = "edu,dma_mask=0xffffffffffffffff";

macro_rules! needs_qemu {
    () => {
        if !test_support::installed(PROGRAM) {
            skip!("{PROGRAM} is not installed");
        }
    };
}

/// edu's DMA engine: its 4 KiB buffer at 0x40000, one way or the other, to the end. (QEMU 7.2 aborts where a transfer ends with the buffer.)
fn dma(machine: &Machine, bar: &Bar, from: u64, to: u64, bytes: u64, out: bool) {
    bar.store64(0x80, from);
    bar.store64(0x88, to);
    bar.store64(0x90, bytes);
    bar.store32(0x98, 1 | u32::from(out) << 1);
    let until = Instant::now() + Duration::from_secs(20);
    while bar.load32(0x98) & 1 != 0 {
        assert!(Instant::now() < until, "edu's DMA does not end; {:?}", machine.failure());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(memory: &Memory, offset: u64, bytes: usize) -> Vec<u8> {
    let mut into = vec![0; bytes];
    memory.load(offset, &mut into).unwrap();
    into
}

#[test]
fn devices_move_data() {
    needs_qemu!();
    // Large enough to be placed above 4 GiB.
    let peer_bytes = 64 << 20;
    let machine = Machine::builder().peer_memory(peer_bytes).pages(Pages::Scattered);
    let machine = machine.device(EDU).device("pci-testdev").start().unwrap();
    let edu = machine.function(0).unwrap();
    let identity = edu.identity();
    assert_eq!((identity.vendor, identity.device, identity.class), (0x1234, 0x11e8, 0x00_ff_00));
    assert!(edu.is_functional() && edu.is_present());
    let bar = edu.bar(0).unwrap();
    assert_eq!(bar.length(), 1 << 20);
    assert_eq!(bar.load32(0) & 0xff, 0xed);
    bar.store32(4, 0x1234_5678);
    assert_eq!(bar.load32(4), !0x1234_5678);
    assert!(matches!(edu.bar(1), Err(Error::NoBar { .. })));

    // From host memory through the device into the peer's BAR, as a device writes to a GPU.
    let host = edu.allocate(8192).unwrap();
    let bytes: Vec<u8> = (0..2048u32).map(|i| (i * 7 % 251) as u8).collect();
    host.store(4096, &bytes).unwrap();
    let (peer, at) = machine.peer();
    let reached = edu.reach(&peer).unwrap();
    assert_eq!((reached.length(), reached.as_ptr()), (peer_bytes, Some(at)));
    edu.master().unwrap();
    dma(&machine, &bar, host.bus(4096).unwrap().0, 0x40000, 2048, false);
    let (target, _) = reached.bus(0x7000).unwrap();
    dma(&machine, &bar, 0x40000, target, 2048, true);
    assert_eq!(read(&reached, 0x7000, 2048), bytes);
    assert!(read(&reached, 0x6000, 4096).iter().chain(&read(&reached, 0x7800, 4096)).all(|b| *b == 0));
    // Without bus mastering no byte moves.
    let mut command = [0; 2];
    edu.read_config(4, &mut command).unwrap();
    edu.write_config(4, &[command[0] & !4, command[1]]).unwrap();
    dma(&machine, &bar, 0x40000, target + 4096, 2048, true);
    assert!(read(&reached, 0x8000, 4096).iter().all(|b| *b == 0));

    // Several functions may be open, each of them once.
    let other = machine.function(1).unwrap();
    assert_eq!((other.identity().vendor, other.identity().device), (0x1b36, 0x0005));
    assert!(matches!(machine.function(0), Err(Error::Refused { .. })));
    drop(edu);
    let again = machine.function("device0").unwrap();
    assert_eq!(again.bar(0).unwrap().load32(0) & 0xff, 0xed);
}

#[test]
fn configuration_space_is_read_in_any_pieces() {
    needs_qemu!();
    const LENGTH: usize = 4096;
    let machine = Machine::builder().paused().device("nvme,serial=x,drive=d0").device("edu");
    let machine = machine.drive("driver=null-co,size=1M,read-zeroes=on,if=none,id=d0").start().unwrap();
    let nvme = machine.function(0).unwrap();
    let mut whole = vec![0; LENGTH];
    nvme.read_config(0, &mut whole).unwrap();
    assert_eq!((nvme.identity().vendor, nvme.identity().class), (0x1b36, 0x01_08_02));
    for (offset, bytes) in [(0, 1), (1, 2), (3, 7), (0x0b, 2), (0x3f, 9), (LENGTH - 5, 5)] {
        let mut part = vec![0; bytes];
        nvme.read_config(offset as u16, &mut part).unwrap();
        assert_eq!(part, whole[offset..offset + bytes], "{offset:#x}");
    }
    let config = Config::of(&whole);
    // MSI-X: off, 65 vectors, whose table is in BAR 0.
    let table = config.capability(0x11).unwrap();
    assert_eq!((&whole[table + 2..table + 4], whole[table + 4] & 7), (&[64, 0][..], 0));
    // The command register: it decodes memory, and is no master.
    assert_eq!(whole[4] & 6, 2);
    nvme.master().unwrap();
    let mut after = whole.clone();
    nvme.read_config(0, &mut after).unwrap();
    assert_eq!(after[4] & 6, 6);
    // On the root bus it is a part of the root complex.
    assert_eq!(config.express().unwrap().kind, Kind::Integrated);
    assert!(matches!(nvme.read_config(LENGTH as u16 - 3, &mut [0; 4]), Err(Error::OutOfBounds { .. })));
    // NVMe's registers, as 64 bits and as 32: MQES and the version.
    let bar = nvme.bar(0).unwrap();
    assert_eq!(bar.load64(0) & 0xffff, 2047);
    assert_eq!(bar.load64(0) as u32, bar.load32(0));
    assert_eq!(bar.load32(8), 0x0001_0400);
}

#[test]
fn devices_below_a_switch_move_data_and_its_ports_report_redirection() {
    needs_qemu!();
    let machine = Machine::builder().peer_memory(1 << 20).device("pcie-root-port,id=root0,chassis=1,slot=1");
    let machine = machine.device("x3130-upstream,id=up,bus=root0");
    let machine = (2..5).fold(machine, |machine, slot| {
        machine.device(format!("xio3130-downstream,id=down{slot},bus=up,chassis={slot},slot={slot}"))
    });
    let machine = machine.device(format!("{EDU},id=edu,bus=down2")).device("pci-testdev,id=other,bus=down4");
    let machine = machine.start().unwrap();
    let edu = machine.function("edu").unwrap();
    edu.master().unwrap();
    let (bar, host) = (edu.bar(0).unwrap(), edu.allocate(4096).unwrap());
    host.store(0, b"through a switch").unwrap();
    let target = edu.reach(&machine.peer().0).unwrap();
    dma(&machine, &bar, host.bus(0).unwrap().0, 0x40000, 16, false);
    dma(&machine, &bar, 0x40000, target.bus(64).unwrap().0, 16, true);
    assert_eq!(read(&target, 64, 16), b"through a switch");
    assert_eq!(machine.function("other").unwrap().identity().device, 0x0005);
    assert_eq!(machine.address("other").unwrap().bus, machine.address("edu").unwrap().bus + 2);

    let kinds = [("root0", Kind::RootPort), ("up", Kind::UpstreamPort), ("down3", Kind::DownstreamPort)];
    for (id, kind) in kinds {
        let port = machine.function(id).unwrap();
        let mut whole = vec![0; 4096];
        port.read_config(0, &mut whole).unwrap();
        let config = Config::of(&whole);
        assert_eq!((config.express().unwrap().kind, config.header().unwrap().is_bridge), (kind, true), "{id}");
        // Uncorrectable and correctable errors since the last clear.
        let errors = config.extended(1).unwrap();
        assert_eq!(
            (&whole[errors + 4..errors + 8], &whole[errors + 16..errors + 20]),
            (&[0; 4][..], &[0; 4][..]),
            "{id}"
        );
        let Ok(at) = config.extended(0x000d) else { continue };
        assert!(!config.access_control().unwrap().redirects(), "{id}");
        port.write_config(at as u16 + 6, &[0x1d, 0]).unwrap();
        port.read_config(0, &mut whole).unwrap();
        assert!(Config::of(&whole).access_control().unwrap().redirects(), "{id}");
    }
}

#[test]
fn a_reset_function_is_where_it_was() {
    needs_qemu!();
    let machine = Machine::builder().args(["-device", "pcie-root-port,id=port0,chassis=1,slot=1"]);
    let machine = machine.device("edu").device("pci-testdev,bus=port0").start().unwrap();
    let below = machine.function(1).unwrap();
    assert_eq!(below.identity().address.bus, 1);
    let before = below.bar(0).unwrap().bus_address();
    below.reset().unwrap();
    let mut registers = [0; 4];
    below.read_config(0x10, &mut registers).unwrap();
    assert_eq!(u64::from(u32::from_le_bytes(registers) & !0xf), before);
    // edu has no function-level reset, and on the root bus there is no port.
    let refused = machine.function(0).unwrap().reset().unwrap_err();
    assert!(refused.to_string().contains("no reset, and no port above it"), "{refused}");
}

#[test]
fn a_function_level_reset_clears_registers_and_leaves_the_function_where_it_was() {
    needs_qemu!();
    const CONFIGURATION: u64 = 0x14;
    // In a slot, and on the root bus, whose bridge cannot reset.
    for bus in [",bus=port0", ""] {
        let machine = Machine::builder().drive("driver=null-co,size=1M,if=none,id=d0");
        let machine = machine.args(["-device", "pcie-root-port,id=port0,chassis=1,slot=1"]);
        let machine = machine.device(format!("nvme,id=nvme0,drive=d0,serial=x{bus}")).start().unwrap();
        let drive = machine.function("nvme0").unwrap();
        let bar = drive.bar(0).unwrap();
        let version = bar.load32(8);
        // How large queue entries are: kept until a reset.
        bar.store32(CONFIGURATION, 0x0046_0000);
        assert_eq!(bar.load32(CONFIGURATION), 0x0046_0000, "{bus}");
        drive.master().unwrap();
        drive.reset().unwrap();
        let mut command = [0; 2];
        drive.read_config(4, &mut command).unwrap();
        assert_eq!(command[0] & 6, 6, "{bus}: as before the reset");
        assert_eq!((bar.load32(CONFIGURATION), bar.load32(8)), (0, version), "{bus}");
        assert_eq!(drive.bar(0).unwrap().bus_address(), bar.bus_address());
    }
}

/// QEMU's network card keeps its registers over a change of its power state. So the test checks the writes to it, by QEMU's own trace.
#[test]
fn a_function_without_flr_is_reset_by_d3hot() {
    needs_qemu!();
    let trace = std::env::temp_dir().join(format!("pcie-trace-{}", std::process::id()));
    let machine = Machine::builder().args(["-trace", "enable=pci_cfg_write", "-D", trace.to_str().unwrap()]);
    let machine = machine.device("e1000e,romfile=").start().unwrap();
    let card = machine.function(0).unwrap();
    let bar = card.bar(0).unwrap();
    let status = bar.load32(8);
    let before = std::fs::read_to_string(&trace).unwrap().len();
    card.reset().unwrap();
    assert_eq!((bar.load32(8), card.is_present()), (status, true));
    drop((bar, card, machine));
    let written = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    // Power management is at 0xc8; its control register is 4 bytes after that.
    let states: Vec<&str> = written[before..].lines().filter(|line| line.contains("e1000e")).collect();
    let control = |line: &&str| line.split_once("@0xcc <- 0x").map(|(_, value)| value.trim().to_owned());
    let states: Vec<String> = states.iter().filter_map(control).collect();
    let states: Vec<u32> = states.iter().map(|value| u32::from_str_radix(value, 16).unwrap() & 3).collect();
    assert_eq!(states, [3, 0], "{written}");
}

#[test]
fn a_device_that_was_pulled_out_reads_as_ones() {
    needs_qemu!();
    let machine = Machine::builder().args(["-device", "pcie-root-port,id=port0,chassis=1,slot=1"]);
    let machine = machine.device("edu,bus=port0").device("edu,id=fixed").start().unwrap();
    let edu = machine.function(0).unwrap();
    let bar = edu.bar(0).unwrap();
    assert_eq!(bar.load32(0) & 0xff, 0xed);
    machine.pull(0).unwrap();
    assert!(!edu.is_present());
    assert_eq!((bar.load32(0), bar.load64(8)), (u32::MAX, u64::MAX));
    let mut head = [0; 4];
    edu.read_config(0, &mut head).unwrap();
    assert_eq!(head, [0xff; 4]);
    let address = edu.identity().address;
    drop(edu);
    assert!(matches!(machine.function(address), Err(Error::Gone { .. })));
    machine.plug("edu,id=later,bus=port0").unwrap();
    let later = machine.function("later").unwrap();
    assert_eq!(later.bar(0).unwrap().load32(0) & 0xff, 0xed);
    assert!(machine.pull("nobody").unwrap_err().to_string().contains("nobody"));
    assert!(machine.pull("fixed").unwrap_err().to_string().contains("below no port"));
}

#[test]
fn queues_may_be_driven_by_several_threads() {
    needs_qemu!();
    let machine = Machine::builder().device("edu").start().unwrap();
    let edu = machine.function(0).unwrap();
    let bar = edu.bar(0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let bar = bar.clone();
            scope.spawn(move || (0..200).for_each(|_| assert_eq!(bar.load32(0), 0x0100_00ed)));
        }
        for i in 0..50u64 {
            let memory = edu.allocate(4096 + i * 4096).unwrap();
            let mut vendor = [0; 2];
            edu.read_config(0, &mut vendor).unwrap();
            assert_eq!((vendor, memory.length()), ([0x34, 0x12], 4096 + i * 4096));
        }
    });
}

fn runs(process: u32) -> bool {
    // A zombie has no command line.
    std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn qemu_ends_with_its_machine() {
    needs_qemu!();
    let machine = Machine::builder().device("edu").start().unwrap();
    let (process, edu) = (machine.process(), machine.function(0).unwrap());
    assert!(runs(process));
    let (bar, memory) = (edu.bar(0).unwrap(), edu.allocate(4096).unwrap());
    drop(machine);
    assert!(!runs(process));
    assert_eq!(bar.load32(0), u32::MAX);
    assert!(!edu.is_present());
    // Allocated memory stays.
    memory.store(0, b"still there").unwrap();

    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let machine = Machine::builder().start().unwrap();
        tell.send(machine.process()).unwrap();
        panic!("on purpose");
    });
    let process = told.recv().unwrap();
    assert!(panicked.join().is_err());
    assert!(!runs(process));
    // The machine outlives the thread that started it.
    let machine = std::thread::spawn(|| Machine::builder().device("edu").start().unwrap()).join().unwrap();
    assert!(machine.function(0).unwrap().is_present());
}

#[test]
#[ignore = "a program that another test starts"]
fn plays_a_program_that_is_killed() {
    let place = std::env::var_os("TEST_QEMU_ID").expect("where to write QEMU's process id");
    let machine = Machine::builder().start().unwrap();
    let place = Path::new(&place);
    std::fs::write(place.with_extension("new"), machine.process().to_string()).unwrap();
    std::fs::rename(place.with_extension("new"), place).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn qemu_ends_with_a_program_that_is_killed() {
    needs_qemu!();
    let place = std::env::temp_dir().join(format!("pcie-qemu-{}", std::process::id()));
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "--ignored", "plays_a_program_that_is_killed"]).env("TEST_QEMU_ID", &place);
    let mut program = program.stdout(std::process::Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !place.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    program.kill().unwrap();
    program.wait().unwrap();
    let process: u32 = std::fs::read_to_string(&place).unwrap().parse().unwrap();
    std::fs::remove_file(&place).unwrap();
    while runs(process) {
        assert!(Instant::now() < until, "QEMU {process} outlives the program that started it");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn fails(builder: pcie::qemu::Builder) -> String {
    match builder.start() {
        Ok(_) => panic!("it started"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn errors_contain_qemus_message() {
    needs_qemu!();
    let told = fails(Machine::builder().device("no-such-device"));
    assert!(
        told.contains("'no-such-device' is not a valid device model name") && told.contains("exit status"),
        "{told}"
    );
    let told = fails(Machine::builder().drive("file=/no/such/file,if=none,id=d0,format=raw"));
    assert!(told.contains("/no/such/file"), "{told}");
    assert!(fails(Machine::builder().peer_memory(3 << 20)).contains("power of two"));
    assert!(fails(Machine::builder().ram(3 << 30)).contains("whole MiB"));
    let machine = Machine::builder().start().unwrap();
    let told = machine.monitor("device_del nothing").unwrap_err().to_string();
    assert!(told.contains("nothing"), "{told}");
    assert!(machine.function(0).err().is_some_and(|e| e.to_string().contains("no device 0")));
}

#[test]
fn a_qemu_that_ends_or_stops_answering_is_told() {
    needs_qemu!();
    let signal = |process: u32, signal: i32| {
        // SAFETY: a running child of this test.
        assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0);
    };
    let machine = Machine::builder().device("edu").start().unwrap();
    let edu = machine.function(0).unwrap();
    signal(machine.process(), libc::SIGKILL);
    let told = edu.read_config(0, &mut [0; 4]).unwrap_err().to_string();
    assert!(told.contains("it ended (signal: 9"), "{told}");
    assert_eq!(edu.bar(0).unwrap().load32(0), u32::MAX);
    assert_eq!(format!("QEMU: {}", machine.failure().unwrap()), told);

    let machine = Machine::builder().device("edu").patience(Duration::from_millis(300)).start().unwrap();
    let edu = machine.function(0).unwrap();
    signal(machine.process(), libc::SIGSTOP);
    let told = edu.read_config(0, &mut [0; 4]).unwrap_err().to_string();
    assert!(told.contains("within 0.3 s") && told.contains("still running"), "{told}");
    // No further request is sent: its answer would belong to the previous one.
    let begin = Instant::now();
    assert!((0..100).all(|_| !edu.is_present()));
    assert!(begin.elapsed() < Duration::from_secs(15));
}
