//! `graphs` with the libcuda in software, whose graphs are words in CUDA's form that the software GPU runs.

#[path = "../../softcuda/tests/program/mod.rs"]
mod program;

use sample_programs::checks::Verdict;
use sample_programs::{Launcher, Options, run, shapes};

/// Shapes that must run; the others run as far as possible.
const MUST: [&str; 12] = [
    "one",
    "chain-2",
    "chain-100",
    "chain-2000",
    "queued",
    "memset-1-64B",
    "memset-4-4B",
    "memset-4-64KiB-zero",
    "memcpy-d2d-4KiB",
    "memcpy-h2d-8B",
    "memcpy-d2h-1MiB",
    "two-graphs",
];

#[test]
fn shapes_of_graphs_run_on_the_software_gpu() {
    if !program::inside("shapes_of_graphs_run_on_the_software_gpu") {
        return;
    }
    // (Its copies reach no memory that it does not know.)
    let only = shapes().into_iter().filter(|name| !name.contains("pageable")).collect();
    let report = run("graphs", &Options { only, progress: |line| println!("{line}"), ..Options::default() }).unwrap();
    for name in MUST {
        let part = report.parts.iter().find(|part| part.name == name).unwrap();
        assert!(part.launches >= 6 && part.skipped.is_none(), "{part}");
    }
}

/// Shapes that doorbell launches here, chosen to be quick on a busy machine.
const PAST: [&str; 7] = ["one", "chain-2", "chain-10", "queued", "memset-4-64B", "memcpy-h2d-4KiB", "two-graphs"];

fn past_cuda(only: Vec<String>) -> sample_programs::Report {
    let options = Options { only, count: Some(6), progress: |line| println!("{line}"), ..Options::default() };
    run("graphs", &Options { launcher: Launcher::Doorbell, ..options }).unwrap()
}

#[test]
fn shapes_of_graphs_have_the_same_results_past_cuda() {
    if !program::inside("shapes_of_graphs_have_the_same_results_past_cuda") {
        return;
    }
    let report = past_cuda(PAST.map(String::from).to_vec());
    for part in &report.parts {
        assert!(part.launches >= 6 && part.skipped.is_none(), "{part}");
    }
    assert_eq!(report.parts.len(), PAST.len());
}

#[test]
fn memsets_by_the_macro_are_right_past_cuda_whatever_its_arguments_are() {
    let arguments = [("DOORBELL_SOFTCUDA_MACRO", "value-last,words-less-one")];
    if !program::inside_where("memsets_by_the_macro_are_right_past_cuda_whatever_its_arguments_are", &arguments) {
        return;
    }
    let report = past_cuda(["memset-4-64B", "memset-1-64B", "memset-2-64B"].map(String::from).to_vec());
    assert!(report.parts.iter().all(|part| part.launches >= 6 && part.skipped.is_none()), "{report}");
}

#[test]
fn the_checks_of_launches_pass() {
    if !program::inside("the_checks_of_launches_pass") {
        return;
    }
    let mut all = Vec::new();
    sample_programs::check_launches(0, 1, &[], |checked| all.push(checked)).unwrap();
    assert_eq!(
        all.iter().map(|checked| checked.name).collect::<Vec<_>>(),
        sample_programs::LAUNCH_CHECKS.iter().map(|check| check.name).collect::<Vec<_>>()
    );
    assert!(all.iter().all(|checked| matches!(checked.verdict, Verdict::Passed(_))), "{all:?}");
}

#[test]
fn after_a_failed_check_no_launch_follows() {
    // Constant caches are never invalidated: new parameters do not arrive.
    let fault = [("DOORBELL_SOFTGPU_FAULT", "stale-bank")];
    if !program::inside_where("after_a_failed_check_no_launch_follows", &fault) {
        return;
    }
    let mut all = Vec::new();
    sample_programs::check_launches(0, 1, &[], |checked| all.push(checked)).unwrap();
    let failed = all.iter().position(|checked| matches!(checked.verdict, Verdict::Failed(_))).unwrap();
    assert!(all[failed + 1..].iter().all(|checked| matches!(checked.verdict, Verdict::Skipped(_))), "{all:?}");
    assert!(failed + 1 < all.len() && all.len() == sample_programs::LAUNCH_CHECKS.len(), "{all:?}");
}

/// `cuCtxSetLimit(CU_LIMIT_STACK_SIZE, value)`, as a program calls it.
fn set_stack_size(value: usize) {
    // SAFETY: the name of a loaded library, and of a function with this signature.
    unsafe {
        let handle = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let function = libc::dlsym(handle, c"cuCtxSetLimit".as_ptr());
        let function: extern "C" fn(i32, usize) -> i32 = std::mem::transmute(function);
        assert_eq!(function(0, value), 0);
    }
}

#[test]
fn a_graph_is_not_launched_any_more_when_the_stack_size_changes() {
    if !program::inside("a_graph_is_not_launched_any_more_when_the_stack_size_changes") {
        return;
    }
    let libcuda = gpu::Libcuda::open().unwrap();
    let cuda = cuda::Cuda::load().unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    context.make_current().unwrap();
    let module = cuda::Module::from_ptx(&context, "").unwrap();
    let add = module.function("add1").unwrap();
    let memory = cuda::DeviceBuffer::new(&context, 4096).unwrap();
    memory.write(&[0; 4096]).unwrap();
    let stream = cuda::Stream::new(&context).unwrap();
    let space = libcuda.address_space(context.device().uuid().unwrap(), gpu::Entry::CudasClient).unwrap();
    let mut channel = launch::channel(&space).unwrap();
    let prepare = |channel: &mut gpu::Channel| {
        // SAFETY: the memory outlives the launches.
        let captured = cuda::Graph::capture(&stream, || unsafe {
            add.launch([1; 3], [1; 3], 0, &stream, &[cuda::Argument::U64(memory.address())])
        });
        let exec = captured.unwrap().instantiate().unwrap();
        let mut by_cuda = || {
            // SAFETY: as above.
            unsafe { exec.launch(&stream) }.and_then(|()| stream.synchronize())
        };
        // SAFETY: as above.
        unsafe { launch::Graph::learn(libcuda.watched(), channel, &mut by_cuda) }.unwrap()
    };
    let limit = std::time::Duration::from_secs(20);
    let mut graph = prepare(&mut channel);
    let ticket = graph.launch(&mut channel).unwrap();
    channel.wait(ticket, limit).unwrap();
    // Setting the current size has no effect.
    set_stack_size(1024);
    graph.launch(&mut channel).unwrap();
    set_stack_size(4096);
    for _ in 0..2 {
        assert!(matches!(graph.launch(&mut channel), Err(gpu::Error::LocalMemoryMoved)));
    }
    let mut again = prepare(&mut channel);
    let ticket = again.launch(&mut channel).unwrap();
    channel.wait(ticket, limit).unwrap();
    assert!(matches!(graph.launch(&mut channel), Err(gpu::Error::LocalMemoryMoved)));
    let mut count = [0; 4096];
    memory.read(&mut count).unwrap();
    assert_eq!(u32::from_le_bytes([count[0], count[1], count[2], count[3]]), 3 + 2 + 3 + 1);
}

#[test]
fn doorbell_launches_nothing_with_the_multi_process_service() {
    let pipes = tempfile::tempdir().unwrap();
    std::fs::write(pipes.path().join("control"), "").unwrap();
    let environment = [("CUDA_MPS_PIPE_DIRECTORY", pipes.path().to_str().unwrap())];
    let test = "doorbell_launches_nothing_with_the_multi_process_service";
    if !program::inside_where(test, &environment) {
        return;
    }
    let options = Options { launcher: Launcher::Doorbell, only: vec!["one".into()], ..Options::default() };
    let error = run("graphs", &options).unwrap_err();
    assert!(error.to_string().contains("the Multi-Process Service has its pipe at"), "{error}");
}

#[test]
#[ignore = "all shapes, 20 s on a busy machine; run by .ci/run"]
fn all_shapes_of_graphs_are_right_past_cuda_or_refused() {
    if !program::inside("all_shapes_of_graphs_are_right_past_cuda_or_refused") {
        return;
    }
    let report = past_cuda(shapes().into_iter().filter(|name| !name.contains("pageable")).collect());
    assert!(report.parts.iter().filter(|part| part.skipped.is_none()).count() >= 25, "{report}");
}
